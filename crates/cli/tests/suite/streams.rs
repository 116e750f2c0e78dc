//! Streams and replays in virtual time, parsed by independent code in the tests, and by tshark if it is installed.

use crate::common::{Bench, Dialect, Record, caveat, caveats, words};
use serde_json::Value;
use std::process::Command;

fn generate(bench: &Bench, out: &str, options: &str) -> Value {
    bench.report(words(&format!("gen --out pcap:{out} {options}")))
}

fn u16_at(record: &Record, at: usize) -> u16 {
    u16::from_be_bytes(record.bytes[at..at + 2].try_into().expect("two bytes"))
}

/// The stream number and sequence number in the stamp at the end of a frame.
fn stamp(record: &Record) -> (u16, u32) {
    let stamp = &record.bytes[record.bytes.len() - 18..];
    assert_eq!(stamp[..2], [0x6e, 0x4c]);
    (u16::from_be_bytes([stamp[4], stamp[5]]), u32::from_be_bytes(stamp[6..10].try_into().expect("four bytes")))
}

#[test]
fn fields_take_the_values_that_were_asked() {
    let bench = Bench::new();
    generate(
        &bench,
        "a.pcap",
        "--count 60 --stream 'udp 10.0.0.1-10.0.0.3:1000-2000 > 10.1.0.0/30:53,80-82 vlan 5-6 pcp 3 dscp ef ecn 1 ttl 60-64 step 2 \
         id 7 smac 02:00:00:00:00:10-02:00:00:00:00:11 size 100B'",
    );
    for (i, record) in bench.records("a.pcap").iter().enumerate() {
        let bytes = &record.bytes;
        assert_eq!((bytes.len(), bytes[11]), (96, 0x10 + (i % 2) as u8));
        assert_eq!((u16_at(record, 12), u16_at(record, 14)), (0x8100, 0x6005 + (i % 2) as u16));
        assert_eq!((bytes[19], u16_at(record, 22), bytes[26]), (0xb9, 7, 60 + 2 * (i % 3) as u8));
        assert_eq!((bytes[33], bytes[37]), (1 + (i % 3) as u8, (i % 4) as u8), "addresses of frame {i}");
        assert_eq!((u16_at(record, 38), u16_at(record, 40)), (1000 + i as u16, [53, 80, 81, 82][i % 4]));
        assert_eq!(stamp(record), (0, i as u32));
    }
    let drawn = "--count 500 --stream 'udp random 10.0.0.0/24:1-9 > 10.0.0.9:5..6 size 64B'";
    generate(&bench, "b.pcap", drawn);
    let records = bench.records("b.pcap");
    for (at, least, most) in [(29, 0, 255), (35, 1, 9), (37, 5, 6)] {
        let mut values: Vec<u8> = records.iter().map(|record| record.bytes[at]).collect();
        assert!(values.windows(3).any(|three| three[1].wrapping_sub(three[0]) != three[2].wrapping_sub(three[1])));
        values.sort_unstable();
        values.dedup();
        assert!(values[0] >= least && values[values.len() - 1] <= most && values.len() > usize::from(most - least) / 2);
    }
}

#[test]
fn streams_are_numbered_from_the_first_number_asked() {
    let bench = Bench::new();
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --stream 'udp 10.0.0.1:1 > 10.0.0.2:3'";
    let report = generate(&bench, "a.pcap", &format!("--count 4 --first-stream 500 {streams}"));
    let numbers: Vec<u16> = bench.records("a.pcap").iter().map(|record| stamp(record).0).collect();
    assert_eq!(numbers, [500, 501, 500, 501]);
    let streams_of_report = report["streams"].as_array().unwrap_or_else(|| panic!("{report}"));
    let numbers: Vec<_> = streams_of_report.iter().map(|stream| stream["stream"].as_u64()).collect();
    assert_eq!(numbers, [Some(500), Some(501)]);
    let refused = bench.run(words(&format!("gen --out null --count 1 --first-stream 65534 {streams}")));
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("65535 streams"), "{refused:?}");
}

#[test]
fn shares_of_streams_and_sizes_are_exact_over_each_cycle() {
    let bench = Bench::new();
    generate(
        &bench,
        "a.pcap",
        "--count 2400 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 64B:7,594B:4,1518B:1 weight 3' --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 100B'",
    );
    for cycle in bench.records("a.pcap").chunks(48) {
        let count = |stream: u16, length: usize| {
            cycle.iter().filter(|record| stamp(record).0 == stream && record.bytes.len() + 4 == length).count()
        };
        assert_eq!([count(0, 64), count(0, 594), count(0, 1518), count(1, 100)], [21, 12, 3, 12]);
    }
}

#[test]
fn the_same_seed_gives_the_same_frames_and_streams_do_not_disturb_each_other() {
    let bench = Bench::new();
    let first = "--stream 'udp random 10.0.0.0/8:1-9 > 10.0.0.9:5..6 size 64B..200B payload random'";
    let second = "--stream 'tcp random 10.0.0.0/8:1-9 > 10.0.0.9:80 size 64B..200B'";
    generate(&bench, "a.pcap", &format!("--count 100 --gap 10us --seed 3 {first}"));
    generate(&bench, "b.pcap", &format!("--count 100 --gap 10us --seed 3 {first}"));
    assert_eq!(bench.read("a.pcap"), bench.read("b.pcap"));
    generate(&bench, "c.pcap", &format!("--count 100 --gap 10us --seed 4 {first}"));
    assert_ne!(bench.read("a.pcap"), bench.read("c.pcap"));
    generate(&bench, "d.pcap", &format!("--count 200 --gap 10us --seed 3 {first} {second}"));
    let alone: Vec<Vec<u8>> = bench.records("a.pcap").into_iter().map(|record| record.bytes).collect();
    let beside: Vec<Record> = bench.records("d.pcap").into_iter().filter(|record| record.bytes[23] == 17).collect();
    assert_eq!(beside.len(), 100);
    for (alone, beside) in alone.iter().zip(&beside) {
        // Everything but the stamp is equal; the stamps have different times.
        assert_eq!(alone[..alone.len() - 18], beside.bytes[..beside.bytes.len() - 18]);
    }
}

#[test]
fn tshark_finds_every_checksum_valid() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIP: there is no tshark");
        return;
    }
    let bench = Bench::new();
    let streams = [
        "udp random 10.0.0.0/8:1-65535 > 10.0.0.2:2000 size imix svlan 3 vlan 1-9 stamp off",
        "tcp [2001:db8::1-2001:db8::ffff]:80 > [2001:db8::2]:1..65535 flags SA,A,FA seq random 0-4294967295 size 100B-200B",
        "tcp 10.0.0.1:1-65535 step 1001 > 10.0.0.2:80 ack 1-9 window 5,9 size (normal mean 500B sd 100B clip 100B..1518B)",
        "icmp 10.0.0.1 > 10.0.0.2 icmp-seq 0-65535 payload increment",
        "icmp [fe80::1] > [fe80::2] icmp-id 7 size 90B-99B payload random",
        "udp [::1]:1-9 > [::2]:5 flow-label 0-1048575 step 999 hop-limit 1-255 size 81B..300B payload text \"odd\"",
        "pcap odd.pcap frame 2 dport 5-9 size 70B-90B",
    ];
    let udp = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 77B payload text \"netlathe\"' --count 3";
    generate(&bench, "odd.pcap", udp);
    let streams: String = streams.iter().map(|stream| format!(" --stream '{stream}'")).collect();
    generate(&bench, "a.pcap", &format!("--count 7000 {streams}"));
    generate(
        &bench,
        "b.pcap",
        "--pcap a.pcap --rewrite 'ip 10.0.0.0/8 > 192.168.0.0/16, ip 2001:db8::/32 > fd00::/16, port 80 > 8080, vlan 7, ttl 9'",
    );
    for (file, tagged) in [("a.pcap", 1000), ("b.pcap", 7000)] {
        let fields = [
            "ip.checksum.status", "udp.checksum.status", "tcp.checksum.status", "icmp.checksum.status",
            "icmpv6.checksum.status", "vlan.id",
        ];
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(bench.path(file)).args(["-T", "fields", "-E", "separator=;", "-n"]);
        for check in ["ip", "udp", "tcp"] {
            tshark.args(["-o", &format!("{check}.check_checksum:TRUE")]);
        }
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("tshark runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(text.lines().count(), 7000, "{}", String::from_utf8_lossy(&output.stderr));
        let mut with_tag = 0;
        for (i, line) in text.lines().enumerate() {
            let columns: Vec<&str> = line.split(';').collect();
            let statuses: Vec<&&str> = columns[..5].iter().filter(|status| !status.is_empty()).collect();
            // 1 is good, 0 bad, 2 unverified.
            assert!(!statuses.is_empty() && statuses.iter().all(|status| **status == "1"), "frame {}: {line}", i + 1);
            with_tag += usize::from(!columns[5].is_empty());
        }
        assert_eq!(with_tag, tagged, "{file}");
    }
}

/// Frames with uneven gaps, in ns.
fn uneven(bench: &Bench) -> Vec<Record> {
    let mut ns = 1_700_000_000_987_654_321;
    let mut records = Vec::new();
    for number in 0..2_000_u32 {
        records.push(Record::new(ns, 64 + number % 1000, number));
        ns += u64::from(number * 7_919 % 30_011) * 2;
    }
    bench.capture("in.pcap", Dialect::USUAL, &records);
    records
}

fn gaps(records: &[Record]) -> Vec<u64> {
    records.windows(2).map(|pair| pair[1].ns - pair[0].ns).collect()
}

#[test]
fn a_replay_has_the_gaps_of_the_file_to_the_nanosecond() {
    let bench = Bench::new();
    let records = uneven(&bench);
    generate(&bench, "own.pcap", "--pcap in.pcap");
    assert_eq!(bench.records("own.pcap"), records, "nothing is changed, stamps included");
    generate(&bench, "twice.pcap", "--pcap in.pcap --speed 2");
    let halves: Vec<u64> = gaps(&records).iter().map(|gap| gap / 2).collect();
    assert_eq!(gaps(&bench.records("twice.pcap")), halves);
    generate(&bench, "slow.pcap", "--pcap in.pcap --speed 0.25");
    let fourfold: Vec<u64> = gaps(&records).iter().map(|gap| gap * 4).collect();
    assert_eq!(gaps(&bench.records("slow.pcap")), fourfold);
    // No drift at a speed that leaves fractions of a nanosecond.
    generate(&bench, "thirds.pcap", "--pcap in.pcap --speed 3");
    let thirds = bench.records("thirds.pcap");
    for (got, was) in thirds.iter().zip(&records) {
        let wanted = (was.ns - records[0].ns) as f64 / 3.0;
        assert!(((got.ns - thirds[0].ns) as f64 - wanted).abs() <= 0.5);
    }
    let even = generate(&bench, "even.pcap", "--pcap in.pcap --gap 10us");
    assert!(gaps(&bench.records("even.pcap")).iter().all(|gap| *gap == 10_000), "{even}");
    let report = bench.report(words("gen --pcap in.pcap --rate 100% --out wire:10G,frames=f.csv,pcap=w.pcap"));
    assert_eq!(report["out"]["frames"], 2_000);
    let listed = bench.listed("f.csv");
    assert!(listed.windows(2).all(|pair| pair[1].start_ps - pair[0].start_ps == (pair[0].length + 20) * 800));
    // Without a schedule, back-to-back frames miss no target.
    let streams = "--count 2000 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size imix'";
    for (what, report) in [("--pcap in.pcap --speed max", &report), (streams, &Value::Null)] {
        let finished = bench.run(words(&format!("gen {what} --out wire:10G --json")));
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{what}");
        let free = finished.report()["pipelines"][0].take();
        assert!(free["crowded"].is_null() && free["shortfall"].is_null() && free["lateness"].is_null(), "{free}");
        assert!(report.is_null() || free["gap"]["mean_ns"] == report["gap"]["mean_ns"], "{free}");
    }
}

/// Records from `tcpdump -i any` and from tunnels are sent as Ethernet frames, with the addresses that the records
/// contain.
#[test]
fn records_without_an_ethernet_header_get_one() {
    let bench = Bench::new();
    generate(&bench, "in.pcap", "--count 20 --gap 10us --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size random 64B-1518B'");
    let frames = bench.records("in.pcap");
    let cooked = [&[0, 0, 0, 1, 0, 6][..], &frames[0].bytes[6..12], &[0, 0, 0x08, 0x00]].concat();
    for (link_type, before) in [(101, &[][..]), (113, &cooked)] {
        let instead = |frame: &Record| {
            let bytes = [before, &frame.bytes[14..]].concat();
            Record { ns: frame.ns, original: bytes.len() as u32, bytes }
        };
        let records: Vec<Record> = frames.iter().map(instead).collect();
        bench.capture("other.pcap", Dialect { link_type, ..Dialect::USUAL }, &records);
        let finished = bench.run(words("gen --pcap other.pcap --out pcap:out.pcap --json"));
        assert_eq!(bench.records("out.pcap"), frames, "link type {link_type}");
        assert_eq!(caveat(&finished.report(), "made-headers")["records"], 20);
        assert!(finished.stderr.contains("20 records of the capture had no Ethernet header"), "{}", finished.stderr);
        let measured = bench.run(words("measure --pcap other.pcap --json")).report();
        assert_eq!(caveat(&measured, "made-headers")["records"], 20, "{measured}");
    }
}

#[test]
fn a_replay_can_be_repeated_and_changed() {
    let bench = Bench::new();
    let records = uneven(&bench);
    let report = generate(&bench, "loop.pcap", "--pcap in.pcap --loop 3");
    assert_eq!(report["out"]["frames"], 6_000);
    let got = bench.records("loop.pcap");
    let rounds: Vec<&[Record]> = got.chunks(2_000).collect();
    for round in &rounds {
        assert_eq!(gaps(round), gaps(&records));
        assert!(round.iter().zip(&records).all(|(got, was)| got.bytes == was.bytes));
    }
    let mean = (records[1_999].ns - records[0].ns) / 1_999;
    assert!((rounds[1][0].ns - rounds[0][1_999].ns).abs_diff(mean) <= 1, "the mean gap lies between rounds");
    let report = generate(&bench, "some.pcap", "--pcap in.pcap --loop 3 --count 4500");
    assert_eq!(report["out"]["frames"], 4_500);
    let some = bench.records("some.pcap");
    assert!(
        some.len() == 4_500 && some.iter().zip(&got).all(|(some, all)| some.bytes == all.bytes && some.ns == all.ns)
    );
    generate(&bench, "new.pcap", "--pcap in.pcap --rewrite 'dmac 02:aa:00:00:00:01, vlan 9'");
    for (got, was) in bench.records("new.pcap").iter().zip(&records) {
        assert_eq!(got.bytes[..6], [2, 0xaa, 0, 0, 0, 1]);
        assert_eq!((u16_at(got, 12), u16_at(got, 14)), (0x8100, 9));
        assert_eq!((got.ns, &got.bytes[16..]), (was.ns, &was.bytes[12..]));
    }
}

#[test]
fn receiver_counts_each_stream() {
    let bench = Bench::new();
    let streams =
        "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 64B' --stream 'udp [::1]:1 > [::2]:2 vlan 4 size 100B-120B'";
    generate(&bench, "in.pcap", &format!("--count 2000 --gap 10us {streams}"));
    let mut records = bench.records("in.pcap");
    // The path takes 5 µs, but 7 µs for every hundredth frame.
    for (i, record) in records.iter_mut().enumerate() {
        record.ns += if i % 100 == 50 { 7_000 } else { 5_000 };
    }
    // Stream 0 (even): 3 lost in the middle, 2 at the end, one duplicate. Stream 1: one frame late by two positions.
    let twice = records[200].clone();
    let late = records.remove(301);
    records.insert(305, Record { ns: records[304].ns, ..late });
    let gone = [400, 500, 600, 1_996, 1_998].map(|index| records[index].bytes.clone());
    records.retain(|record| !gone.contains(&record.bytes));
    records.insert(250, Record { ns: records[249].ns, ..twice });
    bench.capture("got.pcap", Dialect::USUAL, &records);
    let report = bench.report(words("measure --pcap got.pcap"));
    let streams = report["streams"].as_array().expect("streams");
    let figure = |stream: usize, name: &str| streams[stream].pointer(name).and_then(Value::as_f64).expect(name);
    assert_eq!(streams.len(), 2);
    assert_eq!((figure(0, "/received"), figure(0, "/lost"), figure(0, "/duplicates")), (995.0, 3.0, 1.0));
    assert_eq!((figure(0, "/reordered"), figure(1, "/reordered")), (0.0, 1.0));
    assert_eq!((figure(1, "/received"), figure(1, "/lost"), figure(1, "/reorder_max_extent")), (1_000.0, 0.0, 2.0));
    assert_eq!((figure(0, "/delay/min_ns"), figure(0, "/delay/max_ns")), (5_000.0, 7_000.0));
    assert_eq!(
        (figure(0, "/pdv/p50_ns"), figure(0, "/pdv/max_ns"), figure(0, "/ipdv/max_ns")),
        (0.0, 2_000.0, 2_000.0)
    );
}

#[test]
fn warns_of_truncated_stamps() {
    let bench = Bench::new();
    generate(&bench, "in.pcap", "--count 100 --gap 10us --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 64B,200B'");
    let mut records = bench.records("in.pcap");
    records.iter_mut().for_each(|record| record.bytes.truncate(96));
    bench.capture("cut.pcap", Dialect::USUAL, &records);
    for (file, told) in [("in.pcap", 0), ("cut.pcap", 1)] {
        let finished = bench.run(words(&format!("measure --json --pcap {file}")));
        let warnings = caveats(&finished.report(), "cut-stamps").len();
        assert_eq!(
            (finished.status, warnings, finished.stderr.matches("50 records were truncated").count()),
            (Some(0), told, told)
        );
    }
}

#[test]
fn many_frames_take_constant_memory() {
    let bench = Bench::new();
    let peak = |count: u64| {
        let line = format!(
            "gen --out null --count {count} --gap 1us --stream 'udp random 10.0.0.0/8:1-65535 > 10.0.0.2:2 size imix stamp off' -q"
        );
        let mut child = bench.command(words(&line)).spawn().expect("it starts");
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        while child.try_wait().expect("a status").is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse().ok());
            peak = peak.max(kib.unwrap_or(0_u64));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        peak
    };
    let (few, many) = (peak(200_000), peak(2_000_000));
    assert!(few > 0 && many < few + 4_096, "{few} KiB, then {many} KiB");
}

#[test]
fn reports_count_one_as_one_and_keep_numbers_apart() {
    let bench = Bench::new();
    let streams: String = (0..102).map(|_| " --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'").collect();
    generate(&bench, "many.pcap", &format!("--count 103 --gap 1ms{streams}"));
    let text = bench.run(words("measure --pcap many.pcap")).stdout;
    assert!(text.contains("  stream 0  2 received, 0 lost (0.00 %), 0 duplicates"), "{text}");
    assert!(text.contains("  stream 99 1 received,") && text.contains("  stream 100 1 received,"), "{text}");
    assert!(text.contains(" in 1 window of 100 ms"), "{text}");
    let text = bench.run(words("measure --pcap many.pcap --count 1")).stdout;
    assert!(text.contains("  in        1 frame, 64 B with FCS"), "{text}");
}

#[test]
fn streams_depart_at_rates_of_their_own() {
    let bench = Bench::new();
    let dns = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:53 size 100B' --class 'dns = dport 53' --rate dns=1kpps";
    let web = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:80 size 200B weight 7' --gap 142857ns";
    let report = generate(&bench, "a.pcap", &format!("--count 800 {dns} {web}"));
    assert_eq!(report["classes"][0]["name"], "dns");
    let records = bench.records("a.pcap");
    for (port, gap, count) in [(53, 1_000_000, 100), (80, 142_857, 700)] {
        let starts: Vec<u64> =
            records.iter().filter(|record| u16_at(record, 36) == port).map(|record| record.ns).collect();
        assert_eq!(starts.len(), count, "port {port}");
        assert!(starts.iter().enumerate().all(|(k, ns)| ns - starts[0] == k as u64 * gap), "port {port}: {starts:?}");
    }
}

#[test]
fn streams_of_classes_need_no_weights_to_keep_their_rates() {
    // A class without streams waits for no stream. A stream with several ports may still belong to a single class.
    let bench = Bench::new();
    let streams =
        "--stream 'udp 10.0.0.1:1 > 10.0.0.2:53 size 100B' --stream 'udp 10.0.0.1:1 > 10.0.0.2:80-89 size 64B..200B'";
    let dns = "--class 'dns = dport 53' --rate dns=1kpps";
    for fast in ["--rate 1Mpps", "--class 'web = dport 80-99' --rate web=1Mpps --rate 7pps"] {
        let line = format!("--duration 200ms {streams} {dns} {fast}");
        let report = generate(&bench, "a.pcap", &line);
        assert_eq!(report["lateness"]["max_ns"], 0.0, "{fast}: {report}");
        let records = bench.records("a.pcap");
        for (dns, gap, count) in [(true, 1_000_000, 200), (false, 1_000, 200_000)] {
            let of_class = |record: &&Record| (u16_at(record, 36) == 53) == dns;
            let starts: Vec<u64> = records.iter().filter(of_class).map(|record| record.ns).collect();
            assert_eq!(starts.len(), count, "{fast}: dns {dns}");
            assert!(starts.iter().zip(0..).all(|(ns, k)| ns - starts[0] == k * gap), "{fast}: dns {dns}");
        }
        generate(&bench, "b.pcap", &line);
        assert_eq!(records, bench.records("b.pcap"), "the same seed gives the same bytes");
    }
}

#[test]
fn warns_of_weights_that_do_not_fit_class_rates() {
    // A stream that alternates between classes cannot be skipped.
    let bench = Bench::new();
    let dns = "--class 'dns = dport 53' --rate dns=1kpps --rate 100kpps";
    let said = |streams: &str| bench.run(words(&format!("gen --out null --duration 1s {dns} {streams}"))).stderr;
    let both = said("--stream 'udp 10.0.0.1:1 > 10.0.0.2:53,80' --stream 'udp 10.0.0.1:1 > 10.0.0.2:53'");
    assert!(both.contains("class 'default' had to wait for its frames"), "{both}");
    for weight in [1, 100] {
        let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:53' --stream 'udp 10.0.0.1:1 > 10.0.0.2:80";
        assert_eq!(said(&format!("{streams} weight {weight}'")), "");
    }
    // Weights that fit the class rates share the count as expected, within one frame generated ahead.
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:53' --stream 'udp 10.0.0.1:1 > 10.0.0.2:80 weight 100'";
    let report = generate(&bench, "a.pcap", &format!("--count 10100 {dns} {streams}"));
    let sent = report["classes"][0]["out"]["frames"].as_u64();
    assert!(sent.is_some_and(|sent| (100..=101).contains(&sent)), "{sent:?}");
    // A stream does not wait for streams without frames.
    for one in [
        "--class 'dns = dport 53' --rate 1kpps",
        "--class 'web = dport 80' --rate web=1kpps",
        "--class 'dns = dport 53'",
    ] {
        let stream = "gen --out wire:1G --duration 100ms --stream 'udp 10.0.0.1:1 > 10.0.0.2:80'";
        assert_eq!(bench.run(words(&format!("{stream} {one}"))).stderr, "", "{one}");
    }
}

#[test]
fn bursts_that_are_counted_end_streams() {
    let bench = Bench::new();
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 512B'";
    generate(&bench, "a.pcap", &format!("{stream} --rate 'burst 1Mpps for 100us every 10ms count 3'"));
    let starts: Vec<u64> = bench.records("a.pcap").iter().map(|record| record.ns).collect();
    assert_eq!(starts.len(), 300);
    let first = starts[0];
    assert!(starts.iter().zip(0..).all(|(ns, k)| ns - first == k / 100 * 10_000_000 + k % 100 * 1_000));
    // Endless schedules are still refused, and so are finite schedules of a single class.
    for rate in [
        "--rate 'burst 1Mpps for 100us every 10ms'",
        "--rate 'ramp 1kpps..2kpps over 10ms'",
        "--class 'a = dport 9' --rate 'a=burst 1Mpps for 100us every 10ms count 3' --rate 'burst 1Mpps for 1us every 2us count 1'",
    ] {
        let said = bench.run(words(&format!("gen --out pcap:b.pcap {stream} {rate}")));
        assert!(said.status == Some(2) && said.stderr.contains("no end"), "{rate}: {}", said.stderr);
    }
}

/// An IPv6 UDP packet with a routing header of this type. Its valid checksum covers the final destination.
fn routed(kind: u8) -> Record {
    let station = |last: u8| [&[0xfd, 0][..], &[0; 13], &[last]].concat();
    let mut bytes = [&[2; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 36, 43, 64]].concat();
    bytes.extend([station(1), station(2), vec![17, 2, kind, 1, 0, 0, 0, 0], station(9)].concat());
    bytes.extend([0x04, 0xd2, 0, 0x35, 0, 12, 0, 0, 1, 2, 3, 4]);
    let pseudo = [&station(1)[..], &station(9), &[0, 12, 0, 17], &bytes[78..]].concat();
    let sum = pseudo.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[84..86].copy_from_slice(&sum.to_be_bytes());
    Record { ns: 0, original: bytes.len() as u32, bytes }
}

#[test]
fn checksums_behind_a_routing_header_cover_the_final_destination() {
    let bench = Bench::new();
    for kind in [0, 2, 4] {
        let mut wrong = routed(kind);
        wrong.bytes[84] ^= 0x55;
        bench.capture("in.pcap", Dialect::USUAL, &[routed(kind), wrong]);
        let finished = bench.run(words("gen --pcap in.pcap --out pcap:out.pcap --rewrite 'checksums right' --json"));
        assert_eq!(caveat(&finished.report(), "unrewritten-frames"), Value::Null);
        for record in bench.records("out.pcap") {
            assert_eq!(record.bytes, routed(kind).bytes, "type {kind}");
        }
    }
}

#[test]
fn frames_with_a_compressed_route_stay_as_captured_and_are_counted() {
    let bench = Bench::new();
    let compressed = routed(3);
    bench.capture("in.pcap", Dialect::USUAL, &[compressed.clone(), Record::new(10, 100, 7)]);
    for rule in ["checksums right", "dst fd00::/64 > fd01::/64"] {
        let line = format!("gen --pcap in.pcap --out pcap:out.pcap --rewrite '{rule}, smac 02:00:00:00:00:09' --json");
        let finished = bench.run(words(&line));
        assert!(finished.stderr.contains("1 frame with a compressed routing header"), "{}", finished.stderr);
        assert_eq!(caveat(&finished.report(), "unrewritten-frames")["frames"], 1, "{rule}");
        let out = bench.records("out.pcap");
        assert_eq!(
            (&out[0].bytes[12..], &out[0].bytes[6..12]),
            (&compressed.bytes[12..], &[2, 0, 0, 0, 0, 9][..]),
            "{rule}"
        );
    }
}

/// VXLAN with a checksum in both datagrams.
const TUNNEL: &str = "hex 02000000000202000000000108004500005e00004000401100000a0000010a000002c00012b5004a000008000000000007000200000000040200000000030800450000240000400040110000c0a80001c0a800021388003500100000706179";

/// A field, and its values in successive frames.
type Values = (&'static str, &'static [u128]);

/// Streams in tunnels, their layers, and fields with their values: frame k has the k-th value.
const TUNNELS: &[(&str, &str, &[Values])] = &[
    (
        "udp 10.0.0.1:1 > 10.0.0.2:7-9 in vxlan vni 9-7 in udp 192.0.2.1:100-200 > 192.0.2.2",
        "eth ip udp vxlan eth ip udp",
        &[
            ("vni", &[9, 8, 7]),
            ("sport", &[100, 101, 102]),
            ("dport", &[4789, 4789, 4789]),
            ("inner dport", &[7, 8, 9]),
        ],
    ),
    (
        "tcp [::2]:80 > [::1]:80 in gre key 5,9 in ip 2001:db8::1 > 2001:db8::2 ttl 9",
        "eth ip6 gre ip6 tcp",
        &[("gre key", &[5, 9, 5]), ("ttl", &[9, 9, 9]), ("inner ttl", &[64, 64, 64])],
    ),
    (
        "udp 10.0.0.1:1 > 10.0.0.2:2 vlan 5-7 in mpls label 9 in mpls label 16-20",
        "eth mpls mpls pw eth vlan ip udp",
        &[("label", &[16, 17, 18]), ("mpls#2 label", &[9, 9, 9]), ("inner vlan id", &[5, 6, 7])],
    ),
    (
        "icmp 10.0.0.1 > 10.0.0.2 in pppoe session 1-100 step 3 in vlan id 7 in vlan id 100-199 size 100B-104B",
        "eth vlan vlan pppoe ip icmp",
        &[("session", &[1, 4, 7]), ("vlan id", &[100, 101, 102]), ("vlan#2 id", &[7, 7, 7])],
    ),
    (
        "udp 10.0.0.1-10.0.0.9:1 > 10.0.0.2:2 in gtpu teid 5-9 qfi 9 in udp 2001:db8::1 > 2001:db8::2 dscp ef payload random each",
        "eth ip6 udp gtpu ip udp",
        &[
            ("teid", &[5, 6, 7]),
            ("qfi", &[9, 9, 9]),
            ("dscp", &[46; 3]),
            ("inner src", &[0x0a00_0001, 0x0a00_0002, 0x0a00_0003]),
        ],
    ),
    (
        "tcp 10.0.0.1:1 > 10.0.0.2:2 flags SA in geneve vni 5 in udp 192.0.2.1 > 192.0.2.2 size 1518B",
        "eth ip udp geneve eth ip tcp",
        &[("vni", &[5; 3]), ("innermost flags", &[0x12; 3])],
    ),
    (
        "udp [::1]:1 > [::2]:2 in ip 192.0.2.1 > 192.0.2.2-192.0.2.9",
        "eth ip ip6 udp",
        &[("dst", &[0xc000_0202, 0xc000_0203, 0xc000_0204])],
    ),
    (
        "arp 10.0.0.1 > 10.0.0.2 in l2tp3 session 7 in ip 192.0.2.1 > 192.0.2.2",
        "eth ip l2tp3 eth arp",
        &[("l2tp3 session", &[7; 3]), ("inner dmac", &[0xffff_ffff_ffff; 3])],
    ),
    (
        "udp 10.0.0.1:1 > 10.0.0.2:2 in srv6 left 1 segment 2001:db8::9 in ip6 2001:db8::1 > 2001:db8::2",
        "eth ip6 srv6 ip udp",
        &[("srv6 left", &[1; 3])],
    ),
    (
        "udp 10.0.0.1:1 > 10.0.0.2:2 in erspan session 3 in gre in ip 192.0.2.1 > 192.0.2.2 in eth dmac 02:00:00:00:00:77",
        "eth ip gre erspan eth ip udp",
        &[("erspan session", &[3; 3]), ("dmac", &[0x0200_0000_0077; 3]), ("inner dmac", &[0x0200_0000_0002; 3])],
    ),
    (
        "udp 10.0.0.1:1 > 10.0.0.2:2 in erspan session 3 timestamp 7-9 sgt 5 in gre in ip 192.0.2.1 > 192.0.2.2",
        "eth ip gre erspan eth ip udp",
        &[("erspan version", &[2; 3]), ("erspan timestamp", &[7, 8, 9]), ("gre ethertype", &[0x22eb; 3])],
    ),
    ("pfc classes 8 time3 5-7", "eth pfc", &[("time3", &[5, 6, 7]), ("dmac", &[0x0180_c200_0001; 3])]),
    (
        "roce psn 1-9 dqp 5 in udp 10.0.0.1:49152-49160 > 10.0.0.2 size 100B-200B",
        "eth ip udp roce",
        &[("psn", &[1, 2, 3]), ("dport", &[4791; 3]), ("sport", &[49152, 49153, 49154])],
    ),
    (
        "roce opcode 4 psn 9-7 in udp 2001:db8::1 > 2001:db8::2 in vlan id 5 payload random each size 120B",
        "eth vlan ip6 udp roce",
        &[("psn", &[9, 8, 7]), ("vlan id", &[5; 3])],
    ),
    (
        "sctp-data tsn 5-9 ppid 7 in sctp 10.0.0.1:1-3 > 10.0.0.2:80 vtag 9 size 100B",
        "eth ip sctp sctp-data",
        &[("tsn", &[5, 6, 7]), ("sport", &[1, 2, 3]), ("vtag", &[9; 3])],
    ),
    (
        "sctp-data in sctp [2001:db8::1]:1 > [2001:db8::2]:80 in gtpu teid 1-3 in udp 192.0.2.1 > 192.0.2.2 payload random each",
        "eth ip udp gtpu ip6 sctp sctp-data",
        &[("teid", &[1, 2, 3]), ("inner dport", &[80; 3])],
    ),
];

#[test]
fn streams_in_tunnels_have_their_layers_fields_lengths_and_checksums() {
    use packet::layers::{FieldPath, Layers, checksum_is_right};
    let bench = Bench::new();
    for (stream, layers, fields) in TUNNELS {
        generate(&bench, "t.pcap", &format!("--count 3 --gap 1us --stream '{stream}'"));
        let records = bench.records("t.pcap");
        assert_eq!(records.len(), 3);
        for (k, Record { bytes, .. }) in records.iter().enumerate() {
            let found = Layers::of(bytes);
            let names: Vec<&str> = found.all().iter().map(|layer| layer.kind.name()).collect();
            assert_eq!(names.join(" "), *layers, "{stream}");
            for (of, layer) in found.all().iter().enumerate() {
                assert!(layer.complete && layer.end as usize == bytes.len(), "{stream}: length of {}", names[of]);
                assert_ne!(checksum_is_right(bytes, &found, of), Some(false), "{stream}: {}", names[of]);
            }
            for (path, values) in *fields {
                let words: Vec<&str> = path.split(' ').collect();
                let (field, _) = FieldPath::read(path, &words).expect("a path");
                let (of, field) = field.find(bytes, &found).expect("a field");
                assert_eq!(found.all()[of].value(field, bytes), Some(values[k]), "{stream}: {path} of frame {k}");
            }
            let stamp = packet::Stamp::of(bytes).map(|stamp| stamp.sequence as usize);
            assert_eq!(stamp, Some(k), "{stream}");
        }
    }
}

#[test]
fn fields_in_tunnels_are_rewritten() {
    let bench = Bench::new();
    let stream = format!("--count 1 --gap 1us --stream '{TUNNEL}6c6f6164 stamp off'");
    generate(&bench, "in.pcap", &stream);
    let rules =
        "checksums right, vxlan vni 7 > 9, inner src 192.168.0.0/16 > 172.16.0.0/16, inner dport 54, udp dport 4789";
    let finished = bench.run(words(&format!("gen --pcap in.pcap --out pcap:out.pcap -q --rewrite '{rules}'")));
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    let out = &bench.records("out.pcap")[0].bytes;
    assert_eq!((&out[46..49], &out[76..80], &out[86..88]), (&[0, 0, 9][..], &[172, 16, 0, 1][..], &[0, 54][..]));
    let mut again = out.clone();
    let layers = packet::layers::Layers::of(&again);
    assert_eq!(layers.all().len(), 7);
    packet::layers::make_checksums_right(&mut again, &layers);
    assert_eq!(&again, out, "every checksum is right");
    for (rule, what) in [
        ("vxlan vnl 9", "vxlan has no field 'vnl' (column 7): write vni"),
        ("inner dprot 9", "'dprot' is neither a field nor a protocol (column 7): write dport"),
    ] {
        let said = bench.run(words(&format!("gen --pcap in.pcap --out null --rewrite '{rule}'")));
        assert!(said.status == Some(2) && said.stderr.contains(what), "{}", said.stderr);
    }
}

#[test]
fn a_payload_that_is_drawn_for_each_frame_does_not_repeat() {
    let bench = Bench::new();
    let stream = "--count 300 --gap 1us --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1518B payload random each'";
    for (name, seed) in [("a.pcap", 1), ("b.pcap", 1), ("c.pcap", 2)] {
        generate(&bench, name, &format!("{stream} --seed {seed}"));
    }
    assert_eq!(bench.read("a.pcap"), bench.read("b.pcap"));
    let records = bench.records("a.pcap");
    assert!(bench.records("c.pcap")[0].bytes[42..] != records[0].bytes[42..]);
    // All byte values are equally frequent, within six standard deviations of 300 × 1454 ÷ 256 bytes.
    let mut counts = [0_i64; 256];
    for record in &records {
        record.bytes[42..1_496].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let sum =
            record.bytes[26..].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
        let sum = sum + 17 + u32::from(u16_at(record, 38));
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of UDP is right");
    }
    assert!(counts.iter().all(|count| (count - 300 * 1_454 / 256).abs() < 248), "{counts:?}");
    for (i, record) in records.iter().enumerate() {
        assert!(records[..i].iter().all(|other| other.bytes[42..58] != record.bytes[42..58]), "frame {i}");
    }
    let even = records.iter().map(|record| stamp(record).1).eq(0..300);
    assert!(even, "stamps count on");
}

#[test]
fn bytes_of_no_protocol_lie_between_layers() {
    use packet::layers::{LayerKind, Layers, checksum_is_right};
    let bench = Bench::new();
    let stream = "tcp 10.0.0.1:1 > 10.0.0.2:80-89 in hex de:ad:be:ef in udp 192.0.2.1:7 > 192.0.2.2:9999 size 120B";
    generate(&bench, "h.pcap", &format!("--count 3 --gap 1us --stream '{stream}'"));
    for (k, record) in bench.records("h.pcap").iter().enumerate() {
        let bytes = &record.bytes;
        let outer = Layers::of(bytes);
        let kinds: Vec<LayerKind> = outer.all().iter().map(|layer| layer.kind).collect();
        assert_eq!(kinds, [LayerKind::Ethernet, LayerKind::Ipv4, LayerKind::Udp]);
        assert!(outer.all().iter().all(|layer| layer.complete && layer.end as usize == bytes.len()));
        assert_eq!((bytes[42..46].to_vec(), u16_at(record, 36)), (vec![0xde, 0xad, 0xbe, 0xef], 9999));
        let inner = Layers::from(&bytes[46..], LayerKind::Ipv4);
        let right: Vec<Option<bool>> =
            (0..inner.all().len()).map(|of| checksum_is_right(&bytes[46..], &inner, of)).collect();
        assert_eq!(right, [Some(true), Some(true)], "IP and TCP");
        assert_eq!(u16_at(record, 46 + 22), 80 + k as u16);
        assert_eq!(stamp(record).1 as usize, k);
    }
    let said = bench.run(words("gen --out null --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 in hex abc'"));
    assert!(said.stderr.contains("'abc' is not whole bytes in hex: write in hex de:ad:be:ef"), "{}", said.stderr);
}

/// Frames of protocols with a CRC over the payload get a new stamp when they are replayed or corrupted.
#[test]
fn stamps_and_corruption_keep_crcs() {
    use packet::layers::{Layers, checksum_is_right};
    let bench = Bench::new();
    let right = |record: &Record| {
        let layers = Layers::of(&record.bytes);
        (0..layers.all().len()).all(|of| checksum_is_right(&record.bytes, &layers, of) != Some(false))
    };
    for stream in [
        "sctp-data in sctp 10.0.0.1:1 > 10.0.0.2:2 payload increment size 100B",
        "roce psn 1 in udp 10.0.0.1 > 10.0.0.2 payload increment size 100B",
    ] {
        generate(&bench, "one.pcap", &format!("--count 1 --stream '{stream} stamp off'"));
        generate(&bench, "given.pcap", "--count 50 --gap 1us --stream 'pcap one.pcap stamp on'");
        let records = bench.records("given.pcap");
        for (k, record) in records.iter().enumerate() {
            assert!(right(record), "{stream}: frame {k}");
            assert_eq!(packet::Stamp::of(&record.bytes).map(|stamp| stamp.sequence as usize), Some(k), "{stream}");
        }
        bench.report(words(
            "emulate --in pcap:given.pcap --out pcap:bad.pcap --forward 'corrupt 100% mode checksum-valid' --seed 5",
        ));
        let corrupted = bench.records("bad.pcap");
        assert_eq!(corrupted.len(), records.len());
        for (before, after) in records.iter().zip(&corrupted) {
            assert!(before.bytes != after.bytes && right(after), "{stream}");
        }
    }
}
