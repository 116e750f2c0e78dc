//! Control of runs over HTTP: what a run is from outside, and the service that shows and changes it.
//!
//! [`control`] has the types that go over the wire and the traits that a run implements. It knows nothing of ports,
//! pipelines or clocks: the command line fills the types from its own. [`serve_run`] gives one run a service from a thread
//! of its own; [`serve_runs`] starts runs as processes and passes requests on to them. [`Client`] talks to either.

mod access;
mod address;
mod answers;
mod client;
pub mod control;
mod events;
mod listen;
mod metrics;
mod problem;
mod routes;
mod runs;
mod server;
mod supervisor;

pub use access::Token;
pub use address::Address;
pub use answers::{NewRun, RunView};
pub use client::{Client, ClientError};
pub use listen::Listener;
pub use problem::{ErrorBody, ErrorDetail};
pub use routes::openapi;
pub use server::{RunService, serve_run, serve_runs};
pub use supervisor::{Launch, Permit, PermitValue, ScenarioProblem, SupervisorOptions};
