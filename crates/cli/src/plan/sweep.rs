//! The runs of a scenario's `[sweep]`.

use crate::options::common::{Common, ResultFiles};
use crate::output::Failure;
use crate::plan::files::same;
use scenario::{PipelinePlan, PortSpec, SweepRun};
use std::path::{Path, PathBuf};

/// Environment variable with the number, from 1, of the run of a sweep that this netlathe process carries out.
pub(crate) const MARK: &str = "NETLATHE_SWEEP_RUN";

/// A sweep.
pub(crate) struct SweepPlan {
    /// The name of the scenario file.
    pub(crate) title: String,
    /// The paths and values of each run.
    pub(crate) runs: Vec<Vec<(String, String)>>,
    pub(crate) results: ResultFiles,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// Whether each run is announced.
    pub(crate) tells: bool,
}

/// Returns the number, from 0, of the run of a sweep that this process carries out.
pub(crate) fn own_run() -> Option<usize> {
    std::env::var(MARK).ok()?.parse::<usize>().ok()?.checked_sub(1)
}

/// Returns the options of one run of a sweep. The parent process reads its JSON report, and its page has its own
/// folder.
pub(crate) fn options_of_run(common: Common, number: usize) -> Common {
    let folder = common.folder.map(|folder| folder.join(format!("run-{}", number + 1)));
    Common { json: true, quiet: false, progress: "never".to_owned(), folder, ..common }
}

impl SweepPlan {
    /// Makes the plan. Refuses options that are for one run, and files that two runs would write.
    pub(crate) fn new(
        title: String,
        runs: &[SweepRun],
        common: &Common,
        results: ResultFiles,
    ) -> Result<Self, Failure> {
        #[cfg(feature = "service")]
        let is_controlled = common.control.is_some();
        #[cfg(not(feature = "service"))]
        let is_controlled = false;
        let of_one_run = [
            ("--stats", common.stats.is_some()),
            ("--control", is_controlled),
            ("--start-at", common.start_at.is_some()),
        ];
        if let Some((option, _)) = of_one_run.iter().find(|(_, given)| *given) {
            return Err(Failure::new(format!("{option}: it is for one run, and a sweep has several: leave it out")));
        }
        let mut before: Vec<(PathBuf, usize)> = Vec::new();
        for (number, run) in runs.iter().enumerate() {
            for path in run.scenario.pipelines.iter().flat_map(outputs) {
                if let Some((_, other)) = before.iter().find(|(other, _)| same(other, path)) {
                    return Err(Failure::new(format!(
                        "{}: runs {} and {} of the sweep would write it: sweep the path as well, or leave the file out",
                        path.display(),
                        other + 1,
                        number + 1
                    )));
                }
            }
            before.extend(run.scenario.pipelines.iter().flat_map(outputs).map(|path| (path.to_owned(), number)));
        }
        let (json, quiet) = (common.json, common.quiet);
        let tells = common.verbose > 0;
        let runs = runs.iter().map(|run| run.values.clone()).collect();
        Ok(SweepPlan { title, runs, results, json, quiet, tells })
    }
}

/// Returns the regular files that a pipeline writes.
fn outputs(plan: &PipelinePlan) -> Vec<&Path> {
    let paths: Vec<&Path> = match &plan.output {
        PortSpec::Pcap(path) => vec![path.as_path()],
        PortSpec::Wire(wire) => wire.pcap.iter().chain(&wire.frames).map(|path| path.as_path()).collect(),
        PortSpec::Line(line) => line.frames.iter().map(|path| path.as_path()).collect(),
        _ => Vec::new(),
    };
    // Several runs may write to a device such as /dev/null.
    paths.into_iter().filter(|path| !path.exists() || path.is_file()).collect()
}
