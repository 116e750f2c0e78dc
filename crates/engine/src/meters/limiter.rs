use super::{Figures, KeyKind, Meter, Rates, Users, WorkerStats};
use measure::{LimitReport, LimitWindow, LimitedUser, Tally, UserTable, WorkerLoad};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of users that the report lists as top talkers.
const TALKERS: usize = 10;

/// The users of a stage, their meter and the figures. The stage, the report and rate changes share it.
pub struct Limiter {
    /// The table.
    pub users: Users,
    /// The scheme.
    pub meter: Box<dyn Meter>,
    kind: KeyKind,
    ledger: Mutex<Ledger>,
    reloads: AtomicU64,
}

/// Counts and figures of frames.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) conforming: Tally,
    pub(crate) exceeding: Tally,
    pub(crate) yellow: Tally,
    pub(crate) marked: u64,
    pub(crate) delayed: u64,
    pub(crate) without_key: u64,
    pub(crate) unmetered: u64,
    pub(crate) figures: Figures,
    pub(crate) workers: Vec<WorkerStats>,
    /// Frames that no worker could take.
    pub(crate) undealt: u64,
}

impl Limiter {
    /// A limiter of a table and its meter; `queues` if frames wait.
    #[must_use]
    pub fn new(users: Users, meter: Box<dyn Meter>, kind: KeyKind, queues: bool) -> Self {
        let ledger = Ledger {
            conforming: Tally::default(),
            exceeding: Tally::default(),
            yellow: Tally::default(),
            marked: 0,
            delayed: 0,
            without_key: 0,
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
    /// As [`Users::give`]. Then none or only part of the rates changed.
    pub fn reload(&self, rates: &Rates) -> Result<(), String> {
        let given = self.users.give(rates);
        // Also after an error: a crowded table may have taken part of the rates.
        self.ledger().figures.changed();
        given?;
        self.reloads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What each user in the table sent and obtained, ordered by key.
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

    /// The results. The caller fills in the names of the target.
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
                min: obtained.least,
                p50: obtained.median,
                max: obtained.largest,
                p99_error: obtained.p99_error,
                worst_error: obtained.worst_error,
            };
            (obtained.window, window)
        };
        let worker =
            |load: &WorkerStats| WorkerLoad { frames: load.frames, exceeded: load.exceeded, overrun: load.overrun };
        LimitReport {
            conforming: ledger.conforming,
            exceeding: ledger.exceeding,
            without_key: ledger.without_key,
            unmetered: ledger.unmetered,
            users: UserTable {
                capacity: self.users.capacity(),
                present,
                created,
                reclaimed,
                refused,
                bytes_per_user: Users::BYTES_PER_USER,
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
