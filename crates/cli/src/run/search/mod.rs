//! Carries out a search: the order of its trials.

mod ports;
mod trials;

use crate::options::search::Search;
use crate::output::{self, Failure};
use crate::plan::search::{Device, SearchPlan, ToSearch};
use crate::render::output_file::Table;
use crate::render::page_folder::PageFolder;
use crate::render::progress::Progress;
use crate::render::report_printer;
use crate::render::search;
use crate::render::search_results::{Measured, Searched};
use crate::run::readiness;
use crate::run::search::ports::SearchStart;
use crate::run::search::trials::Journal;
use crate::run::stop::Stop;
use engine::search::{BurstSettings, Bursts, Curve, CurveSettings, Goal, Search as Machine, Settings, Trial};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{PS_PER_S, Share};

/// The runner of trials.
struct Lab<'a> {
    device: &'a Device,
    journal: Journal,
    stop: Stop,
    start: SearchStart,
    seed: u64,
    /// Number of the next trial of a size.
    number: usize,
    /// Set until readiness has been reported. The value tells whether to print a line as well.
    untold: AtomicBool,
    verbose: bool,
    progress: Progress,
    /// The current bounds of the size being searched, in words.
    known: String,
}

impl Lab<'_> {
    /// Runs a trial, or takes it from the file of trials; `None` if the user ends the search.
    fn run(&mut self, name: &str, sized: &ToSearch, trial: &Trial) -> Result<Option<Measured>, Failure> {
        if self.stop.asked() {
            return Ok(None);
        }
        let number = self.number;
        self.number += 1;
        if let Some(measured) = self.journal.next(name, trial)? {
            return Ok(Some(measured));
        }
        let Trial { load, duration } = trial;
        let known = if self.known.is_empty() { "nothing known yet" } else { &self.known };
        self.progress.say(0, format!("{name}: trial {}, {load} for {duration}; {known}", number + 1));
        let ready = || {
            if self.untold.swap(false, Ordering::Relaxed) {
                readiness::tell_if(self.verbose);
            }
        };
        let measured =
            trials::run(self.device, sized, trial, (self.seed, number), (&self.stop, &mut self.start), ready);
        if self.stop.asked() {
            // The signal also ended the trial, so its result is meaningless.
            return Ok(None);
        }
        let measured = measured?;
        self.journal.add(name, trial, &measured)?;
        Ok(Some(measured))
    }
}

/// Allowed excess of a burst's duration over that of a trial, as a share; only the last frame matters.
const BURST_TOLERANCE: u32 = 10;

/// Searches and reports.
pub(crate) fn run(plan: SearchPlan) -> Result<ExitCode, Failure> {
    let SearchPlan { device, sized, goals, options } = plan;
    options.carry_out(&device, sized, &goals)
}

impl Search {
    fn carry_out(&self, device: &Device, sized: Vec<ToSearch>, goals: &[Goal]) -> Result<ExitCode, Failure> {
        let folder = self.folder.as_deref().map(PageFolder::open).transpose()?;
        let csv = self.csv.as_deref().map(Table::create).transpose()?;
        let stop = Stop::on_signals()?;
        let start = SearchStart::new(self.start_at)?;
        let journal = Journal::open(self.trials.as_deref(), &self.key(device))?;
        let mut lab = Lab {
            device,
            journal,
            stop,
            start,
            seed: self.seed,
            number: 0,
            untold: true.into(),
            verbose: self.verbose,
            progress: Progress::new(self.progress == "auto" && !self.quiet, ["search"]),
            known: String::new(),
        };
        let (searched, failure) = self.search(sized, goals, &mut lab)?;
        let kept = lab.journal.finish();
        let start = std::mem::take(&mut lab.start);
        // Its line leaves the terminal.
        drop(lab);
        if start.is_unused() {
            output::warn("--start-at: no trial was sent, since all results came from --trials");
        }
        let report = search::json(self, device, &searched, goals, start.report.as_ref());
        let printed = match self.json {
            true => report_printer::print(&(report.to_string() + "\n")),
            false if self.quiet => Ok(()),
            false => report_printer::print(&search::table(device, &searched, goals, start.report.as_ref())),
        };
        let page = folder.map_or(Ok(()), |mut folder| {
            let page = search::page(self, device, &searched, goals, start.report.as_ref());
            folder.write_search(&page, report.to_string() + "\n", failure.as_ref())
        });
        let lines = csv.map_or(Ok(()), |csv| csv.finish(&search::csv(&searched, goals)));
        output::all([failure.map_or(Ok(()), Err), kept, printed, page, lines])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Searches one size after the other. Returns the results and the failure that ended the search, unless it failed
    /// before there was anything to report.
    fn search(
        &self,
        sized: Vec<ToSearch>,
        goals: &[Goal],
        lab: &mut Lab<'_>,
    ) -> Result<(Vec<Searched>, Option<Failure>), Failure> {
        let mut searched: Vec<Searched> = Vec::new();
        let mut failure = None;
        for sized in sized {
            let settings = Settings {
                goals: goals.to_vec(),
                least: self.min,
                most: sized.most,
                tolerance: self.tolerance,
                late: self.late,
                confirm: self.confirmations(),
            };
            let machine = Machine::new(settings);
            let mut one = Searched {
                size: sized.size.clone(),
                most: sized.most,
                machine,
                measured: Vec::new(),
                found: Vec::new(),
                latency: Vec::new(),
                curve: None,
                bursts: None,
            };
            let whole = self.settle(&mut one, &sized, lab);
            one.found = one.machine.found();
            let tried = !one.measured.is_empty();
            searched.push(one);
            match whole {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) if searched.len() == 1 && !tried => return Err(error),
                Err(error) => failure = Some(error),
            }
            if self.trials.is_none() {
                output::warn(
                    "ended before the search was complete: --trials FILE keeps the trials so that a later run can resume",
                );
            }
            break;
        }
        for one in &searched {
            search::remarks(one, goals).iter().for_each(|remark| output::warn(format!("{}: {remark}", one.size)));
        }
        Ok((searched, failure))
    }

    /// Runs all searches of a size. Returns false if the user ended it early.
    fn settle(&self, one: &mut Searched, sized: &ToSearch, lab: &mut Lab<'_>) -> Result<bool, Failure> {
        lab.number = 0;
        lab.known.clear();
        while let Some(trial) = one.machine.next_trial() {
            let Some(measured) = lab.run(&one.size, sized, &trial)? else { return Ok(false) };
            one.machine.tell(trial, measured.outcome);
            one.measured.push(measured);
            self.say(one, lab);
        }
        Ok(self.measure_latency(one, sized, lab)?
            && self.measure_loss(one, sized, lab)?
            && self.find_bursts(one, sized, lab)?)
    }

    /// With `--latency`, sends at each found rate again. Returns false if the user ended it early.
    fn measure_latency(&self, one: &mut Searched, sized: &ToSearch, lab: &mut Lab<'_>) -> Result<bool, Failure> {
        let Some(duration) = self.latency else { return Ok(true) };
        let name = format!("{} latency", one.size);
        for found in one.machine.found() {
            let Some(load) = found.lower else {
                one.latency.push(None);
                continue;
            };
            let trial = Trial { load, duration };
            let Some(measured) = lab.run(&name, sized, &trial)? else { return Ok(false) };
            one.latency.push(Some((trial, measured)));
        }
        Ok(true)
    }

    /// With `--frame-loss`, measures the loss at decreasing loads. Returns false if the user ended it early.
    fn measure_loss(&self, one: &mut Searched, sized: &ToSearch, lab: &mut Lab<'_>) -> Result<bool, Failure> {
        let Some(step) = self.frame_loss else { return Ok(true) };
        let settings = CurveSettings {
            most: sized.most,
            least: self.min,
            beyond: one.machine.beyond(),
            step,
            duration: self.trial,
            tolerance: self.tolerance,
            late: self.late,
        };
        let name = format!("{} frame loss", one.size);
        let curve = one.curve.insert(Curve::new(settings));
        while let Some(trial) = curve.next_trial() {
            let Some(measured) = lab.run(&name, sized, &trial)? else { return Ok(false) };
            curve.tell(measured.outcome);
            if let Some(run) = curve.runs().last().filter(|_| self.verbose && !self.quiet) {
                lab.progress.note(format!("{name}: {}", search::trial_words(run, &measured)));
            }
        }
        Ok(true)
    }

    /// With `--back-to-back`, finds the longest burst without loss. Returns false if the user ended it early.
    fn find_bursts(&self, one: &mut Searched, sized: &ToSearch, lab: &mut Lab<'_>) -> Result<bool, Failure> {
        if self.back_to_back == 0 {
            return Ok(true);
        }
        let longest =
            u128::from(sized.most.millis()) * u128::from(self.longest_burst.as_ps()) / (1_000 * u128::from(PS_PER_S));
        let settings = BurstSettings {
            rate: sized.most,
            longest: (longest as u64).max(1),
            width: self.width,
            repeats: self.back_to_back,
            tolerance: Share::from_ppb(self.tolerance.ppb().saturating_mul(BURST_TOLERANCE).min(Share::ONE.ppb())),
        };
        let name = format!("{} burst", one.size);
        let bursts = one.bursts.insert(Bursts::new(settings));
        while let Some(trial) = bursts.next_trial() {
            let Some(measured) = lab.run(&name, sized, &trial)? else { return Ok(false) };
            bursts.tell(measured.outcome);
            if let Some(run) = bursts.runs().last().filter(|_| self.verbose && !self.quiet) {
                let flaw = search::flaw_words(run.flaw);
                let (frames, lost) = (output::thousands(run.frames), output::thousands(run.outcome.lost));
                let line = format!("{}: burst of {frames} frames: {lost} lost{flaw}", one.size);
                lab.progress.note(line);
            }
        }
        Ok(true)
    }

    /// Settings that trials depend on; a search with other settings cannot resume from them.
    fn key(&self, device: &Device) -> String {
        format!("{device:?} {:?} seed {}", self.streams, self.seed)
    }

    /// Updates the current bounds, and prints the trial with `-v`.
    fn say(&self, one: &Searched, lab: &mut Lab<'_>) {
        let goals = one.machine.found().into_iter().zip(&self.loss);
        let known: Vec<String> = goals
            .map(|(found, loss)| {
                let known = search::known_words(&found);
                if self.loss.len() > 1 { format!("loss {loss}: {known}") } else { known }
            })
            .collect();
        lab.known = known.join("; ");
        let last = one.machine.runs().last().zip(one.measured.last());
        if let Some((run, measured)) = last.filter(|_| self.verbose && !self.quiet) {
            let line = format!("{}: {}; {}", one.size, search::trial_words(run, measured), lab.known);
            lab.progress.note(line);
        }
    }
}
