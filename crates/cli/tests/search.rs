//! The search in virtual time: against a policer whose rate is known, and devices that behave badly.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use common::{Bench, Finished, words};
use serde_json::Value;

/// 123 456 frames of 64 B a second, and one at once.
const POLICER: &str = "limit key dst-ip rate 63209472bps burst 64B users 16";

fn search(bench: &Bench, options: &str) -> Value {
    let finished = bench.run(words(&format!("search --json {options}")));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    serde_json::from_str(&finished.stdout).expect("one object on stdout")
}

fn figure(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

#[test]
fn a_policer_is_found_within_the_precision_and_never_above() {
    let bench = Bench::new();
    for method in ["rfc2544", "mlrsearch --sum 3s"] {
        let report = search(&bench, &format!("--dut '{POLICER}' --trial 1s --width 0.1% --max 1Mpps --method {method}"));
        let goal = &report["searches"][0]["goals"][0];
        let lower = figure(goal, "/lower_fps");
        // One frame at once, in a second.
        assert!(lower <= 123_457.0, "{method}: {lower}");
        assert!(lower >= 123_456.0 * 0.998, "{method}: {lower}");
        assert_eq!(goal["verdict"], "DUT-limited");
        assert!(figure(goal, "/upper_fps") > lower);
        for trial in report["searches"][0]["trials"].as_array().expect("trials") {
            let (load, lost, sent) = (figure(trial, "/load_fps"), figure(trial, "/lost"), figure(trial, "/sent"));
            let seconds = figure(trial, "/duration_ns") / 1e9;
            // What a policer of this rate drops, but for the frame in its bucket and one of rounding.
            let least = (sent - 123_456.0 * seconds).max(0.0);
            assert!((lost - least).abs() <= 2.0, "{load}: {lost} of {sent}, {least} expected");
        }
    }
}

#[test]
fn several_goals_and_sizes_in_one_run() {
    let bench = Bench::new();
    let report = search(
        &bench,
        &format!("--dut '{POLICER}' --loss 0% --loss 10% --size 64B --size 128B --trial 200ms --max 1Mpps --min 1kpps"),
    );
    let lower = |size: usize, goal: usize| figure(&report, &format!("/searches/{size}/goals/{goal}/lower_fps"));
    assert!((lower(0, 0) / 123_456.0 - 1.0).abs() < 0.006, "{}", lower(0, 0));
    // 10 % more may be sent when 10 % may be lost.
    assert!((lower(0, 1) / (123_456.0 / 0.9) - 1.0).abs() < 0.006, "{}", lower(0, 1));
    // A bucket of 64 B never holds a frame of 128 B.
    assert_eq!(report["searches"][1]["goals"][0]["verdict"], "below-least");
}

#[test]
fn devices_that_take_all_and_delays_are_told() {
    let bench = Bench::new();
    let report = search(&bench, "--dut 'delay 5us' --trial 10ms --max 1Mpps");
    let goal = &report["searches"][0]["goals"][0];
    assert_eq!((goal["verdict"].as_str(), figure(goal, "/lower_fps")), (Some("not-limited"), 1e6));
    assert_eq!((figure(goal, "/delay/min_ns"), figure(goal, "/delay/max_ns")), (5_000.0, 5_000.0));
    // One frame in a hundred is lost at any load: a goal of 2 % does not mind, one of none has no bound.
    let report = search(&bench, "--dut 'loss 1%' --loss 0% --loss 2% --trial 1s --max 100kpps --min 10kpps");
    let verdict = |goal: usize| report["searches"][0]["goals"][goal]["verdict"].clone();
    assert_eq!((verdict(0), verdict(1)), ("below-least".into(), "not-limited".into()));
}

#[test]
fn a_search_goes_on_from_its_trials() {
    let bench = Bench::new();
    let options = format!("--dut '{POLICER}' --trial 100ms --max 1Mpps --trials t.jsonl");
    let whole = search(&bench, &options);
    let lines = String::from_utf8(bench.read("t.jsonl")).expect("UTF-8");
    assert!(lines.lines().count() > 8);
    // As a search that was ended leaves it: half of the lines, the last one cut.
    let half: Vec<&str> = lines.lines().take(6).collect();
    bench.write("t.jsonl", format!("{}\n{}", half.join("\n"), &lines.lines().nth(6).expect("a line")[..20]));
    assert_eq!(search(&bench, &options), whole);
    assert_eq!(String::from_utf8(bench.read("t.jsonl")).expect("UTF-8"), lines);
    let other = options.replace("64B users", "65B users");
    refused(&bench, &format!("search {other}"), "another search");
}

fn refused(bench: &Bench, line: &str, word: &str) -> Finished {
    let finished = bench.run(words(line));
    assert_eq!(finished.status, Some(2), "{line}");
    assert!(finished.complaints().iter().any(|said| said.contains(word)), "{line}: {}", finished.stderr);
    finished
}

#[test]
fn what_cannot_be_searched_is_said_first() {
    let bench = Bench::new();
    for (line, word) in [
        ("search", "--dut"),
        ("search --dut 'dely 5us'", "dely"),
        ("search --dut 'delay 5us' --size 64", "no unit"),
        ("search --dut 'delay 5us' --stream 'tcp 10.0.0.1:1 > 10.0.0.2:2'", "stamp"),
        ("search --dut 'delay 5us' --max 1pps", "--min"),
        ("search --dut 'delay 5us' --loss 2", "no unit"),
        ("search --dut 'delay 5us' --width 0%", "--width"),
        ("search --out pcap:a.pcap --in eth0", "no live port"),
    ] {
        refused(&bench, line, word);
    }
}
