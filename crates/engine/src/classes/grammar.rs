//! Parses rules. The keywords follow pcap filters and iptables where possible.

use super::rule::{DMAC_AT, ETHER_TYPES, FLAGS, OUTERMOST, PROTOCOLS, SMAC_AT};
use super::{Condition, FieldValues, Fields, Prefix, Rule, Side, Test};
use crate::Kind;
use packet::layers::{FieldPath, LayerKind, Level, can_be, read_layer};
use packet::{Kind as ValueKind, MacAddr};
use std::net::IpAddr;
use std::str::FromStr;
use units::{ParseError, nearest};

/// Maximum number of bytes in one comparison.
const LONGEST: usize = 64;
/// Maximum offset of a comparison. No frame is longer.
const FARTHEST: u32 = 16_383;

const fn kind(name: &'static str, grammar: &'static str, summary: &'static str, example: &'static str) -> Kind {
    Kind { name, grammar, summary, example }
}

/// The conditions of a rule.
pub(super) const CONDITIONS: &[Kind] = &[
    kind("ip", "ip", "IPv4", "ip"),
    kind("ip6", "ip6", "IPv6", "ip6"),
    kind("arp", "arp", "ARP", "arp"),
    kind("tcp", "tcp", "TCP, over IPv4 or IPv6", "tcp dport 80"),
    kind("udp", "udp", "UDP, over IPv4 or IPv6", "udp port 53"),
    kind("icmp", "icmp", "ICMP", "icmp"),
    kind("icmp6", "icmp6", "ICMPv6", "icmp6"),
    kind("sctp", "sctp", "SCTP, over IPv4 or IPv6", "sctp"),
    kind("proto", "proto N|NAME", "a transport protocol by its number", "proto 47"),
    kind(
        "src",
        "src PREFIX[,PREFIX…]",
        "source address of IP, sender's address of ARP",
        "src 10.0.0.0/8,2001:db8::/32",
    ),
    kind("dst", "dst PREFIX[,PREFIX…]", "destination address of IP, target's address of ARP", "dst 10.0.0.1"),
    kind("host", "host PREFIX[,PREFIX…]", "either address of IP or ARP", "host 10.0.0.1"),
    kind("sport", "sport PORTS", "source port of TCP, UDP or SCTP", "sport 1024-65535"),
    kind("dport", "dport PORTS", "destination port of TCP, UDP or SCTP", "dport 80,443,8000-8100"),
    kind("port", "port PORTS", "source or destination port of TCP, UDP or SCTP", "port 53"),
    kind("vlan", "vlan [IDS]", "identifier of the outermost VLAN tag; without IDS, any tag", "vlan 100-199"),
    kind("dscp", "dscp VALUES", "differentiated services, by number or name", "dscp ef,af41"),
    kind("flags", "flags [!]FLAG[,…]", "TCP flags that are set, or clear with !", "flags syn,!ack"),
    kind("dmac", "dmac MAC", "destination hardware address", "dmac 02:00:00:00:00:02"),
    kind("smac", "smac MAC", "source hardware address", "smac 02:00:00:00:00:01"),
    kind(
        "bytes",
        "bytes HEX[/MASK] at N",
        "bytes of the frame; 0 is the first of the destination",
        "bytes 40/f0 at 14",
    ),
    kind(
        "payload",
        "payload \"TEXT\"|HEX [at N]",
        "bytes of the TCP or UDP payload; anywhere without at",
        "payload \"GET /\" at 0",
    ),
    kind(
        "inner",
        "inner CONDITION… [outer CONDITION…]",
        "later conditions apply to the packet in a tunnel; inner inner two tunnels deep, innermost, outer",
        "vxlan vni 7 inner tcp dport 80",
    ),
];

/// The names of all conditions, for messages.
fn names() -> String {
    CONDITIONS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// A word of a rule and its column, counted from 1.
struct PlacedWord {
    word: Word,
    column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Plain(String),
    /// Text in double quotes, with escapes resolved.
    Quoted(Vec<u8>),
}

impl FromStr for Rule {
    type Err = ParseError;

    /// Reads `tcp dport 8080 src 10.0.0.0/8 payload "GET /v1" at 0`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words = words(text)?;
        let mut reader = Reader { words: &words, at: 0, end: text.chars().count() + 1, level: OUTERMOST };
        let mut alternatives = vec![Vec::new()];
        while let Some(word) = reader.peek() {
            let current = alternatives.last_mut().expect("there is one always");
            match word {
                "and" if !current.is_empty() => {
                    reader.at += 1;
                    if matches!(reader.peek(), None | Some("and" | "or")) {
                        return Err(ParseError::new(
                            "'and' has no condition after it",
                            format!("write one of {}, or leave 'and' out", names()),
                        )
                        .at_column(reader.column()));
                    }
                }
                "or" if !current.is_empty() => {
                    reader.at += 1;
                    reader.level = OUTERMOST;
                    alternatives.push(Vec::new());
                }
                _ => match reader.condition() {
                    Ok(condition) => current.push(condition),
                    Err(error) => return Err(error.at_column(reader.column())),
                },
            }
        }
        if alternatives.last().is_some_and(Vec::is_empty) {
            return Err(ParseError::new(
                "a condition is missing",
                format!("write one of {}; leave match out for the default class", names()),
            )
            .at_column(reader.end));
        }
        Ok(Rule { alternatives })
    }
}

struct Reader<'a> {
    words: &'a [PlacedWord],
    at: usize,
    /// The column after the end of the rule.
    end: usize,
    /// The packet that the next condition tests.
    level: Level,
}

impl<'a> Reader<'a> {
    /// The next word, as text; empty for a quoted word.
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| match &word.word {
            Word::Plain(word) => word.as_str(),
            Word::Quoted(_) => "\"",
        })
    }

    /// The column of the last word that was read.
    fn column(&self) -> usize {
        self.words.get(self.at.saturating_sub(1)).map_or(self.end, |word| word.column)
    }

    fn next(&mut self) -> Option<&'a Word> {
        let word = self.words.get(self.at);
        self.at += 1;
        word.map(|word| &word.word)
    }

    fn take(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.at += usize::from(is);
        is
    }

    /// The plain word that must follow `key`.
    fn value(&mut self, key: &str, example: &str) -> Result<&'a str, ParseError> {
        match self.next() {
            Some(Word::Plain(word)) => Ok(word),
            _ => Err(ParseError::new(format!("'{key}' has no value"), format!("write {key} {example}"))),
        }
    }

    fn condition(&mut self) -> Result<Condition, ParseError> {
        self.read_level()?;
        let not = self.take("not") || self.take("!");
        self.read_level()?;
        Ok(Condition { not, test: self.test()? })
    }

    /// Reads `inner`, `innermost` or `outer`, which apply to all conditions after them.
    fn read_level(&mut self) -> Result<(), ParseError> {
        let word = self.peek().unwrap_or_default();
        if word == "outer" {
            self.at += 1;
            self.level = OUTERMOST;
        } else if word == "inner" || word == "innermost" {
            let words: Vec<&str> = self.words[self.at..].iter().map(|placed| placed.word.plain()).collect();
            let (level, used) = Level::read(&words);
            self.level = level;
            self.at += used;
        } else {
            return Ok(());
        }
        match self.peek() {
            None | Some("and" | "or") => {
                self.at += 1;
                let remedy = format!("write a condition, as in {word} tcp dport 80");
                Err(ParseError::new(format!("'{word}' has no condition after it"), remedy))
            }
            _ => Ok(()),
        }
    }

    fn test(&mut self) -> Result<Test, ParseError> {
        let word = match self.next() {
            Some(Word::Plain(word)) => word.as_str(),
            Some(Word::Quoted(_)) => {
                return Err(ParseError::new(
                    "a quoted text has no condition",
                    "write payload before it: payload \"GET /v1\"",
                ));
            }
            None => {
                return Err(ParseError::new(
                    "'not' has no condition after it",
                    format!("write one of {} after it", names()),
                ));
            }
        };
        let layer = read_layer(word);
        layer.map_or(Ok(()), can_be)?;
        if let Some((kind, number)) = layer
            && let Some(field) = self.field_behind((kind, number))
        {
            self.at += 1;
            return self.field(field);
        }
        match word {
            "ether" | "eth" | "mac" if self.level == OUTERMOST => return Err(no_condition(word)),
            "vlan" => return self.vlan(),
            _ => {}
        }
        if let Some((kind, number)) = layer {
            self.check_behind(kind)?;
            return Ok(self.layer(kind, number));
        }
        if self.level == OUTERMOST
            && let Some(test) = self.outermost(word)?
        {
            return Ok(test);
        }
        match word {
            "src" => self.end(Side::Source),
            "dst" => self.end(Side::Destination),
            "host" | "net" => self.address(Side::Either),
            "port" => self.ports("port", Side::Either),
            "payload" => self.payload(),
            "bytes" => Err(ParseError::new(
                "'bytes' counts from the start of the frame",
                "write it before inner, or outer before it",
            )),
            "proto" => self.protocol(),
            word if word.starts_with(['(', ')']) => Err(ParseError::new(
                "rules have no parentheses",
                "write the alternatives out, 'tcp dport 80 or udp dport 53'",
            )),
            word => match FieldPath::bare(self.level, word) {
                Some(path) => self.field(path),
                None => Err(no_condition(word)),
            },
        }
    }

    /// Reads a condition about the outermost packet that does not require parsing its layers.
    fn outermost(&mut self, word: &str) -> Result<Option<Test>, ParseError> {
        Ok(Some(match word {
            "sport" => self.ports("sport", Side::Source)?,
            "dport" => self.ports("dport", Side::Destination)?,
            "dscp" => {
                let value = self.value("dscp", "46")?;
                let number = value.split(',').map(code_point).collect::<Vec<_>>().join(",");
                Test::Dscp(ranges(&number, 63, "a DSCP", "dscp 46, dscp ef or dscp af41")?)
            }
            "flags" => {
                let (set, clear) = flags(self.value("flags", "syn,!ack")?)?;
                Test::Flags { set, clear }
            }
            "dmac" => self.hardware_address("dmac", DMAC_AT)?,
            "smac" => self.hardware_address("smac", SMAC_AT)?,
            "bytes" => self.bytes()?,
            _ => return Ok(None),
        }))
    }

    /// The field of this layer that the next word names. `None` if the word is a condition by itself: `tcp dport 80` is
    /// two conditions, `tcp window 80` is one.
    fn field_behind(&self, (kind, number): (LayerKind, u8)) -> Option<FieldPath> {
        let word = self.peek()?;
        if is_condition(word) && FieldPath::bare(OUTERMOST, word).is_some() && in_two(kind) {
            return None;
        }
        FieldPath::of_layer(self.level, (kind, number), word)
    }

    /// Rejects a word after a layer that is neither a field of the layer nor a condition.
    fn check_behind(&mut self, kind: LayerKind) -> Result<(), ParseError> {
        let Some(word) = self.peek() else { return Ok(()) };
        let known = ["and", "or", "not", "!", "\"", "inner", "innermost", "outer"].contains(&word)
            || is_condition(word)
            || read_layer(word).is_some()
            || FieldPath::bare(OUTERMOST, word).is_some()
            || meant_by(word).is_some()
            || similar(word).is_some()
            || word.starts_with(['(', ')']);
        if known {
            return Ok(());
        }
        self.at += 1;
        let fields: Vec<&str> = kind.description().fields.iter().map(|field| field.name).collect();
        let all: Vec<&str> = fields.iter().copied().chain(known_words()).collect();
        let remedy = match nearest(word, &all) {
            Some(name) => format!("write {name}"),
            None => format!("write one of {}, or a condition: 'netlathe help rules' lists them", fields.join(", ")),
        };
        Err(ParseError::new(format!("'{word}' is neither a condition nor a field of {}", kind.name()), remedy))
    }

    /// The test for a layer. EtherTypes and protocols that are read from every frame need no layer parsing.
    fn layer(&self, kind: LayerKind, number: u8) -> Test {
        let known = |name: &str| {
            let ether_type =
                ETHER_TYPES.iter().find(|(known, _)| *known == name).map(|(_, value)| Test::EtherType(*value));
            let protocol =
                || PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, value)| Test::Protocol(*value));
            ether_type.or_else(protocol)
        };
        let fast = if self.level == OUTERMOST && number == 1 { known(kind.name()) } else { None };
        fast.unwrap_or(Test::Layer(self.level, kind, number))
    }

    /// What follows `vlan`: identifiers, or nothing.
    fn vlan(&mut self) -> Result<Test, ParseError> {
        let has_value = self.peek().is_some_and(|next| next.starts_with(|c: char| c.is_ascii_digit()));
        if !has_value {
            self.check_behind(LayerKind::Vlan)?;
            return Ok(match self.level {
                OUTERMOST => Test::Vlan(Vec::new()),
                level => Test::Layer(level, LayerKind::Vlan, 1),
            });
        }
        let ranges = ranges(self.value("vlan", "100")?, 4_094, "a VLAN", "vlan 100")?;
        match FieldPath::of_layer(self.level, (LayerKind::Vlan, 1), "id") {
            Some(path) if self.level != OUTERMOST => {
                let ranges = ranges.into_iter().map(|(from, to)| (u128::from(from), u128::from(to)));
                Ok(Test::Field(Fields::One(path), FieldValues::Ranges(ranges.collect())))
            }
            _ => Ok(Test::Vlan(ranges)),
        }
    }

    /// What follows `proto`.
    fn protocol(&mut self) -> Result<Test, ParseError> {
        let value = self.value("proto", "47")?;
        let known = PROTOCOLS.iter().find(|(name, _)| *name == value).map(|(_, number)| *number);
        let number: u8 = known.or_else(|| value.parse().ok()).ok_or_else(|| {
            ParseError::new(format!("'{value}' is not a protocol"), "write a number from 0 to 255, proto 47")
        })?;
        match FieldPath::bare(self.level, "proto") {
            Some(path) if self.level != OUTERMOST => {
                let number = u128::from(number);
                Ok(Test::Field(Fields::One(path), FieldValues::Ranges(vec![(number, number)])))
            }
            _ => Ok(Test::Protocol(number)),
        }
    }

    /// The values of a field.
    fn field(&mut self, path: FieldPath) -> Result<Test, ParseError> {
        let vlan = FieldPath::of_layer(OUTERMOST, (LayerKind::Vlan, 1), "id");
        if vlan == Some(path) {
            let value = self.value("vlan id", "100")?;
            return Ok(Test::Vlan(ranges(value, 4_094, "a VLAN", "vlan id 100")?));
        }
        let (name, kind) = (path.in_level(OUTERMOST).to_string(), path.kind());
        let example = kind.one();
        let values = match kind {
            ValueKind::Address => FieldValues::Prefixes(prefixes(self.value(&name, "10.0.0.0/8")?)?),
            ValueKind::Flags => {
                let (set, clear) = flags(self.value(&name, "syn,!ack")?)?;
                FieldValues::Masked(set.into(), (set | clear).into())
            }
            kind => {
                let value = self.value(&name, &example)?;
                match value.split_once('/') {
                    Some((number, mask)) => masked(&name, kind, value, number, mask)?,
                    None => FieldValues::Ranges(field_ranges(&name, kind, value)?),
                }
            }
        };
        Ok(Test::Field(Fields::One(path), values))
    }

    /// Reads a hardware address as a byte comparison. `key` is the keyword that streams use.
    fn hardware_address(&mut self, key: &str, at: u32) -> Result<Test, ParseError> {
        let MacAddr(value) = self.value(key, "02:00:00:00:00:02")?.parse()?;
        Ok(Test::Bytes { value: value.to_vec(), mask: vec![0xff; value.len()], at })
    }

    /// Parses what follows `src` or `dst`: an address, or `port` as in pcap.
    fn end(&mut self, side: Side) -> Result<Test, ParseError> {
        if self.take("port") || self.take("portrange") {
            return self.ports("port", side);
        }
        let _ = self.take("host") || self.take("net");
        self.address(side)
    }

    fn address(&mut self, side: Side) -> Result<Test, ParseError> {
        let key = match side {
            Side::Source => "src",
            Side::Destination => "dst",
            Side::Either => "host",
        };
        let prefixes = prefixes(self.value(key, "10.0.0.0/8")?)?;
        match (self.level, side) {
            (OUTERMOST, _) => Ok(Test::Address(side, prefixes)),
            (level, Side::Either) => Ok(Test::Field(Fields::Addresses(level), FieldValues::Prefixes(prefixes))),
            _ => self.in_tunnel(key, FieldValues::Prefixes(prefixes)),
        }
    }

    /// A test of a field of a packet in a tunnel.
    fn in_tunnel(&self, name: &str, values: FieldValues) -> Result<Test, ParseError> {
        let path = FieldPath::bare(self.level, name).ok_or_else(|| no_condition(name))?;
        Ok(Test::Field(Fields::One(path), values))
    }

    fn ports(&mut self, key: &str, side: Side) -> Result<Test, ParseError> {
        let value = self.value(key, "8080")?;
        let ranges = ranges(value, u16::MAX, "a port", &format!("{key} 80,443,8000-8100"))?;
        if self.level == OUTERMOST {
            return Ok(Test::Port(side, ranges));
        }
        let values = FieldValues::Ranges(ranges.iter().map(|(from, to)| ((*from).into(), (*to).into())).collect());
        match side {
            Side::Source => self.in_tunnel("sport", values),
            Side::Destination => self.in_tunnel("dport", values),
            Side::Either => Ok(Test::Field(Fields::Ports(self.level), values)),
        }
    }

    fn bytes(&mut self) -> Result<Test, ParseError> {
        const EXAMPLE: &str = "write bytes 88b5 at 12, or with a mask bytes 40/f0 at 14";
        let text = self.value("bytes", "88b5 at 12")?;
        let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
        let mut value = hex(value, EXAMPLE)?;
        let mask = mask.map_or_else(|| Ok(vec![0xff; value.len()]), |mask| hex(mask, EXAMPLE))?;
        if mask.len() != value.len() {
            return Err(ParseError::new(
                format!("the mask of '{text}' is {} bytes long and not {}", mask.len(), value.len()),
                EXAMPLE,
            ));
        }
        if mask.iter().all(|byte| *byte == 0) {
            return Err(ParseError::new(format!("the mask of '{text}' selects no bit"), EXAMPLE));
        }
        for (value, mask) in value.iter_mut().zip(&mask) {
            if *value & !mask != 0 {
                return Err(ParseError::new(
                    format!("'{text}' has bits outside its mask"),
                    "write zeros where the mask has zeros",
                ));
            }
        }
        if !self.take("at") {
            return Err(ParseError::new("'bytes' has no place", EXAMPLE));
        }
        Ok(Test::Bytes { value, mask, at: self.offset()? })
    }

    fn payload(&mut self) -> Result<Test, ParseError> {
        const EXAMPLE: &str = "write payload \"GET /v1\" at 0, payload 474554 at 0, or payload \"login\" for anywhere";
        let value = match self.next() {
            Some(Word::Quoted(bytes)) => bytes.clone(),
            Some(Word::Plain(word)) => hex(word, EXAMPLE)?,
            None => return Err(ParseError::new("'payload' has no text", EXAMPLE)),
        };
        if value.is_empty() || value.len() > LONGEST {
            return Err(ParseError::new(
                format!("{} bytes cannot be looked for", value.len()),
                format!("write 1 to {LONGEST} of them"),
            ));
        }
        let at = if self.take("at") { Some(self.offset()?) } else { None };
        Ok(Test::Payload { level: self.level, value, at })
    }

    fn offset(&mut self) -> Result<u32, ParseError> {
        let value = self.value("at", "12")?;
        let at = value.parse().ok().filter(|at| *at <= FARTHEST);
        at.ok_or_else(|| {
            ParseError::new(
                format!("'{value}' is not an offset in a frame"),
                format!("write a number from 0 to {FARTHEST}"),
            )
        })
    }
}

impl FromStr for Prefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad =
            || ParseError::new(format!("'{text}' is not an address"), "write 10.0.0.1, 10.0.0.0/8 or 2001:db8::/32");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let digits = |length: &&str| length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.map_or(Some(whole), |length| Some(length).filter(digits)?.parse().ok());
        let length = length.filter(|length| *length <= whole).ok_or_else(bad)?;
        let network = network(address, length);
        if network != address {
            return Err(ParseError::new(
                format!("'{text}' has bits beyond its prefix"),
                format!("write {network}/{length}, or {address} alone"),
            ));
        }
        Ok(Prefix { address, length })
    }
}

/// The network address: bits after the prefix are zero.
fn network(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

/// Parses values and ranges, separated by commas.
fn ranges<T>(text: &str, most: T, what: &str, example: &str) -> Result<Vec<(T, T)>, ParseError>
where
    T: FromStr + PartialOrd + Copy + std::fmt::Display,
{
    let read = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<T>().ok().filter(|n| *n <= most && !text.starts_with('+'));
        let (from, to) = (number(from)?, number(to)?);
        (from <= to).then_some((from, to))
    };
    text.split(',')
        .map(|part| {
            let bad = || {
                ParseError::new(
                    format!("'{part}' is not {what} or a range of them (0 to {most})"),
                    format!("write {example}"),
                )
            };
            read(part).ok_or_else(bad)
        })
        .collect()
}

/// The number of a DSCP name (RFC 2474, 2597, 3246, 5865). Returns other text unchanged.
pub(crate) fn code_point(name: &str) -> String {
    let digit = |text: &str, most: u8| text.parse::<u8>().ok().filter(|n| *n <= most && text.len() == 1);
    let number = match name {
        "be" => Some(0),
        "ef" => Some(46),
        "va" => Some(44),
        _ => match (name.strip_prefix("cs"), name.strip_prefix("af")) {
            (Some(class), _) => digit(class, 7).map(|class| 8 * class),
            (_, Some(both)) if both.len() == 2 && both.is_char_boundary(1) => {
                let (class, precedence) = both.split_at(1);
                let in_range = |n: &u8| *n > 0;
                digit(class, 4)
                    .filter(in_range)
                    .zip(digit(precedence, 3).filter(in_range))
                    .map(|(class, precedence)| 8 * class + 2 * precedence)
            }
            _ => None,
        },
    };
    number.map_or_else(|| name.to_owned(), |number| number.to_string())
}

/// Flags that must be set, and that must be clear.
fn flags(text: &str) -> Result<(u8, u8), ParseError> {
    let (mut set, mut clear) = (0, 0);
    for part in text.split(',') {
        let (name, bits) = part.strip_prefix('!').map_or((part, &mut set), |name| (name, &mut clear));
        let Some(bit) = FLAGS.iter().position(|known| *known == name) else {
            let all = FLAGS.join(",");
            let remedy = format!(
                "write those that must all be set, of {all}, with ! before those that must not: flags syn,!ack"
            );
            return Err(ParseError::new(format!("'{part}' is not a flag of TCP"), remedy));
        };
        *bits |= 1 << bit;
    }
    if set & clear != 0 {
        return Err(ParseError::new(
            format!("'{text}' requires a flag to be both set and clear"),
            "leave one of them out",
        ));
    }
    Ok((set, clear))
}

fn prefixes(text: &str) -> Result<Vec<Prefix>, ParseError> {
    text.split(',').map(str::parse).collect()
}

/// Parses values and ranges of a field, separated by commas.
fn field_ranges(name: &str, kind: ValueKind, text: &str) -> Result<Vec<(u128, u128)>, ParseError> {
    let read = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (kind.parse(name, from)?, kind.parse(name, to)?);
        if from > to {
            return Err(ParseError::new(format!("'{part}' goes down"), "write the smaller value first"));
        }
        Ok((from, to))
    };
    text.split(',').map(read).collect()
}

/// Parses a value and a mask.
fn masked(name: &str, kind: ValueKind, text: &str, number: &str, mask: &str) -> Result<FieldValues, ParseError> {
    let (number, mask) = (kind.parse(name, number)?, kind.parse(name, mask)?);
    if mask == 0 {
        return Err(ParseError::new(format!("the mask of '{text}' selects no bit"), "write a mask with a bit set"));
    }
    if number & !mask != 0 {
        return Err(ParseError::new(
            format!("'{text}' has bits outside its mask"),
            "write zeros where the mask has zeros",
        ));
    }
    Ok(FieldValues::Masked(number, mask))
}

fn hex(text: &str, example: &str) -> Result<Vec<u8>, ParseError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let bad = || ParseError::new(format!("'{text}' is not whole bytes in hex"), example);
    let good =
        !digits.is_empty() && digits.len().is_multiple_of(2) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !good || digits.len() > 2 * LONGEST {
        return Err(bad());
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| bad())).collect()
}

impl Word {
    /// The word as text; empty for a quoted word.
    fn plain(&self) -> &str {
        match self {
            Word::Plain(word) => word,
            Word::Quoted(_) => "",
        }
    }
}

/// Splits a rule into words. In quotes, `\"`, `\\`, `\n`, `\r`, `\t`, `\0` and `\xHH` stand for bytes.
fn words(text: &str) -> Result<Vec<PlacedWord>, ParseError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let column = text[..text.len() - rest.len()].chars().count() + 1;
        if let Some(quoted) = rest.strip_prefix('"') {
            let (bytes, after) = quotation(quoted).map_err(|error| error.at_column(column))?;
            words.push(PlacedWord { word: Word::Quoted(bytes), column });
            rest = after.trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(PlacedWord { word: Word::Plain(rest[..end].to_owned()), column });
            rest = rest[end..].trim_start();
        }
    }
    Ok(words)
}

fn quotation(text: &str) -> Result<(Vec<u8>, &str), ParseError> {
    let mut bytes = Vec::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Ok((bytes, &text[at + 1..])),
            '\\' => {
                let escape = characters.next().map(|(_, c)| c);
                bytes.push(match escape {
                    Some('n') => b'\n',
                    Some('r') => b'\r',
                    Some('t') => b'\t',
                    Some('0') => 0,
                    Some(c @ ('"' | '\\')) => c as u8,
                    Some('x') => {
                        let digits = text.get(at + 2..at + 4).unwrap_or_default();
                        let byte = u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
                        let byte = byte.ok_or_else(|| {
                            ParseError::new("'\\x' is not followed by two hex digits", "write a byte like \\x1f")
                        })?;
                        characters.nth(1);
                        byte
                    }
                    _ => {
                        return Err(ParseError::new(
                            "unknown escape after a backslash in quotes",
                            "write \\\", \\\\, \\n, \\r, \\t, \\0 or \\x1f",
                        ));
                    }
                });
            }
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err(ParseError::new("a quoted text has no end", "write a closing \""))
}

/// The equivalent in our grammar of a word from another filter language.
fn meant_by(word: &str) -> Option<&'static str> {
    Some(match word {
        "&&" | "&" => "leave it out: adjacent conditions must all hold",
        "||" | "|" => "write or",
        "tos" | "tclass" => "write dscp 46, the upper six bits",
        "ether" | "eth" | "mac" => {
            "write dmac 02:00:00:00:00:02 for a destination, smac for a source, bytes 88b5 at 12 for a protocol"
        }
        "broadcast" => "write dmac ff:ff:ff:ff:ff:ff",
        "multicast" => "write bytes 01/01 at 0",
        "len" | "length" | "size" | "greater" | "less" => {
            "write ip length 100-65535, the bytes of the packet with its header, or ip6 length for those after it"
        }
        "vlanid" | "vid" => "write vlan 10",
        "exp" => "write mpls tc 5",
        "hlim" | "hop-limit" => "write ttl 64",
        _ => return None,
    })
}

/// The condition that a misspelt word probably means, for spellings that edit distance misses.
fn similar(word: &str) -> Option<&'static str> {
    const SIMILAR: [(&str, &str); 10] = [
        ("icmpv6", "icmp6"),
        ("protocol", "proto"),
        ("source", "src"),
        ("destination", "dst"),
        ("saddr", "src"),
        ("daddr", "dst"),
        ("ports", "port"),
        ("flag", "flags"),
        ("content", "payload"),
        ("encapsulated", "inner"),
    ];
    SIMILAR.iter().find(|(similar, _)| *similar == word.to_lowercase().trim_start_matches('-')).map(|(_, meant)| *meant)
}

/// Whether the word starts a condition of the list.
fn is_condition(word: &str) -> bool {
    word == "net" || CONDITIONS.iter().any(|kind| kind.name == word)
}

/// Whether the protocol is a condition by itself even before another condition: `tcp dport 80` is two conditions.
fn in_two(kind: LayerKind) -> bool {
    let name = kind.name();
    ETHER_TYPES.iter().any(|(known, _)| *known == name) || PROTOCOLS.iter().any(|(known, _)| *known == name)
}

/// Words that can start a condition.
fn known_words() -> impl Iterator<Item = &'static str> {
    let fields = LayerKind::ALL.iter().flat_map(|kind| kind.description().fields).filter(|field| field.bare);
    let layers = LayerKind::ALL.iter().map(|kind| kind.name());
    CONDITIONS.iter().map(|kind| kind.name).chain(layers).chain(fields.map(|field| field.name))
}

/// The error for a word that starts no condition.
fn no_condition(word: &str) -> ParseError {
    let known: Vec<&str> = known_words().collect();
    let remedy = match (meant_by(word), similar(word).or_else(|| nearest(word, &known))) {
        (Some(remedy), _) => remedy.to_owned(),
        (None, Some(meant)) => format!("did you mean {meant}?"),
        (None, None) => {
            format!("write one of {}, or a protocol or field of 'netlathe help layers'", names())
        }
    };
    ParseError::new(format!("'{word}' is not a condition"), remedy)
}
