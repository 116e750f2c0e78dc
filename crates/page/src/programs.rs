//! The programs of a scenario: how each ended, and its output.

use crate::text::{details, escape, table};
use measure::figures::{digits, time};
use measure::{ProgramEnd, ProgramReport};

/// The section, if there are programs.
pub(crate) fn section(programs: &[ProgramReport]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = programs.iter().map(row).collect();
    let head = ["program", "command", "namespace", "end", "started", "ready", "ran for"];
    let outputs: String = programs.iter().map(printed).collect();
    format!(
        "<section class=\"stack\"><h2 id=\"programs\">Programs</h2>\n<div class=\"card\">{}{outputs}</div></section>\n",
        table("How each program ended; times of starts count from the first frames that could pass", &head, &rows)
    )
}

fn row(program: &ProgramReport) -> Vec<String> {
    let end = match (program.end, program.status) {
        (ProgramEnd::NotStarted, _) => "not started".to_owned(),
        (ProgramEnd::WithTheRun, _) => "with the run".to_owned(),
        (ProgramEnd::ByItself, Some(status)) => format!("status {status}"),
        (ProgramEnd::ByItself, None) => "by itself".to_owned(),
    };
    let at = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), |ns| time(digits(ns, 6)));
    vec![
        program.name.clone(),
        program.command.join(" "),
        program.namespace.clone().unwrap_or_default(),
        end,
        at(program.start_ns),
        at(program.ready_ns),
        at(program.duration_ns),
    ]
}

/// The output of a program, in sections that the reader can expand.
fn printed(program: &ProgramReport) -> String {
    let outputs = [
        ("standard output", program.stdout_bytes, &program.stdout),
        ("standard error", program.stderr_bytes, &program.stderr),
    ];
    let shown = outputs.into_iter().filter(|(_, _, text)| !text.is_empty()).map(|(what, bytes, text)| {
        let part = if (text.len() as u64) < bytes { ", its end" } else { "" };
        let summary = format!("{}: {what}, {bytes} B{part}", program.name);
        details(&summary, &format!("<pre><code>{}</code></pre>\n", escape(text)))
    });
    shown.collect()
}
