use super::{Answer, Gcra, Key, Meter, Moment, Users};
use std::sync::{Mutex, PoisonError};

/// Number of locks shared by all users: enough that two workers rarely need the same one.
const STRIPES: usize = 4_096;

/// The plain scheme: a lock around each decision. A worker that is descheduled while it holds a lock blocks all others
/// that need this lock.
pub struct Mutexed {
    stripes: Vec<Mutex<()>>,
}

impl Default for Mutexed {
    fn default() -> Self {
        Mutexed { stripes: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }
}

impl Meter for Mutexed {
    fn charge(&self, users: &Users, worker: usize, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer {
        let stripe = &self.stripes[slot as usize % STRIPES];
        // The lock guards no data, so a panic leaves no inconsistent state.
        let _held = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        Gcra.charge(users, worker, slot, key, at, bits)
    }
}
