//! `netlathe search`: its options, and the order of its trials. What is said of them is in `report`.

mod report;

use super::parse;
use crate::files::{self, OnDisk};
use crate::output::{self, Failure};
use crate::page_folder::{FILES, PageFolder};
use crate::ready;
use crate::stop::Stop;
use crate::table::Table;
use crate::trials::{Device, Journal, Measured, read_stage};
use engine::Line;
use engine::schedules::Files as _;
use engine::search::{BurstSettings, Bursts, Found, Goal, Search as Machine, Settings, Trial};
use engine::sources::{SizeSpec, Sizes, Stack, StreamSpec};
use scenario::{PortSpec, Problems, Text, parse_stream};
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BitRate, FrameRate, PS_PER_S, Share, Span, WireLen};

/// Find the highest rate without more loss than a goal
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe search --out <PORT> --in <PORT> [OPTIONS]
       netlathe search --dut <STAGE> [OPTIONS]")]
#[command(after_help = "\
Examples:
  netlathe search --dut 'limit key dst-ip rate 63209472bps burst 64B' --trial 10s --width 0.1%
  netlathe search --out eth1 --in eth2 --size rfc2544 --trial 60s --csv throughput.csv
  netlathe search --out eth1 --in eth2 --size 64B --size imix --loss 0% --loss 0.5% --trial 10s --max 1Mpps
  netlathe search --out eth1 --in eth2 --method mlrsearch --loss 0% --loss 0.5% --trial 1s --sum 21s --json
  netlathe search --out eth1 --in eth2 --trial 60s --latency 120s --back-to-back 50 --trials t.jsonl --report results

Each trial sends a constant load for --trial and counts what comes back. rfc2544 halves the interval
by single trials; mlrsearch (RFC 9971) settles a load by trials of --sum together, of which a share
--exceed may be bad, and begins with short ones. A trial at which the load was not really offered does
not count; if that does not change, the verdict is tester-limited. --latency sends the found rate once
more; --back-to-back looks for the longest burst without loss (RFC 2544, 26.4). --dut names stages that
are tried in virtual time.")]
pub(crate) struct Search {
    /// Interface that frames leave by
    #[arg(long = "out", value_name = "PORT", required_unless_present = "dut", requires = "input")]
    output: Option<String>,
    /// Interface at which they come back
    #[arg(long = "in", value_name = "PORT", requires = "output")]
    input: Option<String>,
    /// Instead of ports: a stage to be tried in virtual time; several are passed in order
    #[arg(long, value_name = "STAGE", conflicts_with_all = ["output", "input"])]
    dut: Vec<String>,
    /// What to send, without a size
    #[arg(long = "stream", value_name = "SPEC", default_value = "udp 198.18.0.1:1024 > 198.19.0.1:9")]
    streams: Vec<String>,
    /// A frame size or a mix, as 64B, imix; several are searched one after the other, and rfc2544 is its seven for Ethernet,
    /// 64B to 1518B. 64B,1518B is one mix
    #[arg(long = "size", value_name = "SIZE", default_value = "64B")]
    sizes: Vec<String>,
    /// Loss that a goal allows; several goals are found in one run
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse::<Share>)]
    loss: Vec<Share>,
    /// How loads are settled
    #[arg(long, default_value = "rfc2544", value_parser = ["rfc2544", "mlrsearch"])]
    method: String,
    /// How long a trial is
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::<Span>, allow_hyphen_values = true)]
    trial: Span,
    /// mlrsearch: trials of a load, together [default: 21 trials]
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    sum: Option<Span>,
    /// mlrsearch: share of them that may be bad [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse::<Share>)]
    exceed: Option<Share>,
    /// How close the bounds are to be
    #[arg(long, value_name = "SHARE", default_value = "0.5%", value_parser = parse::<Share>)]
    width: Share,
    /// The least load
    #[arg(long, value_name = "RATE", default_value = "100pps", value_parser = parse::<FrameRate>)]
    min: FrameRate,
    /// The most load, as 1Mpps [default: --line-rate at the mean frame size]
    #[arg(long, value_name = "RATE", value_parser = parse::<FrameRate>)]
    max: Option<FrameRate>,
    /// Line rate that bounds the load
    #[arg(long, value_name = "RATE", default_value = "10Gbps", value_parser = parse::<BitRate>)]
    line_rate: BitRate,
    /// Live: how long frames are waited for after the last was sent, if not all have come
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, conflicts_with = "dut")]
    wait: Span,
    /// Live: how late a departure may be in a trial whose late frames may be those that were lost
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = parse::<Span>, conflicts_with = "dut")]
    late: Span,
    /// Live: the neighbour that frames go to, whose hardware address is asked for, as for gen
    #[arg(long = "gateway", value_name = "IP", conflicts_with = "dut")]
    gateways: Vec<String>,
    /// Send the found rate once more for so long, for its latency (RFC 2544 says 120s)
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>)]
    latency: Option<Span>,
    /// Find the longest burst without loss, N times, at --max or the line rate (RFC 2544 says 50)
    #[arg(long, value_name = "N", default_value_t = 0)]
    back_to_back: u32,
    /// The longest burst that is tried, in time
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse::<Span>, requires = "back_to_back")]
    longest_burst: Span,
    /// More trials at each bound that was found, to see whether it stays
    #[arg(long, value_name = "N", default_value_t = 2)]
    confirm: u32,
    /// How far a trial's rate or duration may be off
    #[arg(long, value_name = "SHARE", default_value = "0.1%", value_parser = parse::<Share>)]
    tolerance: Share,
    /// Keep all trials in this file, and go on from those that are in it
    #[arg(long, value_name = "FILE")]
    trials: Option<PathBuf>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the report as one JSON object, and nothing else, on stdout
    #[arg(long)]
    json: bool,
    /// Write the report as a page, DIR/report.html, with all trials in DIR/report.json
    #[arg(long = "report", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write what was found to this file, a line for each size and goal
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Say what came of each trial, on stderr; with --json only if that is a terminal
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "never"])]
    progress: String,
    /// Say when frames of the first trial pass, on stderr
    #[arg(short, long)]
    verbose: bool,
    /// Print no report for people
    #[arg(short, long)]
    quiet: bool,
}

/// A size that is to be searched.
struct ToSearch {
    /// As it was written.
    size: String,
    /// The streams with it.
    specs: Vec<StreamSpec>,
    /// Mean length of their frames on the line, in bytes.
    mean_wire: u64,
}

/// One size of a search, found or not.
struct Searched {
    size: String,
    machine: Machine,
    measured: Vec<Measured>,
    found: Vec<Found>,
    /// Of each goal: the found rate once more, for its latency.
    latency: Vec<Option<(Trial, Measured)>>,
    bursts: Option<Bursts>,
}

/// What trials are run with.
struct Lab<'a> {
    device: &'a Device,
    journal: Journal,
    stop: Stop,
    seed: u64,
    /// Of the next trial of a size.
    number: usize,
    /// Nobody was told yet that frames pass, and whether to say it in a line, too.
    untold: AtomicBool,
    verbose: bool,
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
        let ready = || {
            if self.untold.swap(false, Ordering::Relaxed) {
                ready::tell_if(self.verbose);
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

/// The sizes of frames on Ethernet (RFC 2544, 9.1).
const RFC_2544: [&str; 7] = ["64B", "128B", "256B", "512B", "1024B", "1280B", "1518B"];

/// A burst may take so many times more than a trial, as a share: its last frame alone decides.
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
        };
        let mut searched = Vec::new();
        let mut failure = None;
        for ToSearch { size, specs, mean_wire } in sized {
            let line =
                FrameRate::from_millis((u128::from(self.line_rate.bps()) * 1_000 / (u128::from(mean_wire) * 8)) as u64);
            let most = self.max.unwrap_or(line);
            if most < self.min {
                return Err(Failure::new(format!("--max: {most} is below --min {}: write more", self.min)));
            }
            let settings = Settings {
                goals: goals.clone(),
                least: self.min,
                most,
                tolerance: self.tolerance,
                late: self.late,
                confirm: self.confirm,
            };
            let machine = Machine::new(settings);
            let mut one =
                Searched { size, machine, measured: Vec::new(), found: Vec::new(), latency: Vec::new(), bursts: None };
            let whole = self.settle(&mut one, &specs, most, &mut lab);
            one.found = one.machine.found();
            let tried = !one.measured.is_empty();
            searched.push(one);
            match whole {
                Ok(true) => continue,
                Ok(false) => {}
                // Before the first trial there is nothing to report.
                Err(error) if searched.len() == 1 && !tried => return Err(error),
                Err(error) => failure = Some(error),
            }
            if self.trials.is_none() {
                output::note("ended before all was found; --trials FILE would keep the trials to go on from");
            }
            break;
        }
        for one in &searched {
            report::remarks(one).iter().for_each(|remark| output::note(format!("{}: {remark}", one.size)));
        }
        let report = report::json(&self, &searched, &goals);
        let printed = match self.json {
            true => output::print(&(report.to_string() + "\n")),
            false if self.quiet => Ok(()),
            false => output::print(&report::table(&searched, &goals)),
        };
        let page = folder.map_or(Ok(()), |mut folder| {
            let page = report::page(&self, &searched, &goals);
            folder.write_search(&page, report.to_string() + "\n", failure.as_ref())
        });
        let lines = csv.map_or(Ok(()), |csv| csv.finish(&report::csv(&searched, &goals)));
        output::all([failure.map_or(Ok(()), Err), printed, page, lines])?;
        Ok(ExitCode::SUCCESS)
    }

    /// Finds all there is to be found of a size. False if the user wanted the end before.
    fn settle(
        &self,
        one: &mut Searched,
        specs: &[StreamSpec],
        most: FrameRate,
        lab: &mut Lab<'_>,
    ) -> Result<bool, Failure> {
        lab.number = 0;
        while let Some(trial) = one.machine.next_trial() {
            let Some(measured) = lab.run(&one.size, specs, &trial)? else { return Ok(false) };
            one.machine.tell(trial, measured.outcome);
            one.measured.push(measured);
            self.say(one, &trial);
        }
        Ok(self.measure_latency(one, specs, lab)? && self.find_bursts(one, specs, most, lab)?)
    }

    /// Sends each rate that was found once more, if that is wanted. False if the user wanted the end before.
    fn measure_latency(&self, one: &mut Searched, specs: &[StreamSpec], lab: &mut Lab<'_>) -> Result<bool, Failure> {
        let Some(duration) = self.latency else { return Ok(true) };
        let name = format!("{} latency", one.size);
        for found in one.machine.found() {
            let Some(load) = found.lower else {
                one.latency.push(None);
                continue;
            };
            let trial = Trial { load, duration };
            let Some(measured) = lab.run(&name, specs, &trial)? else { return Ok(false) };
            one.latency.push(Some((trial, measured)));
        }
        Ok(true)
    }

    /// Looks for the longest burst without loss, if that is wanted. False if the user wanted the end before.
    fn find_bursts(
        &self,
        one: &mut Searched,
        specs: &[StreamSpec],
        rate: FrameRate,
        lab: &mut Lab<'_>,
    ) -> Result<bool, Failure> {
        if self.back_to_back == 0 {
            return Ok(true);
        }
        let longest =
            u128::from(rate.millis()) * u128::from(self.longest_burst.as_ps()) / (1_000 * u128::from(PS_PER_S));
        let settings = BurstSettings {
            rate,
            longest: (longest as u64).max(1),
            width: self.width,
            repeats: self.back_to_back,
            tolerance: Share::from_ppb(self.tolerance.ppb().saturating_mul(BURST_TOLERANCE).min(Share::ONE.ppb())),
        };
        let name = format!("{} burst", one.size);
        let bursts = one.bursts.insert(Bursts::new(settings));
        while let Some(trial) = bursts.next_trial() {
            let Some(measured) = lab.run(&name, specs, &trial)? else { return Ok(false) };
            bursts.tell(measured.outcome);
            if let Some(run) = bursts.runs().last().filter(|_| self.tells()) {
                let flaw = run.flaw.map_or(String::new(), |flaw| format!(", does not count: {}", flaw.name()));
                let (frames, lost) = (output::thousands(run.frames), output::thousands(run.outcome.lost));
                output::note(format!("{}: burst of {frames} frames: {lost} lost{flaw}", one.size));
            }
        }
        Ok(true)
    }

    /// Reads what is not read by its option alone.
    fn read(&self) -> Result<(Device, Vec<ToSearch>), Failure> {
        let mut problems = Problems::default();
        let device = self.read_device(&mut problems);
        let sized = self.read_sizes(&mut problems);
        problems.unless_any(Some((device, sized))).map_err(Failure::new)
    }

    fn read_device(&self, problems: &mut Problems) -> Device {
        match (&self.output, &self.input) {
            (Some(out), Some(input)) => {
                for (option, port) in [("--out", out), ("--in", input)] {
                    let read = problems.read(&Text::option(option, port.clone()), PortSpec::parse);
                    if let Some(port) = read.filter(|port| port.is_virtual() || *port == PortSpec::Null) {
                        let text = Text::option(option, "");
                        problems
                            .add(&text.origin, format!("'{port}' is no live port: name an interface, or use --dut"));
                    }
                }
                let mut options = vec!["--wait".to_owned(), self.wait.to_string()];
                for gateway in &self.gateways {
                    problems.read(&Text::option("--gateway", gateway.clone()), |text| {
                        text.parse::<std::net::IpAddr>().map_err(|_| {
                            units::ParseError::new(format!("'{text}' is no IP address"), "write 10.0.0.1 or fd00::1")
                        })
                    });
                    options.extend(["--gateway".to_owned(), gateway.clone()]);
                }
                Device::Ports { out: out.clone(), input: input.clone(), streams: self.streams.clone(), options }
            }
            _ => {
                for stage in &self.dut {
                    problems.read(&Text::option("--dut", stage.clone()), |text| {
                        read_stage(text, Line::new(self.line_rate))
                    });
                }
                Device::Stages { stages: self.dut.clone(), line: self.line_rate }
            }
        }
    }

    /// No file is written by two options.
    fn check_files(&self) -> Result<(), Failure> {
        let pages = self.folder.iter().flat_map(|folder| FILES.map(|file| folder.join(file)));
        let pages: Vec<PathBuf> = pages.collect();
        let used = |option: &str, by: &str| Failure::new(format!("{option}: it is a file of {by}: name another"));
        for (option, path) in [("--csv", &self.csv), ("--trials", &self.trials)] {
            let Some(path) = path else { continue };
            if pages.iter().any(|page| files::same(page, path)) {
                return Err(used(option, "--report"));
            }
        }
        match (&self.csv, &self.trials) {
            (Some(csv), Some(trials)) if files::same(csv, trials) => Err(used("--csv", "--trials")),
            _ => Ok(()),
        }
    }

    fn read_sizes(&self, problems: &mut Problems) -> Vec<ToSearch> {
        let mut sized = Vec::new();
        let named = |size: &String| match size.as_str() {
            "rfc2544" => RFC_2544.map(str::to_owned).to_vec(),
            _ => vec![size.clone()],
        };
        for size in &self.sizes.iter().flat_map(named).collect::<Vec<_>>() {
            let words: Vec<&str> = size.split_whitespace().collect();
            let read = problems.read(&Text::option("--size", size.clone()), |_| {
                let (size, used) = SizeSpec::parse(&words)?;
                if used < words.len() {
                    return Err(units::ParseError::new(format!("'{}' follows the size", words[used]), "leave it out"));
                }
                Ok(size)
            });
            let Some(sizes) = read else { continue };
            let mut specs = Vec::new();
            for stream in &self.streams {
                let text = Text::option("--stream", stream.clone());
                // With its size from the start: what a stream needs depends on it.
                let mut spec = problems.read(&text, |text| parse_stream(&format!("{text} size {size}")));
                if let Some(StreamSpec { stack: Stack::Captured { path, frame, bytes }, .. }) = &mut spec {
                    *bytes = problems.read(&text, |_| OnDisk.frame(path, *frame));
                }
                if spec.as_ref().is_some_and(|spec| spec.is_stamped().is_ok_and(|stamped| !stamped)) {
                    problems.add(&text.origin, format!("frames of {size} have no room for the stamp, so nobody knows them again: write larger sizes"));
                }
                specs.extend(spec);
            }
            let random = engine::random::Random::stream(self.seed, "search/size");
            let mut sizes = Sizes::new(sizes, random);
            // The mean of a whole cycle of any named mix, and near that of a law.
            const DRAWS: u64 = 14_400;
            let bytes: u64 = (0..DRAWS).map(|_| u64::from(sizes.draw().bytes() + WireLen::OVERHEAD)).sum();
            sized.push(ToSearch { size: size.clone(), specs, mean_wire: bytes.div_ceil(DRAWS) });
        }
        sized
    }

    fn goals(&self) -> Result<Vec<Goal>, Failure> {
        let sum = self.sum.unwrap_or(self.trial * 21);
        let exceed = self.exceed.unwrap_or(Share::from_ppb(Share::ONE.ppb() / 2));
        if self.method == "rfc2544" {
            let other = [("--sum", self.sum.is_some()), ("--exceed", self.exceed.is_some())];
            if let Some((option, _)) = other.into_iter().find(|(_, said)| *said) {
                return Err(Failure::new(format!(
                    "{option}: by rfc2544 a single trial decides: add --method mlrsearch, or leave it out"
                )));
            }
        }
        if self.width == Share::default() || self.trial == Span::ZERO {
            return Err(Failure::new(
                "--width: bounds of no width and trials of no length never end: write 0.5% and 1s",
            ));
        }
        for (option, length) in [("--latency", self.latency), ("--longest-burst", Some(self.longest_burst))] {
            if length == Some(Span::ZERO) {
                return Err(Failure::new(format!("{option}: nothing is sent in no time: write 1s, or leave it out")));
            }
        }
        if sum < self.trial || exceed >= Share::ONE {
            return Err(Failure::new(
                "--sum: it is shorter than a trial, or all may be bad: write --sum 21s --exceed 50%",
            ));
        }
        let goal = |loss: &Share| match self.method.as_str() {
            "rfc2544" => Goal::rfc2544(*loss, self.trial, self.width),
            _ => Goal {
                loss: *loss,
                exceed,
                trial: self.trial,
                sum,
                width: self.width,
                initial: Span::from_ps(self.trial.as_ps() / 8),
            },
        };
        Ok(self.loss.iter().map(goal).collect())
    }

    /// What trials depend on: those of another search are not gone on from.
    fn key(&self, device: &Device) -> String {
        format!("{device:?} {:?} seed {}", self.streams, self.seed)
    }

    /// Each trial is told of.
    fn tells(&self) -> bool {
        self.progress == "auto" && !self.quiet && (!self.json || std::io::stderr().is_terminal())
    }

    /// Says what came of a trial, and what is known by now.
    fn say(&self, one: &Searched, trial: &Trial) {
        let Some(run) = one.machine.runs().last().filter(|_| self.tells()) else { return };
        let flaw = run.flaw.map_or(String::new(), |flaw| format!(", does not count: {}", flaw.name()));
        let bound = |rate: Option<FrameRate>| rate.map_or("?".to_owned(), |rate| rate.to_string());
        let known =
            one.machine.found().into_iter().map(|found| format!("{} to {}", bound(found.lower), bound(found.upper)));
        output::note(format!(
            "{}: {} for {}: {} sent, {} lost{flaw}; {}",
            one.size,
            trial.load,
            trial.duration,
            output::thousands(run.outcome.sent),
            output::thousands(run.outcome.lost),
            known.collect::<Vec<_>>().join(", ")
        ));
    }
}
