//! Runs a program in a lab, which is built for the program if it does not exist.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

use crate::assemble::{Guard, Lab};
use crate::error::{Error, Result};
use crate::topology::{DEFAULT_NAME, Node, Shape};

/// The default lab of a command: the one it runs in (`NETLATHE_LAB`), else [`DEFAULT_NAME`].
#[must_use]
pub fn default_name() -> String {
    std::env::var("NETLATHE_LAB").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| DEFAULT_NAME.to_owned())
}

/// What to run, and where.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The lab to use if it is up, else to build.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// The node to run in.
    pub node: Node,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Redirects the program's standard output to our standard error, because ours carries a report.
    pub stdout_to_stderr: bool,
}

/// Runs a program in a lab and returns its exit status as in a shell (128 + n if signal n ended it).
///
/// If a lab of that name is up, the program runs in it and the lab stays. A lab that belongs to another command is used
/// only from inside it, as shown by `NETLATHE_LAB`; from outside, the program could be ended at any moment. Otherwise a
/// lab is built, and removed when the program has ended in any way.
///
/// SIGINT, SIGTERM, SIGHUP (unless it was ignored, as with `nohup`) and SIGQUIT are passed to the program, once each;
/// the lab is removed after it. Signal handlers are not restored, since the process should exit soon after.
///
/// Without the rights to build a lab, call [`crate::reexec_in_user_namespace`] first.
///
/// # Errors
/// As [`crate::up`] and [`Lab::command`], [`Error::Held`], [`Error::Shape`]. A lab that was built here is then removed.
pub fn run(options: &RunRequest) -> Result<i32> {
    run_by(options, Ok)
}

/// Like [`run`], but starts the command that `change` returns for the program's command, for example one that ends with
/// this process.
///
/// # Errors
/// As [`run`], or the error of `change`.
pub fn run_by(options: &RunRequest, change: impl FnOnce(Command) -> io::Result<Command>) -> Result<i32> {
    let (program, arguments) = options.command.split_first().ok_or(Error::NoCommand)?;
    let relay = Relay::start()?;
    let (guard, lab) = match Lab::find(&options.name) {
        Ok(lab) => {
            join(&lab, options)?;
            (None, lab)
        }
        Err(Error::NotUp(_)) => {
            let guard = Guard::up(&options.shape.named(&options.name))?;
            let lab = Lab::clone(&guard);
            (Some(guard), lab)
        }
        Err(error) => return Err(error),
    };
    let mut command = lab.command(options.node, program)?;
    command.args(arguments);
    let mut command = change(command).map_err(Error::io(format!("cannot run `{}`", program.to_string_lossy())))?;
    if options.stdout_to_stderr {
        let stderr = io::stderr().as_fd().try_clone_to_owned().map_err(Error::io("cannot duplicate standard error"))?;
        command.stdout(Stdio::from(stderr));
    }
    let status = match relay.spawn(|| command.spawn()) {
        Spawned::Cut(signal) => 128 + signal,
        Spawned::Failed(error) => return Err(Error::io(format!("cannot run `{}`", program.to_string_lossy()))(error)),
        Spawned::Runs(child) => shell_status(relay.wait(child)?),
    };
    if let Some(guard) = guard {
        guard.down()?;
    }
    Ok(status)
}

/// Checks that an existing lab may be used and has the requested shape.
fn join(lab: &Lab, options: &RunRequest) -> Result<()> {
    let inside = std::env::var("NETLATHE_LAB").is_ok_and(|name| name == options.name);
    if let Some(pid) = lab.owner().filter(|pid| !inside && *pid != std::process::id()) {
        return Err(Error::Held { name: options.name.clone(), pid });
    }
    match options.shape.differs(lab.topology()) {
        Some((what, said, has)) => Err(Error::Shape { name: options.name.clone(), what, said, has }),
        None => Ok(()),
    }
}

/// Whether this process was started with the signal ignored, and has not changed that.
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(128)
}

/// Passes signals on to the child.
struct Relay {
    state: Arc<Mutex<SignalTarget>>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

/// The target of a signal.
#[derive(Clone, Copy)]
enum SignalTarget {
    /// No child yet.
    None,
    /// There is no child and there will be none, because this signal came first.
    Cut(i32),
    /// The child, not yet reaped, so its PID is still valid.
    Child(Pid),
}

enum Spawned {
    Runs(Child),
    Cut(i32),
    Failed(io::Error),
}

impl Relay {
    /// Takes over the signals, including those inherited as ignored (a shell ignores SIGINT in background jobs).
    /// Exception: an ignored SIGHUP stays ignored, because `nohup` intends that, and the program would otherwise get
    /// the default action.
    fn start() -> Result<Relay> {
        let taken = [SIGINT, SIGTERM, SIGQUIT].into_iter().chain((!ignored(SIGHUP)).then_some(SIGHUP));
        let mut signals = SignalsInfo::<WithOrigin>::new(taken).map_err(Error::io("cannot set signal handlers"))?;
        let handle = signals.handle();
        let state = Arc::new(Mutex::new(SignalTarget::None));
        let seen = Arc::clone(&state);
        let thread = thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for origin in signals.forever() {
                    let mut target = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    match *target {
                        SignalTarget::None => *target = SignalTarget::Cut(origin.signal),
                        SignalTarget::Cut(_) => {}
                        // The terminal sends the SIGINT of Ctrl-C to the whole foreground group, so the child already
                        // has it. A second one makes many programs abort their orderly shutdown.
                        SignalTarget::Child(_) if origin.cause == Cause::Kernel => {}
                        SignalTarget::Child(pid) => {
                            // If it has already ended, it is being waited for.
                            let _ended = Signal::try_from(origin.signal).map(|signal| kill(pid, signal));
                        }
                    }
                }
            })
            .map_err(Error::io("cannot start a thread"))?;
        Ok(Relay { state, handle, thread: Some(thread) })
    }

    /// Starts the child unless a signal came first. The lock makes signals wait until the child exists.
    fn spawn(&self, start: impl FnOnce() -> io::Result<Child>) -> Spawned {
        let mut target = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let SignalTarget::Cut(signal) = *target {
            return Spawned::Cut(signal);
        }
        match start() {
            Ok(child) => {
                *target =
                    i32::try_from(child.id()).map_or(SignalTarget::None, |pid| SignalTarget::Child(Pid::from_raw(pid)));
                Spawned::Runs(child)
            }
            Err(error) => Spawned::Failed(error),
        }
    }

    /// Waits for the child to end.
    fn wait(&self, mut child: Child) -> Result<ExitStatus> {
        let waiting = || Error::io("cannot wait for the command");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers are positive i32s"));
        // Waits without reaping first: an unreaped PID cannot be reused, so signals may be sent to it.
        loop {
            match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(waiting()(errno.into())),
                Ok(_) => break,
            }
        }
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = SignalTarget::None;
        child.wait().map_err(waiting())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            let _ended = thread.join();
        }
    }
}
