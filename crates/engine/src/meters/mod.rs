//! Meters: limit the rate of each of many users, exactly and on many cores.
//!
//! ```text
//! frame ──▶ Key ──▶ Users: key to slot ──▶ Meter: does it conform? ──▶ passed, queued, marked or dropped
//! ```
//!
//! A user is all traffic with the same [`Key`]: an address, a prefix, a flow or a VLAN. [`Users`] gives each user a
//! slot with one 64-bit word, the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371, annex A). A
//! [`Meter`] charges that word from several workers at once.
//!
//! The exact schemes guarantee two bounds, for any number and order of workers. In any interval of length t, a user is
//! granted less than rate × t + burst plus one tick of its clock. A frame is refused only if granting it would exceed
//! rate × t + burst. A tick is at most 2⁻³⁷ s × rate, which is less than one bit below 137 Gbit/s; these errors do not
//! accumulate.

mod bucket;
mod colours;
mod fields;
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
pub use fields::KeyFields;
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
    /// Charges a frame of `bits` bits for the user in `slot` if it conforms at `at`. Called by worker `worker`.
    fn charge(&self, users: &Users, worker: usize, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer;
}

/// The schemes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// One compare-and-swap per granted frame, on any worker.
    #[default]
    Gcra,
    /// A scheduler gives each user to one worker at a time, the least busy one (DPDK's ATOMIC queues).
    AtomicQueue,
    /// A global bucket under a lock, and a bucket per worker that fetches tokens in batches.
    LightLock(Prefetch),
    /// Each user stays with one worker.
    Static,
    /// A lock around each decision.
    Mutex,
}

impl Algorithm {
    /// The names of the schemes.
    pub const NAMES: [&'static str; 5] = ["gcra", "atomic-queue", "light-lock", "static", "mutex"];

    /// The scheme's name.
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

    /// How frames are distributed to workers.
    #[must_use]
    pub fn dispatch(self) -> Dispatch {
        match self {
            Algorithm::Static => Dispatch::Pinned,
            Algorithm::AtomicQueue => Dispatch::Atomic,
            Algorithm::Gcra | Algorithm::Mutex => Dispatch::Flow,
            Algorithm::LightLock(_) => Dispatch::Spread,
        }
    }

    /// Creates the meter for this many workers and users.
    #[must_use]
    pub fn meter(self, workers: usize, users: usize) -> Box<dyn Meter> {
        match self {
            // With a single writer the swap would be unnecessary, but rate changes and evictions write the same word.
            Algorithm::Gcra | Algorithm::Static | Algorithm::AtomicQueue => Box::new(Gcra),
            Algorithm::Mutex => Box::new(Mutexed::default()),
            Algorithm::LightLock(prefetch) => Box::new(LightLock::new(prefetch, workers, users)),
        }
    }

    /// Parses a scheme from the front of `words` and consumes it.
    ///
    /// # Errors
    /// An unknown name or an invalid value.
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
                    format!("'{other}' is not an algorithm"),
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
                format!("'{word}' is not a setting of {}", algorithm.name()),
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

/// Takes the value after the keyword `what`.
pub(crate) fn value<'w>(words: &mut &[&'w str], what: &str, example: &str) -> Result<&'w str, ParseError> {
    let (first, rest) = words
        .split_first()
        .ok_or_else(|| ParseError::new(format!("{what} is missing a value"), format!("write {example}")))?;
    *words = rest;
    Ok(first)
}

/// Parses the size of a bucket: at least one byte.
///
/// # Errors
/// The text is not a size, or the size is not possible for a bucket.
pub(crate) fn parse_depth(text: &str) -> Result<u64, ParseError> {
    let bytes = parse_size(text)?;
    if (1..=1 << 50).contains(&bytes) {
        return Ok(bytes);
    }
    Err(ParseError::new(format!("a bucket of {bytes} B is out of range"), "write 64B to 1024TiB"))
}

/// Parses a span greater than zero.
pub(crate) fn positive(text: &str, what: &str) -> Result<Span, ParseError> {
    let span: Span = text.parse()?;
    if span == Span::ZERO {
        return Err(ParseError::new(format!("{what} of no length holds nothing"), "write 1us or more"));
    }
    Ok(span)
}
