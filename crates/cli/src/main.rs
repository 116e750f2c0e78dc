//! netlathe: exactly known traffic on a wire, and what happened to it.
//!
//! The modules are layers: `options` parses the command line, `plan` turns the options into a plan, `render` writes
//! reports and files, and `run` carries the plan out. A layer may use earlier ones and never later ones. `output`
//! (messages) and `rights` (capabilities) lie below them. A test in `tests/suite/house.rs` checks this.

mod options;
mod output;
mod plan;
mod render;
mod rights;
mod run;

use clap::Parser;
use clap::error::ErrorKind;
use options::Arguments;
use output::Failure;
use std::process::ExitCode;

#[cfg(feature = "live")]
#[global_allocator]
static MEMORY: dpdk::AbortOnOutOfMemory = dpdk::AbortOnOutOfMemory;

/// Minimum stack size in bytes. Building the options alone takes about 100 KiB.
const LEAST_STACK: u64 = 256 << 10;

fn main() -> ExitCode {
    // A stack overflow would end the process by a signal, without a message.
    match stack() {
        Some(bytes) if bytes < LEAST_STACK => {
            let (has, least) = (bytes / 1024, LEAST_STACK / 1024);
            output::say(format_args!("a stack of {has} KiB is too small: set ulimit -s {least} or more"));
            ExitCode::from(Failure::STATUS)
        }
        _ => {
            let status = carry_out();
            output::stderr::finish();
            status
        }
    }
}

/// Stack limit in bytes; `None` if unlimited.
fn stack() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?;
    soft.split_whitespace().next()?.parse().ok()
}

// A separate function, because the frame of `main` exists before the stack is checked.
#[inline(never)]
fn carry_out() -> ExitCode {
    let words = match words() {
        Ok(words) => words,
        Err(status) => return status,
    };
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            if !error.use_stderr() {
                return render::help::print(&error).map_or_else(|failure| ended(&failure), |()| ExitCode::SUCCESS);
            }
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = error.print();
            } else {
                output::say(options::usage_errors::in_one_line(&error));
            }
            return ExitCode::from(Failure::STATUS);
        }
    };
    match plan::plan(arguments.command).and_then(run::carry_out) {
        Ok(status) => status,
        Err(failure) => ended(&failure),
    }
}

/// The command line.
#[cfg(any(feature = "service", feature = "slice"))]
fn words() -> Result<Vec<std::ffi::OsString>, ExitCode> {
    run::child_processes::arguments()
}

#[cfg(not(any(feature = "service", feature = "slice")))]
fn words() -> Result<Vec<std::ffi::OsString>, ExitCode> {
    Ok(std::env::args_os().collect())
}

/// Prints one line for each problem.
fn ended(failure: &Failure) -> ExitCode {
    for line in failure.to_string().lines() {
        output::say(line);
    }
    ExitCode::from(Failure::STATUS)
}
