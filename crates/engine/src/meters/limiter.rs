use super::{Figures, KeyKind, Meter, Rates, Users, WorkerStats};
use measure::{LimitReport, LimitWindow, LimitedUser, LongerFrames, PolicedTcp, Tally, UserTable, WorkerLoad};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use units::{Span, Time};

/// Number of users that the report lists as top talkers.
const TALKERS: usize = 10;

/// The users of a stage, their meter and their figures. Shared by the stage, the report and rate changes.
pub struct Limiter {
    /// The table.
    pub users: Users,
    /// The scheme.
    pub meter: Box<dyn Meter>,
    kind: KeyKind,
    ledger: Mutex<Ledger>,
    reloads: AtomicU64,
}

/// Counters and figures of frames.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) conforming: Tally,
    pub(crate) exceeding: Tally,
    pub(crate) yellow: Tally,
    pub(crate) marked: u64,
    pub(crate) delayed: u64,
    pub(crate) without_key: u64,
    /// The frames without a key, by EtherType.
    pub(crate) types: BTreeMap<u16, u64>,
    /// Frames longer than their user's bucket: the number, and the largest length in bytes.
    pub(crate) longer: (u64, u32),
    /// Policed TCP users among the watched ones, by slot.
    pub(crate) tried: Vec<Tried>,
    pub(crate) unmetered: u64,
    pub(crate) figures: Figures,
    pub(crate) workers: Vec<WorkerStats>,
    /// Frames that no worker could accept.
    pub(crate) undealt: u64,
}

/// Drops of a policed TCP user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried {
    drops: u64,
    /// First and last drop: the time, and the bytes that had passed by then.
    first: (Time, u64),
    last: (Time, u64),
    bps: u64,
}

/// Over a shorter time, the mean rate of a user means little.
const TRIED_FOR: Span = Span::from_ms(1_000);
const TRIED_DROPS: u64 = 3;
/// TCP users that obtain less than this share of their rate are reported.
const TCP_SHARE: f64 = 0.8;

impl Ledger {
    /// Records that a TCP frame of the user in `slot` was policed at `at`, when `passed` bytes of that user had already
    /// passed.
    pub(crate) fn policed_tcp(&mut self, slot: u32, at: Time, passed: u64, bps: Option<u64>) {
        let slot = slot as usize;
        if slot >= self.figures.watched() {
            return;
        }
        if self.tried.len() <= slot {
            self.tried.resize(slot + 1, Tried::default());
        }
        let tried = &mut self.tried[slot];
        if tried.drops == 0 || bps != Some(tried.bps) {
            *tried = Tried { first: (at, passed), bps: bps.unwrap_or_default(), ..Tried::default() };
        }
        tried.drops += 1;
        tried.last = (at, passed);
    }

    /// Clears the drops of a slot because a new user has it.
    pub(crate) fn forget_tried(&mut self, slot: u32) {
        if let Some(tried) = self.tried.get_mut(slot as usize) {
            *tried = Tried::default();
        }
    }

    /// The shares of their rates that policed TCP users obtained. `None` unless some user had enough drops over enough
    /// time.
    fn tcp(&self) -> Option<PolicedTcp> {
        let share = |tried: &Tried| {
            let Tried { drops, first, last, bps } = *tried;
            let long = drops >= TRIED_DROPS && last.0.since(first.0) >= TRIED_FOR && bps > 0;
            let due = bps as f64 / 8.0 * last.0.since(first.0).as_secs_f64();
            long.then(|| last.1.saturating_sub(first.1) as f64 / due)
        };
        let shares: Vec<f64> = self.tried.iter().filter_map(share).collect();
        (!shares.is_empty()).then(|| PolicedTcp {
            users: shares.len() as u64,
            below_80_percent: shares.iter().filter(|share| **share < TCP_SHARE).count() as u64,
            min_ratio: shares.iter().copied().fold(f64::INFINITY, f64::min),
        })
    }
}

/// The display name of an EtherType.
fn type_name(ether_type: u16) -> String {
    match ether_type {
        0x0800 => "IPv4".into(),
        0x86dd => "IPv6".into(),
        0x0806 => "ARP".into(),
        0x8847 | 0x8848 => "MPLS".into(),
        0x8863 | 0x8864 => "PPPoE".into(),
        0..0x0600 => "LLC".into(),
        other => format!("EtherType 0x{other:04x}"),
    }
}

impl Limiter {
    /// A limiter with a table and its meter. `queues` is true if frames wait.
    #[must_use]
    pub fn new(users: Users, meter: Box<dyn Meter>, kind: KeyKind, queues: bool) -> Self {
        let ledger = Ledger {
            conforming: Tally::default(),
            exceeding: Tally::default(),
            yellow: Tally::default(),
            marked: 0,
            delayed: 0,
            without_key: 0,
            types: BTreeMap::new(),
            longer: (0, 0),
            tried: Vec::new(),
            unmetered: 0,
            figures: Figures::new(users.capacity(), queues),
            workers: Vec::new(),
            undealt: 0,
        };
        Limiter { users, meter, kind, ledger: Mutex::new(ledger), reloads: AtomicU64::new(0) }
    }

    /// Locks the ledger. The stage holds the lock for a whole burst.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // The ledger holds sums, which stay valid if a stage panics.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes users' rates under traffic.
    ///
    /// # Errors
    /// As [`Users::give`]. After an error, none or only some of the rates have changed.
    pub fn reload(&self, rates: &Rates) -> Result<(), String> {
        let given = self.users.give(rates);
        // Also after an error: if the index was crowded, some of the rates may have changed.
        self.ledger().figures.changed();
        given?;
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The rate, the passed bytes and the exceeding bytes of each user in the table, ordered by key.
    pub fn each_user(&self) -> impl Iterator<Item = LimitedUser> + use<> {
        let user =
            |(key, bucket, passed, exceeded): (_, super::Bucket, _, _)| (key, bucket.rate().bps(), passed, exceeded);
        let mut users: Vec<_> = self.users.all().map(user).collect();
        users.sort_unstable_by_key(|user| user.0);
        let kind = self.kind;
        users.into_iter().map(move |(key, rate_bps, passed_bytes, exceeded_bytes)| LimitedUser {
            user: kind.show(key),
            rate_bps,
            passed_bytes,
            exceeded_bytes,
        })
    }

    /// The results. The caller fills in the names in the target.
    #[must_use]
    pub fn report(&self) -> LimitReport {
        let ledger = self.ledger();
        let (created, reclaimed, refused) = self.users.totals();
        let mut talkers = Vec::new();
        let mut present = 0;
        for (key, bucket, passed, exceeded) in self.users.all() {
            present += 1;
            if passed + exceeded > 0 {
                talkers.push((passed + exceeded, key, bucket.rate().bps(), passed, exceeded));
            }
        }
        // Largest first; ties by key, so that runs are repeatable.
        let rank = |talker: &(u64, super::Key, u64, u64, u64)| (u64::MAX - talker.0, talker.1);
        if talkers.len() > TALKERS {
            talkers.select_nth_unstable_by_key(TALKERS, rank);
            talkers.truncate(TALKERS);
        }
        talkers.sort_unstable_by_key(rank);
        let talker = |(_, key, rate_bps, passed_bytes, exceeded_bytes)| LimitedUser {
            user: self.kind.show(key),
            rate_bps,
            passed_bytes,
            exceeded_bytes,
        };
        let window = |obtained: super::Obtained| {
            let window = LimitWindow {
                windows: obtained.windows,
                min_ratio: obtained.least,
                p50_ratio: obtained.median,
                max_ratio: obtained.largest,
                p99_error_ratio: obtained.p99_error,
                worst_error_ratio: obtained.worst_error,
                one_frame_ratio: obtained.one_frame,
            };
            (obtained.window, window)
        };
        let worker =
            |load: &WorkerStats| WorkerLoad { frames: load.frames, exceeded: load.exceeded, overrun: load.overrun };
        let mut types: BTreeMap<String, u64> = BTreeMap::new();
        for (ether_type, frames) in &ledger.types {
            *types.entry(type_name(*ether_type)).or_default() += frames;
        }
        let longer = ledger.longer;
        LimitReport {
            conforming: ledger.conforming,
            exceeding: ledger.exceeding,
            without_key: ledger.without_key,
            without_key_by_type: types,
            longer_than_bucket: (longer.0 > 0).then_some(LongerFrames { frames: longer.0, longest_bytes: longer.1 }),
            policed_tcp: ledger.tcp(),
            unmetered: ledger.unmetered,
            users: UserTable {
                capacity: self.users.capacity(),
                present,
                created,
                reclaimed,
                refused,
                user_bytes: Users::BYTES_PER_USER,
                reloads: self.reloads.load(Ordering::Relaxed),
            },
            error: ledger.figures.obtained().into_iter().map(window).collect(),
            watched: ledger.figures.watched(),
            talkers: talkers.into_iter().map(talker).collect(),
            workers: ledger.workers.iter().map(worker).collect(),
            undealt: Some(ledger.undealt).filter(|frames| *frames > 0),
            yellow: Some(ledger.yellow),
            marked: Some(ledger.marked),
            delayed: Some(ledger.delayed),
            ..LimitReport::default()
        }
    }
}
