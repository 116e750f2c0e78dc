//! Ordered sources, schedules that wait for a buffer, and rates that follow the queue depth. Checked against frame
//! lists and captures, without the code under test.

use crate::common::{Bench, Dialect, Listed, Record};
use serde_json::{Value, json};

const BYTE_PS: u64 = 800;
const MS: u64 = 1_000_000_000;

/// An IPv4 frame from `10.0.0.source` with a number in it. Each source has its own frame length, so frame lists show
/// the source.
fn frame(ns: u64, source: u8, number: u32) -> Record {
    let mut record = Record::new(ns, length(source) as u32, 0);
    record.bytes[12..14].copy_from_slice(&[0x08, 0x00]);
    record.bytes[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 9, 9, 9]);
    let total = record.bytes.len() as u16 - 14;
    record.bytes[16..18].copy_from_slice(&total.to_be_bytes());
    record.bytes[42..46].copy_from_slice(&number.to_be_bytes());
    record
}

fn length(source: u8) -> u64 {
    100 * u64::from(source)
}

/// Crests of `frames` frames each: (source, start in µs, time between frames in µs).
fn crests(frames: u32, crests: &[(u8, u64, u64)]) -> Vec<Record> {
    let mut records = Vec::new();
    for (source, start, step) in crests {
        let first = records.len() as u32;
        records.extend((0..frames).map(|i| frame((start + u64::from(i) * step) * 1_000, *source, first + i)));
    }
    records.sort_by_key(|record| record.ns);
    records
}

/// The crests in a frame list: (source, first start, end of the last, frames). A change of length starts a new crest.
fn listed_crests(frames: &[Listed]) -> Vec<(u64, u64, u64, usize)> {
    let mut crests: Vec<(u64, u64, u64, usize)> = Vec::new();
    for frame in frames {
        // 8 bytes of preamble, then the frame with its FCS.
        let end = frame.start_ps + (frame.length + 8) * BYTE_PS;
        match crests.last_mut() {
            Some(last) if last.0 == frame.length / 100 => (last.2, last.3) = (end, last.3 + 1),
            _ => crests.push((frame.length / 100, frame.start_ps, end, 1)),
        }
    }
    crests
}

/// Checks that the frames of each source left in order.
fn assert_in_source_order(bench: &Bench, count: usize) {
    let records = bench.records("out.pcap");
    assert_eq!(records.len(), count, "no frame is lost");
    for source in 1..=9 {
        let of_source = records.iter().filter(|record| record.bytes[29] == source);
        let numbers: Vec<u32> =
            of_source.map(|record| u32::from_be_bytes(record.bytes[42..46].try_into().expect("four bytes"))).collect();
        assert!(numbers.is_sorted(), "source {source}: {numbers:?}");
    }
}

fn source<'r>(report: &'r Value, address: &str) -> &'r Value {
    let sources = report["sources"].as_array().expect("sources");
    sources.iter().find(|source| source["source"] == address).unwrap_or_else(|| panic!("no {address} in {report}"))
}

/// The part of the report that holds the sources: the report itself, or its last class.
fn sources(report: &Value) -> &Value {
    report["classes"].as_array().and_then(|classes| classes.last()).unwrap_or(report)
}

fn shape(bench: &Bench, more: &[&str]) -> Value {
    let common = ["shape", "--in", "pcap:in.pcap", "--out", "wire:10G,frames=out.csv,pcap=out.pcap"];
    bench.report(common.iter().chain(more))
}

#[test]
fn overlapping_crests_become_disjoint_in_order_at_the_gap() {
    for schedule in [&[][..], &["--rate", "200Mbps"], &["--gap", "uniform 1us..9us"]] {
        let bench = Bench::new();
        // Three rounds. The sources arrive in a different order each time, and overlap.
        let mut all = Vec::new();
        for (round, order) in [[3, 1, 2], [1, 2, 3], [2, 3, 1]].iter().enumerate() {
            let start = round as u64 * 60_000;
            all.extend([(order[0], start, 20), (order[1], start + 300, 25), (order[2], start + 1_100, 15)]);
        }
        let records = crests(100, &all);
        bench.capture("in.pcap", Dialect::USUAL, &records);
        let more = ["--sync", "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms"];
        let report = shape(&bench, &more.iter().chain(schedule).copied().collect::<Vec<_>>());
        let listed = bench.listed("out.csv");
        let found = listed_crests(&listed);
        let sources: Vec<u64> = found.iter().map(|crest| crest.0).collect();
        assert_eq!(sources, [1, 2, 3, 1, 2, 3, 1, 2, 3], "{schedule:?}");
        assert!(found.iter().all(|crest| crest.3 == 100));
        for (i, pair) in found.windows(2).enumerate() {
            let gap = pair[1].1 - pair[0].2;
            // The pause between rounds may be longer.
            if i % 3 == 2 { assert!(gap >= 5 * MS) } else { assert_eq!(gap, 5 * MS, "{schedule:?}") }
        }
        if schedule.is_empty() {
            // Within a crest, the gaps are unchanged.
            let second: Vec<&Listed> = listed.iter().filter(|frame| frame.length == 200).take(100).collect();
            assert!(second.windows(2).all(|pair| pair[1].start_ps - pair[0].start_ps == 15_000_000));
        }
        assert_in_source_order(&bench, 900);
        let (one, two) = (source(&report, "10.0.0.1"), source(&report, "10.0.0.2"));
        assert_eq!(
            (&one["in"]["frames"], &one["out"]["frames"], &one["crests"]),
            (&300.into(), &300.into(), &3.into())
        );
        assert_eq!(two["missed"], 0);
        // The sources start 300 us, 0 and 1100 us after the first of the round. In the other round: 300, 1100 and 0.
        assert_eq!((&one["skew"]["max_ns"], &two["skew"]["max_ns"]), (&1_100_000.0.into(), &1_100_000.0.into()));
        assert!(one["overlap"]["in_ns"].as_f64().is_some_and(|ns| ns > 3_000_000.0), "{one}");
        assert_eq!(one["overlap"]["out_ns"], 0.0);
    }
}

#[test]
fn a_late_source_is_waited_for_and_a_missing_one_is_gone_without() {
    let bench = Bench::new();
    let order = "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms wait 100ms";
    // The second source is 80 ms late.
    bench.capture("in.pcap", Dialect::USUAL, &crests(50, &[(1, 0, 10), (3, 200, 10), (2, 80_000, 10)]));
    let report = shape(&bench, &["--sync", order]);
    let found = listed_crests(&bench.listed("out.csv"));
    assert_eq!(found.iter().map(|crest| crest.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(found.windows(2).all(|pair| pair[1].1 - pair[0].2 == 5 * MS));
    assert_eq!(found[0].1, 80 * MS, "the round opens when the last source has begun");
    assert_eq!(source(&report, "10.0.0.2")["missed"], 0);
    // The second source never arrives. After 100 ms the others depart without it.
    bench.capture("in.pcap", Dialect::USUAL, &crests(50, &[(1, 0, 10), (3, 200, 10)]));
    let report = shape(&bench, &["--sync", order]);
    let found = listed_crests(&bench.listed("out.csv"));
    assert_eq!(found.iter().map(|crest| crest.0).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((found[0].1, found[1].1 - found[0].2), (100 * MS, 5 * MS));
    assert_eq!(
        (&source(&report, "10.0.0.2")["missed"], &source(&report, "10.0.0.1")["missed"]),
        (&1.into(), &0.into())
    );
    assert_in_source_order(&bench, 100);
    // The second source arrives too late, so its crest is in a round of its own.
    bench.capture("in.pcap", Dialect::USUAL, &crests(50, &[(1, 0, 10), (3, 200, 10), (2, 150_000, 10)]));
    let report = shape(&bench, &["--sync", order]);
    let found = listed_crests(&bench.listed("out.csv"));
    assert_eq!(found.iter().map(|crest| crest.0).collect::<Vec<_>>(), [1, 3, 2]);
    assert_eq!(found[2].1, 250 * MS, "it waited for the others in turn");
    assert_eq!(
        (&source(&report, "10.0.0.2")["crests"], &source(&report, "10.0.0.1")["missed"]),
        (&1.into(), &1.into())
    );
    assert_in_source_order(&bench, 150);
}

#[test]
fn crests_later_than_the_wait_keep_the_order_from_the_next_round_on() {
    let bench = Bench::new();
    for (how, more) in [
        ("gap 5ms", &[][..]),
        ("offset 7ms", &[]),
        ("gap 5ms", &["--delay", "100ms"]),
        ("gap 5ms", &["--class", "rest = udp dport 53"]),
    ] {
        for late in 1..=3 {
            let start = |round: u64, source| round * 200_000 + if source == late { 118_000 } else { 300 };
            let all: Vec<_> =
                (0..4).flat_map(|round| [1, 2, 3].map(|source| (source, start(round, source), 10))).collect();
            bench.capture("in.pcap", Dialect::USUAL, &crests(50, &all));
            let order = format!("order 10.0.0.1,10.0.0.2,10.0.0.3 {how} wait 60ms");
            let report = shape(&bench, &[&["--sync", &order], more].concat());
            let found: Vec<u64> = listed_crests(&bench.listed("out.csv")).iter().map(|crest| crest.0).collect();
            let mut asked: Vec<u64> = [1, 2, 3].into_iter().filter(|source| *source != u64::from(late)).collect();
            asked.extend([1, 2, 3].repeat(3));
            asked.push(late.into());
            asked.dedup();
            assert_eq!(found, asked, "{how} {more:?}: {late} is late");
            let missed = |number: u8| source(sources(&report), &format!("10.0.0.{number}"))["missed"].clone();
            // The late source is missing in one round, and the others are missing in the last round.
            assert_eq!([1, 2, 3].map(missed), [1, 1, 1], "{how} {more:?}: {late} is late");
            assert_in_source_order(&bench, 600);
        }
    }
}

/// Captures of three hosts, one source each. In each of six rounds of a second, source 2 is 590 ms late and `wait` is
/// 300 ms.
#[test]
fn captures_of_several_hosts_are_one_input_and_a_late_one_is_in_order_from_the_second_round_on() {
    let bench = Bench::new();
    for source in 1..=3_u8 {
        let start = |round: u64| round * 1_000_000 + if source == 2 { 590_000 } else { 100 * u64::from(source) };
        let all: Vec<_> = (0..6).map(|round| (source, start(round), 10)).collect();
        bench.capture(&format!("host{source}.pcap"), Dialect::USUAL, &crests(50, &all));
    }
    let sync = "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms wait 300ms";
    let out = "wire:10G,frames=out.csv,pcap=out.pcap";
    // The captures are not in the order of the sources.
    let ins = ["--in", "pcap:host3.pcap", "--in", "pcap:host1.pcap", "--in", "pcap:host2.pcap"];
    let line = [&["shape"][..], &ins, &["--out", out, "--sync", sync]].concat();
    let report = bench.report(&line);
    let found = listed_crests(&bench.listed("out.csv"));
    let order: Vec<u64> = found.iter().map(|crest| crest.0).collect();
    assert_eq!(order, [1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2]);
    // In each round from the second on, crests are disjoint, with the asked gap between them.
    for round in found[2..17].chunks(3) {
        assert!(round.windows(2).all(|pair| pair[1].1 - pair[0].2 == 5 * MS), "{round:?}");
    }
    assert_in_source_order(&bench, 900);
    assert_eq!(report["in"]["frames"], 900);
    assert_eq!([1, 2, 3].map(|number| source(&report, &format!("10.0.0.{number}"))["crests"].clone()), [6, 6, 6]);
    // One capture with the frames of all hosts gives the same frame list, to the bit.
    let one = bench.listed("out.csv");
    let all: Vec<_> = [1, 3, 2]
        .into_iter()
        .flat_map(|source: u8| {
            let late = if source == 2 { 590_000 } else { 100 * u64::from(source) };
            (0..6).map(move |round| (source, round * 1_000_000 + late, 10))
        })
        .collect();
    bench.capture("in.pcap", Dialect::USUAL, &crests(50, &all));
    bench.report(["shape", "--in", "pcap:in.pcap", "--out", out, "--sync", sync]);
    assert_eq!(bench.listed("out.csv").len(), one.len());
    assert!(bench.listed("out.csv").iter().zip(&one).all(|(a, b)| (a.start_ps, a.length) == (b.start_ps, b.length)));
    // In a scenario, the captures are a list.
    let list = "in = ['pcap:host3.pcap', 'pcap:host1.pcap', 'pcap:host2.pcap']";
    let text = format!("schema = 1\n[[pipeline]]\n{list}\nout = '{out}'\nsync = '{sync}'\n");
    std::fs::write(bench.path("three.toml"), text).expect("it is ours");
    bench.report(["run", "three.toml"]);
    assert!(bench.listed("out.csv").iter().zip(&one).all(|(a, b)| (a.start_ps, a.length) == (b.start_ps, b.length)));
}

#[test]
fn several_inputs_are_of_one_kind_and_different() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[frame(0, 1, 0)]);
    bench.capture("b.pcap", Dialect::USUAL, &[frame(5, 2, 0)]);
    for (inputs, out, why) in [
        (["pcap:in.pcap", "pcap:in.pcap"], "null", "is already an input"),
        (["pcap:in.pcap", "pcap:b.pcap"], "pcap:b.pcap", "'pcap:b.pcap' is the output too"),
        (["pcap:in.pcap", "pcap:no.pcap"], "null", "no.pcap"),
        (["pcap:in.pcap", "eth0"], "null", "'pcap:in.pcap' and 'if:eth0' is live, and the other is a capture"),
        (["eth0", "pcap:in.pcap"], "null", "'if:eth0' and 'pcap:in.pcap' is live, and the other is a capture"),
        (["eth0", "if:eth0,driver=af_packet"], "null", "is already an input"),
        (["eth0", "eth1"], "eth1", "'eth1' is the output too"),
        (["eth0", "eth1"], "eth2", "carry nothing back, by --one-way"),
        (["pcap:in.pcap", "wire:10G"], "null", "nothing comes from 'wire:10Gbps'"),
    ] {
        let mut command = vec!["shape", "--in", inputs[0], "--in", inputs[1], "--out", out];
        command.extend(Some("--one-way").filter(|_| inputs.contains(&out) && inputs[0] == "eth0"));
        let finished = bench.run(command);
        assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
        assert!(finished.stderr.contains(why), "{}", finished.stderr);
    }
}

#[test]
fn offsets_and_turns_place_crests_and_frames() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &crests(50, &[(2, 0, 10), (1, 300, 10), (9, 100, 7)]));
    shape(&bench, &["--sync", "order 10.0.0.1,10.0.0.2 offset 4ms"]);
    let listed = bench.listed("out.csv");
    let first = |length: u64| listed.iter().find(|frame| frame.length == length).expect("a frame").start_ps;
    assert_eq!((first(100), first(200)), (300_000_000, 300_000_000 + 4 * MS));
    assert_eq!(first(900), 100_000_000, "what is of no source passes at once");
    shape(&bench, &["--sync", "round-robin 10.0.0.1,10.0.0.2 gap 3us"]);
    let turns: Vec<Listed> = bench.listed("out.csv").into_iter().filter(|frame| frame.length < 900).collect();
    assert!(turns.chunks(2).all(|pair| pair[0].length == 100 && pair[1].length == 200), "one of each in turn");
    assert_in_source_order(&bench, 150);
}

#[test]
fn one_class_may_be_in_order_while_others_pass() {
    let bench = Bench::new();
    let records = crests(50, &[(1, 0, 10), (2, 100, 10), (5, 0, 20)]);
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report =
        shape(&bench, &["--class", "pair = src 10.0.0.0/30", "--sync", "pair=order 10.0.0.2,10.0.0.1 gap 2ms"]);
    let pair: Vec<Listed> = bench.listed("out.csv").into_iter().filter(|frame| frame.length < 500).collect();
    let found = listed_crests(&pair);
    assert_eq!(found.iter().map(|crest| crest.0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(found[1].1 - found[0].2, 2 * MS);
    assert_eq!(source(&report["classes"][0], "10.0.0.2")["crests"], 1);
    assert_eq!(report["classes"][1]["out"]["frames"], 50);
    assert_in_source_order(&bench, 150);
}

#[test]
fn warns_of_a_source_that_never_arrived() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &crests(5, &[(1, 0, 10), (2, 50_000, 10)]));
    let notes = |sources: &str| {
        let order = format!("order {sources} gap 5ms");
        let finished = bench.run(["shape", "--in", "pcap:in.pcap", "--out", "null", "-q", "--sync", &order]);
        assert_eq!(finished.status, Some(0), "{}", finished.stderr);
        finished.stderr
    };
    assert_eq!(notes("10.0.0.1,10.0.0.2"), "");
    let said = notes("10.0.0.1,10.0.0.2,10.0.0.33");
    assert!(said.contains("nothing arrived from source 10.0.0.33: 1 rounds") && said.lines().count() == 1, "{said}");
}

#[test]
fn rejects_impossible_orders_before_anything_starts() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[frame(0, 1, 0)]);
    for (arguments, word) in [
        (&["--sync", "order 10.0.0.1,foo gap 5ms"][..], "'foo' is no source"),
        (&["--sync", "order 10.0.0.1,10.0.0.2"], "time between crests is missing"),
        (&["--sync", "order 10.0.0.0/8,10.0.0.2 gap 5ms"], "overlap"),
        (
            &["--class", "a = src 10.0.0.1", "--sync", "a=order 10.0.0.1,10.0.0.2 gap 5ms"],
            "source 10.0.0.2 can never arrive, since the rule of its class leaves it out",
        ),
        (
            &["--class", "a = src 10.0.0.0/24", "--sync", "order 10.0.0.2,10.0.1.2 gap 5ms"],
            "source 10.0.0.2 can never arrive, since class 'a' takes its frames",
        ),
        (&["--buffer", "5ms"], "add a rate or a gap"),
        (&["--buffer", "5", "--gap", "1us"], "unit"),
        (&["--rate", "follow-depth 1Gbps..11Gbps"], "above the line rate"),
        (&["--rate", "follow-depth 9Gbps..1Gbps"], "do not go up"),
    ] {
        let common = ["shape", "--in", "pcap:in.pcap", "--out", "wire:10G,pcap=out.pcap"];
        let finished = bench.run(common.iter().chain(arguments));
        assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
        assert!(finished.stderr.contains(word) && !bench.path("out.pcap").exists(), "{}", finished.stderr);
    }
}

#[test]
fn the_buffer_that_is_recommended_is_enough_and_less_is_not() {
    let bench = Bench::new();
    // Bursts of 10 frames every 100 us. They are sent one every 10 us, or at the same mean rate in waves. The first
    // frame arrives alone.
    let records: Vec<Record> =
        (0..1_001_u32).map(|i| frame(if i == 0 { 0 } else { u64::from(i.div_ceil(10)) * 100_000 }, 1, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    for schedule in [
        ["--gap", "10us"],
        ["--gap", "uniform 9us..11us"],
        ["--rate", "80Mbps"],
        ["--rate", "burst 160Mbps for 50us every 100us"],
        ["--rate", "ramp 60Mbps..100Mbps over 20ms repeat"],
    ] {
        let run = |buffer: f64| {
            let buffer = format!("{}ns", buffer as u64);
            let report = shape(&bench, &[schedule[0], schedule[1], "--buffer", &buffer]);
            (report["starved"].as_u64().expect("a count"), report["buffer"]["width_ns"].as_f64().expect("a width"))
        };
        let (starved, width) = run(0.0);
        assert!(starved > 0 && width > 50_000.0, "{schedule:?}: {starved}, {width} ns");
        assert_eq!(run(width.ceil()).0, 0, "{schedule:?}: {width} ns is enough");
        let (starved, told) = run(width.ceil() + 70_000.0);
        assert!(starved == 0 && (told - width).abs() <= 1.0, "{schedule:?}: of more it tells {told} ns, not {width}");
        assert!(run(width - 1_000.0).0 > 0, "{schedule:?}: less than {width} ns is not");
        let first = bench.listed("out.csv")[0].start_ps;
        assert!(first.abs_diff((width - 1_000.0) as u64 * 1_000) <= 2_000, "it starts after the wait: {first} ps");
    }
}

#[test]
fn rate_follows_the_queue_depth() {
    let bench = Bench::new();
    // 1000 frames of 100 B at once: 8 us each at 100 Mbit/s, 1 us at 800 Mbit/s.
    let records: Vec<Record> = (0..1_000).map(|i| frame(0, 1, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    shape(&bench, &["--rate", "follow-depth 100Mbps..800Mbps over 700 frames"]);
    let starts: Vec<u64> = bench.listed("out.csv").iter().map(|frame| frame.start_ps).collect();
    assert_eq!(starts.len(), 1_000);
    let mut due = 0.0;
    for (k, start) in starts.iter().enumerate() {
        let late = *start as f64 - due;
        assert!(late.abs() <= 43.0 * BYTE_PS as f64, "frame {k} is off by {late} ps");
        // 999 − k frames wait behind frame k.
        let waiting = (999.0 - k as f64).min(700.0);
        due += 800.0 / (100.0 + waiting) * 1e6;
    }
}

/// What a receiver sees: crests overlap as they arrive, and once ordered they are disjoint, in turn and spaced as
/// asked.
#[test]
fn a_receiver_sees_crests_overlap_before_and_apart_after() {
    let bench = Bench::new();
    let rounds: Vec<(u8, u64, u64)> = (0..3)
        .flat_map(|k| [(1, k * 100_000 + 7, 200), (2, k * 100_000 + 90, 210), (3, k * 100_000 + 20, 190)])
        .collect();
    bench.capture("in.pcap", Dialect::USUAL, &crests(40, &rounds));
    let measured = |capture: &str| {
        let line = format!("measure --pcap {capture} --sources 10.0.0.1,10.0.0.2,10.0.0.3 --json");
        bench.run(crate::common::words(&line)).report()["pipelines"][0]["arrivals"].clone()
    };
    let before = measured("in.pcap");
    assert_eq!((&before["crests"], &before["overlapping"]), (&json!(9), &json!(9)), "{before}");
    assert_eq!(before["spread_ns"], json!(83_000.0), "from 10.0.0.1 to 10.0.0.2");
    let order = "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 5ms";
    bench.report(["shape", "--in", "pcap:in.pcap", "--out", "wire:10G,pcap=out.pcap", "--sync", order]);
    let after = measured("out.pcap");
    assert_eq!((&after["crests"], &after["overlapping"], &after["out_of_turn"]), (&json!(9), &json!(0), &json!(0)));
    let least = after["apart"]["min_ns"].as_f64().expect("a pause");
    // From start to start: the last frame of a crest, then 5 ms.
    assert!((5e6..5.001e6).contains(&least), "{after}");
    // If a source misses the first round, its turn is skipped once, and its last crest follows without the others.
    let late: Vec<(u8, u64, u64)> = (0..4_u64)
        .flat_map(|k| [(1, k * 400_000, 200), (2, k * 400_000 + 3, 200), (3, k * 400_000 + 590_000, 200)])
        .collect();
    bench.capture("in.pcap", Dialect::USUAL, &crests(40, &late));
    bench.report([
        "shape",
        "--in",
        "pcap:in.pcap",
        "--out",
        "wire:10G,pcap=out.pcap",
        "--sync",
        &format!("{order} wait 300ms"),
    ]);
    let late = measured("out.pcap");
    assert_eq!(
        (&late["out_of_turn"], &late["overlapping"], &late["silent"]),
        (&json!(2), &json!(0), &json!(0)),
        "{late}"
    );
    assert_eq!(late["sources"][0]["out_of_turn"], json!(1), "its turn came again before that of 10.0.0.3");
    assert_eq!(late["sources"][2]["out_of_turn"], json!(1), "10.0.0.1 and 10.0.0.2 had no fifth crest");
}

#[test]
fn the_page_has_a_lane_for_each_source() {
    let bench = Bench::new();
    bench.capture(
        "in.pcap",
        Dialect::USUAL,
        &crests(40, &[(1, 7, 200), (2, 90, 210), (1, 50_000, 200), (2, 50_100, 200)]),
    );
    let order = "order 10.0.0.1,10.0.0.2 gap 5ms";
    bench.report(["shape", "--in", "pcap:in.pcap", "--out", "wire:10G", "--sync", order, "--report", "shaped"]);
    let page = std::fs::read_to_string(bench.path("shaped/report.html")).expect("a page");
    for title in ["Sources as received", "Sources as sent"] {
        let lanes = page.split_once(title).expect(title).1.split_once("</svg>").expect("a drawing").0;
        assert_eq!(lanes.matches("<polyline").count(), 2, "{title}");
    }
    let line = "measure --pcap in.pcap --sources 10.0.0.1,10.0.0.2,10.0.0.7 --report seen";
    assert_eq!(bench.run(crate::common::words(line)).status, Some(0));
    let page = std::fs::read_to_string(bench.path("seen/report.html")).expect("a page");
    assert!(
        page.contains("Sources at the receiver")
            && page.contains("10.0.0.7")
            && page.contains("4 crests, 4 overlapping")
    );
    let data: Value =
        serde_json::from_str(&std::fs::read_to_string(bench.path("seen/report.json")).expect("data")).expect("JSON");
    assert_eq!(data["pipelines"][0]["plots"]["sources"][1]["source"], json!("10.0.0.2"));
}

/// The gap between crests, as asked, as obtained at the output and at a receiver, and in the drawing.
#[test]
fn reports_the_gap_between_crests_beside_the_asked_one() {
    let bench = Bench::new();
    let rounds: Vec<(u8, u64, u64)> =
        (0..4).flat_map(|k| [(1, k * 100_000, 200), (2, k * 100_000 + 3, 200), (3, k * 100_000 + 5, 200)]).collect();
    bench.capture("in.pcap", Dialect::USUAL, &crests(20, &rounds));
    let of_pipeline = |folder: &str| -> Value {
        let text = std::fs::read_to_string(bench.path(&format!("{folder}/report.json"))).expect("data");
        serde_json::from_str::<Value>(&text).expect("JSON")["pipelines"][0].clone()
    };
    let page = |folder: &str| std::fs::read_to_string(bench.path(&format!("{folder}/report.html"))).expect("a page");
    let order = "order 10.0.0.1,10.0.0.2,10.0.0.3 gap 3500us";
    let wire = "wire:10G,pcap=out.pcap,frames=out.csv";
    bench.report(["shape", "--in", "pcap:in.pcap", "--out", wire, "--sync", order, "--report", "shaped"]);
    let shaped = of_pipeline("shaped");
    // From the frame list, without the code under test: the gaps between the crests of 1 and 2, and of 2 and 3, in four
    // rounds.
    let left = listed_crests(&bench.listed("out.csv"));
    let gaps: Vec<u64> = left.windows(2).filter(|pair| pair[1].0 > 1).map(|pair| pair[1].1 - pair[0].2).collect();
    assert_eq!(gaps.len(), 8, "{left:?}");
    let extreme = |of: Option<&u64>| *of.expect("gaps") as f64 / 1_000.0;
    let gap = &shaped["crest_gap"];
    assert_eq!((&gap["asked_ns"], &gap["count"]), (&json!(3_500_000.0), &json!(8)), "{shaped}");
    assert_eq!(
        (&gap["min_ns"], &gap["max_ns"]),
        (&json!(extreme(gaps.iter().min())), &json!(extreme(gaps.iter().max())))
    );
    assert_eq!(shaped["plots"]["crest_gaps"]["got_ns"].as_array().map(Vec::len), Some(8));
    // At a receiver, compared with a gap that was not kept.
    let line = "measure --pcap out.pcap --sources '10.0.0.1,10.0.0.2,10.0.0.3 gap 2ms' --report seen";
    let text = bench.run(crate::common::words(line)).stdout;
    assert!(text.contains("  crest gap asked 2 ms; got min 3.50"), "{text}");
    let gap = of_pipeline("seen")["crest_gap"].clone();
    assert_eq!((&gap["asked_ns"], &gap["count"]), (&json!(2_000_000.0), &json!(8)), "{gap}");
    assert!((3.5e6..3.502e6).contains(&gap["p50_ns"].as_f64().expect("a median")), "{gap}");
    for folder in ["shaped", "seen"] {
        let page = page(folder);
        let drawn = page.split_once("Gaps between crests").expect("a drawing").1.split_once("</svg>").expect("SVG").0;
        assert_eq!(drawn.matches("<polyline").count(), 2, "asked and got, {folder}: {drawn}");
        assert!(drawn.contains("8 gaps: asked"), "{drawn}");
    }
    // Offsets do not ask for a gap, and without an asked gap nothing is compared.
    bench.report([
        "shape",
        "--in",
        "pcap:in.pcap",
        "--out",
        "wire:10G",
        "--sync",
        "order 10.0.0.1,10.0.0.2 offset 9ms",
        "--report",
        "off",
    ]);
    assert!(of_pipeline("off")["crest_gap"].is_null());
    bench.run(crate::common::words("measure --pcap out.pcap --sources 10.0.0.1,10.0.0.2 --report free"));
    let free = of_pipeline("free")["crest_gap"].clone();
    assert!(free["asked_ns"].is_null() && free["count"] == json!(4), "{free}");
    let bad = bench.run(crate::common::words("measure --pcap out.pcap --sources '10.0.0.1,10.0.0.2 gap'"));
    assert!(bad.status == Some(2) && bad.stderr.contains("gap 5ms silence 1ms"), "{}", bad.stderr);
}
