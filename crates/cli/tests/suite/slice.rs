//! Kernel slices of programs with known traffic. All traffic is on loopback, in namespaces that end with the command.
mod ends;
mod figures;
mod packets;
mod records;

use crate::common::{Bench, Finished, caveat};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sends a message from one process to another and back, `rounds` times. Arguments: tcp or udp, address, bytes, rounds.
const PING_PONG: &str = r#"
import os, socket, sys
kind, address, size, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
def whole(s):
    left = size
    while left:
        part = s.recv(left)
        if not part: os._exit(0)
        left -= len(part)
if kind == "tcp":
    listener = socket.create_server((address, 0), family=family)
    if os.fork() == 0:
        s, _ = listener.accept()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            whole(s); s.sendall(bytes(size))
    s = socket.create_connection(listener.getsockname()[:2])
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(rounds):
        s.sendall(bytes(size)); whole(s)
else:
    server = socket.socket(family, socket.SOCK_DGRAM); server.bind((address, 0))
    if os.fork() == 0:
        for _ in range(rounds):
            data, peer = server.recvfrom(size); server.sendto(data, peer)
        os._exit(0)
    s = socket.socket(family, socket.SOCK_DGRAM); s.connect(server.getsockname()[:2])
    for _ in range(rounds):
        s.send(bytes(size)); s.recv(size)
print("done")
"#;

/// One test at a time: each would slow down what the others measure.
static TURN: Mutex<()> = Mutex::new(());

/// A bench with the program in it. Returns `None` if the kernel or the rights do not permit tracing packets.
fn bench() -> Option<(Bench, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::new();
    fs::write(bench.path("ping-pong.py"), PING_PONG).expect("the folder is ours");
    let tried = bench.run(["slice", "kernel", "--duration", "1ms", "--json"]);
    // Accept only these reasons. Otherwise a bug in netlathe would look like a skip.
    let unable = ["does not let this user", "/sys/kernel/btf", "the kernel refuses the probe"];
    if tried.status == Some(2) && unable.iter().any(|why| tried.stderr.contains(why)) {
        // 'Permission denied' comes from the verifier and means a bug in netlathe. Missing rights give 'Operation not
        // permitted'.
        assert!(!tried.stderr.contains("Permission denied"), "{}", tried.stderr);
        println!("SKIP: {}", tried.stderr.trim());
        return None;
    }
    assert_eq!(tried.status, Some(0), "{}", tried.stderr);
    Some((bench, turn))
}

fn follow(bench: &Bench, options: &[&str], command: &[&str]) -> Finished {
    bench.run(["slice", "kernel", "--json"].iter().chain(options).chain(&["--"]).chain(command))
}

fn ping_pong(bench: &Bench, options: &[&str], arguments: [&str; 4]) -> Value {
    let command: Vec<&str> = ["python3", "ping-pong.py"].into_iter().chain(arguments).collect();
    let finished = follow(bench, options, &command);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("done"), "the command's stdout goes to stderr");
    serde_json::from_str(&finished.stdout).expect("one object on stdout and nothing else")
}

fn slice<'a>(report: &'a Value, name: &str) -> Option<&'a Value> {
    report["slices"].as_array().expect("slices").iter().find(|slice| slice["name"] == name)
}

/// Whether the kernel skipped probe runs. Packet counts are unreliable then.
fn overloaded(report: &Value) -> bool {
    let missed = !caveat(report, "missed-probes").is_null();
    if missed {
        println!("SKIP: the machine has too much to do: {}", report["caveats"]);
    }
    missed
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// Checks what must be true of any report.
fn check(report: &Value) {
    let count = |name: &str| report["packets"][name].as_u64().expect("a count");
    assert_eq!(count("seen"), count("matched") + count("lost"));
    assert_eq!(count("lost"), count("reused") + count("evicted") + count("unfinished"));
    let top = report["slices"].as_array().expect("slices").iter().filter(|slice| slice["top"] == true);
    let sum: f64 = top.clone().map(|slice| number(&slice["mean_ns"]) * number(&slice["per_packet"])).sum();
    let total = number(&report["total"]["mean_ns"]);
    assert!((sum / total - 1.0).abs() < 1e-6, "the top slices sum to {sum}, the total is {total}");
    let shares: f64 = top.map(|slice| number(&slice["total_ratio"])).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    assert!(number(&report["total"]["raw_mean_ns"]) > total, "what measuring costs is subtracted");
}

/// Runs a program that starts netlathe, which starts `inner.py`. Returns its output.
fn outer_and_inner(bench: &Bench, outer: &str, inner: &str) -> Output {
    fs::write(bench.path("outer.py"), outer).expect("the folder is ours");
    fs::write(bench.path("inner.py"), inner).expect("the folder is ours");
    let mut command = Command::new("python3");
    command.args(["outer.py", env!("CARGO_BIN_EXE_netlathe")]).current_dir(bench.path(""));
    command.output().expect("python3 runs")
}
