//! `emulate --on`: impairs both directions of one interface of a host, and restores everything however the run ends.
//! The host is the client of a lab whose box is a bridge. Each test prints `SKIP: why` if the machine permits none.

use crate::bed::{Bed, Program, number};
use crate::common::caveat;
use lab::Node;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const HOST: Node = Node::Client(1);

/// A lab in which the host reaches the server without netlathe. Prints the reason and returns `None` if labs are
/// unavailable or the kernel has no tc links.
fn bed(test: &str) -> Option<Bed> {
    let bed = Bed::shared(test, |_| {})?;
    for line in ["link add br0 type bridge", "link set c0 master br0", "link set s0 master br0", "link set br0 up"] {
        bed.stdout(Node::Box, &format!("ip {line}"));
    }
    let start = Instant::now();
    while !bed.output(HOST, "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "the bridge carries nothing");
    }
    let tried = bed.run(HOST, "emulate --on eth0 --forward 'loss 0%' --duration 10ms -q");
    if tried.stderr.contains("TCX") || tried.stderr.contains("needs root") {
        println!("SKIP: {}", tried.stderr);
        return None;
    }
    assert_eq!(tried.status.code(), Some(0), "{tried:?}");
    Some(bed)
}

/// All settings of the host's interfaces.
fn settings(bed: &Bed) -> Vec<String> {
    let shown =
        ["ip -d link", "ip addr", "ip route", "ip -6 route", "ip neigh", "ip rule", "tc qdisc", "ethtool -k eth0"];
    shown.iter().map(|line| bed.stdout(HOST, line)).collect()
}

/// Starts `emulate --on`, and waits until frames of the host pass through it.
fn emulate(bed: &Bed, words: &str) -> Program {
    let program = bed.start(HOST, &format!("emulate --on eth0 --json --duration 60s {words}"));
    let start = Instant::now();
    while !bed.stdout(HOST, "ip link").contains("nlw") {
        assert!(start.elapsed() < Duration::from_secs(40), "emulate does not begin");
        thread::sleep(Duration::from_millis(20));
    }
    // The programs on the interface are attached last. Passing frames show that they are attached.
    while !passed(bed) {
        assert!(start.elapsed() < Duration::from_secs(40), "no frame passes");
        bed.output(HOST, "ping -c 1 -W 1 10.77.0.100");
    }
    program
}

/// Whether any frame of the host was redirected.
fn passed(bed: &Bed) -> bool {
    let shown = bed.stdout(HOST, "ip -s -j link");
    let links: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let host = links
        .as_array()
        .into_iter()
        .flatten()
        .find(|link| link["ifname"].as_str().is_some_and(|n| n.starts_with("nlh")));
    host.is_some_and(|link| link["stats64"]["tx"]["packets"].as_u64().is_some_and(|n| n > 0))
}

/// Round-trip times in milliseconds.
fn ping(bed: &Bed, from: Node, to: &str) -> Vec<f64> {
    let said = bed.output(from, &format!("ping -c 20 -i 0.05 -W 2 {to}"));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    said.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn effect_both_directions_are_hit_as_named_and_all_is_as_before() {
    let Some(bed) = bed("on-effect") else { return };
    let before = settings(&bed);
    let emulation = emulate(&bed, "--forward 'delay 20ms' --backward 'delay 30ms loss 50%'");
    // Either end may ping: each direction is passed once.
    for (from, to) in [(HOST, "10.77.0.100"), (Node::Server, "10.77.0.1"), (HOST, "fd77::100")] {
        let times = ping(&bed, from, to);
        assert!((1..20).contains(&times.len()), "a half is lost: {times:?}");
        // A busy machine can only make replies later, never earlier. ping rounds to three digits.
        assert!(times.iter().all(|ms| *ms >= 49.9), "{times:?}");
    }
    let report = emulation.stop().whole_report();
    let (forward, backward) = (&report["pipelines"][0], &report["pipelines"][1]);
    assert_eq!((&forward["name"], &backward["name"]), (&"forward".into(), &"backward".into()));
    assert!(forward["drops"].as_object().is_some_and(serde_json::Map::is_empty), "{report}");
    assert!(number(backward, "/drops/loss") > 5, "{report}");
    assert_eq!(forward["delay"]["asked"]["mean_ns"], 20_000_000.0);
    assert_eq!(settings(&bed), before);
    assert_eq!(ping(&bed, HOST, "10.77.0.100").len(), 20);
}

#[test]
fn super_frames_of_the_host_are_cut_to_frames() {
    let Some(bed) = bed("on-offload") else { return };
    bed.stdout(HOST, "ethtool -K eth0 tx on sg on tso on gso on");
    let before = settings(&bed);
    let server = bed.command(Node::Server, "iperf3", &["-s", "-1"]);
    let server = Program::start(server);
    while !bed.stdout(Node::Server, "ss -Hltn sport = 5201").contains("5201") {
        thread::sleep(Duration::from_millis(20));
    }
    let emulation = emulate(&bed, "--forward 'rate 50mbit'");
    bed.stdout(HOST, "iperf3 -c 10.77.0.100 -n 8M");
    drop(server);
    let report = emulation.stop().whole_report();
    let forward = &report["pipelines"][0];
    let (frames, bytes) = (number(forward, "/in/frames"), number(forward, "/in/bytes"));
    assert!(bytes > 2 << 20 && bytes / frames <= 1_518, "{report}");
    assert!(forward["drops"].as_object().is_some_and(|drops| !drops.contains_key("too-long")), "{report}");
    assert_eq!(settings(&bed), before);
}

#[test]
fn a_killed_run_leaves_nothing_and_the_next_one_starts() {
    let Some(bed) = bed("on-kill") else { return };
    let before = settings(&bed);
    for _ in 0..2 {
        let emulation = emulate(&bed, "--forward 'loss 100%'");
        assert!(ping(&bed, HOST, "10.77.0.100").is_empty(), "all is lost");
        emulation.signal("KILL");
        emulation.wait();
        let start = Instant::now();
        while settings(&bed) != before {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?} is not {before:?}", settings(&bed));
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(ping(&bed, HOST, "10.77.0.100").len(), 20);
    }
}

#[test]
fn rejects_impossible_requests_before_any_change() {
    let Some(bed) = bed("on-refused") else { return };
    let first = emulate(&bed, "--forward 'delay 1ms'");
    let run = |words: &str| bed.run(HOST, &format!("emulate --forward 'delay 1ms' --duration 1s {words}"));
    run("--on eth0").assert_refused(&["--on eth0", "another netlathe"]);
    run("--on ''").assert_refused(&["--on", "a value is required"]);
    run("--on eth9").assert_refused(&["eth9", "ip link"]);
    run("--on eth9@if7").assert_refused(&["eth9@if7", "write eth9"]);
    run("--on lo").assert_refused(&["--on lo", "not an Ethernet"]);
    first.stop();
    bed.stdout(HOST, "ip link set eth0 mtu 1600");
    run("--on eth0").assert_refused(&["1600", "ip link set eth0 mtu 1500"]);
    bed.stdout(HOST, "ip link set eth0 mtu 1500");
    let mut typed = bed.netlathe(HOST, "emulate --on eth0 --forward 'delay 1ms'");
    typed.env("SSH_CONNECTION", "10.77.0.100 50000 10.77.0.1 22");
    Program::start(typed).wait().assert_refused(&["10.77.0.100", "--duration", "--yes"]);
}

#[test]
fn warns_of_an_xdp_program_that_takes_frames_first() {
    let Some(bed) = bed("on-xdp") else { return };
    let before = bed.run(HOST, "emulate --on eth0 --forward 'delay 1ms' --duration 10ms -q");
    assert_eq!(before.stderr, "", "there is none");
    let first = bed.start(HOST, "shape --in if:eth0,driver=af_xdp --out null --duration 60s");
    let start = Instant::now();
    while !bed.stdout(HOST, "ip -d link show dev eth0").contains("prog/xdp") {
        if start.elapsed() > Duration::from_secs(20) {
            println!("SKIP: no XDP socket on eth0");
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let beside = bed.run(HOST, "emulate --on eth0 --forward 'delay 1ms' --duration 10ms -q");
    assert!(
        beside.stderr.contains("eth0 has an XDP program (id ") && beside.stderr.contains("do not arrive"),
        "{beside:?}"
    );
    first.stop();
}

#[test]
fn rejects_root_of_a_user_namespace() {
    let script = "ip link add ve0 type veth peer name ve1 && ip link set ve0 up && ip link set ve1 up && \
                  exec \"$0\" emulate --on ve0 --forward 'delay 1ms' --duration 100ms";
    let mut command = std::process::Command::new("unshare");
    let output =
        command.args(["-Urn", "sh", "-c", script, crate::bed::netlathe()]).output().expect("unshare is in util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    if !said.starts_with("netlathe: ") {
        println!("SKIP: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("needs root outside of user namespaces") && !said.contains("unshare -Urn"), "{said}");
}

#[test]
fn a_deleted_interface_ends_the_run_with_its_report() {
    let Some(bed) = bed("ongone") else { return };
    let running = emulate(&bed, "--forward 'delay 1ms'");
    bed.stdout(HOST, "ip link del eth0");
    let finished = running.wait();
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    let complaints = finished.complaints();
    assert!(complaints.len() == 1 && complaints[0].contains("interface eth0 disappeared"), "{finished:?}");
    assert!(number(&finished.whole_report()["pipelines"][0], "/out/frames") > 0, "{finished:?}");
    let links = bed.stdout(HOST, "ip link");
    assert!(!links.contains("nlh") && !links.contains("nlw"), "{links}");
}

/// A cgroup (v1 or v2) that freezes one process. Dropping it removes the cgroup.
struct Freezer(PathBuf);

impl Freezer {
    fn of(process: u32) -> Option<Freezer> {
        let roots = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        roots.iter().find_map(|root| {
            if !Path::new(root).join("cgroup.procs").exists() {
                return None;
            }
            let freezer = Freezer(Path::new(root).join(format!("netlathe-test-{process}")));
            fs::create_dir(&freezer.0).ok()?;
            let switched = freezer.0.join("freezer.state").exists() || freezer.0.join("cgroup.freeze").exists();
            let moved = switched && fs::write(freezer.0.join("cgroup.procs"), process.to_string()).is_ok();
            moved.then_some(freezer)
        })
    }

    fn set(&self, frozen: bool) {
        let old = self.0.join("freezer.state");
        let written = match (old.exists(), frozen) {
            (true, true) => fs::write(old, "FROZEN"),
            (true, false) => fs::write(old, "THAWED"),
            (false, _) => fs::write(self.0.join("cgroup.freeze"), if frozen { "1" } else { "0" }),
        };
        written.expect("it can be frozen");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let parent = self.0.parent().expect("the root").join("cgroup.procs");
        let inside = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        inside.lines().for_each(|process| drop(fs::write(&parent, process)));
        let _gone = fs::remove_dir(&self.0);
    }
}

/// Waits until the host's pings are answered, or no longer answered if `answered` is false.
fn await_ping(bed: &Bed, answered: bool) {
    let start = Instant::now();
    while bed.output(HOST, "ping -c 1 -W 1 10.77.0.100").status.success() != answered {
        assert!(start.elapsed() < Duration::from_secs(20), "a ping is answered is never {answered}");
    }
}

#[test]
fn a_stopped_run_leaves_the_host_its_network() {
    let Some(bed) = bed("on-stopped") else { return };
    let before = settings(&bed);
    let emulation = emulate(&bed, "--forward 'loss 100%'");
    // Ctrl-Z, and the signals that stop background programs.
    for signal in ["TSTP", "TTIN", "TTOU"] {
        emulation.signal(signal);
    }
    await_ping(&bed, false);
    let stat = fs::read_to_string(format!("/proc/{}/stat", emulation.pid())).expect("it runs");
    assert!(!stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T')), "{stat}");
    emulation.signal("STOP");
    await_ping(&bed, true);
    emulation.signal("CONT");
    await_ping(&bed, false);
    match Freezer::of(emulation.pid()) {
        Some(freezer) => {
            freezer.set(true);
            await_ping(&bed, true);
            freezer.set(false);
            await_ping(&bed, false);
        }
        None => println!("SKIP: no freezer"),
    }
    let finished = emulation.stop();
    let report = finished.whole_report();
    let passed = caveat(&report, "passed-unimpaired");
    assert!(number(&passed, "/sent") > 0 && number(&passed, "/arrived") > 0, "{report}");
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("unimpaired") && finished.stderr.contains("unimpaired"), "{finished:?}");
    assert_eq!(settings(&bed), before);
}

#[test]
fn a_run_that_is_not_stopped_lets_nothing_pass() {
    let Some(bed) = bed("on-carries") else { return };
    let emulation = emulate(&bed, "--forward 'delay 1ms'");
    ping(&bed, HOST, "10.77.0.100");
    let report = emulation.stop().whole_report();
    // By design, frames pass unimpaired if the process gets no CPU for a second. Skip the test in that case.
    if report["warnings"].to_string().contains("unimpaired") {
        println!("SKIP: it had no CPU for a second");
        return;
    }
    let passed = caveat(&report, "passed-unimpaired");
    assert_eq!((number(&passed, "/sent"), number(&passed, "/arrived")), (0, 0), "{report}");
}
