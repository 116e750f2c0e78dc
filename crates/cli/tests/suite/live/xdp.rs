//! Interfaces with AF_XDP: which process owns the XDP program, and which queues are read. Each test prints `SKIP: why`
//! if the machine permits no labs, or no XDP sockets in them.

use crate::bed::{Bed, Program, number};
use lab::{Node, Topology};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const XDP: &str = "--in if:c0,driver=af_xdp --out if:s0,driver=af_xdp";

/// Prints the reason and returns `None` if labs, or XDP sockets in them, are unavailable.
fn bed(test: &str, change: impl FnOnce(&mut Topology)) -> Option<Bed> {
    let bed = Bed::shared(test, change)?;
    let tried = bed.run(Node::Box, "shape --in if:c0,driver=af_xdp --out null --duration 10ms -q");
    if tried.stderr.contains("need root") {
        println!("SKIP: {}", tried.stderr);
        return None;
    }
    Some(bed)
}

fn assert_carries(bed: &Bed, shape: Program) {
    bed.send(1, 100, "1kpps", 300);
    let report = shape.stop().report();
    assert!(number(&report, "/out/frames") >= 300, "{report}");
}

/// The line of `ip` that shows an XDP program.
fn program(bed: &Bed, interface: &str) -> String {
    let shown = bed.stdout(Node::Box, &format!("ip -d link show dev {interface}"));
    shown.lines().find(|line| line.contains("prog/xdp")).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_second_netlathe_is_refused_and_the_first_continues() {
    let Some(bed) = bed("two", |_| {}) else { return };
    let first = bed.between(XDP, "");
    let before = program(&bed, "c0");
    let who = format!("process {}", first.pid());
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 10";
    for line in [
        "shape --in c0 --out null --duration 1s".to_owned(),
        format!("gen --out if:c0,driver=af_xdp {stream}"),
        format!("gen --out c0 {stream}"),
    ] {
        bed.run(Node::Box, &line).assert_refused(&["c0", &who, "af_xdp"]);
    }
    assert_eq!(program(&bed, "c0"), before);
    let beside = bed.run(Node::Box, "measure --in c0 --duration 1ms --json");
    beside.report();
    assert!(beside.stderr.contains("c0 has an XDP program (id ") && beside.stderr.contains("xsk"), "{beside:?}");
    let without = bed.run(Node::Server, "measure --in eth0 --duration 1ms --json");
    assert!(!without.stderr.contains("XDP"), "{without:?}");
    assert_carries(&bed, first);
    assert!(!bed.has_xdp("c0"));
}

#[test]
fn a_program_of_somebody_else_is_left_where_it_is() {
    let Some(bed) = bed("other", |_| {}) else { return };
    let killed = bed.between(XDP, "");
    killed.signal("KILL");
    killed.wait();
    // Remove the record, so that the owner of the program is unknown.
    let namespace = bed.stdout(Node::Box, "stat -L -c %i /proc/self/ns/net");
    let index = bed.stdout(Node::Box, "cat /sys/class/net/c0/ifindex");
    let record = format!("/run/netlathe/xdp/{}-{}", namespace.trim(), index.trim());
    std::fs::remove_file(&record).expect("a killed netlathe leaves its record");
    let before = program(&bed, "c0");
    assert!(before.contains("xsk_def_prog"), "{before}");

    for line in ["shape --in c0 --out null --duration 1s", "shape --in if:c0,driver=af_xdp --out null --duration 1s"] {
        let words = ["c0", "xsk_def_prog", "ip link set dev c0 xdp off", "driver=af_packet"];
        bed.run(Node::Box, line).assert_refused(&words);
    }
    assert_eq!(program(&bed, "c0"), before);
    // Follow the advice in the message. Without its socket, the program passes frames on to the kernel.
    let packets = bed.between("--in if:c0,driver=af_packet --out s0", "");
    bed.send(1, 100, "1kpps", 300);
    let finished = packets.stop();
    assert!(number(&finished.report(), "/out/frames") >= 300, "{finished:?}");
    assert!(finished.stderr.contains("c0 has an XDP program"), "{finished:?}");
    assert_eq!(program(&bed, "c0"), before);
    bed.stdout(Node::Box, "ip link set dev c0 xdp off");
    assert_carries(&bed, bed.between(XDP, ""));
}

/// A run that is killed after it attached its program and before it recorded it leaves a record without a program.
#[test]
fn takes_over_a_program_that_was_not_recorded_in_time() {
    let Some(bed) = Bed::alone("unrecorded", |_| {}) else { return };
    let killed = bed.between(XDP, "");
    let owner = killed.pid();
    killed.signal("KILL");
    killed.wait();
    let namespace = bed.stdout(Node::Box, "stat -L -c %i /proc/self/ns/net");
    for interface in ["c0", "s0"] {
        let index = bed.stdout(Node::Box, &format!("cat /sys/class/net/{interface}/ifindex"));
        let record = format!("/run/netlathe/xdp/{}-{}", namespace.trim(), index.trim());
        std::fs::write(record, format!("{owner}\n")).expect("a killed netlathe leaves its record");
    }
    assert!(program(&bed, "c0").contains("xsk_def_prog"));
    assert_carries(&bed, bed.between(XDP, ""));
    assert!(!bed.has_xdp("c0"));
}

#[test]
fn folder_of_another_user_leads_to_no_other_files() {
    let Some(bed) = Bed::alone("link", |_| {}) else { return };
    let (folder, kept) = (PathBuf::from("/run/netlathe"), bed.path("kept"));
    std::fs::create_dir_all(&kept).expect("our folder");
    for name in ["config", "12-3"] {
        std::fs::write(kept.join(name), "x").expect("our file");
    }
    let _none = std::fs::remove_dir_all(folder.join("xdp"));
    std::os::unix::fs::symlink(&kept, folder.join("xdp")).expect("root may");
    std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534)).expect("root may");
    assert_carries(&bed, bed.between(XDP, ""));
    let files: Vec<_> =
        std::fs::read_dir(&kept).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let there = std::fs::symlink_metadata(folder.join("xdp")).expect("a new folder");
    assert_eq!((there.is_dir(), there.permissions().mode() & 0o777), (true, 0o700));
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&folder).expect("it is there")), 0);
}

#[test]
fn rejects_unread_queues() {
    let Some(bed) = bed("queues", |topology| topology.queues = 2) else { return };
    for queues in ["", ",queues=1", ",queues=2"] {
        let refused = bed.run(Node::Box, &format!("shape --in if:c0,driver=af_xdp{queues} --out s0 --duration 1s"));
        refused.assert_refused(&["c0", "2 queues", "ethtool -L c0 rx 1 tx 1", "driver=af_packet"]);
    }
    assert!(!bed.has_xdp("c0"));
    bed.stdout(Node::Box, "ethtool -L c0 rx 1 tx 1");
    let half = bed.run(Node::Box, "shape --in if:c0,driver=af_xdp --out null --duration 1s");
    half.assert_refused(&["the other end of this veth", "rx 1 tx 1 at both ends"]);
    for (node, interface) in [(Node::Client(1), "eth0"), (Node::Box, "s0"), (Node::Server, "eth0")] {
        bed.stdout(node, &format!("ethtool -L {interface} rx 1 tx 1"));
    }
    assert_carries(&bed, bed.between(XDP, ""));
    // A port that only sends loses nothing on unread queues.
    let line = "gen --out if:s0,driver=af_xdp,queues=1 --json --count 10 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    bed.stdout(Node::Box, "ethtool -L s0 rx 2 tx 2");
    assert_eq!(number(&bed.run(Node::Box, line).report(), "/out/frames"), 10);
}

#[test]
fn removes_records_of_a_deleted_namespace() {
    let Some(bed) = bed("swept", |_| {}) else { return };
    let Some(other) = Bed::shared("swept-too", |_| {}) else { return };
    let record = |bed: &Bed| {
        let namespace = bed.stdout(Node::Box, "stat -L -c %i /proc/self/ns/net");
        let index = bed.stdout(Node::Box, "cat /sys/class/net/c0/ifindex");
        PathBuf::from(format!("/run/netlathe/xdp/{}-{}", namespace.trim(), index.trim()))
    };
    let (gone, stays) = (record(&other), record(&bed));
    for bed in [&bed, &other] {
        let killed = bed.between(XDP, "");
        killed.signal("KILL");
        killed.wait();
    }
    assert!(gone.exists() && stays.exists());
    drop(other);
    // The kernel removes the namespace with some delay.
    let begin = Instant::now();
    while gone.exists() {
        bed.run(Node::Box, "gen --out if:s0,driver=af_xdp -q --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
        assert!(begin.elapsed() < Duration::from_secs(40), "{} stays", gone.display());
    }
    assert!(stays.exists(), "its program is still on its interface");
    assert_carries(&bed, bed.between(XDP, ""));
    assert!(!stays.exists() && !bed.has_xdp("c0"));
}

#[test]
fn reports_an_xdp_program_that_moved_with_its_interface() {
    let Some(bed) = bed("moved", |_| {}) else { return };
    let shape = bed.between(XDP, "");
    let there = Program::start(bed.command(Node::Server, "sleep", &["60"]));
    bed.stdout(Node::Box, &format!("ip link set c0 netns {}", there.pid()));
    let finished = shape.wait();
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(finished.stderr.contains("ip link set dev c0 xdp off"), "{finished:?}");
}

#[test]
fn warns_of_an_xdp_program_removed_during_a_run() {
    let Some(bed) = bed("taken", |_| {}) else { return };
    let shape = bed.between(XDP, "");
    bed.stdout(Node::Box, "ip link set dev c0 xdp off");
    let finished = shape.stop();
    finished.report();
    assert!(finished.stderr.contains("if:c0,driver=af_xdp had its XDP program removed or replaced"), "{finished:?}");
    assert!(!finished.stderr.contains("if:s0,driver=af_xdp had"), "{finished:?}");
}

#[test]
fn a_lock_counts_only_as_long_as_its_owner_lives() {
    let Some(bed) = Bed::alone("locked", |_| {}) else { return };
    let killed = bed.between(XDP, "");
    killed.signal("KILL");
    killed.wait();
    let namespace = bed.stdout(Node::Box, "stat -L -c %i /proc/self/ns/net");
    let index = bed.stdout(Node::Box, "cat /sys/class/net/c0/ifindex");
    let record = PathBuf::from(format!("/run/netlathe/xdp/{}-{}", namespace.trim(), index.trim()));
    // Other users can neither open a record nor list the folder.
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode(&record), mode(record.parent().expect("a folder"))), (0o600, 0o700));
    // A process that opened the record earlier and holds its lock.
    let mut holder = bed.command(Node::Box, "flock", &[&record.display().to_string(), "sleep", "60"]);
    let mut holder = holder.spawn().expect("flock is there");
    std::thread::sleep(Duration::from_millis(300));
    assert_carries(&bed, bed.between(XDP, ""));
    let _gone = holder.kill();
    holder.wait().expect("it was started");
}
