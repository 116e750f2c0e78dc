//! Reading the rates of users again while frames pass: SIGHUP.

use crate::execute::Request;
use crate::files::OnDisk;
use crate::output::{self, Failure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether rates are to be read again.
pub(crate) struct Reload(Arc<AtomicBool>);

impl Reload {
    /// Watches for the signal, if there is a file of rates; else it ends the program, as ever.
    pub(crate) fn new(request: &Request) -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        if request.pipelines.iter().any(|plan| plan.limit().is_some_and(|limit| limit.rates.is_some())) {
            signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&asked))
                .map_err(|cause| Failure::new(format!("cannot handle signals: {cause}")))?;
        }
        Ok(Reload(asked))
    }

    /// Reads the files if that was asked for. Rates that cannot be read are told, and the old ones hold on.
    pub(crate) fn if_asked(&mut self, request: &Request) {
        if !self.0.swap(false, Ordering::Relaxed) {
            return;
        }
        for plan in &request.pipelines {
            let Some(limit) = plan.limit().filter(|limit| limit.rates.is_some()) else { continue };
            match limit.reload(&OnDisk) {
                Ok(users) => {
                    let users = output::thousands(users as u64);
                    output::note(format!("{}: the rates of {users} users were read again", plan.name));
                }
                Err(error) => output::note(format!("{}: the rates stay as they were: {error}", plan.name)),
            }
        }
    }
}
