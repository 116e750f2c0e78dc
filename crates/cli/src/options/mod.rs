//! Commands, their options, and how each is parsed: one file per command, and one line in the list below.

pub(crate) mod check;
#[cfg(feature = "live")]
pub(crate) mod clock;
pub(crate) mod common;
#[cfg(feature = "service")]
pub(crate) mod ctl;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod emulate;
pub(crate) mod generate;
pub(crate) mod help;
pub(crate) mod host_clock;
#[cfg(feature = "live")]
pub(crate) mod lab;
pub(crate) mod limit;
pub(crate) mod manual;
pub(crate) mod measure;
pub(crate) mod merge;
#[cfg(feature = "live")]
pub(crate) mod otg;
pub(crate) mod run;
pub(crate) mod search;
#[cfg(feature = "service")]
pub(crate) mod serve;
pub(crate) mod shape;
#[cfg(feature = "slice")]
pub(crate) mod slice;
pub(crate) mod start_at;
#[cfg(feature = "service")]
pub(crate) mod top;
#[cfg(any(feature = "live", feature = "slice"))]
pub(crate) mod trailing_command;
pub(crate) mod usage_errors;
pub(crate) mod values;

use clap::{Parser, Subcommand};
use scenario::PortSpec;

/// Exactly known traffic on a wire, and what happened to it.
#[derive(Parser)]
#[command(name = "netlathe", version, arg_required_else_help = true, propagate_version = true)]
#[command(disable_help_subcommand = true, after_help = after_help())]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The text after the commands: the kinds of port.
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

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    Shape(shape::Shape),
    Emulate(emulate::Emulate),
    Gen(generate::Generate),
    Limit(limit::Limit),
    Measure(measure::Measure),
    Search(search::Search),
    Run(run::Run),
    Check(check::Check),
    #[cfg(feature = "slice")]
    Slice(slice::Slice),
    #[cfg(feature = "live")]
    Lab(lab::Lab),
    #[cfg(feature = "live")]
    Clock(clock::Clock),
    #[cfg(feature = "service")]
    Serve(serve::Serve),
    #[cfg(feature = "service")]
    Ctl(ctl::Ctl),
    #[cfg(feature = "service")]
    Top(top::Top),
    #[cfg(feature = "live")]
    Otg(otg::Otg),
    Disk(disk::Disk),
    Merge(merge::Merge),
    Doctor(doctor::Doctor),
    Manual(manual::Manual),
    Help(help::Help),
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::{CommandFactory as _, ValueHint};

    /// Adds the arguments of `command` that take a path, each with the command words before it.
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
        let tested: Vec<&str> = include_str!("../../tests/suite/live/path_options.txt")
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
