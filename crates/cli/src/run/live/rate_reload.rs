//! Reads the rates of users again at SIGHUP, while frames pass.

use crate::output::{self, Failure};
use crate::plan::files::OnDisk;
use crate::plan::request::Request;
use crate::run::user_limits;
use dataplane::MOST_LIVE_WORKERS;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Refuses stages that limit users if live ports do not support their workers.
pub(super) fn check_live(request: &Request) -> Result<(), Failure> {
    for (plan, limit) in
        request.pipelines.iter().flat_map(|plan| user_limits::all(plan).map(move |limit| (plan, limit)))
    {
        let refused = if limit.service.is_some() {
            "service is only for modelled workers, and on live ports workers are threads: leave it out".to_owned()
        } else if limit.workers > MOST_LIVE_WORKERS {
            format!("{} workers are too many threads: write {MOST_LIVE_WORKERS} or fewer", limit.workers)
        } else {
            continue;
        };
        return Err(Failure::new(format!("{}: {refused}", plan.name)));
    }
    Ok(())
}

/// Set by SIGHUP when the rates are to be read again.
pub(super) struct Reload(Arc<AtomicBool>);

impl Reload {
    /// Handles SIGHUP if there is a file of rates. Otherwise SIGHUP ends the run.
    pub(super) fn new(request: &Request) -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        if user_limits::has_rates(request) {
            signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&asked))
                .map_err(|cause| Failure::new(format!("cannot handle signals: {cause}")))?;
        }
        Ok(Reload(asked))
    }

    /// Reads the files again if asked. If that fails, it prints a note and the old rates stay in force.
    pub(super) fn if_asked(&mut self, request: &Request) {
        if !self.0.swap(false, Ordering::Relaxed) {
            return;
        }
        let limits = request.pipelines.iter().flat_map(|plan| user_limits::all(plan).map(move |limit| (plan, limit)));
        for (plan, limit) in limits.filter(|(_, limit)| limit.rates.is_some()) {
            match limit.reload(&OnDisk) {
                Ok(users) => {
                    let whose = match users {
                        1 => "rate of 1 user was".to_owned(),
                        _ => format!("rates of {} users were", output::thousands(users as u64)),
                    };
                    output::note(format!("{}: the {whose} read again", plan.name));
                }
                Err(error) => output::note(format!("{}: the rates are unchanged: {error}", plan.name)),
            }
        }
    }
}
