use super::parse;
use crate::files::OnDisk;
use crate::output::{self, Failure};
use crate::stop::Stop;
use crate::trials::{Device, Journal, Measured};
use engine::schedules::Files as _;
use engine::search::{Found, Goal, Search as Machine, Settings, Trial};
use engine::sources::{SizeSpec, Sizes, Stack, StreamSpec};
use engine::stages::StageConfig;
use scenario::{PortSpec, Problems, Text, parse_stream};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use units::{BitRate, FrameRate, PS_PER_S, Share, Span, WireLen};

/// Find the highest rate without more loss than a goal
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe search --dut 'limit key dst-ip rate 63209472bps burst 64B' --trial 10s --width 0.1%
  netlathe search --out eth1 --in eth2 --size 64B --size imix --loss 0% --loss 0.5% --trial 10s --max 1Mpps
  netlathe search --out eth1 --in eth2 --method mlrsearch --loss 0% --loss 0.5% --trial 1s --sum 21s --json

Each trial sends a constant load for --trial and counts what comes back. rfc2544 halves the interval
by single trials; mlrsearch (RFC 9971) settles a load by trials of --sum together, of which a share
--exceed may be bad, and begins with short ones. A trial at which the load was not really offered does
not count; the verdict then is tester-limited. --dut names stages that are tried in virtual time.")]
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
    /// Frame sizes, each searched by itself
    #[arg(long = "size", value_name = "SIZES", default_value = "64B")]
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
    /// mlrsearch: share of them that may be bad
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = parse::<Share>)]
    exceed: Share,
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
    /// Print no report for people
    #[arg(short, long)]
    quiet: bool,
}

/// One size of a search, found or not.
struct Searched {
    size: String,
    machine: Machine,
    measured: Vec<Measured>,
    found: Vec<Found>,
}

impl Search {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (device, sized) = self.read()?;
        let goals = self.goals()?;
        let stop = Stop::on_signals()?;
        let mut journal = Journal::open(self.trials.as_deref(), &self.key(&device))?;
        let mut searched = Vec::new();
        for (size, specs, mean_wire) in sized {
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
                confirm: self.confirm,
            };
            let mut one = Searched { size, machine: Machine::new(settings), measured: Vec::new(), found: Vec::new() };
            while let Some(trial) = one.machine.next_trial().filter(|_| !stop.asked()) {
                let measured = match journal.next(&one.size, &trial)? {
                    Some(measured) => measured,
                    None => {
                        let measured = device.run(&specs, &trial, self.seed)?;
                        journal.add(&one.size, &trial, &measured)?;
                        measured
                    }
                };
                one.machine.tell(trial, measured.outcome);
                one.measured.push(measured);
                self.say(&one, &trial);
            }
            one.found = one.machine.found();
            let whole = one.machine.next_trial().is_none();
            searched.push(one);
            if !whole {
                output::note("ended before all was found; --trials FILE would keep the trials to go on from");
                break;
            }
        }
        if self.json {
            output::print(&(self.report(&searched, &goals).to_string() + "\n"))?;
        } else if !self.quiet {
            output::print(&table(&searched, &goals))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Reads what is not read by its option alone: the device, and for each size the streams and the mean
    /// length of their frames on the line.
    #[expect(clippy::type_complexity, reason = "three things of each size, taken apart at once")]
    fn read(&self) -> Result<(Device, Vec<(String, Vec<StreamSpec>, u64)>), Failure> {
        let mut problems = Problems::default();
        let device = match (&self.output, &self.input) {
            (Some(out), Some(input)) => {
                for (option, port) in [("--out", out), ("--in", input)] {
                    let read = problems.read(&Text::option(option, port.clone()), PortSpec::parse);
                    if let Some(port) = read.filter(|port| port.is_virtual() || *port == PortSpec::Null) {
                        let text = Text::option(option, "");
                        problems
                            .add(&text.origin, format!("'{port}' is no live port: name an interface, or use --dut"));
                    }
                }
                Device::Ports { out: out.clone(), input: input.clone(), streams: self.streams.clone() }
            }
            _ => {
                for stage in &self.dut {
                    problems.read(&Text::option("--dut", stage.clone()), StageConfig::parse);
                }
                Device::Stages(self.dut.clone())
            }
        };
        let mut sized = Vec::new();
        for size in &self.sizes {
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
            sized.push((size.clone(), specs, bytes.div_ceil(DRAWS)));
        }
        problems.unless_any(Some((device, sized))).map_err(Failure::new)
    }

    fn goals(&self) -> Result<Vec<Goal>, Failure> {
        let sum = self.sum.unwrap_or(self.trial * 21);
        if self.width == Share::default() || self.trial == Span::ZERO {
            return Err(Failure::new(
                "--width: bounds of no width and trials of no length never end: write 0.5% and 1s",
            ));
        }
        if sum < self.trial || self.exceed >= Share::ONE {
            return Err(Failure::new(
                "--sum: it is shorter than a trial, or all may be bad: write --sum 21s --exceed 50%",
            ));
        }
        let goal = |loss: &Share| match self.method.as_str() {
            "rfc2544" => Goal::rfc2544(*loss, self.trial, self.width),
            _ => Goal {
                loss: *loss,
                exceed: self.exceed,
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

    fn say(&self, one: &Searched, trial: &Trial) {
        if self.json || self.quiet {
            return;
        }
        let Some(run) = one.machine.runs().last() else { return };
        let flaw = run.flaw.map_or(String::new(), |flaw| format!(", does not count: {}", flaw.name()));
        output::note(format!(
            "{}: {} for {}: {} sent, {} lost{flaw}",
            one.size,
            trial.load,
            trial.duration,
            output::thousands(run.outcome.sent),
            output::thousands(run.outcome.lost)
        ));
    }

    fn report(&self, searched: &[Searched], goals: &[Goal]) -> Value {
        let fps = |rate: FrameRate| rate.millis() as f64 / 1_000.0;
        let of = |one: &Searched| {
            let found = goals.iter().zip(&one.found).map(|(goal, found)| {
                json!({
                    "loss": goal.loss.as_f64(),
                    "lower_fps": found.lower.map(fps),
                    "upper_fps": found.upper.map(fps),
                    "conditional_throughput_fps": found.throughput,
                    "verdict": found.verdict.name(),
                    "delay": found.lower.and_then(|lower| delay_at(one, lower)),
                })
            });
            let trials = one.machine.runs().iter().zip(&one.measured).map(|(run, measured)| {
                json!({
                    "load_fps": fps(run.trial.load),
                    "duration_ns": run.trial.duration.as_ns_f64(),
                    "sent": run.outcome.sent,
                    "lost": run.outcome.lost,
                    "loss": run.loss(),
                    "took_ns": run.outcome.took.as_ns_f64(),
                    "receiver_missed": run.outcome.missed,
                    "flaw": run.flaw.map(engine::search::Flaw::name),
                    "delay": measured.delay,
                })
            });
            json!({"size": one.size, "goals": found.collect::<Vec<_>>(), "trials": trials.collect::<Vec<_>>()})
        };
        json!({
            "schema": 1,
            "command": "search",
            "method": self.method,
            "width": self.width.as_f64(),
            "searches": searched.iter().map(of).collect::<Vec<_>>(),
            "limits": {
                "definitions": {
                    "load": "intended frames/s; a load that was not offered within the tolerance is in no bound",
                    "lower_fps": "relevant lower bound: the highest load within the goal, below all beyond it",
                    "conditional_throughput_fps": "forwarded at the lower bound in all but the share of time that the goal lets go (RFC 9971)",
                    "delay": "one-way, ns, of the longest trial at that load",
                },
            },
        })
    }
}

/// The delay of the last of the longest trials at a load.
fn delay_at(one: &Searched, load: FrameRate) -> Option<&Value> {
    let at =
        one.machine.runs().iter().zip(&one.measured).filter(|(run, _)| run.trial.load == load && run.flaw.is_none());
    at.max_by_key(|(run, _)| run.trial.duration.as_ps()).and_then(|(_, measured)| measured.delay.as_ref())
}

fn table(searched: &[Searched], goals: &[Goal]) -> String {
    let mut text =
        format!("{:<14}{:>9}{:>18}{:>18}{:>16}  verdict\n", "size", "loss", "frames/s", "not at", "median delay");
    for one in searched {
        for (goal, found) in goals.iter().zip(&one.found) {
            let rate = |rate: Option<FrameRate>| {
                rate.map_or("-".to_owned(), |rate| format!("{:.3}", rate.millis() as f64 / 1_000.0))
            };
            let delay = found.lower.and_then(|lower| delay_at(one, lower)?.get("p50")?.as_f64());
            let delay = delay.map_or("-".to_owned(), output::brief);
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:<14}{:>9}{:>18}{:>18}{:>16}  {} ({} trials)",
                one.size,
                goal.loss.to_string(),
                rate(found.lower),
                rate(found.upper),
                delay,
                found.verdict.name(),
                one.machine.runs().len()
            );
        }
    }
    text
}

/// Frames of a trial: as many as are due in its time, one at least.
pub(crate) fn frames(trial: &Trial) -> u64 {
    let frames = u128::from(trial.load.millis()) * u128::from(trial.duration.as_ps()) / (1_000 * u128::from(PS_PER_S));
    u64::try_from(frames).unwrap_or(u64::MAX).max(1)
}
