//! Corrupted texts are rejected with a message, or parse to what they print, and never cause a panic. Seeded, so that
//! failures are repeatable.

use engine::schedules::Target;
use scenario::{PortSpec, parse_gap, parse_stream, parse_wave};

/// Marsaglia's xorshift, sufficient to choose corruptions.
struct Chance(u64);

impl Chance {
    fn below(&mut self, choices: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % choices as u64) as usize
    }
}

/// Typical problems of grammars: signs, units, numbers at limits, multi-byte characters.
const PIECES: [&str; 44] = [
    "", " ", "-", "--", "+", ".", "..", ",", ":", "::", ">", "=", "%", "/", "\"", "'", "\\", "\n", "\t", "\0", "µ",
    "é", "e\u{301}", "😀", "0", "00", "1e9", "18446744073709551615", "18446744073709551616", "0.0000000000001",
    "999999999999", "us", "ps", "s", "Gbps", "mbps", "B", "fixed", "const", "random", "[[", "]]", "nan", "inf",
];

fn broken(whole: &str, chance: &mut Chance) -> String {
    let mut characters: Vec<char> = whole.chars().collect();
    for _ in 0..=chance.below(4) {
        let at = chance.below(characters.len() + 1);
        let end = (at + chance.below(6)).min(characters.len());
        match chance.below(4) {
            0 => characters.truncate(at),
            1 => drop(characters.drain(at..end)),
            2 => {
                let copy = characters[at..end].to_vec();
                characters.splice(at..at, copy);
            }
            _ => drop(characters.splice(at..end, PIECES[chance.below(PIECES.len())].chars())),
        }
    }
    characters.into_iter().collect()
}

/// Corrupts each of `good` many times. Every error has a remedy after a colon.
fn never_panics<T, E: ToString>(seed: u64, good: &[&str], parse: impl Fn(&str) -> Result<T, E>) {
    let mut chance = Chance(seed);
    let mut refused = 0;
    for text in good {
        assert!(parse(text).is_ok(), "{text}");
        for _ in 0..20_000 {
            let text = broken(text, &mut chance);
            if let Err(error) = parse(&text) {
                refused += 1;
                assert!(error.to_string().contains(": "), "{text:?}: {}", error.to_string());
            }
        }
    }
    assert!(refused > good.len() * 5_000, "{refused} refused: the texts are hardly broken");
}

#[test]
fn ports() {
    let good = [
        "eth0",
        "if:eth0,driver=af_xdp",
        "tap:t0",
        "pci:0000:03:00.1",
        "pcap:a.pcap",
        "null",
        "wire:2.5G,pcap=o.pcap,fillers=keep,frames=o.csv,dic=on",
    ];
    never_panics(1, &good, PortSpec::parse);
}

#[test]
fn gaps_and_rates() {
    never_panics(2, &["10us", "fixed 1234.567ns", "fixed 86400s"], parse_gap);
    never_panics(3, &["5Gbps", "const 5Gbps wire", "1.2Mpps", "37.5%", "10MB/s ip"], parse_wave);
}

#[test]
fn laws_and_waveforms() {
    let laws = [
        "uniform 80us..120us sampling stratified idle",
        "normal mean 100us sd 5us clip 90us..110us tail 0.1%",
        "poisson lambda 2 in 80us..120us",
        "pareto shape 2.5 scale 10us saturate 11us..12us",
        "table \"a b.txt\" in 1us..2us",
    ];
    let waves = [
        "burst 8Gbps for 2ms every 10ms count 3 + burst 1Gbps for 1us every 2us",
        "ramp 10%..90% over 1s repeat",
        "ramp 1Gbps..9Gbps wire over 1s",
        "steps rates.txt",
        "steps rates.txt every 10ms",
        "sine 1Gbps..9Gbps ip every 1s",
        "trace \"a trace\"",
    ];
    // A parsed text prints what it means.
    let gap = |text: &str| {
        let read = parse_gap(text);
        if let Ok(Target::Law(law)) = &read {
            assert_eq!(parse_gap(&law.to_string()).as_ref(), read.as_ref(), "{text:?} {law}");
        }
        read
    };
    let wave = |text: &str| {
        let read = parse_wave(text);
        if let Ok(Target::Wave(wave)) = &read {
            assert_eq!(parse_wave(&wave.to_string()).as_ref(), read.as_ref(), "{text:?} {wave}");
        }
        read
    };
    never_panics(6, &laws, gap);
    never_panics(7, &waves, wave);
}

#[test]
fn rules_orders_and_depths() {
    let rules = [
        "tcp dport 8080 src 10.0.0.0/8 payload \"GET /v1\" at 0",
        "not host 2001:db8::/32,10.0.0.1 or vlan 1-100,200 dscp ef flags syn,!ack",
        "bytes 40/f0 at 14 payload \"a\\\"\\x00é\" and not proto 47",
        "vxlan vni 7 inner tcp dport 80 or not gtp teid 0x4/0xfe innermost host 10.0.0.0/8 outer vlan#2 id 5",
    ];
    let orders = ["order 10.0.0.1,10.1.0.0/16 gap 5ms wait 1s silence 1ms", "round-robin 10.0.0.1,2001:db8::1 gap 3us"];
    let depths = ["follow-depth 1Gbps..9Gbps wire over 64 frames", "follow-depth 10%..90%"];
    let rule = |text: &str| {
        let read = text.parse::<engine::classes::Rule>();
        if let Ok(rule) = &read {
            assert_eq!(rule.to_string().parse().as_ref(), Ok(rule), "{text:?}");
            // Every valid rule compiles or is rejected.
            let _ = engine::classes::Classifier::new(&[rule]);
        }
        read
    };
    let order = |text: &str| {
        let read = text.parse::<engine::sync::SyncSpec>();
        if let Ok(order) = &read {
            assert_eq!(order.to_string().parse().as_ref(), Ok(order), "{text:?}");
        }
        read
    };
    let depth = |text: &str| {
        let read = text.parse::<engine::schedules::FollowDepth>();
        if let Ok(depth) = &read {
            assert_eq!(depth.to_string().parse().as_ref(), Ok(depth), "{text:?}");
        }
        read
    };
    never_panics(8, &rules, rule);
    never_panics(9, &orders, order);
    never_panics(10, &depths, depth);
}

#[test]
fn streams() {
    let good = [
        "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B",
        "udp random 0.0.0.0-255.255.255.255:0-65535>10.2.0.1-10.2.0.16:53 ttl 9 size imix dmac 02:aa:00:00:00:01",
        "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B..128B smac 02:00:00:00:00:01",
    ];
    never_panics(4, &good, parse_stream);
}

#[test]
fn scenarios() {
    const GOOD: &str = r#"
schema = 1
seed = 7
duration = "1.5s"
[[pipeline]]
name = "é down"
stream = 'udp random 10.0.0.1-10.0.0.9:1-9 > 10.0.0.2:2000 size 64B..128B ttl 3'
count = 5
out = 'wire:2.5G,pcap=a b.pcap,frames=f.csv,fillers=keep,dic=on'
rate = '37.5%'
filler = 'blackhole=02:00:00:00:00:ff,align=4'
stages = ['delay 1.5ms', 'loss 0.1%']
[[pipeline]]
in = 'c0,driver=af_xdp'
out = 'tap:t0'
one-way = true
[[pipeline.class]]
gap = '0.5us'
[[expect]]
that = 'é down.held == 0'
"#;
    let good = ["schema = 1\n[[pipeline]]\nin = 'pcap:a'\nout = 'null'\n", GOOD];
    let read_twice = |text: &str| {
        let read = scenario::read("a.toml", text, None);
        if let Ok(scenario) = &read {
            let printed = scenario.to_string();
            assert_eq!(
                scenario::read("b.toml", &printed, None).as_ref(),
                Ok(scenario),
                "from {text:?} came\n{printed}"
            );
        }
        read
    };
    never_panics(5, &good, read_twice);
}
