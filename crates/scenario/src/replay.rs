use packet::Rewrite;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use units::{ParseError, Span};

/// A replayed capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The capture.
    pub path: PathBuf,
    /// The speed, if no target sets the departures.
    pub speed: Speed,
    /// Number of rounds; 0 repeats without end.
    pub times: u64,
    /// Time from the last frame of a round to the first of the next; if not set, the mean gap of the capture.
    pub loop_gap: Option<Span>,
    /// Longer gaps of the capture are shortened to this value.
    pub max_gap: Option<Span>,
    /// Maximum number of frames over all rounds.
    pub count: Option<u64>,
    /// Rewrites of its frames, in order.
    pub rewrite: Vec<Rewrite>,
}

impl Replay {
    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        if self.times == 0 { u64::MAX } else { self.times }
    }

    /// Whether the replay ends only with the run.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        self.times == 0 && self.count.is_none()
    }
}

/// The speed of a replay: divides the times of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// In millionths: 1 000 000 is the original timing.
    Times(u64),
    /// As fast as the output accepts frames.
    Most,
}

impl Speed {
    /// The original timing.
    pub const OWN: Speed = Speed::Times(MILLION);

    /// A time of the capture at this speed; zero at maximum speed.
    #[must_use]
    pub fn scale(self, span: Span) -> Span {
        match self {
            Speed::Most => Span::ZERO,
            Speed::Times(MILLION) => span,
            Speed::Times(millionths) => {
                let ps = u128::from(span.as_ps()) * u128::from(MILLION) / u128::from(millionths);
                Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
            }
        }
    }
}

const MILLION: u64 = 1_000_000;

impl FromStr for Speed {
    type Err = ParseError;

    /// Parses `2`, `0.5`, `1.25` or `max`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad = || ParseError::new(format!("'{text}' is not a speed"), "write 2, 0.5 (0.000001 to 1000000) or max");
        if text == "max" {
            return Ok(Speed::Most);
        }
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 6 || whole.len() > 7 {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| bad())?;
        let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| bad())?;
        let millionths = whole * MILLION + fraction;
        if (1..=MILLION * MILLION).contains(&millionths) { Ok(Speed::Times(millionths)) } else { Err(bad()) }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Speed::Most => f.write_str("max"),
            Speed::Times(millionths) => {
                write!(f, "{}", millionths / MILLION)?;
                let fraction = format!("{:06}", millionths % MILLION);
                let fraction = fraction.trim_end_matches('0');
                if fraction.is_empty() { Ok(()) } else { write!(f, ".{fraction}") }
            }
        }
    }
}

/// Parses rewrites: `dst 10.0.0.0/8 > 192.168.0.0/16, dmac 02:00:00:00:00:02`.
///
/// # Errors
/// An invalid rewrite.
pub(crate) fn parse_rewrite(text: &str) -> Result<Vec<Rewrite>, ParseError> {
    text.split(',').map(|rule| rule.trim().parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_parse_scale_and_print() {
        for (text, ps) in [("1", 1_000_000), ("2", 500_000), ("0.5", 2_000_000), ("1.25", 800_000), ("max", 0)] {
            let speed: Speed = text.parse().expect(text);
            assert_eq!((speed.scale(Span::from_us(1)).as_ps(), speed.to_string().as_str()), (ps, text));
        }
        for text in ["", "0", "-1", "1x", "0.0000001", "1.", ".5", "1e3", "99999999"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn parses_several_changes() {
        assert_eq!(parse_rewrite("vlan 5, dport 80 > 81").map(|rules| rules.len()), Ok(2));
        assert!(parse_rewrite("vlan 5,").is_err());
    }
}
