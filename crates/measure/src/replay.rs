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
/// order is closest to that of the neighbouring arrivals. An arrival that may be a late frame or the first one after a
/// loss is decided by the arrival after it. At the end, arrivals that looked like copies stand for skipped frames with
/// the same bytes, unless they followed the original at once and the device keeps the order otherwise.
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
    /// The last arrival, if it may be late.
    jump: Option<Jump>,
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
    early: u32,
    /// Frames in `passed`.
    skipped: u32,
    /// Arrivals that count as duplicates.
    copies: u32,
    /// Arrivals that counted as duplicates at first, but followed the original too late to be plain copies.
    far: u32,
}

/// An arrival that was matched with a frame further on, although a frame with the same bytes is missing.
#[derive(Clone, Copy, Debug)]
struct Jump {
    whole: u64,
    /// The front before it.
    front: u64,
    /// The group before it.
    group: Group,
    /// The first of the frames that it skipped, if it skipped any.
    first_passed: Option<u64>,
}

/// A copy made by a device follows its original by at most this number of positions.
const PLAIN_COPY: u64 = 2;

/// Frames that did not arrive as they were sent, and apparent duplicates that were such frames.
struct Missing {
    positions: BTreeSet<u64>,
    /// Copies that arrived earlier than the frame was expected, because the frames in between were lost.
    resolved: u64,
    /// Copies that arrived later than frames with the same bytes that had been skipped.
    late: u64,
}

/// Limit on arrivals kept to identify changed frames of the capture.
const UNKNOWN: usize = 65_536;
/// Frames in the report.
const LISTED: usize = 10_000;

impl ReplayMeter {
    /// Limit on the frames of a capture: some 140 MB of memory.
    pub const MOST: usize = 1 << 20;

    /// Expects `capture` to be sent at most `rounds` times.
    #[must_use]
    pub fn new(capture: Vec<FrameDigests>, rounds: u64) -> Self {
        let mut order: Vec<u32> = (0..capture.len() as u32).collect();
        order.sort_by_key(|index| (capture[*index as usize].whole, *index));
        let mut groups: HashMap<u64, Group> = HashMap::with_capacity(order.len());
        for (first, index) in order.iter().enumerate() {
            let whole = capture[*index as usize].whole;
            let new = Group { first: first as u32, count: 0, next: 0, early: 0, skipped: 0, copies: 0, far: 0 };
            groups.entry(whole).or_insert(new).count += 1;
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
            jump: None,
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
        self.settle_jump(frame.whole);
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
        let is_far = last.is_some_and(|last| distance(last) > PLAIN_COPY);
        let before = Jump { whole: frame.whole, front: self.front, group, first_passed: None };
        let Some(mut position) = self.position(group, group.next) else {
            group.far += u32::from(is_far);
            group.copies += 1;
            self.duplicates += 1;
            self.groups.insert(frame.whole, group);
            return false;
        };
        if last.is_some_and(|last| distance(last) < distance(position)) {
            if is_far && group.skipped > 0 && group.early == 0 {
                self.jump = Some(before);
                return self.find(frame.whole, group, position);
            }
            group.early += 1;
            group.far += u32::from(is_far);
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
        group.skipped += passed.len() as u32;
        if position > self.front && group.skipped > 0 && before.group.early == 0 {
            self.jump = Some(Jump { first_passed: passed.first().copied(), ..before });
        }
        self.passed.extend(passed);
        self.find(frame.whole, group, position)
    }

    /// Counts the next frame of a group, at this position.
    fn find(&mut self, whole: u64, mut group: Group, position: u64) -> bool {
        group.next += 1;
        group.copies += group.early;
        self.duplicates += u64::from(std::mem::take(&mut group.early));
        if position < self.front {
            self.reordered += 1;
        } else {
            self.front = position + 1;
        }
        self.received += 1;
        self.groups.insert(whole, group);
        true
    }

    /// Decides by the arrival after it whether an arrival jumped ahead because frames were lost, or was a late frame.
    fn settle_jump(&mut self, next: u64) {
        let Some(jump) = self.jump else { return };
        // Frames that are not of the capture decide nothing.
        let Some(group) = self.groups.get(&next).copied() else { return };
        self.jump = None;
        let nearest = |front: u64| {
            let from = group.next.saturating_sub(1);
            let mut least = u64::MAX;
            for position in (from..).map_while(|next| self.position(group, next)) {
                let distance = position.abs_diff(front);
                if distance > least {
                    break;
                }
                least = distance;
            }
            least
        };
        if next == jump.whole || nearest(jump.front) >= nearest(self.front) {
            return;
        }
        let mut group = jump.group;
        match jump.first_passed {
            // The late frame is the first that the jump skipped. What it skipped further on is still to come.
            Some(first) => {
                let jumped = self.groups.get(&jump.whole).copied().unwrap_or(group);
                for skipped in group.next..jumped.next.saturating_sub(1) {
                    if let Some(position) = self.position(group, skipped) {
                        self.passed.remove(&position);
                    }
                }
                debug_assert_eq!(self.position(group, group.next), Some(first));
                group.next += 1;
            }
            None => {
                let Some(late) = self.last_skipped(group) else { return };
                self.passed.remove(&late);
                group.skipped -= 1;
            }
        }
        self.groups.insert(jump.whole, group);
        self.front = jump.front;
        self.reordered += 1;
    }

    /// The latest frame of a group that was skipped, among the last few.
    fn last_skipped(&self, group: Group) -> Option<u64> {
        const FEW: u64 = 64;
        let recent = (group.next.saturating_sub(FEW)..group.next).rev();
        recent.filter_map(|next| self.position(group, next)).find(|position| self.passed.contains(position))
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
        let Missing { positions: missing, resolved, late } = self.missing(sent);
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
            duplicates: self.duplicates + self.groups.values().map(|group| u64::from(group.early)).sum::<u64>()
                - resolved
                - late,
            reordered: self.reordered + late,
            foreign: self.foreign + (self.unknown.len() - changed.len()) as u64,
            frames: listed.collect(),
        }
    }

    /// Frames of the capture, from 0, that were lost or changed in any repetition, if the first `sent` frames were sent.
    #[must_use]
    pub fn missing_of_capture(&self, sent: u64) -> BTreeSet<u64> {
        self.missing(sent).positions.into_iter().map(|position| position % self.capture.len() as u64).collect()
    }

    /// The frames that did not arrive as they were sent.
    fn missing(&self, sent: u64) -> Missing {
        let end = sent + self.not_sent;
        let mut missing = self.passed.clone();
        missing.retain(|position| *position < end && self.fits(*position));
        let mut resolved = 0;
        // On a device that reorders many frames, late ones look like copies that follow at once.
        let reorders = self.reordered > 0 && self.reordered >= self.duplicates / 4;
        let mut late_of_groups = HashMap::new();
        for (whole, group) in &self.groups {
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
            let copies = group.copies + early;
            let late = if reorders { copies } else { group.far.min(copies).min(group.skipped) };
            if late > 0 {
                late_of_groups.insert(*whole, late);
            }
        }
        let mut late = 0;
        if !late_of_groups.is_empty() {
            for position in missing.clone().iter().rev() {
                let whole = self.capture[(position % self.capture.len() as u64) as usize].whole;
                if let Some(left) = late_of_groups.get_mut(&whole).filter(|left| **left > 0)
                    && missing.remove(position)
                {
                    *left -= 1;
                    late += 1;
                }
            }
        }
        Missing { positions: missing, resolved, late }
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

    /// Frames 10 and 500 have the same bytes, and a device delays the first of them by 400 positions.
    #[test]
    fn late_frame_is_not_mistaken_for_a_later_one_with_the_same_bytes() {
        let wholes: Vec<u64> = (0..1_000).map(|n| if n == 500 { 10 } else { n }).collect();
        let mut meter = meter(&wholes, 1);
        let mut arrivals = wholes.clone();
        let late = arrivals.remove(10);
        arrivals.insert(410, late);
        arrivals.into_iter().for_each(|whole| _ = meter.record(frame(whole)));
        let report = meter.report(1_000);
        assert_eq!((report.lost, report.duplicates, report.reordered), (0, 0, 1));
    }

    /// A loop of 30 frames: each frame is there once per round.
    #[test]
    fn late_frames_of_a_loop_are_not_lost() {
        let wholes: Vec<u64> = (0..30).collect();
        let arrivals = |late: &[usize]| {
            let mut order: Vec<(usize, u64)> = (0..600).map(|n| (n, n as u64 % 30)).collect();
            for (n, place) in late.iter().zip(0..) {
                let at = order.iter().position(|(position, _)| position == n).expect("it is there");
                let one = order.remove(at);
                order.insert(at + 80 + place, one);
            }
            order
        };
        let mut meter = meter(&wholes, 20);
        arrivals(&[100, 205]).into_iter().for_each(|(_, whole)| _ = meter.record(frame(whole)));
        let report = meter.report(600);
        assert_eq!((report.lost, report.duplicates, report.reordered), (0, 0, 2));
        // Losses beside late frames are still named.
        let mut meter = self::meter(&wholes, 20);
        let kept = arrivals(&[100, 205]).into_iter().filter(|(position, _)| ![37, 300, 411].contains(position));
        kept.for_each(|(_, whole)| _ = meter.record(frame(whole)));
        let report = meter.report(600);
        let lost = |position: u64| (position / 30 + 1, position % 30 + 1, FrameFate::Lost);
        assert_eq!(named(&report), [lost(37), lost(300), lost(411)]);
        assert_eq!((report.duplicates, report.reordered), (0, 2));
    }

    /// Delays so different that hardly a frame arrives in its place.
    #[test]
    fn thorough_reordering_of_a_loop_loses_nothing() {
        let wholes: Vec<u64> = (0..30).collect();
        let mut meter = meter(&wholes, 40);
        let mut order: Vec<(u64, u64)> = (0..1_200).map(|n| (n + n * 2_654_435_769 % 1_009 % 60, n % 30)).collect();
        order.sort_unstable();
        order.into_iter().for_each(|(_, whole)| _ = meter.record(frame(whole)));
        let report = meter.report(1_200);
        assert_eq!(report.received, 1_200 - report.lost);
        assert!(report.lost <= 12 && report.lost == report.duplicates, "{report:?}");
    }
}
