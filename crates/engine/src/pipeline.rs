use crate::catch_up::{CatchUp, Forgiveness};
use crate::schedules::{AsReady, Lengths, Schedule};
use crate::stages::{Item, Outlet, Stage};
use measure::{Books, DropReason};
use packet::Frame;
use std::collections::VecDeque;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// A chain of stages, a queue of frames that are ready, and the schedule of their departure.
pub struct Pipeline<F> {
    stages: Vec<Box<dyn Stage<F>>>,
    schedule: Box<dyn Schedule>,
    forgiveness: Forgiveness,
    ready: VecDeque<Item<F>>,
    books: Books,
    starved: u64,
    batch: Vec<Item<F>>,
    outlet: Outlet<F>,
}

/// A frame whose departure is settled.
#[derive(Debug)]
pub struct Departure<F> {
    /// The frame.
    pub frame: F,
    /// Its length with FCS.
    pub length: FrameLen,
    /// When it had passed all stages.
    pub ready: Time,
    /// When it should depart: the start of its preamble. [`Time::MAX`] if it never should.
    pub at: Time,
}

impl<F: Frame> Pipeline<F> {
    /// A pipeline of `stages`, first to last, then `schedule`.
    #[must_use]
    pub fn new(stages: Vec<Box<dyn Stage<F>>>, schedule: Box<dyn Schedule>) -> Self {
        Pipeline {
            stages,
            schedule,
            forgiveness: Forgiveness::default(),
            ready: VecDeque::new(),
            books: Books::default(),
            starved: 0,
            batch: Vec::new(),
            outlet: Outlet::default(),
        }
    }

    /// What becomes of the schedule when frames depart late, by more than `tolerance`; without, it is
    /// absolute.
    #[must_use]
    pub fn catching_up(mut self, policy: CatchUp, tolerance: Span) -> Self {
        self.forgiveness = Forgiveness::new(policy, tolerance);
        self
    }

    /// Parts it in two, to be run by two threads: the stages, which give what is ready at once, and the
    /// schedule. Each keeps books of its own.
    #[must_use]
    pub fn split(self) -> (Self, Self) {
        let stages = Pipeline::new(self.stages, Box::new(AsReady));
        let schedule = Pipeline { forgiveness: self.forgiveness, ..Pipeline::new(Vec::new(), self.schedule) };
        (stages, schedule)
    }

    /// A frame came in at `at`; the clock reads `now`, which is not earlier.
    pub fn push(&mut self, now: Time, at: Time, frame: F) {
        self.books.came.add(frame.length());
        let item = Item { frame, at };
        if self.stages.is_empty() {
            self.ready.push_back(item);
        } else {
            self.batch.push(item);
            self.run(now, 0);
        }
    }

    /// Lets the stages release what is due by `now`.
    pub fn wake(&mut self, now: Time) {
        for i in 0..self.stages.len() {
            if self.stages[i].deadline().is_some_and(|deadline| deadline <= now) {
                self.stages[i].wake(now, &mut self.outlet);
                self.collect();
                self.run(now, i + 1);
            }
        }
    }

    /// Runs the batch through the stages from number `first` on.
    fn run(&mut self, now: Time, first: usize) {
        for stage in &mut self.stages[first..] {
            if self.batch.is_empty() {
                return;
            }
            stage.push(now, &mut self.batch, &mut self.outlet);
            debug_assert!(self.batch.is_empty(), "a stage takes the whole batch");
            for (_, reason) in self.outlet.dropped.drain(..) {
                self.books.drop_one(reason);
            }
            std::mem::swap(&mut self.batch, &mut self.outlet.released);
        }
        self.ready.extend(self.batch.drain(..));
    }

    /// Makes what a stage released the batch of the next one.
    fn collect(&mut self) {
        for (_, reason) in self.outlet.dropped.drain(..) {
            self.books.drop_one(reason);
        }
        std::mem::swap(&mut self.batch, &mut self.outlet.released);
    }

    /// When the stages must be woken next, if any waits for time to pass.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.stages.iter().filter_map(|stage| stage.deadline()).min()
    }

    /// Takes the next frame in order and asks the schedule for its departure. The caller then makes
    /// it depart and says so by [`Pipeline::sent`] or [`Pipeline::lost`].
    pub fn next_departure(&mut self) -> Option<Departure<F>> {
        let Item { frame, at: ready } = self.ready.pop_front()?;
        let length = frame.length();
        let packet = if self.schedule.counts_packets() {
            packet::ip_length(frame.bytes()).unwrap_or(length.bytes() - 18)
        } else {
            0
        };
        let due = self.schedule.depart(ready, &Lengths { frame: length, packet });
        self.starved += u64::from(due.starved);
        Some(Departure { frame, length, ready, at: due.at })
    }

    /// A frame of `length` really left.
    pub fn sent(&mut self, length: FrameLen) {
        self.books.left.add(length);
    }

    /// The frame that was asked to depart at `ask` starts at `start`. To be said before the next
    /// departure is asked for, so that what is forgiven moves it.
    #[inline]
    pub fn departed(&mut self, ask: Time, start: Time) {
        if let Some(late) = self.forgiveness.departed(ask, start) {
            self.schedule.forgive(late);
        }
    }

    /// How often lateness was forgiven, and how much in all; `None` where the schedule is absolute.
    #[must_use]
    pub fn forgiven(&self) -> Option<(u64, Span)> {
        self.forgiveness.total()
    }

    /// A frame whose departure was settled could not leave.
    pub fn lost(&mut self, reason: DropReason) {
        self.books.drop_one(reason);
    }

    /// A frame of `length` came and was dropped before it reached the stages.
    pub fn refuse(&mut self, length: FrameLen, reason: DropReason) {
        self.books.came.add(length);
        self.books.drop_one(reason);
    }

    /// The books.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// How often the schedule was starved.
    #[must_use]
    pub fn starved(&self) -> u64 {
        self.starved
    }

    /// True once the schedule has ended: what is left, and the last frame given, will never depart.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.schedule.ended()
    }

    /// The share of a waveform's integral that no frame was there to use; `None` without a waveform.
    #[must_use]
    pub fn forfeited(&self) -> Option<f64> {
        self.schedule.forfeited()
    }

    /// The law that gaps are drawn from, if they are.
    #[must_use]
    pub fn law(&self) -> Option<Arc<dyn measure::Reference>> {
        self.schedule.law()
    }

    /// Frames that are ready and whose departure is not settled.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Frames in the stages and in the ready queue.
    #[must_use]
    pub fn held(&self) -> u64 {
        let in_stages: usize = self.stages.iter().map(|stage| stage.held()).sum();
        (in_stages + self.ready.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::{Ask, Draw};
    use crate::stages::StageConfig;
    use packet::HeapFrame;

    fn pipeline(stages: &[&str], ask: &Ask) -> Pipeline<HeapFrame> {
        let draw = Draw { seed: 1, path: "test", frames: None };
        let build = |text: &&str| StageConfig::parse(text).expect(text).build(1, text);
        Pipeline::new(stages.iter().map(build).collect(), ask.schedule(None, draw).expect("a schedule"))
    }

    #[test]
    fn delays_add_up_exactly_and_keep_the_books() {
        let mut pipeline = pipeline(&["delay 3us", "delay 4us"], &Ask::Nothing);
        for i in 0..10 {
            let at = Time::from_ps(i * 1_000_000);
            while let Some(deadline) = pipeline.deadline().filter(|deadline| *deadline <= at) {
                pipeline.wake(deadline);
            }
            pipeline.push(at, at, HeapFrame::new(vec![0; 60]));
        }
        while let Some(deadline) = pipeline.deadline() {
            pipeline.wake(deadline);
        }
        for i in 0..10 {
            let departure = pipeline.next_departure().expect("a frame");
            assert_eq!(departure.at, Time::from_ps(i * 1_000_000 + 7_000_000));
            pipeline.sent(departure.length);
        }
        assert_eq!(pipeline.held(), 0);
        assert_eq!(pipeline.books().should_hold(), 0);
    }

    #[test]
    fn losses_are_in_the_books_and_the_schedule_does_not_see_them() {
        let mut pipeline = pipeline(&["loss 30%"], &Ask::Gap(Span::from_us(1)));
        for _ in 0..1_000 {
            pipeline.push(Time::ZERO, Time::ZERO, HeapFrame::new(vec![0; 60]));
        }
        let mut expected = Time::ZERO;
        while let Some(departure) = pipeline.next_departure() {
            assert_eq!(departure.at, expected);
            expected += Span::from_us(1);
            pipeline.sent(departure.length);
        }
        let books = pipeline.books();
        assert_eq!(books.came.frames, 1_000);
        assert_eq!(books.left.frames + books.dropped(DropReason::Loss), 1_000);
        assert!(books.dropped(DropReason::Loss) > 0);
    }
}
