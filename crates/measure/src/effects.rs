use crate::histogram::Tallies;
use crate::kinds::kinds;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::VecDeque;
use std::fmt;

kinds! {
    /// What a stage did to a frame without dropping it. The names are stable, because scripts depend on them.
    Effect, counted by
    /// Counts of effects; serialises as a map of the effects that occurred.
    EffectCounts:
    Corrupted     "corrupted"     "bytes were changed, as asked";
    Incorruptible "incorruptible" "chosen to be corrupted with valid checksums, which it does not allow";
    NoIp          "incorruptible-no-ip" "of these, without an IP packet";
    Fragment      "incorruptible-fragment" "of these, a fragment of a packet";
    NoTransport   "incorruptible-no-transport" "of these, without TCP, UDP, SCTP data or RoCE in the packet or in its tunnel";
    Short         "incorruptible-short" "of these, with a payload shorter than two words of 16 bits";
    Marked        "marked"        "marked with congestion experienced (ECN) instead of being lost";
    Duplicated    "duplicated"    "a copy was made";
    Hastened      "hastened"      "sent ahead of the delayed ones, as netem's reorder does";
    Chosen        "chosen"        "chosen to be reordered";
    Missed        "missed"        "chosen to be reordered, but no later frame of the flow arrived in time";
    Answered      "answered"      "longer than the MTU, which was reported to its sender (ICMP)";
    Unlogged      "unlogged"      "beyond the log of decisions that was replayed, and passed unchanged";
}

/// A decision of a stage about each frame by an asked probability. The names are stable, and those of netem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The frame is lost, or marked instead.
    Loss,
    /// Its bytes are changed.
    Corrupt,
    /// It is sent twice.
    Duplicate,
    /// It is sent ahead of delayed frames.
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

/// An asked probability and its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct ChoiceReport {
    /// The share asked, in the long run.
    pub asked_ratio: f64,
    /// Frames decided about.
    pub frames: u64,
    /// Frames hit.
    pub hits: u64,
    /// Share of hits.
    pub obtained_ratio: f64,
}

/// Outcomes of choices; serialises as a map by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceReports([Option<ChoiceReport>; Choice::ALL.len()]);

impl ChoiceReports {
    /// Each outcome with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, ChoiceReport)> + '_ {
        Choice::ALL.iter().zip(self.0).filter_map(|((_, name), report)| Some((*name, report?)))
    }

    /// True if no choices were made.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl JsonSchema for ChoiceReports {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChoiceReports".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let report = generator.subschema_for::<ChoiceReport>();
        let properties: serde_json::Map<_, _> =
            Choice::ALL.iter().map(|(_, name)| ((*name).to_owned(), report.clone().to_value())).collect();
        schemars::json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
    }
}

impl Serialize for ChoiceReports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// What stages did to frames that they did not drop: counts, and the effect on the order.
#[derive(Debug, Default)]
pub struct Effects {
    counts: EffectCounts,
    choices: [Option<ChoiceReport>; Choice::ALL.len()],
    /// Delays according to the law, at equal steps of probability.
    law: Option<Box<Tallies>>,
    /// The stage that reports, and the order after each stage.
    stage: usize,
    orders: Vec<OrderMeter>,
}

impl Effects {
    /// Attributes what follows to stage number `stage` of its chain.
    pub fn attribute_to(&mut self, stage: usize) {
        self.stage = stage;
    }

    fn order(&mut self) -> &mut OrderMeter {
        if self.orders.len() <= self.stage {
            self.orders.resize_with(self.stage + 1, OrderMeter::default);
        }
        &mut self.orders[self.stage]
    }

    /// Counts an effect.
    pub fn count(&mut self, effect: Effect) {
        self.counts.count(effect, 1);
    }

    /// The count of an effect.
    #[must_use]
    pub fn counted(&self, effect: Effect) -> u64 {
        self.counts.of(effect)
    }

    /// Records a decision about a frame with probability `asked`.
    #[inline]
    pub fn chose(&mut self, choice: Choice, asked: f64, hit: bool) {
        let report = self.choices[choice as usize].get_or_insert_default();
        report.asked_ratio = asked;
        report.frames += 1;
        report.hits += u64::from(hit);
    }

    /// The outcome of each choice. If several stages make the same choice, their counts are added, with the last asked
    /// share.
    #[must_use]
    pub fn choices(&self) -> ChoiceReports {
        let share =
            |report: ChoiceReport| ChoiceReport { obtained_ratio: report.hits as f64 / report.frames as f64, ..report };
        ChoiceReports(self.choices.map(|report| report.map(share)))
    }

    /// Sets the delays according to the law, in ps and at equal steps of probability, for a plot beside the measured
    /// ones.
    pub fn asks_delays(&mut self, delays: impl IntoIterator<Item = u64>) {
        let law = self.law.get_or_insert_default();
        delays.into_iter().for_each(|delay| law.count(delay));
    }

    /// The delays according to the law.
    pub(crate) fn law(&self) -> Option<Histogram<u64>> {
        self.law.as_ref().map(|law| law.all())
    }

    /// Records that the frame that arrived as number `number` leaves a stage that may change the order.
    pub fn leaves(&mut self, number: u64) {
        self.order().leaves(number);
    }

    /// Records a frame that leaves `extent` positions, within its flow, after the first later frame that overtook it; 0
    /// if none did.
    pub fn leaves_behind(&mut self, extent: u64) {
        let order = self.order();
        order.frames += 1;
        order.reordered += u64::from(extent > 0);
        order.max_extent = order.max_extent.max(extent);
    }

    /// The counts of all effects.
    #[must_use]
    pub fn counts(&self) -> EffectCounts {
        self.counts.clone()
    }

    /// The change of order, if a stage may have changed it. With several such stages, the one with the most reordering.
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

/// Order of frames after a stage that may change it (RFC 4737, §3 and §4.2.1).
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct ReorderReport {
    /// Frames that left the stage.
    pub frames: u64,
    /// Frames that left after a later frame.
    pub reordered: u64,
    /// Share of reordered frames.
    pub ratio: f64,
    /// Largest extent: places between a reordered frame and the first frame that overtook it. Beyond 4 096 frames back
    /// it is a lower bound.
    pub max_extent: u64,
}

/// Tracks the order in which numbered frames leave.
#[derive(Default)]
struct OrderMeter {
    frames: u64,
    reordered: u64,
    max_extent: u64,
    /// Frames with a larger number than all before them: position and number. The first frame that overtook another is
    /// always one of these.
    records: VecDeque<(u64, u64)>,
}

/// Limit on stored records.
const RECORDS: usize = 4_096;

impl OrderMeter {
    fn leaves(&mut self, number: u64) {
        let position = self.frames;
        self.frames += 1;
        if self.records.back().is_none_or(|(_, largest)| number > *largest) {
            if self.records.len() == RECORDS {
                self.records.pop_front();
            }
            self.records.push_back((position, number));
        } else if self.records.back().is_some_and(|(_, largest)| number < *largest) {
            self.reordered += 1;
            let first = self.records.partition_point(|(_, record)| *record <= number);
            self.max_extent = self.max_extent.max(position - self.records[first].0);
        }
    }
}

impl fmt::Debug for OrderMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({} of {})", self.reordered, self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_reordering_as_rfc_4737() {
        // RFC 4737, §4.2.1: of 1 2 3 4 7 5 6 8, 5 and 6 are reordered, with extents of 1 and 2.
        let mut effects = Effects::default();
        for number in [1, 2, 3, 4, 7, 5, 6, 8] {
            effects.leaves(number);
        }
        let report = effects.reorder().expect("an order");
        assert_eq!((report.frames, report.reordered, report.max_extent), (8, 2, 2));
    }

    #[test]
    fn tracks_each_stage_separately() {
        let mut effects = Effects::default();
        for number in 0..10 {
            effects.attribute_to(0);
            effects.leaves(number + 1_000);
            effects.attribute_to(1);
            effects.leaves_behind(u64::from(number == 5));
        }
        let report = effects.reorder().expect("an order");
        assert_eq!((report.frames, report.reordered, report.max_extent), (10, 1, 1));
    }

    #[test]
    fn copies_do_not_count_as_reordered() {
        let mut effects = Effects::default();
        [1, 1, 2, 2, 3].into_iter().for_each(|number| effects.leaves(number));
        assert_eq!(effects.reorder().map(|report| report.reordered), Some(0));
    }

    #[test]
    fn original_does_not_overtake_its_copy() {
        let mut effects = Effects::default();
        // The copy of 1 is late by the positions since 2, not by those since its original.
        [1, 2, 3, 1].into_iter().for_each(|number| effects.leaves(number));
        assert_eq!(effects.reorder().map(|report| (report.reordered, report.max_extent)), Some((1, 2)));
    }
}
