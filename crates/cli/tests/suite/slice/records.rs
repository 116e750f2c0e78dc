//! Records written and read back, and records that programs write about themselves.

use super::{bench, check, number, ping_pong};
use crate::common::{Bench, Finished};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// If the run is killed, the file contains the packets up to that point.
#[test]
fn packets_are_in_the_file_before_the_run_ends() {
    let Some((bench, _turn)) = bench() else { return };
    let script = "python3 ping-pong.py tcp 127.0.0.1 4 3; for n in $(seq 100); do
                  test $(grep -c stamps records.jsonl) = 6 && exit; sleep 0.1; done; exit 9";
    let finished = super::follow(&bench, &["-w", "records.jsonl"], &["sh", "-c", script]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
}

#[test]
fn records_are_written_and_read_again() {
    let Some((bench, _turn)) = bench() else { return };
    let live = ping_pong(&bench, &["-w", "records.jsonl"], ["tcp", "127.0.0.1", "4", "50"]);
    let finished = bench.run(["slice", "kernel", "--json", "-r", "records.jsonl"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(live["packets"], read["packets"]);
    // The last bit of a cost may be lost in its decimal form.
    let near = |a: &Value, b: &Value| (number(a) / number(b) - 1.0).abs() < 1e-9;
    assert!(near(&live["total"]["mean_ns"], &read["total"]["mean_ns"]), "{live}\n{read}");
    assert!(near(&live["loop"]["mean_ns"], &read["loop"]["mean_ns"]), "{live}\n{read}");
    let lines = bench.run(["slice", "kernel", "-q", "--each", "lines", "--count", "3", "-r", "records.jsonl"]);
    assert_eq!(lines.stdout.lines().count(), 3, "{}", lines.stdout);
    let page = bench.run(["slice", "kernel", "-q", "-r", "records.jsonl", "--report", "page"]);
    assert_eq!(page.status, Some(0), "{}", page.stderr);
    let html = fs::read_to_string(bench.path("page/report.html")).expect("the page");
    assert!(
        html.contains("Where the time goes")
            && html.contains(" · Linux ")
            && html.contains("ip-tcp-receive")
            && html.contains("One packet")
    );
    let json: Value = serde_json::from_slice(&bench.read("page/report.json")).expect("one object");
    assert_eq!(json["packets"], live["packets"]);
    // Packets that do not fit in the ring are counted.
    let crowded = ping_pong(&bench, &["--buffer", "64KiB", "-w", "crowded.jsonl"], ["tcp", "127.0.0.1", "4", "20000"]);
    assert!(number(&crowded["packets"]["evicted"]) > 0.0, "{crowded}");
    let finished = bench.run(["slice", "kernel", "--json", "-r", "crowded.jsonl"]);
    let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(crowded["packets"], read["packets"]);
    // A file whose writer was killed: the existing records count, and the error names what is missing.
    let mut cut = bench.read("records.jsonl");
    cut.truncate(cut.len() - 100);
    bench.write("cut.jsonl", cut);
    let cut = bench.run(["slice", "kernel", "--json", "-r", "cut.jsonl"]);
    assert_eq!((cut.status, cut.complaints().len()), (Some(2), 1), "{}", cut.stderr);
    assert!(cut.stderr.contains("cut.jsonl: line "), "{}", cut.stderr);
    let cut: Value = serde_json::from_str(&cut.stdout).expect("one object");
    assert_eq!(cut["packets"]["seen"].as_u64(), live["packets"]["seen"].as_u64().map(|seen| seen - 1));
    // The writer may be killed between two lines. Then the file has no end line.
    let whole = String::from_utf8(bench.read("records.jsonl")).expect("text");
    let lines: Vec<&str> = whole.lines().collect();
    let some = |bench: &Bench, kept: &[&str]| {
        bench.write("some.jsonl", kept.join("\n") + "\n");
        bench.run(["slice", "kernel", "--json", "-r", "some.jsonl"])
    };
    for kept in [&lines[..1], &lines[..lines.len() / 2], &lines[..lines.len() - 1]] {
        let finished = some(&bench, kept);
        let records = kept.iter().filter(|line| line.contains("stamps")).count();
        assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{}", finished.stderr);
        assert!(finished.stderr.contains("some.jsonl: ends without its last line"), "{}", finished.stderr);
        let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
        assert_eq!(read["packets"]["seen"].as_u64(), Some(records as u64), "{}", finished.stdout);
    }
    // A missing packet, and the lines of another file after the end line.
    let without: Vec<&str> =
        lines.iter().enumerate().filter(|(n, _)| *n != lines.len() - 2).map(|(_, line)| *line).collect();
    for (kept, told) in [
        (without, "the end of 100 packets, of which 99 are here"),
        ([&lines[..], &lines[1..]].concat(), "after the last"),
    ] {
        let finished = some(&bench, &kept);
        assert_eq!(finished.status, Some(2), "{}", finished.stderr);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    // Stamps of two CPUs may be out of order. Such a slice is 0, and the slices still add up to the total.
    let late = |line: &str| {
        let mut record: Value = serde_json::from_str(line).expect("a record");
        let after = record.pointer("/stamps/2/at").and_then(Value::as_u64);
        if let (Some(at), Some(after)) = (record.pointer_mut("/stamps/1/at"), after) {
            *at = (after + 500_000).into();
        }
        record.to_string() + "\n"
    };
    let records = String::from_utf8(bench.read("records.jsonl")).expect("text");
    bench.write("reversed.jsonl", records.lines().map(late).collect::<String>());
    let finished = bench.run(["slice", "kernel", "--json", "-r", "reversed.jsonl"]);
    let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
    check(&read);
    let (raw, net) = (number(&read["total"]["raw_mean_ns"]), number(&read["total"]["mean_ns"]));
    assert!(raw > 500_000.0 && net <= raw && number(&read["overhead"]["per_packet_ns"]) >= 0.0, "{read}");
    let bad = bench.run(["slice", "kernel", "-r", "ping-pong.py"]);
    assert_eq!((bad.status, bad.complaints().len()), (Some(2), 1), "{}", bad.stderr);
    let mut back = bench.read("records.jsonl");
    back.extend(b"{\"pace\":-5}\n");
    bench.write("back.jsonl", back);
    let back = bench.run(["slice", "kernel", "-q", "-r", "back.jsonl"]);
    assert!(back.status == Some(2) && back.stderr.contains("-5 is not a pace"), "{}", back.stderr);
    // The file has no line end.
    let script = "ulimit -v 1000000; exec timeout 60 \"$0\" slice kernel -r /dev/zero";
    let endless = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&endless.stderr);
    assert!(endless.status.code() == Some(2) && stderr.contains("holds no records"), "{stderr}");
}

/// Two sections in a C program, one inside the other. The inner one waits for about 5 µs.
#[test]
fn probes_in_a_program_show_where_its_time_goes() {
    const PROGRAM: &str = r#"
#include "netlathe_probe.h"
int main(int count, char **arguments)
{
    struct netlathe_ring ring;
    if (count != 2 || netlathe_configure(&ring, arguments[1], 1 << 20)) return 1;
    netlathe_name(&ring, 1, "outer");
    netlathe_name(&ring, 2, "wait");
    struct timespec a, b;
    for (;;) {
        struct netlathe_block block;
        netlathe_init(&ring, &block, 17, NETLATHE_SEND);
        netlathe_start(&block, 1);
        netlathe_start(&block, 2);
        clock_gettime(CLOCK_MONOTONIC, &a);
        do clock_gettime(CLOCK_MONOTONIC, &b);
        while ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec < 5000);
        netlathe_stop(&block, 2);
        netlathe_stop(&block, 1);
        netlathe_exit(&ring, &block);
    }
}
"#;
    let bench = Bench::new();
    bench.write("program.c", PROGRAM);
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/include");
    let arguments = ["-O2", "-I", header, "program.c", "-o", "program"];
    let Ok(compiled) = Command::new("gcc").args(arguments).current_dir(bench.path("")).output() else {
        println!("SKIP: there is no gcc");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let absent = bench.run(["slice", "attach", "ring"]);
    assert_eq!((absent.status, absent.complaints().len()), (Some(2), 1), "{}", absent.stderr);
    let mut program = Command::new(bench.path("program")).arg(bench.path("ring")).spawn().expect("it was compiled");
    while !bench.path("ring").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(200));
    let finished = bench.run(["slice", "attach", "ring", "--count", "1000", "--json"]);
    let lines = bench.run(["slice", "attach", "ring", "--count", "1000", "--each", "lines"]);
    let larger = bench.run(["slice", "attach", "ring", "--count", "1", "--buffer", "64MiB", "-q"]);
    program.kill().expect("it runs for ever");
    program.wait().expect("it is ours");
    assert_eq!((finished.status, lines.status), (Some(0), Some(0)), "{}{}", finished.stderr, lines.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!((&report["received"], &report["lost"]), (&1_000.into(), &0.into()));
    assert!(larger.stderr.contains("--buffer does not change it"), "{}", larger.stderr);
    let section = |n: usize, name: &str| {
        let section = &report["sections"][n];
        assert_eq!(section["name"], name);
        section
    };
    let (outer, inner) = (section(0, "outer"), section(1, "wait"));
    assert_eq!(outer["count"], inner["count"]);
    let wait = number(&inner["p50_ns"]);
    assert!((wait / 5_000.0 - 1.0).abs() < 0.05, "{report}");
    // Compare block by block: one interruption between the two stops would shift a mean by 2 %.
    let us = |line: &str, name: &str| {
        let (_, after) = line.split_once(&format!("{name} "))?;
        after.split_once(" µs")?.0.parse::<f64>().ok()
    };
    let mut longer: Vec<f64> =
        lines.stdout.lines().filter_map(|line| Some(us(line, "outer")? / us(line, "wait")?)).collect();
    longer.sort_by(f64::total_cmp);
    assert!(longer.len() > 900, "a line of each block: {}", lines.stdout);
    let median = longer[longer.len() / 2];
    assert!((median - 1.0).abs() < 0.01, "less the pair within, the outer is no longer: {median} {report}");
    let round = number(&report["loop"]["p50_ns"]);
    assert!((round / wait - 1.0).abs() < 0.05, "less what the probes cost, the rest takes no time: {report}");
}

/// The reader ends on time and on request, even if the ring contains nonsense.
#[test]
fn attach_ends_however_the_ring_lies() {
    use std::os::unix::fs::FileExt as _;
    for (count, damaged) in [(5_u64, false), (1_000_000, true), (u64::MAX, true)] {
        for asked in [false, true] {
            let bench = Bench::new();
            let duration = if asked { "60s" } else { "300ms" };
            let words = ["slice", "attach", "ring", "--buffer", "64KiB", "--json", "--duration", duration];
            let mut reader = bench.command(words);
            let reader = reader.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
            while !bench.path("ring").exists() {
                thread::sleep(Duration::from_millis(1));
            }
            crate::common::await_handlers(reader.id());
            let ring = fs::OpenOptions::new().write(true).open(bench.path("ring")).expect("it is there");
            // The reader ignores the count that it finds at the start.
            thread::sleep(Duration::from_millis(150));
            ring.write_all_at(&count.to_ne_bytes(), 8 * 8).expect("it can be written");
            if asked {
                thread::sleep(Duration::from_millis(50));
                let sent = Command::new("kill").args(["-INT", &reader.id().to_string()]).status();
                assert!(sent.expect("kill").success());
            }
            let finished = Finished::of(reader.wait_with_output().expect("it ends"));
            assert_eq!(finished.status, Some(0), "{}", finished.stderr);
            let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
            if damaged {
                assert!(finished.stderr.contains("contradict"), "{count}: {}", finished.stderr);
            } else {
                assert_eq!(report["lost"], 5, "{report}");
            }
        }
    }
}
