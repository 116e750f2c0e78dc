//! The results of runs for other programs: JUnit XML and CSV.

use crate::options::common::ResultFiles;
use crate::output::{self, Failure};
use crate::render::output_file::Table;
use measure::{Figure, all_figures, program_figures};
use serde_json::Value;
use std::fmt::Write as _;

/// The result of a run.
pub(crate) struct RunResult {
    /// Its name in the results.
    pub(crate) name: String,
    /// Paths and values, if the run is part of a sweep.
    pub(crate) values: Vec<(String, String)>,
    /// Its report as JSON.
    pub(crate) report: Value,
    /// The failure that ended the run early.
    pub(crate) failure: Option<String>,
}

/// The files of `--junit` and `--csv`.
pub(crate) struct ResultTables {
    junit: Option<Table>,
    csv: Option<Table>,
}

impl ResultTables {
    /// Opens the files. Called before anything runs.
    pub(crate) fn open(files: &ResultFiles) -> Result<Self, Failure> {
        let open = |path: &Option<_>| path.as_deref().map(Table::create).transpose();
        Ok(ResultTables { junit: open(&files.junit)?, csv: open(&files.csv)? })
    }

    /// Writes the results of all runs.
    pub(crate) fn finish(self, runs: &[RunResult]) -> Result<(), Failure> {
        output::all([
            self.junit.map_or(Ok(()), |file| file.finish(&junit(runs))),
            self.csv.map_or(Ok(()), |file| file.finish(&csv(runs))),
        ])
    }
}

/// Formats a test suite for each run, with a test case for each expectation. A run without expectations has one case,
/// which passes if nothing ended the run early.
fn junit(runs: &[RunResult]) -> String {
    let (mut suites, mut tests, mut failures, mut errors) = (String::new(), 0, 0, 0);
    // Writing to a string cannot fail.
    for run in runs {
        let expectations = run.report["expectations"].as_array().map_or(&[][..], Vec::as_slice);
        let missed = expectations.iter().filter(|expectation| expectation["ok"] == false).count();
        let whole = usize::from(run.failure.is_some() || expectations.is_empty());
        let name = xml(&run.name);
        let count = expectations.len() + whole;
        let failed = usize::from(run.failure.is_some());
        let _ = writeln!(
            suites,
            "  <testsuite name=\"{name}\" tests=\"{count}\" failures=\"{missed}\" errors=\"{failed}\">"
        );
        for expectation in expectations {
            let that = xml(expectation["that"].as_str().unwrap_or_default());
            let _ = write!(suites, "    <testcase name=\"{that}\" classname=\"{name}\"");
            match expectation["missed"].as_str() {
                None => suites.push_str("/>\n"),
                Some(why) => {
                    let why = xml(why);
                    let _ = writeln!(
                        suites,
                        "><failure message=\"expected {that}: {why}\" type=\"expectation\"/></testcase>"
                    );
                }
            }
        }
        if whole == 1 {
            let _ = write!(suites, "    <testcase name=\"runs to its end\" classname=\"{name}\"");
            match &run.failure {
                None => suites.push_str("/>\n"),
                Some(failure) => {
                    let _ = writeln!(suites, "><error message=\"{}\" type=\"failure\"/></testcase>", xml(failure));
                }
            }
        }
        suites.push_str("  </testsuite>\n");
        (tests, failures, errors) = (tests + count, failures + missed, errors + failed);
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites name=\"netlathe\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n{suites}</testsuites>\n"
    )
}

/// Escapes text for an XML attribute. XML 1.0 cannot express most control characters, so these are written as Rust
/// escapes.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' | '\r' => {
                let _ = write!(escaped, "&#{};", u32::from(c));
            }
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.extend(c.escape_default()),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a line for each figure. In a sweep, lines begin with the number of the run and its values.
fn csv(runs: &[RunResult]) -> String {
    let mut text = String::new();
    if let Some(first) = runs.first().filter(|run| !run.values.is_empty()) {
        let paths = first.values.iter().map(|(path, _)| field(path) + ",");
        text = format!("run,{}", paths.collect::<String>());
    }
    text.push_str("pipeline,figure,unit,value\n");
    for (number, run) in runs.iter().enumerate() {
        let values: String = run.values.iter().map(|(_, value)| field(value) + ",").collect();
        let values = if values.is_empty() { values } else { format!("{},{values}", number + 1) };
        for [pipeline, figure, unit, value] in figures(&run.report) {
            let _ = writeln!(text, "{values}{},{},{unit},{value}", field(&pipeline), field(&figure));
        }
    }
    text
}

/// Returns all figures of a report: the pipeline, class or program, then path, unit and value.
fn figures(report: &Value) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for pipeline in report["pipelines"].as_array().into_iter().flatten() {
        let name = pipeline["name"].as_str().unwrap_or_default();
        add_figures(pipeline, name, all_figures(), &mut rows);
        for class in pipeline["classes"].as_array().into_iter().flatten() {
            let class_name = class["name"].as_str().unwrap_or_default();
            add_figures(class, &format!("{name}.{class_name}"), all_figures(), &mut rows);
        }
    }
    for program in report["programs"].as_array().into_iter().flatten() {
        add_figures(program, program["name"].as_str().unwrap_or_default(), program_figures(), &mut rows);
    }
    rows
}

/// Adds the figures of a pipeline, class or program to `rows`.
fn add_figures(report: &Value, name: &str, list: &[Figure], rows: &mut Vec<[String; 4]>) {
    for figure in list {
        each_value(report, &figure.path, "", &mut |path, value| {
            rows.push([name.to_owned(), path.to_owned(), figure.unit.name().to_owned(), value.to_string()]);
        });
    }
}

/// Calls `found` for each number that the path of a figure matches, with the number's full path.
fn each_value(value: &Value, path: &[String], before: &str, found: &mut impl FnMut(&str, &Value)) {
    let Some((name, rest)) = path.split_first() else {
        if value.is_number() {
            found(before, value);
        }
        return;
    };
    let joined = |name: &str| if before.is_empty() { name.to_owned() } else { format!("{before}.{name}") };
    if let Some(list) = name.strip_suffix("[]") {
        for (i, item) in value[list].as_array().into_iter().flatten().enumerate() {
            each_value(item, rest, &joined(&format!("{list}[{i}]")), found);
        }
    } else if name == "*" {
        for (key, inner) in value.as_object().into_iter().flatten() {
            each_value(inner, rest, &joined(key), found);
        }
    } else if let Some(inner) = value.get(name) {
        each_value(inner, rest, &joined(name), found);
    }
}

/// Returns a field of CSV, quoted if needed (RFC 4180).
fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn junit_has_a_case_for_each_expectation_and_escapes_text() {
        let expectations = json!([
            { "that": "a.held == 0", "value": 0, "ok": true },
            { "that": "a.gap.p99 < 1us", "value": 5, "ok": false, "missed": "it is \"5\" & \u{1b}" },
        ]);
        let run = RunResult {
            name: "a.toml".into(),
            values: Vec::new(),
            report: json!({ "expectations": expectations }),
            failure: None,
        };
        let text = junit(&[run]);
        assert!(text.contains("<testsuites name=\"netlathe\" tests=\"2\" failures=\"1\" errors=\"0\">"), "{text}");
        assert!(text.contains("<testcase name=\"a.held == 0\" classname=\"a.toml\"/>"), "{text}");
        assert!(text.contains("expected a.gap.p99 &lt; 1us: it is &quot;5&quot; &amp; \\u{1b}"), "{text}");
        let failed =
            RunResult { name: "b".into(), values: Vec::new(), report: Value::Null, failure: Some("no <port>".into()) };
        let text = junit(&[failed]);
        assert!(text.contains("tests=\"1\" failures=\"0\" errors=\"1\"") && text.contains("no &lt;port&gt;"), "{text}");
    }

    #[test]
    fn csv_has_lists_classes_and_wildcards() {
        let report = json!({ "pipelines": [{
            "name": "a,b", "held": 3, "skipped": { "cut": 2 }, "streams": [{ "sent": 5 }],
            "classes": [{ "name": "web", "out": { "frames": 7 } }],
        }] });
        let text = csv(&[RunResult { name: String::new(), values: Vec::new(), report, failure: None }]);
        for line in [
            "pipeline,figure,unit,value",
            "\"a,b\",held,count,3",
            "\"a,b\",skipped.cut,count,2",
            "\"a,b\",streams[0].sent,count,5",
            "\"a,b.web\",out.frames,count,7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
