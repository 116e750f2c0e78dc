//! Pipeline slices: exact in virtual time.

use crate::common::{Bench, Dialect, Record, words};
use serde_json::Value;

const FRAMES: u32 = 1_000;

/// `in.pcap`: frames of 100 B with FCS, 1 ms apart.
pub(crate) fn capture(bench: &Bench) {
    let records: Vec<Record> = (0..FRAMES).map(|i| Record::new(u64::from(i) * 1_000_000, 100, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
}

fn emulate(bench: &Bench, spec: &str, more: &[&str]) -> Value {
    let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", spec];
    bench.report(arguments.iter().chain(more))
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

pub(crate) fn slice<'a>(report: &'a Value, name: &str) -> &'a Value {
    let slices = report["slices"]["slices"].as_array().expect("slices");
    slices.iter().find(|slice| slice["name"] == name).unwrap_or_else(|| panic!("{name} in {slices:?}"))
}

/// Checks what must be true of any report: frame counts add up, and slices add up to the total.
pub(crate) fn check(report: &Value) {
    let count = |name: &str| report["slices"]["packets"][name].as_u64().expect("a count");
    assert_eq!(count("seen"), count("matched") + count("lost"));
    let slices = report["slices"]["slices"].as_array().expect("slices");
    let sum: f64 = slices.iter().map(|slice| number(&slice["mean_ns"]) * number(&slice["per_packet"])).sum();
    let total = number(&report["slices"]["total"]["mean_ns"]);
    assert!((sum - total).abs() <= 1e-6 * total.abs().max(1.0), "the slices sum to {sum}, the total is {total}");
}

#[test]
fn a_planted_delay_shows_in_its_slice_and_nowhere_else() {
    let bench = Bench::new();
    capture(&bench);
    let report = emulate(&bench, "delay 200us", &["--slices", "1/1"]);
    check(&report);
    assert_eq!(report["slices"]["packets"]["matched"], FRAMES);
    for name in ["rx", "netem", "queueing", "pacer", "tx"] {
        let expected = if name == "netem" { 200_000.0 } else { 0.0 };
        let slice = slice(&report, name);
        assert_eq!(slice["mean_ns"], expected, "{name}");
        assert_eq!(slice["intended_mean_ns"], expected, "{name}");
        assert_eq!(slice["error"]["max_ns"], 0.0, "virtual time is exact");
    }
    assert_eq!(report["slices"]["overhead"]["per_packet_ns"], 0.0);
}

#[test]
fn following_changes_nothing_and_one_in_some_is_one_in_some() {
    let bench = Bench::new();
    capture(&bench);
    let spec = "delay 10ms 2ms distribution normal loss 10% duplicate 5% reorder 5%";
    let mut plain = emulate(&bench, spec, &[]);
    let untouched = bench.read("out.pcap");
    let mut followed = emulate(&bench, spec, &["--slices", "1/8"]);
    assert!(bench.read("out.pcap") == untouched, "the same frames at the same instants");
    check(&followed);
    assert_eq!(followed["slices"]["every"], 8);
    assert_eq!(followed["slices"]["packets"]["seen"], FRAMES / 8);
    let lost = followed["slices"]["packets"]["lost"].as_u64().expect("a count");
    // Ten of a hundred are lost on average. Four standard deviations of a binomial with n = 125 are 13.
    assert!(lost.abs_diff(12) <= 13, "{lost}");
    followed["slices"].take();
    plain["slices"].take();
    assert_eq!(plain, followed, "the rest of the report is as without");
    assert!(emulate(&bench, spec, &[])["slices"].is_null(), "not requested");
}

#[test]
fn each_stage_the_queue_and_the_pacer_have_their_own() {
    let bench = Bench::new();
    // Ten frames arrive at once. Each waits for those before it.
    let records: Vec<Record> = (0..10).map(|i| Record::new(0, 100, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report = bench.report(words("shape --in pcap:in.pcap --out pcap:out.pcap --delay 3us --gap 10us --slices 1/1"));
    check(&report);
    assert_eq!(slice(&report, "delay")["mean_ns"], 3_000.0);
    // Frame k is behind k others and departs 10 µs after the previous one. All but the first wait.
    assert_eq!(slice(&report, "queueing")["mean_ns"], f64::from((0..9).sum::<u32>()) * 10_000.0 / 10.0);
    assert_eq!(slice(&report, "pacer")["mean_ns"], 9.0 * 10_000.0 / 10.0);
    assert_eq!(slice(&report, "pacer")["error"]["max_ns"], 0.0);
}

#[test]
fn classes_have_slices_of_their_own() {
    let bench = Bench::new();
    let stream = |port: u16| format!("udp 10.0.0.1:1 > 10.0.0.2:{port} size 100B");
    let (a, b) = (stream(5), stream(6));
    bench.report(["gen", "--out", "pcap:in.pcap", "--stream", &a, "--stream", &b, "--count", "100", "--gap", "1ms"]);
    let report = bench.report(words(
        "emulate --in pcap:in.pcap --out pcap:out.pcap --class 'five = udp dport 5' --forward 'five=delay 1ms' \
         --forward 'delay 2ms' --slices 1/1",
    ));
    let classes = report["classes"].as_array().expect("classes");
    let means: Vec<f64> = classes.iter().map(|class| number(&slice(class, "netem")["mean_ns"])).collect();
    assert_eq!(means, [1_000_000.0, 2_000_000.0]);
    classes.iter().for_each(check);
}

#[test]
fn a_generated_frame_arrives_when_the_preceding_one_has_departed() {
    let bench = Bench::new();
    let report = bench.report(words(
        "gen --out wire:10G --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 100B' --count 1000 --gap 10us \
         --slices 1/10",
    ));
    check(&report);
    assert_eq!(report["slices"]["packets"]["matched"], 100);
    let total = number(&report["slices"]["total"]["p50_ns"]);
    assert!((total / 10_000.0 - 1.0).abs() < 2e-3, "{total} ns of a gap of 10 µs");
}

#[test]
fn the_page_the_table_and_single_frames_show_them() {
    let bench = Bench::new();
    capture(&bench);
    let words = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", "delay 200us"];
    let finished = bench.run(words.iter().chain(&["--slices", "1/4", "--report", "page"]));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stdout.contains("slices    1 frame in 4: 250 seen, 250 departed, 0 lost"), "{}", finished.stdout);
    let row = finished.stdout.lines().find(|line| line.trim_start().starts_with("netem ")).expect("a row");
    assert!(row.contains("200 µs") && row.contains("100.00 %"), "{row}");
    let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8");
    assert!(page.contains("Where the time goes") && page.contains("One packet") && page.contains("error p99"));
    if cfg!(feature = "slice") {
        let pipeline = |each: &str| {
            let outer = ["slice", "pipeline", "--every", "1/250", "--each", each, "--"];
            let finished = bench.run(outer.iter().chain(&words).chain(&["-q"]));
            assert_eq!(finished.status, Some(0), "{}", finished.stderr);
            finished.stdout
        };
        let lines = pipeline("lines");
        assert_eq!(lines.lines().count(), 4, "{lines}");
        assert!(lines.lines().all(|line| line.contains("netem 200 µs") && line.contains("total 200 µs")), "{lines}");
        assert_eq!(pipeline("waterfall").matches("██████████").count(), 4 * 4, "48 blocks each");
        let json: Vec<Value> =
            pipeline("json").lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let times: Vec<u64> = json.iter().map(|packet| packet["at_ns"].as_u64().expect("a time")).collect();
        assert_eq!(times[0], 0, "the first frame");
        let of = |time: &u64| time / 250_000_000;
        assert!(times.iter().map(of).eq(0..4), "one of each 250, of which 1 ms is one: {times:?}");
        assert_eq!(json[1]["slices"][1]["length_ns"], 200_000.0);
    }
}

#[cfg(feature = "slice")]
#[test]
fn a_closed_reader_ends_the_run() {
    let bench = Bench::new();
    let outer = "slice pipeline --each json -- gen --out wire:10G --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --gap 1us";
    let script = format!("(timeout -s KILL 60 \"$0\" {outer} --duration 10000s; echo $? > status) | head -2");
    let output = std::process::Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")])
        .current_dir(bench.path(""))
        .output()
        .expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    let status = String::from_utf8(bench.read("status")).expect("a number");
    assert_eq!(status.trim(), "0", "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn bad_shares_are_refused_in_one_line() {
    let bench = Bench::new();
    capture(&bench);
    for share in ["64", "0", "2/3", "1/0"] {
        let finished =
            bench.run(["gen", "--out", "null", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2", "--slices", share]);
        assert_eq!(finished.status, Some(2));
        assert!(finished.stderr.contains("1/64") && finished.stderr.lines().count() == 1, "{}", finished.stderr);
    }
    let finished = bench.run(["measure", "--pcap", "in.pcap", "--slices", "1/4"]);
    assert!(finished.status == Some(2) && finished.stderr.contains("leave it out"), "{}", finished.stderr);
    if cfg!(feature = "slice") {
        // The command has two sampling shares, and one would be ignored.
        let twice =
            ["gen", "--out", "null", "--stream", "udp 10.0.0.1:1 > 10.0.0.2:2", "--count", "9", "--slices", "1/4"];
        for command in [&["measure", "--pcap", "in.pcap"][..], &["doctor"], &["gen", "--out"], &twice] {
            let finished = bench.run(["slice", "pipeline", "--"].iter().chain(command));
            assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
        }
        let finished = bench.run(["slice", "pipeline", "--in", "pcap:in.pcap", "--out", "null"]);
        assert!(finished.status == Some(2) && finished.stderr.contains("-- emulate --in"), "{}", finished.stderr);
    }
}

#[test]
fn expectations_of_slices_need_a_run_that_traces() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    bench.write(
        "a.toml",
        "schema = 1\n[[pipeline]]\nname = 'a'\nin = 'pcap:in.pcap'\nout = 'null'\nstages = ['delay 1ms']\n\
         [[expect]]\nthat = 'a.slices.packets.matched > 0'\n",
    );
    let refused = bench.run(words("run a.toml --json"));
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("'a.slices.packets.matched > 0': its run has that figure only with --slices"));
    let met = bench.run(words("run a.toml --json --slices 1/1"));
    assert_eq!(met.status, Some(0), "{}", met.stderr);
    let checked = bench.run(words("check a.toml"));
    assert_eq!(checked.status, Some(0), "{}", checked.stderr);
    assert!(checked.stderr.contains("the run has that figure only with --slices"), "{}", checked.stderr);
}
