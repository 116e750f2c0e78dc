use crate::histogram::Tallies;
use crate::kinds::kinds;
use crate::moments::Moments;
use crate::ns;
use crate::plots::GapPlot;
use serde::{Serialize, Serializer};
use std::collections::VecDeque;
use std::fmt;
use units::Span;

kinds! {
    /// What a stage did to a frame without dropping it. The names are stable: other people's scripts read them.
    Effect, counted by
    /// Effects and how often they were; serialises as a map of those that occurred.
    EffectCounts:
    Corrupted     "corrupted"     "bytes were changed, as asked";
    Incorruptible "incorruptible" "chosen to be corrupted with valid checksums, but without two different payload words";
    Marked        "marked"        "marked with congestion experienced (ECN) instead of being lost";
    Duplicated    "duplicated"    "a copy was made";
    Hastened      "hastened"      "sent ahead of the delayed ones, as netem's reorder does";
    Chosen        "chosen"        "chosen to be reordered";
    Missed        "missed"        "chosen to be reordered, but no later frame of the flow came in time";
    Answered      "answered"      "longer than the MTU, of which its sender was told (ICMP)";
    Unlogged      "unlogged"      "beyond the log of decisions that was replayed, and passed unchanged";
}

/// What a stage decides of each frame by a chance that was asked for. The names are stable, and netem's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// It is lost, or marked instead.
    Loss,
    /// Its bytes are changed.
    Corrupt,
    /// It is sent twice.
    Duplicate,
    /// It is sent ahead of those that are delayed.
    Reorder,
}

impl Choice {
    const ALL: [(Choice, &'static str); 4] = [
        (Choice::Loss, "loss"),
        (Choice::Corrupt, "corrupt"),
        (Choice::Duplicate, "duplicate"),
        (Choice::Reorder, "reorder"),
    ];
}

/// A chance that was asked for, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChoiceReport {
    /// The share asked, in the long run.
    pub asked: f64,
    /// Frames of which it was decided.
    pub frames: u64,
    /// Those that were hit.
    pub hits: u64,
    /// Their share.
    pub share: f64,
}

/// Choices that were made; serialises as a map by their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceReports([Option<ChoiceReport>; Choice::ALL.len()]);

impl ChoiceReports {
    /// Each by its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, ChoiceReport)> + '_ {
        Choice::ALL.iter().zip(self.0).filter_map(|((_, name), report)| Some((*name, report?)))
    }

    /// None was made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Serialize for ChoiceReports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// What stages did to frames that they did not drop: how often, how long they held them, and what
/// became of the order.
#[derive(Debug, Default)]
pub struct Effects {
    counts: EffectCounts,
    choices: [Option<ChoiceReport>; Choice::ALL.len()],
    delays: Option<Box<Delays>>,
    /// Which stage speaks, and what each made of the order.
    stage: usize,
    orders: Vec<Order>,
}

#[derive(Debug, Default)]
struct Delays {
    moments: Moments,
    tallies: Tallies,
    /// The delays that were asked, in even steps of probability.
    asked: Option<Tallies>,
}

impl Effects {
    /// What follows is told by stage number `stage` of its chain.
    pub fn told_by(&mut self, stage: usize) {
        self.stage = stage;
    }

    fn order(&mut self) -> &mut Order {
        if self.orders.len() <= self.stage {
            self.orders.resize_with(self.stage + 1, Order::default);
        }
        &mut self.orders[self.stage]
    }

    /// Counts an effect.
    pub fn count(&mut self, effect: Effect) {
        self.counts.count(effect, 1);
    }

    /// How often there was an effect.
    #[must_use]
    pub fn counted(&self, effect: Effect) -> u64 {
        self.counts.of(effect)
    }

    /// A stage decided of a frame by a chance of `asked`.
    #[inline]
    pub fn chose(&mut self, choice: Choice, asked: f64, hit: bool) {
        let report = self.choices[choice as usize].get_or_insert_default();
        report.asked = asked;
        report.frames += 1;
        report.hits += u64::from(hit);
    }

    /// What came of each chance; of several stages with the same one, of all together and as the last asked.
    #[must_use]
    pub fn choices(&self) -> ChoiceReports {
        let share = |report: ChoiceReport| ChoiceReport { share: report.hits as f64 / report.frames as f64, ..report };
        ChoiceReports(self.choices.map(|report| report.map(share)))
    }

    /// Delays that were asked, in ps and even steps of probability, to be drawn beside those that were had.
    pub fn asks_delays(&mut self, delays: impl IntoIterator<Item = u64>) {
        let asked = self.delays.get_or_insert_default().asked.get_or_insert_default();
        delays.into_iter().for_each(|delay| asked.count(delay));
    }

    /// Delays had and asked, to be drawn.
    #[must_use]
    pub(crate) fn delay_plot(&self) -> Option<GapPlot> {
        let delays = self.delays.as_ref()?;
        GapPlot::of(&delays.tallies.all(), delays.asked.as_ref().map(Tallies::all).as_ref())
    }

    /// A stage settled for how long it holds a frame.
    pub fn delayed(&mut self, by: Span) {
        let delays = self.delays.get_or_insert_default();
        delays.moments.add(by.signed_ps());
        delays.tallies.count(by.as_ps());
    }

    /// The frame that came as number `number` leaves a stage that may change the order.
    pub fn leaves(&mut self, number: u64) {
        self.order().leaves(number);
    }

    /// A frame leaves, so many places of its flow behind the first later frame that left before it; 0 if none did.
    pub fn leaves_behind(&mut self, extent: u64) {
        let order = self.order();
        order.frames += 1;
        order.reordered += u64::from(extent > 0);
        order.max_extent = order.max_extent.max(extent);
    }

    /// How often each effect was.
    #[must_use]
    pub fn counts(&self) -> EffectCounts {
        self.counts.clone()
    }

    /// For how long frames were held, if a stage that holds them settled that.
    #[must_use]
    pub fn delay(&self) -> Option<DelayReport> {
        let delays = self.delays.as_ref().filter(|delays| delays.moments.count() > 0)?;
        let all = delays.tallies.all();
        let (min_ns, max_ns) = (ns(delays.moments.min() as f64), ns(delays.moments.max() as f64));
        // The upper end of a bucket may be above all that is in it.
        let quantile = |q: f64| ns(all.value_at_quantile(q) as f64).clamp(min_ns, max_ns);
        Some(DelayReport {
            count: delays.moments.count(),
            mean_ns: ns(delays.moments.mean()),
            std_ns: ns(delays.moments.deviation()),
            min_ns,
            max_ns,
            p50: quantile(0.5),
            p99: quantile(0.99),
        })
    }

    /// What became of the order, if a stage may have changed it; of several, behind that which reordered
    /// most.
    #[must_use]
    pub fn reorder(&self) -> Option<ReorderReport> {
        let may = self.orders.iter().filter(|order| order.frames > 0);
        may.max_by_key(|order| order.reordered).map(|order| ReorderReport {
            frames: order.frames,
            reordered: order.reordered,
            ratio: order.reordered as f64 / order.frames as f64,
            max_extent: order.max_extent,
        })
    }
}

/// For how long stages held frames, as settled when each came; ns.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DelayReport {
    /// Frames held.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Standard deviation.
    pub std_ns: f64,
    /// Least.
    pub min_ns: f64,
    /// Largest.
    pub max_ns: f64,
    /// Median, to 0.1 %.
    pub p50: f64,
    /// 99th percentile, to 0.1 %.
    pub p99: f64,
}

/// The order of frames behind a stage that may change it (RFC 4737, §3 and §4.2.1).
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReorderReport {
    /// Frames that left the stage.
    pub frames: u64,
    /// Those that left after one that came later.
    pub reordered: u64,
    /// Their share.
    pub ratio: f64,
    /// Largest extent: places between a reordered frame and the first of those that overtook it;
    /// beyond 4 096 frames back, at least that.
    pub max_extent: u64,
}

/// Watches in which order numbered frames leave.
#[derive(Default)]
struct Order {
    frames: u64,
    reordered: u64,
    max_extent: u64,
    /// Frames with a larger number than any before them: where, and which. The first frame that
    /// overtook another is always one of these.
    records: VecDeque<(u64, u64)>,
}

/// Records kept.
const RECORDS: usize = 4_096;

impl Order {
    fn leaves(&mut self, number: u64) {
        let place = self.frames;
        self.frames += 1;
        if self.records.back().is_none_or(|(_, largest)| number > *largest) {
            if self.records.len() == RECORDS {
                self.records.pop_front();
            }
            self.records.push_back((place, number));
        } else if self.records.back().is_some_and(|(_, largest)| number < *largest) {
            self.reordered += 1;
            let first = self.records.partition_point(|(_, record)| *record <= number);
            self.max_extent = self.max_extent.max(place - self.records[first].0);
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({} of {})", self.reordered, self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordering_as_rfc_4737_counts_it() {
        // RFC 4737, §4.2.1: of 1 2 3 4 7 5 6 8, 5 and 6 are reordered, with extents of 1 and 2.
        let mut effects = Effects::default();
        for number in [1, 2, 3, 4, 7, 5, 6, 8] {
            effects.leaves(number);
        }
        let report = effects.reorder().expect("an order");
        assert_eq!((report.frames, report.reordered, report.max_extent), (8, 2, 2));
    }

    #[test]
    fn stages_are_told_apart() {
        let mut effects = Effects::default();
        for number in 0..10 {
            effects.told_by(0);
            effects.leaves(number + 1_000);
            effects.told_by(1);
            effects.leaves_behind(u64::from(number == 5));
        }
        let report = effects.reorder().expect("an order");
        assert_eq!((report.frames, report.reordered, report.max_extent), (10, 1, 1));
    }

    #[test]
    fn copies_are_not_reordered() {
        let mut effects = Effects::default();
        [1, 1, 2, 2, 3].into_iter().for_each(|number| effects.leaves(number));
        assert_eq!(effects.reorder().map(|report| report.reordered), Some(0));
    }

    #[test]
    fn a_copy_is_not_overtaken_by_its_original() {
        let mut effects = Effects::default();
        // The copy of 1 is late by the places since 2, not by those since its original.
        [1, 2, 3, 1].into_iter().for_each(|number| effects.leaves(number));
        assert_eq!(effects.reorder().map(|report| (report.reordered, report.max_extent)), Some((1, 2)));
    }

    #[test]
    fn delays_have_their_moments() {
        let mut effects = Effects::default();
        assert!(effects.delay().is_none());
        for us in [10, 20, 30] {
            effects.delayed(Span::from_us(us));
        }
        let delay = effects.delay().expect("delays");
        assert!((delay.mean_ns - 20_000.0).abs() < 1e-6 && (delay.max_ns - 30_000.0).abs() < 1e-6);
        assert_eq!(delay.count, 3);
        assert!((delay.p99 - delay.max_ns).abs() < 1e-6, "no quantile is above the largest: {delay:?}");
    }
}
