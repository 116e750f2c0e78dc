//! Live ports, with real programs at both ends: what passes, what the report says of it, how runs end, and what is
//! left when they end badly. Each test has a lab of its own, and says `SKIP: why` where the machine permits none.
//!
//! Machines hiccup: figures of time are judged by medians and shares, of three runs where one may be unlucky.

#![cfg(feature = "live")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "live/bed.rs"]
mod bed;

use bed::{Bed, Finished, Program, Record, Sequence, lab_name, number, sequence_of};
use lab::Node;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const CLIENT: Node = Node::Client(1);

/// What a test that is started again in a node is to do there.
const PART: &str = "NETLATHE_LIVE_PART";
/// Bytes of a TCP transfer.
const TRANSFER: usize = 20_000_000;

/// Bytes that repeat nowhere near.
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

/// No test: the two ends of a TCP transfer, started in namespaces by the tests below.
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
        stream.shutdown(Shutdown::Write).expect("the end is told");
        // Until the receiver has it all and closes.
        let _closed = stream.read(&mut [0]);
    }
}

/// Starts this file's `part` in a node.
fn part_in(bed: &Bed, node: Node, part: &str) -> Program {
    let program = std::env::current_exe().expect("its own file");
    let mut command = bed.command(node, &program.to_string_lossy(), &["--exact", "part", "--nocapture"]);
    command.env(PART, part);
    Program::start(command)
}

/// 20 MB of TCP, which must arrive as they were sent.
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

/// ARP, ping and TCP through `shape`, and the books of it.
fn assert_carries_all(test: &str, ports: &str, driver: &str) {
    let Some(bed) = Bed::shared(test, |_| {}) else { return };
    let shape = bed.between(ports, "");

    bed.stdout(CLIENT, "ip neigh del 10.77.0.100 dev eth0");
    bed.stdout(CLIENT, "ip neigh flush all");
    bed.stdout(CLIENT, "ping -c 3 -i 0.2 -W 2 10.77.0.100");
    let neighbours = bed.stdout(CLIENT, "ip neigh show 10.77.0.100");
    assert!(neighbours.contains("02:77:00:00:00:64") && !neighbours.contains("PERMANENT"), "{neighbours}");
    // The other way round, the server asks.
    bed.stdout(Node::Server, "ip neigh del 10.77.0.1 dev eth0");
    bed.stdout(Node::Server, "ping -c 3 -i 0.2 -W 2 10.77.0.1");
    bed.stdout(CLIENT, "ping -6 -c 2 -i 0.2 -W 2 fd77::100");

    assert_transfers(&bed, CLIENT, Node::Server, "10.77.0.100");
    assert_transfers(&bed, Node::Server, CLIENT, "10.77.0.1");

    let finished = shape.stop();
    assert_eq!(finished.stderr, "");
    let whole = finished.whole_report();
    for port in whole["limits"]["ports"].as_object().expect("ports").values() {
        assert_eq!(port["driver"], driver);
    }
    let report = finished.report();
    // A transfer each way, and acknowledgements.
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

fn median<T: Ord + Copy>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Sends streams through `shape` and gives its report and what the server saw.
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
    // Until nothing more arrives.
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

/// What the ports say they lost.
fn missed(finished: &Finished) -> u64 {
    let report = finished.whole_report();
    let ports = report["limits"]["ports"].as_object().expect("ports");
    ports.values().map(|port| port["rx_missed"].as_u64().expect("a count")).sum()
}

/// Three runs of an even stream: none lost, by the median, and none out of order, ever. What is lost is told.
fn assert_keeps_all(test: &str, clients: u16, rate: &str, count: u64) {
    let Some(bed) = Bed::alone(test, |topology| topology.clients = clients) else { return };
    let mut lost = Vec::new();
    for _ in 0..3 {
        let (finished, records) = through(&bed, "", clients, rate, 100, count);
        let report = finished.report();
        let mut missing = 0;
        for client in 1..=clients {
            let sequence = Sequence::of(&records, client, count);
            assert_eq!((sequence.repeated, sequence.late), (0, 0), "client {client}: {sequence:?}");
            missing += sequence.missing;
        }
        assert!(
            missing <= missed(&finished),
            "{missing} lost, and the report tells of {}: {report}",
            missed(&finished)
        );
        lost.push(missing);
    }
    println!("{test}: lost in three runs: {lost:?}");
    assert_eq!(median(lost.clone()), 0, "lost in three runs: {lost:?}");
}

#[test]
fn fifty_thousand_frames_a_second_pass_whole_and_in_order() {
    assert_keeps_all("even", 1, "50kpps", 100_000);
}

#[test]
fn three_clients_at_once_keep_their_orders() {
    assert_keeps_all("three", 3, "10kpps", 20_000);
}

#[test]
fn a_split_placement_keeps_all_and_its_books() {
    let Some(bed) = Bed::alone("split", |_| {}) else { return };
    if thread::available_parallelism().map_or(1, Into::into) < 2 {
        println!("SKIP: one CPU cannot be split");
        return;
    }
    let mut lost = Vec::new();
    for _ in 0..3 {
        let options = "--cores 0,1 --gap 50us --stage 'delay 2ms' --stage 'loss 5%'";
        let (finished, records) = through(&bed, options, 1, "15kpps", 100, 15_000);
        let report = finished.report();
        let sequence = Sequence::of(&records, 1, 15_000);
        assert_eq!((sequence.repeated, sequence.late), (0, 0), "{sequence:?}");
        let dropped = number(&report, "/drops/loss");
        assert!((500..1_000).contains(&dropped), "{report}");
        assert!(number(&report, "/return/in/frames") > 0, "ping passed: {report}");
        lost.push(sequence.missing.saturating_sub(dropped));
    }
    assert_eq!(median(lost.clone()), 0, "lost in three runs: {lost:?}");
    // Ended in the middle of a backlog, what is under way is held.
    let shape = bed.shape("--cores 0,1 --gap 10ms");
    bed.send(1, 100, "10kpps", 3_000);
    let report = shape.stop().report();
    assert!(number(&report, "/held") > 2_000, "{report}");
}

#[test]
fn a_rate_does_not_depend_on_the_number_of_queues() {
    let Some(bed) = Bed::alone("queues", |topology| topology.queues = 4) else { return };
    for queues in [1, 2, 4] {
        let capture = bed.capture("queues.pcap");
        let line = format!(
            "gen --out if:s0,queues={queues} --json --rate 40Mbps --duration 2s --stream \
             'udp 10.77.0.200:1000-1063 > 10.77.0.100:9 size 500B dmac 02:77:00:00:00:64'"
        );
        let report = bed.run(Node::Box, &line).report();
        let measured = capture.stop().report();
        // Besides, the receiver may have asked for an address, and was answered.
        assert_eq!(number(&measured, "/streams/0/received"), number(&report, "/out/frames"), "{measured} {report}");
        let rate = measured["rate"]["mean_bps"].as_f64().expect("a rate");
        assert!((rate / 40e6 - 1.0).abs() < 0.001, "{queues} queues: {measured}");
    }
    // What any queue gets passes.
    for driver in ["", ",driver=af_packet", ",driver=af_packet,queues=4"] {
        let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "");
        let capture = bed.capture("queues.pcap");
        let line = "gen --out eth0,queues=4 --json --rate 10kpps --count 5000 --stream \
                    'udp 10.77.0.1:1000-1063 > 10.77.0.100:9 smac 02:77:00:00:00:01 dmac 02:77:00:00:00:64'";
        bed.run(CLIENT, line).report();
        thread::sleep(Duration::from_millis(300));
        let report = shape.stop().report();
        capture.stop().report();
        let (records, _) = bed.records("queues.pcap");
        let came = records.iter().filter(|record| record.bytes.get(36..38) == Some(&[0, 9])).count();
        assert_eq!(came, 5_000, "{driver}: {report}");
    }
}

#[test]
fn what_a_stalled_run_loses_is_told() {
    let Some(bed) = Bed::shared("stalled", |_| {}) else { return };
    for driver in ["af_xdp", "af_packet"] {
        let shape = bed.between(&format!("--in if:c0,driver={driver} --out if:s0,driver={driver}"), "");
        let capture = bed.capture(&format!("{driver}.pcap"));
        shape.signal("STOP");
        bed.send(1, 100, "50kpps", 20_000);
        shape.signal("CONT");
        thread::sleep(Duration::from_secs(1));
        let finished = shape.stop();
        capture.stop().report();
        let sequence = Sequence::of(&bed.streams(&format!("{driver}.pcap")), 1, 20_000);
        assert!(sequence.missing > 1_000, "{driver}: a ring takes no 20 000 frames: {sequence:?}");
        assert_eq!((sequence.repeated, sequence.late), (0, 0), "{driver}: {sequence:?}");
        let told = missed(&finished);
        assert!(sequence.missing.abs_diff(told) <= 20, "{driver}: {} lost, {told} told", sequence.missing);
        assert!(finished.stderr.contains(&format!("lost {told} frames")), "{driver}: {}", finished.stderr);
    }
}

/// Gaps between records, in nanoseconds.
fn gaps(records: &[Record]) -> Vec<u64> {
    records.windows(2).map(|pair| pair[1].ns - pair[0].ns).collect()
}

/// The share of gaps that are within `off` of `ask`, in nanoseconds.
fn near(gaps: &[u64], ask: u64, off: u64) -> f64 {
    gaps.iter().filter(|gap| gap.abs_diff(ask) <= off).count() as f64 / gaps.len() as f64
}

/// Departures as asked for, judged at the receiver; and that they would not be so without being asked for.
fn assert_paces(test: &str, options: &str, ask_ns: u64) {
    let Some(bed) = Bed::alone(test, |_| {}) else { return };
    // All frames come within half a second and leave in two, so that no schedule is starved. The first ones share the
    // machine with the sender; the others are looked at.
    const COUNT: u64 = 20_000;
    let late = |records: &[Record]| gaps(&records[8_000..]);
    let mut medians = Vec::new();
    let mut shares = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..3 {
        let (finished, records) = through(&bed, options, 1, "40kpps", 500, COUNT);
        assert_eq!(finished.report()["pacer"], "deadline");
        let sequence = Sequence::of(&records, 1, COUNT);
        assert_eq!((sequence.repeated, sequence.late), (0, 0), "{sequence:?}");
        assert!(sequence.missing <= missed(&finished), "{sequence:?} {finished:?}");
        let gaps = late(&records);
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        rates.push((mean / ask_ns as f64 * 1e6) as u64);
        shares.push((near(&gaps, ask_ns, 2_000) * 1e6) as u64);
        medians.push(median(gaps).abs_diff(ask_ns));
    }
    println!("{test}: |median - ask| {medians:?} ns, within 2 us {shares:?} ppm, mean gap / ask {rates:?} ppm");
    assert!(median(medians.clone()) <= 1_000, "|median - ask| in ns: {medians:?}");
    assert!(median(shares.clone()) >= 500_000, "within 2 us, in ppm: {shares:?}");
    assert!(median(rates.clone()).abs_diff(1_000_000) <= 10_000, "mean gap / ask, in ppm: {rates:?}");

    let (_, records) = through(&bed, "", 1, "40kpps", 500, COUNT);
    let gaps = late(&records);
    assert!(near(&gaps, ask_ns, 2_000) < 0.25, "the ask is met without asking");
    assert!(median(gaps).abs_diff(ask_ns) > 1_000, "the ask is met without asking");
}

#[test]
fn a_gap_is_kept() {
    assert_paces("gap", "--gap 'fixed 100us'", 100_000);
}

#[test]
fn a_rate_is_kept() {
    // 10 000 frames of 500 B a second.
    assert_paces("rate", "--rate 40Mbps", 100_000);
}

#[test]
fn a_backlog_beyond_the_pool_is_dropped_and_counted() {
    let Some(bed) = Bed::shared("pool", |_| {}) else { return };
    let shape = bed.shape("--gap 1ms");
    bed.send(1, 100, "60kpps", 75_000);
    let finished = shape.stop();
    let report = finished.report();
    assert!(number(&report, "/drops/pool") > 5_000, "{report}");
    assert!(number(&report, "/held") > 40_000, "{report}");
    assert_eq!(report["drops"].as_object().expect("drops").len(), 1, "{report}");
    let told = number(&report, "/in/frames") + missed(&finished);
    assert!(told >= 75_000, "{told} of 75 000 frames are in the books: {report}");
}

/// Runs every command that goes on until it is told to end.
fn assert_ends(bed: &Bed, ended_by: impl Fn(Program) -> Finished, before: &str, options: &str) {
    for (node, command) in [
        (Node::Box, "shape --in c0 --out s0 --rate 10Mbps"),
        (Node::Box, "shape --in if:c0,driver=af_packet --out if:s0,driver=af_packet"),
        (CLIENT, "gen --out eth0 --stream 'udp 10.77.0.1:1000 > 10.77.0.100:9' --rate 1kpps"),
        (Node::Server, "measure --in eth0"),
    ] {
        let line = format!("sh -c '{before} exec \"$@\"' sh {} ", bed::netlathe());
        let mut words = bed::words(&line);
        words.extend(bed::words(&format!("{command} --json {options}")));
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let program = Program::start(bed.command(node, "sh", &words));
        let finished = ended_by(program);
        assert_eq!((finished.status.code(), finished.complaints()), (Some(0), vec![]), "{command}: {finished:?}");
        finished.report();
    }
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} still has an XDP program");
        let flags = bed.stdout(Node::Box, &format!("ip link show dev {interface}"));
        assert!(flags.contains("PROMISC"), "{interface} is not promiscuous, as the lab has set it: {flags}");
    }
}

#[test]
fn every_end_is_clean() {
    let Some(bed) = Bed::shared("ends", |_| {}) else { return };
    let after = |signals: &'static [&'static str]| {
        move |program: Program| {
            // Also while it is starting: handlers are set first.
            thread::sleep(Duration::from_millis(700));
            for signal in signals {
                program.signal(signal);
            }
            program.wait()
        }
    };
    assert_ends(&bed, after(&["INT"]), "", "");
    assert_ends(&bed, after(&["TERM"]), "", "");
    // What a terminal that is closed sends.
    assert_ends(&bed, after(&["HUP"]), "", "");
    assert_ends(&bed, after(&["INT"]), "trap \"\" INT TERM;", "");
    assert_ends(&bed, after(&["TERM"]), "trap \"\" INT TERM;", "");
    assert_ends(&bed, Program::wait, "", "--duration 500ms");
}

#[test]
fn a_killed_receiver_leaves_whole_records() {
    let Some(bed) = Bed::shared("killed", |_| {}) else { return };
    let shape = bed.shape("");
    let capture = bed.capture("killed.pcap");
    let sender = bed.sender(1, 200, "5kpps", 15_000);
    thread::sleep(Duration::from_millis(2_500));
    capture.signal("KILL");
    assert_eq!(capture.wait().status.code(), None);
    sender.wait().report();
    shape.stop().report();
    let records = bed.streams("killed.pcap");
    // What came in the first second has been flushed.
    let sequence = Sequence::of(&records, 1, 15_000);
    assert!(sequence.came > 2_000, "{sequence:?}");
    assert_eq!(sequence.missing, 15_000 - sequence.came);
    let numbers = records.iter().map(sequence_of);
    assert!(numbers.eq(0..sequence.came), "records that are not the first ones");
    assert_eq!(bed.records("killed.pcap").1, 0, "the last record is cut");
}

#[test]
fn a_killed_shape_leaves_usable_interfaces() {
    let Some(bed) = Bed::shared("again", |_| {}) else { return };
    for driver in ["af_xdp", "af_packet"] {
        for next in ["af_xdp", "af_packet"] {
            let ports = |driver| format!("--in if:c0,driver={driver} --out if:s0,driver={driver}");
            let shape = bed.between(&ports(driver), "");
            shape.signal("KILL");
            shape.wait();
            let shape = bed.between(&ports(next), "");
            bed.send(1, 100, "1kpps", 500);
            let finished = shape.stop();
            assert!(number(&finished.report(), "/out/frames") >= 500, "{driver}, then {next}: {finished:?}");
        }
    }
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} still has an XDP program");
    }
}

#[test]
fn a_lab_goes_down_with_what_runs_and_what_was_killed_in_it() {
    let Some(bed) = Bed::shared("down", |_| {}) else { return };
    let killed = bed.shape("");
    killed.signal("KILL");
    killed.wait();
    let running = bed.shape("");
    let name = bed.lab.name().to_owned();
    let down = Command::new(bed::netlathe()).args(["lab", "down", &name]).output().expect("it runs");
    assert!(down.status.success(), "{down:?}");
    assert!(String::from_utf8_lossy(&down.stderr).contains("ended netlathe"), "{down:?}");
    running.wait().report();
    let left = fs::read_dir("/run/netns")
        .expect("namespaces are there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(left.filter(|left| left.starts_with(&format!("nl-{name}-"))).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(!Path::new(&format!("/run/netlathe/labs/{name}.json")).exists());
}

#[test]
fn labs_run_side_by_side() {
    let Some(one) = Bed::shared("side-a", |_| {}) else { return };
    // The second takes no turn of its own: two in one thread could wait for each other.
    let two = lab::Guard::up(&lab::Topology::named(lab_name("side-b"))).expect("a second lab comes up");
    let shape = one.shape("");
    let in_two = |node, arguments: &[&str]| {
        let mut command = two.command(node, arguments[0]).expect("the program exists");
        command.args(&arguments[1..]).stdin(Stdio::null());
        command
    };
    let ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", "10.77.0.100"];
    let alone = in_two(CLIENT, &ping).output().expect("it runs");
    assert!(!alone.status.success(), "the first lab's shape carries the second lab's frames");
    let other = Program::start(in_two(Node::Box, &[bed::netlathe(), "shape", "--in", "c0", "--out", "s0", "--json"]));
    let start = Instant::now();
    while !in_two(CLIENT, &ping).output().expect("it runs").status.success() {
        assert!(start.elapsed() < Duration::from_secs(20), "the second carries nothing");
    }
    // It succeeds with one reply of two: the first may have been sent before the shape was there.
    let again = in_two(CLIENT, &ping).output().expect("it runs");
    assert!(again.status.success(), "{again:?}");
    one.stdout(CLIENT, "ping -c 2 -i 0.2 -W 1 10.77.0.100");
    let other = other.stop();
    assert!(number(&other.report(), "/out/frames") >= 2, "{other:?}");
    shape.stop().report();
}

#[test]
fn what_cannot_be_opened_is_said_in_one_line() {
    let Some(bed) = Bed::shared("bad", |_| {}) else { return };
    bed.stdout(Node::Box, "ip link add d0 type veth peer name d1");
    bed.stdout(Node::Box, "ip tuntap add tun0 mode tun");
    bed.stdout(Node::Box, "ip link set tun0 up");
    let files = |bed: &Bed| fs::read_dir(bed.path("")).expect("it is there").count();
    let before = files(&bed);
    for (line, said) in [
        ("shape --in nosuch0 --out s0", &["no interface nosuch0", "ip link"][..]),
        ("shape --in c0 --out nosuch0", &["no interface nosuch0", "ip link"]),
        ("shape --in if:nosuch0,driver=af_packet --out s0", &["no interface nosuch0"]),
        ("gen --out nosuch0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["no interface nosuch0"]),
        ("measure --in nosuch0", &["no interface nosuch0"]),
        ("measure --in nosuch0 --write x.pcap", &["no interface nosuch0"]),
        ("shape --in d0 --out s0", &["d0 is down", "ip link set d0 up"]),
        ("shape --in c0 --out d0", &["d0 is down"]),
        ("gen --out d0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["d0 is down"]),
        ("measure --in d0", &["d0 is down", "ip link set d0 up"]),
        ("measure --in d0 --write x.pcap", &["d0 is down"]),
        (
            "shape --in tun0 --out s0",
            &["tun0 carries packets without an Ethernet header", "name an Ethernet interface"],
        ),
        ("gen --out tun0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["tun0 carries packets without"]),
        ("measure --in tun0", &["tun0 carries packets without"]),
        ("measure --in tap:x", &["nothing can be received from tap:x"]),
        ("measure --in eth0,driver=af_packet", &["no interface eth0"]),
        ("shape --in c0 --out pcap:x.pcap", &["one port is live", "measure"]),
        ("shape --in pcap:x.pcap --out s0", &["one port is live"]),
        ("shape --in c0 --out wire:10G", &["one port is live"]),
        ("shape --in c0 --out s0 --rate 50%", &["line"]),
        ("shape --in c0 --out s0 --filler self", &["filler"]),
        ("shape --in c0 --out s0 --pacer filler", &["filler"]),
        ("shape --in c0 --out c0", &["c0"]),
        ("shape --in c0 --out dpdk:net_nosuch0", &["net_nosuch0", "no such driver"]),
        ("shape --in c0 --out dpdk:net_null0,foo=bar", &["net_null0", "arguments"]),
        ("shape --in tap:c0 --out s0", &["c0", "choose another name"]),
        ("shape --in c0 --out dpdk:net_af_packet9,iface=nosuch0", &["nosuch0"]),
        ("shape --in c0 --out pci:0000:ff:1f.7", &["0000:ff:1f.7", "dpdk-devbind"]),
        ("shape --in c0 --out pci:nonsense", &["nonsense"]),
    ] {
        let started = Instant::now();
        let finished = bed.run(Node::Box, &format!("{line} --duration 5s"));
        println!("{line}: {}", finished.stderr);
        finished.assert_refused(said);
        assert!(started.elapsed() < Duration::from_secs(10), "{line} took {:?}", started.elapsed());
    }
    assert_eq!(files(&bed), before, "a refused command leaves files");
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} has an XDP program");
    }
}

#[test]
fn without_rights_the_remedy_is_said() {
    let Some(bed) = Bed::shared("rights", |_| {}) else { return };
    let program = readable(&bed);
    for line in [
        "shape --in c0 --out s0",
        "shape --in if:c0,driver=af_packet --out s0",
        "shape --in tap:nl0 --out s0",
        "measure --in c0",
        "gen --out s0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'",
    ] {
        let words = bed::words(line);
        let mut arguments = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", program.as_str()];
        arguments.extend(words.iter().map(String::as_str));
        let mut command = bed.command(Node::Box, "setpriv", &arguments);
        command.current_dir("/");
        let finished = Program::start(command).wait();
        println!("{line}: {}", finished.stderr);
        finished.assert_refused(&["root"]);
    }
}

/// A copy of netlathe that any user may run, wherever the target folder is.
fn readable(bed: &Bed) -> String {
    let copy = bed.path("netlathe");
    fs::copy(bed::netlathe(), &copy).expect("it can be copied");
    fs::set_permissions(bed.path(""), PermissionsExt::from_mode(0o755)).expect("it is ours");
    copy.to_string_lossy().into_owned()
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
    for port in finished.whole_report()["limits"]["ports"].as_object().expect("ports").values() {
        assert_eq!(port["driver"], "net_af_packet");
    }
    // Asked for by name it cannot be had, and the remedy is named.
    let refused = bed.run(Node::Box, "shape --in if:c0,driver=af_xdp --out s0 --duration 3s");
    refused.assert_refused(&["af_packet", "MTU"]);
}

#[test]
fn frames_too_long_for_the_output_are_counted() {
    for driver in ["", ",driver=af_packet"] {
        let Some(bed) = Bed::shared("long", |_| {}) else { return };
        bed.stdout(Node::Box, "ip link set s0 mtu 1000");
        let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "");
        let capture = bed.capture("seen.pcap");
        // 1018 B with FCS carry a packet of 1000 B.
        bed.send(1, 1018, "1kpps", 50);
        bed.send(1, 1019, "1kpps", 50);
        bed.send(1, 1500, "1kpps", 50);
        thread::sleep(Duration::from_millis(300));
        let report = shape.stop().report();
        capture.stop().report();
        assert_eq!(number(&report, "/drops/too-long"), 100, "{report}");
        let lengths: Vec<usize> = bed.streams("seen.pcap").iter().map(|record| record.bytes.len()).collect();
        assert_eq!(lengths, vec![1014; 50]);
    }
}

/// Runs `shape` while `happens` befalls one of its interfaces.
fn assert_survives(test: &str, driver: &str, happens: impl Fn(&Bed)) -> Option<(Value, String)> {
    let bed = Bed::shared(test, |_| {})?;
    // The sender goes on meanwhile, bounded.
    let line = format!("shape --in if:c0{driver} --out if:s0{driver} --json --gap 200us");
    let shape = bed.start(Node::Box, &line);
    thread::sleep(Duration::from_millis(1_000));
    let sender = bed.sender(1, 100, "4kpps", 12_000);
    thread::sleep(Duration::from_millis(800));
    happens(&bed);
    // It goes on long enough to show that it does.
    thread::sleep(Duration::from_millis(2_000));
    let finished = shape.stop();
    drop(sender);
    println!("{test}{driver}: {}", finished.stderr);
    assert!(!finished.stderr.contains("panicked"), "{finished:?}");
    Some((finished.report(), finished.stderr))
}

#[test]
fn an_interface_set_down_and_up_again_does_not_end_a_run() {
    for driver in ["", ",driver=af_packet"] {
        for interface in ["c0", "s0"] {
            let survived = assert_survives(&format!("flap-{interface}"), driver, |bed| {
                bed.stdout(Node::Box, &format!("ip link set {interface} down"));
                thread::sleep(Duration::from_millis(300));
                bed.stdout(Node::Box, &format!("ip link set {interface} up"));
                // It goes on: what is sent from now on passes, both ways.
                let begin = Instant::now();
                while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
                    assert!(begin.elapsed() < Duration::from_secs(30), "nothing passes any more");
                }
            });
            let Some((report, stderr)) = survived else { return };
            assert!(number(&report, "/out/frames") > 0, "{interface}{driver}: {report} {stderr}");
            assert!(!stderr.contains("down"), "{interface}{driver}: {stderr}");
        }
    }
}

/// Waits until a counter of an interface of the box has passed `most`.
fn await_counter(bed: &Bed, interface: &str, counter: &str, most: u64) {
    let begin = Instant::now();
    let line = format!("cat /sys/class/net/{interface}/statistics/{counter}");
    while bed.stdout(Node::Box, &line).trim().parse::<u64>().is_ok_and(|count| count <= most) {
        assert!(begin.elapsed() < Duration::from_secs(40), "{interface} has no more {counter}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn frames_that_an_mtu_lowered_during_a_run_forbids_are_dropped_and_told() {
    for pacing in ["--gap 500us", "", "--gap 500us --pacer filler --line-rate 1G"] {
        let Some(bed) = Bed::shared("lowered", |_| {}) else { return };
        let line = "gen --out if:c0,driver=af_packet --json --duration 50s --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1400B' \
                    --stream 'udp 10.0.0.1:1 > 10.0.0.2:3 size 100B'";
        let sender = bed.start(Node::Box, &format!("{line} {pacing}"));
        await_counter(&bed, "c0", "tx_packets", 200);
        bed.stdout(Node::Box, "ip link set c0 mtu 1000");
        thread::sleep(Duration::from_millis(500));
        // The short ones go on.
        let sent: u64 =
            bed.stdout(Node::Box, "cat /sys/class/net/c0/statistics/tx_packets").trim().parse().expect("a count");
        await_counter(&bed, "c0", "tx_packets", sent + 100);
        let finished = sender.stop();
        let report = finished.report();
        assert!(finished.stderr.contains("c0 had its MTU lowered to 1000"), "{finished:?}");
        assert!(number(&report, "/drops/too-long") > 50, "{pacing}: {report}");
        let (long, short) = (number(&report, "/streams/0/sent"), number(&report, "/streams/1/sent"));
        assert!(long < short && long + short == number(&report, "/out/frames"), "{pacing}: {report}");
    }
}

#[test]
fn frames_that_the_input_cannot_take_whole_are_not_sent_on() {
    let Some(bed) = Bed::shared("cut", |topology| topology.mtu = 9_000) else { return };
    bed.stdout(Node::Box, "ip link set c0 mtu 1500");
    let shape = bed.between("--in if:c0,driver=af_packet --out if:s0,driver=af_packet", "");
    let capture = bed.capture("seen.pcap");
    bed.stdout(Node::Box, "ip link set c0 mtu 9000");
    for size in [1_500, 1_800, 3_000] {
        bed.send(1, size, "2kpps", 50);
    }
    let report = shape.stop().report();
    capture.stop().report();
    assert_eq!(number(&report, "/drops/too-long"), 100, "{report}");
    let lengths: Vec<usize> = bed.streams("seen.pcap").iter().map(|record| record.bytes.len()).collect();
    assert_eq!(lengths, vec![1_496; 50]);
}

#[test]
fn a_tap_that_goes_away_ends_a_run_and_one_that_is_down_is_told() {
    let Some(bed) = Bed::shared("tap-gone", |_| {}) else { return };
    let stream = "--gap 1ms --duration 50s --json --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let tap = || {
        let sender = bed.start(Node::Box, &format!("gen --out tap:t0 {stream}"));
        let begin = Instant::now();
        while !bed.output(Node::Box, "test -e /sys/class/net/t0").status.success() {
            assert!(begin.elapsed() < Duration::from_secs(40), "there is no device");
            thread::sleep(Duration::from_millis(10));
        }
        await_counter(&bed, "t0", "rx_packets", 50);
        sender
    };
    let sender = tap();
    bed.stdout(Node::Box, "ip link del t0");
    assert_ended_with("t0", &sender.wait());
    let sender = tap();
    let second = bed.run(Node::Box, &format!("gen --out tap:t0 {stream}"));
    second.assert_refused(&["t0", "choose another name"]);
    let finished = sender.stop();
    assert!(number(&finished.report(), "/out/frames") > 50 && !finished.stderr.contains("down"), "{finished:?}");
    let sender = tap();
    bed.stdout(Node::Box, "ip link set t0 down");
    thread::sleep(Duration::from_millis(300));
    let finished = sender.stop();
    finished.report();
    assert!(finished.stderr.contains("t0 is down at the end of the run"), "{finished:?}");
}

/// That a run has ended by itself since an interface went: with its report, and status 2 and a line that names it.
#[track_caller]
fn assert_ended_with(interface: &str, finished: &Finished) -> Value {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let complaints = finished.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with(&format!("netlathe: interface {interface} went away")), "{complaints:?}");
    finished.whole_report()["pipelines"][0].clone()
}

#[test]
fn an_interface_that_goes_away_ends_a_run_with_its_report() {
    for driver in ["", ",driver=af_packet"] {
        for interface in ["c0", "s0"] {
            let Some(bed) = Bed::shared(&format!("gone-{interface}"), |_| {}) else { return };
            let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "--gap 200us");
            let sender = bed.sender(1, 100, "4kpps", 12_000);
            thread::sleep(Duration::from_millis(800));
            bed.stdout(Node::Box, &format!("ip link del {interface}"));
            let report = assert_ended_with(interface, &shape.wait());
            drop(sender);
            assert!(number(&report, "/out/frames") > 0, "{report}");
        }
    }
}

#[test]
fn a_generator_whose_interface_goes_away_ends_then() {
    for filler in ["", "--pacer filler --line-rate 1G"] {
        let Some(bed) = Bed::shared("gen-gone", |_| {}) else { return };
        let line = "gen --out c0 --gap 1ms --json --duration 50s --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 300B'";
        let begin = Instant::now();
        let sender = bed.start(Node::Box, &format!("{line} {filler}"));
        let counter = "cat /sys/class/net/c0/statistics/tx_packets";
        while bed.stdout(Node::Box, counter).trim().parse::<u64>().is_ok_and(|sent| sent < 100) {
            assert!(begin.elapsed() < Duration::from_secs(40), "nothing is sent");
            thread::sleep(Duration::from_millis(10));
        }
        bed.stdout(Node::Box, "ip link del c0");
        let report = assert_ended_with("c0", &sender.wait());
        // Of the 50 000 frames of the whole run.
        assert!((1..49_000).contains(&number(&report, "/out/frames")), "{report}");
    }
}

#[test]
fn a_generator_reports_what_came_before_its_receiver_went() {
    for (happens, said) in
        [("ip link set b1 down", "--in: nothing more can be received"), ("ip link del b1", " went away")]
    {
        let Some(bed) = Bed::shared("far-gone", |_| {}) else { return };
        bed.stdout(Node::Box, "ip link add b0 type veth peer name b1");
        for end in ["b0", "b1"] {
            bed.stdout(Node::Box, &format!("ethtool -K {end} tx off tso off gso off gro off"));
            bed.stdout(Node::Box, &format!("ip link set {end} up"));
        }
        let line = "gen --out b0 --in b1 --rate 2kpps --json --report page --duration 50s \
                    --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 300B'";
        let sender = bed.start(Node::Box, line);
        let begin = Instant::now();
        let counter = "cat /sys/class/net/b1/statistics/rx_packets";
        while bed.stdout(Node::Box, counter).trim().parse::<u64>().is_ok_and(|came| came < 1_000) {
            assert!(begin.elapsed() < Duration::from_secs(40), "nothing is sent");
            thread::sleep(Duration::from_millis(10));
        }
        bed.stdout(Node::Box, happens);
        let finished = sender.wait();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.complaints().len() == 1 && finished.complaints()[0].contains(said), "{finished:?}");
        let report = finished.whole_report()["pipelines"][0].clone();
        assert!((500..99_000).contains(&number(&report, "/streams/0/received")), "{report}");
        assert!(bed.path("page/report.html").exists());
    }
}

/// A command that has 64 KiB of disk in the folder `small`, where nobody else sees it.
fn with_little_space(bed: &Bed, node: Node, line: &str) -> Program {
    let line = format!("mkdir -p small && mount -t tmpfs -o size=64k none small && exec {} {line}", bed::netlathe());
    Program::start(bed.command(node, "unshare", &["-m", "sh", "-c", &line]))
}

#[test]
fn a_disk_that_is_full_costs_no_report() {
    let Some(bed) = Bed::shared("full", |_| {}) else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1000B'";
    let sender = bed.start(CLIENT, &format!("gen --out eth0 --rate 1kpps --duration 30s -q {stream}"));
    for (file, line) in [
        ("small/a.pcap", "measure --in c0 --write small/a.pcap --json --duration 50s"),
        ("small/l.csv", &format!("gen --out line:10G,frames=small/l.csv --gap 10us --count 20000 --json {stream}")),
        ("small/d.csv", "emulate --in c0 --out s0 --forward 'delay 1ms' --decisions small/d.csv --json --duration 4s"),
    ] {
        let finished = with_little_space(&bed, Node::Box, line).wait();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        let complaints = finished.complaints();
        assert!(complaints.len() == 1 && complaints[0].contains(file), "{complaints:?}");
        assert!(number(&finished.whole_report()["pipelines"][0], "/out/frames") > 50, "{finished:?}");
    }
    drop(sender);
}

#[test]
fn an_output_without_a_carrier_is_told() {
    for driver in ["", ",driver=af_packet"] {
        let Some(bed) = Bed::shared("carrier", |_| {}) else { return };
        bed.stdout(Node::Server, "ip link set eth0 down");
        let line = format!("gen --out if:s0{driver} --json --count 10 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
        let finished = bed.run(Node::Box, &format!("{line} --duration 1s"));
        assert!(finished.stderr.contains("s0 has no carrier at the end of the run"), "{finished:?}");
        bed.stdout(Node::Server, "ip link set eth0 up");
        let finished = bed.run(Node::Box, &line);
        assert!(
            number(&finished.report(), "/out/frames") == 10 && !finished.stderr.contains("carrier"),
            "{finished:?}"
        );
    }
}

#[test]
fn a_blocked_output_leaves_the_input_read() {
    for driver in ["", ",driver=af_packet"] {
        let Some(bed) = Bed::shared("blocked", |_| {}) else { return };
        let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "");
        // The output takes nothing from here on, and the backlog is more than any ring.
        bed.stdout(Node::Box, "ip link set s0 down");
        bed.send(1, 100, "20kpps", 20_000);
        let finished = shape.stop();
        let report = finished.report();
        assert!(finished.stderr.contains("s0") && finished.stderr.contains("is down at the end"), "{finished:?}");
        assert!(number(&report, "/in/frames") + missed(&finished) >= 20_000, "{report}");
        assert!(number(&report, "/in/frames") > 15_000, "{report}");
    }
}

#[test]
fn a_receiver_says_that_its_interface_went() {
    let Some(bed) = Bed::shared("went", |_| {}) else { return };
    for (happens, said) in [("ip link set eth0 down", "down"), ("ip link del eth0", "eth0")] {
        let name = format!("{said}.pcap");
        let capture = bed.capture(&name);
        thread::sleep(Duration::from_millis(100));
        bed.stdout(Node::Server, happens);
        let finished = capture.wait();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
        assert!(finished.stderr.contains(said), "{finished:?}");
        finished.whole_report();
        assert_eq!(bed.records(&name).1, 0);
        if said == "down" {
            bed.stdout(Node::Server, "ip link set eth0 up");
        }
    }
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
    // The kernel's side of the TAP is a host in the server's subnet.
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

    // A device that swallows everything and gives frames without end.
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

/// What a run says at a socket as systemd has one.
fn notified(socket: &UnixDatagram) -> Option<String> {
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

#[test]
fn a_run_says_when_frames_pass() {
    let Some(bed) = Bed::shared("ready", |_| {}) else { return };
    let path = bed.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let start = |line: &str| {
        let mut command = bed.netlathe(Node::Box, line);
        command.env("NOTIFY_SOCKET", &path);
        Program::start(command)
    };
    let ready = Some("READY=1".to_owned());

    for command in
        ["shape --in c0 --out s0", "emulate --between c0 s0 --forward 'loss 0%'", "shape --in c0 --out s0 --cores 0,1"]
    {
        let run = start(&format!("{command} --json --duration 60s -v"));
        assert_eq!(notified(&socket), ready, "{command}");
        // The first one, without another try.
        bed.stdout(CLIENT, "ping -c 1 -W 2 10.77.0.100");
        let finished = run.stop();
        assert_eq!(finished.stderr.lines().filter(|line| *line == "netlathe: ready").count(), 1, "{finished:?}");
        assert!(number(&finished.report(), "/in/frames") > 0, "{finished:?}");
    }

    let measure = start("measure --in c0 --json --count 1 --duration 30s");
    assert_eq!(notified(&socket), ready);
    bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100");
    let finished = measure.wait();
    assert_eq!((number(&finished.report(), "/in/frames"), finished.complaints()), (1, vec![]), "{finished:?}");

    // It is over before anybody looks, and is no failed service for that.
    let stream = "--stream 'udp 10.77.0.1:1 > 10.77.0.100:9'";
    start(&format!("gen --out c0 --json --count 1 {stream}")).wait().report();
    assert_eq!(notified(&socket), ready);

    // What never carried anything says nothing, and each of those above said it once.
    start("measure --in nosuch0").wait().assert_refused(&["nosuch0"]);
    start(&format!("gen --out nosuch0 {stream}")).wait().assert_refused(&["nosuch0"]);
    start("shape --in c0 --out nosuch0").wait().assert_refused(&["nosuch0"]);
    socket.set_nonblocking(true).expect("it can be asked");
    assert_eq!(notified(&socket), None);

    // Nobody listens any more: that is no reason not to run.
    drop(socket);
    let finished = start(&format!("gen --out c0 --json --count 1 {stream}")).wait();
    assert_eq!(number(&finished.report(), "/out/frames"), 1);
    assert!(finished.stderr.contains("NOTIFY_SOCKET: "), "{finished:?}");
}
