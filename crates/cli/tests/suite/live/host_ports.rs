//! Interfaces that carry a host's own traffic are refused before anything changes, unless `--take-over` is given. The
//! host is the box of a lab, with its own veth pairs. Each test prints `SKIP: why` if the machine permits none.

use crate::bed::{Bed, Finished, Program, number};
use lab::Node;
use std::fs;

const HOST: Node = Node::Box;

/// Every way to take frames from `a0`.
const COMMANDS: [&str; 6] = [
    "emulate --between a0 b0 --both 'delay 1ms'",
    "emulate --in b0 --out a0 --forward 'delay 1ms' --one-way",
    "shape --in if:a0,driver=af_packet --out null",
    "limit --in b0 --out a0 --key dst-ip --rate 1Mbps --mode police",
    "gen --out b1 --in a0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1",
    "run down.toml",
];

fn run(bed: &Bed, words: &str) -> Finished {
    bed.run(HOST, &format!("{words} --duration 50ms --json"))
}

#[test]
fn ports_of_a_host_are_refused_by_every_command() {
    let Some(bed) = Bed::paired("taken") else { return };
    let scenario = "schema = 1\n[[pipeline]]\nname = \"down\"\nin = \"if:a0\"\nout = \"if:b0\"\n";
    fs::write(bed.path("down.toml"), scenario).expect("the folder is ours");
    bed.stdout(HOST, "ip address add 10.99.0.1/24 dev a0");
    for command in COMMANDS {
        run(&bed, command).assert_refused(&["a0", "10.99.0.1/24", "emulate --on a0", "--take-over"]);
    }
    bed.run(HOST, "search --out b1 --in a0 --trial 10ms --max 1kpps")
        .assert_refused(&["a0", "10.99.0.1/24", "--take-over"]);
    for port in [
        "dpdk:net_af_packet0,iface=a0",
        "dpdk:net_failsafe0,dev(net_af_xdp0,iface=a0)",
        "dpdk:net_tap0,iface=t,remote=a0",
    ] {
        run(&bed, &format!("shape --in '{port}' --out null")).assert_refused(&["a0", "--take-over"]);
    }
    for port in ["if:a0,driver=af_xdp", "dpdk:net_af_xdp0,iface=a0", "dpdk:net_failsafe0,dev(net_af_xdp0,iface=a0)"] {
        run(&bed, &format!("measure --in '{port}'"))
            .assert_refused(&["a0", "10.99.0.1/24", "af_packet only listens", "--take-over"]);
    }
    run(&bed, "measure --in a0 --take-over").assert_refused(&["--take-over", "only listens"]);
    for command in COMMANDS.iter().filter(|command| !command.starts_with("gen")) {
        let finished = run(&bed, &format!("{command} --take-over"));
        assert_eq!(finished.status.code(), Some(0), "{command}: {finished:?}");
    }
    // A link-local address does not make an interface one of the host's. `measure` takes no frames from the host.
    bed.stdout(HOST, "ip address flush dev a0");
    bed.stdout(HOST, "ip address add 169.254.7.7/16 dev a0");
    for command in COMMANDS.iter().filter(|command| !command.starts_with("gen")) {
        let finished = run(&bed, command);
        assert_eq!(finished.status.code(), Some(0), "{command}: {finished:?}");
    }
    bed.stdout(HOST, "ip address add 10.99.0.1/24 dev a0");
    assert_eq!(run(&bed, "measure --in a0").status.code(), Some(0));
}

#[test]
fn each_use_of_a_port_is_named() {
    let Some(bed) = Bed::paired("uses") else { return };
    let refused = |words: &[&str]| run(&bed, "shape --in a0 --out b0").assert_refused(words);
    let passes = || assert_eq!(run(&bed, "shape --in a0 --out b0").status.code(), Some(0));
    passes();
    bed.stdout(HOST, "ip route add 10.98.0.0/16 dev b0");
    refused(&["b0", "the route to 10.98.0.0/16"]);
    bed.stdout(HOST, "ip route del 10.98.0.0/16 dev b0");
    bed.stdout(HOST, "ip route add default dev b0");
    refused(&["b0", "the default route"]);
    bed.stdout(HOST, "ip route del default dev b0");
    bed.stdout(HOST, "ip link add br7 type bridge");
    bed.stdout(HOST, "ip link set br7 up");
    run(&bed, "shape --in a0 --out br7").assert_refused(&["br7", "it is a bridge", "--take-over"]);
    bed.stdout(HOST, "ip link set a0 master br7");
    refused(&["a0", "it is a port of the bridge br7"]);
    run(&bed, "shape --in br7 --out b0").assert_refused(&["br7", "it is a bridge with the port a0"]);
    bed.stdout(HOST, "ip link del br7");
    passes();
    // Both interfaces, in one message.
    bed.stdout(HOST, "ip address add 10.99.0.1/24 dev a0");
    bed.stdout(HOST, "ip address add 10.98.0.1/24 dev b0");
    refused(&["a0", "10.99.0.1/24", "b0", "10.98.0.1/24"]);
    bed.stdout(HOST, "ip address flush dev b0");
    bed.stdout(HOST, "ip address flush dev a0");
    bed.stdout(HOST, "ip address add 169.254.7.7/16 dev a0");
    passes();
    let mut typed = bed.netlathe(HOST, "shape --in a0 --out b0 --duration 50ms");
    typed.env("SSH_CONNECTION", "169.254.7.9 50000 169.254.7.7 22");
    Program::start(typed).wait().assert_refused(&["a0", "SSH session with 169.254.7.9", "--take-over"]);
}

#[test]
fn generator_leaves_arriving_frames_to_the_host() {
    let Some(bed) = Bed::paired("sends") else { return };
    let server = bed.lab.topology().namespace(Node::Server);
    bed.stdout(HOST, &format!("ip link set a1 netns {server}"));
    for (node, end, address) in [(HOST, "a0", "10.99.0.1/24"), (Node::Server, "a1", "10.99.0.2/24")] {
        bed.stdout(node, &format!("ip address add {address} dev {end}"));
        bed.stdout(node, &format!("ip link set {end} up"));
    }
    let stream = "--stream 'udp 10.99.0.1:1 > 10.99.0.2:2' --rate 100pps --duration 60s --json";
    bed.run(HOST, &format!("gen --out if:a0,driver=af_xdp {stream}")).assert_refused(&["a0", "--take-over"]);
    let program = bed.start(HOST, &format!("gen --out a0 {stream}"));
    let sent = || bed.stdout(Node::Server, "cat /sys/class/net/a1/statistics/rx_packets").trim().parse().unwrap_or(0);
    let before: u64 = sent();
    while sent() < before + 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    bed.stdout(HOST, "ping -c 3 -i 0.2 -W 2 10.99.0.2");
    let finished = program.stop();
    assert!(finished.stderr.contains("a0: driver af_packet"), "{finished:?}");
    assert!(number(&finished.report(), "/out/frames") >= 20);
}

#[test]
fn the_ports_of_a_lab_are_its_own() {
    let Some(bed) = Bed::shared("own", |topology| topology.clients = 2) else { return };
    let carry = "--out null --duration 50ms --json";
    for (node, port) in [(Node::Client(1), "eth0"), (Node::Server, "eth0"), (Node::Switch, "p1"), (HOST, "c0")] {
        let finished = bed.run(node, &format!("shape --in {port} {carry}"));
        assert_eq!(finished.status.code(), Some(0), "{node}: {finished:?}");
    }
    // Addresses added to it later are not exempt.
    bed.stdout(Node::Client(1), "ip address add 10.99.0.1/24 dev eth0");
    bed.run(Node::Client(1), &format!("shape --in eth0 {carry}")).assert_refused(&["10.99.0.1/24", "--take-over"]);
    bed.stdout(HOST, "ip address add 10.99.0.1/24 dev c0");
    bed.run(HOST, &format!("shape --in c0 {carry}")).assert_refused(&["10.99.0.1/24", "--take-over"]);
}
