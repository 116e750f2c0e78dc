//! Frames longer than the port's MTU, from the start or after a change.

use super::await_counter;
use crate::bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

#[test]
fn frames_too_long_for_the_output_are_counted() {
    for driver in ["", ",driver=af_packet"] {
        let Some(bed) = Bed::shared("long", |_| {}) else { return };
        bed.stdout(Node::Box, "ip link set s0 mtu 1000");
        let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "");
        let capture = bed.capture("seen.pcap");
        // Frames of 1018 B with FCS carry packets of 1000 B.
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
fn drops_and_reports_frames_above_a_lowered_mtu() {
    for pacing in ["--gap 500us", "", "--gap 500us --pacer filler --line-rate 1G"] {
        let Some(bed) = Bed::shared("lowered", |_| {}) else { return };
        let line = "gen --out if:c0,driver=af_packet --json --duration 50s --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1400B' \
                    --stream 'udp 10.0.0.1:1 > 10.0.0.2:3 size 100B'";
        let sender = bed.start(Node::Box, &format!("{line} {pacing}"));
        await_counter(&bed, "c0", "tx_packets", 200);
        bed.stdout(Node::Box, "ip link set c0 mtu 1000");
        thread::sleep(Duration::from_millis(500));
        // Short frames still pass.
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

/// If such a frame is not handled, the kernel keeps it at the head of a packet ring, or reports a full queue, forever.
#[test]
fn frames_too_long_for_the_veth_peer_delay_no_others() {
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 9018B' --stream 'udp 10.0.0.1:1 > 10.0.0.2:3 size 100B'";
    let Some(bed) = Bed::shared("far-end", |topology| topology.mtu = 9_000) else { return };
    bed.stdout(Node::Server, "ip link set eth0 mtu 1500");
    for pacing in ["--gap 500us", ""] {
        let line = format!("gen --out if:s0,driver=af_packet --json --count 200 {streams} {pacing}");
        let finished = bed.run(Node::Box, &line);
        let report = finished.report();
        assert_eq!(number(&report, "/out/frames"), 100, "{pacing}: {report}");
        assert_eq!(number(&report, "/drops/too-long"), 100, "{pacing}: {report}");
        assert!(finished.stderr.contains("s0 leads to an interface with an MTU of 1500"), "{finished:?}");
    }
    // The same for carried frames.
    let shape = bed.between("--in if:c0,driver=af_packet --out if:s0,driver=af_packet", "");
    bed.send(1, 4_000, "1kpps", 50);
    let answered = bed.output(Node::Client(1), "ping -c 3 -i 0.2 -W 2 10.77.0.100");
    assert!(answered.status.success(), "{answered:?}");
    assert_eq!(number(&shape.stop().report(), "/drops/too-long"), 50);
    // The kernel does not report an MTU in another namespace; only the refused frames show it.
    bed.stdout(Node::Server, "ip link set eth0 mtu 9000");
    let line = format!("gen --out if:s0,driver=af_packet --json --duration 50s {streams} --gap 500us");
    let sender = bed.start(Node::Box, &line);
    await_counter(&bed, "s0", "tx_packets", 200);
    bed.stdout(Node::Server, "ip link set eth0 mtu 1500");
    let sent: u64 =
        bed.stdout(Node::Box, "cat /sys/class/net/s0/statistics/tx_packets").trim().parse().expect("a count");
    await_counter(&bed, "s0", "tx_packets", sent + 200);
    let finished = sender.stop();
    assert!(finished.stderr.contains("s0 leads to an interface with an MTU of 1500"), "{finished:?}");
}

#[test]
fn oversized_frames_count_with_their_planned_length() {
    let Some(bed) = Bed::shared("no-buffer", |_| {}) else { return };
    for pacing in ["--gap 1ms", "", "--gap 1ms --pacer filler --line-rate 1G"] {
        let line =
            "gen --out if:s0,driver=af_packet --json --count 20 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 9018B,100B'";
        let report = bed.run(Node::Box, &format!("{line} {pacing}")).report();
        assert_eq!(number(&report, "/drops/too-long"), 10, "{pacing}: {report}");
        assert_eq!(number(&report, "/in/bytes"), 10 * 9_118, "{pacing}: {report}");
    }
}

#[test]
fn super_frames_of_a_capture_are_dropped_with_a_warning() {
    let Some(bed) = Bed::shared("super", |_| {}) else { return };
    let capture = bed.path("in.pcap");
    let path = capture.display();
    let stream = "--stream 'udp 10.0.0.1:1000 > 10.0.0.2:9 size 100B,7254B'";
    bed.run(Node::Box, &format!("gen --out pcap:{path} --json --count 40 {stream} --gap 1ms")).report();
    for pacing in ["", "--rate 1kpps", "--speed max", "--loop 2 --speed max"] {
        let program = bed.capture("seen.pcap");
        let finished = bed.run(Node::Box, &format!("gen --out if:s0,driver=af_packet --json --pcap {path} {pacing}"));
        program.stop().report();
        let report = finished.report();
        let rounds = if pacing.starts_with("--loop") { 2 } else { 1 };
        assert_eq!(number(&report, "/drops/too-long"), 20 * rounds, "{pacing}: {report}");
        assert_eq!(number(&report, "/out/frames"), 20 * rounds, "{pacing}: {report}");
        let warning =
            format!("{} frames of the capture dropped, longer than if:s0,driver=af_packet can send", 20 * rounds);
        let remedy = "up to 7 250 B; raise the MTU at both ends to 7236";
        assert!(finished.stderr.contains(&warning) && finished.stderr.contains(remedy), "{pacing}: {finished:?}");
        let whole: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert!(whole["warnings"].to_string().contains(&warning), "{pacing}: {whole}");
        assert_eq!(bed.streams("seen.pcap").len() as u64, 20 * rounds, "{pacing}");
    }
}

#[test]
fn generator_fails_when_the_port_takes_no_frame() {
    let Some(bed) = Bed::shared("all-long", |_| {}) else { return };
    for (size, pacing) in
        [("9000B", ""), ("9000B", "--gap 1ms"), ("9000B,1519B", "--gap 1ms --pacer filler --line-rate 1G")]
    {
        let line =
            format!("gen --out if:s0 --json --count 20 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size {size}' {pacing}");
        let finished = bed.run(Node::Box, &line);
        assert_eq!(finished.status.code(), Some(2), "{pacing}: {finished:?}");
        let wanted =
            "nothing was sent, 20 frames were longer than if:s0 can send: write a smaller size, or raise its MTU";
        assert!(finished.stderr.contains(wanted), "{pacing}: {finished:?}");
        assert_eq!(number(&finished.whole_report()["pipelines"][0], "/drops/too-long"), 20, "{pacing}");
    }
}
