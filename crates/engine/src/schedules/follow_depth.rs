use super::{Due, Impossible, Lengths, Schedule, counted};
use crate::Line;
use std::fmt;
use std::str::FromStr;
use units::{Layer, PS_PER_S, ParseError, Rate, Share, Span, Time};

/// A rate that follows the number of waiting frames, like LightShaper's decision thread (§3.1). It is lowest with no
/// waiting frame, highest with `full` or more, and linear in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowDepth {
    /// The rates with no waiting frame and with `full` waiting frames.
    pub rates: (Rate, Rate),
    /// Queue depth at which the rate reaches its maximum.
    pub full: u64,
}

const EXAMPLE: &str = "follow-depth 1Gbps..9Gbps over 1000 frames";
/// Maximum of `full`: the time after a frame of 64 KiB is still exact.
const MOST: u64 = 1 << 26;
/// The default of `full`.
const FULL: u64 = 1_000;

impl FollowDepth {
    /// The keyword that selects it.
    pub const NAME: &'static str = "follow-depth";

    /// Checks that `line` can carry both rates.
    ///
    /// # Errors
    /// A rate above the line rate, or a share of an unknown line rate.
    pub fn check(&self, line: Option<Line>) -> Result<(), Impossible> {
        super::fits(self.rates.0, line)?;
        super::fits(self.rates.1, line)
    }
}

impl FromStr for FollowDepth {
    type Err = ParseError;

    /// Parses `follow-depth LOW..HIGH [wire|ip] [over N frames]`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong =
            || ParseError::new(format!("'{text}' is not a rate that follows the depth"), format!("write {EXAMPLE}"));
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let full = match words[..] {
            [.., "over", number, "frames"] => {
                words.truncate(words.len() - 3);
                let number = number.parse().ok().filter(|n| (1..=MOST).contains(n) && !number.starts_with('+'));
                number.ok_or_else(|| {
                    ParseError::new(
                        "the number of frames is out of range",
                        format!("write over 1000 frames, at most {MOST}"),
                    )
                })?
            }
            _ => FULL,
        };
        let (range, layer) = match words[..] {
            [Self::NAME, range] => (range, ""),
            [Self::NAME, range, layer @ ("wire" | "ip")] => (range, layer),
            _ => return Err(wrong()),
        };
        let (low, high) = range.split_once("..").ok_or_else(wrong)?;
        let read = |rate: &str| format!("{rate} {layer}").trim_end().parse::<Rate>();
        let rates = (read(low)?, read(high)?);
        let (a, b) = match rates {
            (Rate::Bits(a, _), Rate::Bits(b, _)) => (a.bps(), b.bps()),
            (Rate::Frames(a), Rate::Frames(b)) => (a.millis(), b.millis()),
            (Rate::Line(a), Rate::Line(b)) => (u64::from(a.ppb()), u64::from(b.ppb())),
            _ => {
                let remedy = "write both in bits, in frames, or as shares of the line";
                return Err(ParseError::new(format!("the rates of '{range}' do not count the same"), remedy));
            }
        };
        if a > b || a == 0 {
            let what = format!("the rates of '{range}' do not go up from above zero");
            return Err(ParseError::new(what, format!("write the lower one first, {EXAMPLE}")));
        }
        Ok(FollowDepth { rates, full })
    }
}

impl fmt::Display for FollowDepth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = self.rates.0.to_string();
        // The layer is written once, after both rates.
        let low = low.split_whitespace().next().unwrap_or_default();
        write!(f, "{} {low}..{} over {} frames", Self::NAME, self.rates.1, self.full)
    }
}

/// Departures at a rate that follows the queue depth. The depth at the departure of a frame sets the time until the
/// next one. Times are rounded to a picosecond, with the remainder carried over.
#[derive(Clone, Debug)]
pub struct DepthSchedule {
    follow: FollowDepth,
    /// Thousandths of the counted unit per second.
    low: u128,
    high: u128,
    waiting: u64,
    /// When the last frame was due, and its size in the counted unit.
    last: Option<(Time, u128)>,
    /// Remainder in 2⁻³² ps.
    carry: u128,
}

impl DepthSchedule {
    /// The schedule on the `line` of the output, if it has one.
    #[must_use]
    pub fn new(follow: FollowDepth, line: Option<Line>) -> Self {
        let millis = |rate: Rate| match rate {
            Rate::Bits(rate, _) => u128::from(rate.bps()) * 1_000,
            Rate::Frames(rate) => u128::from(rate.millis()),
            Rate::Line(share) => {
                let bps = line.map_or(0, |line| line.rate().bps());
                u128::from(bps) * u128::from(share.ppb()) / u128::from(Share::ONE.ppb() / 1_000)
            }
        };
        let (low, high) = (millis(follow.rates.0).max(1), millis(follow.rates.1).max(1));
        DepthSchedule { follow, low, high, waiting: 0, last: None, carry: 0 }
    }

    /// The time after a frame, in 2⁻³² ps.
    fn after(&self, amount: u128) -> u128 {
        let full = u128::from(self.follow.full);
        let rate = self.low * full + (self.high - self.low) * u128::from(self.waiting).min(full);
        // In thousandths × ps per second × `full`, like the rate.
        let units = amount * 1_000 * u128::from(PS_PER_S) * full;
        // For a capture record that claims an enormous frame, fractions of a picosecond do not matter.
        if units.leading_zeros() >= 32 { (units << 32) / rate } else { (units / rate) << 32 }
    }
}

impl Schedule for DepthSchedule {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        let mut due = ready;
        if let Some((last, amount)) = self.last {
            let exact = self.after(amount) + self.carry;
            self.carry = exact & 0xffff_ffff;
            due = last + Span::from_ps(u64::try_from(exact >> 32).unwrap_or(u64::MAX));
        }
        let starved = ready > due;
        if starved {
            self.carry = 0;
        }
        let at = due.max(ready);
        let amount = match self.follow.rates.0 {
            Rate::Bits(_, layer) => u128::from(counted(layer, lengths)) * 8,
            Rate::Line(_) => u128::from(counted(Layer::Wire, lengths)) * 8,
            Rate::Frames(_) => 1,
        };
        self.last = Some((at, amount));
        Due { at, starved }
    }

    fn forgive(&mut self, late: Span) {
        self.last = self.last.map(|(last, amount)| (last + late, amount));
    }

    fn counts_packets(&self) -> bool {
        matches!(self.follow.rates.0, Rate::Bits(_, Layer::Ip))
    }

    fn watches_depth(&self) -> bool {
        true
    }

    fn waiting(&mut self, frames: u64) {
        self.waiting = frames;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{BitRate, FrameLen};

    #[test]
    fn rate_is_linear_in_the_queue_depth() {
        let follow: FollowDepth = "follow-depth 100Mbps..900Mbps over 80 frames".parse().expect("good");
        let mut schedule = DepthSchedule::new(follow, None);
        let lengths = Lengths { frame: FrameLen::new(1_000), packet: 982 };
        let mut last = schedule.depart(Time::ZERO, &lengths).at;
        // 1000 B take 80 µs at 100 Mbit/s.
        for (waiting, ns) in [(0, 80_000), (10, 40_000), (30, 20_000), (80, 8_888), (5_000, 8_889), (0, 80_000)] {
            schedule.waiting(waiting);
            let at = schedule.depart(Time::ZERO, &lengths).at;
            assert_eq!((at.since(last).as_ps() + 111) / 1_000, ns, "{waiting}");
            last = at;
        }
        let late = last + Span::from_ms(1);
        assert_eq!(schedule.depart(late, &lengths), Due { at: late, starved: true });
    }

    #[test]
    fn longest_queue_and_frame_do_not_overflow() {
        let follow: FollowDepth = format!("follow-depth 1Mbps..2Mbps over {MOST} frames").parse().expect("good");
        let mut schedule = DepthSchedule::new(follow, None);
        let lengths = Lengths { frame: FrameLen::new(1 << 16), packet: 1_500 };
        assert_eq!(schedule.depart(Time::ZERO, &lengths).at, Time::ZERO);
        assert_eq!(schedule.depart(Time::ZERO, &lengths).at, Time::from_ps((1 << 19) * 1_000_000));
    }

    #[test]
    fn schedules_a_record_that_claims_4_gib() {
        let follow: FollowDepth = format!("follow-depth 1Mbps..2Mbps over {MOST} frames").parse().expect("good");
        let mut schedule = DepthSchedule::new(follow, None);
        let lengths = Lengths { frame: FrameLen::new(u32::MAX - 20), packet: 1_500 };
        assert_eq!(schedule.depart(Time::ZERO, &lengths).at, Time::ZERO);
        assert_eq!(schedule.depart(Time::ZERO, &lengths).at, Time::from_ps(u64::from(u32::MAX - 20) * 8 * 1_000_000));
    }

    #[test]
    fn parses_and_prints_follow_depth() {
        for text in ["follow-depth 1Gbps..9Gbps wire over 64 frames", "follow-depth 10%..90% over 1000 frames"] {
            assert_eq!(text.parse::<FollowDepth>().expect(text).to_string(), text);
        }
        let follow: FollowDepth = "follow-depth 1kpps..2kpps".parse().expect("good");
        assert_eq!(follow.full, 1_000);
        let line = Some(Line::new(BitRate::from_gbps(1)));
        assert!(follow.check(line).is_ok());
        assert!("follow-depth 1Gbps..9Gbps".parse::<FollowDepth>().is_ok_and(|follow| follow.check(line).is_err()));
        for text in [
            "follow-depth",
            "follow-depth 1Gbps",
            "follow-depth 9Gbps..1Gbps",
            "follow-depth 1Gbps..2kpps",
            "follow-depth 1Gbps..9Gbps over 0 frames",
            "follow-depth 1Gbps..9Gbps over 4294967296 frames",
            "follow-depth 1Gbps..9Gbps over 10",
            "follow-depth 1..9",
        ] {
            let error = text.parse::<FollowDepth>().expect_err(text).to_string();
            assert!(error.contains("write"), "{error}");
        }
    }
}
