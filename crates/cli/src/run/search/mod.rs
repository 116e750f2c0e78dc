//! `netlathe search`: its options, and the order of its trials. What is said of them is in `report`, and how
//! options are read together in `asked`.

pub(crate) mod trials;

use crate::options::parse;
use crate::output::{self, Failure};
use crate::plan::search::ToSearch;
use crate::render::output_file::Table;
use crate::render::page_folder::PageFolder;
use crate::render::progress::Progress;
use crate::render::report_printer;
use crate::render::search;
use crate::run::readiness;
use crate::run::search::trials::{Device, Journal, Measured};
use crate::run::stop::Stop;
use engine::search::{BurstSettings, Bursts, Curve, CurveSettings, Found, Goal, Search as Machine, Settings, Trial};
use engine::sources::StreamSpec;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BitRate, FrameRate, PS_PER_S, Share, Span};

/// Find the highest rate whose loss stays within a goal
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe search --out <PORT> --in <PORT> [OPTIONS]
       netlathe search --dut <STAGE> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe search --dut 'limit key dst-ip rate 63209472bps mode police burst 64B' --trial 1s --width 0.1% --max 1Mpps
  netlathe search --out eth1 --in eth2 --size rfc2544 --trial 60s --csv throughput.csv
  netlathe search --out eth1 --in eth2 --size 64B --size imix --loss 0% --loss 0.5% --trial 10s --max 1Mpps
  netlathe search --out eth1 --in eth2 --gateway 198.18.0.254 --max 1Mpps
  netlathe search --out eth1 --in eth2 --method mlrsearch --loss 0% --loss 0.5% --trial 1s --sum 21s --json
  netlathe search --out eth1 --in eth2 --trial 60s --latency 120s --frame-loss 10% --back-to-back 50 --report results

Each trial sends a constant load for --trial and counts the frames that come back. rfc2544 halves the
interval, one trial per load. mlrsearch (RFC 9971) adds up trials of a load, up to --sum; a share --exceed
of them may be bad, and it begins with short ones. A trial whose load the tester did not offer does not
count. If repeating it does not help, the verdict is tester-limited.

--latency sends the found rate once more. --frame-loss measures the loss at each load from the highest
down (RFC 2544, 26.3). --back-to-back finds the longest burst without loss (26.4). A router needs
--gateway and a route to the streams' destinations: --in answers ARP, NDP and pings for them. --dut names
stages to test in virtual time.")]
pub(crate) struct Search {
    /// Interface to send frames on
    #[arg(long = "out", value_name = "PORT", required_unless_present = "dut", requires = "input")]
    pub(crate) output: Option<String>,
    /// Interface to receive them on
    #[arg(long = "in", value_name = "PORT", requires = "output")]
    pub(crate) input: Option<String>,
    /// Instead of ports: a stage to test in virtual time; several are passed in order
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["output", "input"])]
    pub(crate) dut: Vec<String>,
    /// The stream to send, without a size
    #[arg(long = "stream", value_name = "SPEC", default_value = "udp 198.18.0.1:1024 > 198.19.0.1:9")]
    pub(crate) streams: Vec<String>,
    /// A frame size or a mix, as 64B, imix; several are searched in turn; rfc2544 means its seven Ethernet sizes,
    /// 64B to 1518B; 64B,1518B is one mix
    #[arg(long = "size", value_name = "SIZE", default_value = "64B")]
    pub(crate) sizes: Vec<String>,
    /// Allowed loss; several goals are searched in one run
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse::<Share>)]
    pub(crate) loss: Vec<Share>,
    /// Search method
    #[arg(long, default_value = "rfc2544", value_parser = ["rfc2544", "mlrsearch"])]
    pub(crate) method: String,
    /// Duration of a trial
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) trial: Span,
    /// mlrsearch: total duration of the trials at one load [default: 21 trials]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    pub(crate) sum: Option<Span>,
    /// mlrsearch: share of the trials that may exceed the loss [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse::<Share>)]
    pub(crate) exceed: Option<Share>,
    /// Width of the interval at which the search ends
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = parse::<Share>)]
    pub(crate) width: Share,
    /// Lowest load
    #[arg(long, value_name = "RATE", default_value = "100pps", value_parser = parse::<FrameRate>)]
    pub(crate) min: FrameRate,
    /// Highest load, as 1Mpps [default: --line-rate at the mean frame size]
    #[arg(long, value_name = "RATE", value_parser = parse::<FrameRate>)]
    pub(crate) max: Option<FrameRate>,
    /// Line rate, the upper limit of the load
    #[arg(long, value_name = "RATE", default_value = "10Gbps", value_parser = parse::<BitRate>)]
    pub(crate) line_rate: BitRate,
    /// Live: how long to wait for missing frames after the last was sent
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, conflicts_with = "dut")]
    pub(crate) wait: Span,
    /// Live: largest lateness of a departure in a trial with loss; beyond it the trial does not count
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse::<Span>, conflicts_with = "dut")]
    pub(crate) late: Span,
    /// Live: the neighbour to send frames to, resolved by ARP or neighbour discovery, as for gen
    #[arg(long = "gateway", value_name = "IP", conflicts_with = "dut")]
    pub(crate) gateways: Vec<String>,
    /// Live: use interfaces that carry this host's own traffic, and cut that traffic off
    #[arg(long, conflicts_with = "dut")]
    pub(crate) take_over: bool,
    /// Send at the found rate again for this time to measure latency (RFC 2544 says 120s)
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    pub(crate) latency: Option<Span>,
    /// Measure the loss rate: send at --max or the line rate, then lower the load by this share of it until two loads
    /// in a row lose nothing (RFC 2544 says 10% or finer)
    #[arg(long, value_name = "SHARE", value_parser = parse::<Share>)]
    pub(crate) frame_loss: Option<Share>,
    /// Find the longest burst without loss, N times, at --max or the line rate (RFC 2544 says 50)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) back_to_back: u32,
    /// Longest burst to try, as a time
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, requires = "back_to_back")]
    pub(crate) longest_burst: Span,
    /// Extra trials at each bound found, to confirm it [default: 2, for mlrsearch 0]
    #[arg(long, value_name = "N")]
    pub(crate) confirm: Option<u32>,
    /// Allowed deviation of a trial's rate or duration
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse::<Share>)]
    pub(crate) tolerance: Share,
    /// Keep all trials in this file, and resume from the trials in it
    #[arg(long, value_name = "FILE")]
    pub(crate) trials: Option<PathBuf>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report as an HTML page, DIR/report.html, with all trials in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Write the results to this file as CSV, one line per size and goal, and per load of --frame-loss and --back-to-back
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Show the current load and the bounds so far in a line on stderr, if that is a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    pub(crate) progress: String,
    /// Print a line on stderr for each trial, and when the first frames pass
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// One size of a search, found or not.
pub(crate) struct Searched {
    pub(crate) size: String,
    /// The highest load to try.
    pub(crate) most: FrameRate,
    pub(crate) machine: Machine,
    pub(crate) measured: Vec<Measured>,
    pub(crate) found: Vec<Found>,
    /// Of each goal: the found rate once more, for its latency.
    pub(crate) latency: Vec<Option<(Trial, Measured)>>,
    pub(crate) curve: Option<Curve>,
    pub(crate) bursts: Option<Bursts>,
}

/// What trials are run with.
struct Lab<'a> {
    device: &'a Device,
    journal: Journal,
    stop: Stop,
    seed: u64,
    /// Of the next trial of a size.
    number: usize,
    /// Set until readiness has been announced. The value says whether to print a line as well.
    untold: AtomicBool,
    verbose: bool,
    progress: Progress,
    /// What is known of the size that is searched, in words.
    known: String,
}

impl Lab<'_> {
    /// Runs a trial, or takes it from those that were kept; `None` once the user wants the end.
    fn run(&mut self, name: &str, specs: &[StreamSpec], trial: &Trial) -> Result<Option<Measured>, Failure> {
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
        let measured = self.device.run(specs, trial, (self.seed, number), &self.stop, ready);
        if self.stop.asked() {
            // The signal ended the trial, too, which says nothing then.
            return Ok(None);
        }
        let measured = measured?;
        self.journal.add(name, trial, &measured)?;
        Ok(Some(measured))
    }
}

/// Allowed excess of a burst's duration over a trial's, as a share: only the last frame matters.
const BURST_TOLERANCE: u32 = 10;

impl Search {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (device, sized) = self.read()?;
        let goals = self.goals()?;
        self.check_files()?;
        let folder = self.folder.as_deref().map(PageFolder::open).transpose()?;
        let csv = self.csv.as_deref().map(Table::create).transpose()?;
        let stop = Stop::on_signals()?;
        let journal = Journal::open(self.trials.as_deref(), &self.key(&device))?;
        let mut lab = Lab {
            device: &device,
            journal,
            stop,
            seed: self.seed,
            number: 0,
            untold: true.into(),
            verbose: self.verbose,
            progress: Progress::wanted(self.progress == "auto" && !self.quiet, ["search"]),
            known: String::new(),
        };
        let (searched, failure) = self.search(sized, &goals, &mut lab)?;
        let kept = lab.journal.finish();
        drop(lab);
        let report = search::json(&self, &searched, &goals);
        let printed = match self.json {
            true => report_printer::print(&(report.to_string() + "\n")),
            false if self.quiet => Ok(()),
            false => report_printer::print(&search::table(&searched, &goals)),
        };
        let page = folder.map_or(Ok(()), |mut folder| {
            let page = search::page(&self, &searched, &goals);
            folder.write_search(&page, report.to_string() + "\n", failure.as_ref())
        });
        let lines = csv.map_or(Ok(()), |csv| csv.finish(&search::csv(&searched, &goals)));
        output::all([failure.map_or(Ok(()), Err), kept, printed, page, lines])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Searches one size after the other. Returns the results and the failure that ended the search, unless it failed before there was
    /// anything to report.
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
            let Some(measured) = lab.run(&one.size, &sized.specs, &trial)? else { return Ok(false) };
            one.machine.tell(trial, measured.outcome);
            one.measured.push(measured);
            self.say(one, lab);
        }
        Ok(self.measure_latency(one, sized, lab)?
            && self.measure_loss(one, sized, lab)?
            && self.find_bursts(one, sized, lab)?)
    }

    /// Sends each found rate again, with `--latency`. Returns false if the user ended it early.
    fn measure_latency(&self, one: &mut Searched, sized: &ToSearch, lab: &mut Lab<'_>) -> Result<bool, Failure> {
        let Some(duration) = self.latency else { return Ok(true) };
        let name = format!("{} latency", one.size);
        for found in one.machine.found() {
            let Some(load) = found.lower else {
                one.latency.push(None);
                continue;
            };
            let trial = Trial { load, duration };
            let Some(measured) = lab.run(&name, &sized.specs, &trial)? else { return Ok(false) };
            one.latency.push(Some((trial, measured)));
        }
        Ok(true)
    }

    /// Measures the loss at falling loads, with `--frame-loss`. Returns false if the user ended it early.
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
            let Some(measured) = lab.run(&name, &sized.specs, &trial)? else { return Ok(false) };
            curve.tell(measured.outcome);
            if let Some(run) = curve.runs().last().filter(|_| self.verbose && !self.quiet) {
                lab.progress.aside(|| output::note(format!("{name}: {}", search::trial_words(run))));
            }
        }
        Ok(true)
    }

    /// Finds the longest burst without loss, with `--back-to-back`. Returns false if the user ended it early.
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
            let Some(measured) = lab.run(&name, &sized.specs, &trial)? else { return Ok(false) };
            bursts.tell(measured.outcome);
            if let Some(run) = bursts.runs().last().filter(|_| self.verbose && !self.quiet) {
                let flaw = search::flaw_words(run.flaw);
                let (frames, lost) = (output::thousands(run.frames), output::thousands(run.outcome.lost));
                let line = format!("{}: burst of {frames} frames: {lost} lost{flaw}", one.size);
                lab.progress.aside(|| output::note(line));
            }
        }
        Ok(true)
    }

    /// Settings that trials depend on; a search with other settings cannot resume from them.
    fn key(&self, device: &Device) -> String {
        format!("{device:?} {:?} seed {}", self.streams, self.seed)
    }

    /// Notes what is known by now, and prints the trial if each is wanted.
    fn say(&self, one: &Searched, lab: &mut Lab<'_>) {
        let goals = one.machine.found().into_iter().zip(&self.loss);
        let known: Vec<String> = goals
            .map(|(found, loss)| {
                let known = search::known_words(&found);
                if self.loss.len() > 1 { format!("loss {loss}: {known}") } else { known }
            })
            .collect();
        lab.known = known.join("; ");
        if let Some(run) = one.machine.runs().last().filter(|_| self.verbose && !self.quiet) {
            let line = format!("{}: {}; {}", one.size, search::trial_words(run), lab.known);
            lab.progress.aside(|| output::note(line));
        }
    }
}
