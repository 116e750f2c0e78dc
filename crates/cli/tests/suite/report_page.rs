//! `--report`: which files it writes, what they contain, and what is refused before anything starts.

use crate::common::{Bench, words};
use serde_json::Value;
use std::fs;

const GEN: &str = "gen --out wire:10G --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size imix'";

fn page(bench: &Bench, folder: &str) -> (String, Value) {
    let html = String::from_utf8(bench.read(&format!("{folder}/report.html"))).expect("UTF-8");
    let json = bench.read(&format!("{folder}/report.json"));
    // Treat non-breaking spaces between figures as spaces.
    let html = html.replace('\u{a0}', " ");
    (html, serde_json::from_slice(&json).expect("JSON"))
}

#[test]
fn every_command_that_moves_frames_writes_a_page() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 5_000);
    let scenario = "schema = 1\n[[pipeline]]\nname = \"even\"\nin = \"pcap:in.pcap\"\nout = \"wire:10G\"\ngap = \"10us\"\n[[expect]]\nthat = \"even.starved == 0\"\n";
    bench.write("s.toml", scenario);
    for (command, asked) in [
        ("shape --in pcap:in.pcap --out wire:10G --rate 2Gbps", true),
        ("shape --in pcap:in.pcap --out null", false),
        ("measure --pcap in.pcap", false),
        ("measure --pcap in.pcap --expect 1ns", true),
        ("run s.toml", true),
    ] {
        let folder = format!("{}/deep", command.replace([' ', ':', '/'], "_"));
        let finished = bench.run(words(&format!("{command} --json --report {folder}")));
        assert_eq!(finished.status, Some(0), "{command}: {}", finished.stderr);
        let (html, mut json) = page(&bench, &folder);
        assert!(html.starts_with("<!DOCTYPE html>") && html.trim_end().ends_with("</html>"));
        assert!(html.contains(&format!("netlathe {command} --json --report {folder}")), "the command line is shown");
        assert!(html.contains("Every frame is accounted for."));
        // The plots show the measured values.
        let plots = json["pipelines"][0].as_object_mut().expect("a pipeline").remove("plots").expect("plots");
        let drawn = &plots["gap"]["got"];
        let inside: u64 = drawn["counts"].as_array().expect("bins").iter().filter_map(Value::as_u64).sum();
        let all = inside + drawn["below"].as_u64().expect("a count") + drawn["above"].as_u64().expect("a count");
        assert_eq!(all, 4_999, "{command}");
        assert_eq!(plots["gap"].get("asked").is_some(), asked, "{command}");
        assert_eq!(json, finished.report(), "beside what is drawn, the same report");
    }
}

#[test]
fn streams_are_on_the_page_of_their_receiver() {
    let bench = Bench::new();
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 weight 2'";
    bench.report(words(&format!("gen --out pcap:in.pcap --count 3000 --gap 10us --report sent {streams}")));
    assert!(!page(&bench, "sent").0.contains("<h3>Streams"), "the sender knows of nothing that came");
    bench.report(words("emulate --in pcap:in.pcap --out pcap:got.pcap --forward 'delay 1ms loss 25%'"));
    let report = bench.report(words("measure --pcap got.pcap --report got"));
    let (html, _) = page(&bench, "got");
    for stream in [0, 1] {
        let lost = report["streams"][stream]["lost"].as_u64().expect("a count");
        assert!((100..1000).contains(&lost) && html.contains(&format!("<td>{lost} (")), "{lost} of {stream}: {html}");
        assert!(html.contains("<td>1 ms</td>"), "its delay: {html}");
    }
}

#[test]
fn page_data_include_the_drawings_of_classes() {
    let bench = Bench::new();
    bench.generate("64B", 1_000);
    let finished = bench.run(words(
        "emulate --in pcap:in.pcap --out null --class 'all = udp' --forward 'all=delay 1ms 1ms' --json --report r",
    ));
    let (html, json) = page(&bench, "r");
    assert!(html.contains("all: drawings"));
    let plots = &json["pipelines"][0]["classes"][0]["plots"];
    let counts = plots["delay"]["got"]["counts"].as_array().expect("bins").iter().filter_map(Value::as_u64);
    assert!(counts.sum::<u64>() > 950 && plots["gap"]["got"]["counts"].is_array(), "{plots}");
    assert!(finished.report()["pipelines"][0]["classes"][0].get("plots").is_none());
}

#[test]
fn the_waveform_is_drawn_as_typed_and_warnings_stand_on_top() {
    let bench = Bench::new();
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 750B'";
    // The input carries 60 Mbit/s, but bursts of 100 Mbit/s are asked for.
    bench.report(words(&format!("gen --out pcap:in.pcap --count 10000 --gap 100us {stream}")));
    let wave = "burst 100Mbps for 200ms every 500ms";
    for (asks, place) in [("--rate", ""), ("--class 'all = udp' --rate", "all=")] {
        let line = format!("shape --in pcap:in.pcap --out wire:10G {asks} '{place}{wave}'");
        let finished = bench.run(words(&format!("{line} --json --report r")));
        let report = finished.report();
        let warned = report["warnings"][0].as_str().expect("a warning");
        assert!(warned.contains("% of the waveform was lost"), "{report}");
        let (html, json) = page(&bench, "r");
        let (top, first) =
            (html.find("of the waveform was lost").expect("a warning"), html.find("id=\"p0\"").expect("a section"));
        assert!(top < first, "it stands on top");
        let pipeline = &json["pipelines"][0];
        let part = if place.is_empty() { pipeline } else { &pipeline["classes"][0] };
        let rates = |name: &str| -> Vec<f64> {
            let rates = part["plots"]["rate"][name].as_array().expect("rates");
            rates.iter().map(|rate| rate.as_f64().expect("a rate")).collect()
        };
        let most = |rates: &[f64]| rates.iter().fold(0.0, |a: f64, b| a.max(*b));
        let (asked, got) = (rates("asked_bps"), rates("got_bps"));
        assert_eq!(asked.len(), got.len());
        assert!((most(&asked) - 1e8).abs() < 1e3, "{asked:?}");
        assert!(asked.iter().any(|rate| *rate < 1.0), "{asked:?}");
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        assert!(mean(&got) < mean(&asked) * 0.9, "less was got than asked: {got:?}");
        let text = bench.run(words(&line)).stdout;
        assert!(
            text.starts_with("warning: ")
                && text.lines().next().is_some_and(|line| line.contains("of the waveform was lost"))
        );
    }
}

#[test]
fn page_begins_with_asked_got_and_verdict() {
    let bench = Bench::new();
    let scenario = "schema = 1\n[[pipeline]]\nname = \"even\"\nstream = \"udp 10.0.0.1:1 > 10.0.0.2:2\"\ncount = 1000\nout = \"wire:10G\"\nrate = \"1Mpps\"\nstages = [\"netem delay 1ms loss 10%\"]\n[[expect]]\nthat = \"even.starved == 0\"\n";
    bench.write("s.toml", scenario);
    bench.write("missed.toml", scenario.replace("starved == 0", "out.frames == 7"));
    for (file, status, word) in
        [("s.toml", 0, "All expectations met: 1"), ("missed.toml", 1, "Expectations missed: 1 of 1")]
    {
        assert_eq!(bench.run(words(&format!("run {file} -q --report r"))).status, Some(status));
        let (html, _) = page(&bench, "r");
        let first = html.find("id=\"p0\"").expect("a section");
        let top = &html[..first];
        for said in
            [word, "even: rate</th><td>1Mpps</td><td>", "even: delay</th><td>1 ms in the median", "even: loss</th>"]
        {
            assert!(top.contains(said), "{said}: {top}");
        }
    }
}

#[test]
fn gaps_that_span_decades_are_drawn_by_decades_and_written_to_files() {
    let bench = Bench::new();
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    for (gap, decades) in [("lognormal mean 1ms sd 100ms", true), ("exp mean 10us", false)] {
        bench.report(words(&format!("gen --out pcap:in.pcap --count 5000 --gap '{gap}' {stream}")));
        let report = bench.report(words("measure --pcap in.pcap --report r --csv gaps.csv --svg gaps.svg"));
        let plot = &page(&bench, "r").1["pipelines"][0]["plots"]["gap"];
        assert_eq!(plot.get("edges_ns").is_some(), decades, "{plot}");
        assert_eq!(page(&bench, "r").0.contains("ten bins a decade"), decades);
        let text = |name: &str| String::from_utf8(bench.read(name)).expect("text");
        let csv = text("gaps.csv");
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some("from_ns,to_ns,gaps,share,up_to"));
        let rows: Vec<Vec<f64>> =
            lines.map(|line| line.split(',').map(|cell| cell.parse().expect("a figure")).collect()).collect();
        assert!((rows.iter().map(|row| row[2]).sum::<f64>() - 4_999.0).abs() < 0.5);
        assert!(rows.iter().all(|row| row[0] <= row[1] && row[4] < 1.0 + 1e-9));
        let median = rows.iter().find(|row| row[4] >= 0.5).expect("a median");
        let p50 = report["gap"]["p50_ns"].as_f64().expect("a median");
        assert!((median[1] / p50 - 1.0).abs() < 2e-3, "{median:?}, {p50}");
        let svg = text("gaps.svg");
        assert!(
            svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>") && svg.contains("<style>"),
            "{svg}"
        );
    }
    let finished = bench.run(words("measure --pcap in.pcap --csv in.pcap"));
    assert_eq!(finished.status, Some(2));
    assert!(finished.stderr.contains("--csv: in.pcap would be overwritten"), "{}", finished.stderr);
}

#[test]
fn reports_an_unwritable_page_with_a_remedy() {
    let bench = Bench::new();
    bench.generate("64B", 10);
    fs::create_dir(bench.path("r")).expect("a folder");
    std::os::unix::fs::symlink("/dev/full", bench.path("r/report.html")).expect("a link");
    let finished = bench.run(words("shape --in pcap:in.pcap --out null -q --report r"));
    let said = "netlathe: cannot write r/report.html: No space left on device (os error 28): check the path, its permissions and the free space\n";
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(2), said));
    for taken in ["--out pcap:r/report.json", "--out pcap:o.pcap --decisions r/report.json"] {
        let finished = bench.run(words(&format!("emulate --in pcap:in.pcap {taken} --forward 'loss 1%' --report r")));
        assert_eq!(finished.status, Some(2), "{taken}");
        assert!(finished.stderr.contains("r/report.json would be overwritten"), "{}", finished.stderr);
    }
}

#[test]
fn runs_of_no_frames_and_of_one_have_pages() {
    let bench = Bench::new();
    bench.report(words(&format!("{GEN} --count 1 --gap 1us --report one")));
    let (html, _) = page(&bench, "one");
    assert!(html.contains("No gap: fewer than two frames left."));
    bench.generate("64B", 1);
    bench.report(words("shape --in pcap:in.pcap --out wire:10G --gap 1us --stage 'loss 100%' --report none"));
    let (html, json) = page(&bench, "none");
    assert!(
        html.contains("loss (dropped by a loss stage, as asked)") && html.contains("Every frame is accounted for.")
    );
    assert_eq!(json["pipelines"][0]["out"]["frames"], 0);
}

#[test]
fn expectations_and_their_fate_are_on_the_page() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    let finished = bench.run(words("measure --pcap in.pcap --expect 'fixed 2ns' -q --report missed"));
    assert_eq!(finished.status, Some(1));
    let (html, _) = page(&bench, "missed");
    assert!(html.contains(
        "<code>fixed 2ns</code> <span class=\"verdict bad\">missed</span>: the mean is 1 ns, 50.0000 % off 2 ns"
    ));
}

#[test]
fn a_report_overwrites_an_older_one_and_a_truncated_input_has_one() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    let mut cut = bench.read("in.pcap");
    cut.truncate(cut.len() - 10);
    bench.write("cut.pcap", cut);
    for file in ["in", "cut"] {
        let finished = bench.run(words(&format!("shape --in pcap:{file}.pcap --out null --json --report r")));
        assert_eq!(finished.status, Some(if file == "in" { 0 } else { 2 }));
        let (html, json) = page(&bench, "r");
        assert_eq!(json["pipelines"][0]["in"]["frames"], if file == "in" { 100 } else { 99 });
        assert!(html.contains(&format!("pcap:{file}.pcap")));
        let said =
            "<h2>Ended early</h2>\n<div class=\"card\"><p class=\"bad\">cut.pcap breaks after record 99, at byte";
        assert_eq!(html.contains(said), file == "cut", "{html}");
    }
}

#[test]
fn a_folder_that_cannot_be_is_refused_before_anything_starts() {
    let bench = Bench::new();
    bench.generate("64B", 10);
    bench.write("file", "mine");
    fs::create_dir_all(bench.path("taken/report.html")).expect("a folder");
    for (folder, why) in [
        ("file", "is not a folder, or lies inside a file: name a folder"),
        ("file/below", "is not a folder, or lies inside a file: name a folder"),
        ("taken", "contains a folder called report.html, which the report needs as a file: name another folder"),
        ("/proc/nowhere", "cannot be created: "),
    ] {
        let finished = bench.run(words(&format!("shape --in pcap:in.pcap --out pcap:out.pcap --report {folder}")));
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(2), ""), "{folder}");
        assert!(
            finished.stderr.starts_with(&format!("netlathe: --report: {folder} {why}"))
                && finished.stderr.lines().count() == 1,
            "{}",
            finished.stderr
        );
        assert!(!bench.files().contains(&"out.pcap".to_owned()), "{folder}: nothing was started");
    }
    assert_eq!(bench.read("file"), b"mine");
    let finished = bench.run(words("shape --in pcap:nothing.pcap --out null --report made/for/nothing"));
    assert_eq!(finished.status, Some(2));
    assert!(!bench.files().contains(&"made".to_owned()), "a folder made for nothing goes again");
}
