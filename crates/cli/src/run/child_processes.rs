//! Child processes that end with this process, however it ends. An orphaned generator would continue to send.
//!
//! With PR_SET_PDEATHSIG, the kernel signals a process when the thread that started it ends. Only the process itself
//! can set this. So netlathe starts another netlathe, which sets it and then acts as the child or executes the program.
//! The main thread starts children, because it lives as long as the process. A guardian process finds the descendants
//! of a program by an environment variable and kills them.

use crate::options::common::CHILD;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read as _};
#[cfg(feature = "slice")]
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
#[cfg(feature = "slice")]
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Environment variable that marks the programs of a run, with the run's process ID and start time.
const RUN: &str = "NETLATHE_RUN";
/// How long a guardian searches for programs. Programs may start others while it kills them.
const PATIENCE: Duration = Duration::from_secs(5);
/// The first argument of a guardian. The process ID of its parent and the value of [`RUN`] follow.
const GUARDIAN: &str = "guardian-of";
/// The same as [`CHILD`], for a program that replaces this netlathe process.
const PROGRAM: &str = "program-child-of";

/// Returns the command of a netlathe process that shuts down cleanly when this process ends.
#[cfg(feature = "service")]
pub(crate) fn netlathe() -> io::Result<Command> {
    with(CHILD)
}

/// The same as [`PROGRAM`], for a program that starts when a byte arrives on its standard input.
#[cfg(feature = "live")]
const WAITING: &str = "waiting-child-of";

/// A process that ends all programs of a run if this process is killed.
pub(crate) struct Guardian {
    process: Child,
    run: String,
}

impl Guardian {
    pub(crate) fn start() -> io::Result<Guardian> {
        Guardian::start_with(None)
    }

    /// Like [`Guardian::start`]. The guardian also removes the lab `name` if this process owns it.
    #[cfg(feature = "live")]
    pub(crate) fn with_lab(name: &str) -> io::Result<Guardian> {
        Guardian::start_with(Some(name))
    }

    fn start_with(lab: Option<&str>) -> io::Result<Guardian> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = format!("{}-{}", process::id(), now.as_nanos());
        let mut command = with(GUARDIAN)?;
        command.arg(&run).args(lab).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // The guardian must not receive the signals of the terminal.
        let process = command.process_group(0).spawn()?;
        Ok(Guardian { process, run })
    }

    /// Returns a command that runs `command` and that is killed with its descendants when this process ends. A program
    /// that clears its environment escapes this. Of the settings of `command`, only the environment is kept.
    pub(crate) fn ending_with_us(&self, command: &Command) -> io::Result<Command> {
        let mut command = ending_with_us(command, PROGRAM)?;
        command.env(RUN, &self.run);
        Ok(command)
    }

    /// Like [`Guardian::ending_with_us`], but `command` starts when a byte is written to its standard input, and never
    /// starts if the input is closed first. It keeps the rights that this process has when it spawns the command.
    #[cfg(feature = "live")]
    pub(crate) fn waiting(&self, command: &Command) -> io::Result<Command> {
        let mut command = ending_with_us(command, WAITING)?;
        command.env(RUN, &self.run).stdin(Stdio::piped());
        Ok(command)
    }

    /// Kills the programs of the run and their descendants, and waits until the guardian has done this.
    #[cfg(feature = "live")]
    pub(crate) fn end_programs(mut self) {
        // The guardian gets the same signal when this process is killed.
        if let Ok(id) = i32::try_from(self.process.id())
            && kill(Pid::from_raw(id), Signal::SIGTERM).is_ok()
        {
            let _ended = self.process.wait();
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // After a run that ends by itself, processes that its program deliberately left running stay.
        let _ended = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Waits for the end of the parent, then kills the programs of its run and removes its lab.
fn guard(run: &OsStr, lab: Option<&OsStr>) -> io::Result<()> {
    #[cfg(feature = "live")]
    let parent = getppid();
    let (mut ended, tells) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, tells)?;
    ask_for(Signal::SIGTERM)?;
    ended.read_exact(&mut [0])?;
    let wanted = [RUN.as_bytes(), b"=", run.as_encoded_bytes()].concat();
    let start = Instant::now();
    // A program may start another one during a search.
    while end_marked(&wanted) && start.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    #[cfg(feature = "live")]
    if let (Some(name), Ok(owner)) = (lab.and_then(OsStr::to_str), u32::try_from(parent.as_raw())) {
        // A failure cannot be reported here; `lab list` shows what is left.
        let _removed = lab::down_of(name, owner);
    }
    #[cfg(not(feature = "live"))]
    let _ = lab;
    Ok(())
}

/// Kills the processes with this entry in their environment. Returns whether there were any.
fn end_marked(wanted: &[u8]) -> bool {
    let mut any = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|set| set == wanted) {
            any = true;
            // It may have ended already, which is fine.
            let _ended = kill(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
    any
}

/// Asks the kernel for `signal` when the parent ends. Fails if the parent, whose process ID is the second argument, has
/// already ended.
fn ask_for(signal: Signal) -> io::Result<()> {
    let parent = env::args().nth(2).and_then(|number| number.parse().ok()).map(Pid::from_raw);
    prctl::set_pdeathsig(signal)?;
    if parent == Some(getppid()) { Ok(()) } else { Err(io::Error::other("the parent has ended")) }
}

/// Returns a netlathe command with `word` as its first argument that runs `command` and is killed when this process
/// ends.
fn ending_with_us(command: &Command, word: &str) -> io::Result<Command> {
    let mut other = with(word)?;
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

/// Returns the arguments of this process without those that [`netlathe`] adds. A process that was started for a program
/// executes the program and returns only if that fails. A guardian returns an exit code when its work is done.
pub(crate) fn arguments() -> Result<Vec<OsString>, ExitCode> {
    let mut all: Vec<OsString> = env::args_os().collect();
    let signal = match all.get(1).and_then(|word| word.to_str()) {
        Some(CHILD) => Signal::SIGTERM,
        Some(PROGRAM) => Signal::SIGKILL,
        #[cfg(feature = "live")]
        Some(WAITING) => Signal::SIGKILL,
        Some(GUARDIAN) => {
            let guarded = all.get(3).is_some_and(|run| guard(run, all.get(4).map(OsString::as_os_str)).is_ok());
            return Err(if guarded { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        _ => return Ok(all),
    };
    #[cfg(feature = "live")]
    let waits = all[1] == WAITING;
    #[cfg(not(feature = "live"))]
    let waits = false;
    if ask_for(signal).is_err() {
        return Err(ExitCode::FAILURE);
    }
    all.drain(1..3);
    let Some(name) = all.get(1).filter(|_| signal == Signal::SIGKILL) else { return Ok(all) };
    let mut command = Command::new(name);
    command.args(&all[2..]);
    if waits {
        if io::stdin().read_exact(&mut [0]).is_err() {
            return Err(ExitCode::FAILURE);
        }
        command.stdin(Stdio::null());
    }
    let cause = command.exec();
    crate::output::say(format_args!("cannot run '{}': {cause}", name.display()));
    Err(ExitCode::from(127))
}
