//! The trials of a search: run in virtual time or on ports, and stored in a file to resume from.

use crate::options::host_clock::HostClock;
use crate::options::start_at::{StartAt, Utc};
use crate::output::{self, Failure};
use crate::plan::files::read_text;
use crate::plan::search::{Device, read_stage};
use crate::render::search_results::Measured;
use crate::run::readiness;
use crate::run::stop::Stop;
use crate::run::verdicts::seen_instead;
use engine::schedules::{Draw, Target};
use engine::search::{Outcome, Trial};
use engine::sources::{StreamSpec, Streams};
use engine::{Line, Pipeline};
use measure::StartReport;
use serde_json::{Value, json};
use sim::{CountingSink, Limits, Lines, Observer, OfferedSource, WhenFull};
use std::collections::VecDeque;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use units::{FrameRate, PS_PER_S, Rate, Span, Time};

/// Ends a trial when the user ends the search.
struct StopObserver<'a>(&'a Stop);

impl Observer for StopObserver<'_> {
    fn go_on(&mut self, _: u64, _: Time) -> bool {
        !self.0.asked()
    }
}

/// The start of a search: its first trial on ports is armed, and sends its first frame at the asked instant.
#[derive(Default)]
pub(crate) struct SearchStart {
    /// The value of `--start-at` for the next trial.
    asked: Option<String>,
    /// The start of the first trial.
    pub(crate) report: Option<StartReport>,
}

impl SearchStart {
    /// The asked start, if one was. `+5s` counts from here.
    pub(crate) fn new(asked: Option<StartAt>) -> Result<Self, Failure> {
        let Some(asked) = asked else { return Ok(SearchStart::default()) };
        let at = asked.unix_ns(HostClock::new()?.now_ns());
        let asked = at.map_or_else(|| FROM_STDIN.to_owned(), |ns| Utc(ns).to_string());
        Ok(SearchStart { asked: Some(asked), report: None })
    }

    /// Whether an instant was asked, and no trial has used it.
    pub(crate) fn is_unused(&self) -> bool {
        self.asked.is_some()
    }
}

/// The start of a trial that reads the instant itself.
const FROM_STDIN: &str = "stdin";
/// What a run says on stderr once it waits for the instant on stdin.
const ARMED: &str = "netlathe: armed\n";

/// Runs trial `number`, which seeds the random draws of a device. After a stop request the result is meaningless. Calls
/// `ready` when frames pass the ports. The first trial on ports begins at `start`.
pub(crate) fn run(
    device: &Device,
    specs: &[StreamSpec],
    trial: &Trial,
    (seed, number): (u64, usize),
    (stop, start): (&Stop, &mut SearchStart),
    ready: impl FnOnce() + Send,
) -> Result<Measured, Failure> {
    match device {
        Device::Stages { stages, line } => {
            in_virtual_time(stages, Line::new(*line), specs, trial, (seed, number), stop)
        }
        Device::Ports { out, input, streams, options } => {
            on_ports([out, input], options, streams, specs, trial, (seed, stop, start), ready)
        }
    }
}

/// Number of frames of a trial: those due in its duration, at least one.
fn frames(trial: &Trial) -> u64 {
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
    let outcome =
        Outcome { sent: count, lost: count - came.min(count), took, missed: 0, late: Span::ZERO, late_frames: 0 };
    Ok(Measured { outcome, delay, duplicates, earlier: 0, seen: None, warnings: Vec::new() })
}

/// The texts of a list; empty if there is no list.
fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Runs `netlathe gen` for the trial, as a separate process, so that nothing is left from the previous one.
fn on_ports(
    [out, input]: [&str; 2],
    options: &[String],
    streams: &[String],
    specs: &[StreamSpec],
    trial: &Trial,
    (seed, stop, start): (u64, &Stop, &mut SearchStart),
    ready: impl FnOnce() + Send,
) -> Result<Measured, Failure> {
    let mut command = generator().map_err(|cause| Failure::new(format!("cannot find netlathe: {cause}")))?;
    command.args(["gen", "--json", "--out", out, "--in", input, "--rate", &trial.load.to_string()]);
    command.args(options);
    command.args(["--count", &frames(trial).to_string(), "--seed", &seed.to_string()]);
    for (stream, spec) in streams.iter().zip(specs) {
        let size = spec.size.as_ref().map_or(String::new(), |size| format!(" size {size}"));
        command.args(["--stream", &format!("{stream}{size}")]);
    }
    // Twice the duration counts as an overrun in any case.
    let limit = trial.duration * 2 + Span::from_ms(1_000);
    command.args(["--duration", &limit.to_string()]);
    let asked = start.asked.take();
    command.args(asked.iter().flat_map(|at| ["--start-at", at]));
    let reads = asked.as_deref() == Some(FROM_STDIN);
    command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
    let output = readiness::while_ready(&mut command, ready, |command| output(command, stop));
    let output = output.map_err(|cause| Failure::new(format!("cannot run netlathe gen: {cause}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = || {
        let lines = said.lines().map(|line| line.trim_start_matches("netlathe: "));
        let lines = lines.filter(|line| !line.starts_with("note: ") && *line != "armed");
        Failure::new(lines.collect::<Vec<_>>().join("\n"))
    };
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    let pipeline = &report["pipelines"][0];
    let number = |pointer: &str| pipeline.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    start.report = start.report.take().or_else(|| {
        let asked = pipeline.pointer("/start/asked_unix_ns")?.as_u64()?;
        Some(StartReport::of(asked, pipeline.pointer("/start/miss_ns").and_then(Value::as_i64)))
    });
    if number("/drops/too-long") > 0 {
        let size = specs.iter().filter_map(|spec| spec.size.as_ref()).map(|size| size.largest()).max();
        let size = size.map_or(String::new(), |size| format!(" of {size}"));
        return Err(Failure::new(format!(
            "--size: frames{size} are longer than {out} can send: write a smaller size, or raise its MTU"
        )));
    }
    // Losses of an interrupted trial say nothing about the device.
    if !matches!(output.status.code().map(u8::try_from), Some(Ok(0 | Failure::MISSED))) {
        return Err(failed());
    }
    let seen = seen_instead(pipeline);
    let streams = pipeline["streams"].as_array().cloned().unwrap_or_default();
    let of_all = |name: &str| streams.iter().filter_map(|stream| stream[name].as_u64()).sum();
    let (lost, duplicates) = (of_all("lost"), of_all("duplicates"));
    let delay = streams
        .into_iter()
        .max_by_key(|stream| stream["received"].as_u64())
        .map(|mut stream| stream["delay"].take())
        .filter(|delay| !delay.is_null());
    let sent = number("/out/frames");
    let mean = pipeline.pointer("/gap/mean_ns").and_then(Value::as_f64).unwrap_or(0.0);
    let took = Span::from_ps((mean * 1_000.0 * sent as f64) as u64);
    let late = pipeline.pointer("/lateness/max_ns").and_then(Value::as_f64).unwrap_or(0.0);
    let late = Span::from_ps((late * 1_000.0) as u64);
    Ok(Measured {
        outcome: Outcome {
            sent,
            lost,
            took,
            missed: number("/flow/kernel_drops"),
            late,
            late_frames: number("/lateness/hiccups/frames"),
        },
        delay,
        duplicates,
        earlier: number("/flow/earlier"),
        seen,
        warnings: texts(&report["warnings"]),
    })
}

/// The `netlathe gen` process.
#[cfg(feature = "live")]
pub(crate) fn generator() -> io::Result<Command> {
    crate::run::child_processes::netlathe()
}

/// Without live ports it only reports that they are missing.
#[cfg(not(feature = "live"))]
pub(crate) fn generator() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// Runs a program to its end, and sends it SIGTERM if the user ends the search, because the signal may have reached
/// only us.
pub(crate) fn output(command: &mut Command, stop: &Stop) -> io::Result<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = AtomicBool::new(false);
    let read = thread::scope(|scope| {
        // If no thread can be started, ends the program, because it would run unmonitored.
        let none = |cause| {
            ended.store(true, Ordering::Release);
            ask_to_end(child.id());
            cause
        };
        let watcher = thread::Builder::new()
            .spawn_scoped(scope, || {
                while !ended.load(Ordering::Acquire) {
                    if stop.asked() {
                        // The process is not reaped yet, so its ID is still valid.
                        return ask_to_end(child.id());
                    }
                    thread::park_timeout(LOOK);
                }
            })
            .map_err(none)?;
        let stderr =
            thread::Builder::new().spawn_scoped(scope, || stderr.map_or(Ok(Vec::new()), messages)).map_err(none)?;
        let stdout = whole(stdout);
        let stderr = stderr.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        ended.store(true, Ordering::Release);
        watcher.thread().unpark();
        Ok((stdout, stderr))
    });
    let status = child.wait()?;
    let (stdout, stderr) = read.map_err(|cause| no_thread(&cause))?;
    Ok(Output { status, stdout: stdout?, stderr: stderr? })
}

/// The error if no thread can be started.
fn no_thread(cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("no thread can be started ({cause}): raise ulimit -v and ulimit -u"))
}

#[cfg(feature = "live")]
fn ask_to_end(process: u32) {
    use nix::sys::signal::{Signal, kill};
    let process = nix::unistd::Pid::from_raw(process.cast_signed());
    // It may have ended already, which is fine.
    let _ended = kill(process, Signal::SIGTERM);
}

/// Without live ports, no such trial runs.
#[cfg(not(feature = "live"))]
fn ask_to_end(_: u32) {}

/// Interval between checks for a stop request.
const LOOK: Duration = Duration::from_millis(20);

fn whole(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.map_or(Ok(0), |mut pipe| pipe.read_to_end(&mut bytes))?;
    Ok(bytes)
}

/// All messages of a program. Passes on at once that it is armed, because our caller waits for it.
fn messages(pipe: impl Read) -> io::Result<Vec<u8>> {
    let (mut pipe, mut bytes) = (BufReader::new(pipe), Vec::new());
    loop {
        let begin = bytes.len();
        if pipe.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(bytes);
        }
        if bytes[begin..] == *ARMED.as_bytes() {
            output::say("armed");
        }
    }
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
                Ok(Some(Measured { outcome, delay, duplicates, earlier, seen, warnings }))
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
        let Measured { outcome, delay, duplicates, earlier, seen, warnings } = measured;
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
