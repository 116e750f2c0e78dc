//! Sections of a program that contains probes, by the paper's formulas.

use crate::formulas::Overhead;
use crate::slice_book::{Loop, Tally, growing};
use hdrhistogram::Histogram;
use measure::slices::SliceTimes;
use probe::{Costs, Data, Section};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// One section over all blocks; times in nanoseconds, by formulas (1) and (3).
#[derive(Clone, Debug, Serialize)]
pub struct SectionReport {
    /// Its number.
    pub id: u8,
    /// Its name, if the program gave it one.
    pub name: Option<String>,
    /// Its count and times.
    #[serde(flatten)]
    pub times: SliceTimes,
    /// Occurrences per block.
    pub per_block: f64,
}

/// Counters of the blocks, and their sections.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramReport {
    /// Blocks read.
    pub received: u64,
    /// Blocks that the program dropped because the ring was full.
    pub dropped: u64,
    /// Blocks lost because their threads were killed while writing them.
    pub lost: u64,
    /// Sections beyond a block's capacity, or with a number above 31.
    pub beyond: u64,
    /// The sections, by number.
    pub sections: Vec<SectionReport>,
    /// Time from a thread's block to its next, by formula (5).
    #[serde(rename = "loop")]
    pub rounds: Option<Loop>,
    /// τα, τβ, τo, τγ of the program, in nanoseconds.
    pub overhead: Overhead,
}

/// Collects blocks.
pub struct ProgramBook {
    overhead: Overhead,
    ns_per_tick: f64,
    received: u64,
    lost: u64,
    beyond: u64,
    sections: BTreeMap<u8, Tally>,
    last: HashMap<u32, (u64, u32)>,
    rounds: Tally,
    raw_rounds: Histogram<u64>,
}

/// Number of sections inside the one at `n`: they stopped before it and started after it.
fn within(sections: &[Section], n: usize) -> u32 {
    let inside = sections[..n].iter().filter(|section| section.after >= sections[n].after).count();
    u32::try_from(inside).unwrap_or(u32::MAX)
}

/// Converts costs from ticks to ns.
fn overhead(costs: Costs, ns_per_tick: f64) -> Overhead {
    let Costs { alpha, beta, inside, gamma } = costs;
    let [alpha, beta, inside, gamma] = [alpha, beta, inside, gamma].map(|ticks| ticks * ns_per_tick);
    Overhead { alpha, beta, inside, gamma }
}

impl ProgramBook {
    /// A book for blocks of a program with these costs and this clock.
    #[must_use]
    pub fn new(costs: Costs, ns_per_tick: f64) -> ProgramBook {
        ProgramBook {
            overhead: overhead(costs, ns_per_tick),
            ns_per_tick,
            received: 0,
            lost: 0,
            beyond: 0,
            sections: BTreeMap::new(),
            last: HashMap::new(),
            rounds: Tally::new(),
            raw_rounds: growing(),
        }
    }

    /// Updates the costs that the program reports, for later blocks.
    pub fn learn(&mut self, costs: Costs) {
        self.overhead = overhead(costs, self.ns_per_tick);
    }

    /// Blocks so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Duration of a section in ns: as stamped, and minus the cost of the probes.
    fn lengths(&self, data: &Data, n: usize) -> (f64, f64) {
        let raw = data.sections[n].length as f64 * self.ns_per_tick;
        (raw, self.overhead.enclosing(raw, within(&data.sections, n)).max(0.0))
    }

    /// Adds a block.
    pub fn add(&mut self, data: &Data) {
        self.received += 1;
        self.beyond += u64::from(data.beyond);
        for (n, section) in data.sections.iter().enumerate() {
            let (raw, net) = self.lengths(data, n);
            self.sections.entry(section.id).or_insert_with(Tally::new).count(raw, net);
        }
        let pairs = u32::try_from(data.sections.len()).unwrap_or(u32::MAX) + u32::from(data.beyond);
        let last = self.last.insert(data.thread, (data.start, pairs));
        // Across a dropped block, two rounds would look like one. If a thread has several blocks open at once, the one
        // that ends last may have started first; that is not a round.
        if let Some((start, before)) = last.filter(|(start, _)| !data.after_drop && *start < data.start) {
            let raw = (data.start - start) as f64 * self.ns_per_tick;
            self.rounds.count(raw, self.overhead.round(raw, &[before]).max(0.0));
            self.raw_rounds.record(raw.round() as u64).expect("the histogram grows to any value");
        }
    }

    /// Sets the blocks lost so far, of all threads: a round across a lost block does not count.
    pub fn lost(&mut self, blocks: u64) {
        if blocks != self.lost {
            self.lost = blocks;
            self.last.clear();
        }
    }

    /// A block in one line.
    #[must_use]
    pub fn line(&self, data: &Data, name: impl Fn(u8) -> Option<String>) -> String {
        let way = if data.direction == probe::Direction::Send { "send" } else { "receive" };
        let sections = data.sections.iter().enumerate().map(|(n, section)| {
            let name = name(section.id).unwrap_or_else(|| section.id.to_string());
            format!("{name} {}", measure::figures::brief(self.lengths(data, n).1))
        });
        let sections: Vec<String> = sections.collect();
        format!("{} thread {} {way} {} B: {}", data.start, data.thread, data.length, sections.join(", "))
    }

    /// All figures.
    #[must_use]
    pub fn report(&self, dropped: u64, name: impl Fn(u8) -> Option<String>) -> ProgramReport {
        let section = |(id, tally): (&u8, &Tally)| SectionReport {
            id: *id,
            name: name(*id),
            times: tally.total(),
            per_block: tally.len() as f64 / self.received.max(1) as f64,
        };
        ProgramReport {
            received: self.received,
            dropped,
            lost: self.lost,
            beyond: self.beyond,
            sections: self.sections.iter().map(section).collect(),
            rounds: Loop::of(&self.rounds, &self.raw_rounds),
            overhead: self.overhead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, sections: &[(u8, u64, u64)]) -> Data {
        let section = |&(id, after, length): &(u8, u64, u64)| Section { id, after, length };
        Data {
            protocol: 6,
            direction: probe::Direction::Send,
            event: 0,
            transport_header: 0,
            ip_header: 0,
            length: 0,
            start,
            thread: 1,
            sections: sections.iter().map(section).collect(),
            beyond: 0,
            after_drop: false,
        }
    }

    #[test]
    fn ignores_incomplete_rounds() {
        let mut book = ProgramBook::new(Costs::default(), 1.0);
        book.add(&block(10_000, &[]));
        book.add(&block(20_000, &[]));
        book.add(&Data { after_drop: true, ..block(50_000, &[]) });
        book.add(&block(60_000, &[]));
        // Two blocks are open at once. The one that started first ends last.
        book.add(&block(58_000, &[]));
        book.add(&block(68_000, &[]));
        book.lost(1);
        book.add(&block(99_000, &[]));
        book.add(&block(109_000, &[]));
        let report = book.report(1, |_| None);
        let rounds = report.rounds.expect("there are rounds");
        assert_eq!((report.lost, rounds.count), (1, 4), "{rounds:?}");
        assert!((rounds.mean_ns - 10_000.0).abs() < 1e-9, "{rounds:?}");
    }

    /// A tick is half a nanosecond. A pair costs 20 ns, of which 10 lie inside.
    #[test]
    fn sums_sections_loops_and_their_contents() {
        let costs = Costs { alpha: 10.0, beta: 40.0, inside: 20.0, gamma: 60.0 };
        let mut book = ProgramBook::new(costs, 0.5);
        // X contains A and B. C follows.
        let sections = [(1, 100, 1_020), (2, 2_000, 2_020), (9, 50, 5_100), (3, 6_000, 420)];
        for n in 0..10 {
            book.add(&block(n * 20_000, &sections));
        }
        let report = book.report(7, |id| (id == 9).then(|| "X".to_owned()));
        let mean = |id| report.sections.iter().find(|s| s.id == id).expect("it came").times.mean_ns;
        assert!((mean(1) - 500.0).abs() < 1e-9, "formula (1)");
        assert!((mean(9) - (2_550.0 - 10.0 - 2.0 * 20.0)).abs() < 1e-9, "formula (3), K = 2");
        assert!((mean(3) - 200.0).abs() < 1e-9);
        let rounds = report.rounds.expect("there are rounds");
        assert_eq!(rounds.count, 9);
        assert!((rounds.raw_p50_ns / 10_000.0 - 1.0).abs() < 1e-3, "{rounds:?}");
        assert!((rounds.mean_ns - (10_000.0 - 5.0 - 30.0 - 4.0 * 20.0)).abs() < 1e-9, "formula (5), K = 4");
        assert_eq!((report.received, report.dropped), (10, 7));
        assert_eq!(report.sections[3].name.as_deref(), Some("X"));
    }
}
