//! Runs pipelines whose ports are live, and receives from interfaces.

mod cpu_placement;
mod devices;
mod host_ports;
mod interface_watch;
mod live_changes;
mod loops;
mod nic_links;
pub(crate) mod otg;
mod other_forwarders;
mod progress;
mod rate_reload;
mod receive;
mod replay_feed;
mod replay_frames;
mod required_rights;
mod results;
mod start;
mod stats_file;
pub(crate) mod stream_receiver;

use crate::output::{self, Failure};
use crate::plan::detour::DetourPlan;
use crate::plan::files;
use crate::plan::request::{Arrivals, Request};
use crate::plan::xdp_programs;
use crate::render::progress::Progress;
use crate::rights;
use crate::run::assemble;
use crate::run::changes::{self, Makers};
use crate::run::clock::watch::ClockWatch;
use crate::run::control::Control;
use crate::run::decision_log;
use crate::run::decision_log::DecisionFile;
use crate::run::live::interface_watch::Watched;
use crate::run::live::live_changes::LiveChanges;
use crate::run::live::nic_links::NicLinks;
use crate::run::live::stream_receiver::FarEnd;
use crate::run::outcome::Outcome;
use crate::run::readiness;
use crate::run::stop::Stop;
use dataplane::{ArrivalPort, Config, Counters, Device, Feed, Floor, LaunchTime, Pacing, Worker};
use dataplane::{has_threads, limit_stage};
use devices::{as_driver, device, log_level};
use dpdk::{Eal, EalConfig, Mbuf, TscClock};
use engine::Pipeline;
use engine::schedules::{Draw, Target};
use engine::stages::StageConfig;
use other_forwarders::ForwardedInterfaces;
use rate_reload::Reload;
use replay_feed::{FromCapture, Records, whole};
use results::{Ended, ReportBuilder};
use scenario::{BackPlan, FillerSpec, Pacer, PipelinePlan, PortSpec, SourcePlan};
use service::control::Changes;
use sim::{CaptureWriter, WhenFull};
use start::Start;
use stats_file::Stats;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;
use units::Span;

pub(crate) use receive::receive;

/// Runs all pipelines concurrently, each on its own thread, until they end or are stopped.
pub(crate) fn run(
    request: &Request,
    receiver: Option<&Arrivals>,
    stop: &Stop,
    control: Option<&Control>,
) -> Result<Outcome, Failure> {
    rate_reload::check_live(request)?;
    request.pipelines.iter().try_for_each(loops::check)?;
    host_ports::check(request, receiver)?;
    required_rights::check(request, receiver)?;
    let clocks = ClockWatch::begin(&request.common)?;
    let mut start = Start::new(request.common.start_at, request.common.verbose > 0)?;
    let starting = Progress::starting(request.common.shows_progress(), request.command);
    // Before anything slow: until then the signal would end the program.
    let mut reload = Reload::new(request)?;
    let mut stats = Stats::open(&request.common, request.command)?;
    if let Some(duration) = request.common.duration {
        sim::end_silent_pipes_after(duration.to_std());
    }
    let records: Vec<Arc<Records>> = request.pipelines.iter().map(|_| Arc::default()).collect();
    let plans = request.pipelines.iter().zip(&records);
    let mut configs = plans.map(|(plan, records)| config(plan, request, records)).collect::<Result<Vec<_>, _>>()?;
    for config in &mut configs {
        config.start = start.as_ref().map(Start::gate);
    }
    let behind = cpu_placement::place(&mut configs, request)?;
    let mut replayed = replay_frames::expected(request, receiver)?;
    let missing = receiver.and_then(|arrivals| arrivals.missing.as_deref());
    let missing = missing.map(|path| CaptureWriter::create(path, WhenFull::Wait)).transpose().map_err(Failure::new)?;
    let mut lists = request.pipelines.iter().map(results::list).collect::<Result<Vec<_>, _>>()?;
    let polled = receiver.map(|arrivals| &arrivals.port).filter(|port| stream_receiver::ring_of(port).is_none());
    let queues = receiver.map_or(1, |arrivals| arrivals.cpus.len().max(1) as u16);
    let eal = start_dpdk(request, &configs, polled.map(|port| (port, queues)))?;
    // Before the ports are open: nothing has to wait for it.
    let floors = floors(eal, &configs)?;
    // A stopped generator does not delay the traffic of a host.
    if request.pipelines.iter().any(|plan| matches!(plan.source, SourcePlan::Port(_))) {
        dpdk::ignore_stops();
    }
    let carriers = interface_watch::with_carrier(&configs);
    let mut carried = ForwardedInterfaces::default();
    let live = control.map(|_| Arc::new(LiveChanges::new(request)));
    let mut workers = Vec::new();
    let mut logs = Vec::new();
    for (((number, plan), config), cpus) in request.pipelines.iter().enumerate().zip(configs).zip(&behind) {
        let worker = open(eal, (number, plan), config, cpus, request, (&mut logs, live.as_deref()), &stop.flag())?;
        loops::note(plan, &worker.drivers());
        carried.note(plan, &worker.drivers());
        workers.push(worker);
    }
    let nics = NicLinks::of(&workers);
    let mut far_end = None;
    if let (Some(arrivals), Some(worker), Some(plan)) = (receiver, workers.last_mut(), request.pipelines.last()) {
        let expected = (stream_numbers(request), replayed.take());
        let mut end = FarEnd::open(eal, arrivals, worker.targets(), expected)?;
        if matches!(&plan.source, SourcePlan::Streams { gateway, .. } if !gateway.is_empty()) {
            end.learn(worker.teach(LEARNING).map_err(Failure::new)?, stop)?;
        }
        far_end = Some(end);
    }
    let mut watched = Watched::of(request, receiver, &workers, carriers, nics);
    drop(starting);
    let keep = required_rights::keep(request, receiver, &workers);
    if let (Some(control), Some(live)) = (control, &live) {
        control.attach(Arc::clone(live) as Arc<dyn Changes>);
    }
    let shown = (stats.as_mut(), control, live.as_deref());
    let send = || work(eal, workers, keep, request, (&mut reload, &mut watched, &mut start), shown, stop);
    let (ended, arrived) = match far_end {
        Some(far_end) => {
            let is_replay = request.pipelines.iter().any(|plan| matches!(plan.source, SourcePlan::Replay(_)));
            let (ended, mut arrived) = far_end.during(send, |ended| sent(ended, is_replay), stop);
            let last = ended.last().and_then(|ended| ended.as_ref().ok()?.as_ref().ok());
            if let (Some((replay, sent)), Some(last)) = (&mut arrived.replay, last) {
                replay_frames::leave_out_unsent(replay, *sent, &last.report.drops);
            }
            (ended, Some(arrived))
        }
        None => (send(), None),
    };

    let failure = watched.failure().or(start.as_ref().and_then(Start::failure));
    let mut telling = ReportBuilder::new(&floors, failure);
    let plans = request.pipelines.iter().enumerate();
    for ((((number, plan), ended), list), records) in plans.zip(ended).zip(&mut lists).zip(&records) {
        let done = live.as_ref().map(|live| live.done(number)).unwrap_or_default();
        let of_timeline = request.timeline.iter().map(|entry| &entry.change).filter(|_| live.is_none());
        let made = of_timeline.filter(|change| change.pipeline == number).chain(&done);
        telling.pipeline(&changes::final_plan(plan, made), ended, list.as_mut(), records)?;
    }
    for log in logs {
        telling.failed(log.finish().err());
    }
    if let Some(arrived) = arrived {
        if let (Some((replay, sent)), Some(writer)) = (&arrived.replay, missing) {
            telling.failed(replay_frames::write(writer, request, &replay.missing_of_capture(*sent)).err());
        }
        telling.arrived(arrived, request, receiver);
    }
    let mut outcome = telling.outcome(&records);
    for report in &mut outcome.reports {
        report.start = report.start.take().zip(start.as_ref()).map(|(report, start)| start.by_host_clock(&report));
    }
    outcome.clocks = clocks.map_or_else(Vec::new, |watch| watch.finish(&request.common));
    let told = stats.map_or(Ok(()), |stats| stats.finish(&outcome.reports));
    outcome.failure = outcome.failure.or(told.err());
    Ok(outcome)
}

/// Limit on learning frames for a router. Linux stores up to 1024 neighbours.
const LEARNING: u32 = 256;

/// Intervals between checks of a run, which take some microseconds of CPU time from departures: while it runs, and
/// until it is ready.
const LOOK: Duration = Duration::from_millis(100);
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Runs the workers, each on its own thread with the rights `keep`, and monitors them until the last has ended.
fn work(
    eal: &'static Eal,
    workers: Vec<Worker>,
    keep: u64,
    request: &Request,
    (reload, watched, start): (&mut Reload, &mut Watched, &mut Option<Start>),
    (stats, control, live): (Option<&mut Stats>, Option<&Control>, Option<&LiveChanges>),
    stop: &Stop,
) -> Vec<Ended> {
    let with_stats = stats.is_some() || control.is_some();
    // A way back with stages has a separate progress line.
    let both_ways = |plan: &PipelinePlan| with_stats || plan.back.is_some();
    let counters = |plan| if both_ways(plan) { Counters::of_both_ways() } else { Counters::default() };
    let counters: Arc<Vec<Counters>> = Arc::new(request.pipelines.iter().map(counters).collect());
    if let Some(control) = control {
        let (names, counters) = (progress::names(request), Arc::clone(&counters));
        control.runs(move || progress::so_far_of_all(&names, &counters));
    }
    let flag = stop.flag();
    let all = workers.len();
    let at_work = RunningWorkers { workers: AtomicUsize::new(workers.len()), looks_after: thread::current() };
    let mut told = false;
    thread::scope(|scope| {
        let handles: Vec<_> = workers
            .into_iter()
            .zip(counters.iter())
            .map(|(worker, counters)| {
                let (flag, one) = (&flag, WorkerGuard(&at_work));
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    let _one = one;
                    rights::narrow(keep);
                    worker.run(eal, flag, counters)
                });
                if started.is_err() {
                    // The others are useless without it.
                    stop.ask();
                }
                started
            })
            .collect();
        progress::show(request, &counters, stats, || {
            reload.if_asked(request);
            if let Some(live) = live {
                live.collect();
            }
            if watched.has_lost_one() {
                stop.ask();
            }
            if let Some(start) = start {
                start.look(all, stop);
            }
            // In this order, so that the counters of a finished run are complete.
            let ended = at_work.workers.load(Ordering::Acquire) == 0;
            let running = || counters.iter().all(|counters| counters.running.load(Ordering::Relaxed));
            if !told && running() && (ended || watched.has_carriers()) {
                readiness::tell(&request.common);
                request.gate.open();
                told = true;
            }
            (!ended).then_some(if told { LOOK } else { FIRST_LOOK })
        });
        let ended = |started: io::Result<thread::ScopedJoinHandle<'_, _>>| match started {
            Ok(worker) => worker.join(),
            Err(cause) => Ok(Err(dataplane::Error::Thread(cause.to_string()))),
        };
        handles.into_iter().map(ended).collect()
    })
}

/// The number of running workers, and the thread that monitors them.
struct RunningWorkers {
    workers: AtomicUsize,
    looks_after: Thread,
}

/// A running worker. Dropping it reports the worker's end, even after a panic.
struct WorkerGuard<'a>(&'a RunningWorkers);

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.0.workers.fetch_sub(1, Ordering::Release);
        self.0.looks_after.unpark();
    }
}

/// Frames sent that the receiver can recognise: those of a capture, or else stamped ones.
fn sent(ended: &[Ended], replay: bool) -> u64 {
    let finished = ended.iter().flatten().flatten();
    if replay {
        return finished.map(|finished| finished.report.left.frames).sum();
    }
    finished.flat_map(|finished| &finished.report.streams).filter_map(|stream| stream.sent).sum()
}

/// The floor of each pipeline that waits for the clock, measured concurrently on the same number of threads and the
/// same CPUs as the run.
fn floors(eal: &'static Eal, configs: &[Config]) -> Result<Vec<(String, Floor)>, Failure> {
    const GAP: Span = Span::from_us(10);
    const DURATION: Span = Span::from_ms(50);
    thread::scope(|scope| {
        let waits = configs.iter().filter(|config| matches!(config.pacing, Pacing::Deadline(_)));
        let threads: Vec<_> = waits
            .map(|config| {
                let measure = || Floor::measure_for(config, &TscClock::new(eal), GAP, DURATION);
                (config.name.clone(), thread::Builder::new().spawn_scoped(scope, measure))
            })
            .collect();
        let joined = |(name, thread): (String, io::Result<thread::ScopedJoinHandle<'_, _>>)| {
            let thread = thread.map_err(|cause| Failure::new(dataplane::Error::Thread(cause.to_string())))?;
            let floor = thread.join().map_err(|_| dataplane::Error::Worker(name.clone())).and_then(|floor| floor);
            floor.map(|floor| (name, floor)).map_err(Failure::new)
        };
        threads.into_iter().map(joined).collect()
    })
}

/// The numbers of our streams. The streams of several cores have consecutive numbers.
fn stream_numbers(request: &Request) -> Range<u32> {
    let cores = request.common.cores.as_ref().map_or(1, |cores| cores.0.len());
    let first = request.pipelines.iter().find_map(|plan| match &plan.source {
        SourcePlan::Streams { first, .. } => Some(u32::from(*first)),
        _ => None,
    });
    let first = first.unwrap_or(0);
    first..first.saturating_add(u32::try_from(streams_of_all(request) * cores).unwrap_or(u32::MAX))
}

/// The streams of all pipelines, in order.
fn streams_of_all(request: &Request) -> usize {
    let all = request.pipelines.iter().map(|plan| match &plan.source {
        SourcePlan::Streams { specs, .. } => specs.len(),
        _ => 0,
    });
    all.sum()
}

/// Starts DPDK with the ports of a request, and the one that a receiver polls on some queues.
fn start_dpdk(
    request: &Request,
    configs: &[Config],
    polled: Option<(&PortSpec, u16)>,
) -> Result<&'static Eal, Failure> {
    let memory_mib: u32 = configs.iter().map(Config::memory_mib).sum();
    let of_receiver = polled.map_or(0, |(_, queues)| ArrivalPort::memory_mib(queues));
    let mut config =
        EalConfig::new("netlathe").memory_mib(memory_mib + of_receiver).log(log_level(request.common.verbose));
    if let Some((port, _)) = polled
        && let Some(address) = device(port)?.pci()
    {
        config = config.pci(address);
    }
    for plan in &request.pipelines {
        for port in plan.input_ports().chain([&plan.output]) {
            if let Some(address) = device(port)?.pci() {
                config = config.pci(address);
            }
        }
        // A hardware event device is named by its PCI address, like a NIC.
        for device in plan.limits().filter_map(|(_, limit)| limit.device.as_deref()).filter(|name| name.contains(':')) {
            config = config.pci(device);
        }
    }
    Eal::init(&config).map_err(Failure::new)
}

/// Whether clients may change settings.
fn controlled(request: &Request) -> bool {
    request.common.control.is_some()
}

fn config(plan: &PipelinePlan, request: &Request, records: &Arc<Records>) -> Result<Config, Failure> {
    let feed = match &plan.source {
        SourcePlan::Port(port) => Feed::Device(device(port)?),
        SourcePlan::Streams { specs, first, count, .. } => {
            let streams = assemble::streams(plan, specs, request.seed(), *first)?;
            // Parts of streams on several cores have unique numbers.
            let apart = u16::try_from(streams_of_all(request)).unwrap_or(u16::MAX);
            Feed::Stream(Box::new(streams.numbered_apart(apart)), *count)
        }
        SourcePlan::Replay(replay) => {
            let source = assemble::open_replay(replay).map_err(Failure::new)?;
            let no_stages = plan.stages.is_empty() && plan.classes.iter().all(|class| class.stages.is_empty());
            // A pipe can be read only once.
            let fits = plan.asks_nothing() && files::is_read_again(&replay.path);
            let whole = if fits { whole(replay, records)? } else { None };
            let supply = Box::new(FromCapture::new(source, records.clone()));
            Feed::Replay { supply, ahead: no_stages, whole }
        }
    };
    let pacing = match (plan.pacer, plan.line) {
        (Pacer::Filler, Some(line)) => {
            let FillerSpec { kind, align, longest } = plan.filler;
            Pacing::Filler { line, kind, align, longest, unbounded: false }
        }
        (Pacer::Deadline, _) => Pacing::Deadline(LaunchTime::Never),
        (Pacer::Auto, _) => Pacing::Deadline(LaunchTime::IfOffered),
        (Pacer::LaunchTime, _) => Pacing::Deadline(LaunchTime::Required),
        _ => Pacing::AsReady,
    };
    // A client may set a rate later.
    let pacing = match pacing {
        Pacing::AsReady if controlled(request) => Pacing::Deadline(LaunchTime::Never),
        pacing => pacing,
    };
    let mut config = Config {
        name: plan.name.clone(),
        feed,
        more_inputs: plan.input_ports().skip(1).map(device).collect::<Result<_, _>>()?,
        output: device(&plan.output)?,
        one_way: plan.one_way,
        pacing,
        asked_gap: plan.target.fixed_gap().filter(|_| plan.classes.is_empty()),
        cpus: Vec::new(),
        window: request.common.window,
        duration: request.common.duration,
        start: None,
        room: plan.all_stages().map(StageConfig::room).sum::<u64>() + changes::room(request, plan),
        on: None,
    };
    if let (Device::Interface { driver, .. }, Some(chosen)) = (&mut config.output, host_ports::driver(plan, request)) {
        *driver = Some(as_driver(chosen));
    }
    if let Some(DetourPlan { interface, host, wire }) = &request.on {
        config.feed = Feed::Device(Device::Detour(host.clone()));
        config.output = Device::Detour(wire.clone());
        config.on = Some(interface.clone());
    }
    Ok(config)
}

fn open(
    eal: &'static Eal,
    (number, plan): (usize, &PipelinePlan),
    config: Config,
    meter_cpus: &[usize],
    request: &Request,
    (logs, live): (&mut Vec<DecisionFile>, Option<&LiveChanges>),
    stop: &AtomicBool,
) -> Result<Worker, Failure> {
    let frames = assemble::frames(plan)?;
    let schedule = |ask: &Target, path: &str, frames: Option<u64>| {
        let draw = Draw { seed: request.seed(), path, frames };
        ask.schedule(plan.line, draw).map_err(|error| Failure::new(format!("{}: {error}", plan.name)))
    };
    let mut logged = |mut pipeline: Pipeline<Mbuf>, name: &str| {
        logs.extend(decision_log::attach(request, plan, name, &mut pipeline, WhenFull::LeaveOut)?);
        Ok::<_, Failure>(pipeline)
    };
    let build = |stage: &StageConfig, path: &str| match stage {
        StageConfig::Limit(limit) if has_threads(limit) => {
            limit_stage(eal, limit, (request.seed(), path), meter_cpus).map_err(Failure::new)
        }
        _ => Ok(stage.build(request.seed(), path)),
    };
    let pipeline = assemble::pipeline(plan, build, |class, ask, path| schedule(ask, path, frames[class]))?;
    let later = |ask: &Target, path: &str| schedule(ask, path, None);
    let makers = Makers { stage: &build, schedule: &later };
    let timeline = changes::timeline_of(request, number, false);
    changes::check_live(plan, &timeline, live.is_some(), &config)?;
    let pipeline = makers.plan_timeline(pipeline, &timeline, plan.classes.len() + 1)?;
    // A client may want answers later.
    let pipeline = if live.is_some() && !pipeline.takes_changes() { pipeline.changing() } else { pipeline };
    let answers = live.is_some() || timeline.iter().any(|(_, entry)| entry.change.answers());
    let pipeline = if answers || plan.all_stages().any(StageConfig::answers) { pipeline.answering() } else { pipeline };
    let mut pipeline = logged(pipeline, &plan.name)?;
    let backlog = matches!(plan.source, SourcePlan::Streams { .. });
    let sampling = |name: &str| assemble::sampling(request, name, backlog);
    if let Some(sampling) = sampling(&plan.name) {
        pipeline = pipeline.slicing(&assemble::stage_names(plan), &sampling);
    }
    let mut back = None;
    if let Some(BackPlan { name, stages }) = &plan.back {
        let names = [assemble::names(stages)];
        let stages = assemble::stages(stages, name, build)?;
        let mut pipeline = Pipeline::new(stages, schedule(&Target::Nothing, name, None)?).answering();
        let timeline = changes::timeline_of(request, number, true);
        changes::check_live(plan, &timeline, live.is_some(), &config)?;
        pipeline = makers.plan_timeline(pipeline, &timeline, 1)?;
        if live.is_some() && !pipeline.takes_changes() {
            pipeline = pipeline.changing();
        }
        if let Some(sampling) = sampling(name) {
            pipeline = pipeline.slicing(&names, &sampling);
        }
        back = Some((name.clone(), logged(pipeline, name)?));
    }
    let mut worker = Worker::open(eal, config, pipeline, back).map_err(Failure::new)?;
    if let Some(live) = live {
        worker.take_changes(live.queue(number, plan, false), false);
        if plan.back.is_some() {
            worker.take_changes(live.queue(number, plan, true), true);
        }
    }
    nic_links::await_links(worker.nic_links(), || stop.load(Ordering::Relaxed));
    nic_links::check_speed(plan, worker.output_link().as_ref())?;
    if let SourcePlan::Streams { gateway, .. } = &plan.source {
        for neighbour in gateway {
            worker
                .aim(*neighbour, stop)
                .map_err(|error| Failure::new(format!("--gateway: {}: {error}", plan.output)))?;
        }
    }
    for (port, driver) in plan.input_ports().zip(worker.drivers()) {
        if let Some(name) = port.interface().filter(|_| driver == "net_af_packet") {
            xdp_programs::warn_if_any(name);
        }
    }
    if request.common.verbose > 0 {
        output::note(format!("{}: drivers {}", plan.name, worker.drivers().join(" and ")));
    }
    Ok(worker)
}
