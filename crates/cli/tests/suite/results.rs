//! The results of a scenario for other programs, and values replaced by `--set`.

use crate::common::{Bench, words};
use serde_json::{Value, json};
use std::fs;

const SCENARIO: &str = "schema = 1
[[pipeline]]
name = 'up'
stream = 'udp 10.0.0.1:1 > 10.0.0.2:9'
count = 100
gap = '1ms'
out = 'null'
stages = ['delay 20ms', 'loss 5%']
[[expect]]
that = 'up.delay.mean == 20ms'
[[expect]]
that = 'up.drops.loss < 1'
[[expect]]
that = 'up.in.frames == 100'
";

#[test]
fn a_missed_expectation_is_in_every_form_of_the_results() {
    let bench = Bench::new();
    fs::write(bench.path("a.toml"), SCENARIO).expect("a scenario");
    let finished = bench.run(words("run a.toml --json --junit r.xml --csv f.csv --set up.gap=2ms"));
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    let report = finished.report();
    let lost = report["pipelines"][0]["drops"]["loss"].as_u64().expect("frames were lost");
    assert!(lost > 0);
    assert_eq!(
        report["expectations"],
        json!([
            { "that": "up.delay.mean == 20ms", "value": 20e6, "ok": true },
            { "that": "up.drops.loss < 1", "value": lost as f64, "ok": false, "missed": format!("it is {lost}") },
            { "that": "up.in.frames == 100", "value": 100.0, "ok": true },
        ])
    );
    assert_eq!(finished.complaints(), [format!("netlathe: expected up.drops.loss < 1: it is {lost}")]);
    let junit = fs::read_to_string(bench.path("r.xml")).expect("results");
    assert!(junit.contains("<testsuite name=\"a.toml\" tests=\"3\" failures=\"1\" errors=\"0\">"), "{junit}");
    let failure = format!("<failure message=\"expected up.drops.loss &lt; 1: it is {lost}\"");
    assert!(junit.contains(&failure) && junit.matches("<failure").count() == 1, "{junit}");
    let csv = fs::read_to_string(bench.path("f.csv")).expect("figures");
    for (figure, unit, pointer) in
        [("gap.mean_ns", "ns", "/gap/mean_ns"), ("drops.loss", "count", "/drops/loss"), ("in.bytes", "B", "/in/bytes")]
    {
        let value: &Value = report["pipelines"][0].pointer(pointer).expect(pointer);
        let line = format!("up,{figure},{unit},{value}");
        assert!(csv.lines().any(|found| found == line), "{line} in\n{csv}");
    }
}

#[test]
fn set_changes_what_a_run_does() {
    let bench = Bench::new();
    fs::write(bench.path("a.toml"), SCENARIO).expect("a scenario");
    let run = |set: &str| {
        let finished = bench.run(words(&format!("run a.toml --json {set}")));
        finished.report()["pipelines"][0].clone()
    };
    let delay = |set: &str| run(set)["delay"]["mean_ns"].as_f64().expect("a delay");
    assert_eq!((delay(""), delay("--set 'up.delay=80ms'")), (20e6, 80e6));
    assert_eq!(run("--set up.count=7 --set up.loss=0%")["out"]["frames"], 7);
    assert_eq!(run("--set up.gap=2ms")["gap"]["min_ns"], 2e6);
    // The long form of the scenario contains the new values and the same paths.
    let checked = bench.run(words("check a.toml --set up.delay=80ms"));
    fs::write(bench.path("b.toml"), &checked.stdout).expect("a scenario");
    assert_eq!(bench.run(words("check b.toml --set up.delay=80ms")).stdout, checked.stdout);
    assert!(checked.stdout.contains("delay 80ms"), "{}", checked.stdout);
}

#[test]
fn an_output_of_the_run_is_not_overwritten_by_its_results() {
    let bench = Bench::new();
    fs::write(bench.path("a.toml"), SCENARIO).expect("a scenario");
    for option in ["--junit", "--csv"] {
        let finished = bench.run(words(&format!("run a.toml {option} a.toml")));
        assert_eq!(finished.status, Some(2), "{option}");
        assert!(finished.stderr.contains("would be overwritten while it is in use"), "{}", finished.stderr);
        assert_eq!(fs::read_to_string(bench.path("a.toml")).expect("the scenario"), SCENARIO, "{option}");
    }
}
