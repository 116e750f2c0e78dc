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
        let report =
            search(&bench, &format!("--dut '{POLICER}' --trial 1s --width 0.1% --max 1Mpps --method {method}"));
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
            // No policer lets more pass than its rate and the frame in its bucket.
            let most = 123_456.0 * seconds + 2.0;
            assert!(sent - lost <= most, "{load}: {lost} of {sent} lost");
            assert_eq!(lost > 0.0, load > lower, "{load}: {lost} lost, the bound is {lower}");
        }
    }
}

#[test]
fn several_goals_and_sizes_in_one_run() {
    let bench = Bench::new();
    // 100 frames of 64 B at once, which are 500 frames/s more for 200 ms.
    let policer = POLICER.replace("burst 64B", "burst 6400B");
    let options = "--loss 0% --loss 10% --size 64B --size 128B --trial 200ms --max 1Mpps --min 1kpps";
    let report = search(&bench, &format!("--dut '{policer}' {options}"));
    for (size, goal, expected) in
        [(0, 0, 123_956.0), (0, 1, 123_956.0 / 0.9), (1, 0, 123_956.0 / 2.0), (1, 1, 123_956.0 / 1.8)]
    {
        let lower = figure(&report, &format!("/searches/{size}/goals/{goal}/lower_fps"));
        assert!((0.993..=1.0001).contains(&(lower / expected)), "{lower}, {expected} expected");
    }
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
        ("search", "--out"),
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
