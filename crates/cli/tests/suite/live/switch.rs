//! Filler frames at a switch: a Linux bridge forwards the data frames and discards the fillers, each kind for its own
//! reason. netlathe generates the frames, which are sent from a capture. `measure --write` records the frames behind
//! the bridge. Prints `SKIP: why` if the machine permits no labs.

use crate::bed::{Bed, Program, number};
use lab::Node;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Sends the frames of a capture on an interface, no faster than a receiver's ring takes them.
const SEND: &str = "import socket, struct, sys, time\n\
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
    port.bind((sys.argv[2], 0))\n\
    data, at = open(sys.argv[1], 'rb').read(), 24\n\
    while at < len(data):\n\
    \tlength = struct.unpack_from('<I', data, at + 8)[0]\n\
    \tport.send(data[at + 16:at + 16 + length])\n\
    \tat += 16 + length\n\
    \ttime.sleep(0.0001)\n";
/// Number of data frames per run.
const COUNT: usize = 200;
/// The stream of data frames, for `gen`.
const STREAM: &str = "--stream 'udp 10.77.0.1:1000 > 10.77.0.100:9 size random 64B-1518B \
    smac 02:77:00:00:00:01 dmac 02:77:00:00:00:64'";
/// The address that the switch is set to discard.
const HOLE: &str = "02:bb:00:00:00:01";
/// The source address of netlathe's fillers.
const FILLER_SOURCE: [u8; 6] = [0x02, 0x6e, 0x6c, 0x00, 0x00, 0xf1];

/// The frames sent into the switch, or received from it.
#[derive(Debug, Default, PartialEq, Eq)]
struct SwitchedFrames {
    data: Vec<Vec<u8>>,
    fillers: usize,
}

impl SwitchedFrames {
    /// Reads a capture that contains only these frames, and what Linux sends by IPv6 on its own.
    fn of(bed: &Bed, name: &str) -> SwitchedFrames {
        let (records, rest) = bed.records(name);
        assert_eq!(rest, 0, "{name} ends within a record");
        let mut seen = SwitchedFrames::default();
        for record in records {
            let (source, kind) = (&record.bytes[6..12], &record.bytes[12..14]);
            if source == FILLER_SOURCE {
                seen.fillers += 1;
            } else if kind == [0x08, 0x00] {
                seen.data.push(record.bytes);
            } else {
                assert_eq!(kind, [0x86, 0xdd], "{name} has a frame of an unknown sender: {:02x?}", record.bytes);
            }
        }
        seen
    }
}

/// Two clients and the switch that connects them to the box: client 1 sends, the box and client 2 listen.
struct Switched {
    bed: Bed,
}

impl Switched {
    fn new(test: &str) -> Option<Switched> {
        let bed = Bed::shared(test, |topology| topology.clients = 2)?;
        Some(Switched { bed })
    }

    fn bridge(&self, line: &str) {
        self.bed.stdout(Node::Switch, &format!("bridge {line}"));
    }

    fn listen(&self, node: Node, interface: &str, name: &str) -> Program {
        let line = format!("measure --in {interface} --json --write {name} --duration 60s");
        let program = self.bed.start(node, &line);
        let start = Instant::now();
        while !self.bed.path(name).exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "measure does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        program
    }

    /// Sends data frames 10 µs apart, with the fillers that a line of 10 Gbit/s needs between them. Returns what was
    /// sent, what reached the box, and what reached client 2, to which none of it is addressed.
    fn inject(&self, filler: &str) -> [SwitchedFrames; 3] {
        let line = format!(
            "gen --out wire:10G,pcap=sent.pcap,fillers=keep --filler {filler} --count {COUNT} --gap 10us -q {STREAM}"
        );
        let made = self.bed.run(Node::Client(1), &line);
        assert!(made.status.success(), "{made:?}");
        let [arrived, beside] = self.behind(|| {
            let sent = self.bed.command(Node::Client(1), "python3", &["-c", SEND, "sent.pcap", "eth0"]).output();
            let sent = sent.expect("it starts");
            assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        });
        [SwitchedFrames::of(&self.bed, "sent.pcap"), arrived, beside]
    }

    /// The frames that reach the box and client 2 while `happens` runs.
    fn behind(&self, happens: impl FnOnce()) -> [SwitchedFrames; 2] {
        let names = ["box.pcap", "client2.pcap"];
        for name in names {
            let _earlier = fs::remove_file(self.bed.path(name));
        }
        let listeners = [self.listen(Node::Box, "c0", names[0]), self.listen(Node::Client(2), "eth0", names[1])];
        happens();
        // Frames pass a veth within the sender's call. The wait is for a busy machine.
        thread::sleep(Duration::from_millis(200));
        for listener in listeners {
            let report = listener.stop().report();
            assert_eq!(number(&report, "/flow/kernel_drops"), 0, "the receiver lost frames: {report}");
        }
        names.map(|name| SwitchedFrames::of(&self.bed, name))
    }

    /// Checks that the switch removes the fillers and forwards the data frames unchanged and in order.
    fn assert_filtered(&self, filler: &str) {
        let [sent, arrived, beside] = self.inject(filler);
        println!("{filler}: {} data and {} filler frames sent", sent.data.len(), sent.fillers);
        assert_eq!(sent.data.len(), COUNT);
        assert!(sent.fillers > 5 * COUNT, "{} fillers fill nothing", sent.fillers);
        assert_eq!((arrived.data.len(), arrived.fillers), (COUNT, 0), "{filler}: behind the switch");
        assert!(arrived.data == sent.data, "{filler}: data frames were changed or exchanged");
        assert_eq!(beside, SwitchedFrames::default(), "{filler}: at a client that none of it is for");
    }

    /// Checks that the switch floods every filler. This shows that the other tests do not pass merely because there are
    /// no fillers.
    fn assert_flooded(&self, filler: &str) {
        let [sent, arrived, beside] = self.inject(filler);
        assert!(sent.fillers > 5 * COUNT, "{} fillers fill nothing", sent.fillers);
        assert_eq!((arrived.data.len(), arrived.fillers), (COUNT, sent.fillers), "{filler}: behind the switch");
        assert_eq!((beside.data.len(), beside.fillers), (0, sent.fillers), "{filler}: beside");
    }
}

/// A learning switch knows at once that the filler's destination is at the port it came from.
#[test]
fn a_learning_bridge_drops_frames_to_themselves() {
    let Some(switched) = Switched::new("self") else { return };
    switched.assert_filtered("self");

    // Without learning, the switch floods the filler.
    switched.bridge("link set dev p1 learning off");
    switched.bridge("fdb del 02:6e:6c:00:00:f1 dev p1 master");
    switched.assert_flooded("self");
}

/// No bridge forwards 01:80:c2:00:00:01 (IEEE 802.1Q, table 8-1); no setting is needed.
#[test]
fn a_bridge_forwards_no_mac_control_frames() {
    let Some(switched) = Switched::new("control") else { return };
    switched.bridge("link set dev p1 learning off");
    switched.assert_filtered("mac-control");
}

/// Two ways to configure a black hole on a Linux bridge. A local entry delivers the frame to the bridge itself, where
/// nothing receives it. A static entry assigns the address to the port that the fillers come from.
#[test]
fn bridge_drops_frames_to_its_black_hole() {
    let Some(switched) = Switched::new("hole") else { return };
    // The second way must work without learning.
    switched.bridge("link set dev p1 learning off");
    let filler = format!("blackhole={HOLE}");
    switched.assert_flooded(&filler);
    for hole in [format!("{HOLE} dev br0 self local"), format!("{HOLE} dev p1 master static")] {
        switched.bridge(&format!("fdb add {hole}"));
        switched.assert_filtered(&filler);
        switched.bridge(&format!("fdb del {hole}"));
        switched.assert_flooded(&filler);
    }
}

/// The pacer in real time, at a line rate that any machine can fill: the switch receives a busy line and forwards the
/// data.
#[test]
fn fillers_of_the_live_pacer_end_at_the_switch() {
    let Some(switched) = Switched::new("pacer") else { return };
    let paced = || {
        let mut fillers = 0;
        let seen = switched.behind(|| {
            let line = format!(
                "gen --out eth0 --line-rate 100M --pacer filler --filler self --gap 1ms --count {COUNT} --json {STREAM}"
            );
            let report = switched.bed.run(Node::Client(1), &line).report();
            assert_eq!(number(&report, "/out/frames"), COUNT as u64);
            fillers = number(&report, "/fillers/frames") as usize;
        });
        (fillers, seen)
    };
    let (fillers, [arrived, beside]) = paced();
    assert!(fillers > 5 * COUNT, "{fillers} fillers fill nothing");
    assert_eq!((arrived.data.len(), arrived.fillers), (COUNT, 0), "behind the switch");
    assert_eq!(beside, SwitchedFrames::default(), "at a client that none of it is for");

    switched.bridge("link set dev p1 learning off");
    switched.bridge("fdb del 02:6e:6c:00:00:f1 dev p1 master");
    let (fillers, [arrived, _]) = paced();
    assert_eq!(arrived.data.len(), COUNT);
    assert_eq!(arrived.fillers, fillers, "without learning every filler comes");
}
