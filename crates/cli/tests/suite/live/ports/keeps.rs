//! All frames arrive in order, and losses are reported.

use super::{CLIENT, median, missed, through};
use crate::bed::{Bed, Sequence, number};
use lab::Node;
use std::thread;
use std::time::Duration;

/// Sends an even stream in three runs. In the median run no frame is lost, and in no run a frame is out of order.
/// Losses are reported.
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
        assert!(missing <= missed(&finished), "{missing} lost, but the report says {}: {report}", missed(&finished));
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
    // A run stopped in the middle of a backlog holds the remaining frames.
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
        // The receiver may also have sent an ARP request, which was answered.
        assert_eq!(number(&measured, "/streams/0/received"), number(&report, "/out/frames"), "{measured} {report}");
        let rate = measured["rate"]["mean_bps"].as_f64().expect("a rate");
        assert!((rate / 40e6 - 1.0).abs() < 0.001, "{queues} queues: {measured}");
    }
    // Frames on any queue pass.
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
        let arrived = records.iter().filter(|record| record.bytes.get(36..38) == Some(&[0, 9])).count();
        assert_eq!(arrived, 5_000, "{driver}: {report}");
    }
}

#[test]
fn reports_losses_of_a_stalled_run() {
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

#[test]
fn a_blocked_output_leaves_the_input_read() {
    for driver in ["", ",driver=af_packet"] {
        let Some(bed) = Bed::shared("blocked", |_| {}) else { return };
        let shape = bed.between(&format!("--in if:c0{driver} --out if:s0{driver}"), "");
        // From here on the output takes nothing, and the backlog exceeds any ring.
        bed.stdout(Node::Box, "ip link set s0 down");
        bed.send(1, 100, "20kpps", 20_000);
        let finished = shape.stop();
        let report = finished.report();
        assert!(finished.stderr.contains("s0") && finished.stderr.contains("is down at the end"), "{finished:?}");
        assert!(number(&report, "/in/frames") + missed(&finished) >= 20_000, "{report}");
        assert!(number(&report, "/in/frames") > 15_000, "{report}");
    }
}
