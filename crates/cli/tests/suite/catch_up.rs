//! `--catch-up`: the handling of late departures, checked against start times on the model line.

use crate::common::Bench;

/// Gaps in ps, and the number of forgiven departures. Asked departures are 1 µs apart, but the longest frames occupy
/// the line for 1.23 µs.
fn gaps(policy: &str) -> (Vec<u64>, Option<u64>) {
    let bench = Bench::new();
    let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";
    let words = ["gen", "--out", "wire:10G,frames=f.csv", "--gap", "1us", "--count", "20000", "--stream", stream];
    let report = bench.report(words.into_iter().chain(["--catch-up", policy]));
    let starts: Vec<u64> = bench.listed("f.csv").iter().map(|frame| frame.start_ps).collect();
    let forgiven = report.pointer("/forgiven/times").map(|times| times.as_u64().expect("a count"));
    (starts.windows(2).map(|pair| pair[1] - pair[0]).collect(), forgiven)
}

fn mean(gaps: &[u64]) -> f64 {
    gaps.iter().sum::<u64>() as f64 / gaps.len() as f64
}

/// Tolerance in ps. A gap too short for a filler is carried over, which is up to 42 byte times; this is one more.
const CARRIED: u64 = 43 * 800;

#[test]
fn catching_up_all_lateness_keeps_the_rate() {
    let (gaps, forgiven) = gaps("all");
    assert!((mean(&gaps) / 1e6 - 1.0).abs() < 1e-4, "{}", mean(&gaps));
    assert!(gaps.iter().any(|gap| *gap < 800_000), "some are shorter for it");
    assert_eq!(forgiven, None);
}

#[test]
fn catching_up_no_lateness_keeps_the_gaps() {
    let (gaps, forgiven) = gaps("none");
    // Each frame departs within 42 byte times of its asked departure, and the next asked departure moves with it.
    assert!(gaps.iter().all(|gap| *gap >= 1_000_000 - 2 * CARRIED), "{:?}", gaps.iter().min());
    assert!(mean(&gaps) > 1_010_000.0, "{}", mean(&gaps));
    assert!(forgiven > Some(1_000));
}

#[test]
fn catches_up_at_most_n_departures() {
    let (some, forgiven) = gaps("2");
    let (none, _) = gaps("none");
    let (all, _) = gaps("all");
    assert!(mean(&all) < mean(&some) && mean(&some) < mean(&none), "{} {} {}", mean(&all), mean(&some), mean(&none));
    assert!(forgiven > Some(10));
}

#[test]
fn anything_else_is_refused() {
    let bench = Bench::new();
    let words = ["gen", "--out", "null", "--stream", "udp 1.1.1.1:1 > 2.2.2.2:2", "--count", "1", "--catch-up", "some"];
    let finished = bench.run(words);
    assert_eq!(finished.status, Some(2));
    assert!(finished.stderr.contains("--catch-up: 'some'") && finished.stderr.contains("none"), "{}", finished.stderr);
}
