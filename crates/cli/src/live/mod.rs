//! Runs pipelines whose ports are live, and receives from interfaces.

mod capture;
mod cores;
mod progress;
mod receive;

use crate::assemble;
use crate::decisions::DecisionFile;
use crate::execute::{Arrivals, Outcome, Request};
use crate::far_end::{self, FarEnd};
use crate::limits::{self, Reload};
use crate::on::On;
use crate::output::{self, Failure};
use crate::ready;
use crate::resolution;
use crate::stop::Stop;
use crate::watched::{self, Watched};
use capture::{FromCapture, Records, whole};
use dataplane::{Config, Counters, Device, Driver, Feed, Finished, Floor, LaunchTime, OnLine, Pacing, Worker};
use dataplane::{has_threads, limit_stage};
use dpdk::{Eal, EalConfig, LogLevel, Mbuf, TscClock};
use engine::Pipeline;
use engine::schedules::{Ask, Draw};
use engine::sources::Streams;
use engine::stages::StageConfig;
use measure::{DropReason, PipelineReport};
use scenario::{BackPlan, FillerSpec, LineSpec, Pacer, PipelinePlan, PortSpec, SourcePlan};
use serde_json::{Map, Value, json};
use sim::{FrameList, SimError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use units::Span;

pub(crate) use receive::receive;

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
    let behind = cores::place(&mut configs, request)?;
    let mut lists = request.pipelines.iter().map(list).collect::<Result<Vec<_>, _>>()?;
    let eal = start_dpdk(request, &configs)?;
    // Before the ports are open: nothing has to wait for it.
    let floors = floors(eal, &configs)?;
    let carriers = watched::with_carrier(&configs);
    let mut workers = Vec::new();
    let mut logs = Vec::new();
    for ((plan, config), cpus) in request.pipelines.iter().zip(configs).zip(&behind) {
        workers.push(open(eal, plan, config, cpus, request, &mut logs, &stop.flag())?);
    }
    let far_end = receiver.map(|arrivals| FarEnd::open(&arrivals.port, arrivals.wait.to_std())).transpose()?;
    let counters: Vec<Counters> = workers.iter().map(|_| Counters::default()).collect();
    let flag = stop.flag();
    let mut watched = Watched::of(request, receiver, &workers, carriers);
    let mut told = false;
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
            progress::show(request, &counters, || {
                reload.if_asked(request);
                if watched.has_lost_one() {
                    stop.ask();
                }
                // In this order: of a run that has ended already, all that it did is seen.
                let ended = handles.iter().all(thread::ScopedJoinHandle::is_finished);
                let running = || counters.iter().all(|counters| counters.running.load(Ordering::Relaxed));
                if !told && running() && (ended || watched.has_carriers()) {
                    ready::tell(&request.common);
                    told = true;
                }
                ended
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
        if port.rx_missed + port.rx_no_buffer > 0 {
            output::note(format!(
                "{name} lost {} frames in its ring before they were counted as in, and had no buffer {} times it looked",
                port.rx_missed, port.rx_no_buffer
            ));
        }
        if port.rx_completed > 0 {
            output::note(format!(
                "{name} got {} frames with unfinished checksums, and completed them: a sender on this machine leaves them to its device; ethtool -K DEVICE tx off there, and they come as on a wire",
                output::thousands(port.rx_completed)
            ));
        }
        if port.cut_off {
            output::note(format!(
                "{name} had its XDP program taken off or replaced during the run: what arrived since was not received; run it again, or write driver=af_packet"
            ));
        }
        ports.insert(
            name,
            json!({
                "driver": port.driver,
                "rx_missed": port.rx_missed,
                "rx_no_buffer": port.rx_no_buffer,
                "rx_completed": port.rx_completed,
            }),
        );
    }
    let mut report = finished.report;
    if let SourcePlan::Port(PortSpec::Interface { name, .. }) = &plan.source {
        say_what_was_too_long(name, &report);
    }
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

/// Segments that a sender on this machine leaves together for its device come as one frame of up to 64 KiB.
fn say_what_was_too_long(interface: &str, report: &PipelineReport) {
    if let Some((_, frames)) = report.drops.iter().find(|(reason, _)| *reason == DropReason::TooLong) {
        output::note(format!(
            "{}: {} frames from {interface} were longer than the output can send: give both interfaces the MTU of the sender; if that is on this machine, turn its offloads off, too, ethtool -K DEVICE tx off tso off gso off gro off, or, up to an MTU of 2974, write driver=af_xdp, for which veth does so by itself",
            report.name,
            output::thousands(frames)
        ));
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
            let source = assemble::open_replay(replay).map_err(Failure::new)?;
            let no_stages = plan.stages.is_empty() && plan.classes.iter().all(|class| class.stages.is_empty());
            // What is no file (a pipe) can be read once only.
            let fits = plan.asks_nothing() && replay.path.is_file();
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

fn open(
    eal: &'static Eal,
    plan: &PipelinePlan,
    config: Config,
    meter_cpus: &[usize],
    request: &Request,
    logs: &mut Vec<DecisionFile>,
    stop: &AtomicBool,
) -> Result<Worker, Failure> {
    let frames = assemble::frames(plan)?;
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
