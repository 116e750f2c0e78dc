//! The instant at which frames start to pass.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A gate that opens once, when the frames of a run start to pass. The programs of the scenario wait for it.
#[derive(Clone, Default)]
pub(crate) struct ReadyGate(Arc<(Mutex<Option<Instant>>, Condvar)>);

impl ReadyGate {
    /// Opens the gate, if it is not open yet.
    pub(crate) fn open(&self) {
        let (opened, wakes) = &*self.0;
        opened.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        wakes.notify_all();
    }

    /// Waits up to `patience` for the gate to open. Returns the instant at which it opened, or `None` if it is still
    /// closed.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "programs are refused"))]
    pub(crate) fn wait(&self, patience: Duration) -> Option<Instant> {
        let (opened, wakes) = &*self.0;
        let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
        let (opened, _) = wakes
            .wait_timeout_while(opened, patience, |opened| opened.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        *opened
    }
}
