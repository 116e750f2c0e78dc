use crate::Error;
use crate::changes::ChangeReceiver;
use crate::counters::Counters;
use crate::feeder::{self, Feeder};
use crate::intake::Intake;
use crate::return_path::ReturnPath;
use crate::rounds::Rounds;
use crate::worker::{PartBeats, RunContext, pin};
use dpdk::{Eal, Mbuf};
use engine::Pipeline;
use measure::PipelineReport;
use std::sync::atomic::AtomicU64;
use std::thread;

/// Runs the parts of a pipeline: one after the other on the calling thread, or each on its own thread with lock-free
/// rings between them (LightShaper §3.1). The output is the same.
pub(crate) struct Placement<'a> {
    pub(crate) eal: &'static Eal,
    pub(crate) run: RunContext<'a>,
    /// A CPU per part; the calling thread is on the first.
    pub(crate) cpus: &'a [usize],
    /// Limit on frames in progress.
    pub(crate) limit: u64,
    /// Frames are generated or read, not received.
    pub(crate) made: bool,
}

/// The traffic: its source and the pipeline.
pub(crate) struct Flow {
    pub(crate) intake: Intake,
    pub(crate) pipeline: Pipeline<Mbuf>,
    /// The return path, if there is one.
    pub(crate) back: Option<ReturnPath>,
    /// Changes of the pipeline. A pipeline that takes changes has one part.
    pub(crate) changes: Option<ChangeReceiver>,
}

impl Placement<'_> {
    /// Runs to the end. `depart` carries out departures. With one part it also gets the return path; otherwise the
    /// first part runs it.
    ///
    /// # Errors
    /// A thread that cannot be registered with DPDK or pinned to its CPU.
    pub(crate) fn run(
        self,
        flow: Flow,
        depart: impl FnOnce(Rounds<'_>, Option<ReturnPath>) -> PipelineReport + Send,
    ) -> Result<PipelineReport, Error> {
        let Placement { eal, run, cpus, limit, made } = self;
        let Flow { intake, pipeline, back, changes } = flow;
        let count = cpus.len().clamp(1, pipeline.most_parts());
        let mut parts = pipeline.parts(count);
        let schedules = parts.pop().expect("there is one part at least");
        if parts.is_empty() {
            return Ok(depart(Rounds::new(run, schedules, intake).changing(changes), back));
        }
        let beats: Vec<AtomicU64> = (0..=parts.len()).map(|_| AtomicU64::new(0)).collect();
        let beats_of = |own| run.pulse.map(|_| PartBeats { all: &beats, own });
        // Counters of each part except the first, which publishes for observers.
        let published: Vec<Counters> = parts.iter().map(|_| Counters::default()).collect();
        let mut parts = parts.into_iter();
        let first = parts.next().expect("there are two");
        let ring = || rtrb::RingBuffer::new(limit as usize);
        thread::scope(|scope| {
            let (ready, mut other) = ring();
            let mut threads = Vec::new();
            let mut cpus = cpus.iter().skip(1);
            for ((part, published), number) in parts.zip(&published).zip(1..) {
                let beats = beats_of(number);
                let (give, next) = ring();
                let taken = std::mem::replace(&mut other, next);
                let cpu = cpus.next();
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    let _registered = eal.register_thread()?;
                    pin(cpu)?;
                    let rounds = Rounds::new(
                        RunContext { counters: published, pulse: None, beats, ..run },
                        part,
                        Intake::of_thread(taken, made),
                    );
                    Ok::<_, Error>(Feeder::between(give).run(rounds))
                });
                threads.push(started.map_err(|cause| Error::Thread(cause.to_string()))?);
            }
            let (cpu, published_last) = (cpus.next(), published.last());
            let of_departures = beats_of(beats.len() - 1);
            let departing = thread::Builder::new().spawn_scoped(scope, move || {
                let _registered = eal.register_thread()?;
                pin(cpu)?;
                let counters = published_last.unwrap_or(run.counters);
                let run = RunContext { counters, beats: of_departures, ..run };
                Ok::<_, Error>(depart(Rounds::new(run, schedules, Intake::of_thread(other, made)), None))
            });
            let departing = departing.map_err(|cause| Error::Thread(cause.to_string()))?;
            let received = Counters::default();
            let rounds =
                Rounds::new(RunContext { counters: &received, pulse: None, beats: beats_of(0), ..run }, first, intake);
            let mut feeding = vec![Feeder::first(ready, back, &published, run.counters).run(rounds)];
            let ended = |_| Error::Worker("a part of a pipeline".to_owned());
            for thread in threads {
                feeding.push(thread.join().map_err(ended)??);
            }
            Ok(feeder::joined(feeding, departing.join().map_err(ended)??))
        })
    }
}
