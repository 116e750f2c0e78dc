//! Timelines on live ports: changes under traffic lose and reorder no frame, and each segment has its rate.

use crate::bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

const SCENARIO: &str = r#"
schema   = 1
duration = "5s"
timeline = [
  "at 2s: mid.delay = 5ms",
  "at 2500ms: mid.rate = 10Mbps",
  "at 3s: mid.rate = 80Mbps",
  "at 3200ms: mid.rate = off",
  "at 3500ms: mid.paused = on",
  "at 3700ms: mid.paused = off",
]
[[pipeline]]
name    = "mid"
in      = "if:a1"
out     = "if:b0"
stages  = ["delay 50ms"]
one-way = true
"#;

#[test]
fn changes_under_traffic_lose_and_reorder_no_frame() {
    let Some(bed) = Bed::paired("timeline") else { return };
    bed.await_quiet();
    std::fs::write(bed.path("a.toml"), SCENARIO).expect("a scenario");
    let mid = bed.start(Node::Box, "run a.toml --json");
    let receiver = bed.start(Node::Box, "measure --in if:b1 --duration 7s --json");
    thread::sleep(Duration::from_millis(1_000));
    // 40 Mbit/s, from before the first change to behind the last.
    let line = "gen --out if:a0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1000B' --rate 5kpps --count 17500 --json";
    let sent = number(&bed.run(Node::Box, line).report(), "/out/frames");
    let report = mid.wait().report();
    let came = receiver.wait().report();
    assert_eq!(number(&report, "/in/frames"), sent, "{report}");
    assert_eq!(number(&report, "/out/frames") + number(&report, "/held"), sent, "no frame was lost: {report}");
    assert_eq!(number(&came, "/streams/0/lost"), 0, "{came}");
    assert_eq!(number(&came, "/streams/0/reordered"), 0, "{came}");

    let changes = report["changes"].as_array().expect("changes");
    let mut took: Vec<f64> = changes
        .iter()
        .map(|change| {
            let at = |name: &str| change[name].as_f64().unwrap_or_else(|| panic!("{change}"));
            at("took_effect_at_ns") - at("asked_at_ns")
        })
        .collect();
    took.sort_by(f64::total_cmp);
    assert_eq!(took.len(), 6);
    assert!(took[0] >= 0.0 && took[took.len() / 2] < 100e6, "the median follows within 100 ms: {took:?}");

    let segments = report["segments"].as_array().expect("segments");
    assert_eq!(segments.len(), 7);
    for (segment, bps) in [(2, 10e6), (3, 80e6)] {
        let mean = segments[segment]["rate"]["mean_bps"].as_f64().expect("a rate");
        assert!((mean / bps - 1.0).abs() < 0.005, "segment {segment}: {mean} for {bps}");
    }
    let delay = |segment: usize, figure: &str| segments[segment]["delay"][figure].as_f64().unwrap_or_default() / 1e6;
    assert!((49.0..60.0).contains(&delay(0, "mean_ns")), "{}", delay(0, "mean_ns"));
    assert!((4.9..5.1).contains(&delay(2, "min_ns")), "{}", delay(2, "min_ns"));
    // Frames that the NIC was given before the pause are out.
    assert!(number(&segments[5], "/out/frames") <= 1, "{}", segments[5]);
    assert!(number(&segments[6], "/out/frames") > 0);
}

#[test]
fn timeline_on_several_cpus_is_refused_by_name() {
    let Some(bed) = Bed::paired("timelinecpus") else { return };
    std::fs::write(bed.path("a.toml"), SCENARIO).expect("a scenario");
    let run = bed.run(Node::Box, "run a.toml --cores 0,1");
    if run.stderr.contains("SKIP") {
        return;
    }
    run.assert_refused(&["mid", "timeline", "--cores"]);
}
