//! Scenarios and their expectations.

use super::worst_error;
use crate::common::Bench;

const SCENARIO: &str = r#"
schema = 1
seed = 5

[[pipeline]]
name = "made"
stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B"
count = 5000
out = "wire:10G,frames=made.csv"
gap = "fixed 10us"

[[pipeline]]
name = "file"
in = "pcap:in.pcap"
out = "wire:25G,frames=file.csv"
rate = "3.7Gbps"
stages = ["delay 1ms", "loss 10%"]
filler = "mac-control,align=4"

[[expect]]
that = "made.gap.error.max_ns < 1ns"
[[expect]]
that = "file.rate.mean_bps > 3.6Gbps"
[[expect]]
that = "file.drops.loss > 100"
[[expect]]
that = "made.out.frames == 5000"
"#;

#[test]
fn a_scenario_runs_and_its_expectations_are_checked() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 3_000);
    bench.write("good.toml", SCENARIO);
    let finished = bench.run(["run", "good.toml", "--json"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    let report = finished.report();
    let names: Vec<_> =
        report["pipelines"].as_array().expect("two").iter().map(|pipeline| pipeline["name"].as_str()).collect();
    assert_eq!((names, report["command"].as_str()), (vec![Some("made"), Some("file")], Some("run")));
    assert_eq!(worst_error(&bench.listed("made.csv"), 10_000_000), 0);
    assert_eq!(
        bench.listed("file.csv").len() as u64,
        report["pipelines"][1]["out"]["frames"].as_u64().expect("a count")
    );

    bench.write("missed.toml", SCENARIO.replace("== 5000", "== 4999").replace("> 100\"", "< 100\""));
    let missed = bench.run(["run", "missed.toml", "--json"]);
    assert_eq!((missed.status, missed.stderr.lines().count()), (Some(1), 2), "{}", missed.stderr);
    assert!(missed.stderr.contains("made.out.frames == 4999") && missed.stderr.contains("5000"));
    assert_eq!(missed.report()["pipelines"], report["pipelines"], "the figures are the same");

    let other = bench.run(["run", "good.toml", "--json", "--seed", "6"]);
    assert_ne!(other.stdout, finished.stdout, "--seed beats the file's");
    assert_eq!(bench.run(["run", "good.toml", "--json", "--seed", "5"]).stdout, finished.stdout);
}

#[test]
fn an_expectation_of_no_drops_holds_where_there_are_none() {
    let bench = Bench::new();
    let scenario = |that: &str| SCENARIO.replace("file.drops.loss > 100", that).replace("loss 10%", "loss 0%");
    bench.generate("random 64B-1518B", 1_000);
    bench.write("a.toml", scenario("file.drops.loss == 0"));
    let finished = bench.run(["run", "a.toml", "-q"]);
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    bench.write("a.toml", scenario("file.drops.los == 0"));
    let finished = bench.run(["run", "a.toml", "-q"]);
    assert_eq!(finished.status, Some(2), "refused before the run");
    assert!(finished.stderr.contains("write file.drops.loss"), "{}", finished.stderr);
}

#[test]
fn check_output_is_a_scenario_with_the_same_output() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 1_000);
    let odd_names = SCENARIO.replace("\"made\"", r#""made e\u0301 \"x\" \\ 'y'""#);
    // Files may have any name.
    let odd_names = odd_names.replace("made.csv\"", r#"made \u0001 \u007f.csv""#);
    assert!(odd_names.contains("\\u0001"), "{odd_names}");
    let odd_names =
        odd_names.replace("that = \"made.", "that = 'file.").replace("ns\"", "ns'").replace("5000\"", "5000'");
    let odd_names = odd_names.replace("file.gap.error.max_ns < 1ns", "file.held == 0");
    for (i, scenario) in [SCENARIO, &odd_names].iter().enumerate() {
        bench.write("a.toml", scenario);
        let printed = bench.run(["check", "a.toml"]);
        assert_eq!((printed.status, printed.stderr.as_str()), (Some(0), ""), "{i}: {scenario}");
        bench.write("b.toml", &printed.stdout);
        let again = bench.run(["check", "b.toml"]);
        assert_eq!(again.stderr, "", "{i}: {}", printed.stdout);
        assert_eq!(again.stdout, printed.stdout, "{i}");
        let run = |name| bench.run(["run", name, "--json"]).stdout;
        assert_eq!(run("a.toml"), run("b.toml"), "{i}");
    }
    assert!(!bench.files().contains(&"nothing".to_owned()));
}
