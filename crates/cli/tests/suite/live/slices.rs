//! Pipeline slices on live ports, by shares and medians. Tests print `SKIP: why` if the machine permits no lab.

use crate::bed::{Bed, Program};
use crate::common::{Bench, words};
use crate::slices::{capture, check, number, slice};
use lab::Node;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// Tracing covers frames that are sent in bursts, both generated ones and those from memory.
#[test]
fn flooded_frames_are_traced() {
    let bench = Bench::new();
    capture(&bench);
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let count = 1_000_000_u64;
    for source in [format!("--count {count} {stream}"), "--pcap in.pcap --speed max --loop 1000".to_owned()] {
        let line = format!("gen --out dpdk:net_null0 {source} --slices 1/64 --json");
        let finished = bench.run(words(&line));
        if finished.status != Some(0) {
            return println!("SKIP: no live ports here: {}", finished.stderr);
        }
        let report = finished.report()["pipelines"][0].clone();
        check(&report);
        let packets = &report["slices"]["packets"];
        let seen = packets["seen"].as_u64().expect("a count");
        assert!(seen.abs_diff(count / 64) <= 32 && packets["matched"] == seen, "{source}: {packets}");
        assert_eq!(report["out"]["frames"], count);
        let raw = |name: &str| number(&slice(&report, name)["raw_mean_ns"]);
        assert!(raw("rx") > 0.0 && raw("tx") > 0.0 && raw("queueing") == 0.0, "{report}");
    }
    // The pipeline uses as many cores as without tracing, but only one of them traces its frames.
    let line = format!("gen --out dpdk:net_null0 --cores 0,1 --count 100000 {stream} --slices 1/10 --json");
    let finished = bench.run(words(&line));
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2) {
        let packets = finished.report()["pipelines"][0]["slices"]["packets"].clone();
        let seen = packets["seen"].as_u64().expect("a count");
        assert!(seen.abs_diff(5_000) <= 32, "{packets}: a tenth of one core's half");
    }
}

/// The report of a box that carries 2 s of frames each way while it is stopped for 60 ms out of every 80 ms. Three
/// of four frames wait, half of all frames for 20 ms or more.
fn stopped_now_and_then(bed: &Bed, carrying: Program) -> Value {
    let start = Instant::now();
    while !bed.output(Node::Client(1), "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "it carries nothing");
    }
    let back = "gen --out eth0 -q --rate 1kpps --count 2000 --stream \
         'udp 10.77.0.100:1000 > 10.77.0.1:9 size 100B smac 02:77:00:00:00:64 dmac 02:77:00:00:00:01'";
    thread::scope(|scope| {
        let senders =
            [scope.spawn(|| bed.sender(1, 100, "1kpps", 2_000).wait()), scope.spawn(|| bed.run(Node::Server, back))];
        while !senders.iter().all(|sender| sender.is_finished()) {
            for (signal, ms) in [("STOP", 60), ("CONT", 20)] {
                carrying.signal(signal);
                thread::sleep(Duration::from_millis(ms));
            }
        }
        for sender in senders {
            assert_eq!(sender.join().expect("it ran").status.code(), Some(0));
        }
    });
    carrying.stop().whole_report()
}

/// Checks that the wait is in the slice `ring`. Only a few frames are inside the box when it is stopped. If other
/// programs preempt one of its threads, more frames are inside and the share is lower.
fn waits_in_the_ring(report: &Value) {
    check(report);
    let ring = slice(report, "ring");
    let waited = number(&ring["p50_ns"]);
    assert!(waited > 1e7 && number(&ring["total_ratio"]) > 0.5, "{report}");
    assert_eq!(ring, &report["slices"]["slices"][0], "the first one");
    for other in report["slices"]["slices"].as_array().expect("slices").iter().skip(1) {
        assert!(number(&other["p50_ns"]) < waited / 10.0, "{other} of {report}");
    }
    assert!(report["slices"]["ring_untold"].is_null(), "{report}");
}

#[test]
fn effect_a_wait_in_the_port_shows_in_the_ring_and_nowhere_else() {
    let Some(bed) = Bed::alone("slices-ring", |_| {}) else { return };
    bed.await_quiet();
    let start = |line: &str| bed.start(Node::Box, &format!("{line} --json --duration 60s --slices 1/1"));
    let ends = "if:c0,driver=af_packet if:s0,driver=af_packet";
    for cores in ["", "--cores 0,1"] {
        let line = format!("emulate --between {ends} --forward 'loss 0.001%' --backward 'delay 100ms' {cores}");
        let report = stopped_now_and_then(&bed, start(&line));
        waits_in_the_ring(&report["pipelines"][0]);
        // A stage that holds frames counts from their arrival, so it absorbs the wait.
        let backward = &report["pipelines"][1];
        check(backward);
        let (ring, netem) = (slice(backward, "ring"), slice(backward, "netem"));
        assert!(number(&ring["p50_ns"]) > 1e7 && ring["intended_mean_ns"] == 0.0, "{backward}");
        assert!((number(&netem["intended_mean_ns"]) - 1e8).abs() < 1e-6, "{backward}");
    }
    // Without stages, only the slices need the arrival stamp.
    let report =
        stopped_now_and_then(&bed, start("shape --in if:c0,driver=af_packet --out s0 --class 'nine = udp dport 9'"));
    waits_in_the_ring(&report["pipelines"][0]["classes"][0]);
}

#[test]
fn reports_a_port_without_ring_times() {
    let Some(bed) = Bed::shared("slices-untold", |_| {}) else { return };
    // Interfaces and TAP devices report ring times. This device does not, and it generates frames without end.
    let line = "shape --in dpdk:net_null0 --out null --slices --report page --json --duration 300ms";
    let report = bed.run(Node::Box, line).whole_report();
    let slices = &report["pipelines"][0]["slices"];
    assert_eq!(slices["ring_untold"], true, "{report}");
    assert_eq!(slices["slices"][0]["name"], "rx");
    let page = std::fs::read_to_string(bed.path("page/report.html")).expect("a page");
    assert!(page.contains("its driver does not report it"));
}
