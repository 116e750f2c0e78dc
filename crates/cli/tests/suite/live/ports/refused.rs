//! Impossible requests are refused in one line that gives the remedy.

use crate::bed::{Bed, Program};
use lab::Node;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn reports_an_unopenable_port_in_one_line() {
    let Some(bed) = Bed::shared("bad", |_| {}) else { return };
    bed.stdout(Node::Box, "ip link add d0 type veth peer name d1");
    bed.stdout(Node::Box, "ip tuntap add tun0 mode tun");
    bed.stdout(Node::Box, "ip link set tun0 up");
    let files = |bed: &Bed| fs::read_dir(bed.path("")).expect("it is there").count();
    let before = files(&bed);
    for (line, said) in [
        ("shape --in nosuch0 --out s0", &["no interface nosuch0", "ip link"][..]),
        ("shape --in c0 --out nosuch0", &["no interface nosuch0", "ip link"]),
        ("shape --in if:nosuch0,driver=af_packet --out s0", &["no interface nosuch0"]),
        ("gen --out nosuch0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["no interface nosuch0"]),
        ("measure --in nosuch0", &["no interface nosuch0"]),
        ("measure --in nosuch0 --write x.pcap", &["no interface nosuch0"]),
        ("shape --in d0 --out s0", &["d0 is down", "ip link set d0 up"]),
        ("shape --in c0 --out d0", &["d0 is down"]),
        ("gen --out d0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["d0 is down"]),
        ("measure --in d0", &["d0 is down", "ip link set d0 up"]),
        ("measure --in d0 --write x.pcap", &["d0 is down"]),
        (
            "shape --in tun0 --out s0",
            &["tun0 carries packets without an Ethernet header", "name an Ethernet interface"],
        ),
        ("gen --out tun0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'", &["tun0 carries packets without"]),
        ("measure --in tun0", &["tun0 carries packets without"]),
        ("measure --in null", &["nothing can be received from null"]),
        ("measure --in eth0,driver=af_packet", &["no interface eth0"]),
        ("shape --in c0 --out pcap:x.pcap", &["one port is live", "measure"]),
        ("shape --in pcap:x.pcap --out s0", &["one port is live"]),
        ("shape --in c0 --out wire:10G", &["one port is live"]),
        ("shape --in c0 --out s0 --rate 50%", &["line"]),
        ("shape --in c0 --out s0 --filler self", &["filler"]),
        ("shape --in c0 --out s0 --pacer filler", &["filler"]),
        ("shape --in c0 --out c0", &["c0"]),
        ("shape --in c0 --out dpdk:net_nosuch0", &["net_nosuch0", "no such driver"]),
        ("shape --in c0 --out dpdk:net_null0,foo=bar", &["net_null0", "arguments"]),
        ("shape --in tap:c0 --out s0", &["c0", "choose another name"]),
        ("shape --in c0 --out dpdk:net_af_packet9,iface=nosuch0", &["nosuch0"]),
        ("shape --in c0 --out pci:0000:ff:1f.7", &["0000:ff:1f.7", "netlathe doctor"]),
        ("shape --in c0 --out pci:nonsense", &["nonsense"]),
    ] {
        let started = Instant::now();
        let finished = bed.run(Node::Box, &format!("{line} --duration 5s"));
        println!("{line}: {}", finished.stderr);
        finished.assert_refused(said);
        assert!(started.elapsed() < Duration::from_secs(10), "{line} took {:?}", started.elapsed());
    }
    assert_eq!(files(&bed), before, "a refused command leaves files");
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} has an XDP program");
    }
}

#[test]
fn names_the_remedy_for_missing_rights() {
    let Some(bed) = Bed::shared("rights", |_| {}) else { return };
    let program = readable(&bed);
    for line in [
        "shape --in c0 --out s0",
        "shape --in if:c0,driver=af_packet --out s0",
        "shape --in tap:nl0 --out s0",
        "measure --in c0",
        "gen --out s0 --stream 'udp 1.1.1.1:1 > 2.2.2.2:2'",
    ] {
        let words = crate::common::words(line);
        let mut arguments = vec!["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", program.as_str()];
        arguments.extend(words.iter().map(String::as_str));
        let mut command = bed.command(Node::Box, "setpriv", &arguments);
        command.current_dir("/");
        let finished = Program::start(command).wait();
        println!("{line}: {}", finished.stderr);
        finished.assert_refused(&["root"]);
    }
}

/// A copy of netlathe that any user may run, wherever the target folder is.
fn readable(bed: &Bed) -> String {
    let copy = bed.path("netlathe");
    fs::copy(crate::bed::netlathe(), &copy).expect("it can be copied");
    fs::set_permissions(bed.path(""), PermissionsExt::from_mode(0o755)).expect("it is ours");
    copy.to_string_lossy().into_owned()
}
