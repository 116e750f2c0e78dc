use super::super::queue::{Bottleneck, Serving};
use super::{Aqm, Hits, Queue, Waiting};
use crate::random::Random;
use crate::stages::{Decision, Item, Outlet, Timed};
use packet::Frame;
use units::Time;

/// A link of some rate with a queue in front of it, and the delay before that queue.
///
/// The queue decides when the link becomes free, so frames are simulated from event to event. A tail-drop queue does
/// not need this: its departures are known on arrival.
pub(in crate::stages::netem) struct Line<F> {
    /// Frames that are still delayed.
    delayed: Timed<Waiting<F>>,
    queue: Box<dyn Queue<F>>,
    ecn: bool,
    serving: Serving,
    /// When the link takes the next frame: it is free, but a trace has no earlier opportunity.
    opens: Option<Time>,
    /// The frame on the link, and when its transmission ends.
    passing: Option<(Time, Waiting<F>)>,
    /// When the transmission of the last frame ended.
    last: Time,
    /// Latest ready time so far. No frame becomes ready earlier, so jitter does not reorder frames before the rate.
    ready: Time,
    delayed_bytes: u64,
}

impl<F: Frame + Send + 'static> Line<F> {
    pub(in crate::stages::netem) fn new(aqm: &Aqm, rate: &Bottleneck, ecn: bool, random: Random) -> Self {
        Line {
            delayed: Timed::default(),
            queue: aqm.build(rate, random),
            ecn,
            serving: Serving::new(Some(rate)),
            opens: None,
            passing: None,
            last: Time::ZERO,
            ready: Time::ZERO,
            delayed_bytes: 0,
        }
    }
}

impl<F: Frame> Line<F> {
    /// Number of frames held: delayed, queued and on the link.
    pub(in crate::stages::netem) fn len(&self) -> usize {
        self.delayed.len() + self.queue.backlog().frames as usize + usize::from(self.passing.is_some())
    }

    /// Bytes of these frames without FCS.
    pub(in crate::stages::netem) fn bytes(&self) -> u64 {
        let passing = self.passing.as_ref().map_or(0, |(_, frame)| u64::from(frame.bytes));
        self.delayed_bytes + self.queue.backlog().bytes + passing
    }

    /// Time of the next event.
    pub(in crate::stages::netem) fn deadline(&self) -> Option<Time> {
        let passed = self.passing.as_ref().map(|(at, _)| *at);
        passed.into_iter().chain(self.opens).chain(self.delayed.first()).min()
    }

    /// Adds a frame that arrived at `arrived` and waits for the rate from `ready` on.
    pub(in crate::stages::netem) fn push(
        &mut self,
        frame: F,
        bytes: u32,
        decision: Decision,
        (arrived, ready): (Time, Time),
    ) {
        self.ready = self.ready.max(ready);
        self.delayed_bytes += u64::from(bytes);
        self.delayed.push(self.ready, Waiting { frame, decision, arrived, since: self.ready, bytes });
    }

    /// Called if the stage is full: drops queued frames in favour of an arriving one, if the queue prefers that.
    pub(in crate::stages::netem) fn makes_room(&mut self, arriving: &F, bytes: u32, out: &mut Outlet<F>) -> bool {
        self.queue.makes_room(arriving, bytes, &mut Hits { out, ecn: self.ecn })
    }

    /// Processes all events up to `now`, in order of time.
    pub(in crate::stages::netem) fn run(&mut self, now: Time, out: &mut Outlet<F>) {
        loop {
            let passed = self.passing.as_ref().map(|(at, _)| *at).filter(|at| *at <= now);
            let opens = self.opens.filter(|at| *at <= now);
            let ready = self.delayed.first().filter(|at| *at <= now);
            // At the same instant, a departure comes before an arrival, so that the arrival finds the freed space.
            let is_first = |at: Time| ready.is_none_or(|ready| at <= ready);
            if passed.is_some_and(is_first) {
                self.passes(out);
            } else if let Some(at) = opens.filter(|at| is_first(*at)) {
                self.opens = None;
                self.takes(at, out);
            } else if ready.is_some() {
                self.enqueue(now, out);
            } else {
                return;
            }
        }
    }

    fn passes(&mut self, out: &mut Outlet<F>) {
        let Some((at, Waiting { frame, decision, .. })) = self.passing.take() else { return };
        out.effects.leaves(decision.frame);
        out.release(Item { frame, at });
        self.next(at, out);
    }

    fn enqueue(&mut self, now: Time, out: &mut Outlet<F>) {
        let Some((at, waiting)) = self.delayed.pop(now) else { return };
        self.delayed_bytes -= u64::from(waiting.bytes);
        self.queue.push(at, waiting, &mut Hits { out, ecn: self.ecn });
        if self.passing.is_none() && self.opens.is_none() {
            self.next(at, out);
        }
    }

    /// Handles a link that becomes free at `at`.
    fn next(&mut self, at: Time, out: &mut Outlet<F>) {
        let opens = self.serving.opens(at, self.last);
        if opens > at && self.queue.backlog().frames > 0 {
            self.opens = Some(opens);
        } else {
            self.takes(at, out);
        }
    }

    /// Starts transmission of the next frame, if the queue has one.
    fn takes(&mut self, at: Time, out: &mut Outlet<F>) {
        let Some(mut next) = self.queue.pop(at, &mut Hits { out, ecn: self.ecn }) else { return };
        self.last = self.serving.pass(at, self.last, self.serving.charged(&next.frame));
        next.decision.delay = self.last.since(next.arrived);
        out.decided(|| next.decision.clone());
        self.passing = Some((self.last, next));
    }
}
