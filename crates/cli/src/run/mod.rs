//! Carries out plans: in virtual time, on live ports, and for commands without ports.

mod asked_rates;
mod assemble;
mod changes;
mod check;
#[cfg(any(feature = "service", feature = "slice"))]
pub(crate) mod child_processes;
#[cfg(feature = "live")]
mod clock;
mod control;
#[cfg(feature = "service")]
mod ctl;
mod decision_log;
mod disk;
mod doctor;
#[cfg(feature = "service")]
mod figures;
mod help;
mod host;
#[cfg(feature = "live")]
mod lab;
#[cfg(feature = "live")]
mod lab_of_scenario;
#[cfg(feature = "live")]
mod live;
mod manual;
mod measure;
mod merge;
mod netlathe_process;
mod outcome;
mod pipelines;
#[cfg(feature = "live")]
mod programs;
mod readiness;
mod resolution;
mod search;
#[cfg(feature = "service")]
mod serve;
#[cfg(feature = "slice")]
mod slice;
mod stop;
mod sweep;
#[cfg(feature = "service")]
mod top;
mod user_limits;
mod verdicts;
mod virtual_time;

use crate::output::Failure;
use crate::plan::Plan;
use std::process::ExitCode;

/// Carries out a plan. The exit status says whether all expectations were met.
pub(crate) fn carry_out(plan: Plan) -> Result<ExitCode, Failure> {
    match plan {
        Plan::Pipelines(request) => pipelines::run(&request),
        Plan::Sweep(plan) => sweep::run(&plan),
        Plan::Measure(plan) => measure::run(plan),
        Plan::Search(plan) => search::run(*plan),
        Plan::Check(scenario) => check::run(&scenario),
        #[cfg(feature = "slice")]
        Plan::Slice(options) => options.run(),
        #[cfg(feature = "live")]
        Plan::Lab(options) => options.run(),
        #[cfg(feature = "live")]
        Plan::Clock(options) => options.run(),
        #[cfg(feature = "service")]
        Plan::Serve(options) => options.run(),
        #[cfg(feature = "service")]
        Plan::Ctl(options) => options.run(),
        #[cfg(feature = "service")]
        Plan::Top(options) => options.run(),
        #[cfg(feature = "live")]
        Plan::Otg(options) => live::otg::run(&options),
        Plan::Disk(plan) => disk::run(plan),
        Plan::Merge(options) => options.run(),
        Plan::Doctor(options) => options.run(),
        Plan::Manual(options) => options.run(),
        Plan::Help(options) => options.run(),
    }
}
