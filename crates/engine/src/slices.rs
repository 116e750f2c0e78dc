//! Slices of a pipeline: sampled frames are followed from their arrival to the driver.
//!
//! A frame that is followed carries a number ([`Frame::tag`]); its marks lie in a table of its class. A mark holds when
//! the frame was there and when it should have been, which is what stages and schedule reckon with. Without a clock
//! both are the same: virtual time is exact. A driver in real time gives a reading of its clock, which is taken for
//! sampled frames only.

use crate::random::Random;
use crate::stages::Item;
use measure::{DropReason, Mark, PipelineSlices, SliceMeter};
use packet::{Frame, Identity};
use std::sync::Arc;
use units::{Span, Time};

/// Without the feature no frame is followed, and nothing asks whether one is.
pub(crate) const COMPILED: bool = cfg!(feature = "slices");

/// A reading of a driver's clock.
pub type Reading = Arc<dyn Fn() -> Time + Send + Sync>;

/// Hears of each frame that departed, and what the clock of the marks read a moment ago.
pub type Listener = Arc<dyn Fn(&Way, &SliceMeter, Time) + Send + Sync>;

/// Which frames are followed, and how.
#[derive(Clone)]
pub struct Sampling {
    /// Of so many frames of each class one is followed, drawn among them: what comes in bursts, or goes round a mix, would
    /// else show the same few frames always (RFC 5475 §5.2.1, 1-out-of-N). The very first is followed, too.
    pub every: u64,
    /// Of the drawing.
    pub seed: u64,
    /// All frames are there from the start: they arrive when the one before departs.
    pub backlog: bool,
    /// Who hears of each frame that departed. Frames are then identified.
    pub listener: Option<Listener>,
}

/// The way of one frame.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Its marks so far: at the arrival, before the stages, behind each of them, first in the queue, at the
    /// departure, and behind the hand-over.
    pub marks: Vec<Mark>,
    /// Which packet it is, if somebody listens and it is one of TCP or UDP.
    pub identity: Option<Identity>,
    /// Its bytes with FCS when it arrived.
    pub length: u32,
}

/// The frames of one class that are followed.
pub(crate) struct Slices {
    sampling: Sampling,
    /// That of a run in real time.
    clock: Option<Reading>,
    /// Frames come with their tag: another thread has begun to follow them.
    continued: bool,
    /// Another thread goes on to follow them, and makes the departures.
    handed_on: bool,
    /// Frames until the next that is followed, the last of them itself.
    left: u64,
    /// Which of the present `every` frames was drawn, from 0.
    drawn: u64,
    random: Random,
    ways: Vec<Way>,
    free: Vec<u32>,
    meter: SliceMeter,
    /// When the last frame was to depart.
    last: Time,
}

impl Slices {
    /// For a class with stages of these names.
    pub(crate) fn new(stages: &[String], sampling: Sampling) -> Slices {
        let mut names = vec!["rx".to_owned()];
        for (i, stage) in stages.iter().enumerate() {
            let before = stages[..i].iter().filter(|other| *other == stage).count();
            names.push(if before == 0 { stage.clone() } else { format!("{stage}.{}", before + 1) });
        }
        names.extend(["queueing", "pacer", "tx"].map(str::to_owned));
        Slices {
            meter: SliceMeter::new(names, sampling.every),
            clock: None,
            continued: false,
            handed_on: false,
            left: 1,
            drawn: 0,
            random: Random::stream(sampling.seed, "slices"),
            sampling,
            ways: Vec::new(),
            free: Vec::new(),
            last: Time::ZERO,
        }
    }

    /// Time is real: it is read by `clock`, which takes `cost`.
    pub(crate) fn read_by(&mut self, clock: Reading, cost: Span) {
        self.clock = Some(clock);
        self.meter.in_real_time(cost);
    }

    /// For two threads: that which gives frames to the other, and that which goes on with them.
    pub(crate) fn split(self) -> (Slices, Slices) {
        let second = Slices {
            sampling: self.sampling.clone(),
            clock: self.clock.clone(),
            continued: true,
            handed_on: self.handed_on,
            left: 1,
            drawn: 0,
            random: self.random.clone(),
            ways: Vec::new(),
            free: Vec::new(),
            meter: self.meter.another(),
            last: Time::ZERO,
        };
        (Slices { handed_on: true, ..self }, second)
    }

    /// A frame arrived at `at`; the driver looked at `now`. As all that follows, a few instructions for a frame that
    /// nobody follows, and the rest apart from them: a call for each would cost more than they do.
    #[inline(always)]
    pub(crate) fn arrived<F: Frame>(&mut self, frame: &mut F, now: Time, at: Time) {
        if self.left > 1 {
            self.left -= 1;
            // Written only where it must be: a frame that is moved right after it was written to has to wait for that.
            if frame.tag() != 0 {
                frame.set_tag(0);
            }
        } else if !self.continued {
            self.begin(frame, now, at);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin<F: Frame>(&mut self, frame: &mut F, now: Time, at: Time) {
        let next = self.random.below(self.sampling.every);
        self.left = self.sampling.every - self.drawn + next;
        self.drawn = next;
        self.meter.seen();
        let (from, entered) = match &self.clock {
            Some(clock) => {
                let read = clock();
                // A frame that was read ahead of its time has not arrived later than it is looked at.
                (now.min(read), read)
            }
            None => {
                let from = if self.sampling.backlog { at.max(self.last) } else { at };
                (from, from)
            }
        };
        let identity = self.sampling.listener.is_some().then(|| Identity::of(frame.bytes())).flatten();
        let length = frame.length().bytes();
        let way = self.place(frame);
        way.marks.clear();
        way.marks.extend([Mark { at: from, intended: from }, Mark { at: entered, intended: from }]);
        (way.identity, way.length) = (identity, length);
    }

    /// A place in the table, which the frame's tag says from now on.
    fn place<F: Frame>(&mut self, frame: &mut F) -> &mut Way {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.ways.push(Way::default());
            self.ways.len() as u32 - 1
        });
        frame.set_tag(slot + 1);
        &mut self.ways[slot as usize]
    }

    /// The frame with `tag` is at the end of a slice, where it should have been at `intended`.
    #[cold]
    #[inline(never)]
    fn mark(&mut self, tag: u32, intended: Time) {
        let Some(way) = (tag as usize).checked_sub(1).and_then(|slot| self.ways.get_mut(slot)) else { return };
        let before = way.marks.last().map_or(Time::ZERO, |mark| mark.intended);
        // What should have been before the frame came is due at once.
        let intended = intended.max(before);
        let at = self.clock.as_ref().map_or(intended, |clock| clock());
        way.marks.push(Mark { at, intended });
    }

    /// Frames have left a stage, and others were dropped there.
    #[inline(always)]
    pub(crate) fn passed<F: Frame>(&mut self, items: &[Item<F>], dropped: &[(F, DropReason)]) {
        for item in items {
            if item.frame.tag() != 0 {
                self.mark(item.frame.tag(), item.at);
            }
        }
        for (frame, _) in dropped {
            if frame.tag() != 0 {
                self.lost(frame.tag());
            }
        }
    }

    /// A frame that was ready at `ready` is the next of its class to depart, at `ask`.
    #[inline(always)]
    pub(crate) fn settled<F: Frame>(&mut self, frame: &F, ready: Time, ask: Time) {
        if frame.tag() != 0 {
            self.first(frame.tag(), ready);
        }
        self.last = ask;
    }

    #[cold]
    #[inline(never)]
    fn first(&mut self, tag: u32, ready: Time) {
        // Handed on, it is in no queue yet.
        if !self.handed_on {
            self.mark(tag, ready.max(self.last));
        }
    }

    /// A frame that is followed departed at `start` instead of `ask`, and is handed over.
    pub(crate) fn departed(&mut self, tag: u32, ask: Time, start: Time) {
        let Some(slot) = (tag as usize).checked_sub(1).filter(|slot| *slot < self.ways.len()) else { return };
        let way = &mut self.ways[slot];
        let before = way.marks.last().copied().unwrap_or_default();
        let intended = before.intended.max(ask);
        let (start, end) = match &self.clock {
            // The driver's look at the clock may be older than ours.
            Some(clock) => (start.max(before.at), clock().max(start)),
            None => (start, start),
        };
        way.marks.extend([Mark { at: start, intended }, Mark { at: end.max(start), intended }]);
        self.meter.record(&way.marks);
        if let Some(listener) = &self.sampling.listener {
            listener(way, &self.meter, end);
        }
        self.free.push(slot as u32);
    }

    /// A frame will not depart.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&mut self, tag: u32) {
        if (1..=self.ways.len()).contains(&(tag as usize)) {
            self.free.push(tag - 1);
        }
    }

    /// Takes out the way of a frame that goes on to another thread.
    pub(crate) fn take(&mut self, tag: u32) -> Option<Box<Way>> {
        let slot = (tag as usize).checked_sub(1).filter(|slot| *slot < self.ways.len())?;
        self.free.push(slot as u32);
        Some(Box::new(std::mem::take(&mut self.ways[slot])))
    }

    /// Goes on with the way of a frame that came from another thread, if it is followed.
    pub(crate) fn put<F: Frame>(&mut self, frame: &mut F, way: Option<Box<Way>>) {
        match way {
            Some(way) => *self.place(frame) = *way,
            None => frame.set_tag(0),
        }
    }

    /// The clock, if there is one.
    pub(crate) fn clock(&self) -> Option<Reading> {
        self.clock.clone()
    }

    /// The figures.
    pub(crate) fn report(&self) -> PipelineSlices {
        self.meter.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pipeline;
    use crate::schedules::{Ask, Draw};
    use packet::HeapFrame;

    const BURST: u64 = 64;

    /// Slices of bursts of 64 frames, which depart 1 µs after one another: frame k of a burst queues for k µs.
    fn bursts(count: u64, every: u64, seed: u64) -> PipelineSlices {
        let gap = Span::from_us(1);
        let draw = Draw { seed: 1, path: "test", frames: None };
        let schedule = Ask::Gap(gap).schedule(None, draw).expect("a schedule");
        let sampling = Sampling { every, seed, backlog: false, listener: None };
        let mut pipeline = Pipeline::new(Vec::new(), schedule).slicing(&[Vec::new()], &sampling);
        for burst in 0..count {
            let at = Time::ZERO + gap * (BURST * burst);
            for _ in 0..BURST {
                pipeline.push(at, at, HeapFrame::new(vec![0; 60]));
            }
            while let Some(departure) = pipeline.next_departure() {
                let tag = pipeline.tag(&departure);
                if tag != 0 {
                    pipeline.sliced(departure.class, tag, departure.at, departure.at);
                }
            }
        }
        pipeline.slices().expect("they were asked for")
    }

    #[test]
    fn one_frame_in_a_burst_is_not_always_the_same() {
        let all = bursts(2_000, 1, 1);
        let some = bursts(2_000, BURST, 1);
        assert_eq!((all.packets.seen, some.packets.seen), (2_000 * BURST, 2_000));
        assert!((all.total.mean_ns - 31_500.0).abs() < 1e-3, "{} ns", all.total.mean_ns);
        // Uniform in 0..64 µs: the deviation of a mean of 2 000 is 0.41 µs.
        assert!((some.total.mean_ns - 31_500.0).abs() < 1_700.0, "{} ns", some.total.mean_ns);
        assert!((some.total.p99_ns / all.total.p99_ns - 1.0).abs() < 0.05, "{} ns", some.total.p99_ns);
    }

    #[test]
    fn the_first_frame_is_followed_and_then_one_of_each_so_many() {
        for (count, every, seen) in [(1, 1_000, 1), (10, 64, 10), (3, 3 * BURST, 1), (7, 7, 64)] {
            let slices = bursts(count, every, 5);
            assert_eq!(slices.packets.seen, seen, "{count} bursts, 1/{every}");
        }
        let means = [1, 1, 2].map(|seed| bursts(100, 64, seed).total.mean_ns.to_bits());
        assert_eq!(means[0], means[1], "the same seed, the same frames");
        assert_ne!(means[0], means[2]);
    }
}
