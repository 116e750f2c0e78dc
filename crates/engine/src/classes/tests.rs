use super::*;
use crate::random::Random;
use packet::Headers;
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
    let headers = Headers::of(frame);
    let test = |test: &Test| {
        if let Test::Bytes { value, mask, at } = test {
            let found = frame.get(*at as usize..*at as usize + value.len());
            return found.is_some_and(|found| found.iter().zip(mask).map(|(a, b)| a & b).eq(value.iter().copied()));
        }
        let Some(headers) = headers else { return false };
        let ip = headers.ip;
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
            Test::Address(side, prefixes) => ip.is_some_and(|ip| {
                (*side != Side::Destination && is_in(prefixes, ip.source(frame)))
                    || (*side != Side::Source && is_in(prefixes, ip.destination(frame)))
            }),
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
            Test::Payload { value, at } => headers.payload(frame).is_some_and(|range| {
                let payload = &frame[range];
                match at {
                    Some(at) => payload.get(*at as usize..).is_some_and(|rest| rest.starts_with(value)),
                    None => payload.windows(value.len()).any(|window| window == value),
                }
            }),
        }
    };
    rule.alternatives.iter().any(|all| all.iter().all(|condition| test(&condition.test) != condition.not))
}

fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
    from[random.below(from.len() as u64) as usize].clone()
}

const CONDITIONS: [&str; 46] = [
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
            format!("{not}{}", pick(random, &CONDITIONS))
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
    for round in 0..100 {
        let count = if round % 10 == 0 { 150 } else { 1 + random.below(12) };
        let written: Vec<Rule> = (0..count).map(|_| random_rule(&mut random)).collect();
        let (rules, mut classifier) = usable(written.clone());
        for _ in 0..300 {
            let frame = random_frame(&mut random);
            let naive = rules.iter().position(|rule| meets(rule, &frame)).unwrap_or(rules.len());
            let class = classifier.class(&frame);
            let shown = |number: usize| rules.get(number).map(ToString::to_string);
            assert_eq!(class, naive, "{frame:02x?}: {:?} and not {:?}", shown(class), shown(naive));
            hits += usize::from(naive < rules.len());
            // A refused rule would have matched no frame.
            let first = written.iter().position(|rule| meets(rule, &frame)).map(|first| &written[first]);
            assert_eq!(first, rules.get(naive), "a rule was refused that this frame meets: {frame:02x?}");
        }
    }
    assert!(hits > 8_000, "{hits} hits are too few to show anything");
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
        "not ip src 10.0.0.0/8",
        "payload \"GET\" at 0 not payload \"ET\"",
        "payload \"GET\" at 0 payload \"PUT\" at 0",
        "icmp payload \"x\"",
        "bytes 45 at 14 bytes 60/f0 at 14",
    ] {
        assert_eq!(refused(&[contradiction]), Some(vec![Unusable::Contradiction(0)]), "{contradiction}");
    }
    for (earlier, later) in [
        (&["tcp"][..], "tcp dport 80"),
        (&["tcp"], "flags syn"),
        (&["ip"], "src 10.0.0.1"),
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
        "(tcp)", "tcpp", "\"GET\"", "ipv4",
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
        ("ttl 64", "write ip bytes 40 at 22"),
        ("greater 100", "write ip bytes 05dc at 16"),
    ] {
        let error = text.parse::<Rule>().expect_err(text).to_string();
        assert!(error.contains(remedy), "{text}: {error}");
    }
    for rule in [
        "bytes 020000000002 at 6", "bytes ffffffffffff at 0", "bytes 01/01 at 0", "bytes 88b5 at 12",
        "ip bytes 40 at 22", "ip bytes 05dc at 16", "dscp 46",
    ] {
        assert!(rule.parse::<Rule>().is_ok(), "{rule}, as the remedies write it");
    }
}

#[test]
fn every_condition_of_the_list_is_parsed_by_its_name() {
    for kind in Rule::CONDITIONS {
        assert!(kind.example.split(' ').next() == Some(kind.name) && kind.grammar.starts_with(kind.name), "{kind:?}");
        let rule: Rule = kind.example.parse().unwrap_or_else(|error| panic!("{}: {error}", kind.example));
        assert!(!rule.alternatives[0].is_empty());
        let error = "nonsense".parse::<Rule>().expect_err("no condition").to_string();
        assert!(error.contains(kind.name), "{error}");
    }
}
