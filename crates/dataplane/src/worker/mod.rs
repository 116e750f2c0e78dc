//! A worker: a pipeline over live ports, from opening them to the results of the run.

mod run;

use crate::Error;
use crate::changes::ChangeReceiver;
use crate::config::{Config, Feed, Pacing};
use crate::device::{Device, Opened, ReceiveMode};
use crate::fillers::{self, Fillers};
use crate::line::OnLine;
use crate::neighbour;
use crate::pools::{Size, slots};
use crate::return_path::ReturnStages;
use dpdk::{Burst, Detour, Eal, LaunchTime, Mbuf, NicLink, Passed, Pool, PortInterface, TxQueue};
use engine::sources::{Destinations, Host};
use engine::{Path, Pipeline};
use measure::{AnswersReport, PipelineReport};
use packet::{Frame as _, HeapFrame, Requester};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use units::FrameLen;

pub use run::pin;
pub(crate) use run::{PartBeats, RunContext};

/// Results of a run.
pub struct Finished {
    /// The figures.
    pub report: PipelineReport,
    /// The inputs that are ports, and the output.
    pub ports: Vec<PortSummary>,
    /// The NIC timed the departures.
    pub launched: bool,
    /// The thread that carries out departures ran with raised priority, see [`dpdk::set_high_priority`].
    pub raised: bool,
    /// Frames listed by a line, if asked.
    pub listed: Vec<OnLine>,
    /// The error that ended a supply early.
    pub failure: Option<String>,
    /// Frames of a diverted interface that were not diverted, because this process carried no frames at that time.
    pub passed: Option<Passed>,
}

/// Summary of a port.
#[derive(Clone, Debug)]
pub struct PortSummary {
    /// The DPDK driver.
    pub driver: String,
    /// Frames that the driver reports as missed.
    pub rx_missed: u64,
    /// Times that a frame arrived while no buffer was free.
    pub rx_no_buffer: u64,
    /// Frames whose sender left the checksum to a device; it was computed here.
    pub rx_completed: u64,
    /// Another program removed the port's XDP program, without which the port receives nothing.
    pub cut_off: bool,
}

/// A pipeline over live ports, on one thread or in parts on several.
pub struct Worker {
    config: Config,
    pipeline: Pipeline<Mbuf>,
    back: Option<ReturnStages>,
    pool: Pool,
    /// The pipelines of the queues, if each CPU sends a share of the frames on its own queue.
    shares: Vec<Pipeline<Mbuf>>,
    fillers: Option<Fillers>,
    limit: u64,
    /// The input port and its queues; `None` if frames do not come from a port.
    input: Option<Opened>,
    /// Further inputs.
    more_inputs: Vec<Opened>,
    output: Opened,
    /// Diverts an interface's traffic through the ports.
    detour: Option<Detour>,
    /// Frames received and answered while neighbours were requested.
    answers_before_start: AnswersReport,
    /// Changes of the pipeline, if it takes any.
    changes: Option<ChangeReceiver>,
}

impl Worker {
    /// Opens the ports. Sends nothing yet, but receives from now on.
    ///
    /// # Errors
    /// A port that cannot be opened, with the remedy.
    pub fn open(
        eal: &'static Eal,
        config: Config,
        pipeline: Pipeline<Mbuf>,
        back: Option<(String, Pipeline<Mbuf>)>,
    ) -> Result<Self, Error> {
        // We set the MTU of a NIC bound to DPDK ourselves, as large as fillers need.
        let mtu_of_nic = match config.pacing {
            Pacing::Filler { longest, .. } if longest > FrameLen::MAX_STANDARD => Some(longest.bytes() as u16 - 18),
            _ => None,
        };
        let mtu_out = match (&config.output, mtu_of_nic) {
            (nic @ Device::Pci { .. }, Some(mtu)) => nic.mtu()?.max(mtu.into()),
            (output, _) => output.mtu()?,
        };
        let mtu = match &config.feed {
            Feed::Device(device) => config
                .more_inputs
                .iter()
                .try_fold(device.mtu()?.max(mtu_out), |most, more| Ok::<_, Error>(most.max(more.mtu()?)))?,
            Feed::Stream(..) | Feed::Replay { .. } => mtu_out,
        };
        let Size { frames, reserve, data_room } = Size::new(&config, mtu);
        // DPDK's pools use memory best if their size is a power of two minus one.
        let pool = Pool::new(eal, &config.name, frames - 1, data_room)?;
        let receive =
            |device: &Device| device.open(eal, &pool, LaunchTime::Never, 1, ReceiveMode::All { queues: 1 }, None);
        let input = match &config.feed {
            Feed::Device(device) => Some(receive(device)?),
            Feed::Stream(..) | Feed::Replay { .. } => None,
        };
        let more_inputs = config.more_inputs.iter().map(receive).collect::<Result<_, _>>()?;
        let shares = config.shares(&pipeline);
        let launch_time = match config.pacing {
            Pacing::Deadline(wanted) if shares.is_empty() => wanted,
            _ => LaunchTime::Never,
        };
        let floods = config.pacing == Pacing::AsReady && pipeline.path() == Path::Counted;
        let senders = match config.feed {
            Feed::Stream(..) if floods || !shares.is_empty() => config.cpus.len().min(usize::from(u16::MAX)) as u16,
            _ => 1,
        };
        let reads = match config.feed {
            // Neighbours may request a generator's MAC address.
            Feed::Stream(..) => ReceiveMode::Some,
            Feed::Device(_) if !config.one_way => ReceiveMode::All { queues: 1 },
            Feed::Device(_) | Feed::Replay { .. } => ReceiveMode::Nothing,
        };
        let mut output = config.output.open(eal, &pool, launch_time, senders, reads, mtu_of_nic)?;
        if matches!(config.pacing, Pacing::Deadline(_)) {
            output.started.tx.iter_mut().try_for_each(TxQueue::send_by_calls)?;
        }
        let fillers = match config.pacing {
            Pacing::Filler { kind, longest, .. } => {
                fillers::carries(&output.started, longest)?;
                Some(Fillers::new(eal, kind, slots(&config.output), longest)?)
            }
            _ => None,
        };
        // Both directions share the pool.
        let limit = u64::from(frames - reserve) / if back.is_some() { 2 } else { 1 };
        let back =
            back.map(|(name, pipeline)| ReturnStages { name, pipeline, window: config.window, limit, changes: None });
        let detour = match (&config.on, &config.feed, &config.output) {
            (Some(on), Feed::Device(Device::Detour(host)), Device::Detour(wire)) => Some(Detour::open(on, host, wire)?),
            _ => None,
        };
        let answers_before_start = AnswersReport::default();
        Ok(Worker {
            config,
            pipeline,
            back,
            pool,
            shares,
            fillers,
            limit,
            input,
            more_inputs,
            output,
            detour,
            answers_before_start,
            changes: None,
        })
    }

    /// Sets the source of changes during the run. They apply to the pipeline, which must [accept
    /// changes](Pipeline::changing), or with `back` to the stages of the return path.
    pub fn take_changes(&mut self, changes: ChangeReceiver, back: bool) {
        match &mut self.back {
            Some(stages) if back => stages.changes = Some(changes),
            _ => self.changes = Some(changes),
        }
    }

    /// All ports: the inputs that are ports, and the output.
    fn ports(&self) -> impl Iterator<Item = &Opened> {
        self.input.iter().chain(&self.more_inputs).chain([&self.output])
    }

    /// The drivers of the inputs that are ports, and of the output.
    #[must_use]
    pub fn drivers(&self) -> Vec<&str> {
        self.ports().map(|opened| opened.driver.as_str()).collect()
    }

    /// The interfaces behind the ports, for callers that monitor them during the run.
    pub fn interfaces(&self) -> impl Iterator<Item = PortInterface> {
        self.ports().filter_map(|opened| opened.started.port.interface())
    }

    /// The links of the NICs on PCI among the ports.
    pub fn nic_links(&self) -> impl Iterator<Item = NicLink> {
        self.ports().filter_map(|opened| opened.started.port.nic_link())
    }

    /// The link of the output, if it is a NIC on PCI.
    pub fn output_link(&self) -> Option<NicLink> {
        self.output.started.port.nic_link()
    }

    /// Requests the MAC address of a neighbour on the output's link, by ARP or neighbour discovery, once per VLAN of
    /// the streams. Streams that set no destination themselves are then sent there. Answers requests of others
    /// meanwhile. Returns whether any stream has the neighbour's IP version.
    ///
    /// # Errors
    /// [`Error::NoAnswer`] if no neighbour answers.
    pub fn aim(&mut self, neighbour: IpAddr, stop: &AtomicBool) -> Result<bool, Error> {
        let Feed::Stream(streams, _) = &mut self.config.feed else { return Ok(false) };
        let hosts: Vec<Host> = streams.hosts().cloned().collect();
        let mut requesters: Vec<Requester> = Vec::new();
        for host in hosts.iter().filter(|host| !host.aimed && host.v6 == neighbour.is_ipv6()) {
            let requester = host.requester();
            if !requesters.iter().any(|known| known.vlans == requester.vlans) {
                requesters.push(requester);
            }
        }
        for requester in &requesters {
            let port = &mut self.output.started;
            let met =
                neighbour::meet(port, &self.pool, &hosts, requester, neighbour, stop, &mut self.answers_before_start)?;
            let Some(mac) = met else { break };
            let Feed::Stream(streams, _) = &mut self.config.feed else { return Ok(false) };
            streams.aim(mac, |host| host.v6 == neighbour.is_ipv6() && host.requester().vlans == requester.vlans);
        }
        Ok(!requesters.is_empty())
    }

    /// The destinations of the streams.
    #[must_use]
    pub fn targets(&self) -> Vec<Destinations> {
        let Feed::Stream(streams, _) = &self.config.feed else { return Vec::new() };
        streams.targets().cloned().collect()
    }

    /// Sends learning frames (RFC 2544 section 23), so that routers learn the MAC addresses that they will need.
    /// Learning frames are the first frames of the streams, up to one per destination address. Their stamps have no
    /// time. Returns the number of frames sent.
    ///
    /// # Errors
    /// A frame that cannot be made.
    pub fn teach(&mut self, most: u32) -> Result<u32, Error> {
        let Feed::Stream(streams, _) = &self.config.feed else { return Ok(0) };
        let wanted = streams.targets().fold(0, |sum: u128, target| sum.saturating_add(target.count()));
        let mut streams = streams.clone();
        let (mut made, mut sent) = (HeapFrame::default(), 0);
        let mut sending = Burst::new();
        for _ in 0..wanted.min(most.into()) {
            streams.fill(&mut made);
            let mut frame = self.pool.alloc().ok_or_else(|| neighbour::no_buffer(&self.pool))?;
            frame.copy_from(made.bytes())?;
            let tx = &mut self.output.started.tx[0];
            if !tx.carries(&frame) {
                continue;
            }
            sending.push(frame).expect("there is room");
            // Frames that the driver does not take are not offered again, because losing some learning frames does no
            // harm.
            sent += tx.send(&mut sending) as u32;
            sending.clear();
        }
        Ok(sent)
    }
}
