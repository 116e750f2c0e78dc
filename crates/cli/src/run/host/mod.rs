//! `measure --host`: reads the counters of a Linux receiver until it is stopped. `measure::host` interprets them.

mod link;
mod machine;
mod text;

use crate::options::common::Common;
use crate::output::{self, Failure};
use crate::render::report_printer;
use crate::run::readiness;
use crate::run::stop::Stop;
use link::Link;
use machine::{installed, run, settings, snapshot};
use measure::host::{HostReport, InterfaceReport, LossCounts};
use measure::{Caveat, CaveatKind, Report};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use units::Span;

/// One interval of a run.
#[derive(Serialize)]
struct Interval {
    /// Its end, in s since the run began.
    at_s: f64,
    interfaces: BTreeMap<String, Speed>,
    lost: LossCounts,
}

#[derive(Clone, Copy, Serialize)]
struct Speed {
    fps: f64,
    bps: f64,
}

/// Reads counters until the time is up or a signal arrives, then reports.
pub(crate) fn watch(names: &[String], interval: Span, common: &Common) -> Result<ExitCode, Failure> {
    let names = checked(names)?;
    let stop = Stop::on_signals()?;
    let mut settings = settings(&names);
    let first = snapshot(&names)?;
    readiness::tell(common);
    let begin = Instant::now();
    let end = common.duration.map(|duration| begin + duration.to_std());
    let missing: Vec<&str> = ["ethtool", "ss"].into_iter().filter(|program| !installed(program)).collect();
    if !missing.is_empty() {
        output::note(format_args!(
            "{} not installed, so its figures are missing (rings, queues and driver counters from ethtool, programs from ss): \
             apt-get install ethtool iproute2",
            missing.join(", ")
        ));
    }
    if common.verbose > 0 {
        output::note(format_args!("watching {}", names.join(", ")));
    }
    let lines = common.progress == "auto" && !common.quiet && std::io::stderr().is_terminal();
    let interval = interval.to_std();
    let (mut intervals, mut failure) = (Vec::new(), None);
    let (mut last, mut last_at) = (first.clone(), begin);
    loop {
        let due = last_at + interval;
        nap(end.map_or(due, |end| end.min(due)), &stop);
        let next = match snapshot(&names) {
            Ok(next) => next,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let now = Instant::now();
        let part = HostReport::between(&last, &next, now.duration_since(last_at).as_secs_f64(), &settings);
        let passed = now.duration_since(begin);
        if lines {
            output::line(text::line(passed, &part));
        }
        intervals.push(Interval { at_s: passed.as_secs_f64(), interfaces: speeds(&part), lost: part.lost });
        (last, last_at) = (next, now);
        if stop.asked() || end.is_some_and(|end| now >= end) {
            break;
        }
    }
    if let Some(text) = run("ss", &["-H", "-uanmpeO"]) {
        settings.read_owners(&text);
    }
    let report = HostReport::between(&first, &last, last_at.duration_since(begin).as_secs_f64(), &settings);
    let text = if common.json {
        json(&report, &intervals).to_string() + "\n"
    } else if common.quiet {
        String::new()
    } else {
        text::table(&report, &intervals, interval)
    };
    report_printer::print(&text)?;
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Checks that the interfaces exist, and removes duplicates. `if:eth0` means `eth0`.
fn checked(names: &[String]) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = names.iter().map(|name| name.strip_prefix("if:").unwrap_or(name).to_owned()).collect();
    let mut problems = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        if let Err(cause) = Link::named(name) {
            if !link::is_absence(&cause) {
                return Err(Failure::new(format!("--host: {name} cannot be watched: {cause}")));
            }
            let how = match scenario::name_before_peer(name) {
                Some(own) => format!("that is how `ip link` shows {own}: write {own}"),
                None => "`ip link` lists them, name one or more as eth0,eth1".to_owned(),
            };
            problems.push(format!("--host: there is no interface '{name}' in this network namespace: {how}"));
        } else if names[..nth].contains(name) {
            problems.push(format!("--host: {name} is named twice: name each interface once"));
        }
    }
    if problems.is_empty() { Ok(names) } else { Err(Failure::new(problems.join("\n"))) }
}

/// Sleeps in short pieces, so that a signal takes effect at once.
fn nap(until: Instant, stop: &Stop) {
    const PIECE: Duration = Duration::from_millis(20);
    while !stop.asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(PIECE));
    }
}

fn speeds(report: &HostReport) -> BTreeMap<String, Speed> {
    let of = |of: &InterfaceReport| (of.name.clone(), Speed { fps: of.fps, bps: of.bps });
    report.interfaces.iter().map(of).collect()
}

fn json(report: &HostReport, intervals: &[Interval]) -> serde_json::Value {
    serde_json::json!({
        "schema": Report::SCHEMA,
        "command": "measure",
        "host": report,
        "intervals": intervals,
        "caveats": [Caveat::new(CaveatKind::HostCounters)],
    })
}
