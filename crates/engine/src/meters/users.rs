mod given;

use super::gcra::{SIDE, VACANT, Word};
use super::index::{Index, RowHash};
use super::{Bucket, Key, Moment};
use crate::schedules::Advise;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use units::{Span, Time};

/// Number of slots that adding a user checks for idle users once the table fills up.
const STEPS: usize = 8;
/// Number of slots that it checks if there is no free slot.
const LAST_RESORT: usize = 64;
/// Number of rate changes that a table accepts in its lifetime.
const SETS: usize = 512;
/// Marks a user with a configured rate, which is never evicted.
const PINNED: u32 = 1 << 31;
/// Position of the set number in a bucket name.
const SET: u32 = 22;

/// The table of users: maps keys to dense slots, for millions of users on many threads.
///
/// A lookup reads one cache line of the index, rarely two, and the slot's own line, which also holds the user's
/// counters. Lookups and charges take no lock. Adding a user holds a lock for a few hundred instructions. Keys of a
/// burst are looked up together, so that their memory latencies overlap.
///
/// Memory is bounded and allocated at the start, see [`Users::BYTES_PER_USER`]. To the meter, a user whose bucket has
/// been full for the idle time is the same as a new one, so its slot can be reused without loss. Each new user checks
/// only a few slots, so lookups never pause.
pub struct Users {
    index: Index,
    slots: Vec<Slot>,
    /// Sets of buckets, one per change of rates; set 0 holds the default.
    sets: Vec<OnceLock<Box<[Bucket]>>>,
    room: Mutex<Room>,
    idle: Span,
    /// Users added, users reclaimed, and frames whose user did not fit into the table.
    created: AtomicU64,
    reclaimed: AtomicU64,
    full: AtomicU64,
    /// The latest arrival of a new user or a burst, in ps.
    latest: AtomicU64,
}

/// The data of a user that a frame needs.
struct Slot {
    high: AtomicU64,
    low: AtomicU64,
    /// The theoretical arrival time and the side of its bucket; [`VACANT`] if the slot has no user.
    word: AtomicU64,
    /// Names of both buckets: the current one, and the one that a change of rates prepares.
    buckets: [AtomicU32; 2],
    /// Bytes passed and refused.
    passed: AtomicU64,
    refused: AtomicU64,
}

/// A key in a batched lookup.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    key: Key,
    hash: RowHash,
    slot: u32,
}

/// Slot number that means no slot.
const NONE: u32 = u32::MAX;

/// State guarded by the lock.
#[derive(Default)]
struct Room {
    free: Vec<u32>,
    unused: u32,
    hand: u32,
    /// Buckets by name, and the number of the next set.
    names: HashMap<Bucket, u32>,
    sets: usize,
    /// The bucket of users without a configured rate.
    default: Option<u32>,
}

/// Why a user cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All slots are taken by active users.
    NoRoom,
    /// The user has no configured rate, and there is no default.
    Unknown,
}

impl Users {
    /// Bytes of memory per user of capacity: 48 for the slot with its counters, 12 for the index and 4 for the list of
    /// free slots. Each distinct rate takes another 24.
    pub const BYTES_PER_USER: usize = size_of::<Slot>() + Index::BYTES_FOR_TWO / 2 + 4;

    /// A table for `capacity` users. `default` is the bucket of users without a configured rate. Without knowing
    /// `seed`, an attacker cannot choose keys that share a row.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than 2³¹.
    #[must_use]
    pub fn new(capacity: usize, idle: Span, default: Option<Bucket>, seed: u64) -> Self {
        Users::in_memory(capacity, idle, default, seed, None)
    }

    /// Like [`Users::new`], in memory that is passed to `advise` before first use.
    ///
    /// # Panics
    /// As [`Users::new`].
    #[must_use]
    pub(crate) fn in_memory(
        capacity: usize,
        idle: Span,
        default: Option<Bucket>,
        seed: u64,
        advise: Option<Advise>,
    ) -> Self {
        assert!((1..=1 << 31).contains(&capacity), "a table has room for 1 to 2^31 users");
        let users = Users {
            index: Index::new(capacity, seed, advise),
            slots: vacant(capacity, advise),
            sets: (0..SETS).map(|_| OnceLock::new()).collect(),
            room: Mutex::default(),
            idle,
            created: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
            full: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        };
        if let Some(bucket) = default {
            let mut room = users.room();
            let named = users.name(&mut room, &[bucket]);
            room.default = named.ok().map(|()| room.names[&bucket]);
        }
        users
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // Each step leaves the table consistent, so a panic elsewhere is harmless.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The capacity in users.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Users added, users reclaimed, and frames whose user did not fit into the table.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.created), read(&self.reclaimed), read(&self.full))
    }

    /// The word that meters charge for the user in `slot`.
    #[must_use]
    #[inline]
    pub fn word(&self, slot: u32) -> &AtomicU64 {
        &self.slots[slot as usize].word
    }

    /// The bucket of `word`, which was read from `slot`; `None` if the slot no longer belongs to `key`.
    ///
    /// If the caller then swaps the word successfully, the slot belonged to the key for the whole time: a slot is
    /// vacant between two users, and the second one starts with another instant.
    #[must_use]
    #[inline]
    pub(crate) fn bucket_of(&self, slot: u32, key: Key, word: u64) -> Option<&Bucket> {
        let slot = &self.slots[slot as usize];
        if word == VACANT || !slot.is(key) { None } else { self.bucket(slot, word) }
    }

    #[inline]
    fn bucket(&self, slot: &Slot, word: u64) -> Option<&Bucket> {
        let name = slot.name(word) & !PINNED;
        self.sets[(name >> SET) as usize].get()?.get((name & ((1 << SET) - 1)) as usize)
    }

    /// Counts a frame. Returns true if it is the first frame of a user in that slot. Only one thread at a time may call
    /// it, for example the one that holds the figures. An atomic add would allow several threads, but would make the
    /// frames of a burst wait for memory one after the other.
    #[inline]
    pub fn count(&self, slot: u32, bytes: u64, passed: bool) -> bool {
        let slot = &self.slots[slot as usize];
        let (counter, other) = if passed { (&slot.passed, &slot.refused) } else { (&slot.refused, &slot.passed) };
        let before = counter.load(Ordering::Relaxed);
        counter.store(before.wrapping_add(bytes), Ordering::Relaxed);
        before == 0 && other.load(Ordering::Relaxed) == 0
    }

    /// Bytes of the user in `slot` that passed.
    #[must_use]
    pub fn passed(&self, slot: u32) -> u64 {
        self.slots[slot as usize].passed.load(Ordering::Relaxed)
    }

    /// Prepares a key for [`Users::find_all`].
    #[inline]
    #[must_use]
    pub fn seek(&self, key: Key) -> Sought {
        Sought { key, hash: self.index.hash(key), slot: NONE }
    }

    /// Looks up a burst of keys. Prefetches the memory of all keys before using any of it, so that the latencies
    /// overlap.
    pub fn find_all(&self, sought: &mut [Sought]) {
        let touched = sought.iter().fold(0, |all, sought| all ^ self.index.touch(sought.hash));
        let mut missing = 0;
        for sought in sought.iter_mut() {
            sought.slot = self.index.guess(sought.hash).unwrap_or(NONE);
            missing += usize::from(sought.slot == NONE);
        }
        let mut also = 0;
        if missing > 0 {
            for sought in sought.iter().filter(|sought| sought.slot == NONE) {
                also ^= self.index.touch_second(sought.hash);
            }
            for sought in sought.iter_mut().filter(|sought| sought.slot == NONE) {
                sought.slot = self.index.guess_second(sought.hash).unwrap_or(NONE);
            }
        }
        let slots = sought.iter().filter_map(|sought| self.slots.get(sought.slot as usize));
        black_box(slots.fold(touched ^ also, |all, slot| all ^ slot.word.load(Ordering::Relaxed)));
    }

    /// The slot of a key that was looked up. Adds the user if necessary, as in [`Users::find_or_add`].
    ///
    /// # Errors
    /// As [`Users::find_or_add`].
    #[inline]
    pub fn settle(&self, sought: &Sought, at: &Moment) -> Result<u32, Full> {
        match self.slots.get(sought.slot as usize) {
            Some(slot) if slot.is(sought.key) => Ok(sought.slot),
            _ => self.find_or_add(sought.key, at),
        }
    }

    /// The slot of a user, if it is in the table.
    #[must_use]
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        self.index.find(self.index.hash(key), |slot| self.slots[slot as usize].is(key))
    }

    /// The slot of a user. Adds the user if necessary, with the default rate and a full bucket.
    ///
    /// # Errors
    /// The table is full, which is counted, or there is no default rate and the user has no configured one.
    #[inline]
    pub fn find_or_add(&self, key: Key, at: &Moment) -> Result<u32, Full> {
        match self.find(key) {
            Some(slot) => Ok(slot),
            None => self.add(key, at),
        }
    }

    #[cold]
    fn add(&self, key: Key, at: &Moment) -> Result<u32, Full> {
        let mut room = self.room();
        // Another worker may have added the user in the meantime.
        if let Some(slot) = self.find(key) {
            return Ok(slot);
        }
        let name = room.default.ok_or(Full::Unknown)?;
        self.insert(&mut room, key, name, at).inspect_err(|_| {
            self.full.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Puts a user into a free slot.
    fn insert(&self, room: &mut Room, key: Key, name: u32, at: &Moment) -> Result<u32, Full> {
        self.seen(at.time());
        let taken = room.unused as usize - room.free.len();
        if taken >= self.slots.len() / 4 * 3 {
            self.sweep(room, STEPS, at.time());
        }
        if room.free.is_empty() && room.unused as usize == self.slots.len() {
            self.sweep(room, LAST_RESORT, at.time());
        }
        let number = match room.free.pop() {
            Some(number) => number,
            None if (room.unused as usize) < self.slots.len() => {
                room.unused += 1;
                room.unused - 1
            }
            None => return Err(Full::NoRoom),
        };
        let slot = &self.slots[number as usize];
        slot.high.store(key.high, Ordering::Relaxed);
        slot.low.store(key.low, Ordering::Relaxed);
        slot.buckets[0].store(name, Ordering::Relaxed);
        // The bucket counts as full since slightly earlier, because another worker's clock may be behind. The instant
        // is still later than the last eviction of the slot, so no swap mistakes the new user for the old one.
        let since = Time::from_ps(at.time().as_ps().saturating_sub(self.idle.as_ps().min(1_000_000_000) / 2));
        let word = self.bucket(slot, 0).map_or(0, |bucket| bucket.clock(&Moment::of(since)));
        slot.word.store(word, Ordering::Release);
        if !self.index.put(self.index.hash(key), number) {
            slot.word.store(VACANT, Ordering::Release);
            room.free.push(number);
            return Err(Full::NoRoom);
        }
        self.created.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Checks `steps` slots and frees those of idle users.
    fn sweep(&self, room: &mut Room, steps: usize, now: Time) {
        let Some(before) = now.as_ps().checked_sub(self.idle.as_ps()).map(|ps| Moment::of(Time::from_ps(ps))) else {
            return;
        };
        for _ in 0..steps.min(room.unused as usize) {
            let number = room.hand % room.unused;
            room.hand = (number + 1) % room.unused;
            if self.evict(number, &before) {
                room.free.push(number);
            }
        }
    }

    /// Frees a slot if its bucket has been full since `before`.
    fn evict(&self, number: u32, before: &Moment) -> bool {
        let slot = &self.slots[number as usize];
        let word = slot.word.read();
        if word == VACANT || self.is_pinned(number) {
            return false;
        }
        let idle = self.bucket(slot, word).is_some_and(|bucket| word & !SIDE <= bucket.clock(before));
        if !idle || slot.word.replace(word, VACANT).is_err() {
            return false;
        }
        self.vacated(number);
        true
    }

    /// Removes a user whose slot has just become vacant. The caller must hold the lock.
    fn vacated(&self, number: u32) {
        let slot = &self.slots[number as usize];
        self.index.remove(self.index.hash(slot.key()), number);
        slot.passed.store(0, Ordering::Relaxed);
        slot.refused.store(0, Ordering::Relaxed);
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Assigns names to buckets that have none.
    fn name(&self, room: &mut Room, buckets: &[Bucket]) -> Result<(), String> {
        let mut fresh = Vec::new();
        let set = room.sets as u32;
        for bucket in buckets {
            room.names.entry(*bucket).or_insert_with(|| {
                fresh.push(*bucket);
                (set << SET) | (fresh.len() as u32 - 1)
            });
        }
        if fresh.is_empty() {
            return Ok(());
        }
        if room.sets == SETS || fresh.len() > 1 << SET {
            for bucket in &fresh {
                room.names.remove(bucket);
            }
            return Err(format!(
                "rates changed {} times to values that are new, of {} at once: start again with them",
                room.sets,
                fresh.len()
            ));
        }
        let set = self.sets[room.sets].set(fresh.into_boxed_slice());
        debug_assert!(set.is_ok(), "sets are filled in order, under the lock");
        room.sets += 1;
        Ok(())
    }

    /// Records the clock reading. Rate changes use it, because they have no clock.
    pub fn seen(&self, now: Time) {
        self.latest.fetch_max(now.as_ps(), Ordering::Relaxed);
    }

    /// Whether the user in the slot has a configured rate. The caller must hold the lock.
    fn is_pinned(&self, number: u32) -> bool {
        let slot = &self.slots[number as usize];
        let word = slot.word.read();
        word != VACANT && slot.name(word) & PINNED != 0
    }

    /// All users: key, bucket, bytes passed and bytes refused.
    pub fn all(&self) -> impl Iterator<Item = (Key, Bucket, u64, u64)> + '_ {
        self.slots.iter().filter_map(|slot| {
            let word = slot.word.read();
            let bucket = if word == VACANT { None } else { self.bucket(slot, word) }?;
            Some((slot.key(), *bucket, slot.passed.load(Ordering::Relaxed), slot.refused.load(Ordering::Relaxed)))
        })
    }
}

/// Allocates `count` vacant entries, in memory that is passed to `advise` before first use.
pub(super) fn vacant<T: Default>(count: usize, advise: Option<Advise>) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(count);
    if let Some(advise) = advise {
        let start = all.as_ptr();
        advise(start.cast()..start.wrapping_add(count).cast());
    }
    all.resize_with(count, T::default);
    all
}

impl Default for Slot {
    fn default() -> Self {
        Slot {
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
            word: AtomicU64::new(VACANT),
            buckets: [AtomicU32::new(0), AtomicU32::new(0)],
            passed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }
}

impl Slot {
    #[inline]
    fn is(&self, key: Key) -> bool {
        self.high.load(Ordering::Relaxed) == key.high && self.low.load(Ordering::Relaxed) == key.low
    }

    #[inline]
    fn key(&self) -> Key {
        Key::new(self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed))
    }

    /// The name of the bucket that this word refers to.
    #[inline]
    fn name(&self, word: u64) -> u32 {
        self.buckets[usize::from(word & SIDE != 0)].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
