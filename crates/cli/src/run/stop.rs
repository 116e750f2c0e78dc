//! Ends a run at SIGINT, SIGTERM and SIGHUP.

use crate::output::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::fs;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Signals within this time count as one, because timeout(1) sends each signal to its child and to their group.
const ONE: Duration = Duration::from_millis(500);

/// Becomes true when the user ends the run.
#[derive(Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Installs the handlers, even for signals that were inherited as ignored. The exception is SIGHUP, so that `nohup`
    /// works. A second signal at least half a second after the first ends the program at once, in case the first one
    /// has no effect.
    pub(crate) fn on_signals() -> Result<Self, Failure> {
        // Closing the terminal must not leave XDP programs, mounts and incomplete reports behind.
        Stop::on([SIGINT, SIGTERM].into_iter().chain((!ignored(SIGHUP)).then_some(SIGHUP)))
    }

    /// Like [`Stop::on_signals`], but without SIGHUP, which has another meaning in the run.
    pub(crate) fn on_signals_but_hangup() -> Result<Self, Failure> {
        Stop::on([SIGINT, SIGTERM].into_iter())
    }

    fn on(signals: impl Iterator<Item = i32>) -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let set = || {
            let (pipe, notifier) = UnixStream::pair()?;
            for signal in signals {
                signal_hook::flag::register(signal, Arc::clone(&asked))?;
                signal_hook::low_level::pipe::register(signal, notifier.try_clone()?)?;
            }
            // Exceeding `ulimit -f` is then an error like a full disk, and does not end the program.
            signal_hook::flag::register(SIGXFSZ, Arc::default())?;
            thread::Builder::new().name("signals".to_owned()).spawn(move || exit_on_second(pipe))
        };
        sim::end_pipes_when(Arc::clone(&asked));
        set().map_err(|cause| Failure::new(format!("cannot handle signals: {cause}")))?;
        Ok(Stop(asked))
    }

    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the run as a signal does.
    #[cfg(feature = "service")]
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The flag itself, for loops that check it.
    #[cfg(feature = "live")]
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Whether a signal was ignored when the program started.
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// Ends the program at the second signal. `pipe` receives one byte per signal.
fn exit_on_second(mut pipe: UnixStream) -> io::Result<()> {
    let mut bytes = [0; 16];
    pipe.read_exact(&mut bytes[..1])?;
    // The time limit of stalled files starts now.
    sim::ended_for();
    thread::sleep(ONE);
    pipe.set_nonblocking(true)?;
    while pipe.read(&mut bytes).is_ok_and(|count| count > 0) {}
    pipe.set_nonblocking(false)?;
    pipe.read_exact(&mut bytes[..1])?;
    signal_hook::low_level::exit(130)
}
