//! The trials of a search: run in virtual time or on ports, and stored in a file to resume from.

use crate::output::{self, Failure};
use crate::plan::files::read_text;
use crate::plan::search::{Device, ToSearch, read_stage};
use crate::render::search_results::{DirectionResult, Measured};
use crate::run::search::ports::{self, SearchStart};
use crate::run::stop::Stop;
use engine::schedules::{Draw, Target};
use engine::search::{Outcome, Trial};
use engine::sources::{StreamSpec, Streams};
use engine::{Line, Pipeline};
use serde_json::{Value, json};
use sim::{CountingSink, Limits, Lines, Observer, OfferedSource, WhenFull};
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use units::{FrameRate, PS_PER_S, Rate, Span, Time};

/// Ends a trial when the user ends the search.
struct StopObserver<'a>(&'a Stop);

impl Observer for StopObserver<'_> {
    fn go_on(&mut self, _: u64, _: Time) -> bool {
        !self.0.asked()
    }
}

/// Runs trial `number`, which seeds the random draws of a device. After a stop request the result is meaningless. Calls
/// `ready` when frames pass the ports. The first trial on ports begins at `start`.
pub(crate) fn run(
    device: &Device,
    sized: &ToSearch,
    trial: &Trial,
    (seed, number): (u64, usize),
    (stop, start): (&Stop, &mut SearchStart),
    ready: impl FnOnce() + Send,
) -> Result<Measured, Failure> {
    match device {
        Device::Stages { stages, line } => {
            in_virtual_time(stages, Line::new(*line), &sized.specs, trial, (seed, number), stop)
        }
        Device::Ports { directions, options } => {
            ports::run(directions, options, sized, trial, (seed, stop, start), ready)
        }
    }
}

/// Number of frames of a trial: those due in its duration, at least one.
pub(super) fn frames(trial: &Trial) -> u64 {
    let frames = u128::from(trial.load.millis()) * u128::from(trial.duration.as_ps()) / (1_000 * u128::from(PS_PER_S));
    u64::try_from(frames).unwrap_or(u64::MAX).max(1)
}

fn in_virtual_time(
    stages: &[String],
    line: Line,
    specs: &[StreamSpec],
    trial: &Trial,
    (seed, number): (u64, usize),
    stop: &Stop,
) -> Result<Measured, Failure> {
    let count = frames(trial);
    let schedule = |ask: &Target| {
        let draw = Draw { seed, path: "search", frames: Some(count) };
        ask.schedule(None, draw).map_err(|error| Failure::new(format!("{error}")))
    };
    let streams = Streams::new(specs, seed, 0).map_err(Failure::new)?;
    let mut source = OfferedSource::new(streams, schedule(&Target::Rate(Rate::Frames(trial.load)))?, count, line);
    let mut built = Vec::new();
    for (i, text) in stages.iter().enumerate() {
        // Built again for each trial, because stages keep state.
        let stage = read_stage(text, line).map_err(|error| Failure::new(format!("--dut: {error}")))?;
        built.push(stage.build(seed, &format!("trial{number}/dut/{i}")));
    }
    let mut pipeline = Pipeline::new(built, schedule(&Target::Nothing)?);
    let mut sink = CountingSink::default();
    let limits = Limits { duration: None, window: Span::from_ms(100), asked_gap: None };
    let run = sim::run(&mut source, &mut pipeline, &mut sink, limits, &mut StopObserver(stop));
    if let Some(failure) = run.failure {
        return Err(Failure::new(failure));
    }
    let streams = sink.streams.report(&[]);
    let received = streams.iter().filter_map(|stream| stream.received.as_ref());
    // Duplicates made by the device do not count as received.
    let came: u64 = received.clone().map(|received| received.received).sum();
    let duplicates = received.clone().map(|received| received.duplicates).sum();
    let delay =
        received.max_by_key(|received| received.received).and_then(|received| Some(json!(received.delay.as_ref()?)));
    let took = trial.duration + source.behind();
    let outcome = Outcome {
        sent: count,
        lost: count - came.min(count),
        took,
        missed: 0,
        late: Span::ZERO,
        late_frames: 0,
        directions: 1,
    };
    Ok(Measured { delay, duplicates, ..Measured::of(outcome) })
}

/// The texts of a list; empty if there is no list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The options that determine the trials of a kind.
fn options(name: &str) -> &'static str {
    match name {
        name if name.ends_with(" latency") => "--latency",
        name if name.ends_with(" frame loss") => "--frame-loss, --trial, --min and --max",
        name if name.ends_with(" burst") => "--back-to-back, --longest-burst, --width and --max",
        _ => "--size, --method, --loss, --trial, --width, --min, --max and --confirm",
    }
}

/// The file of trials: a JSON header line with the settings, then a JSON line per trial.
pub(crate) struct Journal {
    path: PathBuf,
    file: Option<Lines>,
    known: VecDeque<Value>,
}

impl Journal {
    /// Opens or creates the file. Refuses trials of another search.
    pub(crate) fn open(path: Option<&Path>, key: &str) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Journal { path: PathBuf::new(), file: None, known: VecDeque::new() });
        };
        let failed = |cause: std::io::Error| {
            Failure::new(format!("--trials: {}: {cause}: name a file that can be written", path.display()))
        };
        // A pipe or a device has no earlier trials, and reading it could wait forever.
        let is_stream = path.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir());
        let text = match if is_stream { Ok(String::new()) } else { read_text(path) } {
            Ok(text) => text,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(failed(cause)),
        };
        // Skips a line that was truncated when the search ended.
        let mut known: VecDeque<Value> = text.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let other =
            || Failure::new(format!("--trials: {} has trials of another search: name another file", path.display()));
        match known.pop_front() {
            Some(head) if head["search"] != key => return Err(other()),
            None if !text.is_empty() => return Err(other()),
            _ => {}
        }
        let mut file = Lines::create(path, WhenFull::Wait).map_err(Failure::new)?;
        let head = json!({"search": key});
        let lines = std::iter::once(&head).chain(&known).map(|line| format!("{line}\n")).collect::<String>();
        file.write_all(lines.as_bytes()).and_then(|()| file.flush()).map_err(failed)?;
        Ok(Journal { path: path.to_owned(), file: Some(file), known })
    }

    /// The result of this trial, if it is the next one in the file. After the first mismatch, the rest of the file is
    /// ignored.
    pub(crate) fn next(&mut self, size: &str, trial: &Trial) -> Result<Option<Measured>, Failure> {
        let Some(line) = self.known.pop_front() else { return Ok(None) };
        let number = |name: &str| line[name].as_u64();
        let same = line["size"] == size
            && number("load_mfps") == Some(trial.load.millis())
            && number("duration_ps") == Some(trial.duration.as_ps());
        let outcome = || {
            Some(Outcome {
                sent: number("sent")?,
                lost: number("lost")?,
                took: Span::from_ps(number("took_ps")?),
                missed: number("missed")?,
                late: Span::from_ps(number("late_ps")?),
                late_frames: number("late_frames")?,
                directions: number("directions").map_or(1, |count| count as u32),
            })
        };
        match outcome().filter(|_| same) {
            Some(outcome) => {
                let delay = Some(line["delay"].clone()).filter(|delay| !delay.is_null());
                // Files of earlier versions lack this field.
                let count = |name: &str| number(name).unwrap_or(0);
                let seen = line["seen"].as_str().map(str::to_owned);
                let (duplicates, earlier) = (count("duplicates"), count("earlier"));
                let warnings = texts(&line["warnings"]);
                let directions = line["of_each"].as_array().into_iter().flatten().filter_map(DirectionResult::read);
                let directions = directions.collect();
                Ok(Some(Measured { outcome, delay, duplicates, earlier, seen, warnings, directions }))
            }
            None => {
                let kept = Trial {
                    load: FrameRate::from_millis(number("load_mfps").unwrap_or(0)),
                    duration: Span::from_ps(number("duration_ps").unwrap_or(0)),
                };
                let of = line["size"].as_str().unwrap_or("nothing");
                let words = |of: &str, trial: &Trial| format!("{of} at {} for {}", trial.load, trial.duration);
                let (kept, wanted) = (words(of, &kept), words(size, trial));
                let (mut options, others) = (options(size).to_owned(), options(of));
                if options != others {
                    options += &format!(" and {others}");
                }
                Err(Failure::new(format!(
                    "--trials: {} continues with a trial of {kept}, but this search needs one of {wanted}: give {options} as when \
                     it was created, or name another file",
                    self.path.display()
                )))
            }
        }
    }

    /// Closes the file.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let missed = file.finish().map_err(|cause| Failure::new(format!("--trials: {cause}")))?;
        output::warn_of_lacks(&self.path, missed, "line");
        Ok(())
    }

    /// Stores a trial.
    pub(crate) fn add(&mut self, size: &str, trial: &Trial, measured: &Measured) -> Result<(), Failure> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let Measured { outcome, delay, duplicates, earlier, seen, warnings, directions } = measured;
        let line = json!({
            "size": size,
            "load_mfps": trial.load.millis(),
            "duration_ps": trial.duration.as_ps(),
            "sent": outcome.sent,
            "lost": outcome.lost,
            "took_ps": outcome.took.as_ps(),
            "missed": outcome.missed,
            "late_ps": outcome.late.as_ps(),
            "late_frames": outcome.late_frames,
            "directions": outcome.directions,
            "of_each": directions.iter().map(DirectionResult::json).collect::<Vec<_>>(),
            "duplicates": duplicates,
            "earlier": earlier,
            "seen": seen,
            "warnings": warnings,
            "delay": delay,
        });
        // Written at once, so that a killed search can resume from the last trial.
        let written = writeln!(file, "{line}").and_then(|()| file.flush());
        written.map_err(|cause| Failure::new(format!("--trials: {}: {cause}", self.path.display())))
    }
}
