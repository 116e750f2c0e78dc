use crate::counters::Counters;
use crate::intake::Intake;
use dpdk::{Mbuf, TscClock};
use engine::Pipeline;
use measure::{DepartureMeter, DepthReport, Forgiven, PipelineReport};
use std::sync::atomic::{AtomicBool, Ordering};
use units::{Span, Time};

/// What the loops of all pacers have in common: the clock, the way in, the pipeline and its figures,
/// and when to end.
pub(crate) struct Rounds<'a> {
    pub(crate) clock: TscClock,
    pub(crate) pipeline: Pipeline<Mbuf>,
    pub(crate) intake: Intake,
    pub(crate) meter: DepartureMeter,
    pub(crate) end: Time,
    stop: &'a AtomicBool,
    counters: &'a Counters,
    round: u64,
}

/// When a run ends although there is more to do.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub(crate) duration: Option<Span>,
    pub(crate) stop: &'a AtomicBool,
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(
        clock: TscClock,
        pipeline: Pipeline<Mbuf>,
        intake: Intake,
        meter: DepartureMeter,
        ends: Ends<'a>,
        counters: &'a Counters,
    ) -> Self {
        let Ends { duration, stop } = ends;
        let end = duration.and_then(|duration| clock.now().checked_add(duration)).unwrap_or(Time::MAX);
        Rounds { clock, pipeline, intake, meter, end, stop, counters, round: 0 }
    }

    /// Begins another round: what the clock reads, or `None` when the run is to end.
    pub(crate) fn next(&mut self) -> Option<Time> {
        let now = self.clock.now();
        if self.round.is_multiple_of(64) {
            self.counters.publish(&self.pipeline);
            if self.round.is_multiple_of(4_096) {
                self.counters.publish_lateness(&self.meter);
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
        self.round += 1;
        (now < self.end).then_some(now)
    }

    /// Lets the stages release what is due by `now`. True if there was anything.
    pub(crate) fn wake(&mut self, now: Time) -> bool {
        let due = self.pipeline.deadline().is_some_and(|deadline| deadline <= now);
        if due {
            self.pipeline.wake(now);
        }
        due
    }

    /// The figures, with `outside` frames that are out of the pipeline and have not departed.
    pub(crate) fn report(&self, outside: u64) -> PipelineReport {
        let mut report = PipelineReport {
            depth: Some(DepthReport { max: self.intake.depth() }),
            starved: Some(self.pipeline.starved()),
            forfeited_share: self.pipeline.forfeited(),
            forgiven: self.pipeline.forgiven().map(Forgiven::from),
            ..self.meter.report(self.pipeline.books(), self.pipeline.held() + outside)
        };
        self.pipeline.report_effects(&mut report);
        self.pipeline.report_classes(&self.meter, &mut report);
        report
    }
}
