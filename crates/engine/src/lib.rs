//! The pipeline without I/O: a chain of stages, then a schedule that says *when* each frame departs.
//!
//! Nothing here reads a clock, touches a device, starts a thread or blocks: time is an argument. Drivers push frames
//! and carry out departures: `sim` in virtual time, `dataplane` in real time.
//!
//! ```text
//! push ──▶ class? ──▶ stages ──▶ ready queue ──▶ schedule ──▶ Departure { frame, token }
//! ```
//!
//! Guarantees:
//! - Every frame is accounted for ([`measure::FrameCounters`]).
//! - The same seed gives the same decisions.
//! - No frame departs before it is ready.
//! - A departure is a [`Token`] that its driver finishes.
//! - Settings change between two frames, at instants that are inputs like the frames ([`Change`]).

mod bursts;
mod catch_up;
mod changes;
pub mod classes;
mod departure;
pub mod filler;
mod kind;
mod lane;
mod line;
mod merge;
pub mod meters;
mod pipeline;
pub mod random;
pub mod schedules;
pub mod search;
pub mod slices;
pub mod sources;
mod stage_slot;
pub mod stages;
pub mod sync;

pub use bursts::BurstCounters;
pub use catch_up::CatchUp;
pub use changes::{Change, DepartureChange, DepartureSetting, Spent, StageChange};
pub use departure::{Departure, Placed, Token};
pub use kind::Kind;
pub use line::Line;
pub use pipeline::{Class, ClassName, Path, Pipeline};
pub use schedules::{Lengths, Schedule};
pub use stages::{Outlet, Stage};
