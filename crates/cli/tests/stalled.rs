//! Readers that do not read hold up neither frames nor the end of a run. Each test says `SKIP: why` where the machine permits
//! none.

#![cfg(feature = "live")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "live/bed.rs"]
mod bed;

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use bed::{Bed, number};
use common::{Bench, Finished};
use lab::Node;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo is there").success());
}

#[test]
fn a_log_without_a_reader_ends_with_the_first_signal() {
    for reader in [false, true] {
        let bench = Bench::new();
        bench.generate("64B", 300_000);
        pipe(&bench.path("log"));
        let opened = reader.then(|| OpenOptions::new().read(true).custom_flags(0o4000).open(bench.path("log")));
        let words = "emulate --in pcap:in.pcap --out null --forward 'loss 1%' --decisions log --json";
        let mut command = bench.command(common::words(words));
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        common::await_handlers(running.id());
        thread::sleep(Duration::from_millis(300));
        let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        let start = Instant::now();
        let finished = Finished::of(running.wait_with_output().expect("it ends"));
        assert!(start.elapsed() < Duration::from_secs(10), "it ends when asked");
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        finished.report();
        assert!(finished.stderr.contains("log lacks"), "{}", finished.stderr);
        drop(opened);
    }
}

#[test]
fn a_log_that_is_read_slowly_is_whole() {
    let bench = Bench::new();
    bench.generate("64B", 200_000);
    pipe(&bench.path("log"));
    let path = bench.path("log");
    let reader = thread::spawn(move || {
        let mut file = std::fs::File::open(path).expect("a pipe");
        let (mut lines, mut bytes) = (0, vec![0; 256 << 10]);
        loop {
            let count = file.read(&mut bytes).expect("it can be read");
            if count == 0 {
                return lines;
            }
            lines += bytes[..count].iter().filter(|byte| **byte == b'\n').count();
            thread::sleep(Duration::from_micros(200));
        }
    });
    let finished =
        bench.run(common::words("emulate --in pcap:in.pcap --out null --forward 'loss 1%' --decisions log --json"));
    assert_eq!(finished.complaints(), [""; 0]);
    assert_eq!(reader.join().expect("it ends"), 200_001, "the header, and a line of each frame: {}", finished.stderr);
}

/// Interrupts a command once it handles signals. What it left behind.
fn interrupted(bench: &Bench, words: &str, given: Option<&[u8]>) -> Finished {
    let mut command = bench.command(common::words(words));
    let input = if given.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut running = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // It stays open: the writer is silent, not gone.
    let mut writer = running.stdin.take();
    if let (Some(writer), Some(given)) = (&mut writer, given) {
        writer.write_all(given).expect("it is read");
    }
    common::await_handlers(running.id());
    thread::sleep(Duration::from_millis(200));
    let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    let start = Instant::now();
    while running.try_wait().expect("it can be asked").is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            let _killed = running.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
    Finished::of(running.wait_with_output().expect("it has ended"))
}

#[test]
fn a_capture_whose_writer_is_silent_ends_with_the_first_signal() {
    let bench = Bench::new();
    bench.generate("64B", 3);
    let capture = bench.read("in.pcap");
    pipe(&bench.path("fifo"));
    for (bytes, frames) in [(0, 0), (10, 0), (24, 0), (60, 0), (capture.len() - 10, 2), (capture.len(), 3)] {
        for words in ["measure --pcap /dev/stdin --json", "shape --in pcap:/dev/stdin --out null --json"] {
            let finished = interrupted(&bench, words, Some(&capture[..bytes]));
            assert_eq!(finished.status, Some(0), "{words} after {bytes} B: {}", finished.stderr);
            assert_eq!(finished.report()["pipelines"][0]["in"]["frames"], frames, "{words} after {bytes} B");
        }
    }
    for words in ["measure --pcap fifo --json", "gen --pcap fifo --out null --json"] {
        let finished = interrupted(&bench, words, None);
        assert_eq!(finished.status, Some(0), "{words}: {}", finished.stderr);
        finished.report();
    }
}

#[test]
fn frames_pass_beside_a_stalled_log() {
    let Some(bed) = Bed::shared("stalled", |_| {}) else { return };
    pipe(&bed.path("log-forward"));
    // Opens it, and reads nothing.
    let stalled = OpenOptions::new().read(true).custom_flags(0o4000).open(bed.path("log-forward")).expect("a pipe");
    let line = "emulate --between c0 s0 --forward 'loss 0%' --decisions log --duration 60s --json";
    let emulation = bed.start(Node::Box, line);
    let start = Instant::now();
    while !bed.output(Node::Client(1), "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "emulate carries nothing");
    }
    // Some 100 KB of lines: more than a pipe holds.
    bed.send(1, 64, "10kpps", 20_000);
    bed.stdout(Node::Client(1), "ping -c 3 -i 0.2 -W 2 10.77.0.100");
    let finished = emulation.stop();
    let report = finished.report();
    // A busy machine loses some in its rings.
    assert!(number(&report, "/out/frames") > 5_000, "{report}");
    assert!(finished.stderr.contains("log-forward lacks"), "{finished:?}");
    drop(stalled);
}
