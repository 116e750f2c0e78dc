/// Exact count, mean, standard deviation, smallest and largest of integers.
///
/// Values are summed relative to the first one, so that a long run of similar values neither overflows nor loses
/// digits. The sum of squares has 192 bits: 128 would not suffice if the first value is a pause of a day, followed by
/// 50 000 short gaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments {
    count: u64,
    origin: i64,
    sum: i128,
    squares: u128,
    /// Number of overflows of the squares beyond 2¹²⁸.
    beyond: u64,
    min: i64,
    max: i64,
}

impl Moments {
    /// Counts one value.
    pub fn add(&mut self, value: i64) {
        self.add_many(value, 1);
    }

    /// Counts the same value `n` times.
    pub(crate) fn add_many(&mut self, value: i64, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 {
            (self.origin, self.min, self.max) = (value, value, value);
        }
        self.count += n;
        if value == self.origin {
            return;
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Most values come singly and are close to the first one: the square fits in 64 bits.
        if let (1, Some(shifted)) = (n, value.checked_sub(self.origin).and_then(|shifted| i32::try_from(shifted).ok()))
        {
            let square = i64::from(shifted) * i64::from(shifted);
            let (squares, over) = self.squares.overflowing_add(square.unsigned_abs().into());
            (self.squares, self.beyond) = (squares, self.beyond + u64::from(over));
            self.sum += i128::from(shifted);
            return;
        }
        let shifted = i128::from(value) - i128::from(self.origin);
        self.sum += shifted * i128::from(n);
        let square = shifted.unsigned_abs() * shifted.unsigned_abs();
        let (low, high) = ((square & u128::from(u64::MAX)) * u128::from(n), (square >> 64) * u128::from(n));
        for squares in [low, high << 64] {
            let (sum, over) = self.squares.overflowing_add(squares);
            self.squares = sum;
            self.beyond += u64::from(over);
        }
        self.beyond += (high >> 64) as u64;
    }

    /// Adds the values of `other`, exactly.
    pub(crate) fn merge(&mut self, other: &Moments) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = *other;
            return;
        }
        // Values at x from the other origin are at x + d from ours: Σ(x + d)² = Σx² + d (n d + 2 Σx).
        let off = i128::from(other.origin) - i128::from(self.origin);
        let shift = i128::from(other.count) * off;
        let factor = shift + 2 * other.sum;
        self.change_squares(other.squares, other.beyond, false);
        let (wide, narrow) = (factor.unsigned_abs(), off.unsigned_abs());
        let (low, high) = ((wide & u128::from(u64::MAX)) * narrow, (wide >> 64) * narrow);
        let (part, over) = low.overflowing_add(high << 64);
        self.change_squares(part, (high >> 64) as u64 + u64::from(over), (off < 0) != (factor < 0));
        self.sum += other.sum + shift;
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Adds a number of 192 bits to the squares, or subtracts it.
    fn change_squares(&mut self, low: u128, high: u64, subtract: bool) {
        let (squares, over) =
            if subtract { self.squares.overflowing_sub(low) } else { self.squares.overflowing_add(low) };
        self.squares = squares;
        let high = high.wrapping_add(u64::from(over));
        self.beyond = if subtract { self.beyond.wrapping_sub(high) } else { self.beyond.wrapping_add(high) };
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; zero without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let whole = self.sum.div_euclid(i128::from(self.count));
        let rest = self.sum.rem_euclid(i128::from(self.count));
        (i128::from(self.origin) + whole) as f64 + rest as f64 / self.count as f64
    }

    /// The population standard deviation (divided by n); zero without values.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let n = self.count as f64;
        let mean = self.sum as f64 / n;
        let squares = self.beyond as f64 * 2_f64.powi(128) + self.squares as f64;
        // Both terms are exact integers up to here; their difference can be negative only by rounding of the
        // conversion.
        (squares / n - mean * mean).max(0.0).sqrt()
    }

    /// The smallest value; zero without values.
    #[must_use]
    pub fn min(&self) -> i64 {
        self.min
    }

    /// The largest value; zero without values.
    #[must_use]
    pub fn max(&self) -> i64 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_zero_deviation() {
        let mut moments = Moments::default();
        for _ in 0..1_000 {
            moments.add(10_000_000_000_001);
        }
        assert_eq!(moments.count(), 1_000);
        assert!((moments.mean() - 10_000_000_000_001.0).abs() < 1e-9);
        assert!(moments.deviation() < 1e-9);
        assert_eq!((moments.min(), moments.max()), (10_000_000_000_001, 10_000_000_000_001));
    }

    #[test]
    fn keeps_a_small_spread_of_large_values() {
        let mut moments = Moments::default();
        for i in 0..1_000_i64 {
            moments.add(1_000_000_000_000_000 + i % 2);
        }
        assert!((moments.deviation() - 0.5).abs() < 1e-9);
        assert!((moments.mean() - 1_000_000_000_000_000.5).abs() < 0.2);
    }

    #[test]
    fn more_than_2_to_the_33_values_stay_exact() {
        let mut moments = Moments::default();
        moments.add_many(5_000, 1 << 33);
        moments.add_many(5_002, 1 << 33);
        assert_eq!(moments.count(), 1 << 34);
        assert_eq!((moments.mean(), moments.deviation()), (5_001.0, 1.0));
    }

    #[test]
    fn handles_many_values_far_from_the_first() {
        let mut moments = Moments::default();
        let day = 86_400_000_000_000_000_i64;
        moments.add(day);
        const MANY: u32 = if cfg!(miri) { 1_000 } else { 100_000 };
        for _ in 0..MANY {
            moments.add(1_000_000);
        }
        let mut at_once = Moments::default();
        at_once.add(day);
        at_once.add_many(1_000_000, MANY.into());
        let expected = (day - 1_000_000) as f64 * f64::from(MANY).sqrt() / f64::from(MANY + 1);
        for moments in [moments, at_once] {
            assert!((moments.deviation() / expected - 1.0).abs() < 1e-9, "{}", moments.deviation());
        }
    }

    #[test]
    fn sums_near_and_far_values_alike() {
        let edge = 1_i64 << 31;
        let offs = [0, 1, -1, edge - 1, edge, edge + 1, -edge, -edge - 1, i64::MAX / 2, i64::MIN / 2];
        let (mut one_by_one, mut in_pairs) = (Moments::default(), Moments::default());
        for off in offs {
            for _ in 0..2 {
                one_by_one.add(7 + off);
            }
            in_pairs.add_many(7 + off, 2);
        }
        let figures = |of: &Moments| (of.count, of.sum, of.squares, of.beyond, of.min, of.max);
        assert_eq!(figures(&one_by_one), figures(&in_pairs));
        let sum: i128 = offs.iter().map(|off| 2 * i128::from(*off)).sum();
        assert_eq!((one_by_one.sum, one_by_one.count), (sum, 20));
    }

    #[test]
    fn merged_values_are_those_of_one_list() {
        let day = 86_400_000_000_000_000_i64;
        let lists: [&[i64]; 4] = [&[5, 9, 7, 9], &[-3, day, 12, -day, 8], &[day + 1, day + 5], &[]];
        for first in lists {
            for second in lists {
                let (mut whole, mut one, mut other) = (Moments::default(), Moments::default(), Moments::default());
                first.iter().for_each(|value| one.add(*value));
                second.iter().for_each(|value| other.add(*value));
                first.iter().chain(second).for_each(|value| whole.add(*value));
                one.merge(&other);
                let figures = |of: &Moments| (of.count, of.origin, of.sum, of.squares, of.beyond, of.min, of.max);
                assert_eq!(figures(&one), figures(&whole), "{first:?} and {second:?}");
            }
        }
    }

    #[test]
    fn figures_without_values_are_zero() {
        let moments = Moments::default();
        assert!(moments.mean().abs() < f64::EPSILON && moments.deviation().abs() < f64::EPSILON);
    }
}
