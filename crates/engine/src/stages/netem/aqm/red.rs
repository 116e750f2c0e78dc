use super::super::grammar::Cursor;
use super::super::queue::Bottleneck;
use super::super::units_of_tc as tc;
use super::{Backlog, Configuration, Fifo, Manager, Queue, Verdict, happens};
use crate::random::Random;
use packet::Frame;
use std::fmt;
use units::{PS_PER_S, ParseError, Share, Time};

/// RED (Floyd and Jacobson 1993): selects arriving frames with a probability that grows with the mean queue length, and
/// drops all frames above `max`, even with marking (RFC 3168, section 7).
#[derive(Clone, Debug, PartialEq)]
pub struct Red {
    /// Mean queue length, in bytes without FCS, below which no frame is selected.
    pub min: u64,
    /// Mean queue length from which on all frames are selected.
    pub max: u64,
    /// The probability just below `max`.
    pub probability: Share,
    /// Weight of each new sample in the mean.
    pub weight: Share,
}

impl Configuration for Red {
    const NAME: &'static str = "red";

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        const HOW: &str = "write queue red min 30KiB max 90KiB";
        let (mut min, mut max) = (None, None);
        let (mut probability, mut weight) = (Share::from_ppb(20_000_000), Share::from_ppb(2_000_000));
        while let Some(word) = cursor.peek() {
            let end = match word {
                "min" => &mut min,
                "max" => &mut max,
                "probability" | "weight" => {
                    cursor.next();
                    let bare = cursor.peek().and_then(|next| next.parse::<f64>().ok());
                    if let Some(bare) = bare.filter(|bare| *bare > 0.0) {
                        cursor.next();
                        let percent = (bare * 1e9).round() / 1e7;
                        return Err(cursor.error(
                            format_args!("has no unit, and tc reads it as a part of 1: {percent} %"),
                            format!("write {percent}%"),
                        ));
                    }
                    let share = cursor.value(tc::share, "a share such as 2%")?;
                    if share == Share::default() {
                        return Err(cursor.error("never selects a frame", "write more than 0%"));
                    }
                    *if word == "weight" { &mut weight } else { &mut probability } = share;
                    continue;
                }
                _ => break,
            };
            cursor.next();
            let size =
                |word: &str| units::parse_size(word).map_err(|error| ("is not a size".into(), error.to_string()));
            *end = Some(cursor.value(size, "a size such as 30KiB")?);
        }
        let (Some(min), Some(max)) = (min, max) else {
            return Err(cursor.error("ends a queue without min and max", HOW));
        };
        if min >= max {
            return Err(cursor.error("ends a queue whose max is not above its min", HOW));
        }
        Ok(Red { min, max, probability, weight })
    }

    fn build<F: Frame + Send + 'static>(&self, rate: &Bottleneck, random: Random) -> Box<dyn Queue<F>> {
        Box::new(Fifo::new(self.early(rate.mean_bps(), random)))
    }
}

impl Red {
    pub(super) fn early(&self, bps: f64, random: Random) -> Early {
        Early {
            config: self.clone(),
            mean: 0.0,
            since_last: None,
            idle: Time::ZERO,
            typical_ps: (TYPICAL * 8 * PS_PER_S) as f64 / bps,
            random,
        }
    }
}

impl fmt::Display for Red {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Red { min, max, probability, weight } = self;
        write!(f, "{} min {min}B max {max}B probability {probability} weight {weight}", Self::NAME)
    }
}

/// Length of a typical frame in bytes. While the link is idle, the mean falls as if such frames arrived at an empty
/// queue.
const TYPICAL: u64 = 1_000;

/// The state of section 4 of the paper.
pub(super) struct Early {
    config: Red,
    /// Mean queue length in bytes.
    mean: f64,
    /// Frames since the last selection; `None` below `min`.
    since_last: Option<u64>,
    /// When the queue became empty, or the time up to which the mean has decayed since then.
    idle: Time,
    /// Transmission time of a typical frame.
    typical_ps: f64,
    random: Random,
}

impl Manager for Early {
    fn enqueue(&mut self, now: Time, backlog: Backlog) -> Verdict {
        let weight = self.config.weight.as_f64();
        if backlog.frames == 0 {
            self.mean *= (1.0 - weight).powf(now.since(self.idle).as_ps() as f64 / self.typical_ps);
            self.idle = now;
        } else {
            self.mean += weight * (backlog.bytes as f64 - self.mean);
        }
        let (min, max) = (self.config.min as f64, self.config.max as f64);
        if self.mean < min {
            self.since_last = None;
            return Verdict::Stays;
        }
        if self.mean >= max {
            self.since_last = Some(0);
            return Verdict::Dropped;
        }
        let since = self.since_last.map_or(0, |since| since + 1);
        let share = self.config.probability.as_f64() * (self.mean - min) / (max - min);
        // Spreads selections evenly: the next one comes after 1 to 1 ÷ share frames.
        let left = 1.0 - since as f64 * share;
        let chosen = left <= share || happens(&mut self.random, share / left);
        self.since_last = Some(if chosen { 0 } else { since });
        Verdict::chosen_if(chosen)
    }

    fn dequeue(&mut self, now: Time, _: units::Span, _: u32, backlog: Backlog) -> Verdict {
        if backlog.frames == 0 {
            self.idle = now;
        }
        Verdict::Stays
    }
}
