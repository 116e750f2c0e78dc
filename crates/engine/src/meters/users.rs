use super::gcra::{SIDE, VACANT, Word};
use super::index::{Index, Place};
use super::{Bucket, Key, Moment, Rates};
use crate::schedules::Advise;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use units::{Span, Time};

/// Slots that a new user looks at for idle ones, once the table fills.
const STEPS: usize = 8;
/// Slots that it looks at when there is no other room.
const LAST_RESORT: usize = 64;
/// Sets of rates that a table may see in its life.
const SETS: usize = 512;
/// A user whose rate was given: it stays, and keeps its slot.
const PINNED: u32 = 1 << 31;
/// Where the set's number starts in what names a bucket.
const SET: u32 = 22;

/// The users: from a key to a dense slot, for millions, on many threads.
///
/// An index whose looks take one cache line, seldom two, and the slot's own, which also has the user's counters.
/// Looking up and charging take no lock. Making room for a new user does: one lock, held for some hundred
/// instructions. Bursts are looked up together, so that their waits for memory overlap.
///
/// Memory is bounded and taken at once: [`Users::BYTES_PER_USER`]. A user whose bucket has been full for
/// the idle time is like a new one to the meter, so its slot may be given away and nothing is forgotten that
/// matters. That is done a few slots at a time, by new users; there is no pause.
pub struct Users {
    index: Index,
    slots: Vec<Slot>,
    /// Sets of buckets, one for each time that rates were given; set 0 is the default's.
    sets: Vec<OnceLock<Box<[Bucket]>>>,
    room: Mutex<Room>,
    idle: Span,
    /// Users that came, that were reclaimed, and frames that found no room.
    created: AtomicU64,
    reclaimed: AtomicU64,
    full: AtomicU64,
    /// The latest instant that a new user or a burst came, ps.
    latest: AtomicU64,
}

/// What a frame of a user needs.
struct Slot {
    high: AtomicU64,
    low: AtomicU64,
    /// The theoretical arrival time, and whose bucket's it is; [`VACANT`] without a user.
    word: AtomicU64,
    /// Names of the two buckets: the one in use, and the one that a change of rates prepares.
    buckets: [AtomicU32; 2],
    /// Bytes.
    passed: AtomicU64,
    refused: AtomicU64,
}

/// A key that is looked up together with others.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    key: Key,
    place: Place,
    slot: u32,
}

/// The number of no slot.
const NONE: u32 = u32::MAX;

/// What only the holder of the lock may look at.
struct Room {
    free: Vec<u32>,
    unused: u32,
    hand: u32,
    /// Buckets by name; the next set's number.
    names: HashMap<Bucket, u32>,
    sets: usize,
    /// The bucket of users whose rate is not given.
    default: Option<u32>,
}

/// No user can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All slots are taken by users that are not idle.
    NoRoom,
    /// Its rate is not given, and there is no rate for such users.
    Unknown,
}

impl Users {
    /// Bytes of memory for each user that there may be: 48 of a slot with its counters, 12 of the index and 4 of
    /// the list of free slots. Distinct rates take 24 each besides.
    pub const BYTES_PER_USER: usize = size_of::<Slot>() + Index::BYTES_FOR_TWO / 2 + 4;

    /// Room for `capacity` users; `default` is the bucket of those whose rate is not given. `seed` keeps
    /// others from guessing which keys share a row.
    ///
    /// # Panics
    /// If `capacity` is 0 or more than 2³¹.
    #[must_use]
    pub fn new(capacity: usize, idle: Span, default: Option<Bucket>, seed: u64) -> Self {
        Users::in_memory(capacity, idle, default, seed, None)
    }

    /// The same, in memory of which `advise` is told first.
    ///
    /// # Panics
    /// As [`Users::new`].
    #[must_use]
    pub fn in_memory(capacity: usize, idle: Span, default: Option<Bucket>, seed: u64, advise: Option<Advise>) -> Self {
        assert!((1..=1 << 31).contains(&capacity), "a table has room for 1 to 2^31 users");
        let users = Users {
            index: Index::new(capacity, seed, advise),
            slots: vacant(capacity, advise),
            sets: (0..SETS).map(|_| OnceLock::new()).collect(),
            room: Mutex::new(Room {
                free: Vec::new(),
                unused: 0,
                hand: 0,
                names: HashMap::new(),
                sets: 0,
                default: None,
            }),
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
        // Each step leaves the table whole, so that a panic elsewhere spoils nothing.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many users it has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Users that came, that were reclaimed, and frames that found no room.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.created), read(&self.reclaimed), read(&self.full))
    }

    /// The word that meters of the user in `slot` charge.
    #[must_use]
    #[inline]
    pub fn word(&self, slot: u32) -> &AtomicU64 {
        &self.slots[slot as usize].word
    }

    /// The bucket that `word`, read from `slot`, is of; `None` if the slot is not `key`'s any more.
    ///
    /// Whoever then swaps the word for another one knows that it was the key's all the time: a slot that
    /// changes hands is vacant in between, and starts at another instant.
    #[must_use]
    #[inline]
    pub fn bucket_of(&self, slot: u32, key: Key, word: u64) -> Option<&Bucket> {
        let slot = &self.slots[slot as usize];
        if word == VACANT || !slot.is(key) { None } else { self.bucket(slot, word) }
    }

    #[inline]
    fn bucket(&self, slot: &Slot, word: u64) -> Option<&Bucket> {
        let name = slot.buckets[usize::from(word & SIDE != 0)].load(Ordering::Relaxed) & !PINNED;
        self.sets[(name >> SET) as usize].get()?.get((name & ((1 << SET) - 1)) as usize)
    }

    /// Counts what became of a frame: for one thread at a time, such as the one that holds the figures. Adding
    /// in one step, which several threads could do, would have each frame of a burst wait for memory in turn.
    #[inline]
    pub fn count(&self, slot: u32, bytes: u64, passed: bool) {
        let slot = &self.slots[slot as usize];
        let counter = if passed { &slot.passed } else { &slot.refused };
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    /// A key that is to be looked up by [`Users::find_all`].
    #[inline]
    #[must_use]
    pub fn seek(&self, key: Key) -> Sought {
        Sought { key, place: self.index.place(key), slot: NONE }
    }

    /// Looks up a burst of keys. What each needs of memory is asked for before any of it is used: many of these
    /// overlap, where look-ups one by one would wait for each other.
    pub fn find_all(&self, sought: &mut [Sought]) {
        let touched = sought.iter().fold(0, |all, sought| all ^ self.index.touch(sought.place));
        let mut missing = 0;
        for sought in sought.iter_mut() {
            sought.slot = self.index.guess(sought.place).unwrap_or(NONE);
            missing += usize::from(sought.slot == NONE);
        }
        let mut also = 0;
        if missing > 0 {
            for sought in sought.iter().filter(|sought| sought.slot == NONE) {
                also ^= self.index.touch_second(sought.place);
            }
            for sought in sought.iter_mut().filter(|sought| sought.slot == NONE) {
                sought.slot = self.index.guess_second(sought.place).unwrap_or(NONE);
            }
        }
        let slots = sought.iter().filter_map(|sought| self.slots.get(sought.slot as usize));
        black_box(slots.fold(touched ^ also, |all, slot| all ^ slot.word.load(Ordering::Relaxed)));
    }

    /// The slot of a key that was looked up; a new one if need be, as [`Users::find_or_add`] makes it.
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

    /// The slot of a user, if it has one.
    #[must_use]
    #[inline]
    pub fn find(&self, key: Key) -> Option<u32> {
        self.index.find(self.index.place(key), |slot| self.slots[slot as usize].is(key))
    }

    /// The slot of a user, a new one if need be: with the default rate and a full bucket.
    ///
    /// # Errors
    /// No room, which is counted; or no rate for users that none is given for.
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
        // Another worker may have been faster.
        if let Some(slot) = self.find(key) {
            return Ok(slot);
        }
        let name = room.default.ok_or(Full::Unknown)?;
        self.place(&mut room, key, name, at).inspect_err(|_| {
            self.full.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Puts a user where there is room.
    fn place(&self, room: &mut Room, key: Key, name: u32, at: &Moment) -> Result<u32, Full> {
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
        // Full since a little while ago: another worker's clock may be behind. And later than when the slot
        // was last reclaimed, so that no swap mistakes the new user for the old.
        let since = Time::from_ps(at.time().as_ps().saturating_sub(self.idle.as_ps().min(1_000_000_000) / 2));
        let word = self.bucket(slot, 0).map_or(0, |bucket| bucket.clock(&Moment::of(since)));
        slot.word.store(word, Ordering::Release);
        if !self.index.put(self.index.place(key), number) {
            slot.word.store(VACANT, Ordering::Release);
            room.free.push(number);
            return Err(Full::NoRoom);
        }
        self.created.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Looks at `steps` slots and frees those of idle users.
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

    /// Frees a slot whose bucket has been full since `before`.
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

    /// Takes a user out whose slot has just become vacant. The caller holds the lock.
    fn vacated(&self, number: u32) {
        let slot = &self.slots[number as usize];
        let key = Key::new(slot.high.load(Ordering::Relaxed), slot.low.load(Ordering::Relaxed));
        self.index.remove(self.index.place(key), number);
        slot.passed.store(0, Ordering::Relaxed);
        slot.refused.store(0, Ordering::Relaxed);
        self.reclaimed.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives names to buckets that have none.
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

    /// Tells what the clock shows, for changes of rates from outside.
    pub fn seen(&self, now: Time) {
        self.latest.fetch_max(now.as_ps(), Ordering::Relaxed);
    }

    /// Gives users their rates: at once, under traffic, and each keeps what it owes. Users that had a rate of
    /// their own and are not in `rates` get the default one; without one they go, as unknown as any other.
    ///
    /// # Errors
    /// There is no room for so many users, or rates have changed too often: all keep the rates that they have.
    pub fn give(&self, rates: &Rates) -> Result<(), String> {
        let users = rates.users();
        let at = Moment::of(Time::from_ps(self.latest.load(Ordering::Relaxed)));
        let mut room = self.room();
        let find = || users.iter().map(|user| self.find(user.key)).collect::<Vec<_>>();
        let mut known = find();
        let mut given = vec![false; self.slots.len()];
        for number in known.iter().flatten() {
            given[*number as usize] = true;
        }
        let leaves = |number: &u32| !given[*number as usize] && self.is_pinned(*number);
        let leaving: Vec<u32> = (0..room.unused).filter(leaves).collect();
        let fits = |room: &Room, known: &[Option<u32>]| {
            let leaving = if room.default.is_none() { leaving.len() } else { 0 };
            let places = room.free.len() + (self.slots.len() - room.unused as usize) + leaving;
            known.iter().filter(|number| number.is_none()).count() <= places
        };
        if !fits(&room, &known) {
            self.sweep(&mut room, self.capacity(), at.time());
            // Some of the idle may be among those who are given a rate.
            known = find();
        }
        if !fits(&room, &known) {
            let (users, capacity) = (users.len(), self.capacity());
            return Err(format!("there is no room for {users} users in a table of {capacity}: give it more"));
        }
        self.name(&mut room, rates.buckets())?;
        let names: Vec<u32> = rates.buckets().iter().map(|bucket| room.names[bucket] | PINNED).collect();
        for number in leaving {
            match room.default {
                Some(name) => self.change(number, name, &at),
                // Whatever is charged meanwhile: a worker that comes late finds that the user is gone.
                None => {
                    self.slots[number as usize].word.swap(VACANT, Ordering::AcqRel);
                    self.vacated(number);
                    room.free.push(number);
                }
            }
        }
        for (user, known) in users.iter().zip(known) {
            let name = names[user.bucket as usize];
            match known {
                Some(number) => self.change(number, name, &at),
                None => {
                    self.place(&mut room, user.key, name, &at).map_err(|_| {
                        "the rows of the table are crowded, and some users have their new rates, others not: give it \
                         room for more users"
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Whether the slot is that of a user whose rate was given. The caller holds the lock.
    fn is_pinned(&self, number: u32) -> bool {
        let slot = &self.slots[number as usize];
        let word = slot.word.read();
        word != VACANT && slot.buckets[usize::from(word & SIDE != 0)].load(Ordering::Relaxed) & PINNED != 0
    }

    /// Moves a user to another bucket. The caller holds the lock.
    fn change(&self, number: u32, name: u32, at: &Moment) {
        let slot = &self.slots[number as usize];
        let mut word = slot.word.read();
        loop {
            let side = usize::from(word & SIDE != 0);
            if word == VACANT || slot.buckets[side].load(Ordering::Relaxed) == name {
                return;
            }
            slot.buckets[1 - side].store(name, Ordering::Release);
            let (Some(old), Some(new)) = (self.bucket(slot, word), self.bucket(slot, word ^ SIDE)) else { return };
            let owed = (word & !SIDE).saturating_sub(old.clock(at));
            let mut full = new.clock(at).saturating_add(new.convert(old, owed));
            // Frames that wait keep their departures, and those that come now leave behind the last of them.
            let last = (word & !SIDE).saturating_sub(old.depth());
            if last > old.clock(at) {
                full = full.max(new.clock(&Moment::of(old.when(last))) + new.depth());
            }
            // What would take more than a year is owed for ever; no debt looks like a vacant slot.
            let full = full.min(SIDE - 2);
            let next = (word & SIDE ^ SIDE) | full;
            match slot.word.replace(word, next) {
                Ok(_) => return,
                Err(other) => word = other,
            }
        }
    }

    /// Every user that there is: key, bucket, bytes passed and bytes refused.
    pub fn all(&self) -> impl Iterator<Item = (Key, Bucket, u64, u64)> + '_ {
        self.slots.iter().filter_map(|slot| {
            let word = slot.word.read();
            let bucket = if word == VACANT { None } else { self.bucket(slot, word) }?;
            let key = Key::new(slot.high.load(Ordering::Relaxed), slot.low.load(Ordering::Relaxed));
            Some((key, *bucket, slot.passed.load(Ordering::Relaxed), slot.refused.load(Ordering::Relaxed)))
        })
    }
}

/// So many vacant ones, in memory of which `advise` is told before it is used.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::{Answer, Gcra, KeyKind, Meter};
    use units::BitRate;

    fn bucket(bps: u64) -> Bucket {
        Bucket::new(BitRate::from_bps(bps), 3_000).expect("a bucket")
    }

    fn at(ms: u64) -> Moment {
        Moment::of(Time::ZERO + Span::from_ms(ms))
    }

    // What is promised.
    const _: () = assert!(Users::BYTES_PER_USER <= 64);

    #[test]
    fn it_takes_as_many_as_it_says_and_finds_each() {
        for capacity in [1, 7, 20_481, 200_000] {
            let users = Users::new(capacity, Span::from_ms(1_000), Some(bucket(1_000_000)), 3);
            // Addresses in a row, as they come in practice.
            let key = |i: usize| Key::new(0, 0xffff_c0a8_0000 + i as u64);
            let slots: Vec<u32> =
                (0..capacity).map(|i| users.find_or_add(key(i), &at(0)).expect("room for all")).collect();
            assert_eq!(users.find_or_add(key(capacity), &at(0)), Err(Full::NoRoom));
            assert!((0..capacity).all(|i| users.find(key(i)) == Some(slots[i])));
            assert_eq!(users.totals(), (capacity as u64, 0, 1));
        }
    }

    #[test]
    fn idle_users_make_room_and_busy_ones_do_not() {
        let users = Users::new(4, Span::from_ms(100), Some(bucket(1_000_000)), 1);
        let key = |i: u64| Key::new(1, i);
        for i in 0..4 {
            let slot = users.find_or_add(key(i), &at(0)).expect("room");
            assert_eq!(Gcra.charge(&users, 0, slot, key(i), &at(0), 8_000), Answer::Conforms);
        }
        // 1 000 B at 1 Mbit/s are made good after 8 ms, and idle 100 ms later.
        assert_eq!(users.find_or_add(key(9), &at(107)), Err(Full::NoRoom));
        let busy = users.find(key(2)).expect("there");
        assert_eq!(Gcra.charge(&users, 0, busy, key(2), &at(50), 8_000), Answer::Conforms);
        assert!(users.find_or_add(key(9), &at(109)).is_ok());
        assert_eq!(users.find(key(2)), Some(busy), "not idle");
        assert!((0..4).filter(|i| users.find(key(*i)).is_some()).count() < 4);
        let (_, reclaimed, _) = users.totals();
        assert!(reclaimed >= 1);
    }

    #[test]
    fn whoever_looks_at_a_slot_that_changed_hands_is_told() {
        let users = Users::new(1, Span::from_ms(10), Some(bucket(1_000_000)), 1);
        let (old, new) = (Key::new(0, 1), Key::new(0, 2));
        let slot = users.find_or_add(old, &at(0)).expect("room");
        assert_eq!(users.find_or_add(new, &at(1_000)), Ok(slot));
        assert_eq!(users.find(old), None);
        assert_eq!(Gcra.charge(&users, 0, slot, old, &at(1_000), 800), Answer::Gone);
        assert_eq!(Gcra.charge(&users, 0, slot, new, &at(1_000), 800), Answer::Conforms);
    }

    #[test]
    fn rates_change_and_what_is_owed_stays() {
        let users = Users::new(8, Span::from_ms(100), Some(bucket(1_000_000)), 1);
        let key = KeyKind::DstIp.parse("10.0.0.1").expect("an address");
        let slot = users.find_or_add(key, &at(0)).expect("room");
        let charge = |ms, bytes: u64| Gcra.charge(&users, 0, slot, key, &at(ms), bytes * 8);
        assert_eq!(charge(0, 3_000), Answer::Conforms, "the bucket is empty now");
        users.seen(at(0).time());
        let rates = Rates::parse(KeyKind::DstIp, "10.0.0.1 8Mbps burst 3000B\n", &|_| 3_000).expect("rates");
        users.give(&rates).expect("room");
        assert_eq!(charge(0, 64), Answer::Exceeds, "still empty");
        assert_eq!(charge(1, 1_001), Answer::Exceeds);
        assert_eq!(charge(1, 1_000), Answer::Conforms, "8 Mbit/s are 1 000 B in a ms");
        users.seen(at(1).time());
        users.give(&Rates::default()).expect("room");
        assert_eq!(charge(9, 1_000), Answer::Conforms, "back to 1 Mbit/s");
        assert_eq!(charge(9, 64), Answer::Exceeds);
        assert_eq!(users.all().map(|(_, bucket, ..)| bucket.rate().bps()).collect::<Vec<_>>(), [1_000_000]);
    }

    #[test]
    fn a_debt_of_the_fastest_rate_is_not_forgotten_at_the_slowest() {
        let text = |rate: &str| Rates::parse(KeyKind::DstIp, &format!("10.0.0.1 {rate} burst 3000B\n"), &|_| 3_000);
        let fast = Bucket::new(BitRate::from_gbps(400), 1 << 29).expect("a bucket");
        for turns in [0, 1] {
            let users = Users::new(8, Span::from_ms(100), Some(fast), 1);
            let key = KeyKind::DstIp.parse("10.0.0.1").expect("an address");
            let slot = users.find_or_add(key, &at(0)).expect("room");
            for _ in 0..turns {
                users.give(&text("1Mbps").expect("rates")).expect("room");
                users.give(&Rates::default()).expect("room");
            }
            let charge = |ms, bytes: u64| Gcra.charge(&users, 0, slot, key, &at(ms), bytes * 8);
            assert_eq!(charge(0, 1 << 29), Answer::Conforms, "4.3 Gbit are owed");
            users.seen(at(0).time());
            users.give(&text("10bps").expect("rates")).expect("room");
            assert_eq!(users.find(key), Some(slot));
            for ms in [0, 1, 1_000_000] {
                assert_eq!(charge(ms, 64), Answer::Exceeds, "4.3 Gbit at 10 bit/s take 13 years");
            }
        }
    }

    #[test]
    fn given_users_stay_and_others_may_be_refused() {
        let rates = Rates::parse(KeyKind::DstIp, "10.0.0.1 8Mbps\n10.0.0.2 1Mbps\n", &|_| 3_000).expect("rates");
        let users = Users::new(2, Span::from_ms(1), None, 1);
        users.give(&rates).expect("room");
        let other = KeyKind::DstIp.parse("10.0.0.3").expect("an address");
        assert_eq!(users.find_or_add(other, &at(10_000)), Err(Full::Unknown));
        assert!(users.find(KeyKind::DstIp.parse("10.0.0.2").expect("an address")).is_some());
        let rate = |user: &str| {
            let key = KeyKind::DstIp.parse(user).expect("an address");
            users.all().find(|(of, ..)| *of == key).map(|(_, bucket, ..)| bucket.rate().bps())
        };
        let parse = |text: &str| Rates::parse(KeyKind::DstIp, text, &|_| 3_000).expect("rates");
        let more = users.give(&parse("10.0.0.1 1Mbps\n10.0.0.2 2Mbps\n10.0.0.3 1Mbps"));
        assert!(more.expect_err("too many").contains("no room for 3 users in a table of 2"));
        let rates = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(rate);
        assert_eq!(rates, [Some(8_000_000), Some(1_000_000), None], "all or none");
        // Who goes makes room.
        users.give(&parse("10.0.0.3 3Mbps\n10.0.0.2 2Mbps")).expect("room for two");
        let rates = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(rate);
        assert_eq!(rates, [None, Some(2_000_000), Some(3_000_000)]);
    }

    #[test]
    fn idle_users_make_room_for_given_ones_and_may_be_among_them() {
        let users = Users::new(2, Span::from_us(1), Some(bucket(1_000_000)), 1);
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(|user| KeyKind::DstIp.parse(user).expect("an address"));
        users.find_or_add(a, &at(1)).expect("room");
        users.find_or_add(b, &at(1)).expect("room");
        users.seen(at(1_000).time());
        let rates = Rates::parse(KeyKind::DstIp, "10.0.0.2 2Mbps\n10.0.0.3 3Mbps", &|_| 3_000).expect("rates");
        users.give(&rates).expect("room, once the idle have gone");
        let mut rates: Vec<u64> = users.all().map(|(_, bucket, ..)| bucket.rate().bps()).collect();
        rates.sort_unstable();
        assert_eq!(rates, [2_000_000, 3_000_000]);
    }

    #[test]
    fn who_is_no_longer_given_a_rate_goes_where_there_is_none_for_others() {
        let parse = |text: &str| Rates::parse(KeyKind::DstIp, text, &|_| 3_000).expect("rates");
        let users = Users::new(2, Span::from_ms(60_000), None, 1);
        users.give(&parse("10.0.0.1 8Mbps\n10.0.0.2 1Mbps\n")).expect("room");
        let [kept, gone, new] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|user| KeyKind::DstIp.parse(user).expect("an address"));
        let slot = users.find(gone).expect("it is there");
        assert_eq!(Gcra.charge(&users, 0, slot, gone, &at(1), 800), Answer::Conforms);
        users.give(&parse("10.0.0.1 8Mbps\n")).expect("room");
        assert_eq!(Gcra.charge(&users, 0, slot, gone, &at(1), 800), Answer::Gone, "though it was looked up before");
        assert_eq!(users.find_or_add(gone, &at(1)), Err(Full::Unknown));
        assert!(users.find(kept).is_some());
        // There is room for another one, and for itself again.
        users.give(&parse("10.0.0.1 8Mbps\n10.0.0.3 1Mbps")).expect("room");
        assert_eq!(users.find(new), Some(slot));
        assert_eq!(users.all().count(), 2);
    }

    #[test]
    fn users_come_and_go_on_two_threads_while_rates_change() {
        let users = Users::new(64, Span::from_us(50), Some(bucket(1_000_000_000)), 1);
        let text: String = (0..16).map(|i| format!("10.0.0.{i} 2Gbps\n")).collect();
        let rates = Rates::parse(KeyKind::DstIp, &text, &|_| 3_000).expect("rates");
        let worker = |start: u64| {
            let mut answered = 0;
            for i in 0..60_000_u64 {
                let now = Moment::of(Time::from_ps(i * 2_000_000));
                let key = Key::new(0, 0xffff_0a00_0000 + (i * 7 + start) % 200);
                let Ok(slot) = users.find_or_add(key, &now) else { continue };
                answered += u64::from(Gcra.charge(&users, 0, slot, key, &now, 512) != Answer::Gone);
            }
            answered
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(|| worker(0)), scope.spawn(|| worker(3))];
            for _ in 0..50 {
                users.give(&rates).expect("room");
                users.give(&Rates::default()).expect("nothing new");
            }
            assert!(threads.into_iter().all(|thread| thread.join().expect("no panic") > 0));
        });
        let live = users.all().count() as u64;
        let (created, reclaimed, _) = users.totals();
        assert_eq!(created - reclaimed, live, "none was lost or is there twice");
    }
}
