//! netlathe: exactly known traffic on a wire, and what happened to it.
//!
//! Every command makes a plan (`scenario`), runs it (`sim` or `dataplane`) and ends with a report
//! (`measure`). This crate holds what is between: options, files and streams, exit status.

mod options;
mod output;
mod plan;
mod render;
mod rights;
mod run;

use clap::Parser;
use clap::error::ErrorKind;
use output::Failure;
use scenario::PortSpec;
use std::process::ExitCode;

#[cfg(feature = "live")]
#[global_allocator]
static MEMORY: dpdk::OrEnd = dpdk::OrEnd;

/// Exactly known traffic on a wire, and what happened to it.
#[derive(Parser)]
#[command(name = "netlathe", version, arg_required_else_help = true, propagate_version = true)]
#[command(disable_help_subcommand = true, after_help = after_help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: options::Command,
}

/// What follows the commands: the kinds of port.
fn after_help() -> String {
    let ports: String =
        PortSpec::KINDS.iter().map(|kind| format!("  {:<58}   {}\n", kind.grammar, kind.summary)).collect();
    format!(
        "Ports:\n{ports}\n\
         When every port is a capture, the model line or null, time is virtual: no privileges are needed and\n\
         the same command gives the same output to the bit.\n\n\
         Exit status: 0 done; 1 ran but an expectation was missed; 2 usage, configuration or system error."
    )
}

/// The least stack to run in, in bytes: building the options alone takes some 100 KiB.
const LEAST_STACK: u64 = 256 << 10;

fn main() -> ExitCode {
    // A stack overflow would end the process by a signal, without a message.
    match stack() {
        Some(bytes) if bytes < LEAST_STACK => {
            let (has, least) = (bytes / 1024, LEAST_STACK / 1024);
            output::say(format_args!("a stack of {has} KiB is too small: set ulimit -s {least} or more"));
            ExitCode::from(Failure::STATUS)
        }
        _ => carry_out(),
    }
}

/// How far the stack may grow, in bytes; none where there is no limit.
fn stack() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max stack size"))?;
    soft.split_whitespace().next()?.parse().ok()
}

// Not a part of main, whose frame is there before the stack is looked at.
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
    match arguments.command.run() {
        Ok(status) => status,
        Err(failure) => ended(&failure),
    }
}

/// What was typed.
#[cfg(any(feature = "live", feature = "slice"))]
fn words() -> Result<Vec<std::ffi::OsString>, ExitCode> {
    run::child_processes::arguments()
}

#[cfg(not(any(feature = "live", feature = "slice")))]
fn words() -> Result<Vec<std::ffi::OsString>, ExitCode> {
    Ok(std::env::args_os().collect())
}

/// Says why, one line for each problem.
fn ended(failure: &Failure) -> ExitCode {
    for line in failure.to_string().lines() {
        output::say(line);
    }
    ExitCode::from(Failure::STATUS)
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{CommandFactory as _, ValueHint};

    /// Adds the arguments of `command` that take a path, with the words before them.
    fn add_paths(command: &clap::Command, words: &str, paths: &mut Vec<(String, String)>) {
        for argument in command.get_arguments().filter(|argument| argument.get_value_hint() == ValueHint::AnyPath) {
            let value = || argument.get_value_names().map(|names| names[0].to_string()).unwrap_or_default();
            paths.push((words.to_owned(), argument.get_long().map_or_else(value, |long| format!("--{long}"))));
        }
        for inner in command.get_subcommands() {
            add_paths(inner, format!("{words} {}", inner.get_name()).trim_start(), paths);
        }
    }

    #[test]
    fn each_path_option_is_tested_with_a_silent_pipe() {
        let tested: Vec<&str> = include_str!("../tests/suite/live/path_options.txt")
            .lines()
            .filter_map(|line| line.split_once(" | ").map(|(option, _)| option))
            .collect();
        let mut paths = Vec::new();
        add_paths(&Arguments::command(), "", &mut paths);
        assert!(paths.len() > 20, "{paths:?}");
        let missing: Vec<String> = paths
            .iter()
            .filter(|(words, path)| {
                !tested.iter().any(|tested| *tested == format!("{words} {path}") || *tested == format!("any {path}"))
            })
            .map(|(words, path)| format!("{words} {path}"))
            .collect();
        assert!(missing.is_empty(), "add to tests/suite/live/path_options.txt: {missing:?}");
    }
}
