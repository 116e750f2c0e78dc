//! Invalid input fails in one clear way: status 2, one line per problem that says how to fix it, an empty stdout, and
//! no files left behind.

mod captures;
mod values;

use crate::common::{Bench, Dialect, Finished, Record, await_handlers, words};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A folder with a valid capture in `in.pcap`.
fn bench() -> Bench {
    let bench = Bench::new();
    let records: Vec<Record> = (0..100).map(|i| Record::new(1_000 * u64::from(i), 64 + i, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    bench
}

/// Runs a command that must be refused, with every string of `wanted` on stderr.
#[track_caller]
fn refused(bench: &Bench, line: &str, wanted: &[&str]) -> Finished {
    let before = bench.files();
    let finished = bench.run(words(line));
    let said = &finished.stderr;
    assert_eq!(finished.status, Some(2), "{line}: {said}");
    assert_eq!(finished.stdout, "", "{line}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{line}: {said}");
    assert!(wanted.iter().all(|word| said.contains(word)), "{line}: {wanted:?} in {said}");
    assert!(said.lines().all(|line| line.starts_with("netlathe: ") && line.len() > 30), "{line}: {said}");
    let remedies = [
        "write", "give", "check", "name", "leave", "add", "use", "at most", "correct", "did you mean", "read from",
        "capture on", "--help", "tip", "similar",
    ];
    let helps = |line: &str| remedies.iter().any(|remedy| line.contains(remedy));
    assert!(said.lines().all(helps), "{line} gets no remedy: {said}");
    assert_eq!(bench.files(), before, "{line} leaves files behind");
    finished
}

/// Like [`refused`], but stderr must be a single line.
#[track_caller]
fn refused_in_a_line(bench: &Bench, line: &str, wanted: &[&str]) {
    let finished = refused(bench, line, wanted);
    assert_eq!(finished.stderr.lines().count(), 1, "{line}: {}", finished.stderr);
}

#[test]
fn problems_are_shown_together() {
    let bench = bench();
    let finished = refused(
        &bench,
        "shape --in wire:1G --out wire:10X --gap 10 --stage 'foo 1' --filler hole",
        &["--out", "--gap"],
    );
    assert_eq!(finished.stderr.lines().count(), 4, "{}", finished.stderr);
    bench.write(
        "bad.toml",
        "schema = 1\nsead = 3\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'wire:10G'\ngap = 10\nstages = ['delai 1ms']\n\
         [[expect]]\nthat = 'foo.held == 0'\n[[expect]]\nthat = 'faster'\n",
    );
    for command in ["check", "run"] {
        let said = refused(&bench, &format!("{command} bad.toml"), &["did you mean seed"]).stderr;
        let places: Vec<_> = said.lines().map(|line| line.split(": ").nth(1).expect("a place")).collect();
        assert_eq!(
            places,
            ["bad.toml:2:1", "bad.toml:6:7", "bad.toml:7:11", "bad.toml:9:8", "bad.toml:11:8"],
            "{said}"
        );
    }
}

#[test]
fn rejects_invalid_scenarios() {
    let bench = bench();
    bench.write("latin1.toml", b"schema = 1 # \xe9\n");
    for (text, wanted) in [
        ("", &["schema", "pipeline"][..]),
        ("schema = 2\n", &["schema 2", ":1:10"]),
        ("schema = 1\n[[pipeline]\n", &["bad.toml:2:"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap\n", &["bad.toml:3:"]),
        ("schema = 1\n[pipeline]\nin = 'pcap:in.pcap'\nout = 'null'\n", &["[[pipeline]]"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\noutt = 'null'\n", &["bad.toml:4:1", "did you mean out"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\ncount = 5\n", &["bad.toml:5:", "count"]),
        ("\u{feff}shema = 1\n", &["bad.toml:1:1: 'shema'", "did you mean schema"]),
        ("schema = '1'\n", &["bad.toml:1:10", "without quotes"]),
        ("schema = 1.0\n", &["bad.toml:1:10", "without point"]),
        ("schema = 1\nseed = -5\n", &["bad.toml:2:8", "below zero: write 0"]),
        ("schema = 1\nseed = 99999999999999999999\n", &["bad.toml:2:8", "at most 18446744073709551615"]),
        ("schema = 1\nduration = 5\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\n", &["bad.toml:2:12", "unit"]),
    ] {
        bench.write("bad.toml", text);
        refused(&bench, "check bad.toml", wanted);
        refused(&bench, "run bad.toml --json", wanted);
    }
    refused(&bench, "check latin1.toml", &["UTF-8, as TOML is"]);
    for file in ["missing.toml", ".", "latin1.toml"] {
        refused(&bench, &format!("check {file}"), &[file]);
        refused(&bench, &format!("run {file}"), &[file]);
    }
}

#[test]
fn scenario_with_a_bad_second_pipeline_writes_nothing() {
    let bench = bench();
    let second = |edit: &str| {
        format!("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'pcap:out.pcap'\n[[pipeline]]\n{edit}\n")
    };
    for (edit, wanted) in [
        ("in = 'pcap:missing.pcap'\nout = 'null'", "missing.pcap"),
        ("in = 'pcap:out.pcap'\nout = 'null'", "out.pcap"),
        ("in = 'pcap:in.pcap'\nout = 'wire:1G,frames=./out.pcap'", "another output"),
        ("in = 'pcap:in.pcap'\nout = 'pcap:nowhere/out.pcap'", "nowhere"),
    ] {
        bench.write("two.toml", second(edit));
        refused_in_a_line(&bench, "run two.toml", &[wanted]);
    }
}

#[test]
fn reports_a_run_beyond_the_time_range() {
    let bench = bench();
    let stream = "udp 10.0.0.1:1 > 10.0.0.2:2 size 300B";
    bench.run(["gen", "--out", "pcap:many.pcap", "--stream", stream, "--count", "20000", "-q"]);
    for how in [
        "--out null --gap 86400s",
        "--out wire:10G --gap 86400s",
        "--out wire:10G --rate 0.001pps",
        "--out wire:3G --rate 1bps",
        "--out null --stage 'delay 18446744s'",
        "--out null --stage 'delay 18446744s' --stage 'delay 18446744s'",
    ] {
        let finished = bench.run(words(&format!("shape --in pcap:many.pcap {how} --json")));
        assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{how}: {}", finished.stderr);
        assert!(finished.stderr.contains("213 days"), "{how}: {}", finished.stderr);
        assert!(finished.report()["pipelines"][0]["held"].as_u64() > Some(0));
    }
    for how in ["--duration 18446744s", "--window 18446744s"] {
        bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G --gap 10us {how}")));
    }
}

#[test]
fn a_closed_reader_does_not_crash_the_run() {
    let bench = bench();
    let shell = |line: &str| {
        let line = line.replace("netlathe", env!("CARGO_BIN_EXE_netlathe"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output().expect("a shell");
        Finished::of(output)
    };
    for command in ["measure --pcap in.pcap", "measure --pcap in.pcap --json", "shape --in pcap:in.pcap --out null"] {
        for reader in [">&-", "| true", "| head -0"] {
            let finished = shell(&format!("netlathe {command} {reader}"));
            assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{command} {reader}");
        }
    }
    for (command, status) in [
        ("measure --pcap missing", "2"),
        ("shape --in pcap:in.pcap --out null --gap 10", "2"),
        ("measure --pcap in.pcap -q --expect 1s", "1"),
    ] {
        let finished =
            shell(&format!("trap '' PIPE; (exec 3>&1; (netlathe {command} 2>&1 >/dev/null; echo $? >&3) | true)"));
        assert_eq!(finished.stdout.trim(), status, "{command}: stderr has no reader");
    }
    for command in ["--help", "shape --help"] {
        let finished = shell(&format!("netlathe {command} | head -0"));
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn sigint_ends_a_run_with_its_report() {
    let bench = bench();
    bench.write(
        "dry.toml",
        "schema = 1\n[[pipeline]]\nstream = 'udp 10.0.0.1:1 > 10.0.0.2:2'\nout = 'wire:10G,frames=dry.csv'\n\
         stages = ['loss 100%']\n",
    );
    for signal in ["INT", "TERM", "HUP"] {
        for line in [
            "gen --out wire:10G,pcap=/dev/null,frames=out.csv --rate 1bps --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --duration 100ms",
            "run dry.toml --duration 100000s",
        ] {
            // A run that lasts until a signal ends it. It writes many frames, so they go to /dev/null.
            let endless = line
                .replace("--rate 1bps", "--rate 10Gbps")
                .replace("100ms", "100000s")
                .replace("out.csv", "/dev/null");
            // Reset SIGHUP to its default. Under nohup it would be ignored.
            let mut command = Command::new("env");
            command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_netlathe")]).args(words(&endless)).arg("--json");
            command.current_dir(bench.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("it runs");
            await_handlers(child.id());
            // Send the signal twice at once, as timeout(1) does.
            let process = child.id().to_string();
            let killed = Command::new("kill").args(["-s", signal, &process, &process]).status();
            assert!(killed.expect("kill is there").success());
            let mut report = String::new();
            let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
            stdout.read_line(&mut report).expect("a line");
            let output = child.wait_with_output().expect("it ends");
            let finished = Finished {
                status: output.status.code(),
                stdout: report,
                stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            };
            assert_eq!((finished.status, finished.complaints()), (Some(0), vec![]), "{signal}: {endless}");
            finished.report();
        }
    }
}

#[test]
fn reports_a_stack_that_is_too_small() {
    for (kib, code) in [(64, 2), (256, 0)] {
        let script =
            format!("ulimit -s {kib}; exec \"$0\" gen --out null --count 1 -q --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
        let output =
            Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{kib} KiB: {said}");
        assert_eq!(said.contains("a stack of 64 KiB is too small: set ulimit -s 256"), code == 2, "{kib} KiB: {said}");
    }
}
