//! Sweeps: the runs of a scenario with several values, and their common results.

use crate::common::{Bench, words};
use serde_json::{Value, json};
use std::fs;

const SCENARIO: &str = "schema = 1
[sweep]
'up.delay' = ['10ms', '50ms']
'up.count' = [100, 200]
[[pipeline]]
name = 'up'
stream = 'udp 10.0.0.1:1 > 10.0.0.2:9'
count = 1
gap = '1ms'
out = 'null'
stages = ['delay 1ms']
[[expect]]
that = 'up.delay.mean < 20ms'
[[expect]]
that = 'up.out.frames >= 100'
";

#[test]
fn each_run_has_its_values_in_every_form_of_the_results() {
    let bench = Bench::new();
    fs::write(bench.path("a.toml"), SCENARIO).expect("a scenario");
    let finished = bench.run(words("run a.toml --json --junit r.xml --csv f.csv --report out"));
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one JSON object");
    let runs = report["runs"].as_array().expect("runs");
    let figures: Vec<Value> = runs
        .iter()
        .map(|run| {
            let up = &run["report"]["pipelines"][0];
            json!([run["values"], up["delay"]["mean_ns"], up["out"]["frames"], run["report"]["expectations"][0]["ok"]])
        })
        .collect();
    let values = |delay: &str, count: &str| json!({ "up.delay": delay, "up.count": count });
    assert_eq!(
        figures,
        [
            json!([values("10ms", "100"), 10e6, 100, true]),
            json!([values("10ms", "200"), 10e6, 200, true]),
            json!([values("50ms", "100"), 50e6, 100, false]),
            json!([values("50ms", "200"), 50e6, 200, false]),
        ]
    );
    let missed = "expected up.delay.mean < 20ms: it is 50000000 ns";
    assert_eq!(
        finished.complaints(),
        ["100", "200"].map(|count| format!("netlathe: up.delay=50ms, up.count={count}: {missed}"))
    );
    let junit = fs::read_to_string(bench.path("r.xml")).expect("results");
    assert!(junit.contains("<testsuites name=\"netlathe\" tests=\"8\" failures=\"2\" errors=\"0\">"), "{junit}");
    assert!(junit.contains("<testsuite name=\"a.toml [up.delay=50ms, up.count=200]\" tests=\"2\" failures=\"1\""));
    let csv = fs::read_to_string(bench.path("f.csv")).expect("figures");
    assert!(csv.starts_with("run,up.delay,up.count,pipeline,figure,unit,value\n"), "{csv}");
    assert!(csv.lines().any(|line| line == "4,50ms,200,up,out.frames,count,200"), "{csv}");
    assert!(bench.path("out/run-4/report.html").exists());

    let text = bench.run(words("run a.toml"));
    let lines: Vec<&str> = text.stdout.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "run up.delay up.count up.delay.mean up.out.frames result"
    );
    assert_eq!(lines[4].split_whitespace().collect::<Vec<_>>().join(" "), "4 50ms 200 50000000 ns * 200 missed 1");
    assert_eq!(bench.run(words("run a.toml -q")).stdout, "");
}

#[test]
fn values_side_by_side_and_with_set() {
    let bench = Bench::new();
    let zipped = SCENARIO.replace("[100, 200]", "[100, 200]\nzip = true");
    fs::write(bench.path("a.toml"), zipped).expect("a scenario");
    let finished = bench.run(words("run a.toml --json --set up.gap=2ms"));
    let report: Value = serde_json::from_str(&finished.stdout).expect("one JSON object");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run["report"]["pipelines"][0]["gap"]["mean_ns"] == 2e6), "{report}");
    assert_eq!(runs[1]["values"], json!({ "up.delay": "50ms", "up.count": "200" }));
}

#[test]
fn runs_that_would_write_one_file_are_refused() {
    let bench = Bench::new();
    let writes = SCENARIO.replace("'null'", "'pcap:o.pcap'");
    fs::write(bench.path("a.toml"), &writes).expect("a scenario");
    let refused = bench.run(words("run a.toml"));
    assert_eq!(refused.status, Some(2));
    assert!(refused.stderr.contains("o.pcap: runs 1 and 2 of the sweep would write it"), "{}", refused.stderr);
    assert!(!bench.path("o.pcap").exists());
    let outputs = "'up.out' = ['pcap:a.pcap', 'pcap:b.pcap']\nzip = true\n'up.delay'";
    fs::write(bench.path("a.toml"), writes.replace("'up.delay'", outputs)).expect("a scenario");
    let finished = bench.run(words("run a.toml -q"));
    assert_eq!(finished.status, Some(1), "{}", finished.stderr);
    assert!(bench.path("a.pcap").exists() && bench.path("b.pcap").exists());
}

#[test]
fn a_run_that_fails_is_in_the_results_of_all() {
    let bench = Bench::new();
    let text =
        SCENARIO.replace("'up.delay' = ['10ms', '50ms']", "'up.out' = ['null', 'pcap:no/where.pcap']\nzip = true");
    fs::write(bench.path("a.toml"), text).expect("a scenario");
    let finished = bench.run(words("run a.toml --json --junit r.xml"));
    assert_eq!(finished.status, Some(2), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one JSON object");
    assert_eq!(report["runs"][0]["report"]["pipelines"][0]["out"]["frames"], 100);
    assert!(report["runs"][1]["failure"].as_str().expect("a failure").contains("no/where.pcap"), "{report}");
    let junit = fs::read_to_string(bench.path("r.xml")).expect("results");
    assert!(junit.contains("failures=\"0\" errors=\"1\""), "{junit}");
}
