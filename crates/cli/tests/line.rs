//! Filler pacing in real time, on a line without a NIC: whatever the machine does meanwhile, what was not disturbed by
//! an underrun is the model's, to the byte.

#![cfg(feature = "live")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use common::{Bench, Listed};
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A line takes two cores: one test at a time.
static CORES: Mutex<()> = Mutex::new(());

fn alone() -> (Bench, MutexGuard<'static, ()>) {
    (Bench::new(), CORES.lock().unwrap_or_else(PoisonError::into_inner))
}

const STREAM: &str = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {pointer} in {report}"))
}

/// Runs a stream onto the line in real time and onto the model.
fn both(bench: &Bench, options: &str, asks: &[&str]) -> (Value, Vec<Listed>, Vec<Listed>) {
    let run = |port: &str, list: &str| {
        let out = format!("{port},frames={list}");
        let mut words = vec!["gen", "--out", &out, "--seed", "3", "--stream", STREAM];
        words.extend(asks);
        bench.report(words)
    };
    let model = run(&format!("wire:{options}"), "model.csv");
    // All of the run fits the queue: it has underruns only while it begins, if ever.
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
    // Three frames a µs, far more than are made in that time while memory and code are in no cache. The queue holds
    // all of the run, so that a line idles only if it begins before its frames are made.
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
    // 300 ms of line: a ring that is drained faster would be done at once.
    let report = bench.report(["gen", "--out", "line:10G", "--stream", STREAM, "--gap", "100us", "--count", "3000"]);
    assert!(begin.elapsed() >= std::time::Duration::from_millis(295), "{report}");
    assert_eq!(number(&report, "/line/data/frames"), 3_000);
}

#[test]
fn any_port_can_be_filled_when_its_line_rate_is_said() {
    let (bench, _turn) = alone();
    let words = ["gen", "--out", "dpdk:net_null0", "--line-rate", "10G", "--pacer", "filler", "--gap", "10us"];
    let words = words.into_iter().chain(["--stream", STREAM, "--duration", "300ms"]);
    let report = bench.report(words);
    assert_eq!(report["pacer"], "filler");
    // What a line of 10 Gbit/s carries in that time, and what its queue is ahead.
    let bytes = number(&report, "/fillers/bytes") + number(&report, "/out/bytes");
    assert!((100_000_000..400_000_000).contains(&bytes), "{report}");
}

#[test]
fn what_no_line_has_is_refused_with_a_remedy() {
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
        (&["--out", "dpdk:net_null0", "--gap", "10us", "--line-rate", "10"], "no line rate"),
        (&["--out", "line:10G", "--gap", "10us", "--count", "10", "--cores", "1000"], "CPU 1000"),
        (&["--out", "line:10G", "--gap", "10us", "--cores", "0-3"], "no more than 3 parts"),
        (&["--out", "line:10G", "--gap", "10us", "--slices", "--cores", "0-2"], "name at most 2"),
    ] {
        let finished = bench.run(["gen", "--stream", STREAM].iter().chain(words));
        assert_eq!(finished.status, Some(2), "{words:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{words:?}: {}", finished.stderr);
        assert!(finished.stderr.contains(said), "{words:?}: {}", finished.stderr);
    }
}
