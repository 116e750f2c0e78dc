use crate::random::Random;
use packet::Kind;
use std::fmt;

/// The values of a field, one per frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    /// Single values and inclusive ranges, at least one. A walked range may descend; a random one must ascend.
    pub parts: Vec<(u128, u128)>,
    /// Increment within a range.
    pub step: u64,
    /// Whether values are drawn at random instead of in order.
    pub random: bool,
}

impl Values {
    /// One value for all frames.
    #[must_use]
    pub fn fixed(value: u128) -> Self {
        Values { parts: vec![(value, value)], step: 1, random: false }
    }

    /// The value, if there is only one.
    #[must_use]
    pub fn only(&self) -> Option<u128> {
        match self.parts[..] {
            [(first, last)] if first.abs_diff(last) < u128::from(self.step) => Some(first),
            _ => None,
        }
    }

    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u128 {
        self.parts.iter().fold(0, |count, part| count.saturating_add(self.steps(part)))
    }

    /// The index of a value in the walk, from 0. `None` if the value does not occur.
    #[must_use]
    pub fn position(&self, value: u128) -> Option<u128> {
        let mut before = 0_u128;
        for part in &self.parts {
            let (first, last) = *part;
            let (offset, step) = (value.abs_diff(first), u128::from(self.step));
            if (first.min(last)..=first.max(last)).contains(&value) && offset.is_multiple_of(step) {
                return Some(before + offset / step);
            }
            before = before.saturating_add(self.steps(part));
        }
        None
    }

    /// The value at an index of the walk, which restarts after the last value.
    #[must_use]
    pub fn nth(&self, index: u128) -> u128 {
        let mut index = index % self.count();
        for part in &self.parts {
            let steps = self.steps(part);
            if index < steps {
                let offset = index * u128::from(self.step);
                return if part.1 < part.0 { part.0 - offset } else { part.0 + offset };
            }
            index -= steps;
        }
        self.parts[0].0
    }

    /// Number of values in a part.
    fn steps(&self, (first, last): &(u128, u128)) -> u128 {
        (first.abs_diff(*last) / u128::from(self.step)).saturating_add(1)
    }

    /// Prints the values of a field of this kind in the form that can be parsed. `v6` selects the form of addresses.
    ///
    /// # Errors
    /// Errors of the formatter.
    pub fn print(&self, f: &mut fmt::Formatter<'_>, kind: Kind, v6: bool) -> fmt::Result {
        if self.random {
            f.write_str("random ")?;
        }
        for (i, (first, last)) in self.parts.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            kind.print(f, *first, v6)?;
            if first != last {
                f.write_str("-")?;
                kind.print(f, *last, v6)?;
            }
        }
        if self.step != 1 { write!(f, " step {}", self.step) } else { Ok(()) }
    }
}

/// Yields the values of a field one by one.
#[derive(Clone, Debug)]
pub(super) struct Walker {
    parts: Vec<Part>,
    part: usize,
    /// Number of steps taken in the part.
    index: u64,
    step: u64,
    /// Number of values to skip after each one, because other generators use them.
    skip: u64,
    /// The source of random values, and the number of values to choose from.
    random: Option<(Random, u128)>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    first: u128,
    /// Number of steps from the first to the last value.
    steps: u128,
    /// Whether the steps go down.
    down: bool,
}

impl Part {
    #[inline]
    fn at(&self, offset: u128) -> u128 {
        if self.down { self.first - offset } else { self.first + offset }
    }
}

impl Walker {
    pub(super) fn new(values: &Values, random: Random) -> Self {
        let part = |(first, last): &(u128, u128)| {
            let steps = first.abs_diff(*last) / u128::from(values.step);
            Part { first: *first, steps, down: last < first }
        };
        let parts: Vec<Part> = values.parts.iter().map(part).collect();
        // In the full range of 2¹²⁸ values, the last one is never drawn, because the count would overflow.
        let random = values.random.then(|| (random, values.count()));
        Walker { parts, part: 0, index: 0, step: values.step, skip: 0, random }
    }

    #[inline]
    pub(super) fn next(&mut self) -> u128 {
        if let Some((random, choices)) = &mut self.random {
            let mut choice = random.below_wide(*choices);
            let mut at = 0;
            while choice > self.parts[at].steps {
                choice -= self.parts[at].steps + 1;
                at += 1;
            }
            return self.parts[at].at(choice * u128::from(self.step));
        }
        let part = self.parts[self.part];
        let value = part.at(u128::from(self.index) * u128::from(self.step));
        if u128::from(self.index) < part.steps.saturating_sub(self.skip.into()) {
            self.index += 1 + self.skip;
        } else {
            self.advance(1 + self.skip);
        }
        value
    }

    /// Moves forward by `values` values.
    fn advance(&mut self, mut values: u64) {
        // No walk reaches the end of a part with more than 2⁶⁴ values.
        while u128::from(values) > self.left() {
            values -= self.left() as u64 + 1;
            self.index = 0;
            self.part = if self.part + 1 == self.parts.len() { 0 } else { self.part + 1 };
        }
        self.index += values;
    }

    /// Values left in this part after the current one.
    fn left(&self) -> u128 {
        self.parts[self.part].steps - u128::from(self.index)
    }

    /// Yields every `of`-th value from index `first` on. A random field instead draws from the child random stream of
    /// this name.
    pub(super) fn deal(&mut self, first: u64, of: u64, name: &str) {
        match &mut self.random {
            Some((random, _)) => *random = random.child(name),
            None => {
                self.advance(first);
                self.skip = of - 1;
            }
        }
    }
}

/// A walk through one range of numbers of up to 32 bits, which nearly all fields have. The next value takes one
/// comparison and one addition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    value: u64,
    first: u64,
    /// One step beyond the last value.
    beyond: u64,
    stride: u64,
}

impl Counter {
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let value = self.value;
        let next = value + self.stride;
        self.value = if next < self.beyond { next } else { next - (self.beyond - self.first) };
        value
    }
}

impl Walker {
    /// The same walk as a counter, if the walk is a single ascending range.
    pub(super) fn counter(&self) -> Option<Counter> {
        let ([part @ Part { down: false, .. }], None) = (&self.parts[..], &self.random) else { return None };
        let first = u64::from(u32::try_from(part.first).ok()?);
        let span =
            u64::try_from(part.steps).ok()?.checked_add(1)?.checked_mul(self.step).filter(|span| *span <= 1 << 33)?;
        let stride = (1 + self.skip).checked_mul(self.step).filter(|stride| *stride <= span)?;
        Some(Counter { value: first + self.index * self.step, first, beyond: first + span, stride })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(values: &Values, n: usize) -> Vec<u128> {
        let mut walker = Walker::new(values, Random::stream(1, "field"));
        (0..n).map(|_| walker.next()).collect()
    }

    #[test]
    fn walks_ranges_lists_and_steps() {
        let values = Values { parts: vec![(1, 3), (9, 9), (20, 25)], step: 2, random: false };
        assert_eq!(walk(&values, 8), [1, 3, 9, 20, 22, 24, 1, 3]);
        assert_eq!(walk(&Values::fixed(7), 3), [7, 7, 7]);
        let wide = Values { parts: vec![(0, u128::MAX)], step: 1, random: false };
        assert_eq!(walk(&wide, 2), [0, 1]);
    }

    #[test]
    fn ranges_may_go_down() {
        let values = Values { parts: vec![(25, 20), (3, 1), (9, 9)], step: 2, random: false };
        assert_eq!(walk(&values, 8), [25, 23, 21, 3, 1, 9, 25, 23]);
        assert_eq!(values.count(), 6);
        for (index, value) in (0..).zip([25, 23, 21, 3, 1, 9]) {
            assert_eq!((values.position(value), values.nth(index)), (Some(index), value));
        }
        assert_eq!((values.position(24), values.position(26), values.only()), (None, None, None));
    }

    #[test]
    fn position_and_nth_are_inverse() {
        let values = Values { parts: vec![(1, 3), (9, 9), (20, 25)], step: 2, random: false };
        assert_eq!(values.count(), 6);
        let walked = walk(&values, 6);
        for (index, value) in (0..).zip(&walked) {
            assert_eq!(
                (values.position(*value), values.nth(index), values.nth(index + 6)),
                (Some(index), *value, *value)
            );
        }
        assert_eq!([0, 2, 4, 21, 26].map(|other| values.position(other)), [None; 5]);
        let wide = Values { parts: vec![(0, u128::MAX)], step: 1, random: false };
        assert_eq!((wide.position(u128::MAX), wide.nth(5)), (Some(u128::MAX), 5));
    }

    #[test]
    fn dealt_walkers_interleave_to_the_whole_walk() {
        let values = Values { parts: vec![(1, 3), (9, 9), (20, 25)], step: 2, random: false };
        let all = walk(&values, 60);
        for of in [1, 2, 3, 4, 7, 20] {
            let mut dealt: Vec<Walker> = (0..of).map(|_| Walker::new(&values, Random::stream(1, "field"))).collect();
            dealt.iter_mut().zip(0..).for_each(|(walker, first)| walker.deal(first, of, "part"));
            let got: Vec<u128> = (0..60).map(|i| dealt[i % of as usize].next()).collect();
            assert_eq!(got, all, "{of}");
        }
    }

    #[test]
    fn counter_walks_like_a_walker() {
        for (first, last, step) in [(0, 9, 1), (5, 5, 1), (0, u32::MAX.into(), 7), (4_294_967_290, 4_294_967_295, 2)] {
            let values = Values { parts: vec![(first, last)], step, random: false };
            for of in [1, 2, 3] {
                let mut walker = Walker::new(&values, Random::stream(1, "field"));
                walker.deal(of - 1, of, "part");
                let Some(mut counter) = walker.counter() else {
                    assert!(u128::from(of * step) > last - first, "{first}-{last} step {step} of {of}");
                    continue;
                };
                for _ in 0..50 {
                    assert_eq!(u128::from(counter.next()), walker.next(), "{first}-{last} step {step} of {of}");
                }
            }
        }
        let two = Values { parts: vec![(0, 1), (4, 5)], step: 1, random: false };
        assert!(Walker::new(&two, Random::stream(1, "field")).counter().is_none());
    }

    #[test]
    fn draws_values_uniformly() {
        let values = Values { parts: vec![(1, 2), (9, 9), (20, 26)], step: 3, random: true };
        let drawn = walk(&values, 50_000);
        for value in [1, 9, 20, 23, 26] {
            let times = drawn.iter().filter(|drawn| **drawn == value).count() as i64;
            // Six standard deviations of a binomial with n = 50 000, p = 1/5.
            assert!((times - 10_000).abs() < 6 * 90, "{value}: {times}");
        }
    }

    #[test]
    fn draws_from_the_whole_of_wide_ranges() {
        // 2001:db8::/32, and one more value.
        let first = 0x2001_0db8_u128 << 96;
        let parts = vec![(first, first + ((1 << 96) - 1)), (7, 7)];
        let drawn = walk(&Values { parts, step: 1, random: true }, 40_000);
        let mut sixteenths = [0_i64; 16];
        for value in &drawn {
            assert_eq!(value >> 96, 0x2001_0db8);
            sixteenths[(value >> 92) as usize & 15] += 1;
        }
        // Six standard deviations of a binomial with n = 40 000, p = 1/16.
        assert!(sixteenths.iter().all(|times| (times - 2_500).abs() < 6 * 49), "{sixteenths:?}");
        let all = walk(&Values { parts: vec![(0, u128::MAX)], step: 1, random: true }, 64);
        assert!(all.iter().any(|value| *value >> 127 == 1) && all.iter().any(|value| *value >> 127 == 0));
    }

    #[test]
    fn only_returns_a_value_if_it_is_the_only_one() {
        assert_eq!(Values::fixed(4).only(), Some(4));
        assert_eq!(Values { parts: vec![(4, 5)], step: 1, random: false }.only(), None);
        assert_eq!(Values { parts: vec![(4, 5)], step: 2, random: true }.only(), Some(4));
        assert_eq!(Values { parts: vec![(4, 4), (5, 5)], step: 1, random: false }.only(), None);
    }
}
