//! Filler pacing in real time, on a line without a NIC. Frames that no underrun delayed match the model to the byte,
//! however busy the machine is.

use crate::bed::Turn;
use crate::common::{Bench, Listed, caveat};
use serde_json::Value;
use std::process::Command;

/// A line needs two cores, so these tests run alone.
fn alone() -> (Bench, Turn) {
    (Bench::new(), Turn::alone())
}

const STREAM: &str = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {report}"))
}

/// Runs a stream on the line in real time, then on the model.
fn both(bench: &Bench, options: &str, asks: &[&str]) -> (Value, Vec<Listed>, Vec<Listed>) {
    let run = |port: &str, list: &str| {
        let out = format!("{port},frames={list}");
        let mut words = vec!["gen", "--out", &out, "--seed", "3", "--stream", STREAM];
        words.extend(asks);
        bench.report(words)
    };
    let model = run(&format!("wire:{options}"), "model.csv");
    // The whole run fits the queue, so underruns can occur only at the start.
    for _ in 0..30 {
        let report = run(&format!("line:{options},slots=65536"), "line.csv");
        assert_eq!(number(&report, "/out/frames"), number(&report, "/line/data/frames"), "{report}");
        assert_eq!(number(&report, "/fillers/frames"), number(&report, "/line/fillers/frames"), "{report}");
        if number(&report, "/line/underruns") == 0 && number(&report, "/crowded") == number(&model, "/crowded") {
            return (report, bench.listed("line.csv"), bench.listed("model.csv"));
        }
    }
    panic!("thirty runs of 20 ms, all of them disturbed");
}

#[test]
fn a_line_in_real_time_is_the_model_to_the_byte() {
    let (bench, _turn) = alone();
    for (rate, asks) in [
        ("10G", &["--gap", "10us", "--count", "2000"]),
        ("25G", &["--gap", "1us", "--count", "10000"]),
        ("1G", &["--rate", "700Mbps", "--count", "2000"]),
    ] {
        let (report, line, model) = both(&bench, &format!("{rate},fillers=keep"), asks);
        assert!(line == model, "{rate} {asks:?}: {report}");
        assert!(line.iter().any(|frame| frame.filler));
        assert_eq!((number(&report, "/line/displaced"), number(&report, "/underruns")), (0, 0), "{report}");
        assert_eq!(report["pacer"], "filler");
    }
}

/// Aligned frames start at multiples of `align` byte times after the start of the run, whenever the run starts.
#[test]
fn aligned_departures_are_the_models() {
    let (bench, _turn) = alone();
    for align in ["4", "8"] {
        let filler = format!("self,align={align}");
        let asks = ["--gap", "150us", "--count", "200", "--filler", &filler];
        let (report, line, model) = both(&bench, "100M", &asks);
        assert!(line == model, "align {align}: {report}");
    }
}

/// Frames to send are data even if they look like fillers, such as a capture with fillers in it or a stream from the
/// address of fillers.
#[test]
fn data_that_looks_like_fillers_is_data() {
    let (bench, _turn) = alone();
    let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size 64B smac 02:6e:6c:00:00:f1 dmac 02:6e:6c:00:00:f1";
    let words = ["gen", "--out", "line:10G,slots=512", "--gap", "1us", "--count", "3000", "--stream", stream];
    let report = bench.report(words);
    assert_eq!(number(&report, "/line/data/frames"), 3_000, "{report}");
    assert_eq!(number(&report, "/fillers/frames"), number(&report, "/line/fillers/frames"), "{report}");
    assert_eq!(number(&report, "/gap/count"), 2_999, "{report}");
}

/// With underruns, the figures describe the frames on the line, as its list shows, and not the plan.
#[test]
fn figures_include_underruns() {
    let (bench, _turn) = alone();
    let report = (0..30)
        .map(|_| {
            let words = ["gen", "--out", "line:40G,slots=64,frames=l.csv", "--gap", "1us", "--count", "100000"];
            bench.report(words.into_iter().chain(["--stream", STREAM]))
        })
        .find(|report| number(report, "/line/displaced") > 0)
        .expect("64 slots outlast no hiccup of thirty runs");
    let starts: Vec<u64> = bench.listed("l.csv").iter().map(|frame| frame.start_ps).collect();
    assert_eq!(starts.len(), 100_000);
    let gaps: Vec<f64> = starts.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e3).collect();
    let count = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / count;
    let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count).sqrt();
    let (least, largest) = gaps.iter().fold((f64::MAX, 0.0_f64), |(min, max), gap| (min.min(*gap), max.max(*gap)));
    let late = (0..).zip(&starts).map(|(i, start)| (*start as f64 - 1e6 * f64::from(i)) / 1e3).fold(0.0, f64::max);
    let near = gaps.iter().filter(|gap| (*gap - 1_000.0).abs() <= 64.0).count() as f64 / count;
    for (pointer, listed) in [
        ("/gap/mean_ns", mean),
        ("/gap/std_ns", deviation),
        ("/gap/min_ns", least),
        ("/gap/max_ns", largest),
        ("/gap/error/within_64ns_ratio", near),
        ("/conformance/within_64ns_ratio", near),
        ("/lateness/max_ns", late),
    ] {
        let figure = report.pointer(pointer).and_then(Value::as_f64).expect(pointer);
        assert!((figure - listed).abs() <= 1e-6 * listed.max(1.0), "{pointer}: {listed} in the list, {report}");
    }
}

/// On ports without a measured line, the figures describe the plan, and the report says so.
#[test]
fn departures_that_are_planned_are_called_so() {
    let (bench, _turn) = alone();
    let run = |words: &[&str]| {
        let finished = bench.run(["gen", "--stream", STREAM, "--gap", "1ms"].iter().chain(words));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let json = bench.run(["gen", "--stream", STREAM, "--gap", "1ms", "--json"].iter().chain(words)).report();
        (finished, json)
    };
    let port = ["--out", "dpdk:net_null0", "--line-rate", "100M", "--pacer", "filler"];
    // The device accepts everything at once. 50 ms of frames fit in its queue of 125 ms, which cannot show that. 1 s of
    // frames can.
    for (count, seen) in [("50", false), ("1000", true)] {
        let (finished, json) = run(&[&port[..], &["--count", count]].concat());
        for said in [&finished.stdout, &finished.stderr, &caveat(&json, "planned")["text"].to_string()] {
            assert!(said.contains("planned, not measured"), "{count}: {said}");
        }
        let pace = &json["pipelines"][0]["pace"];
        assert_eq!(
            (pace.is_object(), finished.stderr.contains("does not keep the line's rate")),
            (seen, seen),
            "{json}"
        );
        if seen {
            let factor = pace["wire_ns"].as_f64().expect("ns") / pace["elapsed_ns"].as_f64().expect("ns");
            assert!(factor > 1.1, "{json}");
            assert!(json["warnings"].to_string().contains("of wire time in"), "{json}");
        }
    }
    let (finished, json) = run(&["--out", "line:100M", "--count", "50"]);
    assert!(!(finished.stdout + &finished.stderr).contains("planned, not measured"));
    assert!(caveat(&json, "planned").is_null() && json["pipelines"][0]["pace"].is_null(), "{json}");
}

#[test]
fn longer_fillers_move_no_frame_and_are_fewer() {
    let (bench, _turn) = alone();
    let asks = ["--gap", "10us", "--count", "2000"];
    let (_, _, standard) = both(&bench, "10G,fillers=keep", &asks);
    let longer = [&asks[..], &["--filler", "self,longest=9018B"]].concat();
    let (report, line, model) = both(&bench, "10G,fillers=keep", &longer);
    assert!(line == model, "{report}");
    let data = |frames: &[Listed]| frames.iter().filter(|frame| !frame.filler).copied().collect::<Vec<_>>();
    assert!(data(&line) == data(&standard), "fillers of any length put data where it was asked for");
    assert!(line.iter().any(|frame| frame.filler && frame.length == 9_018));
    assert!(line.iter().all(|frame| frame.filler || frame.length <= 1_518));
    let fillers = number(&report, "/fillers/frames");
    assert_eq!(fillers, line.iter().filter(|frame| frame.filler).count() as u64);
    let before = standard.iter().filter(|frame| frame.filler).count() as u64;
    assert!(fillers * 2 < before, "{fillers} instead of {before}");
}

#[test]
fn gaps_that_ethernet_does_not_have_are_carried_there_too() {
    let (bench, _turn) = alone();
    let (_, line, model) = both(&bench, "10G", &["--gap", "1284.1ns", "--count", "5000"]);
    assert_eq!(line, model);
}

#[test]
fn a_fast_line_begins_with_a_full_queue() {
    let (bench, _turn) = alone();
    // Three frames per µs, far more than can be generated in time with cold caches. The queue holds the whole run, so
    // the line idles only if it starts before its frames are ready.
    let mut underruns: Vec<u64> = (0..5)
        .map(|_| {
            let words = ["--out", "line:40G,slots=65536", "--gap", "1us", "--count", "5000"];
            number(&bench.report(["gen", "--stream", STREAM].into_iter().chain(words)), "/line/underruns")
        })
        .collect();
    underruns.sort_unstable();
    assert_eq!(underruns[2], 0, "underruns of five runs: {underruns:?}");
}

#[test]
fn the_line_takes_its_time() {
    let (bench, _turn) = alone();
    let begin = std::time::Instant::now();
    // 300 ms of line. A ring drained faster than the line rate would finish early.
    let report = bench.report(["gen", "--out", "line:10G", "--stream", STREAM, "--gap", "100us", "--count", "3000"]);
    assert!(begin.elapsed() >= std::time::Duration::from_millis(295), "{report}");
    assert_eq!(number(&report, "/line/data/frames"), 3_000);
}

#[test]
fn the_time_of_a_run_is_the_lines() {
    let (bench, _turn) = alone();
    // Up to 20 ms of frames are in the queue when the run time ends.
    for (line, gap, streams, count) in [
        ("line:10G", "10us", &[STREAM][..], 20_000),
        ("line:1G", "30ms", &[STREAM], 7),
        ("line:1G", "10us", &[STREAM, STREAM], 20_000),
    ] {
        let options = ["gen", "--out", line, "--gap", gap, "--duration", "200ms"];
        let begin = std::time::Instant::now();
        let streams = streams.iter().flat_map(|stream| ["--stream", stream]);
        let report = bench.report(options.into_iter().chain(streams).chain(["--class", "other = dport 9"]));
        // The first frame may be ready before the line starts. If this program is delayed, the line idles meanwhile.
        assert!((count * 9 / 10..=count + 1).contains(&number(&report, "/out/frames")), "{line} {gap}: {report}");
        assert!(begin.elapsed() >= std::time::Duration::from_millis(195), "{line} {gap}");
    }
}

/// The start of the line may be anywhere between two byte times of the clock.
#[test]
fn a_frame_that_is_due_when_the_time_is_up_is_not_sent() {
    let (bench, _turn) = alone();
    for more in [&[][..], &["--class", "other = dport 9"]] {
        for _ in 0..12 {
            let words = ["gen", "--out", "line:1G", "--stream", STREAM, "--gap", "1ms", "--duration", "10ms"];
            let report = bench.report(words.iter().chain(more));
            assert!((1..=10).contains(&number(&report, "/out/frames")), "{report}");
        }
    }
}

#[test]
fn stamped_frames_that_did_not_leave_are_not_sent() {
    let (bench, _turn) = alone();
    // Data and fillers alternate. Half of the queue is filled in one burst, part of which waits for space.
    let words = ["gen", "--out", "line:10M,slots=64", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2 size 1518B"];
    let output = Command::new("timeout")
        .args(["--preserve-status", "-s", "INT", "1", env!("CARGO_BIN_EXE_netlathe")])
        .args(words)
        .args(["--rate", "9Mbps", "--json"])
        .current_dir(bench.path(""))
        .output()
        .expect("timeout is there");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let report = &report["pipelines"][0];
    assert!(number(report, "/out/frames") > 0);
    assert_eq!(number(report, "/streams/0/sent"), number(report, "/out/frames"), "{report}");
}

#[test]
fn line_rate_option_enables_fillers_on_any_port() {
    let (bench, _turn) = alone();
    let words = ["gen", "--out", "dpdk:net_null0", "--line-rate", "10G", "--pacer", "filler", "--gap", "10us"];
    let words = words.into_iter().chain(["--stream", STREAM, "--duration", "300ms"]);
    let report = bench.report(words);
    assert_eq!(report["pacer"], "filler");
    // The bytes that a 10 Gbit/s line carries in that time, plus the bytes in its queue.
    let bytes = number(&report, "/fillers/bytes") + number(&report, "/out/bytes");
    assert!((100_000_000..400_000_000).contains(&bytes), "{report}");
}

#[test]
fn rejects_options_that_no_line_has() {
    let (bench, _turn) = alone();
    for (words, said) in [
        (&["--out", "dpdk:net_null0", "--gap", "10us", "--pacer", "filler"][..], "--line-rate"),
        (&["--out", "line:10G"], "filler"),
        (&["--out", "line:10G", "--gap", "10us", "--pacer", "deadline"], "filler"),
        (&["--out", "line:10G", "--rate", "11Gbps"], "above the line rate"),
        (&["--out", "line:10G,slots=7", "--gap", "10us"], "slots=64"),
        (&["--out", "line:10G", "--gap", "10us", "--line-rate", "10G"], "leave the line rate out"),
        (&["--out", "line:10G,frames=/nowhere/f.csv", "--gap", "10us"], "/nowhere/f.csv"),
        (&["--out", "wire:10G", "--gap", "10us", "--line-rate", "10G"], "leave the line rate out"),
        (&["--out", "dpdk:net_null0", "--gap", "10us", "--line-rate", "10"], "not a line rate"),
        (&["--out", "line:10G", "--gap", "10us", "--count", "10", "--cores", "1000"], "CPU 1000"),
        (&["--out", "line:10G", "--gap", "10us", "--cores", "0-3"], "only 3 parts"),
        (&["--out", "line:10G", "--gap", "10us", "--slices", "--cores", "0-2"], "name at most 2"),
    ] {
        let finished = bench.run(["gen", "--stream", STREAM].iter().chain(words));
        assert_eq!(finished.status, Some(2), "{words:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(said), "{words:?}: {}", finished.stderr);
    }
}
