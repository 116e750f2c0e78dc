//! The runs of a sweep as a table.

use crate::output::{bits, figure};
use crate::render::results::RunResult;
use scenario::Expectation;

/// Formats paths and values in one line.
pub(crate) fn values(values: &[(String, String)]) -> String {
    values.iter().map(|(path, value)| format!("{path}={value}")).collect::<Vec<_>>().join(", ")
}

/// Formats a line for each run: its values, the figures with expectations, and whether all were met.
pub(crate) fn table(runs: &[RunResult]) -> String {
    let mut header = vec!["run".to_owned()];
    let mut rows = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let mut row = vec![(number + 1).to_string()];
        row.extend(run.values.iter().map(|(_, value)| value.clone()));
        if number == 0 {
            header.extend(run.values.iter().map(|(path, _)| path.clone()));
        }
        let cells = cells(run);
        if header.len() < row.len() + cells.len() {
            header.truncate(row.len());
            header.extend(cells.iter().map(|(name, _)| name.clone()));
        }
        row.extend(cells.into_iter().map(|(_, value)| value));
        let missed = expectations(run).filter(|expectation| expectation["ok"] == false).count();
        row.push(match (&run.failure, missed) {
            (Some(failure), _) => format!("failed: {failure}"),
            (None, 0) => "ok".to_owned(),
            (None, missed) => format!("missed {missed}"),
        });
        rows.push(row);
    }
    header.push("result".to_owned());
    aligned(&header, &rows)
}

fn expectations(run: &RunResult) -> impl Iterator<Item = &serde_json::Value> {
    run.report["expectations"].as_array().into_iter().flatten()
}

/// Returns the figures of a run, each once: those with expectations or, without expectations, the frames and the rate
/// of each pipeline. `*` marks a missed expectation.
fn cells(run: &RunResult) -> Vec<(String, String)> {
    let mut cells: Vec<(String, String)> = Vec::new();
    for expectation in expectations(run) {
        let that = expectation["that"].as_str().unwrap_or_default();
        let parsed = Expectation::parse(that);
        let name = that.split(['<', '>', '=']).next().unwrap_or(that).trim().to_owned();
        let value = match (expectation["value"].as_f64(), &parsed) {
            (Some(value), Ok(parsed)) => figure(value, parsed.unit),
            (Some(value), Err(_)) => value.to_string(),
            (None, _) => "none".to_owned(),
        };
        let value = if expectation["ok"] == false { value + " *" } else { value };
        match cells.iter_mut().find(|(other, _)| *other == name) {
            Some((_, other)) if value.ends_with('*') => *other = value,
            Some(_) => {}
            None => cells.push((name, value)),
        }
    }
    if cells.is_empty() {
        for pipeline in run.report["pipelines"].as_array().into_iter().flatten() {
            let name = pipeline["name"].as_str().unwrap_or_default();
            cells.push((format!("{name}.out.frames"), pipeline["out"]["frames"].to_string()));
            let rate = pipeline["rate"]["mean_bps"].as_f64();
            cells.push((format!("{name}.rate.mean"), rate.map_or("none".to_owned(), bits)));
        }
    }
    cells
}

/// Aligns columns under their headers. The last cell of a shorter row is in the last column.
fn aligned(header: &[String], rows: &[Vec<String>]) -> String {
    let mut rows: Vec<Vec<String>> = rows.to_vec();
    for row in &mut rows {
        while row.len() < header.len() {
            row.insert(row.len() - 1, String::new());
        }
    }
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells =
                rows.iter().chain([&header.to_vec()]).map(|row| row[column].chars().count()).collect::<Vec<_>>();
            cells.into_iter().max().unwrap_or(0)
        })
        .collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    line(header) + &rows.iter().map(|row| line(row)).collect::<String>()
}
