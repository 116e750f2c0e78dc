//! `measure --host`: reads the counters of a kernel that receives real frames.

use crate::bed::{Bed, Finished, Program, netlathe, number};
use lab::Node;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};

/// A program in a lab that has reported ready. Dropping it ends the program.
struct Ready {
    child: Child,
    said: BufReader<Box<dyn Read + Send>>,
}

impl Ready {
    /// Starts a command and waits for a line with `word`, on stderr or stdout.
    fn start(mut command: Command, word: &str, on_stderr: bool) -> Ready {
        let line = format!("{command:?}");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let said: Box<dyn Read + Send> = if on_stderr {
            Box::new(child.stderr.take().expect("a pipe"))
        } else {
            Box::new(child.stdout.take().expect("a pipe"))
        };
        let mut ready = Ready { child, said: BufReader::new(said) };
        let mut text = String::new();
        while !text.contains(word) {
            text.clear();
            assert_ne!(ready.said.read_line(&mut text).expect("UTF-8"), 0, "{line} ended before it was ready");
        }
        ready
    }

    /// Stops the monitor with a signal and returns its report.
    fn report(mut self) -> Value {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill is there");
        assert!(told.success(), "it has ended before");
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("UTF-8");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // A program that has ended is not signalled again.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn monitor(bed: &Bed) -> Ready {
    Ready::start(bed.netlathe(Node::Server, "measure --host eth0 --json -v"), "watching eth0", true)
}

/// A socket on port 9 that never reads.
fn deaf_socket(bed: &Bed) -> Ready {
    let program = "import socket,time; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind((\"\",9)); \
                   print(\"bound\",flush=True); time.sleep(120)";
    Ready::start(bed.command(Node::Server, "python3", &["-c", program]), "bound", false)
}

/// Sends frames from the box to port 9 of an address at the server.
fn send(bed: &Bed, to: &str) {
    let stream = format!("udp 10.77.0.1:1000 > {to}:9 size 64B dmac 02:77:00:00:00:64");
    bed.run(Node::Box, &format!("gen --out s0 --json --rate 50kpps --count {COUNT} --stream '{stream}'")).report();
}

fn has_advice(report: &Value, name: &str) -> bool {
    report["host"]["advice"].as_array().expect("advice").iter().any(|advice| advice["name"] == name)
}

const COUNT: u64 = 20_000;

/// Asserts that the frames sent were counted. A lab adds a few of IPv6 in its first second.
#[track_caller]
fn assert_received(report: &Value, count: u64) {
    let frames = number(report, "/host/interfaces/0/frames");
    assert!((count..count + 50).contains(&frames), "{frames} of {count}: {report}");
}

#[test]
fn losses_at_a_socket_are_counted_and_explained() {
    let Some(bed) = Bed::shared("host-socket", |_| {}) else { return };
    let _deaf = deaf_socket(&bed);
    let monitor = monitor(&bed);
    send(&bed, "10.77.0.100");
    let report = monitor.report();
    assert_eq!((&report["schema"], &report["command"]), (&Value::from(2), &Value::from("measure")));
    assert_received(&report, COUNT);
    let lost = number(&report, "/host/lost/socket");
    // A buffer of 212 992 B holds a few hundred small datagrams.
    assert!(lost > COUNT / 2 && lost < COUNT, "{report}");
    assert_eq!(number(&report, "/host/sockets/0/drops"), lost, "one socket lost them all");
    assert_eq!(report["host"]["sockets"][0]["local"], "0.0.0.0:9");
    assert!(report["host"]["lost"]["ring"].is_null(), "veth counts none: {report}");
    assert!(has_advice(&report, "slow-reader"), "{report}");
    let by_interval = report["intervals"].as_array().expect("intervals");
    let parts: u64 = by_interval.iter().map(|part| number(part, "/lost/socket")).sum();
    assert_eq!(parts, lost, "the intervals are the whole");
}

#[test]
fn distinguishes_unwanted_frames_from_full_buffers() {
    let Some(bed) = Bed::shared("host-unwanted", |_| {}) else { return };
    let from_box = |to: &str| {
        let monitor = monitor(&bed);
        send(&bed, to);
        let report = monitor.report();
        assert_received(&report, COUNT);
        assert_eq!(number(&report, "/host/lost/socket"), 0, "{report}");
        assert!(number(&report, "/host/lost/protocol") >= COUNT, "{report}");
        report
    };
    assert!(has_advice(&from_box("10.77.0.100"), "no-port"));
    assert!(has_advice(&from_box("10.77.0.77"), "other-address"), "as in the reference");
}

#[test]
fn softnet_shows_which_cpu_did_the_work() {
    let Some(bed) = Bed::shared("host-softnet", |_| {}) else { return };
    let file = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
    let steered = bed.output(Node::Server, &format!("sh -c 'echo 2 > {file} && cat {file}'"));
    let mask = String::from_utf8_lossy(&steered.stdout).trim().trim_start_matches('0').to_owned();
    if !steered.status.success() || mask != "2" {
        println!("SKIP: RPS cannot be turned to a second CPU here");
        return;
    }
    let _deaf = deaf_socket(&bed);
    let monitor = monitor(&bed);
    send(&bed, "10.77.0.100");
    let report = monitor.report();
    let cpu = report["host"]["cpus"].as_array().expect("CPUs").iter().find(|cpu| cpu["cpu"] == 1).expect("CPU 1");
    // Frames that did not fit in the backlog never reached the interface.
    let (arrived, dropped) = (number(&report, "/host/interfaces/0/frames"), number(cpu, "/dropped"));
    assert!(number(cpu, "/processed") + dropped >= COUNT && arrived + dropped >= COUNT, "{report}");
    // If the sender ran on that CPU, no wakeup was needed.
    assert!(cpu["received_rps"].is_u64() && cpu["busy_ratio"].is_f64(), "{report}");
}

/// Follows the case in docs/guide/receiver.md: one flow keeps one queue busy, many flows keep all queues busy.
#[test]
fn distinguishes_one_flow_from_many() {
    let Some(bed) = Bed::shared("host-queues", |topology| topology.queues = 2) else { return };
    // A router picks the queue by flow, as a NIC's hash would. With GRO on, veth has and counts its own queues.
    let router = bed.stdout(Node::Box, "cat /sys/class/net/c0/address").trim().to_owned();
    bed.stdout(
        Node::Box,
        "sh -ec 'ip link set c0 arp on; ip link set s0 arp on; echo 1 > /proc/sys/net/ipv4/ip_forward; \
         echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter; echo 0 > /proc/sys/net/ipv4/conf/c0/rp_filter; \
         ip route add 10.77.0.100 dev s0; ip neigh replace 10.77.0.100 lladdr 02:77:00:00:00:64 dev s0'",
    );
    bed.stdout(Node::Server, "ethtool -K eth0 gro on");
    // Frames from tx queue 1 would all arrive on one queue, whatever their flow, so use a single tx queue.
    bed.stdout(Node::Client(1), "ethtool -L eth0 rx 1 tx 1");
    let shares = |ports: &str| -> (Vec<f64>, Value) {
        let monitor = monitor(&bed);
        let stream = format!("udp 10.77.0.1:{ports} > 10.77.0.100:9 size 64B dmac {router}");
        bed.run(Node::Client(1), &format!("gen --out eth0 --json --rate 50kpps --count {COUNT} --stream '{stream}'"))
            .report();
        let report = monitor.report();
        let queues = report["host"]["interfaces"][0]["queues"].as_array().expect("queues are counted").clone();
        let frames: Vec<f64> = queues.iter().map(|queue| queue["frames"].as_f64().expect("a count")).collect();
        let all: f64 = frames.iter().sum();
        assert!(all > COUNT as f64 / 2.0, "{report}");
        (frames.iter().map(|frames| frames / all).collect(), report)
    };
    let (one, report) = shares("1000");
    assert!(one.len() == 2 && one.iter().any(|share| *share > 0.99), "{one:?}");
    assert!(has_advice(&report, "one-queue"), "{report}");
    let (many, report) = shares("1000-1999");
    assert!(many.len() == 2 && many.iter().all(|share| (0.3..0.7).contains(share)), "{many:?}");
    assert!(!has_advice(&report, "one-queue"), "{report}");
}

#[test]
fn a_deleted_interface_ends_the_measurement() {
    let Some(bed) = Bed::shared("host-gone", |_| {}) else { return };
    bed.stdout(Node::Server, "ip link add name gone0 type veth peer name gone1");
    let watching = bed.netlathe(Node::Server, "measure --host gone0,eth0 -v --interval 100ms");
    let mut watching = Ready::start(watching, "watching", true);
    bed.stdout(Node::Server, "ip link del gone0");
    let (mut said, mut table) = (String::new(), String::new());
    watching.said.read_to_string(&mut said).expect("UTF-8");
    watching.child.stdout.take().expect("a pipe").read_to_string(&mut table).expect("UTF-8");
    assert_eq!(watching.child.wait().expect("it ends").code(), Some(2), "{said}");
    assert!(said.lines().count() == 1 && said.contains("gone0") && said.contains("ip link"), "{said}");
    assert!(table.contains("lost at"), "what was seen is reported: {table}");
}

#[test]
fn rejects_interfaces_that_cannot_be_watched() {
    let run = |line: &str| -> Finished {
        let mut command = Command::new(netlathe());
        command.args(line.split_whitespace());
        Program::start(command).wait()
    };
    run("measure --host nosuch0").assert_refused(&["no interface 'nosuch0'", "ip link"]);
    run("measure --host lo,lo").assert_refused(&["lo is named twice"]);
    run("measure --host eth7@if9").assert_refused(&["no interface 'eth7@if9'", "write eth7"]);
    run("measure --host ../net/lo").assert_refused(&["no interface"]);
    run("measure --host lo --interval 1ms").assert_refused(&["too short an interval", "100ms"]);
    run("measure --host lo --in lo").assert_refused(&["cannot be used with"]);
    run("measure --host lo --expect 1us").assert_refused(&["cannot be used with"]);
    run("measure --in lo --interval 1s").assert_refused(&["cannot be used with"]);
    // The interface exists, so the error must not say that it is gone.
    let mut few = Command::new("sh");
    // Each handled signal takes a file descriptor. `nohup` would leave SIGHUP ignored.
    few.args([
        "-c",
        "ulimit -n 7; exec env --default-signal=HUP \"$0\" measure --host lo -q --duration 1s",
        netlathe(),
    ]);
    Program::start(few).wait().assert_refused(&["Too many open files"]);
}

#[test]
fn a_watch_reports_its_start_at_an_abstract_socket() {
    let name = format!("netlathe-host-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let socket = UnixDatagram::bind_addr(&address).expect("a socket");
    let mut command = Command::new(netlathe());
    command.args(["measure", "--host", "lo", "--duration", "100ms"]).env("NOTIFY_SOCKET", format!("@{name}"));
    let finished = Program::start(command).wait();
    assert_eq!((finished.status.code(), finished.complaints()), (Some(0), vec![]), "{finished:?}");
    let mut bytes = [0; 64];
    socket.set_nonblocking(true).expect("it can be asked");
    let length = socket.recv(&mut bytes).expect("it was told");
    assert_eq!(&bytes[..length], b"READY=1");
}

/// netlathe in a lab's network namespace only, as with `nsenter`: /sys still shows the machine's interfaces.
fn entered(bed: &Bed, node: Node, line: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", bed.lab.topology().namespace(node))).arg(netlathe());
    command.args(crate::common::words(line)).stdin(Stdio::null());
    command
}

#[test]
fn interfaces_are_those_of_the_network_namespace_and_not_of_sysfs() {
    let Some(bed) = Bed::shared("host-entered", |_| {}) else { return };
    let watch = entered(&bed, Node::Server, "measure --host eth0 --json -v");
    let monitor = Ready::start(watch, "watching eth0", true);
    send(&bed, "10.77.0.100");
    let report = monitor.report();
    assert_received(&report, COUNT);
    // If the machine has a NIC of this name, it has interrupts of this name. A veth has none.
    assert_eq!(report["host"]["interfaces"][0]["settings"]["driver"], "veth", "{report}");
    assert!(report["host"]["interfaces"][0]["interrupts"].is_null(), "{report}");
    assert!(number(&report, "/host/lost/protocol") >= COUNT, "{report}");
    // An interface only in this namespace is found. One only in other namespaces is not.
    bed.stdout(Node::Box, "ip link add only-here type veth peer name its-peer");
    let run = |node, line: &str| entered(&bed, node, line).output().expect("it starts");
    let there = run(Node::Box, "measure --host only-here --duration 100ms -q");
    assert!(there.status.success(), "{there:?}");
    let absent = run(Node::Server, "measure --host only-here --duration 100ms -q");
    assert_eq!(absent.status.code(), Some(2), "{absent:?}");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("no interface 'only-here'"), "{absent:?}");
}

#[test]
fn a_tap_in_use_is_refused_whatever_sysfs_shows() {
    let Some(bed) = Bed::shared("host-tap", |_| {}) else { return };
    let line = "gen --out tap:taken --stream 'udp 10.0.0.1:1 > 10.0.0.2:1' --rate 100pps -v";
    let mut holder = entered(&bed, Node::Box, &format!("{line} --duration 30s"));
    holder.env_remove("NOTIFY_SOCKET");
    let _holder = Ready::start(holder, "netlathe: ready", true);
    let second = entered(&bed, Node::Box, &format!("{line} --duration 100ms")).output().expect("it starts");
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(2) && said.contains("taken"), "{second:?}");
}
