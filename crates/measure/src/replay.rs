use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// A frame of a capture, as the digests that identify it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameDigests {
    /// Length in bytes without FCS and an 802.1Q tag, which links carry on top of their longest frame.
    pub length: u32,
    /// Digest of everything that a device leaves unchanged.
    pub whole: u64,
    /// Digest of its addresses and its sequence or identification numbers, without the payload.
    pub header: Option<u64>,
    /// Digest of its payload.
    pub payload: Option<u64>,
}

/// Result of a replay at its receiver: sent = received + changed + lost.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct ReplayReport {
    /// Frames sent.
    pub sent: u64,
    /// Frames received with the bytes that were sent, without duplicates.
    pub received: u64,
    /// Frames received with a changed payload, or with changed addresses or ports.
    pub changed: u64,
    /// Frames not received.
    pub lost: u64,
    /// `lost` ÷ `sent`.
    pub loss_ratio: f64,
    /// Frames received again.
    pub duplicates: u64,
    /// Frames received after one that was sent later (RFC 4737, Type-P-Reordered).
    pub reordered: u64,
    /// Other frames that arrived. No other count includes them.
    pub foreign: u64,
    /// The first 10 000 frames that were lost, changed or not sent, in the order of the capture.
    pub frames: Vec<ReplayedFrame>,
}

/// A frame of a replay that did not arrive as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct ReplayedFrame {
    /// Number of the frame in its capture, from 1. Skipped records have none.
    pub frame: u64,
    /// Number of the repetition, from 1.
    pub round: u64,
    /// Its outcome.
    pub fate: FrameFate,
}

/// Why a frame did not arrive as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrameFate {
    /// It was not received.
    Lost,
    /// It was received with other bytes.
    Changed,
    /// It was not sent, because the link does not carry its length. No other count includes it.
    NotSent,
}

/// Compares the frames that arrive with those of a capture that is sent.
///
/// Frames with the same bytes cannot be distinguished. An arrival is matched with the one whose position in the sending
/// order is closest to that of the neighbouring arrivals.
#[derive(Debug)]
pub struct ReplayMeter {
    capture: Vec<FrameDigests>,
    /// Longer frames were not sent, so as many positions have no frame.
    longest: u32,
    not_sent: u64,
    /// Frames of the capture, grouped by their bytes.
    order: Vec<u32>,
    groups: HashMap<u64, Group>,
    /// Number of repetitions.
    rounds: u64,
    /// One more than the position of the latest frame that arrived.
    front: u64,
    received: u64,
    duplicates: u64,
    reordered: u64,
    /// Positions that were skipped, because a later frame with the same bytes arrived.
    passed: BTreeSet<u64>,
    /// Arrivals that are not frames of the capture, up to [`UNKNOWN`] of them.
    unknown: Vec<FrameDigests>,
    foreign: u64,
}

/// Frames of a capture with the same bytes.
#[derive(Clone, Copy, Debug)]
struct Group {
    /// Start of the group in the order, and its size.
    first: u32,
    count: u32,
    /// Number of frames found or skipped, in all repetitions.
    next: u64,
    /// Arrivals since the last frame that was found: duplicates of it, or the next one, if what is between was lost.
    early: u64,
}

/// Limit on arrivals kept to identify changed frames of the capture.
const UNKNOWN: usize = 65_536;
/// Frames in the report.
const LISTED: usize = 10_000;

impl ReplayMeter {
    /// Limit on the frames of a capture: 100 MB of memory.
    pub const MOST: usize = 1 << 20;

    /// Expects `capture` to be sent at most `rounds` times.
    #[must_use]
    pub fn new(capture: Vec<FrameDigests>, rounds: u64) -> Self {
        let mut order: Vec<u32> = (0..capture.len() as u32).collect();
        order.sort_by_key(|index| (capture[*index as usize].whole, *index));
        let mut groups: HashMap<u64, Group> = HashMap::with_capacity(order.len());
        for (first, index) in order.iter().enumerate() {
            let whole = capture[*index as usize].whole;
            groups.entry(whole).or_insert(Group { first: first as u32, count: 0, next: 0, early: 0 }).count += 1;
        }
        ReplayMeter {
            capture,
            longest: u32::MAX,
            not_sent: 0,
            order,
            groups,
            rounds,
            front: 0,
            received: 0,
            duplicates: 0,
            reordered: 0,
            passed: BTreeSet::new(),
            unknown: Vec::new(),
            foreign: 0,
        }
    }

    /// Frames of the capture that arrived, without duplicates.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Records an arrival. Returns whether it is a frame that was still missing.
    pub fn record(&mut self, frame: FrameDigests) -> bool {
        let Some(mut group) = self.groups.get(&frame.whole).copied() else {
            if self.unknown.len() < UNKNOWN {
                self.unknown.push(frame);
            } else {
                self.foreign += 1;
            }
            return false;
        };
        let distance = |position: u64| position.abs_diff(self.front);
        let last = group.next.checked_sub(1).and_then(|last| self.position(group, last));
        let Some(mut position) = self.position(group, group.next) else {
            self.duplicates += 1;
            return false;
        };
        if last.is_some_and(|last| distance(last) < distance(position)) {
            group.early += 1;
            self.groups.insert(frame.whole, group);
            return false;
        }
        let mut passed = Vec::new();
        while let Some(later) =
            self.position(group, group.next + 1).filter(|later| distance(*later) < distance(position))
        {
            if group.early > 0 {
                group.early -= 1;
                self.received += 1;
            } else {
                passed.push(position);
            }
            position = later;
            group.next += 1;
        }
        group.next += 1;
        self.duplicates += std::mem::take(&mut group.early);
        if position < self.front {
            self.reordered += 1;
        } else {
            self.front = position + 1;
        }
        self.received += 1;
        self.passed.extend(passed);
        self.groups.insert(frame.whole, group);
        true
    }

    /// Position of frame `next` of a group among all frames sent.
    fn position(&self, group: Group, next: u64) -> Option<u64> {
        let round = next / u64::from(group.count);
        let index = self.order[(u64::from(group.first) + next % u64::from(group.count)) as usize];
        (round < self.rounds).then(|| round * self.capture.len() as u64 + u64::from(index))
    }

    /// Leaves out `frames` frames that were not sent because they are too long, beside the `sent` frames. The longest
    /// frames of the capture are those. False if not: then it is unknown which frames were sent.
    pub fn leave_out_longest(&mut self, frames: u64, sent: u64) -> bool {
        let positions = sent + frames;
        let (rounds, rest) = (positions / self.capture.len() as u64, positions % self.capture.len() as u64);
        let mut lengths: Vec<(u32, u64)> =
            self.capture.iter().zip(0..).map(|(frame, n)| (frame.length, rounds + u64::from(n < rest))).collect();
        lengths.sort_unstable_by_key(|(length, _)| std::cmp::Reverse(*length));
        let mut longer = 0;
        for same in lengths.chunk_by(|one, other| one.0 == other.0) {
            if longer >= frames {
                (self.longest, self.not_sent) = (same[0].0, longer);
                break;
            }
            longer += same.iter().map(|(_, times)| times).sum::<u64>();
        }
        self.not_sent == frames
    }

    /// Whether the frame at this position was sent, if all shorter ones were.
    fn fits(&self, position: u64) -> bool {
        self.capture[(position % self.capture.len() as u64) as usize].length <= self.longest
    }

    /// The figures, if the first `sent` frames that fit were sent.
    #[must_use]
    pub fn report(&self, sent: u64) -> ReplayReport {
        let frames = self.capture.len() as u64;
        let (missing, resolved) = self.missing(sent);
        let changed = self.changed(&missing);
        let fate = |position: &u64| match () {
            () if changed.contains(position) => FrameFate::Changed,
            () if self.fits(*position) => FrameFate::Lost,
            () => FrameFate::NotSent,
        };
        let unfit = if self.not_sent > 0 { 0..sent + self.not_sent } else { 0..0 };
        let unfit = unfit.filter(|position| !self.fits(*position)).take(LISTED);
        let listed: BTreeSet<u64> = missing.iter().copied().chain(unfit).collect();
        let listed = listed.iter().take(LISTED).map(|position| ReplayedFrame {
            frame: position % frames + 1,
            round: position / frames + 1,
            fate: fate(position),
        });
        let lost = missing.len() as u64 - changed.len() as u64;
        ReplayReport {
            sent,
            received: sent - missing.len() as u64,
            changed: changed.len() as u64,
            lost,
            loss_ratio: lost as f64 / sent.max(1) as f64,
            duplicates: self.duplicates + self.groups.values().map(|group| group.early).sum::<u64>() - resolved,
            reordered: self.reordered,
            foreign: self.foreign + (self.unknown.len() - changed.len()) as u64,
            frames: listed.collect(),
        }
    }

    /// Frames of the capture, from 0, that were lost or changed in any repetition, if the first `sent` frames were sent.
    #[must_use]
    pub fn missing_of_capture(&self, sent: u64) -> BTreeSet<u64> {
        self.missing(sent).0.into_iter().map(|position| position % self.capture.len() as u64).collect()
    }

    /// Positions of frames that did not arrive as they were sent, and how many apparent duplicates were such frames: a
    /// copy that arrived earlier than the frame was expected, because the frames in between were lost.
    fn missing(&self, sent: u64) -> (BTreeSet<u64>, u64) {
        let end = sent + self.not_sent;
        let mut missing = self.passed.clone();
        missing.retain(|position| *position < end && self.fits(*position));
        let mut resolved = 0;
        for group in self.groups.values() {
            let (mut early, mut next) = (group.early, group.next);
            while let Some(position) = self.position(*group, next).filter(|position| *position < end) {
                next += 1;
                if !self.fits(position) {
                    continue;
                }
                if early > 0 {
                    (early, resolved) = (early - 1, resolved + 1);
                } else {
                    missing.insert(position);
                }
            }
        }
        (missing, resolved)
    }

    /// Missing frames whose header or payload an arrival has. A header or payload shared by several frames of the
    /// capture identifies none of them.
    fn changed(&self, missing: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut changed = BTreeSet::new();
        if self.unknown.is_empty() {
            return changed;
        }
        type Part = fn(&FrameDigests) -> Option<u64>;
        let parts: [Part; 2] = [|frame| frame.header, |frame| frame.payload];
        let of_part = parts.map(|part| {
            let mut counts: HashMap<u64, u64> = HashMap::new();
            self.capture.iter().filter_map(part).for_each(|digest| *counts.entry(digest).or_default() += 1);
            let mut positions: HashMap<u64, Vec<u64>> = HashMap::new();
            for position in missing.iter().rev() {
                let digest = part(&self.capture[(position % self.capture.len() as u64) as usize]);
                if let Some(digest) = digest.filter(|digest| counts[digest] == 1) {
                    positions.entry(digest).or_default().push(*position);
                }
            }
            (part, positions)
        });
        for frame in &self.unknown {
            let found = of_part.iter().find_map(|(part, positions)| {
                let positions = positions.get(&part(frame)?)?;
                positions.iter().rev().find(|position| !changed.contains(*position))
            });
            changed.extend(found);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(whole: u64) -> FrameDigests {
        FrameDigests { length: 60, whole, header: Some(whole + 1_000), payload: Some(whole + 2_000) }
    }

    fn meter(wholes: &[u64], rounds: u64) -> ReplayMeter {
        ReplayMeter::new(wholes.iter().map(|whole| frame(*whole)).collect(), rounds)
    }

    fn named(report: &ReplayReport) -> Vec<(u64, u64, FrameFate)> {
        report.frames.iter().map(|frame| (frame.round, frame.frame, frame.fate)).collect()
    }

    #[test]
    fn names_lost_frames_and_counts_duplicates_and_order() {
        let mut meter = meter(&[1, 2, 3, 4, 5, 6], 1);
        for whole in [1, 3, 3, 5, 4, 9] {
            meter.record(frame(whole));
        }
        let report = meter.report(6);
        assert_eq!(named(&report), [(1, 2, FrameFate::Lost), (1, 6, FrameFate::Lost)]);
        assert_eq!((report.received, report.duplicates, report.reordered, report.foreign), (4, 1, 1, 1));
        assert_eq!(named(&meter.report(5)), [(1, 2, FrameFate::Lost)], "frame 6 was not sent");
    }

    /// Between two frames with the same bytes, a burst is lost.
    #[test]
    fn copy_that_arrives_early_is_no_duplicate() {
        let mut meter = meter(&[1, 7, 2, 3, 7, 4], 2);
        for whole in [1, 7, 7, 4, 1, 7, 2, 3, 7, 7, 4] {
            meter.record(frame(whole));
        }
        let report = meter.report(12);
        assert_eq!(named(&report), [(1, 3, FrameFate::Lost), (1, 4, FrameFate::Lost)]);
        assert_eq!(
            (report.received, report.duplicates),
            (10, 1),
            "the one in round 2 came although nothing was missing"
        );
        let mut meter = self::meter(&[1, 7, 2, 3, 7, 4], 1);
        [1, 7, 7].into_iter().for_each(|whole| _ = meter.record(frame(whole)));
        let report = meter.report(6);
        assert_eq!((report.received, report.lost, report.duplicates), (3, 3, 0));
    }

    #[test]
    fn frames_that_are_too_long_to_be_sent_are_not_lost() {
        let of_length = |whole: u64, length| FrameDigests { length, ..frame(whole) };
        let capture =
            || vec![of_length(1, 60), of_length(2, 5_000), of_length(3, 1_514), of_length(4, 2_000), of_length(5, 90)];
        let mut meter = ReplayMeter::new(capture(), 2);
        assert!(meter.leave_out_longest(4, 6));
        for whole in [1, 3, 5, 1, 5] {
            meter.record(frame(whole));
        }
        let report = meter.report(6);
        let unsent = |round| [(round, 2, FrameFate::NotSent), (round, 4, FrameFate::NotSent)];
        let expected =
            [unsent(1).to_vec(), vec![(2, 2, FrameFate::NotSent), (2, 3, FrameFate::Lost), (2, 4, FrameFate::NotSent)]];
        assert_eq!(named(&report), expected.concat());
        assert_eq!((report.sent, report.received, report.lost), (6, 5, 1));
        assert_eq!(meter.missing_of_capture(6), BTreeSet::from([2]));
        assert!(
            !ReplayMeter::new(capture(), 2).leave_out_longest(3, 6),
            "one of two equal frames was dropped for another reason"
        );
    }

    #[test]
    fn distinguishes_repetitions() {
        let mut meter = meter(&[1, 2, 3, 4, 5, 6], u64::MAX);
        for whole in [1, 2, 3, 4, 5, 6, 1, 3, 4, 5, 6, 1, 2, 3, 2, 4, 5, 6, 1] {
            meter.record(frame(whole));
        }
        let report = meter.report(19);
        assert_eq!(named(&report), [(2, 2, FrameFate::Lost)]);
        assert_eq!((report.received, report.duplicates), (18, 1));
    }

    #[test]
    fn frames_with_the_same_bytes_are_counted_together() {
        let mut meter = meter(&[1, 7, 2, 7, 3], 1);
        for whole in [1, 2, 7, 3] {
            meter.record(frame(whole));
        }
        let report = meter.report(5);
        assert_eq!(named(&report), [(1, 2, FrameFate::Lost)]);
        assert_eq!((report.received, report.reordered, report.duplicates), (4, 0, 0));
    }

    #[test]
    fn recognises_changed_frames_by_header_or_payload() {
        let mut meter = meter(&[1, 2, 3, 4], 1);
        meter.record(frame(1));
        meter.record(FrameDigests { whole: 90, ..frame(2) });
        meter.record(FrameDigests { whole: 91, header: Some(5), ..frame(3) });
        meter.record(FrameDigests { whole: 92, header: Some(5), ..FrameDigests::default() });
        let report = meter.report(4);
        let expected = [(1, 2, FrameFate::Changed), (1, 3, FrameFate::Changed), (1, 4, FrameFate::Lost)];
        assert_eq!(named(&report), expected);
        assert_eq!((report.received, report.changed, report.lost, report.foreign), (1, 2, 1, 1));
    }

    #[test]
    fn a_part_that_several_frames_share_identifies_none_of_them() {
        let same = |whole| FrameDigests { length: 60, whole, header: Some(1), payload: Some(2) };
        let mut meter = ReplayMeter::new(vec![same(10), same(11)], 1);
        meter.record(same(12));
        let report = meter.report(2);
        assert_eq!((report.lost, report.changed, report.foreign), (2, 0, 1));
    }
}
