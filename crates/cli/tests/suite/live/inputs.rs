//! A pipeline with several live inputs.

use crate::bed::{Bed, Program, notified, number};
use lab::Node;
use serde_json::Value;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const PORTS: &str = "--in if:a1,driver=af_packet --in if:b1,driver=af_packet --out if:out0,driver=af_packet";

/// Two pairs for senders and a third one for the output.
fn bed(test: &str) -> Option<Bed> {
    let bed = Bed::paired(test)?;
    bed.stdout(Node::Box, "ip link add out0 type veth peer name out1");
    for end in ["out0", "out1"] {
        bed.stdout(Node::Box, &format!("ethtool -K {end} tx off tso off gso off gro off"));
        bed.output(Node::Box, &format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=1"));
        bed.stdout(Node::Box, &format!("ip link set {end} up"));
    }
    Some(bed)
}

/// Starts `shape` from both ports, and waits until frames pass.
fn shape(bed: &Bed, options: &str) -> Program {
    let path = bed.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let mut command = bed.netlathe(Node::Box, &format!("shape {PORTS} --one-way --json --duration 60s {options}"));
    command.env("NOTIFY_SOCKET", &path);
    let shape = Program::start(command);
    assert_eq!(notified(&socket).as_deref(), Some("READY=1"));
    shape
}

fn sender(bed: &Bed, port: &str, source: u8) -> Program {
    let stream = format!("udp 10.0.0.{source}:1000 > 10.0.0.9:9 size 200B");
    let out = format!("--out if:{port},driver=af_packet");
    bed.start(Node::Box, &format!("gen {out} --rate 1kpps --count 200 --json --stream '{stream}'"))
}

#[test]
fn crests_from_two_ports_leave_one_port_in_order() {
    let Some(bed) = bed("inputs") else { return };
    bed.await_quiet();
    // Programs take different times to start, and the machine may hiccup within a crest.
    let order = "10.0.0.2,10.0.0.1 gap 20ms silence 200ms";
    let receiver =
        format!("measure --in out1 --only 'udp dport 9' --sources '{order}' --count 400 --duration 60s --json");
    let receiver = bed.start(Node::Box, &receiver);
    let shape = shape(&bed, &format!("--sync 'order {order} wait 20s' --report page"));
    let senders = [sender(&bed, "a0", 1), sender(&bed, "b0", 2)];
    for sender in senders {
        assert_eq!(number(&sender.wait().report(), "/out/frames"), 200);
    }
    let seen = receiver.wait().report();
    let shaped = shape.stop().report();
    assert_eq!((number(&shaped, "/in/frames"), number(&shaped, "/out/frames")), (400, 400), "{shaped}");
    assert_eq!(
        (
            number(&seen, "/arrivals/crests"),
            number(&seen, "/arrivals/overlapping"),
            number(&seen, "/arrivals/out_of_turn")
        ),
        (2, 0, 0),
        "{seen}"
    );
    let gap =
        |report: &Value, name: &str| report.pointer(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{report}"));
    assert_eq!((number(&shaped, "/crest_gap/count"), number(&seen, "/crest_gap/count")), (1, 1));
    assert!(gap(&shaped, "/crest_gap/min_ns") >= 20e6, "a departure is never early: {shaped}");
    // The receiver's stamp may be late.
    assert!(gap(&seen, "/crest_gap/min_ns") > 19e6, "{seen}");
    for source in shaped["sources"].as_array().expect("sources") {
        assert_eq!((number(source, "/out/frames"), number(source, "/missed")), (200, 0), "{source}");
    }
    let page = fs::read_to_string(bed.path("page/report.html")).expect("a page");
    let lanes = page.split_once("Sources as sent").expect("lanes").1.split_once("</svg>").expect("a drawing").0;
    assert_eq!(lanes.matches("<polyline").count(), 2, "one of each source");
    assert!(page.contains("Gaps between crests"));
}

#[test]
fn several_inputs_carry_nothing_back() {
    let Some(bed) = bed("inputsway") else { return };
    let refused = bed.run(Node::Box, &format!("shape {PORTS} --gap 1ms --duration 1s"));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--one-way"), "{refused:?}");
    // Inputs after the first are checked too.
    let pair = "--in if:a1,driver=af_packet --in if:out1,driver=af_packet --out if:out0,driver=af_packet";
    let looped = bed.run(Node::Box, &format!("shape {pair} --one-way --gap 1ms --duration 1s"));
    assert!(looped.status.code() == Some(2) && looped.stderr.contains("ends of one veth pair"), "{looped:?}");
    let missing = "--in if:a1,driver=af_packet --in if:nosuch0,driver=af_packet --out if:out0,driver=af_packet";
    let missing = bed.run(Node::Box, &format!("shape {missing} --one-way --gap 1ms --duration 1s"));
    assert!(missing.status.code() == Some(2) && missing.stderr.contains("nosuch0"), "{missing:?}");
    // Without an order, the frames of both inputs leave as they arrive.
    let shape = shape(&bed, "");
    let senders = [sender(&bed, "a0", 1), sender(&bed, "b0", 2)];
    for sender in senders {
        sender.wait();
    }
    std::thread::sleep(Duration::from_millis(100));
    let report = shape.stop().report();
    assert_eq!(number(&report, "/in/frames"), 400, "{report}");
}
