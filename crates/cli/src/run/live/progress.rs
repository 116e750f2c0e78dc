//! Progress of live pipelines, for people and for programs.

use super::stats_file::{Stats, of_counters};
use crate::output;
use crate::plan::request::Request;
use crate::render::progress::Progress;
use dataplane::Counters;
use scenario::PipelinePlan;
use service::control::PipelineFigures;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Shows progress until `look` returns `None`. Otherwise `look` returns the time until its next call. That call is
/// earlier if this thread is unparked or `stats` is due.
pub(super) fn show(
    request: &Request,
    counters: &[Counters],
    stats: Option<&mut Stats>,
    mut look: impl FnMut() -> Option<Duration>,
) {
    let mut stats = stats;
    if let Some(stats) = &mut stats {
        stats.begins();
    }
    let names = names(request);
    let lines = lines(request, counters);
    let mut progress = Progress::new(request.common.shows_progress(), lines.iter().map(|line| line.name));
    let mut before: Vec<(Duration, u64)> = lines.iter().map(|_| (Duration::ZERO, 0)).collect();
    while let Some(nap) = look() {
        thread::park_timeout(stats.as_ref().map_or(nap, |stats| nap.min(stats.left())));
        if let Some(stats) = &mut stats {
            stats.write_if_due(|| so_far_of_all(&names, counters));
        }
        if progress.is_due() {
            let now = progress.passed();
            for (i, Line { counters, asked, .. }) in lines.iter().enumerate() {
                let bytes = counters.left_bytes.load(Ordering::Relaxed);
                let (then, bytes_then) = std::mem::replace(&mut before[i], (now, bytes));
                let rate = (bytes - bytes_then) as f64 * 8.0 / (now - then).as_secs_f64().max(1e-3);
                progress.say(i, in_a_line(now, rate, counters, *asked));
            }
        }
    }
}

/// A progress line: a pipeline, or its return path if that has stages.
struct Line<'a> {
    name: &'a str,
    counters: &'a Counters,
    asked: bool,
}

fn lines<'a>(request: &'a Request, counters: &'a [Counters]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (plan, counters) in request.pipelines.iter().zip(counters) {
        lines.push(Line { name: &plan.name, counters, asked: !plan.asks_nothing() });
        if let (Some(direction), Some(back)) = (&plan.back, counters.back.as_deref()) {
            lines.push(Line { name: &direction.name, counters: back, asked: false });
        }
    }
    lines
}

/// The name of a pipeline, and of its return path if that has stages.
pub(super) struct Names {
    name: String,
    asked: bool,
    back: Option<String>,
}

/// The names of all pipelines.
pub(super) fn names(request: &Request) -> Vec<Names> {
    let of = |plan: &PipelinePlan| Names {
        name: plan.name.clone(),
        asked: !plan.asks_nothing(),
        back: plan.back.as_ref().map(|direction| direction.name.clone()),
    };
    request.pipelines.iter().map(of).collect()
}

/// The figures of each pipeline. A return path with stages has its own entry.
pub(super) fn so_far_of_all(names: &[Names], counters: &[Counters]) -> Vec<PipelineFigures> {
    let mut all = Vec::new();
    for (names, counters) in names.iter().zip(counters) {
        let so_far = of_counters(&names.name, names.asked, counters);
        let back = counters.back.as_deref().filter(|back| back.running.load(Ordering::Relaxed));
        match (&names.back, back) {
            (Some(direction), back) => {
                let none = Counters::default();
                all.extend([so_far, of_counters(direction, false, back.unwrap_or(&none))]);
            }
            (None, Some(back)) => {
                let back = Some(Box::new(of_counters("", false, back)));
                all.push(PipelineFigures { back, ..so_far });
            }
            (None, None) => all.push(so_far),
        }
    }
    all
}

/// A run on one line: the recent rate, waiting frames, starvation and lateness so far.
fn in_a_line(passed: Duration, rate_bps: f64, counters: &Counters, asked: bool) -> String {
    let figure = |counter: &AtomicU64| output::thousands(counter.load(Ordering::Relaxed));
    let ns = |counter: &AtomicU64| output::brief(counter.load(Ordering::Relaxed) as f64);
    let rate = output::bits(output::digits(rate_bps, 4));
    let arrived = counters.arrived.load(Ordering::Relaxed) + counters.copies.load(Ordering::Relaxed);
    let dropped: u64 = counters.drops().map(|(_, frames)| frames).sum();
    let lost = output::share(dropped as f64 / arrived.max(1) as f64);
    let out = format!("{} out, {} dropped ({lost})", figure(&counters.left), output::thousands(dropped));
    let waiting = figure(&counters.depth);
    if !asked {
        return format!("{} s  {rate}  {out}  {waiting} waiting", passed.as_secs());
    }
    let (median, max) = (ns(&counters.late_median_ns), ns(&counters.late_max_ns));
    let starved = figure(&counters.starved);
    let wave = match counters.width_ns.load(Ordering::Relaxed) {
        0 => String::new(),
        width => format!(", wave {} wide", output::brief(width as f64)),
    };
    // The least important part comes last, because a narrow terminal cuts it off.
    format!(
        "{} s  {rate}  {waiting} waiting  {starved} starved{wave}  late {median}, max {max}  {out}",
        passed.as_secs()
    )
}
