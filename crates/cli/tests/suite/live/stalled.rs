//! Readers that stall delay neither frames nor the end of a run. Each test prints `SKIP: why` if the machine permits
//! none.

use crate::bed::{Bed, number};
use crate::common::{Bench, Finished};
use lab::Node;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
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
        let mut command = bench.command(crate::common::words(words));
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        crate::common::await_handlers(running.id());
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
    let finished = bench
        .run(crate::common::words("emulate --in pcap:in.pcap --out null --forward 'loss 1%' --decisions log --json"));
    assert_eq!(finished.complaints(), [""; 0]);
    assert_eq!(reader.join().expect("it ends"), 200_001, "the header, and a line of each frame: {}", finished.stderr);
}

/// Interrupts a command once its signal handlers are installed. Returns its result.
fn interrupted(bench: &Bench, words: &str, given: Option<&[u8]>) -> Finished {
    let mut command = bench.command(crate::common::words(words));
    let input = if given.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut running = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    // Keep stdin open: the writer is silent, not gone.
    let mut writer = running.stdin.take();
    if let (Some(writer), Some(given)) = (&mut writer, given) {
        writer.write_all(given).expect("it is read");
    }
    crate::common::await_handlers(running.id());
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
fn first_signal_ends_the_read_of_a_silent_pipe() {
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

/// Returns the fields of each line of `path_options.txt`.
fn path_options() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = include_str!("path_options.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut parts = line.splitn(3, " | ");
        let mut next = || parts.next().expect("three parts");
        (next(), next(), next())
    })
}

#[test]
fn silent_paths_end_with_the_first_signal() {
    let bench = Bench::new();
    bench.generate("64B", 1_000);
    pipe(&bench.path("FIFO"));
    let scenario = "schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\n";
    std::fs::write(bench.path("scenario.toml"), scenario).expect("a scenario");
    for (option, kind, line) in path_options() {
        let mut command = bench.command(crate::common::words(line));
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().expect("it starts");
        let start = Instant::now();
        // A command that waits for the pipe can be interrupted. A refused command ends by itself.
        while running.try_wait().expect("it can be asked").is_none() && start.elapsed() < Duration::from_millis(1_000) {
            thread::sleep(Duration::from_millis(20));
        }
        let ended_before = running.try_wait().expect("it can be asked").is_some();
        let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).stderr(Stdio::null()).status();
        let signal = Instant::now();
        while running.try_wait().expect("it can be asked").is_none() {
            if signal.elapsed() > Duration::from_secs(10) {
                let _killed = running.kill();
            }
            thread::sleep(Duration::from_millis(5));
        }
        let took = signal.elapsed();
        let finished = Finished::of(running.wait_with_output().expect("it has ended"));
        assert!(took < Duration::from_secs(5), "{option}: it ended {took:?} after the signal");
        println!("{option}: {took:?} after the signal, status {:?}", finished.status);
        match kind {
            "alone" => {
                assert!(finished.status.is_none_or(|status| status == 2 || status == 0), "{option}: {finished:?}");
            }
            "kernel" if ended_before => println!("SKIP: {option}: {}", finished.stderr),
            "report" | "kernel" => {
                assert!(!ended_before, "{option}: it ended without a signal: {finished:?}");
                assert_eq!(finished.status, Some(0), "{option}: {finished:?}");
                assert!(!finished.stdout.is_empty(), "{option}: no report: {finished:?}");
            }
            other => panic!("{other} is not a kind of path"),
        }
    }
}

#[test]
fn a_capture_into_a_pipe_without_a_reader_counts_what_is_missing() {
    let bench = Bench::new();
    bench.generate("64B", 1_000);
    pipe(&bench.path("fifo"));
    let finished = interrupted(&bench, "shape --in pcap:in.pcap --out pcap:fifo --json", None);
    assert_eq!(finished.status, Some(0), "{finished:?}");
    let report = finished.report();
    assert_eq!(report["pipelines"][0]["drops"]["unwritten"], 1_000, "{report}");
    assert_eq!(report["pipelines"][0]["out"]["frames"], 0, "{report}");
    assert!(report["warnings"][0].as_str().is_some_and(|text| text.contains("fifo lacks 1 000 frames")), "{report}");
}

#[test]
fn a_capture_is_whole_for_a_slow_reader() {
    let bench = Bench::new();
    bench.generate("1000B", 2_000);
    pipe(&bench.path("fifo"));
    let path = bench.path("fifo");
    let reader = thread::spawn(move || {
        // Open the pipe only after the run would have ended.
        thread::sleep(Duration::from_millis(1_200));
        let (mut file, mut all) = (std::fs::File::open(path).expect("a pipe"), Vec::new());
        let mut bytes = vec![0; 32 << 10];
        loop {
            let count = file.read(&mut bytes).expect("it can be read");
            if count == 0 {
                return all.len();
            }
            all.extend_from_slice(&bytes[..count]);
            thread::sleep(Duration::from_millis(2));
        }
    });
    let report = bench.report(crate::common::words("shape --in pcap:in.pcap --out pcap:fifo"));
    assert_eq!(report["out"]["frames"], 2_000);
    assert_eq!(reader.join().expect("it read"), 24 + 2_000 * (16 + 996));
}

#[test]
fn an_unread_report_is_noted_on_stderr() {
    let bench = Bench::new();
    bench.generate("64B", 20_000);
    let line = "slice pipeline --each lines -- shape --in pcap:in.pcap --out null";
    let mut command = bench.command(crate::common::words(line));
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    crate::common::await_handlers(running.id());
    thread::sleep(Duration::from_millis(500));
    let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    let start = Instant::now();
    let mut running = running;
    while running.try_wait().expect("it can be asked").is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            let _killed = running.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
    let finished = Finished::of(running.wait_with_output().expect("it has ended"));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("written to stderr"), "{}", finished.stderr);
    assert!(finished.stderr.contains("out"), "{}", finished.stderr);
}

/// Returns a socket whose buffer is full, like a terminal stopped by Ctrl-S, and its other end.
fn full_socket() -> (Stdio, UnixStream) {
    let (full, other) = UnixStream::pair().expect("a pair");
    full.set_nonblocking(true).expect("it is ours");
    while (&full).write(&[b'x'; 512]).is_ok() {}
    while (&full).write(b"x").is_ok() {}
    full.set_nonblocking(false).expect("it is ours");
    (Stdio::from(OwnedFd::from(full)), other)
}

/// Kills a command that does not end.
fn ended(mut running: Child) -> Finished {
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
fn a_stalled_stderr_does_not_hold_up_a_run() {
    let bench = Bench::new();
    bench.generate("64B", 1_000);
    // Each line has notes or a log of DPDK to write.
    for line in [
        "gen --out dpdk:net_null0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 100 --rate 10kpps -vv --json",
        "emulate --in pcap:in.pcap --out null --forward 'delay 10ms 5ms keep-order' --json",
        "search --dut 'limit key dst-ip rate 1Mbps mode police burst 1000B' --size 64B --trial 10ms --width 50% -v --json",
    ] {
        let (stderr, _other) = full_socket();
        let running = bench.command(crate::common::words(line)).stdout(Stdio::piped()).stderr(stderr).spawn();
        let finished = ended(running.expect("it starts"));
        assert_eq!(finished.status, Some(0), "{line}");
        serde_json::from_str::<serde_json::Value>(&finished.stdout).expect("one object");
    }
}

#[test]
fn a_stalled_stdout_does_not_hold_up_the_end_of_a_host_watch() {
    let (stdout, _other) = full_socket();
    let bench = Bench::new();
    let mut command = bench.command(["measure", "--host", "lo", "--interval", "100ms", "--duration", "60s"]);
    let running = command.stdout(stdout).stderr(Stdio::piped()).spawn().expect("it starts");
    crate::common::await_handlers(running.id());
    let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    let finished = ended(running);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("written to stderr"), "{}", finished.stderr);
}

#[cfg(feature = "slice")]
#[test]
fn a_stalled_stdout_does_not_hold_up_the_end_of_slice_kernel() {
    let bench = Bench::new();
    let talk = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))
for _ in range(300): s.sendto(b'x' * 99, s.getsockname()); s.recv(99)";
    let made = bench.run(["slice", "kernel", "-q", "--write", "records", "--", "python3", "-c", talk]);
    if made.status != Some(0) {
        println!("SKIP: {}", made.stderr);
        return;
    }
    let (stdout, _other) = full_socket();
    let mut command = bench.command(["slice", "kernel", "--each", "lines", "--read", "records"]);
    let running = command.stdout(stdout).stderr(Stdio::piped()).spawn().expect("it starts");
    crate::common::await_handlers(running.id());
    thread::sleep(Duration::from_millis(200));
    let _ended = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
    let finished = ended(running);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("some lines were not printed"), "{}", finished.stderr);
    assert!(finished.stderr.contains("matched"), "the report goes to stderr: {}", finished.stderr);
}

#[test]
fn a_replay_from_a_silent_pipe_ends_by_its_duration() {
    let Some(bed) = Bed::shared("silent", |_| {}) else { return };
    pipe(&bed.path("fifo"));
    let line = "gen --out pcap:in.pcap --stream 'udp 10.0.0.1:1000 > 10.0.0.2:2000 size 64B' --count 3 --gap 1ms";
    let made = bed.run(Node::Box, line);
    assert!(made.status.success(), "{made:?}");
    let given = std::fs::read(bed.path("in.pcap")).expect("a capture");
    for bytes in [0, given.len()] {
        let path = bed.path("fifo");
        // Opened for reading and writing, so the pipe has a writer from the start to the end.
        let mut writer = OpenOptions::new().read(true).write(true).open(path).expect("a pipe");
        writer.write_all(&given[..bytes]).expect("it has room");
        let start = Instant::now();
        let replay = bed.start(Node::Box, "gen --pcap fifo --out c0 --duration 2s --json");
        while !replay.has_ended() {
            assert!(start.elapsed() < Duration::from_secs(20), "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
        let finished = replay.wait();
        assert!(finished.status.success(), "{finished:?}");
        assert_eq!(number(&finished.report(), "/out/frames"), if bytes == 0 { 0 } else { 3 }, "{finished:?}");
    }
}

#[test]
fn frames_pass_beside_a_stalled_log() {
    let Some(bed) = Bed::shared("stalled", |_| {}) else { return };
    pipe(&bed.path("log-forward"));
    // Opens the pipe and never reads.
    let stalled = OpenOptions::new().read(true).custom_flags(0o4000).open(bed.path("log-forward")).expect("a pipe");
    let line = "emulate --between c0 s0 --forward 'loss 0%' --decisions log --duration 60s --json";
    let emulation = bed.start(Node::Box, line);
    let start = Instant::now();
    while !bed.output(Node::Client(1), "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "emulate carries nothing");
    }
    // About 100 KB of lines, more than a pipe holds.
    bed.send(1, 64, "10kpps", 20_000);
    bed.stdout(Node::Client(1), "ping -c 3 -i 0.2 -W 2 10.77.0.100");
    let finished = emulation.stop();
    let report = finished.report();
    // A busy machine drops some frames in its rings.
    assert!(number(&report, "/out/frames") > 5_000, "{report}");
    assert_eq!(number(&report, "/in/frames"), number(&report, "/out/frames"), "every frame that came is forwarded");
    assert!(finished.stderr.contains("log-forward lacks"), "{finished:?}");
    drop(stalled);
}
