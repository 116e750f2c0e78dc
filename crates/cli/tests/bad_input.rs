//! What goes wrong goes wrong in one clear way: status 2, a line for each problem that says what to do, nothing on
//! stdout, and no file left behind.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod common;

use common::{Bench, Dialect, Finished, Record, await_handlers, words};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

/// A folder with a good capture in `in.pcap`.
fn bench() -> Bench {
    let bench = Bench::new();
    let records: Vec<Record> = (0..100).map(|i| Record::new(1_000 * u64::from(i), 64 + i, i)).collect();
    bench.capture("in.pcap", Dialect::USUAL, &records);
    bench
}

/// Runs a command that must be refused; all of `wanted` must be said.
#[track_caller]
fn refused(bench: &Bench, line: &str, wanted: &[&str]) -> Finished {
    let before = bench.files();
    let finished = bench.run(words(line));
    let said = &finished.stderr;
    assert_eq!(finished.status, Some(2), "{line}: {said}");
    assert_eq!(finished.stdout, "", "{line}");
    assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{line}: {said}");
    assert!(wanted.iter().all(|word| said.contains(word)), "{line}: {wanted:?} in {said}");
    assert!(said.lines().all(|line| line.starts_with("netlathe: ") && line.len() > 30), "{line}: {said}");
    let remedies = [
        "write",
        "give",
        "check",
        "name",
        "leave",
        "add",
        "use",
        "at most",
        "correct",
        "did you mean",
        "read from",
        "capture on",
        "--help",
        "tip",
        "similar",
    ];
    let helps = |line: &str| remedies.iter().any(|remedy| line.contains(remedy));
    assert!(said.lines().all(helps), "{line} gets no remedy: {said}");
    assert_eq!(bench.files(), before, "{line} leaves files behind");
    finished
}

/// As [`refused`], with one line on stderr.
#[track_caller]
fn refused_in_a_line(bench: &Bench, line: &str, wanted: &[&str]) {
    let finished = refused(bench, line, wanted);
    assert_eq!(finished.stderr.lines().count(), 1, "{line}: {}", finished.stderr);
}

#[test]
fn inputs_that_are_no_captures() {
    let bench = bench();
    bench.write("empty", "");
    bench.write("text", "this is no capture, but a text that is longer than the header of one\n");
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

/// A full disk is found out when the run is under way, so that there is a report.
fn refused_in_a_line_but_reported(bench: &Bench) {
    let finished = bench.run(words("shape --in pcap:in.pcap --out pcap:/dev/full --json"));
    assert_eq!((finished.status, finished.stderr.lines().count()), (Some(2), 1), "{}", finished.stderr);
    assert!(finished.stderr.contains("/dev/full") && finished.stderr.contains("free space"));
    // Where stdout takes no report there is still the page.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
    let mut command = bench.command(words("shape --in pcap:in.pcap --out null --json --report page"));
    let output = command.stdout(full).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("stdout"), "{stderr}");
    assert!(bench.read("page/report.html").ends_with(b"</html>\n"));
}

#[test]
fn a_cut_capture_gives_what_was_whole() {
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
    // A record of 4 GB of which nothing is there.
    let mut huge = whole[..24 + 76].to_vec();
    huge.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
    bench.write("cut.pcap", huge);
    let finished = bench.run(words("shape --in pcap:cut.pcap --out pcap:out.pcap --json"));
    assert_eq!((finished.status, bench.records("out.pcap").len()), (Some(2), 1), "{}", finished.stderr);
}

#[test]
fn values_that_mean_nothing() {
    let bench = bench();
    let stages = ["--stage", "'delay 5'"].join(" ");
    bench.write("fast.txt", "0s 1Gbps\n1ms 11Gbps\n");
    for (options, wanted) in [
        ("--out null --gap 10", &["--gap", "no unit", "10us"][..]),
        ("--out null --gap=-5us", &["--gap", "negative"]),
        ("--out null --gap 0us", &["--gap", "zero"]),
        ("--out null --gap 99999999999999s", &["--gap", "too large"]),
        ("--out null --gap 1e9s", &["--gap", "exponent"]),
        ("--out null --gap 90000s", &["--gap", "day"]),
        ("--out null --gap 0.1ps", &["--gap"]),
        ("--out null --gap ''", &["--gap"]),
        ("--out null --gap 1min", &["--gap", "write 60s"]),
        ("--out null --gap 'table nowhere.txt'", &["--gap: cannot read nowhere.txt"]),
        ("--out wire:10G --rate 'steps fast.txt'", &["--rate: 'steps fast.txt' is above the line rate"]),
        ("--out null --gap 'fixd 10us'", &["--gap"]),
        ("--out null --rate 10mbps", &["--rate", "MB/s", "Mbps"]),
        ("--out null --rate 10", &["--rate", "no unit"]),
        ("--out null --rate=-1Gbps", &["--rate", "negative"]),
        ("--out null --rate 0Gbps", &["--rate", "zero"]),
        ("--out null --rate 50%", &["--rate", "share"]),
        ("--out pcap:out.pcap --rate 50%", &["--rate", "share", "5Gbps"]),
        ("--out wire:10G --rate 11Gbps", &["--rate", "above", "10Gbps"]),
        ("--out wire:10G --rate 14.9Mpps", &["--rate", "above"]),
        ("--out wire:10G --rate 101%", &["--rate"]),
        ("--out wire:10G --rate 1Gbps --gap 10us", &["--gap", "leave one out"]),
        ("--out wire:10G --gap 10us --filler self,longest=9018", &["--filler", "9018", "unit"]),
        ("--out wire:10G --gap 10us --filler self,longest=2kB", &["--filler", "longest=2973B"]),
        ("--out wire:10X", &["--out", "10X", "wire:10G"]),
        ("--out wire:0G", &["--out"]),
        ("--out wire:10G,pcap=", &["--out", "pcap=FILE"]),
        ("--out wire:10G,fillers=keep", &["--out", "pcap=FILE"]),
        ("--out ether:eth0", &["--out", "ether", "pcap:FILE"]),
        ("--out ''", &["--out"]),
        ("--out null --stage 'dealy 10ms'", &["--stage", "dealy", "delay"]),
        ("--out null --stage delay", &["--stage", "delay 20ms"]),
        ("--out null --stage 'loss 120%'", &["--stage", "120%"]),
        ("--out null --stage ''", &["--stage"]),
        ("--out wire:10G --pacer filer --gap 1us", &["--pacer", "filler"]),
        ("--out wire:10G --filler self,align=3 --gap 1us", &["--filler", "align=4"]),
        ("--out wire:10G --filler blackhole=01:00:00:00:00:01 --gap 1us", &["--filler", "group"]),
        ("--out wire:10G --filler self", &["--filler"]),
        ("--out null --duration 5", &["--duration", "no unit"]),
        ("--out null --window 0s", &["--window"]),
        (&format!("--out null {stages}"), &["--stage", "no unit"]),
    ] {
        refused_in_a_line(&bench, &format!("shape --in pcap:in.pcap {options}"), wanted);
    }
    for (line, wanted) in [
        ("shape --in wire:10G --out null", &["--in", "wire:"][..]),
        ("shape --in null --out null", &["--in", "null"]),
        ("gen --out null --stream 'sctp 10.0.0.1:1 > 10.0.0.2:2' --count 1", &["--stream", "sctp"]),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 flags S' --count 1", &["--stream", "'flags'", "'udp'"]),
        ("gen --out null --stream 'udp 10.0.0.9-10.0.0.1:1 > 10.0.0.2:2' --count 1", &["--stream", "empty"]),
        ("gen --out null --stream 'tcp 10.0.0.1:1 > 10.0.0.2:2 size 64B stamp on' --count 1", &["stamp", "size 76B"]),
        ("gen --out null --stream 'pcap in.pcap frame 999999' --count 1", &["in.pcap", "999999"]),
        ("gen --out null --stream 'pcap in.pcap frame 1 seq 5' --count 1", &["frame 1 of in.pcap", "'seq'"]),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --loop 3", &["--loop"]),
        (
            "gen --out null --gateway 10.0.0.9 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1",
            &["--gateway", "null", "dmac"],
        ),
        (
            "gen --out eth0 --gateway fd00::1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1",
            &["--gateway", "IPv6", "leave it out"],
        ),
        (
            "gen --out eth0 --gateway 10.0.0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1",
            &["--gateway", "'10.0.0' is no IP address"],
        ),
        ("gen --out null --in lo --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1", &["--in", "measure --pcap"]),
        ("gen --out eth0 --in lo --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 stamp off' --count 1", &["--in", "stream 0"]),
        ("gen --out eth0 --in lo --pcap in.pcap", &["--in", "capture"]),
        ("gen --out null --pcap nowhere.pcap", &["nowhere.pcap"]),
        ("gen --out null --pcap in.pcap --speed 0", &["--speed", "0.5"]),
        ("gen --out null --pcap in.pcap --speed 2 --gap 1us", &["--speed", "leave one out"]),
        ("gen --out null --pcap in.pcap --rewrite 'src 10.0.0.0/8 > ::/0'", &["--rewrite", "version of IP"]),
        (
            "gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --rewrite 'vlan 5'",
            &["--rewrite", "--pcap"],
        ),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --pcap in.pcap --count 1", &["--pcap"]),
        ("gen --out pcap:in.pcap --pcap in.pcap", &["in.pcap", "overwritten"]),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 64' --count 1", &["--stream", "no unit"]),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'", &["--count", "--duration"]),
        ("measure --pcap in.pcap --expect 50%", &["--expect", "5Gbps"]),
        ("measure --pcap in.pcap --expect 10", &["--expect", "no unit"]),
        ("measure --pcap in.pcap --expect 'follow-depth 1Gbps..9Gbps'", &["--expect", "follow-depth", "5Gbps"]),
        ("measure --pcap in.pcap --expect -5us", &["--expect", "without the sign"]),
        ("shape --in pcap:in.pcap --out null --seed -1", &["'-1'", "--seed", "without the sign"]),
        ("shape --in pcap:in.pcap --out null --seed abc", &["'abc'", "--seed", "write a whole number"]),
        ("shape --in pcap:in.pcap --out null --seed 99999999999999999999", &["--seed", "write a smaller number"]),
        ("shape --in pcap:in.pcap --out null --cores 0,0", &["--cores", "CPU 0 is named twice"]),
        ("shape --in c0 --out s0 --gap 10us --line-rate 0", &["--line-rate", "write 10G, "]),
        ("shape --in c0 --out s0 --gap 10us --line-rate wire:10G", &["--line-rate", "write 10G, "]),
        (
            "shape --in pcap:in.pcap --out wire:10G --gap 10us --filler self,longest=63B",
            &["--filler", "63B", "longest=2973B to longest=9216B"],
        ),
    ] {
        refused_in_a_line(&bench, line, wanted);
    }
    refused_in_a_line(
        &bench,
        "emulate --in pcap:in.pcap --out null --forward 'delay 1ms' --sync 'order 10.0.0.1,10.0.0.2'",
        &["'--sync'", "an option of shape"],
    );
    for line in
        ["shape --in pcap:in.pcap", "gen --out null", "measure", "shape --bogus", "bogus", "gen --out null --count 0"]
    {
        refused_in_a_line(&bench, line, &[]);
    }
}

#[test]
fn words_of_other_tools_are_told_what_to_write() {
    let bench = bench();
    for (options, wanted) in [
        ("--pcap in.pcap --mbps 10", "write --rate 10Mbps"),
        ("--pcap in.pcap --topspeed", "write --speed max"),
        ("--pcap in.pcap --limit 5", "write --count N"),
        ("in.pcap", "write --pcap in.pcap"),
        ("eth0 --pcap in.pcap", "write --out eth0"),
        ("--pcap in.pcap -l 3", "write --loop N"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --loops 3", "for --count N frames"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' -m 50%", "--line-rate 10Gbps --rate 50%"),
        ("--pcap in.pcap -m 2", "for a capture also --speed 2"),
        ("--pcap in.pcap --fixcsum", "'checksums right'"),
        ("--pcap in.pcap --rewrite 'dport 80:8080'", "write 'dport 80 > 8080'"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --size 64B", "write it in the stream"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 dst-mac 02:00:00:00:00:02'", "write dmac"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 tos 184'", "write dscp"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2 rate 1Gbps'", "beside the streams"),
        ("--stream 'ipv6 fd00::1 > fd00::2'", "write ip"),
        ("--stream 'UDP 10.0.0.1:1 > 10.0.0.2:2'", "write udp"),
    ] {
        refused_in_a_line(&bench, &format!("gen --out pcap:out.pcap {options}"), &[wanted]);
    }
    refused_in_a_line(&bench, "limit --in pcap:in.pcap --out null --key dst-ip --cir 1Mbps", &["write --rate"]);
    refused_in_a_line(&bench, "search --dut 'loss 1%' --precision 1%", &["write --width"]);
    for (line, wanted) in [
        ("capture --in eth0", "write netlathe measure --in eth0 --write FILE"),
        ("replay in.pcap", "write netlathe gen --out eth0 --pcap FILE"),
        ("rfc2544", "--size rfc2544"),
        (
            "gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --burst 32",
            "write --rate 'burst 1Mpps for 100us every 10ms'",
        ),
        ("emulate --in pcap:in.pcap --out null --latency=50", "write --forward 'delay 50ms 5ms'"),
        ("emulate --in pcap:in.pcap --out null --match udp", "write --class 'web = tcp dport 80'"),
        ("emulate --in pcap:in.pcap --out null --forward 'loss 1% burst 5'", "write loss gemodel 0.2% 20%"),
        ("shape --in pcap:in.pcap --out null --stage 'loss 1% burst 5'", "netem loss gemodel 0.2% 20%"),
        ("measure --pcap in.pcap --filter udp", "tshark -r FILE -Y udp"),
    ] {
        refused_in_a_line(&bench, line, &[wanted]);
    }
}

#[test]
fn problems_are_shown_together() {
    let bench = bench();
    let finished = refused(
        &bench,
        "shape --in wire:1G --out wire:10X --gap 10 --stage 'foo 1' --filler hole",
        &["--out", "--gap"],
    );
    assert_eq!(finished.stderr.lines().count(), 4, "{}", finished.stderr);
    bench.write(
        "bad.toml",
        "schema = 1\nsead = 3\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'wire:10G'\ngap = 10\nstages = ['delai 1ms']\n\
         [[expect]]\nthat = 'foo.held == 0'\n[[expect]]\nthat = 'faster'\n",
    );
    for command in ["check", "run"] {
        let said = refused(&bench, &format!("{command} bad.toml"), &["did you mean seed"]).stderr;
        let places: Vec<_> = said.lines().map(|line| line.split(": ").nth(1).expect("a place")).collect();
        assert_eq!(
            places,
            ["bad.toml:2:1", "bad.toml:6:7", "bad.toml:7:11", "bad.toml:9:8", "bad.toml:11:8"],
            "{said}"
        );
    }
}

#[test]
fn scenarios_that_are_none() {
    let bench = bench();
    bench.write("latin1.toml", b"schema = 1 # \xe9\n");
    for (text, wanted) in [
        ("", &["schema", "pipeline"][..]),
        ("schema = 2\n", &["schema 2", ":1:10"]),
        ("schema = 1\n[[pipeline]\n", &["bad.toml:2:"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap\n", &["bad.toml:3:"]),
        ("schema = 1\n[pipeline]\nin = 'pcap:in.pcap'\nout = 'null'\n", &["[[pipeline]]"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\noutt = 'null'\n", &["bad.toml:4:1", "did you mean out"]),
        ("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\ncount = 5\n", &["bad.toml:5:", "count"]),
        ("\u{feff}shema = 1\n", &["bad.toml:1:1: 'shema'", "did you mean schema"]),
        ("schema = '1'\n", &["bad.toml:1:10", "without quotes"]),
        ("schema = 1.0\n", &["bad.toml:1:10", "without point"]),
        ("schema = 1\nseed = -5\n", &["bad.toml:2:8", "below zero: write 0"]),
        ("schema = 1\nseed = 99999999999999999999\n", &["bad.toml:2:8", "at most 18446744073709551615"]),
        ("schema = 1\nduration = 5\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'null'\n", &["bad.toml:2:12", "unit"]),
    ] {
        bench.write("bad.toml", text);
        refused(&bench, "check bad.toml", wanted);
        refused(&bench, "run bad.toml --json", wanted);
    }
    refused(&bench, "check latin1.toml", &["UTF-8, as TOML is"]);
    for file in ["missing.toml", ".", "latin1.toml"] {
        refused(&bench, &format!("check {file}"), &[file]);
        refused(&bench, &format!("run {file}"), &[file]);
    }
}

#[test]
fn a_scenario_whose_second_pipeline_cannot_run_writes_nothing() {
    let bench = bench();
    let second = |edit: &str| {
        format!("schema = 1\n[[pipeline]]\nin = 'pcap:in.pcap'\nout = 'pcap:out.pcap'\n[[pipeline]]\n{edit}\n")
    };
    for (edit, wanted) in [
        ("in = 'pcap:missing.pcap'\nout = 'null'", "missing.pcap"),
        ("in = 'pcap:out.pcap'\nout = 'null'", "out.pcap"),
        ("in = 'pcap:in.pcap'\nout = 'wire:1G,frames=./out.pcap'", "another output"),
        ("in = 'pcap:in.pcap'\nout = 'pcap:nowhere/out.pcap'", "nowhere"),
    ] {
        bench.write("two.toml", second(edit));
        refused_in_a_line(&bench, "run two.toml", &[wanted]);
    }
}

#[test]
fn a_run_longer_than_time_reaches_says_so() {
    let bench = bench();
    let stream = "udp 10.0.0.1:1 > 10.0.0.2:2 size 300B";
    bench.run(["gen", "--out", "pcap:many.pcap", "--stream", stream, "--count", "20000", "-q"]);
    for how in [
        "--out null --gap 86400s",
        "--out wire:10G --gap 86400s",
        "--out wire:10G --rate 0.001pps",
        "--out wire:3G --rate 1bps",
        "--out null --stage 'delay 18446744s'",
        "--out null --stage 'delay 18446744s' --stage 'delay 18446744s'",
    ] {
        let finished = bench.run(words(&format!("shape --in pcap:many.pcap {how} --json")));
        assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{how}: {}", finished.stderr);
        assert!(finished.stderr.contains("213 days"), "{how}: {}", finished.stderr);
        assert!(finished.report()["pipelines"][0]["held"].as_u64() > Some(0));
    }
    for how in ["--duration 18446744s", "--window 18446744s"] {
        bench.report(words(&format!("shape --in pcap:in.pcap --out wire:10G --gap 10us {how}")));
    }
}

#[test]
fn readers_that_went_away_are_no_disaster() {
    let bench = bench();
    let shell = |line: &str| {
        let line = line.replace("netlathe", env!("CARGO_BIN_EXE_netlathe"));
        let output = Command::new("sh").args(["-c", &line]).current_dir(bench.path("")).output().expect("a shell");
        Finished::of(output)
    };
    for command in ["measure --pcap in.pcap", "measure --pcap in.pcap --json", "shape --in pcap:in.pcap --out null"] {
        for reader in [">&-", "| true", "| head -0"] {
            let finished = shell(&format!("netlathe {command} {reader}"));
            assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{command} {reader}");
        }
    }
    for (command, status) in [
        ("measure --pcap missing", "2"),
        ("shape --in pcap:in.pcap --out null --gap 10", "2"),
        ("measure --pcap in.pcap -q --expect 1s", "1"),
    ] {
        let finished =
            shell(&format!("trap '' PIPE; (exec 3>&1; (netlathe {command} 2>&1 >/dev/null; echo $? >&3) | true)"));
        assert_eq!(finished.stdout.trim(), status, "{command}: stderr is read by nobody");
    }
    for command in ["--help", "shape --help"] {
        let finished = shell(&format!("netlathe {command} | head -0"));
        assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn sigint_ends_a_run_with_its_report() {
    let bench = bench();
    bench.write(
        "dry.toml",
        "schema = 1\n[[pipeline]]\nstream = 'udp 10.0.0.1:1 > 10.0.0.2:2'\nout = 'wire:10G,frames=dry.csv'\n\
         stages = ['loss 100%']\n",
    );
    for signal in ["INT", "TERM", "HUP"] {
        for line in [
            "gen --out wire:10G,pcap=/dev/null,frames=out.csv --rate 1bps --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --duration 100ms",
            "run dry.toml --duration 100000s",
        ] {
            // A run that lasts until it is told to end: as many frames as the file takes, kept small by /dev/null.
            let endless = line
                .replace("--rate 1bps", "--rate 10Gbps")
                .replace("100ms", "100000s")
                .replace("out.csv", "/dev/null");
            // Also under nohup, where it would do without SIGHUP.
            let mut command = Command::new("env");
            command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_netlathe")]).args(words(&endless)).arg("--json");
            command.current_dir(bench.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("it runs");
            await_handlers(child.id());
            // Twice at once, as timeout(1) does.
            let process = child.id().to_string();
            let killed = Command::new("kill").args(["-s", signal, &process, &process]).status();
            assert!(killed.expect("kill is there").success());
            let mut report = String::new();
            let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
            stdout.read_line(&mut report).expect("a line");
            let output = child.wait_with_output().expect("it ends");
            let finished = Finished {
                status: output.status.code(),
                stdout: report,
                stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            };
            assert_eq!((finished.status, finished.complaints()), (Some(0), vec![]), "{signal}: {endless}");
            finished.report();
        }
    }
}

#[test]
fn options_of_lab_that_there_are_not_are_named_as_such() {
    let bench = bench();
    refused_in_a_line(&bench, "lab run --lab x --on client -- true", &["lab run has no option --lab", "--help"]);
    let said = refused(&bench, "lab up --name x", &["'--name'", "--help"]).stderr;
    assert!(!said.contains("as a value"), "{said}");
}

#[test]
fn a_stack_that_is_too_small_is_said() {
    for (kib, code) in [(64, 2), (256, 0)] {
        let script =
            format!("ulimit -s {kib}; exec \"$0\" gen --out null --count 1 -q --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
        let output =
            Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{kib} KiB: {said}");
        assert_eq!(said.contains("a stack of 64 KiB is too small: ulimit -s 256"), code == 2, "{kib} KiB: {said}");
    }
}

#[test]
fn a_capture_that_spans_more_than_time_reaches_is_told_with_its_record() {
    let bench = bench();
    let records = |last_days: u64| [0, 1_000, last_days * 86_400_000_000_000].map(|ns| Record::new(7 + ns, 64, 0));
    bench.capture("wide.pcap", Dialect::USUAL, &records(213));
    bench.capture("wider.pcap", Dialect::USUAL, &records(214));
    for command in ["measure --pcap", "shape --out null --in pcap:", "gen --out null --pcap"] {
        let said = |capture: &str, wanted: &str| {
            let line = format!("{command} {capture} --json").replace(": ", ":");
            let finished = bench.run(words(&line));
            assert_eq!((finished.status, finished.complaints().len()), (Some(2), 1), "{line}: {}", finished.stderr);
            assert!(finished.stderr.contains(wanted), "{line}: {}", finished.stderr);
            assert_eq!(finished.report()["pipelines"][0]["in"]["frames"], 2, "{line}");
        };
        bench.report(words(&format!("{command} wide.pcap").replace(": ", ":")));
        said("wider.pcap", "spans more than the 213 days (18 446 744 s) that virtual time reaches: record 3 is");
        if command.starts_with("gen") {
            // Its records are not too far apart: when they are to be sent is too far.
            said("wide.pcap --speed 0.5", "the run is longer than the 213 days");
            said("wide.pcap --loop 2 --speed 0.9", "the run is longer than the 213 days");
        }
    }
    let again = bench.run(words("gen --pcap wide.pcap --out null --loop 2 --json"));
    assert_eq!(again.status, Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("the run is longer than the 213 days"), "{}", again.stderr);
    // Back to back no stamp matters.
    for (capture, rounds) in [("wide.pcap", 5), ("wider.pcap", 5)] {
        let report = bench.report(words(&format!("gen --pcap {capture} --speed max --loop {rounds} --out null")));
        assert_eq!(report["out"]["frames"], 3 * rounds, "{capture}");
    }
}

#[test]
fn streams_have_the_classes_that_are_named() {
    let bench = bench();
    let streams = "gen --out null --count 10 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 size 64B'";
    for ask in ["--rate api=1Mbps", "--gap api=1us"] {
        refused_in_a_line(&bench, &format!("{streams} {ask}"), &["add --class 'api = RULE'", "leave 'api=' out"]);
    }
    refused_in_a_line(&bench, "shape --in pcap:in.pcap --out null --rate api=1Mbps", &["add --class 'api = RULE'"]);
}

#[cfg(feature = "live")]
#[test]
fn too_many_workers_for_live_ports_are_refused_by_the_name_of_the_command() {
    let bench = bench();
    let limit = "limit --in if:lo --out null --key dst-ip --rate 1Mbps";
    for (options, wanted) in [("--workers 65", "65 workers are too many"), ("--service 1us", "service is of modelled")]
    {
        refused_in_a_line(&bench, &format!("{limit} {options}"), &[&format!("netlathe: limit: {wanted}")]);
    }
}
