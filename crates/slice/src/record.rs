//! One frame and the stamps of its path, as the kernel programs hand it over (`bpf/maps.h`).

use crate::events::MOST_EVENTS;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Limit on stamps per frame.
pub(crate) const POINTS: usize = 32;
/// Bytes of `struct frame`.
pub(crate) const SIZE: usize = 8 + 11 * POINTS + 16 + 56 + 32;
/// A count that could not be read.
const UNKNOWN: u64 = u64::MAX;

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident: $($(#[$each:meta])* $item:ident = $number:literal, $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $(#[doc = $text] $(#[$each])* #[serde(rename = $text)] $item = $number,)* }
        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$item),*];
            /// Its stable name.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($name::$item => $text),* }
            }
            /// The item with this number, if there is one.
            #[must_use]
            pub fn of(number: u32) -> Option<$name> {
                match number { $($number => Some($name::$item),)* _ => None }
            }
        }
    };
}

numbered! {
    /// Where a frame was stamped.
    Point:
    SendEnter = 1, "send-enter";
    TcpSend = 2, "tcp-send";
    Queue = 3, "queue";
    QdiscIn = 4, "qdisc-in";
    QdiscOut = 5, "qdisc-out";
    Transmit = 6, "transmit";
    TransmitDone = 7, "transmit-done";
    Arrive = 8, "arrive";
    Receive = 9, "receive";
    TcpReceive = 10, "tcp-receive";
    Ready = 11, "ready";
    ReceiveEnter = 12, "receive-enter";
    Copy = 13, "copy";
    Copied = 14, "copied";
    ReceiveExit = 15, "receive-exit";
    IpSend = 16, "ip-send";
    Part = 17, "part";
}

numbered! {
    /// A kernel program, by its tracepoint or function.
    Probe:
    SysEnter = 0, "sys_enter";
    SysExit = 1, "sys_exit";
    TcpSend = 2, "tcp_sendmsg_locked";
    Queue = 3, "net_dev_queue";
    QdiscIn = 4, "qdisc_enqueue";
    QdiscOut = 5, "qdisc_dequeue";
    Transmit = 6, "net_dev_start_xmit";
    TransmitDone = 7, "net_dev_xmit";
    NetifRx = 8, "netif_rx";
    Gro = 9, "napi_gro_receive_entry";
    Receive = 10, "netif_receive_skb";
    TcpReceive = 11, "tcp_probe";
    Ready = 12, "sk_data_ready";
    Copy = 13, "skb_copy_datagram_iovec";
    Copied = 14, "tcp_rcv_space_adjust";
    ReceiveLength = 15, "sock_recv_length";
    Fork = 16, "sched_process_fork";
    IpSend = 17, "__ip_queue_xmit";
}

impl Point {
    /// The program that writes this stamp.
    #[must_use]
    pub fn probe(self) -> Probe {
        match self {
            Point::SendEnter | Point::ReceiveEnter => Probe::SysEnter,
            Point::TcpSend => Probe::TcpSend,
            Point::Queue => Probe::Queue,
            Point::QdiscIn => Probe::QdiscIn,
            Point::QdiscOut => Probe::QdiscOut,
            Point::Transmit => Probe::Transmit,
            Point::TransmitDone => Probe::TransmitDone,
            Point::Arrive => Probe::NetifRx,
            Point::Receive => Probe::Receive,
            Point::TcpReceive => Probe::TcpReceive,
            Point::Ready => Probe::Ready,
            Point::Copy => Probe::Copy,
            Point::Copied | Point::Part => Probe::Copied,
            Point::ReceiveExit => Probe::SysExit,
            Point::IpSend => Probe::IpSend,
        }
    }
}

numbered! {
    /// How the journey of a frame ended, as seen by the probes.
    Ended:
    Followed = 1, "followed";
    Sent = 2, "sent";
    Reused = 3, "reused";
    Evicted = 4, "evicted";
    Unfinished = 5, "unfinished";
}

/// One stamp: where, when and on which CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Where.
    pub point: Point,
    /// When: CLOCK_MONOTONIC, in nanoseconds.
    pub at: u64,
    /// On which CPU.
    pub cpu: u16,
}

/// The flow and length of a packet: the header fields of NetSlice's data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flow {
    /// Sender's address.
    pub source: IpAddr,
    /// Receiver's address.
    pub destination: IpAddr,
    /// Sender's port.
    pub source_port: u16,
    /// Receiver's port.
    pub destination_port: u16,
    /// 6 is TCP, 17 is UDP.
    pub protocol: u8,
    /// Bytes of the IP header.
    pub ip_header: u8,
    /// Bytes of the TCP or UDP header.
    pub transport_header: u8,
    /// Bytes of the packet, from its IP header on.
    pub length: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// TCP's sequence number; for UDP, a digest of the IP identification and the first eight bytes of payload.
    pub sequence: u32,
}

/// A frame and the stamps of its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Flow and length.
    pub flow: Flow,
    /// The stamps in order, at least one.
    pub stamps: Vec<Stamp>,
    /// How it ended.
    pub ended: Ended,
    /// The sending process and thread; 0 if it left outside a call.
    pub sender: [u32; 2],
    /// The receiving process and thread; 0 if it was not copied.
    pub receiver: [u32; 2],
    /// Stamps beyond the limit.
    pub beyond: u32,
    /// Copies in which the program received it: more than one if each read took a part.
    #[serde(default, skip_serializing_if = "is_at_once")]
    pub parts: u32,
    /// Datagrams in it: more than one if the kernel handled several as one packet.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub packets: u16,
    /// Its number among the datagrams that were split off one packet at their socket, from 1. It is 0 if it was not
    /// split there.
    #[serde(default, skip_serializing_if = "is_no_piece")]
    pub piece: u16,
    /// For each stamp, the counters of its CPU, in order of the events. Empty if no events are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Vec<Option<u64>>>,
}

fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(packets: &u16) -> bool {
    *packets == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_no_piece(piece: &u16) -> bool {
    *piece == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_at_once(parts: &u32) -> bool {
    *parts <= 1
}

impl Record {
    /// Parses `struct frame` and, if events are counted, the rest of `struct counted_frame`. `None` if the bytes are
    /// not a frame, or it has no stamp.
    #[must_use]
    pub fn read(bytes: &[u8], events: usize) -> Option<Record> {
        if bytes.len() < SIZE {
            return None;
        }
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u16_at = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let (points, cpus, read) = (8 + 8 * POINTS, 8 + 9 * POINTS, 8 + 11 * POINTS);
        let flow = read + 16;
        let end = flow + 56;
        let count = (u32_at(end) as usize).min(POINTS);
        let address = |at: usize| match u16_at(flow + 36) {
            0x0800 => {
                let octets: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
                IpAddr::V4(Ipv4Addr::from(octets))
            }
            _ => {
                let octets: [u8; 16] = bytes[at..at + 16].try_into().expect("sixteen bytes");
                IpAddr::V6(Ipv6Addr::from(octets))
            }
        };
        let stamps: Vec<Stamp> = (0..count)
            .filter_map(|n| {
                let point = Point::of(u32::from(bytes[points + n]))?;
                Some(Stamp { point, at: u64_at(8 + 8 * n), cpu: u16_at(cpus + 2 * n) })
            })
            .collect();
        if stamps.is_empty() {
            return None;
        }
        let counts = match events {
            0 => Vec::new(),
            _ if bytes.len() < SIZE + 8 * POINTS * MOST_EVENTS => return None,
            _ => {
                let count = |n: usize, event: usize| {
                    let value = u64_at(SIZE + 8 * (n * MOST_EVENTS + event));
                    (value != UNKNOWN).then_some(value)
                };
                (0..stamps.len()).map(|n| (0..events).map(|event| count(n, event)).collect()).collect()
            }
        };
        let mut record = Record {
            flow: Flow {
                source: address(flow),
                destination: address(flow + 16),
                source_port: u16_at(flow + 32),
                destination_port: u16_at(flow + 34),
                protocol: bytes[flow + 38],
                ip_header: bytes[flow + 39],
                transport_header: bytes[flow + 40],
                sequence: u32_at(flow + 44),
                payload: u32_at(flow + 48),
                length: u32_at(flow + 52),
            },
            stamps,
            ended: Ended::of(u16_at(end + 4).into()).unwrap_or(Ended::Unfinished),
            sender: [u32_at(end + 8), u32_at(end + 12)],
            receiver: [u32_at(end + 16), u32_at(end + 20)],
            beyond: u32_at(end + 28),
            parts: u32_at(read),
            packets: u16_at(read + 12).max(1),
            piece: u16_at(read + 14),
            counts,
        };
        record.order();
        Some(record)
    }

    /// Raises each stamp to at least those before it. The clocks of two CPUs may differ, and the slices of a frame
    /// would otherwise sum to more than the time between its first and last stamp.
    pub(crate) fn order(&mut self) {
        let mut latest = 0;
        for stamp in &mut self.stamps {
            latest = stamp.at.max(latest);
            stamp.at = latest;
        }
    }

    /// Whether the frame was seen to its end: at the application, or outside this machine's control.
    ///
    /// If the buffer was reused after the driver had returned, the frame left by a device that reports nothing further.
    #[must_use]
    pub fn matched(&self) -> bool {
        match self.ended {
            Ended::Followed | Ended::Sent => true,
            _ => self.stamps.last().is_some_and(|last| last.point == Point::TransmitDone),
        }
    }

    /// Whether the receiver's TCP took the packet.
    pub(crate) fn reached_tcp(&self) -> bool {
        self.stamps.iter().any(|stamp| stamp.point == Point::TcpReceive)
    }

    /// Count of an event between stamp `n` and the next. `None` if the stamps are from two CPUs, or a count was not
    /// read.
    pub(crate) fn counted(&self, n: usize, event: usize) -> Option<u64> {
        let at = |n: usize| *self.counts.get(n)?.get(event)?;
        let same = self.stamps[n].cpu == self.stamps[n + 1].cpu;
        same.then(|| at(n + 1)?.checked_sub(at(n)?)).flatten()
    }

    /// Time from the first to the last stamp in nanoseconds, with nothing subtracted.
    #[must_use]
    pub fn whole(&self) -> u64 {
        match (self.stamps.first(), self.stamps.last()) {
            (Some(first), Some(last)) => last.at.saturating_sub(first.at),
            _ => 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A TCP frame of 512 B on loopback.
    pub(crate) fn record(points: &[(Point, u64)]) -> Record {
        Record {
            flow: Flow {
                source: IpAddr::V4(Ipv4Addr::LOCALHOST),
                destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
                source_port: 40_000,
                destination_port: 7,
                protocol: 6,
                ip_header: 20,
                transport_header: 32,
                length: 564,
                payload: 512,
                sequence: 1,
            },
            stamps: points.iter().map(|(point, at)| Stamp { point: *point, at: *at, cpu: 0 }).collect(),
            ended: Ended::Followed,
            sender: [10, 10],
            receiver: [11, 11],
            beyond: 0,
            parts: 1,
            packets: 1,
            piece: 0,
            counts: Vec::new(),
        }
    }

    #[test]
    fn a_record_is_parsed_from_its_bytes() {
        let mut bytes = vec![0_u8; SIZE];
        bytes[8..16].copy_from_slice(&1_000_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&1_250_u64.to_ne_bytes());
        bytes[8 + 8 * POINTS] = Point::SendEnter as u8;
        bytes[8 + 8 * POINTS + 1] = Point::Queue as u8;
        bytes[8 + 9 * POINTS + 2..][..2].copy_from_slice(&300_u16.to_ne_bytes());
        let read = 8 + 11 * POINTS;
        bytes[read..read + 4].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[read + 12..read + 14].copy_from_slice(&10_u16.to_ne_bytes());
        bytes[read + 14..read + 16].copy_from_slice(&3_u16.to_ne_bytes());
        let flow = read + 16;
        bytes[flow..flow + 4].copy_from_slice(&[10, 0, 0, 1]);
        bytes[flow + 16..flow + 20].copy_from_slice(&[10, 0, 0, 2]);
        bytes[flow + 32..flow + 34].copy_from_slice(&5_000_u16.to_ne_bytes());
        bytes[flow + 34..flow + 36].copy_from_slice(&53_u16.to_ne_bytes());
        bytes[flow + 36..flow + 38].copy_from_slice(&0x0800_u16.to_ne_bytes());
        bytes[flow + 38..flow + 41].copy_from_slice(&[17, 20, 8]);
        bytes[flow + 48..flow + 52].copy_from_slice(&4_u32.to_ne_bytes());
        bytes[flow + 52..flow + 56].copy_from_slice(&32_u32.to_ne_bytes());
        let end = flow + 56;
        for (at, value) in [(0, 2_u32), (4, 3), (8, 77), (12, 78), (28, 5)] {
            bytes[end + at..end + at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let record = Record::read(&bytes, 0).expect("it is a frame");
        assert_eq!(record.flow.source, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(record.flow.destination, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((record.flow.source_port, record.flow.destination_port), (5_000, 53));
        assert_eq!((record.flow.protocol, record.flow.payload, record.flow.length), (17, 4, 32));
        assert_eq!((record.sender, record.beyond, record.ended), ([77, 78], 5, Ended::Reused));
        assert_eq!(record.stamps[1], Stamp { point: Point::Queue, at: 1_250, cpu: 300 });
        assert_eq!((record.parts, record.packets, record.piece, record.whole()), (8, 10, 3, 250));
        assert!(!record.matched());
        assert!(Record::read(&bytes[1..], 0).is_none(), "a frame cut short is none");
        assert!(record.counts.is_empty() && Record::read(&bytes, 1).is_none(), "nothing was counted");
        bytes.resize(SIZE + 8 * POINTS * MOST_EVENTS, 0);
        bytes[SIZE..SIZE + 8].copy_from_slice(&7_u64.to_ne_bytes());
        let second = SIZE + 8 * MOST_EVENTS;
        bytes[second..second + 8].copy_from_slice(&9_u64.to_ne_bytes());
        bytes[second + 8..second + 16].copy_from_slice(&UNKNOWN.to_ne_bytes());
        let record = Record::read(&bytes, 2).expect("it is a counted frame");
        assert_eq!(record.counts, [[Some(7), Some(0)], [Some(9), None]]);
    }

    #[test]
    fn a_stamp_is_not_earlier_than_those_before_it() {
        let mut record = record(&[
            (Point::SendEnter, 1_000),
            (Point::Queue, 990),
            (Point::Transmit, 1_500),
            (Point::Arrive, 0),
            (Point::Receive, 1_400),
            (Point::Copy, 1_700),
        ]);
        record.order();
        let at: Vec<u64> = record.stamps.iter().map(|stamp| stamp.at).collect();
        assert_eq!(at, [1_000, 1_000, 1_500, 1_500, 1_500, 1_700]);
    }

    #[test]
    fn names_are_read_back() {
        for point in Point::ALL {
            assert_eq!(Point::of(*point as u32), Some(*point));
        }
        for probe in Probe::ALL {
            assert_eq!(Probe::of(*probe as u32), Some(*probe));
        }
    }
}
