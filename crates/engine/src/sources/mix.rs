use crate::random::Random;
use std::fmt;
use units::{FrameLen, ParseError};

/// A named mix of frame sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The name; never just "imix" for different things.
    pub name: &'static str,
    /// Frame sizes with FCS and how many of each are in a cycle.
    pub parts: &'static [(u32, u32)],
    /// Where it comes from.
    pub source: &'static str,
}

impl Mix {
    /// Every mix that has a name.
    pub const ALL: &'static [Mix] = &[
        Mix {
            name: "imix",
            parts: &[(64, 58), (594, 33), (1518, 9)],
            source: "the receiver study that netlathe's generator follows: 58 %, 33 %, 9 %",
        },
        Mix { name: "imix-7-4-1", parts: &[(64, 7), (594, 4), (1518, 1)], source: "the simple IMIX of tester vendors" },
        Mix { name: "imix-trex", parts: &[(64, 28), (594, 16), (1518, 4)], source: "TRex stl/imix.py, FCS added" },
        Mix { name: "imix-csit", parts: &[(64, 28), (570, 16), (1518, 4)], source: "FD.io CSIT" },
    ];
}

/// How frame sizes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeSpec {
    /// All the same: `64B`.
    Fixed(FrameLen),
    /// From the first to the last and again, a byte at a time: `64B-1518B`.
    Walk(FrameLen, FrameLen),
    /// Uniform integers: `random 64B-1518B` or `64B..1518B`.
    Uniform(FrameLen, FrameLen),
    /// A named mix; its shares are exact over each cycle.
    Mix(&'static Mix),
}

impl SizeSpec {
    /// Reads the words after `size`; returns the value and how many words it took.
    ///
    /// # Errors
    /// No size, one without a unit, or a range that goes down.
    pub fn parse(words: &[&str]) -> Result<(Self, usize), ParseError> {
        const HOW: &str = "write 64B, 64B-1518B, random 64B-1518B or a named mix such as imix";
        let first = words.first().ok_or_else(|| ParseError::new("a size is missing", HOW))?;
        if *first == "random" {
            let range = words.get(1).ok_or_else(|| ParseError::new("'random' says no range", HOW))?;
            let (low, high) =
                bounds(range, "-").unwrap_or_else(|| Err(ParseError::new(format!("'{range}' is no range"), HOW)))?;
            return Ok((SizeSpec::Uniform(low, high), 2));
        }
        if let Some(mix) = Mix::ALL.iter().find(|mix| mix.name == *first) {
            return Ok((SizeSpec::Mix(mix), 1));
        }
        if first.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let names: Vec<&str> = Mix::ALL.iter().map(|mix| mix.name).collect();
            return Err(ParseError::new(
                format!("'{first}' is no mix of sizes"),
                format!("write one of {}, or a size such as 64B", names.join(", ")),
            ));
        }
        if let Some(bounds) = bounds(first, "..") {
            return bounds.map(|(low, high)| (SizeSpec::Uniform(low, high), 1));
        }
        if let Some(bounds) = bounds(first, "-") {
            return bounds.map(|(low, high)| (SizeSpec::Walk(low, high), 1));
        }
        first.parse().map(|length| (SizeSpec::Fixed(length), 1))
    }

    /// The smallest size it gives.
    #[must_use]
    pub fn smallest(self) -> FrameLen {
        match self {
            SizeSpec::Fixed(length) | SizeSpec::Walk(length, _) | SizeSpec::Uniform(length, _) => length,
            SizeSpec::Mix(mix) => FrameLen::new(mix.parts.iter().map(|(size, _)| *size).min().unwrap_or(64)),
        }
    }

    /// The largest size it gives.
    #[must_use]
    pub fn largest(self) -> FrameLen {
        match self {
            SizeSpec::Fixed(length) | SizeSpec::Walk(_, length) | SizeSpec::Uniform(_, length) => length,
            SizeSpec::Mix(mix) => FrameLen::new(mix.parts.iter().map(|(size, _)| *size).max().unwrap_or(64)),
        }
    }
}

fn bounds(text: &str, between: &str) -> Option<Result<(FrameLen, FrameLen), ParseError>> {
    let (low, high) = text.split_once(between)?;
    Some(low.parse::<FrameLen>().and_then(|low| {
        let high: FrameLen = high.parse()?;
        if low > high {
            return Err(ParseError::new(format!("'{text}' goes down"), format!("write {high}{between}{low}")));
        }
        Ok((low, high))
    }))
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeSpec::Fixed(length) => write!(f, "{length}"),
            SizeSpec::Walk(low, high) => write!(f, "{low}-{high}"),
            SizeSpec::Uniform(low, high) => write!(f, "random {low}-{high}"),
            SizeSpec::Mix(mix) => f.write_str(mix.name),
        }
    }
}

/// Frame sizes, one after the other.
#[derive(Clone, Debug)]
pub struct Sizes {
    spec: SizeSpec,
    random: Random,
    next: u32,
    /// Of each part of a mix: how far it is behind its share.
    credit: Vec<i64>,
}

impl Sizes {
    /// The sizes that `spec` describes.
    #[must_use]
    pub fn new(spec: SizeSpec, random: Random) -> Self {
        let parts = if let SizeSpec::Mix(mix) = spec { mix.parts.len() } else { 0 };
        Sizes { spec, random, next: 0, credit: vec![0; parts] }
    }

    /// The next size.
    pub fn draw(&mut self) -> FrameLen {
        match self.spec {
            SizeSpec::Fixed(length) => length,
            SizeSpec::Walk(low, high) => {
                let length = low.bytes() + self.next;
                self.next = if length == high.bytes() { 0 } else { self.next + 1 };
                FrameLen::new(length)
            }
            SizeSpec::Uniform(low, high) => {
                let choices = u64::from(high.bytes() - low.bytes()) + 1;
                FrameLen::new(low.bytes() + self.random.below(choices) as u32)
            }
            SizeSpec::Mix(mix) => self.interleave(mix),
        }
    }

    /// Smooth weighted round robin: every part gains its weight, the one that is furthest behind
    /// goes. Exact over each cycle, and as evenly spread within it as can be.
    fn interleave(&mut self, mix: &Mix) -> FrameLen {
        let total: i64 = mix.parts.iter().map(|(_, weight)| i64::from(*weight)).sum();
        let mut best = 0;
        for (i, (_, weight)) in mix.parts.iter().enumerate() {
            self.credit[i] += i64::from(*weight);
            if self.credit[i] > self.credit[best] {
                best = i;
            }
        }
        self.credit[best] -= total;
        FrameLen::new(mix.parts[best].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str, n: usize) -> Vec<u32> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (spec, used) = SizeSpec::parse(&words).expect(text);
        assert_eq!(used, words.len());
        let mut sizes = Sizes::new(spec, Random::stream(1, "sizes"));
        (0..n).map(|_| sizes.draw().bytes()).collect()
    }

    #[test]
    fn mixes_are_exact_over_each_cycle() {
        for mix in Mix::ALL {
            let cycle: u32 = mix.parts.iter().map(|(_, weight)| weight).sum();
            let drawn = sizes(mix.name, 3 * cycle as usize);
            for cycle in drawn.chunks(cycle as usize) {
                for (size, weight) in mix.parts {
                    assert_eq!(cycle.iter().filter(|drawn| *drawn == size).count() as u32, *weight, "{}", mix.name);
                }
            }
        }
    }

    #[test]
    fn walks_and_draws_reach_both_ends() {
        assert_eq!(sizes("64B-67B", 6), [64, 65, 66, 67, 64, 65]);
        let drawn = sizes("random 64B-67B", 200);
        assert!((64..=67).all(|size| drawn.contains(&size)) && drawn.iter().all(|size| (64..=67).contains(size)));
        assert_eq!(sizes("64B..67B", 200), drawn, "two ways to write the same");
    }

    #[test]
    fn bad_sizes_say_how() {
        for text in ["", "random", "64", "1518B-64B", "imix-foo", "random 64B", "10B"] {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = SizeSpec::parse(&words).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}
