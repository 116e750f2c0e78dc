//! The Open Traffic Generator API: its model, the traffic that it describes, and its HTTP server.
//!
//! - [`Api`] executes requests, which are JSON values, on ports that the caller has opened ([`OpenPort`]).
//! - [`router`] serves them over HTTP, and over gRPC on the same port.
//!
//! Every object of the model is read field by field. Unsupported fields are rejected with their path, never ignored.
//! Figures are measured: a departure when the port has accepted the frame, an arrival by the receiver's timestamp.

mod api;
mod capture;
mod config;
mod engine;
mod flow;
mod frame;
mod grpc;
mod headers;
mod http;
mod meters;
mod pattern;
mod proto;
mod reader;
mod receiver;
mod sender;
pub mod untrusted;
mod wire;

#[cfg(test)]
mod tests;

pub use api::{Api, Refusal, Reply, Request};
pub use http::{LARGEST_BODY, router};
pub use reader::Problem;
pub use wire::{Link, OpenPort, Receive, Transmit};
