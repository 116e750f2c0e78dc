//! Turns options into plans: what runs, on which ports, with which files.

pub(crate) mod capture_anomalies;
#[cfg(feature = "service")]
pub(crate) mod client_scenario;
mod departures;
pub(crate) mod detour;
pub(crate) mod disk;
mod emulate;
pub(crate) mod files;
pub(crate) mod frame_filter;
pub(crate) mod free_memory;
mod generate;
mod limit;
pub(crate) mod measure;
pub(crate) mod ready_gate;
pub(crate) mod request;
mod scenario_file;
pub(crate) mod search;
mod search_directions;
mod shape;
#[cfg(feature = "live")]
pub(crate) mod sites;
pub(crate) mod sweep;
#[cfg(feature = "live")]
pub(crate) mod xdp_programs;

use crate::options::{self, Command};
use crate::output::Failure;
use request::Request;
use scenario::Scenario;

/// The plan of a command.
pub(crate) enum Plan {
    Pipelines(Box<Request>),
    Sweep(sweep::SweepPlan),
    Measure(measure::MeasurePlan),
    Search(Box<search::SearchPlan>),
    Check(Box<Scenario>),
    #[cfg(feature = "slice")]
    Slice(options::slice::Slice),
    #[cfg(feature = "live")]
    Lab(options::lab::Lab),
    #[cfg(feature = "live")]
    Clock(options::clock::Clock),
    #[cfg(feature = "service")]
    Serve(options::serve::Serve),
    #[cfg(feature = "service")]
    Ctl(options::ctl::Ctl),
    #[cfg(feature = "service")]
    Top(options::top::Top),
    #[cfg(feature = "live")]
    Otg(options::otg::Otg),
    Disk(disk::DiskPlan),
    Merge(options::merge::Merge),
    Doctor(options::doctor::Doctor),
    Manual(options::manual::Manual),
    Help(options::help::Help),
}

/// Creates the plan of a command. Opens no port and writes no file.
pub(crate) fn plan(command: Command) -> Result<Plan, Failure> {
    Ok(match command {
        Command::Shape(options) => Plan::Pipelines(Box::new(options.plan()?)),
        Command::Emulate(options) => Plan::Pipelines(Box::new(options.plan()?)),
        Command::Gen(options) => Plan::Pipelines(Box::new(options.plan()?)),
        Command::Limit(options) => Plan::Pipelines(Box::new(options.plan()?)),
        Command::Run(options) => options.plan()?,
        Command::Measure(options) => Plan::Measure(options.plan()?),
        Command::Search(options) => Plan::Search(Box::new(options.plan()?)),
        Command::Check(options) => Plan::Check(Box::new(options.plan()?)),
        #[cfg(feature = "slice")]
        Command::Slice(options) => Plan::Slice(options),
        #[cfg(feature = "live")]
        Command::Lab(options) => Plan::Lab(options),
        #[cfg(feature = "live")]
        Command::Clock(options) => Plan::Clock(options),
        #[cfg(feature = "service")]
        Command::Serve(options) => Plan::Serve(options),
        #[cfg(feature = "service")]
        Command::Ctl(options) => Plan::Ctl(options),
        #[cfg(feature = "service")]
        Command::Top(options) => Plan::Top(options),
        #[cfg(feature = "live")]
        Command::Otg(options) => Plan::Otg(options),
        Command::Disk(options) => Plan::Disk(options.plan()?),
        Command::Merge(options) => Plan::Merge(options),
        Command::Doctor(options) => Plan::Doctor(options),
        Command::Manual(options) => Plan::Manual(options),
        Command::Help(options) => Plan::Help(options),
    })
}
