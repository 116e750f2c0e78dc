//! Runs pipelines whose ports are live, and receives from interfaces.

use crate::assemble;
use crate::commands::Cores;
use crate::commands::measure::{Receiver, Reception};
use crate::decisions::DecisionFile;
use crate::execute::{Arrivals, Outcome, Request};
use crate::far_end::{self, FarEnd};
use crate::limits::{self, Reload};
use crate::on::On;
use crate::output::{self, Failure};
use crate::progress::Progress;
use crate::resolution;
use crate::stop::Stop;
use crate::virtual_time;
use crate::watched::Watched;
use dataplane::{
    Config, Counters, Device, Driver, Feed, Finished, Floor, LaunchTime, OnLine, Pacing, Supply, Whole, Worker,
};
use dataplane::{has_threads, limit_stage};
use dpdk::{Eal, EalConfig, LogLevel, Mbuf, PacketRing, RingConfig, TscClock};
use engine::Pipeline;
use engine::schedules::{Ask, Draw};
use engine::sources::Streams;
use engine::stages::StageConfig;
use measure::{Flow, PipelineReport};
use packet::{Frame, HeapFrame};
use scenario::{BackPlan, FillerSpec, LineSpec, Pacer, PipelinePlan, PortSpec, Replay, SourcePlan};
use serde_json::{Map, Value, json};
use sim::{FrameList, ReplaySource, SimError, Source};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use units::{FrameLen, Span, Time};

/// Frames of a line that are listed at most: they are kept in memory until the run has ended.
const LISTED: usize = 4_194_304;

/// Runs all pipelines at once, each on a thread of its own, until they end or are to stop.
pub(crate) fn run(request: &Request, receiver: Option<&Arrivals>, stop: &Stop) -> Result<Outcome, Failure> {
    limits::check_live(request)?;
    // Before anything takes time: until then the signal would end the program.
    let mut reload = Reload::new(request)?;
    let records: Vec<Arc<Records>> = request.pipelines.iter().map(|_| Arc::default()).collect();
    let plans = request.pipelines.iter().zip(&records);
    let mut configs = plans.map(|(plan, records)| config(plan, request, records)).collect::<Result<Vec<_>, _>>()?;
    let behind = place(&mut configs, request)?;
    let mut lists = request.pipelines.iter().map(list).collect::<Result<Vec<_>, _>>()?;
    let eal = start_dpdk(request, &configs)?;
    // Before the ports are open: nothing has to wait for it.
    let floors = floors(eal, &configs)?;
    let mut workers = Vec::new();
    let mut logs = Vec::new();
    for ((plan, config), cpus) in request.pipelines.iter().zip(configs).zip(&behind) {
        workers.push(open(eal, plan, config, cpus, request, &mut logs, &stop.flag())?);
    }
    let far_end = receiver.map(|arrivals| FarEnd::open(&arrivals.port, arrivals.wait.to_std())).transpose()?;
    let counters: Vec<Counters> = workers.iter().map(|_| Counters::default()).collect();
    let flag = stop.flag();
    let mut watched = Watched::of(request, receiver);
    let send = || {
        thread::scope(|scope| {
            let handles: Vec<_> = workers
                .into_iter()
                .zip(&counters)
                .map(|(worker, counters)| {
                    let flag = &flag;
                    scope.spawn(move || worker.run(eal, flag, counters))
                })
                .collect();
            show_progress(request, &counters, || {
                reload.if_asked(request);
                if watched.has_lost_one() {
                    stop.ask();
                }
                handles.iter().all(thread::ScopedJoinHandle::is_finished)
            });
            handles.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        })
    };
    let (results, arrived) = match far_end {
        Some(far_end) => {
            let frames = |results: &Vec<thread::Result<Result<Finished, dataplane::Error>>>| {
                let finished = results.iter().flatten().flatten();
                finished.flat_map(|finished| &finished.report.streams).filter_map(|stream| stream.sent).sum()
            };
            let (results, arrived) = far_end.during(send, frames, || stop.ask());
            (results, Some(arrived))
        }
        None => (send(), None),
    };

    let mut outcome = Outcome { reports: Vec::new(), limits: Map::new(), failure: watched.failure() };
    let mut ports = Map::new();
    let mut warnings = Vec::new();
    let mut raised = Map::new();
    let mut planned = Map::new();
    for ((plan, result), list) in request.pipelines.iter().zip(results).zip(&mut lists) {
        let finished =
            result.unwrap_or_else(|_| Err(dataplane::Error::Worker(plan.name.clone()))).map_err(Failure::new)?;
        if plan.pacer == Pacer::Filler {
            raised.insert(plan.name.clone(), json!(finished.raised));
        }
        if let Some(list) = list {
            let written = write_list(list, &finished.listed).map_err(Failure::new);
            outcome.failure = outcome.failure.or(written.err());
        }
        outcome.failure = outcome.failure.or_else(|| finished.failure.as_ref().map(Failure::new));
        let mut report = named(plan, finished, &mut ports);
        let backward = report.backward.take();
        let floor = floors.iter().find(|(name, _)| *name == plan.name).map(|(_, floor)| floor);
        warnings.extend(resolution::of_machine(plan, &report, floor));
        if let Some(why) = resolution::of_departures(plan) {
            output::note(format!("{}: {why}", plan.name));
            planned.insert(plan.name.clone(), json!(why));
        }
        outcome.reports.push(report);
        outcome.reports.extend(backward.map(|mut backward| {
            backward.pacer = Some(plan.pacer.name());
            backward.forget_ask();
            forget_lateness(&mut backward);
            *backward
        }));
    }
    for log in logs {
        outcome.failure = outcome.failure.or(log.finish().err());
    }
    if let (Some(arrived), Some(report)) = (arrived, outcome.reports.last_mut()) {
        outcome.failure = outcome.failure.or(arrived.failure);
        report.streams = arrived.streams.report(&report.streams);
        report.flow = Some(arrived.flow);
        let output = request.pipelines.last().and_then(|plan| plan.output.interface());
        let own = receiver.is_some_and(|arrivals| output == arrivals.port.interface());
        if own && report.streams.iter().filter_map(|stream| stream.received.as_ref()).all(|came| came.received == 0) {
            output::note(
                "--in: nothing came back to the interface that sent: it receives what others send there; name the one at \
                 the other end, unless a device under test was to send frames back",
            );
        }
    }
    resolution::warn(&mut outcome.limits, &warnings);
    Records::note(&records, &mut outcome.limits);
    outcome.limits.insert(
        "clock".into(),
        json!("TSC, calibrated against CLOCK_MONOTONIC; a stamp is taken when a frame is handed to the driver; of line:, when it starts there"),
    );
    if !floors.is_empty() {
        let floors = floors.iter().map(|(name, floor)| (name.clone(), floor_json(floor))).collect();
        outcome.limits.insert("floor".into(), Value::Object(floors));
    }
    if !planned.is_empty() {
        outcome.limits.insert("planned".into(), Value::Object(planned));
    }
    if !raised.is_empty() {
        outcome.limits.insert("priority_raised".into(), Value::Object(raised));
    }
    outcome.limits.insert("dpdk".into(), json!(Eal::version()));
    outcome.limits.insert("ports".into(), Value::Object(ports));
    Ok(outcome)
}

/// A capture that is sent again, as the data plane takes it.
struct FromCapture {
    source: ReplaySource,
    cut: u64,
    records: Arc<Records>,
}

/// Records of a capture that are not as they should be, so far.
#[derive(Default)]
struct Records {
    /// Cut when they were captured.
    cut: AtomicU64,
    /// Stamped before the one ahead of them.
    disordered: AtomicU64,
}

impl Records {
    /// Says what was found in the captures of a run.
    fn note(all: &[Arc<Records>], limits: &mut Map<String, Value>) {
        let sum = |of: fn(&Records) -> &AtomicU64| all.iter().map(|one| of(one).load(Ordering::Relaxed)).sum::<u64>();
        let (cut, disordered) = (sum(|one| &one.cut), sum(|one| &one.disordered));
        if cut > 0 {
            limits.insert("cut_records".into(), json!(cut));
            output::note(format!(
                "{cut} records of the capture had been cut; their frames go out as long as they were, with zeros for what is missing"
            ));
        }
        virtual_time::note_disordered(disordered, limits);
    }
}

impl Supply for FromCapture {
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time> {
        let arrival = self.source.arrival()?;
        self.source.take(frame);
        self.cut += u64::from(frame.make_whole());
        self.records.cut.store(self.cut, Ordering::Relaxed);
        self.records.disordered.store(self.source.disordered(), Ordering::Relaxed);
        Some(arrival)
    }

    fn failure(&mut self) -> Option<String> {
        self.source.failure().map(|error| error.to_string())
    }
}

/// Deals the CPUs out: as many to each pipeline, in order, one for each of its parts; and gives those behind,
/// for the workers of `limit`.
fn place(configs: &mut [Config], request: &Request) -> Result<Vec<Vec<usize>>, Failure> {
    let mut behind = vec![Vec::new(); configs.len()];
    let Some(Cores(cores)) = &request.common.cores else { return Ok(behind) };
    let each = cores.len() / configs.len();
    if each == 0 || !cores.len().is_multiple_of(configs.len()) {
        return Err(Failure::new(format!(
            "--cores: {} CPUs cannot be dealt out evenly to {} pipelines: name as many for each",
            cores.len(),
            configs.len()
        )));
    }
    let plans = configs.iter_mut().zip(&mut behind).zip(&request.pipelines);
    for (((config, behind), plan), cores) in plans.zip(cores.chunks(each)) {
        // What nobody asks anything of goes from the source straight to the queue.
        let straight = config.pacing == Pacing::AsReady && plan.classes.is_empty() && plan.stages.is_empty();
        let straight = straight && request.common.slices.is_none();
        let (mut parts, why) = match config.feed {
            Feed::Replay { whole: Some(_), .. } if straight => {
                (vec!["all of it"], ", since a capture that fits in memory is sent from there")
            }
            _ => parts(plan, request.common.slices.is_some()),
        };
        parts.extend(matches!(config.output, Device::Line { .. }).then_some("the far end of the line"));
        let limits = plan.limits().map(|(_, limit)| limit);
        let workers = limits.filter(|limit| has_threads(limit)).map(|limit| limit.workers).max().unwrap_or(0);
        // The pipeline's own come first; workers have CPUs of theirs if there are enough for all.
        let own = if each > workers { each - workers } else { each };
        // Streams of which nothing is asked are made on as many as there are.
        let floods = straight && matches!(config.feed, Feed::Stream(..));
        if own > parts.len() && !floods {
            let beside = match workers {
                0 => String::new(),
                _ => format!(", or {} with the {workers} workers of limit", parts.len() + workers),
            };
            return Err(Failure::new(format!(
                "--cores: pipeline {} has {each} CPUs and no more than {} part{} ({}){why}: name at most {}{beside}",
                plan.name,
                parts.len(),
                if parts.len() == 1 { "" } else { "s" },
                parts.join(", "),
                parts.len(),
            )));
        }
        config.cpus = cores[..own].to_vec();
        *behind = cores[own..].to_vec();
    }
    Ok(behind)
}

/// The parts that a pipeline is run in at most, as [`Pipeline::most_parts`] has it, and why they are no more.
fn parts(plan: &PipelinePlan, sliced: bool) -> (Vec<&'static str>, &'static str) {
    if sliced && plan.pacer == Pacer::Filler {
        return (vec!["all of it"], ", since with fillers --slices go by the place on the line");
    }
    if plan.all_stages().any(StageConfig::answers) {
        return (vec!["receiving and stages", "departures"], ", since stages that answer stay with the way back");
    }
    let has_classes = !plan.classes.is_empty();
    let mut parts = vec![if sliced && has_classes { "receiving and classes" } else { "receiving" }];
    parts.extend((has_classes && !sliced).then_some("classes"));
    let has_stages = !plan.stages.is_empty() || plan.classes.iter().any(|class| !class.stages.is_empty());
    parts.extend(has_stages.then_some("stages"));
    parts.push("departures");
    (parts, if sliced && has_classes { ", since --slices begin where the class is found" } else { "" })
}

/// What waiting alone reaches here, of each pipeline that will wait for the clock: measured on as many
/// threads at once as there will be, and on the same CPUs.
fn floors(eal: &'static Eal, configs: &[Config]) -> Result<Vec<(String, Floor)>, Failure> {
    const GAP: Span = Span::from_us(10);
    const DURATION: Span = Span::from_ms(50);
    thread::scope(|scope| {
        let waits = configs.iter().filter(|config| matches!(config.pacing, Pacing::Deadline(_)));
        let threads: Vec<_> = waits
            .map(|config| {
                let measure = || Floor::measure_for(config, &TscClock::new(eal), GAP, DURATION);
                (config.name.clone(), scope.spawn(measure))
            })
            .collect();
        let joined = |(name, thread): (String, thread::ScopedJoinHandle<'_, Result<Floor, dataplane::Error>>)| {
            let floor = thread.join().map_err(|_| dataplane::Error::Worker(name.clone())).and_then(|floor| floor);
            floor.map(|floor| (name, floor)).map_err(Failure::new)
        };
        threads.into_iter().map(joined).collect()
    })
}

fn floor_json(floor: &Floor) -> Value {
    json!({
        "gap_ns": floor.gap.as_ns_f64(),
        "instants": floor.instants,
        "p50": floor.p50.as_ns_f64(),
        "p99": floor.p99.as_ns_f64(),
        "max": floor.max.as_ns_f64(),
        "within_1us": floor.within_1us,
    })
}

/// The list of frames that the far end of a line is to write.
fn list(plan: &PipelinePlan) -> Result<Option<FrameList>, Failure> {
    match &plan.output {
        PortSpec::Line(LineSpec { frames: Some(path), .. }) => FrameList::create(path).map(Some).map_err(Failure::new),
        _ => Ok(None),
    }
}

fn write_list(list: &mut FrameList, frames: &[OnLine]) -> Result<(), SimError> {
    for frame in frames {
        list.add(frame.start, frame.length, if frame.filler { "filler" } else { "data" })?;
    }
    list.flush()?;
    if frames.len() >= LISTED {
        output::note(format!("the list of frames holds the first {}", output::thousands(LISTED as u64)));
    }
    Ok(())
}

fn named(plan: &PipelinePlan, finished: Finished, ports: &mut Map<String, Value>) -> PipelineReport {
    let mut specs = Vec::new();
    if let SourcePlan::Port(port) = &plan.source {
        specs.push(port);
    }
    specs.push(&plan.output);
    for (spec, port) in specs.into_iter().zip(finished.ports) {
        let name = spec.to_string();
        say_what_became_of(spec);
        if port.rx_missed + port.rx_no_buffer > 0 {
            output::note(format!(
                "{name} lost {} frames in its ring before they were counted as in, and had no buffer {} times it looked",
                port.rx_missed, port.rx_no_buffer
            ));
        }
        if port.cut_off {
            output::note(format!(
                "{name} had its XDP program taken off or replaced during the run: what arrived since was not received; run it again, or write driver=af_packet"
            ));
        }
        ports.insert(
            name,
            json!({"driver": port.driver, "rx_missed": port.rx_missed, "rx_no_buffer": port.rx_no_buffer}),
        );
    }
    let mut report = finished.report;
    limits::report(plan, &mut report);
    let pacer = match plan.pacer {
        Pacer::Auto if finished.launched => Pacer::LaunchTime,
        Pacer::Auto => Pacer::Deadline,
        pacer => pacer,
    };
    report.pacer = Some(pacer.name());
    for class in &mut report.classes {
        class.pacer = report.pacer;
    }
    if plan.asks_nothing() {
        report.forget_ask();
    }
    forget_lateness(&mut report);
    report
}

/// Where neither a schedule nor a stage said when, nothing is late.
fn forget_lateness(report: &mut PipelineReport) {
    if !report.says_when() {
        report.lateness = None;
    }
}

/// Drivers take frames for an interface that is down, and they are counted as out.
fn say_what_became_of(port: &PortSpec) {
    let Some(name) = port.interface() else { return };
    if dpdk::link(name).is_ok_and(|link| !link.up) {
        output::note(format!("{port} is down at the end of the run; frames that it took since are counted as out"));
    }
}

fn start_dpdk(request: &Request, configs: &[Config]) -> Result<&'static Eal, Failure> {
    let level = match request.common.verbose {
        0 => LogLevel::Quiet,
        1 => LogLevel::Normal,
        _ => LogLevel::Debug,
    };
    let mut config = EalConfig::new("netlathe").memory_mib(configs.iter().map(Config::memory_mib).sum()).log(level);
    for plan in &request.pipelines {
        let devices = [Some(&plan.output), if let SourcePlan::Port(port) = &plan.source { Some(port) } else { None }];
        for port in devices.into_iter().flatten() {
            if let Some(address) = device(port)?.pci() {
                config = config.pci(address);
            }
        }
        // An event device in hardware is told by its address, as a NIC is.
        for device in plan.limits().filter_map(|(_, limit)| limit.device.as_deref()).filter(|name| name.contains(':')) {
            config = config.pci(device);
        }
    }
    Eal::init(&config).map_err(Failure::new)
}

fn config(plan: &PipelinePlan, request: &Request, records: &Arc<Records>) -> Result<Config, Failure> {
    let feed = match &plan.source {
        SourcePlan::Port(port) => Feed::Device(device(port)?),
        SourcePlan::Streams { specs, first, count, .. } => {
            let streams = Streams::new(specs, request.seed(), *first).map_err(Failure::new)?;
            // Parts of streams on several cores have numbers of their own, which no other stream has.
            let all = request.pipelines.iter().map(|plan| match &plan.source {
                SourcePlan::Streams { specs, .. } => specs.len(),
                _ => 0,
            });
            let apart = u16::try_from(all.sum::<usize>()).unwrap_or(u16::MAX);
            Feed::Stream(Box::new(streams.numbered_apart(apart)), *count)
        }
        SourcePlan::Replay(replay) => {
            let source = virtual_time::open_replay(replay).map_err(Failure::new)?;
            let no_stages = plan.stages.is_empty() && plan.classes.iter().all(|class| class.stages.is_empty());
            // What is no file (a pipe) can be read once only.
            let fits = plan.asks_nothing() && replay.path.is_file();
            let whole = if fits { whole(replay, records)? } else { None };
            let supply = Box::new(FromCapture { source, cut: 0, records: records.clone() });
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
    let mut config = Config {
        name: plan.name.clone(),
        feed,
        output: device(&plan.output)?,
        one_way: plan.one_way,
        pacing,
        asked_gap: plan.ask.fixed_gap().filter(|_| plan.classes.is_empty()),
        cpus: Vec::new(),
        window: request.common.window,
        duration: request.common.duration,
        room: plan.all_stages().map(StageConfig::room).sum(),
        on: None,
    };
    if let Some(On { interface, host, wire }) = &request.on {
        config.feed = Feed::Device(Device::Detour(host.clone()));
        config.output = Device::Detour(wire.clone());
        config.on = Some(interface.clone());
    }
    Ok(config)
}

/// All frames of a capture, if they are few enough to be held, and all of it can be read.
fn whole(replay: &Replay, records: &Records) -> Result<Option<Whole>, Failure> {
    let once = Replay { times: 1, ..replay.clone() };
    let mut source = virtual_time::open_replay(&once).map_err(Failure::new)?;
    let mut whole = Whole { frames: Vec::new(), times: replay.times };
    let mut next = HeapFrame::default();
    let mut cut = 0;
    while source.arrival().is_some() {
        if whole.frames.len() == Whole::MOST {
            return Ok(None);
        }
        source.take(&mut next);
        cut += u64::from(next.make_whole());
        whole.frames.push(next.bytes().to_vec());
    }
    records.cut.store(cut, Ordering::Relaxed);
    Ok(source.failure().is_none().then_some(whole))
}

fn open(
    eal: &'static Eal,
    plan: &PipelinePlan,
    config: Config,
    meter_cpus: &[usize],
    request: &Request,
    logs: &mut Vec<DecisionFile>,
    stop: &AtomicBool,
) -> Result<Worker, Failure> {
    let frames = virtual_time::frames(plan)?;
    let schedule = |ask: &Ask, path: &str, frames: Option<u64>| {
        let draw = Draw { seed: request.seed(), path, frames };
        ask.schedule(plan.line, draw).map_err(|error| Failure::new(format!("{}: {error}", plan.name)))
    };
    let mut logged = |mut pipeline: Pipeline<Mbuf>, name: &str| {
        logs.extend(request.log(plan, name, &mut pipeline)?);
        Ok::<_, Failure>(pipeline)
    };
    let build = |stage: &StageConfig, path: &str| match stage {
        StageConfig::Limit(limit) if has_threads(limit) => {
            limit_stage(eal, limit, (request.seed(), path), meter_cpus).map_err(Failure::new)
        }
        _ => Ok(stage.build(request.seed(), path)),
    };
    let pipeline = assemble::pipeline(plan, build, |class, ask, path| schedule(ask, path, frames[class]))?;
    let pipeline = if plan.all_stages().any(StageConfig::answers) { pipeline.answering() } else { pipeline };
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
        let mut pipeline = Pipeline::new(stages, schedule(&Ask::Nothing, name, None)?).answering();
        if let Some(sampling) = sampling(name) {
            pipeline = pipeline.slicing(&names, &sampling);
        }
        back = Some((name.clone(), logged(pipeline, name)?));
    }
    let mut worker = Worker::open(eal, config, pipeline, back).map_err(Failure::new)?;
    if let SourcePlan::Streams { gateway, .. } = &plan.source {
        for neighbour in gateway {
            worker
                .aim(*neighbour, stop)
                .map_err(|error| Failure::new(format!("--gateway: {}: {error}", plan.output)))?;
        }
    }
    if let SourcePlan::Port(port) = &plan.source
        && let Some(name) = port.interface()
        && worker.drivers().first() == Some(&"net_af_packet")
    {
        far_end::say_what_comes_before(name);
    }
    if request.common.verbose > 0 {
        output::note(format!("{}: drivers {}", plan.name, worker.drivers().join(" and ")));
    }
    Ok(worker)
}

fn device(port: &PortSpec) -> Result<Device, Failure> {
    Ok(match port {
        PortSpec::Interface { name, driver, queues } => Device::Interface {
            name: name.clone(),
            queues: *queues,
            driver: driver.map(|driver| match driver {
                scenario::Driver::AfXdp => Driver::AfXdp,
                scenario::Driver::AfPacket => Driver::AfPacket,
            }),
        },
        PortSpec::Tap(name) => Device::Tap(name.clone()),
        PortSpec::Pci(address) => Device::Pci(address.clone()),
        PortSpec::Dpdk(arguments) => Device::Vdev(arguments.clone()),
        PortSpec::Null => Device::Null,
        PortSpec::Line(line) => Device::Line {
            slots: line.slots,
            list: if line.frames.is_some() { LISTED } else { 0 },
            keep_fillers: line.keep_fillers,
        },
        PortSpec::Pcap(_) | PortSpec::Wire(_) => return Err(Failure::new(format!("{port} is no live port"))),
    })
}

/// Shows how far the pipelines are until they have `ended`.
fn show_progress(request: &Request, counters: &[Counters], mut ended: impl FnMut() -> bool) {
    let mut progress = Progress::new(&request.common, request.pipelines.iter().map(|plan| plan.name.as_str()));
    let mut before: Vec<(Duration, u64)> = counters.iter().map(|_| (Duration::ZERO, 0)).collect();
    while !ended() {
        thread::sleep(Duration::from_millis(20));
        if progress.is_due() {
            let now = progress.passed();
            for (i, (counters, plan)) in counters.iter().zip(&request.pipelines).enumerate() {
                let bytes = counters.left_bytes.load(Ordering::Relaxed);
                let (then, bytes_then) = std::mem::replace(&mut before[i], (now, bytes));
                let rate = (bytes - bytes_then) as f64 * 8.0 / (now - then).as_secs_f64().max(1e-3);
                progress.say(i, so_far(now, rate, counters, !plan.asks_nothing()));
            }
        }
    }
}

/// A run in a line: its rate of late, and what waits, was starved and was late so far.
fn so_far(passed: Duration, rate_bps: f64, counters: &Counters, asked: bool) -> String {
    let figure = |counter: &AtomicU64| output::thousands(counter.load(Ordering::Relaxed));
    let ns = |counter: &AtomicU64| output::brief(counter.load(Ordering::Relaxed) as f64);
    let rate = output::bits(output::digits(rate_bps, 4));
    let mut text = format!("{} s  {rate}  {} waiting", passed.as_secs(), figure(&counters.depth));
    if asked {
        let (median, max) = (ns(&counters.late_median_ns), ns(&counters.late_max_ns));
        let starved = figure(&counters.starved);
        let wave = match counters.width_ns.load(Ordering::Relaxed) {
            0 => String::new(),
            width => format!(", wave {} wide", output::brief(width as f64)),
        };
        text += &format!("  {starved} starved{wave}  late {median}, max {max}");
    }
    text + &format!("  {} out", figure(&counters.left))
}

/// Receives from an interface by its packet ring until told to stop.
pub(crate) fn receive(
    name: &str,
    receiver: &mut Receiver,
    reception: &Reception<'_>,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    let mut ring = PacketRing::open(name, &RingConfig::default()).map_err(Failure::new)?;
    far_end::say_what_comes_before(name);
    let mut writer = reception.write.map(sim::CaptureWriter::create).transpose().map_err(Failure::new)?;
    let longest = ring.mtu().map_err(Failure::new)? + 14;
    let begin = Instant::now();
    let mut flow = Flow::default();
    let mut epoch_ns = None;
    let mut bytes = Vec::new();
    let mut failure = None;
    let mut flushed = Instant::now();
    let left =
        |duration: Option<Span>| duration.map_or(Duration::MAX, |span| span.to_std().saturating_sub(begin.elapsed()));
    let mut progress = Progress::new(reception.common, ["measure"]);
    while !stop.asked() && receiver.frames() < reception.count {
        if progress.is_due() {
            progress.say(0, receiver.so_far(progress.passed()));
        }
        let left = left(reception.duration);
        if left.is_zero() {
            break;
        }
        match ring.next(left.min(Duration::from_millis(100))) {
            Ok(None) => {}
            Ok(Some(batch)) => {
                for frame in &batch {
                    if receiver.frames() >= reception.count {
                        break;
                    }
                    let epoch = *epoch_ns.get_or_insert(frame.time_ns);
                    let start = Time::from_ps(frame.time_ns.saturating_sub(epoch) * units::PS_PER_NS);
                    receiver.record(start, FrameLen::of_captured(frame.link_len()));
                    receiver.record_stamp(frame.bytes, frame.time_ns);
                    flow.partial_checksums += u64::from(frame.partial_checksum);
                    flow.super_frames += u64::from(frame.original_len > longest);
                    if let Some(writer) = &mut writer {
                        bytes.clear();
                        frame.write_to(&mut bytes);
                        failure = writer.write(frame.time_ns, &bytes, frame.link_len()).err().map(Failure::new);
                    }
                    if failure.is_some() {
                        break;
                    }
                }
            }
            Err(error) => {
                failure = Some(Failure::new(error));
                break;
            }
        }
        if let Some(writer) = writer.as_mut().filter(|_| flushed.elapsed() >= Duration::from_secs(1)) {
            failure = failure.or(writer.flush().err().map(Failure::new));
            flushed = Instant::now();
        }
        if failure.is_some() {
            break;
        }
    }
    drop(progress);
    if let Some(writer) = &mut writer {
        failure = failure.or(writer.flush().err().map(Failure::new));
    }
    match ring.counts() {
        Ok(counts) => flow.kernel_drops = counts.dropped,
        Err(error) => failure = failure.or(Some(Failure::new(error))),
    }
    if flow.super_frames + flow.partial_checksums > 0 {
        output::note(format!(
            "{} frames are longer than the MTU and {} have unfinished checksums: turn offloads off at the sender, ethtool -K DEVICE tx off tso off gso off gro off",
            flow.super_frames, flow.partial_checksums
        ));
    }
    let mut limits = Map::new();
    limits.insert(
        "clock".into(),
        json!("kernel receive stamps, 1 ns steps; a stamp is taken when the kernel has the frame"),
    );
    let partial = PipelineReport { flow: Some(flow), ..PipelineReport::default() };
    Ok(Outcome { reports: vec![partial], limits, failure })
}
