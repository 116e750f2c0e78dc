use crate::Error;
use crate::back::Back;
use crate::counters::Counters;
use crate::feeder::{self, Feeder};
use crate::intake::Intake;
use crate::rounds::{Ends, Rounds};
use crate::worker::pin;
use dpdk::{Eal, Mbuf, TscClock};
use engine::Pipeline;
use measure::{DepartureMeter, PipelineReport};
use std::thread;
use units::Span;

/// How the parts of a pipeline are run: one behind the other on the calling thread, or each on a thread of
/// its own with lock-free rings between them (LightShaper §3.1). What comes out is the same.
pub(crate) struct Placement<'a> {
    pub(crate) eal: &'static Eal,
    pub(crate) clock: TscClock,
    pub(crate) ends: Ends<'a>,
    pub(crate) counters: &'a Counters,
    /// A CPU for each part; the calling thread is on the first.
    pub(crate) cpus: &'a [usize],
    /// Frames that may be under way.
    pub(crate) limit: u64,
    /// Frames are made or read, not received.
    pub(crate) made: bool,
    pub(crate) window: Span,
}

impl Placement<'_> {
    /// Runs to the end; `depart` makes departures, and carries back if it is given the way back.
    ///
    /// # Errors
    /// A thread that cannot be registered with DPDK or put on its CPU.
    pub(crate) fn run(
        self,
        pipeline: Pipeline<Mbuf>,
        intake: Intake,
        meter: DepartureMeter,
        back: Option<Back>,
        depart: impl FnOnce(Rounds<'_>, Option<Back>) -> PipelineReport + Send,
    ) -> Result<PipelineReport, Error> {
        let Placement { eal, clock, ends, counters, cpus, limit, made, window } = self;
        let count = cpus.len().clamp(1, pipeline.most_parts());
        let mut parts = pipeline.parts(count);
        let schedules = parts.pop().expect("there is one part at least");
        if parts.is_empty() {
            return Ok(depart(Rounds::new(clock, schedules, intake, meter, ends, counters), back));
        }
        // Of each part but the first, which tells those who look on.
        let told: Vec<Counters> = parts.iter().map(|_| Counters::default()).collect();
        let unmeasured = || DepartureMeter::new(None, None, window);
        let mut parts = parts.into_iter();
        let first = parts.next().expect("there are two");
        let ring = || rtrb::RingBuffer::new(limit as usize);
        thread::scope(|scope| {
            let (ready, mut other) = ring();
            let mut threads = Vec::new();
            let mut cpus = cpus.iter().skip(1);
            for (part, told) in parts.zip(&told) {
                let (give, next) = ring();
                let taken = std::mem::replace(&mut other, next);
                let (cpu, meter) = (cpus.next(), unmeasured());
                threads.push(scope.spawn(move || {
                    let _registered = eal.register_thread()?;
                    pin(cpu)?;
                    let rounds = Rounds::new(clock, part, Intake::of_thread(taken, made), meter, ends, told);
                    Ok::<_, Error>(Feeder::between(give).run(rounds))
                }));
            }
            let (cpu, told_last) = (cpus.next(), told.last());
            let departing = scope.spawn(move || {
                let _registered = eal.register_thread()?;
                pin(cpu)?;
                let told = told_last.unwrap_or(counters);
                Ok::<_, Error>(depart(
                    Rounds::new(clock, schedules, Intake::of_thread(other, made), meter, ends, told),
                    None,
                ))
            });
            let received = Counters::default();
            let rounds = Rounds::new(clock, first, intake, unmeasured(), ends, &received);
            let mut feeding = vec![Feeder::first(ready, back, &told, counters).run(rounds)];
            let ended = |_| Error::Worker("a part of a pipeline".to_owned());
            for thread in threads {
                feeding.push(thread.join().map_err(ended)??);
            }
            Ok(feeder::joined(feeding, departing.join().map_err(ended)??))
        })
    }
}
