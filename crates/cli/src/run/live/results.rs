//! Report and notes of a live run: results of each pipeline, its ports, and failures.

use super::devices::LISTED;
use super::replay_feed::Records;
use crate::output::{self, Failure};
use crate::plan::request::{Arrivals, Request};
use crate::run::asked_rates;
use crate::run::changes;
use crate::run::live::stream_receiver::ReceivedFrames;
use crate::run::outcome::Outcome;
use crate::run::resolution;
use crate::run::user_limits;
use dataplane::{Finished, Floor, OnLine, PortSummary};
use dpdk::{Eal, Passed};
use measure::{Caveat, CaveatKind, ClockSource, DropReason, PipelineReport, StreamReport};
use scenario::{LineSpec, Pacer, PipelinePlan, PortSpec, SourcePlan};
use sim::{FrameList, SimError, WhenFull};
use std::sync::Arc;
use std::thread;

/// The result of a worker's thread, or an error if it panicked.
pub(super) type Ended = thread::Result<Result<Finished, dataplane::Error>>;

/// Builds the report, and prints notes immediately.
pub(super) struct ReportBuilder<'a> {
    outcome: Outcome,
    /// The measured floor of each pipeline that is paced by the clock.
    floors: &'a [(String, Floor)],
    warnings: Vec<Caveat>,
    /// Caveats of a pipeline that are not warnings.
    notes: Vec<Caveat>,
    /// Each port once, with its losses.
    ports: Vec<(String, PortSummary)>,
}

impl<'a> ReportBuilder<'a> {
    /// Creates the builder. `failure` is what ended the run early, if anything did.
    pub(super) fn new(floors: &'a [(String, Floor)], failure: Option<Failure>) -> Self {
        ReportBuilder {
            outcome: Outcome { reports: Vec::new(), caveats: Vec::new(), clocks: Vec::new(), failure },
            floors,
            warnings: Vec::new(),
            notes: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// Keeps the first of several failures.
    pub(super) fn failed(&mut self, failure: Option<Failure>) {
        self.outcome.failure = self.outcome.failure.take().or(failure);
    }

    /// Adds the next pipeline. The frames that its line listed are written to `list`.
    pub(super) fn pipeline(
        &mut self,
        plan: &PipelinePlan,
        ended: Ended,
        list: Option<&mut FrameList>,
        records: &Records,
    ) -> Result<(), Failure> {
        let finished =
            ended.unwrap_or_else(|_| Err(dataplane::Error::Worker(plan.name.clone()))).map_err(Failure::new)?;
        if plan.pacer == Pacer::Filler {
            self.notes.push(Caveat::of(&plan.name, CaveatKind::PriorityRaised { raised: finished.raised }));
        }
        if let Some(list) = list {
            match write_list(list, &finished.listed) {
                Ok(missed) => output::warn_of_lacks(list.path(), missed, "line"),
                Err(cause) => self.failed(Some(Failure::new(cause))),
            }
        }
        self.failed(finished.failure.as_ref().map(Failure::new));
        if let Some(Passed { sent, arrived }) = finished.passed {
            let caveat = Caveat::new(CaveatKind::PassedUnimpaired { sent, arrived });
            if sent + arrived > 0 { self.warnings.push(caveat) } else { self.notes.push(caveat) }
        }
        self.ports(plan, &finished.ports);
        let driver = finished.ports.first().map_or("", |port| &port.driver);
        self.warnings.extend(resolution::of_buckets(plan, driver));
        let mut report = named(plan, finished);
        self.warnings.extend(resolution::of_too_long(plan, &report, records.longest()));
        report.skipped = records.skipped(&plan.name, &mut self.warnings);
        self.failed(nothing_fitted(plan, &report));
        asked_rates::say_what_was_forfeited(&report);
        asked_rates::put_beside(plan, &mut report);
        let backward = report.backward.take();
        let floor = self.floors.iter().find(|(name, _)| *name == plan.name).map(|(_, floor)| floor);
        self.warnings.extend(resolution::of_machine(plan, &report, floor));
        self.warnings.extend(resolution::of_departures(plan));
        self.outcome.reports.push(report);
        self.outcome.reports.extend(backward.map(|mut backward| {
            backward.pacer = Some(plan.pacer.name());
            backward.forget_ask();
            forget_lateness(&mut backward);
            user_limits::report_back(plan, &mut backward);
            *backward
        }));
        Ok(())
    }

    /// Adds the ports of a plan: the inputs that are ports, and the output.
    fn ports(&mut self, plan: &PipelinePlan, ports: &[PortSummary]) {
        for (spec, port) in plan.input_ports().chain([&plan.output]).zip(ports) {
            let name = spec.to_string();
            if port.rx_missed + port.rx_no_buffer > 0 {
                output::warn(format!(
                    "{name} lost {} frame{} in its ring before they were counted as in, and had no buffer {} time{}",
                    port.rx_missed,
                    if port.rx_missed == 1 { "" } else { "s" },
                    port.rx_no_buffer,
                    if port.rx_no_buffer == 1 { "" } else { "s" },
                ));
            }
            if port.rx_completed > 0 {
                output::warn(format!(
                    "{name} received {} frames with unfinished checksums and completed them: a sender on this machine leaves checksums to its device; with ethtool -K DEVICE tx off there, frames arrive as on a wire",
                    output::thousands(port.rx_completed)
                ));
            }
            if port.cut_off {
                output::warn(format!(
                    "{name} had its XDP program removed or replaced during the run: frames that arrived since were not received; run it again, or write driver=af_packet"
                ));
            }
            // Several pipelines may share an interface. Each has its own ring there, with its own losses.
            match self.ports.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => {
                    sum.rx_missed += port.rx_missed;
                    sum.rx_no_buffer += port.rx_no_buffer;
                    sum.rx_completed += port.rx_completed;
                }
                None => self.ports.push((name, port.clone())),
            }
        }
    }

    /// Adds the figures of the receiver of the last pipeline, which is a generator.
    pub(super) fn arrived(&mut self, arrived: ReceivedFrames, request: &Request, receiver: Option<&Arrivals>) {
        let Some(report) = self.outcome.reports.last_mut() else { return };
        if let Some((replay, sent)) = &arrived.replay {
            report.replay = Some(replay.report(*sent));
        } else {
            report.streams = arrived.streams.report(&report.streams);
        }
        if let (Some(pause), Some(receiver)) = (arrived.longest_pause, receiver) {
            self.notes.push(Caveat::new(super::receive::polled_stamps(&receiver.port, pause)));
        }
        if arrived.on_several_queues > 0 {
            let streams = arrived.on_several_queues;
            self.notes.push(Caveat::new(CaveatKind::StreamsOnQueues { streams }));
        }
        if let Some(earlier) = arrived.flow.earlier.filter(|earlier| *earlier > 0) {
            output::warn(format!(
                "--in: {} of an earlier run arrived and are not counted: the network holds frames for longer than --wait, \
                 and they may have disturbed this run",
                output::counted(earlier, "frame")
            ));
        }
        if let Some(foreign) = arrived.flow.foreign.filter(|foreign| *foreign > 0) {
            output::note(format!(
                "--in: {} of unknown streams arrived and are not counted: another generator sends there; end it, or \
                 name another interface",
                output::counted(foreign, "frame")
            ));
        }
        let more = |stream: &StreamReport| Some(stream.received.as_ref()?.received > stream.sent?);
        if report.streams.iter().any(|stream| more(stream).unwrap_or(false)) {
            output::warn(
                "--in: more frames arrived than were sent, so losses may be hidden: another generator \
                 sends there; end it, or name another interface",
            );
        }
        report.flow = Some(arrived.flow);
        let output = request.pipelines.last().and_then(|plan| plan.output.interface());
        let own = output.is_some() && receiver.is_some_and(|arrivals| output == arrivals.port.interface());
        let of_replay = report.replay.as_ref().map_or(0, |replay| replay.received + replay.changed);
        let of_streams = report.streams.iter().filter_map(|stream| stream.received.as_ref());
        if own && of_replay == 0 && of_streams.map(|arrived| arrived.received).sum::<u64>() == 0 {
            output::warn(
                "--in: nothing came back to the sending interface, which receives only what others send there: name the one at \
                 the other end, unless a device under test should send frames back",
            );
        }
        self.failed(arrived.failure);
    }

    /// The complete report.
    pub(super) fn outcome(self, records: &[Arc<Records>]) -> Outcome {
        let ReportBuilder { mut outcome, floors, warnings, notes, ports } = self;
        resolution::warn(&mut outcome.caveats, warnings);
        Records::note(records, &mut outcome.caveats);
        outcome.caveats.push(Caveat::new(CaveatKind::Clock { source: ClockSource::Tsc }));
        outcome.caveats.extend(floors.iter().map(|(name, floor)| Caveat::of(name, of_floor(floor))));
        outcome.caveats.extend(notes);
        outcome.caveats.push(Caveat::new(CaveatKind::Dpdk { version: Eal::version() }));
        let of_port = |(name, port): (String, PortSummary)| CaveatKind::Port {
            port: name,
            driver: port.driver,
            rx_missed: port.rx_missed,
            rx_no_buffer: port.rx_no_buffer,
            rx_completed: port.rx_completed,
        };
        outcome.caveats.extend(ports.into_iter().map(of_port).map(Caveat::new));
        outcome
    }
}

/// The report of a pipeline, completed from its plan: the pacer, and whether there was a target.
fn named(plan: &PipelinePlan, finished: Finished) -> PipelineReport {
    let mut report = finished.report;
    user_limits::report(plan, &mut report);
    let pacer = match plan.pacer {
        Pacer::Auto if finished.launched => Pacer::LaunchTime,
        Pacer::Auto => Pacer::Deadline,
        pacer => pacer,
    };
    report.set_pacer(pacer.name());
    if plan.asks_nothing() && !changes::changed_target(&report) {
        report.forget_ask();
    }
    forget_lateness(&mut report);
    report
}

/// Without a schedule or a delaying stage, nothing is late.
fn forget_lateness(report: &mut PipelineReport) {
    if !report.says_when() {
        report.lateness = None;
    }
}

/// The failure of a generator if all of its frames were too long for the output.
fn nothing_fitted(plan: &PipelinePlan, report: &PipelineReport) -> Option<Failure> {
    let remedy = match plan.source {
        SourcePlan::Port(_) => return None,
        SourcePlan::Streams { .. } => "write a smaller size",
        SourcePlan::Replay(_) => "send a capture of shorter frames",
    };
    let (_, frames) = report.drops.iter().find(|(reason, _)| *reason == DropReason::TooLong)?;
    (report.left.frames == 0).then(|| {
        Failure::new(format!(
            "{}: nothing was sent, {} were longer than {} can send: {remedy}, or raise its MTU",
            plan.name,
            output::counted(frames, "frame"),
            plan.output
        ))
    })
}

/// Creates the file that lists the frames at the far end of a line, if it was asked.
pub(super) fn list(plan: &PipelinePlan) -> Result<Option<FrameList>, Failure> {
    match &plan.output {
        PortSpec::Line(LineSpec { frames: Some(path), .. }) => {
            FrameList::create(path, WhenFull::LeaveOut).map(Some).map_err(Failure::new)
        }
        _ => Ok(None),
    }
}

fn write_list(list: &mut FrameList, frames: &[OnLine]) -> Result<u64, SimError> {
    for frame in frames {
        list.add(frame.start, frame.length, if frame.filler { "filler" } else { "data" })?;
    }
    if frames.len() >= LISTED {
        output::warn(format!("the list of frames holds the first {}", output::thousands(LISTED as u64)));
    }
    list.finish()
}

fn of_floor(floor: &Floor) -> CaveatKind {
    CaveatKind::Floor {
        gap_ns: floor.gap.as_ns_f64(),
        instants: floor.instants as u64,
        p50_ns: floor.p50.as_ns_f64(),
        p99_ns: floor.p99.as_ns_f64(),
        max_ns: floor.max.as_ns_f64(),
        within_1us_ratio: floor.within_1us,
    }
}
