//! A disk under many concurrent operations.

use crate::disk::bed::{Disk, can_mount, figure, has};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("pending.py");
const READS: u64 = 2_000;

/// A disk with a file of 1 MiB in it.
fn disk(options: &[&str]) -> Disk {
    let disk = Disk::mounted(options);
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| i as u8).collect();
    fs::write(disk.backing().join("f"), data).expect("there is room");
    disk.let_all_in();
    disk
}

fn readers(disk: &Disk, patience: &str) -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).arg(disk.path().join("f")).arg(disk.pid().to_string());
    // Each failing read prints a traceback.
    command.args([&READS.to_string(), patience]).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("python runs")
}

#[test]
fn pending_reads_take_bounded_memory() {
    if !can_mount() || !has("python3") {
        return;
    }
    for options in [&["--delay", "read 4s"][..], &["--rate", "800MB/s"]] {
        let disk = disk(options);
        let output = readers(&disk, "1").wait_with_output().expect("it ends");
        assert!(output.status.success(), "{options:?}");
        let said = String::from_utf8(output.stdout).expect("text");
        let [_, bytes, memory] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
        assert_eq!(bytes.parse(), Ok((READS + 1) << 20), "{options:?}");
        let memory: u64 = memory.parse().expect("KiB");
        assert!(memory < 256 << 10, "{options:?}: {memory} KiB");
        let report = disk.report();
        let read = figure(&report, "/operations/read/bytes");
        assert_eq!(read.to_bits(), (((READS + 1) << 20) as f64).to_bits(), "{report}");
        if options[0] == "--delay" {
            assert!(figure(&report, "/operations/read/delay_obtained/min_ns") >= 4e9, "{report}");
        } else {
            assert!(figure(&report, "/total/rate_bps") < 6_400e6 * 1.05, "{report}");
        }
    }
}

#[test]
fn the_first_signal_ends_it_with_its_report_whatever_waits() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mut disk = disk(&["--delay", "read 1000s"]);
    let mut readers = readers(&disk, "2");
    let mut waiting = String::new();
    BufReader::new(readers.stdout.take().expect("a pipe")).read_line(&mut waiting).expect("text");
    assert_eq!(waiting, "waiting\n");
    let start = Instant::now();
    disk.signal(Signal::INT);
    let output = disk.wait();
    println!("ended after {:?}", start.elapsed());
    // Readers may get their data or find the disk gone.
    readers.wait().expect("they end");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!disk.is_mounted());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let of = |name: &str| figure(&report, &format!("/operations/read/{name}"));
    assert!(of("count") >= READS as f64 && of("cut_short").to_bits() == of("count").to_bits(), "{report}");
    assert!(report["operations"]["read"]["delay_obtained"].is_null(), "{report}");
}

#[test]
fn killed_at_any_moment_it_leaves_only_a_mount_that_one_command_removes() {
    if !can_mount() || !has("python3") {
        return;
    }
    for ms in [0, 1, 3, 10, 30, 100, 300] {
        let mut disk = disk(&["--delay", "read 1000s"]);
        let mut readers = readers(&disk, "0");
        thread::sleep(Duration::from_millis(ms));
        disk.signal(Signal::KILL);
        disk.wait();
        readers.kill().expect("it is ours");
        readers.wait().expect("it ends");
        let output = disk.unmount();
        assert!(output.status.success(), "{ms} ms: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!disk.is_mounted(), "{ms} ms");
        assert_eq!(fs::read_dir(disk.path()).expect("a folder").count(), 0, "{ms} ms");
    }
}
