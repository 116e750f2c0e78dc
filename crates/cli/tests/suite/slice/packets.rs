//! Which packets are traced, and that each is counted once.

use super::{bench, check, follow, number, outer_and_inner, overloaded, ping_pong, slice};
use crate::common::caveat;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Sends 100 B in each direction in turn, over MPTCP (m) or TCP (t) sockets. Arguments: the kinds of client and server,
/// rounds.
const MPTCP_PING_PONG: &str = r#"
import os, socket, sys
kinds, rounds = sys.argv[1], int(sys.argv[2])
def open_socket(kind): return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262 if kind == "m" else 6)
def whole(s):
    left = 100
    while left:
        part = s.recv(left)
        if not part: os._exit(0)
        left -= len(part)
listener = open_socket(kinds[1]); listener.bind(("127.0.0.1", 0)); listener.listen()
if os.fork() == 0:
    s, _ = listener.accept(); s.setsockopt(6, 1, 1)
    while True: whole(s); s.sendall(bytes(100))
s = open_socket(kinds[0]); s.connect(listener.getsockname()); s.setsockopt(6, 1, 1)
for _ in range(rounds): s.sendall(bytes(100)); whole(s)
"#;

#[test]
fn every_message_of_a_ping_pong_is_followed() {
    let Some((bench, _turn)) = bench() else { return };
    let report = ping_pong(&bench, &[], ["tcp", "127.0.0.1", "128", "500"]);
    check(&report);
    if overloaded(&report) {
        return;
    }
    assert_eq!(report["packets"]["seen"], 1_000, "500 there and 500 back, and no other packets");
    assert_eq!(report["loop"]["count"], 499);
    for name in ["syscall", "tcp-ip", "link", "driver", "receive-softirq", "ip-tcp-receive", "copy", "syscall-exit"] {
        let share = number(&slice(&report, name).unwrap_or_else(|| panic!("no {name} in {report}"))["per_packet"]);
        assert!(share > 0.9, "{name} {share}");
    }
    // A round is two one-way trips, plus the time in the programs.
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

fn has_mptcp() -> bool {
    let tried = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)";
    Command::new("python3").args(["-c", tried]).output().expect("python3 runs").status.success()
}

/// With MPTCP, the program's socket differs from the sockets of the packets. Both ends speak MPTCP, or one falls back
/// to TCP.
#[test]
fn mptcp_is_followed_from_call_to_call() {
    let Some((bench, _turn)) = bench() else { return };
    if !has_mptcp() {
        println!("SKIP: this kernel has no MPTCP");
        return;
    }
    bench.write("mptcp.py", MPTCP_PING_PONG);
    for kinds in ["mm", "mt", "tm"] {
        let finished = follow(&bench, &[], &["python3", "mptcp.py", kinds, "300"]);
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
        check(&report);
        if overloaded(&report) {
            return;
        }
        let count = |name: &str| number(&report["packets"][name]);
        assert!(count("seen") >= 600.0 && count("matched") >= 598.0, "{kinds}: {report}");
        // A timer retransmits packets whose acknowledgements were late.
        assert!(count("without_call") < 15.0, "{kinds}: {report}");
        assert!(number(&report["loop"]["count"]) > 290.0, "{kinds}: {report}");
        let sent = |name: &str| slice(&report, name).map_or(0.0, |slice| number(&slice["per_packet"]));
        assert!(sent("syscall-tcp-ip") + sent("syscall") > 0.95, "{kinds}: {report}");
        assert!(sent("syscall-exit") > 0.9, "{kinds}: {report}");
    }
    // The sending process is also known with `--points few`.
    let options = ["--points", "few", "-w", "few.jsonl"];
    let finished = follow(&bench, &options, &["python3", "mptcp.py", "mm", "300"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let records = String::from_utf8(bench.read("few.jsonl")).expect("UTF-8");
    let known = records.lines().filter(|line| line.contains("stamps") && !line.contains("\"sender\":[0,0]")).count();
    assert!(known > 580, "{known} of 600");
}

/// The reader sleeps before each read. MSG_PEEK consumes no data.
#[test]
fn a_message_that_is_read_in_parts_ends_with_its_last_part() {
    const PARTS: &str = r#"
import socket, sys, time
peeks, protocol = sys.argv[1] == "peek", int(sys.argv[2])
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol); listener.bind(("127.0.0.1", 0)); listener.listen()
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol); s.connect(listener.getsockname()); d, _ = listener.accept()
for _ in range(20):
    s.sendall(bytes(8000))
    for _ in range(8):
        if peeks: d.recv(8000, socket.MSG_PEEK)
        time.sleep(0.002); d.recv(1000)
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("parts.py", PARTS);
    for (points, peeks, protocol) in
        [("all", "", "6"), ("few", "", "6"), ("all", "peek", "6"), ("all", "", "262"), ("all", "peek", "262")]
    {
        if protocol == "262" && !has_mptcp() {
            println!("SKIP: this kernel has no MPTCP");
            continue;
        }
        let command = ["python3", "parts.py", peeks, protocol];
        let finished = follow(&bench, &["--points", points, "-w", "parts.jsonl"], &command);
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
        check(&report);
        if overloaded(&report) {
            return;
        }
        let case = format!("{points} {peeks} {protocol}: {report}");
        assert!(number(&report["packets"]["matched"]) >= 18.0, "{case}");
        let median = |name: &str| number(&slice(&report, name).unwrap_or_else(|| panic!("{name} {case}"))["p50_ns"]);
        assert!(median("wake-up") < 4e6 || !peeks.is_empty(), "its first part is read after one nap: {case}");
        assert!(median("other-parts") > 13e6, "seven naps: {case}");
        assert!(number(&report["total"]["p50_ns"]) > 15e6, "eight naps: {case}");
        let records = String::from_utf8(bench.read("parts.jsonl")).expect("UTF-8");
        let reads = records.lines().filter(|line| line.contains("\"parts\":8")).count();
        assert!(reads >= 18, "each is read by eight calls: {reads} {case}");
    }
}

/// 200 packets of 10 datagrams each (UDP_SEGMENT), 1 ms apart. They are split at the reader's socket, read at once
/// (gro), or split at the device (cut). A slow reader with a small buffer loses most.
#[test]
fn datagrams_that_are_sent_as_one_packet_count_one_by_one() {
    const SEGMENTS: &str = r#"
import os, socket, sys, time
r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(("127.0.0.1", 0)); r.settimeout(1)
how = sys.argv[1]
r.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20000 if how == "slow" else 4000000)
if how == "gro": r.setsockopt(socket.IPPROTO_UDP, 104, 1)
if os.fork() == 0:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(r.getsockname())
    s.setsockopt(socket.IPPROTO_UDP, 103, 100)
    for _ in range(200): s.send(bytes(950)); time.sleep(0.001)
    os._exit(0)
reads = taken = 0
try:
    while True:
        taken += len(r.recv(65536)); reads += 1
        if how == "slow": time.sleep(0.002)
except TimeoutError: print("reads", reads, "bytes", taken)
"#;
    let Some((bench, _turn)) = bench() else { return };
    bench.write("segments.py", SEGMENTS);
    // A separate loopback device without UDP segmentation.
    let cut = "ip link set lo up && ethtool -K lo tx-udp-segmentation off && exec python3 segments.py cut";
    let own_device = ["unshare", "-n", "sh", "-c", cut];
    for (points, how) in
        ["all", "few"].into_iter().flat_map(|points| ["plain", "gro", "cut", "slow"].map(|how| (points, how)))
    {
        let plain = ["python3", "segments.py", how];
        let command: &[&str] = if how == "cut" { &own_device } else { &plain };
        let finished = follow(&bench, &["--points", points, "-w", "segments.jsonl"], command);
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        let report: Value = serde_json::from_str(&finished.stdout).expect("one object");
        check(&report);
        if overloaded(&report) {
            return;
        }
        let case = format!("{points} {how}: {report}");
        let words: Vec<&str> = finished.stderr.split_whitespace().collect();
        let said = |what: &str| {
            let at = words.iter().position(|word| *word == what).unwrap_or_else(|| panic!("{what} {case}"));
            words[at + 1].parse::<u64>().expect("a number")
        };
        let count = |name: &str| report["packets"][name].as_u64().expect("a count");
        assert_eq!((count("seen"), count("without_call")), (2_000, 0), "{case}");
        let matched = count("matched");
        match how {
            // The last of the ten has 50 B.
            "gro" => assert!((said("reads"), said("bytes")) == (200, 190_000) && matched == 2_000, "{case}"),
            "slow" => assert!((30..1_900).contains(&said("reads")) && matched == said("reads"), "{case}"),
            _ => assert!(said("reads") == 2_000 && matched == 2_000, "{case}"),
        }
        if how == "plain" {
            let records = String::from_utf8(bench.read("segments.jsonl")).expect("UTF-8");
            let of = |payload: u32| records.lines().filter(|l| l.contains(&format!("\"payload\":{payload},"))).count();
            assert_eq!((of(100), of(50)), (1_800, 200), "{case}");
        }
    }
}

/// In a long transfer, buffers are reused and packets exceed the device's limit. Each record describes one packet, with
/// its sender.
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
    let named = ping_pong(&bench, &["--comm", "absent"], tcp);
    assert_eq!(named["packets"]["seen"], 0, "no thread is called absent");
    // No program reads these datagrams. They are in flight when the run ends, and must not be counted for a thread
    // whose name is absent.
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
    assert!(seen("python3") > 0.0 && seen("absent") == 0.0);
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
    // A packet's program is known at its copy. A packet evicted earlier has no program.
    let (matched, evicted) =
        (number(&rx["packets"]["matched"]), caveat(&rx, "evicted-frames")["frames"].as_f64().unwrap_or(0.0));
    assert!(matched <= 100.0 && matched + evicted >= 100.0 && matched > 0.0, "{rx}");
    assert!(slice(&rx, "copy").is_some() && slice(&rx, "link").is_none());
}

/// Datagrams that arrived and were read while the probes were being attached are not confused with later ones.
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
    // Packets still waiting at the end have no result.
    let ended = count("seen") - count("unfinished");
    assert!(ended > 100.0 && count("matched") > 0.9 * ended, "{report}");
}

/// Ethernet pads short packets to the minimum frame length. Reads of the error queue are not reads of datagrams.
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
    // Every other datagram waits for 20 ms.
    let mean = number(&report["total"]["mean_ns"]);
    assert!((8e6..20e6).contains(&mean), "{mean} ns: {report}");
}

/// Datagrams queued before the probes were attached are read before those that are traced.
#[test]
fn datagrams_already_at_a_socket_are_not_mistaken_for_new_ones() {
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
    // Read as the 4th to 8th. The first three are not traced.
    let waited = number(&report["total"]["p50_ns"]) / 20e6;
    assert!((5.5..9.0).contains(&waited), "six naps before the middle one is read, not three: {waited}");
}

/// A packet that never reached its reader still belongs to its connection: its sender alone does not match the filter.
#[test]
fn lost_packets_of_a_connection_count_for_either_end() {
    const SERVER: &str = r#"
import socket, subprocess, sys, time
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen()
command = [sys.argv[1], "slice", "kernel", "--json", "--", "python3", "client.py", str(l.getsockname()[1])]
run = subprocess.Popen(command)
s, _ = l.accept(); s.setsockopt(6, 1, 1); s.recv(1)
for _ in range(200): s.send(bytes(100)); time.sleep(0.001)
s.close(); sys.exit(run.wait())
"#;
    // Reads only after everything has arrived, so packets were merged in the socket's queue.
    const CLIENT: &str = r#"
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); s.send(b"x"); time.sleep(1)
while s.recv(65536): pass
"#;
    let Some((bench, _turn)) = bench() else { return };
    fs::write(bench.path("server.py"), SERVER).expect("the folder is ours");
    fs::write(bench.path("client.py"), CLIENT).expect("the folder is ours");
    let arguments = ["server.py", env!("CARGO_BIN_EXE_netlathe")];
    let output = Command::new("python3").args(arguments).current_dir(bench.path("")).output().expect("python3 runs");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one object");
    if overloaded(&report) {
        return;
    }
    check(&report);
    let count = |name: &str| number(&report["packets"][name]);
    // The number of packets that TCP makes of 200 calls depends on its window.
    assert!(count("seen") > 40.0 && count("lost") > 20.0, "{report}");
}
