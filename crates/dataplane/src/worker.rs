use crate::Error;
use crate::answers::Answers;
use crate::back::{Back, BackStages};
use crate::config::{Config, Feed, Pacing};
use crate::counters::Counters;
use crate::deadline::DeadlinePacer;
use crate::device::{Device, Opened};
use crate::filler::{self, FillerPacer, Settings};
use crate::fillers::{self, Fillers};
use crate::flood::{self, Flood};
use crate::intake::{Intake, tell_waits};
use crate::launch::Launch;
use crate::line::{self, LineEnd, OnLine};
use crate::maker::Maker;
use crate::neighbour;
use crate::outlet::Outlet;
use crate::placement::Placement;
use crate::pools::{SHALLOW_POOL, Size, slots};
use crate::replay;
use crate::rounds::Ends;
use crate::slices;
use dpdk::{
    Detour, Eal, Kept, LaunchField, LaunchTime, Mbuf, Pool, Port, PortInterface, PortStats, RxQueue, TscClock, TxQueue,
};
use engine::Pipeline;
use engine::filler::FillerPlanner;
use engine::slices::Passing;
use engine::sources::Host;
use measure::{AnswersReport, DepartureMeter, LineReport, PipelineReport};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use packet::Asker;
use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;
use units::FrameLen;

/// What came of a run.
pub struct Finished {
    /// The figures.
    pub report: PipelineReport,
    /// The input, if it is a port, and the output: its driver and what it lost before we saw it.
    pub ports: Vec<PortSummary>,
    /// The NIC let frames go at their time.
    pub launched: bool,
    /// The thread that makes departures ran before others when it woke, see [`dpdk::wake_first`].
    pub raised: bool,
    /// The frames that a line listed, if it was to.
    pub listed: Vec<OnLine>,
    /// What ended a supply before its end.
    pub failure: Option<String>,
}

/// A port as it was used.
#[derive(Clone, Debug)]
pub struct PortSummary {
    /// DPDK's driver.
    pub driver: String,
    /// Frames that the driver says it missed.
    pub rx_missed: u64,
    /// Times that a frame came while no buffer was free.
    pub rx_no_buffer: u64,
    /// Frames whose checksum their sender had left to a device, and that was filled in here.
    pub rx_completed: u64,
    /// Somebody has taken off its XDP program, without which it receives nothing.
    pub cut_off: bool,
}

/// In this time the kernel has seen that a receiver is busy, and gives the sender another CPU.
const SETTLE: Duration = Duration::from_millis(20);
/// Frames up to this length, without FCS, are laid in their buffers once and for all.
const LONGEST_LAID: usize = 9_600;
/// One pipeline over live ports, on one thread or in parts on several.
pub struct Worker {
    config: Config,
    pipeline: Pipeline<Mbuf>,
    back: Option<BackStages>,
    pool: Pool,
    fillers: Option<Fillers>,
    limit: u64,
    /// The input port and its queues; none for a stream.
    input: Option<Opened>,
    output: Opened,
    /// Leads an interface's frames through them.
    detour: Option<Detour>,
    /// What came while neighbours were asked for, and was answered.
    heard: AnswersReport,
}

/// Frames that come from no port.
enum Own {
    /// They do.
    None,
    /// They are made.
    Made(Maker),
    /// They are all there, and so many are to be sent.
    Kept(Vec<Kept>, u64),
}

impl Worker {
    /// Opens the ports. Nothing is sent yet, but what arrives from now on is received.
    ///
    /// # Errors
    /// A port that cannot be opened, with what to do about it.
    pub fn open(
        eal: &'static Eal,
        config: Config,
        pipeline: Pipeline<Mbuf>,
        back: Option<(String, Pipeline<Mbuf>)>,
    ) -> Result<Self, Error> {
        // Of a NIC the MTU is ours to set: to what fillers need.
        let mtu_of_nic = match config.pacing {
            Pacing::Filler { longest, .. } if longest > FrameLen::MAX_STANDARD => Some(longest.bytes() as u16 - 18),
            _ => None,
        };
        let mtu_out = match (&config.output, mtu_of_nic) {
            (Device::Pci(_), Some(mtu)) => mtu.into(),
            (output, _) => output.mtu()?,
        };
        let mtu = match &config.feed {
            Feed::Device(device) => device.mtu()?.max(mtu_out),
            Feed::Stream(..) | Feed::Replay { .. } => mtu_out,
        };
        let Size { frames, reserve, data_room } = Size::new(&config, mtu);
        // A power of two less one suits DPDK's ring best.
        let pool = Pool::new(eal, &config.name, frames - 1, data_room)?;
        let mut input = match &config.feed {
            Feed::Device(device) => Some(device.open(eal, &pool, LaunchTime::Never, 1, true, None)?),
            Feed::Stream(..) | Feed::Replay { .. } => None,
        };
        let launch_time = match config.pacing {
            Pacing::Deadline(wanted) => wanted,
            _ => LaunchTime::Never,
        };
        let floods = config.pacing == Pacing::AsReady && pipeline.is_straight();
        let senders = match config.feed {
            Feed::Stream(..) if floods => config.cpus.len().min(usize::from(u16::MAX)) as u16,
            _ => 1,
        };
        let returns = input.is_some() && !config.one_way;
        let mut output = config.output.open(eal, &pool, launch_time, senders, returns, mtu_of_nic)?;
        let mut called = Vec::new();
        if config.probed || matches!(config.pacing, Pacing::Deadline(_)) {
            called.extend(&mut output.started.tx);
        }
        if config.probed {
            called.extend(input.iter_mut().flat_map(|input| &mut input.started.tx));
        }
        called.into_iter().try_for_each(TxQueue::send_by_calls)?;
        let fillers = match config.pacing {
            Pacing::Filler { kind, longest, .. } => {
                fillers::carries(&output.started, longest)?;
                Some(Fillers::new(eal, kind, slots(&config.output), longest)?)
            }
            _ => None,
        };
        // Both directions hold frames of one pool.
        let limit = u64::from(frames - reserve) / if back.is_some() { 2 } else { 1 };
        let back = back.map(|(name, pipeline)| BackStages { name, pipeline, window: config.window, limit });
        let detour = match (&config.on, &config.feed, &config.output) {
            (Some(on), Feed::Device(Device::Detour(host)), Device::Detour(wire)) => Some(Detour::open(on, host, wire)?),
            _ => None,
        };
        let heard = AnswersReport::default();
        Ok(Worker { config, pipeline, back, pool, fillers, limit, input, output, detour, heard })
    }

    /// The drivers of the input, if there is one, and of the output.
    #[must_use]
    pub fn drivers(&self) -> Vec<&str> {
        self.input.iter().chain([&self.output]).map(|opened| opened.driver.as_str()).collect()
    }

    /// The interfaces behind the ports, for whoever looks after them while it runs.
    pub fn interfaces(&self) -> impl Iterator<Item = PortInterface> {
        self.input.iter().chain([&self.output]).filter_map(|opened| opened.started.port.interface())
    }

    /// Asks for the hardware address of a neighbour on the output's link, and sends the streams there that say
    /// no destination themselves: by ARP or neighbour discovery, once for each VLAN that they are in. Those who
    /// ask in the meantime are answered. Gives whether any stream is of the neighbour's version of IP.
    ///
    /// # Errors
    /// [`Error::Nobody`] if there is no answer.
    pub fn aim(&mut self, neighbour: IpAddr, stop: &AtomicBool) -> Result<bool, Error> {
        let Feed::Stream(streams, _) = &mut self.config.feed else { return Ok(false) };
        let hosts: Vec<Host> = streams.hosts().cloned().collect();
        let mut askers: Vec<Asker> = Vec::new();
        for host in hosts.iter().filter(|host| !host.aimed && host.v6 == neighbour.is_ipv6()) {
            let asker = host.asker();
            if !askers.iter().any(|known| known.vlans == asker.vlans) {
                askers.push(asker);
            }
        }
        for asker in &askers {
            let port = &mut self.output.started;
            let met = neighbour::meet(port, &self.pool, &hosts, asker, neighbour, stop, &mut self.heard)?;
            let Some(mac) = met else { break };
            let Feed::Stream(streams, _) = &mut self.config.feed else { return Ok(false) };
            streams.aim(mac, |host| host.v6 == neighbour.is_ipv6() && host.asker().vlans == asker.vlans);
        }
        Ok(!askers.is_empty())
    }

    /// Runs until `stop` is set, the time is up or the stream has ended. `counters` tell how far it is.
    ///
    /// # Errors
    /// The thread cannot be registered with DPDK.
    pub fn run(self, eal: &'static Eal, stop: &AtomicBool, counters: &Counters) -> Result<Finished, Error> {
        let _registered = eal.register_thread()?;
        let clock = TscClock::new(eal);
        let Worker {
            mut config,
            mut pipeline,
            back: mut back_stages,
            pool,
            fillers,
            limit,
            input,
            output,
            detour,
            heard,
        } = self;
        let (cpus, line_cpu) = config.cpus_of_parts();
        pin(cpus.first())?;
        if pipeline.is_slicing() {
            let (clock, cost) = slices::reading(clock);
            // With fillers the time of a frame is its place on the line, which the schedule reckons with.
            if !matches!(config.pacing, Pacing::Filler { .. }) {
                pipeline.slice_by(&clock, cost);
            }
            if let Some(back) = &mut back_stages {
                back.pipeline.slice_by(&clock, cost);
            }
        }
        let floods = config.pacing == Pacing::AsReady && pipeline.is_straight();
        let own = own(eal, &mut config, &pool, &output, &pipeline)?;
        let mut ports = Vec::new();
        let mut queues = |opened: Opened| -> (Vec<RxQueue>, Vec<TxQueue>) {
            let Opened { started, driver } = opened;
            ports.push((started.port, driver));
            (started.rx, started.tx)
        };
        let (mut input_rx, input_tx) = input.map_or_else(Default::default, &mut queues);
        let launch = launch(eal, &clock, &config, &output.started.port)?;
        let launched = launch.is_some();
        let has_neighbours = config.output.has_neighbours(&output.driver);
        let (mut output_rx, mut output_tx) = queues(output);
        let made = !matches!(config.feed, Feed::Device(_));
        // On a port that frames may arrive at, the generator is a neighbour of whoever is there.
        let answers = match &config.feed {
            Feed::Stream(streams, _) if has_neighbours => {
                let hosts: Vec<_> = streams.hosts().cloned().collect();
                (!hosts.is_empty()).then(|| Answers::new(std::mem::take(&mut output_rx), hosts, heard))
            }
            _ => None,
        };
        let stamps = matches!(&own, Own::Made(maker) if maker.streams().stamped()).then(|| clock.wall_at_zero());
        let longest = output_tx.first().map_or(0, TxQueue::max_frame);
        let maker = match own {
            Own::Made(maker) if floods && maker.streams().longest() <= longest.min(usize::from(pool.data_room())) => {
                let passing = pipeline.is_slicing().then(|| pipeline.passing());
                let report = flood(eal, &config, (maker, passing), (output_tx, answers), clock, stop, counters)?;
                return Ok(finished(report, config.name, ports));
            }
            Own::Kept(frames, count) => {
                let ends = Ends { duration: config.duration, stop };
                let meter = pipeline.meter(None, None, config.window);
                let passing = pipeline.is_slicing().then(|| pipeline.passing());
                let flood = Flood::new(output_tx.swap_remove(0), clock, ends, counters, meter).following(passing);
                let report = flood.of_kept(&frames, count);
                return Ok(finished(report, config.name, ports));
            }
            Own::Made(maker) => Some(maker),
            Own::None => None,
        };
        let mut reader = None;
        let intake = match config.feed {
            Feed::Device(_) => {
                if !pipeline.leaves_frames() || pipeline.is_slicing() {
                    let tells = tell_waits(&mut input_rx);
                    pipeline.slice_from_port(tells);
                }
                Intake::of_port(input_rx, limit, clock)
            }
            Feed::Stream(..) => Intake::of_stream(maker.expect("made when the ports were opened"), limit),
            Feed::Replay { supply, ahead, .. } => {
                let (read, ring) = rtrb::RingBuffer::new((limit / 2) as usize);
                reader = Some(replay::read(eal, supply, pool, read));
                Intake::of_replay(ring, ahead)
            }
        };
        let line = match config.pacing {
            Pacing::Filler { line, .. } => Some(line),
            _ => None,
        };
        let byte_time = line.map(|line| line.byte_time());
        let meter = pipeline.meter(config.asked_gap, byte_time, config.window);
        let ends = Ends { duration: config.duration, stop };
        let back = match input_tx.into_iter().next() {
            Some(tx) if !config.one_way && config.output.gives() => {
                if let Some(back) = &mut back_stages {
                    let tells = tell_waits(&mut output_rx);
                    back.pipeline.slice_from_port(tells);
                }
                Some(Back::new(std::mem::take(&mut output_rx), tx, back_stages, clock))
            }
            _ => None,
        };
        let (mut listed, mut far_end) = (Vec::new(), None);
        let mut raised = false;
        let placement = Placement { eal, clock, ends, counters, cpus: &cpus, limit, made, window: config.window };
        let mut report = match config.pacing {
            Pacing::AsReady | Pacing::Deadline(_) => {
                let paced = config.pacing != Pacing::AsReady;
                let outlet = Outlet::new(output_tx, launch).stamping(stamps).slicing(pipeline.slice_clock());
                placement.run(pipeline, intake, meter, back, |rounds, back| {
                    DeadlinePacer::new(outlet, back, paced).answering(answers).run(rounds)
                })?
            }
            Pacing::Filler { line, align, unbounded, .. } => {
                let tx = output_tx.swap_remove(0);
                let fillers = fillers.expect("made when the ports were opened");
                let slots = config.output.slots().unwrap_or(u32::from(tx.descriptors()));
                // It sleeps while a long queue is full. The threads of parts would inherit it, and they spin.
                raised = made && cpus.len() < 2 && slots >= filler::NIC_SLOTS && dpdk::wake_first();
                let mut settings = Settings {
                    planner: FillerPlanner::new(line, align),
                    slots: slots as usize,
                    bounded: !unbounded,
                    line: None,
                };
                match &config.output {
                    Device::Line { list, keep_fillers, .. } => {
                        let (near_end, far_side) = line::ends(slots as usize);
                        settings.line = Some(near_end);
                        let rx = output_rx.into_iter().next().expect("a ring has a way out");
                        let end = LineEnd::new(rx, line, slots, far_side, *list, *keep_fillers);
                        let pacer = FillerPacer::new(tx, fillers, settings).stamping(stamps);
                        let near = || placement.run(pipeline, intake, meter, None, |rounds, _| pacer.run(rounds, None));
                        let (report, (line, frames)) = with_far_end(eal, end, &clock, line_cpu.as_ref(), near)?;
                        (listed, far_end) = (frames, Some(line));
                        report?
                    }
                    _ => {
                        let pacer = FillerPacer::new(tx, fillers, settings).stamping(stamps);
                        placement.run(pipeline, intake, meter, back, |rounds, back| pacer.run(rounds, back))?
                    }
                }
            }
        };
        // From here on the interface's frames go their own way again.
        drop(detour);
        if let Some(line) = far_end {
            // It knows; from the near end an underrun can only be inferred.
            report.underruns = Some(line.underruns);
            report.line = Some(line);
        }
        // The intake is gone, and with it the reason to read on.
        let failure = match reader.map(thread::JoinHandle::join) {
            Some(Ok(failure)) => failure,
            Some(Err(_)) => return Err(Error::Worker("the reader of a capture".to_owned())),
            None => None,
        };
        Ok(Finished { launched, raised, listed, failure, ..finished(report, config.name, ports) })
    }
}

/// What came of a run of the pipeline `name` over these ports.
fn finished(report: PipelineReport, name: String, ports: Vec<(Port, String)>) -> Finished {
    let ports = ports.into_iter().map(|(port, driver)| summary(&port, driver)).collect();
    let report = PipelineReport { name, ..report };
    Finished { report, ports, launched: false, raised: false, listed: Vec::new(), failure: None }
}

/// Takes what the feed gives that is no port, and makes ready what can be.
fn own(eal: &Eal, config: &mut Config, pool: &Pool, output: &Opened, pipeline: &Pipeline<Mbuf>) -> Result<Own, Error> {
    let longest = output.started.tx.first().map_or(0, TxQueue::max_frame);
    // What a stage changed would be changed in every frame that has its buffer later.
    let leaves = config.output.leaves_frames(&output.driver) && pipeline.leaves_frames();
    let floods = config.pacing == Pacing::AsReady && pipeline.is_straight();
    match &mut config.feed {
        Feed::Stream(streams, count) => {
            let maker = |pool: Pool| Maker::new(streams.clone(), *count, pool);
            let own = match streams.even().filter(|length| leaves && *length <= longest.min(LONGEST_LAID)) {
                None => maker(pool.clone()),
                // Nothing is ever received into the buffers of a line's pool.
                Some(_) if config.output.slots().is_some() => maker(pool.clone()).lay(),
                Some(length) => maker(Pool::new(eal, "made", SHALLOW_POOL - 1, length as u16)?).lay(),
            };
            Ok(Own::Made(own))
        }
        Feed::Replay { whole, .. } if floods && leaves => {
            let whole = whole.take().unwrap_or_default();
            Ok(whole.load(eal, longest)?.map_or(Own::None, |(frames, count)| Own::Kept(frames, count)))
        }
        _ => Ok(Own::None),
    }
}

/// Sends what `maker` makes by all queues, each on a thread and a CPU of its own; one of them answers neighbours, and
/// follows frames if any are.
fn flood(
    eal: &'static Eal,
    config: &Config,
    (maker, mut passing): (Maker, Option<Passing>),
    (queues, answers): (Vec<TxQueue>, Option<Answers>),
    clock: TscClock,
    stop: &AtomicBool,
    counters: &Counters,
) -> Result<PipelineReport, Error> {
    let ends = Ends { duration: config.duration, stop };
    let makers = maker.deal(config.cpus.len().max(1))?;
    let there = Barrier::new(makers.len());
    let mut answers = answers;
    thread::scope(|scope| {
        let sending: Vec<_> = makers
            .into_iter()
            .zip(queues)
            .enumerate()
            .map(|(i, (maker, tx))| {
                let there = &there;
                // The first one listens.
                let (answers, passing) = (answers.take(), passing.take());
                scope.spawn(move || {
                    let registered = eal.register_thread();
                    let pinned = pin(config.cpus.get(i));
                    // All begin at once, or those that can.
                    there.wait();
                    let _registered = registered?;
                    pinned?;
                    let meter = DepartureMeter::new(None, None, config.window);
                    let flood = Flood::new(tx, clock, ends, counters, meter).answering(answers).following(passing);
                    Ok::<_, Error>(flood.of_made(maker, clock.wall_at_zero()))
                })
            })
            .collect();
        let reports =
            sending.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(Error::Worker(config.name.clone()))));
        Ok(flood::joined(reports.collect::<Result<_, _>>()?))
    })
}

/// How the NIC is told when frames are to depart, if that is wanted and possible.
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
    // A line is there before anything is sent on it.
    let there = Barrier::new(2);
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            let registered = eal.register_thread();
            let pinned = pin(cpu);
            there.wait();
            let _registered = registered?;
            pinned?;
            Ok::<_, Error>(end.run(clock))
        });
        there.wait();
        thread::sleep(SETTLE);
        let report = near();
        let far = far.join().map_err(|_| Error::Worker("the line".to_owned()))??;
        Ok((report, far))
    })
}

/// Keeps the calling thread on a CPU.
pub(crate) fn pin(cpu: Option<&usize>) -> Result<(), Error> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    let pinned = set.set(*cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|cause| Error::Cpu { cpu: *cpu, cause: cause.desc() })
}

fn summary(port: &Port, driver: String) -> PortSummary {
    // A driver that cannot tell has told nothing: the summary is an extra.
    let PortStats { rx_missed, rx_no_buffer, rx_completed, .. } = port.stats().unwrap_or_default();
    PortSummary { driver, rx_missed, rx_no_buffer, rx_completed, cut_off: port.is_cut_off() }
}
