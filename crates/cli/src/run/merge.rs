//! `netlathe merge`: reads reports and prints the merged one.

use crate::options::merge::{Merge, Named};
use crate::options::start_at::Utc;
use crate::output::{self, Failure};
use crate::plan::files;
use crate::render::{output_file, page_folder};
use measure::{HostReportFile, merge};
use page::Lane;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use units::Span;

/// The longest report that is read, in bytes.
const LONGEST: u64 = 64 << 20;

impl Merge {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut named: Vec<Named> = Vec::new();
        for text in &self.reports {
            let one = named_report(text);
            if named.iter().any(|known| known.host == one.host) {
                return Err(Failure::new(format!(
                    "{text}: another report is also of host {}: write NAME={text} to name its host",
                    one.host
                )));
            }
            named.push(one);
        }
        if let Some(path) = self.page.as_ref().filter(|path| named.iter().any(|one| files::same(&one.path, path))) {
            return Err(Failure::new(format!(
                "--page: {} is one of the reports and would be overwritten: name another file",
                path.display()
            )));
        }
        let offsets = self.offsets.iter().map(|text| offset(text, &named)).collect::<Result<Vec<_>, _>>()?;
        let read = |Named { host, path }: Named| {
            let offset_ns = offsets.iter().find(|(name, _)| *name == host).map(|(_, ns)| *ns);
            Ok(HostReportFile { report: read_report(&path)?, host, offset_ns })
        };
        let reports = named.into_iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
        let merged = merge(&reports).map_err(|why| Failure::new(format!("cannot merge: {why}: leave it out")))?;
        if let Some(path) = &self.page {
            let page = page::merged(&merged, &lanes(&reports, &merged), &page_folder::about());
            output_file::write(path, &page).map_err(|failure| Failure::new(format!("--page: {failure}")))?;
        }
        output::print(&if self.json { merged.to_string() + "\n" } else { table(&merged) })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The lanes of each pipeline: its rate on each host. A lane starts at the first frame on its host, by the reference
/// clock.
fn lanes(reports: &[HostReportFile], merged: &Value) -> Vec<(String, Vec<Lane>)> {
    let starts: Vec<Option<u64>> = reports
        .iter()
        .map(|host| {
            let mut hosts = merged["merged"]["hosts"].as_array().into_iter().flatten();
            hosts.find(|entry| entry["name"] == host.host.as_str())?["start_aligned_unix_ns"].as_u64()
        })
        .collect();
    // Lanes whose start is unknown begin with the earliest lane.
    let first = starts.iter().flatten().min().copied().unwrap_or(0);
    let names: Vec<String> = merged["pipelines"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pipeline| Some(pipeline["name"].as_str()?.to_owned()))
        .collect();
    let of_pipeline = |name: String| {
        let lane = |(host, start): (&HostReportFile, &Option<u64>)| {
            let mut all = host.report["pipelines"].as_array().into_iter().flatten();
            let curve = &all.find(|pipeline| pipeline["name"] == name.as_str())?["rate_curve"];
            let rates = curve["got_bps"].as_array().into_iter().flatten();
            Some(Lane {
                name: host.host.clone(),
                from_ns: start.map_or(0.0, |start| (start - first) as f64),
                window_ns: curve["window_ns"].as_f64().unwrap_or(0.0),
                rates_bps: rates.filter_map(Value::as_f64).collect(),
            })
        };
        let lanes = reports.iter().zip(&starts).filter_map(lane).collect();
        (name, lanes)
    };
    names.into_iter().map(of_pipeline).collect()
}

/// Parses `NAME=FILE`. Without NAME, the host is named after the file, or after its folder if the file is called
/// `report`.
fn named_report(text: &str) -> Named {
    if let Some((name, path)) = text.split_once('=').filter(|(name, _)| !name.is_empty() && !name.contains('/')) {
        return Named { host: name.to_owned(), path: path.into() };
    }
    let path = PathBuf::from(text);
    let stem = path.file_stem().filter(|stem| *stem != "report");
    let folder = path.parent().and_then(|folder| folder.file_name());
    let host = stem.or(folder).map_or_else(|| text.to_owned(), |name| name.to_string_lossy().into_owned());
    Named { host, path }
}

/// Parses `NAME=TIME`. Returns the time in ns.
fn offset(text: &str, known: &[Named]) -> Result<(String, f64), Failure> {
    let fail = |why: String| Failure::new(format!("--offset {text}: {why}: write NAME=12.5us or NAME=-40us"));
    let (name, time) = text.split_once('=').ok_or_else(|| fail("it has no '='".to_owned()))?;
    if !known.iter().any(|one| one.host == name) {
        let hosts: Vec<&str> = known.iter().map(|one| one.host.as_str()).collect();
        return Err(fail(format!("no report is of host '{name}', only of {}", hosts.join(", "))));
    }
    let size = time.strip_prefix(['-', '+']).unwrap_or(time);
    let size: Span = size.parse().map_err(|error| fail(format!("{error}")))?;
    let sign = if time.starts_with('-') { -1.0 } else { 1.0 };
    Ok((name.to_owned(), sign * size.as_ns_f64()))
}

fn read_report(path: &std::path::Path) -> Result<Value, Failure> {
    let fail = |cause: &dyn std::fmt::Display| {
        Failure::new(format!("cannot read {}: {cause}: name a report that --json wrote", path.display()))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|cause| fail(&cause))?;
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(|cause| fail(&cause))?;
    if text.len() as u64 > LONGEST {
        return Err(fail(&format!("it has more than {LONGEST} bytes")));
    }
    serde_json::from_str(&text).map_err(|cause| fail(&cause))
}

/// The merged report as text: warnings, hosts, then the figures of each pipeline.
fn table(report: &Value) -> String {
    let mut text = String::new();
    let each = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // Writing to a string cannot fail.
    for warning in each(&report["warnings"]) {
        let _ = writeln!(text, "warning: {}", word(&warning));
    }
    let hosts = each(&report["merged"]["hosts"]);
    let _ = writeln!(text, "{} of {}", word(&report["command"]), output::counted(hosts.len() as u64, "host"));
    let width = hosts.iter().map(|host| word(&host["name"]).chars().count()).max().unwrap_or(0);
    for host in &hosts {
        let _ = write!(text, "  {:<width$}", word(&host["name"]));
        if let Some(miss) = host["start"]["miss_ns"].as_f64() {
            let _ = write!(text, "  started {} after the asked instant", signed(miss));
        }
        if let Some(aligned) = host["start_aligned_unix_ns"].as_u64() {
            let _ = write!(text, ", at {} by the reference", Utc(aligned));
        }
        if let Some(offset) = host["clock_offset_ns"].as_f64() {
            let _ = write!(text, "; the reference is {} ahead", signed(offset));
        }
        text.push('\n');
    }
    if let Some(spread) = report["merged"]["start_spread_ns"].as_f64() {
        let known = report["merged"]["clocks_known"] == true;
        let why = if known { "clocks aligned" } else { "not all clocks are known" };
        let _ = writeln!(text, "  starts within {} of each other ({why})", output::time(spread));
    }
    for pipeline in each(&report["pipelines"]) {
        let of = each(&pipeline["hosts"]).len() as u64;
        let _ = writeln!(text, "{} of {}", word(&pipeline["name"]), output::counted(of, "host"));
        for direction in ["in", "out"] {
            let count = |name: &str| pipeline[direction][name].as_u64().unwrap_or(0);
            let _ = writeln!(
                text,
                "  {direction:<9} {}, {} B with FCS",
                output::counted(count("frames"), "frame"),
                output::thousands(count("bytes"))
            );
        }
        for (reason, frames) in pipeline["drops"].as_object().into_iter().flatten() {
            let _ =
                writeln!(text, "  dropped   {} by {reason}", output::counted(frames.as_u64().unwrap_or(0), "frame"));
        }
        if let Some(rate) = pipeline["rate"]["mean_bps"].as_f64() {
            let _ = writeln!(text, "  rate      {} on average, hosts added", output::bits(rate));
        }
        for name in ["gap", "lateness", "delay"] {
            let figures = [
                ("mean", "mean_ns"),
                ("sd", "std_ns"),
                ("min", "min_ns"),
                ("median", "p50_ns"),
                ("p99", "p99_ns"),
                ("max", "max_ns"),
            ];
            let shown: Vec<String> = figures
                .iter()
                .filter_map(|(word, field)| Some(format!("{word} {}", signed(pipeline[name][field].as_f64()?))))
                .collect();
            if !shown.is_empty() {
                let _ = writeln!(text, "  {name:<9} {}", shown.join(", "));
            }
        }
        for stream in each(&pipeline["streams"]) {
            let count = |name: &str| stream[name].as_u64();
            let _ = write!(text, "  stream {:<2}", count("stream").unwrap_or(0));
            for (name, word) in
                [("sent", "sent"), ("received", "received"), ("lost", "lost"), ("reordered", "reordered")]
            {
                if let Some(frames) = count(name) {
                    let _ = write!(text, " {} {word},", output::thousands(frames));
                }
            }
            text.pop();
            text.push('\n');
        }
    }
    let left_out: Vec<String> = each(&report["merged"]["left_out"]).iter().map(word).collect();
    if !left_out.is_empty() {
        let _ = writeln!(text, "left out, since reports do not allow it exactly: {}", left_out.join(", "));
    }
    text
}

/// A time in ns that may be negative.
fn signed(ns: f64) -> String {
    if ns < 0.0 { format!("−{}", output::time(-ns)) } else { output::time(ns) }
}
