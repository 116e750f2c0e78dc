//! Reports for people and for scripts, and reports that cannot be written.

use crate::common::{Bench, Finished, words};
use std::process::Command;

#[test]
fn people_and_scripts_read_the_same_figures() {
    let bench = Bench::new();
    bench.generate("random 64B-1518B", 1_000);
    let finished = bench.run(words("shape --in pcap:in.pcap --out wire:10G --gap 10us"));
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("1 000 frames") && finished.stdout.contains("10 µs"), "{}", finished.stdout);
    let quiet = bench.run(words("shape --in pcap:in.pcap --out wire:10G --gap 10us -q"));
    assert_eq!((quiet.status, quiet.stdout.as_str()), (Some(0), ""));
}

#[test]
fn a_disk_that_is_full_costs_no_report() {
    let bench = Bench::new();
    bench.generate("100B", 20_000);
    for (file, line, most) in [
        ("copy.pcap", "measure --pcap in.pcap --write copy.pcap", 19_999),
        ("log.csv", "emulate --in pcap:in.pcap --out null --forward 'delay 1ms' --decisions log.csv", 20_000),
    ] {
        // Files are limited to 32 KiB. Writing more fails as on a full disk.
        let line = format!("ulimit -f 64; exec {} {line} --json", env!("CARGO_BIN_EXE_netlathe"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output();
        let finished = Finished::of(output.expect("sh is there"));
        assert_eq!(finished.status, Some(2), "{}", finished.stderr);
        let complaints = finished.complaints();
        assert!(complaints.len() == 1 && complaints[0].contains(file), "{complaints:?}");
        let report = finished.report();
        assert!((100..=most).contains(&report["pipelines"][0]["out"]["frames"].as_u64().expect("a count")), "{report}");
    }
}

#[test]
fn a_page_that_cannot_be_written_hides_nothing_else() {
    let bench = Bench::new();
    bench.generate("100B", 20_000);
    let line = "ulimit -f 16; exec";
    let line =
        format!("{line} {} shape --in pcap:in.pcap --out pcap:out.pcap --report page", env!("CARGO_BIN_EXE_netlathe"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output();
    let finished = Finished::of(output.expect("sh is there"));
    assert_eq!(finished.status, Some(2), "{}", finished.stderr);
    let complaints = finished.complaints();
    assert!(complaints.len() == 2 && complaints[0].contains("out.pcap"), "{complaints:?}");
    assert!(complaints[1].contains("report.html") && finished.stdout.contains("out "), "{complaints:?}");
}

#[test]
fn control_characters_in_names_do_not_reach_the_terminal() {
    let bench = Bench::new();
    bench.write(
        "scenario.toml",
        "schema = 1\n[[pipeline]]\nname = \"a\\u001b[2Jb\\u0007\"\nin = \"pcap:x\"\nout = \"null\"\n",
    );
    for (arguments, shown) in [
        (["shape", "--in", "pcap:\u{1b}[31mred.pcap", "--out", "null"], r"\u{1b}[31mred.pcap"),
        (["measure", "--pcap", "a\rb\u{9b}c.pcap", "--progress", "never"], r"a\rb\u{9b}c.pcap"),
        (["gen", "--out", "null", "--pcap", "two\nlines.pcap"], "lines.pcap"),
        (["run", "\u{8}scenario", "--progress", "never", "-q"], r"\u{8}scenario"),
        (["run", "scenario.toml", "--progress", "never", "-q"], ""),
    ] {
        let finished = bench.run(arguments);
        assert_eq!(finished.status, Some(2), "{arguments:?}");
        assert!(finished.stderr.contains(shown), "{arguments:?}: {:?}", finished.stderr);
        for line in finished.stderr.lines() {
            assert!(line.starts_with("netlathe: ") && !line.contains(char::is_control), "{arguments:?}: {line:?}");
        }
    }
}
