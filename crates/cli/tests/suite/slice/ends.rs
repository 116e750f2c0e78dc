//! How runs end, what they leave behind, and what is refused before they start.

use super::{bench, check, follow, number, outer_and_inner};
use crate::common::{Bench, Finished};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn too_few_open_files_are_named() {
    let Some((_bench, _turn)) = bench() else { return };
    // With these limits, the echo, the maps, the programs or the calibration run out of open files.
    for files in [10, 12, 20, 30, 56] {
        let script = format!("ulimit -n {files}; exec timeout 60 \"$0\" slice kernel -q --duration 1ms");
        let finished = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).output();
        let finished = finished.expect("a shell");
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(finished.status.code() == Some(2) && stderr.contains("`ulimit -n 1024`"), "{files}: {stderr}");
    }
}

/// The run first measures the cost of the probes for seconds, so a signal right after the start arrives during that.
#[test]
fn a_signal_during_the_calibration_ends_the_run_with_its_report() {
    let Some((bench, _turn)) = bench() else { return };
    let begun = Instant::now();
    bench.run(["slice", "kernel", "-q", "--duration", "1ms"]);
    let whole = begun.elapsed();
    let mut took = Vec::new();
    for _ in 0..5 {
        let words = ["slice", "kernel", "--json", "--", "touch", "started"];
        let running = bench.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        crate::common::await_handlers(running.id());
        thread::sleep(Duration::from_millis(250));
        let begun = Instant::now();
        let sent = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(sent.expect("kill").success());
        let finished = Finished::of(running.wait_with_output().expect("it ends"));
        took.push(begun.elapsed());
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
        assert_eq!(report["packets"]["seen"], 0, "{report}");
        assert!(finished.stderr.contains("before its start"), "{}", finished.stderr);
        assert!(!bench.path("started").exists(), "COMMAND was not started");
    }
    took.sort();
    // Loading the probes is most of the rest.
    assert!(took[2] < whole * 3 / 4, "{took:?} of {whole:?}");
}

#[test]
fn a_process_that_ends_ends_the_run() {
    let Some((_bench, _turn)) = bench() else { return };
    let script = "sleep 1 & exec timeout 60 \"$0\" slice kernel --json --pid $!";
    let finished = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success() && stderr.contains("and its children have ended"), "{stderr}");
}

/// Process IDs are reused on a machine that starts many processes within the hour.
#[test]
fn reused_process_ids_are_not_traced() {
    let Some((bench, _turn)) = bench() else { return };
    let outer = r#"
import os, socket, subprocess, sys
told, tell = os.pipe(); go, ready = os.pipe()
command = [sys.argv[1], "slice", "kernel", "--json", "--", "python3", "inner.py", str(tell), str(go)]
run = subprocess.Popen(command, pass_fds=[tell, go], stdout=subprocess.PIPE)
os.close(tell)
number = int(os.read(told, 20))
for _ in range(200):
    try: open("/proc/sys/kernel/ns_last_pid", "w").write(str(number - 1))
    except OSError: child = 0; break
    child = os.fork()
    if not child:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0))
        for _ in range(5 * (os.getpid() == number)): s.sendto(b"stranger", s.getsockname()); s.recv(100)
        os._exit(0)
    os.waitpid(child, 0)
    if child == number: break
else: number = 0
os.write(ready, b"x")
sys.stdout.write(run.communicate()[0].decode())
sys.exit(0 if number and child == number else 77)
"#;
    let inner = r#"
import os, sys
child = os.fork()
if not child: os._exit(0)
os.waitpid(child, 0)
os.write(int(sys.argv[1]), str(child).encode())
os.read(int(sys.argv[2]), 1)
"#;
    let output = outer_and_inner(&bench, outer, inner);
    if output.status.code() == Some(77) {
        println!("SKIP: no process gets a number that was chosen here");
        return;
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((output.status.code(), &report["packets"]["seen"]), (Some(0), &0.into()), "{report}");
}

#[test]
fn processes_that_cannot_be_followed_are_refused_before_anything_runs() {
    let bench = Bench::new();
    let absent = bench.run(["slice", "kernel", "--pid", "4294967295", "--duration", "1ms"]);
    assert_eq!((absent.status, absent.complaints().len()), (Some(2), 1), "{}", absent.stderr);
    assert!(absent.stderr.contains("no such process"), "{}", absent.stderr);
    // This test runs in its own thread.
    let thread = fs::read_link("/proc/thread-self").expect("proc is mounted");
    let thread = thread.file_name().and_then(|name| name.to_str()).expect("a number").to_owned();
    let part = bench.run(["slice", "kernel", "--pid", &thread, "--duration", "1ms"]);
    assert_eq!(part.status, Some(2), "{}", part.stderr);
    let process = format!("write --pid {}", std::process::id());
    assert!(part.stderr.contains(&process), "{}", part.stderr);
    let options = ["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_netlathe"), "slice", "kernel", "--", "true"];
    let inside = Command::new("unshare").args(options).output().expect("it is in util-linux");
    let stderr = String::from_utf8_lossy(&inside.stderr).into_owned();
    if stderr.contains("unshare") {
        println!("SKIP: {stderr}");
        return;
    }
    assert_eq!(inside.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("PID namespace") && stderr.lines().count() == 1, "{stderr}");
}

/// A file size limit simulates a full disk.
#[test]
fn a_file_that_cannot_be_written_further_ends_the_run_with_its_report() {
    let Some((bench, _turn)) = bench() else { return };
    let finished = Command::new("sh")
        .args(["-c", "ulimit -f 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_netlathe")])
        .args(["slice", "kernel", "--json", "-w", "records.jsonl", "--"])
        .args(["python3", "ping-pong.py", "tcp", "127.0.0.1", "4", "100000"])
        .current_dir(bench.path(""))
        .output()
        .expect("there is a shell");
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert_eq!(finished.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("records.jsonl: cannot be written"), "{stderr}");
    let report: Value = serde_json::from_slice(&finished.stdout).expect("one object");
    check(&report);
    assert!(number(&report["packets"]["matched"]) > 10.0, "{report}");
}

#[test]
fn children_of_the_command_end_with_the_run() {
    let Some((bench, _turn)) = bench() else { return };
    let name = format!("sleeper-{}", std::process::id());
    let script = format!("cp $(which sleep) {name}; ./{name} 300 & ./{name} 300; true");
    let finished = bench.run(["slice", "kernel", "-q", "--duration", "500ms", "--", "sh", "-c", &script]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let left = Command::new("pgrep").args(["-f", &format!("{name} 300")]).output().expect("it is in procps");
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
}

#[test]
fn a_closed_reader_ends_the_run() {
    let Some((bench, _turn)) = bench() else { return };
    const EVER: &str = r#"
import socket, time
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); d, _ = s.accept()
while True: c.send(b"x"); d.recv(1); time.sleep(0.01)
"#;
    bench.write("ever.py", EVER);
    let script = "(timeout -s KILL 60 \"$0\" slice kernel --each lines -- python3 ever.py; echo $? > status) | head -2";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_netlathe")])
        .current_dir(bench.path(""))
        .output()
        .expect("a shell");
    let finished = Finished::of(output);
    assert_eq!(finished.stdout.lines().count(), 2, "{}", finished.stdout);
    assert_eq!(String::from_utf8_lossy(&bench.read("status")).trim(), "0", "{}", finished.stderr);
}

#[test]
fn reports_the_status_of_a_failing_command() {
    let Some((bench, _turn)) = bench() else { return };
    let failed = follow(&bench, &[], &["sh", "-c", "exit 3"]);
    assert_eq!(failed.status, Some(1), "{}", failed.stderr);
    let report: Value = serde_json::from_str(&failed.stdout).expect("one object");
    assert_eq!(report["status"], 3);
    let missing = follow(&bench, &[], &["./there-is-no-such-program"]);
    assert_eq!((missing.status, missing.complaints().len()), (Some(2), 1), "{}", missing.stderr);
}

#[test]
fn nothing_is_left_in_the_kernel_after_kill_9() {
    let Some((bench, _turn)) = bench() else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_netlathe"))
        .args(["slice", "kernel", "--each", "lines"])
        .current_dir(bench.path(""))
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary is built");
    let own = |pid: u32| {
        let folder = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten();
        let text = folder.filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        text.filter_map(|text| text.lines().find_map(|line| Some(line.strip_prefix("prog_id:")?.trim().to_owned())))
            .collect::<Vec<_>>()
    };
    let start = Instant::now();
    let mut programs = own(child.id());
    while programs.len() < 10 && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(20));
        programs = own(child.id());
    }
    assert!(programs.len() >= 10, "it loads its programs: {programs:?}");
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
    let Ok(listing) = Command::new("bpftool").args(["prog", "list"]).output() else {
        println!("SKIP: there is no bpftool to ask the kernel with");
        return;
    };
    // The kernel frees programs once no CPU can be running them.
    let gone = |listing: &str| programs.iter().all(|id| !listing.lines().any(|l| l.starts_with(&format!("{id}: "))));
    let mut text = String::from_utf8_lossy(&listing.stdout).into_owned();
    while !gone(&text) && start.elapsed() < Duration::from_secs(90) {
        thread::sleep(Duration::from_millis(50));
        let listing = Command::new("bpftool").args(["prog", "list"]).output().expect("it ran before");
        text = String::from_utf8_lossy(&listing.stdout).into_owned();
    }
    assert!(gone(&text), "left behind: {text}");
}

/// A program started after the ring was removed creates a new one, unknown to the reader.
#[test]
fn warns_of_a_removed_ring() {
    let bench = Bench::new();
    let ring = probe::Ring::configure(bench.path("ring"), 1 << 16).expect("it is made");
    let mut attach = Command::new(env!("CARGO_BIN_EXE_netlathe"));
    attach.args(["slice", "attach", "ring", "--duration", "2s"]);
    let attach = attach.current_dir(bench.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let attach = attach.spawn().expect("the binary is built");
    // This byte is in the word that turns the probes on.
    while fs::read(bench.path("ring")).expect("it is there")[24] == 0 {
        thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(bench.path("ring")).expect("it is there");
    let output = attach.wait_with_output().expect("it is ours");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("ring was removed while it was read"), "{stderr}");
    drop(ring);
}

/// Truncating the ring kills the program that writes to it, but not the reader.
#[test]
fn a_ring_that_is_cut_ends_its_reader_with_its_report() {
    let bench = Bench::new();
    let mut attach = Command::new(env!("CARGO_BIN_EXE_netlathe"))
        .args(["slice", "attach", "ring", "--buffer", "64KiB", "--each", "lines", "--duration", "60s"])
        .current_dir(bench.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is built");
    while !bench.path("ring").exists() {
        thread::sleep(Duration::from_millis(10));
    }
    let ring = probe::Ring::configure(bench.path("ring"), 1 << 16).expect("it is there");
    ring.name(1, "first");
    let mut lines = BufReader::new(attach.stdout.take().expect("a pipe")).lines();
    // Blocks written before the probes are on are ignored.
    let (stop, stopped) = std::sync::mpsc::channel();
    let writer = thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(1)).is_err() {
            let mut block = ring.init(6, probe::Direction::Send);
            block.start(1);
            block.stop(1);
            ring.exit(block);
        }
    });
    let first = lines.next().expect("a line").expect("text");
    stop.send(()).expect("it waits for that");
    writer.join().expect("it ends");
    fs::File::options().write(true).open(bench.path("ring")).expect("there").set_len(0).expect("it is cut");
    let text: String = lines.map(|line| line.expect("text") + "\n").collect();
    let output = attach.wait_with_output().expect("it is ours");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("ring: the ring was cut") && stderr.contains("remove it"), "{stderr}");
    assert!(first.contains("first ") && text.contains("received, 0 dropped") && text.contains("  first"), "{text}");
}
