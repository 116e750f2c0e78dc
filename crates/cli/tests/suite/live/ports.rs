//! Live ports with real programs at both ends: which frames pass, what the report says, how runs end, and what an
//! abnormal end leaves behind. Each test has a lab of its own and prints `SKIP: why` if the machine permits none.
//!
//! Machines hiccup, so timing tests use medians and shares, over three runs where one may be unlucky.

mod beside;
mod ends;
mod goes_away;
mod keeps;
mod labs;
mod lengths;
mod paces;
mod passes;
mod refused;
mod shared;

use crate::bed::{Bed, Finished, Program, Record, number};
use crate::common::caveats;
use lab::Node;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const CLIENT: Node = Node::Client(1);

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Sends streams through `shape`. Returns its result and the frames that the server received.
fn through(bed: &Bed, options: &str, clients: u16, rate: &str, size: u32, count: u64) -> (Finished, Vec<Record>) {
    let name = "seen.pcap";
    let _earlier = fs::remove_file(bed.path(name));
    let shape = bed.shape(options);
    let capture = bed.capture(name);
    let senders: Vec<Program> = (1..=clients).map(|n| bed.sender(n, size, rate, count)).collect();
    for sender in senders {
        let report = sender.wait().report();
        assert_eq!(number(&report, "/out/frames"), count, "{report}");
    }
    // Wait until no more frames arrive.
    let out = |bed: &Bed| bed.stdout(Node::Server, "cat /sys/class/net/eth0/statistics/rx_packets");
    let mut before = out(bed);
    loop {
        thread::sleep(Duration::from_millis(400));
        let now = out(bed);
        if now == before {
            break;
        }
        before = now;
    }
    let finished = shape.stop();
    let receiver = capture.stop().report();
    assert_eq!(number(&receiver, "/flow/kernel_drops"), 0, "the receiver itself lost frames");
    (finished, bed.streams(name))
}

/// The frames that the ports report as lost.
fn missed(finished: &Finished) -> u64 {
    let report = finished.whole_report();
    caveats(&report, "port").into_iter().map(|port| port["rx_missed"].as_u64().expect("a count")).sum()
}

/// Waits until a counter of an interface in the box exceeds `most`.
fn await_counter(bed: &Bed, interface: &str, counter: &str, most: u64) {
    let begin = Instant::now();
    let line = format!("cat /sys/class/net/{interface}/statistics/{counter}");
    while bed.stdout(Node::Box, &line).trim().parse::<u64>().is_ok_and(|count| count <= most) {
        assert!(begin.elapsed() < Duration::from_secs(40), "{interface} has no more {counter}");
        thread::sleep(Duration::from_millis(10));
    }
}
