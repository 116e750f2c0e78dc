//! A queue for held frames, ordered by departure time.
//!
//! It is a hierarchical timing wheel over all instants: eight levels of 256 slots, with one level per byte of the
//! instant. The level of an entry is the highest byte in which its instant differs from the last one taken. An entry
//! therefore moves at most seven times, each time to a lower level and in order. A slot of the lowest level is one
//! picosecond, so the order is exact, and entries of equal instants are first in, first out. (This is the radix heap of
//! Ahuja, Mehlhorn, Orlin and Tarjan 1990 with digits of eight bits.)
//!
//! Entries with ascending instants, for example after a fixed delay, are not sorted at all.

use std::collections::VecDeque;
use units::Time;

const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 64 / BITS as usize;
/// Entries per block: the smallest allocation of a slot.
const BLOCK: usize = 64;

type Block<T> = VecDeque<(Time, T)>;

/// Entries in order of arrival, in reusable blocks.
struct Blocks<T> {
    blocks: VecDeque<Block<T>>,
    /// The earliest instant in the blocks.
    least: Time,
}

impl<T> Blocks<T> {
    fn new() -> Self {
        Blocks { blocks: VecDeque::new(), least: Time::MAX }
    }

    fn push(&mut self, at: Time, value: T, free: &mut Vec<Block<T>>) {
        if self.blocks.back().is_none_or(|block| block.len() >= BLOCK) {
            self.blocks.push_back(free.pop().unwrap_or_else(|| VecDeque::with_capacity(BLOCK)));
        }
        if let Some(block) = self.blocks.back_mut() {
            block.push_back((at, value));
        }
        self.least = self.least.min(at);
    }

    fn first(&self) -> Option<Time> {
        self.blocks.front().and_then(VecDeque::front).map(|(at, _)| *at)
    }

    fn pop(&mut self, free: &mut Vec<Block<T>>) -> Option<(Time, T)> {
        let block = self.blocks.front_mut()?;
        let entry = block.pop_front();
        if block.is_empty() {
            free.extend(self.blocks.pop_front());
        }
        entry
    }
}

/// A queue in time order. Entries with equal instants are first in, first out.
///
/// Time only moves forward: an entry with an instant before the last one taken leaves next.
pub struct Timed<T> {
    /// Entries that arrived in order of time.
    run: Blocks<T>,
    run_last: Time,
    /// Empty until an entry arrives out of order.
    slots: Vec<Blocks<T>>,
    /// Bit set of the slots in use, and a summary of its non-zero words.
    used: [u64; LEVELS * SLOTS / 64],
    words: u64,
    last: u64,
    len: usize,
    free: Vec<Block<T>>,
}

impl<T> Default for Timed<T> {
    fn default() -> Self {
        Timed {
            run: Blocks::new(),
            run_last: Time::ZERO,
            slots: Vec::new(),
            used: [0; LEVELS * SLOTS / 64],
            words: 0,
            last: 0,
            len: 0,
            free: Vec::new(),
        }
    }
}

impl<T> Timed<T> {
    /// A queue for entries out of order: allocates its 80 kB of slots at once. By default they are allocated on first
    /// use, which never happens after a fixed delay.
    #[must_use]
    pub(crate) fn sorting() -> Self {
        let mut timed = Timed::default();
        timed.find_slots();
        timed
    }

    #[cold]
    fn find_slots(&mut self) {
        self.slots.resize_with(LEVELS * SLOTS, Blocks::new);
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds `value`, to leave at `at`.
    pub fn push(&mut self, at: Time, value: T) {
        self.len += 1;
        // At equal instants, an entry of the run precedes all entries in the slots: those were added while the run
        // already extended beyond this instant.
        if self.run.blocks.is_empty() || at >= self.run_last {
            self.run_last = at;
            self.run.push(at, value, &mut self.free);
        } else {
            self.insert(at, value);
        }
    }

    /// The earliest instant.
    #[must_use]
    pub fn first(&self) -> Option<Time> {
        let sorted = self.lowest().map(|slot| self.slots[slot].least);
        match (self.run.first(), sorted) {
            (Some(run), Some(sorted)) => Some(run.min(sorted)),
            (run, sorted) => run.or(sorted),
        }
    }

    /// Takes the first entry whose instant is not after `now`.
    pub fn pop(&mut self, now: Time) -> Option<(Time, T)> {
        let run = self.run.first();
        let Some(mut slot) = self.lowest() else {
            return self.pop_run(run, now);
        };
        let least = self.slots[slot].least;
        if run.is_some_and(|run| run <= least) {
            return self.pop_run(run, now);
        }
        if least > now {
            return None;
        }
        while slot >= SLOTS {
            self.last = self.last.max(least.as_ps());
            self.spread(slot);
            slot = self.lowest()?;
        }
        let entry = self.slots[slot].pop(&mut self.free);
        if self.slots[slot].blocks.is_empty() {
            self.slots[slot].least = Time::MAX;
            self.mark(slot, false);
        }
        self.len -= usize::from(entry.is_some());
        entry
    }

    fn pop_run(&mut self, first: Option<Time>, now: Time) -> Option<(Time, T)> {
        first.filter(|first| *first <= now)?;
        let entry = self.run.pop(&mut self.free);
        self.len -= usize::from(entry.is_some());
        entry
    }

    fn insert(&mut self, at: Time, value: T) {
        if self.slots.is_empty() {
            self.find_slots();
        }
        let key = at.as_ps().max(self.last);
        let level = ((key ^ self.last).checked_ilog2().unwrap_or(0) / BITS) as usize;
        let digit = (key >> (BITS * level as u32)) as usize % SLOTS;
        let slot = level * SLOTS + digit;
        self.slots[slot].push(at, value, &mut self.free);
        self.mark(slot, true);
    }

    /// Moves the entries of a slot to lower levels.
    fn spread(&mut self, slot: usize) {
        self.mark(slot, false);
        self.slots[slot].least = Time::MAX;
        // Returns the list of blocks to its slot to avoid a new allocation.
        let mut blocks = std::mem::take(&mut self.slots[slot].blocks);
        while let Some(mut block) = blocks.pop_front() {
            for (at, value) in block.drain(..) {
                self.insert(at, value);
            }
            self.free.push(block);
        }
        self.slots[slot].blocks = blocks;
    }

    fn mark(&mut self, slot: usize, used: bool) {
        let with = |word: u64, bit: usize, set: bool| if set { word | 1 << bit } else { word & !(1 << bit) };
        let word = &mut self.used[slot / 64];
        *word = with(*word, slot % 64, used);
        self.words = with(self.words, slot / 64, *word != 0);
    }

    /// The slot with the earliest entries: the first one in the lowest level in use.
    #[inline]
    fn lowest(&self) -> Option<usize> {
        let word = self.words.trailing_zeros() as usize;
        let slot = self.used.get(word)?.trailing_zeros() as usize;
        Some(word * 64 + slot)
    }
}

impl<T> std::fmt::Debug for Timed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Timed({} held)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a sorted list: the order is exact, and ties are first in, first out.
        #[test]
        fn releases_in_the_order_of_a_sorted_list(
            steps in prop::collection::vec((0_u64..2_000_000, 0_u32..50, any::<bool>()), 1..2_000),
        ) {
            let mut queue = Timed::default();
            let mut list: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (number, (delay, shift, take)) in steps.into_iter().enumerate() {
                // Delays of all magnitudes, with many ties.
                let at = now + ((delay >> (shift % 20)) << (shift / 2));
                queue.push(Time::from_ps(at), number);
                let position = list.partition_point(|(other, _)| *other <= at);
                list.insert(position, (at, number));
                prop_assert_eq!(queue.first(), Some(Time::from_ps(list[0].0)));
                if take {
                    now = now.max(list[list.len() / 2].0);
                    while let Some((at, number)) = queue.pop(Time::from_ps(now)) {
                        prop_assert_eq!((at.as_ps(), number), list.remove(0));
                    }
                    prop_assert!(list.first().is_none_or(|(at, _)| *at > now));
                }
                prop_assert_eq!(queue.len(), list.len());
            }
            for expected in list {
                let got = queue.pop(Time::MAX).map(|(at, number)| (at.as_ps(), number));
                prop_assert_eq!(got, Some(expected));
            }
            prop_assert!(queue.is_empty() && queue.first().is_none());
        }
    }

    #[test]
    fn late_entries_leave_next_without_loss() {
        let mut queue = Timed::default();
        queue.push(Time::from_ps(1_000_000), 'a');
        queue.push(Time::from_ps(500_000), 'b');
        queue.push(Time::from_ps(700_000), 'c');
        assert_eq!(queue.pop(Time::from_ps(600_000)), Some((Time::from_ps(500_000), 'b')));
        queue.push(Time::from_ps(3), 'd');
        assert_eq!(queue.pop(Time::from_ps(600_000)), Some((Time::from_ps(3), 'd')));
        assert_eq!(queue.pop(Time::from_ps(699_999)), None);
        assert_eq!(queue.pop(Time::MAX).map(|(_, c)| c), Some('c'));
        assert_eq!(queue.pop(Time::MAX).map(|(_, c)| c), Some('a'));
    }

    #[test]
    fn accepts_the_end_of_time() {
        let mut queue = Timed::default();
        queue.push(Time::MAX, 1);
        queue.push(Time::ZERO, 0);
        assert_eq!(queue.pop(Time::ZERO), Some((Time::ZERO, 0)));
        assert_eq!(queue.pop(Time::from_ps(u64::MAX - 1)), None);
        assert_eq!(queue.pop(Time::MAX), Some((Time::MAX, 1)));
    }
}
