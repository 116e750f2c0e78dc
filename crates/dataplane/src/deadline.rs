use crate::answers::{Answers, CLEAR};
use crate::outlet::Outlet;
use crate::return_path::{ReturnPath, with_back};
use crate::rounds::Rounds;
use dpdk::{BURST, Mbuf};
use engine::Pipeline;
use measure::{DepthReport, PipelineReport};
use std::time::Duration;
use units::{Span, Time};

/// After this time without work, the worker sleeps between polls.
const IDLE: Span = Span::from_ms(5);
const NAP: Duration = Duration::from_micros(50);
/// A nap must not extend into a departure; it may last several times as long as requested.
const NAP_MARGIN: Span = Span::from_ms(1);
/// A final lateness above this is not a hiccup: the run fell behind its target.
const FELL_BEHIND: Span = Span::from_ms(10);

/// Busy-waits for each departure; without a schedule, sends as soon as possible.
///
/// Departures take precedence: between two of them, no more frames are received than time allows. The next frame is
/// prepared before the wait, so that only the driver call follows it. The departure is accounted for afterwards.
pub(crate) struct DeadlinePacer {
    outlet: Outlet,
    back: Option<ReturnPath>,
    answers: Option<Answers>,
    paced: bool,
    cost: Cost,
    /// The next frame was taken since the last departure.
    refilled: bool,
}

/// A queue that has sent its part of the frames.
pub(crate) struct EndedQueue {
    pacer: DeadlinePacer,
    pipeline: Pipeline<Mbuf>,
    depth: u64,
}

impl EndedQueue {
    /// The report of all queues together; the first one answers neighbours. `None` without queues.
    pub(crate) fn report_all(queues: Vec<EndedQueue>) -> Option<PipelineReport> {
        let max_frames = queues.iter().map(|queue| queue.depth).sum();
        let mut queues = queues.into_iter();
        let EndedQueue { pacer, mut pipeline, .. } = queues.next()?;
        queues.for_each(|queue| pipeline.join(queue.pipeline));
        let report = PipelineReport { depth: Some(DepthReport { max_frames }), ..pipeline.report() };
        Some(pacer.complete(report, &pipeline))
    }
}

impl DeadlinePacer {
    pub(crate) fn new(outlet: Outlet, back: Option<ReturnPath>, paced: bool) -> Self {
        DeadlinePacer { outlet, back, answers: None, paced, cost: Cost::default(), refilled: false }
    }

    /// Answers requests for the port's addresses.
    pub(crate) fn answering(self, answers: Option<Answers>) -> Self {
        DeadlinePacer { answers, ..self }
    }

    /// Runs to the end and returns the report.
    pub(crate) fn run(mut self, mut rounds: Rounds<'_>) -> PipelineReport {
        self.carry_out(&mut rounds);
        let report = rounds.report();
        let report = self.complete(report, &rounds.pipeline);
        with_back(report, self.back.as_mut())
    }

    /// Runs one of several queues to the end.
    pub(crate) fn run_queue(mut self, mut rounds: Rounds<'_>) -> EndedQueue {
        self.carry_out(&mut rounds);
        EndedQueue { pacer: self, depth: rounds.intake.depth(), pipeline: rounds.pipeline }
    }

    fn carry_out(&mut self, rounds: &mut Rounds<'_>) {
        rounds.raise_until_start();
        let lead = self.outlet.lead();
        // Frames that are generated, or ready on another thread, cost the same at any time, so one is taken per
        // departure.
        let each = usize::from(!rounds.intake.is_port());
        let mut busy_at = Time::ZERO;
        while let Some(now) = rounds.next() {
            rounds.change(now);
            if self.ended(rounds) {
                break;
            }
            self.outlet.keep_up(now);
            let mut busy = self.depart(now, rounds);
            // While the output refuses frames, receiving and the return path continue.
            let stuck = !busy && self.outlet.waiting() > 0;
            let next = if stuck { None } else { rounds.pipeline.due() };
            let now = if busy { rounds.clock.now() } else { now };
            let spare = next.map(|at| at.since(now + lead));
            let owed = if self.refilled { 0 } else { each };
            let fits = spare.map_or(BURST, |spare| self.cost.frames_in(spare));
            let asked = self.answers.as_ref().is_some_and(|answers| answers.must_poll(now));
            if let Some(at) = next.filter(|_| fits == 0 && !asked) {
                if owed > 0 {
                    rounds.wake(now);
                    rounds.intake.take(now, owed, self.outlet.waiting() as u64, &mut rounds.pipeline);
                    self.refilled = true;
                }
                self.depart_at(rounds.pipeline.due().unwrap_or(at), now, rounds);
                continue;
            }
            let most = fits.max(owed);
            let woke = rounds.wake(now);
            busy |= woke;
            let elsewhere = self.outlet.waiting() as u64;
            let mut touched = rounds.intake.take(now, most, elsewhere, &mut rounds.pipeline);
            self.refilled = true;
            // If no departure is at risk, the return path gets its turn under any input load.
            let rest = most.saturating_sub(touched).max(if spare.is_none() { BURST / 4 } else { 0 });
            if let Some(back) = self.back.as_mut().filter(|_| rest > 0) {
                touched += back.carry(now, rest);
                let now = rounds.clock.now();
                back.exchange(now, now, &mut rounds.pipeline);
            }
            touched += self.answer(now, rest, spare);
            if touched > 0 || !woke {
                self.cost.learn(touched, rounds.clock.now().since(now));
            }
            busy |= touched > 0;
            if busy {
                busy_at = now;
            } else if now.since(busy_at) > IDLE && self.nothing_before(now + lead + NAP_MARGIN, rounds) {
                std::thread::sleep(NAP);
            }
        }
        // Frames held by the NIC would not depart after the port is closed.
        rounds.clock.spin_until(self.outlet.gone().min(rounds.clock.now() + lead));
        if let Some(oldest) = self.outlet.oldest() {
            rounds.pipeline.ends_overdue(oldest, rounds.clock.now());
        }
        self.outlet.hold_rest();
    }

    /// Adds what this pacer knows to the report of `pipeline`.
    fn complete(&self, report: PipelineReport, pipeline: &Pipeline<Mbuf>) -> PipelineReport {
        let answers = self.answers.as_ref();
        PipelineReport {
            answers: answers.map(|answers| answers.report(self.outlet.answered(), self.outlet.answers_waiting())),
            // Starvation requires a schedule.
            starved: report.starved.filter(|_| self.paced),
            shortfall: pipeline.shortfall(FELL_BEHIND).filter(|_| self.paced),
            ..report
        }
    }

    /// Receives requests. Answers at once if no departure is near; otherwise the answer follows a departure.
    fn answer(&mut self, now: Time, most: usize, spare: Option<Span>) -> usize {
        let Some(answers) = &mut self.answers else { return 0 };
        let clear = spare.is_some_and(|spare| spare >= CLEAR);
        if !clear && !answers.must_poll(now) {
            return 0;
        }
        let arrived = answers.poll(now, most.clamp(4, BURST / 4));
        // Without departures, nothing can be delayed.
        if clear || spare.is_none() {
            answers.hand_over(&mut self.outlet, true);
        }
        arrived
    }

    /// Waits for the next departure, which leaves no time for anything else, and carries it out. The clock read `now`.
    fn depart_at(&mut self, at: Time, now: Time, rounds: &mut Rounds<'_>) {
        let handed = Time::from_ps(at.as_ps().saturating_sub(self.outlet.lead().as_ps()));
        // Nothing is received until it has left, so no frame can precede it.
        if self.outlet.waiting() == 0
            && self.outlet.has_room()
            && let Some(departure) = rounds.pipeline.next_departure()
        {
            self.outlet.add(departure, now, &mut rounds.pipeline);
            if self.outlet.waiting() > 0
                && let Some(answers) = &mut self.answers
            {
                answers.hand_over(&mut self.outlet, false);
            }
            // A frame generated just before is in the caches.
            if now + Cost::READY < handed {
                self.outlet.warm();
            }
        }
        let now = rounds.clock.spin_until(handed.min(rounds.end));
        if now >= handed && handed < rounds.end && self.outlet.waiting() > 0 {
            self.outlet.send(|| now, &mut rounds.pipeline);
            self.refilled = false;
        }
    }

    fn nothing_before(&self, time: Time, rounds: &mut Rounds<'_>) -> bool {
        let departs = rounds.pipeline.due().is_some_and(|at| at < time);
        let wakes = rounds.pipeline.deadline().is_some_and(|at| at < time);
        let returns = self.back.as_ref().is_some_and(|back| back.is_due(time));
        !departs && !wakes && !returns && self.outlet.waiting() == 0
    }

    /// True if a stream was generated and sent completely, or its schedule has ended.
    fn ended(&self, rounds: &mut Rounds<'_>) -> bool {
        // The last frame requested then never departs.
        if rounds.pipeline.ended() && rounds.intake.is_stream() && self.outlet.waiting() == 0 {
            return true;
        }
        rounds.intake.ended()
            && rounds.pipeline.due().is_none()
            && self.outlet.waiting() == 0
            && rounds.pipeline.deadline().is_none()
    }

    /// Hands over what is due. True if any frame was taken.
    fn depart(&mut self, now: Time, rounds: &mut Rounds<'_>) -> bool {
        // If forgiven lateness may move later departures, frames are handed over one by one.
        let lead = self.outlet.lead();
        let most = if rounds.pipeline.forgiven().is_some() { 1 } else { usize::MAX };
        while self.outlet.waiting() < most
            && self.outlet.has_room()
            && rounds.pipeline.due().is_some_and(|at| at <= now + lead)
        {
            let Some(departure) = rounds.pipeline.next_departure() else { break };
            self.outlet.add(departure, now, &mut rounds.pipeline);
        }
        if self.outlet.waiting() > 0
            && let Some(answers) = &mut self.answers
        {
            answers.hand_over(&mut self.outlet, false);
        }
        if self.outlet.waiting() == 0 && self.outlet.answers_waiting() == 0 {
            return false;
        }
        self.refilled = false;
        let clock = &rounds.clock;
        let exact = self.paced || rounds.pipeline.delays();
        let at = || if exact { clock.now() } else { now };
        self.outlet.send(at, &mut rounds.pipeline) > 0
    }
}

/// The cost of receiving, learnt while running, so that receiving ends before a departure is due.
struct Cost {
    /// Cost of polling empty rings.
    look: Span,
    per_frame: Span,
}

impl Default for Cost {
    fn default() -> Self {
        Cost { look: Span::from_ns(100), per_frame: Span::from_ns(500) }
    }
}

impl Cost {
    /// Time to prepare a departure, with a margin.
    const READY: Span = Span::from_ns(200);
    /// Limit on a cost, so that interruptions do not count.
    const MOST: Span = Span::from_us(2);

    /// Number of frames that can be received in this time; 0 if there is not even time to poll.
    fn frames_in(&self, time: Span) -> usize {
        let ps = time.as_ps().saturating_sub(Self::READY.as_ps() + self.look.as_ps());
        (ps / self.per_frame.as_ps()).min(BURST as u64) as usize
    }

    /// Learns from a poll that returned `frames` frames.
    fn learn(&mut self, frames: usize, took: Span) {
        let (cost, took) = match frames {
            0 => (&mut self.look, took.as_ps()),
            _ => (&mut self.per_frame, took.as_ps().saturating_sub(self.look.as_ps()) / frames as u64),
        };
        // Rises at once and falls slowly: an underestimate delays a departure, an overestimate does not. A single
        // interruption has limited influence.
        let before = cost.as_ps();
        let learnt = if took > before { took.min(before * 2) } else { before - (before - took) / 32 };
        *cost = Span::from_ps(learnt.clamp(10_000, Self::MOST.as_ps()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learns_the_cost_of_a_frame() {
        let mut cost = Cost::default();
        assert_eq!(cost.frames_in(Span::from_ns(799)), 0);
        assert_eq!(cost.frames_in(Span::from_ns(1_300)), 2);
        assert_eq!(cost.frames_in(Span::from_ms(1)), BURST);
        cost.learn(2, Span::from_ns(1_900));
        assert_eq!(cost.frames_in(Span::from_us(3)), 3, "a rise counts at once");
        for _ in 0..300 {
            cost.learn(10, Span::from_ns(1_100));
        }
        assert_eq!(cost.frames_in(Span::from_ns(2_295)), 19, "a fall in time");
        cost.learn(1, Span::from_ms(5));
        assert_eq!(cost.frames_in(Span::from_ns(2_295)), 9, "an interruption is hardly believed");
    }

    #[test]
    fn learns_the_cost_of_a_poll() {
        let mut cost = Cost::default();
        for _ in 0..10 {
            cost.learn(0, Span::from_ns(900));
        }
        assert_eq!((cost.frames_in(Span::from_ns(1_590)), cost.frames_in(Span::from_ns(1_610))), (0, 1));
        for _ in 0..1_000 {
            cost.learn(0, Span::from_ns(50));
        }
        assert_eq!((cost.frames_in(Span::from_ns(700)), cost.frames_in(Span::from_ns(770))), (0, 1));
    }
}
