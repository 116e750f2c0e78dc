//! Captures of every dialect, and how `measure` reports them.

use super::{WIRE_10G, check_bytes, close, shape, uneven_arrivals};
use crate::common::{Bench, Dialect, Record, caveat, words};

#[test]
fn every_dialect_of_capture_gives_the_same() {
    let bench = Bench::new();
    // Stamps in whole microseconds, which every dialect can represent.
    let records: Vec<Record> =
        (0..500).map(|i| Record::new(1_700_000_000_000_000_000 + u64::from(i * i) * 1_000, 64 + i, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    bench.report(words("shape --in pcap:in.pcap --out pcap:in.pcapng"));
    let mut names = vec!["in.pcap".to_owned(), "in.pcapng".to_owned()];
    for big_endian in [false, true] {
        for nanoseconds in [false, true] {
            let name = format!("big-{big_endian}-ns-{nanoseconds}.pcap");
            bench.capture(&name, Dialect { big_endian, nanoseconds, link_type: 1 }, &records);
            names.push(name);
        }
    }
    for name in names {
        bench.report(["shape", "--in", &format!("pcap:{name}"), "--out", "pcap:out.pcap"]);
        assert!(bench.records("out.pcap") == records, "{name}");
    }
    let block = &bench.read("in.pcapng")[..4];
    assert_eq!(block, [0x0a, 0x0d, 0x0d, 0x0a]);
}

#[test]
fn cut_records_count_with_their_original_length() {
    let bench = Bench::new();
    let whole: Vec<Record> = (0..2_000).map(|i| Record::new(i, 64 + (i as u32 * 37) % 1_455, i as u32)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &whole);
    let (expected, report) = shape(&bench, WIRE_10G, "--rate 3.7Gbps");
    for snap in [18, 60, 128] {
        let mut cut = whole.clone();
        cut.iter_mut().for_each(|record| record.bytes.truncate(snap));
        bench.capture("in.pcap", Dialect::USUAL, &cut);
        let (listed, cut_report) = shape(&bench, WIRE_10G, "--rate 3.7Gbps");
        assert!(listed == expected && cut_report == report, "snap length {snap}");
        check_bytes(&bench, &listed);
        bench.report(words("shape --in pcap:in.pcap --out pcap:out.pcapng"));
        bench.report(words("shape --in pcap:out.pcapng --out pcap:back.pcap"));
        assert!(bench.records("back.pcap") == cut, "pcapng keeps both lengths");
    }
}

#[test]
fn measure_distinguishes_hits_from_misses() {
    let bench = Bench::new();
    bench.generate("500B", 20_000);
    bench.report(words("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap --gap 10us"));
    let status = |how: &str| {
        let finished = bench.run(words(&format!("measure --pcap out.pcap --json {how}")));
        close(&finished.report()["pipelines"][0], "/gap/mean_ns", 10_000.0, 0.0);
        let said = finished.complaints().len();
        assert_eq!(said, usize::from(finished.status == Some(1)), "{how}: {}", finished.stderr);
        finished.status
    };
    // 500 B every 10 µs: 400 Mbit/s of frames, 416 on the wire, 100 kpps.
    for (hit, expected) in [
        ("10us", Some(0)),
        ("'fixed 10us'", Some(0)),
        ("'fixed 10.0099us'", Some(0)),
        ("'fixed 10.0101us'", Some(1)),
        ("'fixed 9.9901us'", Some(0)),
        ("'fixed 9.9899us'", Some(1)),
        ("400Mbps", Some(0)),
        ("400.3Mbps", Some(0)),
        ("400.5Mbps", Some(1)),
        ("399.5Mbps", Some(1)),
        ("50MB/s", Some(0)),
        ("'416Mbps wire'", Some(0)),
        ("'400Mbps wire'", Some(1)),
        ("100kpps", Some(0)),
        ("100.2kpps", Some(1)),
        ("'const 0.1Mpps'", Some(0)),
        ("'fixed 11us' --tolerance 10%", Some(0)),
        ("'fixed 11.2us' --tolerance 10%", Some(1)),
        ("10.001us --tolerance 0%", Some(1)),
    ] {
        assert_eq!(status(&format!("--expect {hit}")), expected, "{hit}");
    }
}

#[test]
fn measure_wants_gaps_near_and_not_only_their_mean() {
    let bench = Bench::new();
    for (every, status) in [(10, Some(1)), (30, Some(0))] {
        // One frame in `every` is 5 µs late: two gaps in `every` are wrong, but the mean is right.
        let late = |i: u64| if i % every == 5 { 5_000 } else { 0 };
        let records: Vec<Record> = (0..1_000).map(|i| Record::new(i * 10_000 + late(i), 100, i as u32)).collect();
        bench.capture("a.pcap", Dialect::USUAL, &records);
        let finished = bench.run(words("measure --pcap a.pcap --expect 10us --json"));
        assert_eq!(finished.status, status, "{}", finished.stderr);
    }
}

#[test]
fn measure_writes_the_frames_it_read() {
    let bench = Bench::new();
    let records = uneven_arrivals(1_000);
    bench.capture("a.pcap", Dialect::USUAL, &records);
    let report = bench.report(words("measure --pcap a.pcap --write b.pcap --count 900"));
    assert_eq!(report["in"]["frames"], 900);
    assert!(bench.records("b.pcap") == records[..900]);
    bench.report(words("measure --in pcap:a.pcap --write b.pcap --duration 1ms"));
    let written = bench.records("b.pcap");
    assert!(written == records[..written.len()] && written.len() < 900);
    assert!(written.iter().all(|record| record.ns - records[0].ns <= 1_000_000));
}

/// A little-endian pcapng capture made of blocks.
fn blocks(blocks: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, body) in blocks {
        let padded = body.len().next_multiple_of(4);
        let length = (padded as u32 + 12).to_le_bytes();
        bytes.extend([&kind.to_le_bytes()[..], &length, body, &vec![0; padded - body.len()], &length].concat());
    }
    bytes
}

fn little(words: &[u32], rest: &[u8]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| word.to_le_bytes());
    words.chain(rest.iter().copied()).collect()
}

#[test]
fn odd_records_are_skipped_and_counted_by_every_command() {
    let bench = Bench::new();
    let frame = Record::new(0, 64, 7).bytes;
    let packet = |interface: u32, micros: u32, rest: &[u8]| {
        let fixed = little(&[interface, 0, micros, 60, 60], &frame);
        (6, [fixed, rest.to_vec()].concat())
    };
    let file = blocks(&[
        (0x0a0d_0d0a, little(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[])),
        (1, little(&[1, 0], &[])),
        (1, little(&[105, 0], &[])),
        packet(0, 5, &[1, 0, 4, 0, b'c', b'a', b'f', 0xe9]),
        packet(1, 10, &[]),
        (2, little(&[0, 0, 20, 60, 60], &frame)),
        (3, little(&[60], &frame)),
        packet(7, 30, &[]),
        packet(0, 40, &[]),
    ]);
    bench.write("odd.pcapng", &file);
    let skipped = serde_json::json!({ "link-type-105": 1, "no-stamp": 1, "unknown-interface": 1 });
    for command in [
        "measure --pcap odd.pcapng",
        "shape --in pcap:odd.pcapng --out null --gap 1us",
        "emulate --in pcap:odd.pcapng --out null --forward 'delay 1ms'",
        "gen --pcap odd.pcapng --out null",
        "limit --in pcap:odd.pcapng --out null --rate 1Gbps --key dst-ip --mode police",
    ] {
        let finished = bench.run(words(&format!("{command} --json")));
        assert_eq!((finished.status, finished.complaints().len()), (Some(0), 0), "{command}: {}", finished.stderr);
        let report = finished.report();
        let pipeline = &report["pipelines"][0];
        assert_eq!((&pipeline["in"]["frames"], &pipeline["skipped"]), (&3.into(), &skipped), "{command}");
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains("1 record of the capture skipped (link-type-105)"), "{command}: {warnings}");
        assert!(finished.stderr.contains("skipped (no-stamp)"), "{command}: {}", finished.stderr);
        let text = bench.run(words(command)).stdout;
        assert!(text.contains("\n  skipped   1 record: unknown-interface\n"), "{command}: {text}");
    }
    // If no stamp is needed, a simple packet block is a frame like any other.
    for how in ["--rate 1kpps", "--gap 1us", "--speed max"] {
        let report = bench.report(words(&format!("gen --pcap odd.pcapng --out null {how}")));
        assert_eq!(
            (&report["out"]["frames"], &report["skipped"]["no-stamp"]),
            (&4.into(), &serde_json::Value::Null),
            "{how}"
        );
    }
    // The report of a run that uses a law from a capture lists the skipped records once.
    bench.generate("64B", 100);
    bench.write(
        "law.toml",
        "schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\ngap = 'table pcap:odd.pcapng'\n\
         [[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\ngap = 'table pcap:odd.pcapng mean 10us sd 1us'\n",
    );
    for command in [
        "shape --in pcap:in.pcap --out null --gap 'table pcap:odd.pcapng'",
        "measure --pcap in.pcap --expect 'table pcap:odd.pcapng'",
        "run law.toml",
    ] {
        let finished = bench.run(words(&format!("{command} --json")));
        let report = finished.report();
        let left_out = crate::common::caveats(&report, "skipped-records");
        assert_eq!(left_out.len(), 3, "{command}: {}", finished.stderr);
        assert!(left_out.iter().all(|caveat| caveat["input"] == "odd.pcapng"), "{command}: {left_out:?}");
        assert!(report["warnings"].to_string().contains("odd.pcapng: 1 record"), "{command}: {report}");
    }
    // A truncated capture is used up to the cut. The error gives the offset at which the last block starts.
    let last = file.len() - 92;
    bench.write("odd.pcapng", &file[..file.len() - 1]);
    let finished = bench.run(words("measure --pcap odd.pcapng --json"));
    assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{}", finished.stderr);
    assert!(finished.stderr.contains(&format!("after record 5, at byte {last}: ")), "{}", finished.stderr);
    assert!(finished.stderr.contains("editcap") && !finished.stderr.contains("capture again"), "{}", finished.stderr);
    assert_eq!(finished.report()["pipelines"][0]["in"]["frames"], 2);
}

/// Runs a line in a shell, in the bench's folder.
fn shell(bench: &Bench, line: &str) -> crate::common::Finished {
    let mut command = std::process::Command::new("bash");
    let line = line.replace("netlathe", env!("CARGO_BIN_EXE_netlathe"));
    command.args(["-o", "pipefail", "-c", &line]).current_dir(bench.path("."));
    let output = command.output().expect("a shell");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    crate::common::Finished { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn packed_captures_and_pipes_are_read_and_written() {
    let bench = Bench::new();
    bench.generate("400B", 10_000);
    let records = bench.records("in.pcap");
    bench.report(words("measure --pcap in.pcap --write in.pcapng"));
    // Compressed by other programs and recognised by the first bytes, not by the name. Also two compressed files in a
    // row.
    for program in ["gzip", "zstd -q", "xz", "bzip2", "lz4 -q"] {
        let name = program.split(' ').next().unwrap_or_default();
        if shell(&bench, &format!("command -v {name}")).status != Some(0) {
            println!("SKIP: no {name}");
            continue;
        }
        for file in ["in.pcap", "in.pcapng"] {
            let packed = shell(&bench, &format!("{program} -c {file} > packed"));
            assert_eq!(packed.status, Some(0), "{}", packed.stderr);
            bench.report(words("measure --pcap packed --write out.pcap"));
            assert!(bench.records("out.pcap") == records, "{program} {file}");
            let piped = shell(&bench, "cat packed | netlathe measure --pcap - --json");
            assert_eq!(piped.status, Some(0), "{}", piped.stderr);
            assert_eq!(piped.report()["pipelines"][0]["in"]["frames"], 10_000, "{program} {file}");
        }
        let parts = "(head -c 1000000 in.pcap | PROGRAM -c; tail -c +1000001 in.pcap | PROGRAM -c) > packed";
        shell(&bench, &parts.replace("PROGRAM", program));
        bench.report(words("shape --in pcap:packed --out pcap:out.pcap"));
        assert!(bench.records("out.pcap") == records, "{program} in parts");
        // A program whose input is empty writes an empty compressed file.
        let parts = "(: | PROGRAM -c; head -c 1000000 in.pcap | PROGRAM -c; : | PROGRAM -c; : | PROGRAM -c; \
                     tail -c +1000001 in.pcap | PROGRAM -c; : | PROGRAM -c) > packed";
        shell(&bench, &parts.replace("PROGRAM", program));
        bench.report(words("shape --in pcap:packed --out pcap:out.pcap"));
        assert!(bench.records("out.pcap") == records, "{program} with empty parts");
        // A truncated file still yields its whole records.
        shell(&bench, "head -c $(($(stat -c %s packed) - 100)) packed > cut");
        let cut = bench.run(words("measure --pcap cut --json"));
        assert_eq!((cut.status, cut.complaints().len()), (Some(2), 1), "{program}: {}", cut.stderr);
        assert!(cut.stderr.contains(" of what it unpacks to: "), "{program}: {}", cut.stderr);
        // editcap cannot unpack each of these. The command in the message writes the records before the cut.
        assert!(cut.stderr.contains("netlathe gen --pcap cut --out pcap:NEW.pcap"), "{program}: {}", cut.stderr);
        bench.run(words("gen --pcap cut --out pcap:NEW.pcap"));
        let kept = bench.records("NEW.pcap");
        assert_eq!(cut.report()["pipelines"][0]["in"]["frames"], kept.len(), "{program}");
        assert!(kept == records[..kept.len()], "{program}");
    }
    for (name, unpack) in [("out.pcap.gz", "gzip -dc"), ("out.pcapng.gz", "gzip -dc"), ("out.pcap.zst", "zstd -qdc")] {
        bench.report(words(&format!("shape --in pcap:in.pcap --out pcap:{name}")));
        bench.report(words(&format!("measure --pcap {name} --write back.pcap")));
        assert!(bench.records("back.pcap") == records, "{name}");
        assert!(bench.read(name).len() < bench.read("in.pcap").len() / 2, "{name}");
        if shell(&bench, &format!("command -v {unpack}")).status == Some(0) {
            let unpacked = shell(&bench, &format!("{unpack} {name} > plain; netlathe measure --pcap plain --json"));
            assert_eq!(unpacked.report()["pipelines"][0]["in"]["frames"], 10_000, "{name}: {}", unpacked.stderr);
        }
    }
    // From stdin to stdout; the report goes to stderr.
    for line in [
        "cat in.pcap | netlathe shape --in pcap:- --out pcap:- --json 2> report > out.pcap",
        "cat in.pcap | netlathe measure --pcap - --write - --json 2> report > out.pcap",
        "cat in.pcap | netlathe gen --pcap - --out pcap:- --json 2> report | cat > out.pcap",
        "netlathe shape --in pcap:/dev/stdin --out wire:10G,pcap=- --json < in.pcap 2> report > out.pcap",
    ] {
        let finished = shell(&bench, line);
        assert_eq!((finished.status, finished.stdout.as_str()), (Some(0), ""), "{line}: {}", finished.stderr);
        let frames = bench.records("out.pcap");
        assert!(frames.iter().map(|record| &record.bytes).eq(records.iter().map(|record| &record.bytes)), "{line}");
        let report = String::from_utf8(bench.read("report")).expect("text");
        assert!(report.contains("\"frames\":10000"), "{line}: {report}");
    }
    for (line, wanted) in [
        ("netlathe gen --pcap - --loop 2 --out null < in.pcap", "leave --loop out, or name a file"),
        ("netlathe shape --in pcap:in.pcap --out wire:10G,pcap=-,frames=-", "only one output can go to stdout"),
        ("netlathe measure --pcap - < /dev/null", "- is not a capture"),
        ("echo text that is longer than a header | gzip | netlathe measure --pcap -", "does not start like one"),
    ] {
        let refused = shell(&bench, line);
        assert_eq!(refused.status, Some(2), "{line}: {}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{line}: {}", refused.stderr);
    }
}

#[test]
fn replays_pause_between_rounds_and_not_longer_than_asked() {
    let bench = Bench::new();
    let start = 1_700_000_000_000_000_000;
    let at = |ms: u64| Record::new(start + ms * 1_000_000, 64, 0);
    bench.capture("in.pcap", Dialect { nanoseconds: true, ..Dialect::USUAL }, &[0, 10, 3_600_010].map(at));
    let sent = |how: &str| -> Vec<u64> {
        let finished = bench.run(words(&format!("gen --pcap in.pcap --out pcap:out.pcap --json {how}")));
        assert_eq!(finished.status, Some(0), "{how}: {}", finished.stderr);
        finished.report();
        bench.records("out.pcap").iter().map(|record| (record.ns - start) / 1_000_000).collect()
    };
    assert_eq!(sent("--max-gap 1s"), [0, 10, 1_010]);
    assert_eq!(sent("--max-gap 2h"), [0, 10, 3_600_010]);
    assert_eq!(sent("--max-gap 1s --speed 2"), [0, 5, 1_005]);
    assert_eq!(sent("--max-gap 100ms --loop 2 --loop-gap 1s"), [0, 10, 110, 1_110, 1_120, 1_220]);
    assert_eq!(sent("--max-gap 100ms --loop 2 --loop-gap 0s"), [0, 10, 110, 110, 120, 220]);
    // The gap between rounds is the mean of the gaps as they are sent.
    assert_eq!(sent("--max-gap 100ms --loop 2"), [0, 10, 110, 165, 175, 275]);
    assert_eq!(sent("--max-gap 100ms --loop 3 --speed 2"), [0, 5, 105, 157, 162, 262, 315, 320, 420]);
    assert_eq!(sent("--max-gap 100ms --loop 0 --loop-gap 1s --count 5"), [0, 10, 110, 1_110, 1_120]);
    assert_eq!(sent("--max-gap 100ms --loop 0 --loop-gap 1s --duration 1115ms"), [0, 10, 110, 1_110]);
    assert_eq!(sent("--loop 2 --speed 1000 --loop-gap 5s"), [0, 0, 3_600, 8_600, 8_600, 12_200]);
    let report = bench.run(words("gen --pcap in.pcap --out null --json --max-gap 1s --loop 3 --loop-gap 5s")).report();
    assert_eq!(caveat(&report, "capped-gaps")["gaps"], 3, "{report}");
    bench.write(
        "a.toml",
        "schema = 1\n[[pipeline]]\nreplay = 'in.pcap'\nout = 'pcap:out.pcap'\ntimes = 0\ncount = 4\nloop-gap = '1s'\nmax-gap = '1s'\n",
    );
    assert_eq!(bench.run(words("run a.toml")).status, Some(0));
    assert_eq!(bench.records("out.pcap").len(), 4);
    for (how, wanted) in [
        ("--loop 0", "the replay has no end: give --count or --duration"),
        ("--max-gap 1", "--max-gap: "),
        ("--loop 2 --loop-gap 5 --rate 1kpps", "--loop-gap: this applies to a capture with its own timing"),
        ("--max-gap 1s --speed max", "--max-gap: this applies to a capture with its own timing"),
        ("--loop-gap 1s", "--loop"),
        ("--loop -1", "--loop"),
    ] {
        let refused = bench.run(words(&format!("gen --pcap in.pcap --out null {how}")));
        assert_eq!(refused.status, Some(2), "{how}: {}", refused.stderr);
        assert!(refused.stderr.contains(wanted), "{how}: {}", refused.stderr);
    }
}

#[test]
fn ranges_of_streams_may_go_down() {
    let bench = Bench::new();
    let stream = "udp 10.0.0.9-10.0.0.7:5 > 10.0.0.2:2000-1998 size 64B";
    bench.report(words(&format!("gen --out pcap:out.pcap --count 7 --stream '{stream}'")));
    let walked: Vec<(u8, u16)> = bench
        .records("out.pcap")
        .iter()
        .map(|record| (record.bytes[29], u16::from_be_bytes([record.bytes[36], record.bytes[37]])))
        .collect();
    assert_eq!(walked, [(9, 2000), (8, 1999), (7, 1998), (9, 2000), (8, 1999), (7, 1998), (9, 2000)]);
    let stream = "udp 10.0.0.1:5 > 10.0.0.2:2000-1000 step 500 size 64B";
    let refused_or_walked = bench.run(words(&format!("gen --out pcap:out.pcap --count 4 --stream '{stream}'")));
    assert_eq!(refused_or_walked.status, Some(0), "{}", refused_or_walked.stderr);
    let ports: Vec<u16> = bench
        .records("out.pcap")
        .iter()
        .map(|record| u16::from_be_bytes([record.bytes[36], record.bytes[37]]))
        .collect();
    assert_eq!(ports, [2000, 1500, 1000, 2000]);
    // Random ports have no direction. Class rules handle descending ranges too.
    let stream = "udp 10.0.0.1:5 > 10.0.0.2:2000..1000 size 64B";
    bench.report(words(&format!("gen --out null --count 40 --stream '{stream}'")));
    let stream = "udp 10.0.0.1:5 > 10.0.0.2:2000-1998 size 64B";
    let report = bench.report(words(&format!(
        "gen --out wire:10G --count 9 --stream '{stream}' --class 'one = dport 1999' --rate one=1kpps --rate 2kpps"
    )));
    assert_eq!(report["classes"][0]["out"]["frames"], 3, "{report}");
}
