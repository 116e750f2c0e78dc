//! Slices of a pipeline: where sampled frames spend their time, from their arrival to the driver.

use crate::figures::{brief, share, thousands, time};
use crate::histogram::Buckets;
use serde::Serialize;
use std::fmt::Write;
use units::{PS_PER_NS, Span, Time};

/// A boundary between two slices of a frame's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the frame was there.
    pub at: Time,
    /// When it should have been there, by what stages and schedule decided.
    pub intended: Time,
}

/// Slices of one pipeline or class.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineSlices {
    /// One frame in so many is followed.
    pub every: u64,
    /// What became of the frames that were followed.
    pub packets: SlicedPackets,
    /// The slices in the order of the way; they do not overlap, and sum to the total.
    pub slices: Vec<PipelineSlice>,
    /// From the arrival to the end of the hand-over to the driver.
    pub total: SliceTotal,
    /// What the measuring cost.
    pub overhead: SliceOverhead,
    /// Of the first frames the one whose way is nearest to the median.
    pub typical: Vec<SlicePart>,
}

/// What became of the frames that were followed; seen = matched + lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlicedPackets {
    /// Frames that were followed from their arrival.
    pub seen: u64,
    /// Those that departed.
    pub matched: u64,
    /// Those that did not: dropped by a stage, or held at the end.
    pub lost: u64,
}

/// One slice over all frames that departed, in ns; less what the measuring cost.
#[derive(Clone, Debug, Serialize)]
pub struct PipelineSlice {
    /// `rx`, the name of a stage, `queueing`, `pacer` or `tx`.
    pub name: String,
    /// How often it came.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Standard deviation ÷ mean.
    pub cv: f64,
    /// Share of the total.
    pub share: f64,
    /// One of those that sum to the total, as all of them here.
    pub top: bool,
    /// Occurrences per frame that departed.
    pub per_packet: f64,
    /// Mean of what the stage or schedule meant it to be.
    pub intended_mean_ns: f64,
    /// What it was, less what it was meant to be.
    pub error: SliceError,
    /// Mean as stamped.
    pub raw_mean_ns: f64,
}

/// What a slice was, less what it was meant to be, in ns. `mean_ns` is signed, the rest is of the absolute error.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SliceError {
    /// Signed mean.
    pub mean_ns: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max_ns: f64,
}

/// All of a frame's way, in ns.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "as those of a slice")]
pub struct SliceTotal {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub cv: f64,
    pub raw_mean_ns: f64,
}

/// What measuring costs, in ns; 0 in virtual time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SliceOverhead {
    /// One reading of the clock: what lies between two stamps of it, τo.
    pub tau_o_ns: f64,
    /// What was subtracted from a frame's total, on the mean.
    pub per_packet_ns: f64,
}

/// A slice of one frame, in ns.
#[derive(Clone, Debug, Serialize)]
pub struct SlicePart {
    /// Which.
    pub name: String,
    /// Where it begins, from the arrival on.
    pub start_ns: f64,
    /// How long it was.
    pub length_ns: f64,
    /// How long it was meant to be.
    pub intended_ns: f64,
}

/// What a slice of a pipeline is, by its name.
#[must_use]
pub fn meaning(name: &str) -> &'static str {
    match name {
        "rx" => "from the look at the port that found the frame to the first stage",
        "queueing" => "ready, behind frames that depart before it",
        "pacer" => "first in its queue, until its departure",
        "tx" => "the hand-over to the driver",
        _ => "held by the stage",
    }
}

/// Frames of which one is shown.
const FIRST: usize = 1_000;

/// Ways that are counted together. Each touches some 50 lines of memory, which are far from the CPU when frames are
/// followed seldom; more at a time would keep the frames behind them waiting for more than about 1 µs.
const TOGETHER: usize = 32;

/// Gathers the ways of frames.
#[derive(Clone)]
pub struct SliceMeter {
    names: Vec<String>,
    every: u64,
    /// What a reading of the clock takes.
    reading: Span,
    seen: u64,
    /// Marks of ways that are not counted yet, one after the other.
    waiting: Vec<Mark>,
    slices: Vec<Column>,
    total: Column,
    /// Marks of the first ways, one after the other.
    first: Vec<Mark>,
}

/// One slice, in ps.
#[derive(Clone, Default)]
struct Column {
    raw: i128,
    net: i128,
    /// Of `net`, in ps².
    squares: f64,
    intended: i128,
    worst: u64,
    count: u64,
    all: Buckets,
    errors: Buckets,
}

/// One slice of one frame, in ps.
#[derive(Clone, Copy)]
struct Part {
    raw: i64,
    net: i64,
    intended: i64,
}

impl Part {
    /// From one mark to the next, of which a reading of the clock took `reading`.
    #[inline]
    fn between(from: Mark, to: Mark, reading: i64) -> Part {
        let raw = to.at.signed_ps_since(from.at);
        // What is shorter than a reading is none; what ends before its time stays as it is.
        let net = if raw > 0 { (raw - reading).max(0) } else { raw };
        Part { raw, net, intended: to.intended.signed_ps_since(from.intended) }
    }
}

impl Column {
    /// Counts one slice of several frames. Sums are kept apart meanwhile: counting in a table is a store anywhere, behind
    /// which they would have to be read again.
    #[inline]
    fn count(&mut self, parts: &[Part]) {
        let Column { mut raw, mut net, mut squares, mut intended, mut worst, .. } = *self;
        for part in parts {
            raw += i128::from(part.raw);
            net += i128::from(part.net);
            intended += i128::from(part.intended);
            squares += part.net as f64 * part.net as f64;
            self.all.count(part.net.max(0).unsigned_abs(), 1);
            let error = (part.net - part.intended).unsigned_abs();
            worst = worst.max(error);
            self.errors.count(error, 1);
        }
        (self.raw, self.net, self.squares, self.intended, self.worst) = (raw, net, squares, intended, worst);
        self.count += parts.len() as u64;
    }

    fn mean(&self, sum: i128) -> f64 {
        sum as f64 / self.count.max(1) as f64 / PS_PER_NS as f64
    }

    fn total(&self) -> SliceTotal {
        let mean = self.mean(self.net);
        let squares = self.squares / (PS_PER_NS * PS_PER_NS) as f64;
        let variance = (squares / self.count.max(1) as f64 - mean * mean).max(0.0);
        SliceTotal {
            count: self.count,
            mean_ns: mean,
            p50_ns: ns(self.all.at_quantile(0.5)),
            p99_ns: ns(self.all.at_quantile(0.99)),
            cv: if mean > 0.0 { variance.sqrt() / mean } else { 0.0 },
            raw_mean_ns: self.mean(self.raw),
        }
    }

    fn error(&self) -> SliceError {
        SliceError {
            mean_ns: self.mean(self.net - self.intended),
            p50: ns(self.errors.at_quantile(0.5).min(self.worst)),
            p99: ns(self.errors.at_quantile(0.99).min(self.worst)),
            max_ns: ns(self.worst),
        }
    }
}

fn ns(ps: u64) -> f64 {
    ps as f64 / PS_PER_NS as f64
}

impl SliceMeter {
    /// A meter of slices with these names, of which a frame has one mark more; one frame in `every` is followed.
    #[must_use]
    pub fn new(names: Vec<String>, every: u64) -> SliceMeter {
        let slices = names.iter().map(|_| Column::default()).collect();
        let marks = names.len() + 1;
        SliceMeter {
            every,
            reading: Span::ZERO,
            seen: 0,
            waiting: Vec::with_capacity(TOGETHER * marks),
            slices,
            total: Column::default(),
            first: Vec::with_capacity(FIRST * marks),
            names,
        }
    }

    /// Time is real: each mark but the first takes `reading`, and there is room for all that may come, so that no frame
    /// waits for it.
    pub fn in_real_time(&mut self, reading: Span) {
        self.reading = reading;
        for column in self.slices.iter_mut().chain([&mut self.total]) {
            column.all.at_hand();
            column.errors.at_hand();
        }
    }

    /// Whether frames wait for nobody: time is real.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        self.reading > Span::ZERO
    }

    /// A meter of the same slices, of which nothing was seen.
    #[must_use]
    pub fn another(&self) -> SliceMeter {
        let mut other = SliceMeter::new(self.names.clone(), self.every);
        if self.is_real_time() {
            other.in_real_time(self.reading);
        }
        other
    }

    /// Names of the slices.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A frame began to be followed.
    #[inline]
    pub fn seen(&mut self) {
        self.seen += 1;
    }

    /// What a reading adds to slice `n`: it is part of the slice that it begins. The first mark is of an earlier one.
    fn reading_in(&self, n: usize) -> i64 {
        if n == 0 { 0 } else { self.reading.as_ps().cast_signed() }
    }

    /// A frame departed.
    ///
    /// # Panics
    /// When the marks are not one more than the names.
    #[inline]
    pub fn record(&mut self, marks: &[Mark]) {
        assert_eq!(marks.len(), self.names.len() + 1, "a mark between any two slices");
        self.waiting.extend_from_slice(marks);
        if self.waiting.len() >= TOGETHER * marks.len() {
            self.count();
        }
    }

    /// Counts the ways that wait for it, slice by slice.
    #[inline(never)]
    fn count(&mut self) {
        let marks = self.names.len() + 1;
        let none = Part { raw: 0, net: 0, intended: 0 };
        let (mut parts, mut wholes) = ([none; TOGETHER], [none; TOGETHER]);
        let ways = self.waiting.len() / marks;
        for n in 0..self.names.len() {
            let reading = self.reading_in(n);
            for ((way, part), whole) in self.waiting.chunks_exact(marks).zip(&mut parts).zip(&mut wholes) {
                *part = Part::between(way[n], way[n + 1], reading);
                whole.raw += part.raw;
                whole.net += part.net;
                whole.intended += part.intended;
            }
            self.slices[n].count(&parts[..ways]);
        }
        self.total.count(&wholes[..ways]);
        let wanted = FIRST * marks - self.first.len();
        self.first.extend(self.waiting.iter().take(wanted));
        self.waiting.clear();
    }

    /// Slice `n` of one frame.
    fn part(&self, marks: &[Mark], n: usize) -> Part {
        Part::between(marks[n], marks[n + 1], self.reading_in(n))
    }

    /// One frame's slices.
    #[must_use]
    pub fn parts(&self, marks: &[Mark]) -> Vec<SlicePart> {
        let mut start = 0;
        let part = |n: usize| {
            let part = self.part(marks, n);
            let begins = start;
            start += part.net;
            SlicePart {
                name: self.names[n].clone(),
                start_ns: begins as f64 / PS_PER_NS as f64,
                length_ns: part.net as f64 / PS_PER_NS as f64,
                intended_ns: part.intended as f64 / PS_PER_NS as f64,
            }
        };
        (0..self.names.len()).map(part).collect()
    }

    /// The figures.
    #[must_use]
    pub fn report(&self) -> PipelineSlices {
        let mut all = self.clone();
        all.count();
        all.figures()
    }

    /// The figures of what is counted.
    fn figures(&self) -> PipelineSlices {
        let total = self.total.total();
        let slice = |(name, column): (&String, &Column)| {
            let SliceTotal { count, mean_ns, p50_ns, p99_ns, cv, raw_mean_ns } = column.total();
            PipelineSlice {
                name: name.clone(),
                count,
                mean_ns,
                p50_ns,
                p99_ns,
                cv,
                share: if self.total.net > 0 { column.net as f64 / self.total.net as f64 } else { 0.0 },
                top: true,
                per_packet: count as f64 / total.count.max(1) as f64,
                intended_mean_ns: column.mean(column.intended),
                error: column.error(),
                raw_mean_ns,
            }
        };
        let off = |marks: &&[Mark]| {
            let whole: i64 = (0..self.names.len()).map(|n| self.part(marks, n).net).sum();
            (whole as f64 / PS_PER_NS as f64 - total.p50_ns).abs()
        };
        let ways = self.first.chunks(self.names.len() + 1).map(|marks| (off(&marks), marks));
        let typical = ways.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, marks)| marks);
        PipelineSlices {
            every: self.every,
            packets: SlicedPackets {
                seen: self.seen,
                matched: total.count,
                lost: self.seen - total.count.min(self.seen),
            },
            slices: self.names.iter().zip(&self.slices).map(slice).collect(),
            total,
            overhead: SliceOverhead {
                tau_o_ns: self.reading.as_ns_f64(),
                per_packet_ns: total.raw_mean_ns - total.mean_ns,
            },
            typical: typical.map_or_else(Vec::new, |marks| self.parts(marks)),
        }
    }
}

/// The way of packets from program to program, in slices of kernels and of a pipeline between them.
#[derive(Clone, Debug, Serialize)]
pub struct EndToEnd {
    /// Of one direction, which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What became of the packets that the pipeline followed: matched are those whose both ends were seen.
    pub packets: SlicedPackets,
    /// The slices in the order of the way; they do not overlap, and sum to the total.
    pub slices: Vec<EndToEndSlice>,
    /// From the sender's call to the receiver's.
    pub total: SliceTotal,
    /// Which points of the kernel were stamped.
    pub probes: String,
    /// Of the first packets the one whose way is nearest to the median.
    pub typical: Vec<SlicePart>,
    /// Each direction by itself, where packets went in several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directions: Vec<EndToEnd>,
}

/// One slice of packets' whole way, in ns; those of the kernel less what the probes cost.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "as those of a slice of a pipeline")]
pub struct EndToEndSlice {
    pub name: String,
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: f64,
    pub p99_ns: f64,
    pub cv: f64,
    pub share: f64,
    pub top: bool,
    pub per_packet: f64,
}

/// Gathers whole ways of packets.
#[derive(Default)]
pub struct EndToEndMeter {
    all: Ways,
    directions: Vec<(String, Ways)>,
}

/// Whole ways of packets, of one direction or of all.
#[derive(Clone, Default)]
struct Ways {
    seen: u64,
    /// By name, in the order of the way, which not every packet goes whole.
    slices: Vec<(String, Column)>,
    total: Column,
    first: Vec<Vec<(String, f64)>>,
}

impl EndToEndMeter {
    /// A meter of directions with these names.
    #[must_use]
    pub fn new(directions: &[String]) -> EndToEndMeter {
        let directions = directions.iter().map(|name| (name.clone(), Ways::default())).collect();
        EndToEndMeter { all: Ways::default(), directions }
    }

    /// A packet came through the pipeline in the direction with this number; its slices by name and length in ns, if both
    /// ends were seen.
    pub fn add(&mut self, direction: usize, slices: Option<&[(String, f64)]>) {
        self.all.add(slices);
        if let Some((_, ways)) = self.directions.get_mut(direction) {
            ways.add(slices);
        }
    }

    /// The figures; `probes` says which points of the kernel were stamped.
    #[must_use]
    pub fn report(&self, probes: &str) -> EndToEnd {
        let of = |(name, ways): &(String, Ways)| EndToEnd { name: Some(name.clone()), ..ways.report(probes) };
        let used = self.directions.iter().filter(|(_, ways)| ways.seen > 0);
        let directions = if used.clone().count() > 1 { used.map(of).collect() } else { Vec::new() };
        EndToEnd { directions, ..self.all.report(probes) }
    }
}

impl Ways {
    fn add(&mut self, slices: Option<&[(String, f64)]>) {
        self.seen += 1;
        let Some(slices) = slices else { return };
        let part = |ns: f64| {
            let ps = (ns * PS_PER_NS as f64).round() as i64;
            Part { raw: ps, net: ps, intended: ps }
        };
        let mut next = 0;
        for (name, ns) in slices {
            let known = self.slices.iter().position(|(known, _)| known == name);
            let place = known.unwrap_or_else(|| {
                // Behind the one that it came behind.
                self.slices.insert(next, (name.clone(), Column::default()));
                next
            });
            self.slices[place].1.count(&[part(*ns)]);
            next = place + 1;
        }
        self.total.count(&[part(slices.iter().map(|(_, ns)| ns).sum())]);
        if self.first.len() < FIRST {
            self.first.push(slices.to_vec());
        }
    }

    fn report(&self, probes: &str) -> EndToEnd {
        let total = self.total.total();
        let mut slices = Vec::new();
        for (name, column) in &self.slices {
            let SliceTotal { count, mean_ns, p50_ns, p99_ns, cv, .. } = column.total();
            let share = if self.total.net > 0 { column.net as f64 / self.total.net as f64 } else { 0.0 };
            let per_packet = count as f64 / total.count.max(1) as f64;
            let name = name.clone();
            slices.push(EndToEndSlice { name, count, mean_ns, p50_ns, p99_ns, cv, share, top: true, per_packet });
        }
        let whole = |parts: &[(String, f64)]| parts.iter().map(|(_, ns)| ns).sum::<f64>();
        let off = |parts: &[(String, f64)]| (whole(parts) - total.p50_ns).abs();
        let typical = self.first.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        let mut start_ns = 0.0;
        let mut part = |(name, ns): &(String, f64)| {
            let part = SlicePart { name: name.clone(), start_ns, length_ns: *ns, intended_ns: *ns };
            start_ns += ns;
            part
        };
        EndToEnd {
            name: None,
            directions: Vec::new(),
            packets: SlicedPackets { seen: self.seen, matched: total.count, lost: self.seen - total.count },
            slices,
            total,
            probes: probes.to_owned(),
            typical: typical.map_or_else(Vec::new, |parts| parts.iter().map(&mut part).collect()),
        }
    }
}

impl EndToEnd {
    /// The table for people, and one packet's way; of several directions one each.
    #[must_use]
    pub fn table(&self) -> String {
        if !self.directions.is_empty() {
            return self.directions.iter().map(EndToEnd::table).collect();
        }
        let SlicedPackets { seen, matched, lost } = self.packets;
        let mut out = String::new();
        let name = self.name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        let _ = writeln!(
            out,
            "end to end{name}\n  packets   {} carried, of {} both ends were seen, of {} not",
            thousands(seen),
            thousands(matched),
            thousands(lost)
        );
        let _ = writeln!(
            out,
            "  {:<24} {:>11} {:>11} {:>11} {:>8} {:>10}",
            "slice", "mean", "median", "p99", "share", "per packet"
        );
        for slice in &self.slices {
            let _ = writeln!(
                out,
                "  {:<24} {:>11} {:>11} {:>11} {:>8} {:>10.3}",
                slice.name,
                brief(slice.mean_ns),
                brief(slice.p50_ns),
                brief(slice.p99_ns),
                share(slice.share),
                slice.per_packet
            );
        }
        let total = &self.total;
        let _ = writeln!(
            out,
            "  {:<24} {:>11} {:>11} {:>11}",
            "total",
            brief(total.mean_ns),
            brief(total.p50_ns),
            brief(total.p99_ns)
        );
        if !self.typical.is_empty() {
            let _ = write!(out, "one packet, near the median\n{}", waterfall(&self.typical));
        }
        out
    }
}

impl PipelineSlices {
    /// Of frames that `self` saw departing and `arriving` saw arriving, on another thread.
    #[must_use]
    pub fn arrived_by(mut self, arriving: Option<&PipelineSlices>) -> PipelineSlices {
        if let Some(arriving) = arriving {
            self.packets.seen = arriving.packets.seen;
            self.packets.lost = self.packets.seen - self.packets.matched.min(self.packets.seen);
        }
        self
    }

    /// The table for people; with `raw`, the means as stamped, too.
    #[must_use]
    pub fn table(&self, raw: bool) -> String {
        let mut out = String::new();
        let SlicedPackets { seen, matched, lost } = self.packets;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  slices    1 frame in {}: {} seen, {} departed, {} lost; each reading of the clock took {}",
            thousands(self.every),
            thousands(seen),
            thousands(matched),
            thousands(lost),
            brief(self.overhead.tau_o_ns)
        );
        let head = if raw { "      as stamped" } else { "" };
        let _ = writeln!(
            out,
            "  {:<16} {:>11} {:>11} {:>11} {:>8} {:>11} {:>11} {:>11}{head}",
            "slice", "mean", "median", "p99", "share", "intended", "error p50", "error p99"
        );
        for slice in &self.slices {
            let _ = write!(
                out,
                "  {:<16} {:>11} {:>11} {:>11} {:>8} {:>11} {:>11} {:>11}",
                slice.name,
                brief(slice.mean_ns),
                brief(slice.p50_ns),
                brief(slice.p99_ns),
                share(slice.share),
                brief(slice.intended_mean_ns),
                brief(slice.error.p50),
                brief(slice.error.p99)
            );
            let _ = if raw { writeln!(out, " {:>15}", brief(slice.raw_mean_ns)) } else { writeln!(out) };
        }
        let total = &self.total;
        let _ = write!(
            out,
            "  {:<16} {:>11} {:>11} {:>11} {:>44}",
            "total",
            brief(total.mean_ns),
            brief(total.p50_ns),
            brief(total.p99_ns),
            ""
        );
        let _ = if raw { writeln!(out, " {:>15}", brief(total.raw_mean_ns)) } else { writeln!(out) };
        out
    }
}

/// Parts of one packet's way as bars to scale, one line each.
#[must_use]
pub fn waterfall(parts: &[SlicePart]) -> String {
    const WIDTH: f64 = 48.0;
    let whole = parts.iter().map(|part| part.start_ns + part.length_ns).fold(0.0, f64::max);
    let scale = |ns: f64| if whole > 0.0 { (ns.max(0.0) / whole * WIDTH).round() as usize } else { 0 };
    let mut out = String::new();
    for part in parts {
        let (from, to) = (scale(part.start_ns), scale(part.start_ns + part.length_ns));
        let bar = if to > from { "█".repeat(to - from) } else { "▏".to_owned() };
        let _ = writeln!(
            out,
            "  {:<20} {:>11} at {:>13} {}{bar}",
            part.name,
            brief(part.length_ns),
            time(part.start_ns.round()),
            " ".repeat(from)
        );
    }
    let _ = writeln!(out, "  {:<20} {:>11}", "total", brief(whole));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pairs: &[(u64, u64)]) -> Vec<Mark> {
        pairs.iter().map(|&(at, intended)| Mark { at: Time::from_ps(at), intended: Time::from_ps(intended) }).collect()
    }

    #[test]
    fn slices_sum_to_the_total_and_errors_to_the_lateness() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 4);
        for n in 0..100 {
            meter.seen();
            let at = n * 1_000_000_000;
            meter.record(&marks(&[
                (at, at),
                (at + 2_000, at),
                (at + 203_000_000, at + 200_000_000),
                (at + 203_005_000, at + 200_000_000),
            ]));
        }
        meter.seen();
        let report = meter.report();
        assert_eq!(report.packets, SlicedPackets { seen: 101, matched: 100, lost: 1 });
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.mean_ns).collect();
        assert_eq!(means, [2.0, 202_998.0, 5.0]);
        assert!((report.slices.iter().map(|slice| slice.share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((report.total.mean_ns - 203_005.0).abs() < 1e-9);
        let delay = &report.slices[1];
        assert!((delay.intended_mean_ns - 200_000.0).abs() < 1e-9);
        assert!((delay.error.mean_ns - 2_998.0).abs() < 1e-9 && (delay.error.max_ns - 2_998.0).abs() < 1e-9);
        let errors: f64 = report.slices.iter().map(|slice| slice.error.mean_ns).sum();
        assert!((errors - 3_005.0).abs() < 1e-9, "how late the frame left");
        assert_eq!(report.typical.len(), 3);
        assert!((report.typical[2].start_ns - 203_000.0).abs() < 1e-9);
        assert!(report.table(true).contains("1 frame in 4: 101 seen, 100 departed, 1 lost"));
        assert!(waterfall(&report.typical).lines().nth(1).is_some_and(|line| line.matches('█').count() == 48));
    }

    #[test]
    fn whole_ways_are_in_their_order() {
        let mut meter = EndToEndMeter::default();
        let way = |hold: f64| {
            [("client syscall", 300.0), ("netlathe netem", hold), ("server copy", 50.0)]
                .map(|(n, ns)| (n.to_owned(), ns))
        };
        for hold in [200_000.0, 200_010.0, 200_020.0] {
            meter.add(0, Some(&way(hold)));
        }
        meter.add(0, None);
        let report = meter.report("tp_btf");
        assert_eq!(report.packets, SlicedPackets { seen: 4, matched: 3, lost: 1 });
        let names: Vec<&str> = report.slices.iter().map(|slice| slice.name.as_str()).collect();
        assert_eq!(names, ["client syscall", "netlathe netem", "server copy"]);
        let sum: f64 = report.slices.iter().map(|slice| slice.mean_ns * slice.per_packet).sum();
        assert!((sum - report.total.mean_ns).abs() < 1e-6 && (sum - 200_360.0).abs() < 1e-6);
        assert!((report.typical[2].start_ns - 200_310.0).abs() < 300.0, "near the median");
        assert!(report.table().contains("4 carried, of 3 both ends were seen, of 1 not"));
    }

    /// Ways that differ by what they have are put together in the order of each, not by when slices began.
    #[test]
    fn slices_that_some_packets_lack_stand_where_they_belong() {
        let mut meter = EndToEndMeter::default();
        let way = |parts: &[(&str, f64)]| parts.iter().map(|(name, ns)| ((*name).to_owned(), *ns)).collect::<Vec<_>>();
        meter.add(0, Some(&way(&[("netem", 700.0), ("queueing", 1.0), ("copy", 1.0)])));
        meter.add(0, Some(&way(&[("netem", 1.0), ("queueing", 1.0), ("wake-up", 5.0), ("copy", 1.0)])));
        meter.add(0, Some(&way(&[("syscall", 1.0), ("netem", 1.0), ("copy", 1.0)])));
        let names: Vec<String> = meter.report("").slices.into_iter().map(|slice| slice.name).collect();
        assert_eq!(names, ["syscall", "netem", "queueing", "wake-up", "copy"]);
    }

    #[test]
    fn directions_are_counted_by_themselves_too() {
        let mut meter = EndToEndMeter::new(&["there".to_owned(), "back".to_owned()]);
        for (direction, hold) in [(0, 700.0), (1, 100.0), (0, 700.0), (1, 100.0)] {
            meter.add(direction, Some(&[("netem".to_owned(), hold)]));
        }
        let report = meter.report("");
        let figure = |of: &EndToEnd| (of.packets.seen, of.total.mean_ns.round() as u64);
        assert_eq!(figure(&report), (4, 400));
        assert_eq!(report.directions.iter().map(figure).collect::<Vec<_>>(), [(2, 700), (2, 100)]);
        let table = report.table();
        assert!(table.contains("end to end, there") && table.contains("end to end, back"), "{table}");
        meter = EndToEndMeter::new(&["there".to_owned(), "back".to_owned()]);
        meter.add(0, Some(&[("netem".to_owned(), 1.0)]));
        assert!(meter.report("").directions.is_empty(), "one direction is all");
    }

    #[test]
    fn readings_of_the_clock_are_subtracted_where_they_fall() {
        let names = ["rx", "delay", "tx"].map(str::to_owned).to_vec();
        let mut meter = SliceMeter::new(names, 1);
        meter.in_real_time(Span::from_ns(20));
        meter.seen();
        meter.record(&marks(&[(0, 0), (100_000, 0), (400_000, 0), (410_000, 0)]));
        let report = meter.report();
        let means: Vec<f64> = report.slices.iter().map(|slice| slice.mean_ns).collect();
        assert_eq!(means, [100.0, 280.0, 0.0], "what is shorter than a reading is none");
        assert!((report.overhead.per_packet_ns - 30.0).abs() < 1e-9);
    }
}
