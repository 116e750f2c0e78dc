//! Sets of values of a header field.

/// Values of a field: sorted, disjoint ranges, and whether the field may be absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) ranges: Vec<(u128, u128)>,
    pub(super) absent: bool,
}

impl Set {
    /// Every value up to `most`, and absence.
    pub(super) fn all(most: u128) -> Self {
        Set { ranges: vec![(0, most)], absent: true }
    }

    /// The values in these ranges.
    pub(super) fn of(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut all: Vec<(u128, u128)> = ranges.into_iter().collect();
        all.sort_unstable();
        let mut ranges: Vec<(u128, u128)> = Vec::new();
        for (from, to) in all {
            match ranges.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => ranges.push((from, to)),
            }
        }
        Set { ranges, absent: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty() && !self.absent
    }

    /// True if this is the full set.
    pub(super) fn is_all(&self, most: u128) -> bool {
        self.absent && self.ranges == [(0, most)]
    }

    /// The complement of the set.
    pub(super) fn complement(&self, most: u128) -> Self {
        let mut ranges = Vec::new();
        let mut from = Some(0);
        for (low, high) in &self.ranges {
            if let Some(start) = from.filter(|start| start < low) {
                ranges.push((start, low - 1));
            }
            from = high.checked_add(1);
        }
        if let Some(start) = from.filter(|start| *start <= most) {
            ranges.push((start, most));
        }
        Set { ranges, absent: !self.absent }
    }

    /// The intersection of both sets.
    pub(super) fn and(&self, other: &Set) -> Self {
        let mut ranges = Vec::new();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.ranges.get(i), other.ranges.get(j)) {
            let (from, to) = (a.0.max(b.0), a.1.min(b.1));
            if from <= to {
                ranges.push((from, to));
            }
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        Set { ranges, absent: self.absent && other.absent }
    }

    /// True if the sets overlap.
    pub(super) fn meets(&self, other: &Set) -> bool {
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.ranges.get(i), other.ranges.get(j)) {
            if a.0.max(b.0) <= a.1.min(b.1) {
                return true;
            }
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        self.absent && other.absent
    }

    /// The difference: this set without `other`.
    pub(super) fn without(&self, other: &Set, most: u128) -> Self {
        self.and(&other.complement(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_operations_agree_with_lists_of_values() {
        let members = |set: &Set| -> Vec<u128> {
            (0..16).filter(|value| set.ranges.iter().any(|(a, b)| (a..=b).contains(&value))).collect()
        };
        let a = Set::of([(8, 9), (2, 5), (6, 6)]);
        let b = Set { absent: true, ..Set::of([(0, 2), (5, 8), (15, 15)]) };
        assert_eq!(a.ranges, [(2, 6), (8, 9)], "neighbours join");
        assert_eq!(members(&a.and(&b)), [2, 5, 6, 8]);
        assert!(a.meets(&b) && !a.meets(&a.complement(15)) && b.meets(&Set { ranges: Vec::new(), absent: true }));
        assert_eq!(members(&b.complement(15)), [3, 4, 9, 10, 11, 12, 13, 14]);
        assert_eq!(members(&b.without(&a, 15)), [0, 1, 7, 15]);
        assert!(b.without(&a, 15).absent && !a.without(&b, 15).absent);
        assert!(Set::all(15).complement(15).is_empty() && Set::all(15).is_all(15));
        assert_eq!(Set::of([(0, u128::MAX)]).complement(u128::MAX), Set { ranges: Vec::new(), absent: true });
    }
}
