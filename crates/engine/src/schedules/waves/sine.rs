use super::{Kind, Shape, Stretch, Waveform, Words, counts, profile, range};
use std::f64::consts::PI;
use std::fmt;
use units::{BitRate, FrameRate, ParseError, Rate, Share, Span};

/// The rate follows a sine between two values. It starts at the middle, going up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sine {
    /// The lowest and the highest rate.
    pub rates: (Rate, Rate),
    /// Period.
    pub every: Span,
}

const EXAMPLE: &str = "sine 1Gbps..9Gbps every 1s";

/// Linear pieces per period. Their error is at most (π ÷ 512)² ÷ 2 of the height, 0.002 %.
const PIECES: u64 = 512;

impl Waveform for Sine {
    const KIND: Kind = Kind {
        name: "sine",
        grammar: "sine RATE..RATE every TIME",
        summary: "the rate follows a sine between two values, starting upwards from the middle",
        example: EXAMPLE,
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        words.take("sine");
        let wrong = || ParseError::new("a sine swings between two rates", format!("write {EXAMPLE}"));
        let rates = range(words, wrong)?;
        let every = words.time_after("every")?.ok_or_else(wrong)?;
        if every < Span::from_us(1) || !profile::is_short_enough(every) {
            let what = format!("a swing of {every} is shorter than 1us or longer than a day");
            return Err(ParseError::new(what, "write every 1us to every 86400s"));
        }
        if counts(rates.0) == counts(rates.1) && value(rates.0) < value(rates.1) {
            Ok(Sine { rates, every })
        } else {
            Err(ParseError::new(
                "a sine swings between two rates that count the same, the lower one first",
                format!("write {EXAMPLE}"),
            ))
        }
    }

    fn shape(&self) -> Option<Shape> {
        let at = |i: u64| Span::from_ps((u128::from(self.every.as_ps()) * u128::from(i) / u128::from(PIECES)) as u64);
        let pieces = (0..PIECES).map(|i| Stretch::Rates(at(i + 1) - at(i), Some(self.rate(i)), Some(self.rate(i + 1))));
        Some(Shape { pieces: pieces.collect(), repeats: true })
    }
}

impl Sine {
    /// The rate at the start of a piece.
    fn rate(&self, piece: u64) -> Rate {
        let (low, high) = (value(self.rates.0), value(self.rates.1));
        let swing = libm::sin(2.0 * PI * (piece % PIECES) as f64 / PIECES as f64);
        let above = libm::round((high - low) as f64 * (1.0 + swing) / 2.0) as u64;
        match self.rates.0 {
            Rate::Bits(_, layer) => Rate::Bits(BitRate::from_bps(low + above), layer),
            Rate::Frames(_) => Rate::Frames(FrameRate::from_millis(low + above)),
            Rate::Line(_) => Rate::Line(Share::from_ppb((low + above) as u32)),
        }
    }
}

/// A rate as a plain number of its unit.
fn value(rate: Rate) -> u64 {
    match rate {
        Rate::Bits(rate, _) => rate.bps(),
        Rate::Frames(rate) => rate.millis(),
        Rate::Line(share) => share.ppb().into(),
    }
}

impl fmt::Display for Sine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sine ")?;
        super::write_range(f, self.rates)?;
        write!(f, " every {}", self.every)
    }
}
