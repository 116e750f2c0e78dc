//! Report of a receiver between two instants.

use super::advice::{self, Advice};
use super::interface::InterfaceCounters;
use super::kernel::{Protocols, Softnet};
use super::settings::{InterfaceSettings, Settings};
use super::{Snapshot, grown};
use serde::Serialize;
use std::collections::BTreeMap;

/// Where a frame can be lost, in order of its way into the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LossPoint {
    /// The frame arrived broken.
    Wire,
    /// The NIC had no free descriptor, or no space in its own memory.
    Ring,
    /// Not a loss point: advice about the distribution of frames over queues and CPUs.
    Queue,
    /// A CPU's backlog was full.
    Softnet,
    /// Other drops of the interface: the part of `rx_dropped` that softnet and ring do not explain.
    Interface,
    /// IP or UDP refused it: another host's address, no such port, a wrong checksum.
    Protocol,
    /// The socket's buffer was full.
    Socket,
}

impl LossPoint {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LossPoint::Wire => "wire",
            LossPoint::Ring => "ring",
            LossPoint::Queue => "queue",
            LossPoint::Softnet => "softnet",
            LossPoint::Interface => "interface",
            LossPoint::Protocol => "protocol",
            LossPoint::Socket => "socket",
        }
    }
}

/// Frames lost by loss point; `None` if there is no counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossCounts {
    /// Broken frames of the watched interfaces.
    pub wire: Option<u64>,
    /// At the rings of the watched interfaces. Drivers count one frame under several names; this is the largest
    /// counter, so a lower bound.
    pub ring: Option<u64>,
    /// At the backlogs of all CPUs, over all interfaces of the machine.
    pub softnet: Option<u64>,
    /// `rx_dropped` of the watched interfaces, minus softnet and ring.
    pub interface: Option<u64>,
    /// By IP and UDP in this network namespace.
    pub protocol: Option<u64>,
    /// At sockets of this network namespace: UDP datagrams and TCP segments.
    pub socket: Option<u64>,
}

impl LossCounts {
    /// Each loss point with its loss, in order of a frame's path.
    #[must_use]
    pub fn places(&self) -> [(LossPoint, Option<u64>); 6] {
        [
            (LossPoint::Wire, self.wire),
            (LossPoint::Ring, self.ring),
            (LossPoint::Softnet, self.softnet),
            (LossPoint::Interface, self.interface),
            (LossPoint::Protocol, self.protocol),
            (LossPoint::Socket, self.socket),
        ]
    }
}

/// A loss counter with its original name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropCounter {
    /// The loss point.
    pub place: LossPoint,
    /// Name of the counter in the driver or kernel.
    pub counter: String,
    /// Its increase.
    pub frames: u64,
}

/// Frames of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// The queue number.
    pub queue: usize,
    /// Number of frames.
    pub frames: u64,
}

/// The receive ring, in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RingSize {
    /// Current size.
    pub now: u64,
    /// Maximum size.
    pub max: Option<u64>,
}

/// Report of an interface.
#[derive(Clone, Debug, Serialize)]
pub struct InterfaceReport {
    /// The name.
    pub name: String,
    /// Frames that the driver passed to the kernel.
    pub frames: u64,
    /// Bytes: the driver's count plus 4 per frame for the FCS.
    pub bytes: u64,
    /// Frames per second.
    pub fps: f64,
    /// Bits per second of frames with FCS.
    pub bps: f64,
    /// The receive ring.
    pub ring: Option<RingSize>,
    /// Frames per receive queue, if the driver counts them.
    pub queues: Option<Vec<Queue>>,
    /// Interrupts of the receive queues, if their names identify them.
    pub interrupts: Option<BTreeMap<String, u64>>,
    /// All loss counters, including those without an increase.
    pub drops: Vec<DropCounter>,
    /// Times that the NIC found no descriptor, and held the frame.
    pub no_buffer: Option<u64>,
    /// Settings.
    pub settings: InterfaceSettings,
}

impl InterfaceReport {
    /// The largest loss counter of a loss point; `None` if there is none.
    pub(super) fn lost(&self, place: LossPoint) -> Option<u64> {
        self.drops.iter().filter(|drop| drop.place == place).map(|drop| drop.frames).max()
    }
}

/// Report of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// The CPU number.
    pub cpu: usize,
    /// Frames processed, of all interfaces.
    pub processed: Option<u64>,
    /// Frames that found the backlog full.
    pub dropped: Option<u64>,
    /// Times that it stopped with work left.
    pub time_squeeze: Option<u64>,
    /// Wake-ups by another CPU through RPS.
    pub received_rps: Option<u64>,
    /// The part of `dropped` that was dropped in favour of smaller flows.
    pub flow_limit: Option<u64>,
    /// Runs of the NET_RX softirq.
    pub net_rx: Option<u64>,
    /// Share of time that it was not idle.
    pub busy_ratio: Option<f64>,
    /// Share of time in hard and soft interrupts.
    pub interrupts_ratio: Option<f64>,
}

/// A UDP socket that lost datagrams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SocketReport {
    /// The local address and port.
    pub local: String,
    /// Datagrams dropped because the buffer was full.
    pub drops: u64,
    /// Size of the buffer in bytes, including the kernel's overhead.
    pub buffer_bytes: Option<u64>,
    /// The owning program.
    pub program: Option<String>,
}

/// Report of a receiver.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Duration of the observation in s.
    pub observed_s: f64,
    /// The interfaces.
    pub interfaces: Vec<InterfaceReport>,
    /// Frames lost by loss point.
    pub lost: LossCounts,
    /// The CPUs.
    pub cpus: Vec<Cpu>,
    /// Protocol counters that increased, such as `Udp.InDatagrams`.
    pub protocols: Option<BTreeMap<String, u64>>,
    /// UDP sockets that lost datagrams, worst first.
    pub sockets: Option<Vec<SocketReport>>,
    /// The kernel's limits.
    pub settings: Settings,
    /// Advice, in order of a frame's path.
    pub advice: Vec<Advice>,
}

impl HostReport {
    /// The report between two snapshots that are `seconds` apart.
    #[must_use]
    pub fn between(before: &Snapshot, after: &Snapshot, seconds: f64, settings: &Settings) -> HostReport {
        let interfaces = after.interfaces.iter().filter_map(|after| {
            let before = before.interfaces.iter().find(|before| before.name == after.name)?;
            let settings = settings.interfaces.get(&after.name).cloned().unwrap_or_default();
            Some(interface(before, after, seconds, settings))
        });
        let interfaces: Vec<InterfaceReport> = interfaces.collect();
        let cpus = cpus(before, after);
        let protocols = match (&before.protocols, &after.protocols) {
            (Some(before), Some(after)) => Some(protocols(before, after)),
            _ => None,
        };
        let mut report = HostReport {
            observed_s: seconds,
            lost: lost(&interfaces, &cpus, protocols.as_ref()),
            interfaces,
            cpus,
            protocols,
            sockets: sockets(before, after, settings),
            settings: settings.clone(),
            advice: Vec::new(),
        };
        report.advice = advice::advise(&report);
        report
    }

    /// Increase of a protocol counter; 0 if there is none.
    pub(super) fn protocol(&self, name: &str) -> u64 {
        self.protocols.as_ref().and_then(|protocols| protocols.get(name)).copied().unwrap_or(0)
    }

    /// The protocol's loss counters of a loss point that increased, by name.
    #[must_use]
    pub fn protocol_losses(&self, place: LossPoint) -> Vec<(&'static str, u64)> {
        let names: Vec<&'static str> = match place {
            LossPoint::Protocol => UNWANTED.to_vec(),
            LossPoint::Socket => UDP_FULL.iter().chain(&TCP_FULL).copied().collect(),
            _ => Vec::new(),
        };
        names.into_iter().map(|name| (name, self.protocol(name))).filter(|(_, count)| *count > 0).collect()
    }

    /// The CPU that processed most frames, if any did, and its share.
    pub(super) fn busiest(&self) -> Option<(&Cpu, f64)> {
        let all: u64 = self.cpus.iter().filter_map(|cpu| cpu.processed).sum();
        let cpu = self.cpus.iter().max_by_key(|cpu| cpu.processed)?;
        let share = cpu.processed.unwrap_or(0) as f64 / all as f64;
        (all > 0).then_some((cpu, share))
    }
}

fn interface(
    before: &InterfaceCounters,
    after: &InterfaceCounters,
    seconds: f64,
    settings: InterfaceSettings,
) -> InterfaceReport {
    let frames = after.frames().saturating_sub(before.frames());
    let bytes = after.bytes().saturating_sub(before.bytes());
    let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let mut drops = Vec::new();
    let mut note = |place, counter: &str, before: Option<u64>, after: u64| {
        drops.extend(grown(before, Some(after)).map(|frames| DropCounter {
            place,
            counter: counter.to_owned(),
            frames,
        }));
    };
    // Only a NIC has a wire; veth has these files as well.
    let earlier: BTreeMap<String, u64> = before.wire().into_iter().collect();
    for (name, value) in after.wire() {
        if after.has_device || value > 0 {
            note(LossPoint::Wire, &name, earlier.get(&name).copied(), value);
        }
    }
    // A kernel counter that was zero before is absent from the earlier counters.
    let earlier = before.ring();
    for (name, value) in after.ring() {
        note(LossPoint::Ring, &name, Some(earlier.get(&name).copied().unwrap_or(0)), value);
    }
    if let Some(value) = after.statistics.get("rx_dropped") {
        note(LossPoint::Interface, "rx_dropped", before.statistics.get("rx_dropped").copied(), *value);
    }
    let signs = |of: &InterfaceCounters| of.signs().into_values().reduce(u64::saturating_add);
    InterfaceReport {
        name: after.name.clone(),
        frames,
        bytes,
        fps: per_second(frames as f64),
        bps: per_second(bytes as f64 * 8.0),
        ring: settings.ring.map(|now| RingSize { now, max: settings.ring_max }),
        queues: queues(before, after, frames),
        interrupts: interrupts(before, after),
        drops,
        no_buffer: grown(signs(before), signs(after)),
        settings,
    }
}

/// Frames per queue. `None` if the driver's counters cover less than half of the frames: veth and virtio count only
/// what passes an XDP program, and a driver may read hardware counters only once a second.
fn queues(before: &InterfaceCounters, after: &InterfaceCounters, frames: u64) -> Option<Vec<Queue>> {
    let earlier = before.queues();
    let took = |(queue, value): (&usize, &u64)| {
        grown(earlier.get(queue).copied(), Some(*value)).map(|frames| Queue { queue: *queue, frames })
    };
    let queues: Vec<Queue> = after.queues().iter().map(took).collect::<Option<_>>()?;
    let sum: u64 = queues.iter().map(|queue| queue.frames).fold(0, u64::saturating_add);
    (!queues.is_empty() && sum >= frames / 2).then_some(queues)
}

fn interrupts(before: &InterfaceCounters, after: &InterfaceCounters) -> Option<BTreeMap<String, u64>> {
    let sum = |counts: &BTreeMap<usize, u64>| counts.values().copied().fold(0, u64::saturating_add);
    let of = |(name, counts): (&String, &BTreeMap<usize, u64>)| {
        Some((name.clone(), grown(before.interrupts.get(name).map(sum), Some(sum(counts)))?))
    };
    let grown: BTreeMap<String, u64> = after.interrupts.iter().filter_map(of).collect();
    (!grown.is_empty()).then_some(grown)
}

fn cpus(before: &Snapshot, after: &Snapshot) -> Vec<Cpu> {
    let mut cpus: BTreeMap<usize, Cpu> = BTreeMap::new();
    let numbered = |cpu: usize| Cpu { cpu, ..Cpu::default() };
    if let (Some(earlier), Some(later)) = (&before.softnet, &after.softnet) {
        for now in later {
            let Some(then) = earlier.iter().find(|then| then.cpu == now.cpu) else { continue };
            // 32-bit counters that wrap: half a minute at 140 Mpps.
            let since = |of: fn(&Softnet) -> u32| Some(u64::from(of(now).wrapping_sub(of(then))));
            let both = |now: Option<u32>, then: Option<u32>| Some(u64::from(now?.wrapping_sub(then?)));
            let cpu = cpus.entry(now.cpu).or_insert_with(|| numbered(now.cpu));
            cpu.processed = since(|softnet| softnet.processed);
            cpu.dropped = since(|softnet| softnet.dropped);
            cpu.time_squeeze = since(|softnet| softnet.time_squeeze);
            cpu.received_rps = both(now.received_rps, then.received_rps);
            cpu.flow_limit = both(now.flow_limit, then.flow_limit);
        }
    }
    for (number, count) in after.net_rx.iter().flatten() {
        let earlier = before.net_rx.as_ref().and_then(|counts| counts.get(number)).copied();
        cpus.entry(*number).or_insert_with(|| numbered(*number)).net_rx = grown(earlier, Some(*count));
    }
    for (number, now) in after.times.iter().flatten() {
        let Some(then) = before.times.as_ref().and_then(|times| times.get(number)) else { continue };
        let total = now.total.saturating_sub(then.total);
        if total == 0 {
            continue;
        }
        let share = |now: u64, then: u64| now.saturating_sub(then) as f64 / total as f64;
        let cpu = cpus.entry(*number).or_insert_with(|| numbered(*number));
        cpu.busy_ratio = Some((1.0 - share(now.idle, then.idle)).clamp(0.0, 1.0));
        cpu.interrupts_ratio = Some(share(now.interrupts, then.interrupts).clamp(0.0, 1.0));
    }
    cpus.into_values().collect()
}

fn protocols(before: &Protocols, after: &Protocols) -> BTreeMap<String, u64> {
    let grown = |(name, value): (&String, &u64)| {
        let since = value.checked_sub(before.get(name).copied().unwrap_or(0))?;
        (since > 0).then(|| (name.clone(), since))
    };
    after.iter().filter_map(grown).collect()
}

fn sockets(before: &Snapshot, after: &Snapshot, settings: &Settings) -> Option<Vec<SocketReport>> {
    let earlier: BTreeMap<u64, u64> =
        before.sockets.as_ref()?.iter().map(|socket| (socket.inode, socket.drops)).collect();
    let mut losers: Vec<SocketReport> = after
        .sockets
        .as_ref()?
        .iter()
        .filter_map(|socket| {
            let drops = socket.drops.checked_sub(earlier.get(&socket.inode).copied().unwrap_or(0))?;
            let owner = settings.owners.get(&socket.inode).cloned().unwrap_or_default();
            let local = socket.local.to_string();
            (drops > 0).then_some(SocketReport { local, drops, buffer_bytes: owner.buffer, program: owner.program })
        })
        .collect();
    losers.sort_by_key(|socket| std::cmp::Reverse(socket.drops));
    Some(losers)
}

/// Frames refused by IP and UDP. Broken headers include wrong IP checksums; full sockets are not included.
pub(super) const UNWANTED: [&str; 14] = [
    "Ip.InHdrErrors", "Ip.InAddrErrors", "Ip.InUnknownProtos", "Ip.InDiscards", "IpExt.InNoRoutes",
    "IpExt.InTruncatedPkts", "TcpExt.IPReversePathFilter", "Udp.NoPorts", "Udp.InCsumErrors", "Ip6InHdrErrors",
    "Ip6InAddrErrors", "Ip6InDiscards", "Udp6NoPorts", "Udp6InCsumErrors",
];

/// Frames that found a UDP socket, or the memory of all sockets, full.
pub(super) const UDP_FULL: [&str; 4] = ["Udp.RcvbufErrors", "Udp.MemErrors", "Udp6RcvbufErrors", "Udp6MemErrors"];

/// Frames that found a TCP socket full.
pub(super) const TCP_FULL: [&str; 5] = [
    "TcpExt.TCPBacklogDrop", "TcpExt.TCPRcvQDrop", "TcpExt.TCPOFODrop", "TcpExt.TCPZeroWindowDrop",
    "TcpExt.ListenDrops",
];

fn lost(interfaces: &[InterfaceReport], cpus: &[Cpu], protocols: Option<&BTreeMap<String, u64>>) -> LossCounts {
    let sum = |place| interfaces.iter().filter_map(|of| of.lost(place)).reduce(u64::saturating_add);
    let softnet = cpus.iter().filter_map(|cpu| cpu.dropped).reduce(u64::saturating_add);
    let ring = sum(LossPoint::Ring);
    let protocol = |names: &[&str]| {
        let counters = protocols?;
        Some(names.iter().filter_map(|name| counters.get(*name)).copied().fold(0, u64::saturating_add))
    };
    // The kernel also counts a full backlog at the interface, and some drivers count the ring there.
    let explained = softnet.unwrap_or(0).saturating_add(ring.unwrap_or(0));
    LossCounts {
        wire: sum(LossPoint::Wire),
        ring,
        softnet,
        interface: sum(LossPoint::Interface).map(|dropped| dropped.saturating_sub(explained)),
        protocol: protocol(&UNWANTED),
        socket: protocol(&[UDP_FULL.as_slice(), TCP_FULL.as_slice()].concat()),
    }
}
