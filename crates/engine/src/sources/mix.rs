use crate::Line;
use crate::random::Random;
use crate::schedules::laws::{Edges, GapLaw, Law, Sampler};
use std::fmt;
use units::{FrameLen, FrameRate, PS_PER_NS, ParseError, Span, WireLen};

/// A named mix of frame sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// The name. Different mixes never share a plain "imix".
    pub name: &'static str,
    /// Frame sizes with FCS, and the number of each in a cycle.
    pub parts: &'static [(u32, u32)],
    /// The reference.
    pub source: &'static str,
}

impl Mix {
    /// Every named mix.
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
#[derive(Clone, Debug, PartialEq)]
pub enum SizeSpec {
    /// One size: `64B`.
    Fixed(FrameLen),
    /// Steps from the first to the last size byte by byte, repeatedly: `64B-1518B`, or downwards: `1518B-64B`.
    Walk(FrameLen, FrameLen),
    /// Uniformly random: `random 64B-1518B` or `64B..1518B`.
    Uniform(FrameLen, FrameLen),
    /// A named mix, exact over each cycle.
    Mix(&'static Mix),
    /// A custom mix, `64B:7,594B:4,1518B:1`, exact over each cycle.
    Parts(Vec<(u32, u32)>),
    /// A sequence, as in an IMIX genome (RFC 6985).
    Genome(Genome),
    /// Drawn from a law of gaps whose times are interpreted as bytes: `(normal mean 500B sd 100B clip 64B..1518B)`.
    Law(SizeLaw),
}

/// A sequence of sizes and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genome {
    sizes: Vec<FrameLen>,
    text: String,
}

/// A law of sizes: a law of gaps in which a nanosecond represents a byte.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeLaw {
    law: GapLaw,
    bounds: (FrameLen, FrameLen),
    text: String,
}

/// Sizes of the letters of RFC 6985, Table 1. The user must define `z`, the MTU, and capital letters.
const LETTERS: [(char, u32); 9] =
    [('a', 64), ('b', 128), ('c', 256), ('d', 512), ('e', 1024), ('f', 1280), ('g', 1518), ('h', 2112), ('i', 9000)];

/// Cycles of up to this many frames are computed once and repeated, because they fit into the cache.
const SHORT_CYCLE: u64 = 1 << 10;
/// Maximum number of frames in a cycle: a cycle should end before the run does.
const LONGEST_CYCLE: u64 = 1 << 32;

impl SizeSpec {
    /// Parses the words after `size`. Returns the value and the number of words.
    ///
    /// # Errors
    /// The size is missing or has no unit, or a range of random sizes descends.
    pub fn parse(words: &[&str]) -> Result<(Self, usize), ParseError> {
        const HOW: &str = "write 64B, 64B-1518B, random 64B-1518B or a named mix such as imix";
        let first = words.first().ok_or_else(|| ParseError::new("a size is missing", HOW))?;
        if *first == "random" {
            let range = words.get(1).ok_or_else(|| ParseError::new("'random' has no range", HOW))?;
            let (low, high) = bounds(range, "..")
                .or_else(|| bounds(range, "-"))
                .unwrap_or_else(|| Err(ParseError::new(format!("'{range}' is not a range"), HOW)))?;
            return Ok((SizeSpec::Uniform(low, high), 2));
        }
        if *first == "genome" {
            return genome(&words[1..]).map(|(genome, used)| (SizeSpec::Genome(genome), used + 1));
        }
        if first.starts_with('(') {
            return law(words).map(|(law, used)| (SizeSpec::Law(law), used));
        }
        if let Some(mix) = Mix::ALL.iter().find(|mix| mix.name == *first) {
            return Ok((SizeSpec::Mix(mix), 1));
        }
        if first.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let names: Vec<&str> = Mix::ALL.iter().map(|mix| mix.name).collect();
            return Err(ParseError::new(
                format!("'{first}' is not a mix of sizes"),
                format!("write one of {}, genome aaaag, or a size such as 64B", names.join(", ")),
            ));
        }
        if first.contains([',', ':']) {
            return parts(first).map(|parts| (SizeSpec::Parts(parts), 1));
        }
        if let Some(bounds) = bounds(first, "..") {
            return bounds.map(|(low, high)| (SizeSpec::Uniform(low, high), 1));
        }
        if let Some((from, to)) = first.split_once('-') {
            return Ok((SizeSpec::Walk(from.parse()?, to.parse()?), 1));
        }
        first.parse().map(|length| (SizeSpec::Fixed(length), 1))
    }

    /// The smallest size.
    #[must_use]
    pub fn smallest(&self) -> FrameLen {
        match self {
            SizeSpec::Fixed(length) | SizeSpec::Uniform(length, _) => *length,
            SizeSpec::Walk(from, to) => *from.min(to),
            SizeSpec::Mix(Mix { parts, .. }) => extreme(parts, Iterator::min),
            SizeSpec::Parts(parts) => extreme(parts, Iterator::min),
            SizeSpec::Genome(genome) => genome.sizes.iter().copied().min().unwrap_or(FrameLen::MIN),
            SizeSpec::Law(law) => law.bounds.0,
        }
    }

    /// The largest size.
    #[must_use]
    pub fn largest(&self) -> FrameLen {
        match self {
            SizeSpec::Fixed(length) | SizeSpec::Uniform(_, length) => *length,
            SizeSpec::Walk(from, to) => *from.max(to),
            SizeSpec::Mix(Mix { parts, .. }) => extreme(parts, Iterator::max),
            SizeSpec::Parts(parts) => extreme(parts, Iterator::max),
            SizeSpec::Genome(genome) => genome.sizes.iter().copied().max().unwrap_or(FrameLen::MIN),
            SizeSpec::Law(law) => law.bounds.1,
        }
    }

    /// Mean frame rate of a full line. Exact, except for a law, for which it is the mean over `DRAWS` draws from
    /// `random`.
    #[must_use]
    pub fn line_rate(&self, line: Line, random: Random) -> FrameRate {
        const DRAWS: u64 = 100_000;
        let weighed = |parts: &[(u32, u32)]| {
            let bytes = parts.iter().map(|(size, weight)| u64::from(*size) * u64::from(*weight)).sum();
            (bytes, parts.iter().map(|(_, weight)| u64::from(*weight)).sum())
        };
        let (bytes, frames): (u64, u64) = match self {
            SizeSpec::Fixed(length) => (length.bytes().into(), 1),
            SizeSpec::Walk(low, high) | SizeSpec::Uniform(low, high) => (u64::from(low.bytes() + high.bytes()), 2),
            SizeSpec::Mix(Mix { parts, .. }) => weighed(parts),
            SizeSpec::Parts(parts) => weighed(parts),
            SizeSpec::Genome(Genome { sizes, .. }) => {
                (sizes.iter().map(|length| u64::from(length.bytes())).sum(), sizes.len() as u64)
            }
            SizeSpec::Law(_) => {
                let mut sizes = Sizes::new(self.clone(), random);
                ((0..DRAWS).map(|_| u64::from(sizes.draw().bytes())).sum(), DRAWS)
            }
        };
        let bits = 8 * (u128::from(bytes) + u128::from(frames) * u128::from(WireLen::OVERHEAD));
        let millis = u128::from(line.rate().bps()) * 1_000 * u128::from(frames) / bits;
        FrameRate::from_millis(millis.try_into().unwrap_or(u64::MAX))
    }
}

fn extreme(parts: &[(u32, u32)], of: impl FnOnce(std::vec::IntoIter<u32>) -> Option<u32>) -> FrameLen {
    let sizes: Vec<u32> = parts.iter().map(|(size, _)| *size).collect();
    FrameLen::new(of(sizes.into_iter()).unwrap_or(64))
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

/// Parses `64B:7,594B:4,1518B:1`.
fn parts(text: &str) -> Result<Vec<(u32, u32)>, ParseError> {
    let bad = |part: &str| ParseError::new(format!("'{part}' is not a part of a mix"), "write 64B:7,594B:4,1518B:1");
    let parts = text.split(',').map(|part| {
        let (size, weight) = part.split_once(':').unwrap_or((part, "1"));
        let weight = weight.parse().ok().filter(|weight| *weight > 0).ok_or_else(|| bad(part))?;
        Ok((size.parse::<FrameLen>()?.bytes(), weight))
    });
    let parts = parts.collect::<Result<Vec<_>, ParseError>>()?;
    if parts.iter().map(|(_, weight): &(u32, u32)| u64::from(*weight)).sum::<u64>() > LONGEST_CYCLE {
        return Err(ParseError::new(format!("the cycle of '{text}' is too long"), "write smaller weights"));
    }
    Ok(parts)
}

/// Parses `aaaag`, followed by the sizes of letters outside the table: `A=590B z=1500B`.
fn genome(words: &[&str]) -> Result<(Genome, usize), ParseError> {
    const HOW: &str = "write letters a to i, capitals and z with A=590B: genome aaAg A=590B";
    let letters = words.first().ok_or_else(|| ParseError::new("the genome is missing", HOW))?;
    let mut known: Vec<(char, FrameLen)> = LETTERS.map(|(letter, size)| (letter, FrameLen::new(size))).to_vec();
    let mut used = 1;
    for word in &words[1..] {
        let Some((letter, size)) = word.split_once('=') else { break };
        let mut chars = letter.chars();
        let letter = chars.next().filter(|letter| letter.is_ascii_uppercase() || *letter == 'z');
        let letter = letter.filter(|_| chars.next().is_none());
        let letter = letter.ok_or_else(|| ParseError::new(format!("'{word}' defines no capital and no z"), HOW))?;
        known.push((letter, size.parse()?));
        used += 1;
    }
    let size = |letter: char| known.iter().find(|(name, _)| *name == letter).map(|(_, size)| *size);
    let sizes = letters.chars().map(|letter| {
        size(letter).ok_or_else(|| ParseError::new(format!("'{letter}' in '{letters}' has no size"), HOW))
    });
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    if sizes.is_empty() {
        return Err(ParseError::new("the genome is missing", HOW));
    }
    Ok((Genome { sizes, text: words[..used].join(" ") }, used))
}

/// Parses `(normal mean 500B sd 100B clip 64B..1518B)`.
fn law(words: &[&str]) -> Result<(SizeLaw, usize), ParseError> {
    const HOW: &str = "write (normal mean 500B sd 100B clip 64B..1518B), in parentheses";
    let used = words
        .iter()
        .position(|word| word.ends_with(')'))
        .ok_or_else(|| ParseError::new(format!("'{}' does not end", words.join(" ")), HOW))?
        + 1;
    let text = words[..used].join(" ");
    let inner = text.trim_start_matches('(').trim_end_matches(')');
    if inner.contains("table") || inner.contains("idle") || inner.contains("corr") || inner.contains("sampling") {
        return Err(ParseError::new(format!("'{inner}' is not a law of sizes"), HOW));
    }
    // Bytes are converted to nanoseconds, because laws take times.
    let mut timed = String::new();
    for (i, word) in inner.split_whitespace().enumerate() {
        let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
        let bytes = |size: &str| size.strip_suffix('B').filter(|size| is_number(size)).map(|size| format!("{size}ns"));
        let timed_word = match word.split_once("..") {
            Some((low, high)) => bytes(low).zip(bytes(high)).map(|(low, high)| format!("{low}..{high}")),
            // Degrees of freedom and shares are not sizes.
            None if word.starts_with(|c: char| c.is_ascii_digit()) && !is_number(word) && !word.ends_with('%') => {
                bytes(word)
            }
            None => Some(word.to_owned()),
        };
        let word = timed_word.ok_or_else(|| ParseError::new(format!("'{word}' in '{inner}' is not in B"), HOW))?;
        timed += if i > 0 { " " } else { "" };
        timed += &word;
    }
    let law = GapLaw::parse(&timed).ok_or_else(|| ParseError::new(format!("'{inner}' names no law"), HOW))?;
    let law = law.map_err(|error| ParseError::new(format!("in '{inner}', a byte read as 1 ns, {error}"), HOW))?;
    let within = match law.edges {
        Some(Edges::Clip(low, high) | Edges::Saturate(low, high)) => Some((low, high)),
        // A uniform law has its own range, unless it is shifted or scaled.
        None => law.within.or(match &law.law {
            Law::Uniform(uniform) if law.mean.is_none() && law.sd.is_none() => Some(uniform.range),
            _ => None,
        }),
    };
    let (low, high) = within.ok_or_else(|| {
        ParseError::new(
            format!("'{inner}' does not say between which sizes"),
            "write clip 64B..1518B (or in, saturate) after it",
        )
    })?;
    let bytes = |span: Span| FrameLen::new(u32::try_from(span.as_ps() / PS_PER_NS).unwrap_or(u32::MAX));
    let (low, high) = (bytes(low), bytes(high));
    if low < FrameLen::MIN || high > FrameLen::MAX {
        return Err(ParseError::new(
            format!("'{inner}' has sizes that cannot be sent"),
            "write a range within 64B..9216B",
        ));
    }
    law.distribution()?;
    Ok((SizeLaw { law, bounds: (low, high), text }, used))
}

impl fmt::Display for SizeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeSpec::Fixed(length) => write!(f, "{length}"),
            SizeSpec::Walk(low, high) => write!(f, "{low}-{high}"),
            SizeSpec::Uniform(low, high) => write!(f, "random {low}-{high}"),
            SizeSpec::Mix(mix) => f.write_str(mix.name),
            SizeSpec::Parts(parts) => parts
                .iter()
                .enumerate()
                .try_for_each(|(i, (size, weight))| write!(f, "{}{size}B:{weight}", if i > 0 { "," } else { "" })),
            SizeSpec::Genome(genome) => write!(f, "genome {}", genome.text),
            SizeSpec::Law(law) => f.write_str(&law.text),
        }
    }
}

/// Successive frame sizes.
#[derive(Clone, Debug)]
pub struct Sizes {
    next: u32,
    random: Random,
    from: SizeGenerator,
}

#[derive(Clone, Debug)]
enum SizeGenerator {
    Fixed(FrameLen),
    Walk(u32, u32),
    Uniform(u32, u64),
    /// The parts of a mix, and the credit of each: how far it is behind its share.
    Mix(Vec<(u32, u32)>, Vec<i64>),
    Sequence(Vec<FrameLen>),
    Law(Box<Sampler>, (FrameLen, FrameLen)),
}

impl Sizes {
    /// The sizes described by `spec`.
    #[must_use]
    pub fn new(spec: SizeSpec, random: Random) -> Self {
        let mix = |parts: &[(u32, u32)]| {
            let mut credit = vec![0; parts.len()];
            let cycle: u64 = parts.iter().map(|(_, weight)| u64::from(*weight)).sum();
            if cycle <= SHORT_CYCLE {
                return SizeGenerator::Sequence((0..cycle).map(|_| interleave(parts, &mut credit)).collect());
            }
            SizeGenerator::Mix(parts.to_vec(), credit)
        };
        let from = match spec {
            SizeSpec::Fixed(length) => SizeGenerator::Fixed(length),
            SizeSpec::Walk(low, high) => SizeGenerator::Walk(low.bytes(), high.bytes()),
            SizeSpec::Uniform(low, high) => {
                SizeGenerator::Uniform(low.bytes(), u64::from(high.bytes() - low.bytes()) + 1)
            }
            SizeSpec::Mix(named) => mix(named.parts),
            SizeSpec::Parts(parts) => mix(&parts),
            SizeSpec::Genome(genome) => SizeGenerator::Sequence(genome.sizes),
            SizeSpec::Law(law) => {
                let placed = law.law.distribution().expect("it was checked when it was read");
                SizeGenerator::Law(Box::new(Sampler::new(&placed)), law.bounds)
            }
        };
        Sizes { next: 0, random, from }
    }

    /// The size, if it is constant.
    #[must_use]
    pub fn only(&self) -> Option<FrameLen> {
        match &self.from {
            SizeGenerator::Fixed(length) => Some(*length),
            SizeGenerator::Walk(low, high) if low == high => Some(FrameLen::new(*low)),
            _ => None,
        }
    }

    /// Switches to the child random stream of this name.
    pub(super) fn deal(&mut self, name: &str) {
        self.random = self.random.child(name);
    }

    /// The next size.
    #[inline]
    pub fn draw(&mut self) -> FrameLen {
        match &mut self.from {
            SizeGenerator::Fixed(length) => *length,
            SizeGenerator::Walk(from, to) => {
                let length = if *from <= *to { *from + self.next } else { *from - self.next };
                self.next = if length == *to { 0 } else { self.next + 1 };
                FrameLen::new(length)
            }
            SizeGenerator::Uniform(low, choices) => FrameLen::new(*low + self.random.below(*choices) as u32),
            SizeGenerator::Mix(parts, credit) => interleave(parts, credit),
            SizeGenerator::Sequence(sizes) => {
                let length = sizes[self.next as usize];
                self.next = if self.next as usize + 1 == sizes.len() { 0 } else { self.next + 1 };
                length
            }
            SizeGenerator::Law(sampler, (low, high)) => {
                // Rounded to the nearest byte.
                let bytes = (sampler.gap(self.random.bits()) / PS_PER_NS as f64 + 0.5) as u32;
                FrameLen::new(bytes.clamp(low.bytes(), high.bytes()))
            }
        }
    }
}

/// Smooth weighted round robin: every part gains its weight, and the part furthest behind is next. Exact over each
/// cycle, and spread as evenly as possible within it.
fn interleave(parts: &[(u32, u32)], credit: &mut [i64]) -> FrameLen {
    let mut best = 0;
    let mut total = 0;
    for (i, (_, weight)) in parts.iter().enumerate() {
        total += i64::from(*weight);
        credit[i] += i64::from(*weight);
        if credit[i] > credit[best] {
            best = i;
        }
    }
    credit[best] -= total;
    FrameLen::new(parts[best].0)
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
    fn walks_down_when_the_first_size_is_larger() {
        assert_eq!(sizes("66B-64B", 7), [66, 65, 64, 66, 65, 64, 66]);
        let (spec, _) = SizeSpec::parse(&["1518B-64B"]).expect("a range");
        assert_eq!((spec.smallest().bytes(), spec.largest().bytes()), (64, 1518));
        assert_eq!(spec.to_string(), "1518B-64B");
        assert!(SizeSpec::parse(&["random", "1518B-64B"]).is_err(), "a random size has no direction");
    }

    /// 10 Gbit/s ÷ (mean length + 20 bytes between frames).
    #[test]
    fn line_rate_follows_from_the_mean_length() {
        let line = Line::new("10Gbps".parse().expect("a rate"));
        let carried = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let (spec, _) = SizeSpec::parse(&words).expect(text);
            spec.line_rate(line, Random::stream(1, "sizes")).millis()
        };
        for (text, bytes, frames) in [
            ("64B", 84, 1),
            ("64B-1518B", 811, 1),
            ("random 64B-1518B", 811, 1),
            ("imix", 38_976, 100),
            ("64B:70000,1518B:1", 84 * 70_000 + 1_538, 70_001),
            ("genome abcdg", 64 + 128 + 256 + 512 + 1_518 + 100, 5),
        ] {
            assert_eq!(carried(text), 10_000_000_000_000 * frames / (8 * bytes), "{text}");
        }
        let law = carried("(normal mean 500B sd 100B clip 100B..900B)") as f64;
        assert!((law / (10e12 / (8.0 * 520.0)) - 1.0).abs() < 0.002, "{law}");
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
    fn repeated_cycles_equal_computed_ones() {
        for (text, parts) in [
            ("imix", vec![(64, 58), (594, 33), (1518, 9)]),
            ("64B:1,128B:1,256B:1", vec![(64, 1), (128, 1), (256, 1)]),
            ("64B:1023,1518B:1", vec![(64, 1023), (1518, 1)]),
            ("64B:1024,1518B:1", vec![(64, 1024), (1518, 1)]),
        ] {
            let mut credit = vec![0; parts.len()];
            let reckoned: Vec<u32> = (0..2_500).map(|_| interleave(&parts, &mut credit).bytes()).collect();
            assert_eq!(sizes(text, 2_500), reckoned, "{text}");
        }
    }

    #[test]
    fn parses_custom_mixes_and_genomes() {
        let drawn = sizes("64B:7,594B:4,1518B:1", 24);
        let named = sizes("imix-7-4-1", 24);
        assert_eq!(drawn, named, "the same mix by its parts");
        assert_eq!(sizes("genome aaAgz A=590B z=1500B", 6), [64, 64, 590, 1518, 1500, 64]);
    }

    #[test]
    fn size_laws_stay_in_range_and_have_their_mean() {
        let drawn = sizes("(normal mean 500B sd 100B clip 64B..1518B)", 40_000);
        assert!(drawn.iter().all(|size| (64..=1518).contains(size)));
        let mean = drawn.iter().map(|size| f64::from(*size)).sum::<f64>() / 40_000.0;
        // Six standard errors of 100 / √40 000.
        assert!((mean - 500.0).abs() < 3.0, "{mean}");
        let sd = (drawn.iter().map(|size| (f64::from(*size) - mean).powi(2)).sum::<f64>() / 40_000.0).sqrt();
        assert!((sd - 100.0).abs() < 3.0, "{sd}");
    }

    #[test]
    fn uniform_law_states_its_own_range() {
        let drawn = sizes("(uniform 64B..67B)", 400);
        assert!((64..=67).all(|size| drawn.contains(&size)) && drawn.iter().all(|size| (64..=67).contains(size)));
        let words = ["(uniform", "10B..67B)"];
        assert!(SizeSpec::parse(&words).is_err(), "a frame of 10 B cannot be sent");
    }

    #[test]
    fn walks_and_draws_reach_both_ends() {
        assert_eq!(sizes("64B-67B", 6), [64, 65, 66, 67, 64, 65]);
        let drawn = sizes("random 64B-67B", 200);
        assert!((64..=67).all(|size| drawn.contains(&size)) && drawn.iter().all(|size| (64..=67).contains(size)));
        assert_eq!(sizes("64B..67B", 200), drawn, "two ways to write the same");
    }

    #[test]
    fn errors_of_bad_sizes_name_the_spelling_to_use() {
        for text in [
            "",
            "random",
            "64",
            "1518B..64B",
            "imix-foo",
            "random 64B",
            "10B",
            "64B:0,65B:1",
            "64B:1,x:1",
            "genome",
            "genome aZ",
            "genome az",
            "genome aj",
            "genome a b=4B",
            "(normal mean 500B sd 100B)",
            "(normal mean 500B sd 100B clip 64B..1518B",
            "(normal mean 500B sd 100B clip 10B..1518B)",
            "(normale mean 500B clip 64B..1518B)",
            "(exp mean 300ns clip 64B..1518B)",
            "(exp mean 0.5kB clip 64B..1518B)",
            "(exp mean 300B clip 64B..1.5kB)",
            "(exp mean 300 clip 64B..1518B)",
            "()",
        ] {
            let words: Vec<&str> = text.split_whitespace().collect();
            let error = SizeSpec::parse(&words).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}
