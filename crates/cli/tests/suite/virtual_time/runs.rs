//! How a run handles its input: repetition, starvation, delays, drops, the end, and bounded memory.

use super::{WIRE_1G, WIRE_3G, WIRE_10G, WIRE_25G, WIRE_100G, WIRE_400G, check_bytes, shape, uneven_arrivals};
use crate::common::{Bench, Dialect, Finished, words};
use std::process::{Command, Stdio};

#[test]
fn the_same_command_twice_gives_the_same_files() {
    for how in ["--gap 1234.567ns", "--rate 3.7Gbps --stage 'loss 3%' --stage 'delay 1ms'", "--rate 60%"] {
        let outputs = || {
            let bench = Bench::new();
            bench.generate("random 64B-1518B", 3_000);
            let out = "wire:10G,pcap=out.pcap,frames=out.csv,fillers=keep";
            let command = words(&format!("shape --in pcap:in.pcap --out {out} {how} --seed 99 --json"));
            let finished = bench.run(command);
            (bench.read("in.pcap"), bench.read("out.pcap"), bench.read("out.csv"), finished.stdout)
        };
        assert!(outputs() == outputs(), "{how}");
    }
    let bench = Bench::new();
    let made = |seed: &str| {
        let stream = "udp random 10.0.0.1-10.0.0.99:1-9 > 10.0.0.2:2000 size random 64B-1518B";
        bench.report(["gen", "--out", "pcap:a.pcap", "--stream", stream, "--count", "1000", "--seed", seed]);
        bench.read("a.pcap")
    };
    assert!(made("1") == made("1") && made("1") != made("2"));
}

#[test]
fn a_starved_schedule_restarts_at_the_arrival() {
    let bench = Bench::new();
    let arrived = uneven_arrivals(5_000);
    bench.capture("in.pcap", Dialect::USUAL, &arrived);
    for (line, gap, gap_ps) in [
        (WIRE_10G, "10us", 10_000_000),
        (WIRE_10G, "2us", 2_000_000),
        (WIRE_1G, "15000.001ns", 15_000_001),
        (WIRE_100G, "1234.567ns", 1_234_567),
        (WIRE_3G, "9us", 9_000_000),
    ] {
        let (listed, report) = shape(&bench, line, &format!("--gap {gap}"));
        let (mut due, mut starved) = (0, 0_u64);
        for (frame, captured_frame) in listed.iter().zip(&arrived) {
            let arrival = (captured_frame.ns - arrived[0].ns) * 1_000;
            if arrival > due {
                starved += 1;
                due = arrival;
            }
            let off = frame.start_ps.abs_diff(due) as f64;
            // If the idle time before it is too short for a filler, the frame waits for one.
            let bound = if off <= line.half_byte() { line.half_byte() } else { line.ps(84.0) };
            assert!(off <= bound, "{} {gap}: off by {off} ps", line.name);
            assert!(frame.start_ps as f64 >= arrival as f64 - line.half_byte().max(1_000.0), "left before it came");
            due += gap_ps;
        }
        assert_eq!(report["starved"], starved, "{} {gap}", line.name);
        assert!(starved > 100);
        check_bytes(&bench, &listed);
    }
}

#[test]
fn frames_of_a_capture_never_depart_before_they_arrive() {
    let bench = Bench::new();
    let arrived = uneven_arrivals(5_000);
    bench.capture("in.pcap", Dialect::USUAL, &arrived);
    for (line, how) in [
        (WIRE_10G, ""),
        (WIRE_10G, "--gap 1ns"),
        (WIRE_10G, "--gap 100ns"),
        (WIRE_10G, "--rate 9Gbps"),
        (WIRE_10G, "--rate 100%"),
        (WIRE_25G, "--rate 20Gbps --pacer launch-time"),
        (WIRE_100G, "--gap 50ns"),
        (WIRE_400G, ""),
    ] {
        let (listed, _) = shape(&bench, line, how);
        for (frame, record) in listed.iter().zip(&arrived) {
            let arrival = (record.ns - arrived[0].ns) * 1_000;
            assert!(frame.start_ps + 1_000 >= arrival, "{} {how}: at {} of {arrival}", line.name, frame.start_ps);
        }
        check_bytes(&bench, &listed);
    }
}

#[test]
fn delays_are_exact_and_add_up() {
    let bench = Bench::new();
    let arrived = uneven_arrivals(2_000);
    bench.capture("in.pcap", Dialect::USUAL, &arrived);
    for (stages, by) in [
        ("--stage 'delay 50ms'", 50_000_000),
        ("--stage 'delay 1us' --stage 'delay 999us' --stage 'delay 0s'", 1_000_000),
        ("--stage 'delay 3s'", 3_000_000_000),
    ] {
        let report = bench.report(words(&format!("shape --in pcap:in.pcap --out pcap:out.pcap {stages}")));
        let left = bench.records("out.pcap");
        assert_eq!((left.len(), &report["held"]), (2_000, &0.into()));
        for (arrived, left) in arrived.iter().zip(&left) {
            assert!(left.ns == arrived.ns + by && left.bytes == arrived.bytes, "{stages}");
        }
    }
}

#[test]
fn losses_are_as_many_as_asked_and_seeded() {
    let bench = Bench::new();
    bench.generate("64B", 50_000);
    let sequence = |seed: &str, stage: &str| {
        let report =
            bench.report(["shape", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--stage", stage, "--seed", seed]);
        let left = bench.records("out.pcap");
        let lost = report["drops"]["loss"].as_u64().unwrap_or(0);
        assert_eq!((&report["out"]["frames"], lost), (&left.len().into(), 50_000 - left.len() as u64));
        left.into_iter().map(|record| record.bytes).collect::<Vec<_>>()
    };
    for (stage, share) in [("loss 0%", 0.0), ("loss 0.1%", 0.001), ("loss 20%", 0.2), ("loss 100%", 1.0)] {
        let lost = 50_000.0 - sequence("3", stage).len() as f64;
        let sigma = f64::sqrt(50_000.0 * share * (1.0 - share));
        assert!((lost - 50_000.0 * share).abs() <= 4.0 * sigma, "{stage}: {lost} lost");
    }
    assert!(sequence("3", "loss 20%") == sequence("3", "loss 20%"));
    assert!(sequence("3", "loss 20%") != sequence("4", "loss 20%"));
}

#[test]
fn a_duration_cuts_with_balanced_books() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 20_000);
    for (how, end) in [
        ("--gap 10us --duration 100ms", 100_000_000_000),
        ("--gap 10us --duration 99.999999ms", 99_999_999_000),
        ("--rate 1Gbps --duration 1ms --stage 'delay 300us' --stage 'loss 10%'", 1_000_000_000),
        ("--duration 5us", 5_000_000),
        ("--stage 'delay 10ms' --duration 1ms", 1_000_000_000),
        ("--gap 10us --duration 0s", 0),
    ] {
        let (listed, report) = shape(&bench, WIRE_10G, how);
        assert!(listed.iter().all(|frame| frame.start_ps < end.max(1)), "{how}");
        assert!(listed.len() < 20_000, "{how}");
        assert_eq!(report["out"]["frames"], listed.len());
        if how.starts_with("--gap 10us") {
            assert_eq!(listed.len() as u64, end.div_ceil(10_000_000), "{how}");
        }
    }
    let report =
        bench.report(words("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --rate 1Mpps --duration 10ms"));
    assert_eq!(report["out"]["frames"], 10_000, "one at the start, none at the very end");
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let bench = Bench::new();
    bench.generate("600B", 100_000);
    let limited = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -d 32768 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_netlathe")]).args(words(line));
        shell.current_dir(bench.path("")).stdin(Stdio::null());
        Finished::of(shell.output().expect("a shell"))
    };
    assert!(bench.read("in.pcap").len() > 60_000_000, "more than the limit allows to hold");
    for line in [
        "shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap,frames=out.csv --gap 2us --json",
        "shape --in pcap:in.pcap --out pcap:out.pcapng --rate 100Mbps --stage 'delay 1us' --json",
        "shape --in pcap:out.pcapng --out null --json",
        "measure --pcap in.pcap --write out.pcap --json",
        "gen --out pcap:out.pcap --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 1500B' --count 50000 --json",
    ] {
        let finished = limited(line);
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{line}");
        finished.report();
    }
    let held = limited("shape --in pcap:in.pcap --out null --stage 'delay 1000s' --json");
    assert_ne!(held.status, Some(0), "the limit is real: who holds the whole file exceeds it");
}

/// Regression: such endless texts were read until memory was full.
#[test]
fn texts_that_never_end_are_refused() {
    let bench = Bench::new();
    bench.generate("64B", 1);
    let shape = "shape --in pcap:in.pcap --out null";
    let limit = "limit --in pcap:in.pcap --out null --key dst-ip --rate 1Mbps --mode police";
    for (line, option) in [
        ("check /dev/zero".to_owned(), ""),
        (format!("{shape} --rate 'trace /dev/zero'"), "--rate: "),
        (format!("{shape} --rate 'steps /dev/zero every 1ms'"), "--rate: "),
        (format!("{shape} --gap 'table /dev/zero'"), "--gap: "),
        (format!("{shape} --stage 'replay /dev/zero'"), "--stage: "),
        (format!("{limit} --rates /dev/zero"), "limit: "),
    ] {
        let refused = bench.run(words(&line));
        assert_eq!(refused.status, Some(2), "{line}: {}", refused.stderr);
        let said = format!("netlathe: {option}cannot read /dev/zero: byte 1 is zero, so this is not text: ");
        assert!(refused.stderr.starts_with(&said), "{line}: {}", refused.stderr);
    }
    std::fs::write(bench.path("bytes"), [0; 8]).expect("written");
    let search = "search --dut 'loss 1%' --trial 10ms --max 1Mpps --trials";
    let refused = bench.run(words(&format!("{search} bytes")));
    assert!(refused.stderr.contains("--trials: bytes: byte 1 is zero, so this is not text"), "{}", refused.stderr);
    // A device has no earlier trials, so it is only written.
    assert_eq!(bench.run(words(&format!("{search} /dev/zero"))).status, Some(0));
    let mut shell = Command::new("sh");
    shell.args(["-c", "yes | \"$0\" check /dev/stdin", env!("CARGO_BIN_EXE_netlathe")]);
    let refused = Finished::of(shell.output().expect("a shell"));
    let said = "it is not a regular file, and 256 MiB were read without an end";
    assert!(refused.status == Some(2) && refused.stderr.contains(said), "{}", refused.stderr);
}
