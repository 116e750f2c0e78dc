//! Programs of a scenario: started beside its pipelines, and ended with them.
//!
//! Each process is created before the run gives up its rights, and waits until its start. The thread that created it
//! stays alive until the process has ended, because the kernel kills a child together with the thread that created it.

use crate::output::Failure;
use crate::plan::ready_gate::ReadyGate;
use crate::plan::request::Request;
use crate::plan::sweep;
use crate::run::child_processes::Guardian;
use crate::run::stop::Stop;
use measure::{ProgramEnd, ProgramReport};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use scenario::{PipelinePlan, ProgramPlan, Ready, SourcePlan};
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks of readiness and of signals.
const LOOK: Duration = Duration::from_millis(10);
/// Time for a program to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Time for the last output of a program that has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The outcome of the programs.
#[derive(Default)]
pub(crate) struct Programs {
    pub(crate) reports: Vec<ProgramReport>,
    /// Why the run ended early, if a program was the cause.
    pub(crate) failure: Option<Failure>,
}

/// Calls `run` while the programs of the request run beside it. Ends them when it returns.
pub(crate) fn beside<T>(
    request: &Request,
    stop: &Stop,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Programs), Failure> {
    let plans = &request.beside.programs;
    if plans.is_empty() {
        return run().map(|done| (done, Programs::default()));
    }
    let cannot = |cause: io::Error| Failure::new(format!("cannot run programs: {cause}"));
    let guardian = Guardian::start().map_err(cannot)?;
    let commands = plans.iter().map(|plan| command(plan, request, &guardian)).collect::<Result<Vec<_>, _>>()?;
    let shared = Shared::new(plans.len());
    // If the pipelines are endless, the programs determine the duration of the run.
    let ends_with_all = request.common.duration.is_none() && request.pipelines.iter().any(is_endless);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, (plan, command)) in plans.iter().zip(commands).enumerate() {
            let runner = Runner { plan, number, plans, shared: &shared, gate: &request.gate, stop };
            let (started, starts) = std::sync::mpsc::sync_channel(1);
            let until = request.beside.until.as_ref() == Some(&plan.name);
            let thread = thread::Builder::new().name(plan.name.clone()).spawn_scoped(scope, move || {
                let report = runner.run(command, &started);
                if until || ends_with_all && runner.shared.all_ended() {
                    stop.ask();
                }
                report
            });
            threads.push(thread.map_err(cannot));
            // Waits until the process exists. After this, the run may give up rights that the program needs.
            let _started = starts.recv();
        }
        let mut done = run();
        if done.is_ok() {
            wait_for_programs(request, &shared, stop);
        }
        shared.end();
        let mut reports = Vec::new();
        for thread in threads {
            match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(report)) => reports.push(report),
                Ok(Err(_)) => done = done.and(Err(Failure::new("a thread that runs a program failed"))),
                Err(failure) => done = done.and(Err(failure)),
            }
        }
        guardian.end_programs();
        let reports = reports.into_iter().map(Finished::report).collect();
        let failure = shared.lock().failure.take().map(Failure::new);
        Ok((done?, Programs { reports, failure }))
    })
}

/// Whether only the user, a duration or a program ends a pipeline.
fn is_endless(plan: &PipelinePlan) -> bool {
    match &plan.source {
        SourcePlan::Port(port) => !port.is_virtual(),
        SourcePlan::Streams { count, .. } => count.is_none(),
        SourcePlan::Replay(replay) => replay.is_endless(),
    }
}

/// Waits for programs after the pipelines have ended by themselves: for the program that ends the run, or for all
/// programs if no pipeline is live.
fn wait_for_programs(request: &Request, shared: &Shared, stop: &Stop) {
    let names: Vec<&str> = request.beside.programs.iter().map(|plan| plan.name.as_str()).collect();
    let until = request.beside.until.as_ref().and_then(|until| names.iter().position(|name| name == until));
    let live = request.pipelines.iter().any(|plan| !plan.output.is_virtual());
    let opened = request.gate.wait(Duration::ZERO);
    let over = || {
        let limit = request.common.duration.map(units::Span::to_std);
        limit.zip(opened).is_some_and(|(limit, opened)| opened.elapsed() >= limit)
    };
    let waits = || match until {
        Some(until) => !shared.lock().programs[until].is_over,
        None => !live && !shared.all_ended(),
    };
    while waits() && !stop.asked() && !over() && shared.lock().failure.is_none() {
        thread::sleep(LOOK);
    }
}

/// Returns the command of a program in its namespace. Its process waits before it executes the program.
fn command(plan: &ProgramPlan, request: &Request, guardian: &Guardian) -> Result<Command, Failure> {
    let words = plan.command.words();
    let failed = |cause: &dyn std::fmt::Display| Failure::new(format!("program {}: {cause}", plan.name));
    let (program, arguments) = words.split_first().ok_or_else(|| failed(&"it has no command"))?;
    let mut command = match (&request.beside.lab, &plan.namespace) {
        (Some(_), node) => {
            let node = node.as_deref().unwrap_or("box").parse().map_err(|error: lab::Error| failed(&error))?;
            let lab = lab::Lab::find(&lab::default_name()).map_err(|error| failed(&error))?;
            lab.command(node, program).map_err(|error| failed(&error))?
        }
        (None, namespace) => {
            let path = lab::which(program)
                .ok_or_else(|| failed(&format!("there is no program '{program}': install it, or write its path")))?;
            match namespace {
                Some(namespace) => {
                    let mut command = Command::new("ip");
                    command.args(["netns", "exec", namespace]).arg(path);
                    command
                }
                None => Command::new(path),
            }
        }
    };
    command.args(arguments).env_remove(super::lab_of_scenario::MARK).env_remove(sweep::MARK);
    let mut command = guardian.waiting(&command).map_err(|cause| failed(&cause))?;
    // Only netlathe handles signals of the terminal; it ends the programs.
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    Ok(command)
}

/// State shared by the threads.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    programs: Vec<Known>,
    /// The run is over.
    ends: bool,
    failure: Option<String>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    ready: Option<Instant>,
    ended: Option<Instant>,
    /// The program has ended, or will never start.
    is_over: bool,
}

impl Shared {
    fn new(programs: usize) -> Self {
        let state = State { programs: vec![Known::default(); programs], ends: false, failure: None };
        Shared { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn end(&self) {
        self.change(|state| state.ends = true);
    }

    fn all_ended(&self) -> bool {
        self.lock().programs.iter().all(|program| program.is_over)
    }

    /// Waits until `done` returns a value or the run is over, but not longer than `limit`.
    fn wait<T>(&self, limit: Option<Instant>, mut done: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            let found = done(&state);
            if found.is_some() || state.ends {
                return found;
            }
            let left = limit.map_or(Duration::from_secs(1), |limit| limit.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The stored part of a program's output.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    length: u64,
    ended: bool,
}

/// Reads an output to its end, on a detached thread, because a descendant of the program may keep the output open.
fn read(mut from: impl Read + Send + 'static) -> io::Result<Arc<Mutex<Kept>>> {
    let kept = Arc::new(Mutex::new(Kept::default()));
    let keeps = Arc::clone(&kept);
    thread::Builder::new().name("output".to_owned()).spawn(move || {
        let mut buffer = [0; 1 << 14];
        loop {
            let count = from.read(&mut buffer);
            let mut kept = keeps.lock().unwrap_or_else(PoisonError::into_inner);
            match count {
                Ok(count) if count > 0 => {
                    let room = ProgramReport::KEPT - kept.bytes.len();
                    kept.bytes.extend_from_slice(&buffer[..count.min(room)]);
                    kept.length += count as u64;
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    kept.ended = true;
                    return;
                }
            }
        }
    })?;
    Ok(kept)
}

/// The state of a program after its end.
struct Finished {
    report: ProgramReport,
    outputs: Vec<Arc<Mutex<Kept>>>,
}

impl Finished {
    /// Returns the report with the output. Waits a little for the end of the output, because descendants of the program
    /// may still write.
    fn report(mut self) -> ProgramReport {
        let start = Instant::now();
        let lock = |kept: &Arc<Mutex<Kept>>| std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = |kept: &Arc<Mutex<Kept>>| kept.lock().unwrap_or_else(PoisonError::into_inner).ended;
        while !self.outputs.iter().all(ended) && start.elapsed() < LAST_WORDS {
            thread::sleep(LOOK);
        }
        let [stdout, stderr] = [0, 1].map(|number| self.outputs.get(number).map(lock).unwrap_or_default());
        (self.report.stdout_bytes, self.report.stderr_bytes) = (stdout.length, stderr.length);
        self.report.keep([stdout.bytes, stderr.bytes]);
        self.report
    }
}

/// The data that a thread needs for its program.
struct Runner<'a> {
    plan: &'a ProgramPlan,
    number: usize,
    plans: &'a [ProgramPlan],
    shared: &'a Shared,
    gate: &'a ReadyGate,
    stop: &'a Stop,
}

impl Runner<'_> {
    /// Runs the program until either the program or the run ends.
    fn run(&self, command: Command, started: &std::sync::mpsc::SyncSender<()>) -> Finished {
        let mut finished = Finished {
            report: ProgramReport {
                name: self.plan.name.clone(),
                command: self.plan.command.words(),
                namespace: self.plan.namespace.clone(),
                ..ProgramReport::default()
            },
            outputs: Vec::new(),
        };
        if let Err(cause) = self.carry_out(command, started, &mut finished) {
            self.fail(format!("program {}: cannot run it: {cause}", self.plan.name));
        }
        self.shared.change(|state| state.programs[self.number].is_over = true);
        finished
    }

    /// Ends the run because of this program.
    fn fail(&self, failure: String) {
        self.shared.change(|state| {
            state.failure.get_or_insert(failure);
        });
        self.stop.ask();
    }

    fn carry_out(
        &self,
        mut command: Command,
        started: &std::sync::mpsc::SyncSender<()>,
        finished: &mut Finished,
    ) -> io::Result<()> {
        let spawned = command.spawn();
        let _received = started.send(());
        let mut child = spawned?;
        let begins = child.stdin.take();
        for output in [child.stdout.take().map(read), child.stderr.take().map(read)].into_iter().flatten().flatten() {
            finished.outputs.push(output);
        }
        let due = self.due();
        let Some((opened, mut begins)) = due.zip(begins) else {
            // The process ends, because its input is closed without a byte.
            return child.wait().map(drop);
        };
        begins.write_all(b"\n")?;
        drop(begins);
        let start = Instant::now();
        finished.report.start_ns = Some(nanoseconds(start.saturating_duration_since(opened)));
        finished.report.end = ProgramEnd::WithTheRun;
        let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        thread::scope(|scope| {
            thread::Builder::new().name("end of program".to_owned()).spawn_scoped(scope, || self.watch_end(group))?;
            self.await_ready(&child, start, finished);
            let ended = self.shared.wait(None, |state| state.programs[self.number].ended);
            if let Some(ended) = ended {
                finished.report.end = ProgramEnd::ByItself;
                finished.report.duration_ns = Some(nanoseconds(ended.saturating_duration_since(start)));
            } else {
                self.end_group(group);
                finished.report.duration_ns = Some(nanoseconds(start.elapsed()));
            }
            let status = child.wait()?;
            if ended.is_some() {
                finished.report.status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            }
            Ok(())
        })
    }

    /// Waits until the program should begin. Returns when frames began to pass, or `None` if the run ends first.
    fn due(&self) -> Option<Instant> {
        let opened = loop {
            if let Some(opened) = self.gate.wait(LOOK) {
                break opened;
            }
            if self.shared.lock().ends || self.stop.asked() {
                return None;
            }
        };
        let event = match &self.plan.after {
            None => opened,
            Some(after) => {
                let other = self.plans.iter().position(|plan| plan.name == after.name)?;
                self.shared.wait(None, |state| {
                    let known = &state.programs[other];
                    if after.end { known.ended } else { known.ready }
                })?
            }
        };
        let due = event + self.plan.start.to_std();
        // Returns `None` at its limit, or earlier if the run ends.
        self.shared.wait::<()>(Some(due), |_| None);
        (!self.shared.lock().ends).then_some(opened)
    }

    /// Records the end of the process without reaping it, so that its ID is not reused.
    fn watch_end(&self, process: Pid) {
        while let Err(Errno::EINTR) = waitid(Id::Pid(process), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {}
        self.shared.change(|state| state.programs[self.number].ended = Some(Instant::now()));
    }

    /// Waits until the program is ready, has ended, or exceeds its time limit. The last two end the run.
    fn await_ready(&self, child: &Child, start: Instant, finished: &mut Finished) {
        let name = &self.plan.name;
        if let Some(ready) = &self.plan.ready {
            let limit = start + self.plan.ready_within.to_std();
            while !is_ready(ready, child.id(), &finished.outputs) {
                let state = self.shared.lock();
                if state.ends {
                    return;
                }
                let ended = state.programs[self.number].ended.is_some();
                drop(state);
                if ended {
                    // Its last output may contain the ready line.
                    thread::sleep(LOOK * 2);
                    if !is_ready(ready, child.id(), &finished.outputs) {
                        let last = last_words(&finished.outputs);
                        return self.fail(format!("program {name} ended before it was ready ({ready}){last}"));
                    }
                }
                if Instant::now() >= limit {
                    let within = self.plan.ready_within;
                    return self.fail(format!(
                        "program {name} was not ready within {within}: {}: raise ready-within, or correct ready",
                        lacking(ready)
                    ));
                }
                thread::sleep(LOOK);
            }
        }
        finished.report.ready_ns = self.plan.ready.is_some().then(|| nanoseconds(start.elapsed()));
        self.shared.change(|state| state.programs[self.number].ready = Some(Instant::now()));
    }

    /// Ends a program and its process group: with SIGTERM, then with SIGKILL.
    fn end_group(&self, group: Pid) {
        let ended = |patience: Duration| {
            let limit = Instant::now() + patience;
            let mut state = self.shared.lock();
            while state.programs[self.number].ended.is_none() && Instant::now() < limit {
                state = self.shared.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.programs[self.number].ended.is_some()
        };
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            // The group may be ending at this moment.
            let _ended = killpg(group, signal);
            if ended(GRACE) {
                return;
            }
        }
    }
}

/// A colon and the last line of standard error, or else of standard output.
fn last_words(outputs: &[Arc<Mutex<Kept>>]) -> String {
    let line = |kept: &Arc<Mutex<Kept>>| {
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.bytes).into_owned();
        text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
    };
    outputs.iter().rev().find_map(line).map_or(String::new(), |line| format!(": {line}"))
}

/// Whether a program is ready.
fn is_ready(ready: &Ready, process: u32, outputs: &[Arc<Mutex<Kept>>]) -> bool {
    match ready {
        Ready::Tcp(port) => has_port(process, ["tcp", "tcp6"], *port, "0A"),
        Ready::Udp(port) => has_port(process, ["udp", "udp6"], *port, "07"),
        Ready::File(path) => path.exists(),
        Ready::Line(text) => outputs.iter().any(|kept| {
            let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.bytes.windows(text.len()).any(|part| part == text.as_bytes())
        }),
    }
}

/// Whether the network namespace of a process has a socket with this port and state, as in proc(5).
fn has_port(process: u32, tables: [&str; 2], port: u16, state: &str) -> bool {
    let wanted = format!(":{port:04X}");
    tables.iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&wanted)) && fields.nth(1) == Some(state)
        })
    })
}

/// Why a program is not ready.
fn lacking(ready: &Ready) -> String {
    match ready {
        Ready::Tcp(port) => format!("nothing listens on TCP port {port} in its namespace"),
        Ready::Udp(port) => format!("nothing receives on UDP port {port} in its namespace"),
        Ready::File(path) => format!("there is no {}", path.display()),
        Ready::Line(text) => format!("it did not print '{text}'"),
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
