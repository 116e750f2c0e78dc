//! The report as one self-contained HTML page: no network, no script, no font, no image.
//!
//! The functions are pure: the same report gives the same page. The page follows the reader's choice of light or dark
//! mode, has a text alternative for each drawing, and can be printed.

mod chart;
mod lanes;
mod parts;
mod pipeline;
mod plots;
mod programs;
mod search;
mod slices;
mod text;

pub use lanes::Lane;
pub use search::{DrawnTrial, FoundGoal, Search, SearchedSize, search};
pub use slices::{Slices, slices};

use measure::figures::{counted, digits, share, time};
use measure::{PipelineReport, Report};
use serde_json::Value;
use text::{details, escape, table};

/// What a page shows in addition to the report.
#[derive(Clone, Debug, Default)]
pub struct PageHeader {
    /// The command as it was typed.
    pub command_line: String,
    /// When the run ended, as text.
    pub when: String,
    /// Versions and properties of the machine: name and value.
    pub facts: Vec<(String, String)>,
    /// The error that ended the run early, if any.
    pub failure: Option<String>,
    /// The expectations and their outcomes.
    pub verdicts: Vec<Verdict>,
}

/// An expectation and its outcome.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The expectation as it was written.
    pub expected: String,
    /// Why it was missed; `None` if it was met.
    pub missed: Option<String>,
}

const STYLE: &str = include_str!("style.css");

/// The meaning of the figures, so that a page can be read without docs/reference/report.md, which has the details.
const TERMS: &[(&str, &str)] = &[
    ("frame", "an Ethernet frame. Its bytes include the FCS; preamble and inter-frame gap are not counted."),
    (
        "gap",
        "inter-departure time: from the start of one frame to the start of the next. Mean, deviation, least and largest are exact; quantiles are at most 0.1 % above the true value.",
    ),
    (
        "ask",
        "the instant at which the schedule placed a frame. The gap asked between two frames is the difference of their asks, whether a fixed gap, a rate or a law sets it.",
    ),
    ("conformance", "share of gaps that differ from their own asked gap by at most a bound."),
    (
        "back to back",
        "gaps without an idle line: on a line, up to the duration of the preceding frame plus one byte time; elsewhere, less than a tenth of the gap asked.",
    ),
    (
        "lateness",
        "departure minus ask; early departures count as 0. On a model line the departure is the start of the frame there; on live ports it is the hand-over to the driver.",
    ),
    ("hiccup", "live: a run of consecutive departures that are all more than 5 µs late."),
    ("starved", "times that no frame was ready when one was due; the schedule restarts at the next arrival."),
    (
        "wave width",
        "the shortest buffer with which no departure would have starved, for these arrivals: use it as --buffer of the next run.",
    ),
    ("contended", "of a class: departures that waited because a frame of another class was on the line."),
    (
        "crest",
        "consecutive frames of one source without a silence between them. Skew: delay of a source's first frame after the first frame of the round. Overlap: time during which crests of other sources were also in progress; at arrival, from first to last arrival; at departure, from first start to last end. Missed: rounds without a crest of this source.",
    ),
    (
        "rate",
        "of frames with FCS. Mean: lengths of all frames but the last ÷ (last start − first start). Curves show whole windows; the last, unfinished one is left out.",
    ),
    ("filler frames", "keep the line busy between frames, and the switch discards them; no figure counts them."),
    ("accounting", "in + copies = out + dropped + held, at the end of every run, however it ended."),
];

/// The histogram of a pipeline's gaps as an SVG file; `None` without gaps.
#[must_use]
pub fn gaps(report: &PipelineReport) -> Option<String> {
    let plot = report.plots.as_ref()?.gap.as_ref()?;
    Some(plots::gaps_alone(plot))
}

/// The page.
#[must_use]
pub fn html(report: &Report, about: &PageHeader) -> String {
    let mut main = verdicts(&about.verdicts, &compared(report));
    main.push_str(&warnings(&report.warnings));
    for (i, pipeline) in report.pipelines.iter().enumerate() {
        main.push_str(&pipeline::section(pipeline, i));
    }
    main.push_str(&programs::section(&report.programs));
    main.push_str(&report.end_to_end.as_ref().map_or_else(String::new, slices::end_to_end));
    main.push_str(&caveats(report));
    main.push_str("<section class=\"stack\"><h2 id=\"terms\">What the figures mean</h2>\n<div class=\"card\"><dl class=\"terms\">\n");
    for (term, meaning) in TERMS {
        main.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", escape(term), escape(meaning)));
    }
    main.push_str("</dl></div></section>\n");
    let json = format!(
        "The same report for programs, with the data of each drawing, is in report.json beside this page. Schema {}.",
        report.schema
    );
    document(report.command, about, &contents(report), &main, &json)
}

/// The page of a merged report: hosts, a lane for each host in every pipeline, and all figures.
#[must_use]
pub fn merged(report: &Value, lanes: &[(String, Vec<Lane>)], about: &PageHeader) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let time = |value: &Value| value.as_f64().map_or_else(|| "–".to_owned(), measure::figures::brief);
    let mut main = warnings(&list(&report["warnings"]).iter().map(text).collect::<Vec<_>>());
    let hosts = list(&report["merged"]["hosts"]);
    let known = hosts.iter().any(|host| host["start_aligned_unix_ns"].is_u64());
    let about_lanes = match (known, report["merged"]["clocks_known"] == true) {
        (true, true) => "Each lane begins at the first frame of its host, by the reference clock",
        (true, false) => {
            "Each lane begins at the first frame of its host, by the host's own clock: not all clocks are known"
        }
        (false, _) => {
            "Each lane begins at the first frame of its host: these runs had no --start-at, so how they lie in time is not known"
        }
    };
    for (number, (name, lanes)) in lanes.iter().enumerate() {
        let drawing = lanes::figure("Rate of each host", about_lanes, &format!("p{number}-hosts"), lanes);
        let none = "<div class=\"card\"><p class=\"note\">No curve: the reports have none. Write them with --histograms.</p></div>\n";
        main.push_str(&format!(
            "<section class=\"stack\"><h2 id=\"p{number}\">{}</h2>\n{}</section>\n",
            escape(name),
            if drawing.is_empty() { none } else { &drawing }
        ));
    }
    let row = |host: &Value| vec![text(&host["name"]), time(&host["start"]["miss_ns"]), time(&host["clock_offset_ns"])];
    let rows: Vec<Vec<String>> = hosts.iter().map(row).collect();
    let spread = report["merged"]["start_spread_ns"].as_f64();
    let caption =
        spread.map_or_else(String::new, |ns| format!("Starts within {} of each other", measure::figures::brief(ns)));
    main.push_str(&format!(
        "<section class=\"stack\"><h2 id=\"hosts\">Hosts</h2>\n<div class=\"card\">{}</div>\n",
        table(&caption, &["host", "start after the asked instant", "reference clock ahead by"], &rows)
    ));
    for pipeline in list(&report["pipelines"]) {
        let mut rows = Vec::new();
        let name = text(&pipeline["name"]);
        flatten(&name, &without_lists(&pipeline), &mut rows);
        main.push_str(&details(&format!("All figures of {name}"), &table("", &["figure", "value"], &rows)));
    }
    main.push_str("</section>\n");
    let command =
        format!("merge: {} of {}", text(&report["command"]), measure::figures::counted(hosts.len() as u64, "host"));
    document(&command, about, "", &main, "netlathe merge --json has the same figures for programs.")
}

/// The pipeline without its lists, which are too long for a page.
fn without_lists(pipeline: &Value) -> Value {
    let kept = |(name, value): (&String, &Value)| {
        let value = if value.is_object() { without_lists(value) } else { value.clone() };
        (!value.is_array()).then(|| (name.clone(), value))
    };
    Value::Object(pipeline.as_object().into_iter().flatten().filter_map(kept).collect())
}

/// A complete page about `command`: the head, the links in `contents`, `main`, and `json`, which says where the JSON
/// is.
fn document(command: &str, about: &PageHeader, contents: &str, main: &str, json: &str) -> String {
    let (command, when) = (escape(command), escape(&about.when));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>netlathe {command} · {when}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
        <header>\n<h1>netlathe {command}</h1>\n<p class=\"soft\">{when}</p>\n<pre><code>{}</code></pre>\n{contents}{}</header>\n\
        <main>\n{}{main}</main>\n<footer>Made by netlathe. {json}</footer>\n</body>\n</html>\n",
        escape(&about.command_line),
        facts(about),
        failure(about.failure.as_deref())
    )
}

/// Links to the pipelines, if there are several.
fn contents(report: &Report) -> String {
    if report.pipelines.len() < 2 {
        return String::new();
    }
    let mut out = "<nav aria-label=\"Pipelines\"><ul>\n".to_owned();
    for (i, pipeline) in report.pipelines.iter().enumerate() {
        out.push_str(&format!("<li><a href=\"#p{i}\">{}</a></li>\n", escape(&pipeline.name)));
    }
    out + "</ul></nav>\n"
}

/// Versions and the machine, in one line.
fn facts(about: &PageHeader) -> String {
    if about.facts.is_empty() {
        return String::new();
    }
    let facts: Vec<String> = about.facts.iter().map(|(what, which)| format!("{what} {which}")).collect();
    format!("<p class=\"soft\" style=\"margin-top:8px\">{}</p>\n", escape(&facts.join(" · ")))
}

/// Comes first, because balanced counters do not show that a run ended early.
fn failure(failure: Option<&str>) -> String {
    failure.map_or_else(String::new, |failure| {
        format!(
            "<section class=\"stack\"><h2>Ended early</h2>\n<div class=\"card\"><p class=\"bad\">{}</p>\n<p class=\"note\">The figures cover the time until then.</p></div></section>\n",
            escape(failure)
        )
    })
}

/// Asked and obtained values of each pipeline and class: pipeline or class, quantity, asked, obtained.
fn compared(report: &Report) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for pipeline in &report.pipelines {
        rows_of(pipeline, &pipeline.name, &mut rows);
        for class in &pipeline.classes {
            rows_of(class, &format!("{}.{}", pipeline.name, class.name), &mut rows);
        }
    }
    rows
}

fn rows_of(report: &PipelineReport, name: &str, rows: &mut Vec<Vec<String>>) {
    let mut row = |what: &str, asked: String, got: String| rows.push(vec![format!("{name}: {what}"), asked, got]);
    if let Some(asked) = report.rate.as_ref().and_then(|rate| rate.asked.as_ref()) {
        let planned = if asked.planned { ", planned and not measured" } else { "" };
        row("rate", asked.text.clone(), format!("{}{planned}", asked.got));
    }
    if let Some((gap, error)) = report.gap.as_ref().and_then(|gap| Some((gap, gap.error.as_ref()?))) {
        let planned =
            if report.plots.as_ref().is_some_and(|plots| plots.planned) { ", planned and not measured" } else { "" };
        row("mean gap", time(error.asked_ns), format!("{}{planned}", time(digits(gap.mean_ns, 9))));
    }
    if let Some(fit) = &report.fit {
        row("law of gaps", fit.distribution.clone(), format!("fits with p = {:.3}", fit.p()));
    }
    if let Some(delay) = &report.delay {
        let of = |figures: &measure::DelayFigures| {
            let [median, p99] = [figures.p50_ns, figures.p99_ns].map(|ns| time(digits(ns, 6)));
            format!("{median} in the median, p99 {p99}")
        };
        row("delay", of(&delay.asked), of(&delay.got));
    }
    for (choice, of) in report.choices.iter() {
        row(choice, share(of.asked_ratio), format!("{} of {}", share(of.obtained_ratio), counted(of.frames, "frame")));
    }
}

/// The verdict: asked and obtained values, and which expectations were met.
fn verdicts(verdicts: &[Verdict], compared: &[Vec<String>]) -> String {
    let rows = match compared {
        [] => String::new(),
        rows => table("What was asked, and what was got", &["", "asked", "got"], rows),
    };
    if verdicts.is_empty() {
        return match rows.as_str() {
            "" => String::new(),
            rows => format!(
                "<section class=\"stack\"><h2>Asked and got</h2>\n<div class=\"card text\">{rows}</div></section>\n"
            ),
        };
    }
    let missed = verdicts.iter().filter(|verdict| verdict.missed.is_some()).count();
    let (class, word) = match missed {
        0 => ("good", format!("All expectations met: {}", verdicts.len())),
        missed => ("bad", format!("Expectations missed: {missed} of {}", verdicts.len())),
    };
    let mut out = format!(
        "<section class=\"stack\"><h2>Expectations</h2>\n<div class=\"card text\"><p class=\"verdict {class}\">{word}</p>\n{rows}<ul class=\"list\">\n"
    );
    for verdict in verdicts {
        let (class, word) = if verdict.missed.is_some() { ("bad", "missed") } else { ("good", "met") };
        let why = verdict.missed.as_ref().map_or(String::new(), |why| format!(": {}", escape(why)));
        out.push_str(&format!(
            "<li><code>{}</code> <span class=\"verdict {class}\">{word}</span>{why}</li>\n",
            escape(&verdict.expected)
        ));
    }
    out.push_str("</ul></div></section>\n");
    out
}

/// Warnings: what the figures below cannot show.
pub(crate) fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let each: String = warnings.iter().map(|warning| format!("<li class=\"bad\">{}</li>\n", escape(warning))).collect();
    format!(
        "<section class=\"stack\"><h2>Warnings</h2>\n<div class=\"card text\"><ul class=\"list\">\n{each}</ul></div></section>\n"
    )
}

/// Caveats: what the run could not resolve.
fn caveats(report: &Report) -> String {
    let mut out = "<section class=\"stack\"><h2>What this run can resolve</h2>\n<div class=\"card text\">\n".to_owned();
    let mut rows = Vec::new();
    for caveat in report.caveats.iter().filter(|caveat| !report.warnings.contains(&caveat.line())) {
        // A caveat consists of names and figures, so it can always be written as JSON.
        let kind = serde_json::to_value(caveat).map_or_else(|_| String::new(), |caveat| plain(&caveat["kind"]));
        rows.push(vec![kind, caveat.pipeline.clone().unwrap_or_default(), caveat.text.clone()]);
    }
    out.push_str(&table("Caveats that are not warnings", &["caveat", "pipeline", "what it means"], &rows));
    out.push_str("</div></section>\n");
    out
}

/// A row for each figure in a value, named by its path.
fn flatten(path: &str, value: &Value, rows: &mut Vec<Vec<String>>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten(&format!("{path}.{name}"), value, rows);
            }
        }
        // Classes and sources are listed by name, streams by number.
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(Value::is_object) => {
            for (i, part) in parts.iter().enumerate() {
                let name = part.get("name").or(part.get("source")).map_or_else(|| i.to_string(), plain);
                flatten(&format!("{path}.{name}"), part, rows);
            }
        }
        other => rows.push(vec![path.to_owned(), plain(other)]),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "–".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
