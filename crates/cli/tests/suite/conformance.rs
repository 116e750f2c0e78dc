//! How close departures are to their targets, checked against the written files. Also the messages about targets that
//! cannot be resolved.

use crate::common::{Bench, Dialect, Record, words};
use serde_json::{Value, json};

#[track_caller]
fn close(report: &Value, pointer: &str, expected: f64) {
    let value = report.pointer(pointer).and_then(Value::as_f64).expect(pointer);
    assert!((value - expected).abs() < 1e-9, "{pointer} is {value}, not {expected}");
}

#[test]
fn exact_departures_conform_entirely() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 10_000);
    let report = bench.report(words("shape --in pcap:in.pcap --out wire:10G --gap 10us"));
    for bound in ["1_byte_time", "64ns", "256ns", "1us"] {
        close(&report, &format!("/conformance/within_{bound}_ratio"), 1.0);
    }
    for (figure, expected) in
        [("count", 9_999.0), ("asked_mean_ns", 10_000.0), ("max_ns", 0.0), ("back_to_back_ratio", 0.0)]
    {
        close(&report, &format!("/conformance/{figure}"), expected);
    }
    assert_eq!(report["lateness"]["histogram"], json!([[1.0, 10_000]]));
    assert!(report["lateness"]["hiccups"].is_null(), "virtual time has none");
}

#[test]
fn a_rate_asks_for_another_gap_after_each_frame() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 10_000);
    let report = bench.report(words("shape --in pcap:in.pcap --out wire:10G,frames=out.csv --rate 5Gbps"));
    // At 5 Gbit/s each byte of a frame asks for 1600 ps. On the line each byte takes 800 ps, and every frame has 20
    // more bytes.
    let listed = bench.listed("out.csv");
    let pairs: Vec<(u64, u64, u64)> = listed
        .windows(2)
        .map(|pair| (pair[0].length * 1_600, pair[1].start_ps - pair[0].start_ps, (pair[0].length + 21) * 800))
        .collect();
    let share = |of: &dyn Fn(&(u64, u64, u64)) -> bool| {
        pairs.iter().filter(|pair| of(pair)).count() as f64 / pairs.len() as f64
    };
    for (name, bound) in [("1_byte_time", 800), ("64ns", 64_000), ("256ns", 256_000), ("1us", 1_000_000)] {
        let near = share(&|(ask, gap, _)| gap.abs_diff(*ask) <= bound);
        close(&report, &format!("/conformance/within_{name}_ratio"), near);
    }
    close(&report, "/conformance/back_to_back_ratio", share(&|(_, gap, line)| gap <= line));
    let largest = pairs.iter().map(|(ask, gap, _)| gap.abs_diff(*ask)).max().expect("gaps");
    close(&report, "/conformance/max_ns", largest as f64 / 1_000.0);
    let near = report["conformance"]["within_1_byte_time_ratio"].as_f64().expect("a share");
    assert!((0.5..1.0).contains(&near), "some gaps are too small for a filler, most are not: {near}");
}

#[test]
fn a_line_that_is_full_is_back_to_back() {
    let bench = Bench::new();
    bench.generate("64B", 1_000);
    close(
        &bench.report(words("shape --in pcap:in.pcap --out wire:10G --rate 100%")),
        "/conformance/back_to_back_ratio",
        1.0,
    );
    close(
        &bench.report(words("shape --in pcap:in.pcap --out wire:10G --rate 10%")),
        "/conformance/back_to_back_ratio",
        0.0,
    );
}

#[test]
fn compares_nothing_without_a_target() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    assert!(bench.report(words("shape --in pcap:in.pcap --out wire:10G"))["conformance"].is_null());
    assert!(bench.report(words("measure --pcap in.pcap"))["conformance"].is_null());
    let one = words("gen --out wire:10G --gap 1us --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
    assert!(bench.report(one)["conformance"].is_null(), "one frame has no gap");
}

#[test]
fn receiver_compares_with_its_expectation() {
    let bench = Bench::new();
    // Pairs back to back: 100 B at 0 and at 500 ns of every 20 µs.
    let pairs: Vec<Record> = (0..1_000).map(|i| Record::new(i / 2 * 20_000 + i % 2 * 500, 100, i as u32)).collect();
    bench.capture("pairs.pcap", Dialect::USUAL, &pairs);
    let even: Vec<Record> = (0..1_000).map(|i| Record::new(i * 10_000, 100, i as u32)).collect();
    bench.capture("even.pcap", Dialect::USUAL, &even);
    for (expected, status) in [("10us", Some(1)), ("100kpps", Some(0)), ("80Mbps", Some(0)), ("'96Mbps wire'", Some(0))]
    {
        // 999 gaps: 500 of 0.5 µs and 499 of 19.5 µs. Their mean is within 0.1 % of 10 µs.
        let measure = |file: &str, tolerance: &str| {
            bench.run(words(&format!("measure --pcap {file} --json --expect {expected} --tolerance {tolerance}")))
        };
        let finished = measure("pairs.pcap", "0.1%");
        assert_eq!(finished.status, status, "{expected}: {}", finished.stderr);
        let conformance = &finished.report()["pipelines"][0];
        close(conformance, "/conformance/back_to_back_ratio", 500.0 / 999.0);
        close(conformance, "/conformance/within_1us_ratio", 0.0);
        close(conformance, "/conformance/max_ns", 9_500.0);
        let finished = measure("even.pcap", "0%");
        assert_eq!(finished.status, Some(0), "{expected}: {}", finished.stderr);
        close(&finished.report()["pipelines"][0], "/conformance/within_64ns_ratio", 1.0);
    }
    for missed in ["9us", "110kpps", "81Mbps", "'80Mbps wire'"] {
        let finished = bench.run(words(&format!("measure --pcap even.pcap --json --expect {missed}")));
        assert_eq!(finished.status, Some(1), "{missed}");
        let start = format!("netlathe: expected {}: the mean is ", missed.trim_matches('\''));
        assert!(finished.stderr.starts_with(&start), "{}", finished.stderr);
        // The units are easy to read.
        assert!(finished.stderr.contains("% off ") && !finished.stderr.contains("000000"), "{}", finished.stderr);
    }
}

#[test]
fn warns_of_targets_below_the_resolution() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    let shape = "shape --in pcap:in.pcap --json";
    for (command, fragments) in [
        (format!("{shape} --out wire:10G,pcap=o.pcap --gap 10us"), &[][..]),
        (format!("{shape} --out wire:10G,pcap=o.pcap --rate 3Gbps"), &[]),
        (format!("{shape} --out pcap:o.pcap --rate 51.2Gbps"), &[]),
        (
            format!("{shape} --out pcap:o.pcap --rate 51.3Gbps"),
            &["whole nanoseconds, and gaps were 9.981 ns on average"],
        ),
        (format!("{shape} --out wire:100G,pcap=o.pcap --rate 100%"), &["gaps were 6.72 ns"]),
        (format!("{shape} --out wire:100G --rate 100%"), &[]),
        (format!("{shape} --out pcap:o.pcap"), &[]),
        (format!("{shape} --out pcap:o.pcap --gap 10000.8ns"), &["stamps are whole nanoseconds"]),
        (format!("{shape} --out wire:10G --gap 10000.8ns"), &[]),
        (format!("{shape} --out wire:10G,pcap=o.pcap --gap 10000.8ns"), &["stamps are whole nanoseconds"]),
        (format!("{shape} --out wire:10G --gap 10000.9ns"), &["not a whole number of byte times"]),
        (format!("{shape} --out wire:10G,pcap=o.pcap --gap 10000.9ns"), &["byte times", "stamps"]),
        ("measure --pcap in.pcap --json --expect 10us".into(), &[]),
        ("measure --pcap in.pcap --json --expect 10000.5ns".into(), &["stamps are whole nanoseconds"]),
    ] {
        let finished = bench.run(words(&command));
        let report = finished.report();
        let warnings = report.get("warnings").cloned().unwrap_or(json!([]));
        let warnings: Vec<&str> = warnings.as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(warnings.len(), fragments.len(), "{command}: {warnings:?}");
        for (warning, fragment) in warnings.iter().zip(fragments) {
            assert!(warning.contains(fragment), "{command}: {warning}");
            assert!(finished.stderr.contains(&format!("netlathe: note: {warning}\n")), "{}", finished.stderr);
        }
    }
}
