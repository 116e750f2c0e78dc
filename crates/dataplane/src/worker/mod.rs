//! A pipeline over live ports: what is opened for it, and what comes of its run.

mod run;

use crate::Error;
use crate::back::BackStages;
use crate::config::{Config, Feed, Pacing};
use crate::device::{Device, Opened, Reads};
use crate::fillers::{self, Fillers};
use crate::line::OnLine;
use crate::neighbour;
use crate::pools::{Size, slots};
use dpdk::{Burst, Detour, Eal, LaunchTime, Mbuf, Passed, Pool, PortInterface, TxQueue};
use engine::Pipeline;
use engine::sources::{Host, Target};
use measure::{AnswersReport, PipelineReport};
use packet::{Asker, Frame as _, HeapFrame};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use units::FrameLen;

pub(crate) use run::{Run, pin};

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
    /// Frames of an interface that went their own way while this process carried nothing.
    pub passed: Option<Passed>,
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
        let input = match &config.feed {
            Feed::Device(device) => Some(device.open(eal, &pool, LaunchTime::Never, 1, Reads::All, None)?),
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
        let reads = match config.feed {
            // Neighbours may ask a generator who it is.
            Feed::Stream(..) => Reads::Some,
            Feed::Device(_) if !config.one_way => Reads::All,
            Feed::Device(_) | Feed::Replay { .. } => Reads::Nothing,
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

    /// Where the frames of its streams go.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let Feed::Stream(streams, _) = &self.config.feed else { return Vec::new() };
        streams.targets().cloned().collect()
    }

    /// Sends learning frames (RFC 2544, 23): the first frames of its streams, up to one for each address that they go
    /// to, whose stamps have no time. Routers then find the hardware addresses that they will need. Gives how many.
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
            // What the driver does not take is not offered again: these are frames to learn from.
            sent += tx.send(&mut sending) as u32;
            sending.clear();
        }
        Ok(sent)
    }
}
