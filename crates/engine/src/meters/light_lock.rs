use super::{Answer, Key, Meter, Moment, Users, parse_depth, positive, value};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use units::{ParseError, Span};

/// How workers prefetch tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Bytes per fetch. A fetch takes all of them, or none if the global bucket has fewer. For a longer frame, a worker
    /// fetches the missing bytes.
    pub batch: u64,
    /// Capacity of a worker's bucket in bytes; fetched tokens beyond it are lost.
    pub depth: u64,
    /// What happens to unused tokens of a worker.
    pub idle: Idle,
}

/// What happens to idle tokens in a worker's bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// They stay indefinitely.
    Keep,
    /// They expire if the worker sees no frame of the user for this long.
    Expire(Span),
}

impl Default for Prefetch {
    fn default() -> Self {
        Prefetch { batch: 1_518, depth: 3_036, idle: Idle::Keep }
    }
}

impl Prefetch {
    /// Parses settings from the front of `words` and consumes them.
    ///
    /// # Errors
    /// An invalid value.
    pub(super) fn take(words: &mut &[&str]) -> Result<Self, ParseError> {
        let mut prefetch = Prefetch::default();
        let mut depth = None;
        while let Some((word, rest)) = words.split_first() {
            match *word {
                "batch" => {
                    *words = rest;
                    prefetch.batch = parse_depth(value(words, "batch", "batch 1500B")?)?;
                }
                "depth" => {
                    *words = rest;
                    depth = Some(parse_depth(value(words, "depth", "depth 3000B")?)?);
                }
                // A plain `idle TIME` belongs to the limiter, not to the scheme.
                "idle" if matches!(rest.first(), Some(&"keep" | &"expire")) => {
                    *words = &rest[1..];
                    prefetch.idle = match rest[0] {
                        "keep" => Idle::Keep,
                        _ => Idle::Expire(positive(value(words, "expire", "idle expire 10ms")?, "an age")?),
                    };
                }
                _ => break,
            }
        }
        prefetch.depth = depth.unwrap_or(prefetch.batch * 2);
        if prefetch.depth < prefetch.batch {
            return Err(ParseError::new(
                format!("a depth of {} B is less than a batch of {} B", prefetch.depth, prefetch.batch),
                "write a depth that holds a batch",
            ));
        }
        Ok(prefetch)
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " batch {}B depth {}B idle ", self.batch, self.depth)?;
        match self.idle {
            Idle::Keep => f.write_str("keep"),
            Idle::Expire(age) => write!(f, "expire {age}"),
        }
    }
}

const STRIPES: usize = 4_096;
/// Number of slots whose worker buckets are allocated together, when the first of them is used. Most tables have
/// capacity for far more users than appear.
const TOGETHER: usize = 1_024;

/// The scheme that reference 001 improves on: a global bucket under a lock, and a local bucket per worker. A worker
/// fetches tokens in batches to take the lock rarely.
///
/// Not exact. Tokens in one worker's bucket are not available to another worker that refuses a frame. The buckets of
/// all workers can also be emptied at once, on top of the global one.
pub struct LightLock {
    prefetch: Prefetch,
    stripes: Vec<Mutex<()>>,
    /// One bucket per worker and user, in blocks. The blocks of a worker are adjacent, and only that worker writes
    /// them.
    locals: Vec<OnceLock<Box<[Local]>>>,
    /// Blocks per worker.
    of_worker: usize,
}

#[derive(Default)]
struct Local {
    bits: AtomicU64,
    /// Time in ps of the user's last frame on this worker, and the mixed key of the user that owns the tokens.
    used: AtomicU64,
    owner: AtomicU64,
}

impl LightLock {
    /// A meter for `workers` workers and `users` users.
    #[must_use]
    pub fn new(prefetch: Prefetch, workers: usize, users: usize) -> Self {
        let of_worker = users.div_ceil(TOGETHER);
        LightLock {
            prefetch,
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            locals: (0..workers * of_worker).map(|_| OnceLock::new()).collect(),
            of_worker,
        }
    }

    fn local(&self, worker: usize, slot: u32) -> &Local {
        let slot = slot as usize;
        let locals = &self.locals[worker * self.of_worker + slot / TOGETHER];
        &locals.get_or_init(|| (0..TOGETHER).map(|_| Local::default()).collect())[slot % TOGETHER]
    }

    /// Takes `bits` from the global bucket, or nothing.
    fn fetch(&self, users: &Users, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer {
        let _held = self.stripes[slot as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner);
        super::charge(users.word(slot), |word| users.bucket_of(slot, key, word), at, bits)
    }
}

impl Meter for LightLock {
    fn charge(&self, users: &Users, worker: usize, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer {
        if users.bucket_of(slot, key, users.word(slot).load(Ordering::Acquire)).is_none() {
            return Answer::Gone;
        }
        let local = self.local(worker, slot);
        let now = at.time().as_ps();
        let mut held = local.bits.load(Ordering::Relaxed);
        let last = local.used.swap(now, Ordering::Relaxed);
        let stale = match self.prefetch.idle {
            Idle::Keep => false,
            Idle::Expire(age) => now.saturating_sub(last) > age.as_ps(),
        };
        // A new user of the slot must not inherit tokens.
        if local.owner.swap(key.mixed(), Ordering::Relaxed) != key.mixed() || stale {
            held = 0;
        }
        if held < bits {
            let batch = (self.prefetch.batch * 8).max(bits - held);
            match self.fetch(users, slot, key, at, batch) {
                Answer::Conforms => held = (held + batch).min((self.prefetch.depth * 8).max(bits)),
                Answer::Exceeds => {}
                Answer::Gone => return Answer::Gone,
            }
        }
        let answer = if held < bits {
            Answer::Exceeds
        } else {
            held -= bits;
            Answer::Conforms
        };
        local.bits.store(held, Ordering::Relaxed);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::Bucket;
    use units::{BitRate, Time};

    fn users() -> Users {
        let bucket = Bucket::new(BitRate::from_bps(1_000_000), 3_000).expect("a bucket");
        Users::new(16, Span::from_ms(10_000), Some(bucket), 1)
    }

    #[test]
    fn tokens_of_one_worker_do_not_serve_another() {
        let users = users();
        let key = Key::new(0, 7);
        let at = Moment::of(Time::ZERO);
        let slot = users.find_or_add(key, &at).expect("room");
        let words = ["batch", "1500B", "depth", "1500B"];
        let meter = LightLock::new(Prefetch::take(&mut &words[..]).expect("settings"), 3, 16);
        let ask = |worker, bytes: u64| meter.charge(&users, worker, slot, key, &at, bytes * 8);
        assert_eq!(ask(0, 100), Answer::Conforms, "fetches 1 500");
        assert_eq!(ask(1, 100), Answer::Conforms, "fetches the other 1 500");
        assert_eq!(ask(2, 100), Answer::Exceeds, "though 2 800 lie idle");
        assert_eq!(ask(0, 1_400), Answer::Conforms, "they are there");
        assert_eq!(ask(0, 1), Answer::Exceeds);
    }

    #[test]
    fn allocates_buckets_on_first_use() {
        let users = users();
        let key = Key::new(0, 7);
        let at = Moment::of(Time::ZERO);
        let slot = users.find_or_add(key, &at).expect("room");
        // 25 GB if each worker had a bucket for every user that fits into the table.
        let prefetch = Prefetch { batch: 1_500, depth: 3_000, idle: Idle::Keep };
        let meter = LightLock::new(prefetch, 1_024, 1 << 20);
        for worker in [0, 1_023] {
            assert_eq!(meter.charge(&users, worker, slot, key, &at, 800), Answer::Conforms, "worker {worker}");
        }
        assert_eq!(meter.locals.iter().filter(|locals| locals.get().is_some()).count(), 2);
    }

    #[test]
    fn idle_tokens_expire_after_the_set_age() {
        let users = users();
        let key = Key::new(0, 7);
        let start = Moment::of(Time::ZERO);
        let slot = users.find_or_add(key, &start).expect("room");
        let words = ["batch", "3000B", "idle", "expire", "5ms"];
        let meter = LightLock::new(Prefetch::take(&mut &words[..]).expect("settings"), 1, 16);
        assert_eq!(meter.charge(&users, 0, slot, key, &start, 800), Answer::Conforms);
        let just = Moment::of(Time::ZERO + Span::from_ms(5));
        assert_eq!(meter.charge(&users, 0, slot, key, &just, 800), Answer::Conforms, "not older than 5 ms");
        let late = Moment::of(Time::ZERO + Span::from_ms(11));
        assert_eq!(meter.charge(&users, 0, slot, key, &late, 800), Answer::Exceeds, "2 800 B are lost");
    }
}
