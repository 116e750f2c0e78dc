use super::Key;
use super::users::vacant;
use crate::schedules::Advise;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries of the index for each user that there may be, times two.
const SPREAD: usize = 3;
/// Entries of a row: one cache line.
const ROW: usize = 8;
/// A key goes to its first row while that holds fewer than this, so that most looks take one line.
const CROWDED: usize = 3;
/// What every entry has, and a vacant one has not.
const TAKEN: u64 = 1 << 63;

/// From keys to slots: rows of eight entries, one cache line each; a key may be in one of two rows, and is never
/// moved.
///
/// An entry is 31 bits of the key's hash and the number of its slot, so that whoever looks at a row knows, but
/// once in 10⁸ times, which slot to ask for the whole key. Any thread may look at any time; one at a time may
/// change it.
pub(super) struct Index {
    rows: Vec<Row>,
    seed: u64,
}

#[repr(align(64))]
#[derive(Default)]
struct Row([AtomicU64; ROW]);

/// Where a key may be: its hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place(u64);

impl Index {
    /// Bytes of memory for two users that there may be.
    pub(super) const BYTES_FOR_TWO: usize = size_of::<u64>() * SPREAD;

    /// For so many slots. `seed` keeps others from guessing which keys share a row.
    pub(super) fn new(slots: usize, seed: u64, advise: Option<Advise>) -> Self {
        let rows = (slots * SPREAD / 2).div_ceil(ROW) + 1;
        Index { rows: vacant(rows, advise), seed: mix(seed, 0x9e37_79b9_7f4a_7c15) | 1 }
    }

    #[inline]
    pub(super) fn place(&self, key: Key) -> Place {
        Place(mix(key.high ^ self.seed, key.low ^ 0xa076_1d64_78bd_642f))
    }

    #[inline]
    fn first(&self, place: Place) -> &Row {
        &self.rows[self.row(place.0)]
    }

    #[inline]
    fn second(&self, place: Place) -> &Row {
        &self.rows[self.row(mix(place.0 ^ 0xe703_7ed1_a0b4_28db, self.seed))]
    }

    #[inline]
    fn row(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.rows.len() as u128) >> 64) as usize
    }

    /// Asks memory for the first row of a key. Gives a number that means nothing but must be used.
    #[must_use]
    #[inline]
    pub(super) fn touch(&self, place: Place) -> u64 {
        self.first(place).0[0].load(Ordering::Relaxed)
    }

    /// As [`Index::touch`], for the second row.
    #[must_use]
    #[inline]
    pub(super) fn touch_second(&self, place: Place) -> u64 {
        self.second(place).0[0].load(Ordering::Relaxed)
    }

    /// The slot that is most likely the key's, by its first row.
    #[inline]
    pub(super) fn guess(&self, place: Place) -> Option<u32> {
        self.first(place).guess(place)
    }

    /// The same by its second row.
    #[inline]
    pub(super) fn guess_second(&self, place: Place) -> Option<u32> {
        self.second(place).guess(place)
    }

    /// Slots of keys that look like this one; `is` tells which is.
    pub(super) fn find(&self, place: Place, is: impl Fn(u32) -> bool) -> Option<u32> {
        let entries = self.first(place).0.iter().chain(&self.second(place).0);
        let mut alike = entries.map(|entry| entry.load(Ordering::Acquire)).filter(|entry| *entry >> 32 == place.tag());
        alike.find(|entry| is(*entry as u32)).map(|entry| entry as u32)
    }

    /// Enters a slot. False if both rows are full.
    pub(super) fn put(&self, place: Place, slot: u32) -> bool {
        let (first, second) = (self.first(place), self.second(place));
        let row = if first.held() >= CROWDED && second.held() < first.held() { second } else { first };
        let vacant = row.0.iter().find(|entry| entry.load(Ordering::Relaxed) == 0);
        if let Some(entry) = vacant {
            entry.store(place.tag() << 32 | u64::from(slot), Ordering::Release);
        }
        vacant.is_some()
    }

    /// Takes a slot out.
    pub(super) fn remove(&self, place: Place, slot: u32) {
        for entry in self.first(place).0.iter().chain(&self.second(place).0) {
            if entry.load(Ordering::Relaxed) == place.tag() << 32 | u64::from(slot) {
                entry.store(0, Ordering::Release);
            }
        }
    }
}

impl Row {
    /// All entries are looked at, without a branch: where in the row a key is cannot be foretold.
    #[inline]
    fn guess(&self, place: Place) -> Option<u32> {
        let mut found = 0_u32;
        for (i, entry) in self.0.iter().enumerate() {
            found |= u32::from(entry.load(Ordering::Acquire) >> 32 == place.tag()) << i;
        }
        let entry = self.0.get(found.trailing_zeros() as usize)?;
        let entry = entry.load(Ordering::Acquire);
        // It may have been taken out just now.
        (entry >> 32 == place.tag()).then_some(entry as u32)
    }

    fn held(&self) -> usize {
        self.0.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count()
    }
}

impl Place {
    #[inline]
    fn tag(self) -> u64 {
        (self.0 | TAKEN >> 32) & u64::from(u32::MAX)
    }
}

/// Both halves of a product, folded: each bit of the result depends on most of both.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
