//! `merge` of the report files of several hosts.

use crate::common::{Bench, words};
use serde_json::{Value, json};

/// A folder with the reports of `shape` on the two halves of a capture and on the whole.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.generate("64B-1518B", 3_000);
    for (name, gap) in [("a", "chi2 df 6 in 80us..120us"), ("b", "exp mean 50us")] {
        let line = format!("shape --in pcap:in.pcap --out wire:10G --gap '{gap}' --json --histograms --seed 7");
        let finished = bench.run(words(&line));
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        bench.write(&format!("{name}.json"), &finished.stdout);
    }
    bench
}

fn read(bench: &Bench, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(bench.path(name)).expect("text")).expect("JSON")
}

#[test]
fn the_page_has_a_lane_for_each_host() {
    let bench = bench();
    // Hosts that started 40 ms apart by the reference clock.
    for (name, at, offset) in [("a", 1_000_000_000_u64, 0.0), ("b", 1_000_000_000, 40e6)] {
        let mut report = read(&bench, &format!("{name}.json"));
        report["pipelines"][0]["start"] = json!({ "asked_unix_ns": at, "obtained_unix_ns": at, "miss_ns": 0 });
        report["clocks"] = json!([{ "peer": "r", "offset_ns": offset }]);
        bench.write(&format!("{name}.json"), report.to_string());
    }
    let finished = bench.run(words("merge a.json b.json --page all.html --json"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let page = std::fs::read_to_string(bench.path("all.html")).expect("a page");
    assert_eq!(page.matches("<polyline").count(), 2, "{page}");
    let begins: Vec<f64> = page
        .split("<polyline class=\"got\" points=\"")
        .skip(1)
        .map(|points| points.split(',').next().and_then(|x| x.parse().ok()).expect("a place"))
        .collect();
    assert!(begins[1] > begins[0] + 20.0, "b starts 40 ms later: {begins:?}");
    assert!(page.contains("by the reference clock") && page.contains("40\u{a0}ms"), "{page}");
    refused(&bench, "merge a.json b.json --page ./b.json", &["--page", "would be overwritten"]);
    // Without curves, the page states how to get them.
    for name in ["a", "b"] {
        let mut report = read(&bench, &format!("{name}.json"));
        report["pipelines"][0].as_object_mut().expect("an object").remove("rate_curve");
        bench.write(&format!("{name}.json"), report.to_string());
    }
    assert_eq!(bench.run(words("merge a.json b.json --page all.html")).status, Some(0));
    assert!(std::fs::read_to_string(bench.path("all.html")).expect("a page").contains("Write them with --histograms"));
}

fn refused(bench: &Bench, line: &str, wanted: &[&str]) {
    let finished = bench.run(words(line));
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{line}: {}", finished.stderr);
    assert!(wanted.iter().all(|word| finished.stderr.contains(word)), "{line}: {wanted:?} in {}", finished.stderr);
}

#[test]
fn merges_counters_and_histograms_of_files() {
    let bench = bench();
    let finished = bench.run(words("merge a.json right=b.json --json"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let merged: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let (a, b) = (read(&bench, "a.json"), read(&bench, "b.json"));
    let of = |report: &Value, at: &str| report["pipelines"][0].pointer(at).cloned().unwrap_or(Value::Null);
    for at in ["/in/frames", "/out/bytes", "/gap/count"] {
        let sum = of(&a, at).as_u64().expect("a count") + of(&b, at).as_u64().expect("a count");
        assert_eq!(of(&merged, at), json!(sum), "{at}");
    }
    // The median of all gaps, from the buckets of both files.
    let mut buckets: Vec<(u64, u64)> = [&a, &b]
        .iter()
        .flat_map(|report| of(report, "/histograms/gap_ps").as_array().expect("a histogram").clone())
        .map(|pair| (pair[0].as_u64().expect("ps"), pair[1].as_u64().expect("a count")))
        .collect();
    buckets.sort_unstable();
    let all: u64 = buckets.iter().map(|bucket| bucket.1).sum();
    let mut passed = 0;
    let median = buckets.iter().find(|bucket| {
        passed += bucket.1;
        passed >= all.div_ceil(2)
    });
    let median = median.expect("a bucket").0 as f64 / 1_000.0;
    let got = of(&merged, "/gap/p50_ns").as_f64().expect("a median");
    assert!((got / median - 1.0).abs() < 0.001, "{got} {median}");
    let average = (of(&a, "/gap/p50_ns").as_f64().expect("") + of(&b, "/gap/p50_ns").as_f64().expect("")) / 2.0;
    assert!((got / average - 1.0).abs() > 0.05, "{got} is not the average {average}");
    assert_eq!(merged["merged"]["hosts"][1]["name"], "right");
    assert!(merged["caveats"].as_array().expect("a list").iter().any(|caveat| caveat["host"] == "a"));
    let text = bench.run(words("merge a.json right=b.json")).stdout;
    for word in ["shape of 2 hosts", "  right", "6 000 frames", "hosts added", "left out"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn histograms_are_in_reports_only_when_asked() {
    let bench = Bench::new();
    bench.generate("64B", 200);
    for (option, present) in [("", false), ("--histograms", true)] {
        let report = bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G --gap 10us {option}")));
        assert_eq!(report["histograms"].is_object(), present, "{option}: {report}");
    }
}

#[test]
fn refuses_what_does_not_fit_by_name() {
    let bench = bench();
    bench.write("text.json", "not JSON");
    bench.write("old.json", r#"{"schema":1,"command":"shape","pipelines":[]}"#);
    bench.write("other.json", r#"{"schema":2,"command":"measure","pipelines":[]}"#);
    refused(&bench, "merge a.json nowhere.json", &["nowhere.json", "name a report"]);
    refused(&bench, "merge a.json text.json", &["text.json", "name a report"]);
    refused(&bench, "merge a.json old.json", &["cannot merge: old:", "schema 1"]);
    refused(&bench, "merge a.json other.json", &["cannot merge: other:", "netlathe measure", "netlathe shape"]);
    refused(&bench, "merge a.json a.json", &["another report is also of host a", "write NAME=a.json"]);
    refused(&bench, "merge a.json b.json --offset c=1us", &["--offset c=1us", "only of a, b"]);
    refused(&bench, "merge a.json b.json --offset a=1", &["--offset a=1", "no unit"]);
}
