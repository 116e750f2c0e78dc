//! Compares the clocks of peers before and during a run: `--clock-peer`, `--max-clock-error`.

use super::exchanges::Exchanges;
use super::{bound_ns, too_far};
use crate::options::common::Common;
use crate::options::host_clock::HostClock;
use crate::output::{self, Failure};
use measure::ClockReport;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Number of exchanges with each peer before the run, and their interval.
const BEFORE: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(10);
/// Interval between exchanges during the run. Each takes some CPU time from departures.
const DURING: Duration = Duration::from_millis(200);

/// Monitors the clocks of peers.
pub(crate) struct ClockWatch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Exchanges>>,
}

impl ClockWatch {
    /// Compares the clocks of all peers, fails if one is too far off, and then continues to compare in the background.
    /// Returns `None` if no peer was named.
    pub(crate) fn begin(common: &Common) -> Result<Option<Self>, Failure> {
        if common.clock_peers.is_empty() {
            return Ok(None);
        }
        let clock = HostClock::new()?;
        let open = |peer: &String| Exchanges::open(peer, clock);
        let mut peers = common.clock_peers.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        for _ in 0..BEFORE {
            exchange_all(&mut peers)?;
            thread::sleep(BETWEEN);
        }
        for peer in &peers {
            let report = peer.concluded()?;
            if bound_ns(&report) > common.max_clock_error.as_ns_f64() {
                return Err(Failure::new(too_far(&report, common.max_clock_error)));
            }
        }
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let work = move || {
            while !ended.load(Ordering::Relaxed) {
                // If a peer disappears, the number of answers shows it.
                let _ = exchange_all(&mut peers);
                thread::park_timeout(DURING);
            }
            peers
        };
        let thread = thread::Builder::new().name("clocks".to_owned()).spawn(work);
        let thread = thread.map_err(|cause| Failure::new(format!("cannot start a thread: {cause}")))?;
        Ok(Some(ClockWatch { ends, thread }))
    }

    /// Ends monitoring. Returns the largest offsets since the start, and warns about those above the limit.
    pub(crate) fn finish(self, common: &Common) -> Vec<ClockReport> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let peers = self.thread.join().unwrap_or_default();
        let reports: Vec<ClockReport> = peers.iter().filter_map(Exchanges::report).collect();
        for report in reports.iter().filter(|report| report.worst_ns > common.max_clock_error.as_ns_f64()) {
            output::warn(format!(
                "the clock of {} was up to {} from this host's during the run, above --max-clock-error {}",
                report.peer,
                output::time(report.worst_ns),
                common.max_clock_error
            ));
        }
        reports
    }
}

fn exchange_all(peers: &mut [Exchanges]) -> Result<(), Failure> {
    for peer in peers {
        peer.exchange().map_err(|cause| Failure::new(format!("--clock-peer {}: {cause}", peer.name)))?;
    }
    Ok(())
}
