//! The input of a run of pipelines: plans and options.

use super::detour::DetourPlan;
use super::files::{RecordedFiles, same};
use super::ready_gate::ReadyGate;
use crate::options::common::{Common, ResultFiles};
use crate::output::{self, Failure};
use ::measure::{Caveat, EndToEnd};
use engine::slices::Listener;
use scenario::{Expectation, LabPlan, PipelinePlan, PipelineText, PortSpec, Problems, ProgramPlan, TimelineChange};
use sim::is_standard;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::Span;

/// A run: plans and options.
pub(crate) struct Request {
    pub(crate) command: &'static str,
    pub(crate) pipelines: Vec<PipelinePlan>,
    pub(crate) expectations: Vec<Expectation>,
    /// Changes during the run, in order of time.
    pub(crate) timeline: Vec<TimelineChange>,
    /// Files that were read to make the plan. Captures that are read during the run are not in it.
    pub(crate) read: Vec<PathBuf>,
    /// Caveats about those files.
    pub(crate) of_files: Vec<Caveat>,
    /// File for the decisions on each frame.
    pub(crate) decisions: Option<PathBuf>,
    /// File for the bytes of each limited user.
    pub(crate) by_user: Option<PathBuf>,
    /// The interface whose frames are diverted through the ports of the only pipeline.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "ports are refused"))]
    pub(crate) on: Option<DetourPlan>,
    /// The receiver that counts the frames sent.
    pub(crate) receiver: Option<Arrivals>,
    /// The listeners for traced frames.
    pub(crate) listener: SliceListener,
    /// The lab and the programs that run beside the pipelines.
    pub(crate) beside: Beside,
    /// Opens when frames start to pass.
    pub(crate) gate: ReadyGate,
    /// The name of the run in its results: the scenario's file or, without one, the command.
    pub(crate) title: String,
    /// Files for the results.
    pub(crate) results: ResultFiles,
    pub(crate) common: Common,
}

/// The parts of a scenario other than its pipelines.
#[derive(Default)]
pub(crate) struct Beside {
    /// The lab to build for the run.
    pub(crate) lab: Option<LabPlan>,
    pub(crate) programs: Vec<ProgramPlan>,
    /// The program whose end ends the run.
    #[cfg_attr(not(feature = "live"), expect(dead_code, reason = "programs are refused"))]
    pub(crate) until: Option<String>,
}

/// The receiver of a generator's frames.
#[cfg_attr(not(feature = "live"), expect(dead_code, reason = "ports are refused"))]
pub(crate) struct Arrivals {
    pub(crate) port: PortSpec,
    /// CPUs that receive, each from its own queue. If empty, one thread receives on any CPU.
    pub(crate) cpus: Vec<usize>,
    /// How long to wait for missing frames.
    pub(crate) wait: Span,
    /// Capture for the frames of a replay that did not arrive, or arrived changed.
    pub(crate) missing: Option<PathBuf>,
}

impl Request {
    /// The seed of all random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.common.seed.unwrap_or(1)
    }

    /// Checks that outputs can be created, and that no file is written twice or both read and written.
    pub(crate) fn check_files(&self) -> Result<(), Failure> {
        let mut inputs: Vec<&Path> = self.read.iter().map(PathBuf::as_path).collect();
        let mut outputs: Vec<&Path> = Vec::new();
        let missing = self.receiver.as_ref().map_or(&None, |arrivals| &arrivals.missing);
        outputs.extend(
            [&self.decisions, &self.by_user, missing, &self.common.stats].into_iter().flatten().map(PathBuf::as_path),
        );
        outputs.extend(self.results.junit.iter().chain(&self.results.csv).map(PathBuf::as_path));
        for plan in &self.pipelines {
            inputs.extend(plan.captures());
            match &plan.output {
                PortSpec::Pcap(path) => outputs.push(path),
                PortSpec::Wire(wire) => outputs.extend(wire.pcap.iter().chain(&wire.frames).map(|path| path.as_path())),
                PortSpec::Line(line) => outputs.extend(line.frames.iter().map(|path| path.as_path())),
                _ => {}
            }
        }
        let pages = self.common.report_files();
        let standard = outputs.iter().filter(|output| is_standard(output)).count();
        if standard > 1 {
            return Err(Failure::new("-: only one output can go to stdout: name a file for the other"));
        }
        if standard == 1 {
            output::leave_stdout();
        }
        for (i, output) in outputs.iter().enumerate().filter(|(_, output)| !is_standard(output)) {
            let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let metadata = if output.is_dir() { Err(ErrorKind::IsADirectory.into()) } else { folder.metadata() };
            metadata.map_err(|cause| Failure::new(sim::SimError::Write { path: output.to_path_buf(), cause }))?;
            // Several outputs may write to a device such as /dev/null.
            let special = std::fs::metadata(output).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
            let mut others = outputs[..i].iter().chain(&inputs).copied().chain(pages.iter().map(PathBuf::as_path));
            if !special && others.any(|other| same(output, other)) {
                return Err(Failure::new(format!(
                    "{} would be overwritten while it is in use: name another output",
                    output.display()
                )));
            }
        }
        Ok(())
    }

    /// Makes a request for one pipeline from options.
    pub(crate) fn of_pipeline(command: &'static str, text: &PipelineText, common: Common) -> Result<Self, Failure> {
        let mut problems = Problems::default();
        let listed = RecordedFiles::default();
        let plan = text.resolve(Some(&listed), &mut problems);
        let plan = problems.unless_any(plan).map_err(Failure::new)?;
        let (read, of_files) = listed.into_parts();
        let expectations = Vec::new();
        Ok(Request {
            command,
            pipelines: vec![plan],
            expectations,
            timeline: Vec::new(),
            read,
            of_files,
            decisions: None,
            by_user: None,
            on: None,
            receiver: None,
            listener: SliceListener::default(),
            beside: Beside::default(),
            gate: ReadyGate::default(),
            title: command.to_owned(),
            results: ResultFiles::default(),
            common,
        })
    }
}

/// Creates the trace listener for the pipeline or direction with this name.
pub(crate) type ListenerFactory = Arc<dyn Fn(&str) -> Listener + Send + Sync>;

/// The trace listeners, if any, and the function that evaluates their records after the run.
#[derive(Clone, Default)]
pub(crate) struct SliceListener {
    /// Creates the listener of each pipeline or direction.
    pub(crate) hears: Option<ListenerFactory>,
    /// Called once, after the run.
    pub(crate) concludes: Option<Conclusion>,
}

/// Evaluates the packet paths from end to end after a run.
pub(crate) type Conclusion = Arc<dyn Fn() -> Result<EndToEnd, Failure> + Send + Sync>;
