//! `netlathe clock`: the offsets of other hosts' clocks from this one, and their monitoring during a run.

mod answering;
mod exchanges;
mod message;
mod stamped_socket;
mod time_services;
pub(crate) mod watch;

use crate::options::clock::Clock;
use crate::options::host_clock::HostClock;
use crate::output::{self, Failure};
use crate::render::progress::Progress;
use crate::render::report_printer;
use crate::run::stop::Stop;
use exchanges::Exchanges;
use measure::{ClockReport, Report};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::{Duration, Instant};
use time_services::TimeService;
use units::Span;

/// Default duration of a comparison.
const USUAL: Span = Span::from_ms(2_000);

impl Clock {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let clock = HostClock::new()?;
        let stop = Stop::on_signals()?;
        if self.answer {
            let done = answering::answer(self.listen, self.duration.map(Span::to_std), clock, &stop)?;
            let (answered, ignored) = (done.answered, done.ignored);
            report_printer::print(&match self.json {
                true => {
                    let report = json!({ "schema": Report::SCHEMA, "command": "clock", "answered": answered, "ignored": ignored });
                    report.to_string() + "\n"
                }
                false => format!(
                    "answered {}, ignored {} that were not requests\n",
                    output::counted(answered, "exchange"),
                    output::counted(ignored, "message")
                ),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut peers = self.peers.iter().map(|peer| Exchanges::open(peer, clock)).collect::<Result<Vec<_>, _>>()?;
        self.compare(&mut peers, &stop)?;
        let mut found = Vec::new();
        for peer in &peers {
            found.push((peer.concluded()?, peer));
        }
        let services = time_services::query();
        let text = if self.json { self.object(&found, &services, clock) } else { table(&found, &services, clock) };
        report_printer::print(&text)?;
        Ok(self.judge(&found))
    }

    /// Exchanges with all peers at once, until the time is up.
    fn compare(&self, peers: &mut [Exchanges], stop: &Stop) -> Result<(), Failure> {
        let names: Vec<String> = peers.iter().map(|peer| peer.name.clone()).collect();
        let progress = Mutex::new(Progress::new(self.progress == "auto", names.iter().map(String::as_str)));
        let end = Instant::now() + self.duration.unwrap_or(USUAL).to_std();
        let interval = self.interval.to_std();
        thread::scope(|scope| {
            let threads: Vec<_> = peers
                .iter_mut()
                .enumerate()
                .map(|(i, peer)| {
                    let progress = &progress;
                    let work = move || {
                        let mut next = Instant::now();
                        while Instant::now() < end && !stop.asked() {
                            peer.exchange().map_err(|cause| Failure::new(format!("peer {}: {cause}", peer.name)))?;
                            let mut lines = progress.lock().unwrap_or_else(PoisonError::into_inner);
                            if lines.is_due()
                                && let Some(report) = peer.report()
                            {
                                lines.say(i, row(&report));
                            }
                            drop(lines);
                            next += interval;
                            thread::sleep(next.saturating_duration_since(Instant::now()).min(Duration::from_secs(1)));
                        }
                        Ok(())
                    };
                    thread::Builder::new().spawn_scoped(scope, work)
                })
                .collect();
            let ended = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Result<(), Failure>>>| {
                let thread = thread.map_err(|cause| Failure::new(format!("cannot start a thread: {cause}")))?;
                thread.join().unwrap_or_else(|_| Err(Failure::new("the thread of a peer failed")))
            };
            output::all(threads.into_iter().map(ended))
        })
    }

    fn object(&self, found: &[(ClockReport, &Exchanges)], services: &[TimeService], clock: HostClock) -> String {
        let peers: Vec<_> = found
            .iter()
            .map(|(report, peer)| {
                let mut peer = json!({ "address": peer.address.to_string() });
                let figures = json!(report);
                if let (Some(object), Some(figures)) = (peer.as_object_mut(), figures.as_object()) {
                    object.extend(figures.clone());
                }
                peer
            })
            .collect();
        let mut object = json!({ "schema": Report::SCHEMA, "command": "clock", "peers": peers, "services": services });
        if clock.injected_ns != 0 {
            object["injected_offset_ns"] = json!(clock.injected_ns);
        }
        object.to_string() + "\n"
    }

    fn judge(&self, found: &[(ClockReport, &Exchanges)]) -> ExitCode {
        let Some(most) = self.max_clock_error else { return ExitCode::SUCCESS };
        let mut status = ExitCode::SUCCESS;
        for (report, _) in found.iter().filter(|(report, _)| bound_ns(report) > most.as_ns_f64()) {
            output::say(too_far(report, most));
            status = ExitCode::from(Failure::MISSED);
        }
        status
    }
}

/// Largest possible offset of a peer's clock.
fn bound_ns(report: &ClockReport) -> f64 {
    report.offset_ns.abs() + report.error_ns
}

/// The message about a peer's clock that is further off than `most`.
fn too_far(report: &ClockReport, most: Span) -> String {
    format!(
        "--max-clock-error: the clock of {} is {} from this host's, above {most}: synchronise both by chrony or ptp4l, \
         or give a larger --max-clock-error",
        report.peer,
        offset(report)
    )
}

fn offset(report: &ClockReport) -> String {
    let sign = if report.offset_ns < 0.0 { "−" } else { "+" };
    format!("{sign}{} ± {}", output::time(report.offset_ns.abs()), output::time(report.error_ns))
}

/// One peer on a line.
fn row(report: &ClockReport) -> String {
    let drift = match (report.drift_ppm, report.drift_error_ppm) {
        (Some(drift), Some(error)) => format!("drift {drift:+.2} ± {error:.2} ppm, "),
        _ => String::new(),
    };
    format!(
        "{}  {drift}{} of {} answered, round trip at least {}, median {}",
        offset(report),
        output::thousands(report.answered),
        output::counted(report.asked, "exchange"),
        output::time(report.round_trip_min_ns),
        output::time(report.round_trip_p50_ns)
    )
}

fn table(found: &[(ClockReport, &Exchanges)], services: &[TimeService], clock: HostClock) -> String {
    let width = found.iter().map(|(report, _)| report.peer.len()).max().unwrap_or(0);
    let mut text = "clocks of peers, minus this host's\n".to_owned();
    if clock.injected_ns != 0 {
        text += &format!("warning: {} adds {} ns to this host's clock\n", HostClock::VARIABLE, clock.injected_ns);
    }
    for (report, _) in found {
        text += &format!("  {:<width$}  {}; stamps by the {}\n", report.peer, row(report), report.stamps.name());
    }
    for service in services {
        text += &format!("  {:<15}  {}\n", service.name, service.state);
    }
    text
}
