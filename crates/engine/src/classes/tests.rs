use super::*;
use crate::random::Random;
use packet::Headers;
use packet::layers::{FieldPath, LayerKind, Layers, Level, read_layer, stack, write_field};
use std::net::IpAddr;

fn rule(text: &str) -> Rule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn class(rules: &[&str], frame: &[u8]) -> usize {
    let rules: Vec<Rule> = rules.iter().map(|text| rule(text)).collect();
    Classifier::new(&rules.iter().collect::<Vec<_>>()).expect("rules that can match").class(frame)
}

/// Builds an Ethernet frame with an IPv4 or IPv6 packet of one protocol.
#[derive(Clone)]
struct TestFrame {
    tag: Option<u16>,
    addresses: (IpAddr, IpAddr),
    protocol: u8,
    dscp: u8,
    ports: (u16, u16),
    flags: u8,
    payload: Vec<u8>,
}

impl TestFrame {
    fn tcp(destination: &str, port: u16, payload: &[u8]) -> Self {
        let addresses = ("10.1.2.3".parse().expect("an address"), destination.parse().expect("an address"));
        TestFrame {
            tag: None,
            addresses,
            protocol: 6,
            dscp: 0,
            ports: (40_000, port),
            flags: 0x18,
            payload: payload.to_vec(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut transport = Vec::new();
        if matches!(self.protocol, 6 | 17 | 132) {
            transport.extend(self.ports.0.to_be_bytes());
            transport.extend(self.ports.1.to_be_bytes());
        }
        match self.protocol {
            6 => transport.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, self.flags, 0, 0, 0, 0, 0, 0]),
            17 => transport.extend([0; 4]),
            _ => {}
        }
        transport.extend(&self.payload);
        let mut frame = vec![2; 12];
        if let Some(tag) = self.tag {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        match self.addresses {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([0x08, 0x00, 0x45, self.dscp << 2]);
                frame.extend((20 + transport.len() as u16).to_be_bytes());
                frame.extend([0, 0, 0, 0, 64, self.protocol, 0, 0]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60 | self.dscp >> 2, self.dscp << 6, 0, 0]);
                frame.extend((transport.len() as u16).to_be_bytes());
                frame.extend([self.protocol, 64]);
                frame.extend(from.octets());
                frame.extend(to.octets());
            }
            _ => panic!("two versions in one packet"),
        }
        frame.extend(transport);
        frame
    }
}

/// A reference matcher, as simple as possible.
fn meets(rule: &Rule, frame: &[u8]) -> bool {
    let headers = Headers::outermost(frame);
    let layers = Layers::of(frame);
    let test = |test: &Test| {
        if let Test::Bytes { value, mask, at } = test {
            let found = frame.get(*at as usize..*at as usize + value.len());
            return found.is_some_and(|found| found.iter().zip(mask).map(|(a, b)| a & b).eq(value.iter().copied()));
        }
        let Some(headers) = headers else { return false };
        let ip = headers.ip;
        let arp =
            headers.arp_addresses(frame).map(|(from, to)| [from, to].map(|address| Some(IpAddr::V4(address.into()))));
        let ends = ip.map(|ip| [ip.source(frame), ip.destination(frame)]).or(arp).unwrap_or_default();
        let payload = |level: Level| {
            if level == Level::Nth(0) {
                return headers.payload(frame).map(|range| &frame[range]);
            }
            let level = level.of(&layers)?;
            let carrier = |layer: &&packet::layers::Layer| matches!(layer.kind, LayerKind::Tcp | LayerKind::Udp);
            layers.level(level).find(carrier).map(|layer| layer.content(frame))
        };
        let is_in = |prefixes: &[Prefix], address: Option<IpAddr>| {
            prefixes.iter().any(|prefix| match (prefix.address, address) {
                (IpAddr::V4(network), Some(IpAddr::V4(address))) => {
                    prefix.length == 0 || (u32::from(network) ^ u32::from(address)) >> (32 - prefix.length) == 0
                }
                (IpAddr::V6(network), Some(IpAddr::V6(address))) => {
                    prefix.length == 0 || (u128::from(network) ^ u128::from(address)) >> (128 - prefix.length) == 0
                }
                _ => false,
            })
        };
        let within = |ranges: &[(u16, u16)], value: u16| ranges.iter().any(|(a, b)| (a..=b).contains(&&value));
        match test {
            Test::EtherType(value) => headers.ether_type == *value,
            Test::Protocol(value) => ip.is_some_and(|ip| ip.protocol == *value),
            Test::Address(side, prefixes) => {
                (*side != Side::Destination && is_in(prefixes, ends[0]))
                    || (*side != Side::Source && is_in(prefixes, ends[1]))
            }
            Test::Port(side, ranges) => headers.ports(frame).is_some_and(|(from, to)| {
                (*side != Side::Destination && within(ranges, from)) || (*side != Side::Source && within(ranges, to))
            }),
            Test::Vlan(ranges) => headers.vlan().is_some_and(|vlan| ranges.is_empty() || within(ranges, vlan)),
            Test::Dscp(ranges) => {
                ip.is_some_and(|ip| ranges.iter().any(|(a, b)| (*a..=*b).contains(&(ip.traffic_class >> 2))))
            }
            Test::Flags { set, clear } => {
                headers.tcp_flags(frame).is_some_and(|flags| flags & set == *set && flags & clear == 0)
            }
            Test::Bytes { .. } => false,
            Test::Payload { level, value, at } => payload(*level).is_some_and(|payload| match at {
                Some(at) => payload.get(*at as usize..).is_some_and(|rest| rest.starts_with(value)),
                None => payload.windows(value.len()).any(|window| window == value),
            }),
            Test::Layer(level, kind, number) => level.of(&layers).is_some_and(|level| {
                layers.level(level).filter(|layer| layer.kind == *kind).count() >= usize::from(*number)
            }),
            Test::Field(fields, values) => fields.paths().any(|path| {
                path.find(frame, &layers).is_some_and(|(of, field)| {
                    let value = layers.all()[of].value(field, frame).expect("it was found");
                    match values {
                        FieldValues::Ranges(ranges) => ranges.iter().any(|(a, b)| (*a..=*b).contains(&value)),
                        FieldValues::Masked(wanted, mask) => value & mask == *wanted,
                        FieldValues::Prefixes(prefixes) => {
                            let address = match field.width() {
                                32 => IpAddr::V4((value as u32).into()),
                                _ => IpAddr::V6(value.into()),
                            };
                            is_in(prefixes, Some(address))
                        }
                    }
                })
            }),
        }
    };
    rule.alternatives.iter().any(|all| all.iter().all(|condition| test(&condition.test) != condition.not))
}

fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

const CONDITIONS: &[&str] = &[
    "vxlan",
    "vxlan vni 7",
    "vxlan vni 1-100",
    "vni 0x0/0x7",
    "gtpu",
    "teid 5",
    "gtpu teid 1-9",
    "mpls",
    "mpls label 100",
    "mpls#2",
    "mpls#2 label 16",
    "vlan pcp 1-7",
    "vlan#2 id 7",
    "ttl 1-64",
    "ip ttl 0x40/0xc0",
    "tcp window 0-10",
    "arp op 0",
    "inner tcp",
    "inner udp",
    "inner ip",
    "inner arp",
    "inner dport 80",
    "inner port 53,80",
    "inner src 10.0.0.0/8",
    "inner host 10.1.2.3,2001:db8::1",
    "inner vlan",
    "inner vlan 7-100",
    "inner flags syn,!ack",
    "inner dscp ef",
    "inner payload \"GET\" at 0",
    "inner payload \"login\"",
    "innermost dst 10.2.0.0/15",
    "ip",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "sctp",
    "proto 47",
    "src 10.0.0.0/8",
    "src 10.1.0.0/16",
    "src 10.1.2.3",
    "dst 10.2.0.0/15,192.168.0.0/16",
    "dst 10.2.0.1",
    "host 10.1.2.3",
    "src 2001:db8::/32",
    "dst 2001:db8::1,10.2.0.1",
    "host 2001:db8::/64",
    "sport 1000-2000",
    "dport 80",
    "dport 80,443,8000-8100",
    "dport 8080",
    "port 53",
    "port 1024-65535",
    "vlan",
    "vlan 7",
    "vlan 1-100,200",
    "dscp ef",
    "dscp 0-7,46",
    "flags syn",
    "flags syn,!ack",
    "flags !psh",
    "bytes 0202 at 0",
    "bytes 08 at 12",
    "bytes 40/f0 at 14",
    "bytes 45 at 14",
    "bytes 4500 at 14",
    "payload \"GET\" at 0",
    "payload \"GET /v1\" at 0",
    "payload \"v1\"",
    "payload \"login\"",
    "payload 0001 at 4",
    "payload \"ET /\" at 1",
    "payload \"o\"",
    "src 0.0.0.0/0",
    "dst ::/0",
];

fn random_rule(random: &mut Random) -> Rule {
    let alternative = |random: &mut Random| {
        let conditions = (0..=random.below(3)).map(|_| {
            let not = if random.below(4) == 0 { "not " } else { "" };
            // A level applies to all conditions after it.
            format!("outer {not}{}", pick(random, CONDITIONS))
        });
        conditions.collect::<Vec<_>>().join(" ")
    };
    let alternatives: Vec<String> = (0..=random.below(5) / 4).map(|_| alternative(random)).collect();
    rule(&alternatives.join(" or "))
}

fn random_frame(random: &mut Random) -> Vec<u8> {
    let four = ["10.1.2.3", "10.1.9.9", "10.2.0.1", "10.9.0.1", "192.168.3.4", "1.2.3.4"];
    let six = ["2001:db8::1", "2001:db8::2", "2001:db8:1::1", "fe80::1"];
    let pool: &[&str] = if random.below(3) > 0 { &four } else { &six };
    let address = |random: &mut Random| pick(random, pool).parse().expect("an address");
    let ports = [53, 80, 443, 1_000, 1_500, 2_000, 2_001, 8_000, 8_080, 8_100, 65_535];
    let payloads = ["", "GET /v1", "GET /v2 login", "POST v1", "xx login xx", "o", "\0\0\0\0\0\u{1}"];
    let mut frame = TestFrame {
        tag: pick(random, &[None, None, Some(0x2007), Some(100), Some(200), Some(0)]),
        addresses: (address(random), address(random)),
        protocol: pick(random, &[6, 6, 6, 17, 17, 1, 58, 132, 47]),
        dscp: pick(random, &[0, 7, 8, 46, 63]),
        ports: (pick(random, &ports), pick(random, &ports)),
        flags: pick(random, &[0x02, 0x12, 0x10, 0x18, 0xff]),
        payload: pick(random, &payloads).as_bytes().to_vec(),
    }
    .bytes();
    let carrier: &[LayerKind] = match random.below(6) {
        0 => &[LayerKind::Ethernet, LayerKind::Ipv4, LayerKind::Udp, LayerKind::Vxlan],
        1 => &[LayerKind::Ethernet, LayerKind::Ipv6, LayerKind::Udp, LayerKind::Gtpu],
        2 => &[LayerKind::Ethernet, LayerKind::Mpls],
        3 => &[LayerKind::Ethernet, LayerKind::Vlan, LayerKind::Vlan, LayerKind::Mpls, LayerKind::Mpls],
        _ => &[],
    };
    if !carrier.is_empty() {
        let whole = carrier.contains(&LayerKind::Vxlan) || frame[12] == 0x81;
        frame = stack(carrier, if whole { &frame } else { &frame[14..] }).expect("a stack");
        for path in ["vxlan vni", "gtpu teid", "mpls label", "vlan id", "vlan#2 id", "ttl"] {
            let words: Vec<&str> = path.split(' ').collect();
            let (path, _) = FieldPath::read(path, &words).expect("a path");
            let layers = Layers::of(&frame);
            if let Some((of, field)) = path.find(&frame, &layers) {
                write_field(&mut frame, &layers, of, field, pick(random, &[5, 7, 16, 64, 100]));
            }
        }
    }
    if random.below(20) == 0 {
        frame.truncate(random.below(frame.len() as u64 + 1) as usize);
    }
    if random.below(20) == 0 && frame.len() > 14 {
        frame[12] = 0x08;
        frame[13] = 0x06;
    }
    frame
}

/// Drops the rules that the classifier refuses, and returns the rest with their classifier.
fn usable(mut rules: Vec<Rule>) -> (Vec<Rule>, Classifier) {
    loop {
        match Classifier::new(&rules.iter().collect::<Vec<_>>()) {
            Ok(classifier) => return (rules, classifier),
            Err(bad) => {
                let numbers: Vec<usize> = bad
                    .iter()
                    .map(|bad| match bad {
                        Unusable::Contradiction(number) | Unusable::Taken(number, _) => *number,
                        Unusable::TooMany => panic!("these are not too many"),
                    })
                    .collect();
                let mut number = 0;
                rules.retain(|_| {
                    number += 1;
                    !numbers.contains(&(number - 1))
                });
            }
        }
    }
}

#[test]
fn classifier_agrees_with_a_linear_scan() {
    let mut random = Random::stream(3, "rules");
    let mut hits = 0;
    for round in 0..25 {
        let count = if round % 10 == 0 { 40 } else { 1 + random.below(12) };
        let written: Vec<Rule> = (0..count).map(|_| random_rule(&mut random)).collect();
        let (rules, mut classifier) = usable(written.clone());
        for _ in 0..300 {
            let frame = random_frame(&mut random);
            let naive = rules.iter().position(|rule| meets(rule, &frame)).unwrap_or(rules.len());
            let class = classifier.class(&frame);
            let shown = |number: usize| rules.get(number).map(ToString::to_string);
            assert_eq!(class, naive, "{frame:02x?}: {:?} and not {:?}", shown(class), shown(naive));
            hits += usize::from(naive < rules.len());
            // A rejected rule must match no frame.
            let first = written.iter().position(|rule| meets(rule, &frame)).map(|first| &written[first]);
            assert_eq!(first, rules.get(naive), "a rule was refused that this frame meets: {frame:02x?}");
        }
    }
    assert!(hits > 2_000, "{hits} hits are too few to show anything");
}

#[test]
fn looks_up_only_what_other_fields_do_not_imply() {
    use super::term::Field::{self, Destination4, DestinationPort, EtherType, Protocol};
    for (text, wanted) in [
        ("dst 10.0.0.0/8", &[Destination4][..]),
        ("ip dst 10.0.0.0/8", &[EtherType, Destination4]),
        ("dport 53", &[DestinationPort]),
        ("udp dport 53", &[Protocol, DestinationPort]),
        ("not dport 53", &[DestinationPort]),
        ("ip", &[EtherType]),
    ] {
        let classifier = Classifier::new(&[&rule(text)]).expect("a rule that can match");
        let asked: Vec<Field> = Field::ALL.into_iter().filter(|field| classifier.asks(*field)).collect();
        assert_eq!(asked, wanted, "{text}");
    }
}

#[test]
fn rules_survive_printing_and_parsing() {
    let mut random = Random::stream(5, "print");
    for _ in 0..500 {
        let rule = random_rule(&mut random);
        assert_eq!(rule.to_string().parse(), Ok(rule.clone()), "{rule}");
    }
    let odd = rule("payload \"a\\\"b\\\\\\x00\\n\" at 3 and not bytes 0x40/f0 at 14 or src host 10.0.0.1 dst port 80");
    assert_eq!(odd.to_string(), "payload 6122625c000a at 3 not bytes 40/f0 at 14 or src 10.0.0.1 dport 80");
    assert_eq!(odd.to_string().parse(), Ok(odd));
}

#[test]
fn the_first_rule_wins() {
    let get = TestFrame::tcp("10.2.0.1", 8_080, b"GET /v1").bytes();
    let rules = ["tcp dport 8080 src 10.0.0.0/8 payload \"GET /v1\" at 0", "tcp dport 8080", "tcp"];
    assert_eq!(class(&rules, &get), 0);
    assert_eq!(class(&rules, &TestFrame::tcp("10.2.0.1", 8_080, b"GET /v2").bytes()), 1);
    assert_eq!(class(&rules, &TestFrame::tcp("10.2.0.1", 8_081, b"GET /v1").bytes()), 2);
    assert_eq!(class(&rules, &[0; 60]), 3);
    assert_eq!(class(&[], &get), 0, "without rules there is one class");
}

#[test]
fn finds_the_class_among_a_thousand_rules() {
    let text = |i: usize| match i % 4 {
        0 => format!("tcp dport {}", 1_000 + i),
        1 => format!("udp dst 10.{}.{}.0/24", i / 256, i % 256),
        2 => format!("payload \"user{i:04}\""),
        _ => format!("bytes {:04x} at 40", i),
    };
    let rules: Vec<Rule> = (0..1_000).map(|i| rule(&text(i))).collect();
    let mut classifier = Classifier::new(&rules.iter().collect::<Vec<_>>()).expect("all can match");
    for i in (0..1_000).step_by(7) {
        let user = format!("xx user{i:04} xx");
        let payload = if i % 4 == 2 { user.as_bytes() } else { b"" };
        let mut made = TestFrame::tcp(
            &format!("10.{}.{}.9", i / 256, i % 256),
            if i % 4 == 0 { 1_000 + i as u16 } else { 1 },
            payload,
        );
        made.protocol = if i % 4 == 1 { 17 } else { 6 };
        let mut frame = made.bytes();
        if i % 4 == 3 {
            frame[40..42].copy_from_slice(&(i as u16).to_be_bytes());
        }
        let naive = rules.iter().position(|rule| meets(rule, &frame));
        assert_eq!(classifier.class(&frame), naive.expect("one"), "{}", rules[i]);
    }
}

#[test]
fn refuses_unreachable_rules() {
    let refused = |texts: &[&str]| {
        let rules: Vec<Rule> = texts.iter().map(|text| rule(text)).collect();
        Classifier::new(&rules.iter().collect::<Vec<_>>()).err()
    };
    for contradiction in [
        "tcp udp",
        "arp dport 80",
        "udp flags syn",
        "src 10.0.0.1 dst 2001:db8::1",
        "dport 80 dport 443",
        "not ip6 src 2001:db8::/32",
        "payload \"GET\" at 0 not payload \"ET\"",
        "payload \"GET\" at 0 payload \"PUT\" at 0",
        "icmp payload \"x\"",
        "bytes 45 at 14 bytes 60/f0 at 14",
        "vxlan tcp dport 80",
        "inner tcp udp",
        "inner ip dst 2001:db8::1 inner ip6",
        "ip ttl 5 ip ttl 6",
        "ip6 ttl 5 arp",
        "not inner gre inner gre key 5",
    ] {
        assert_eq!(refused(&[contradiction]), Some(vec![Unusable::Contradiction(0)]), "{contradiction}");
    }
    for (earlier, later) in [
        (&["tcp"][..], "tcp dport 80"),
        (&["tcp"], "flags syn"),
        (&["host 10.0.0.0/8"], "arp src 10.1.0.0/16"),
        (&["vxlan"], "vxlan vni 7 inner tcp"),
        (&["inner udp"], "inner udp sport 5 inner udp checksum 9"),
        (&["vni 1-9"], "vni 3"),
        (&["mpls"], "mpls#2 label 5"),
        (&["ip ttl 0x40/0xc0"], "ip ttl 64"),
        (&["udp"], "vxlan vni 7"),
        (&["port 80"], "tcp dport 80"),
        (&["src 10.0.0.0/9", "src 10.128.0.0/9"], "src 10.0.0.0/8"),
        (&["dport 0-1000", "dport 1001-65535"], "udp dport 900-1100"),
        (&["not tcp"], "udp"),
        (&["payload \"GET\" at 0"], "payload \"GET /v1\" at 0"),
        (&["payload \"ET\""], "payload \"GET\" at 7"),
        (&["payload \"ET\""], "payload \"GETS\""),
        (&["vlan"], "vlan 7 tcp"),
        (&["bytes 40/f0 at 14"], "bytes 45 at 14"),
        (&["tcp", "udp"], "udp dport 53 or tcp dport 53"),
    ] {
        let rules: Vec<&str> = earlier.iter().copied().chain([later]).collect();
        let by = (0..earlier.len()).collect();
        assert_eq!(refused(&rules), Some(vec![Unusable::Taken(earlier.len(), by)]), "{rules:?}");
    }
    for good in [
        &["tcp dport 80", "tcp"][..],
        &["src 10.0.0.0/9", "src 10.0.0.0/8"],
        &["payload \"GET /v1\" at 0", "payload \"GET\" at 0"],
        &["host 10.0.0.1", "host 10.0.0.2"],
        &["tcp udp or icmp"],
        &["not ip", "src 10.0.0.1"],
    ] {
        assert_eq!(refused(good), None, "{good:?}");
    }
}

#[test]
fn errors_of_bad_rules_name_the_spelling_to_use() {
    for text in [
        "", "tcp or", "tcp and", "tcp and and dport 80", "tcp and or udp", "or tcp", "not", "tcp dport", "dport 80-",
        "dport 90-80", "dport 65536", "dport +1", "src", "src 10.0.0.1/8", "src 10.0.0/8", "src 10.0.0.0/33",
        "src 10.0.0.0/+8", "proto 256", "proto x", "vlan 4095", "dscp 64", "dscp af45", "dscp afé", "flags",
        "flags sin", "flags SA", "flags syn+ack", "flags syn,!syn", "bytes 4 at 1", "bytes 40", "bytes 40 at",
        "bytes 40 at x", "bytes 41/f0 at 1", "bytes 40/f at 1", "bytes 4000/ff at 1", "bytes 00/00 at 1", "payload",
        "payload \"\"", "payload \"a", "payload \"\\q\"", "payload \"\\x4\"", "payload xyz", "payload \"a\" at 99999",
        "(tcp)", "tcpp", "\"GET\"", "inner", "inner or tcp", "tcp inner", "outer", "vxlan vnl 7", "vxlan vni",
        "vxlan vni x", "vni 16777216", "vni 7-5", "ttl 0x41/0xf0", "ttl 0/0", "mpls#0 label 1", "inner bytes 40 at 1",
        "inner dst x", "inner dmac 02:00", "vlan id 4095", "vlan idd 5", "inner flags sin", "gtpp teid 5",
        "inner dprot 80", "ip#2", "udp#2 dport 53", "inner vxlan#2 vni 7",
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(["write", "did you mean", "leave"].iter().any(|remedy| error.contains(remedy)), "{text}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn hardware_addresses_use_the_words_of_streams() {
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x06][..], &[0; 50]].concat();
    for (text, meets) in [
        ("dmac 02:00:00:00:00:02", true),
        ("smac 02:00:00:00:00:01 arp", true),
        ("smac 02:00:00:00:00:02", false),
        ("not dmac ff:ff:ff:ff:ff:ff", true),
    ] {
        let rule: Rule = text.parse().expect(text);
        assert_eq!(rule.to_string(), text);
        assert_eq!(Classifier::new(&[&rule]).expect("it can be met").class(&frame) == 0, meets, "{text}");
    }
    let as_bytes: Rule = "bytes 020000000002 at 0".parse().expect("a rule");
    assert_eq!("dmac 02:00:00:00:00:02".parse(), Ok(as_bytes));
    for text in ["dmac", "dmac 02:00", "smac 020000000002"] {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
}

#[test]
fn errors_of_foreign_filter_words_name_our_spelling() {
    for (text, remedy) in [
        ("udp && port 2", "leave it out"),
        ("udp || tcp", "write or"),
        ("tos 184", "write dscp 46"),
        ("ether dst 02:00:00:00:00:01", "write dmac 02:00:00:00:00:02 for a destination"),
        ("ether host 02:00:00:00:00:01", "smac for a source"),
        ("broadcast", "write dmac ff:ff:ff:ff:ff:ff"),
        ("greater 100", "write ip length 100-65535"),
        ("vxlan vnl 7", "'vnl' is neither a condition nor a field of vxlan (column 7): write vni"),
        ("inner tcp dprot 80", "'dprot' is neither a condition nor a field of tcp (column 11): write dport"),
        ("udp vxlam vni 7", "'vxlam' is neither a condition nor a field of udp (column 5): write vxlan"),
        ("gtp teid x", "'x' is not a value of gtpu teid (column 10): write 0 to 4294967295"),
        ("vxlan vni", "'vxlan vni' has no value (column 10): write vxlan vni"),
        ("dst 10.0.0.1 inner", "'inner' has no condition after it (column 19)"),
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains(remedy), "{text}: {error}");
    }
    for rule in [
        "bytes 020000000002 at 6", "bytes ffffffffffff at 0", "bytes 01/01 at 0", "bytes 88b5 at 12",
        "ip length 100-65535", "ip6 length 100", "dscp 46", "ethertype 0x88b5", "ttl 64", "mpls tc 5", "ipv4",
    ] {
        assert!(rule.parse::<Rule>().is_ok(), "{rule}, as the remedies write it");
    }
}

#[test]
fn every_condition_of_the_list_is_parsed_by_its_name() {
    for kind in Rule::CONDITIONS {
        assert!(
            kind.example.split(' ').any(|word| word == kind.name) && kind.grammar.starts_with(kind.name),
            "{kind:?}"
        );
        let rule: Rule = kind.example.parse().unwrap_or_else(|error| panic!("{}: {error}", kind.example));
        assert!(!rule.alternatives[0].is_empty());
        let error = "nonsense".parse::<Rule>().expect_err("no condition").to_string();
        assert!(error.contains(kind.name), "{error}");
    }
}

#[test]
fn rules_look_into_tunnels() {
    use LayerKind::{Arp, Ethernet, Gre, Gtpu, Ipv4, Ipv6, Mpls, Pppoe, Tcp, Udp, Vlan, Vxlan};
    let made = |kinds: &[LayerKind], fields: &[(&str, u128)]| {
        let mut frame = stack(kinds, b"GET /v1").expect("a stack");
        for (path, value) in fields {
            let words: Vec<&str> = path.split(' ').collect();
            let (path, _) = FieldPath::read(path, &words).expect("a path");
            let layers = Layers::of(&frame);
            let (of, field) = path.find(&frame, &layers).expect("a field");
            assert!(write_field(&mut frame, &layers, of, field, *value));
        }
        frame
    };
    let vxlan = made(
        &[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv4, Tcp],
        &[("vxlan vni", 7), ("inner dport", 80), ("inner src", 0x0a00_0001), ("src", 0xc000_0201)],
    );
    let gtp = made(&[Ethernet, Ipv6, Udp, Gtpu, Ipv4, Udp], &[("teid", 5), ("inner dst", 0x0a01_0203)]);
    let mpls = made(&[Ethernet, Mpls, Mpls, Ipv4, Tcp], &[("mpls label", 100), ("mpls#2 label", 200), ("dport", 80)]);
    let pppoe = made(&[Ethernet, Vlan, Pppoe, Ipv6, Udp], &[("session", 9), ("vlan id", 10), ("dport", 53)]);
    let gre = made(&[Ethernet, Ipv4, Gre, Ipv6, Tcp], &[("inner dport", 443)]);
    let arp = made(&[Ethernet, Vlan, Arp], &[("src", 0x0a00_0001), ("dst", 0x0a00_0002), ("op", 1)]);
    for (text, met) in [
        ("vxlan vni 7 inner tcp dport 80", &[&vxlan][..]),
        ("vxlan vni 7 inner tcp dport 81", &[]),
        ("vni 6-8 inner src 10.0.0.0/8 outer src 192.0.2.1", &[&vxlan]),
        ("tcp dport 80", &[&mpls]),
        ("inner ip", &[&vxlan, &gtp]),
        ("not inner ip", &[&mpls, &pppoe, &gre, &arp]),
        ("innermost tcp", &[&vxlan, &mpls, &gre]),
        ("innermost port 80,443", &[&vxlan, &mpls, &gre]),
        ("gtp teid 5 inner dst 10.0.0.0/8", &[&gtp]),
        ("teid 0x4/0xfe", &[&gtp]),
        ("mpls label 100", &[&mpls]),
        ("mpls label 200", &[]),
        ("mpls#2 label 200 tcp", &[&mpls]),
        ("not mpls label 100 tcp", &[]),
        ("vlan id 10", &[&pppoe]),
        ("pppoe session 9 udp port 53", &[&pppoe]),
        ("ip6 vlan 10", &[&pppoe]),
        ("gre inner ip6 tcp dport 443", &[&gre]),
        ("inner payload \"GET\" at 0", &[&vxlan, &gtp, &gre]),
        ("inner payload \"v1\"", &[&vxlan, &gtp, &gre]),
        ("payload \"v1\"", &[&vxlan, &gtp, &mpls, &pppoe]),
        ("payload \"GET\" at 0", &[&mpls, &pppoe]),
        ("host 10.0.0.1", &[&arp]),
        ("arp dst 10.0.0.0/8 not src 10.0.0.2", &[&arp]),
        ("arp op 1 or gre", &[&gre, &arp]),
        ("inner dmac 02:00:00:00:00:00/ff:00:00:00:00:00", &[&vxlan]),
    ] {
        let rule: Rule = rule(text);
        assert_eq!(rule.to_string().parse(), Ok(rule.clone()), "{text}: {rule}");
        let mut classifier = Classifier::new(&[&rule]).unwrap_or_else(|bad| panic!("{text}: {bad:?}"));
        for (name, frame) in
            [("vxlan", &vxlan), ("gtp", &gtp), ("mpls", &mpls), ("pppoe", &pppoe), ("gre", &gre), ("arp", &arp)]
        {
            let wanted = met.iter().any(|other| std::ptr::eq(*other, frame));
            assert_eq!(classifier.class(frame) == 0, wanted, "{text} of the {name} frame");
        }
    }
}

#[test]
fn levels_hold_until_the_next_one_and_print_once() {
    for (text, printed) in [
        ("inner tcp dport 80 outer src 10.0.0.1", "inner tcp dport 80 outer src 10.0.0.1"),
        ("not inner tcp inner dport 80", "inner not tcp dport 80"),
        ("inner inner udp or dport 53", "inner inner udp or dport 53"),
        ("gtp teid 5 innermost host 10.0.0.0/8", "gtpu teid 5 innermost host 10.0.0.0/8"),
        ("vlan id 10 ipv4 mpls#1 label 0x64", "vlan 10 ip mpls label 100"),
        ("inner vlan 7 flags syn,!ack dscp ef", "inner vlan id 7 tcp flags syn,!ack dscp 46"),
        ("outer tcp", "tcp"),
    ] {
        let rule = rule(text);
        assert_eq!(rule.to_string().replace("tcp flags", "flags"), printed.replace("tcp flags", "flags"), "{text}");
        assert_eq!(rule.to_string().parse(), Ok(rule));
    }
}

#[test]
fn every_layer_is_a_condition() {
    for kind in LayerKind::ALL {
        let name = kind.name();
        assert_eq!(read_layer(name), Some((*kind, 1)));
        let text = format!("inner {name}");
        assert_eq!(rule(&text).to_string(), text);
        for field in kind.description().fields {
            let text = format!("inner {name} {} {}", field.name, field.kind.one().replace('+', ","));
            let read = rule(&text);
            assert_eq!(read.to_string().parse(), Ok(read), "{text}");
        }
    }
}
