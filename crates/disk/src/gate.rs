//! The gate that every operation passes: decides delays, rate and injected errors.

use crate::DiskConfig;
use crate::delay::{Delay, Draws};
use crate::operations::{Operation, Operations};
use crate::report::{Answered, Tallies};
use crate::scheduler::Scheduler;
use engine::random::Random;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use units::{BitRate, ParseError, Share, Span};

/// Decides about operations in order of arrival, and holds back their replies.
///
/// An operation is performed on the backing directory at once. Its reply waits until the asked delay has passed since
/// netlathe received the operation. A delay therefore does not add to the time of the backing directory; it is the
/// minimum duration of an operation.
pub(crate) struct Gate {
    operations: Operations,
    decisions: Mutex<Decisions>,
    bucket: Option<Arc<Mutex<Bucket>>>,
    later: Scheduler,
    /// Performs operations only when they are due, on separate threads, because they may take long.
    late: Scheduler,
    /// Bytes of memory in waiting replies.
    held: Arc<AtomicUsize>,
    tallies: Arc<Mutex<Tallies>>,
    hurry: AtomicBool,
    written_back: AtomicU64,
}

/// Random decisions, drawn in order of operations.
struct Decisions {
    delays: Vec<(Operations, Draws)>,
    random: Random,
    /// Each error with its operations, and how many in 10⁹ of them fail.
    errors: Vec<(Operations, Errno, u64)>,
}

/// An operation in progress.
pub(crate) struct Turn {
    operation: Operation,
    arrived: Instant,
    asked: Option<Span>,
    /// The operation arrived after the disk began to end. It counts in no figure.
    afterwards: bool,
    /// The injected error, which replaces the operation.
    pub(crate) error: Option<Errno>,
}

impl Gate {
    pub(crate) fn new(config: &DiskConfig) -> Result<Self, crate::Error> {
        let of = |operations: Option<Operations>| operations.unwrap_or(config.operations);
        let errors: Vec<_> = config
            .errors
            .iter()
            .map(|fault| (of(fault.operations), fault.errno, u64::from(fault.share.ppb())))
            .collect();
        for operation in Operation::ALL {
            let of_it = config.delays.iter().filter(|delay| of(delay.operations).contains(*operation));
            if let [first, second, ..] = of_it.collect::<Vec<_>>()[..] {
                let what = format!("{} has two delays, '{first}' and '{second}'", operation.name());
                return Err(
                    ParseError::new(what, "write each operation once, as --delay 'read 5ms; write 20ms'").into()
                );
            }
            let of_it = errors.iter().filter(|(operations, ..)| operations.contains(*operation));
            if of_it.map(|(.., share)| share).sum::<u64>() > u64::from(Share::ONE.ppb()) {
                let what = format!("the error shares of {} exceed 100 %", operation.name());
                return Err(ParseError::new(what, "write at most 100% in all").into());
            }
        }
        let drawn = |delay: &Delay| Ok((of(delay.operations), delay.draws(config.seed)?));
        let delays: Vec<_> = config.delays.iter().map(drawn).collect::<Result<_, ParseError>>()?;
        let named = delays.iter().map(|(operations, _)| *operations).chain(errors.iter().map(|error| error.0));
        let operations = named.fold(config.operations, Operations::and);
        let decisions = Decisions { delays, random: Random::stream(config.seed, "disk/error"), errors };
        Ok(Gate {
            operations,
            decisions: Mutex::new(decisions),
            bucket: config.rate.map(|rate| Arc::new(Mutex::new(Bucket::new(rate)))),
            later: Scheduler::start().map_err(crate::Error::Threads)?,
            late: Scheduler::start().map_err(crate::Error::Threads)?,
            held: Arc::default(),
            tallies: Arc::default(),
            hurry: AtomicBool::new(false),
            written_back: AtomicU64::new(0),
        })
    }

    /// Whether this operation is delayed or made to fail.
    pub(crate) fn concerns(&self, operation: Operation) -> bool {
        self.operations.contains(operation)
    }

    /// Records the arrival of an operation.
    pub(crate) fn arrive(&self, operation: Operation) -> Turn {
        self.arrive_at(operation, Instant::now())
    }

    /// Records the arrival of an operation at an instant, which may be the end of the preceding operation.
    pub(crate) fn arrive_at(&self, operation: Operation, arrived: Instant) -> Turn {
        let afterwards = self.hurry.load(Ordering::Relaxed);
        let mut turn = Turn { operation, arrived, asked: None, afterwards, error: None };
        if self.operations.contains(operation) && !afterwards {
            let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
            let Decisions { delays, random, errors } = &mut *decisions;
            let delay = delays.iter_mut().find(|(operations, _)| operations.contains(operation));
            turn.asked = delay.map(|(_, draws)| draws.draw());
            let mut meant = errors.iter().filter(|(operations, ..)| operations.contains(operation)).peekable();
            if meant.peek().is_some() {
                let mut left = random.below(Share::ONE.ppb().into());
                turn.error = meant.find_map(|(_, errno, share)| {
                    let hit = left < *share;
                    left = left.saturating_sub(*share);
                    hit.then_some(*errno)
                });
            }
        }
        turn
    }

    /// Reserves memory for a reply, if the waiting replies leave room. Always succeeds for a reply that does not wait.
    pub(crate) fn room(&self, turn: &Turn, bytes: usize) -> Option<Room> {
        let waits = !turn.afterwards && (self.bucket.is_some() || turn.asked.is_some_and(|asked| asked > Span::ZERO));
        let bytes = if waits { bytes } else { 0 };
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|sum| *sum <= MOST_HELD)
        });
        taken.ok().map(|_| Room { held: Arc::clone(&self.held), bytes })
    }

    /// Returns when an operation that moves `bytes` bytes is due.
    fn due(&self, turn: &Turn, bytes: u64) -> Instant {
        let due = turn.arrived + turn.asked.unwrap_or_default().to_std();
        match self.bucket.as_ref().filter(|_| bytes > 0) {
            Some(bucket) => due.max(bucket.lock().unwrap_or_else(PoisonError::into_inner).take(turn.arrived, bytes)),
            None => due,
        }
    }

    /// Returns a function to call when the operation completes. It records the operation, which was due at `due`.
    fn tallying(&self, turn: &Turn, due: Instant) -> impl FnOnce(u64, bool) + Send + 'static + use<> {
        let Turn { operation, arrived, asked, error, .. } = *turn;
        let (tallies, bucket) = (Arc::clone(&self.tallies), self.bucket.as_ref().map(Arc::clone));
        move |bytes, failed| {
            let now = Instant::now();
            if let Some(bucket) = bucket.filter(|_| bytes > 0) {
                bucket.lock().unwrap_or_else(PoisonError::into_inner).was_late(now.saturating_duration_since(due));
            }
            let answered =
                Answered { bytes, asked, arrived, now, injected: error.is_some(), failed, cut_short: now < due };
            tallies.lock().unwrap_or_else(PoisonError::into_inner).of(operation).count(&answered);
        }
    }

    /// Performs an operation when it is due, and answers. `bytes` is the expected number of bytes. `work` learns
    /// whether the disk ends before the operation is due; it returns the number of bytes moved, whether it failed, and
    /// a function that answers.
    pub(crate) fn finish_late<A: FnOnce()>(
        &self,
        turn: &Turn,
        bytes: u64,
        work: impl FnOnce(bool) -> (u64, bool, A) + Send + 'static,
    ) {
        let due = self.due(turn, bytes);
        let tally = self.tallying(turn, due);
        self.late.at(
            due,
            Box::new(move || {
                let (bytes, failed, answer) = work(Instant::now() < due);
                tally(bytes, failed);
                answer();
            }),
        );
    }

    /// Completes an operation that is answered together with another. Returns the instant at which it is due.
    pub(crate) fn finish_part(&self, turn: &Turn, bytes: u64) -> Instant {
        if turn.afterwards {
            return Instant::now();
        }
        let due = self.due(turn, bytes);
        let tally = self.tallying(turn, due);
        self.at(due, move || tally(bytes, false));
        due.max(Instant::now())
    }

    fn at(&self, due: Instant, run: impl FnOnce() + Send + 'static) {
        if due <= Instant::now() || self.hurry.load(Ordering::Relaxed) {
            run();
        } else {
            self.later.at(due, Box::new(run));
        }
    }

    /// Completes an operation that moved this many bytes, or `failed` without injection. `answer` runs when the
    /// operation is due.
    pub(crate) fn finish(&self, turn: &Turn, bytes: u64, failed: bool, answer: impl FnOnce() + Send + 'static) {
        // Operations during the end have no delay; counting them would distort the measured delays.
        if turn.afterwards {
            return answer();
        }
        let due = self.due(turn, bytes);
        let tally = self.tallying(turn, due);
        self.at(due, move || {
            tally(bytes, failed);
            answer();
        });
    }

    /// From now on operations are answered at once, so that the file system can be unmounted, and new operations are
    /// not counted.
    pub(crate) fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
        self.later.hurry();
        self.late.hurry();
    }

    /// Waits until pending operations are answered and counted, up to `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        self.late.settle(patience);
        self.later.settle(patience);
    }

    /// Records that the kernel wrote changes of mapped files.
    pub(crate) fn note_write_back(&self) {
        self.written_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of these writes.
    pub(crate) fn write_backs(&self) -> u64 {
        self.written_back.load(Ordering::Relaxed)
    }

    /// The figures so far.
    pub(crate) fn tallies(&self) -> Tallies {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Limit on memory of waiting replies, in bytes. Beyond it, operations are performed when they are due.
const MOST_HELD: usize = 64 << 20;

/// Memory reserved for a reply until this is dropped.
pub(crate) struct Room {
    held: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A token bucket of bytes, represented by the instant at which all bytes so far have passed.
struct Bucket {
    rate: BitRate,
    passed: Option<Instant>,
    /// Remainder of a nanosecond, in 1/rate ns.
    rest: u128,
    /// Our own lateness that is not compensated yet.
    owed: Duration,
}

impl Bucket {
    /// Depth of the bucket, as time at the rate. Compensates for the time between operations, in which a program that
    /// waits for each cannot request the next.
    const DEPTH: Duration = Duration::from_millis(10);

    /// Limit on the compensated lateness, for example after the machine slept.
    const MOST_OWED: Duration = Duration::from_secs(1);

    fn new(rate: BitRate) -> Self {
        Bucket { rate, passed: None, rest: 0, owed: Duration::ZERO }
    }

    /// When this many bytes that arrive `now` have passed.
    fn take(&mut self, now: Instant, bytes: u64) -> Instant {
        let passed = self.passed.unwrap_or(now);
        // A program that was answered late also requests the next operation late; that is our lateness, and is
        // compensated.
        let unused = now.saturating_duration_since(passed).saturating_sub(Self::DEPTH);
        let made_good = unused.min(self.owed);
        self.owed -= made_good;
        let start = passed + (unused - made_good);
        let exact = u128::from(bytes) * 8 * 1_000_000_000 + self.rest;
        let rate = u128::from(self.rate.bps());
        self.rest = exact % rate;
        let wait = Duration::from_nanos(u64::try_from(exact / rate).unwrap_or(u64::MAX >> 4));
        let passed = start + wait;
        self.passed = Some(passed);
        passed
    }

    /// Records the lateness of an answer. Answers that were late together count once.
    fn was_late(&mut self, late: Duration) {
        self.owed = self.owed.max(late.min(Self::MOST_OWED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_despite_pauses() {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate::from_bps(8_000_000));
        // 4 kB each, requested 100 µs after the previous answer: each still takes 4 ms.
        let mut now = start;
        for _ in 0..1_000 {
            now = bucket.take(now, 4_000).max(now) + Duration::from_micros(100);
        }
        let took = now - start;
        assert!(took >= Duration::from_millis(3_990) && took <= Duration::from_millis(4_001), "{took:?}");
    }

    #[test]
    fn late_answers_do_not_lower_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate::from_bps(8_000_000));
        let mut now = start;
        for i in 0..100 {
            let due = bucket.take(now, 10_000);
            // From time to time the machine is busy for 60 ms.
            now = due.max(now) + Duration::from_millis(if i % 20 == 10 { 60 } else { 0 });
            bucket.was_late(now - due);
        }
        let took = now - start;
        assert!(took >= Duration::from_millis(990) && took <= Duration::from_millis(1_010), "{took:?}");
    }

    #[test]
    fn idle_disk_accumulates_one_bucket_at_most() {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate::from_bps(8_000_000));
        bucket.take(start, 1_000);
        let later = start + Duration::from_secs(60);
        assert_eq!(bucket.take(later, 10_000), later, "10 ms at 1 MB/s");
        assert_eq!(bucket.take(later, 1_000), later + Duration::from_millis(1));
    }

    #[test]
    fn carries_fractions_of_a_nanosecond() {
        let start = Instant::now();
        let mut bucket = Bucket::new(BitRate::from_bps(24_000_000_000));
        for _ in 0..3_000 {
            bucket.take(start, 1);
        }
        assert_eq!(bucket.take(start, 3), start + Duration::from_nanos(1_001));
    }

    fn config(errors: &[(&str, &str)]) -> DiskConfig {
        let errors =
            errors.iter().map(|(name, share)| crate::Fault::parse(&format!("{name} {share}")).expect("a fault"));
        DiskConfig { errors: errors.collect(), ..DiskConfig::new("/".into(), "/mnt".into()) }
    }

    #[test]
    fn injects_the_asked_share_of_errors_only_where_asked() {
        let gate = Gate::new(&config(&[("eio", "2%"), ("enospc", "1%")])).expect("threads");
        let errors: Vec<Errno> = (0..100_000).filter_map(|_| gate.arrive(Operation::Write).error).collect();
        let count = |errno| errors.iter().filter(|error| **error == errno).count() as f64;
        // Four standard deviations of binomials with n = 100 000.
        assert!((count(Errno::IO) - 2_000.0).abs() < 4.0 * 44.3);
        assert!((count(Errno::NOSPC) - 1_000.0).abs() < 4.0 * 31.5);
        assert!((0..1_000).all(|_| gate.arrive(Operation::Lookup).error.is_none()));
        let again = Gate::new(&config(&[("eio", "2%"), ("enospc", "1%")])).expect("threads");
        let same: Vec<Errno> = (0..100_000).filter_map(|_| again.arrive(Operation::Read).error).collect();
        assert_eq!(errors, same, "the same seed");
    }

    #[test]
    fn named_operations_have_their_own_delays_and_errors() {
        let delays = Delay::parse_each("read 5ms; write,rename 20ms").expect("two delays");
        let gate = Gate::new(&DiskConfig { delays, ..config(&[("read eio", "100%"), ("enospc", "100%")]) });
        assert!(gate.is_err(), "reads would fail twice");
        let delays = Delay::parse_each("read 5ms; write,rename 20ms").expect("two delays");
        let gate = Gate::new(&DiskConfig { delays, ..config(&[("read eio", "100%"), ("rename enospc", "100%")]) })
            .expect("a gate");
        let of = |operation| {
            let turn = gate.arrive(operation);
            (turn.asked.map(|asked| asked.as_ps() / 1_000_000_000), turn.error)
        };
        assert_eq!(of(Operation::Read), (Some(5), Some(Errno::IO)));
        assert_eq!(of(Operation::Write), (Some(20), None));
        assert_eq!(of(Operation::Rename), (Some(20), Some(Errno::NOSPC)), "not among --ops, but named");
        assert_eq!(of(Operation::Fsync), (None, None), "among --ops, but all name others");
        assert!(gate.concerns(Operation::Rename) && !gate.concerns(Operation::Lookup));
    }

    #[test]
    fn refuses_two_delays_of_one_operation() {
        for text in ["read 5ms; read,write 6ms", "5ms; write 20ms", "5ms; 6ms"] {
            let delays = Delay::parse_each(text).expect("delays");
            let refused = Gate::new(&DiskConfig { delays, ..config(&[]) }).err().expect("two").to_string();
            assert!(refused.contains("has two delays"), "{refused}");
        }
    }

    #[test]
    fn refuses_more_errors_than_operations() {
        assert!(Gate::new(&config(&[("eio", "60%"), ("enospc", "60%")])).is_err());
        assert!(Gate::new(&config(&[("read eio", "60%"), ("write enospc", "60%")])).is_ok());
    }
}
