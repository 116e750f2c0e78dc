use crate::classes::Prefix;
use packet::Headers;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use units::{ParseError, Span};

/// How sources are synchronised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncSpec {
    /// Source addresses, in order; no prefix contains another.
    pub sources: Vec<Prefix>,
    /// How their crests follow each other.
    pub how: How,
    /// How long a round waits for a source, measured from the first frame of the round.
    pub wait: Span,
    /// A silence of this length of a source ends its crest.
    pub silence: Span,
}

/// How crests follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// The next crest starts this long after the end of the last frame of the preceding crest.
    Gap(Span),
    /// Each crest starts this long after the start of the round; one offset per source.
    Offset(Vec<Span>),
    /// One frame per source in turn, with this time from the end of one frame to the start of the next.
    RoundRobin(Span),
}

impl SyncSpec {
    /// Default of `wait`.
    pub(crate) const WAIT: Span = Span::from_ms(1_000);
    /// Default of `silence`.
    pub(crate) const SILENCE: Span = Span::from_ms(1);

    /// How long a late crest is held for the next round: ten times `wait`, and at least [`Self::LATE`].
    pub(crate) fn late(&self) -> Span {
        Span::from_ps(self.wait.as_ps().saturating_mul(10)).max(Self::LATE)
    }

    const LATE: Span = Span::from_ms(1_000);
}

const EXAMPLE: &str = "order 10.0.0.1,10.0.0.2 gap 5ms";
const LIST: &str = "10.0.0.1,10.0.0.2";
/// Longer times between crests are rejected.
const LONGEST: Span = Span::from_ms(86_400_000);

impl FromStr for SyncSpec {
    type Err = ParseError;

    /// Parses `order A,B,… gap TIME|offset TIME|offset TIME,TIME,… [wait TIME] [silence TIME]` or `round-robin A,B,…
    /// [gap TIME] [wait TIME]`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = text.split_whitespace();
        let in_turn = match words.next() {
            Some("order") => false,
            Some("round-robin") => true,
            _ => {
                let what = format!("'{text}' is not an order of sources");
                return Err(ParseError::new(what, format!("write {EXAMPLE} or round-robin 10.0.0.1,10.0.0.2")));
            }
        };
        let sources = sources(words.next().unwrap_or_default(), EXAMPLE)?;
        let (mut gap, mut offset, mut wait, mut silence) = (None, None, None, None);
        while let Some(key) = words.next() {
            let Some(value) = words.next() else {
                return Err(ParseError::new(format!("'{key}' has no value"), format!("write {key} 5ms")));
            };
            let twice = match key {
                "gap" => gap.replace(time(value)?).is_some(),
                "offset" if !in_turn => offset.replace(offsets(value, sources.len())?).is_some(),
                "wait" => wait.replace(time(value)?).is_some(),
                "silence" if !in_turn => silence.replace(time(value)?).is_some(),
                "offset" | "silence" => {
                    let what = format!("'{key}' applies to crests, and round-robin releases single frames");
                    return Err(ParseError::new(what, "leave it out, or write order"));
                }
                _ => {
                    let what = format!("'{key}' is unexpected here");
                    return Err(ParseError::new(what, "write gap, offset, wait or silence, each with a time"));
                }
            };
            if twice {
                return Err(ParseError::new(format!("'{key}' is given twice"), "leave one of them out"));
            }
        }
        let how = match (in_turn, gap, offset) {
            (true, gap, _) => How::RoundRobin(gap.unwrap_or(Span::ZERO)),
            (false, Some(gap), None) => How::Gap(gap),
            (false, None, Some(offsets)) => How::Offset(offsets),
            (false, Some(_), Some(_)) => {
                return Err(ParseError::new("a gap and an offset both place the crests", "leave one of them out"));
            }
            (false, None, None) => {
                return Err(ParseError::new("the time between crests is missing", format!("write {EXAMPLE}")));
            }
        };
        let silence = silence.unwrap_or(Self::SILENCE);
        if silence == Span::ZERO {
            return Err(ParseError::new("a silence of zero would end every crest", "write 1ms, or round-robin"));
        }
        Ok(SyncSpec { sources, how, wait: wait.unwrap_or(Self::WAIT), silence })
    }
}

fn time(text: &str) -> Result<Span, ParseError> {
    let time: Span = text.parse()?;
    if time > LONGEST {
        return Err(ParseError::new(format!("{time} is longer than a day"), "write at most 86400s"));
    }
    Ok(time)
}

fn offsets(text: &str, sources: usize) -> Result<Vec<Span>, ParseError> {
    let times = text.split(',').map(time).collect::<Result<Vec<_>, _>>()?;
    match times[..] {
        [step] => {
            let offset = |i: usize| Span::from_ps(step.as_ps().saturating_mul(i as u64));
            Ok((0..sources).map(offset).collect())
        }
        _ if times.len() == sources => Ok(times),
        _ => Err(ParseError::new(
            format!("{} offsets are not one for each of {sources} sources", times.len()),
            "write one for each, or a single step",
        )),
    }
}

/// Sources to distinguish, and the silence that ends a crest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceList {
    /// Source addresses, in the order that their crests should have; no prefix contains another.
    pub sources: Vec<Prefix>,
    /// The intended gap between crests within a round, if it is known.
    pub gap: Option<Span>,
    /// A silence of this length of a source ends its crest.
    pub silence: Span,
}

impl FromStr for SourceList {
    type Err = ParseError;

    /// Parses `A,B,… [gap TIME] [silence TIME]`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let bad = || {
            let what = format!("'{text}' is no list of sources");
            ParseError::new(what, "write 10.0.0.1,10.0.0.2 or '10.0.0.1,10.0.0.2 gap 5ms silence 1ms'")
        };
        let (list, rest) = words.split_first().ok_or_else(bad)?;
        let (mut gap, mut silence) = (None, None);
        for pair in rest.chunks(2) {
            match pair {
                ["gap", span] if gap.is_none() => gap = Some(time(span)?),
                ["silence", span] if silence.is_none() => silence = Some(time(span)?),
                _ => return Err(bad()),
            }
        }
        let silence = silence.unwrap_or(SyncSpec::SILENCE);
        if silence == Span::ZERO {
            return Err(ParseError::new("a silence of no length ends every crest", "write 1ms"));
        }
        Ok(SourceList { sources: sources(list, LIST)?, gap, silence })
    }
}

impl SourceList {
    /// Index of the frame's source, if it has one.
    #[must_use]
    pub fn source_of(&self, frame: &[u8]) -> Option<usize> {
        let address = Headers::of(frame)?.ip?.source(frame)?;
        self.sources.iter().position(|source| source.holds(address))
    }
}

fn sources(text: &str, example: &str) -> Result<Vec<Prefix>, ParseError> {
    let mut sources: Vec<Prefix> = Vec::new();
    for name in text.split(',') {
        let source: Prefix = name.parse().map_err(|_| {
            let remedy = format!("write addresses or prefixes that frames come from, {example}");
            ParseError::new(format!("'{name}' is no source"), remedy)
        })?;
        if let Some(other) = sources.iter().find(|other| other.holds(source.address) || source.holds(other.address)) {
            let what = format!("the sources {other} and {source} overlap");
            return Err(ParseError::new(what, "write each once, and none within another"));
        }
        sources.push(source);
    }
    if sources.len() < 2 {
        return Err(ParseError::new("one source alone has no order", format!("write two or more, {example}")));
    }
    Ok(sources)
}

impl Prefix {
    /// True if the prefix contains the address.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        let length = u32::from(self.length);
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u32::from(network) ^ u32::from(address)).checked_shr(32 - length).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                (u128::from(network) ^ u128::from(address)).checked_shr(128 - length).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl fmt::Display for SyncSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |texts: Vec<String>| texts.join(",");
        f.write_str(if matches!(self.how, How::RoundRobin(_)) { "round-robin " } else { "order " })?;
        f.write_str(&list(self.sources.iter().map(ToString::to_string).collect()))?;
        match &self.how {
            How::Gap(gap) | How::RoundRobin(gap) => write!(f, " gap {gap}")?,
            How::Offset(offsets) => write!(f, " offset {}", list(offsets.iter().map(ToString::to_string).collect()))?,
        }
        write!(f, " wait {}", self.wait)?;
        if matches!(self.how, How::RoundRobin(_)) { Ok(()) } else { write!(f, " silence {}", self.silence) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_sources() {
        let list: SourceList = "10.0.0.1,10.0.1.0/24".parse().expect("a list");
        assert_eq!((list.sources.len(), list.silence), (2, SyncSpec::SILENCE));
        let list: SourceList = "10.0.0.1,2001:db8::2 silence 300us".parse().expect("a list");
        assert_eq!(list.silence, Span::from_us(300));
        for text in [
            "",
            "10.0.0.1",
            "10.0.0.1,10.0.0.1",
            "a,b",
            "10.0.0.1,10.0.0.2 silence",
            "10.0.0.1,10.0.0.2 wait 1s",
            "10.0.0.1,10.0.0.2 silence 0ms",
        ] {
            let error = text.parse::<SourceList>().expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }

    #[test]
    fn specs_survive_printing_and_parsing() {
        for (text, whole) in [
            ("order 10.0.0.1,10.0.0.2 gap 5ms", "order 10.0.0.1,10.0.0.2 gap 5ms wait 1s silence 1ms"),
            (
                "order 10.0.1.0/24,2001:db8::1,10.0.0.2 offset 5ms wait 2s",
                "order 10.0.1.0/24,2001:db8::1,10.0.0.2 offset 0ms,5ms,10ms wait 2s silence 1ms",
            ),
            (
                "order 10.0.0.1,10.0.0.2 offset 0ms,7ms silence 3us",
                "order 10.0.0.1,10.0.0.2 offset 0ms,7ms wait 1s silence 3us",
            ),
            ("round-robin 10.0.0.1,10.0.0.2", "round-robin 10.0.0.1,10.0.0.2 gap 0ms wait 1s"),
        ] {
            let spec: SyncSpec = text.parse().expect(text);
            assert_eq!(spec.to_string(), whole);
            assert_eq!(whole.parse(), Ok(spec));
        }
    }

    #[test]
    fn errors_of_bad_orders_name_the_spelling_to_use() {
        for text in [
            "",
            "order",
            "order 10.0.0.1 gap 5ms",
            "order 10.0.0.1,10.0.0.2",
            "order 10.0.0.1,foo gap 5ms",
            "order 10.0.0.1,10.0.0.1 gap 5ms",
            "order 10.0.0.0/8,10.0.0.1 gap 5ms",
            "order 10.0.0.1,10.0.0.2 gap 5",
            "order 10.0.0.1,10.0.0.2 gap 5ms gap 6ms",
            "order 10.0.0.1,10.0.0.2 gap 5ms offset 6ms",
            "order 10.0.0.1,10.0.0.2,10.0.0.3 offset 6ms,7ms",
            "order 10.0.0.1,10.0.0.2 gap 5ms silence 0ms",
            "order 10.0.0.1,10.0.0.2 gap",
            "order 10.0.0.1,10.0.0.2 pause 5ms",
            "order 10.0.0.1,10.0.0.2 gap 99999s",
            "round-robin 10.0.0.1,10.0.0.2 silence 1ms",
            "random 10.0.0.1,10.0.0.2",
        ] {
            let error = text.parse::<SyncSpec>().expect_err(text).to_string();
            assert!(["write", "leave"].iter().any(|remedy| error.contains(remedy)), "{text}: {error}");
        }
    }
}
