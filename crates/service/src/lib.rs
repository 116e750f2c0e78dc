//! Control of runs over HTTP: the API of a run, and the service that shows and changes runs.
//!
//! [`control`] has the types of requests and responses, and the traits that a run implements. It does not depend on
//! ports, pipelines or clocks; the command line converts its own types. [`serve_run`] serves one run on a separate
//! thread. [`serve_runs`] starts runs as processes and forwards requests to them. [`Client`] is a client for both.

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
mod run_folder;
mod runs;
mod server;
mod supervisor;

pub use access::Token;
pub use address::Address;
pub use answers::{NewRun, RunView};
pub use client::{Client, ClientError};
pub use listen::Listener;
pub use problem::{ErrorBody, ErrorDetail};
pub use routes::{openapi, scenario_from_json};
pub use server::{RunService, serve_other, serve_run, serve_runs};
pub use supervisor::{Launch, Permit, PermitValue, RunFiles, ScenarioProblem, SupervisorOptions};
