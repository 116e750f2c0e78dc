//! How runs start and end, and what remains of runs that are killed or run out of disk space.

use super::CLIENT;
use crate::bed::{Bed, Finished, Program, Sequence, notified, number, sequence_of};
use lab::Node;
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

#[test]
fn a_run_reports_when_frames_pass() {
    let Some(bed) = Bed::shared("ready", |_| {}) else { return };
    let path = bed.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let start = |line: &str| {
        let mut command = bed.netlathe(Node::Box, line);
        command.env("NOTIFY_SOCKET", &path);
        Program::start(command)
    };
    let ready = Some("READY=1".to_owned());

    for command in
        ["shape --in c0 --out s0", "emulate --between c0 s0 --forward 'loss 0%'", "shape --in c0 --out s0 --cores 0,1"]
    {
        let run = start(&format!("{command} --json --duration 60s -v"));
        assert_eq!(notified(&socket), ready, "{command}");
        // The first ping passes, without a retry.
        bed.stdout(CLIENT, "ping -c 1 -W 2 10.77.0.100");
        let finished = run.stop();
        assert_eq!(finished.stderr.lines().filter(|line| *line == "netlathe: ready").count(), 1, "{finished:?}");
        assert!(number(&finished.report(), "/in/frames") > 0, "{finished:?}");
    }

    let measure = start("measure --in c0 --json --count 1 --duration 30s");
    assert_eq!(notified(&socket), ready);
    bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100");
    let finished = measure.wait();
    assert_eq!((number(&finished.report(), "/in/frames"), finished.complaints()), (1, vec![]), "{finished:?}");

    // It ends before anyone reads the socket. systemd must not see a failed service.
    let stream = "--stream 'udp 10.77.0.1:1 > 10.77.0.100:9'";
    start(&format!("gen --out c0 --json --count 1 {stream}")).wait().report();
    assert_eq!(notified(&socket), ready);

    // A run that never carried frames reports nothing. Each of the runs above reported once.
    start("measure --in nosuch0").wait().assert_refused(&["nosuch0"]);
    start(&format!("gen --out nosuch0 {stream}")).wait().assert_refused(&["nosuch0"]);
    start("shape --in c0 --out nosuch0").wait().assert_refused(&["nosuch0"]);
    socket.set_nonblocking(true).expect("it can be asked");
    assert_eq!(notified(&socket), None);

    // The reader is gone, but the run must continue.
    drop(socket);
    let finished = start(&format!("gen --out c0 --json --count 1 {stream}")).wait();
    assert_eq!(number(&finished.report(), "/out/frames"), 1);
    assert!(finished.stderr.contains("NOTIFY_SOCKET: "), "{finished:?}");
}

/// Runs every command that lasts until a signal ends it.
fn assert_ends(bed: &Bed, ended_by: impl Fn(Program) -> Finished, before: &str, options: &str) {
    for (node, command) in [
        (Node::Box, "shape --in c0 --out s0 --rate 10Mbps"),
        (Node::Box, "shape --in if:c0,driver=af_packet --out if:s0,driver=af_packet"),
        (CLIENT, "gen --out eth0 --stream 'udp 10.77.0.1:1000 > 10.77.0.100:9' --rate 1kpps"),
        (Node::Server, "measure --in eth0"),
    ] {
        // Reset SIGHUP to its default. Under nohup it would be ignored.
        let line = format!("sh -c '{before} exec \"$@\"' sh env --default-signal=HUP {} ", crate::bed::netlathe());
        let mut words = crate::common::words(&line);
        words.extend(crate::common::words(&format!("{command} --json {options}")));
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let program = Program::start(bed.command(node, "sh", &words));
        let finished = ended_by(program);
        assert_eq!((finished.status.code(), finished.complaints()), (Some(0), vec![]), "{command}: {finished:?}");
        finished.report();
    }
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} still has an XDP program");
        let flags = bed.stdout(Node::Box, &format!("ip link show dev {interface}"));
        assert!(flags.contains("PROMISC"), "{interface} is not promiscuous, as the lab has set it: {flags}");
    }
}

#[test]
fn every_end_is_clean() {
    let Some(bed) = Bed::shared("ends", |_| {}) else { return };
    let after = |signals: &'static [&'static str]| {
        move |program: Program| {
            // The signal also works during startup: handlers are installed first.
            thread::sleep(Duration::from_millis(700));
            for signal in signals {
                program.signal(signal);
            }
            program.wait()
        }
    };
    assert_ends(&bed, after(&["INT"]), "", "");
    assert_ends(&bed, after(&["TERM"]), "", "");
    // SIGHUP is what a closing terminal sends.
    assert_ends(&bed, after(&["HUP"]), "", "");
    assert_ends(&bed, after(&["INT"]), "trap \"\" INT TERM;", "");
    assert_ends(&bed, after(&["TERM"]), "trap \"\" INT TERM;", "");
    assert_ends(&bed, Program::wait, "", "--duration 500ms");
}

#[test]
fn a_killed_receiver_leaves_whole_records() {
    let Some(bed) = Bed::shared("killed", |_| {}) else { return };
    let shape = bed.shape("");
    let capture = bed.capture("killed.pcap");
    let sender = bed.sender(1, 200, "5kpps", 15_000);
    thread::sleep(Duration::from_millis(2_500));
    capture.signal("KILL");
    assert_eq!(capture.wait().status.code(), None);
    sender.wait().report();
    shape.stop().report();
    let records = bed.streams("killed.pcap");
    // The frames of the first second have been flushed.
    let sequence = Sequence::of(&records, 1, 15_000);
    assert!(sequence.arrived > 2_000, "{sequence:?}");
    assert_eq!(sequence.missing, 15_000 - sequence.arrived);
    let numbers = records.iter().map(sequence_of);
    assert!(numbers.eq(0..sequence.arrived), "records that are not the first ones");
    assert_eq!(bed.records("killed.pcap").1, 0, "the last record is cut");
}

#[test]
fn a_killed_shape_leaves_usable_interfaces() {
    let Some(bed) = Bed::shared("again", |_| {}) else { return };
    for driver in ["af_xdp", "af_packet"] {
        for next in ["af_xdp", "af_packet"] {
            let ports = |driver| format!("--in if:c0,driver={driver} --out if:s0,driver={driver}");
            let shape = bed.between(&ports(driver), "");
            shape.signal("KILL");
            shape.wait();
            let shape = bed.between(&ports(next), "");
            bed.send(1, 100, "1kpps", 500);
            let finished = shape.stop();
            assert!(number(&finished.report(), "/out/frames") >= 500, "{driver}, then {next}: {finished:?}");
        }
    }
    for interface in ["c0", "s0"] {
        assert!(!bed.has_xdp(interface), "{interface} still has an XDP program");
    }
}

/// A command with 64 KiB of disk in the folder `small`, in its own mount namespace.
fn with_little_space(bed: &Bed, node: Node, line: &str) -> Program {
    let line =
        format!("mkdir -p small && mount -t tmpfs -o size=64k none small && exec {} {line}", crate::bed::netlathe());
    Program::start(bed.command(node, "unshare", &["-m", "sh", "-c", &line]))
}

#[test]
fn a_disk_that_is_full_costs_no_report() {
    let Some(bed) = Bed::shared("full", |_| {}) else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1000B'";
    let sender = bed.start(CLIENT, &format!("gen --out eth0 --rate 1kpps --duration 30s -q {stream}"));
    for (file, line) in [
        ("small/a.pcap", "measure --in c0 --write small/a.pcap --json --duration 50s"),
        ("small/l.csv", &format!("gen --out line:10G,frames=small/l.csv --gap 10us --count 20000 --json {stream}")),
        ("small/d.csv", "emulate --in c0 --out s0 --forward 'delay 1ms' --decisions small/d.csv --json --duration 4s"),
    ] {
        let finished = with_little_space(&bed, Node::Box, line).wait();
        assert_eq!(finished.status.code(), Some(2), "{finished:?}");
        let complaints = finished.complaints();
        assert!(complaints.len() == 1 && complaints[0].contains(file), "{complaints:?}");
        assert!(number(&finished.whole_report()["pipelines"][0], "/out/frames") > 50, "{finished:?}");
    }
    drop(sender);
}
