//! Control of runs over HTTP: what a run is from outside, and the service that shows and changes it.
//!
//! [`control`] has the types that go over the wire and the traits that a run implements. It knows nothing of ports,
//! pipelines or clocks: the command line fills the types from its own.

pub mod control;
