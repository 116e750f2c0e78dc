//! Runs plans and prints their reports: in virtual time or live, with one pipeline or several.

use crate::options::common::{Common, NO_CLOCKS, NO_START, NO_STATS};
use crate::output::{self, Failure};
use crate::plan::request::{Arrivals, Request};
use crate::render::output_file::Table;
use crate::render::page_folder::PageFolder;
use crate::render::report_printer;
use crate::render::report_text;
use crate::render::results::{ResultTables, RunResult};
use crate::run::changes;
use crate::run::control::Control;
use crate::run::outcome::Outcome;
use crate::run::resolution;
use crate::run::stop::Stop;
use crate::run::user_limits;
use crate::run::verdicts;
use crate::run::virtual_time;
use engine::schedules::Target;
use engine::stages::StageConfig;
use measure::{Caveat, CaveatKind, PipelineReport, ProgramReport, RateCurve, Report};
use scenario::{PipelinePlan, SourcePlan};
use serde_json::json;
use std::process::ExitCode;

/// Carries out a request and prints the report. If there is a receiver, lost frames are a missed expectation.
pub(crate) fn run(request: &Request) -> Result<ExitCode, Failure> {
    let receiver = request.receiver.as_ref();
    check_ends(request)?;
    let of_slices = request.expectations.iter().find(|expectation| expectation.needs_slices());
    if let Some(of_slices) = of_slices.filter(|_| request.common.slices.is_none()) {
        return Err(Failure::new(format!(
            "'{}': its run has that figure only with --slices: add it, or leave the expectation out",
            of_slices.text
        )));
    }
    if let Some(status) = in_lab(request)? {
        return Ok(status);
    }
    user_limits::check_memory(request)?;
    for plan in &request.pipelines {
        for note in plan.all_stages().flat_map(StageConfig::notes) {
            output::warn(format!("{}: {note}", plan.name));
        }
    }
    let folder = request.common.folder.as_deref().map(PageFolder::open).transpose()?;
    if request.results.junit.is_some() || request.results.csv.is_some() {
        // Checked before any output is created, because creating it would truncate a file that is also read.
        request.check_files()?;
    }
    let results = ResultTables::open(&request.results)?;
    say_what_is_not_stamped(request)?;
    let virtual_clock = request.pipelines.iter().all(PipelinePlan::is_virtual);
    if virtual_clock && request.common.stats.is_some() {
        return Err(Failure::new(NO_STATS));
    }
    if virtual_clock && request.common.start_at.is_some() {
        return Err(Failure::new(NO_START));
    }
    if virtual_clock && !request.common.clock_peers.is_empty() {
        return Err(Failure::new(NO_CLOCKS));
    }
    let by_user = match &request.by_user {
        Some(path) => {
            // Checked before the table is created, because creating it would truncate a file that is also read.
            request.check_files()?;
            Some(Table::create(path)?)
        }
        None => None,
    };
    let reads_again = !virtual_clock && user_limits::has_rates(request);
    let stop = if reads_again { Stop::on_signals_but_hangup()? } else { Stop::on_signals()? };
    if request.listener.concludes.is_some() && (virtual_clock || request.pipelines.len() != 1) {
        return Err(Failure::new(
            "slice pipeline --kernel traces packets through one live pipeline: give it ports of this machine",
        ));
    }
    if virtual_clock && request.common.cores.is_some() {
        output::warn("--cores: it has no effect in virtual time, which runs on one unpinned thread");
    }
    let control = Control::open(request, &stop)?;
    if !virtual_clock && request.pipelines.iter().any(PipelinePlan::is_virtual) {
        return Err(Failure::new("some pipelines are live and others virtual: run them separately"));
    }
    let pipelines = || {
        if virtual_clock {
            #[cfg(feature = "live")]
            crate::rights::keep_files();
            request.gate.open();
            virtual_time::run(request, &stop, control.as_ref())
        } else {
            request.check_files()?;
            live(request, receiver, &stop, control.as_ref())
        }
    };
    let (mut outcome, programs, failed_program) = with_programs(request, &stop, pipelines)?;
    let end_to_end = request.listener.concludes.as_ref().map(|conclude| conclude()).transpose()?;
    warn_of_silent_sources(&outcome.reports);
    changes::say_what_was_not_reached(&outcome.reports);
    let warnings = outcome.reports.iter().flat_map(|report| {
        [user_limits::warnings(report), resolution::of_corruption(report).into_iter().collect()].concat()
    });
    let warnings: Vec<Caveat> = warnings.collect();
    let listed = by_user.map_or(Ok(()), |table| table.finish(&user_limits::by_user(request)));
    resolution::warn(&mut outcome.caveats, warnings);
    resolution::warn(&mut outcome.caveats, request.of_files.iter().cloned());
    let clocks = std::mem::take(&mut outcome.clocks);
    let mut report =
        Report { end_to_end, clocks, programs, ..report(request.command, outcome.reports, outcome.caveats) };
    forget_histograms(&mut report, &request.common);
    report.expectations = verdicts::judge(&report, &request.expectations)?;
    let statuses = verdicts::statuses(&report.programs, &request.beside.programs, &report.expectations);
    report.expectations.extend(statuses);
    report.expectations.extend(receiver.map(|_| verdicts::expect_all_arrived(&report)));
    if let Some(control) = control {
        control.ends(&report)?;
    }
    // The failure that ended the run comes first.
    let failed = output::all([outcome.failure, failed_program].map(|failure| failure.map_or(Ok(()), Err)));
    let run = RunResult {
        name: request.title.clone(),
        values: Vec::new(),
        report: json!(report),
        failure: failed.as_ref().err().map(Failure::to_string),
    };
    let written = results.finish(&[run]);
    let failure = output::all([failed, listed, written]).err();
    conclude(&report, &request.common, folder, failure)
}

/// Warns about streams that a receiver will not count, unless the user wrote `stamp off`.
fn say_what_is_not_stamped(request: &Request) -> Result<(), Failure> {
    for plan in &request.pipelines {
        let SourcePlan::Streams { specs, first, .. } = &plan.source else { continue };
        for (spec, number) in specs.iter().zip(*first..) {
            if spec.stamp.is_none() && !spec.is_stamped().map_err(Failure::new)? {
                output::warn(format!(
                    "{}: stream {number} is not stamped because its shortest frames have no room, so a receiver cannot count it: write larger sizes, or stamp off",
                    plan.name
                ));
            }
        }
    }
    Ok(())
}

/// Warns about sources that never sent a frame; a wrong address is a common cause.
fn warn_of_silent_sources(reports: &[PipelineReport]) {
    for report in reports {
        let sources = report.sources.iter().chain(report.classes.iter().flat_map(|class| &class.sources));
        for source in sources.filter(|source| source.arrived.frames == 0 && source.missed > 0) {
            output::warn(format!(
                "{}: nothing arrived from source {}: {} rounds waited for it",
                report.name, source.source, source.missed
            ));
        }
    }
}

/// The report of these pipelines, with a caveat for each fit that used only part of the gaps.
pub(crate) fn report(command: &'static str, pipelines: Vec<PipelineReport>, mut caveats: Vec<Caveat>) -> Report {
    for report in &pipelines {
        if let Some((fit, sampled_from)) = report.fit.as_ref().and_then(|fit| Some((fit, fit.sampled_from?))) {
            caveats.push(Caveat::of(&report.name, CaveatKind::FitSampled { gaps: fit.count, sampled_from }));
        }
    }
    Report {
        schema: Report::SCHEMA,
        command,
        warnings: output::warnings(),
        pipelines,
        end_to_end: None,
        programs: Vec::new(),
        expectations: Vec::new(),
        clocks: Vec::new(),
        caveats,
    }
}

/// Removes whole histograms unless they were asked for. If they were, adds curves of the rate.
pub(crate) fn forget_histograms(report: &mut Report, common: &Common) {
    for pipeline in &mut report.pipelines {
        if !common.histograms {
            pipeline.forget_histograms();
            continue;
        }
        if let Some(rate) = pipeline.plots.as_ref().and_then(|plots| plots.rate.as_ref()) {
            pipeline.rate_curve = Some(RateCurve { window_ns: rate.window_ns, got_bps: rate.got_bps.clone() });
        }
    }
}

/// Prints the report and writes its page. The status depends on the expectations and on any failure.
pub(crate) fn conclude(
    report: &Report,
    common: &Common,
    folder: Option<PageFolder>,
    failure: Option<Failure>,
) -> Result<ExitCode, Failure> {
    let printed = match common.json {
        true => output::json(report).and_then(|json| report_printer::print(&json)),
        false if common.quiet => Ok(()),
        false => report_printer::print(&report_text::table(report)),
    };
    let page = folder.map_or(Ok(()), |mut folder| folder.write(report, failure.as_ref()));
    // The failure that ended the run comes first, then the failure to write its report.
    output::all([failure.map_or(Ok(()), Err), printed, page])?;
    let mut status = ExitCode::SUCCESS;
    for expectation in &report.expectations {
        if let Some(missed) = &expectation.missed {
            output::say(format_args!("expected {}: {missed}", expectation.that));
            status = ExitCode::from(Failure::MISSED);
        }
    }
    Ok(status)
}

/// Builds the lab of a scenario and runs this command in it, unless this process already runs there.
#[cfg(feature = "live")]
fn in_lab(request: &Request) -> Result<Option<ExitCode>, Failure> {
    crate::run::lab_of_scenario::run(request)
}

#[cfg(not(feature = "live"))]
fn in_lab(request: &Request) -> Result<Option<ExitCode>, Failure> {
    if request.beside.lab.is_some() { Err(Failure::no_live_ports()) } else { Ok(None) }
}

/// Runs the pipelines with the programs of the request beside them.
#[cfg(feature = "live")]
fn with_programs(
    request: &Request,
    stop: &Stop,
    pipelines: impl FnOnce() -> Result<Outcome, Failure>,
) -> Result<(Outcome, Vec<ProgramReport>, Option<Failure>), Failure> {
    let (outcome, programs) = crate::run::programs::beside(request, stop, pipelines)?;
    Ok((outcome, programs.reports, programs.failure))
}

#[cfg(not(feature = "live"))]
fn with_programs(
    request: &Request,
    _: &Stop,
    pipelines: impl FnOnce() -> Result<Outcome, Failure>,
) -> Result<(Outcome, Vec<ProgramReport>, Option<Failure>), Failure> {
    if !request.beside.programs.is_empty() {
        return Err(Failure::no_live_ports());
    }
    Ok((pipelines()?, Vec::new(), None))
}

#[cfg(feature = "live")]
fn live(
    request: &Request,
    receiver: Option<&Arrivals>,
    stop: &Stop,
    control: Option<&Control>,
) -> Result<Outcome, Failure> {
    crate::run::live::run(request, receiver, stop, control)
}

#[cfg(not(feature = "live"))]
fn live(_: &Request, _: Option<&Arrivals>, _: &Stop, _: Option<&Control>) -> Result<Outcome, Failure> {
    Err(Failure::no_live_ports())
}

/// Refuses an endless stream in virtual time, which would fill the disk. A stream ends if every frame belongs to a
/// waveform that ends.
fn check_ends(request: &Request) -> Result<(), Failure> {
    let is_endless = |(number, plan): &(usize, &PipelinePlan)| {
        let alone = plan.classes.is_empty() && plan.stages.is_empty() && plan.sync.is_none();
        let ends = alone && matches!(&plan.target, Target::Wave(wave) if wave.ends());
        let source_is_endless = match &plan.source {
            SourcePlan::Streams { count, .. } => count.is_none(),
            SourcePlan::Replay(replay) => replay.is_endless(),
            SourcePlan::Port(_) => false,
        };
        source_is_endless
            && plan.output.is_virtual()
            && !(ends && changes::timeline_of(request, *number, false).is_empty())
    };
    let endless = request.pipelines.iter().enumerate().find(is_endless).map(|(_, plan)| plan);
    match endless {
        Some(plan) if request.common.duration.is_none() => {
            let what = if matches!(plan.source, SourcePlan::Replay(_)) { "replay" } else { "stream" };
            Err(Failure::new(format!("{}: the {what} has no end: give --count or --duration", plan.name)))
        }
        _ => Ok(()),
    }
}
