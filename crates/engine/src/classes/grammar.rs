//! Parses rules. The words follow pcap filters and iptables where possible.

use super::rule::{DMAC_AT, ETHER_TYPES, FLAGS, PROTOCOLS, SMAC_AT};
use super::{Condition, Prefix, Rule, Side, Test};
use crate::Kind;
use packet::MacAddr;
use std::net::IpAddr;
use std::str::FromStr;
use units::ParseError;

/// Most bytes that one comparison may cover.
const LONGEST: usize = 64;
/// No frame is longer than this offset.
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
    kind("src", "src PREFIX[,PREFIX…]", "source address of IP", "src 10.0.0.0/8,2001:db8::/32"),
    kind("dst", "dst PREFIX[,PREFIX…]", "destination address of IP", "dst 10.0.0.1"),
    kind("host", "host PREFIX[,PREFIX…]", "source or destination address of IP", "host 10.0.0.1"),
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
];

/// The names of all conditions, for messages.
fn names() -> String {
    CONDITIONS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

/// A word of a rule.
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
        let mut reader = Reader { words: &words, at: 0 };
        let mut alternatives = vec![Vec::new()];
        while let Some(word) = reader.peek() {
            let current = alternatives.last_mut().expect("there is one always");
            match word {
                "and" if !current.is_empty() => {
                    reader.at += 1;
                    if matches!(reader.peek(), None | Some("and" | "or")) {
                        return Err(ParseError::new(
                            "'and' has no condition behind it",
                            format!("write one of {}, or leave 'and' out", names()),
                        ));
                    }
                }
                "or" if !current.is_empty() => {
                    reader.at += 1;
                    alternatives.push(Vec::new());
                }
                _ => current.push(reader.condition()?),
            }
        }
        if alternatives.last().is_some_and(Vec::is_empty) {
            return Err(ParseError::new(
                "a condition is missing",
                format!("write one of {}; leave match out for the default class", names()),
            ));
        }
        Ok(Rule { alternatives })
    }
}

struct Reader<'a> {
    words: &'a [Word],
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next word, as text; empty for a quoted word.
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| match word {
            Word::Plain(word) => word.as_str(),
            Word::Quoted(_) => "\"",
        })
    }

    fn next(&mut self) -> Option<&'a Word> {
        let word = self.words.get(self.at);
        self.at += 1;
        word
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
        let not = self.take("not") || self.take("!");
        Ok(Condition { not, test: self.test()? })
    }

    fn test(&mut self) -> Result<Test, ParseError> {
        let word = match self.next() {
            Some(Word::Plain(word)) => word.as_str(),
            Some(Word::Quoted(_)) => {
                return Err(ParseError::new("a text stands alone", "write payload before it: payload \"GET /v1\""));
            }
            None => return Err(ParseError::new("'not' stands alone", format!("write one of {} behind it", names()))),
        };
        if let Some((_, value)) = ETHER_TYPES.iter().find(|(name, _)| *name == word) {
            return Ok(Test::EtherType(*value));
        }
        if let Some((_, value)) = PROTOCOLS.iter().find(|(name, _)| *name == word) {
            return Ok(Test::Protocol(*value));
        }
        match word {
            "proto" => {
                let value = self.value("proto", "47")?;
                let known = PROTOCOLS.iter().find(|(name, _)| *name == value).map(|(_, number)| *number);
                let number = known.or_else(|| value.parse().ok());
                number.map(Test::Protocol).ok_or_else(|| {
                    ParseError::new(format!("'{value}' is no protocol"), "write a number from 0 to 255, proto 47")
                })
            }
            "src" => self.end(Side::Source),
            "dst" => self.end(Side::Destination),
            "host" | "net" => self.address(Side::Either),
            "sport" => self.ports("sport", Side::Source),
            "dport" => self.ports("dport", Side::Destination),
            "port" => self.ports("port", Side::Either),
            "vlan" => match self.peek().filter(|next| next.starts_with(|c: char| c.is_ascii_digit())) {
                Some(_) => Ok(Test::Vlan(ranges(self.value("vlan", "100")?, 4_094, "a VLAN", "vlan 100")?)),
                None => Ok(Test::Vlan(Vec::new())),
            },
            "dscp" => {
                let value = self.value("dscp", "46")?;
                let number = value.split(',').map(code_point).collect::<Vec<_>>().join(",");
                Ok(Test::Dscp(ranges(&number, 63, "a DSCP", "dscp 46, dscp ef or dscp af41")?))
            }
            "flags" => flags(self.value("flags", "syn,!ack")?),
            "dmac" => self.hardware_address("dmac", DMAC_AT),
            "smac" => self.hardware_address("smac", SMAC_AT),
            "bytes" => self.bytes(),
            "payload" => self.payload(),
            word if word.starts_with(['(', ')']) => Err(ParseError::new(
                "there are no parentheses in rules",
                "write the alternatives out, 'tcp dport 80 or udp dport 53'",
            )),
            word => Err(ParseError::new(
                format!("'{word}' is no condition"),
                match (meant_by(word), nearest(word)) {
                    (Some(remedy), _) => remedy.to_owned(),
                    (None, Some(meant)) => format!("did you mean {meant}?"),
                    (None, None) => format!("write one of {}", names()),
                },
            )),
        }
    }

    /// A hardware address as a comparison of bytes, with the word that streams use.
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
        let value = self.value(key, "10.0.0.0/8")?;
        Ok(Test::Address(side, value.split(',').map(str::parse).collect::<Result<_, _>>()?))
    }

    fn ports(&mut self, key: &str, side: Side) -> Result<Test, ParseError> {
        let value = self.value(key, "8080")?;
        Ok(Test::Port(side, ranges(value, u16::MAX, "a port", &format!("{key} 80,443,8000-8100"))?))
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
            return Err(ParseError::new(format!("the mask of '{text}' lets nothing count"), EXAMPLE));
        }
        for (value, mask) in value.iter_mut().zip(&mask) {
            if *value & !mask != 0 {
                return Err(ParseError::new(
                    format!("'{text}' has bits that its mask leaves out"),
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
        Ok(Test::Payload { value, at })
    }

    fn offset(&mut self) -> Result<u32, ParseError> {
        let value = self.value("at", "12")?;
        let at = value.parse().ok().filter(|at| *at <= FARTHEST);
        at.ok_or_else(|| {
            ParseError::new(format!("'{value}' is no place in a frame"), format!("write a number from 0 to {FARTHEST}"))
        })
    }
}

impl FromStr for Prefix {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError::new(format!("'{text}' is no address"), "write 10.0.0.1, 10.0.0.0/8 or 2001:db8::/32");
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        let digits = |length: &&str| length.bytes().all(|byte| byte.is_ascii_digit());
        let length = length.map_or(Some(whole), |length| Some(length).filter(digits)?.parse().ok());
        let length = length.filter(|length| *length <= whole).ok_or_else(bad)?;
        let network = network(address, length);
        if network != address {
            return Err(ParseError::new(
                format!("'{text}' has bits behind its prefix"),
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

fn flags(text: &str) -> Result<Test, ParseError> {
    let (mut set, mut clear) = (0, 0);
    for part in text.split(',') {
        let (name, bits) = part.strip_prefix('!').map_or((part, &mut set), |name| (name, &mut clear));
        let Some(bit) = FLAGS.iter().position(|known| *known == name) else {
            let all = FLAGS.join(",");
            let remedy = format!(
                "write those that must all be set, of {all}, with ! before those that must not: flags syn,!ack"
            );
            return Err(ParseError::new(format!("'{part}' is no flag of TCP"), remedy));
        };
        *bits |= 1 << bit;
    }
    if set & clear != 0 {
        return Err(ParseError::new(format!("'{text}' wants a flag set and not set"), "leave one of both out"));
    }
    Ok(Test::Flags { set, clear })
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

/// Splits a rule into words. In quotes, `\"`, `\\`, `\n`, `\r`, `\t`, `\0` and `\xHH` stand for bytes.
fn words(text: &str) -> Result<Vec<Word>, ParseError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (bytes, after) = quotation(quoted)?;
            words.push(Word::Quoted(bytes));
            rest = after.trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(Word::Plain(rest[..end].to_owned()));
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
                            ParseError::new("'\\x' has no two hex digits behind it", "write a byte like \\x1f")
                        })?;
                        characters.nth(1);
                        byte
                    }
                    _ => {
                        return Err(ParseError::new(
                            "a backslash in quotes stands before nothing that is known",
                            "write \\\", \\\\, \\n, \\r, \\t, \\0 or \\x1f",
                        ));
                    }
                });
            }
            c => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    Err(ParseError::new("a text in quotes has no end", "write \" behind it"))
}

/// Our equivalent of a word from another filter language.
fn meant_by(word: &str) -> Option<&'static str> {
    Some(match word {
        "&&" | "&" => "leave it out: conditions that stand side by side hold together",
        "||" | "|" => "write or",
        "tos" | "tclass" => "write dscp 46, the upper six bits",
        "ether" | "eth" | "mac" => {
            "write dmac 02:00:00:00:00:02 for a destination, smac for a source, bytes 88b5 at 12 for a protocol"
        }
        "broadcast" => "write dmac ff:ff:ff:ff:ff:ff",
        "multicast" => "write bytes 01/01 at 0",
        "ethertype" => "write bytes 88b5 at 12, of frames without a tag",
        "ttl" => "write ip bytes 40 at 22 for a TTL of 64, of frames without a tag",
        "len" | "length" | "size" | "greater" | "less" => {
            "a length has no range here: write ip bytes 05dc at 16 for packets of 1500 B, of frames without a tag"
        }
        _ => return None,
    })
}

/// The condition that a misspelt word probably means.
fn nearest(word: &str) -> Option<&'static str> {
    const SIMILAR: [(&str, &str); 12] = [
        ("ipv4", "ip"),
        ("ip4", "ip"),
        ("ipv6", "ip6"),
        ("icmpv6", "icmp6"),
        ("protocol", "proto"),
        ("source", "src"),
        ("destination", "dst"),
        ("saddr", "src"),
        ("daddr", "dst"),
        ("ports", "port"),
        ("flag", "flags"),
        ("content", "payload"),
    ];
    SIMILAR.iter().find(|(similar, _)| *similar == word.to_lowercase().trim_start_matches('-')).map(|(_, meant)| *meant)
}
