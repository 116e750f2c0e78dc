//! A generator's port as a neighbour of a normal Linux host: found by ARP and neighbour discovery, pinged, and
//! finding the host by itself. They say `SKIP: why` where no lab can be made.
#![cfg(feature = "live")]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "live/bed.rs"]
mod bed;

use bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

/// Datagrams that the server's stack took in, though nobody listens: its own counters say so.
fn taken_in(bed: &Bed, file: &str, line: impl Fn(&str) -> Option<u64>) -> u64 {
    bed.stdout(Node::Server, &format!("cat {file}")).lines().filter_map(line).next().expect(file)
}

fn udp_without_a_port(bed: &Bed) -> u64 {
    // The second line that begins so has the values; NoPorts is the second of them.
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
            // What the host believes, it was told.
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
        // The host's stack took in what was sent: it came to its own hardware address, with right checksums.
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
