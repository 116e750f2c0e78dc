use super::chance::{Chance, Decisions};
use crate::random::Random;
use crate::schedules::Files;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{ParseError, Share};

/// Which frames are lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LossModel {
    /// No loss.
    #[default]
    None,
    /// A share of frames, independently or in runs.
    Random(Chance),
    /// The four states of Salsano, Ludovici and Ordine (2009): good (1), good within a burst (2), lost within a burst
    /// (3), lost alone (4). Transitions are in netem's order.
    States {
        /// 1 → 3
        p13: Share,
        /// 3 → 1
        p31: Share,
        /// 3 → 2
        p32: Share,
        /// 2 → 3
        p23: Share,
        /// 1 → 4
        p14: Share,
    },
    /// The model of Gilbert and Elliott.
    GilbertElliott {
        /// Good → bad.
        p: Share,
        /// Bad → good.
        r: Share,
        /// Share lost in the bad state: 1 − h.
        bad: Share,
        /// Share lost in the good state: 1 − k.
        good: Share,
    },
    /// Loses the frames at the ones of a repeating pattern.
    Pattern(Pattern),
}

/// Zeros and ones, inline or in a file.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The original text.
    pub text: String,
    bits: Arc<Vec<bool>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Parses a pattern `0b1011`, or the name of a file of zeros and ones.
    ///
    /// # Errors
    /// Digits other than 0 and 1, or no digits.
    pub(super) fn parse(word: &str) -> Result<Self, ParseError> {
        let bits = match word.strip_prefix("0b") {
            Some(digits) => Self::bits(digits, word)?,
            None => Vec::new(),
        };
        Ok(Pattern { text: word.to_owned(), bits: Arc::new(bits) })
    }

    fn bits(text: &str, name: &str) -> Result<Vec<bool>, ParseError> {
        let digits = text.lines().map(|line| line.split('#').next().unwrap_or_default()).flat_map(str::chars);
        let digits = digits.filter(|c| !c.is_whitespace() && *c != '_');
        let bits: Result<Vec<bool>, ParseError> = digits
            .map(|c| match c {
                '0' => Ok(false),
                '1' => Ok(true),
                _ => Err(ParseError::new(
                    format!("'{c}' in the pattern {name} is neither 0 nor 1"),
                    "write 0b1011, or a file of zeros and ones: 1 is a frame that is lost",
                )),
            })
            .collect();
        let bits = bits?;
        if bits.is_empty() {
            return Err(ParseError::new(
                format!("the pattern {name} is empty"),
                "write 0b1011: 1 is a frame that is lost",
            ));
        }
        Ok(bits)
    }

    pub(super) fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        if !self.text.starts_with("0b") {
            self.bits = Arc::new(Self::bits(&files.text(self.text.as_ref())?, &self.text)?);
        }
        Ok(())
    }

    /// The file of the pattern, if it is not inline.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        (!self.text.starts_with("0b")).then(|| self.text.clone().into())
    }
}

impl LossModel {
    /// The share of frames lost in the long run.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self {
            LossModel::None => 0.0,
            LossModel::Random(chance) => chance.share.as_f64(),
            LossModel::States { p13, p31, p32, p23, p14 } => {
                let [p13, p31, p32, p23, p14] = [p13, p31, p32, p23, p14].map(|share| share.as_f64());
                // Balance equations: π₃p₃₂ = π₂p₂₃, π₁p₁₄ = π₄ (which always returns), π₁p₁₃ = π₃p₃₁.
                let (one, three) = if p31 > 0.0 {
                    (1.0, p13 / p31)
                } else if p13 > 0.0 {
                    (0.0, 1.0)
                } else {
                    (1.0, 0.0)
                };
                let two = if p23 > 0.0 { three * p32 / p23 } else { 0.0 };
                if p23 <= 0.0 && p32 > 0.0 && three > 0.0 {
                    return 0.0;
                }
                let four = one * p14;
                (three + four) / (one + two + three + four)
            }
            LossModel::GilbertElliott { p, r, bad, good } => {
                let [p, r, bad, good] = [p, r, bad, good].map(|share| share.as_f64());
                if p + r <= 0.0 { good } else { (p * bad + r * good) / (p + r) }
            }
            LossModel::Pattern(pattern) => {
                let ones = pattern.bits.iter().filter(|bit| **bit).count();
                ones as f64 / pattern.bits.len().max(1) as f64
            }
        }
    }
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LossModel::None => Ok(()),
            LossModel::Random(chance) => write!(f, " loss random {chance}"),
            LossModel::States { p13, p31, p32, p23, p14 } => write!(f, " loss state {p13} {p31} {p32} {p23} {p14}"),
            LossModel::GilbertElliott { p, r, bad, good } => write!(f, " loss gemodel {p} {r} {bad} {good}"),
            LossModel::Pattern(pattern) => write!(f, " loss pattern {}", pattern.text),
        }
    }
}

/// Decides which frames are lost.
pub(super) enum Losing {
    Never,
    Random(Decisions),
    States { random: Random, state: u8, p13: u64, p31: u64, p32: u64, p23: u64, p14: u64 },
    GilbertElliott { random: Random, is_bad: bool, p: Share, r: Share, bad: Share, good: Share },
    Pattern { bits: Arc<Vec<bool>>, next: usize },
}

impl Losing {
    pub(super) fn new(loss: &LossModel, random: Random) -> Self {
        let ppb = |share: Share| u64::from(share.ppb());
        match loss {
            LossModel::None => Losing::Never,
            LossModel::Random(chance) => Losing::Random(Decisions::new(*chance, random)),
            LossModel::States { p13, p31, p32, p23, p14 } => {
                let (p13, p31, p32, p23, p14) = (ppb(*p13), ppb(*p31), ppb(*p32), ppb(*p23), ppb(*p14));
                Losing::States { random, state: 1, p13, p31, p32, p23, p14 }
            }
            LossModel::GilbertElliott { p, r, bad, good } => {
                Losing::GilbertElliott { random, is_bad: false, p: *p, r: *r, bad: *bad, good: *good }
            }
            LossModel::Pattern(pattern) => Losing::Pattern { bits: pattern.bits.clone(), next: 0 },
        }
    }

    /// Whether the next frame is lost.
    pub(super) fn next(&mut self) -> bool {
        match self {
            Losing::Never => false,
            Losing::Random(decisions) => decisions.next(),
            // The state after the transition decides, as in the kernel's loss_4state().
            Losing::States { random, state, p13, p31, p32, p23, p14 } => {
                let drawn = random.below(u64::from(Share::ONE.ppb()));
                *state = match *state {
                    1 if drawn < *p14 => 4,
                    1 if drawn < *p14 + *p13 => 3,
                    2 if drawn < *p23 => 3,
                    3 if drawn < *p32 => 2,
                    3 if drawn < *p32 + *p31 => 1,
                    4 => 1,
                    same => same,
                };
                *state >= 3
            }
            // The state before the transition decides, as in the kernel's loss_gilb_ell().
            Losing::GilbertElliott { random, is_bad, p, r, bad, good } => {
                let (leave, lost) = if *is_bad { (*r, *bad) } else { (*p, *good) };
                *is_bad ^= random.chance(leave);
                random.chance(lost)
            }
            Losing::Pattern { bits, next } => {
                let lost = bits.get(*next).copied().unwrap_or(false);
                *next = (*next + 1) % bits.len().max(1);
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Netem;
    use super::*;

    const N: usize = 1_000_000;

    /// Share lost, mean length of loss runs, and the share in closed form.
    fn lost(spec: &str) -> (f64, f64, f64) {
        let loss = Netem::parse_spec(spec).expect(spec).loss;
        let mut losing = Losing::new(&loss, Random::stream(2, "test"));
        let lost: Vec<bool> = (0..N).map(|_| losing.next()).collect();
        let count = lost.iter().filter(|lost| **lost).count() as f64;
        let runs = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).count() as f64;
        (count / N as f64, count / runs, loss.share())
    }

    #[test]
    fn effect_gilbert_elliott_matches_its_closed_form() {
        let (share, run, closed) = lost("loss gemodel 1% 10% 70% 0.1%");
        assert!((closed - (0.01 * 0.7 + 0.1 * 0.001) / 0.11).abs() < 1e-9);
        assert!((share - closed).abs() < 0.003, "{share} for {closed}");
        assert!(run > 1.9, "{run}");
        let (share, run, closed) = lost("loss gemodel 2% 20%");
        assert!((share - closed).abs() < 0.002 && (run - 5.0).abs() < 0.15, "{share} {run}");
    }

    #[test]
    fn effect_four_states_match_their_closed_form() {
        let (share, _, closed) = lost("loss state 1% 20% 30% 40% 0.5%");
        assert!((share - closed).abs() < 0.002, "{share} for {closed}");
        let (share, run, closed) = lost("loss state 5%");
        assert!((closed - 0.05).abs() < 1e-9, "{closed}: with p31 = 1 − p13 each frame is lost alone");
        assert!((share - closed).abs() < 0.001 && (run - 1.0 / 0.95).abs() < 0.01, "{share} {run}");
    }

    #[test]
    fn patterns_repeat() {
        let (share, run, closed) = lost("loss pattern 0b11000");
        assert!((share - 0.4).abs() < 1e-5 && (run - 2.0).abs() < 1e-9 && (closed - 0.4).abs() < 1e-9);
        assert!(Pattern::parse("0b102").is_err() && Pattern::parse("0b").is_err());
    }
}
