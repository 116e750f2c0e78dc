//! What `emulate` and the stages `delay` and `reorder` do to a capture, checked against the captures.

use crate::common::{Bench, Dialect, Record, caveat};
use serde_json::Value;

const FRAMES: u32 = 50_000;

/// `in.pcap`: numbered frames of `length` B with FCS, 10 µs apart.
fn capture(bench: &Bench, length: u32) {
    let records: Vec<Record> = (0..FRAMES).map(|i| Record::new(u64::from(i) * 10_000, length, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
}

fn emulate(bench: &Bench, spec: &str, more: &[&str]) -> (Value, Vec<Record>) {
    let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", spec];
    let report = bench.report(arguments.iter().chain(more));
    (report, bench.records("out.pcap"))
}

fn number(record: &Record) -> u32 {
    u32::from_be_bytes(record.bytes[14..18].try_into().expect("four bytes"))
}

#[test]
fn delay_is_exact_and_loss_is_the_share_asked() {
    let bench = Bench::new();
    capture(&bench, 64);
    let (report, out) = emulate(&bench, "delay 50ms loss 20%", &[]);
    assert!(out.iter().all(|record| record.ns == u64::from(number(record)) * 10_000 + 50_000_000));
    let lost = FRAMES as usize - out.len();
    // Four standard deviations of a binomial with n = 50 000, p = 0.2: 358.
    assert!(lost.abs_diff(10_000) < 358, "{lost}");
    assert_eq!(report["drops"]["loss"], lost);
    assert_eq!(report["name"], "forward");
    assert_eq!(report["delay"]["mean_ns"], 50_000_000.0);
}

#[test]
fn the_same_seed_loses_the_same_frames_and_a_seed_in_the_words_beats_it() {
    let bench = Bench::new();
    capture(&bench, 64);
    let lost = |spec, seed| emulate(&bench, spec, &["--seed", seed]).1.iter().map(number).collect::<Vec<_>>();
    assert_eq!(lost("loss 5%", "3"), lost("loss 5%", "3"));
    assert_ne!(lost("loss 5%", "3"), lost("loss 5%", "4"));
    assert_eq!(lost("loss 5% seed 9", "3"), lost("loss 5% seed 9", "4"));
}

/// One packet of 1500 B each millisecond, as in Mahimahi, for either command.
#[test]
fn emulate_and_shape_read_a_trace_alike() {
    let bench = Bench::new();
    bench.write("t", "1\n");
    bench.generate("1518B", 500);
    let (_, emulated) = emulate(&bench, "rate trace t", &[]);
    bench.report(["shape", "--in", "pcap:in.pcap", "--out", "pcap:shaped.pcap", "--rate", "trace t"]);
    for records in [emulated, bench.records("shaped.pcap")] {
        assert_eq!(records.len(), 500);
        assert!(records.windows(2).all(|pair| pair[1].ns - pair[0].ns == 1_000_000));
    }
}

#[test]
fn a_bare_number_and_a_part_of_a_word_are_refused() {
    let bench = Bench::new();
    for (spec, said) in [
        ("loss 0.3", "'0.3' has no unit, and tc reads it as 0.3 %"),
        ("delay 5ms rate 10", "character 16 of 'delay 5ms rate 10': '10' has no unit, and tc reads it as 10 bit/s"),
        ("los 1%", "did you mean loss?"),
    ] {
        let finished = bench.run(["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", spec]);
        assert!(finished.status == Some(2) && finished.stderr.contains(said), "{spec}: {}", finished.stderr);
    }
}

#[test]
fn a_rate_holds_at_every_instant() {
    let bench = Bench::new();
    capture(&bench, 1_004);
    let (report, out) = emulate(&bench, "rate 1gbit limit 100000", &[]);
    // Frames of 1000 B without FCS arrive every 10 µs and take 8 µs to send, so each is delayed by 8 µs.
    assert!(out.iter().all(|record| record.ns == u64::from(number(record)) * 10_000 + 8_000));
    let (_, out) = emulate(&bench, "rate 100mbit limit 100000", &[]);
    assert!((1..).zip(&out).all(|(i, record)| record.ns == i * 80_000), "one after the other");
    assert!(report["drops"].as_object().is_some_and(serde_json::Map::is_empty));
    let (report, out) = emulate(&bench, "rate 100mbit limit 100", &[]);
    assert_eq!(report["drops"]["queue"], FRAMES as usize - out.len());
}

#[test]
fn duplicates_are_copies_in_the_books() {
    let bench = Bench::new();
    capture(&bench, 64);
    let (report, out) = emulate(&bench, "duplicate 10%", &[]);
    let copies = out.len() - FRAMES as usize;
    assert!(copies.abs_diff(5_000) < 269, "{copies}");
    assert_eq!((&report["copies"], &report["effects"]["duplicated"]), (&copies.into(), &copies.into()));
}

#[test]
fn logged_decisions_can_be_replayed() {
    let bench = Bench::new();
    capture(&bench, 128);
    for spec in [
        "delay 10ms 2ms 25% distribution normal loss gemodel 2% 20% duplicate 2% corrupt 3% reorder 10%",
        "delay 2ms 1ms duplicate 2% corrupt 3% rate 90mbit limit 800 queue fq_codel target 2ms interval 10ms",
        "delay 2ms loss 1% corrupt 3% rate 90mbit queue red min 10kB max 40kB",
    ] {
        let (first, out) = emulate(&bench, spec, &["--decisions", "log.csv"]);
        let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:again.pcap", "--replay", "log.csv"];
        let report = bench.report(arguments);
        assert!(bench.records("again.pcap") == out, "{spec}: the same frames at the same instants");
        assert_eq!(
            (&report["drops"], &report["delay"]["p99_ns"]),
            (&first["drops"], &first["delay"]["p99_ns"]),
            "{spec}"
        );
        assert!(report["effects"]["corrupted"].as_u64().is_some_and(|n| n > 0));
        assert_eq!(spec.contains("queue"), report["drops"]["aqm"].as_u64().is_some_and(|n| n > 100), "{spec}");
        let log = std::fs::read_to_string(bench.path("log.csv")).expect("a log");
        assert_eq!(log.lines().count() as u64, 1 + u64::from(FRAMES) + report["copies"].as_u64().expect("copies"));
    }
}

#[test]
fn marks_and_changes_are_done_again_in_their_order() {
    let bench = Bench::new();
    let stream = "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B ecn 2 stamp off";
    bench.report(["gen", "--out", "pcap:in.pcap", "--count", "20000", "--rate", "10kpps", "--stream", stream]);
    // Frames are short, and many of the changes hit the header.
    for (spec, fates) in [
        ("loss 30% ecn duplicate 30% corrupt 50%", "mark"),
        ("corrupt 50% rate 4mbit queue codel target 1ms ecn", "mark-queue"),
        ("loss 50% ecn corrupt 50% rate 4mbit queue codel target 1ms", "mark mark-queue mark-twice"),
    ] {
        let (_, out) = emulate(&bench, spec, &["--decisions", "log.csv"]);
        bench.report(["emulate", "--in", "pcap:in.pcap", "--out", "pcap:again.pcap", "--replay", "log.csv"]);
        assert!(bench.records("again.pcap") == out, "{spec}: the same frames at the same instants");
        let log = std::fs::read_to_string(bench.path("log.csv")).expect("a log");
        assert!(fates.split(' ').all(|fate| log.contains(&format!(",{fate},"))), "{spec}: {fates}");
    }
}

#[test]
fn replay_holds_the_frames_that_were_held() {
    let bench = Bench::new();
    capture(&bench, 128);
    for spec in ["rate 90mbit limit 800 queue fq_codel", "delay 2ms 1ms rate 50mbit duplicate 5% queue codel"] {
        let (first, out) = emulate(&bench, spec, &["--decisions", "log.csv", "--duration", "100ms"]);
        let words = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:again.pcap", "--replay", "log.csv"];
        let again = bench.report(words.iter().chain(&["--duration", "100ms"]));
        assert!(bench.records("again.pcap") == out, "{spec}: the same frames at the same instants");
        assert!(first["held"].as_u64().is_some_and(|held| held > 100), "{spec}: {first}");
        assert_eq!((&again["held"], &again["drops"]), (&first["held"], &first["drops"]), "{spec}");
        let log = std::fs::read_to_string(bench.path("log.csv")).expect("a log");
        assert!(log.contains(",held,0,"), "{spec}");
    }
}

#[test]
fn each_class_has_its_own_log_and_all_are_replayed() {
    let bench = Bench::new();
    capture(&bench, 128);
    let run = |out: &str, more: &[&str]| {
        let out = format!("pcap:{out}");
        let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", &out, "--class", "fourth = bytes 00/03 at 17"];
        bench.report(arguments.iter().chain(more))
    };
    let specs = ["--forward", "fourth=loss 10% delay 5ms 1ms", "--forward", "loss 1% corrupt 2%"];
    let report = run("out.pcap", &[&specs[..], &["--decisions", "log.csv"]].concat());
    let again = run("again.pcap", &["--replay", "log.csv"]);
    assert!(bench.records("again.pcap") == bench.records("out.pcap"), "the same frames at the same instants");
    assert_eq!(again["drops"], report["drops"]);
    let lines = |name: &str| std::fs::read_to_string(bench.path(name)).expect("a log").lines().count() as u32 - 1;
    assert_eq!((lines("log-fourth.csv"), lines("log.csv")), (FRAMES / 4, FRAMES - FRAMES / 4));
}

#[test]
fn chances_are_reported_asked_and_got() {
    let bench = Bench::new();
    capture(&bench, 64);
    let (report, out) = emulate(&bench, "loss gemodel 1% 9% corrupt 5%", &[]);
    let loss = &report["choices"]["loss"];
    assert_eq!((&loss["frames"], &loss["hits"]), (&FRAMES.into(), &report["drops"]["loss"]));
    assert!((loss["asked_ratio"].as_f64().expect("a share") - 0.1).abs() < 1e-9, "{report}");
    let corrupt = &report["choices"]["corrupt"];
    assert_eq!((&corrupt["frames"], &corrupt["hits"]), (&out.len().into(), &report["effects"]["corrupted"]));
}

#[test]
fn tables_of_tc_are_found_where_this_system_has_them() {
    let bench = Bench::new();
    capture(&bench, 64);
    let arguments = ["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--json", "--forward"];
    let finished = bench.run(arguments.iter().copied().chain(["delay 10ms 2ms distribution experimental"]));
    if finished.status != Some(0) {
        // Without iproute2 there are no distribution tables. The error lists the folders that were searched.
        assert!(
            finished.stderr.contains("experimental.dist") && finished.stderr.contains("/usr/lib/tc"),
            "{}",
            finished.stderr
        );
        println!("SKIP: {}", finished.stderr);
        return;
    }
    let (report, _) = emulate(&bench, "delay 10ms 2ms distribution experimental", &[]);
    assert!(report["delay"]["std_ns"].as_f64().is_some_and(|sd| (1.5e6..2.5e6).contains(&sd)), "{report}");
}

#[test]
fn shape_delays_and_reorders_each_flow() {
    let bench = Bench::new();
    capture(&bench, 64);
    let arguments = ["shape", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--delay", "3ms", "--reorder", "25%"];
    let report = bench.report(arguments);
    let (mut next, mut reordered) = (0, 0);
    for record in bench.records("out.pcap") {
        if number(&record) < next { reordered += 1 } else { next = number(&record) + 1 }
    }
    // Four standard deviations of a binomial with n = 50 000, p = 0.25: 387.
    assert!(u32::abs_diff(reordered, 12_500) < 387, "{reordered}");
    let told = report["reorder"]["reordered"].as_u64().expect("a count");
    assert_eq!(told, u64::from(reordered));
    assert_eq!(report["reorder"]["frames"], FRAMES);
    assert_eq!(report["delay"]["mean_ns"], 3_000_000.0);
}

#[test]
fn rejects_bad_words_with_their_column_and_writes_nothing() {
    let bench = Bench::new();
    capture(&bench, 64);
    for (spec, words) in [
        ("dely 10ms", "--forward: character 1 of 'dely 10ms'"),
        ("delay 100", "character 7"),
        ("delay 10ms losss 1%", "did you mean loss?"),
        ("reorder 25%", "nothing is delayed"),
        ("loss pattern nowhere.txt", "nowhere.txt"),
        ("mtu 1300 icmp", "no frames are carried back"),
    ] {
        let finished = bench.run(["emulate", "--in", "pcap:in.pcap", "--out", "pcap:new.pcap", "--forward", spec]);
        assert_eq!(finished.status, Some(2), "{spec}");
        assert!(finished.stderr.contains(words) && finished.stderr.lines().count() == 1, "{spec}: {}", finished.stderr);
    }
    for arguments in [
        &["emulate", "--in", "pcap:in.pcap", "--out", "pcap:new.pcap"][..],
        &["emulate", "--in", "pcap:in.pcap", "--out", "pcap:new.pcap", "--both", "loss 1%"],
        &["emulate", "--between", "pcap:in.pcap", "pcap:new.pcap", "--both", "loss 1%"],
        &["emulate", "--between", "a", "b", "--class", "w = tcp", "--forward", "w=loss 1%", "--both", "loss 1%"],
        &["emulate", "--in", "pcap:in.pcap", "--out", "pcap:in.pcap", "--forward", "loss 1%"],
        &["emulate", "--in", "pcap:in.pcap", "--out", "pcap:new.pcap", "--replay", "in.pcap"],
    ] {
        let finished = bench.run(arguments);
        assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    }
    // Two stages would write to one log, each with its own numbering.
    let twice = ["--forward", "loss 50%", "--forward", "loss 50%", "--decisions", "log.csv"];
    let finished = bench.run([&["emulate", "--in", "pcap:in.pcap", "--out", "pcap:new.pcap"][..], &twice].concat());
    assert!(finished.status == Some(2) && finished.stderr.contains("a log covers one SPEC"), "{}", finished.stderr);
    // `--between` cannot cut off a session, so `--yes` is refused.
    let finished = bench.run(["emulate", "--between", "c0", "s0", "--yes", "--forward", "loss 1%"]);
    assert!(
        finished.status == Some(2) && finished.stderr.contains("cannot be used with '--yes'"),
        "{}",
        finished.stderr
    );
    assert!(!bench.path("new.pcap").exists());
}

#[test]
fn check_shows_how_netem_would_differ() {
    let bench = Bench::new();
    capture(&bench, 100);
    let text = "schema = 1\n[[pipeline]]\nname = 'p'\nin = 'pcap:in.pcap'\nout = 'null'\n\
                stages = ['netem delay 100ms 10ms loss 0.3% 25%']\n";
    std::fs::write(bench.path("a.toml"), text).expect("a scenario");
    let finished = bench.run(["check", "a.toml"]);
    assert_eq!(finished.status, Some(0), "{}", finished.stderr);
    assert!(finished.stderr.contains("0.0000 % of frames, not 0.3%"), "{}", finished.stderr);
    assert!(finished.stderr.contains("1000 frames") && finished.stdout.contains("loss random 0.3% 25%"));
}

#[test]
fn frames_that_no_undetected_change_fits_are_counted_with_the_reason() {
    let bench = Bench::new();
    // UDP with a payload of zeros, which can be corrupted; ICMP; ARP; UDP with one byte of payload.
    let frame = |protocol: u8, ether_type: [u8; 2], length: u16| {
        let [high, low] = length.to_be_bytes();
        let mut bytes = [&[2; 12][..], &ether_type, &[0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0]].concat();
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 53, 0, 53, 0, length as u8 - 20, 0, 0]);
        bytes.resize(96, 0);
        bytes
    };
    let kinds = [frame(17, [8, 0], 80), frame(1, [8, 0], 80), frame(17, [8, 6], 80), frame(17, [8, 0], 29)];
    let records: Vec<Record> =
        (0..40).map(|i| Record { ns: i * 1_000, original: 96, bytes: kinds[i as usize % 4].clone() }).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let spec = "corrupt 100% mode checksum-valid";
    let finished =
        bench.run(["emulate", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--forward", spec, "--json"]);
    let report = finished.report();
    let effects = &report["pipelines"][0]["effects"];
    for (name, frames) in [
        ("corrupted", 10),
        ("incorruptible", 30),
        ("incorruptible-no-transport", 10),
        ("incorruptible-no-ip", 10),
        ("incorruptible-short", 10),
    ] {
        assert_eq!(effects[name], frames, "{effects}");
    }
    let warning = caveat(&report, "incorruptible");
    assert_eq!((&warning["frames"], &warning["of_frames"]), (&30.into(), &40.into()));
    let warning = warning["text"].as_str().expect("words");
    assert!(warning.contains("30 of 40 frames") && warning.contains("10 without TCP or UDP"), "{warning}");
    assert!(finished.stderr.contains(warning), "{}", finished.stderr);
    let out = bench.records("out.pcap");
    assert!(out.iter().zip(&records).all(|(out, record)| (out.bytes == record.bytes) == (record.bytes != kinds[0])));
}
