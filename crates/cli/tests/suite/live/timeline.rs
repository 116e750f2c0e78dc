//! Timelines on live ports: changes under traffic lose and reorder no frame, and each segment has its rate.

use crate::bed::{Bed, number};
use lab::Node;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

const SCENARIO: &str = r#"
schema   = 1
duration = "10s"
timeline = [
  "at 2s: mid.delay = 5ms",
  "at 2500ms: mid.rate = 10Mbps",
  "at 4s: mid.rate = 80Mbps",
  "at 5s: mid.rate = off",
  "at 5500ms: mid.paused = on",
  "at 5700ms: mid.paused = off",
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
    let receiver = bed.start(Node::Box, "measure --in if:b1 --duration 12s --json");
    thread::sleep(Duration::from_millis(1_000));
    // Send 40 Mbit/s from before the first change until after the last.
    let line = "gen --out if:a0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1000B' --rate 5kpps --count 27500 --json";
    let sent = number(&bed.run(Node::Box, line).report(), "/out/frames");
    let report = mid.wait().report();
    let arrived = receiver.wait().report();
    assert_eq!(number(&report, "/in/frames"), sent, "{report}");
    assert_eq!(number(&report, "/out/frames") + number(&report, "/held"), sent, "no frame was lost: {report}");
    assert_eq!(number(&arrived, "/streams/0/lost"), 0, "{arrived}");
    assert_eq!(number(&arrived, "/streams/0/reordered"), 0, "{arrived}");

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
    // At most the frame that was handed to the NIC before the pause leaves.
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

/// Sends a request over the socket of a run, and returns the answer.
fn ask(socket: &Path, head: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("the socket of the run");
    let head = format!("{head} HTTP/1.1\r\nHost: run\r\nConnection: close\r\nContent-Type: application/json");
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Sends a change over the socket of a run, and returns the answer.
fn patch(socket: &Path, set: &str) -> String {
    ask(socket, "PATCH /v1/runs/1/settings", &format!("{{\"set\":{{{set}}}}}"))
}

/// The JSON of an answer.
fn body(answer: &str) -> serde_json::Value {
    let (_, json) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

const CONTROLLED: &str = r#"
schema = 1
[[pipeline]]
name    = "mid"
in      = "if:a1"
out     = "if:b0"
one-way = true
"#;

#[test]
fn clients_change_a_live_run() {
    let Some(bed) = Bed::paired("control") else { return };
    bed.await_quiet();
    std::fs::write(bed.path("a.toml"), CONTROLLED).expect("a scenario");
    let mid = bed.start(Node::Box, "run a.toml --json --duration 6s --control unix:run.sock");
    thread::sleep(Duration::from_millis(1_500));
    // 40 Mbit/s.
    let sender = bed.start(
        Node::Box,
        "gen --out if:a0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1000B' --rate 5kpps --count 12500 --json",
    );
    thread::sleep(Duration::from_millis(1_000));
    let set = |path: &str, value: &str| bed.run(Node::Box, &format!("ctl --socket run.sock set {path} {value}"));
    let wrong = set("mid.rat", "20Mbps");
    assert!(wrong.status.code() == Some(2) && wrong.stderr.contains("did you mean mid.rate"), "{wrong:?}");
    for value in ["20Mbps", "off"] {
        let done = set("mid.rate", value);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        thread::sleep(Duration::from_millis(500));
    }
    // A change without a time takes effect now. Its time is that of a clock that started before the threads of the run.
    let socket = bed.path("run.sock");
    let now = body(&patch(&socket, "\"mid.rate\":\"off\""))["at_ns"].as_u64().expect("an instant");
    let passed = body(&ask(&socket, "GET /v1/runs/1", ""))["figures"]["passed_ns"].as_u64().expect("a time");
    assert!((1..=passed).contains(&now), "the change is for {now} ns, and {passed} ns have passed");
    let shown = bed.run(Node::Box, "ctl --socket run.sock show").stdout;
    assert!(shown.contains("mid.rate") && shown.contains("mid.delay"), "{shown}");
    let sent = number(&sender.wait().report(), "/out/frames");
    let report = mid.wait().report();
    assert_eq!((number(&report, "/in/frames"), number(&report, "/out/frames")), (sent, sent), "{report}");
    let change = &report["changes"][0];
    let late =
        change["took_effect_at_ns"].as_f64().expect("it took effect") - change["asked_at_ns"].as_f64().expect("asked");
    assert!((0.0..100e6).contains(&late), "{change}");
    let mean = report["segments"][1]["rate"]["mean_bps"].as_f64().expect("a rate");
    assert!((mean / 20e6 - 1.0).abs() < 0.005, "{mean}");
}

#[test]
fn thousand_changes_of_a_live_run_lose_no_frame() {
    let Some(bed) = Bed::paired("manychanges") else { return };
    std::fs::write(bed.path("a.toml"), CONTROLLED).expect("a scenario");
    let mid = bed.start(Node::Box, "run a.toml -q --report page --duration 20s --control unix:run.sock");
    thread::sleep(Duration::from_millis(1_500));
    let sender = bed.start(
        Node::Box,
        "gen --out if:a0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1000B' --rate 2kpps --duration 10s --json",
    );
    let sets = [
        "\"mid.rate\":\"50Mbps\"",
        "\"mid.delay\":\"5ms\"",
        "\"mid.gap\":\"100us\",\"mid.delay\":\"1ms\"",
        "\"mid.delay\":\"3ms 1ms\"",
        "\"mid.rate\":\"off\"",
        "\"mid.delay\":\"off\"",
    ];
    for n in 0..1_000 {
        let answer = patch(&bed.path("run.sock"), sets[n % sets.len()]);
        assert!(answer.starts_with("HTTP/1.1 20"), "{n}: {answer}");
    }
    let sent = number(&sender.wait().report(), "/out/frames");
    thread::sleep(Duration::from_millis(200));
    mid.signal("INT");
    // The report is longer than the buffer of a pipe.
    assert_eq!(mid.wait().status.code(), Some(0));
    let report = std::fs::read(bed.path("page/report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let report = &report["pipelines"][0];
    assert_eq!((number(report, "/in/frames"), number(report, "/out/frames")), (sent, sent), "{}", report["drops"]);
    let changes = report["changes"].as_array().expect("changes");
    assert!(changes.len() > 1_000 && changes.iter().all(|change| change["took_effect_at_ns"].is_number()));
    let sum: u64 = report["segments"].as_array().expect("segments").iter().map(|one| number(one, "/out/frames")).sum();
    assert_eq!(sum, sent);
}

#[test]
fn stages_stay_while_their_decisions_are_logged() {
    let Some(bed) = Bed::paired("loggedchanges") else { return };
    let line = "emulate --between a1 b0 --forward 'delay 1ms' --decisions d.csv --json --control unix:d.sock";
    let mid = bed.start(Node::Box, line);
    let paths = || bed.run(Node::Box, "ctl --socket d.sock show --paths").stdout;
    let mut shown = String::new();
    for _ in 0..600 {
        shown = paths();
        if shown.contains("forward.delay\n") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert!(shown.lines().any(|path| path == "forward.rate"), "{shown}");
    let refused = bed.run(Node::Box, "ctl --socket d.sock set forward.delay 2ms");
    assert!(refused.status.code() == Some(2) && refused.stderr.contains("--decisions"), "{refused:?}");
    let mut done = bed.run(Node::Box, "ctl --socket d.sock set forward.rate 5Mbps");
    // The workers may be about to start.
    for _ in 0..600 {
        if !done.stderr.contains("the run is starting") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
        done = bed.run(Node::Box, "ctl --socket d.sock set forward.rate 5Mbps");
    }
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    mid.signal("INT");
    assert_eq!(mid.wait().status.code(), Some(0));
}
