//! A netlathe process that runs a part of a larger task: a trial, or a run of a sweep.

use crate::run::stop::Stop;
use std::io::{self, BufRead as _, BufReader, Read};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What a run prints on stderr once it waits for the instant on stdin.
const ARMED: &str = "netlathe: armed\n";
/// Interval between checks for a stop request.
const LOOK: Duration = Duration::from_millis(20);

/// A netlathe process that ends when this one ends.
#[cfg(feature = "live")]
pub(crate) fn command() -> io::Result<Command> {
    crate::run::child_processes::netlathe()
}

/// Without live ports it only reports that they are missing.
#[cfg(not(feature = "live"))]
pub(crate) fn command() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// Runs a netlathe process to its end, and calls `armed` with its standard input once it waits for its start. Sends it
/// SIGTERM if the user ends this process, because the signal may have reached only us, or once `abandoned` is set.
pub(crate) fn output(
    command: &mut Command,
    (stop, abandoned): (&Stop, &AtomicBool),
    armed: impl FnMut(Option<ChildStdin>) + Send,
) -> io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ended = AtomicBool::new(false);
    let read = thread::scope(|scope| {
        // If no thread can be started, ends the program, because it would run unmonitored.
        let none = |cause| {
            ended.store(true, Ordering::Release);
            ask_to_end(child.id());
            cause
        };
        let watcher = thread::Builder::new()
            .spawn_scoped(scope, || {
                while !ended.load(Ordering::Acquire) {
                    if stop.asked() || abandoned.load(Ordering::Acquire) {
                        // The process is not reaped yet, so its ID is still valid.
                        return ask_to_end(child.id());
                    }
                    thread::park_timeout(LOOK);
                }
            })
            .map_err(none)?;
        let stderr = thread::Builder::new()
            .spawn_scoped(scope, || stderr.map_or(Ok(Vec::new()), |pipe| messages(pipe, stdin, armed)))
            .map_err(none)?;
        let stdout = whole(stdout);
        let stderr = stderr.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        ended.store(true, Ordering::Release);
        watcher.thread().unpark();
        Ok((stdout, stderr))
    });
    let status = child.wait()?;
    let (stdout, stderr) = read.map_err(|cause| no_thread(&cause))?;
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

/// The error if no thread can be started.
pub(crate) fn no_thread(cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("no thread can be started ({cause}): raise ulimit -v and ulimit -u"))
}

#[cfg(feature = "live")]
fn ask_to_end(process: u32) {
    use nix::sys::signal::{Signal, kill};
    let process = nix::unistd::Pid::from_raw(process.cast_signed());
    // It may have ended already, which is fine.
    let _ended = kill(process, Signal::SIGTERM);
}

/// Without live ports, no such trial runs.
#[cfg(not(feature = "live"))]
fn ask_to_end(_: u32) {}

fn whole(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes))?;
    Ok(bytes)
}

/// All messages of a program. Passes on at once that it is armed, because our caller waits for it.
fn messages(
    pipe: impl Read,
    mut stdin: Option<ChildStdin>,
    mut armed: impl FnMut(Option<ChildStdin>),
) -> io::Result<Vec<u8>> {
    let (mut pipe, mut bytes) = (BufReader::new(pipe), Vec::new());
    loop {
        let begin = bytes.len();
        if pipe.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(bytes);
        }
        if bytes[begin..] == *ARMED.as_bytes() {
            armed(stdin.take());
        }
    }
}
