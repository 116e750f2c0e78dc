//! Slices and events with known values.

use super::{bench, check, follow, number, overloaded, ping_pong, slice};
use crate::common::Bench;
use serde_json::Value;
use std::process::Command;

/// A queue of known rate: consecutive frames leave it at intervals of their length ÷ its rate, and frames wait nowhere
/// else.
#[test]
fn in_windows_a_share_is_followed_and_no_round_reaches_across() {
    let Some((bench, _turn)) = bench() else { return };
    let options = ["--windows", "10ms/100ms", "-w", "windows.jsonl"];
    let report = ping_pong(&bench, &options, ["tcp", "127.0.0.1", "64", "60000"]);
    check(&report);
    let windows = &report["windows"];
    assert!(windows["count"].as_u64().expect("a count") >= 2, "{windows}");
    assert_eq!((number(&windows["open_ns"]), number(&windows["every_ns"])), (10e6, 100e6));
    let in_place = number(&windows["in_place_ratio"]);
    assert!((0.1..1.0).contains(&in_place), "twice 10 ms in 100 ms, and longer on a busy machine: {windows}");
    let [seen, matched] = ["seen", "matched"].map(|name| number(&report["packets"][name]));
    assert!((100.0..60_000.0).contains(&seen), "some of 120 000: {seen}");
    assert!(matched > 0.98 * seen, "what is under way when a window closes is followed to its end: {report}");
    let round = &report["loop"];
    assert!(
        number(&round["raw_mean_ns"]) < 10.0 * number(&round["raw_p50_ns"]),
        "none of a tenth of a second: {round}"
    );
    let read = bench.run(["slice", "kernel", "--json", "-r", "windows.jsonl"]);
    let read: Value = serde_json::from_str(&read.stdout).expect("one object");
    assert_eq!(read["loop"], report["loop"], "the file says where windows begin");
    assert_eq!(read["packets"], report["packets"], "those that were under way when a window closed, too");
    // The kernel ends a window on time, even if this process wakes late. The first window is also open during set-up.
    let mut queued: Vec<Vec<f64>> = vec![Vec::new()];
    for line in String::from_utf8(bench.read("windows.jsonl")).expect("UTF-8").lines() {
        let line: Value = serde_json::from_str(line).expect("an object");
        if !line["window"].is_null() {
            queued.push(Vec::new());
        }
        let stamps = line["stamps"].as_array().into_iter().flatten();
        let at = stamps.filter(|stamp| stamp["point"] == "queue").map(|stamp| number(&stamp["at"]));
        queued.last_mut().expect("there is one").extend(at);
    }
    for times in &queued[1..] {
        let (first, last) = times.iter().fold((f64::MAX, 0.0_f64), |(a, b), &at| (a.min(at), b.max(at)));
        assert!(last - first <= 10e6, "{} packets began within {} ns", times.len(), last - first);
    }
}

#[test]
fn a_planted_queue_shows_in_the_link_and_nowhere_else() {
    let Some((bench, _turn)) = bench() else { return };
    // While frames are late, a tbf accumulates tokens, so wait for a quiet machine.
    crate::quiet::await_quiet();
    let setup = "ip link set lo up && tc qdisc add dev lo root tbf rate 10mbit burst 1100 limit 100kb";
    let script = format!("{setup} && exec python3 ping-pong.py udp 127.0.0.1 1000 200");
    let finished = follow(&bench, &[], &["unshare", "--net", "sh", "-c", &script]);
    if finished.stderr.contains("Unknown qdisc") || finished.stderr.contains("qdisc kind is unknown") {
        println!("SKIP: this kernel has no tbf");
        return;
    }
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    check(&report);
    // 1 000 B of payload, UDP, IP and Ethernet headers, at 10 Mbit/s.
    let between = (1_000.0 + 8.0 + 20.0 + 14.0) * 8.0 / 10e6 * 1e9;
    let half_a_round = number(&report["loop"]["raw_p50_ns"]) / 2.0;
    assert!((half_a_round / between - 1.0).abs() < 0.05, "{half_a_round} against {between}: {report}");
    let median = |name: &str| slice(&report, name).map_or(0.0, |slice| number(&slice["p50_ns"]));
    let link = median("link");
    let qdisc = median("qdisc");
    assert!(link > 0.75 * between && link < 1.02 * between, "{link} of {between}: {report}");
    assert!(qdisc / link > 0.95, "the wait is in the queueing discipline: {qdisc} of {link}");
    assert!(median("driver") < 0.05 * between && median("ip-udp-receive") < 0.05 * between, "{report}");
}

/// Kernel events of a program with known context switches: sender and reader share one CPU and take turns.
#[test]
fn events_are_counted_in_their_slices() {
    let Some((bench, _turn)) = bench() else { return };
    let command = ["taskset", "-c", "0", "python3", "ping-pong.py", "tcp", "127.0.0.1", "4", "300"];
    let events = "context-switches,cpu-clock,no_such_unit/event/,cycles";
    let finished = follow(&bench, &["--counters", events, "-w", "counted.jsonl"], &command);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    check(&report);
    let event = |report: &Value, name: &str| {
        let all = report["counters"].as_array().expect("counters were asked for").clone();
        all.into_iter().find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    let none = event(&report, "no_such_unit/event/");
    assert!(none["unsupported"].as_str().is_some_and(|why| why.contains("no_such_unit")), "{none}");
    assert!(none.get("slices").is_none(), "what is not counted has no figures: {none}");
    // With a PMU it counts; without one the report says why not.
    let cycles = event(&report, "cycles");
    assert!(cycles["unsupported"].is_string() != cycles["slices"].is_array(), "{cycles}");
    let switches = event(&report, "context-switches");
    if switches["unsupported"].is_string() {
        println!("SKIP: {switches}");
        return;
    }
    if overloaded(&report) {
        return;
    }
    let mean = |event: &Value, name: &str| {
        let slices = event["slices"].as_array().expect("slices");
        slices.iter().find(|slice| slice["name"] == name).map(|slice| number(&slice["mean"]))
    };
    // The reader waits in its call, or is about to. There is one switch to the reader, and there are more if another
    // program runs in between.
    let wake_up = mean(&switches, "wake-up").expect("both are on one CPU");
    assert!((0.4..3.0).contains(&wake_up), "{switches}");
    for name in ["tcp-ip", "driver", "ip-tcp-receive", "copy"] {
        let mean = mean(&switches, name).expect("both are on one CPU");
        assert!(mean < 0.05, "no other thread runs within {name}: {switches}");
    }
    assert!(number(&switches["run"]) >= 600.0, "two a round: {switches}");
    // An event that counts ns agrees with the stamps. Compare medians, because a preemption between a stamp and its
    // count changes only one of them.
    let clock = event(&report, "cpu-clock");
    let records = String::from_utf8(bench.read("counted.jsonl")).expect("UTF-8");
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    for (name, from, to) in
        [("tcp-ip", "tcp-send", "queue"), ("ip-tcp-receive", "receive", "ready"), ("wake-up", "ready", "the next")]
    {
        let both: Vec<(f64, f64)> = records.iter().filter_map(|record| counted_and_stamped(record, from, to)).collect();
        let slices = clock["slices"].as_array().expect("slices");
        let counted = slices.iter().find(|slice| slice["name"] == name).expect("both are on one CPU");
        let mean = both.iter().map(|(counted, _)| counted).sum::<f64>() / both.len() as f64;
        assert!((number(&counted["count"]) - both.len() as f64).abs() < 0.5, "{name}: {clock}");
        assert!((number(&counted["raw_mean"]) / mean - 1.0).abs() < 1e-9, "{name}: {mean}: {clock}");
        let mut ratios: Vec<f64> = both.iter().map(|(counted, stamped)| counted / stamped).collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        assert!((ratio - 1.0).abs() < 0.1, "{name}: {ratio}: {clock}");
    }
    assert!(number(&clock["overhead"]["n_o"]) > 0.0, "a probe takes time: {clock}");
    let read = bench.run(["slice", "kernel", "--json", "-r", "counted.jsonl"]);
    assert_eq!(read.status, Some(0), "{}", read.stderr);
    let read: Value = serde_json::from_str(&read.stdout).expect("one object");
    let again = mean(&event(&read, "context-switches"), "wake-up").expect("it was written");
    assert!((again - wake_up).abs() < 1e-9, "{again} {wake_up}");
    let text = bench.run(["slice", "kernel", "-r", "counted.jsonl"]).stdout;
    assert!(text.contains("counted") && text.contains("context-switches") && text.contains("a probe adds"), "{text}");
}

/// Returns the ns between two points of a record, or from a point to the next, by the second counted event and by the
/// stamps.
fn counted_and_stamped(record: &Value, from: &str, to: &str) -> Option<(f64, f64)> {
    let stamps = record["stamps"].as_array()?;
    let place = |point: &str| stamps.iter().position(|stamp| stamp["point"] == point);
    let from = place(from)?;
    let to = if to == "the next" { from + 1 } else { place(to)? };
    stamps.get(to)?;
    let between = |after: &Value, before: &Value| number(after) - number(before);
    let counts = &record["counts"];
    Some((between(&counts[to][1], &counts[from][1]), between(&stamps[to]["at"], &stamps[from]["at"])))
}

#[test]
fn unknown_events_are_refused_before_anything_runs() {
    let bench = Bench::new();
    for (events, hint) in [
        ("contextswitches", "did you mean 'context-switches'"),
        ("bananas", "write one of cycles"),
        ("cycles,,cs", "is not an event"),
        ("cycles,instructions,cs,faults,branches", "5 events are too many"),
    ] {
        let finished = bench.run(["slice", "kernel", "--counters", events, "--duration", "1ms"]);
        assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{}", finished.stderr);
        assert!(finished.stderr.contains(hint), "{events}: {}", finished.stderr);
    }
}

/// If loopback drops all packets, the calibration uses a loopback of its own instead of waiting for minutes.
#[test]
fn a_filtered_loopback_does_not_count_as_a_standstill() {
    const DROP: &str = r#"
__attribute__((section("xdp"), used)) int drop(void *packet) { return 1; }
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("drop.c", DROP);
    let setup = "clang -target bpf -O2 -g -c drop.c -o drop.o && ip link set lo up && \
                 ip link set dev lo xdpgeneric obj drop.o sec xdp || exit 77";
    let script =
        format!("{setup}; exec timeout -s KILL 60 {} slice kernel -q --duration 1ms", env!("CARGO_BIN_EXE_netlathe"));
    let command = Command::new("unshare").args(["--net", "sh", "-c", &script]).current_dir(bench.path("")).output();
    let finished = command.expect("it is in util-linux");
    let stderr = String::from_utf8_lossy(&finished.stderr);
    if finished.status.code() == Some(77) {
        println!("SKIP: packets cannot be dropped here: {stderr}");
        return;
    }
    assert_eq!(finished.status.code(), Some(0), "{stderr}");
}
