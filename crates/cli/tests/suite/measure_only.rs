//! `measure --only`: figures of selected frames, from a capture with known frames.

use crate::common::{Bench, Dialect, Record, words};
use serde_json::json;

/// Frames of an unknown protocol: 100 B every 10 µs. Every third frame has the ARP EtherType and is 60 B longer.
fn mixed(bench: &Bench) -> Vec<Record> {
    let records: Vec<Record> = (0..3_000_u32)
        .map(|number| {
            let mut record = Record::new(u64::from(number) * 10_000, if number % 3 == 0 { 160 } else { 100 }, number);
            if number % 3 == 0 {
                record.bytes[12..14].copy_from_slice(&[0x08, 0x06]);
            }
            record
        })
        .collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    records
}

#[test]
fn figures_are_of_frames_that_meet_the_rule_and_the_others_are_counted() {
    let bench = Bench::new();
    let records = mixed(&bench);
    let report = bench.report(words("measure --pcap in.pcap --only arp --expect 30us --write part.pcap"));
    assert_eq!(
        (&report["match"], &report["in"], &report["out"], &report["left_out"]),
        (
            &json!("arp"),
            &json!({"frames": 1_000, "bytes": 160_000}),
            &report["in"],
            &json!({"frames": 2_000, "bytes": 200_000})
        )
    );
    let gap = |figure: &str| report["gap"][figure].as_f64().expect(figure);
    assert!(["mean_ns", "min_ns", "max_ns"].map(gap).iter().all(|ns| (ns - 30_000.0).abs() < 1e-9), "{report}");
    assert_eq!(report["conformance"]["count"], 999);
    let kept: Vec<Record> = records.into_iter().step_by(3).collect();
    assert_eq!(bench.records("part.pcap"), kept, "and no other frame is written");
    // Over all frames the expectation fails.
    let all = bench.run(words("measure --pcap in.pcap --expect 30us --json"));
    assert_eq!(all.status, Some(1), "{}", all.stderr);
    assert!(all.report()["pipelines"][0].get("left_out").is_none(), "nothing was to be left out");
    let rest = bench.report(words("measure --pcap in.pcap --only 'not arp' --count 500"));
    assert_eq!(
        (&rest["in"]["frames"], &rest["left_out"]["frames"]),
        (&json!(500), &json!(250)),
        "the count is of them"
    );
}

#[test]
fn table_and_page_show_left_out_frames() {
    let bench = Bench::new();
    mixed(&bench);
    let said = bench.run(words("measure --pcap in.pcap --only 'bytes 0806 at 12' --report page"));
    assert_eq!((said.status, said.stderr.as_str()), (Some(0), ""));
    assert!(said.stdout.starts_with("measure: bytes 0806 at 12\n  in        1 000 frames"), "{}", said.stdout);
    assert!(said.stdout.contains("\n  left out  2 000 frames, 200 000 B with FCS: "), "{}", said.stdout);
    let page = String::from_utf8(bench.read("page/report.html")).expect("UTF-8").replace('\u{a0}', " ");
    assert!(
        page.contains("“bytes 0806 at 12” were measured. Excluded from all figures here: 2 000 frames, 200 000 B.")
    );
}

#[test]
fn warns_of_a_rule_without_matches() {
    let bench = Bench::new();
    mixed(&bench);
    let none = bench.run(words("measure --pcap in.pcap --only 'udp and dport 53' --expect 10us"));
    assert_eq!(none.status, Some(1), "{}", none.stderr);
    assert!(none.stderr.contains("3 000 frames arrived, but none matches 'udp dport 53'"), "{}", none.stderr);
    for (options, wanted) in [
        ("--only 'tcp udp'", "--only: no frame can meet 'tcp udp': its conditions exclude each other"),
        ("--only 'vxlan tcp dport 80'", "write conditions of a packet in a tunnel after inner"),
        ("--only 'vxlan vnl 7'", "--only: 'vnl' is neither a condition nor a field of vxlan (column 7): write vni"),
        ("--only ''", "--only: the rule is empty: write 'udp dport 53', or leave --only out"),
        ("--only 'dprot 53'", "--only: "),
        ("--filter udp", "write --only 'udp dport 53'"),
        ("udp", "--only 'udp dport 53' for a filter"),
    ] {
        let refused = bench.run(words(&format!("measure --pcap in.pcap {options}")));
        assert_eq!((refused.status, refused.stderr.lines().count()), (Some(2), 1), "{options}: {}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{options}: {}", refused.stderr);
    }
}

/// The kernel strips the VLAN tag from the frame data, but rules still match on it.
#[cfg(feature = "live")]
#[test]
fn tags_of_frames_from_an_interface_are_seen() {
    use crate::bed::{Bed, number};
    use lab::Node;
    let Some(bed) = Bed::paired("only") else { return };
    let measure = bed.start(Node::Box, "measure --in a1 --only 'vlan 5 dport 9' --write v.pcap --json --duration 60s");
    while !bed.path("v.pcap").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 vlan 5' --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 weight 2'";
    bed.run(Node::Box, &format!("gen --out a0 --rate 10kpps --count 3000 --json {streams}")).report();
    let report = measure.stop().report();
    assert_eq!((number(&report, "/in/frames"), number(&report, "/streams/0/received")), (1_000, 1_000), "{report}");
    assert!(report["streams"].as_array().is_some_and(|streams| streams.len() == 1), "{report}");
    // The kernel may have sent some frames of its own.
    assert!(number(&report, "/left_out/frames") >= 2_000, "{report}");
    let (records, _) = bed.records("v.pcap");
    assert!(records.len() == 1_000 && records.iter().all(|record| record.bytes[12..16] == [0x81, 0, 0, 5]));
}
