//! Meters: how fast each of many users may send, exactly and on many cores.
//!
//! ```text
//! frame ──▶ Key ──▶ Users: key to slot ──▶ Meter: does it conform? ──▶ passed, queued, marked or dropped
//! ```
//!
//! A user is whoever shares a [`Key`]: an address, a prefix, a flow, a VLAN. [`Users`] gives each a slot
//! with one 64-bit word, the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371,
//! annex A). A [`Meter`] is a way to charge that word from several workers at once.
//!
//! Guarantees of the exact schemes: in any interval of length t a user is granted less than rate × t + burst
//! and a tick of its clock, on any number of workers, in whatever order they run; and a frame is refused only if
//! granting it would break rate × t + burst. A tick is at most 2⁻³⁷ s × rate, below 137 Gbit/s less than a bit;
//! nothing adds up.

mod bucket;
mod colours;
mod figures;
mod gcra;
mod index;
mod key;
mod light_lock;
mod limiter;
mod mutex;
mod rates;
mod users;
mod workers;

pub use bucket::{Bucket, Moment};
pub(crate) use colours::Seconds;
pub use colours::{Colour, Colours, Marker};
pub use figures::{Figures, Obtained};
pub use gcra::{Answer, Gcra, Word, charge, reserve};
pub use key::{Key, KeyKind};
pub use light_lock::{Idle, LightLock, Prefetch};
pub use limiter::Limiter;
pub use mutex::Mutexed;
pub use rates::{Rates, UserRate};
pub use users::{Full, Sought, Users};
pub use workers::{Dispatch, Load as WorkerStats, Metered, Workers};

use std::fmt;
use units::{ParseError, Span, parse_size};

/// A scheme: how workers charge users' buckets.
pub trait Meter: Send + Sync {
    /// Worker `worker` asks whether a frame of `bits` bits of the user in `slot` conforms at `at`, and
    /// charges it if so.
    fn charge(&self, users: &Users, worker: usize, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer;
}

/// The schemes by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// One compare-and-swap for each granted frame, on any worker.
    #[default]
    Gcra,
    /// A scheduler gives each user to one worker at a time, the least busy one (DPDK's ATOMIC queues).
    AtomicQueue,
    /// A global bucket under a lock, and a bucket for each worker that fetches tokens in batches.
    LightLock(Prefetch),
    /// Each user has a worker for good.
    Static,
    /// A lock around each decision.
    Mutex,
}

impl Algorithm {
    /// The names, as they are written.
    pub const NAMES: [&'static str; 5] = ["gcra", "atomic-queue", "light-lock", "static", "mutex"];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Gcra => "gcra",
            Algorithm::AtomicQueue => "atomic-queue",
            Algorithm::LightLock(_) => "light-lock",
            Algorithm::Static => "static",
            Algorithm::Mutex => "mutex",
        }
    }

    /// Which worker gets a frame.
    #[must_use]
    pub fn dispatch(self) -> Dispatch {
        match self {
            Algorithm::Static => Dispatch::Pinned,
            Algorithm::AtomicQueue => Dispatch::Atomic,
            Algorithm::Gcra | Algorithm::Mutex => Dispatch::Flow,
            Algorithm::LightLock(_) => Dispatch::Spread,
        }
    }

    /// Makes the meter for this many workers and users.
    #[must_use]
    pub fn meter(self, workers: usize, users: usize) -> Box<dyn Meter> {
        match self {
            // A single writer needs no swap, but rates change and users go by other hands: one word, one way.
            Algorithm::Gcra | Algorithm::Static | Algorithm::AtomicQueue => Box::new(Gcra),
            Algorithm::Mutex => Box::new(Mutexed::default()),
            Algorithm::LightLock(prefetch) => Box::new(LightLock::new(prefetch, workers, users)),
        }
    }

    /// Reads a scheme from the front of `words`, and takes away what it read.
    ///
    /// # Errors
    /// An unknown name, or a value that cannot be had.
    pub fn take(words: &mut &[&str]) -> Result<Self, ParseError> {
        let (name, rest) = words.split_first().unwrap_or((&"", &[]));
        *words = rest;
        Ok(match *name {
            "gcra" => Algorithm::Gcra,
            "atomic-queue" => Algorithm::AtomicQueue,
            "static" => Algorithm::Static,
            "mutex" => Algorithm::Mutex,
            "light-lock" => Algorithm::LightLock(Prefetch::take(words)?),
            other => {
                return Err(ParseError::new(
                    format!("'{other}' is no algorithm"),
                    format!("write one of {}", Algorithm::NAMES.join(", ")),
                ));
            }
        })
    }
}

impl std::str::FromStr for Algorithm {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut rest = words.as_slice();
        let algorithm = Algorithm::take(&mut rest)?;
        match rest.first() {
            None => Ok(algorithm),
            Some(word) => Err(ParseError::new(
                format!("'{word}' after {} has no meaning", algorithm.name()),
                "only light-lock has settings: light-lock batch 1500B depth 3000B idle keep",
            )),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Algorithm::LightLock(prefetch) = self { write!(f, "{prefetch}") } else { Ok(()) }
    }
}

/// The word after a key word.
pub(crate) fn value<'w>(words: &mut &[&'w str], what: &str, example: &str) -> Result<&'w str, ParseError> {
    let (first, rest) = words
        .split_first()
        .ok_or_else(|| ParseError::new(format!("{what} is missing a value"), format!("write {example}")))?;
    *words = rest;
    Ok(first)
}

/// Bytes of a bucket: at least one.
///
/// # Errors
/// No size, or none that a bucket can have.
pub(crate) fn parse_depth(text: &str) -> Result<u64, ParseError> {
    let bytes = parse_size(text)?;
    if (1..=1 << 50).contains(&bytes) {
        return Ok(bytes);
    }
    Err(ParseError::new(format!("a bucket of {bytes} B cannot be had"), "write 64B to 1024TiB"))
}

/// A span that is not zero.
pub(crate) fn positive(text: &str, what: &str) -> Result<Span, ParseError> {
    let span: Span = text.parse()?;
    if span == Span::ZERO {
        return Err(ParseError::new(format!("{what} of no length holds nothing"), "write 1us or more"));
    }
    Ok(span)
}
