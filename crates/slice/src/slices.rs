//! Converts stamps to slices. Each interval between two stamps has one name, so no time is counted twice or left out.

use crate::costs::Costs;
use crate::record::{Point, Record};
use serde::{Deserialize, Serialize};

const TCP: u8 = 6;

macro_rules! slices {
    ($($item:ident, $name:literal, $top:literal, $meaning:literal;)*) => {
        /// A section of a packet's path, in path order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Slice { $(#[doc = $meaning] $item,)* }
        impl Slice {
            /// All slices, in path order.
            pub const ALL: &[Slice] = &[$(Slice::$item),*];
            /// Its stable name.
            #[must_use]
            pub fn name(self) -> &'static str { match self { $(Slice::$item => $name),* } }
            /// Whether it is one of the slices that do not overlap and sum to the whole. The others are parts of these.
            #[must_use]
            pub fn top(self) -> bool { match self { $(Slice::$item => $top),* } }
            /// Where it starts and ends, in words.
            #[must_use]
            pub fn meaning(self) -> &'static str { match self { $(Slice::$item => $meaning),* } }
        }
    };
}

slices! {
    Syscall, "syscall", true, "entry of the send call to TCP's send function";
    TcpIp, "tcp-ip", true, "TCP's send function to the device's queue: copy from the application, TCP, IP";
    TcpSend, "tcp-send", false, "within tcp-ip: up to IP (where functions can be traced)";
    IpSend, "ip-send", false, "within tcp-ip: from IP on (where functions can be traced)";
    SyscallTcpIp, "syscall-tcp-ip", true, "entry of the send call to the device's queue (TCP, older kernels)";
    SyscallUdpIp, "syscall-udp-ip", true, "entry of the send call to the device's queue (UDP)";
    Link, "link", true, "the device's queue to its driver: queueing discipline";
    LinkDriver, "link-driver", true, "the device's queue to the receive path: queueing discipline, driver, softirq (few points)";
    Qdisc, "qdisc", false, "within link: the wait in the queueing discipline";
    Driver, "driver", true, "the driver, up to the receiver's queue or its return";
    Softirq, "receive-softirq", true, "the receiver's queue to the receive path: the wait for the softirq";
    Forward, "forward", true, "a bridge or router between: receive path to the next device's queue";
    IpTcpReceive, "ip-tcp-receive", true, "receive path to the socket: IP, TCP";
    IpUdpReceive, "ip-udp-receive", true, "receive path to the socket: IP, UDP";
    IpReceive, "ip-receive", false, "within ip-tcp-receive: up to TCP";
    TcpReceive, "tcp-receive", false, "within ip-tcp-receive: from TCP on";
    WakeUp, "wake-up", true, "the socket has data, to its reader: its copy begins, or the receive call it makes then";
    ReceiveCall, "receive-call", true, "entry of a receive call that began after the data arrived, to its copy";
    WakeUpCopy, "wake-up-copy", true, "the socket has data, to the end of its copy to the waiting reader (UDP)";
    ReceiveCopy, "receive-copy", true, "entry of a receive call that began after the data arrived, to the end of its copy (UDP)";
    Copy, "copy", true, "copy to the application";
    FirstPart, "first-part", true, "copy of the first part, of a packet that is read in parts";
    OtherParts, "other-parts", true, "end of the first part's copy to the end of the last part's: the program between its calls, too";
    SyscallExit, "syscall-exit", true, "end of the copy to the return of the receive call";
}

/// A slice of one frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) slice: Slice,
    /// The stamp that starts it.
    pub(crate) from: usize,
    /// Start after the first stamp, in ns, with nothing subtracted.
    pub(crate) start: u64,
    /// As stamped, in ns.
    pub(crate) raw: u64,
    /// Minus the cost of the probes, in ns; not below zero.
    pub(crate) net: f64,
}

/// The parts of a frame's path: adjacent, from the first stamp to the last.
pub(crate) fn parts(record: &Record, costs: &Costs) -> Vec<Part> {
    let stamps = &record.stamps;
    (1..stamps.len()).map(|n| part(record, costs, n - 1, n, top(record, n - 1))).collect()
}

/// Finer sections inside those of [`parts`].
pub(crate) fn details(record: &Record, costs: &Costs) -> Vec<Part> {
    let point = |n: usize| record.stamps[n].point;
    let detail = |n: usize| match (point(n - 1), point(n)) {
        (Point::TcpSend, Point::IpSend) => Some(Slice::TcpSend),
        (Point::IpSend, Point::Queue) => Some(Slice::IpSend),
        (Point::QdiscIn, Point::QdiscOut | Point::Transmit) => Some(Slice::Qdisc),
        (Point::Receive, Point::TcpReceive) => Some(Slice::IpReceive),
        (Point::TcpReceive, Point::Ready | Point::Copy | Point::ReceiveEnter) => Some(Slice::TcpReceive),
        _ => None,
    };
    (1..record.stamps.len()).filter_map(|n| Some(part(record, costs, n - 1, n, detail(n)?))).collect()
}

fn part(record: &Record, costs: &Costs, from: usize, to: usize, slice: Slice) -> Part {
    let stamps = &record.stamps;
    let raw = stamps[to].at.saturating_sub(stamps[from].at);
    let net = (raw as f64 - costs.between(record, from)).max(0.0);
    Part { slice, from, start: stamps[from].at.saturating_sub(stamps[0].at), raw, net }
}

/// The slice that starts at stamp `n`.
fn top(record: &Record, n: usize) -> Slice {
    let tcp = record.flow.protocol == TCP;
    let next = record.stamps[n + 1].point;
    match record.stamps[n].point {
        Point::SendEnter if next == Point::TcpSend => Slice::Syscall,
        Point::SendEnter if tcp => Slice::SyscallTcpIp,
        Point::SendEnter => Slice::SyscallUdpIp,
        Point::TcpSend | Point::IpSend => Slice::TcpIp,
        Point::Queue if matches!(next, Point::Receive) => Slice::LinkDriver,
        Point::Queue | Point::QdiscIn | Point::QdiscOut => Slice::Link,
        Point::Transmit => Slice::Driver,
        Point::TransmitDone | Point::Arrive => Slice::Softirq,
        Point::Receive | Point::TcpReceive => match next {
            Point::Queue => Slice::Forward,
            // A device on top of the device, such as a bridge port or a VLAN: the frame is received again.
            Point::Arrive | Point::Receive => Slice::Softirq,
            _ if tcp => Slice::IpTcpReceive,
            _ => Slice::IpUdpReceive,
        },
        Point::Ready if next == Point::Copied => Slice::WakeUpCopy,
        Point::Ready => Slice::WakeUp,
        Point::ReceiveEnter if next == Point::Copied => Slice::ReceiveCopy,
        Point::ReceiveEnter => Slice::ReceiveCall,
        // With few points there is no stamp at the end of a copy.
        Point::Copy if next == Point::Copy => Slice::OtherParts,
        Point::Copy if next == Point::Part => Slice::FirstPart,
        Point::Copy => Slice::Copy,
        Point::Part => Slice::OtherParts,
        Point::Copied | Point::ReceiveExit => Slice::SyscallExit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn names(record: &Record) -> Vec<&'static str> {
        parts(record, &Costs::default()).iter().map(|part| part.slice.name()).collect()
    }

    #[test]
    fn a_tcp_frame_over_loopback() {
        let way = [
            (Point::SendEnter, 100),
            (Point::TcpSend, 350),
            (Point::Queue, 1_400),
            (Point::Transmit, 1_500),
            (Point::Arrive, 1_700),
            (Point::Receive, 2_000),
            (Point::TcpReceive, 2_300),
            (Point::Ready, 2_900),
            (Point::Copy, 9_000),
            (Point::Copied, 9_100),
            (Point::ReceiveExit, 9_500),
        ];
        let record = record(&way);
        assert_eq!(
            names(&record),
            [
                "syscall", "tcp-ip", "link", "driver", "receive-softirq", "ip-tcp-receive", "ip-tcp-receive",
                "wake-up", "copy", "syscall-exit"
            ]
        );
        let all = parts(&record, &Costs::default());
        assert_eq!(all.iter().map(|part| part.raw).sum::<u64>(), record.whole(), "nothing is left out");
        assert!(all.windows(2).all(|pair| pair[0].start + pair[0].raw == pair[1].start), "nothing overlaps");
        let fine = details(&record, &Costs::default());
        assert_eq!(
            fine.iter().map(|part| (part.slice, part.raw)).collect::<Vec<_>>(),
            [(Slice::IpReceive, 300), (Slice::TcpReceive, 600)]
        );
    }

    #[test]
    fn a_packet_that_is_read_in_parts_ends_with_the_last() {
        let end = [(Point::Part, 150), (Point::Copied, 950), (Point::ReceiveExit, 1_000)];
        let all: Vec<_> = [(Point::Ready, 0), (Point::Copy, 100)].into_iter().chain(end).collect();
        assert_eq!(names(&record(&all)), ["wake-up", "first-part", "other-parts", "syscall-exit"]);
        let few = [(Point::Ready, 0), (Point::Copy, 100), (Point::Copy, 900)];
        assert_eq!(names(&record(&few)), ["wake-up", "other-parts"]);
    }

    #[test]
    fn udp_bridges_queues_and_late_readers() {
        let mut udp = record(&[
            (Point::SendEnter, 0),
            (Point::Queue, 10),
            (Point::QdiscIn, 20),
            (Point::QdiscOut, 1_020),
            (Point::Transmit, 1_030),
            (Point::Arrive, 1_040),
            (Point::Receive, 1_050),
            (Point::Queue, 1_060),
            (Point::Transmit, 1_070),
            (Point::TransmitDone, 1_080),
            (Point::Arrive, 1_090),
            (Point::Receive, 1_100),
            (Point::Ready, 1_110),
            (Point::ReceiveEnter, 5_000),
            (Point::Copy, 5_010),
            (Point::ReceiveExit, 5_020),
        ]);
        udp.flow.protocol = 17;
        assert_eq!(
            names(&udp),
            [
                "syscall-udp-ip", "link", "link", "link", "driver", "receive-softirq", "forward", "link", "driver",
                "receive-softirq", "receive-softirq", "ip-udp-receive", "wake-up", "receive-call", "copy"
            ]
        );
        let fine = details(&udp, &Costs::default());
        assert_eq!((fine.len(), fine[0].slice, fine[0].raw), (1, Slice::Qdisc, 1_000));
    }
}
