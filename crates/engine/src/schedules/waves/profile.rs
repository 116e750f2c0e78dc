//! The exact integral of a waveform, and its inverse: the time at which it reaches an amount.
//!
//! Rates are whole thousandths of a bit (or frame) per second. Times are whole picoseconds. Twice their product is a
//! whole number for every piece, even with a linear change, so amounts are counted in that unit: 1/(2·10¹⁵) of a bit.
//! Within a linear change, the amount at an instant may be fractional. The comparison with an amount is nevertheless
//! exact.

use crate::schedules::gcd;

/// Maximum length of a piece: a day. With rates of up to 2 Tbit/s, amounts stay well within 128 bits.
const LONGEST: u64 = 86_400 * units::PS_PER_S;

/// Converts thousandths of a bit or frame to the unit of amounts.
pub(super) const fn amount(millis: u128) -> u128 {
    millis * 2 * units::PS_PER_S as u128
}

/// A piece of a waveform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The rate changes linearly, in thousandths per second.
    Rates {
        /// Duration in ps.
        ps: u64,
        /// The rate at the start.
        from: u64,
        /// The rate at the end.
        to: u64,
    },
    /// An amount that is available at one instant.
    Amount(u128),
}

impl Piece {
    fn ps(&self) -> u64 {
        match self {
            Piece::Rates { ps, .. } => *ps,
            Piece::Amount(_) => 0,
        }
    }

    /// The amount of the whole piece.
    fn total(&self) -> u128 {
        match self {
            Piece::Rates { ps, from, to } => (u128::from(*from) + u128::from(*to)) * u128::from(*ps),
            Piece::Amount(amount) => *amount,
        }
    }

    /// The amount up to `t` ps after its start, rounded down or up to a whole unit.
    fn until(&self, t: u64, up: bool) -> u128 {
        let Piece::Rates { ps, from, to } = self else { return self.total() };
        if t >= *ps {
            return self.total();
        }
        let (t, ps) = (u128::from(t), u128::from(*ps));
        let even = 2 * u128::from(*from) * t;
        // |to − from|·t²/ps, without overflow of 128 bits.
        let change = u128::from(from.abs_diff(*to));
        let (whole, rest) = (t * t / ps, t * t % ps);
        let part = change * rest;
        let down = change * whole + part / ps;
        let ceiling = down + u128::from(!part.is_multiple_of(ps));
        match (to >= from, up) {
            (true, false) => even + down,
            (true, true) => even + ceiling,
            (false, false) => even - ceiling,
            (false, true) => even - down,
        }
    }

    /// The slope of the rate, if it changes.
    fn slope(&self) -> Option<Slope> {
        let Piece::Rates { ps, from, to } = self else { return None };
        if from == to {
            return None;
        }
        let divisor = gcd(from.abs_diff(*to).into(), u128::from(*ps)) as u64;
        let (change, over) = (from.abs_diff(*to) / divisor, ps / divisor);
        let bits = |value: u128| u128::BITS - value.leading_zeros();
        let fits = change <= i64::MAX as u64
            && bits(change.into()) + 2 * bits(u128::from(*ps) + 1) <= 126
            && bits(over.into()) + bits(2 * self.total()) <= 126;
        let change = if to > from { change.cast_signed() } else { -change.cast_signed() };
        let rise = (*to as f64 - *from as f64) / *ps as f64;
        Some(Slope { change, over, fits, rise, run: 1.0 / rise })
    }

    /// The last picosecond at which the amount does not exceed `amount`, which must be less than the total of the
    /// piece.
    fn last_within(&self, slope: Option<Slope>, amount: u128) -> u64 {
        let Piece::Rates { ps, from, .. } = self else { return 0 };
        let Some(slope) = slope else {
            return u64::try_from(amount / (2 * u128::from(*from))).unwrap_or(*ps).min(*ps);
        };
        // Starts from a floating-point guess, then searches whole picoseconds in growing steps. The result does not
        // depend on the guess.
        let start = *from as f64;
        let root = (start * start + slope.rise * about(amount)).max(0.0).sqrt();
        let guess = (root - start) * slope.run;
        let mut low = (guess as i64).max(0).cast_unsigned().min(*ps);
        if slope.fits && low < *ps && slope.is_last(*from, low, amount) {
            return low;
        }
        let mut step = 1;
        let within = |t: u64| self.until(t, true) <= amount;
        let mut high = low;
        while low > 0 && !within(low) {
            high = low;
            low = low.saturating_sub(step);
            step *= 2;
        }
        step = 1;
        while high <= low || (high < *ps && within(high)) {
            if high > low {
                low = high;
            }
            high = low.saturating_add(step).min(ps + 1);
            step *= 2;
            if high > *ps {
                break;
            }
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if within(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// The slope of a rate.
#[derive(Clone, Copy, Debug)]
struct Slope {
    /// Change in thousandths per second over `over` ps, signed and in lowest terms.
    change: i64,
    over: u64,
    /// True if no product of these within the piece exceeds 126 bits.
    fits: bool,
    /// Change per ps, and its reciprocal.
    rise: f64,
    run: f64,
}

/// Approximate conversion. The compiler's exact conversion of 128 bits is as expensive as a square root.
fn about(amount: u128) -> f64 {
    (amount >> 64) as u64 as f64 * 18_446_744_073_709_551_616.0 + amount as u64 as f64
}

impl Slope {
    /// Whether `t` is the last picosecond at which a piece with start rate `from` does not exceed `amount`. Avoids a
    /// division, which would be more expensive than the rest.
    #[inline]
    fn is_last(&self, from: u64, t: u64, amount: u128) -> bool {
        let (over, change) = (i128::from(self.over), i128::from(self.change));
        let twice = 2 * i128::from(from);
        let t = i128::from(t);
        let left = (amount.cast_signed() - twice * t) * over - change * (t * t);
        left >= 0 && left < twice * over + change * (2 * t + 1)
    }
}

/// A waveform and a position on it that only moves forward.
#[derive(Clone, Debug)]
pub struct Profile {
    pieces: Vec<Piece>,
    /// Slope of each piece, if its rate changes.
    slopes: Vec<Option<Slope>>,
    repeats: bool,
    /// Duration and amount of all pieces.
    period: u64,
    total: u128,
    /// The current piece, and its start in ps since the start of the waveform.
    piece: usize,
    start: u64,
    /// Amount of the current piece up to the position.
    done: u128,
    /// Amount before the current piece.
    before: u128,
}

impl Profile {
    /// A waveform of these pieces. Without repetition, the last rate continues forever.
    #[must_use]
    pub fn new(pieces: Vec<Piece>, repeats: bool) -> Self {
        let pieces: Vec<Piece> = pieces.into_iter().filter(|piece| piece.ps() > 0 || piece.total() > 0).collect();
        let period = pieces.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.ps()));
        let total = pieces.iter().map(Piece::total).sum();
        let slopes = pieces.iter().map(Piece::slope).collect();
        Profile { pieces, slopes, repeats, period, total, piece: 0, start: 0, done: 0, before: 0 }
    }

    /// Moves the position forward by an amount.
    pub(crate) fn advance(&mut self, amount: u128) {
        self.done += amount;
    }

    /// The amount up to the position.
    #[must_use]
    pub fn amount(&self) -> u128 {
        self.before + self.done
    }

    /// The time of the position, in ps since the start. This is the last instant at which the integral does not exceed
    /// it, so that no frame starts in silence. `None` if the position is never reached.
    pub fn time(&mut self) -> Option<u64> {
        loop {
            let Some(piece) = self.pieces.get(self.piece) else {
                // After the last piece, its rate continues.
                let rate = match self.pieces.last() {
                    Some(Piece::Rates { to, .. }) if *to > 0 => 2 * u128::from(*to),
                    _ => return None,
                };
                return u64::try_from(self.done / rate).ok().and_then(|ps| self.start.checked_add(ps));
            };
            if self.done < piece.total() {
                return self.start.checked_add(piece.last_within(self.slopes[self.piece], self.done));
            }
            self.done -= piece.total();
            self.before += piece.total();
            self.start = self.start.checked_add(piece.ps())?;
            self.piece += 1;
            if self.piece == self.pieces.len() && self.repeats {
                self.piece = 0;
                // Skips whole rounds at once, because a frame may span many rounds.
                let rounds = self.done / self.total;
                self.done -= rounds * self.total;
                self.before += rounds * self.total;
                self.start = u64::try_from(rounds * u128::from(self.period)).ok()?.checked_add(self.start)?;
            }
        }
    }

    /// True if the position is never reached because the counted bursts have ended.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        let silent = matches!(self.pieces.last(), Some(Piece::Rates { to: 0, .. }) | None);
        self.piece == self.pieces.len() && silent
    }

    /// Moves the position forward to the integral at `ps` after the start, unless it is already past that. Returns the
    /// skipped amount.
    pub(crate) fn skip_to(&mut self, ps: u64) -> u128 {
        let from = self.amount();
        while let Some(piece) = self.pieces.get(self.piece) {
            let end = self.start.saturating_add(piece.ps());
            if end > ps {
                // Rounds up, so that the position is not before that instant.
                self.done = self.done.max(piece.until(ps.saturating_sub(self.start), true));
                return self.amount() - from;
            }
            // An amount at exactly this instant is still available.
            if self.start == ps && matches!(piece, Piece::Amount(_)) {
                return self.amount() - from;
            }
            self.before += piece.total();
            self.done = self.done.saturating_sub(piece.total());
            self.start = end;
            self.piece += 1;
            if self.piece == self.pieces.len() && self.repeats {
                self.piece = 0;
                // Excludes the round that ends at this instant, because it may end with an amount.
                let rounds = ps.saturating_sub(self.start).saturating_sub(1) / self.period.max(1);
                let whole = u128::from(rounds) * self.total;
                self.before += whole;
                self.done = self.done.saturating_sub(whole);
                self.start = self.start.saturating_add(rounds * self.period);
            }
        }
        if let Some(Piece::Rates { to, .. }) = self.pieces.last() {
            let gone = 2 * u128::from(*to) * u128::from(ps.saturating_sub(self.start));
            self.done = self.done.max(gone);
        }
        self.amount() - from
    }
}

/// Whether a waveform may have a period of this length.
pub(super) fn is_short_enough(span: units::Span) -> bool {
    span.as_ps() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The guess and the products without division yield the picosecond required by the definition.
        #[test]
        fn finds_the_last_picosecond_within_an_amount(
            ps in 1_u64..LONGEST,
            shift in 0_u32..40,
            from in 0_u64..2_000_000_000_000_000,
            to in 0_u64..2_000_000_000_000_000,
            part in 0_u64..1 << 32,
        ) {
            let piece = Piece::Rates { ps: (ps >> shift).max(1), from, to };
            prop_assume!(from != to);
            let amount = (piece.total() >> 32) * u128::from(part);
            let t = piece.last_within(piece.slope(), amount);
            prop_assert!(piece.until(t, true) <= amount);
            prop_assert!(piece.until(t + 1, true) > amount || t + 1 > piece.ps());
        }

        /// The same for round rates and times, whose products fit.
        #[test]
        fn finds_the_last_picosecond_of_a_round_ramp(
            ms in 1_u64..100_000,
            from in 0_u64..100,
            to in 0_u64..100,
            part in 0_u64..1 << 32,
        ) {
            prop_assume!(from != to);
            let piece = Piece::Rates { ps: ms * 1_000_000_000, from: from * 1_000_000_000_000, to: to * 1_000_000_000_000 };
            let slope = piece.slope();
            prop_assert!(slope.is_some_and(|slope| slope.fits));
            let amount = (piece.total() >> 32) * u128::from(part);
            let t = piece.last_within(slope, amount);
            prop_assert!(piece.until(t, true) <= amount && piece.until(t + 1, true) > amount);
        }
    }
}
