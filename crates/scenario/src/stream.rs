use engine::sources::{Field, SizeSpec, StreamSpec};
use packet::MacAddr;
use std::net::Ipv4Addr;
use units::{FrameLen, ParseError};

const HOW: &str = "write udp 10.0.0.1:1000 > 10.0.0.2:2000 size 64B";

/// The shortest frame that holds Ethernet, IPv4, UDP, the frame's number and FCS is 64 B anyway.
const PROTOCOLS_LATER: [&str; 4] = ["tcp", "icmp", "arp", "hex"];

/// Reads a stream: `udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B`.
///
/// Addresses and ports are a value, a range `a-b` that is walked in step, or `random a-b`. Then
/// `key value` pairs: `size`, `smac`, `dmac`, `ttl`.
///
/// # Errors
/// Anything that does not follow this grammar, with what was expected there.
pub fn parse_stream(text: &str) -> Result<StreamSpec, ParseError> {
    let spaced = text.replace('>', " > ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let bad = |what: String| ParseError::new(what, HOW);
    let mut rest = match words.split_first() {
        Some((&"udp", rest)) => rest,
        Some((word, _)) if PROTOCOLS_LATER.contains(word) => {
            return Err(bad(format!("this version does not make '{word}' streams")));
        }
        Some((word, _)) => return Err(bad(format!("'{word}' is no protocol"))),
        None => return Err(bad("a stream is missing".into())),
    };
    let source = endpoint(&mut rest)?;
    match rest.split_first() {
        Some((&">", after)) => rest = after,
        Some((word, _)) => return Err(bad(format!("'{word}' stands where '>' should"))),
        None => return Err(bad("the destination is missing".into())),
    }
    let destination = endpoint(&mut rest)?;

    let mut spec = StreamSpec {
        source,
        destination,
        size: SizeSpec::Fixed(FrameLen::MIN),
        macs: (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])),
        ttl: 64,
    };
    while let Some((key, values)) = rest.split_first() {
        let value = values.first().ok_or_else(|| bad(format!("'{key}' has no value")))?;
        let mut used = 1;
        match *key {
            "size" => (spec.size, used) = SizeSpec::parse(values)?,
            "smac" => spec.macs.0 = value.parse()?,
            "dmac" => spec.macs.1 = value.parse()?,
            "ttl" => {
                let ttl = value.parse().ok().filter(|ttl| *ttl > 0);
                spec.ttl = ttl.ok_or_else(|| ParseError::new(format!("'{value}' is no ttl"), "write 1 to 255"))?;
            }
            _ => {
                let known = "write size, smac, dmac or ttl, each with a value";
                return Err(ParseError::new(format!("'{key}' is no key of a stream"), known));
            }
        }
        rest = &values[used..];
    }
    Ok(spec)
}

/// `ADDRESS:PORT`, each a value or a range, the whole optionally behind `random`.
fn endpoint(rest: &mut &[&str]) -> Result<(Field, Field), ParseError> {
    let missing = || ParseError::new("an address and port are missing", HOW);
    let mut next = || {
        let (word, after) = rest.split_first().ok_or_else(missing)?;
        *rest = after;
        Ok::<&str, ParseError>(word)
    };
    let mut word = next()?;
    let random = word == "random";
    if random {
        word = next()?;
    }
    let (address, port) = word
        .rsplit_once(':')
        .ok_or_else(|| ParseError::new(format!("'{word}' is no address and port"), "write 10.0.0.1:1000"))?;
    let address = field(address, random, |text| {
        let parsed: Result<Ipv4Addr, _> = text.parse();
        parsed.map(u32::from).map_err(|_| ParseError::new(format!("'{text}' is no IPv4 address"), "write 10.0.0.1"))
    })?;
    let port = field(port, random, |text| {
        let parsed: Result<u16, _> = text.parse();
        parsed.map(u32::from).map_err(|_| ParseError::new(format!("'{text}' is no port"), "write 0 to 65535"))
    })?;
    Ok((address, port))
}

fn field(text: &str, random: bool, value: impl Fn(&str) -> Result<u32, ParseError>) -> Result<Field, ParseError> {
    let Some((first, last)) = text.split_once('-') else {
        return value(text).map(Field::fixed);
    };
    let (first, last) = (value(first)?, value(last)?);
    if first > last {
        return Err(ParseError::new(format!("'{text}' goes down"), "write the smaller value first"));
    }
    Ok(Field { first, last, random })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_docs() {
        let spec = parse_stream("udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B").expect("a stream");
        assert_eq!(spec.source, (Field::fixed(0x0a00_0001), Field::fixed(1000)));
        assert_eq!(spec.size, SizeSpec::Uniform(FrameLen::MIN, FrameLen::MAX_STANDARD));
    }

    #[test]
    fn ranges_and_keys_in_any_order() {
        let text = "udp random 10.1.0.1-10.1.0.9:1000>10.2.0.1-10.2.0.16:53 ttl 9 size imix dmac 02:aa:00:00:00:01";
        let spec = parse_stream(text).expect("a stream");
        assert_eq!(spec.source.0, Field { first: 0x0a01_0001, last: 0x0a01_0009, random: true });
        assert_eq!(spec.destination.0, Field { first: 0x0a02_0001, last: 0x0a02_0010, random: false });
        assert_eq!((spec.ttl, spec.macs.1), (9, MacAddr([2, 0xaa, 0, 0, 0, 1])));
    }

    #[test]
    fn bad_streams_say_what_was_expected() {
        for text in [
            "",
            "udp",
            "tcp 1.1.1.1:1 > 2.2.2.2:2",
            "foo",
            "udp 10.0.0.1:1",
            "udp 10.0.0.1:1 10.0.0.2:2",
            "udp 10.0.0.1 > 10.0.0.2",
            "udp 10.0.0.256:1 > 10.0.0.2:2",
            "udp 10.0.0.1:70000 > 10.0.0.2:2",
            "udp 10.0.0.9-10.0.0.1:1 > 10.0.0.2:2",
            "udp 10.0.0.1:1 > 10.0.0.2:2 size",
            "udp 10.0.0.1:1 > 10.0.0.2:2 size 64",
            "udp 10.0.0.1:1 > 10.0.0.2:2 sice 64B",
            "udp 10.0.0.1:1 > 10.0.0.2:2 ttl 0",
        ] {
            let error = parse_stream(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}
