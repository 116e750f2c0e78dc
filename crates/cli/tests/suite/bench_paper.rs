//! `make bench-paper`: its figures in virtual time are as netlathe promises, the delay that programs see live is the
//! asked one, and the documents agree with the results.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn bench_paper(options: &[&str]) -> Output {
    Command::new("python3")
        .arg(root().join("bench/paper"))
        .args(options)
        .env("NETLATHE", env!("CARGO_BIN_EXE_netlathe"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("scripts/setup.sh installs python3")
}

/// Runs experiments and returns their results, without touching the documents.
fn results(experiments: &[&str], options: &[&str]) -> (Output, Vec<Value>) {
    let folder = TempDir::new().expect("a folder");
    let only = experiments.join(",");
    let path = folder.path().to_str().expect("UTF-8");
    let output = bench_paper(&[&["--only", &only, "--results", path, "--keep-docs"], options].concat());
    let load = |name: &&str| {
        let text = fs::read_to_string(folder.path().join(format!("lightshaper-{name}.json")))
            .unwrap_or_else(|error| panic!("{name}: {error}: {}", String::from_utf8_lossy(&output.stderr)));
        serde_json::from_str(&text).expect("JSON")
    };
    let found = experiments.iter().map(load).collect();
    (output, found)
}

/// The figure in a column of the table row whose metric begins with `metric`.
fn figure<'a>(result: &'a Value, metric: &str, column: &str) -> &'a Value {
    let rows = result["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["metric"].as_str().is_some_and(|name| name.starts_with(metric)));
    &row.unwrap_or_else(|| panic!("no {metric} in {result}"))["figures"][column]
}

fn number(result: &Value, metric: &str, column: &str) -> f64 {
    figure(result, metric, column).as_f64().unwrap_or_else(|| panic!("{metric}, {column}: {result}"))
}

#[test]
fn documents_and_drawings_match_the_results() {
    let checked = bench_paper(&["--check"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn finds_a_document_that_differs_from_the_results() {
    let folder = TempDir::new().expect("a folder");
    let name = "lightshaper-table1.json";
    let text = fs::read_to_string(root().join("bench/results").join(name)).expect("results are committed");
    let mut result: Value = serde_json::from_str(&text).expect("JSON");
    result["took_s"] = Value::from(12_345.5);
    fs::write(folder.path().join(name), result.to_string()).expect("written");
    let checked = bench_paper(&["--check", "--results", folder.path().to_str().expect("UTF-8")]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("docs/papers/lightshaper.md"));
}

#[test]
fn virtual_time_keeps_gaps_and_delays_exactly() {
    let (output, found) = results(&["table1", "table4"], &["--virtual"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!((number(&found[0], "mean", "wire") - 10_000.0).abs() < 1e-9);
    assert!(number(&found[0], "largest − least gap", "wire").abs() < 1e-9);
    assert!((number(&found[0], "standard deviation", "paper") - 3.4).abs() < 1e-9);
    for edge in ["least", "largest"] {
        assert_eq!(
            figure(&found[1], &format!("delay of a frame from capture to capture: {edge}"), "wire"),
            "50.000000000"
        );
    }
    // On a line: within half a byte time of 800 ps, and never exact, because frames start on whole byte times.
    let on_line = |edge| {
        let text = figure(&found[1], &format!("delay of a frame onto an idle line: {edge}"), "wire");
        (text.as_str().expect("a text").parse::<f64>().expect("a number") - 50.0) * 1e9
    };
    let (least, largest) = (on_line("least").round(), on_line("largest").round());
    assert!((-400.0..0.0).contains(&least) && (1.0..=400.0).contains(&largest), "{least} ps, {largest} ps");
}

/// No frame leaves before its delay is over, so the lower bounds are exact. Machines hiccup, so the upper bounds are
/// wide.
#[test]
fn programs_see_the_delay_once_for_a_request_and_twice_with_a_handshake() {
    let lab =
        Command::new(env!("CARGO_BIN_EXE_netlathe")).args(["lab", "run", "--", "true"]).output().expect("it runs");
    if !lab.status.success() {
        println!("SKIP: {}", String::from_utf8_lossy(&lab.stderr));
        return;
    }
    let (output, found) = results(&["table4"], &["--seconds", "2"]);
    assert!(output.status.success(), "{}", found[0]["notes"]);
    let rr = number(&found[0], "RR: rise of the median", "live");
    let crr = number(&found[0], "CRR: rise of the median", "live");
    assert!((49.5..75.0).contains(&rr), "{rr} ms");
    assert!((99.0..150.0).contains(&crr), "{crr} ms");
}

#[test]
fn an_unknown_experiment_is_refused_before_anything_starts() {
    let output = bench_paper(&["--only", "fig5,fig9"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no 'fig9': write some of fig5,"));
}
