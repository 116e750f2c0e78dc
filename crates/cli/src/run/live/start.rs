//! The asked start of a live run, and the source of its instant.

use crate::options::host_clock::HostClock;
use crate::options::start_at::{LONGEST_NS, StartAt, check, unix_kernel_ns};
use crate::output::{self, Failure};
use crate::run::stop::Stop;
use dataplane::StartGate;
use measure::StartReport;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use units::ParseError;

/// The gate at which the workers of a run wait for the asked start. If stdin provides the instant, it is read once all
/// workers wait there.
pub(super) struct Start {
    gate: Arc<StartGate>,
    asked: StartAt,
    clock: HostClock,
    reported: bool,
    verbose: bool,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Start {
    /// Creates the gate, if a start was asked. A relative start such as `+5s` counts from this call.
    pub(super) fn new(asked: Option<StartAt>, verbose: bool) -> Result<Option<Self>, Failure> {
        let Some(asked) = asked else { return Ok(None) };
        let clock = HostClock::new()?;
        let now = clock.now_ns();
        let at = asked.unix_ns(now);
        if let Some(at) = at {
            check(at, now).map_err(|error| wrong(&error))?;
        }
        let gate = Arc::new(StartGate::new(at.map(|at| clock.to_kernel_ns(at))));
        Ok(Some(Start { gate, asked, clock, reported: false, verbose, failure: Arc::default() }))
    }

    pub(super) fn gate(&self) -> Arc<StartGate> {
        Arc::clone(&self.gate)
    }

    /// Must be called periodically. Once `workers` workers wait at the gate, reports this, and reads the instant if
    /// stdin provides it.
    pub(super) fn look(&mut self, workers: usize, stop: &Stop) {
        if self.reported || self.gate.armed() < workers {
            return;
        }
        self.reported = true;
        if self.asked == StartAt::Stdin || self.verbose {
            output::say("armed");
        }
        if self.asked == StartAt::Stdin {
            let (gate, clock, ends, failure) = (self.gate(), self.clock, stop.clone(), Arc::clone(&self.failure));
            // The thread is not joined, because a read of stdin cannot be interrupted, and the program must not wait
            // for it.
            let reader = move || {
                if let Err(why) = read(&gate, clock) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                    ends.ask();
                }
            };
            if thread::Builder::new().name("start".to_owned()).spawn(reader).is_err() {
                stop.ask();
            }
        }
    }

    /// The time left until the asked start; `None` once it has passed.
    pub(super) fn left(&self) -> Option<Duration> {
        const UNKNOWN: u64 = 1_000_000_000;
        let at = self.gate.at().unwrap_or(u64::MAX);
        at.checked_sub(unix_kernel_ns())
            .map(|ns| Duration::from_nanos(ns.min(LONGEST_NS).max(if at == u64::MAX { UNKNOWN } else { 0 })))
    }

    /// Converts the report of a start from the kernel's clock to the clock of this host.
    pub(super) fn by_host_clock(&self, start: &StartReport) -> StartReport {
        let asked = self.clock.of_kernel_ns(start.asked_unix_ns.cast_signed()).cast_unsigned();
        StartReport::of(asked, start.miss_ns)
    }

    /// The failure to read the instant, if any.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn wrong(error: &ParseError) -> Failure {
    Failure::new(format!("--start-at: {error}"))
}

/// Reads the instant from the next line of stdin.
fn read(gate: &StartGate, clock: HostClock) -> Result<(), Failure> {
    let mut line = String::new();
    let bytes = io::stdin().read_line(&mut line).map_err(|cause| Failure::new(format!("--start-at stdin: {cause}")))?;
    if bytes == 0 {
        return Err(Failure::new("--start-at stdin: it ended without an instant: write one and a new line to it"));
    }
    let asked: StartAt = line.parse().map_err(|error| Failure::new(format!("--start-at stdin: {error}")))?;
    let now = clock.now_ns();
    let at =
        asked.unix_ns(now).ok_or_else(|| Failure::new("--start-at stdin: 'stdin' is not an instant: write one"))?;
    check(at, now).map_err(|error| wrong(&error))?;
    gate.set(clock.to_kernel_ns(at));
    Ok(())
}
