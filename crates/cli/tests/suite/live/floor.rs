//! The floor of live departures is measured before a run that waits for the clock. A target below the floor causes a
//! warning.

use crate::common::{Bench, Finished, caveat, words};

/// Runs `gen` into a device that accepts everything. Returns `None` without live ports.
fn into_null(bench: &Bench, ask: &str) -> Option<Finished> {
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    let finished = bench.run(words(&format!("gen --out dpdk:net_null0 --json {stream} {ask}")));
    if finished.status != Some(0) {
        println!("SKIP: no live ports here: {}", finished.stderr);
        return None;
    }
    Some(finished)
}

#[test]
fn a_run_that_waits_for_the_clock_has_a_floor() {
    let bench = Bench::new();
    let Some(finished) = into_null(&bench, "--count 1000 --gap 100us") else { return };
    let report = finished.report();
    let floor = &caveat(&report, "floor");
    let figure = |name: &str| floor[name].as_f64().expect(name);
    assert_eq!((&floor["instants"], &floor["gap_ns"]), (&5_000.into(), &10_000.0.into()));
    assert_eq!(floor["pipeline"], "gen");
    assert!(figure("p50_ns") <= figure("p99_ns") && figure("p99_ns") <= figure("max_ns"), "{floor}");
    assert!((0.0..=1.0).contains(&figure("within_1us_ratio")), "{floor}");
    let hiccups = &report["pipelines"][0]["lateness"]["hiccups"];
    let (count, frames) = (hiccups["count"].as_u64().expect("a count"), hiccups["frames"].as_u64().expect("a count"));
    assert!(count <= frames && frames <= 1_000, "{hiccups}");
    assert_eq!(hiccups["longest_ns"].as_f64().expect("a time") > 5_000.0, count > 0, "{hiccups}");
    let late = report["pipelines"][0]["lateness"]["histogram"].as_array().expect("buckets");
    assert_eq!(late.iter().filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 1_000);
}

#[test]
fn a_run_without_targets_has_no_floor() {
    let bench = Bench::new();
    let Some(finished) = into_null(&bench, "--count 1000") else { return };
    let report = finished.report();
    assert!(report["pipelines"][0].get("answers").is_none(), "net_null's frames ask for nothing: {report}");
    assert!(caveat(&report, "floor").is_null() && report["pipelines"][0].get("conformance").is_none());
    assert!(caveat(&report, "gaps-below-floor").is_null());
}

#[test]
fn warns_of_targets_below_the_floor_and_fractions_of_a_nanosecond() {
    let bench = Bench::new();
    // No machine reads its clock in 2 ns.
    let Some(finished) = into_null(&bench, "--count 1000 --gap 2ns") else { return };
    let report = finished.report();
    assert_eq!(caveat(&report, "gaps-below-floor")["asked_mean_ns"], 2.0);
    let warning = report["warnings"][0].as_str().expect("a warning").to_owned();
    assert!(
        warning.starts_with("gen: gaps of 2 ns on average are below what this machine can resolve now"),
        "{warning}"
    );
    assert!(finished.stderr.contains(&format!("netlathe: note: {warning}\n")), "{}", finished.stderr);
    // The floor takes a hundred waits of 10 µs. No test machine hiccups for 1 s in one of them.
    let Some(finished) = into_null(&bench, "--count 2 --gap 1000000000.5ns") else { return };
    let report = finished.report();
    let words = caveat(&report, "gap-below-clock")["text"].to_string();
    assert!(words.contains("a gap of 1.0000000005s has a fraction of a nanosecond"), "{report}");
    assert!(caveat(&report, "gaps-below-floor").is_null(), "{report}");
}
