//! Frames that something else carries too: the kernel, another netlathe, or the run itself in a loop.

use super::CLIENT;
use crate::bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

#[test]
fn frames_that_would_go_round_are_refused() {
    let Some(bed) = Bed::shared("round", |_| {}) else { return };
    for line in [
        "ip link add d0 type veth peer name d1",
        "ip link set d0 up",
        "ip link set d1 up",
        "ip link property add dev c0 altname clients",
    ] {
        bed.stdout(Node::Box, line);
    }
    for (line, said) in [
        ("shape --in d0 --out d1", &["d0 and d1 are the two ends of one veth pair", "another pair"][..]),
        // One way only, but still a loop.
        ("shape --in d1 --out d0 --one-way", &["d1 and d0 are the two ends of one veth pair"]),
        ("shape --in if:d0,driver=af_packet --out if:d1,driver=af_packet", &["one veth pair"]),
        ("emulate --between d0 d1 --forward 'loss 1%'", &["one veth pair"]),
        ("limit --in d0 --out d1 --key dst-ip --rate 1Mbps --mode police", &["one veth pair"]),
        ("shape --in c0 --out if:c0,driver=af_packet", &["is the input too"]),
        ("shape --in c0 --out clients", &["clients and c0 are the same interface"]),
    ] {
        bed.run(Node::Box, &format!("{line} --duration 2s")).assert_refused(said);
    }
    // A pair is meant for sending on one end and receiving on the other.
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let finished = bed.run(Node::Box, &format!("gen --out d0 --in d1 --count 10 {stream} --json"));
    assert_eq!(number(&finished.report(), "/out/frames"), 10);
}

#[test]
fn warns_of_frames_that_the_kernel_also_forwards() {
    let Some(bed) = Bed::paired("bridged") else { return };
    bed.stdout(Node::Box, "ip link add bridge0 type bridge");
    bed.stdout(Node::Box, "ip link set bridge0 up");
    for port in ["a0", "b0"] {
        bed.stdout(Node::Box, &format!("ip link set {port} master bridge0"));
    }
    let run = |ports: &str| bed.run(Node::Box, &format!("shape {ports} --duration 100ms --json --take-over")).stderr;
    let both = "--in if:a0,driver=af_packet --out if:b0,driver=af_packet";
    let said = run(both);
    assert!(said.contains("a0 and b0 are ports of the bridge bridge0") && said.contains("nomaster"), "{said}");
    let said = run("--in if:bridge0,driver=af_packet --out if:b0,driver=af_packet");
    assert!(said.contains("what leaves bridge0 leaves by b0"), "{said}");
    bed.stdout(Node::Box, "ip link set b0 nomaster");
    assert_eq!(run(both), "", "they have nothing to do with each other any more");
}

/// Frames that this machine sends on an interface do not count as arrivals there, whichever program sends them.
#[test]
fn own_frames_are_not_received() {
    let Some(bed) = Bed::paired("outgoing") else { return };
    bed.stdout(Node::Box, "ip address add 10.99.0.1/24 dev a0");
    for queues in [1, 2] {
        let ports = format!("--in if:a0,driver=af_packet,queues={queues} --out if:b0,driver=af_packet");
        let shape = bed.start(Node::Box, &format!("shape {ports} --json --duration 5s --take-over"));
        thread::sleep(Duration::from_millis(2_000));
        // Sends an ARP request on a0, which gets no answer.
        assert!(!bed.output(Node::Box, "ping -c 1 -W 1 10.99.0.2").status.success());
        let stream = "--stream 'udp 10.99.0.2:1 > 10.99.0.1:9'";
        bed.run(Node::Box, &format!("gen --out a1 --count 10 --rate 1kpps {stream} --json")).report();
        let report = shape.wait().report();
        assert_eq!((number(&report, "/in/frames"), number(&report, "/return/in/frames")), (10, 0), "{report}");
    }
}

#[test]
fn netlathes_that_carry_the_same_frames_say_so() {
    let Some(bed) = Bed::shared("twice", |_| {}) else { return };
    let ports = "--in if:c0,driver=af_packet --out if:s0,driver=af_packet";
    let first = bed.between(ports, "");
    let another = format!("another netlathe (process {})", first.pid());
    let said = |node, line: &str| {
        let finished = bed.run(node, &format!("{line} --duration 300ms --json"));
        // The frame of `gen` may not get through.
        finished.whole_report();
        finished
            .stderr
            .lines()
            .filter(|line| line.contains("also forwards what arrives there"))
            .map(str::to_owned)
            .collect()
    };
    let notes: Vec<String> = said(Node::Box, &format!("shape {ports}"));
    assert_eq!(notes.len(), 2, "{notes:?}");
    for (note, interface) in notes.iter().zip(["c0", "s0"]) {
        assert!(note.starts_with(&format!("netlathe: note: {interface}: {another}")), "{notes:?}");
    }
    // With `--one-way`, the output only sends.
    let notes: Vec<String> =
        said(Node::Box, "shape --in if:s0,driver=af_packet --out if:c0,driver=af_packet --one-way");
    assert!(notes.len() == 1 && notes[0].starts_with("netlathe: note: s0: "), "{notes:?}");
    // Receivers that only listen disturb no other run.
    assert_eq!(said(Node::Box, "measure --in c0"), [""; 0]);
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --wait 10ms";
    assert_eq!(said(Node::Box, &format!("gen --out if:c0,driver=af_packet --in s0 {stream}")), [""; 0]);
    // A killed run leaves nothing behind.
    first.signal("KILL");
    assert_eq!(first.wait().stderr, "");
    assert_eq!(said(Node::Box, &format!("shape {ports}")), [""; 0]);
    // Interfaces with the same name and index in two network namespaces are different interfaces.
    let index = |node| bed.stdout(node, "cat /sys/class/net/eth0/ifindex");
    println!("eth0 is number {} and {}", index(CLIENT).trim(), index(Node::Server).trim());
    let client = bed.start(CLIENT, "shape --in if:eth0,driver=af_packet --out null --duration 4s --json");
    thread::sleep(Duration::from_millis(2_000));
    assert_eq!(said(Node::Server, "shape --in if:eth0,driver=af_packet --out null"), [""; 0]);
    assert_eq!(client.wait().stderr, "");
}
