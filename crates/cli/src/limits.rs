//! What the stages that limit users did, and their rates read again while frames pass: SIGHUP.

use crate::execute::Request;
use measure::{LimitedUser, PipelineReport};
#[cfg(feature = "live")]
pub(crate) use reload::{Reload, check_live};
use scenario::PipelinePlan;
use std::fmt::Write as _;

/// Adds what the stages of a plan did to the report of their pipeline or class.
pub(crate) fn report(plan: &PipelinePlan, report: &mut PipelineReport) {
    for (class, limit) in plan.limits() {
        match report.classes.iter_mut().find(|report| report.name == class) {
            Some(of_class) => of_class.limit = limit.report(),
            None => report.limit = limit.report(),
        }
    }
}

/// What each user of the stages sent and got, as comma-separated values. A user has no comma in its name.
pub(crate) fn by_user(request: &Request) -> String {
    let mut text = "user,rate_bps,passed_bytes,exceeded_bytes\n".to_owned();
    let limits = request.pipelines.iter().flat_map(PipelinePlan::limits);
    for LimitedUser { user, rate_bps, passed_bytes, exceeded_bytes } in limits.flat_map(|(_, limit)| limit.each_user())
    {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{user},{rate_bps},{passed_bytes},{exceeded_bytes}");
    }
    text
}

/// Whether any stage has a file of rates, which a live run reads again at SIGHUP.
pub(crate) fn has_rates(request: &Request) -> bool {
    request.pipelines.iter().any(|plan| plan.limits().any(|(_, limit)| limit.rates.is_some()))
}

#[cfg(feature = "live")]
mod reload {
    use crate::execute::Request;
    use crate::files::OnDisk;
    use crate::output::{self, Failure};
    use dataplane::MOST_LIVE_WORKERS;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether live ports can have the workers that are asked for.
    pub(crate) fn check_live(request: &Request) -> Result<(), Failure> {
        for (plan, limit) in
            request.pipelines.iter().flat_map(|plan| plan.limits().map(move |(_, limit)| (plan, limit)))
        {
            let refused = if limit.service.is_some() {
                "service is of modelled workers, and on live ports they are threads: leave it out".to_owned()
            } else if limit.workers > MOST_LIVE_WORKERS {
                format!("{} workers are too many threads: write {MOST_LIVE_WORKERS} or fewer", limit.workers)
            } else {
                continue;
            };
            return Err(Failure::new(format!("{}: {refused}", plan.name)));
        }
        Ok(())
    }

    /// Whether rates are to be read again.
    pub(crate) struct Reload(Arc<AtomicBool>);

    impl Reload {
        /// Watches for the signal, if there is a file of rates; else it ends the run.
        pub(crate) fn new(request: &Request) -> Result<Self, Failure> {
            let asked = Arc::new(AtomicBool::new(false));
            if super::has_rates(request) {
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
            let limits = request.pipelines.iter().flat_map(|plan| plan.limits().map(move |(_, limit)| (plan, limit)));
            for (plan, limit) in limits.filter(|(_, limit)| limit.rates.is_some()) {
                match limit.reload(&OnDisk) {
                    Ok(users) => {
                        let whose = match users {
                            1 => "rate of 1 user was".to_owned(),
                            _ => format!("rates of {} users were", output::thousands(users as u64)),
                        };
                        output::note(format!("{}: the {whose} read again", plan.name));
                    }
                    Err(error) => output::note(format!("{}: the rates stay as they were: {error}", plan.name)),
                }
            }
        }
    }
}
