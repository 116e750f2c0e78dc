//! All tests of the program, in one binary: building it once is faster than linking one per file.
//!
//! The test runner takes tests in the order of their names, so those of `live` run together, and timing tests rarely
//! run beside others.

mod bad_input;
#[cfg(feature = "live")]
mod bed;
mod bench_paper;
mod catch_up;
mod classes;
mod common;
mod conformance;
mod disk;
mod documents;
mod emulate;
mod house;
mod laws;
mod limit;
#[cfg(feature = "live")]
mod live;
mod measure_only;
mod memory;
mod merge;
mod oracles;
mod parts;
#[cfg(feature = "live")]
mod programs;
mod progress;
mod python;
mod quiet;
mod report_page;
mod report_schema;
mod results;
mod scenarios;
mod search;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "slice")]
mod slice;
mod slices;
mod stamps;
mod streams;
mod sweep;
mod sync;
mod typed;
mod virtual_time;
