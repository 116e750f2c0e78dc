//! Frames that somebody else carries, too: the kernel, another netlathe, or the run itself in a circle.

use super::bed::{Bed, number};
use lab::Node;
use std::thread;
use std::time::Duration;

/// What this machine sends by an interface has not arrived there, whoever sends it.
#[test]
fn what_is_sent_by_an_interface_does_not_come_in() {
    let Some(bed) = Bed::paired("outgoing") else { return };
    bed.stdout(Node::Box, "ip address add 10.99.0.1/24 dev a0");
    for queues in [1, 2] {
        let ports = format!("--in if:a0,driver=af_packet,queues={queues} --out if:b0,driver=af_packet");
        let shape = bed.start(Node::Box, &format!("shape {ports} --json --duration 5s"));
        thread::sleep(Duration::from_millis(2_000));
        // Asks for that address on a0, and nobody answers.
        assert!(!bed.output(Node::Box, "ping -c 1 -W 1 10.99.0.2").status.success());
        let stream = "--stream 'udp 10.99.0.2:1 > 10.99.0.1:9'";
        bed.run(Node::Box, &format!("gen --out a1 --count 10 --rate 1kpps {stream} --json")).report();
        let report = shape.wait().report();
        assert_eq!((number(&report, "/in/frames"), number(&report, "/return/in/frames")), (10, 0), "{report}");
    }
}
