//! Ending a run from outside: SIGINT and SIGTERM.

use crate::output::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Becomes true once the user wants the run to end.
#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Sets the handlers, also where the signals were inherited as ignored. A second signal ends the
    /// program at once, for the case that the first is not obeyed.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let set = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)));
            set.map_err(|cause| Failure::new(format!("cannot handle signals: {cause}")))?;
        }
        Ok(Stop(asked))
    }

    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for those who look at it in a loop.
    #[cfg(feature = "live")]
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}
