//! Carrying out what a plan says: in virtual time, on live ports, and the commands that have no ports.

mod asked_rates;
mod assemble;
#[cfg(any(feature = "live", feature = "slice"))]
pub(crate) mod child_processes;
pub(crate) mod decision_log;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod help;
mod host;
#[cfg(feature = "live")]
pub(crate) mod lab;
#[cfg(feature = "live")]
pub(crate) mod live;
pub(crate) mod manual;
pub(crate) mod measure;
pub(crate) mod pipelines;
mod readiness;
pub(crate) mod resolution;
pub(crate) mod search;
#[cfg(feature = "slice")]
pub(crate) mod slice;
mod stop;
mod user_limits;
mod verdicts;
mod virtual_time;
