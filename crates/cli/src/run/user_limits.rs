//! Reports of the stages that limit users, and the reload of their rates at SIGHUP.

use crate::output::{self, Failure};
use crate::plan::free_memory::free_memory;
use crate::plan::request::Request;
use engine::meters::Users;
use engine::stages::{Limit, StageConfig};
use measure::{Caveat, CaveatKind, LimitedUser, PipelineReport};
use scenario::PipelinePlan;
use std::fmt::Write as _;

/// Adds the figures of a plan's limits to the report of their pipeline or class.
pub(crate) fn report(plan: &PipelinePlan, report: &mut PipelineReport) {
    for (class, limit) in plan.limits() {
        match report.classes.iter_mut().find(|report| report.name == class) {
            Some(of_class) => of_class.limit = limit.report(),
            None => report.limit = limit.report(),
        }
    }
}

/// Adds the figures of the limits of the return path to its report.
#[cfg(feature = "live")]
pub(crate) fn report_back(plan: &PipelinePlan, report: &mut PipelineReport) {
    if let Some(limit) = plan.limits_back().last() {
        report.limit = limit.report();
    }
}

/// Refuses tables of users that do not fit in memory, before they are allocated.
pub(crate) fn check_memory(request: &Request) -> Result<(), Failure> {
    let limits = request.pipelines.iter().flat_map(PipelinePlan::all_stages).filter_map(|stage| match stage {
        StageConfig::Limit(limit) => Some(limit.users),
        _ => None,
    });
    let users: usize = limits.sum();
    let bytes = users as u64 * Users::BYTES_PER_USER as u64;
    let megabytes = |bytes: u64| output::thousands(bytes / 1_000_000);
    for (free, leaves, raise) in free_memory() {
        if free < bytes {
            return Err(Failure::new(format!(
                "--users: {} users take {} MB, and {leaves} {} MB: write a smaller --users ('users' in a scenario), or {raise}",
                output::thousands(users as u64),
                megabytes(bytes),
                megabytes(free)
            )));
        }
    }
    Ok(())
}

/// From this share on, frames without a key cause a warning.
const MANY: f64 = 0.05;

/// Warnings about a limit's side effects, with remedies.
pub(crate) fn warnings(report: &PipelineReport) -> Vec<Caveat> {
    let classes = report.classes.iter().flat_map(warnings);
    let Some(limit) = &report.limit else { return classes.collect() };
    let mut kinds = Vec::new();
    if let Some(longer) = &limit.longer_than_bucket {
        kinds.push(CaveatKind::LongerThanBucket { frames: longer.frames, longest_bytes: longer.longest_bytes });
    }
    let share = limit.without_key as f64 / report.arrived.frames.max(1) as f64;
    if limit.without_key > 0 && share >= MANY {
        let types: Vec<String> = limit
            .without_key_by_type
            .iter()
            .map(|(name, frames)| format!("{} {name}", output::thousands(*frames)))
            .collect();
        kinds.push(CaveatKind::WithoutKey {
            frames: limit.without_key,
            of_frames: report.arrived.frames,
            key: limit.key.clone(),
            types: types.join(", "),
        });
    }
    if let Some(tcp) = limit.policed_tcp.as_ref().filter(|tcp| tcp.below_80_percent > 0) {
        kinds.push(CaveatKind::PolicedTcp {
            users: tcp.below_80_percent,
            of_users: tcp.users,
            min_ratio: tcp.min_ratio,
        });
    }
    kinds.into_iter().map(|kind| Caveat::of(&report.name, kind)).chain(classes).collect()
}

/// The bytes of each user as comma-separated values. Names of users contain no commas.
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

/// The stages of a plan that limit users, in both directions.
pub(crate) fn all(plan: &PipelinePlan) -> impl Iterator<Item = &Limit> {
    plan.limits().map(|(_, limit)| limit).chain(plan.limits_back())
}

/// Whether any stage has a file of rates, which a live run reads again at SIGHUP.
pub(crate) fn has_rates(request: &Request) -> bool {
    request.pipelines.iter().any(|plan| all(plan).any(|limit| limit.rates.is_some()))
}
