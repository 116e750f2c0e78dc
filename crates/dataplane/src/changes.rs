//! Changes of running pipelines. A control thread sends changes to the thread that carries out departures, which sends
//! the replaced values back to be dropped. Both directions are bounded lock-free queues. The departing thread polls its
//! queue from time to time.

use dpdk::{Mbuf, TscClock};
use engine::{Change, Pipeline, Spent};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use units::{Span, Time};

/// The start of a run, by the clock of the thread that carries out departures. Each clock counts from its own creation.
#[derive(Default)]
struct RunStart {
    clock: OnceLock<TscClock>,
    /// In ps; 0 before the start.
    at: AtomicU64,
}

/// Capacity of the queue of changes.
const WAITING: usize = 1_024;

/// Sends changes to a pipeline. Do not use it on the thread that carries out departures.
pub struct ChangeSender {
    changes: rtrb::Producer<(Span, Change<Mbuf>)>,
    spent: rtrb::Consumer<Spent<Mbuf>>,
    started: Arc<RunStart>,
}

/// The receiving end of the queue, for the thread that carries out departures.
pub struct ChangeReceiver {
    changes: rtrb::Consumer<(Span, Change<Mbuf>)>,
    spent: rtrb::Producer<Spent<Mbuf>>,
    started: Arc<RunStart>,
}

/// A queue of changes.
#[must_use]
pub fn change_queue() -> (ChangeSender, ChangeReceiver) {
    let (give, take) = rtrb::RingBuffer::new(WAITING);
    let (throw, catch) = rtrb::RingBuffer::new(WAITING);
    let started = Arc::new(RunStart::default());
    let sender = ChangeSender { changes: give, spent: catch, started: Arc::clone(&started) };
    (sender, ChangeReceiver { changes: take, spent: throw, started })
}

impl ChangeSender {
    /// Sends a change that takes effect at time `at` after the start of the run, or as soon as possible after that.
    ///
    /// # Errors
    /// Returns the change if the queue is full or the run has ended.
    pub fn send(&mut self, at: Span, change: Change<Mbuf>) -> Result<(), Change<Mbuf>> {
        if self.changes.is_abandoned() {
            return Err(change);
        }
        self.changes.push((at, change)).map_err(|rtrb::PushError::Full((_, change))| change)
    }

    /// Whether a change can be sent now: there is room, and the run has not ended.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.changes.is_full() && !self.changes.is_abandoned()
    }

    /// The time since the start of the run; `None` before that.
    #[must_use]
    pub fn passed(&self) -> Option<Span> {
        let at = Some(self.started.at.load(Ordering::Acquire)).filter(|start| *start > 0)?;
        Some(self.started.clock.get()?.now().since(Time::from_ps(at)))
    }

    /// The values that changes have replaced.
    pub fn spent(&mut self) -> impl Iterator<Item = Spent<Mbuf>> + '_ {
        std::iter::from_fn(|| self.spent.pop().ok())
    }
}

impl ChangeReceiver {
    /// Publishes the start of the run, taken from the pipeline.
    fn starts(&self, clock: TscClock, pipeline: &Pipeline<Mbuf>) {
        self.started.clock.get_or_init(|| clock);
        self.started.at.store(pipeline.start().as_ps().max(1), Ordering::Release);
    }

    /// Plans the changes that have arrived, and sends back one replaced value of earlier changes, if any.
    fn poll(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        while let Ok((at, change)) = self.changes.pop() {
            let at = pipeline.start() + at;
            pipeline.plan_change(at, change);
        }
        if !self.spent.is_full()
            && let Some(spent) = pipeline.take_spent()
        {
            // There is room: this is the only thread that adds to it.
            let _ = self.spent.push(spent);
        }
    }
}

/// The changes of a pipeline, for the loop that drives it. It carries them out between two frames.
pub(crate) struct ChangeSchedule {
    receiver: Option<ChangeReceiver>,
    /// When the next change is due.
    next: Time,
}

impl ChangeSchedule {
    /// Creates a schedule for the changes planned in a pipeline, and for those that arrive at `receiver`.
    pub(crate) fn new(receiver: Option<ChangeReceiver>) -> Self {
        ChangeSchedule { receiver, next: Time::MAX }
    }

    /// Starts the run at `start` by `clock`.
    pub(crate) fn begin(&mut self, start: Time, clock: TscClock, pipeline: &mut Pipeline<Mbuf>) {
        pipeline.begin(start);
        if let Some(receiver) = &self.receiver {
            receiver.starts(clock, pipeline);
        }
        self.next = pipeline.next_stage_change().unwrap_or(Time::MAX);
    }

    /// Plans changes that have arrived. Called from time to time.
    pub(crate) fn poll(&mut self, pipeline: &mut Pipeline<Mbuf>) {
        if let Some(receiver) = &mut self.receiver {
            receiver.poll(pipeline);
            self.next = pipeline.next_stage_change().unwrap_or(Time::MAX);
        }
    }

    /// Carries out changes that are due at `at`, between two frames.
    #[inline]
    pub(crate) fn carry_out(&mut self, at: Time, pipeline: &mut Pipeline<Mbuf>) {
        if at >= self.next {
            self.carry_out_some(at, pipeline);
        }
    }

    #[cold]
    fn carry_out_some(&mut self, at: Time, pipeline: &mut Pipeline<Mbuf>) {
        pipeline.change_until(at);
        self.next = pipeline.next_stage_change().unwrap_or(Time::MAX);
    }
}
