use crate::words::{self, Words};
use engine::sources::{Payload, SizeSpec, Stack, StreamSpec, Tunnel, Values};
use packet::layers::LayerKind;
use packet::{Key, Kind, Protocol};
use std::path::PathBuf;
use units::ParseError;
use units::nearest;

const HOW: &str = "write udp 10.0.0.1:1000 > 10.0.0.2:2000 size 64B";

/// Parses a stream: `udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B`.
///
/// First comes the stack: a protocol, `hex BYTES` or `pcap FILE frame N`. Protocols with addresses continue with
/// `SOURCE > DESTINATION`. Then follow `key value` pairs: the fields of the stack, `size`, `payload`, `weight`,
/// `stamp`. The values of a field are a single value, a range `a-b` with an optional `step N`, a list `a,b-c` or a
/// prefix `10.0.0.0/24`; with `random`, or as `A..B`, they are drawn. Tunnels follow, innermost first: `in vxlan vni 7
/// in udp 192.0.2.1 > 192.0.2.2`.
///
/// # Errors
/// Any deviation from this grammar, with what was expected; a field that the stack does not have; frames that are too
/// short for their contents.
pub fn parse_stream(text: &str) -> Result<StreamSpec, ParseError> {
    let words = words::split(text)?;
    let mut words = Words::new(&words);
    let mut seen = Vec::new();
    let mut spec = match words.peek() {
        Some(word) if begins_with_layer(word, words.rest()) => {
            let mut spec = StreamSpec::made(Protocol::Nothing, false);
            spec.tunnels.push(tunnel(&mut words)?);
            own_pairs(&mut words, &mut spec, &mut seen)?;
            spec
        }
        _ => stack(&mut words)?,
    };
    let mut family = Family::default();
    if let Some(protocol) = protocol(&spec)
        && !matches!(protocol, Protocol::Ethernet | Protocol::Nothing)
        && words
            .peek()
            .is_some_and(|word| word == ">" || word == "random" || Key::named(word).is_none() && !is_own_key(word))
    {
        let ports = matches!(protocol, Protocol::Udp | Protocol::Tcp);
        endpoint(&mut words, &mut spec, (Key::Source, Key::Sport), ports, &mut family)?;
        match words.next() {
            Some(">") => {}
            Some(word) => return Err(ParseError::new(format!("'{word}' is where '>' should be"), HOW)),
            None => return Err(ParseError::new("the destination is missing", HOW)),
        }
        endpoint(&mut words, &mut spec, (Key::Destination, Key::Dport), ports, &mut family)?;
    }
    if protocol(&spec) != Some(Protocol::Nothing) {
        pairs(&mut words, &mut spec, &mut family, &mut seen)?;
    }
    while words.peek() == Some("in") {
        if protocol(&spec).is_none() {
            return Err(ParseError::new(
                "a given frame has no tunnel around it",
                "write a protocol, as in udp 10.0.0.1:1 > 10.0.0.2:2 in vxlan vni 7",
            ));
        }
        words.next();
        spec.tunnels.push(tunnel(&mut words)?);
        own_pairs(&mut words, &mut spec, &mut seen)?;
    }
    if let Some(word) = words.next() {
        return Err(unknown(word));
    }
    if let Some(protocol) = protocol(&spec) {
        let needed: &[Key] = match protocol {
            Protocol::Udp | Protocol::Tcp => &[Key::Source, Key::Destination, Key::Sport, Key::Dport],
            Protocol::Icmp | Protocol::Ip | Protocol::Arp => &[Key::Source, Key::Destination],
            Protocol::Ethernet | Protocol::Nothing => &[],
        };
        if let Some(key) = needed.iter().find(|key| spec.fields.iter().all(|(name, _)| name != *key)) {
            return Err(ParseError::new(format!("the stream has no {}", key.meaning()), HOW));
        }
    }
    if let Stack::Made { v6, .. } = &mut spec.stack {
        *v6 = family.is_v6.unwrap_or(false);
    }
    spec.check()?;
    Ok(spec)
}

/// Whether the innermost layer is one without a protocol keyword: `roce psn 1-9 in udp 10.0.0.1 > 10.0.0.2`.
fn begins_with_layer(word: &str, rest: &[String]) -> bool {
    let Some(kind) = LayerKind::named(word) else { return false };
    let has_protocol = Protocol::ALL.iter().any(|protocol| protocol.name() == word);
    let is_alone = matches!(kind, LayerKind::Sctp | LayerKind::Pause | LayerKind::Pfc);
    let is_other = !has_protocol && !matches!(kind, LayerKind::Ipv4 | LayerKind::Ipv6 | LayerKind::Icmp6);
    is_other && (is_alone || rest.iter().any(|word| word == "in"))
}

/// Whether addresses are IPv6; known after the first address.
#[derive(Default)]
struct Family {
    is_v6: Option<bool>,
}

impl Family {
    fn see(&mut self, text: &str) -> Result<(), ParseError> {
        let v6 = text.contains(':');
        if self.is_v6.is_some_and(|is_v6| is_v6 != v6) {
            return Err(ParseError::new(
                format!("'{text}' has another IP version than the source"),
                "write both ends in the same version",
            ));
        }
        self.is_v6 = Some(v6);
        Ok(())
    }
}

fn protocol(spec: &StreamSpec) -> Option<Protocol> {
    match spec.stack {
        Stack::Made { protocol, .. } => Some(protocol),
        _ => None,
    }
}

/// Parses the stack.
fn stack(words: &mut Words<'_>) -> Result<StreamSpec, ParseError> {
    let word = words.next().ok_or_else(|| ParseError::new("a stream is missing", HOW))?;
    if let Some(protocol) = Protocol::ALL.iter().find(|protocol| protocol.name() == word) {
        return Ok(StreamSpec::made(*protocol, false));
    }
    let stack = match word {
        "hex" => {
            let digits = words.value("hex")?;
            let bytes = hex(digits.strip_prefix("0x").unwrap_or(digits)).filter(|bytes| bytes.len() >= 14);
            Stack::Hex(bytes.ok_or_else(|| {
                ParseError::new(
                    format!("'{digits}' is not a frame"),
                    "write 14 bytes or more, two hex digits each, no FCS",
                )
            })?)
        }
        "pcap" => {
            let path = PathBuf::from(words.value("pcap")?);
            let frame = match words.peek() {
                Some("frame") => {
                    words.next();
                    let number = words.value("frame")?;
                    let frame = number.parse().ok().filter(|frame| *frame > 0);
                    frame
                        .ok_or_else(|| ParseError::new(format!("'{number}' is not a frame"), "write 1 for the first"))?
                }
                _ => 1,
            };
            Stack::Captured { path, frame, bytes: None }
        }
        _ => {
            let mut known: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.name()).collect();
            known.extend(["hex", "pcap"]);
            let lower = word.to_ascii_lowercase();
            let how = match lower.as_str() {
                "ipv4" | "ip4" => "write ip 10.0.0.1 > 10.0.0.2".to_owned(),
                "ipv6" | "ip6" => "write ip, or another protocol, with addresses of IPv6".to_owned(),
                "icmpv6" | "icmp6" => "write icmp with addresses of IPv6".to_owned(),
                "igmp" => "write ip 10.0.0.1 > 224.0.0.1 proto 2".to_owned(),
                "roce" | "bth" | "rocev2" => "write roce in udp 10.0.0.1 > 10.0.0.2".to_owned(),
                "vlan" | "qinq" => "write the protocol first, and vlan 5 after the addresses".to_owned(),
                lower if known.contains(&lower) => format!("write {lower}"),
                lower if LayerKind::named(lower).is_some() => {
                    format!("write the inner packet first: udp 10.0.0.1:1 > 10.0.0.2:2 in {lower}")
                }
                _ => match units::nearest(word, &known) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => format!("write one of {}", known.join(", ")),
                },
            };
            return Err(ParseError::new(format!("'{word}' is not a protocol"), how));
        }
    };
    Ok(StreamSpec { stack, ..StreamSpec::made(Protocol::Ethernet, false) })
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// Parses `ADDRESS` or `ADDRESS:PORT`, each with values, optionally after `random`. An IPv6 address followed by a port
/// is in brackets.
fn endpoint(
    words: &mut Words<'_>,
    spec: &mut StreamSpec,
    (address, port): (Key, Key),
    ports: bool,
    family: &mut Family,
) -> Result<(), ParseError> {
    let mut word = words.next().ok_or_else(|| ParseError::new("an address is missing", HOW))?;
    let random = word == "random";
    if random {
        word = words.next().ok_or_else(|| ParseError::new("an address is missing", HOW))?;
    }
    let (addresses, number) = match word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inside, "")) => (inside, None),
        Some((inside, behind)) => match behind.strip_prefix(':') {
            Some(number) => (inside, Some(number)),
            None => return Err(ParseError::new(format!("'{behind}' follows ']'"), "write [2001:db8::1]:80")),
        },
        // An IPv4 address with a port has only one colon.
        None if word.matches(':').count() > 1 => (word, None),
        None => word.split_once(':').map_or((word, None), |(address, port)| (address, Some(port))),
    };
    family.see(addresses)?;
    let number = match number {
        Some(number) if !ports => {
            let what = format!("':{number}' is a port, which this protocol does not have");
            return Err(ParseError::new(what, "leave it out"));
        }
        number => number,
    };
    let step = step(words)?.unwrap_or(1);
    let stepped = |key: Key, text| -> Result<Values, ParseError> {
        let values = values((Key::name(key), Key::kind(key)), text, random)?;
        let walks = values.parts.iter().any(|(first, last)| first != last);
        Ok(Values { step: if walks { step } else { 1 }, ..values })
    };
    put(spec, address, stepped(address, addresses)?)?;
    number.map_or(Ok(()), |number| put(spec, port, stepped(port, number)?))
}

/// Parses `step N`, if present.
fn step(words: &mut Words<'_>) -> Result<Option<u64>, ParseError> {
    if words.peek() != Some("step") {
        return Ok(None);
    }
    words.next();
    let text = words.value("step")?;
    let step = text.parse().ok().filter(|step| *step > 0);
    step.map(Some).ok_or_else(|| ParseError::new(format!("'{text}' is not a step"), "write a whole number from 1"))
}

fn put(spec: &mut StreamSpec, key: Key, values: Values) -> Result<(), ParseError> {
    if spec.fields.iter().any(|(name, _)| *name == key) {
        return Err(ParseError::new(format!("'{}' is given twice", key.name()), "leave one out"));
    }
    spec.fields.push((key, values));
    Ok(())
}

/// Keys that are not fields.
pub const STREAM_KEYS: &[engine::Kind] = &[
    engine::Kind {
        name: "size",
        grammar: "size 64B|64B-1518B|64B,1518B|random 64B-1518B|MIX|genome WORD|(LAW)",
        summary: "bytes of a frame, FCS included",
        example: "size random 64B-1518B",
    },
    engine::Kind {
        name: "payload",
        grammar: "payload zeros|increment|random [each]|0xHEX|text \"TEXT\"",
        summary: "bytes after the headers",
        example: "payload random each",
    },
    engine::Kind {
        name: "weight",
        grammar: "weight N",
        summary: "share of the frames, relative to the other streams",
        example: "weight 3",
    },
    engine::Kind {
        name: "stamp",
        grammar: "stamp on|off",
        summary: "stream, number and time of departure in each frame",
        example: "stamp off",
    },
];

fn is_own_key(word: &str) -> bool {
    STREAM_KEYS.iter().any(|key| key.name == word)
}

/// Parses keys of the whole stream after a tunnel.
fn own_pairs<'w>(words: &mut Words<'w>, spec: &mut StreamSpec, seen: &mut Vec<&'w str>) -> Result<(), ParseError> {
    match words.peek() {
        Some(word) if is_own_key(word) => pairs(words, spec, &mut Family::default(), seen),
        _ => Ok(()),
    }
}

/// A tunnel: a protocol with its fields, and addresses for IP and UDP.
fn tunnel(words: &mut Words<'_>) -> Result<Tunnel, ParseError> {
    let how = "write in vxlan vni 7 in udp 192.0.2.1 > 192.0.2.2; 'netlathe help layers' lists protocols";
    let word = words.next().ok_or_else(|| ParseError::new("'in' has no tunnel after it", how))?;
    if word == "hex" {
        let text = words.value("hex")?;
        let bytes = hex(&text.strip_prefix("0x").unwrap_or(text).replace(':', "")).ok_or_else(|| {
            ParseError::new(format!("'{text}' is not whole bytes in hex"), "write in hex de:ad:be:ef")
        })?;
        return Ok(Tunnel { layers: Vec::new(), fields: Vec::new(), bytes });
    }
    let Some(kind) = LayerKind::named(word) else {
        let names: Vec<&str> = LayerKind::ALL.iter().map(|kind| kind.name()).collect();
        let how = nearest(word, &names).map_or_else(|| how.to_owned(), |name| format!("write in {name}"));
        return Err(ParseError::new(format!("'{word}' is not a tunnel"), how));
    };
    let is_ip = matches!(kind, LayerKind::Ipv4 | LayerKind::Ipv6);
    let has_ports = matches!(kind, LayerKind::Udp | LayerKind::Sctp);
    // Addresses are read like fields of the stream.
    let mut ends = StreamSpec::made(Protocol::Udp, false);
    let mut family = Family::default();
    let has_ends = words.peek().is_some_and(|word| word == "random" || word.contains(['.', ':', '[']));
    if (is_ip || has_ports) && has_ends {
        endpoint(words, &mut ends, (Key::Source, Key::Sport), has_ports, &mut family)?;
        if words.next() != Some(">") {
            return Err(ParseError::new(
                format!("the other end of '{word}' is missing"),
                "write in udp 192.0.2.1 > 192.0.2.2",
            ));
        }
        endpoint(words, &mut ends, (Key::Destination, Key::Dport), has_ports, &mut family)?;
    }
    let mut given: Vec<(String, Values, bool)> = ends
        .fields
        .drain(..)
        .map(|(key, values)| (key.name().to_owned(), values, key.kind() == Kind::Address))
        .collect();
    let ip = |family: &Family| if family.is_v6 == Some(true) { LayerKind::Ipv6 } else { LayerKind::Ipv4 };
    let parts = |family: &Family| match kind {
        LayerKind::Udp => vec![ip(family), LayerKind::Udp],
        // `sctp` also accepts addresses, or is carried by an `in ip`.
        LayerKind::Sctp if family.is_v6.is_some() => vec![ip(family), LayerKind::Sctp],
        // `in ip` accepts addresses of either version.
        LayerKind::Ipv4 | LayerKind::Ipv6 if family.is_v6.is_some() => vec![ip(family)],
        _ => vec![kind],
    };
    while let Some(name) = words.peek().filter(|word| *word != "in") {
        // IPv4 and IPv6 share most fields.
        let candidates: &[LayerKind] =
            if is_ip || has_ports { &[kind, LayerKind::Ipv4, LayerKind::Ipv6] } else { &[kind] };
        let Some(field) = candidates.iter().find_map(|kind| kind.field(name)) else {
            if is_own_key(name) {
                break;
            }
            let mut names: Vec<&str> = Vec::new();
            for field in candidates.iter().flat_map(|kind| kind.description().fields) {
                if !names.contains(&field.name) {
                    names.push(field.name);
                }
            }
            let how = match nearest(name, &names) {
                _ if LayerKind::Ethernet.field(name).is_some() => {
                    format!("write {name} before the first 'in', or in eth {name} VALUE for the outer header")
                }
                Some(name) => format!("write {name}"),
                None => format!("write one of {}", names.join(", ")),
            };
            return Err(ParseError::new(format!("{} has no field '{name}'", kind.name()), how));
        };
        words.next();
        let random = words.peek() == Some("random");
        if random {
            words.next();
        }
        let text = words.value(name)?;
        if field.kind == Kind::Address {
            family.see(text)?;
        }
        let mut values = values((field.name, field.kind), text, random)?;
        values.step = step(words)?.unwrap_or(1);
        given.push((name.to_owned(), values, false));
    }
    let layers = parts(&family);
    let mut fields: Vec<(LayerKind, &'static str, Values)> = Vec::new();
    for (name, values, _) in given {
        let owner = layers.iter().rev().find_map(|kind| Some((*kind, kind.field(&name)?)));
        let Some((owner, field)) = owner else {
            return Err(ParseError::new(format!("{} has no field '{name}'", layers[0].name()), "leave it out"));
        };
        if fields.iter().any(|(_, other, _)| *other == field.name) {
            return Err(ParseError::new(format!("'{name}' is given twice"), "leave one out"));
        }
        fields.push((owner, field.name, values));
    }
    let has = |name: &str| fields.iter().any(|(_, field, _)| *field == name);
    if (is_ip || kind == LayerKind::Udp) && !(has("src") && has("dst")) {
        return Err(ParseError::new(
            format!("the tunnel 'in {word}' has no addresses"),
            format!("write in {word} 192.0.2.1 > 192.0.2.2"),
        ));
    }
    Ok(Tunnel { layers, fields, bytes: Vec::new() })
}

fn pairs<'w>(
    words: &mut Words<'w>,
    spec: &mut StreamSpec,
    family: &mut Family,
    seen: &mut Vec<&'w str>,
) -> Result<(), ParseError> {
    while let Some(word) = words.peek().filter(|word| *word != "in") {
        words.next();
        if seen.contains(&word) {
            return Err(ParseError::new(format!("'{word}' is given twice"), "leave one out"));
        }
        seen.push(word);
        match word {
            "size" => {
                let rest: Vec<&str> = words.rest().iter().map(String::as_str).collect();
                let (size, used) = SizeSpec::parse(&rest)?;
                spec.size = Some(size);
                words.skip(used);
            }
            "payload" => spec.payload = Some(payload(words)?),
            "weight" => {
                let text = words.value(word)?;
                let weight = text.parse().ok().filter(|weight| (1..=1_000_000).contains(weight));
                spec.weight =
                    weight.ok_or_else(|| ParseError::new(format!("'{text}' is not a weight"), "write 1 to 1000000"))?;
            }
            "stamp" => {
                spec.stamp = match words.value(word)? {
                    "on" => Some(true),
                    "off" => Some(false),
                    other => {
                        return Err(ParseError::new(format!("'{other}' is not a choice for stamp"), "write on or off"));
                    }
                };
            }
            _ => {
                // Names of the same field in other tools.
                let name = match word {
                    "hop-limit" => "ttl",
                    "seq-number" => "seq",
                    other => other,
                };
                let key = Key::named(name).ok_or_else(|| unknown(word))?;
                let random = words.peek() == Some("random");
                if random {
                    words.next();
                }
                let text = words.value(word)?;
                if key.kind() == Kind::Address {
                    family.see(text)?;
                }
                let mut values = values((key.name(), key.kind()), text, random)?;
                values.step = step(words)?.unwrap_or(1);
                put(spec, key, values)?;
            }
        }
    }
    Ok(())
}

fn unknown(word: &str) -> ParseError {
    let names: Vec<&str> =
        Key::ALL.iter().map(|key| key.name()).chain(STREAM_KEYS.iter().map(|key| key.name)).collect();
    let what = format!("'{word}' is not a key of a stream");
    // Names from other tools, and settings that belong to all streams together.
    let lower = word.to_ascii_lowercase().replace('_', "-");
    let how = match lower.as_str() {
        "len" | "length" | "pkt-size" | "pktsize" | "frame-size" => "write size 64B, which counts the FCS",
        "dst-mac" | "dstmac" | "mac-dst" => "write dmac",
        "src-mac" | "srcmac" | "mac-src" => "write smac",
        "mac" => "write dmac or smac",
        "sip" | "src-ip" | "saddr" => "write src",
        "dip" | "dst-ip" | "daddr" => "write dst",
        "src-port" => "write sport",
        "dst-port" => "write dport",
        "tos" | "traffic-class" | "tc" => "write dscp 46 and ecn 0, its two parts",
        "cos" | "prio" => "write pcp",
        "vid" => "write vlan",
        "qinq" | "qinqids" => "write svlan 7 vlan 5",
        "hlim" | "hop-limits" => "write ttl",
        "pattern" | "data" => "write payload text \"GET /\"",
        "mpls" | "gre" | "vxlan" | "gtpu" | "geneve" | "pppoe" => "write 'in' before the tunnel",
        "rate" | "pps" | "bps" | "mbps" | "percentage" => {
            "write --rate 1.2Mpps beside the streams, which share it by their weight"
        }
        "gap" | "ipg" | "isg" => "write --gap 10us beside the streams, which share it by their weight",
        "count" | "total-pkts" => "write --count N beside the streams, which share it by their weight",
        _ => "",
    };
    if !how.is_empty() {
        return ParseError::new(what, how);
    }
    match nearest(word, &names) {
        Some(name) => ParseError::new(what, format!("write {name}")),
        None => ParseError::new(what, format!("write one of {}", names.join(", "))),
    }
}

fn payload(words: &mut Words<'_>) -> Result<Payload, ParseError> {
    let how = "write zeros, increment, random, random each, 0x and hex digits, or text \"GET /\"";
    let word = words.value("payload")?;
    Ok(match word {
        "zeros" => Payload::Zeros,
        "increment" => Payload::Increment,
        "random" if words.peek() == Some("each") => {
            let _ = words.next();
            Payload::RandomEach
        }
        "random" => Payload::Random,
        "text" => {
            let text = words.value("text")?;
            if text.is_empty() {
                return Err(ParseError::new("the payload's text is empty", how));
            }
            Payload::Bytes(text.as_bytes().to_vec())
        }
        _ => {
            let bytes = word.strip_prefix("0x").and_then(hex);
            Payload::Bytes(bytes.ok_or_else(|| ParseError::new(format!("'{word}' is not a payload"), how))?)
        }
    })
}

/// Parses a value, `a-b`, `a..b` (drawn), a prefix, or a list of these. A walked range may descend.
fn values((name, kind): (&str, Kind), text: &str, random: bool) -> Result<Values, ParseError> {
    let mut drawn = random;
    let mut parts = Vec::new();
    for part in text.split(',') {
        let (first, last) = if let Some(prefix) = part.split_once('/').filter(|_| kind == Kind::Address) {
            self::prefix(prefix)?
        } else if let Some((first, last)) = part.split_once("..") {
            drawn = true;
            (kind.parse(name, first)?, kind.parse(name, last)?)
        } else if let Some((first, last)) = part.split_once('-') {
            (kind.parse(name, first)?, kind.parse(name, last)?)
        } else {
            let value = kind.parse(name, part)?;
            (value, value)
        };
        parts.push((first, last));
    }
    if drawn {
        for (first, last) in &mut parts {
            (*first, *last) = (*first.min(last), *first.max(last));
        }
    }
    Ok(Values { parts, step: 1, random: drawn })
}

/// The first and last address of `10.0.0.0/24`.
fn prefix((address, length): (&str, &str)) -> Result<(u128, u128), ParseError> {
    let bits = if address.contains(':') { 128 } else { 32 };
    let first = Kind::Address.parse("address", address)?;
    let length = length.parse().ok().filter(|length: &u32| *length <= bits && length.to_string().len() <= 3);
    let length = length.ok_or_else(|| {
        ParseError::new(format!("'{address}' has an invalid prefix length"), format!("write /0 to /{bits}"))
    })?;
    let host = u128::MAX.checked_shr(128 - bits + length).unwrap_or(0);
    let all = if bits == 32 { u128::from(u32::MAX) } else { u128::MAX };
    let host = host & (all.checked_shr(length).unwrap_or(0));
    if first & host != 0 {
        return Err(ParseError::new(
            format!("'{address}/{length}' has bits beyond its prefix"),
            "write the first address, as 10.0.0.0/24",
        ));
    }
    Ok((first, first | host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::FrameLen;

    fn spec(text: &str) -> StreamSpec {
        parse_stream(text).expect(text)
    }

    fn field(text: &str, key: Key) -> Values {
        let found = spec(text).fields.into_iter().find(|(name, _)| *name == key);
        found.expect("the field").1
    }

    #[test]
    fn parses_the_example_of_the_docs() {
        let spec = spec("udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B");
        assert_eq!(spec.fields[0], (Key::Source, Values::fixed(0x0a00_0001)));
        assert_eq!(spec.fields[1], (Key::Sport, Values::fixed(1000)));
        assert_eq!(spec.size, Some(SizeSpec::Uniform(FrameLen::MIN, FrameLen::MAX_STANDARD)));
    }

    #[test]
    fn parses_values_of_all_kinds() {
        let text = "udp random 10.1.0.1-10.1.0.9:1000>10.2.0.1-10.2.0.16:53 ttl 9 size imix dmac 02:aa:00:00:00:01";
        let range = |first, last, random| Values { parts: vec![(first, last)], step: 1, random };
        assert_eq!(field(text, Key::Source), range(0x0a01_0001, 0x0a01_0009, true));
        assert_eq!(field(text, Key::Destination), range(0x0a02_0001, 0x0a02_0010, false));
        assert_eq!(field(text, Key::Ttl), Values::fixed(9));
        let text =
            "tcp src 10.0.0.0/30 dst 10.0.0.9 sport 1000-2000 step 10 dport 80,443,8000-8010 seq 1..9 flags SA,A";
        assert_eq!(field(text, Key::Source), range(0x0a00_0000, 0x0a00_0003, false));
        assert_eq!(field(text, Key::Sport), Values { parts: vec![(1000, 2000)], step: 10, random: false });
        assert_eq!(field(text, Key::Dport).parts, [(80, 80), (443, 443), (8000, 8010)]);
        assert!(field(text, Key::Seq).random && !field(text, Key::Dport).random);
        assert_eq!(field(text, Key::Flags).parts, [(0x12, 0x12), (0x10, 0x10)]);
    }

    #[test]
    fn parses_ipv6_with_and_without_brackets() {
        let udp = spec("udp [2001:db8::1-2001:db8::ff]:1000 > [2001:db8:1::1]:53 flow-label 5 hop-limit 3");
        assert!(udp.is_v6());
        assert_eq!(udp.fields[0].1.parts[0].1 & 0xffff, 0xff);
        assert!(spec("icmp fe80::1 > fe80::2").is_v6());
        assert_eq!(field("ip 2001:db8::/64 > ::1 proto 89", Key::Source).parts[0].1 as u64, u64::MAX);
    }

    #[test]
    fn streams_survive_printing_and_parsing() {
        for text in [
            "udp 10.0.0.1:1000 > 10.0.0.2:2000",
            "tcp random 10.0.0.1-10.0.0.9:1-9 > 10.0.0.10:80 size 64B",
            "tcp [::2]:80,81-90 > [::1]:80 flags syn+ack seq random 1-5 size genome bbAz A=590B z=1500B weight 3",
            "icmp 10.0.0.1 > 10.0.0.2 type 8 icmp-seq 1-100 step 7 size 64B:7,1518B:1 stamp off",
            "arp 10.0.0.1 > 10.0.0.2 op 2 sha 02:00:00:00:00:09 vlan 5 pcp 3 svlan 7-9",
            "eth ethertype 0x88b5 smac 02:00:00:00:00:01-02:00:00:00:00:ff payload text \"a b\"",
            "udp 10.0.0.1:1-9 > 10.0.0.2:2 in vxlan vni 7-9 in udp 192.0.2.1:100-200 > 192.0.2.2 size 200B",
            "tcp [::2]:80 > [::1]:80 in gre key 5 in ip 2001:db8::1 > 2001:db8::2 ttl 9 weight 2",
            "udp 10.0.0.1:1 > 10.0.0.2:2 vlan 5 in mpls label 9-1 in mpls label random 16-20 tc 3",
            "icmp 10.0.0.1 > 10.0.0.2 in pppoe session 1-100 step 3 in vlan id 7 in vlan id 100-199",
            "udp 10.0.0.1:1 > 10.0.0.2:2 in gtpu teid 5 qfi 9 in udp 192.0.2.1 > 192.0.2.2 dscp ef stamp off",
            "hex ffffffffffff02000000000188b5 size 100B payload 0xdeadbeef stamp on",
            "pcap \"a b.pcap\" frame 7 dscp af41 payload random",
            "udp 10.0.0.1:1 > 10.0.0.2:2 size 1518B payload random each weight 2",
            "udp 10.0.0.1:1 > 10.0.0.2:2 size (normal mean 500B sd 100B clip 64B..1518B) payload increment",
        ] {
            let first = spec(text);
            let printed = first.to_string();
            assert_eq!(parse_stream(&printed).as_ref(), Ok(&first), "{printed}");
        }
    }

    #[test]
    fn errors_of_bad_streams_name_the_expected_word() {
        for (text, word) in [
            ("", "missing"),
            ("udp", "no "),
            ("foo", "not a protocol"),
            ("udp 10.0.0.1:1", "destination"),
            ("udp 10.0.0.1:1 10.0.0.2:2", "'>'"),
            ("udp 10.0.0.1 > 10.0.0.2", "port"),
            ("udp 10.0.0.256:1 > 10.0.0.2:2", "10.0.0.256"),
            ("udp 10.0.0.1:70000 > 10.0.0.2:2", "70000"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 size", "size"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 size 64", "no unit"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 sice 64B", "size"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 ttl 256", "ttl"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 flags S", "'flags'"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 flow-label 1", "'udp' over IPv4"),
            ("udp 10.0.0.1:1 > [::1]:2", "another IP version"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 ttl 1 ttl 2", "twice"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 src 10.0.0.1", "twice"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 sport 1-9 step 0", "step"),
            ("udp [::1]:1 > [::2]:2 size 64B", "room for 62 B"),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 size 64B stamp on", "size 76B"),
            ("icmp 10.0.0.1:1 > 10.0.0.2", "port"),
            ("eth src 10.0.0.1", "'eth'"),
            ("udp 10.0.0.1/24:1 > 10.0.0.2:2", "beyond its prefix"),
            ("udp 10.0.0.0/33:1 > 10.0.0.2:2", "/32"),
            ("hex 12", "not a frame"),
            ("hex ffffffffffff02000000000188b5 dport 5", "'dport'"),
            ("pcap a.pcap frame 0", "not a frame"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 payload \"x", "quote"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 payload x", "payload"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 weight 0", "weight"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 stamp maybe", "stamp"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in", "no tunnel after it"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in vxlam", "in vxlan"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in vxlan vnl 7", "write vni"),
            (
                "udp 10.0.0.1:1 > 10.0.0.2:2 in ip 1.2.3.4 > 5.6.7.8 smac 02:00:00:00:00:07",
                "smac before the first 'in'",
            ),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in vxlan", "eth does not carry vxlan"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in vxlan vni 7 in udp", "no addresses"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in ip 192.0.2.1", "other end"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in ip 192.0.2.1 > ::1", "another IP version"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in mpls label 1 label 2", "twice"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in mpls label 1048576", "0 to 1048575"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in esp spi 5 in ip 192.0.2.1 > 192.0.2.2", "does not carry"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 vxlan", "'in' before"),
            ("hex ffffffffffff02000000000188b5 in mpls label 5", "given frame"),
            ("vxlan vni 7", "inner packet first"),
            ("udp 10.0.0.1:1 > 10.0.0.2:2 in gre in ip 192.0.2.1 > 192.0.2.2 size 64B", "room"),
        ] {
            let error = parse_stream(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
            assert!(["write", "leave", "add"].iter().any(|remedy| error.contains(remedy)), "{text}: {error}");
        }
    }

    #[test]
    fn stamps_frames_that_have_room() {
        for (text, bytes) in [
            ("udp 10.0.0.1:1 > 10.0.0.2:2", None),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 size 64B", None),
            ("tcp 10.0.0.1:1 > 10.0.0.2:2 size 76B stamp on", Some(true)),
        ] {
            assert_eq!(spec(text).stamp, bytes, "{text}");
        }
    }
}
