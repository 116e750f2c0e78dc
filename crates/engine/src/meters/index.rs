use super::Key;
use super::users::vacant;
use crate::schedules::Advise;
use std::sync::atomic::{AtomicU64, Ordering};

/// Index entries per two users of capacity.
const SPREAD: usize = 3;
/// Entries per row: one cache line.
const ROW: usize = 8;
/// A key goes into its first row while that row holds fewer entries than this, so that most lookups read one line.
const CROWDED: usize = 3;
/// Set in every used entry, clear in every vacant one.
const TAKEN: u64 = 1 << 63;

/// Maps keys to slots. Rows have eight entries and fill one cache line. A key is in one of two rows and never moves.
///
/// An entry holds 31 bits of the key's hash and the slot number. From the row alone, a reader thus knows which slot to
/// compare with the whole key. The guess is wrong once in 10⁸ lookups. Any number of threads may read while one thread
/// writes.
pub(super) struct Index {
    rows: Vec<Row>,
    seed: u64,
}

#[repr(align(64))]
#[derive(Default)]
struct Row([AtomicU64; ROW]);

/// The hash of a key, which determines its two rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowHash(u64);

impl Index {
    /// Bytes of memory per two users of capacity.
    pub(super) const BYTES_FOR_TWO: usize = size_of::<u64>() * SPREAD;

    /// An index for `slots` slots. Without knowing `seed`, an attacker cannot choose keys that share a row.
    pub(super) fn new(slots: usize, seed: u64, advise: Option<Advise>) -> Self {
        let rows = (slots * SPREAD / 2).div_ceil(ROW) + 1;
        Index { rows: vacant(rows, advise), seed: mix(seed, 0x9e37_79b9_7f4a_7c15) | 1 }
    }

    #[inline]
    pub(super) fn hash(&self, key: Key) -> RowHash {
        RowHash(mix(key.high ^ self.seed, key.low ^ 0xa076_1d64_78bd_642f))
    }

    #[inline]
    fn first(&self, hash: RowHash) -> &Row {
        &self.rows[self.row(hash.0)]
    }

    #[inline]
    fn second(&self, hash: RowHash) -> &Row {
        &self.rows[self.row(mix(hash.0 ^ 0xe703_7ed1_a0b4_28db, self.seed))]
    }

    #[inline]
    fn row(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.rows.len() as u128) >> 64) as usize
    }

    /// Prefetches the first row of a key. Use the result so that the compiler keeps the read; its value has no meaning.
    #[must_use]
    #[inline]
    pub(super) fn touch(&self, hash: RowHash) -> u64 {
        self.first(hash).0[0].load(Ordering::Relaxed)
    }

    /// Like [`Index::touch`], for the second row.
    #[must_use]
    #[inline]
    pub(super) fn touch_second(&self, hash: RowHash) -> u64 {
        self.second(hash).0[0].load(Ordering::Relaxed)
    }

    /// The slot that most likely belongs to the key, according to its first row.
    #[inline]
    pub(super) fn guess(&self, hash: RowHash) -> Option<u32> {
        self.first(hash).guess(hash)
    }

    /// Like [`Index::guess`], for the second row.
    #[inline]
    pub(super) fn guess_second(&self, hash: RowHash) -> Option<u32> {
        self.second(hash).guess(hash)
    }

    /// The slot of the key: of all entries with an equal hash, the one that `is` accepts.
    pub(super) fn find(&self, hash: RowHash, is: impl Fn(u32) -> bool) -> Option<u32> {
        let entries = self.first(hash).0.iter().chain(&self.second(hash).0);
        let mut alike = entries.map(|entry| entry.load(Ordering::Acquire)).filter(|entry| *entry >> 32 == hash.tag());
        alike.find(|entry| is(*entry as u32)).map(|entry| entry as u32)
    }

    /// Inserts a slot. False if both rows are full.
    pub(super) fn put(&self, hash: RowHash, slot: u32) -> bool {
        let (first, second) = (self.first(hash), self.second(hash));
        let row = if first.held() >= CROWDED && second.held() < first.held() { second } else { first };
        let vacant = row.0.iter().find(|entry| entry.load(Ordering::Relaxed) == 0);
        if let Some(entry) = vacant {
            entry.store(hash.tag() << 32 | u64::from(slot), Ordering::Release);
        }
        vacant.is_some()
    }

    /// Removes a slot.
    pub(super) fn remove(&self, hash: RowHash, slot: u32) {
        for entry in self.first(hash).0.iter().chain(&self.second(hash).0) {
            if entry.load(Ordering::Relaxed) == hash.tag() << 32 | u64::from(slot) {
                entry.store(0, Ordering::Release);
            }
        }
    }
}

impl Row {
    /// Reads all entries without a branch, because the position in the row is unpredictable to the CPU.
    #[inline]
    fn guess(&self, hash: RowHash) -> Option<u32> {
        let mut found = 0_u32;
        for (i, entry) in self.0.iter().enumerate() {
            found |= u32::from(entry.load(Ordering::Acquire) >> 32 == hash.tag()) << i;
        }
        let entry = self.0.get(found.trailing_zeros() as usize)?;
        let entry = entry.load(Ordering::Acquire);
        // A concurrent removal may have changed the entry.
        (entry >> 32 == hash.tag()).then_some(entry as u32)
    }

    fn held(&self) -> usize {
        self.0.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count()
    }
}

impl RowHash {
    #[inline]
    fn tag(self) -> u64 {
        (self.0 | TAKEN >> 32) & u64::from(u32::MAX)
    }
}

/// Folds both halves of a product: each bit of the result depends on most bits of both factors.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}
