//! Kernel slices, by what they show of programs whose traffic is known. All of it on loopback, in namespaces that end
//! with the command.
#![cfg(feature = "slice")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;
#[path = "live/quiet.rs"]
mod quiet;

use common::{Bench, Finished};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A message there and back, `rounds` times, between two processes. Arguments: tcp or udp, address, bytes, rounds.
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

/// One at a time: each would slow down what the others measure.
static TURN: Mutex<()> = Mutex::new(());

/// A bench with the program in it; `None` where the kernel or the rights do not permit to follow packets.
fn bench() -> Option<(Bench, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = Bench::new();
    fs::write(bench.path("ping-pong.py"), PING_PONG).expect("the folder is ours");
    let tried = bench.run(["slice", "kernel", "--duration", "1ms", "--json"]);
    // No other reason will do: what is wrong with us would look the same.
    let unable = ["does not let this user", "/sys/kernel/btf", "the kernel refuses the probe"];
    if tried.status == Some(2) && unable.iter().any(|why| tried.stderr.contains(why)) {
        // That is the verifier, and a defect of ours; without the rights it says 'Operation not permitted'.
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

/// Whether the kernel left runs of probes out: then nothing is sure about numbers of packets.
fn overloaded(report: &Value) -> bool {
    let missed = report.pointer("/limits/missed/runs").is_some();
    if missed {
        println!("SKIP: the machine has too much to do: {}", report["limits"]);
    }
    missed
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// What must be true of any report.
fn check(report: &Value) {
    let count = |name: &str| report["packets"][name].as_u64().expect("a count");
    assert_eq!(count("seen"), count("matched") + count("lost"));
    assert_eq!(count("lost"), count("reused") + count("evicted") + count("unfinished"));
    let top = report["slices"].as_array().expect("slices").iter().filter(|slice| slice["top"] == true);
    let sum: f64 = top.clone().map(|slice| number(&slice["mean_ns"]) * number(&slice["per_packet"])).sum();
    let total = number(&report["total"]["mean_ns"]);
    assert!((sum / total - 1.0).abs() < 1e-6, "the top slices sum to {sum}, the total is {total}");
    let shares: f64 = top.map(|slice| number(&slice["share"])).sum();
    assert!((shares - 1.0).abs() < 1e-6, "{shares}");
    assert!(number(&report["total"]["raw_mean_ns"]) > total, "what measuring costs is subtracted");
}

#[test]
fn every_message_of_a_ping_pong_is_followed() {
    let Some((bench, _turn)) = bench() else { return };
    let report = ping_pong(&bench, &[], ["tcp", "127.0.0.1", "128", "500"]);
    check(&report);
    if overloaded(&report) {
        return;
    }
    assert_eq!(report["packets"]["seen"], 1_000, "500 there and 500 back, and nobody else's");
    assert_eq!(report["loop"]["count"], 499);
    for name in ["syscall", "tcp-ip", "link", "driver", "receive-softirq", "ip-tcp-receive", "copy", "syscall-exit"] {
        let share = number(&slice(&report, name).unwrap_or_else(|| panic!("no {name} in {report}"))["per_packet"]);
        assert!(share > 0.9, "{name} {share}");
    }
    // All of a round is two ways and what the programs do between.
    let (round, way) = (number(&report["loop"]["mean_ns"]), number(&report["total"]["mean_ns"]));
    assert!(round > 1.5 * way, "{round} against two of {way}");
}

#[test]
fn udp_and_ipv6_are_followed_too() {
    let Some((bench, _turn)) = bench() else { return };
    for (kind, address) in [("udp", "127.0.0.1"), ("udp", "::1"), ("tcp", "::1")] {
        let report = ping_pong(&bench, &[], [kind, address, "64", "100"]);
        check(&report);
        if overloaded(&report) {
            return;
        }
        assert_eq!(report["packets"]["seen"], 200, "{kind} {address}: {report}");
        assert!(number(&report["packets"]["matched"]) > 190.0, "{kind} {address}: {report}");
        let receive = format!("ip-{kind}-receive");
        assert!(slice(&report, &receive).is_some() && slice(&report, "syscall-exit").is_some(), "{report}");
    }
}

/// Of a long transfer, buffers are used again and again, and packets are longer than the device takes: each record is of
/// one packet, from its sender on.
#[test]
fn packets_of_a_transfer_are_kept_apart() {
    const TRANSFER: &str = r#"
import os, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], 0), family=family)
if os.fork() == 0:
    s, _ = listener.accept()
    while s.recv(65536): pass
    os._exit(0)
s = socket.create_connection(listener.getsockname()[:2])
for _ in range(20): s.sendall(bytes(1000000))
s.close()
os.wait()
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("transfer.py", TRANSFER);
    for address in ["127.0.0.1", "::1"] {
        let finished = follow(&bench, &["-w", "transfer.jsonl"], &["python3", "transfer.py", address]);
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
        if overloaded(&report) {
            return;
        }
        check(&report);
        for slice in report["slices"].as_array().expect("slices") {
            assert!(number(&slice["per_packet"]) <= 1.0, "each point is passed once: {slice}");
        }
        assert_eq!(report["packets"]["without_sender"], 0, "{report}");
        let records = String::from_utf8(bench.read("transfer.jsonl")).expect("UTF-8");
        for line in records.lines().filter(|line| line.contains("stamps")) {
            let record: Value = serde_json::from_str(line).expect("an object");
            let points = record["stamps"].as_array().expect("stamps").iter().map(|stamp| stamp["point"].as_str());
            let points: Vec<&str> = points.map(|point| point.expect("a name")).collect();
            let once = points.iter().enumerate().all(|(n, point)| !points[..n].contains(point));
            assert!(once && points.contains(&"queue"), "{record}");
        }
    }
}

#[test]
fn filters_and_directions() {
    let Some((bench, _turn)) = bench() else { return };
    let tcp = ["tcp", "127.0.0.1", "4", "50"];
    let other = ping_pong(&bench, &["--port", "9"], tcp);
    assert_eq!(other["packets"]["seen"], 0, "nothing goes to port 9");
    let named = ping_pong(&bench, &["--comm", "nobody"], tcp);
    assert_eq!(named["packets"]["seen"], 0, "no thread is called nobody");
    // Nobody reads these: they are under way when the run ends, and still not those of a thread called nobody.
    let unread = r#"
import socket, subprocess, sys, threading
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
command = [sys.argv[1], "slice", "kernel", "--json", "--comm", sys.argv[2], "--port", str(port), "--duration", "500ms"]
run = subprocess.Popen(command)
while run.poll() is None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", s.getsockname())
    threading.Event().wait(0.02)
sys.exit(run.returncode)
"#;
    fs::write(bench.path("unread.py"), unread).expect("the folder is ours");
    let seen = |comm: &str| {
        let arguments = ["unread.py", env!("CARGO_BIN_EXE_netlathe"), comm];
        let output = Command::new("python3").args(arguments).current_dir(bench.path("")).output();
        let report: Value = serde_json::from_slice(&output.expect("python3 runs").stdout).expect("one object");
        number(&report["packets"]["seen"])
    };
    assert!(seen("python3") > 0.0 && seen("nobody") == 0.0);
    let named = ping_pong(&bench, &["--comm", "python3"], tcp);
    if overloaded(&named) {
        return;
    }
    assert_eq!(named["packets"]["seen"], 100, "{named}");
    let tx = ping_pong(&bench, &["--direction", "tx"], tcp);
    check(&tx);
    if overloaded(&tx) {
        return;
    }
    assert_eq!(tx["packets"]["matched"], 100, "{tx}");
    assert!(slice(&tx, "copy").is_none() && slice(&tx, "driver").is_some());
    let rx = ping_pong(&bench, &["--direction", "rx"], tcp);
    check(&rx);
    if overloaded(&rx) {
        return;
    }
    // Whose a packet is is known at its copy; one that had to make room for others before is nobody's.
    let (matched, evicted) =
        (number(&rx["packets"]["matched"]), rx.pointer("/limits/evicted/frames").map_or(0.0, number));
    assert!(matched <= 100.0 && matched + evicted >= 100.0 && matched > 0.0, "{rx}");
    assert!(slice(&rx, "copy").is_some() && slice(&rx, "link").is_none());
}

/// Datagrams that came and were read while probes were being attached are not taken for later ones.
#[test]
fn datagrams_of_a_program_that_runs_already_are_followed() {
    const BURSTS: &str = r#"
import os, socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 0))
if os.fork() == 0:
    server.settimeout(1)
    try:
        while server.recv(100): pass
    except TimeoutError: os._exit(0)
print(server.getsockname()[1], flush=True)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(server.getsockname())
end = time.time() + 60
while time.time() < end and os.getppid() == int(sys.argv[1]):
    for n in range(20): s.send(n.to_bytes(8, "big"))
    time.sleep(0.002)
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("bursts.py", BURSTS);
    let mut program = Command::new("python3")
        .args([bench.path("bursts.py").as_os_str(), std::process::id().to_string().as_ref()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a python");
    let mut port = String::new();
    let read = BufReader::new(program.stdout.take().expect("it is piped")).read_line(&mut port);
    let finished = bench.run(["slice", "kernel", "--json", "--port", port.trim(), "--duration", "1s"]);
    program.kill().expect("it runs");
    program.wait().expect("it is ours");
    assert!(read.is_ok_and(|bytes| bytes > 1) && finished.status == Some(0), "{port} {}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    let count = |name: &str| number(&report["packets"][name]);
    if overloaded(&report) {
        return;
    }
    // Those that still wait at the end say nothing.
    let ended = count("seen") - count("unfinished");
    assert!(ended > 100.0 && count("matched") > 0.9 * ended, "{report}");
}

/// A queue of known rate: between two frames it lets pass their length ÷ its rate, and frames wait nowhere else.
#[test]
fn in_windows_a_share_is_followed_and_no_round_reaches_across() {
    let Some((bench, _turn)) = bench() else { return };
    let options = ["--windows", "10ms/100ms", "-w", "windows.jsonl"];
    let report = ping_pong(&bench, &options, ["tcp", "127.0.0.1", "64", "60000"]);
    check(&report);
    let windows = &report["windows"];
    assert!(windows["count"].as_u64().expect("a count") >= 2, "{windows}");
    assert_eq!((number(&windows["open_ns"]), number(&windows["every_ns"])), (10e6, 100e6));
    let in_place = number(&windows["in_place"]);
    assert!((0.1..1.0).contains(&in_place), "twice 10 ms in 100 ms, and longer on a busy machine: {windows}");
    let [seen, matched] = ["seen", "matched"].map(|name| number(&report["packets"][name]));
    assert!((100.0..60_000.0).contains(&seen), "some of 120 000: {seen}");
    assert!(matched > 0.98 * seen, "what is under way when a window closes is followed to its end: {report}");
    let round = &report["loop"];
    assert!(
        number(&round["raw_mean_ns"]) < 10.0 * number(&round["raw_p50_ns"]),
        "none of a tenth of a second: {round}"
    );
    let read = bench.run(["slice", "kernel", "--json", "-r", "windows.jsonl"]);
    let read: Value = serde_json::from_str(&read.stdout).expect("one object");
    assert_eq!(read["loop"], report["loop"], "the file says where windows begin");
    assert_eq!(read["packets"], report["packets"], "those that were under way when a window closed, too");
    // The kernel ends a window, however late we are told of the time. The first is open while we get ready, too.
    let mut queued: Vec<Vec<f64>> = vec![Vec::new()];
    for line in String::from_utf8(bench.read("windows.jsonl")).expect("UTF-8").lines() {
        let line: Value = serde_json::from_str(line).expect("an object");
        if !line["window"].is_null() {
            queued.push(Vec::new());
        }
        let stamps = line["stamps"].as_array().into_iter().flatten();
        let at = stamps.filter(|stamp| stamp["point"] == "queue").map(|stamp| number(&stamp["at"]));
        queued.last_mut().expect("there is one").extend(at);
    }
    for times in &queued[1..] {
        let (first, last) = times.iter().fold((f64::MAX, 0.0_f64), |(a, b), &at| (a.min(at), b.max(at)));
        assert!(last - first <= 10e6, "{} packets began within {} ns", times.len(), last - first);
    }
}

/// A short packet is padded to the least frame of Ethernet, and what is read beside datagrams is none of them.
#[test]
fn padding_is_no_payload_and_the_error_queue_no_datagram() {
    const PADDED: &str = r#"
import socket, struct, subprocess
for words in ("add out type veth peer name in", "set out up", "set in up"):
    subprocess.run(["ip", "link"] + words.split(), check=True)
subprocess.run("ip address add 10.9.0.1/24 dev in".split(), check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(("10.9.0.1", 4001)); server.settimeout(5)
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); raw.bind(("out", 0))
listing = subprocess.run("ip -o link show in".split(), check=True, capture_output=True, text=True).stdout
to = bytes.fromhex(listing.split("link/ether ")[1].split()[0].replace(":", ""))
udp = struct.pack("!4H", 4000, 4001, 11, 0) + b"abc"
head = struct.pack("!2B3H2BH4s4s", 0x45, 0, 31, 0, 0, 64, 17, 0x66ba, b"\x0a\x09\0\2", b"\x0a\x09\0\1")
for _ in range(20):
    raw.send((to + bytes(6) + b"\x08\0" + head + udp).ljust(60, b"\xee"))
    assert server.recv(100) == b"abc"
"#;
    const ERRORS: &str = r#"
import socket, time
TX_SOFTWARE, SOFTWARE, SO_TIMESTAMPING, MSG_ERRQUEUE = 2, 16, 37, 0x2000
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
a.bind(("127.0.0.1", 0)); b.bind(("127.0.0.1", 0)); a.connect(b.getsockname()); b.connect(a.getsockname())
a.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TX_SOFTWARE | SOFTWARE)
for _ in range(20):
    a.send(b"there"); b.recv(100); b.send(b"back")
    a.recvmsg(2000, 2000, MSG_ERRQUEUE); time.sleep(0.02); a.recv(100)
"#;
    let Some((bench, _turn)) = bench() else { return };
    fs::write(bench.path("padded.py"), PADDED).expect("the folder is ours");
    fs::write(bench.path("errors.py"), ERRORS).expect("the folder is ours");
    let command =
        ["slice", "kernel", "--port", "4001", "--each", "json", "--", "unshare", "--net", "python3", "padded.py"];
    let finished = bench.run(command);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let packets: Vec<Value> = finished.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of_udp = |packet: &&Value| packet["flow"]["protocol"] == 17;
    assert!(packets.iter().filter(of_udp).count() >= 10, "{}", finished.stdout);
    for packet in packets.iter().filter(of_udp) {
        assert_eq!((&packet["flow"]["length"], &packet["flow"]["payload"]), (&31.into(), &3.into()), "{packet}");
    }
    let finished = follow(&bench, &[], &["python3", "errors.py"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    if overloaded(&report) {
        return;
    }
    // Every other one waits for 20 ms.
    let mean = number(&report["total"]["mean_ns"]);
    assert!((8e6..20e6).contains(&mean), "{mean} ns: {report}");
}

/// Runs a program that starts netlathe, which starts `inner.py`, and gives what it wrote.
fn outer_and_inner(bench: &Bench, outer: &str, inner: &str) -> Output {
    fs::write(bench.path("outer.py"), outer).expect("the folder is ours");
    fs::write(bench.path("inner.py"), inner).expect("the folder is ours");
    let mut command = Command::new("python3");
    command.args(["outer.py", env!("CARGO_BIN_EXE_netlathe")]).current_dir(bench.path(""));
    command.output().expect("python3 runs")
}

/// Datagrams that were there before the probes are read before those that are followed.
#[test]
fn what_waits_at_a_socket_already_is_not_mistaken_for_what_comes() {
    let Some((bench, _turn)) = bench() else { return };
    let outer = r#"
import socket, subprocess, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 0))
for _ in range(3): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"early", s.getsockname())
command = [sys.argv[1], "slice", "kernel", "--json", "--", "python3", "inner.py", str(s.fileno())]
sys.exit(subprocess.run(command, pass_fds=[s.fileno()]).returncode)
"#;
    let inner = r#"
import socket, sys, time
s = socket.socket(fileno=int(sys.argv[1]))
for _ in range(5): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"late", s.getsockname())
for _ in range(8): time.sleep(0.02); s.recv(100)
"#;
    let output = outer_and_inner(&bench, outer, inner);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    if overloaded(&report) {
        return;
    }
    assert_eq!(report["packets"]["matched"], 5, "{report}");
    // Read as the 4th to 8th; the three before are not theirs.
    let waited = number(&report["total"]["p50_ns"]) / 20e6;
    assert!((5.5..9.0).contains(&waited), "six naps before the middle one is read, not three: {waited}");
}

#[test]
fn a_planted_queue_shows_in_the_link_and_nowhere_else() {
    let Some((bench, _turn)) = bench() else { return };
    // A tbf saves up for frames that come late.
    quiet::await_quiet();
    let setup = "ip link set lo up && tc qdisc add dev lo root tbf rate 10mbit burst 1100 limit 100kb";
    let script = format!("{setup} && exec python3 ping-pong.py udp 127.0.0.1 1000 200");
    let finished = follow(&bench, &[], &["unshare", "--net", "sh", "-c", &script]);
    if finished.stderr.contains("Unknown qdisc") || finished.stderr.contains("qdisc kind is unknown") {
        println!("SKIP: this kernel has no tbf");
        return;
    }
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    check(&report);
    // 1 000 B, UDP, IP, Ethernet, at 10 Mbit/s.
    let between = (1_000.0 + 8.0 + 20.0 + 14.0) * 8.0 / 10e6 * 1e9;
    let half_a_round = number(&report["loop"]["raw_p50_ns"]) / 2.0;
    assert!((half_a_round / between - 1.0).abs() < 0.05, "{half_a_round} against {between}: {report}");
    let median = |name: &str| slice(&report, name).map_or(0.0, |slice| number(&slice["p50_ns"]));
    let link = median("link");
    let qdisc = median("qdisc");
    assert!(link > 0.75 * between && link < 1.02 * between, "{link} of {between}: {report}");
    assert!(qdisc / link > 0.95, "the wait is in the queueing discipline: {qdisc} of {link}");
    assert!(median("driver") < 0.05 * between && median("ip-udp-receive") < 0.05 * between, "{report}");
}

/// What the kernel counts, of a program whose switches are known: on one CPU, sender and reader take turns.
#[test]
fn events_are_counted_in_their_slices() {
    let Some((bench, _turn)) = bench() else { return };
    let command = ["taskset", "-c", "0", "python3", "ping-pong.py", "tcp", "127.0.0.1", "4", "300"];
    let events = "context-switches,cpu-clock,no_such_unit/event/,cycles";
    let finished = follow(&bench, &["--counters", events, "-w", "counted.jsonl"], &command);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
    check(&report);
    let event = |report: &Value, name: &str| {
        let all = report["counters"].as_array().expect("counters were asked for").clone();
        all.into_iter().find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
    };
    let none = event(&report, "no_such_unit/event/");
    assert!(none["unsupported"].as_str().is_some_and(|why| why.contains("no_such_unit")), "{none}");
    assert!(none.get("slices").is_none(), "what is not counted has no figures: {none}");
    // Where there is a PMU it counts, elsewhere it says why not.
    let cycles = event(&report, "cycles");
    assert!(cycles["unsupported"].is_string() != cycles["slices"].is_array(), "{cycles}");
    let switches = event(&report, "context-switches");
    if switches["unsupported"].is_string() {
        println!("SKIP: {switches}");
        return;
    }
    if overloaded(&report) {
        return;
    }
    let mean = |event: &Value, name: &str| {
        let slices = event["slices"].as_array().expect("slices");
        slices.iter().find(|slice| slice["name"] == name).map(|slice| number(&slice["mean"]))
    };
    // The reader waits in its call, or comes to it: one switch to it, and others where somebody else has a turn.
    let wake_up = mean(&switches, "wake-up").expect("both are on one CPU");
    assert!((0.4..3.0).contains(&wake_up), "{switches}");
    for name in ["tcp-ip", "driver", "ip-tcp-receive", "copy"] {
        let mean = mean(&switches, name).expect("both are on one CPU");
        assert!(mean < 0.05, "nobody else runs within {name}: {switches}");
    }
    assert!(number(&switches["run"]) >= 600.0, "two a round: {switches}");
    // A clock that counts ns agrees with the stamps.
    let clock = event(&report, "cpu-clock");
    for name in ["tcp-ip", "ip-tcp-receive", "wake-up"] {
        let stamped = number(&slice(&report, name).expect("it came")["raw_mean_ns"]);
        let slices = clock["slices"].as_array().expect("slices");
        let counted = slices.iter().find(|slice| slice["name"] == name).map(|slice| number(&slice["raw_mean"]));
        let ratio = counted.expect("both are on one CPU") / stamped;
        assert!((ratio - 1.0).abs() < 0.1, "{name}: {ratio} of {stamped}: {clock}");
    }
    assert!(number(&clock["overhead"]["n_o"]) > 0.0, "a probe takes time: {clock}");
    let read = bench.run(["slice", "kernel", "--json", "-r", "counted.jsonl"]);
    assert_eq!(read.status, Some(0), "{}", read.stderr);
    let read: Value = serde_json::from_str(&read.stdout).expect("one object");
    let again = mean(&event(&read, "context-switches"), "wake-up").expect("it was written");
    assert!((again - wake_up).abs() < 1e-9, "{again} {wake_up}");
    let text = bench.run(["slice", "kernel", "-r", "counted.jsonl"]).stdout;
    assert!(text.contains("counted") && text.contains("context-switches") && text.contains("a probe adds"), "{text}");
}

#[test]
fn events_that_are_none_are_refused_before_anything_runs() {
    let bench = Bench::new();
    for (events, hint) in [
        ("contextswitches", "did you mean 'context-switches'"),
        ("bananas", "write one of cycles"),
        ("cycles,,cs", "is no event"),
        ("cycles,instructions,cs,faults,branches", "5 events are too many"),
    ] {
        let finished = bench.run(["slice", "kernel", "--counters", events, "--duration", "1ms"]);
        assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{}", finished.stderr);
        assert!(finished.stderr.contains(hint), "{events}: {}", finished.stderr);
    }
}

/// Where loopback loses all packets, the calibration takes another, instead of waiting for minutes.
#[test]
fn a_loopback_that_is_filtered_is_no_standstill() {
    const DROP: &str = r#"
__attribute__((section("xdp"), used)) int drop(void *packet) { return 1; }
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("drop.c", DROP);
    let setup = "clang -target bpf -O2 -g -c drop.c -o drop.o && ip link set lo up && \
                 ip link set dev lo xdpgeneric obj drop.o sec xdp || exit 77";
    let script =
        format!("{setup}; exec timeout -s KILL 60 {} slice kernel -q --duration 1ms", env!("CARGO_BIN_EXE_netlathe"));
    let command = Command::new("unshare").args(["--net", "sh", "-c", &script]).current_dir(bench.path("")).output();
    let finished = command.expect("it is in util-linux");
    let stderr = String::from_utf8_lossy(&finished.stderr);
    if finished.status.code() == Some(77) {
        println!("SKIP: packets cannot be dropped here: {stderr}");
        return;
    }
    assert_eq!(finished.status.code(), Some(0), "{stderr}");
}

#[test]
fn too_few_open_files_are_named() {
    let Some((_bench, _turn)) = bench() else { return };
    // Where the echo, the maps, the programs and the calibration need more.
    for files in [10, 12, 20, 30, 56] {
        let script = format!("ulimit -n {files}; exec timeout 60 \"$0\" slice kernel -q --duration 1ms");
        let finished = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).output();
        let finished = finished.expect("a shell");
        let stderr = String::from_utf8_lossy(&finished.stderr);
        assert!(finished.status.code() == Some(2) && stderr.contains("`ulimit -n 1024`"), "{files}: {stderr}");
    }
}

#[test]
fn a_process_that_ends_ends_the_run() {
    let Some((_bench, _turn)) = bench() else { return };
    let script = "sleep 1 & exec timeout 60 \"$0\" slice kernel --json --pid $!";
    let finished = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success() && stderr.contains("has ended, and those it started"), "{stderr}");
}

/// Numbers of processes come again, on a machine that starts many within the hour.
#[test]
fn whoever_gets_the_number_of_one_that_has_ended_is_not_followed() {
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
    let nobody = bench.run(["slice", "kernel", "--pid", "4294967295", "--duration", "1ms"]);
    assert_eq!((nobody.status, nobody.complaints().len()), (Some(2), 1), "{}", nobody.stderr);
    assert!(nobody.stderr.contains("no such process"), "{}", nobody.stderr);
    // This test runs in a thread of its own.
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

#[test]
fn records_are_written_and_read_again() {
    let Some((bench, _turn)) = bench() else { return };
    let live = ping_pong(&bench, &["-w", "records.jsonl"], ["tcp", "127.0.0.1", "4", "50"]);
    let finished = bench.run(["slice", "kernel", "--json", "-r", "records.jsonl"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(live["packets"], read["packets"]);
    // Text holds one bit less of a cost than memory.
    let near = |a: &Value, b: &Value| (number(a) / number(b) - 1.0).abs() < 1e-9;
    assert!(near(&live["total"]["mean_ns"], &read["total"]["mean_ns"]), "{live}\n{read}");
    assert!(near(&live["loop"]["mean_ns"], &read["loop"]["mean_ns"]), "{live}\n{read}");
    let lines = bench.run(["slice", "kernel", "-q", "--each", "lines", "--count", "3", "-r", "records.jsonl"]);
    assert_eq!(lines.stdout.lines().count(), 3, "{}", lines.stdout);
    let page = bench.run(["slice", "kernel", "-q", "-r", "records.jsonl", "--report", "page"]);
    assert_eq!(page.status, Some(0), "{}", page.stderr);
    let html = fs::read_to_string(bench.path("page/report.html")).expect("the page");
    assert!(html.contains("Where the time goes") && html.contains("ip-tcp-receive") && html.contains("One packet"));
    let json: Value = serde_json::from_slice(&bench.read("page/report.json")).expect("one object");
    assert_eq!(json["packets"], live["packets"]);
    // Packets for which the ring had no room are known by their number.
    let crowded = ping_pong(&bench, &["--buffer", "64KiB", "-w", "crowded.jsonl"], ["tcp", "127.0.0.1", "4", "20000"]);
    assert!(number(&crowded["packets"]["evicted"]) > 0.0, "{crowded}");
    let finished = bench.run(["slice", "kernel", "--json", "-r", "crowded.jsonl"]);
    let read: Value = serde_json::from_str(&finished.stdout).expect("one object");
    assert_eq!(crowded["packets"], read["packets"]);
    // A file whose writer was killed: what is there counts, and what is missing is said.
    let mut cut = bench.read("records.jsonl");
    cut.truncate(cut.len() - 100);
    bench.write("cut.jsonl", cut);
    let cut = bench.run(["slice", "kernel", "--json", "-r", "cut.jsonl"]);
    assert_eq!((cut.status, cut.complaints().len()), (Some(2), 1), "{}", cut.stderr);
    assert!(cut.stderr.contains("cut.jsonl: line "), "{}", cut.stderr);
    let cut: Value = serde_json::from_str(&cut.stdout).expect("one object");
    assert_eq!(cut["packets"]["seen"].as_u64(), live["packets"]["seen"].as_u64().map(|seen| seen - 1));
    // Stamps that run backwards, as those of two CPUs may, add nothing: the slices are still the whole way.
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
    assert!(back.status == Some(2) && back.stderr.contains("-5 is no pace"), "{}", back.stderr);
    // It has no line that ends.
    let script = "ulimit -v 1000000; exec timeout 60 \"$0\" slice kernel -r /dev/zero";
    let endless = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&endless.stderr);
    assert!(endless.status.code() == Some(2) && stderr.contains("holds no records"), "{stderr}");
}

/// A limit of a file's length stands for a full disk.
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
fn what_a_command_has_started_ends_with_the_run() {
    let Some((bench, _turn)) = bench() else { return };
    let name = format!("sleeper-{}", std::process::id());
    let script = format!("cp $(which sleep) {name}; ./{name} 300 & ./{name} 300; true");
    let finished = bench.run(["slice", "kernel", "-q", "--duration", "500ms", "--", "sh", "-c", &script]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let left = Command::new("pgrep").args(["-f", &format!("{name} 300")]).output().expect("it is in procps");
    assert!(left.stdout.is_empty(), "{}", String::from_utf8_lossy(&left.stdout));
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
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
fn a_command_that_fails_is_said_and_counts() {
    let Some((bench, _turn)) = bench() else { return };
    let failed = follow(&bench, &[], &["sh", "-c", "exit 3"]);
    assert_eq!(failed.status, Some(1), "{}", failed.stderr);
    let report: Value = serde_json::from_str(&failed.stdout).expect("one object");
    assert_eq!(report["status"], 3);
    let missing = follow(&bench, &[], &["./there-is-no-such-program"]);
    assert_eq!((missing.status, missing.complaints().len()), (Some(2), 1), "{}", missing.stderr);
}

/// Two sections, one within the other, of a program in C; the inner one waits for about 5 µs.
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
    let nobody = bench.run(["slice", "attach", "ring"]);
    assert_eq!((nobody.status, nobody.complaints().len()), (Some(2), 1), "{}", nobody.stderr);
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
    // Block by block: one interruption between the two stops would move a mean by 2 %.
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

/// It takes the program with it, but not its reader.
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
    // A block that comes before the probes are on is none.
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
    // The kernel frees programs when no CPU can be in them any more.
    let gone = |listing: &str| programs.iter().all(|id| !listing.lines().any(|l| l.starts_with(&format!("{id}: "))));
    let mut text = String::from_utf8_lossy(&listing.stdout).into_owned();
    while !gone(&text) && start.elapsed() < Duration::from_secs(90) {
        thread::sleep(Duration::from_millis(50));
        let listing = Command::new("bpftool").args(["prog", "list"]).output().expect("it ran before");
        text = String::from_utf8_lossy(&listing.stdout).into_owned();
    }
    assert!(gone(&text), "left behind: {text}");
}
