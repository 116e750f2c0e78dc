//! Labs on this machine: checks a lab's guarantees against the kernel. Each test has its own lab, and prints `SKIP:
//! why` if the machine does not permit labs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Error, Guard, Lab, Node, RunRequest, Shape, State, Topology};

/// The role of a test that is started as a separate process.
const ROLE: &str = "NETLATHE_LAB_TEST_ROLE";
/// The lab for the role.
const NAME: &str = "NETLATHE_LAB_TEST_NAME";
/// The script that a role runs.
const SCRIPT: &str = "NETLATHE_LAB_TEST_SCRIPT";

/// A TCP receiver in Python that prints what it got, and a sender.
const RECEIVE: &str = "import socket\n\
    s = socket.create_server(('10.77.0.100', 5000))\n\
    print('ready', flush=True)\n\
    c, _ = s.accept()\n\
    n = 0\n\
    while b := c.recv(65536): n += len(b)\n\
    print(n, flush=True)\n";
const SEND: &str = "import socket\n\
    s = socket.create_connection(('10.77.0.100', 5000), timeout=5)\n\
    s.sendall(bytes(4_000_000))\n\
    s.close()\n";

fn name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

/// A lab for a test, or `None` with the reason on the test's output.
fn lab_for(topology: &Topology) -> Option<Guard> {
    match Guard::up(topology) {
        Ok(guard) => Some(guard),
        Err(error @ (Error::Unprivileged | Error::MissingTool { .. })) => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("the lab did not come up: {error}"),
    }
}

fn output(lab: &Lab, node: Node, line: &[&str]) -> Output {
    let mut command = lab.command(node, line[0]).expect("the program exists");
    command.args(&line[1..]).stdin(Stdio::null()).output().expect("ip can be started")
}

fn stdout(lab: &Lab, node: Node, line: &[&str]) -> String {
    let output = output(lab, node, line);
    assert!(output.status.success(), "{line:?} in {node}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A counter of an interface, from /sys.
fn counter(lab: &Lab, node: Node, interface: &str, counter: &str) -> u64 {
    let path = format!("/sys/class/net/{interface}/statistics/{counter}");
    stdout(lab, node, &["cat", &path]).trim().parse().expect("a number")
}

fn namespaces_of(name: &str) -> Vec<String> {
    let prefix = format!("nl-{name}-");
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).filter(|n| n.starts_with(&prefix)).collect()
}

fn assert_nothing_left(name: &str) {
    assert_eq!(namespaces_of(name), Vec::<String>::new());
    assert!(!Path::new(&format!("/run/netlathe/labs/{name}.json")).exists(), "the record of {name} is still there");
    assert!(lab::list().expect("labs can be listed").iter().all(|summary| summary.name != name));
}

/// Sends 4 MB over TCP and returns what arrived.
fn transfer(lab: &Lab) -> u64 {
    let mut receiver = lab.command(Node::Server, "python3").expect("python3 is installed");
    let mut receiver =
        receiver.args(["-c", RECEIVE]).stdout(Stdio::piped()).spawn().expect("the receiver can be started");
    let mut lines = BufReader::new(receiver.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    stdout(lab, Node::Client(1), &["timeout", "20", "python3", "-c", SEND]);
    let got = lines.next().expect("a line").expect("text").parse().expect("a number");
    receiver.wait().expect("the receiver ends");
    got
}

/// Lets the kernel carry frames through the box, in place of netlathe.
fn bridge_the_box(lab: &Lab) {
    for line in [
        "link add name middle type bridge",
        "link set dev c0 master middle",
        "link set dev s0 master middle",
        "link set dev middle up",
    ] {
        let words: Vec<&str> = ["ip"].into_iter().chain(line.split(' ')).collect();
        stdout(lab, Node::Box, &words);
    }
    // The kernel notices a link with a delay, and until then a port drops frames.
    let start = Instant::now();
    let all_forward = || {
        let ports = stdout(lab, Node::Box, &["bridge", "link", "show"]);
        let up = stdout(lab, Node::Box, &["cat", "/sys/class/net/middle/operstate"]);
        ports.matches("state forwarding").count() == 2 && up.trim() == "up"
    };
    while !all_forward() {
        assert!(start.elapsed() < Duration::from_secs(5), "the bridge does not forward");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn box_carries_nothing_by_itself_and_down_leaves_nothing() {
    let name = name("plain");
    let Some(lab) = lab_for(&Topology::named(&name)) else { return };
    assert_eq!(namespaces_of(&name).len(), 3);

    for (node, interface) in [(Node::Client(1), "eth0"), (Node::Box, "c0"), (Node::Box, "s0"), (Node::Server, "eth0")] {
        let carrier = stdout(&lab, node, &["cat", &format!("/sys/class/net/{interface}/carrier")]);
        assert_eq!(carrier.trim(), "1", "{node}/{interface} has no link");
    }
    let before = counter(&lab, Node::Server, "eth0", "rx_packets");
    // Sent without ARP, since neighbours are known: it must arrive at the box and nowhere else.
    let send = "import socket\n\
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                for _ in range(10): s.sendto(b'x', ('10.77.0.100', 9))";
    stdout(&lab, Node::Client(1), &["python3", "-c", send]);
    assert!(counter(&lab, Node::Box, "c0", "rx_packets") >= 10, "the client's frames did not reach the box");
    assert_eq!(counter(&lab, Node::Box, "s0", "tx_packets"), 0, "the box forwarded");
    assert_eq!(counter(&lab, Node::Server, "eth0", "rx_packets"), before);

    let ended = lab.down().expect("the lab goes down");
    assert_eq!(ended.namespaces.len(), 3);
    assert_nothing_left(&name);
    assert!(matches!(lab::down(&name), Err(Error::NotUp(_))), "down twice must say that there is nothing");
}

#[test]
fn idle_lab_is_silent() {
    let Some(lab) = lab_for(&Topology::named(name("silent"))) else { return };
    // Messages of an interface coming up (multicast memberships) end after a moment.
    thread::sleep(Duration::from_millis(1500));
    let count = || ["c0", "s0"].map(|interface| counter(&lab, Node::Box, interface, "rx_packets"));
    let before = count();
    thread::sleep(Duration::from_secs(2));
    assert_eq!(count(), before, "frames of unknown origin");
}

#[test]
fn box_interfaces_neither_send_nor_answer() {
    let Some(lab) = lab_for(&Topology::named(name("deaf"))) else { return };
    for interface in ["c0", "s0"] {
        let shown = stdout(&lab, Node::Box, &["ip", "address", "show", "dev", interface]);
        assert!(shown.contains("NOARP") && shown.contains("PROMISC"), "{shown}");
        assert!(!shown.contains("inet"), "an address in the box: {shown}");
        let off = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        if Path::new("/proc/sys/net/ipv6").exists() {
            assert_eq!(stdout(&lab, Node::Box, &["cat", &off]).trim(), "1");
        }
        // AF_XDP takes one queue of an interface; with more, part of the traffic would bypass it.
        let queues = stdout(&lab, Node::Box, &["ls", &format!("/sys/class/net/{interface}/queues")]);
        assert_eq!(queues.split_whitespace().collect::<Vec<_>>(), ["rx-0", "tx-0"]);
    }
}

#[test]
fn offloads_are_off_at_every_end() {
    let Some(lab) = lab_for(&Topology { clients: 2, ..Topology::named(name("off")) }) else { return };
    let ends = [
        (Node::Client(1), "eth0"),
        (Node::Client(2), "eth0"),
        (Node::Switch, "p1"),
        (Node::Switch, "p2"),
        (Node::Switch, "up0"),
        (Node::Box, "c0"),
        (Node::Box, "s0"),
        (Node::Server, "eth0"),
    ];
    for (node, interface) in ends {
        let features = stdout(&lab, node, &["ethtool", "-k", interface]);
        for feature in [
            "rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
            "generic-segmentation-offload", "generic-receive-offload", "tx-udp-segmentation", "rx-gro-list",
        ] {
            assert!(features.contains(&format!("{feature}: off")), "{node}/{interface}: {feature} is on");
        }
    }
}

#[test]
fn frames_look_as_on_a_wire() {
    for mtu in [1500, 600] {
        let topology = Topology { mtu, ..Topology::named(name(&format!("mtu{mtu}"))) };
        let Some(lab) = lab_for(&topology) else { return };
        bridge_the_box(&lab);
        let largest = largest_frame(&lab, || assert_eq!(transfer(&lab), 4_000_000));
        assert_eq!(largest, u64::from(mtu) + 14, "TCP fills its frames to the MTU, and never beyond");
        let (bytes, frames) =
            (counter(&lab, Node::Box, "c0", "rx_bytes"), counter(&lab, Node::Box, "c0", "rx_packets"));
        assert!(bytes <= frames * (u64::from(mtu) + 14), "{bytes} bytes in {frames} frames");
        assert!(bytes > 4_000_000, "the transfer did not pass the box");
    }
}

/// The longest frame on `c0` while something runs, with a check of every IPv4 TCP checksum. Read by a packet socket in
/// the box, like netlathe's own ports.
fn largest_frame(lab: &Lab, during: impl FnOnce()) -> u64 {
    // Reads until its standard input is closed, and then what is left in the socket.
    const WATCH: &str = "import select, socket, struct, sys\n\
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n\
        s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)\n\
        s.bind(('c0', 0))\n\
        print('ready', flush=True)\n\
        largest = bad = 0\n\
        while True:\n\
        \x20   ready = select.select([s, sys.stdin], [], [])[0]\n\
        \x20   if s not in ready: break\n\
        \x20   f, a = s.recvfrom(1 << 17)\n\
        \x20   if a[2] == 4: continue\n\
        \x20   largest = max(largest, len(f))\n\
        \x20   if f[12:14] != b'\\x08\\0' or f[23] != 6: continue\n\
        \x20   d = f[14:14 + struct.unpack('!H', f[16:18])[0]]\n\
        \x20   t = d[(d[0] & 15) * 4:]\n\
        \x20   p = d[12:20] + struct.pack('!HH', 6, len(t)) + t + b'\\0' * (len(t) & 1)\n\
        \x20   n = sum(struct.unpack('!%dH' % (len(p) // 2), p))\n\
        \x20   while n >> 16: n = (n >> 16) + (n & 0xffff)\n\
        \x20   bad += n != 0xffff\n\
        print(largest, bad, flush=True)\n";
    let mut watcher = lab.command(Node::Box, "python3").expect("python3 is installed");
    let watcher = watcher.args(["-c", WATCH]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut watcher = watcher.spawn().expect("python3 can be started");
    let mut lines = BufReader::new(watcher.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    during();
    drop(watcher.stdin.take());
    let last = lines.next().expect("a line").expect("text");
    watcher.wait().expect("the watcher ends");
    let (largest, bad) = last.split_once(' ').expect("two numbers");
    assert_eq!(bad, "0", "checksums were left to an offload");
    largest.parse().expect("a number")
}

#[test]
fn several_clients_share_one_interface_of_the_box() {
    let topology = Topology { clients: 3, ..Topology::named(name("three")) };
    let Some(lab) = lab_for(&topology) else { return };
    assert_eq!(namespaces_of(lab.name()).len(), 6);
    bridge_the_box(&lab);
    let receive = "import socket\n\
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
        s.bind(('10.77.0.100', 5001)); s.settimeout(5)\n\
        print('ready', flush=True)\n\
        print(sorted({s.recvfrom(9)[1][0] for _ in range(3)}))";
    let mut receiver = lab.command(Node::Server, "python3").expect("python3 is installed");
    let mut receiver = receiver.args(["-c", receive]).stdout(Stdio::piped()).spawn().expect("python3 can be started");
    let mut lines = BufReader::new(receiver.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    let send = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.77.0.100', 5001))";
    for n in 1..=3 {
        stdout(&lab, Node::Client(n), &["python3", "-c", send]);
    }
    assert_eq!(lines.next().expect("a line").expect("text"), "['10.77.0.1', '10.77.0.2', '10.77.0.3']");
    receiver.wait().expect("the receiver ends");
    assert!(matches!(lab.command(Node::Client(4), "true"), Err(Error::NoSuchNode { .. })));
}

#[test]
fn names_are_unique_and_different_labs_coexist() {
    let (one, two) = (name("one"), name("two"));
    let Some(_lab) = lab_for(&Topology::named(&one)) else { return };
    let error = lab::up(&Topology::named(&one)).expect_err("the name is taken");
    assert!(matches!(error, Error::Exists(_)) && error.to_string().contains("netlathe lab down"), "{error}");
    let other = lab_for(&Topology::named(&two)).expect("another name is free");

    let all = lab::list().expect("labs can be listed");
    let summary = all.iter().find(|summary| summary.name == one).expect("the lab is listed");
    assert_eq!(summary.state, State::Held { pid: std::process::id() });
    assert!(summary.since.is_some_and(|since| since.elapsed().is_ok_and(|age| age < Duration::from_secs(60))));
    let client = &summary.nodes[0];
    assert_eq!((client.node.as_str(), client.interfaces.len()), ("client1", 1));
    assert_eq!(client.interfaces[0].addresses, ["10.77.0.1/24", "fd77::1/64"]);
    assert!(client.interfaces[0].up);

    other.down().expect("the other lab goes down");
    assert_eq!(namespaces_of(&one).len(), 3, "taking one lab down took another's namespaces");
}

#[test]
fn failing_step_leaves_nothing() {
    let name = name("half");
    if lab_for(&Topology::named(&name)).is_none() {
        return;
    }
    // A failing `ethtool` comes first in PATH; at that point namespaces and wires exist.
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("ethtool");
    fs::write(&broken, "#!/bin/sh\necho out of order >&2\nexit 3\n").expect("it can be written");
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:{}", folder.path().display(), env::var("PATH").expect("there is a PATH"));
    let output = role_command("fail", &name).env("PATH", path).output().expect("the test can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    for part in ["FAILED AS IT SHOULD", &format!("ip netns exec nl-{name}-client1 ethtool -k eth0"), "out of order"] {
        assert!(said.contains(part), "no `{part}` in: {said}");
    }
    assert_nothing_left(&name);
}

#[test]
fn finds_remains_of_a_killed_process_with_and_without_its_record() {
    for lose_record in [false, true] {
        let name = name(if lose_record { "lost" } else { "killed" });
        let Some(mut holder) = start_role("hold", &name) else { return };
        holder.kill().expect("the holder can be killed");
        holder.wait().expect("the holder is gone");
        assert_eq!(namespaces_of(&name).len(), 3, "a killed process cannot have cleaned up");
        if lose_record {
            fs::remove_file(format!("/run/netlathe/labs/{name}.json")).expect("the record is there");
        }
        let error = lab::up(&Topology::named(&name)).expect_err("the name is taken by leftovers");
        assert!(error.to_string().contains(&format!("netlathe lab down {name}")), "{error}");
        assert!(matches!(
            (lose_record, lab::list().expect("labs can be listed").iter().find(|s| s.name == name).map(|s| &s.state)),
            (false, Some(State::LeftBehind { .. })) | (true, Some(State::Unrecorded))
        ));
        lab::down(&name).expect("leftovers can be taken down");
        assert_nothing_left(&name);
    }
}

#[test]
fn programs_left_in_a_lab_end_with_it() {
    let Some(lab) = lab_for(&Topology::named(name("daemon"))) else { return };
    let mut daemon = lab.command(Node::Server, "sleep").expect("sleep exists");
    let mut daemon = daemon.arg("60").spawn().expect("sleep can be started");
    // Until `ip` has become the program, it is not in the namespace.
    let start = Instant::now();
    while fs::read_to_string(format!("/proc/{}/comm", daemon.id())).is_ok_and(|comm| comm.trim() != "sleep") {
        assert!(start.elapsed() < Duration::from_secs(5), "sleep did not start");
        thread::sleep(Duration::from_millis(2));
    }
    // Reaped concurrently, as init would: a zombie is in no namespace, but it is in /proc.
    let pid = daemon.id();
    let reaper = thread::spawn(move || daemon.wait().expect("sleep ends"));
    let ended = lab.down().expect("the lab goes down");
    assert_eq!(ended.processes, [(pid, "sleep".to_owned())]);
    assert!(!reaper.join().expect("the thread ends").success());
}

fn run_in(name: &str, node: Node, line: &[&str]) -> lab::Result<i32> {
    lab::run(&RunRequest {
        name: name.to_owned(),
        shape: Shape::default(),
        node,
        command: line.iter().map(OsString::from).collect(),
        stdout_to_stderr: false,
    })
}

#[test]
fn run_builds_a_lab_for_one_command_and_returns_its_status() {
    let name = name("run");
    let Some(guard) = lab_for(&Topology::named(&name)) else { return };
    let script = "test \"$NETLATHE_LAB\" = \"$0\" && test $NETLATHE_NODE = server && \
                  test $NETLATHE_CLIENT = 10.77.0.1 && test $NETLATHE_SERVER = 10.77.0.100 && \
                  test $NETLATHE_SERVER_MAC = 02:77:00:00:00:64 && exit 7";
    assert_eq!(run_in(&name, Node::Server, &["sh", "-c", script, &name]).expect("it runs in the lab there is"), 7);
    assert_eq!(namespaces_of(&name).len(), 3, "run took down a lab that was there before");
    guard.down().expect("the lab goes down");

    assert_eq!(run_in(&name, Node::Server, &["sh", "-c", script, &name]).expect("it runs in its own lab"), 7);
    assert_nothing_left(&name);
    assert_eq!(run_in(&name, Node::Box, &["sh", "-c", "kill -TERM $$"]).expect("it runs"), 128 + 15);
    assert_nothing_left(&name);
    assert!(matches!(run_in(&name, Node::Box, &["no-such-program"]), Err(Error::NoProgram(_))));
    assert_nothing_left(&name);
    assert!(matches!(run_in(&name, Node::Box, &[]), Err(Error::NoCommand)));
}

#[test]
fn signal_reaches_the_command_and_the_lab_is_removed_after_it() {
    for (signal, status) in [("-INT", 42), ("-TERM", 43)] {
        let name = name(&format!("signal{}", signal.to_lowercase()));
        let Some(mut runner) = start_role("run", &name) else { return };
        assert_eq!(namespaces_of(&name).len(), 3);
        let sent = Command::new("kill").args([signal, &runner.id().to_string()]).status().expect("kill exists");
        assert!(sent.success());
        assert_eq!(runner.wait().expect("the runner ends").code(), Some(status), "the command's own trap decides");
        assert_nothing_left(&name);
    }
}

#[test]
fn refuses_a_lab_that_belongs_to_another_command() {
    let name = name("held");
    let Some(mut holder) = start_role("hold", &name) else { return };
    match run_in(&name, Node::Box, &["true"]) {
        Err(Error::Held { pid, .. }) => assert_eq!(pid, holder.id()),
        other => panic!("a lab that may go at any moment was joined: {other:?}"),
    }
    holder.kill().expect("it runs");
    holder.wait().expect("it ends");
    lab::down(&name).expect("what was left goes");
}

#[test]
fn refuses_a_lab_of_another_shape() {
    let name = name("shape");
    let Some(guard) = lab_for(&Topology { clients: 2, ..Topology::named(&name) }) else { return };
    let with = |shape: Shape| {
        let command = vec![OsString::from("true")];
        lab::run(&RunRequest { name: name.clone(), shape, node: Node::Box, command, stdout_to_stderr: false })
    };
    let error = with(Shape { clients: Some(3), ..Shape::default() }).expect_err("it has two");
    assert!(error.to_string().contains("clients 2, not 3"), "{error}");
    assert_eq!(with(Shape { clients: Some(2), mtu: Some(1_500), queues: None }).expect("as it is"), 0);
    guard.down().expect("the lab goes down");
}

#[test]
fn ignored_hangup_stays_ignored() {
    let name = name("nohup");
    // SIGHUP is the lowest bit of the mask.
    let script = "echo ready; grep -q 'SigIgn:.*[13579bdf]$' /proc/self/status";
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" --exact role --nocapture"]).arg(env::current_exe().expect("a file"));
    command.env(ROLE, "script").env(NAME, &name).env(SCRIPT, script);
    let output = command.output().expect("the test can be started again");
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some((_, why)) = said.split_once("SKIP: ") {
        println!("SKIP: {why}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
}

fn role_command(role: &str, name: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test has a file"));
    command.args(["--exact", "role", "--nocapture"]).env(ROLE, role).env(NAME, name);
    command
}

/// Starts this test program again in a role, and waits until it is ready.
fn start_role(role: &str, name: &str) -> Option<Child> {
    let mut child = role_command(role, name).stdout(Stdio::piped()).spawn().expect("the test can be started again");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut said = String::new();
    let ready = lines.by_ref().any(|line| {
        said += &line;
        said += "\n";
        line.contains("ready")
    });
    if ready {
        // Reads on, so that the child can write until it ends.
        thread::spawn(move || lines.for_each(drop));
        return Some(child);
    }
    child.wait().expect("it ended");
    let reason = said.lines().find_map(|line| line.split_once("SKIP: "));
    println!("SKIP: {}", reason.unwrap_or_else(|| panic!("the part `{role}` ended: {said}")).1);
    None
}

/// Not a test itself: the roles that other tests start as separate processes.
#[test]
fn role() {
    let (Ok(role), Ok(name)) = (env::var(ROLE), env::var(NAME)) else { return };
    match role.as_str() {
        "hold" => {
            let Some(_lab) = lab_for(&Topology::named(&name)) else { return };
            println!("ready");
            thread::sleep(Duration::from_secs(30));
        }
        "fail" => match lab::up(&Topology::named(&name)) {
            Err(error) => println!("FAILED AS IT SHOULD: {error}"),
            Ok(_) => println!("came up"),
        },
        "run" => {
            let script = "trap 'exit 42' INT; trap 'exit 43' TERM; echo ready; \
                          n=0; while [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done";
            match run_in(&name, Node::Box, &["sh", "-c", script]) {
                Ok(status) => std::process::exit(status),
                Err(error) => println!("SKIP: {error}"),
            }
        }
        "script" => {
            let script = env::var(SCRIPT).expect("a script");
            match run_in(&name, Node::Box, &["sh", "-c", &script]) {
                Ok(status) => std::process::exit(status),
                Err(error) => println!("SKIP: {error}"),
            }
        }
        "unprivileged" => {
            if !lab::in_user_namespace() {
                assert!(matches!(lab::up(&Topology::named(&name)), Err(Error::Unprivileged)));
                match lab::reexec_in_user_namespace() {
                    Err(error) => println!("SKIP: {error}"),
                    Ok(never) => match never {},
                }
                return;
            }
            assert!(lab::privileged());
            // The outer command runs an inner one, in another node of the same lab.
            let inner = format!("ip netns exec nl-{name}-client1 cat /sys/class/net/eth0/address");
            let status = run_in(&name, Node::Box, &["sh", "-c", &format!("test $({inner}) = 02:77:00:00:00:01")]);
            assert_eq!(status.expect("a lab in a user namespace"), 0);
            assert_nothing_left(&name);
            println!("lab without root: done");
        }
        other => panic!("no part is called {other}"),
    }
}

#[test]
fn ordinary_user_gets_a_lab_in_a_user_namespace() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("test");
    // A copy, since the target folder may be inaccessible to others.
    fs::copy(env::current_exe().expect("a test has a file"), &program).expect("it can be copied");
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let mut command = if lab::privileged() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    command.args(["--exact", "role", "--nocapture"]).current_dir("/").env(ROLE, "unprivileged");
    let output = command.env(NAME, name("user")).output().expect("setpriv is in util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some((_, why)) = said.split_once("SKIP: ") {
        println!("SKIP: {why}");
        return;
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("lab without root: done"), "{said}");
}
