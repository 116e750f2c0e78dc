//! Waits until other programs leave the CPUs idle. If departures are late because a compiler runs beside the test,
//! netlathe is not at fault.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Limit on the wait for a quiet moment. After that the test runs anyway.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the machine must be quiet.
const LOOK: Duration = Duration::from_millis(400);
/// The share of all CPU time that other programs may use during that time.
const BUSY: f64 = 0.15;

/// Returns when the CPUs are almost idle, or after a time limit.
pub(crate) fn await_quiet() {
    let begin = Instant::now();
    while busy_share() > BUSY {
        if begin.elapsed() > PATIENCE {
            println!("this machine is busy with other programs");
            break;
        }
    }
}

/// The share of CPU time that was not idle, over a short interval.
fn busy_share() -> f64 {
    let before = ticks();
    thread::sleep(LOOK);
    let after = ticks();
    (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
}

/// Busy ticks and all ticks of the CPUs since boot.
fn ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; the later fields are included in user and nice.
    let ticks: Vec<u64> = cpus.split_whitespace().skip(1).take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}
