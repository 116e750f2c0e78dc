use crate::changes::{ChangeReceiver, ChangeSchedule};
use crate::counters::PublishedShare;
use crate::intake::Intake;
use crate::worker::RunContext;
use dpdk::{Mbuf, TscClock};
use engine::Pipeline;
use measure::{DepthReport, PipelineReport};
use units::{Span, Time};

/// The common part of all pacers' loops: the clock, the intake, the pipeline, and the end of the run.
pub(crate) struct Rounds<'a> {
    pub(crate) clock: TscClock,
    pub(crate) pipeline: Pipeline<Mbuf>,
    pub(crate) intake: Intake,
    pub(crate) end: Time,
    run: RunContext<'a>,
    round: u64,
    /// This thread has raised priority, until the round after an asked start.
    raised: bool,
    /// The last round was after the start.
    started: bool,
    beat: Time,
    /// Changes of the pipeline.
    changes: ChangeSchedule,
    /// What was published, if the counters are those of several queues.
    published: Option<Box<PublishedShare>>,
}

/// Interval at which a detour's BPF programs are notified that this process carries frames.
const BEAT: Span = Span::from_ms(20);

impl<'a> Rounds<'a> {
    pub(crate) fn new(run: RunContext<'a>, pipeline: Pipeline<Mbuf>, intake: Intake) -> Self {
        let end = run.end(run.begin());
        Rounds {
            clock: run.clock,
            pipeline,
            intake,
            end,
            run,
            round: 0,
            raised: false,
            started: false,
            beat: Time::ZERO,
            changes: ChangeSchedule::new(None),
            published: None,
        }
    }

    /// Publishes its figures as those of one of several queues.
    pub(crate) fn of_queue(self) -> Self {
        Rounds { published: Some(Box::default()), ..self }
    }

    /// Takes changes of the pipeline from `changes`, if given.
    pub(crate) fn changing(self, changes: Option<ChangeReceiver>) -> Self {
        let mut rounds = Rounds { changes: ChangeSchedule::new(changes), ..self };
        rounds.begins(rounds.begin());
        rounds
    }

    /// Carries out changes that are due at `at`: the clock, or the position of a line ahead of it.
    #[inline]
    pub(crate) fn change(&mut self, at: Time) {
        self.changes.carry_out(at, &mut self.pipeline);
    }

    /// Raises the priority of this thread, which carries out departures, until an asked start has passed.
    pub(crate) fn raise_until_start(&mut self) {
        self.raised = self.run.start.is_some();
        if self.raised {
            dpdk::raise_priority();
        }
    }

    /// Restores the priority in the second round after the start, because the first one carries out the departure.
    #[cold]
    fn lower_after(&mut self, now: Time) {
        if self.started {
            self.raised = false;
            dpdk::restore_priority();
        }
        self.started = self.run.start.is_none_or(|start| now >= start);
    }

    /// Waits for an asked start.
    pub(crate) fn await_start(&self) {
        self.run.await_start();
    }

    /// The start of the run if it starts as soon as possible: now, or the asked start.
    pub(crate) fn begin(&self) -> Time {
        self.run.begin()
    }

    /// Moves the start of the run to `start`.
    pub(crate) fn begins(&mut self, start: Time) {
        self.end = self.run.end(start);
        self.changes.begin(start, self.clock, &mut self.pipeline);
    }

    /// Starts another round. Returns the clock's reading, or `None` at the end of the run.
    pub(crate) fn next(&mut self) -> Option<Time> {
        let now = self.clock.now();
        if self.raised {
            self.lower_after(now);
        }
        if (self.run.pulse.is_some() || self.run.beats.is_some()) && now >= self.beat {
            let all_run = self.run.beats.is_none_or(|beats| beats.beat(now));
            if let Some(pulse) = self.run.pulse.filter(|_| all_run) {
                pulse.beat();
            }
            self.beat = now + BEAT;
        }
        if self.round.is_multiple_of(64) {
            let lateness = self.round.is_multiple_of(4_096);
            match &mut self.published {
                Some(published) => self.run.counters.publish_share(&self.pipeline, published, lateness),
                None => {
                    self.run.counters.publish(&self.pipeline);
                    if lateness {
                        self.run.counters.publish_lateness(&self.pipeline);
                    }
                }
            }
            self.changes.poll(&mut self.pipeline);
            if self.run.is_stopped() {
                return None;
            }
        }
        self.round += 1;
        (now < self.end).then_some(now)
    }

    /// Whether progress is published in this round.
    pub(crate) fn publishes(&self) -> bool {
        self.round % 64 == 1
    }

    /// Lets the stages release what is due by `now`. True if anything was due.
    pub(crate) fn wake(&mut self, now: Time) -> bool {
        let due = self.pipeline.deadline().is_some_and(|deadline| deadline <= now);
        if due {
            self.pipeline.wake(now);
        }
        due
    }

    /// The report.
    pub(crate) fn report(&mut self) -> PipelineReport {
        self.pipeline.ends(self.clock.now().min(self.end));
        PipelineReport { depth: Some(DepthReport { max_frames: self.intake.depth() }), ..self.pipeline.report() }
    }
}
