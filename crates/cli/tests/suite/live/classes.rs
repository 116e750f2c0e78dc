//! Classes with their own schedules, ordered sources and buffers over real interfaces, checked against the receiver's
//! capture and the output of ping.

use crate::bed::{Bed, Program, Record, Sequence, number};
use lab::Node;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::Duration;

const CLIENT: Node = Node::Client(1);
const MS: u64 = 1_000_000;

fn class<'r>(report: &'r Value, name: &str) -> &'r Value {
    let classes = report["classes"].as_array().expect("classes");
    classes.iter().find(|class| class["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// A figure in ns.
#[track_caller]
fn ns(report: &Value, pointer: &str) -> f64 {
    report.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no figure {pointer} in {report}"))
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Round-trip times in ns, parsed from ping's `time=20.4 ms`.
fn round_trips(printed: &str) -> Vec<u64> {
    let times = printed.split("time=").skip(1).filter_map(|rest| rest.split_whitespace().next());
    times.map(|ms| (ms.parse::<f64>().expect("a time") * 1e6) as u64).collect()
}

/// The mean gap. An absolute schedule keeps it, even if single frames are late.
fn mean_gap(records: &[Record]) -> u64 {
    (records[records.len() - 1].ns - records[0].ns) / (records.len() as u64 - 1)
}

/// Waits until the capture holds `count` frames of streams.
fn await_streams(bed: &Bed, name: &str, count: usize) {
    for _ in 0..300 {
        if bed.streams(name).len() >= count {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn each_class_has_its_own_stages_and_schedule() {
    let Some(bed) = Bed::alone("classes", |_| {}) else { return };
    let shape =
        bed.shape("--class 'echo = icmp' --stage 'echo=delay 30ms' --class 'even = udp dport 9' --gap even=2ms");
    let capture = bed.capture("seen.pcap");
    // The class of the stream has a backlog, which echoes overtake.
    let sender = bed.sender(1, 200, "5kpps", 1_000);
    let echoes = bed.output(CLIENT, "ping -c 12 -i 0.2 -W 5 10.77.0.100");
    let trips = round_trips(&String::from_utf8_lossy(&echoes.stdout));
    let sent = sender.wait().report();
    assert_eq!(number(&sent, "/out/frames"), 1_000);
    // The default class has no schedule, so nothing is delayed.
    let neighbours = bed.stdout(CLIENT, "ping -6 -c 3 -i 0.2 -W 2 fd77::100");
    await_streams(&bed, "seen.pcap", 1_000);
    let report = shape.stop().report();
    capture.stop();

    assert!(trips.len() >= 9, "{trips:?}");
    assert!((30 * MS..40 * MS).contains(&median(trips.clone())), "{trips:?}");
    assert!(median(round_trips(&neighbours)) < 20 * MS, "{neighbours}");
    let records = bed.streams("seen.pcap");
    let sequence = Sequence::of(&records, 1, 1_000);
    assert_eq!(sequence, Sequence { arrived: 1_000, ..Sequence::default() });
    let gap = mean_gap(&records);
    assert!((1_800_000..2_200_000).contains(&gap), "mean gap {gap} ns");
    let (echo, even) = (class(&report, "echo"), class(&report, "even"));
    assert!(number(echo, "/out/frames") >= 9 && ns(echo, "/delay/min_ns") >= 30e6, "{echo}");
    assert_eq!((number(even, "/in/frames"), number(even, "/out/frames")), (1_000, 1_000));
    assert!(
        (ns(even, "/conformance/asked_mean_ns") - 2e6).abs() < 1.0 && number(even, "/depth/max_frames") > 500,
        "{even}"
    );
}

#[test]
fn class_with_an_ended_waveform_takes_no_buffers() {
    let Some(bed) = Bed::alone("ended", |_| {}) else { return };
    let shape = bed.shape("--class 'ends = udp dport 9' --rate 'ends=burst 8Gbps for 2ms every 10ms count 1'");
    // Send more frames than a pool has buffers.
    let sent = bed.sender(1, 200, "60kpps", 120_000).wait().report();
    assert_eq!(number(&sent, "/out/frames"), 120_000);
    let trips = round_trips(&bed.stdout(CLIENT, "ping -c 3 -i 0.2 -W 5 10.77.0.100"));
    let report = shape.stop().report();
    assert_eq!(trips.len(), 3, "{report}");
    let ends = class(&report, "ends");
    assert!(number(ends, "/drops/ended") > 1_000 && number(ends, "/held") == 1, "{ends}");
    assert_eq!(report.pointer("/drops/pool"), None, "{report}");
}

#[test]
fn crests_of_three_sources_leave_in_order() {
    let Some(bed) = Bed::alone("sync", |topology| topology.clients = 3) else { return };
    // Programs take different times to start, and the machine may hiccup within a crest.
    let order = "crests=order 10.77.0.3,10.77.0.1,10.77.0.2 gap 20ms wait 20s silence 200ms";
    let shape = bed.shape(&format!("--class 'crests = udp dport 9' --sync '{order}'"));
    let capture = bed.capture("seen.pcap");
    let senders: Vec<Program> = (1..=3).map(|n| bed.sender(n, 200, "1kpps", 200)).collect();
    for sender in senders {
        assert_eq!(number(&sender.wait().report(), "/out/frames"), 200);
    }
    await_streams(&bed, "seen.pcap", 600);
    let report = shape.stop().report();
    capture.stop();

    let records = bed.streams("seen.pcap");
    for client in 1..=3 {
        assert_eq!(Sequence::of(&records, client, 200), Sequence { arrived: 200, ..Sequence::default() });
    }
    let crests: Vec<&[Record]> = records.chunk_by(|a, b| a.bytes[11] == b.bytes[11]).collect();
    let order: Vec<u8> = crests.iter().map(|crest| crest[0].bytes[11]).collect();
    assert_eq!(order, [3, 1, 2], "each source has one crest, in the order asked");
    for pair in crests.windows(2) {
        let gap = pair[1][0].ns - pair[0][pair[0].len() - 1].ns;
        // The receiver's stamp may be late, but a departure is never early.
        assert!(gap > 19 * MS, "{gap} ns between two crests");
    }
    let sources = class(&report, "crests")["sources"].as_array().expect("sources");
    for source in sources {
        assert_eq!((number(source, "/crests"), number(source, "/missed")), (1, 0), "{source}");
        assert_eq!(source["overlap"]["out_ns"], 0.0, "{source}");
    }
    assert_eq!(sources.len(), 3);
}

#[test]
fn a_buffer_lets_a_slow_sender_keep_a_fast_schedule() {
    let Some(bed) = Bed::alone("buffer", |_| {}) else { return };
    // 100 frames arrive within 400 ms and should leave within 200 ms.
    let run = |buffer: &str| {
        let _earlier = fs::remove_file(bed.path("seen.pcap"));
        let shape = bed.shape(&format!("--class 'wave = udp dport 9' --gap wave=2ms {buffer}"));
        let capture = bed.capture("seen.pcap");
        bed.send(1, 200, "250pps", 100);
        await_streams(&bed, "seen.pcap", 100);
        let receiver = capture.stop().report();
        (class(&shape.stop().report(), "wave").clone(), receiver)
    };
    let (wave, _) = run("");
    assert!(number(&wave, "/starved") > 5 && ns(&wave, "/conformance/asked_mean_ns") > 2.5e6, "{wave}");
    assert_eq!(wave["buffer"]["enough"], false);
    let width = ns(&wave, "/buffer/width_ns");
    assert!((150e6..1e9).contains(&width), "the wave is {width} ns wide");
    let (wave, receiver) = run("--buffer wave=1s");
    assert_eq!((number(&wave, "/starved"), &wave["buffer"]["enough"]), (0, &Value::Bool(true)), "{wave}");
    // By the stamps in the frames, the first frame waits for the whole buffer time. The last frame waits for as long as
    // it arrived early.
    assert!(ns(&receiver, "/streams/0/delay/max_ns") >= 1e9, "{receiver}");
    assert!((ns(&wave, "/conformance/asked_max_ns") - 2e6).abs() < 1.0, "{wave}");
}
