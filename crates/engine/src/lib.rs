//! The pipeline without I/O: a chain of stages, then a schedule that says *when* each frame departs.
//!
//! Nothing here reads a clock, touches a device, starts a thread or blocks: time is an argument. Drivers push frames
//! and carry out departures: `sim` in virtual time, `dataplane` in real time.
//!
//! ```text
//! push ──▶ class? ──▶ stages ──▶ ready queue ──▶ schedule ──▶ Departure { frame, at }
//! ```
//!
//! Guarantees: every frame is accounted for ([`measure::Books`]); the same seed gives the same decisions; nothing
//! departs before it was ready.

mod catch_up;
pub mod classes;
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
pub mod stages;
pub mod sync;

pub use catch_up::CatchUp;
pub use kind::Kind;
pub use line::Line;
pub use pipeline::{Class, ClassName, Departure, Pipeline};
pub use schedules::{Lengths, Schedule};
pub use stages::{Outlet, Stage};
