//! Commands that follow the options of `lab run` and `slice kernel`.

use crate::options::Arguments;
use crate::output::Failure;
use clap::CommandFactory;
use std::ffi::OsString;

/// Checks that the words after `of`, such as `lab run`, are meant as a command. The command takes all remaining words,
/// so a mistyped option, or an extra word before `--`, would become its beginning.
pub(crate) fn check(of: &str, command: &[OsString]) -> Result<(), Failure> {
    let Some(first) = command.first().map(|first| first.to_string_lossy()) else { return Ok(()) };
    let words: Vec<OsString> = std::env::args_os().collect();
    let mark = words.iter().position(|word| word == "--");
    // The command is exactly what follows the first `--`.
    if mark.is_some_and(|mark| words.len() - mark - 1 == command.len()) {
        return Ok(());
    }
    if first.starts_with('-') {
        let typed = first.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned();
        let mut options = Arguments::command();
        for name in of.split(' ') {
            options = options.find_subcommand(name).cloned().unwrap_or(options);
        }
        let known: Vec<&str> = options.get_arguments().filter_map(clap::Arg::get_long).collect();
        let how = match units::nearest(&typed, &known) {
            Some(meant) => format!("write --{meant}"),
            None => format!("netlathe {of} --help lists its options; the command follows them"),
        };
        return Err(Failure::new(format!("{of} has no option {first}: {how}")));
    }
    match mark {
        Some(_) => Err(Failure::new(format!(
            "'{first}' before -- is not an option of {of}: leave it out, or write -- before it if the command begins there"
        ))),
        None => Ok(()),
    }
}
