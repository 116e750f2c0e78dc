//! Options and values that are meaningless, or mean something else in other tools.

use super::{bench, refused, refused_in_a_line};
use crate::common::words;

#[test]
fn values_that_mean_nothing() {
    let bench = bench();
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
        ("--out null --gap 1minute", &["--gap", "write 1min"]),
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
        ("--out null --gap 10us --start-at +1s", &["--start-at", "virtual time", "leave it out"]),
        ("--out null --gap 10us --start-at 2026-11-25T18:00:00", &["--start-at", "no time zone", "TAI"]),
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
        ("--out null --stage 'delay 5'", &["--stage", "no unit"]),
    ] {
        refused_in_a_line(&bench, &format!("shape --in pcap:in.pcap {options}"), wanted);
    }
    for (line, wanted) in [
        ("shape --in wire:10G --out null", &["--in", "wire:"][..]),
        ("shape --in null --out null", &["--in", "null"]),
        ("gen --out null --stream 'igmp 10.0.0.1 > 10.0.0.2' --count 1", &["--stream", "igmp"]),
        ("gen --out null --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 flags S' --count 1", &["--stream", "'flags'", "'udp'"]),
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
            "gen --out if:lo --gateway 10.0.0.9 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --stream 'udp [fd00::1]:1 > [fd00::2]:2'",
            &["--gateway", "stream 1 is of IPv6", "dmac"],
        ),
        (
            "gen --out eth0 --gateway 10.0.0 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1",
            &["--gateway", "'10.0.0' is not an IP address"],
        ),
        ("gen --out null --in lo --stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1", &["--in", "measure --pcap"]),
        ("gen --out eth0 --in lo --stream 'udp 10.0.0.1:1 > 10.0.0.2:2 stamp off' --count 1", &["--in", "stream 0"]),
        ("gen --out eth0 --in lo --pcap -", &["--in", "only once"]),
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
        ("shape --in pcap:in.pcap --out null --gap fixed 10us", &["'10us'", "quotes, as --gap 'fixed 10us'"]),
        ("shape --in pcap:in.pcap --out null --seed -1", &["'-1'", "--seed", "without the sign"]),
        ("shape --in pcap:in.pcap --out null --seed abc", &["'abc'", "--seed", "write a whole number"]),
        ("shape --in pcap:in.pcap --out null --seed 99999999999999999999", &["--seed", "write a smaller one"]),
        ("shape --in pcap:in.pcap --out null --cores 0,0", &["--cores", "CPU 0 is named twice"]),
        ("shape --in c0 --out s0 --gap 10us --line-rate 0", &["--line-rate", "write 10G, "]),
        ("shape --in c0 --out s0 --gap 10us --line-rate wire:10G", &["--line-rate", "write 10G, "]),
        (
            "shape --in pcap:in.pcap --out wire:10G --gap 10us --filler self,longest=63B",
            &["--filler", "63B", "longest=2973B to longest=9216B"],
        ),
        (
            "emulate --in pcap:in.pcap --out null --forward 'delay 1ms' --sync 'order 10.0.0.1,10.0.0.2'",
            &["'--sync'", "an option of shape"],
        ),
        ("shape --in pcap:in.pcap", &[]),
        ("gen --out null", &[]),
        ("measure", &[]),
        ("shape --bogus", &[]),
        ("bogus", &[]),
        ("gen --out null --count 0", &[]),
    ] {
        refused_in_a_line(&bench, line, wanted);
    }
}

#[test]
fn suggests_our_option_for_words_of_other_tools() {
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
        ("--stream 'upd 10.0.0.1:1 > 10.0.0.2:2'", "did you mean udp?"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --max-gap 1ms", "'--stream <SPEC>' cannot be used"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --loop-gap 1ms", "'--stream <SPEC>' cannot be used"),
        ("--stream 'udp 10.0.0.1:1 > 10.0.0.2:2' --count 1 --in eth9 --write-missing m.pcap", "cannot be used with"),
    ] {
        refused_in_a_line(&bench, &format!("gen --out pcap:out.pcap {options}"), &[wanted]);
    }
    refused_in_a_line(&bench, "limit --in pcap:in.pcap --out null --key dst-ip --cir 1Mbps", &["write --rate"]);
    refused_in_a_line(&bench, "search --dut 'loss 1%' --precision 1%", &["write --width"]);
    let v6 = "search --dut 'delay 1ms' --max 1kpps --trial 10ms --stream 'udp [fd00::1]:1 > [fd00::2]:2'";
    refused_in_a_line(&bench, v6, &["write --size 84B or larger"]);
    assert_eq!(bench.run(words(&format!("{v6} --size 84B"))).status, Some(0), "the size in the message is enough");
    for name in ["o.xz", "o.pcap.bz2", "o.lz4"] {
        let line = format!("gen --out pcap:{name} --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'");
        refused_in_a_line(&bench, &line, &["compressed as .gz or .zst only"]);
    }
    let line = "emulate --in pcap:in.pcap --out null --forward 'loss=1%'";
    refused_in_a_line(&bench, line, &["write 'loss 1%' for a setting"]);
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
        ("measure --pcap in.pcap --filter udp", "write --only 'udp dport 53'"),
    ] {
        refused_in_a_line(&bench, line, &[wanted]);
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

#[test]
fn unknown_lab_options_are_reported_as_such() {
    let bench = bench();
    refused_in_a_line(&bench, "lab run --lab x --on client -- true", &["lab run has no option --lab", "--help"]);
    let said = refused(&bench, "lab up --name x", &["'--name'", "--help"]).stderr;
    assert!(!said.contains("as a value"), "{said}");
}

#[cfg(feature = "live")]
#[test]
fn too_many_workers_for_live_ports_are_refused_by_the_name_of_the_command() {
    let bench = bench();
    let limit = "limit --in if:lo --out null --key dst-ip --rate 1Mbps --mode police";
    for (options, wanted) in
        [("--workers 65", "65 workers are too many"), ("--service 1us", "service is only for modelled")]
    {
        refused_in_a_line(&bench, &format!("{limit} {options}"), &[&format!("netlathe: limit: {wanted}")]);
    }
}

#[test]
fn suggests_only_similar_words() {
    let bench = bench();
    let streams = "gen --out null --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'";
    for (option, wrong) in [("--unit x", "--quiet"), ("--facet eth0", "--pacer"), ("--qwerty", "a similar")] {
        let said = refused(&bench, &format!("{streams} {option}"), &["--help"]).stderr;
        assert!(!said.contains(wrong), "{option}: {said}");
    }
    for (option, meant) in [("--jsonn", "--json"), ("--durration 1s", "--duration"), ("--repot x", "--report")] {
        refused_in_a_line(&bench, &format!("{streams} {option}"), &[meant]);
    }
    refused_in_a_line(&bench, "genn --out null", &["'gen'"]);
}

#[test]
fn says_where_misplaced_words_belong() {
    let bench = bench();
    for (line, wanted) in [
        ("emulate --in pcap:in.pcap --out pcap:o.pcap 'delay 5ms'", "write --forward 'delay 5ms'"),
        ("shape --in pcap:in.pcap --out null 'loss 1%'", "write --stage 'loss 1%'"),
        ("gen --out null --count 1 'udp 10.0.0.1:1 > 10.0.0.2:2'", "write --stream 'udp 10.0.0.1:1 > 10.0.0.2:2'"),
        ("shape --in pcap:in.pcap --out null --rate '10Mpps then 20Mpps at 10s'", "write 'steps FILE'"),
    ] {
        refused_in_a_line(&bench, line, &[wanted]);
    }
    for (spec, place) in [
        ("then 80ms at 5s", "after the time of a delay"),
        ("loss 1% mode bit", "after the share of corrupt"),
        ("rate 1mbit queue pie ecn target 1us", "right after the name of a queue"),
        ("delay 1ms icmp", "after an MTU: mtu 1400 icmp"),
        ("rate 1mbit codel", "queue codel"),
        ("delay 1ms interval 5ms", "right after the name of a queue"),
    ] {
        let line = format!("emulate --in pcap:in.pcap --out null --forward '{spec}'");
        let said = refused(&bench, &line, &[place]).stderr;
        assert!(!said.contains("did you mean"), "{said}");
    }
}

#[cfg(all(feature = "live", feature = "slice"))]
#[test]
fn a_mistyped_option_is_never_run_as_a_program() {
    let bench = bench();
    refused_in_a_line(&bench, "slice --port 80", &["an option of slice kernel and slice pipeline"]);
    for (line, wanted) in [
        ("lab run --nmae x -- touch ran", "write --name"),
        ("lab run --qwerty -- touch ran", "lab run has no option --qwerty"),
        ("lab run touch -- touch ran", "'touch' before -- is not an option of lab run"),
        ("slice kernel --prot 80 -- touch ran", "write --port"),
        ("slice kernel --prot=80 -- touch ran", "write --port"),
        ("slice kernel touch -- ran", "'touch' before -- is not an option of slice kernel"),
        ("slice kernel --duraton 1s touch ran", "write --duration"),
    ] {
        refused_in_a_line(&bench, line, &[wanted]);
        assert!(!bench.files().iter().any(|file| format!("{file:?}").contains("ran")), "{line}");
    }
}
