//! A trial between live ports: one `netlathe gen` process per direction, all started at the same instant.

use crate::options::host_clock::HostClock;
use crate::options::start_at::{StartAt, Utc};
use crate::output::{self, Failure};
use crate::plan::search::{Direction, ToSearch};
use crate::render::search_results::{DirectionResult, Measured};
use crate::run::netlathe_process::{self, no_thread};
use crate::run::readiness;
use crate::run::search::trials::{frames, texts};
use crate::run::stop::Stop;
use crate::run::verdicts::seen_instead;
use engine::search::{Outcome, Trial};
use measure::StartReport;
use serde_json::Value;
use std::io::{self, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use units::Span;

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
/// Time from the moment when all directions are armed to their common start.
const LEAD_NS: u64 = 50_000_000;
/// Interval between checks for a stop request.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a trial of these frames in all directions at once, each in a separate process, so that nothing is left from the
/// previous one. Calls `ready` when frames pass the ports.
pub(super) fn run(
    directions: &[Direction],
    options: &[String],
    sized: &ToSearch,
    trial: &Trial,
    (seed, stop, start): (u64, &Stop, &mut SearchStart),
    ready: impl FnOnce() + Send,
) -> Result<Measured, Failure> {
    let asked = start.asked.take();
    let mut commands = directions
        .iter()
        .map(|direction| command(direction, options, &sized.size, trial, seed))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|cause| Failure::new(format!("cannot find netlathe: {cause}")))?;
    let outputs = match &mut commands[..] {
        [only] => {
            only.args(asked.iter().flat_map(|at| ["--start-at", at]));
            let reads = asked.as_deref() == Some(FROM_STDIN);
            only.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
            let abandoned = AtomicBool::new(false);
            vec![readiness::while_ready(only, ready, |only| {
                netlathe_process::output(only, (stop, &abandoned), |_| output::say("armed"))
            })]
        }
        several => together(several, asked.as_deref(), stop, ready)?,
    };
    let mut outcome = Outcome {
        sent: 0,
        lost: 0,
        took: Span::ZERO,
        missed: 0,
        late: Span::ZERO,
        late_frames: 0,
        directions: directions.len() as u32,
    };
    let mut whole = Measured::of(outcome);
    let mut received = None;
    for (direction, output) in directions.iter().zip(outputs) {
        let output = output.map_err(|cause| Failure::new(format!("cannot run netlathe gen: {cause}")))?;
        let named = |text: &str| if directions.len() > 1 { format!("{direction}: {text}") } else { text.to_owned() };
        let report = report(&output, direction, sized).map_err(|why| Failure::new(named(&why)))?;
        let pipeline = &report["pipelines"][0];
        let number = |pointer: &str| pipeline.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let figure = |pointer: &str| pipeline.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
        if asked.is_some() {
            start.report = start.report.take().or_else(|| {
                let asked = pipeline.pointer("/start/asked_unix_ns")?.as_u64()?;
                Some(StartReport::of(asked, pipeline.pointer("/start/miss_ns").and_then(Value::as_i64)))
            });
        }
        let streams = pipeline["streams"].as_array().cloned().unwrap_or_default();
        let of_all = |name: &str| streams.iter().filter_map(|stream| stream[name].as_u64()).sum::<u64>();
        let (sent, lost, came) = (number("/out/frames"), of_all("lost"), of_all("received"));
        outcome.sent += sent;
        outcome.lost += lost;
        outcome.took = outcome.took.max(Span::from_ps((figure("/gap/mean_ns") * 1_000.0 * sent as f64) as u64));
        outcome.missed += number("/flow/kernel_drops");
        outcome.late = outcome.late.max(Span::from_ps((figure("/lateness/max_ns") * 1_000.0) as u64));
        outcome.late_frames += number("/lateness/hiccups/frames");
        whole.duplicates += of_all("duplicates");
        whole.earlier += number("/flow/earlier");
        whole.seen = whole.seen.take().or_else(|| seen_instead(pipeline).map(|seen| named(&seen)));
        whole.warnings.extend(texts(&report["warnings"]));
        let delay = streams
            .into_iter()
            .max_by_key(|stream| stream["received"].as_u64())
            .map(|mut stream| stream["delay"].take())
            .filter(|delay| !delay.is_null());
        if received.is_none_or(|most| came > most) {
            received = Some(came);
            whole.delay.clone_from(&delay);
        }
        if directions.len() > 1 {
            let (out, input) = (direction.out.clone(), direction.input.clone());
            whole.directions.push(DirectionResult { out, input, sent, lost, delay });
        }
    }
    Ok(Measured { outcome, ..whole })
}

/// The `netlathe gen` of a direction. The start is added by the caller.
fn command(direction: &Direction, options: &[String], size: &str, trial: &Trial, seed: u64) -> io::Result<Command> {
    let mut command = netlathe_process::command()?;
    let Direction { ports: [out, input], streams, gateways, first_stream, .. } = direction;
    command.args(["gen", "--json", "--out", out, "--in", input, "--rate", &trial.load.to_string()]);
    command.args(options);
    command.args(["--count", &frames(trial).to_string(), "--seed", &seed.to_string()]);
    command.args(["--first-stream", &first_stream.to_string()]);
    command.args(gateways.iter().flat_map(|gateway| ["--gateway", gateway]));
    for stream in streams {
        command.args(["--stream", &format!("{stream} size {size}")]);
    }
    // Twice the duration counts as an overrun in any case.
    let limit = trial.duration * 2 + Span::from_ms(1_000);
    command.args(["--duration", &limit.to_string()]);
    Ok(command)
}

/// The report of a direction, or why there is none.
fn report(output: &Output, direction: &Direction, sized: &ToSearch) -> Result<Value, String> {
    let printed = String::from_utf8_lossy(&output.stderr);
    let failed = || {
        let lines = printed.lines().map(|line| line.trim_start_matches("netlathe: "));
        let lines = lines.filter(|line| !line.starts_with("note: ") && *line != "armed");
        let text = lines.collect::<Vec<_>>().join("\n");
        match output.status.signal() {
            Some(signal) => {
                let remedy = "see dmesg: the kernel kills processes when memory runs out";
                format!("the trial's netlathe gen was killed by signal {signal}: {remedy}")
            }
            None => text,
        }
    };
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
    if report.pointer("/pipelines/0/drops/too-long").and_then(Value::as_u64).unwrap_or(0) > 0 {
        let size = sized.specs.iter().filter_map(|spec| spec.size.as_ref()).map(|size| size.largest()).max();
        let size = size.map_or(String::new(), |size| format!(" of {size}"));
        return Err(format!(
            "--size: frames{size} are longer than {} can send: write a smaller size, or raise its MTU",
            direction.out
        ));
    }
    // Losses of an interrupted trial say nothing about the device.
    match output.status.code().map(u8::try_from) {
        Some(Ok(0 | Failure::MISSED)) => Ok(report),
        _ => Err(failed()),
    }
}

/// A message from the thread of a direction.
enum Event {
    /// Its process waits for the instant of the start on this pipe.
    Armed(Option<ChildStdin>),
    /// Its process has ended.
    Ended,
}

/// Runs all commands at once. Once all are armed, gives them the same start. If one ends before that, ends the others.
fn together(
    commands: &mut [Command],
    asked: Option<&str>,
    stop: &Stop,
    ready: impl FnOnce() + Send,
) -> Result<Vec<io::Result<Output>>, Failure> {
    let abandoned = AtomicBool::new(false);
    let all = commands.len();
    let mut ready = Some(ready);
    thread::scope(|scope| {
        let (events, received) = mpsc::channel();
        let threads: Vec<_> = commands
            .iter_mut()
            .map(|command| {
                command.args(["--start-at", FROM_STDIN]).stdin(Stdio::piped());
                let (events, ready, abandoned) = (events.clone(), ready.take(), &abandoned);
                thread::Builder::new().spawn_scoped(scope, move || {
                    let armed = |stdin| drop(events.send(Event::Armed(stdin)));
                    let run = |command: &mut Command| netlathe_process::output(command, (stop, abandoned), armed);
                    let output = match ready {
                        Some(ready) => readiness::while_ready(command, ready, run),
                        // One report of readiness is enough.
                        None => readiness::unreported(command, run),
                    };
                    // After the start, nothing waits for this.
                    let _unheard = events.send(Event::Ended);
                    output
                })
            })
            .collect();
        drop(events);
        let mut pipes = Vec::new();
        if threads.iter().all(Result::is_ok) {
            while pipes.len() < all {
                match received.recv() {
                    Ok(Event::Armed(pipe)) => pipes.extend(pipe),
                    Ok(Event::Ended) | Err(_) => break,
                }
            }
        }
        let at = if pipes.len() == all { instant(asked, stop, &received) } else { Ok(None) };
        match at.as_ref().ok().and_then(Option::as_ref) {
            // A process that has ended does not read, and its report says why.
            Some(at) => pipes.iter_mut().for_each(|pipe| drop(writeln!(pipe, "{at}"))),
            None => abandoned.store(true, Ordering::Release),
        }
        let joined = |thread: io::Result<thread::ScopedJoinHandle<'_, io::Result<Output>>>| {
            let thread = thread.map_err(|cause| no_thread(&cause))?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        };
        let outputs = threads.into_iter().map(joined).collect();
        at.map(|_| outputs)
    })
}

/// The common start: the one asked, or else soon. `None` if the user ends the search first, or a process ends.
fn instant(asked: Option<&str>, stop: &Stop, events: &Receiver<Event>) -> Result<Option<String>, Failure> {
    let at = match asked {
        Some(FROM_STDIN) => {
            output::say("armed");
            let (lines, line) = mpsc::channel();
            // Not joined, because a read of stdin cannot be interrupted, and the search must not wait for it.
            let reader = move || {
                let mut line = String::new();
                let read = io::stdin().read_line(&mut line);
                // The search may have ended.
                let _unheard = lines.send(read.map(|bytes| (bytes > 0).then_some(line)));
            };
            let started = thread::Builder::new().name("start".to_owned()).spawn(reader);
            started.map_err(|cause| Failure::new(no_thread(&cause)))?;
            loop {
                match line.recv_timeout(LOOK) {
                    Ok(read) => break Some(absolute(read)?),
                    Err(RecvTimeoutError::Timeout) if stop.asked() || events.try_recv().is_ok() => break None,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break None,
                }
            }
        }
        Some(at) => Some(at.to_owned()),
        None => Some(Utc(HostClock::new()?.now_ns().saturating_add(LEAD_NS)).to_string()),
    };
    Ok(at)
}

/// The instant in a line of stdin as UTC, because '+1s' would count from a different moment in each process.
fn absolute(line: io::Result<Option<String>>) -> Result<String, Failure> {
    let wrong = |why: String| Failure::new(format!("--start-at stdin: {why}"));
    let line = line.map_err(|cause| wrong(cause.to_string()))?;
    let line = line.ok_or_else(|| wrong("it ended without an instant: write one and a new line to it".to_owned()))?;
    let at: StartAt = line.parse().map_err(|error| wrong(format!("{error}")))?;
    let at = at.unix_ns(HostClock::new()?.now_ns());
    at.map(|ns| Utc(ns).to_string()).ok_or_else(|| wrong("'stdin' is not an instant: write one".to_owned()))
}
