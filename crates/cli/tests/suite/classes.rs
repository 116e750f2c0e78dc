//! Classes: which frames match them and when the frames depart. Checked against frame lists and captures, without the
//! code under test.

use crate::common::{Bench, Dialect, Finished, Record, words};
use serde_json::Value;
use std::process::{Command, Stdio};

/// A UDP frame of `length` bytes with FCS, from `10.0.0.source` to a port, with a number in its payload.
fn udp(ns: u64, length: u32, source: u8, port: u16, number: u32) -> Record {
    let mut record = Record::new(ns, length, 0);
    let ip = length as u16 - 18;
    let frame = &mut record.bytes;
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 9, 9, 9]);
    frame[16..18].copy_from_slice(&ip.to_be_bytes());
    frame[34..36].copy_from_slice(&1_000_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip - 20).to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    record
}

fn port(record: &Record) -> u16 {
    u16::from_be_bytes([record.bytes[36], record.bytes[37]])
}

fn class<'r>(report: &'r Value, name: &str) -> &'r Value {
    let classes = report["classes"].as_array().expect("classes");
    classes.iter().find(|class| class["name"] == name).unwrap_or_else(|| panic!("no class {name} in {report}"))
}

fn frames(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer} in {report}"))
}

/// The in, out, drop and held counters of the classes add up to those of the pipeline, and each set balances.
fn assert_books(report: &Value) {
    let classes = report["classes"].as_array().expect("classes");
    let dropped = |of: &Value| of["drops"].as_object().expect("drops").values().filter_map(Value::as_u64).sum::<u64>();
    for pointer in ["/in/frames", "/in/bytes", "/out/frames", "/out/bytes", "/held", "/copies"] {
        let sum: u64 = classes.iter().map(|class| frames(class, pointer)).sum();
        assert_eq!(sum, frames(report, pointer), "{pointer}");
    }
    assert_eq!(classes.iter().map(dropped).sum::<u64>(), dropped(report));
    for class in classes.iter().chain([report]) {
        let out = frames(class, "/out/frames") + dropped(class) + frames(class, "/held");
        assert_eq!(frames(class, "/in/frames") + frames(class, "/copies"), out, "{class}");
    }
}

/// The asked rate of a pipeline is the sum of its classes' rates, if every class that got frames has a rate of the same
/// kind.
#[test]
fn rates_of_classes_are_summed_for_the_pipeline() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..3_000).map(|i| udp(0, 100, 1, if i % 3 == 0 { 443 } else { 80 }, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let classes = "shape --in pcap:in.pcap --out null --class 'web = dport 80' --class 'tls = dport 443'";
    for (rates, sum, text) in [
        ("--rate web=20kpps --rate tls=10kpps", Some(("fps", 30_000.0)), "30kpps"),
        ("--rate web=2Mbps --rate tls=1Mbps", Some(("bps", 3e6)), "3Mbps"),
        ("--rate web=20kpps --rate tls=1Mbps", None, ""),
        ("--rate web=20kpps", None, ""),
    ] {
        let report = bench.report(words(&format!("{classes} {rates}")));
        let asked = &report["rate"]["asked"];
        assert_eq!(asked.is_null(), sum.is_none(), "{rates}: {asked}");
        let Some((unit, sum)) = sum else { continue };
        assert!((asked[unit].as_f64().expect("a sum") - sum).abs() < 1e-6, "{rates}: {asked}");
        assert_eq!(asked["text"], text, "{rates}");
        // Both classes end at the same time, so the pipeline reaches the sum.
        let got = report["rate"][format!("mean_{unit}")].as_f64().expect("measured");
        assert!((got / sum - 1.0).abs() < 0.01, "{rates}: {got}");
        assert!(class(&report, "web")["rate"]["asked"].is_object() && report.get("buffer").is_none());
    }
}

#[test]
fn each_class_keeps_its_own_schedule_on_one_wire() {
    let bench = Bench::new();
    // All frames arrive at once, so no class is starved. 100 B for one class, 200 B for the other, 300 B for the rest.
    let records: Vec<Record> = (0..3_000)
        .map(|i| match i % 3 {
            0 => udp(0, 100, 1, 80, i),
            1 => udp(0, 200, 1, 443, i),
            _ => udp(0, 300, 1, 53, i),
        })
        .collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report = bench.report(words(
        "shape --in pcap:in.pcap --out wire:10G,frames=out.csv --class 'web = udp dport 80' \
         --class 'tls = udp dport 443' --gap web=10us --rate tls=100Mbps --gap 7us",
    ));
    let listed = bench.listed("out.csv");
    assert_eq!(listed.len(), 3_000);
    // At 100 Mbit/s, 200 B take 16 us.
    for (length, gap) in [(100, 10_000_000), (200, 16_000_000), (300, 7_000_000)] {
        let starts: Vec<u64> =
            listed.iter().filter(|frame| frame.length == length).map(|frame| frame.start_ps).collect();
        assert_eq!(starts.len(), 1_000);
        for (k, start) in starts.iter().enumerate() {
            // The line may be busy with one other frame of at most 320 byte times, and one more may be ahead of this
            // one. A gap too short for a filler is carried.
            let late = start.abs_diff(k as u64 * gap);
            assert!(late <= (320 + 220 + 84 + 42) * 800, "frame {k} of {length} B is off by {late} ps");
        }
    }
    assert_books(&report);
    assert!(frames(class(&report, "tls"), "/contended/frames") > 0);
    assert_eq!(class(&report, "web")["match"], "udp dport 80");
    assert!(class(&report, "default").get("match").is_none());
    assert_eq!(class(&report, "web").pointer("/gap/error/asked_ns").and_then(Value::as_f64), Some(10_000.0));
}

#[test]
fn the_backlog_of_one_class_does_not_stop_another() {
    let bench = Bench::new();
    // One class may send a hundredth of what arrives. The other passes at once.
    let records: Vec<Record> =
        (0..2_000).map(|i| udp(u64::from(i) * 10_000, 500, 1, if i % 10 == 0 { 80 } else { 443 }, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report =
        bench.report(words("shape --in pcap:in.pcap --out pcap:out.pcap --class 'slow = dport 443' --rate slow=4Mbps"));
    let out = bench.records("out.pcap");
    for record in out.iter().filter(|record| port(record) == 80) {
        let number = u32::from_be_bytes(record.bytes[42..46].try_into().expect("four bytes"));
        let before = records[number as usize].ns;
        assert_eq!(record.ns, before, "frame {number} passes at once");
    }
    let slow: Vec<u64> = out.iter().filter(|record| port(record) == 443).map(|record| record.ns).collect();
    assert!(slow.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000), "500 B at 4 Mbit/s are 1 ms");
    assert_eq!((out.len(), slow.len()), (2_000, 1_800));
    assert_books(&report);
    // Arrivals last 20 ms. Only 20 frames have left by then.
    assert!(frames(class(&report, "slow"), "/depth/max_frames") > 1_700);
}

#[test]
fn stages_are_of_one_class_and_draw_by_themselves() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..2_000).map(|i| udp(u64::from(i) * 1_000, 100, 1, 80 + (i % 2) as u16, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let shape = |more: &[&str]| {
        let common = ["shape", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap", "--stage", "loss 10%"];
        let report = bench.report(common.iter().copied().chain(more.iter().copied()));
        (report, bench.records("out.pcap"))
    };
    let class_80 = ["--class", "a = dport 80", "--stage", "a=delay 5ms", "--stage", "a=loss 20%"];
    let (report, out) = shape(&class_80);
    assert_books(&report);
    let lost = frames(class(&report, "a"), "/drops/loss");
    assert!((150..250).contains(&lost), "{lost} of 1000");
    for record in &out {
        let number = u32::from_be_bytes(record.bytes[42..46].try_into().expect("four bytes"));
        let delay = if port(record) == 80 { 5_000_000 } else { 0 };
        assert_eq!(record.ns, u64::from(number) * 1_000 + delay);
    }
    // Random draws of the default class do not depend on the other classes.
    let (_, other) = shape(&["--class", "b = dport 80", "--gap", "b=9us"]);
    let of_default =
        |records: &[Record]| -> Vec<Record> { records.iter().filter(|record| port(record) == 81).cloned().collect() };
    assert_eq!(of_default(&out), of_default(&other));
}

#[test]
fn simultaneous_departures_follow_the_order_of_classes() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..300).map(|i| udp(0, 100, 1, 80 + (i % 3) as u16, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report = bench.report(words(
        "shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --class 'c = dport 82' --class 'a = dport 80' \
         --gap c=10us --gap a=10us --gap 10us",
    ));
    let ports: Vec<u16> = bench.records("out.pcap").iter().map(port).collect();
    assert!(ports.chunks(3).all(|ports| ports == [82, 80, 81]), "{ports:?}");
    assert_eq!(frames(class(&report, "c"), "/contended/frames"), 0);
    // One frame waits 120 byte times of 800 ps, two frames wait twice that.
    assert_eq!(class(&report, "a")["contended"]["frames"], 100);
    assert_eq!(class(&report, "a")["contended"]["max_ns"], 96.0);
    assert_eq!(class(&report, "default")["contended"]["max_ns"], 192.0);
}

#[test]
fn scenarios_have_classes_and_expect_of_them() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..1_000).map(|i| udp(0, 100, (i % 4) as u8, 80, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let scenario = |expect: &str| {
        let text = format!(
            "schema = 1\n[[pipeline]]\nname = 'down'\nin = 'pcap:in.pcap'\nout = 'wire:10G'\n\
             [[pipeline.class]]\nname = 'one'\nmatch = 'src 10.0.0.1'\ngap = '20us'\n\
             [[pipeline.class]]\nname = 'rest'\nrate = '100Mbps'\nstages = ['loss 100%']\n\
             [[expect]]\nthat = '{expect}'\n"
        );
        std::fs::write(bench.path("a.toml"), text).expect("written");
        bench.run(["run", "a.toml", "-q"]).status
    };
    assert_eq!(scenario("down.one.out.frames == 250"), Some(0));
    assert_eq!(scenario("down.one.gap.error.max_ns < 1ps"), Some(0));
    assert_eq!(scenario("down.rest.drops.loss == 750"), Some(0));
    assert_eq!(scenario("down.out.frames == 250"), Some(0));
    assert_eq!(scenario("down.two.out.frames == 1"), Some(2), "there is no such class");
    assert_eq!(scenario("down.one.out.frames == 251"), Some(1));
    let printed = bench.run(["check", "a.toml"]);
    assert!(printed.stdout.contains("match = \"src 10.0.0.1\""), "{}", printed.stdout);
}

#[test]
fn warns_of_a_backlog_that_fills_the_memory() {
    let bench = Bench::new();
    // All frames arrive within 20 ms and leave within 3 s.
    bench.generate("64B", 300_000);
    let shape = |more: &[&str]| {
        let common = ["shape", "--in", "pcap:in.pcap", "--out", "null", "--gap", "10us"];
        bench.run(common.iter().chain(more)).stderr
    };
    let told = shape(&["--class", "other = src 192.0.2.1"]);
    assert!(told.contains("frames are held in memory") && told.lines().count() == 1, "{told}");
    // With one class, the backlog is not read from the file.
    assert_eq!(shape(&[]), "");
}

#[test]
fn a_stratified_law_spans_the_frames_of_its_class() {
    let bench = Bench::new();
    let records: Vec<Record> = (0..4_000).map(|i| udp(0, 64, (i % 4) as u8, 80, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let report = bench.report(words(
        "shape --in pcap:in.pcap --out null --class 'a = src 10.0.0.2' --gap 'a=uniform 10us..20us sampling stratified'",
    ));
    assert_eq!(class(&report, "a")["fit"]["strata"], 999);
}

#[test]
fn rejects_impossible_classes_before_anything_starts() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[udp(0, 64, 1, 80, 1)]);
    let refused = |arguments: &[&str], word: &str| {
        let common = ["shape", "--in", "pcap:in.pcap", "--out", "pcap:out.pcap"];
        let finished = bench.run(common.iter().copied().chain(arguments.iter().copied()));
        assert_eq!(finished.status, Some(2));
        assert!(finished.stderr.contains(word) && finished.stderr.lines().count() == 1, "{}", finished.stderr);
        assert!(!bench.path("out.pcap").exists());
    };
    refused(
        &["--class", "a = src 10.0.0.0/8", "--class", "b = src 10.1.0.0/16 tcp"],
        "'b' can never match: 'a' takes all",
    );
    refused(&["--class", "a = arp dport 80"], "conditions exclude each other");
    refused(&["--class", "a = tcp", "--rate", "b=1Gbps"], "'b' is not a class");
    refused(&["--class", "a = src 10.0.0.1/8"], "write 10.0.0.0/8");
    refused(&["--class", "tcp dport 80"], "has no class name");
    refused(&["--class", "ä = tcp dport 80"], "a name starts with a letter a to z, then letters, digits, - and _");
    refused(&["--rate", "1Gbps", "--rate", "2Gbps"], "given twice");
    let scenario = "schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\n[[pipeline.class]]\ngap = '1us'\n\
                    [[pipeline.class]]\nmatch = 'tcp'\n";
    std::fs::write(bench.path("a.toml"), scenario).expect("written");
    let checked = bench.run(["check", "a.toml"]);
    assert!(checked.stderr.contains("a.toml:7:1: this class can never match"), "{}", checked.stderr);
}

#[test]
fn class_with_an_ended_waveform_drops_frames_and_others_continue() {
    let bench = Bench::new();
    // 3 ms with one frame of each class every µs. One class has a waveform that ends after the first ms.
    let records: Vec<Record> =
        (0..6_000).map(|i| udp(u64::from(i / 2) * 1_000, 100, 1, if i % 2 == 0 { 80 } else { 53 }, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    let wave = "web=burst 800Mbps for 1ms every 10ms count 1";
    let shape = ["shape", "--in", "pcap:in.pcap", "--class", "web = udp dport 80", "--rate", wave];
    for out in ["wire:10G", "pcap:out.pcap"] {
        let report = bench.report([&shape[..], &["--out", out]].concat());
        assert_books(&report);
        let web = class(&report, "web");
        // The waveform asks for one frame each µs until it ends. The next frame is held.
        assert_eq!(frames(web, "/out/frames"), 1_000, "{web}");
        assert_eq!((frames(web, "/drops/ended"), frames(web, "/held")), (1_999, 1), "{web}");
        assert_eq!(frames(class(&report, "default"), "/out/frames"), 3_000);
    }
}

/// A scenario of `count` classes, each with `line` in it, that match ports `1` to `count`.
fn many(count: usize, line: &str) -> String {
    let classes =
        (1..=count).map(|n| format!("[[pipeline.class]]\nname = \"c{n}\"\nmatch = \"udp dport {n}\"\n{line}\n"));
    format!(
        "schema = 1\n[[pipeline]]\nname = \"many\"\nin = \"pcap:in.pcap\"\nout = \"null\"\n{}[[pipeline.class]]\n",
        classes.collect::<String>()
    )
}

/// Regression: each class used to allocate all its histograms at the start, 1.2 to 1.7 MB.
#[test]
fn a_thousand_classes_take_little_memory() {
    let bench = Bench::new();
    let records: Vec<Record> =
        (0..4_000).map(|i| udp(u64::from(i) * 1_000, 64, 1, (i % 1_000 + 1) as u16, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    for line in [
        "gap = \"1ms\"",
        "rate = \"10Mbps\"",
        "stages = [\"delay 20ms\"]",
        "stages = [\"limit key dst-ip rate 10Mbps users 100\"]",
    ] {
        bench.write("many.toml", many(1_000, line));
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -d 131072 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_netlathe")]);
        shell.args(words("run many.toml --json")).current_dir(bench.path("")).stdin(Stdio::null());
        let finished = Finished::of(shell.output().expect("a shell"));
        assert_eq!(finished.status, Some(0), "{line}: {}", finished.stderr);
        let report = finished.report();
        assert_eq!(frames(&report, "/pipelines/0/classes/999/out/frames"), 4, "{line}");
    }
}

/// Each limit allocates its memory at the start, 64 MB by default.
#[test]
fn tables_of_many_limits_are_bounded_together() {
    let bench = Bench::new();
    bench.capture("in.pcap", Dialect::USUAL, &[udp(0, 64, 1, 1, 1)]);
    bench.write("many.toml", many(200, "stages = [\"limit key dst-ip rate 10Mbps\"]"));
    let refused = bench.run(words("check many.toml"));
    assert_eq!(refused.status, Some(2));
    let said = "many.toml:9:11: the 200 limits of this pipeline have room for 209715200 users together, and 100000000 are \
                possible: write users 500000 behind each";
    assert!(refused.stderr.contains(said), "{}", refused.stderr);
    bench.write("many.toml", many(200, "stages = [\"limit key dst-ip rate 10Mbps users 500000\"]"));
    assert_eq!(bench.run(words("check many.toml")).status, Some(0), "as many as are possible");
}

#[test]
fn a_model_line_has_no_hiccups_in_any_class() {
    // Frames of 1518 B queue behind each other for 12 us. On a live port this would count as a hiccup.
    let report = Bench::new().report(words(
        "gen --out wire:1G --count 2000 --stream 'udp 10.0.0.1:1 > 10.0.0.2:53-54 size 1518B' --class 'dns = dport 53' \
         --gap dns=100us --gap 100us",
    ));
    for part in report["classes"].as_array().expect("classes").iter().chain([&report]) {
        assert!(part["lateness"].is_object() && part["lateness"]["hiccups"].is_null(), "{}", part["lateness"]);
    }
    assert!(report["classes"][1]["lateness"]["max_ns"].as_f64().expect("ns") > 5_000.0);
}

#[test]
fn a_class_slowed_by_another_is_late_and_time_continues() {
    // One stream alternates between both classes, whose rates are 1 to 100. Frames of the slow class fill the
    // read-ahead.
    let bench = Bench::new();
    let finished = bench.run(words(
        "gen --out pcap:out.pcap --count 140000 --stream 'udp 10.0.0.1:1 > 10.0.0.2:53,80' \
         --class 'dns = dport 53' --rate dns=1kpps --rate 100kpps --duration 3s --json",
    ));
    let report = &finished.report()["pipelines"][0];
    assert!(finished.stderr.contains("class 'default' had to wait for its frames"), "{}", finished.stderr);
    let stamps: Vec<u64> = bench.records("out.pcap").iter().map(|record| record.ns).collect();
    assert!(stamps.len() > 66_000 && stamps.is_sorted(), "{}", stamps.len());
    assert!(report["gap"]["min_ns"].as_f64() >= Some(0.0), "{}", report["gap"]);
    // At the end, lateness equals the time it fell behind: 66 000 frames are read in 0.66 s, then 1000 frames a second.
    let late = report["classes"][1]["lateness"]["max_ns"].as_f64().expect("ns") / 1e9;
    assert!((late - 2.33).abs() < 0.05, "{late} s");
    let late = report["classes"][0]["lateness"]["max_ns"].as_f64().expect("ns");
    assert!(late < 1.0, "dns keeps its pace: {late}");
}
