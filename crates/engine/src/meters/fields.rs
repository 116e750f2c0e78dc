use super::Key;
use packet::Kind;
use packet::layers::{FieldPath, Layers};
use std::fmt;
use std::net::IpAddr;
use units::ParseError;

/// Maximum number of fields in a key.
const MOST: usize = 4;

/// Fields of any layers that together identify a user: `vlan.id+vlan#2.id`, `teid`, `inner.src`, `src/24,/56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFields {
    parts: [Option<Part>; MOST],
}

/// A field. For addresses, also the prefix lengths for IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    path: FieldPath,
    prefix: Option<(u8, u8)>,
}

/// A value of a part.
#[derive(Clone, Copy, Debug)]
struct Value {
    number: u128,
    width: u32,
}

/// Users with at most this many bits are stored exactly; longer ones are stored as a hash.
const EXACT: u32 = 120;

impl KeyFields {
    /// Reads `teid` or `vlan.id+vlan#2.id`.
    ///
    /// # Errors
    /// A field that does not exist, with its column.
    pub(super) fn parse(text: &str) -> Result<KeyFields, ParseError> {
        let mut parts = [None; MOST];
        let written: Vec<&str> = text.split('+').collect();
        if written.len() > MOST {
            return Err(ParseError::new(
                format!("'{text}' has {} fields", written.len()),
                format!("write {MOST} at most"),
            ));
        }
        for (number, name) in written.iter().enumerate() {
            let part = Part::parse(text, name)?;
            if let Some(same) = parts.iter().flatten().position(|known: &Part| known.path == part.path) {
                return Err(ParseError::new(
                    format!("'{}' and '{name}' are the same field", written[same]),
                    "write it once; a pair of tags is svlan+cvlan, and the second of two layers is vlan#2.id",
                ));
            }
            parts[number] = Some(part);
        }
        Ok(KeyFields { parts })
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().flatten()
    }

    /// The user of a frame; `None` if it lacks one of the fields.
    pub(super) fn key(&self, frame: &[u8]) -> Option<Key> {
        let layers = Layers::of(frame);
        let mut values = [Value { number: 0, width: 0 }; MOST];
        let mut count = 0;
        for part in self.parts() {
            values[count] = part.value(frame, &layers)?;
            count += 1;
        }
        Some(self.of_values(&values[..count]))
    }

    fn of_values(&self, values: &[Value]) -> Key {
        if let [value] = values {
            return match value.width {
                32 if self.has_addresses() => Key::of_bits(0xffff_0000_0000 | value.number),
                _ => Key::of_bits(value.number),
            };
        }
        if values.iter().map(|value| value.width).sum::<u32>() <= EXACT {
            let all = values.iter().fold(0, |all, value| all << value.width | value.number);
            return Key::of_bits(4 << EXACT | all);
        }
        // FNV-1a, 128 bits.
        let bytes = values.iter().flat_map(|value| value.number.to_be_bytes());
        let hash = bytes.fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        });
        Key::of_bits(6 << EXACT | hash >> 8)
    }

    fn has_addresses(&self) -> bool {
        self.parts().any(|part| part.path.kind() == Kind::Address)
    }

    /// Reads a user as [`show`](KeyFields::show) prints it: the values joined by `+`.
    pub(super) fn read(&self, text: &str) -> Result<Key, ParseError> {
        let written: Vec<&str> = text.split('+').collect();
        if written.len() != self.parts().count() {
            let how = format!("write a value for each of {self}, joined by +");
            return Err(ParseError::new(format!("'{text}' is not a value of key {self}"), how));
        }
        let values = self.parts().zip(written).map(|(part, text)| part.read(text));
        Ok(self.of_values(&values.collect::<Result<Vec<_>, _>>()?))
    }

    /// Prints a user, or its hash if its fields were too long to store.
    pub(super) fn show(&self, key: Key) -> String {
        let bits = key.bits();
        let parts: Vec<&Part> = self.parts().collect();
        if let [part] = parts[..] {
            let v4 = bits >> 32 == 0xffff;
            let width = if part.path.kind() == Kind::Address && v4 { 32 } else { u32::from(part.path.width()) };
            return part.show(bits & ones(width), width);
        }
        if bits >> EXACT != 4 {
            return format!("users-{:030x}", bits & ones(EXACT));
        }
        let mut rest = bits & ones(EXACT);
        let mut shown: Vec<String> = Vec::new();
        for part in parts.iter().rev() {
            let width = match part.path.kind() {
                Kind::Address => 32,
                _ => part.path.width().into(),
            };
            shown.push(part.show(rest & ones(width), width));
            rest >>= width;
        }
        shown.reverse();
        shown.join("+")
    }
}

const fn ones(width: u32) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

impl Part {
    fn parse(text: &str, written: &str) -> Result<Part, ParseError> {
        let (name, prefix) = match written.split_once('/') {
            Some((name, prefix)) => (name, Some(prefix)),
            None => (written, None),
        };
        let spaced = name.replace('.', " ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        // The names of the other keys are also fields.
        let words: Vec<&str> = words
            .iter()
            .flat_map(|word| match *word {
                "src-ip" | "src-prefix" => &["src"],
                "dst-ip" | "dst-prefix" => &["dst"],
                "src-mac" => &["smac"],
                "dst-mac" => &["dmac"],
                "svlan" => &["vlan", "id"][..],
                "cvlan" => &["vlan#2", "id"],
                word => std::slice::from_ref(words.iter().find(|other| **other == word).expect("one of them")),
            })
            .copied()
            .collect();
        let spaced = words.join(" ");
        let spaced = if spaced == "vlan" { "vlan id".to_owned() } else { spaced };
        let words: Vec<&str> = spaced.split(' ').filter(|word| !word.is_empty()).collect();
        let (path, used) = FieldPath::read(&spaced, &words)?;
        if used < words.len() {
            return Err(ParseError::new(format!("'{}' follows a field in '{text}'", words[used]), "join fields by +"));
        }
        let is_address = path.kind() == Kind::Address;
        let prefix = match prefix {
            None => None,
            Some(_) if !is_address => {
                return Err(ParseError::new(
                    format!("'{name}' is not an address, and has no prefix"),
                    format!("write {name}"),
                ));
            }
            Some(written) => Some(lengths(written).ok_or_else(|| {
                ParseError::new(
                    format!("'/{written}' is not a prefix"),
                    format!("write {name}/24, or {name}/24,/56 for IPv4 and IPv6"),
                )
            })?),
        };
        Ok(Part { path, prefix })
    }

    fn value(&self, frame: &[u8], layers: &Layers) -> Option<Value> {
        let (of, field) = self.path.find(frame, layers)?;
        let number = layers.all()[of].value(field, frame)?;
        let width = match self.path.kind() {
            Kind::Address => field.width(),
            _ => self.path.width(),
        };
        Some(Value { number: self.kept(number, width.into()), width: width.into() })
    }

    /// The bits of an address that belong to the key.
    fn kept(&self, number: u128, width: u32) -> u128 {
        let Some((v4, v6)) = self.prefix else { return number };
        let bits = u32::from(if width == 32 { v4.min(32) } else { v6 });
        number & !ones(width - bits)
    }

    fn read(&self, text: &str) -> Result<Value, ParseError> {
        let kind = self.path.kind();
        let (address, length) = match text.split_once('/') {
            Some((address, length)) if self.prefix.is_some() => (address, Some(length)),
            _ => (text, None),
        };
        let number = kind.parse(self.path.name(), address)?;
        let width = match kind {
            Kind::Address if address.contains(':') => 128,
            Kind::Address => 32,
            _ => self.path.width().into(),
        };
        if let Some((v4, v6)) = self.prefix {
            let bits = if width == 32 { v4.min(32) } else { v6 };
            if length != Some(bits.to_string().as_str()) || self.kept(number, width) != number {
                let how = format!("write a prefix of {bits} bits whose other bits are zero");
                return Err(ParseError::new(format!("'{text}' is not a value of key {self}"), how));
            }
        }
        Ok(Value { number, width })
    }

    fn show(&self, number: u128, width: u32) -> String {
        if self.path.kind() != Kind::Address {
            return Shown(self.path.kind(), number).to_string();
        }
        let ip =
            if width == 32 { IpAddr::from((number as u32).to_be_bytes()) } else { IpAddr::from(number.to_be_bytes()) };
        match self.prefix {
            None => ip.to_string(),
            Some((v4, v6)) => format!("{ip}/{}", if width == 32 { v4.min(32) } else { v6 }),
        }
    }
}

/// A value, printed in the form of its kind.
struct Shown(Kind, u128);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.print(f, self.1, false)
    }
}

/// `24` for both versions, or `24,/56` for IPv4 and IPv6.
fn lengths(text: &str) -> Option<(u8, u8)> {
    let bits = |text: &str| text.parse::<u8>().ok().filter(|bits| (1..=128).contains(bits));
    match text.split_once(",/") {
        Some((v4, v6)) => Some((bits(v4).filter(|bits| *bits <= 32)?, bits(v6)?)),
        None => bits(text).map(|bits| (bits, bits)),
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.to_string().replace(' ', "."))?;
        match self.prefix {
            None => Ok(()),
            Some((v4, v6)) if v4 == v6 => write!(f, "/{v4}"),
            Some((v4, v6)) => write!(f, "/{v4},/{v6}"),
        }
    }
}

impl fmt::Display for KeyFields {
    /// Prints one word that can be parsed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::KeyKind;
    use packet::layers::{FieldPath, LayerKind, Layers, stack, write_field};

    fn frame(kinds: &[LayerKind], fields: &[(&str, u128)]) -> Vec<u8> {
        let mut frame = stack(kinds, &[0; 8]).expect("a stack");
        let layers = Layers::of(&frame);
        for (path, value) in fields {
            let (path, _) = FieldPath::read(path, &path.split(' ').collect::<Vec<_>>()).expect("a path");
            let (of, field) = path.find(&frame, &layers).expect("a field");
            assert!(write_field(&mut frame, &layers, of, field, *value));
        }
        frame
    }

    #[test]
    fn users_by_fields_read_as_they_show() {
        use LayerKind::{Ethernet, Gtpu, Ipv4, Ipv6, Udp, Vlan, Vxlan};
        let v6 = 0x2001_0db8_0001_0203 << 64 | 7;
        let qinq =
            frame(&[Ethernet, Vlan, Vlan, Ipv4, Udp], &[("vlan id", 100), ("vlan#2 id", 7), ("src", 0x0a01_0203)]);
        let over_v6 = frame(&[Ethernet, Ipv6, Udp], &[("src", v6), ("smac", 0x0200_0000_0009)]);
        let gtp =
            frame(&[Ethernet, Ipv4, Udp, Gtpu, Ipv4, Udp], &[("teid", 9), ("src", 1), ("inner src", 0x0a00_0007)]);
        let vxlan = frame(&[Ethernet, Ipv4, Udp, Vxlan, Ethernet, Ipv6, Udp], &[("vni", 77), ("inner dst", v6)]);
        for (kind, printed, frame, user) in [
            ("svlan+cvlan", "vlan.id+vlan#2.id", &qinq, "100+7"),
            ("vlan#2 id", "vlan#2.id", &qinq, "7"),
            ("vlan+src-ip", "vlan.id+src", &qinq, "100+10.1.2.3"),
            ("src/24,/56", "src/24,/56", &qinq, "10.1.2.0/24"),
            ("src-prefix/24,/56", "src/24,/56", &over_v6, "2001:db8:1:200::/56"),
            ("smac", "smac", &over_v6, "02:00:00:00:00:09"),
            ("teid", "teid", &gtp, "9"),
            ("inner src-ip", "inner.src", &gtp, "10.0.0.7"),
            ("gtpu.teid+inner.src/8", "gtpu teid+inner src/8", &gtp, "9+10.0.0.0/8"),
            ("vni", "vni", &vxlan, "77"),
            ("inner.dst", "inner.dst", &vxlan, "2001:db8:1:203::7"),
        ] {
            let kind: KeyKind = kind.parse().expect(kind);
            assert_eq!(kind.to_string(), printed.replace(' ', "."));
            assert_eq!(kind.to_string().parse(), Ok(kind));
            let key = kind.of_frame(frame).expect(user);
            assert_eq!((kind.show(key).as_str(), kind.parse(user)), (user, Ok(key)), "{kind}");
        }
        let kind: KeyKind = "vni+inner.dst".parse().expect("a key");
        let key = kind.of_frame(&vxlan).expect("a user");
        assert!(kind.show(key).starts_with("users-"), "{}", kind.show(key));
        assert_eq!(kind.parse("77+2001:db8:1:203::7"), Ok(key), "by its hash");
        assert_eq!(kind.of_frame(&gtp), None, "no such field");
        for length in 0..gtp.len() {
            let _ = kind.of_frame(&gtp[..length]);
        }
    }

    #[test]
    fn bad_keys_say_how() {
        for (kind, how) in [
            ("tied", "'tied' is neither a field nor a protocol (column 1): write teid"),
            ("vxlan.vnl", "vxlan has no field 'vnl' (column 7): write vni"),
            ("teid/24", "'teid' is not an address, and has no prefix: write teid"),
            ("src/24,/129", "'/24,/129' is not a prefix: write src/24, or src/24,/56 for IPv4 and IPv6"),
            ("smac+dmac+src+dst+teid", "'smac+dmac+src+dst+teid' has 5 fields: write 4 at most"),
            ("src dst", "'dst' follows a field in 'src dst': join fields by +"),
            (
                "svlan+vlan",
                "'svlan' and 'vlan' are the same field: write it once; a pair of tags is svlan+cvlan, and the second of two layers is vlan#2.id",
            ),
        ] {
            let error = kind.parse::<KeyKind>().expect_err(kind).to_string();
            assert_eq!(error, format!("'{kind}' is not a key: {how}"));
        }
        let kind: KeyKind = "svlan+cvlan".parse().expect("a key");
        for user in ["100", "100+x", "100+7+8", "100+4096"] {
            assert!(kind.parse(user).is_err(), "{user}");
        }
        let kind: KeyKind = "src/24,/56".parse().expect("a key");
        for user in ["10.0.0.1/24", "10.0.0.0", "10.0.0.0/25", "2001:db8::/24"] {
            assert!(kind.parse(user).is_err(), "{user}");
        }
    }
}
