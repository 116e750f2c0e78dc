//! Compares random stacks of layers with tshark and Scapy. Without these programs the tests print SKIP and pass.

use packet::layers::{LayerKind, stack};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

const STACKS: usize = 3_000;

/// Marsaglia's xorshift, with a fixed seed: the same stacks each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, choices: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % choices as u64) as usize
    }
}

/// The protocol's name in tshark, often the same as ours. `None` for protocols that tshark parses only if configured,
/// or only after other bytes.
fn name(kind: LayerKind) -> Option<&'static str> {
    Some(match kind {
        LayerKind::Pppoe => "pppoes",
        LayerKind::Pause | LayerKind::Pfc => "macc",
        LayerKind::Ipv6 => "ipv6",
        LayerKind::HopByHop => "ipv6.hopopts",
        LayerKind::Routing | LayerKind::Srv6 => "ipv6.routing",
        LayerKind::DestinationOptions => "ipv6.dstopts",
        LayerKind::Icmp6 => "icmpv6",
        // Parsed, but not named in the list.
        LayerKind::VxlanGpe => "",
        LayerKind::Gtpu => "gtp",
        LayerKind::Roce => "infiniband",
        LayerKind::Llc | LayerKind::PseudoWire | LayerKind::Fragment | LayerKind::L2tp3 | LayerKind::SctpData => {
            return None;
        }
        alike => alike.name(),
    })
}

/// Whether other programs parse this pair as we do. Each difference has a reason.
fn is_read_alike(below: LayerKind, above: LayerKind) -> bool {
    use LayerKind::{
        Arp, DestinationOptions, Ethernet, Geneve, Gre, HopByHop, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Pause, Pfc,
    };
    use LayerKind::{Pppoe, Routing, Srv6, Udp, Vlan};
    let is_extension = matches!(above, HopByHop | Routing | Srv6 | DestinationOptions);
    let is_v6 = matches!(below, Ipv6 | HopByHop | Routing | Srv6 | DestinationOptions);
    match (below, above) {
        // Extension headers belong to IPv6, hop-by-hop options come first, each IP version has its own ICMP.
        _ if is_extension && !is_v6 => false,
        (_, HopByHop) => below == Ipv6,
        (_, Icmp6) => is_v6,
        (_, Icmp) => !is_v6,
        // Teredo restricts its addresses.
        (Udp, Ipv6) => false,
        // No field announces what follows a label: tshark guesses by other bits.
        (Mpls, Ethernet) => false,
        // Ethernet, its control frames and PPPoE sessions do not occur directly in these.
        (Ethernet | Vlan | Ipv4, Ethernet) => false,
        (Vlan, Pause | Pfc | Pppoe | Arp) => false,
        (Gre | Geneve, Pause | Pfc | Pppoe | Arp | Vlan) => false,
        _ => true,
    }
}

fn stacks() -> Vec<(Vec<LayerKind>, Vec<u8>)> {
    let mut chance = Chance(0x5eed_0000_0032);
    let mut made = Vec::new();
    while made.len() < STACKS {
        let mut kinds = vec![LayerKind::Ethernet];
        for _ in 0..2 + chance.below(9) {
            let below = kinds[kinds.len() - 1];
            let carries = |kind: &LayerKind| {
                name(*kind).is_some()
                    && is_read_alike(below, *kind)
                    && (below.description().announce)(&mut below.description().header.to_vec(), *kind)
            };
            let able: Vec<LayerKind> = LayerKind::ALL.iter().copied().filter(carries).collect();
            match able.get(chance.below(able.len().max(1))) {
                Some(kind) => kinds.push(*kind),
                None => break,
            }
        }
        let payload: Vec<u8> = (0..40 + chance.below(60)).map(|_| 0xe0 | chance.below(32) as u8).collect();
        let frame = stack(&kinds, &payload).expect("each carries the next");
        made.push((kinds, frame));
    }
    made
}

/// A temporary folder for this test, and the capture of these frames in it.
fn capture(test: &str, frames: &[(Vec<LayerKind>, Vec<u8>)]) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("netlathe-oracle-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("stacks.pcap");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("writable"));
    let head = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    head.iter().for_each(|word| file.write_all(&word.to_le_bytes()).expect("written"));
    for (i, (_, frame)) in frames.iter().enumerate() {
        for word in [i as u32, 0, frame.len() as u32, frame.len() as u32] {
            file.write_all(&word.to_le_bytes()).expect("written");
        }
        file.write_all(frame).expect("written");
    }
    (folder, path)
}

#[test]
fn tshark_finds_the_same_layers_and_right_checksums() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIP: tshark is not installed");
        return;
    }
    let made = stacks();
    let (folder, path) = capture("tshark", &made);
    const SUMS: [&str; 6] = [
        "ip.checksum.status", "udp.checksum.status", "tcp.checksum.status", "icmp.checksum.status",
        "icmpv6.checksum.status", "sctp.checksum.status",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=;", "-e", "frame.protocols"]);
    for field in SUMS {
        tshark.args(["-e", field]);
    }
    for setting in
        ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE", "sctp.checksum:CRC 32c"]
    {
        tshark.args(["-o", setting]);
    }
    let output = tshark.output().expect("tshark ran");
    std::fs::remove_dir_all(&folder).expect("removed");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), made.len(), "{}", String::from_utf8_lossy(&output.stderr));
    let known: Vec<&str> = LayerKind::ALL.iter().filter_map(|kind| name(*kind)).collect();
    let mut good = [0; SUMS.len()];
    for (line, (kinds, frame)) in lines.iter().zip(&made) {
        let columns: Vec<&str> = line.split(';').collect();
        let found: Vec<&str> = columns[0].split(':').filter(|name| known.contains(name)).collect();
        // tshark names a stack of labels once.
        let mut expected: Vec<&str> =
            kinds.iter().filter_map(|kind| name(*kind)).filter(|name| !name.is_empty()).collect();
        expected.dedup_by(|a, b| a == b && *a == "mpls");
        assert!(found.starts_with(&expected), "{}: {found:?} is not {expected:?}: {frame:02x?}", columns[0]);
        for (i, statuses) in columns[1..].iter().enumerate() {
            assert!(!statuses.split(',').any(|status| status == "0"), "{}: {kinds:?} {frame:02x?}", SUMS[i]);
            good[i] += statuses.split(',').filter(|status| *status == "1").count();
        }
    }
    assert!(good.iter().all(|count| *count > 20), "checksums that tshark found right: {good:?} of {SUMS:?}");
}

/// Removes lengths and checksums from each frame, has Scapy compute them, and prints the numbers of frames that differ,
/// then how many were compared.
const REBUILD: &str = r#"
import sys, logging
logging.getLogger("scapy").setLevel(logging.ERROR)
from scapy.all import *
from scapy.contrib.mpls import MPLS
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.geneve import GENEVE
compared = 0
for number, frame in enumerate(RawPcapReader(sys.argv[1])):
    data = frame[0]
    whole = Ether(data)
    layer, names = whole, []
    while layer and not isinstance(layer, NoPayload):
        names.append(type(layer).__name__)
        for field in ("chksum", "cksum", "len", "plen", "length"):
            if field in layer.fields and not (isinstance(layer, UDP) and field == "chksum" and layer.chksum == 0):
                delattr(layer, field)
        layer = layer.payload
    if bytes(whole) != data:
        print("differs", number, "/".join(names), bytes(whole).hex())
    compared += 1
print(compared)
"#;

#[test]
fn scapy_computes_the_same_lengths_and_checksums() {
    let has_scapy = Command::new("python3").args(["-c", "import scapy.contrib.geneve"]).output();
    if !has_scapy.is_ok_and(|output| output.status.success()) {
        println!("SKIP: python3 has no scapy");
        return;
    }
    use LayerKind::{
        Ethernet, Geneve, Gre, Gtpu, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Pppoe, Routing, Sctp, Tcp, Udp, Vlan, Vxlan,
    };
    let known =
        [Ethernet, Geneve, Gre, Gtpu, Icmp, Icmp6, Ipv4, Ipv6, Mpls, Pppoe, Routing, Sctp, Tcp, Udp, Vlan, Vxlan];
    let mut made = stacks();
    // After any other end, Scapy parses the payload as the protocol that was announced last.
    let ends = [Icmp, Icmp6, Sctp, Tcp, Udp];
    made.retain(|(kinds, _)| kinds.iter().all(|kind| known.contains(kind)) && ends.contains(&kinds[kinds.len() - 1]));
    let (folder, path) = capture("scapy", &made);
    let output = Command::new("python3").args(["-c", REBUILD]).arg(&path).output().expect("python3 ran");
    std::fs::remove_dir_all(&folder).expect("removed");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    if let Some(line) = lines.iter().find_map(|line| line.strip_prefix("differs ")) {
        let (number, how) = line.split_once(' ').expect("a number");
        let (kinds, frame) = &made[number.parse::<usize>().expect("a number")];
        panic!("{kinds:?} {how}: {frame:02x?}");
    }
    assert_eq!(
        lines.last().copied(),
        Some(made.len().to_string().as_str()),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(made.len() > 200, "{} stacks were compared", made.len());
}
