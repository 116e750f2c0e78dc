//! Every example of `--help` that needs ports, files of its own or a lab runs as it is printed, and so does every command
//! line of documents that names a live port. Each is asked to end once it is ready: that it can be written so, and begins,
//! is what is tested. Those of virtual time run in `documents.rs`. They say `SKIP: why` where no lab can be made.
#![cfg(feature = "live")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "live/bed.rs"]
mod bed;

use bed::{Bed, Program, netlathe};
use lab::Node;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the clone")
}

/// The examples of a command, each on one line.
fn examples(command: &str) -> Vec<String> {
    let words = command.split(' ').chain(["--help"]);
    let help = Command::new(netlathe()).args(words).output().expect("the binary runs");
    let help = String::from_utf8(help.stdout).expect("text").replace("\\\n", " ");
    let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
    let examples: Vec<String> =
        lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().into()).collect();
    assert!(!examples.is_empty(), "{command} has no examples");
    examples
}

/// The command lines of documents that name ports of a machine.
fn of_documents() -> BTreeSet<String> {
    let mut folders = vec![root().join("docs")];
    let mut files = vec![root().join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                None => folders.push(path),
                Some(extension) if extension == "md" => files.push(path),
                _ => {}
            }
        }
    }
    let mut lines = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).expect("text").replace("\\\n", " ");
        let mut code = false;
        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                code = !code;
                continue;
            }
            let line = line.trim().trim_start_matches("$ ").trim_start_matches("# ");
            let names_a_port = ["eth0", "eth1", "eth2"].iter().any(|port| line.contains(port));
            // What is typed inside of a lab's node names that node's interfaces; an ellipsis stands for something else.
            let whole = !line.contains("lab run") && !line.contains('…') && !line.contains("pci:");
            if code && line.starts_with("netlathe ") && names_a_port && whole {
                lines.insert(
                    line.split(" #").next().unwrap_or(line).trim().trim_end_matches(['&', '|']).trim().to_owned(),
                );
            }
        }
    }
    lines
}

/// A lab in whose box the interfaces of the examples are: `eth0` to a host with the address 10.0.0.254, `eth1` and `eth2`
/// to a router between them.
fn bed(name: &str) -> Option<Bed> {
    let bed = Bed::shared(name, |_| {})?;
    for (near, far, node) in [("eth0", "h0", Node::Server), ("eth1", "r1", Node::Server), ("eth2", "r2", Node::Server)]
    {
        let there = bed.lab.topology().namespace(node);
        bed.stdout(Node::Box, &format!("ip link add {near} type veth peer name {far} netns {there}"));
        for (node, end) in [(Node::Box, near), (node, far)] {
            bed.stdout(node, &format!("ethtool -K {end} tx off tso off gso off gro off"));
            bed.stdout(node, &format!("ip link set {end} up"));
        }
    }
    for line in [
        "ip addr add 10.0.0.254/24 dev h0",
        "ip addr add 198.18.0.254/24 dev r1",
        "ip addr add 198.19.0.254/24 dev r2",
        "ip addr add 10.1.0.254/24 dev r1",
        "ip addr add 10.2.0.254/24 dev r2",
        "sysctl -qw net.ipv4.ip_forward=1",
    ] {
        bed.stdout(Node::Server, line);
    }
    std::os::unix::fs::symlink(root().join("scenarios"), bed.path("scenarios")).expect("a link");
    let stream = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B";
    for capture in ["in.pcap", "day.pcap"] {
        let made =
            bed.run(Node::Box, &format!("gen --out pcap:{capture} --count 5000 --gap 10us -q --stream '{stream}'"));
        assert_eq!(made.status.code(), Some(0), "{made:?}");
    }
    Some(bed)
}

/// Runs a line in the box until it is ready or has ended, and asks it to end.
fn runs(bed: &Bed, line: &str) {
    // Users are named as the key of the example has them.
    let user = if line.contains("dst-prefix/24") { "10.0.0.0/24" } else { "10.0.0.7" };
    fs::write(bed.path("users.txt"), format!("{user} 2Mbps\n")).expect("a file");
    let path = bed.path("notify");
    let _earlier = fs::remove_file(&path);
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_nonblocking(true).expect("it can be asked");
    let binary = Path::new(netlathe()).parent().expect("a folder");
    let search = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a search path"));
    let mut command = bed.command(Node::Box, "sh", &["-c", &format!("exec {line}")]);
    command.env("NOTIFY_SOCKET", &path).env("PATH", search);
    let started = Instant::now();
    let program = Program::start(command);
    while !program.has_ended() && bed::notified(&socket).is_none() {
        assert!(started.elapsed() < Duration::from_secs(40), "not ready: {line}");
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(Duration::from_millis(100));
    if !program.has_ended() {
        program.signal("INT");
    }
    let ended = program.wait();
    if ended.stderr.contains("name CPUs that are there") {
        println!("SKIP: {line}: this machine has fewer CPUs");
        return;
    }
    // Frames of the generator that do not come back only count as missed.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{line}: {ended:?}");
}

fn all_run(name: &str, commands: &[&str]) {
    let Some(bed) = bed(name) else { return };
    for line in commands.iter().flat_map(|command| examples(command)) {
        let needs_ports = ["eth0", "users.txt", "eth1"].iter().any(|word| line.contains(word));
        if needs_ports {
            runs(&bed, &line);
        }
    }
}

#[test]
fn examples_of_gen_run() {
    all_run("examples-gen", &["gen"]);
}

#[test]
fn examples_of_shape_and_limit_run() {
    all_run("examples-shape", &["shape", "limit"]);
}

#[test]
fn examples_of_emulate_run() {
    all_run("examples-emulate", &["emulate"]);
}

#[test]
fn examples_of_measure_search_and_doctor_run() {
    all_run("examples-search", &["measure", "search", "doctor"]);
}

#[test]
fn command_lines_of_documents_run() {
    let Some(bed) = bed("examples-docs") else { return };
    let lines = of_documents();
    assert!(lines.len() >= 8, "{lines:?}");
    for line in lines {
        runs(&bed, &line);
    }
}

#[test]
fn examples_of_labs_run() {
    if bed("examples-lab").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("experiment.sh"), "ip -br address > /dev/null\n").expect("a file");
    // Labs of these names are those of a /run of their own.
    let script = [examples("lab up"), examples("lab list"), examples("lab down"), examples("lab run")].concat();
    let script = script.join("\n").replace("--duration 10s", "--duration 100ms");
    // Nothing passes the box, so that no echo comes.
    let script = script.replace("ping -c 3 10.77.0.100", "ping -c 1 -W 1 10.77.0.100 || test $? = 1");
    let binary = Path::new(netlathe()).parent().expect("a folder");
    let search = format!("{}:{}", binary.display(), std::env::var("PATH").expect("a search path"));
    let ended = Command::new("unshare")
        .args(["--mount", "sh", "-ec", &format!("mount -t tmpfs none /run\n{script}")])
        .env("PATH", search)
        .current_dir(folder.path())
        .output()
        .expect("unshare is there");
    assert!(ended.status.success(), "{script}: {ended:?}");
}
