//! `--stats`: the lines of a live run agree with its report, with readers that are slow, late or gone.

use crate::bed::{Bed, Finished, number};
use lab::Node;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;
use std::time::Duration;

const STREAM: &str = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 64B'";

/// The lines of a file. Checks what must be true of any line.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    assert!(text.ends_with('\n'), "the last line is whole: {text:?}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object on a line")).collect();
    for (i, line) in lines.iter().enumerate() {
        assert_eq!((number(line, "/schema"), number(line, "/skipped")), (2, 0));
        assert_eq!(line["last"], i + 1 == lines.len(), "the last one says so: {line}");
        let before = i.checked_sub(1).map_or(0, |before| number(&lines[before], "/passed_ns"));
        let (passed, interval) = (number(line, "/passed_ns"), number(line, "/interval_ns"));
        assert_eq!(passed - before, interval, "{line}");
    }
    lines
}

/// Checks that the last line agrees with the report, and that the rates of all lines add up to its figures.
fn assert_adds_up(lines: &[Value], report: &Value, at: &str) {
    let last = lines.last().and_then(|line| line.pointer(at)).unwrap_or_else(|| panic!("no {at} in the last line"));
    for field in ["in", "out", "drops", "held"] {
        assert_eq!(last[field], report[field], "{field} of {at}: {last} {report}");
    }
    let dropped: u64 = last["drops"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    let (arrived, gone) = (number(last, "/in/frames") + number(last, "/copies"), number(last, "/out/frames") + dropped);
    assert_eq!(arrived, gone + number(last, "/held"), "the books of {at} balance: {last}");
    for (way, of) in [("in", "frames"), ("out", "frames"), ("in", "bytes"), ("out", "bytes")] {
        let (rate, bits) = if of == "frames" { ("fps", 1.0) } else { ("bps", 8.0) };
        let sum: f64 = lines
            .iter()
            .map(|line| {
                let rate = line.pointer(&format!("{at}/rate/{way}/{rate}")).and_then(Value::as_f64);
                rate.unwrap_or(0.0) * number(line, "/interval_ns") as f64 / 1e9 / bits
            })
            .sum();
        let total = number(last, &format!("/{way}/{of}")) as f64;
        assert!((sum - total).abs() <= 1.0 + total * 1e-6, "{way} {of} of {at}: {sum} by rates, {total} in all");
    }
}

/// Frames dropped for a reason, counted in lines before the last one.
fn dropped(lines: &[Value], at: &str) -> u64 {
    let before = lines.len() - 1;
    lines[..before].iter().filter_map(|line| line.pointer(at)).filter_map(Value::as_u64).max().unwrap_or(0)
}

#[test]
fn lines_come_while_frames_depart_and_add_up_to_the_report() {
    let Some(bed) = Bed::paired("statgen") else { return };
    for (name, options) in [("paced", "--rate 5kpps"), ("flood", "--duration 700ms"), ("cores", "--cores 0,1")] {
        let line = format!("gen --out dpdk:net_null0 --duration 1s {options} --json {STREAM}");
        let line = if name == "flood" { line.replace("--duration 1s ", "") } else { line };
        let run = bed.run(Node::Box, &format!("{line} --stats {name} --stats-every 100ms"));
        if name == "cores" && run.status.code() == Some(2) {
            println!("SKIP: {}", run.stderr);
            continue;
        }
        let (report, lines) = (run.report(), lines(&bed.path(name)));
        assert!(lines.len() >= 4 && lines[0]["command"] == "gen", "{name}: {lines:?}");
        assert_adds_up(&lines, &report, "/pipelines/0");
        let before_last = &lines[lines.len() - 2];
        let (then, all) = (number(before_last, "/pipelines/0/out/frames"), number(&report, "/out/frames"));
        assert!(0 < then && then <= all, "{name}: {then} of {all} while it ran");
        let told = |figure: &str| before_last.pointer(&format!("/pipelines/0/{figure}")).is_some();
        assert_eq!([told("starved"), told("lateness/p50_ns")], [name == "paced"; 2], "{name}: {before_last}");
    }
}

/// Runs `line` in the box, carries frames from `a0` to `b1` and back, and stops it with Ctrl-C. Returns its result and
/// its lines.
fn carried(bed: &Bed, line: &str) -> (Finished, Vec<Value>) {
    let run = bed.start(Node::Box, &format!("{line} --stats lines --stats-every 100ms --json --duration 50s"));
    thread::sleep(Duration::from_secs(2));
    for (from, count) in [("a0", 3_000), ("b1", 2_000)] {
        bed.run(Node::Box, &format!("gen --out if:{from},driver=af_packet --rate 5kpps --count {count} {STREAM}"));
    }
    thread::sleep(Duration::from_millis(500));
    let ended = run.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    (ended, lines(&bed.path("lines")))
}

#[test]
fn stats_show_both_directions_until_ctrl_c() {
    let Some(bed) = Bed::paired("statemu") else { return };
    let (ended, lines) =
        carried(&bed, "emulate --between a1 b0 --forward 'loss 20% duplicate 30%' --backward 'loss 40%'");
    let report = ended.whole_report();
    for (i, name) in ["forward", "backward"].into_iter().enumerate() {
        let at = format!("/pipelines/{i}");
        assert!(lines.iter().all(|line| line.pointer(&at).is_some_and(|one| one["name"] == name)), "{lines:?}");
        assert_adds_up(&lines, &report["pipelines"][i], &at);
        let lost = number(&report["pipelines"][i], "/drops/loss");
        assert_eq!(dropped(&lines, &format!("{at}/drops/loss")), lost, "told half a second before the end");
        let copies = lines[lines.len() - 2].pointer(&format!("{at}/copies"));
        assert_eq!(copies, Some(&report["pipelines"][i]["copies"]), "and so are copies");
    }
    assert!(number(&report, "/pipelines/0/copies") > 0, "{report}");
}

#[test]
fn stats_show_the_return_path_and_parts_on_cpus() {
    let Some(bed) = Bed::paired("statparts") else { return };
    for cores in ["", "--cores 0,1"] {
        let (ended, lines) = carried(&bed, &format!("shape --in a1 --out b0 --stage 'loss 20%' {cores}"));
        let report = ended.report();
        assert_adds_up(&lines, &report, "/pipelines/0");
        assert_adds_up(&lines, &report["return"], "/pipelines/0/return");
        let told = dropped(&lines, "/pipelines/0/drops/loss");
        assert_eq!(told, number(&report, "/drops/loss"), "{cores}: told half a second before the end");
        let before_last = &lines[lines.len() - 2];
        assert_eq!(before_last["pipelines"][0]["in"], report["in"], "{cores}");
        assert_eq!(before_last["pipelines"][0]["return"]["out"], report["return"]["out"], "{cores}");
    }
}

#[test]
fn stats_of_measure_include_left_out_frames() {
    let Some(bed) = Bed::paired("statmeas") else { return };
    let line = "measure --in a1 --only 'udp dport 9' --json --duration 50s --stats lines --stats-every 100ms";
    let measure = bed.start(Node::Box, line);
    while !bed.path("lines").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    let streams = format!("{STREAM} --stream 'udp 10.0.0.1:1 > 10.0.0.2:10'");
    bed.run(Node::Box, &format!("gen --out a0 --rate 5kpps --count 2000 --json {streams}")).report();
    thread::sleep(Duration::from_millis(300));
    let report = measure.stop().report();
    let lines = lines(&bed.path("lines"));
    assert_adds_up(&lines, &report, "/pipelines/0");
    let last = &lines[lines.len() - 1]["pipelines"][0];
    assert_eq!((&last["left_out"], &last["kernel_drops"]), (&report["left_out"], &report["flow"]["kernel_drops"]));
    assert!(number(last, "/in/frames") == 1_000 && number(last, "/left_out/frames") >= 1_000, "{last}");
    let seen = |line: &Value| (1..1_000).contains(&number(line, "/pipelines/0/in/frames"));
    assert!(lines.iter().any(seen), "some while they came: {lines:?}");
}

/// A named pipe filled with zeros, open for reading.
fn full_pipe(bed: &Bed) -> File {
    let path = bed.path("pipe");
    bed.stdout(Node::Box, "mkfifo pipe");
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    // Opened for reading and writing, so it neither blocks nor lacks a reader.
    let mut pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).expect("a pipe");
    while pipe.write(&[b'0'; 4_096]).is_ok() {}
    while pipe.write(b"0").is_ok() {}
    pipe
}

#[test]
fn a_full_pipe_loses_lines_that_are_counted_and_holds_up_nothing() {
    let Some(bed) = Bed::paired("statfull") else { return };
    let mut pipe = full_pipe(&bed);
    let line = "gen --out dpdk:net_null0 --rate 5kpps --count 20000 --json --stats pipe --stats-every 100ms";
    let run = bed.start(Node::Box, &format!("{line} {STREAM}"));
    thread::sleep(Duration::from_secs(3));
    let mut zeros = vec![0; 1 << 20];
    let read = pipe.read(&mut zeros).expect("what filled it");
    assert!(zeros[..read].iter().all(|byte| *byte == b'0'), "no part of a line was put behind");
    thread::sleep(Duration::from_millis(500));
    let mut bytes = vec![0; 1 << 20];
    let read = pipe.read(&mut bytes).expect("lines");
    let first: Value = serde_json::from_slice(bytes[..read].split(|byte| *byte == b'\n').next().unwrap_or_default())
        .expect("a whole line");
    assert!(number(&first, "/skipped") > 5, "{first}");
    assert!(number(&first, "/interval_ns") > 500_000_000, "its rates are of all the time since: {first}");
    // The reader does not come back.
    drop(pipe);
    let finished = run.wait();
    assert!(finished.stderr.contains("--stats: pipe: no reader took the last line"), "{finished:?}");
    assert_eq!(number(&finished.report(), "/out/frames"), 20_000, "and the run went on");
}

#[test]
fn a_reader_may_attach_late_and_be_replaced() {
    let Some(bed) = Bed::paired("statlate") else { return };
    bed.stdout(Node::Box, "mkfifo pipe");
    let line = "gen --out dpdk:net_null0 --rate 5kpps --count 25000 --json --stats pipe --stats-every 100ms";
    let run = bed.start(Node::Box, &format!("{line} {STREAM}"));
    thread::sleep(Duration::from_secs(2));
    for _ in 0..2 {
        let mut line = String::new();
        let mut reader = BufReader::new(File::open(bed.path("pipe")).expect("a pipe"));
        reader.read_line(&mut line).expect("a line");
        let line: Value = serde_json::from_str(&line).expect("a whole line");
        assert!(number(&line, "/pipelines/0/out/frames") > 0, "{line}");
    }
    let all = BufReader::new(File::open(bed.path("pipe")).expect("a pipe")).lines();
    let last = all.last().expect("lines").expect("text");
    let report = run.wait().report();
    let last: Value = serde_json::from_str(&last).expect("a whole line");
    assert_eq!((&last["last"], &last["pipelines"][0]["out"]), (&Value::Bool(true), &report["out"]));
}

#[test]
fn rejects_bad_stats_files() {
    let Some(bed) = Bed::paired("statno") else { return };
    let null = format!("gen --out dpdk:net_null0 --duration 100ms {STREAM}");
    let _socket = UnixListener::bind(bed.path("socket")).expect("a socket");
    for (line, wanted) in [
        (format!("{null} --json --stats /dev/stdout"), "standard output is for the report"),
        (format!("{null} --stats /dev/stdout"), "write -q, without --json"),
        (format!("{null} --stats nosuch/lines"), "cannot write nosuch/lines"),
        (format!("{null} --stats lines --stats-every 10ms"), "write 100ms or more"),
        (format!("{null} --stats page/report.json --report page"), "would be overwritten"),
        (format!("gen --out null --count 10 {STREAM} --stats lines"), "it is only for live ports"),
        ("measure --in a1 --write lines --stats lines".to_owned(), "would be overwritten"),
        ("search --dut 'loss 1%' --stats lines".to_owned(), "write --trials FILE"),
        (format!("{null} --stats -"), "write -q --stats /dev/stdout"),
        (format!("{null} --stats socket"), "it is a socket"),
    ] {
        bed.run(Node::Box, &line).assert_refused(&[wanted]);
        assert!(!bed.path("lines").exists(), "{line}");
    }
    // A refused run keeps the file of an earlier run and creates none. A run that starts replaces the file.
    let refused = || {
        bed.run(Node::Box, &format!("gen --out nosuch0 --count 1 {STREAM} --stats lines")).assert_refused(&["nosuch0"]);
    };
    refused();
    assert!(!bed.path("lines").exists());
    std::fs::write(bed.path("lines"), "of another run\n").expect("a file");
    refused();
    assert_eq!(std::fs::read_to_string(bed.path("lines")).expect("it is there"), "of another run\n");
    bed.run(Node::Box, &format!("{null} --json --stats lines")).report();
    assert!(!lines(&bed.path("lines")).is_empty());
    // Output to a file opened for appending is appended.
    std::fs::write(bed.path("log"), "of another run\n").expect("a file");
    let log = OpenOptions::new().append(true).open(bed.path("log")).expect("it is there");
    let status = bed.netlathe(Node::Box, &format!("{null} -q --stats /dev/stdout")).stdout(log).status();
    assert!(status.expect("it starts").success());
    let log = std::fs::read_to_string(bed.path("log")).expect("it is there");
    assert!(log.starts_with("of another run\n{\"schema\":2,"), "{log}");
    let full = bed.run(Node::Box, &format!("gen --out dpdk:net_null0 --count 100 --json {STREAM} --stats /dev/full"));
    assert_eq!(full.status.code(), Some(2), "{full:?}");
    assert!(full.stderr.contains("cannot write /dev/full"), "{full:?}");
    assert_eq!(number(&full.whole_report()["pipelines"][0], "/out/frames"), 100, "the report is there all the same");
}
