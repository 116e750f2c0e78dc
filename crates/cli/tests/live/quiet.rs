//! A wait for other programs to leave the CPUs alone: what departs late since a compiler runs beside the test says
//! nothing of netlathe.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How long a quiet moment is waited for; a machine that has none is tested as it is.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it has to be quiet.
const LOOK: Duration = Duration::from_millis(400);
/// The share of all CPUs' time that others may take then.
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

/// The share of the CPUs' time that was not idle for a while.
fn busy_share() -> f64 {
    let before = ticks();
    thread::sleep(LOOK);
    let after = ticks();
    (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
}

/// Ticks in which the CPUs did something, and all ticks, since the machine's start.
fn ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; those behind are part of the first.
    let ticks: Vec<u64> = cpus.split_whitespace().skip(1).take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (all - idle, all)
}
