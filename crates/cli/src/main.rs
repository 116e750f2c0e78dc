//! netlathe: exactly known traffic on a wire, and what happened to it.
//!
//! Every command makes a plan (`scenario`), runs it (`sim` or `dataplane`) and ends with a report
//! (`measure`). This crate holds what is between: options, files and streams, exit status.

mod assemble;
mod commands;
mod decisions;
mod execute;
#[cfg(feature = "live")]
mod far_end;
mod files;
mod help;
mod host;
mod limits;
#[cfg(feature = "live")]
mod live;
mod on;
mod output;
mod page_folder;
mod progress;
mod report_text;
mod resolution;
mod stop;
mod trials;
mod verdicts;
mod virtual_time;
#[cfg(feature = "live")]
mod watched;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use output::Failure;
use std::process::ExitCode;

/// Exactly known traffic on a wire, and what happened to it.
#[derive(Parser)]
#[command(name = "netlathe", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "\
Ports:
  eth0, if:eth0[,driver=af_xdp|af_packet]    a Linux interface
  tap:NAME                                   a TAP device made by netlathe
  pci:0000:03:00.1                           a NIC bound to DPDK
  dpdk:ARGS                                  any DPDK device, dpdk:net_null0
  pcap:FILE                                  a capture, read or written
  wire:10G[,pcap=FILE][,frames=FILE][,fillers=keep][,dic=on]   the model line
  line:10G[,slots=N][,frames=FILE][,fillers=keep]              a line in real time, without a NIC
  null                                       drops and counts

When every port is a capture, the model line or null, time is virtual: no privileges are needed and
the same command gives the same output to the bit.

Exit status: 0 done; 1 ran but an expectation was missed; 2 usage, configuration or system error.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if !error.use_stderr() {
                return help::print(&error).map_or_else(|failure| ended(&failure), |()| ExitCode::SUCCESS);
            }
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
                let _ = error.print();
            } else {
                output::say(in_one_line(&error));
            }
            return ExitCode::from(Failure::STATUS);
        }
    };
    match arguments.command.run() {
        Ok(status) => status,
        Err(failure) => ended(&failure),
    }
}

/// Says why, one line for each problem.
fn ended(failure: &Failure) -> ExitCode {
    for line in failure.to_string().lines() {
        output::say(line);
    }
    ExitCode::from(Failure::STATUS)
}

/// A usage error, which clap spreads over paragraphs: what is wrong, and the tip if there is one.
pub(crate) fn in_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let what = paragraphs.next().unwrap_or_default();
    let what = what.trim_start_matches("error: ").to_owned();
    let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned));
    // Where a command can be written in several ways, what one of them lacks tells little.
    let ways = usage(&text);
    let lacking = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(lacking)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            lacking.as_slice()
        }
        _ => &[],
    };
    if ways.len() > 1 && lacking.iter().any(|argument| ways.iter().any(|way| way.contains(argument.as_str()))) {
        return format!("{what}: write {}", ways.join(", or "));
    }
    if let Some(owners) = owners(error) {
        return format!("{what}: it is an option of {owners}; --help tells what can be written here");
    }
    // No value of ours looks like an option.
    let tip = tip.filter(|tip| !tip.starts_with("to pass "));
    match (tip, error.kind()) {
        (Some(tip), _) => format!("{what}: {tip}"),
        // Our own values say themselves what to write; the library's numbers do not.
        (None, ErrorKind::ValueValidation) => of_number(&what).unwrap_or(what),
        (None, _) => match negative(error) {
            Some(option) => {
                format!("{what} behind {option}, which takes nothing below zero: write it without the sign")
            }
            None => format!("{what}: --help tells what can be written"),
        },
    }
}

/// The commands that have the option which another one was given.
fn owners(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(taken))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = taken.strip_prefix("--")?;
    let commands = Arguments::command();
    let has = |command: &&clap::Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let owners: Vec<&str> = commands.get_subcommands().filter(has).map(clap::Command::get_name).collect();
    let (last, before) = owners.split_last()?;
    Some(if before.is_empty() { (*last).to_owned() } else { format!("{} and {last}", before.join(", ")) })
}

/// The ways to write a command, from what clap says of its usage.
fn usage(text: &str) -> Vec<&str> {
    let usage = text.split("\n\n").find_map(|lines| lines.strip_prefix("Usage: "));
    usage.unwrap_or_default().lines().map(|way| way.trim().trim_end_matches(" [OPTIONS]")).collect()
}

/// What to write where the library only says how reading a number failed.
fn of_number(what: &str) -> Option<String> {
    let remedies = [
        ("invalid digit found in string", "write a whole number"),
        ("cannot parse integer from empty string", "write a whole number"),
        ("number too large to fit in target type", "that is too large: write a smaller number"),
    ];
    remedies.into_iter().find_map(|(said, remedy)| Some(format!("{}{remedy}", what.strip_suffix(said)?)))
}

/// The option before a number with a sign that was taken for an option of its own.
fn negative(error: &clap::Error) -> Option<String> {
    let ContextValue::String(taken) = error.get(ContextKind::InvalidArg)? else { return None };
    taken.strip_prefix('-').filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit() || first == '.'))?;
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let behind = |pair: &&[String]| pair[0].starts_with("--") && pair[1].starts_with(taken);
    words.windows(2).find(behind).map(|pair| pair[0].clone())
}
