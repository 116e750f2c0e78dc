//! Interfaces that go down, go away or have no carrier while a run uses them.

use super::{CLIENT, await_counter};
use crate::bed::{Bed, Finished, number};
use lab::Node;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn an_interface_set_down_and_up_again_does_not_end_a_run() {
    for driver in ["", ",driver=af_packet"] {
        for interface in ["c0", "s0"] {
            let Some(bed) = Bed::shared(&format!("flap-{interface}"), |_| {}) else { return };
            // The sender continues meanwhile, with a limited number of frames.
            let line = format!("shape --in if:c0{driver} --out if:s0{driver} --json --gap 200us");
            let shape = bed.start(Node::Box, &line);
            thread::sleep(Duration::from_millis(1_000));
            let sender = bed.sender(1, 100, "4kpps", 12_000);
            thread::sleep(Duration::from_millis(800));
            bed.stdout(Node::Box, &format!("ip link set {interface} down"));
            thread::sleep(Duration::from_millis(300));
            bed.stdout(Node::Box, &format!("ip link set {interface} up"));
            // The run continues: new frames pass, both ways.
            let begin = Instant::now();
            while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
                assert!(begin.elapsed() < Duration::from_secs(30), "nothing passes any more");
            }
            // Long enough to show that the run continues.
            thread::sleep(Duration::from_millis(2_000));
            let finished = shape.stop();
            drop(sender);
            assert!(number(&finished.report(), "/out/frames") > 0, "{interface}{driver}: {finished:?}");
            for word in ["panicked", "down"] {
                assert!(!finished.stderr.contains(word), "{interface}{driver}: {finished:?}");
            }
        }
    }
}

/// Asserts that the run ended because an interface disappeared: with its report, status 2, and a line that names the
/// interface. Returns the report.
#[track_caller]
fn assert_ended_with(interface: &str, finished: &Finished) -> Value {
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let complaints = finished.complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with(&format!("netlathe: interface {interface} disappeared")), "{complaints:?}");
    finished.whole_report()["pipelines"][0].clone()
}

#[test]
fn a_deleted_interface_ends_a_run_with_its_report() {
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
fn deleted_tap_ends_the_run_and_a_down_one_warns() {
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

#[test]
fn generator_ends_when_its_interface_disappears() {
    for filler in ["", "--pacer filler --line-rate 1G"] {
        let Some(bed) = Bed::shared("gen-gone", |_| {}) else { return };
        let line = "gen --out c0 --gap 1ms --json --duration 50s --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 300B'";
        let sender = bed.start(Node::Box, &format!("{line} {filler}"));
        await_counter(&bed, "c0", "tx_packets", 100);
        bed.stdout(Node::Box, "ip link del c0");
        let report = assert_ended_with("c0", &sender.wait());
        // Of the 50 000 frames of the whole run.
        assert!((1..49_000).contains(&number(&report, "/out/frames")), "{report}");
    }
}

#[test]
fn generator_reports_arrivals_until_its_receiver_disappeared() {
    for (happens, said) in [("ip link set b1 down", "--in: receiving failed"), ("ip link del b1", " disappeared")] {
        let Some(bed) = Bed::shared("far-gone", |_| {}) else { return };
        bed.stdout(Node::Box, "ip link add b0 type veth peer name b1");
        for end in ["b0", "b1"] {
            bed.stdout(Node::Box, &format!("ethtool -K {end} tx off tso off gso off gro off"));
            bed.stdout(Node::Box, &format!("ip link set {end} up"));
        }
        let line = "gen --out b0 --in b1 --rate 2kpps --json --report page --duration 50s \
                    --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 300B'";
        let sender = bed.start(Node::Box, line);
        await_counter(&bed, "b1", "rx_packets", 1_000);
        bed.stdout(Node::Box, happens);
        let finished = sender.wait();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        assert!(finished.complaints().len() == 1 && finished.complaints()[0].contains(said), "{finished:?}");
        let report = finished.whole_report()["pipelines"][0].clone();
        assert!((500..99_000).contains(&number(&report, "/streams/0/received")), "{report}");
        assert!(bed.path("page/report.html").exists());
    }
}

#[test]
fn a_receiver_reports_a_deleted_interface() {
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
fn warns_of_an_output_without_a_carrier() {
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
fn a_run_without_a_free_descriptor_survives_an_interface_change() {
    let Some(bed) = Bed::shared("descriptors", |_| {}) else { return };
    let line =
        "gen --out if:s0,driver=af_packet --json --duration 50s --gap 1ms --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let sender = bed.start(Node::Box, line);
    await_counter(&bed, "s0", "tx_packets", 200);
    // Open files stay open, but no more can be opened, so the kernel cannot be queried any more.
    bed.stdout(Node::Box, &format!("prlimit --pid {} --nofile=3:3", sender.pid()));
    bed.stdout(Node::Box, "ip link set s0 txqueuelen 900");
    thread::sleep(Duration::from_millis(500));
    let sent: u64 =
        bed.stdout(Node::Box, "cat /sys/class/net/s0/statistics/tx_packets").trim().parse().expect("a count");
    await_counter(&bed, "s0", "tx_packets", sent + 100);
    let finished = sender.stop();
    assert!(!finished.stderr.contains("disappeared"), "{finished:?}");
    assert!(number(&finished.report(), "/out/frames") > 300, "{finished:?}");
}
