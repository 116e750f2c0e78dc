//! Lost frames with unknown ends. Neither end is known to match the filter, so only other frames of their connection
//! show whether they belong to it.

use crate::record::{Flow, Record};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Protocol and both ends, the smaller address first.
type Connection = (u8, [(IpAddr, u16); 2]);

/// Limits on remembered connections and on kept frames. Lost frames beyond them stay unknown.
const KNOWN: usize = 65_536;
const HELD: usize = 16_384;

/// Connections that match the filter, and lost frames of other connections.
#[derive(Default)]
pub(super) struct OtherConnections {
    known: HashSet<Connection>,
    waiting: HashMap<Connection, Vec<Record>>,
    held: usize,
}

impl OtherConnections {
    /// Records that this frame's connection matches. Returns the kept lost frames of that connection.
    pub(super) fn ask(&mut self, record: &Record) -> Vec<Record> {
        let connection = connection(&record.flow);
        if self.known.len() >= KNOWN || !self.known.insert(connection) {
            return Vec::new();
        }
        let found = self.waiting.remove(&connection).unwrap_or_default();
        self.held -= found.len();
        found
    }

    /// Returns the lost frame if its connection matches. Keeps it otherwise.
    pub(super) fn meet(&mut self, record: Record) -> Option<Record> {
        let connection = connection(&record.flow);
        if self.known.contains(&connection) {
            return Some(record);
        }
        if self.held < HELD {
            self.held += 1;
            self.waiting.entry(connection).or_default().push(record);
        }
        None
    }
}

fn connection(flow: &Flow) -> Connection {
    let mut ends = [(flow.source, flow.source_port), (flow.destination, flow.destination_port)];
    ends.sort_unstable();
    (flow.protocol, ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Point;
    use crate::record::tests::record;

    #[test]
    fn lost_frames_belong_to_connections_that_were_asked_for() {
        let one = record(&[(Point::Queue, 1)]);
        let mut back = one.clone();
        std::mem::swap(&mut back.flow.source_port, &mut back.flow.destination_port);
        let mut other = one.clone();
        other.flow.source_port += 1;
        let mut strangers = OtherConnections::default();
        assert_eq!(strangers.meet(one.clone()), None);
        assert_eq!(strangers.meet(other.clone()), None);
        assert_eq!(strangers.ask(&back), std::slice::from_ref(&one), "either direction tells");
        assert_eq!(strangers.ask(&one), [], "they are given once");
        assert_eq!(strangers.meet(one.clone()), Some(one));
        assert_eq!(strangers.meet(other), None);
        assert_eq!(strangers.held, 2);
    }
}
