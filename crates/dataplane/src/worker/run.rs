//! A worker's run: chooses the path of its frames and sets it up.

use super::{Finished, PortSummary, Worker};
use crate::Error;
use crate::answers::Answers;
use crate::config::{Config, Feed, Pacing};
use crate::counters::Counters;
use crate::deadline::{DeadlinePacer, EndedQueue};
use crate::device::{Device, Opened};
use crate::filler::{self, FillerPacer, Settings};
use crate::flood::{self, Flood};
use crate::intake::{Intake, measure_waits};
use crate::launch::Launch;
use crate::line::{self, LineEnd, OnLine};
use crate::maker::Maker;
use crate::outlet::Outlet;
use crate::placement::{Flow, Placement};
use crate::pools::SHALLOW_POOL;
use crate::replay;
use crate::return_path::ReturnPath;
use crate::rounds::Rounds;
use crate::slices;
use dpdk::{
    Detour, Eal, LaunchField, LaunchTime, Pool, Port, PortStats, Pulse, SharedFrame, Started, TscClock, TxQueue,
};
use engine::Path;
use engine::filler::FillerPlanner;
use measure::{LineReport, PipelineReport};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Duration;
use units::{Span, Time};

/// Time in which the kernel's scheduler notices that the receiver is busy and moves the sender to another CPU.
const SETTLE: Duration = Duration::from_millis(20);
/// A closed port loses the frames in its transmit ring. In this time a NIC of 1 Gbit/s sends a ring of the longest
/// frames, and the other end of shared memory has polled.
const DRAIN: Duration = Duration::from_millis(100);
/// Drivers that give each frame away at once.
const DRIVERS_WITHOUT_RING: [&str; 4] = ["net_af_packet", "net_tap", "net_null", "net_ring"];
/// In this time the threads of all queues wake up.
const WAKE: Span = Span::from_ms(1);
/// Frames of up to this length, without FCS, are prefilled in their buffers.
const LONGEST_LAID: usize = 9_600;

/// When each part of a pipeline on several threads began its last round, in ps, and which part this is. If one part
/// stalls, frames no longer pass, however well the others run.
#[derive(Clone, Copy)]
pub(crate) struct PartBeats<'a> {
    pub(crate) all: &'a [AtomicU64],
    pub(crate) own: usize,
}

impl PartBeats<'_> {
    /// A part that has not begun a round for this long has stalled. With the second after which a detour passes frames
    /// on by itself, traffic is back within 2 s.
    const STALLED: Span = Span::from_ms(500);

    /// Notes a round of this part. Returns whether all parts run.
    pub(crate) fn beat(&self, now: Time) -> bool {
        self.all[self.own].store(now.as_ps(), Ordering::Relaxed);
        self.all.iter().all(|beat| now.since(Time::from_ps(beat.load(Ordering::Relaxed))) < Self::STALLED)
    }
}

/// What all parts of a run share.
#[derive(Clone, Copy)]
pub(crate) struct RunContext<'a> {
    pub(crate) clock: TscClock,
    /// The asked start, if there is one: nothing departs before it.
    pub(crate) start: Option<Time>,
    /// Time limit.
    pub(crate) duration: Option<Span>,
    /// Set to end the run.
    pub(crate) stop: &'a AtomicBool,
    /// Progress, for observers.
    pub(crate) counters: &'a Counters,
    /// Shows the BPF programs of a detour that this process carries frames.
    pub(crate) pulse: Option<&'a Pulse>,
    /// The pulse beats only while all parts of the pipeline run.
    pub(crate) beats: Option<PartBeats<'a>>,
}

/// Frames that do not come from a port.
enum LocalSource {
    /// There are none.
    None,
    /// Generated frames.
    Made(Maker),
    /// Retained frames, and the number to send.
    Kept(Vec<SharedFrame>, u64),
}

impl RunContext<'_> {
    /// The start of the run if it starts as soon as possible: now, or the asked start.
    pub(crate) fn begin(&self) -> Time {
        let now = self.clock.now();
        self.start.map_or(now, |start| start.max(now))
    }

    /// Waits for the asked start. Spins for the last millisecond instead of sleeping.
    pub(crate) fn await_start(&self) {
        const SPIN: Span = Span::from_ms(1);
        let Some(start) = self.start else { return };
        dpdk::raise_priority();
        while self.clock.now() + SPIN < start && !self.is_stopped() {
            thread::sleep(SPIN.to_std() / 2);
        }
        if !self.is_stopped() {
            self.clock.spin_until(start);
        }
        dpdk::restore_priority();
    }

    /// When the run ends if it starts at `start`.
    pub(crate) fn end(&self, start: Time) -> Time {
        self.duration.and_then(|duration| start.checked_add(duration)).unwrap_or(Time::MAX)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Runs until `stop` is set, the time is up or the stream has ended. Publishes progress in `counters`.
    ///
    /// # Errors
    /// The thread cannot be registered with DPDK.
    pub fn run(self, eal: &'static Eal, stop: &AtomicBool, counters: &Counters) -> Result<Finished, Error> {
        let _registered = eal.register_thread()?;
        // A registered thread must close the ports, also after an error.
        let mut worker = self;
        let clock = TscClock::new(eal);
        let (cpus, line_cpu) = worker.config.cpus_of_parts();
        pin(cpus.first())?;
        worker.slice_by(clock);
        let floods = worker.config.pacing == Pacing::AsReady && worker.pipeline.path() == Path::Counted;
        let source = worker.own(eal, floods)?;
        let gate = worker.config.start.clone();
        if gate.is_some() {
            // With raised priority this thread wakes in time and sets up the rest without interruption.
            dpdk::raise_priority();
        }
        let start = gate.as_ref().map_or(Ok(None), |gate| gate.pass(&clock, stop))?;
        let run =
            RunContext { clock, start, duration: worker.config.duration, stop, counters, pulse: None, beats: None };
        let mut finished = match source {
            LocalSource::Made(maker) if floods && worker.takes(maker.streams().longest()) => {
                worker.flood(eal, run, maker)
            }
            LocalSource::Kept(frames, count) => {
                run.await_start();
                Ok(worker.flood_kept(run, &frames, count))
            }
            LocalSource::Made(maker) if !worker.shares.is_empty() => worker.pace_queues(eal, run, maker),
            LocalSource::Made(maker) => worker.pace(eal, run, (&cpus, line_cpu), Some(maker)),
            LocalSource::None => worker.pace(eal, run, (&cpus, line_cpu), None),
        }?;
        dpdk::restore_priority();
        if let Some((gate, start)) = gate.zip(start) {
            finished.report.start = Some(gate.report(start, finished.report.first_departure));
        }
        Ok(finished)
    }

    /// Timestamps traces with this clock.
    fn slice_by(&mut self, clock: TscClock) {
        if !self.pipeline.is_slicing() {
            return;
        }
        let (clock, cost) = slices::reading(clock);
        // With fillers the time of a frame is its position on the line, which the schedule uses.
        if !matches!(self.config.pacing, Pacing::Filler { .. }) {
            self.pipeline.slice_by(&clock, cost);
        }
        if let Some(back) = &mut self.back {
            back.pipeline.slice_by(&clock, cost);
        }
    }

    /// The longest frame that the output carries, without FCS.
    fn longest(&self) -> usize {
        self.output.started.tx.first().map_or(0, TxQueue::max_frame)
    }

    /// Whether the output and the buffers hold frames of this many bytes without FCS.
    fn takes(&self, longest: usize) -> bool {
        longest <= self.longest().min(usize::from(self.pool.data_room()))
    }

    /// Prepares frames that come from no port: prefills or loads them if possible.
    fn own(&mut self, eal: &Eal, floods: bool) -> Result<LocalSource, Error> {
        let longest = self.longest();
        let Worker { config, pipeline, pool, output, .. } = self;
        // A change by a stage would persist in every later frame of the same buffer.
        let leaves = config.output.leaves_frames(&output.driver) && pipeline.path() >= Path::Ordered;
        match &mut config.feed {
            Feed::Stream(streams, count) => {
                let maker = |pool: Pool| Maker::new(streams.clone(), *count, pool);
                let own = match streams.even().filter(|length| leaves && *length <= longest.min(LONGEST_LAID)) {
                    None => maker(pool.clone()),
                    // Nothing is ever received into the buffers of a line's pool.
                    Some(_) if config.output.slots().is_some() => maker(pool.clone()).lay(),
                    Some(length) => maker(Pool::new(eal, "made", SHALLOW_POOL - 1, length as u16)?).lay(),
                };
                Ok(LocalSource::Made(own))
            }
            Feed::Replay { whole, .. } if floods && leaves => {
                let whole = whole.take().unwrap_or_default();
                Ok(whole
                    .load(eal, longest)?
                    .map_or(LocalSource::None, |(frames, count)| LocalSource::Kept(frames, count)))
            }
            _ => Ok(LocalSource::None),
        }
    }

    /// The answers of a generator to its neighbours. `None` if no requests can arrive on the output.
    fn answers(&mut self) -> Option<Answers> {
        let Worker { config, output, answers_before_start, .. } = self;
        let Feed::Stream(streams, _) = &config.feed else { return None };
        let hosts: Vec<_> = streams.hosts().cloned().collect();
        let answers = !hosts.is_empty() && config.output.has_neighbours(&output.driver);
        answers
            .then(|| Answers::new(std::mem::take(&mut output.started.rx), hosts, std::mem::take(answers_before_start)))
    }

    /// Sends the frames of `maker` on all queues, each with its own thread and CPU. One of them answers neighbours, and
    /// traces frames if tracing is on.
    fn flood(mut self, eal: &'static Eal, run: RunContext<'_>, maker: Maker) -> Result<Finished, Error> {
        let mut answers = self.answers();
        let Worker { config, mut pipeline, output: Opened { started: Started { tx, port, .. }, driver }, .. } = self;
        let makers = maker.deal(config.cpus.len().max(1))?;
        let bursts = pipeline.bursts(makers.len(), config.window);
        // The first queue answers neighbours.
        let queues = makers.into_iter().zip(tx).zip(bursts).map(|queue| (queue, answers.take())).collect();
        let reports = on_queues(eal, run, &config, queues, |run, (((maker, tx), bursts), answers)| {
            run.await_start();
            Flood::new(tx, run, bursts).answering(answers).of_made(maker, run.clock.wall_at_zero())
        })?;
        Ok(finished(flood::joined(reports), config.name, vec![(port, driver)]))
    }

    /// Sends the frames of `maker` on all queues, each at its time, with a thread and a CPU per queue.
    fn pace_queues(mut self, eal: &'static Eal, run: RunContext<'_>, maker: Maker) -> Result<Finished, Error> {
        let mut answers = self.answers();
        let stamps = maker.streams().stamped().then(|| run.clock.wall_at_zero());
        let Worker { config, shares, limit, output, .. } = self;
        let Opened { started: Started { tx, port, .. }, driver } = output;
        let makers = maker.deal(shares.len())?;
        let limit = limit / shares.len() as u64;
        let mut queues: Vec<_> = makers.into_iter().zip(tx).zip(shares).map(|queue| (queue, answers.take())).collect();
        // The first access to the meters' memory takes milliseconds.
        queues.iter_mut().for_each(|((_, pipeline), _)| pipeline.measure_as_queue(config.window));
        let ended = on_queues(eal, run, &config, queues, |run, (((maker, tx), mut pipeline), answers)| {
            let start = run.start.unwrap_or_else(|| run.begin());
            pipeline.begin_at(start);
            let mut rounds = Rounds::new(run, pipeline, Intake::of_stream(maker, limit, Some(start))).of_queue();
            // A thread that woke up late ends with the others.
            rounds.begins(start);
            let outlet = Outlet::new(vec![tx], None).stamping(stamps);
            DeadlinePacer::new(outlet, None, true).answering(answers).run_queue(rounds)
        })?;
        let report = EndedQueue::report_all(ended).unwrap_or_default();
        Ok(finished(report, config.name, vec![(port, driver)]))
    }

    /// Sends retained frames in order, repeatedly, `count` frames in total.
    fn flood_kept(self, run: RunContext<'_>, frames: &[SharedFrame], count: u64) -> Finished {
        let Worker { config, mut pipeline, output: Opened { started: Started { mut tx, port, .. }, driver }, .. } =
            self;
        let bursts = pipeline.bursts(1, config.window).swap_remove(0);
        let report = Flood::new(tx.swap_remove(0), run, bursts).of_kept(frames, count);
        finished(report, config.name, vec![(port, driver)])
    }

    /// Sends the frames of the port, `maker` or a supply through the pipeline, each at its time. `cpus` are the CPUs of
    /// the parts of the pipeline, and `line_cpu` is that of the far end of a line.
    fn pace(
        mut self,
        eal: &'static Eal,
        run: RunContext<'_>,
        (cpus, line_cpu): (&[usize], Option<usize>),
        maker: Option<Maker>,
    ) -> Result<Finished, Error> {
        let answers = self.answers();
        let stamps = maker.as_ref().filter(|maker| maker.streams().stamped()).map(|_| run.clock.wall_at_zero());
        let Worker {
            config,
            mut pipeline,
            back: mut stages_back,
            pool,
            fillers,
            limit,
            input,
            more_inputs,
            output,
            detour,
            changes,
            ..
        } = self;
        let run = RunContext { pulse: detour.as_ref().map(Detour::pulse), ..run };
        let Opened { started: Started { rx: mut output_rx, tx: mut output_tx, port: output }, driver } = output;
        let launch = launch(eal, &run.clock, &config, &output)?;
        let launched = launch.is_some();
        let mut ports = vec![(output, driver)];
        let (mut input_rx, input_tx) = match input {
            Some(Opened { started: Started { rx, tx, port }, driver }) => {
                ports.insert(0, (port, driver));
                (rx, tx)
            }
            None => Default::default(),
        };
        for Opened { started: Started { rx, port, .. }, driver } in more_inputs {
            ports.insert(ports.len() - 1, (port, driver));
            input_rx.extend(rx);
        }
        let made = !matches!(config.feed, Feed::Device(_));
        let mut reader = None;
        let intake = match config.feed {
            Feed::Device(_) => {
                if pipeline.path() == Path::Whole || pipeline.is_slicing() {
                    let measured = measure_waits(&mut input_rx, run.clock);
                    pipeline.slice_from_port(measured);
                }
                Intake::of_port(input_rx, limit, run.clock)
            }
            Feed::Stream(..) => Intake::of_stream(maker.expect("made when the ports were opened"), limit, run.start),
            Feed::Replay { supply, ahead, .. } => {
                let (read, ring) = rtrb::RingBuffer::new((limit / 2) as usize);
                reader = Some(replay::read(eal, supply, pool, read)?);
                Intake::of_replay(ring, ahead, run.start)
            }
        };
        let byte_time = match config.pacing {
            Pacing::Filler { line, .. } => Some(line.byte_time()),
            _ => None,
        };
        pipeline.measure(config.asked_gap, byte_time, config.window);
        let back = match input_tx.into_iter().next() {
            Some(tx) if !config.one_way && config.output.gives() => {
                if let Some(stages) = &mut stages_back {
                    let measured = measure_waits(&mut output_rx, run.clock);
                    stages.pipeline.slice_from_port(measured);
                }
                Some(ReturnPath::new(
                    std::mem::take(&mut output_rx),
                    tx,
                    stages_back,
                    run.clock,
                    run.counters.back.clone(),
                ))
            }
            _ => None,
        };
        if !made {
            // Frames that arrive before the start wait in the port. The return path also begins at the start.
            run.await_start();
        }
        let placement = Placement { eal, run, cpus, limit, made };
        let (mut raised, mut listed) = (false, Vec::new());
        let report = match config.pacing {
            Pacing::AsReady | Pacing::Deadline(_) => {
                let paced = config.pacing != Pacing::AsReady;
                let outlet = Outlet::new(output_tx, launch).stamping(stamps).slicing(pipeline.slice_clock());
                placement.run(Flow { intake, pipeline, back, changes }, |rounds, back| {
                    DeadlinePacer::new(outlet, back, paced).answering(answers).run(rounds)
                })?
            }
            Pacing::Filler { line, align, unbounded, .. } => {
                let tx = output_tx.swap_remove(0);
                let slots = config.output.slots().unwrap_or(u32::from(tx.descriptors()));
                // Raise the priority only of a pacer that sleeps while a long queue is full, and only without other
                // parts: their threads would inherit the priority, and they spin.
                raised = made && cpus.len() < 2 && slots >= filler::NIC_SLOTS && dpdk::set_high_priority();
                let (near, far) = match config.output {
                    Device::Line { list, keep_fillers, .. } => {
                        let (near, side) = line::ends(slots as usize);
                        let rx = output_rx.into_iter().next().expect("a ring has a way out");
                        (Some(near), Some(LineEnd::new(rx, line, slots, side, list, keep_fillers)))
                    }
                    _ => (None, None),
                };
                let planner = FillerPlanner::new(line, align);
                let settings = Settings { planner, slots: slots as usize, bounded: !unbounded, line: near };
                let fillers = fillers.expect("made when the ports were opened");
                let pacer = FillerPacer::new(tx, fillers, settings).stamping(stamps);
                let fill =
                    || placement.run(Flow { intake, pipeline, back, changes }, |rounds, back| pacer.run(rounds, back));
                match far {
                    None => fill()?,
                    Some(far) => {
                        let (report, (line, frames)) = with_far_end(eal, far, &run.clock, line_cpu.as_ref(), fill)?;
                        listed = frames;
                        // The far end knows; the near end can only infer underruns.
                        PipelineReport { underruns: Some(line.underruns), line: Some(line), ..report? }
                    }
                }
            }
        };
        let passed = detour.as_ref().map(|detour| detour.pulse().passed());
        // This ends the diversion of the interface's traffic.
        drop(detour);
        // The intake is gone, so the reader has no reason to continue. A reader that waits for a silent pipe would not
        // notice, and has no error to return.
        let failure = match reader.filter(replay::ends_soon).map(thread::JoinHandle::join) {
            Some(Ok(failure)) => failure,
            Some(Err(_)) => return Err(Error::Worker("the reader of a capture".to_owned())),
            None => None,
        };
        Ok(Finished { launched, raised, listed, failure, passed, ..finished(report, config.name, ports) })
    }
}

/// Runs `send` for each of several queues on its own thread and CPU, shortly before the start of the run, which all have in
/// common. Runs none if a thread cannot be started.
fn on_queues<Q: Send, R: Send>(
    eal: &'static Eal,
    run: RunContext<'_>,
    config: &Config,
    queues: Vec<Q>,
    send: impl Fn(RunContext<'_>, Q) -> R + Sync,
) -> Result<Vec<R>, Error> {
    // A barrier would wait forever for a thread that cannot be started.
    let (starting, started) = mpsc::channel();
    let gate = OnceLock::<Option<Time>>::new();
    thread::scope(|scope| {
        let mut sending = Vec::new();
        for (i, queue) in queues.into_iter().enumerate() {
            let (gate, send, starting) = (&gate, &send, starting.clone());
            let thread = thread::Builder::new().spawn_scoped(scope, move || {
                let registered = eal.register_thread();
                let pinned = pin(config.cpus.get(i));
                drop(starting);
                let Some(start) = *gate.wait() else { return Ok(None) };
                let _registered = registered?;
                pinned?;
                Ok::<_, Error>(Some(send(RunContext { start: Some(start), ..run }, queue)))
            });
            match thread {
                Ok(thread) => sending.push(thread),
                Err(cause) => {
                    let _ = gate.set(None);
                    return Err(Error::Thread(cause.to_string()));
                }
            }
        }
        drop(starting);
        // Ends when no thread is starting any more.
        let _: Result<(), _> = started.recv();
        let _ = gate.set(Some(run.start.unwrap_or_else(|| run.clock.now() + WAKE)));
        let ended =
            sending.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Error::Worker(config.name.clone()))));
        Ok(ended.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    })
}

/// Results of a run of the pipeline `name` over these ports, of which the last is the output. They close when the output
/// has had time to send what it took.
fn finished(report: PipelineReport, name: String, ports: Vec<(Port, String)>) -> Finished {
    let keeps = |driver: &str| !DRIVERS_WITHOUT_RING.contains(&driver);
    if report.left.frames > 0 && ports.last().is_some_and(|(_, driver)| keeps(driver)) {
        thread::sleep(DRAIN);
    }
    let ports = ports.into_iter().map(|(port, driver)| summary(&port, driver)).collect();
    let report = PipelineReport { name, ..report };
    Finished { report, ports, launched: false, raised: false, listed: Vec::new(), failure: None, passed: None }
}

/// The interface to the NIC's launch time, if asked and possible.
fn launch(eal: &Eal, clock: &TscClock, config: &Config, port: &Port) -> Result<Option<Launch>, Error> {
    let Some(nic) = port.launch_clock() else { return Ok(None) };
    let launch = Launch::new(LaunchField::register(eal)?, *clock, Box::new(nic));
    if launch.is_none() && config.pacing == Pacing::Deadline(LaunchTime::Required) {
        let device = port.info()?.device;
        let why = "its driver does not let the NIC's clock be read".to_owned();
        return Err(dpdk::Error::NoLaunchTime { device, why }.into());
    }
    Ok(launch)
}

/// Runs `near` while another thread receives at the far end of the line.
fn with_far_end<T>(
    eal: &'static Eal,
    end: LineEnd,
    clock: &TscClock,
    cpu: Option<&usize>,
    near: impl FnOnce() -> T,
) -> Result<(T, (LineReport, Vec<OnLine>)), Error> {
    // The far end must run before anything is sent.
    let there = Barrier::new(2);
    thread::scope(|scope| {
        let far = thread::Builder::new().spawn_scoped(scope, || {
            let registered = eal.register_thread();
            let pinned = pin(cpu);
            there.wait();
            let _registered = registered?;
            pinned?;
            Ok::<_, Error>(end.run(clock))
        });
        let far = far.map_err(|cause| Error::Thread(cause.to_string()))?;
        there.wait();
        thread::sleep(SETTLE);
        let report = near();
        let far = far.join().map_err(|_| Error::Worker("the line".to_owned()))??;
        Ok((report, far))
    })
}

/// Pins the calling thread to a CPU, if one is given.
///
/// # Errors
/// [`Error::Cpu`] if the machine has no such CPU or the process may not use it.
pub fn pin(cpu: Option<&usize>) -> Result<(), Error> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    let pinned = set.set(*cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|cause| Error::Cpu { cpu: *cpu, cause: cause.desc() })
}

fn summary(port: &Port, driver: String) -> PortSummary {
    // Without driver statistics the figures are zero: the summary is optional.
    let PortStats { rx_missed, rx_no_buffer, rx_completed, .. } = port.stats().unwrap_or_default();
    PortSummary { driver, rx_missed, rx_no_buffer, rx_completed, cut_off: port.is_cut_off() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stalled_part_stops_the_pulse() {
        let all: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let part = |own| PartBeats { all: &all, own };
        let at = |ms| Time::ZERO + Span::from_ms(ms);
        assert!(!part(2).beat(at(10_000)), "the others have not begun");
        part(0).beat(at(10_000));
        part(1).beat(at(10_010));
        assert!(part(2).beat(at(10_020)));
        // Part 1 stalls.
        part(0).beat(at(10_600));
        assert!(!part(2).beat(at(10_600)));
        part(1).beat(at(10_610));
        assert!(part(2).beat(at(10_620)), "it runs again");
    }
}
