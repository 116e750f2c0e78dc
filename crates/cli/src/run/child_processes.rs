//! Programs that end with this process, however it ends: a generator without an owner would go on sending.
//!
//! The kernel ends a child when the thread that started it ends (PR_SET_PDEATHSIG), but only the child itself can ask for
//! that. So netlathe starts itself, asks, and then is or becomes the program. Children are started by the main thread, which
//! lives as long as the process.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use std::env;
#[cfg(feature = "slice")]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
#[cfg(feature = "slice")]
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
#[cfg(feature = "slice")]
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitCode};

/// The first argument of a netlathe that is started by another one; its number follows, then what to do.
const NETLATHE: &str = "netlathe-child-of";
/// The same for a program that netlathe replaces itself with.
const PROGRAM: &str = "program-child-of";

/// A netlathe that ends, orderly, when this process does.
#[cfg(feature = "live")]
pub(crate) fn netlathe() -> io::Result<Command> {
    with(NETLATHE)
}

/// The command, as one that is killed when this process ends. Its environment is kept; what else was set is not.
pub(crate) fn ending_with_us(command: &Command) -> io::Result<Command> {
    let mut other = with(PROGRAM)?;
    other.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    Ok(other)
}

fn with(word: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.args([word, &process::id().to_string()]);
    Ok(command)
}

/// The path of the program that a shell would run by this name.
///
/// # Errors
/// There is no such program, or it may not be executed.
#[cfg(feature = "slice")]
pub(crate) fn find(name: &OsStr) -> io::Result<PathBuf> {
    let may_run =
        |path: &Path| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let paths: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![name.into()]
    } else {
        env::split_paths(&env::var_os("PATH").unwrap_or_default()).map(|folder| folder.join(name)).collect()
    };
    let found = paths.iter().find(|path| may_run(path)).cloned();
    let cause = if paths.iter().any(|path| path.is_file()) { nix::libc::EACCES } else { nix::libc::ENOENT };
    found.ok_or_else(|| io::Error::from_raw_os_error(cause))
}

/// The arguments of this process without those of [`netlathe`]. If it is to become a program it does, and what is given
/// is why it could not.
pub(crate) fn arguments() -> Result<Vec<OsString>, ExitCode> {
    let mut all: Vec<OsString> = env::args_os().collect();
    let signal = match all.get(1).and_then(|word| word.to_str()) {
        Some(NETLATHE) => Signal::SIGTERM,
        Some(PROGRAM) => Signal::SIGKILL,
        _ => return Ok(all),
    };
    let parent = all.get(2).and_then(|number| number.to_str()?.parse().ok()).map(Pid::from_raw);
    // It may have ended before this one could ask.
    if prctl::set_pdeathsig(signal).is_err() || parent != Some(getppid()) {
        return Err(ExitCode::FAILURE);
    }
    all.drain(1..3);
    let Some(name) = all.get(1).filter(|_| signal == Signal::SIGKILL) else { return Ok(all) };
    let cause = Command::new(name).args(&all[2..]).exec();
    crate::output::say(format_args!("cannot run '{}': {cause}", name.display()));
    Err(ExitCode::from(127))
}
