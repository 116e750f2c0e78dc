//! How far live pipelines are.

use crate::execute::Request;
use crate::output;
use crate::progress::Progress;
use dataplane::Counters;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Shows how far the pipelines are as long as `look` says when it wants to be called again; it is earlier if this thread
/// is unparked.
pub(super) fn show(request: &Request, counters: &[Counters], mut look: impl FnMut() -> Option<Duration>) {
    let mut progress = Progress::new(&request.common, request.pipelines.iter().map(|plan| plan.name.as_str()));
    let mut before: Vec<(Duration, u64)> = counters.iter().map(|_| (Duration::ZERO, 0)).collect();
    while let Some(nap) = look() {
        thread::park_timeout(nap);
        if progress.is_due() {
            let now = progress.passed();
            for (i, (counters, plan)) in counters.iter().zip(&request.pipelines).enumerate() {
                let bytes = counters.left_bytes.load(Ordering::Relaxed);
                let (then, bytes_then) = std::mem::replace(&mut before[i], (now, bytes));
                let rate = (bytes - bytes_then) as f64 * 8.0 / (now - then).as_secs_f64().max(1e-3);
                progress.say(i, so_far(now, rate, counters, !plan.asks_nothing()));
            }
        }
    }
}

/// A run in a line: its rate of late, and what waits, was starved and was late so far.
fn so_far(passed: Duration, rate_bps: f64, counters: &Counters, asked: bool) -> String {
    let figure = |counter: &AtomicU64| output::thousands(counter.load(Ordering::Relaxed));
    let ns = |counter: &AtomicU64| output::brief(counter.load(Ordering::Relaxed) as f64);
    let rate = output::bits(output::digits(rate_bps, 4));
    let mut text = format!("{} s  {rate}  {} waiting", passed.as_secs(), figure(&counters.depth));
    if asked {
        let (median, max) = (ns(&counters.late_median_ns), ns(&counters.late_max_ns));
        let starved = figure(&counters.starved);
        let wave = match counters.width_ns.load(Ordering::Relaxed) {
            0 => String::new(),
            width => format!(", wave {} wide", output::brief(width as f64)),
        };
        text += &format!("  {starved} starved{wave}  late {median}, max {max}");
    }
    text + &format!("  {} out", figure(&counters.left))
}
