//! Values of a field over the frames of a flow.

use crate::reader::{Node, Object, Problem, Read};

/// The syntax and the width of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A number with this width in bits, at most 32.
    Bits(u16),
    Mac,
    Ipv4,
    Ipv6,
}

impl Kind {
    /// Width in bits.
    pub(crate) fn width(self) -> u16 {
        match self {
            Kind::Bits(width) => width,
            Kind::Mac => 48,
            Kind::Ipv4 => 32,
            Kind::Ipv6 => 128,
        }
    }

    /// The largest value.
    fn most(self) -> u128 {
        u128::MAX >> (128 - self.width())
    }

    fn read(self, node: &Node<'_>) -> Read<u128> {
        Ok(match self {
            Kind::Bits(_) => node.integer(0, self.most() as u64)?.into(),
            Kind::Mac => node.mac()?.0.iter().fold(0, |all, byte| all << 8 | u128::from(*byte)),
            Kind::Ipv4 => u128::from(node.ipv4()?.to_bits()),
            Kind::Ipv6 => node.ipv6()?.to_bits(),
        })
    }
}

/// The values of a field as a function of the frame number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Value(u128),
    Values(Vec<u128>),
    /// `count` values from `start` in steps, repeatedly. Values that exceed the width wrap around.
    Steps {
        start: u128,
        step: u128,
        count: u64,
        down: bool,
        most: u128,
    },
    /// `count` values between `least` and `most`, which depend only on the seed.
    Random {
        least: u128,
        most: u128,
        seed: u64,
        count: u64,
    },
}

impl Pattern {
    /// The value in frame number `n`, from 0.
    pub(crate) fn at(&self, n: u64) -> u128 {
        match self {
            Pattern::Value(value) => *value,
            Pattern::Values(values) => values[(n % values.len() as u64) as usize],
            Pattern::Steps { start, step, count, down, most } => {
                let way = step.wrapping_mul((n % count).into());
                let value = if *down { start.wrapping_sub(way) } else { start.wrapping_add(way) };
                value & most
            }
            Pattern::Random { least, most, seed, count } => {
                let drawn = u128::from(mixed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n % count)));
                least + ((drawn * (most - least + 1)) >> 64)
            }
        }
    }

    /// Whether some frame may have this value. Random values may be any in their range.
    pub(crate) fn may_be(&self, value: u128) -> bool {
        match self {
            Pattern::Value(only) => *only == value,
            Pattern::Values(values) => values.contains(&value),
            Pattern::Steps { start, step, count, down, most } => {
                let way = if *down { start.wrapping_sub(value) } else { value.wrapping_sub(*start) } & most;
                match way.checked_div(*step) {
                    None => way == 0,
                    // A walk that wraps around may also reach the value in another round.
                    Some(_) if step.checked_mul((*count).into()).is_none_or(|all| all > *most) => true,
                    Some(steps) => way.is_multiple_of(*step) && steps < (*count).into(),
                }
            }
            Pattern::Random { least, most, .. } => (least..=most).contains(&&value),
        }
    }

    /// Whether two fields at the same position never have the same value. False if this would take long to compute.
    pub(crate) fn is_apart(&self, other: &Pattern) -> bool {
        let few = |pattern: &Pattern| {
            match pattern {
                Pattern::Value(_) => Some(1),
                Pattern::Values(values) => Some(values.len() as u64),
                Pattern::Steps { count, .. } | Pattern::Random { count, .. } => Some(*count),
            }
            .filter(|count| *count <= 4_096)
        };
        let apart = |few: u64, one: &Pattern, other: &Pattern| (0..few).all(|n| !other.may_be(one.at(n)));
        match (few(self), few(other)) {
            (Some(count), _) => apart(count, self, other),
            (None, Some(count)) => apart(count, other, self),
            (None, None) => false,
        }
    }

    /// Whether the value is the same in all frames.
    pub(crate) fn is_constant(&self) -> bool {
        match self {
            Pattern::Value(_) => true,
            Pattern::Values(values) => values.len() == 1,
            Pattern::Steps { count, .. } | Pattern::Random { count, .. } => *count == 1,
        }
    }
}

/// 64 pseudo-random bits from a number: SplitMix64.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Part of a field by which metrics are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: String,
    /// Offset in bits from the start of the frame.
    pub(crate) at: usize,
    /// Length in bits.
    pub(crate) length: usize,
}

/// The configured values of a field.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// `None` if the next header or the device sets the field.
    pub(crate) pattern: Option<Pattern>,
    /// Tags, with offsets from the start of the field.
    pub(crate) tags: Vec<Tag>,
}

/// Parses a field. With `automatic`, the field defaults to `auto`; otherwise to `default`.
pub(crate) fn read(node: &Node<'_>, kind: Kind, default: u128, automatic: bool) -> Read<Asked> {
    const CHOICES: [&str; 6] = ["value", "values", "increment", "decrement", "random", "auto"];
    let mut object = node.object()?;
    let words: &[&str] = if automatic { &CHOICES } else { &CHOICES[..5] };
    let choice = object.choice(words, Some(if automatic { "auto" } else { "value" }))?;
    let chosen = object.get(choice);
    let pattern = match (choice, &chosen) {
        ("auto", Some(value)) => {
            // Clients may send the value that they expect. It has no effect, but must be valid.
            kind.read(value)?;
            None
        }
        ("auto", None) => None,
        ("value", None) => Some(Pattern::Value(default)),
        ("value", Some(value)) => Some(Pattern::Value(kind.read(value)?)),
        ("values", Some(list)) => {
            let values = list.list()?.iter().map(|item| kind.read(item)).collect::<Read<Vec<u128>>>()?;
            if values.is_empty() {
                return list.wrong("the list has no values");
            }
            Some(Pattern::Values(values))
        }
        ("values", None) => Some(Pattern::Value(default)),
        ("random", chosen) => Some(random(chosen.as_ref(), kind)?),
        (direction, chosen) => Some(steps(chosen.as_ref(), kind, default, direction == "decrement")?),
    };
    let tags = tags(&mut object, usize::from(kind.width()))?;
    object.finish()?;
    Ok(Asked { pattern, tags })
}

fn steps(node: Option<&Node<'_>>, kind: Kind, default: u128, down: bool) -> Read<Pattern> {
    let (mut start, mut step, mut count) = (default, 1, 1);
    if let Some(node) = node {
        let mut object = node.object()?;
        if let Some(node) = object.get("start") {
            start = kind.read(&node)?;
        }
        if let Some(node) = object.get("step") {
            step = kind.read(&node)?;
        }
        if let Some(node) = object.get("count") {
            count = node.integer(1, u32::MAX.into())?;
        }
        object.finish()?;
    }
    Ok(Pattern::Steps { start, step, count, down, most: kind.most() })
}

fn random(node: Option<&Node<'_>>, kind: Kind) -> Read<Pattern> {
    let (mut least, mut most, mut seed, mut count) = (0, kind.most(), 1, 1);
    if let Some(node) = node {
        let mut object = node.object()?;
        if let Some(node) = object.get("min") {
            least = kind.read(&node)?;
        }
        if let Some(node) = object.get("max") {
            most = kind.read(&node)?;
        }
        if let Some(node) = object.get("seed") {
            seed = node.integer(0, u32::MAX.into())?;
        }
        if let Some(node) = object.get("count") {
            count = node.integer(1, u32::MAX.into())?;
        }
        object.finish()?;
        if least > most {
            return node.wrong("min is above max");
        }
    }
    if kind.width() > 64 {
        let path = node.map_or("", |node| node.path.as_str());
        return Err(Problem::new(path, "random values of 128 bits are not served"));
    }
    Ok(Pattern::Random { least, most, seed, count })
}

/// Reads the tags of a field that is `width` bits wide.
pub(crate) fn tags(object: &mut Object<'_>, width: usize) -> Read<Vec<Tag>> {
    let mut tags = Vec::new();
    for node in object.items("metric_tags")? {
        let mut tag = node.object()?;
        let name = tag.required("name")?.name()?;
        let at = tag.get("offset").map_or(Ok(0), |node| node.integer(0, width as u64 - 1))? as usize;
        let length = tag.get("length").map_or(Ok(width as u64), |node| node.integer(1, width as u64))? as usize;
        tag.finish()?;
        if at + length > width {
            return node.wrong(format!("bits {at} to {} are not in a field of {width} bits", at + length - 1));
        }
        tags.push(Tag { name, at, length });
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn values(value: &Value, kind: Kind, frames: u64) -> Vec<u128> {
        let asked = read(&Node::root(value), kind, 7, false).expect("a pattern");
        let pattern = asked.pattern.expect("it has values");
        (0..frames).map(|n| pattern.at(n)).collect()
    }

    #[test]
    fn every_pattern_has_the_values_that_it_says() {
        let bits = Kind::Bits(16);
        assert_eq!(values(&json!({}), bits, 2), [7, 7]);
        assert_eq!(values(&json!({ "values": [1, 2, 3] }), bits, 4), [1, 2, 3, 1]);
        let up = json!({ "choice": "increment", "increment": { "start": 65534, "step": 1, "count": 3 } });
        assert_eq!(values(&up, bits, 4), [65534, 65535, 0, 65534]);
        let down = json!({ "decrement": { "start": 1, "step": 2, "count": 3 } });
        assert_eq!(values(&down, bits, 4), [1, 65535, 65533, 1]);
        let mac = json!({ "increment": { "start": "00:00:00:00:00:ff", "step": "00:00:00:00:00:01", "count": 2 } });
        assert_eq!(values(&mac, Kind::Mac, 2), [255, 256]);
        let address = json!({ "value": "10.0.0.1" });
        assert_eq!(values(&address, Kind::Ipv4, 1), [0x0a00_0001]);
    }

    #[test]
    fn values_that_may_be_are_those_of_frames() {
        let bits = Kind::Bits(8);
        for value in [
            json!({ "value": 9 }),
            json!({ "values": [1, 5, 250] }),
            json!({ "increment": { "start": 250, "step": 3, "count": 4 } }),
            json!({ "decrement": { "start": 4, "step": 5, "count": 3 } }),
            json!({ "increment": { "start": 4, "step": 0, "count": 3 } }),
        ] {
            let asked = read(&Node::root(&value), bits, 7, false).expect("a pattern");
            let pattern = asked.pattern.expect("it has values");
            let has = values(&value, bits, 20);
            for one in 0..=255 {
                assert_eq!(pattern.may_be(one), has.contains(&one), "{one} of {value}");
            }
            assert!(!pattern.is_apart(&pattern) && pattern.is_apart(&Pattern::Value(100)), "{value}");
        }
    }

    #[test]
    fn random_values_are_in_range_differ_and_repeat_with_the_seed() {
        let asked = |seed: u32| json!({ "random": { "min": 100, "max": 199, "seed": seed, "count": 50 } });
        let first = values(&asked(1), Kind::Bits(16), 100);
        assert!(first.iter().all(|value| (100..=199).contains(value)));
        assert_eq!(first[..50], first[50..], "50 values, then the same");
        assert_eq!(first, values(&asked(1), Kind::Bits(16), 100));
        assert_ne!(first, values(&asked(2), Kind::Bits(16), 100));
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() > 20, "{distinct:?}");
    }

    #[test]
    fn bad_patterns_are_refused_with_their_path() {
        for (value, path) in [
            (json!({ "value": 65536 }), "value"),
            (json!({ "values": [] }), "values"),
            (json!({ "values": [1, "x"] }), "values[1]"),
            (json!({ "increment": { "count": 0 } }), "increment.count"),
            (json!({ "increment": { "stop": 1 } }), "increment.stop"),
            (json!({ "random": { "min": 5, "max": 4 } }), "random"),
            (json!({ "choice": "auto" }), "choice"),
            (json!({ "metric_tags": [{ "name": "a", "offset": 8, "length": 9 }] }), "metric_tags[0]"),
        ] {
            let problem = read(&Node::root(&value), Kind::Bits(16), 0, false).expect_err("refused");
            assert_eq!(problem.path, path, "{problem}");
        }
    }
}
