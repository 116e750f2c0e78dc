//! Memory is bounded: input from others cannot make it grow beyond limits, and the program reports if memory runs out.

use crate::common::{Bench, Dialect, Finished, Record};
use packet::Stamp;
use serde_json::Value;
use std::process::Command;

/// A capture with `each` frames of 64 B of every stream, one stream after the other.
fn streams(bench: &Bench, name: &str, streams: u16, each: u32) {
    let numbered = (0..streams).flat_map(|stream| (0..each).map(move |sequence| (stream, sequence)));
    let frame = |(at, (stream, sequence)): (usize, (u16, u32))| {
        let ns = 1_000_000_000 + at as u64 * 1_000;
        let mut record = Record::new(ns, 64, 0);
        Stamp { stream, sequence, time_ns: ns }.write(&mut record.bytes);
        record
    };
    let records: Vec<Record> = numbered.enumerate().map(frame).collect();
    bench.capture(name, Dialect::USUAL, &records);
}

fn measured(bench: &Bench, words: &[&str]) -> (Value, Finished) {
    let finished = bench.run(words);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    (finished.report(), finished)
}

/// Returns the peak memory of a command in KiB. A program in between measures it, because the kernel combines all
/// children of a process, and the test process has many.
fn peak_kib(bench: &Bench, words: &[&str]) -> u64 {
    const SCRIPT: &str = "import resource, subprocess, sys\n\
        subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)\n\
        print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT, env!("CARGO_BIN_EXE_netlathe")]).args(words).current_dir(bench.path(""));
    let finished = Finished::of(command.output().expect("python3 is there"));
    finished.stdout.trim().parse().unwrap_or_else(|_| panic!("{finished:?}"))
}

/// Regression: 1 MB of frames, each in its own stream, took 1 GB.
#[test]
fn stream_numbers_of_others_cost_little() {
    let bench = Bench::new();
    streams(&bench, "one.pcap", 16_000, 1);
    streams(&bench, "many.pcap", 3_000, 20);
    let (report, _) = measured(&bench, &["measure", "--pcap", "one.pcap", "--json"]);
    let pipeline = &report["pipelines"][0];
    let listed = pipeline["streams"].as_array().expect("streams");
    assert_eq!(
        (listed.len(), &listed[15_999]["received"], &pipeline["streams_beyond"]),
        (16_000, &1.into(), &Value::Null)
    );
    let (report, finished) = measured(&bench, &["measure", "--pcap", "many.pcap", "--json"]);
    let pipeline = &report["pipelines"][0];
    assert_eq!(pipeline["streams"].as_array().map(Vec::len), Some(512));
    assert_eq!(pipeline["streams_beyond"], serde_json::json!({"streams": 2_488, "frames": 2_488 * 20}));
    assert!(finished.stderr.contains("--max-streams"), "{}", finished.stderr);
    for name in ["one.pcap", "many.pcap"] {
        let kilobytes = peak_kib(&bench, &["measure", "--pcap", name, "--json"]);
        assert!(kilobytes < 100 << 10, "{name}: {kilobytes} KiB");
    }
    let (report, _) = measured(&bench, &["measure", "--pcap", "many.pcap", "--json", "--max-streams", "3000"]);
    let pipeline = &report["pipelines"][0];
    assert_eq!(pipeline["streams"].as_array().map(Vec::len), Some(3_000));
    assert!(pipeline["streams_beyond"].is_null());
}

/// Runs a command with a limit of `kib` KiB on its address space.
fn limited(bench: &Bench, kib: u32, line: &str) -> Finished {
    let script = format!("ulimit -v {kib}; exec \"$0\" {line}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).current_dir(bench.path(""));
    Finished::of(command.output().expect("a shell"))
}

#[test]
fn a_table_larger_than_memory_is_refused_by_name() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    bench.write("table.txt", b"123456789ns\n".repeat(4_000_000));
    let line = "shape --in pcap:in.pcap --out null --gap 'table table.txt'";
    let finished = limited(&bench, 300000, line);
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    for part in ["--gap", "table.txt: its 48 MB of text", "the limit on memory leaves ", "shuf -n"] {
        assert!(finished.stderr.contains(part), "{part}: {}", finished.stderr);
    }
}

#[cfg(all(feature = "live", feature = "slice"))]
#[test]
fn slices_without_memory_name_what_takes_less() {
    let bench = Bench::new();
    bench.generate("64B", 2_000_000);
    let line = "slice pipeline --every 1/1 -- shape --in pcap:in.pcap --out null --delay 1h -q";
    let finished = limited(&bench, 250000, line);
    assert_eq!(finished.status, Some(2), "{}", finished.stderr);
    assert!(
        finished.stderr.contains("out of memory") && finished.stderr.contains("--every 1/N"),
        "{}",
        finished.stderr
    );
}

#[cfg(feature = "live")]
#[test]
fn memory_that_is_not_there_is_an_error_with_a_remedy() {
    let bench = Bench::new();
    bench.generate("64B", 100);
    let users = "limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police --users 100000000";
    let finished = limited(&bench, 4000000, users);
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    assert!(
        finished
            .stderr
            .starts_with("netlathe: --users: 100 000 000 users take 6 400 MB, and the limit on memory leaves "),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("users") && finished.stderr.contains("ulimit -v"), "{}", finished.stderr);
}
