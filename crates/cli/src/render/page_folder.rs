//! The folder of `--report`: `report.html` for people, `report.json` with the data of its drawings.

use crate::options::common::{CHILD, REPORT_FILES};
use crate::output::Failure;
use crate::render::output_file;
use measure::{CaveatKind, PipelineReport, Report};
use page::{PageHeader, Verdict};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A writable folder. If it was created for the report and nothing was written to it, dropping removes it.
pub(crate) struct PageFolder {
    path: PathBuf,
    /// Folders that were created, outermost first. Cleared when the report is written.
    made: Vec<PathBuf>,
}

impl PageFolder {
    /// Creates the folder if necessary, and checks that a file can be created in it, before anything runs.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let problem = |what: &str| Failure::new(format!("--report: {} {what}", path.display()));
        let missing =
            path.ancestors().filter(|folder| !folder.as_os_str().is_empty()).take_while(|folder| !folder.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
        made.reverse();
        let folder = PageFolder { path: path.to_owned(), made };
        fs::create_dir_all(path).map_err(|cause| match cause.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                problem("is not a folder, or lies inside a file: name a folder")
            }
            _ => problem(&format!("cannot be created: {cause}: check the path and its permissions")),
        })?;
        for file in REPORT_FILES {
            if path.join(file).is_dir() {
                return Err(problem(&format!(
                    "contains a folder called {file}, which the report needs as a file: name another folder"
                )));
            }
        }
        let trial = path.join(format!(".netlathe-{}", std::process::id()));
        let tried = fs::write(&trial, "").and_then(|()| fs::remove_file(&trial));
        tried.map_err(|cause| problem(&format!("cannot be written to: {cause}: check its permissions")))?;
        Ok(folder)
    }

    /// Writes the page and the report of slices.
    #[cfg(feature = "slice")]
    pub(crate) fn write_slices(&mut self, command: &str, slices: &page::Slices, json: String) -> Result<(), Failure> {
        let about = PageHeader { facts: facts(None), ..about() };
        self.put([page::slices(command, slices, &about), json])
    }

    /// Writes the page and the report of a search. `failure` is set if the search ended early.
    pub(crate) fn write_search(
        &mut self,
        search: &page::Search,
        json: String,
        failure: Option<&Failure>,
    ) -> Result<(), Failure> {
        let about = PageHeader { facts: facts(None), failure: failure.map(Failure::to_string), ..about() };
        self.put([page::search(search, &about), json])
    }

    /// Writes both files, and the output of programs. `failure` is set if the run ended early.
    pub(crate) fn write(&mut self, report: &Report, failure: Option<&Failure>) -> Result<(), Failure> {
        let facts = facts(report.caveats.iter().find_map(|caveat| match &caveat.kind {
            CaveatKind::Dpdk { version } => Some(version.as_str()),
            _ => None,
        }));
        let verdicts = report
            .expectations
            .iter()
            .map(|expectation| Verdict { expected: expectation.that.clone(), missed: expectation.missed.clone() });
        let about =
            PageHeader { facts, verdicts: verdicts.collect(), failure: failure.map(Failure::to_string), ..about() };
        self.put([page::html(report, &about), with_plots(report)?])?;
        for program in &report.programs {
            for (output, kept) in ["stdout", "stderr"].into_iter().zip(&program.kept) {
                let path = self.path.join(format!("{}.{output}", program.name));
                fs::write(&path, kept).map_err(|cause| output_file::cannot_write(&path, &cause))?;
            }
        }
        Ok(())
    }

    fn put(&mut self, contents: [String; 2]) -> Result<(), Failure> {
        self.made.clear();
        for (file, content) in REPORT_FILES.into_iter().zip(contents) {
            let path = self.path.join(file);
            output_file::write(&path, &content)?;
        }
        Ok(())
    }
}

impl Drop for PageFolder {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // Fails if the folder contains other files, which is intended.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Returns the JSON report as on stdout, with the data of each drawing added.
fn with_plots(report: &Report) -> Result<String, Failure> {
    let mut value = serde_json::to_value(report).map_err(Failure::new)?;
    if let Some(Value::Array(pipelines)) = value.get_mut("pipelines") {
        add_plots(pipelines, &report.pipelines);
    }
    Ok(value.to_string() + "\n")
}

/// Adds the data of drawings to each of `values`, and to its classes.
fn add_plots(values: &mut [Value], reports: &[PipelineReport]) {
    for (value, report) in values.iter_mut().zip(reports) {
        let Value::Object(fields) = value else { continue };
        if let Some(Value::Array(classes)) = fields.get_mut("classes") {
            add_plots(classes, &report.classes);
        }
        if let Some(plots) = &report.plots {
            fields.insert("plots".into(), json!(plots));
        }
    }
}

/// Returns the page header of this command, which ends now.
pub(crate) fn about() -> PageHeader {
    PageHeader {
        command_line: command_line(std::env::args_os()),
        when: utc(SystemTime::now()),
        ..PageHeader::default()
    }
}

/// Returns the command, quoted for a shell.
fn command_line(arguments: impl Iterator<Item = OsString>) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+,./:%@".contains(c);
    let mut words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    // A run started by another netlathe has two more arguments, which a user would not type.
    if words.get(1).is_some_and(|word| word == CHILD) {
        words.drain(1..words.len().min(3));
    }
    // The path of the program may reveal private names.
    if let Some(program) = words.first_mut() {
        *program = "netlathe".into();
    }
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns versions and a description of the machine, with the version of DPDK if the run used it.
fn facts(dpdk: Option<&str>) -> Vec<(String, String)> {
    let mut facts = vec![("netlathe".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    if let Some(dpdk) = dpdk {
        facts.push(("with".to_owned(), dpdk.to_owned()));
    }
    if let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") {
        facts.push(("Linux".to_owned(), release.trim().to_owned()));
    }
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models: Vec<&str> = processors
        .lines()
        .filter_map(|line| line.strip_prefix("model name"))
        .filter_map(|rest| rest.split_once(':'))
        .map(|(_, model)| model.trim())
        .collect();
    if let Some(model) = models.first() {
        facts.push((format!("{} ×", models.len()), (*model).to_owned()));
    }
    facts
}

/// Formats an instant as 2026-11-21 14:48:19 UTC. Days are converted to dates as in H. Hinnant's `civil_from_days`:
/// years begin in March, so that the leap day is the last day of the year.
fn utc(instant: SystemTime) -> String {
    let seconds = instant.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_795_272_499, "2026-11-21 14:48:19 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), date);
        }
    }

    #[test]
    fn command_lines_can_be_typed_again() {
        let words =
            ["/usr/bin/netlathe", "gen", "--stream", "udp 1 > 2", "--gap", "10us", "", "it's"].map(OsString::from);
        assert_eq!(command_line(words.into_iter()), r"netlathe gen --stream 'udp 1 > 2' --gap 10us '' 'it'\''s'");
        let child = ["/usr/bin/netlathe", CHILD, "1234", "run", "a.toml"].map(OsString::from);
        assert_eq!(command_line(child.into_iter()), "netlathe run a.toml");
    }
}
