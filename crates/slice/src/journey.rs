//! The path of a packet from the sender's program through a user-space pipeline to the receiver's program.
//!
//! A pipeline copies frames, so their buffers end and start there. The identity of a packet survives: addresses, ports,
//! length, and TCP's sequence number or a datagram's digest. Times distinguish records with the same identity.

use crate::costs::Costs;
use crate::record::{Point, Record};
use crate::slices;
use std::collections::HashMap;
use std::net::IpAddr;

/// Identifies a packet wherever it is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
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
    /// TCP's sequence number, or a datagram's digest.
    pub number: u32,
    /// Bytes of payload.
    pub payload: u32,
}

impl Key {
    /// The key of a record.
    #[must_use]
    pub fn of(record: &Record) -> Key {
        let flow = &record.flow;
        Key {
            source: flow.source,
            destination: flow.destination,
            source_port: flow.source_port,
            destination_port: flow.destination_port,
            protocol: flow.protocol,
            number: flow.sequence,
            payload: flow.payload,
        }
    }
}

/// A packet that a pipeline carried. Instants are of CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardedPacket {
    /// The packet's identity.
    pub key: Key,
    /// When the pipeline polled it.
    pub arrived: u64,
    /// How long it had waited in the port's ring by then, in ns, if the port reports it.
    pub waited: Option<f64>,
    /// Its slices from arrival to departure: name and length in ns.
    pub slices: Vec<(String, f64)>,
    /// When it departed.
    pub departed: u64,
}

/// The whole path of a packet: names and lengths in ns of its slices, in order. The cost of the probes is subtracted
/// from the kernel's slices.
pub type Journey = Vec<(String, f64)>;

/// Largest difference between two clocks of one machine, in ns.
const CLOCKS: u64 = 2_000;

/// Records by packet identity.
pub struct Ends<'a> {
    records: HashMap<Key, Vec<&'a Record>>,
    costs: &'a Costs,
}

impl<'a> Ends<'a> {
    /// Indexes these records, which may be in any order.
    #[must_use]
    pub fn new(records: &'a [Record], costs: &'a Costs) -> Ends<'a> {
        let mut by_key: HashMap<Key, Vec<&Record>> = HashMap::new();
        for record in records.iter().filter(|record| !record.stamps.is_empty()) {
            by_key.entry(Key::of(record)).or_default().push(record);
        }
        Ends { records: by_key, costs }
    }

    /// The whole path of a packet. `None` if its sender's or its receiver's end was not seen.
    #[must_use]
    pub fn journey(&self, carried: &ForwardedPacket) -> Option<Journey> {
        let records = self.records.get(&carried.key)?;
        // The last one that started before. Earlier ones belong to a packet that was retransmitted since.
        let sent = records.iter().filter(|record| record.stamps[0].at < carried.arrived && is_sent(record));
        let sent = sent.max_by_key(|record| record.stamps[0].at)?;
        // The pipeline's copy may reuse the buffer of the sender's packet. It then continues in the sender's record.
        let behind = |at: u64| at + CLOCKS > carried.departed && at > carried.arrived;
        let first = |record: &&'a Record| {
            let n = record.stamps.iter().position(|stamp| is_network(stamp.point) && behind(stamp.at))?;
            let own = std::ptr::eq(*record, *sent);
            (own || record.stamps[..n].iter().all(|stamp| !is_network(stamp.point))).then_some((*record, n))
        };
        let after = records.iter().filter(|record| is_received(record)).filter_map(first);
        let (received, n) = after.min_by_key(|(record, n)| record.stamps[*n].at)?;

        let mut journey = Journey::new();
        let until = sent.stamps.iter().take_while(|stamp| stamp.at <= carried.arrived).count();
        let left = sent.stamps[until.max(1) - 1].at;
        for part in slices::parts(sent, self.costs).into_iter().take(until.max(1) - 1) {
            add(&mut journey, format!("client {}", part.slice.name()), part.net);
        }
        // Two clocks describe the path to the pipeline. The kernel's last stamp is more reliable, so no wait reaches
        // back beyond it.
        let reached = carried.arrived as f64 - left as f64;
        let waited = carried.waited.map(|waited| waited.clamp(0.0, reached.max(0.0)));
        add(&mut journey, "to netlathe".to_owned(), reached - waited.unwrap_or(0.0));
        if let Some(waited) = waited {
            add(&mut journey, "netlathe ring".to_owned(), waited);
        }
        for (name, ns) in &carried.slices {
            add(&mut journey, format!("netlathe {name}"), *ns);
        }
        add(&mut journey, "from netlathe".to_owned(), received.stamps[n].at as f64 - carried.departed as f64);
        for part in slices::parts(received, self.costs).into_iter().skip(n) {
            add(&mut journey, format!("server {}", part.slice.name()), part.net);
        }
        Some(journey)
    }
}

/// Whether it left a program: its send call, or TCP on behalf of one, was seen.
fn is_sent(record: &Record) -> bool {
    matches!(record.stamps[0].point, Point::SendEnter | Point::TcpSend | Point::Queue)
}

/// Whether a program received it.
fn is_received(record: &Record) -> bool {
    record.receiver[0] != 0 && record.matched()
}

/// Whether the stamp is from the network and not from a call.
fn is_network(point: Point) -> bool {
    !matches!(point, Point::SendEnter | Point::TcpSend | Point::IpSend)
}

/// Adds a slice. Adjacent pieces of the same slice are merged.
fn add(journey: &mut Journey, name: String, ns: f64) {
    match journey.last_mut() {
        Some((last, length)) if *last == name => *length += ns,
        _ => journey.push((name, ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ended;
    use crate::record::tests::record;

    fn sent(at: u64) -> Record {
        let points = [(Point::SendEnter, 0), (Point::TcpSend, 300), (Point::Queue, 1_300), (Point::Transmit, 1_400)];
        let mut record = record(&points.map(|(point, after)| (point, at + after)));
        (record.ended, record.receiver) = (Ended::Reused, [0, 0]);
        record
    }

    fn received(at: u64) -> Record {
        // It starts with the pipeline's own send call.
        let points = [(Point::SendEnter, 0), (Point::Queue, 500), (Point::Receive, 900), (Point::Copy, 2_900)];
        record(&points.map(|(point, after)| (point, at + after)))
    }

    fn carried(arrived: u64, departed: u64) -> ForwardedPacket {
        let hold = (departed - arrived) as f64;
        ForwardedPacket {
            key: Key::of(&sent(0)),
            arrived,
            waited: None,
            slices: vec![("netem".into(), hold)],
            departed,
        }
    }

    #[test]
    fn the_parts_of_a_way_are_put_together() {
        let records = [received(202_000), sent(1_000)];
        let costs = Costs::default();
        let ends = Ends::new(&records, &costs);
        let journey = ends.journey(&carried(3_000, 202_100)).expect("both ends are there");
        let expected = [
            ("client syscall", 300.0),
            ("client tcp-ip", 1_000.0),
            ("client link", 100.0),
            ("to netlathe", 600.0),
            ("netlathe netem", 199_100.0),
            ("from netlathe", 400.0),
            ("server link-driver", 400.0),
            ("server ip-tcp-receive", 2_000.0),
        ];
        assert_eq!(journey, expected.map(|(name, ns)| (name.to_owned(), ns)));
        let whole: f64 = journey.iter().map(|(_, ns)| ns).sum();
        assert!((whole - (202_000.0 + 2_900.0 - 1_000.0)).abs() < 1e-9, "nothing is left out, nothing counts twice");
    }

    #[test]
    fn a_wait_in_the_ring_does_not_count_towards_the_path_before_it() {
        let records = [received(202_000), sent(1_000)];
        let costs = Costs::default();
        let ends = Ends::new(&records, &costs);
        // 600 ns have passed since the kernel's last stamp. A longer wait reported by the ring is cut off.
        for (waited, ring) in [(400.0, 400.0), (900.0, 600.0), (0.0, 0.0)] {
            let carried = ForwardedPacket { waited: Some(waited), ..carried(3_000, 202_100) };
            let journey = ends.journey(&carried).expect("both ends are there");
            assert_eq!(journey[3..5], [("to netlathe".into(), 600.0 - ring), ("netlathe ring".into(), ring)]);
            let whole: f64 = journey.iter().map(|(_, ns)| ns).sum();
            assert!((whole - (202_000.0 + 2_900.0 - 1_000.0)).abs() < 1e-9, "it counts once");
        }
    }

    #[test]
    fn retransmitted_packets_are_distinguished_by_time() {
        let records = [sent(1_000), received(12_000), sent(500_000), received(511_000)];
        let costs = Costs::default();
        let ends = Ends::new(&records, &costs);
        for (arrived, departed) in [(3_000, 12_100), (502_000, 511_100)] {
            let journey = ends.journey(&carried(arrived, departed)).expect("both ends are there");
            assert_eq!(journey[3], ("to netlathe".into(), 600.0));
            assert_eq!(journey[5], ("from netlathe".into(), 400.0));
        }
        assert_eq!(ends.journey(&carried(600_000, 700_000)), None, "it was lost behind the pipeline");
        // A pipeline that reused the sender's buffer for its copy.
        let mut one = sent(1_000);
        one.stamps.extend(received(12_000).stamps.into_iter().skip(1));
        let (records, received) = ([Record { receiver: [9, 9], ended: Ended::Followed, ..one }], costs.clone());
        let journey = Ends::new(&records, &received).journey(&carried(3_000, 12_100)).expect("both ends are there");
        assert_eq!((journey.len(), journey[5].clone()), (8, ("from netlathe".into(), 400.0)));
        let other = ForwardedPacket { key: Key { number: 9, ..Key::of(&sent(0)) }, ..carried(3_000, 12_100) };
        assert_eq!(ends.journey(&other), None);
    }
}
