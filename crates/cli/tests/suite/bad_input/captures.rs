//! Files that are not captures, captures that are truncated or span too much time, and files that cannot be written.

use super::{bench, refused_in_a_line};
use crate::common::{Bench, Dialect, Record, caveat, words};
use serde_json::json;
use std::os::unix::fs::symlink;

#[test]
fn rejects_inputs_that_are_not_captures() {
    let bench = bench();
    bench.write("empty", "");
    bench.write("text", "this is not a capture, but a text that is longer than the header of one\n");
    bench.write("header", &bench.read("in.pcap")[..10]);
    bench.capture("wifi.pcap", Dialect { link_type: 105, ..Dialect::USUAL }, &[Record::new(0, 64, 0)]);
    std::fs::create_dir(bench.path("folder")).expect("a folder");
    for (input, wanted) in [
        ("missing", "No such file"),
        ("folder", "directory"),
        ("empty", "shorter"),
        ("text", "capture"),
        ("header", "shorter"),
        ("wifi.pcap", "105"),
    ] {
        for command in
            ["shape --out wire:10G,pcap=out.pcap,frames=out.csv --in", "shape --out null --in", "measure --in"]
        {
            refused_in_a_line(&bench, &format!("{command} pcap:{input}"), &[input, wanted]);
        }
        refused_in_a_line(&bench, &format!("measure --write out.pcap --pcap {input}"), &[input, wanted]);
        for key in ["in", "replay"] {
            let pipeline = format!("schema = 1\n[[pipeline]]\n{key} = \"pcap:{input}\"\nout = \"null\"\n");
            bench.write("a.toml", &pipeline);
            let place = format!("a.toml:3:{}: ", key.len() + 4);
            refused_in_a_line(&bench, "check a.toml", &[&place, input, wanted]);
            refused_in_a_line(&bench, "run a.toml", &[&place, input, wanted]);
        }
    }
}

#[test]
fn outputs_that_cannot_be_written_or_are_in_use() {
    let bench = bench();
    std::fs::create_dir(bench.path("folder")).expect("a folder");
    symlink(bench.path("in.pcap"), bench.path("link.pcap")).expect("a link");
    std::fs::hard_link(bench.path("in.pcap"), bench.path("same.pcap")).expect("a link");
    let before = bench.read("in.pcap");
    let table = b"10us 20us 25us";
    bench.write("gaps", table);
    for (line, wanted) in [
        ("shape --in pcap:in.pcap --out pcap:folder", "directory"),
        ("shape --in pcap:in.pcap --out pcap:nowhere/out.pcap", "nowhere/out.pcap"),
        ("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap,frames=nowhere/out.csv", "nowhere/out.csv"),
        ("shape --in pcap:in.pcap --out wire:10G,pcap=out.pcap,frames=folder", "directory"),
        ("shape --in pcap:in.pcap --out pcap:in.pcap", "another output"),
        ("shape --in pcap:in.pcap --out pcap:./in.pcap", "another output"),
        ("shape --in pcap:in.pcap --out pcap:folder/../in.pcap", "another output"),
        ("shape --in pcap:in.pcap --out pcap:link.pcap", "another output"),
        ("shape --in pcap:link.pcap --out wire:10G,frames=in.pcap", "another output"),
        ("shape --in pcap:in.pcap --out pcap:same.pcap", "another output"),
        ("shape --in pcap:in.pcap --out wire:10G,pcap=out,frames=out", "another output"),
        ("shape --in pcap:in.pcap --out wire:10G,pcap=out,frames=./out", "another output"),
        ("shape --in pcap:in.pcap --out wire:10G,pcap=out,frames=folder/../out", "another output"),
        ("measure --pcap in.pcap --write in.pcap", "another output"),
        ("measure --pcap in.pcap --write ./link.pcap", "another output"),
        ("measure --pcap in.pcap --write nowhere/out.pcap", "nowhere"),
        ("measure --pcap in.pcap --write gaps --expect 'table gaps'", "another output"),
        ("gen --out pcap:in.pcap --count 5 --stream 'pcap in.pcap frame 1'", "another output"),
        ("gen --out wire:10G,frames=gaps --count 5 --gap 'table gaps' --stream 'eth'", "another output"),
        ("gen --out line:10G,frames=in.pcap --pcap in.pcap --gap 10us", "another output"),
        ("gen --out pcap:nowhere/out.pcap --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1", "nowhere"),
    ] {
        refused_in_a_line(&bench, line, &[wanted]);
        assert!(bench.read("in.pcap") == before && bench.read("gaps") == table, "{line} spoils its input");
    }
    for pair in ["wire:10G,pcap=/dev/null,frames=/dev/null", "pcap:/dev/null"] {
        assert_eq!(bench.run(["shape", "--in", "pcap:in.pcap", "--out", pair, "-q"]).status, Some(0), "{pair}");
    }
    if std::path::Path::new("/dev/full").exists() {
        refused_in_a_line_but_reported(&bench);
    }
}

/// A full disk is noticed only during the run, so there is a report.
fn refused_in_a_line_but_reported(bench: &Bench) {
    let finished = bench.run(words("shape --in pcap:in.pcap --out pcap:/dev/full --json"));
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    assert!(finished.stderr.contains("/dev/full") && finished.stderr.contains("free space"));
    // If stdout cannot take the report, the page is still written.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let mut command = bench.command(words("shape --in pcap:in.pcap --out null --json --report page"));
    let output = command.stdout(full).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("stdout"), "{stderr}");
    assert!(bench.read("page/report.html").ends_with(b"</html>\n"));
}

#[test]
fn truncated_capture_yields_its_whole_records() {
    let bench = bench();
    let whole = bench.read("in.pcap");
    let records = bench.records("in.pcap");
    for (cut, left) in [(whole.len() - 1, 99), (whole.len() - 180, 98), (24 + 76 + 7, 1), (24 + 76 + 16 + 61 + 1, 2)] {
        bench.write("cut.pcap", &whole[..cut]);
        let offset: usize = 24 + records[..left].iter().map(|record| 16 + record.bytes.len()).sum::<usize>();
        let finished =
            bench.run(words("shape --in pcap:cut.pcap --out wire:10G,pcap=out.pcap,frames=out.csv --gap 10us --json"));
        assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
        for word in ["cut.pcap", &format!("record {left}"), &format!("byte {offset}")] {
            assert!(finished.stderr.contains(word), "{word} in {}", finished.stderr);
        }
        assert_eq!(finished.report()["pipelines"][0]["out"]["frames"], left);
        assert_eq!((bench.records("out.pcap").len(), bench.listed("out.csv").len()), (left, left));
        let measured = bench.run(words("measure --pcap cut.pcap --write kept.pcap --json"));
        assert_eq!((measured.status, &measured.report()["pipelines"][0]["in"]["frames"]), (Some(2), &left.into()));
        assert!(bench.records("kept.pcap") == records[..left]);
    }
    // A record that claims 4 GB but has no data.
    let mut huge = whole[..24 + 76].to_vec();
    huge.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    bench.write("cut.pcap", huge);
    let finished = bench.run(words("shape --in pcap:cut.pcap --out pcap:out.pcap --json"));
    assert_eq!((finished.status, bench.records("out.pcap").len()), (Some(2), 1), "{}", finished.stderr);
}

#[test]
fn a_capture_longer_than_virtual_time_is_read_to_its_end() {
    let bench = bench();
    let records: Vec<Record> =
        [0, 1, 214, 215, 900].map(|days| Record::new(7 + days * 86_400_000_000_000, 64, 0)).into();
    // A single record after the long gap would look like a stray stamp, so add a second one.
    let records = [records, vec![Record::new(8 + 900 * 86_400_000_000_000, 64, 0)]].concat();
    bench.capture("wide.pcap", Dialect { nanoseconds: true, ..Dialect::USUAL }, &records);
    for command in
        ["measure --write out.pcap --pcap", "shape --out pcap:out.pcap --in pcap:", "gen --out pcap:out.pcap --pcap"]
    {
        let finished = bench.run(words(&format!("{command} wide.pcap --json").replace(": ", ":")));
        assert_eq!((finished.status, finished.complaints().len()), (Some(0), 0), "{command}: {}", finished.stderr);
        assert!(finished.stderr.contains("2 gaps of the capture shortened to 1 s"), "{command}: {}", finished.stderr);
        let report = finished.report();
        assert_eq!(
            (&report["pipelines"][0]["in"]["frames"], &caveat(&report, "shortened-gaps")["gaps"]),
            (&6.into(), &2.into())
        );
        // Written files keep the stamps of the capture.
        assert!(bench.records("out.pcap") == records, "{command}");
    }
    // At twice the speed, pauses are half as long.
    bench.report(words("gen --pcap wide.pcap --out pcap:out.pcap --speed 2"));
    let days: Vec<u64> =
        bench.records("out.pcap").iter().map(|record| (record.ns - 7) * 2 / 86_400_000_000_000).collect();
    assert_eq!(days, [0, 1, 214, 215, 900, 900]);
    let report = bench.report(words("shape --in pcap:wide.pcap --out null --gap 1ms"));
    assert_eq!(report["out"]["frames"], 6);
    let report = bench.report(words("gen --pcap wide.pcap --speed max --loop 5 --out null"));
    assert_eq!(report["out"]["frames"], 30);
    // No single gap is shortened here, but two rounds, or half the speed, exceed the range of time.
    let long = [0, 150].map(|days| Record::new(7 + days * 86_400_000_000_000, 64, 0));
    bench.capture("long.pcap", Dialect::USUAL, &long);
    for line in ["gen --pcap long.pcap --out null --loop 2", "gen --pcap long.pcap --out null --speed 0.5"] {
        let again = bench.run(words(line));
        assert_eq!(again.status, Some(2), "{}", again.stderr);
        assert!(again.stderr.contains("the run is longer than 213 days"), "{}", again.stderr);
    }
}

/// Runs a command with a file size limit in KiB, which simulates a disk that fills up.
fn with_room_for(bench: &crate::common::Bench, kib: u32, line: &str) -> crate::common::Finished {
    let netlathe = env!("CARGO_BIN_EXE_netlathe");
    let script = format!("trap '' XFSZ; ulimit -f {kib}; exec {netlathe} {line}");
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(bench.path("."));
    crate::common::Finished::of(command.output().expect("a shell"))
}

#[test]
fn frames_lost_to_a_full_disk_are_not_out_and_records_stay_whole() {
    let bench = bench();
    bench.generate("200B", 20_000);
    for name in ["out.pcap", "out.pcapng"] {
        for line in [
            format!("shape --in pcap:in.pcap --out pcap:{name} --gap 1us --json"),
            format!("shape --in pcap:in.pcap --out wire:10G,pcap={name} --json"),
            format!("measure --pcap in.pcap --write {name} --json"),
        ] {
            // The disk is full within the first MiB, within the third, or during the final write.
            for kib in [100, 2_500, 4_100] {
                let finished = with_room_for(&bench, kib, &line);
                assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{line}: {}", finished.stderr);
                let report = finished.report();
                let pipeline = &report["pipelines"][0];
                let (out, lost) = (&pipeline["out"]["frames"], &pipeline["drops"]["unwritten"]);
                // The file reads without an error and holds the reported number of frames.
                let read = bench.report(words(&format!("measure --pcap {name}")));
                assert_eq!(&read["in"], &pipeline["out"], "{line} {kib}");
                let (out, lost) = (out.as_u64().unwrap_or_default(), lost.as_u64().unwrap_or_default());
                assert!(out > 0 && lost > 0, "{line}: {report}");
                let said = format!("it holds the first {out} records, all complete: check the free space");
                assert!(finished.stderr.contains(&said), "{line}: {}", finished.stderr);
                // Frames that were never written are in no other figure either.
                if !line.starts_with("measure") {
                    assert_eq!((&pipeline["gap"]["count"], &pipeline["held"]), (&json!(out - 1), &json!(0)), "{line}");
                }
            }
        }
    }
    let streams = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 200B' --stream 'udp 10.0.0.1:1 > 10.0.0.3:2 size 200B'";
    let line = format!("gen --out pcap:out.pcap --gap 1us --count 20000 --json {streams}");
    let report = with_room_for(&bench, 2_500, &line).report();
    let pipeline = &report["pipelines"][0];
    let sent: u64 = [0, 1].iter().filter_map(|number| pipeline["streams"][number]["sent"].as_u64()).sum();
    assert_eq!(json!(sent), pipeline["out"]["frames"], "{report}");
    assert!(pipeline["drops"]["unwritten"].as_u64().is_some_and(|lost| lost > 0), "{report}");
    bench.write(
        "classes.toml",
        "schema = 1\n[[pipeline]]\nname = \"p\"\nin = \"pcap:in.pcap\"\nout = \"pcap:out.pcap\"\n\
         [[pipeline.class]]\nname = \"a\"\nmatch = \"udp\"\ngap = \"1us\"\n",
    );
    let report = with_room_for(&bench, 2_500, "run classes.toml --json").report();
    let pipeline = &report["pipelines"][0];
    let sum = |figure: &dyn Fn(&serde_json::Value) -> Option<u64>| -> u64 {
        pipeline["classes"].as_array().into_iter().flatten().filter_map(figure).sum()
    };
    assert_eq!(json!(sum(&|class| class["out"]["frames"].as_u64())), pipeline["out"]["frames"], "{report}");
    assert_eq!(json!(sum(&|class| class["drops"]["unwritten"].as_u64())), pipeline["drops"]["unwritten"], "{report}");
    let finished = with_room_for(&bench, 100, "shape --in pcap:in.pcap --out wire:10G,frames=out.csv");
    assert_eq!(finished.status, Some(2), "{}", finished.stderr);
    let listed = bench.read("out.csv");
    assert!(listed.ends_with(b",data\n") && listed.len() > 90_000, "{}", listed.len());
}
