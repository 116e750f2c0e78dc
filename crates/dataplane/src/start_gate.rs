use crate::Error;
use dpdk::TscClock;
use measure::StartReport;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use units::Time;

/// The asked start of a run. Its workers wait here with their ports open, pools filled and streams built.
#[derive(Debug, Default)]
pub struct StartGate {
    /// UNIX time in ns; 0 while it is not known.
    at: AtomicU64,
    armed: AtomicUsize,
}

/// How long before the instant a worker leaves the gate, to start the threads of its parts and prepare the first
/// frames. Only then is the instant converted to the worker's clock, so drift and steps of the host's clock during the
/// wait have no effect.
const LEAD_NS: u64 = 50_000_000;
/// Interval between checks for the instant and for the end of the run.
const LOOK: Duration = Duration::from_millis(5);

impl StartGate {
    /// A gate whose instant is known, or is still to be [set](StartGate::set).
    #[must_use]
    pub fn new(unix_ns: Option<u64>) -> Self {
        StartGate { at: unix_ns.unwrap_or(0).into(), armed: AtomicUsize::new(0) }
    }

    /// Sets the instant, as UNIX time in ns.
    pub fn set(&self, unix_ns: u64) {
        self.at.store(unix_ns, Ordering::Release);
    }

    /// The instant, once it is known.
    #[must_use]
    pub fn at(&self) -> Option<u64> {
        Some(self.at.load(Ordering::Acquire)).filter(|at| *at > 0)
    }

    /// Workers that have reached the gate.
    #[must_use]
    pub fn armed(&self) -> usize {
        self.armed.load(Ordering::Acquire)
    }

    /// Waits until shortly before the instant. Returns it as a time of `clock`; `None` if the run is to stop.
    ///
    /// # Errors
    /// The instant has passed.
    pub(crate) fn pass(&self, clock: &TscClock, stop: &AtomicBool) -> Result<Option<Time>, Error> {
        self.armed.fetch_add(1, Ordering::Release);
        while !stop.load(Ordering::Relaxed) {
            let now = TscClock::wall_now();
            let left = match self.at() {
                Some(at) if at <= now => return Err(Error::Late { late_ns: now - at }),
                Some(at) if at - now <= LEAD_NS => return Ok(Some(clock.at_wall(at))),
                Some(at) => Duration::from_nanos(at - now - LEAD_NS),
                None => LOOK,
            };
            thread::sleep(left.min(LOOK));
        }
        Ok(None)
    }

    /// The report of a start that was asked for `start` and obtained with `first`, both by the same clock.
    pub(crate) fn report(&self, start: Time, first: Option<Time>) -> StartReport {
        let miss = first.map(|first| first.signed_ps_since(start).div_euclid(units::PS_PER_NS.cast_signed()));
        StartReport::of(self.at.load(Ordering::Acquire), miss)
    }
}
