//! Rules, rewriting and keys, compared with tshark's display filters on streams in every tunnel and on the shared
//! captures. Without tshark, each test prints SKIP with the reason and passes.

use crate::common::{Bench, Record, words};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A stream in each tunnel, with fields that vary in the inner and outer headers.
const STREAMS: &[&str] = &[
    "udp 10.0.0.1-10.0.0.9:1000-1099 > 10.1.0.1:53,80,443 ttl 60-70",
    "tcp 10.0.0.1-10.0.0.9:1000-1099 > 10.1.0.1:53,80,443 flags S,SA,A,FA window 1-9 dscp ef,af41,0",
    "udp [2001:db8::1-2001:db8::9]:1-9 > [2001:db8:1::1]:53,80 flow-label 1-99",
    "icmp 10.0.0.1 > 10.1.0.1 type 8,0 icmp-id 1-5",
    "arp 10.0.0.1-10.0.0.5 > 10.1.0.1-10.1.0.3 op 1,2",
    "udp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80 vlan 5-9 pcp 1-3 svlan 100-104",
    "tcp 10.0.0.1-10.0.0.9:1000 > 10.1.0.1:80,443 in vxlan vni 5-9 in udp 192.0.2.1:49152-49159 > 192.0.2.2-192.0.2.4",
    "udp 10.0.0.1:53 > 10.1.0.1-10.1.0.5:80 in geneve vni 5-9 in udp 192.0.2.1 > 192.0.2.2",
    "udp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80,53 in gtpu teid 1-9 qfi 9 in udp 192.0.2.1 > 192.0.2.2",
    "tcp 10.0.0.1:1 > 10.1.0.1-10.1.0.9:80 in gtpu teid 5-7 in udp 2001:db8::1-2001:db8::4 > 2001:db8::2 in vlan id 7-9",
    "udp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80 in gre key 5-7 in ip 192.0.2.1 > 192.0.2.2 ttl 9-11",
    "udp [2001:db8::1]:1-5 > [2001:db8::2]:80 in ip 192.0.2.1-192.0.2.5 > 192.0.2.9",
    "tcp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80,443 in mpls label 16-19 in mpls label 100-102",
    "udp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80 in pppoe session 1-9 in vlan id 7-9",
    "udp 10.0.0.1-10.0.0.9:1 > 10.1.0.1:80 in erspan session 3-5 in gre in ip 192.0.2.1 > 192.0.2.2",
    "udp 10.0.0.1:1-9 > 10.1.0.1:80 in erspan session 3-5 timestamp 1-9 in gre in ip 192.0.2.1 > 192.0.2.2",
    "pfc classes 8 time3 1000-1009",
    "sctp-data tsn 1-9 in sctp 10.0.0.1-10.0.0.9:5 > 10.1.0.1:80,90 size 100B",
    "roce psn 1-9 dqp 5-7 in udp 10.0.0.1-10.0.0.9:49152 > 10.1.0.1 size 100B",
    "udp 10.0.0.1-10.0.0.9:5 > 10.1.0.1:80 in srv6 left 1 segment 2001:db8::9 in ip6 2001:db8::1-2001:db8::5 > 2001:db8::2",
    "udp 10.0.0.1-10.0.0.9:5 > 10.1.0.1:80 in l2tp3 session 7-9 in ip 192.0.2.1 > 192.0.2.2",
];

const FRAMES: usize = 3_360;

/// Rules, and the equivalent display filters. `#N` is the N-th layer of its kind.
const RULES: &[(&str, &str)] = &[
    ("vxlan vni 7", "vxlan.vni == 7"),
    ("vxlan vni 6-8 inner tcp dport 80", "vxlan.vni >= 6 && vxlan.vni <= 8 && tcp.dstport == 80"),
    ("vxlan inner src 10.0.0.2 outer dst 192.0.2.3", "vxlan && ip.src#2 == 10.0.0.2 && ip.dst#1 == 192.0.2.3"),
    ("not vxlan vni 7 inner tcp", "!(vxlan.vni == 7) && tcp && (vxlan || gtp)"),
    ("geneve vni 5,9", "geneve.vni == 5 || geneve.vni == 9"),
    (
        "gtp teid 5 inner dst 10.0.0.0/8",
        "gtp.teid == 5 && (ip.dst#2 == 10.0.0.0/8 || (ipv6 && ip.dst#1 == 10.0.0.0/8))",
    ),
    ("teid 0x4/0xfc", "gtp.teid >= 4 && gtp.teid <= 7"),
    ("gtpu qfi 9", "gtp.ext_hdr.pdu_ses_con.qos_flow_id == 9"),
    ("gre key 6", "gre.key == 6"),
    ("gre inner udp dport 80", "gre && udp.dstport == 80"),
    ("erspan session 4", "erspan.spanid == 4"),
    ("erspan version 2 erspan session 4", "erspan.version == 2 && erspan.spanid == 4"),
    ("erspan timestamp 3-5", "erspan.timestamp >= 3 && erspan.timestamp <= 5"),
    ("pfc time3 1003", "macc.cbfc.pause_time.c3 == 1003 && eth.dst == 01:80:c2:00:00:01"),
    ("mpls label 101", "mpls.label#1 == 101"),
    ("mpls#2 label 17 tcp dport 443", "mpls.label == 17 && tcp.dstport == 443"),
    ("pppoe session 3", "pppoe.session_id == 3"),
    ("vlan id 101", "ieee8021ad.id == 101"),
    ("vlan#2 id 7", "ieee8021ad && vlan.id == 7"),
    ("vlan#2 pcp 2", "vlan.priority == 2"),
    ("vlan id 8 innermost udp", "vlan.id == 8 && !ieee8021ad && udp && !tcp"),
    ("arp op 2", "arp.opcode == 2"),
    ("arp src 10.0.0.3", "arp.src.proto_ipv4 == 10.0.0.3"),
    ("icmp type 8", "icmp.type == 8"),
    ("ip ttl 61-63", "ip.ttl#1 >= 61 && ip.ttl#1 <= 63"),
    ("ip6 flow-label 5-9", "ipv6.flow >= 5 && ipv6.flow <= 9"),
    ("tcp window 3 flags syn,!ack", "tcp.window_size_value == 3 && tcp.flags.syn == 1 && tcp.flags.ack == 0"),
    ("sctp dport 90", "sctp.dstport == 90"),
    ("sctp-data tsn 1-4", "sctp.data_tsn_raw >= 1 && sctp.data_tsn_raw <= 4"),
    ("roce psn 3 dqp 5-7", "infiniband.bth.psn == 3"),
    ("ip6 srv6 inner udp dport 80", "ipv6.routing.type == 4 && udp.dstport == 80"),
    ("dscp ef", "ip.dsfield.dscp#1 == 46"),
    ("innermost dport 443", "tcp.dstport == 443 || (udp.dstport == 443)"),
    ("not l2tp3 innermost host 10.0.0.2", "!l2tp && (ip.addr == 10.0.0.2 || arp.src.proto_ipv4 == 10.0.0.2)"),
    ("inner ip6", "ip && ipv6 && ip.proto#1 == 41"),
    ("not inner udp outer not udp not arp", "!udp && !arp && !l2tp"),
];

fn tshark() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok();
    if !there {
        println!("SKIP: tshark is not installed");
    }
    there
}

/// Returns the numbers, from 0, of the frames that match a display filter.
fn filtered(path: &Path, filter: &str) -> Vec<usize> {
    let output = Command::new("tshark")
        .arg("-n")
        .arg("-r")
        .arg(path)
        .args(["-Y", filter, "-T", "fields", "-e", "frame.number"])
        .output()
        .expect("tshark ran");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || said.contains("cut short"), "{filter}: {said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| line.parse::<usize>().expect("a number") - 1).collect()
}

fn make_tunnels(bench: &Bench) -> Vec<Record> {
    let streams: String = STREAMS.iter().map(|stream| format!(" --stream '{stream}'")).collect();
    bench.report(words(&format!("gen --out pcap:tunnels.pcap --count {FRAMES} --gap 1us {streams}")));
    bench.records("tunnels.pcap")
}

/// Returns the frames that match a rule, as `--write` records them.
fn taken(bench: &Bench, file: &str, rule: &str) -> Vec<Record> {
    let said = bench.run(words(&format!("measure --pcap {file} --only '{rule}' --write taken.pcap --json")));
    assert!(matches!(said.status, Some(0 | 1)), "{rule}: {}", said.stderr);
    bench.records("taken.pcap")
}

#[test]
fn rules_take_the_frames_that_display_filters_take() {
    if !tshark() {
        return;
    }
    let bench = Bench::new();
    let records = make_tunnels(&bench);
    assert_eq!(records.len(), FRAMES);
    for (rule, filter) in RULES {
        let ours = taken(&bench, "tunnels.pcap", rule);
        let theirs: Vec<Record> =
            filtered(&bench.path("tunnels.pcap"), filter).into_iter().map(|number| records[number].clone()).collect();
        assert!(!theirs.is_empty() && theirs.len() < FRAMES, "'{filter}' takes {} frames", theirs.len());
        let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
        assert!(ours == theirs, "'{rule}': {} frames, '{filter}': {}, first {first:?}", ours.len(), theirs.len());
    }
}

/// Filters that mean the same to tcpdump and to netlathe.
const FILTERS: &[&str] = &[
    "host 10.0.0.3",
    "src host 10.0.0.3",
    "dst 10.1.0.2",
    "src net 10.0.0.0/30",
    "not host 10.0.0.2",
    "net 10.1.0.0/31",
    "host 2001:db8::3",
    "arp",
    "port 80",
    "icmp",
    "tcp dst port 443",
    "udp and src 10.0.0.4",
    "src 10.0.0.3 and not arp or icmp",
    "not src 10.0.0.1 and not tcp",
];

#[test]
fn addresses_match_arp_as_in_tcpdump() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        println!("SKIP: tcpdump is not installed");
        return;
    }
    let bench = Bench::new();
    let rarp = "hex ffffffffffff020000000001803500010800060400030200000000010a0000030200000000010a000001";
    let streams: String = STREAMS[..5].iter().chain([&rarp]).map(|stream| format!(" --stream '{stream}'")).collect();
    bench.report(words(&format!("gen --out pcap:plain.pcap --count 600 --gap 1us {streams}")));
    for filter in FILTERS {
        let status = Command::new("tcpdump")
            .arg("-r")
            .arg(bench.path("plain.pcap"))
            .args(["--nano", "-w"])
            .arg(bench.path("theirs.pcap"))
            .arg(filter)
            .output()
            .expect("tcpdump ran");
        assert!(status.status.success(), "{filter}: {}", String::from_utf8_lossy(&status.stderr));
        let theirs = bench.records("theirs.pcap");
        let ours = taken(&bench, "plain.pcap", filter);
        assert!(!theirs.is_empty() && theirs.len() < 600, "'{filter}' takes {} frames", theirs.len());
        assert!(ours == theirs, "'{filter}': {} frames, tcpdump {}", ours.len(), theirs.len());
    }
}

/// Changes, each with a filter that matches frames with the new value.
const CHANGES: &[(&str, &str)] = &[
    ("vxlan vni 7 > 70", "vxlan.vni == 70"),
    ("inner dst 10.1.0.0/16 > 10.9.0.0/16", "ip.dst#2 == 10.9.0.0/16"),
    ("teid 5 > 500", "gtp.teid == 500"),
    ("innermost dport 80 > 8080", "udp.dstport == 8080 || tcp.dstport == 8080"),
    ("mpls#2 label 17 > 77", "mpls.label == 77"),
    ("gre key 6 > 66", "gre.key == 66"),
    ("inner ttl 7", "ip.ttl#2 == 7"),
    ("dscp af31", "ip.dsfield.dscp#1 == 26"),
    ("vlan#2 id 7 > 77", "ieee8021ad && vlan.id == 77"),
    ("src 192.0.2.0/24 > 198.51.100.0/24", "ip.src#1 == 198.51.100.0/24"),
];

#[test]
fn rewritten_frames_have_the_value_and_checksums_that_tshark_finds_right() {
    if !tshark() {
        return;
    }
    let bench = Bench::new();
    make_tunnels(&bench);
    for (change, filter) in CHANGES {
        assert!(filtered(&bench.path("tunnels.pcap"), filter).is_empty(), "{filter} before");
        bench.report(words(&format!("gen --out pcap:changed.pcap --pcap tunnels.pcap --rewrite '{change}'")));
        assert!(!filtered(&bench.path("changed.pcap"), filter).is_empty(), "{change}: no frame has {filter}");
    }
    let all: Vec<&str> = CHANGES.iter().map(|(change, _)| *change).collect();
    bench.report(words(&format!("gen --out pcap:changed.pcap --pcap tunnels.pcap --rewrite '{}'", all.join(", "))));
    let (bad, good) = checksums(&bench.path("changed.pcap"));
    assert!(bad.is_empty() && good > FRAMES, "{good} checksums are right, wrong ones are in frames {bad:?}");
}

/// Returns the frames with a checksum that tshark finds wrong, and the number of correct checksums.
fn checksums(path: &Path) -> (Vec<usize>, usize) {
    const SUMS: [&str; 6] = ["ip", "udp", "tcp", "icmp", "icmpv6", "sctp"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(path).args(["-T", "fields", "-E", "separator=;"]);
    for setting in
        ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE", "sctp.checksum:CRC 32c"]
    {
        tshark.args(["-o", setting]);
    }
    for sum in SUMS {
        tshark.args(["-e", &format!("{sum}.checksum.status")]);
    }
    let output = tshark.output().expect("tshark ran");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let statuses = |line: &str, wanted: &str| line.split([';', ',']).filter(|status| *status == wanted).count();
    let bad = text.lines().enumerate().filter(|(_, line)| statuses(line, "0") > 0).map(|(number, _)| number).collect();
    (bad, text.lines().map(|line| statuses(line, "1")).sum())
}

/// Keys of `limit`, and the tshark field whose values are the users.
const KEYS: &[(&str, &str, &str)] = &[
    ("teid", "gtp", "gtp.teid"),
    ("vxlan.vni", "vxlan", "vxlan.vni"),
    ("gre.key", "gre.key", "gre.key"),
    ("pppoe.session", "pppoes", "pppoe.session_id"),
];

#[test]
fn users_of_a_key_are_the_values_that_tshark_finds() {
    if !tshark() {
        return;
    }
    let bench = Bench::new();
    make_tunnels(&bench);
    for (key, filter, field) in KEYS {
        bench.report(words(&format!(
            "limit --in pcap:tunnels.pcap --out null --rate 1Gbps --burst 100kB --mode police --key {key} --by-user users.csv"
        )));
        let output = Command::new("tshark")
            .arg("-n")
            .arg("-r")
            .arg(bench.path("tunnels.pcap"))
            .args(["-Y", filter, "-T", "fields", "-E", "occurrence=f", "-e", field, "-e", "frame.len"])
            .output()
            .expect("tshark ran");
        let mut theirs: BTreeMap<u64, u64> = BTreeMap::new();
        for line in String::from_utf8(output.stdout).expect("UTF-8").lines() {
            let (user, length) = line.split_once('\t').expect("two fields");
            let user = match user.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => user.parse(),
            };
            // With FCS.
            *theirs.entry(user.expect(line)).or_default() += length.parse::<u64>().expect(line) + 4;
        }
        let table = String::from_utf8(bench.read("users.csv")).expect("UTF-8");
        let ours: BTreeMap<u64, u64> = table
            .lines()
            .skip(1)
            .map(|line| {
                let columns: Vec<u64> = line.split(',').map(|column| column.parse().expect(line)).collect();
                (columns[0], columns[2] + columns[3])
            })
            .collect();
        assert!(ours.len() > 2, "{key}: {table}");
        assert_eq!(ours, theirs, "{key}: bytes of each user");
    }
}

/// Returns the captures that this project shares with others, if they are beside the clone.
fn shared() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/captures");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        println!("SKIP: there are no captures in {}", folder.display());
        return None;
    };
    Some(entries.flatten().map(|entry| entry.path()).collect())
}

/// Rules that match frames in many captures.
const PLAIN: &[(&str, &str)] = &[
    ("tcp", "tcp"),
    ("udp", "udp"),
    ("arp", "arp"),
    ("ip ttl 64", "ip.ttl#1 == 64"),
    ("tcp window 1-1000", "tcp.window_size_value >= 1 && tcp.window_size_value <= 1000"),
    ("port 80", "tcp.port == 80 || udp.port == 80"),
    ("routing", "ipv6.routing"),
    ("not ip", "!ip"),
];

#[test]
fn rules_and_display_filters_agree_on_the_shared_captures() {
    let Some(captures) = shared() else { return };
    if !tshark() {
        return;
    }
    let bench = Bench::new();
    let mut compared = 0;
    for path in captures {
        let name = path.display().to_string();
        // Files of other link types and broken files are refused, which other tests cover.
        let whole = bench.run(["measure", "--pcap", &name, "--write", "whole.pcap", "--json"]);
        if !matches!(whole.status, Some(0 | 1)) || !whole.stderr.is_empty() {
            continue;
        }
        let records = bench.records("whole.pcap");
        let frames = filtered(&bench.path("whole.pcap"), "eth").len();
        if frames != records.len() {
            continue;
        }
        for (rule, filter) in PLAIN {
            let theirs: Vec<Record> =
                filtered(&bench.path("whole.pcap"), filter).into_iter().map(|number| records[number].clone()).collect();
            let ours = taken(&bench, "whole.pcap", rule);
            assert!(ours == theirs, "{name}: '{rule}' takes {} frames, '{filter}' {}", ours.len(), theirs.len());
            compared += theirs.len();
        }
    }
    assert!(compared > 0, "no frame of the captures meets a rule");
}
