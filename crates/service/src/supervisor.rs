//! Runs as processes, one per run, because DPDK's memory and ports belong to a process. Each run has its scenario and
//! its socket in a private folder, and writes its report to a pipe.

use crate::answers::{ChangeList, ChangeRequest, RunList, RunView, SettingList};
use crate::client::{self, ClientError};
use crate::control::{Accepted, AppliedChange, Change, Figures, RunState, Setting};
use crate::problem::Problem;
use crate::run_folder::RunFolder;
use crate::runs::{Ending, ONLY, not_ended};
use axum::http::StatusCode;
use futures_util::future::join_all;
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::timeout;

/// The files of a run.
#[derive(Debug)]
pub struct RunFiles {
    /// The scenario.
    pub scenario: PathBuf,
    /// The control socket.
    pub socket: PathBuf,
    /// The folder of the drawn report, created for this run.
    pub page: PathBuf,
}

/// Creates the command that runs a scenario file with a control socket, prints its report as JSON and draws it. The
/// second argument is the instant of its start, if one was requested.
pub type Launch = Box<dyn Fn(&RunFiles, Option<&str>) -> io::Result<std::process::Command> + Send + Sync>;

/// Checks that a scenario can be run, that it uses nothing that clients may not use, and that it can start at the
/// requested instant. Returns that instant in UTC.
pub type Permit = Box<dyn Fn(&str, Option<&str>) -> Result<Option<String>, ScenarioProblem> + Send + Sync>;

/// Returns the problem with a new value of a setting, if clients may not set it.
pub type PermitValue = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Why a scenario or its start is rejected.
#[derive(Debug)]
pub struct ScenarioProblem {
    /// What is wrong.
    pub message: String,
    /// The line and column, or the part of the request, if known.
    pub at: Option<String>,
    /// How to fix it.
    pub remedy: String,
}

/// How to start runs, and their limits.
pub struct SupervisorOptions {
    /// Starts a run.
    pub launch: Launch,
    /// Checks a scenario.
    pub permit: Permit,
    /// Checks a new value of a setting.
    pub permit_value: PermitValue,
    /// Maximum number of concurrent runs.
    pub most: usize,
    /// Whether the page shows controls.
    pub page_changes: bool,
}

/// Top-level keys of a scenario that clients may use. Other keys start programs, mount disks or build labs.
const OF_CLIENTS: [&str; 7] = ["schema", "seed", "duration", "pipeline", "expect", "timeline", "profile"];
/// Maximum number of ended runs that are kept. The oldest is removed first.
const KEPT: usize = 64;
/// Maximum size in bytes of all kept reports. The oldest is removed first.
const KEPT_REPORTS: usize = 256 << 20;
/// File name of the drawn report.
const PAGE: &str = "report.html";
/// Maximum size in bytes of a kept report, and of a kept page.
const LONGEST_REPORT: usize = 64 << 20;
/// Maximum size in bytes of a run's kept messages. The last ones are kept.
const LONGEST_MESSAGES: usize = 64 << 10;
/// Time limit for a run to report its state. After it, the last known state is used.
const VIEW: Duration = Duration::from_secs(1);
/// Time limit for runs to end when the service ends.
const PATIENCE: Duration = Duration::from_secs(10);

/// The runs of a service.
pub(crate) struct Supervisor {
    folder: RunFolder,
    options: SupervisorOptions,
    runs: Mutex<BTreeMap<u64, Arc<Run>>>,
    started: AtomicU64,
}

/// A run in its own process.
struct Run {
    id: u64,
    files: RunFiles,
    known: Mutex<Known>,
    ended: watch::Sender<bool>,
}

/// The last known state of a run.
struct Known {
    /// `None` once the process has ended, because its ID may be reused.
    process: Option<Pid>,
    view: RunView,
    report: Option<Arc<str>>,
    /// The report, drawn as HTML.
    page: Option<Arc<str>>,
    begin: Instant,
}

impl Run {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_ended(&self) -> bool {
        self.known().process.is_none()
    }

    fn report_length(&self) -> usize {
        let known = self.known();
        [&known.report, &known.page].into_iter().flatten().map(|text| text.len()).sum()
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = self.known().process {
            // The process may be ending at this moment, which is harmless.
            let _sent = kill_process(process, signal);
        }
    }

    /// Asks the process to end, even if it is stopped.
    fn ask_to_end(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Forwards a request to the run.
    async fn ask(&self, method: Method, path: &str, json: Option<&str>) -> Result<String, Problem> {
        if self.has_ended() {
            return Err(Problem::new(StatusCode::CONFLICT, "the run has ended", "start another one"));
        }
        let path = format!("/v1/runs/{ONLY}{path}");
        client::text(&self.files.socket, method, &path, json).await.map_err(|error| match error {
            ClientError::Refused(status, body) => {
                Problem::passed_on(StatusCode::from_u16(status).unwrap_or(StatusCode::CONFLICT), body)
            }
            ClientError::Io(_) => Problem::new(
                StatusCode::CONFLICT,
                "the run does not answer: it is starting or ending",
                "try again when its state is running",
            ),
        })
    }

    /// The current state of the run, or the last known one.
    async fn view(&self) -> RunView {
        if !self.has_ended()
            && let Ok(Ok(text)) = timeout(VIEW, client::text(&self.files.socket, Method::GET, "/v1/runs", None)).await
            && let Ok(list) = serde_json::from_str::<RunList>(&text)
            && let Some(view) = list.runs.into_iter().next()
        {
            let mut known = self.known();
            // The run may have ended in the meantime.
            if known.process.is_some() {
                known.view = while_it_lives(&known.view, view);
            }
        }
        self.known().view.clone()
    }

    /// Monitors the process until its end.
    async fn follow(self: Arc<Self>, mut child: Child) {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (report, messages, status) = tokio::join!(report(out), last(err), child.wait());
        let report = report.map(Arc::from);
        let page = drawn(&self.files.page.join(PAGE)).map(Arc::from);
        let mut known = self.known();
        known.process = None;
        known.page = page;
        known.finish(status.ok(), &messages, report);
        drop(known);
        for file in [&self.files.scenario, &self.files.socket] {
            // The run removes its socket itself, unless it was killed.
            let _gone = std::fs::remove_file(file);
        }
        let _gone = std::fs::remove_dir_all(&self.files.page);
        self.ended.send_replace(true);
    }
}

impl Known {
    fn finish(&mut self, status: Option<ExitStatus>, messages: &str, report: Option<Arc<str>>) {
        let passed_ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.view.state = RunState::Ended;
        self.view.status = status.and_then(|status| status.code());
        let lines: Vec<&str> = messages.lines().filter(|line| !line.starts_with("netlathe: note: ")).collect();
        self.view.failure = (!lines.is_empty() && self.view.status != Some(0)).then(|| lines.join("\n"));
        if let Some(value) = report.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()) {
            let words = |value: &Value| value.as_str().map(ToOwned::to_owned);
            self.view.warnings = value["warnings"].as_array().into_iter().flatten().filter_map(words).collect();
            self.view.caveats = value["caveats"].as_array().cloned().unwrap_or_default();
            let of_report = Figures::of_report(&value);
            // The last reported time may be long before the end.
            self.view.figures = Figures { passed_ns, ..of_report };
            self.report = report;
        }
    }
}

/// The page that a run wrote; `None` if there is none, or if it is too large.
fn drawn(path: &Path) -> Option<String> {
    let length = std::fs::metadata(path).ok()?.len();
    if length > LONGEST_REPORT as u64 { None } else { std::fs::read_to_string(path).ok() }
}

/// The report that a run prints; `None` if there is none, or if it is too large.
async fn report(pipe: Option<impl AsyncRead + Unpin>) -> Option<String> {
    let mut pipe = pipe?;
    let (mut text, mut part) = (Vec::new(), vec![0; 64 << 10]);
    let mut fits = true;
    while let Ok(count) = pipe.read(&mut part).await
        && count > 0
    {
        fits &= text.len() + count <= LONGEST_REPORT;
        // Reads the rest even if it is too large, because the run would otherwise block.
        if fits {
            text.extend_from_slice(&part[..count]);
        }
    }
    String::from_utf8(text).ok().filter(|text| fits && !text.trim().is_empty())
}

/// The last messages that a run prints.
async fn last(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut text, mut part) = (VecDeque::new(), vec![0; 4 << 10]);
    while let Ok(count) = pipe.read(&mut part).await
        && count > 0
    {
        text.extend(&part[..count]);
        let beyond = text.len().saturating_sub(LONGEST_MESSAGES);
        text.drain(..beyond);
    }
    String::from_utf8_lossy(text.make_contiguous()).into_owned()
}

impl Supervisor {
    pub(crate) fn new(options: SupervisorOptions) -> io::Result<Self> {
        // A folder with mode 0700. Prefers $XDG_RUNTIME_DIR, because that is removed at the end of the session in any
        // case.
        let place = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
        let folder = RunFolder::make_in(&place.unwrap_or_else(std::env::temp_dir))?;
        Ok(Supervisor { folder, options, runs: Mutex::default(), started: AtomicU64::new(0) })
    }

    fn all(&self) -> Vec<Arc<Run>> {
        self.locked().values().cloned().collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, id: u64) -> Result<Arc<Run>, Problem> {
        self.locked().get(&id).cloned().ok_or_else(|| Problem::no_run(&id.to_string()))
    }

    pub(crate) async fn create(&self, scenario: &str, start_at: Option<&str>) -> Result<RunView, Problem> {
        check_tables(scenario)?;
        let start_at = (self.options.permit)(scenario, start_at).map_err(|problem| {
            let refused = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, problem.message, problem.remedy);
            match problem.at {
                Some(at) => refused.at(at),
                None => refused,
            }
        })?;
        let active = self.all().iter().filter(|run| !run.has_ended()).count();
        if active >= self.options.most {
            let message = format!("{active} runs are active, the maximum of this service");
            return Err(Problem::new(
                StatusCode::TOO_MANY_REQUESTS,
                message,
                "end one, or start the service with a larger --most",
            ));
        }
        let id = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let run = self.start(id, scenario, start_at).map_err(|cause| {
            let message = format!("the run cannot be started: {cause}");
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                message,
                "look at memory, disks, processes and descriptors of the machine",
            )
        })?;
        let view = run.known().view.clone();
        let mut runs = self.locked();
        runs.insert(id, run);
        let ended: Vec<(u64, usize)> =
            runs.values().filter(|run| run.has_ended()).map(|run| (run.id, run.report_length())).collect();
        for id in beyond(&ended) {
            runs.remove(&id);
        }
        Ok(view)
    }

    fn start(&self, id: u64, scenario: &str, start_at: Option<String>) -> io::Result<Arc<Run>> {
        let file = |suffix: &str| self.folder.path().join(format!("{id}.{suffix}"));
        let files = RunFiles { scenario: file("toml"), socket: file("sock"), page: file("page") };
        std::fs::write(&files.scenario, scenario)?;
        let mut command = tokio::process::Command::from((self.options.launch)(&files, start_at.as_deref())?);
        // In their own process groups, runs receive no signals of the terminal. The service handles these and forwards
        // them.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let child = command.spawn()?;
        let process = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let view = RunView { id, command: "run".to_owned(), start_at, ..RunView::default() };
        let known = Mutex::new(Known { process, view, report: None, page: None, begin: Instant::now() });
        let run = Arc::new(Run { id, files, known, ended: watch::channel(false).0 });
        tokio::spawn(Arc::clone(&run).follow(child));
        Ok(run)
    }

    pub(crate) async fn list(&self) -> Vec<RunView> {
        let runs = self.all();
        // Concurrently, so that a stopped run delays the others only by its own time limit.
        join_all(runs.iter().map(|run| run.view())).await
    }

    pub(crate) async fn get(&self, id: u64) -> Result<RunView, Problem> {
        Ok(self.run(id)?.view().await)
    }

    pub(crate) fn report(&self, id: u64) -> Result<String, Problem> {
        self.ended(id, |known| known.report.as_deref())
    }

    /// The report, drawn as HTML.
    pub(crate) fn page(&self, id: u64) -> Result<String, Problem> {
        self.ended(id, |known| known.page.as_deref())
    }

    /// A result of a run that has ended.
    fn ended(&self, id: u64, left: impl Fn(&Known) -> Option<&str>) -> Result<String, Problem> {
        let run = self.run(id)?;
        let known = run.known();
        match (left(&known), known.process) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, Some(_)) => Err(not_ended()),
            (None, None) => {
                let why = known.view.failure.clone().unwrap_or_else(|| "it was killed".to_owned());
                Err(Problem::new(
                    StatusCode::CONFLICT,
                    format!("the run has no report: {why}"),
                    "correct the scenario and start it again",
                ))
            }
        }
    }

    pub(crate) async fn settings(&self, id: u64) -> Result<Vec<Setting>, Problem> {
        let run = self.run(id)?;
        if run.has_ended() {
            return Ok(Vec::new());
        }
        read(&run.ask(Method::GET, "/settings", None).await?).map(|list: SettingList| list.settings)
    }

    pub(crate) async fn change(&self, id: u64, change: Change) -> Result<Accepted, Problem> {
        for (path, value) in &change.set {
            if let Some(message) = (self.options.permit_value)(value) {
                let remedy = "write the value without a file, or name the file in the scenario of a new run";
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message, remedy).at(path));
            }
        }
        let asked = ChangeRequest { set: change.set, at_ns: change.at_ns };
        let body = serde_json::to_string(&asked).expect("names and numbers are JSON always");
        read(&self.run(id)?.ask(Method::PATCH, "/settings", Some(&body)).await?)
    }

    pub(crate) async fn applied(&self, id: u64, after: u64) -> Result<Vec<AppliedChange>, Problem> {
        let run = self.run(id)?;
        if run.has_ended() {
            return Ok(Vec::new());
        }
        read(&run.ask(Method::GET, &format!("/changes?after={after}"), None).await?)
            .map(|list: ChangeList| list.changes)
    }

    pub(crate) async fn pause(&self, id: u64, resume: bool) -> Result<Accepted, Problem> {
        read(&self.run(id)?.ask(Method::POST, if resume { "/resume" } else { "/pause" }, None).await?)
    }

    pub(crate) async fn end(&self, id: u64) -> Result<Ending, Problem> {
        let run = self.run(id)?;
        if run.has_ended() {
            self.locked().remove(&id);
            return Ok(Ending::Forgotten);
        }
        run.ask_to_end();
        let view = run.known().view.clone();
        Ok(Ending::Asked(Box::new(view)))
    }

    /// Ends all runs and waits until they have ended.
    pub(crate) async fn end_all(&self) {
        let all = self.all();
        for run in &all {
            run.ask_to_end();
        }
        let all_ended = async {
            for run in &all {
                // The sender cannot be closed here, because the run owns it.
                let mut ended = run.ended.subscribe();
                let _ended = ended.wait_for(|ended| *ended).await;
            }
        };
        if timeout(PATIENCE, all_ended).await.is_err() {
            for run in &all {
                run.signal(Signal::KILL);
            }
        }
    }
}

/// The state of a run whose process is alive, as `said` by the run itself. A run reports its end before its process has
/// ended, but status and report are available only after that.
fn while_it_lives(known: &RunView, said: RunView) -> RunView {
    let state = if said.state == RunState::Ended { known.state } else { said.state };
    RunView { id: known.id, start_at: known.start_at.clone(), state, ..said }
}

/// The runs to remove. `ended` are the runs that have ended, in order of their start, with the sizes of their reports
/// in bytes.
fn beyond(ended: &[(u64, usize)]) -> Vec<u64> {
    let mut bytes = 0_usize;
    let kept = ended.iter().rev().take(KEPT).take_while(|(_, length)| {
        bytes = bytes.saturating_add(*length);
        bytes <= KEPT_REPORTS
    });
    let kept = kept.count();
    ended[..ended.len() - kept].iter().map(|(id, _)| *id).collect()
}

/// Rejects keys that clients may not use. Invalid TOML is left to the scenario parser, which reports its position.
fn check_tables(scenario: &str) -> Result<(), Problem> {
    let table = scenario.parse::<toml::Table>().unwrap_or_default();
    match table.keys().find(|key| !OF_CLIENTS.contains(&key.as_str())) {
        Some(key) => {
            let message = format!("clients may not write '{key}' in a scenario");
            let remedy = format!("leave it out; a client may write {}", OF_CLIENTS.join(", "));
            Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message, remedy).at(key))
        }
        None => Ok(()),
    }
}

/// Parses a response of the service of a run, which has the same version.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|_| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the run answers something else",
            "do not replace the program while it runs",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_runs_are_forgotten_beyond_their_number_and_their_bytes() {
        let small: Vec<(u64, usize)> = (1..=KEPT as u64 + 2).map(|id| (id, 1_000)).collect();
        assert_eq!(beyond(&small), [1, 2]);
        let large: Vec<(u64, usize)> = (1..=7).map(|id| (id, LONGEST_REPORT)).collect();
        assert_eq!(beyond(&large), [1, 2, 3], "four reports of the longest fit");
        assert_eq!(beyond(&[]), [0; 0]);
    }

    /// A client that waits for the end needs the status and the report.
    #[test]
    fn a_run_ends_with_its_process() {
        let known =
            RunView { id: 7, start_at: Some("then".to_owned()), state: RunState::Running, ..RunView::default() };
        for (state, shown) in [(RunState::Paused, RunState::Paused), (RunState::Ended, RunState::Running)] {
            let view = while_it_lives(&known, RunView { id: 1, state, changes: 3, ..RunView::default() });
            assert_eq!((view.id, view.state, view.changes, view.start_at.as_deref()), (7, shown, 3, Some("then")));
        }
    }

    #[test]
    fn tables_that_start_programs_are_refused() {
        assert!(check_tables("schema = 1\n[[pipeline]]\n[[expect]]\n[[timeline]]\n").is_ok());
        assert!(check_tables("schema = ").is_ok(), "the reader says where");
        for table in ["[[program]]\ncommand = \"id\"", "[lab]", "[disk]", "[sweep]", "x = 1"] {
            assert!(check_tables(table).is_err(), "{table}");
        }
    }
}
