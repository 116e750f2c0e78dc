//! Pipeline slices: exact in virtual time, by shares and medians live. Live tests have a lab of their own and print
//! `SKIP: why` if the machine permits none.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

#[cfg(feature = "live")]
#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "live/bed.rs"]
mod bed;

use common::{Bench, Dialect, Record, words};
use serde_json::Value;

const FRAMES: u32 = 1_000;

/// `in.pcap`: frames of 100 B with FCS, 1 ms apart.
fn capture(bench: &Bench) {
    let records: Vec<Record> = (0..FRAMES).map(|i| Record::new(u64::from(i) * 1_000_000, 100, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
}

fn emulate(bench: &Bench, spec: &str, more: &[&str]) -> Value {
    let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", spec];
    bench.report(arguments.iter().chain(more))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

fn slice<'a>(report: &'a Value, name: &str) -> &'a Value {
    let slices = report["slices"]["slices"].as_array().expect("slices");
    slices.iter().find(|slice| slice["name"] == name).unwrap_or_else(|| panic!("{name} in {slices:?}"))
}

/// Checks what must be true of any report: frame counts add up, and slices add up to the total.
fn check(report: &Value) {
    let count = |name: &str| report["slices"]["packets"][name].as_u64().expect("a count");
    assert_eq!(count("seen"), count("matched") + count("lost"));
    let slices = report["slices"]["slices"].as_array().expect("slices");
    let sum: f64 = slices.iter().map(|slice| number(&slice["mean_ns"]) * number(&slice["per_packet"])).sum();
    let total = number(&report["slices"]["total"]["mean_ns"]);
    assert!((sum - total).abs() <= 1e-6 * total.abs().max(1.0), "the slices sum to {sum}, the total is {total}");
}

#[test]
fn a_planted_delay_shows_in_its_slice_and_nowhere_else() {
    let bench = Bench::new();
    capture(&bench);
    let report = emulate(&bench, "delay 200us", &["--slices", "1/1"]);
    check(&report);
    assert_eq!(report["slices"]["packets"]["matched"], FRAMES);
    for name in ["rx", "netem", "queueing", "pacer", "tx"] {
        let expected = if name == "netem" { 200_000.0 } else { 0.0 };
        let slice = slice(&report, name);
        assert_eq!(slice["mean_ns"], expected, "{name}");
        assert_eq!(slice["intended_mean_ns"], expected, "{name}");
        assert_eq!(slice["error"]["max_ns"], 0.0, "virtual time is exact");
    }
    assert_eq!(report["slices"]["overhead"]["per_packet_ns"], 0.0);
}

#[test]
fn following_changes_nothing_and_one_in_some_is_one_in_some() {
    let bench = Bench::new();
    capture(&bench);
    let spec = "delay 10ms 2ms distribution normal loss 10% duplicate 5% reorder 5%";
    let mut plain = emulate(&bench, spec, &[]);
    let untouched = bench.read("out.pcap");
    let mut followed = emulate(&bench, spec, &["--slices", "1/8"]);
    assert!(bench.read("out.pcap") == untouched, "the same frames at the same instants");
    check(&followed);
    assert_eq!(followed["slices"]["every"], 8);
    assert_eq!(followed["slices"]["packets"]["seen"], FRAMES / 8);
    let lost = followed["slices"]["packets"]["lost"].as_u64().expect("a count");
    // Ten of a hundred are lost on average. Four standard deviations of a binomial with n = 125 are 13.
    assert!(lost.abs_diff(12) <= 13, "{lost}");
    followed["slices"].take();
    plain["slices"].take();
    assert_eq!(plain, followed, "the rest of the report is as without");
    assert!(emulate(&bench, spec, &[])["slices"].is_null(), "not requested");
}

#[test]
fn each_stage_the_queue_and_the_pacer_have_their_own() {
    let bench = Bench::new();
    // Ten frames arrive at once, then none. Each waits for those before it.
    let records: Vec<Record> = (0..10).map(|i| Record::new(0, 100, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report = bench.report(words("shape --in pcap:in.pcap --out pcap:out.pcap --delay 3us --gap 10us --slices 1/1"));
    check(&report);
    assert_eq!(slice(&report, "delay")["mean_ns"], 3_000.0);
    // Frame k is ready behind k others and departs 10 µs after the previous one. All but the first wait.
    assert_eq!(slice(&report, "queueing")["mean_ns"], f64::from((0..9).sum::<u32>()) * 10_000.0 / 10.0);
    assert_eq!(slice(&report, "pacer")["mean_ns"], 9.0 * 10_000.0 / 10.0);
    assert_eq!(slice(&report, "pacer")["error"]["max_ns"], 0.0);
}

#[test]
fn classes_have_slices_of_their_own() {
    let bench = Bench::new();
    let stream = |port: u16| format!("udp 10.0.0.1:1 > 10.0.0.2:{port} size 100B");
    let (a, b) = (stream(5), stream(6));
    bench.report(["gen", "--out", "pcap:in.pcap", "--stream", &a, "--stream", &b, "--count", "100", "--gap", "1ms"]);
    let report = bench.report(words(
        "emulate --in pcap:in.pcap --out pcap:out.pcap --class 'five = udp dport 5' --forward 'five=delay 1ms' \
         --forward 'delay 2ms' --slices 1/1",
    ));
    let classes = report["classes"].as_array().expect("classes");
    let means: Vec<f64> = classes.iter().map(|class| number(&slice(class, "netem")["mean_ns"])).collect();
    assert_eq!(means, [1_000_000.0, 2_000_000.0]);
    classes.iter().for_each(check);
}

#[test]
fn a_generated_frame_comes_when_the_one_before_has_gone() {
    let bench = Bench::new();
    let report = bench.report(words(
        "gen --out wire:10G --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 100B' --count 1000 --gap 10us \
         --slices 1/10",
    ));
    check(&report);
    assert_eq!(report["slices"]["packets"]["matched"], 100);
    let total = number(&report["slices"]["total"]["p50_ns"]);
    assert!((total / 10_000.0 - 1.0).abs() < 2e-3, "{total} ns of a gap of 10 µs");
}

#[test]
fn the_page_the_table_and_single_frames_show_them() {
    let bench = Bench::new();
    capture(&bench);
    let words = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", "delay 200us"];
    let finished = bench.run(words.iter().chain(&["--slices", "1/4", "--report", "page"]));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("slices    1 frame in 4: 250 seen, 250 departed, 0 lost"), "{}", finished.stdout);
    let row = finished.stdout.lines().find(|line| line.trim_start().starts_with("netem ")).expect("a row");
    assert!(row.contains("200 µs") && row.contains("100.00 %"), "{row}");
    let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
    assert!(page.contains("Where the time goes") && page.contains("One packet") && page.contains("error p99"));
    if cfg!(feature = "slice") {
        let pipeline = |each: &str| {
            let outer = ["slice", "pipeline", "--every", "1/250", "--each", each, "--"];
            let finished = bench.run(outer.iter().chain(&words).chain(&["-q"]));
            assert_eq!(finished.status, Some(0), "{}", finished.stderr);
            finished.stdout
        };
        let lines = pipeline("lines");
        assert_eq!(lines.lines().count(), 4, "{lines}");
        assert!(lines.lines().all(|line| line.contains("netem 200 µs") && line.contains("total 200 µs")), "{lines}");
        assert_eq!(pipeline("waterfall").matches("██████████").count(), 4 * 4, "48 blocks each");
        let json: Vec<Value> =
            pipeline("json").lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let times: Vec<u64> = json.iter().map(|packet| packet["at_ns"].as_u64().expect("a time")).collect();
        assert_eq!(times[0], 0, "the first frame");
        let of = |time: &u64| time / 250_000_000;
        assert!(times.iter().map(of).eq(0..4), "one of each 250, of which 1 ms is one: {times:?}");
        assert_eq!(json[1]["slices"][1]["length_ns"], 200_000.0);
    }
}

#[cfg(feature = "live")]
mod live {
    use super::bed::{Bed, Program};
    use super::{Bench, capture, check, number, slice, words};
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
        // The pipeline uses as many cores as without tracing. Only one core traces its own frames.
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
            let senders = [
                scope.spawn(|| bed.sender(1, 100, "1kpps", 2_000).wait()),
                scope.spawn(|| bed.run(Node::Server, back)),
            ];
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

    /// The wait shows in the slice `ring`. When the box is stopped, only one frame in several is under way inside it.
    /// Other programs that keep one of its threads from a CPU add to that and lower the share.
    fn waits_in_the_ring(report: &Value) {
        check(report);
        let ring = slice(report, "ring");
        let waited = number(&ring["p50_ns"]);
        assert!(waited > 1e7 && number(&ring["share"]) > 0.5, "{report}");
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
        let report = stopped_now_and_then(
            &bed,
            start("shape --in if:c0,driver=af_packet --out s0 --class 'nine = udp dport 9'"),
        );
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
        assert!(page.contains("its driver does not tell"));
    }
}

#[cfg(feature = "slice")]
#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let bench = Bench::new();
    let outer = "slice pipeline --each json -- gen --out wire:10G --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --gap 1us";
    let script = format!("(timeout -s KILL 60 \"$0\" {outer} --duration 10000s; echo $? > status) | head -2");
    let output = std::process::Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")])
        .current_dir(bench.path(""))
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let status = String::from_utf8(bench.read("status")).expect("a number");
    assert_eq!(status.trim(), "0", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn bad_shares_are_refused_in_one_line() {
    let bench = Bench::new();
    capture(&bench);
    for share in ["64", "0", "2/3", "1/0"] {
        let finished =
            bench.run(["gen", "--out", "null", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2", "--slices", share]);
        assert_eq!(finished.status, Some(2));
        assert!(finished.stderr.contains("1/64") && finished.stderr.lines().count() == 1, "{}", finished.stderr);
    }
    let finished = bench.run(["measure", "--pcap", "in.pcap", "--slices", "1/4"]);
    assert!(finished.status == Some(2) && finished.stderr.contains("leave it out"), "{}", finished.stderr);
    if cfg!(feature = "slice") {
        // Two sampling shares: one would be ignored.
        let twice =
            ["gen", "--out", "null", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2", "--count", "9", "--slices", "1/4"];
        for command in [&["measure", "--pcap", "in.pcap"][..], &["doctor"], &["gen", "--out"], &twice] {
            let finished = bench.run(["slice", "pipeline", "--"].iter().chain(command));
            assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
        }
        let finished = bench.run(["slice", "pipeline", "--in", "pcap:in.pcap", "--out", "null"]);
        assert!(finished.status == Some(2) && finished.stderr.contains("-- emulate --in"), "{}", finished.stderr);
    }
}
