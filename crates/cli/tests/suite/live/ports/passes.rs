//! Traffic that passes: ARP, ping, TCP both ways, by every kind of port.

use super::CLIENT;
use crate::bed::{Bed, Program, number};
use crate::common::caveats;
use lab::Node;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable with the role of this test binary when it is started again in a node.
const PART: &str = "NETLATHE_LIVE_PART";
/// Bytes of a TCP transfer.
const TRANSFER: usize = 20_000_000;

/// Bytes without short repetitions.
fn content() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(TRANSFER);
    while bytes.len() < TRANSFER {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// Not a test: the two ends of a TCP transfer, started in namespaces by the tests below.
#[test]
fn part() {
    let Ok(part) = std::env::var(PART) else { return };
    if part == "receive" {
        let listener = TcpListener::bind("0.0.0.0:5000").expect("the port is free");
        println!("@ready");
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::with_capacity(TRANSFER);
        stream.read_to_end(&mut bytes).expect("all of it");
        println!("@{}", if bytes == content() { "intact" } else { "damaged" });
    } else {
        let mut stream = TcpStream::connect((part.as_str(), 5000)).expect("a connection");
        stream.write_all(&content()).expect("all of it");
        stream.shutdown(Shutdown::Write).expect("the end is sent");
        // Wait until the receiver has everything and closes.
        let _closed = stream.read(&mut [0]);
    }
}

/// Starts `part` of this file in a node.
fn part_in(bed: &Bed, node: Node, part: &str) -> Program {
    let program = std::env::current_exe().expect("its own file");
    let mut command =
        bed.command(node, &program.to_string_lossy(), &["--exact", "live::ports::passes::part", "--nocapture"]);
    command.env(PART, part);
    Program::start(command)
}

/// Transfers 20 MB over TCP, which must arrive unchanged.
fn assert_transfers(bed: &Bed, from: Node, to: Node, address: &str) {
    let receiver = part_in(bed, to, "receive");
    let start = Instant::now();
    while !bed.stdout(to, "ss -Hltn sport = 5000").contains(":5000") {
        assert!(start.elapsed() < Duration::from_secs(20), "the receiver does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    let sender = part_in(bed, from, address).wait();
    assert!(sender.status.success(), "{sender:?}");
    let received = receiver.wait();
    assert!(received.stdout.contains("@intact"), "{received:?}");
}

/// ARP, ping and TCP through `shape`, with balanced counters.
fn assert_carries_all(test: &str, ports: &str, driver: &str) {
    let Some(bed) = Bed::shared(test, |_| {}) else { return };
    let shape = bed.between(ports, "");

    bed.stdout(CLIENT, "ip neigh del 10.77.0.100 dev eth0");
    bed.stdout(CLIENT, "ip neigh flush all");
    bed.stdout(CLIENT, "ping -c 3 -i 0.2 -W 2 10.77.0.100");
    let neighbours = bed.stdout(CLIENT, "ip neigh show 10.77.0.100");
    assert!(neighbours.contains("02:77:00:00:00:64") && !neighbours.contains("PERMANENT"), "{neighbours}");
    // In the other direction, the server sends the ARP request.
    bed.stdout(Node::Server, "ip neigh del 10.77.0.1 dev eth0");
    bed.stdout(Node::Server, "ping -c 3 -i 0.2 -W 2 10.77.0.1");
    bed.stdout(CLIENT, "ping -6 -c 2 -i 0.2 -W 2 fd77::100");

    assert_transfers(&bed, CLIENT, Node::Server, "10.77.0.100");
    assert_transfers(&bed, Node::Server, CLIENT, "10.77.0.1");

    let finished = shape.stop();
    assert_eq!(finished.stderr, "");
    let whole = finished.whole_report();
    for port in caveats(&whole, "port") {
        assert_eq!(port["driver"], driver);
    }
    let report = finished.report();
    // A transfer each way, plus acknowledgements.
    let packets = (TRANSFER / 1460) as u64;
    for side in ["", "/return"] {
        assert!(number(&report, &format!("{side}/in/frames")) > packets, "{report}");
        assert_eq!(report.pointer(&format!("{side}/drops")).expect("drops"), &serde_json::json!({}));
        assert_eq!(number(&report, &format!("{side}/held")), 0);
    }
}

#[test]
fn arp_ping_and_tcp_pass_xdp_both_ways() {
    assert_carries_all("xdp", "--in c0 --out s0", "net_af_xdp");
}

#[test]
fn arp_ping_and_tcp_pass_packet_sockets_both_ways() {
    let ports = "--in if:c0,driver=af_packet --out if:s0,driver=af_packet";
    assert_carries_all("packet", ports, "net_af_packet");
}

#[test]
fn jumbo_frames_pass_by_packet_sockets() {
    let Some(bed) = Bed::shared("jumbo", |topology| topology.mtu = 9_000) else { return };
    let shape = bed.shape("");
    let big = "ping -c 3 -i 0.2 -W 2 -M do -s 8972 10.77.0.100";
    bed.stdout(CLIENT, big);
    assert_transfers(&bed, CLIENT, Node::Server, "10.77.0.100");
    let finished = shape.stop();
    assert_eq!(finished.stderr, "");
    let report = finished.report();
    assert_eq!(report["drops"], serde_json::json!({}));
    for port in caveats(&finished.whole_report(), "port") {
        assert_eq!(port["driver"], "net_af_packet");
    }
    // Named explicitly, AF_XDP is refused, and the error gives the remedy.
    let refused = bed.run(Node::Box, "shape --in if:c0,driver=af_xdp --out s0 --duration 3s");
    refused.assert_refused(&["af_packet", "MTU"]);
}

#[test]
fn taps_and_other_devices_work_and_are_gone_after() {
    let Some(bed) = Bed::shared("tap", |_| {}) else { return };
    let tap = format!("nl{}", std::process::id() % 1_000_000);
    let shape = bed.start(Node::Box, &format!("shape --in tap:{tap} --out s0 --json --duration 60s"));
    let start = Instant::now();
    while !bed.output(Node::Box, &format!("ip link show dev {tap}")).status.success() {
        assert!(start.elapsed() < Duration::from_secs(20), "no TAP device appears");
        thread::sleep(Duration::from_millis(20));
    }
    // The kernel's side of the TAP acts as a host in the server's subnet.
    thread::sleep(Duration::from_millis(300));
    bed.stdout(Node::Box, &format!("ip link set {tap} up"));
    bed.stdout(Node::Box, &format!("ip addr add 10.77.0.50/24 dev {tap}"));
    bed.stdout(Node::Box, &format!("ping -c 3 -i 0.3 -W 2 -I {tap} 10.77.0.100"));
    let report = shape.stop().report();
    assert!(number(&report, "/out/frames") >= 3, "{report}");
    assert!(!bed.output(Node::Box, &format!("ip link show dev {tap}")).status.success(), "{tap} is left");

    let killed = bed.start(Node::Box, &format!("shape --in tap:{tap} --out s0 --json --duration 60s"));
    thread::sleep(Duration::from_millis(1_000));
    killed.signal("KILL");
    killed.wait();
    assert!(!bed.output(Node::Box, &format!("ip link show dev {tap}")).status.success(), "{tap} is left");

    bed.stdout(Node::Box, "ip link set lo up");
    let finished = bed.run(Node::Box, "gen --out lo --json --count 1000 --stream 'udp 127.0.0.1:1 > 127.0.0.2:2'");
    assert_eq!(number(&finished.report(), "/out/frames"), 1_000);

    // A device that discards everything, and one that generates frames without end.
    for ports in ["--in c0 --out dpdk:net_null0", "--in c0 --out null", "--in dpdk:net_ring0 --out s0"] {
        let finished = bed.run(Node::Box, &format!("shape {ports} --json --duration 500ms"));
        assert_eq!(finished.stderr, "", "{ports}");
        finished.report();
    }
    let finished = bed.run(Node::Box, "shape --in dpdk:net_null0 --out null --json --duration 500ms");
    assert!(number(&finished.report(), "/in/frames") > 1_000, "{finished:?}");
    let finished =
        bed.run(Node::Box, "gen --out dpdk:net_null0 --json --count 1000 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'");
    assert_eq!(number(&finished.report(), "/out/frames"), 1_000);
}
