//! A generator's port as the neighbour of a normal Linux host. Each resolves the other by ARP and neighbour discovery,
//! and the host pings the port. Also a receiver behind routers. Tests print `SKIP: why` if labs are unavailable.

use crate::bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

/// Reads a counter of the server's stack: datagrams that it received without a listener.
fn taken_in(bed: &Bed, file: &str, line: impl Fn(&str) -> Option<u64>) -> u64 {
    bed.stdout(Node::Server, &format!("cat {file}")).lines().filter_map(line).next().expect(file)
}

fn udp_without_a_port(bed: &Bed) -> u64 {
    // The second `Udp:` line has the values. NoPorts is its second value.
    taken_in(bed, "/proc/net/snmp", |line| line.strip_prefix("Udp: ")?.split(' ').nth(1)?.parse().ok())
}

fn udp6_without_a_port(bed: &Bed) -> u64 {
    taken_in(bed, "/proc/net/snmp6", |line| line.strip_prefix("Udp6NoPorts")?.trim().parse().ok())
}

#[test]
fn a_linux_host_receives_from_the_generator_and_pings_it() {
    for driver in ["af_packet", "af_xdp"] {
        let Some(bed) = Bed::alone("pinged", |_| {}) else { return };
        let options = "--gateway 10.77.0.100 --gateway fd77::100 --rate 20kpps --duration 12s --json";
        let streams = "--stream 'udp 10.77.0.50-10.77.0.60:1000 > 10.77.0.100:9 smac 02:00:00:00:00:50' \
                       --stream 'udp [fd77::50]:1000 > [fd77::100]:9 smac 02:00:00:00:00:66'";
        let generator = bed.start(Node::Box, &format!("gen --out if:s0,driver={driver} {streams} {options}"));
        thread::sleep(Duration::from_secs(3));
        for (address, mac) in [("10.77.0.57", "02:00:00:00:00:50"), ("fd77::50", "02:00:00:00:00:66")] {
            let pinged = bed.output(Node::Server, &format!("ping -c 5 -i 0.2 -W 2 -s 1000 {address}"));
            let said = String::from_utf8_lossy(&pinged.stdout).into_owned();
            assert!(pinged.status.success() && said.contains("5 received"), "{driver}: {said}");
            // The host learned this address from the generator.
            let neighbours = bed.stdout(Node::Server, &format!("ip neighbour show {address}"));
            assert!(neighbours.contains(mac), "{driver}: {neighbours}");
        }
        assert!(!bed.output(Node::Server, "ping -c 1 -W 1 10.77.0.61").status.success(), "an address of no stream");
        let report = generator.wait().report();
        let answers = |name: &str| number(&report, &format!("/answers/{name}"));
        assert_eq!(answers("answered/echo"), 10);
        assert!(answers("answered/arp") >= 1 && answers("answered/ndp") >= 1, "{report}");
        let answered: u64 = ["arp", "ndp", "echo"].map(|kind| answers(&format!("answered/{kind}"))).iter().sum();
        assert_eq!(answers("in/frames"), answered + answers("ignored") + answers("held"), "{report}");
        // The host's stack accepted the frames, so the MAC address and the checksums were right.
        let sent = number(&report, "/out/frames") as f64 / 2.0;
        let kernel = [udp_without_a_port(&bed), udp6_without_a_port(&bed)].map(|taken| taken as f64 / sent);
        assert!(kernel.iter().all(|share| (0.9..1.001).contains(share)), "{driver}: {kernel:?} of {sent}");
    }
}

#[test]
fn a_neighbour_that_does_not_answer_is_an_error_before_anything_is_sent() {
    let Some(bed) = Bed::alone("silent", |_| {}) else { return };
    let stream = "--stream 'udp 10.77.0.50:1000 > 10.77.0.100:9'";
    let refused = bed.run(Node::Box, &format!("gen --out s0 --gateway 10.77.0.99 --count 5 {stream}"));
    refused.assert_refused(&["10.77.0.99", "ARP", "dmac"]);
    assert_eq!(udp_without_a_port(&bed), 0);
}

/// A veth pair between two nodes, both ends up and without offloads.
fn wire(bed: &Bed, ends: [(Node, &str); 2]) {
    let [(near, first), (far, second)] = ends;
    let far = bed.lab.topology().namespace(far);
    bed.stdout(near, &format!("ip link add {first} type veth peer name {second} netns {far}"));
    for (node, end) in ends {
        bed.stdout(node, &format!("ethtool -K {end} tx off tso off gso off gro off"));
        bed.output(node, &format!("sysctl -qw net.ipv6.conf.{end}.accept_dad=0"));
        if node == Node::Box {
            bed.output(node, &format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"));
        }
        bed.stdout(node, &format!("ip link set {end} up"));
    }
}

fn forwards(bed: &Bed, node: Node, commands: &[&str]) {
    bed.output(node, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    for command in commands {
        bed.stdout(node, command);
    }
}

/// A busy machine makes rates unreliable. With these options, tests check only that a search has a lower bound and that
/// frames arrive.
const SEARCH: &str =
    "--max 2kpps --min 1kpps --trial 300ms --width 50% --confirm 0 --late 1s --tolerance 50% --wait 300ms --json";

fn finds(bed: &Bed, options: &str) {
    let found = bed.run(Node::Box, &format!("search --out x0 --in x1 {SEARCH} {options}"));
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let report: serde_json::Value = serde_json::from_str(&found.stdout).expect("one object");
    assert!(report["searches"][0]["goals"][0]["lower_fps"].is_number(), "{options}: {found:?}");
    // The router resolves its neighbours before the first trial.
    assert_eq!(report["searches"][0]["trials"][0]["lost"], 0, "{options}: {found:?}");
}

#[test]
fn a_router_is_searched_with_its_address_alone() {
    let Some(bed) = Bed::alone("router", |_| {}) else { return };
    wire(&bed, [(Node::Box, "x0"), (Node::Server, "r0")]);
    wire(&bed, [(Node::Server, "r1"), (Node::Box, "x1")]);
    forwards(
        &bed,
        Node::Server,
        &[
            "ip addr add 198.18.0.254/24 dev r0",
            "ip addr add 198.19.0.254/24 dev r1",
            "ip addr add fd88::254/64 dev r0 nodad",
            "ip addr add fd89::254/64 dev r1 nodad",
            // A router sends neighbour solicitations from its link-local address.
            "ip addr replace fe80::254/64 dev r1 nodad",
        ],
    );
    finds(&bed, "--gateway 198.18.0.254");
    finds(&bed, "--gateway fd88::254 --size 100B --stream 'udp [fd88::1]:1024 > [fd89::1]:9'");
    finds(&bed, "--both --gateway x0=198.18.0.254 --gateway x1=198.19.0.254");
    // Each address is requested by ARP and answered. A ping is answered too.
    let many = "gen --out x0 --in x1 --gateway 198.18.0.254 --rate 1kpps --count 1500 --wait 1s --json \
                --stream 'udp 198.18.0.1:1024 > 198.19.0.1-198.19.0.20:9'";
    let sending = bed.start(Node::Box, many);
    thread::sleep(Duration::from_millis(700));
    let pinged = bed.output(Node::Server, "ping -c 2 -i 0.2 -W 2 198.19.0.7");
    let report = sending.wait().report();
    assert!(String::from_utf8_lossy(&pinged.stdout).contains("2 received"), "{pinged:?}");
    let answered = |kind: &str| number(&report, &format!("/flow/answers/answered/{kind}"));
    assert!(answered("arp") >= 19 && answered("echo") == 2, "{report}");

    // When nothing arrives, the message depends on the cause.
    let lost = |options: &str, words: &[&str]| {
        let line = format!("gen --out x0 --in x1 --count 20 --rate 200pps --wait 1500ms -q {options}");
        let lost = bed.run(Node::Box, &line);
        assert_eq!(lost.status.code(), Some(1), "{lost:?}");
        assert!(words.iter().all(|word| lost.stderr.contains(word)), "{words:?}: {lost:?}");
    };
    let stream = "--stream 'udp 198.18.0.1:1024 > 198.19.0.1:9'";
    lost(stream, &["20 frames were lost: --in saw no frame at all"]);
    let nowhere = "--gateway 198.18.0.254 --stream 'udp 198.18.0.1:1024 > 198.51.100.1:9'";
    lost(nowhere, &["198.18.0.254 refuses them: network unreachable"]);
    bed.stdout(Node::Server, "ip route add 203.0.113.0/24 via 198.19.0.77");
    let elsewhere = "--gateway 198.18.0.254 --stream 'udp 198.18.0.1:1024 > 203.0.113.1:9'";
    lost(
        elsewhere,
        &["--in received none of them", "198.19.0.254 asks for 198.19.0.77, which is not the address of a stream"],
    );
    let search = bed.run(Node::Box, &format!("search --out x0 --in x1 {SEARCH}"));
    assert!(search.stderr.contains("nothing came back in any trial (--in saw"), "{search:?}");
    assert!(search.stderr.contains("--gateway"), "{search:?}");
}

#[test]
fn two_routers_in_a_row_and_a_bridge_are_searched() {
    let Some(bed) = Bed::alone("hops", |_| {}) else { return };
    wire(&bed, [(Node::Box, "x0"), (Node::Client(1), "q0")]);
    wire(&bed, [(Node::Client(1), "q1"), (Node::Server, "r0")]);
    wire(&bed, [(Node::Server, "r1"), (Node::Box, "x1")]);
    let first = [
        "ip addr add 198.18.0.254/24 dev q0",
        "ip addr add 10.5.0.1/24 dev q1",
        "ip route add 198.19.0.0/24 via 10.5.0.2",
    ];
    forwards(&bed, Node::Client(1), &first);
    let second = ["ip addr add 10.5.0.2/24 dev r0", "ip addr add 198.19.0.254/24 dev r1"];
    forwards(&bed, Node::Server, &second);
    finds(&bed, "--gateway 198.18.0.254");
    for (node, ends) in [(Node::Client(1), ["q0", "q1"]), (Node::Server, ["r0", "r1"])] {
        bed.stdout(node, "ip link add bridge type bridge");
        bed.stdout(node, "ip link set bridge up");
        for end in ends {
            bed.stdout(node, &format!("ip addr flush dev {end}"));
            bed.stdout(node, &format!("ip link set {end} master bridge"));
        }
    }
    finds(&bed, "");
}
