//! Slices as text.

use crate::costs::Costs;
use crate::program::ProgramReport;
use crate::record::Record;
use crate::slice_book::{Loop, SliceBook, SliceReport};
use crate::slices;
use measure::figures::{brief, share, thousands, time};
use measure::slices::SliceTimes;
use std::fmt::Write;

/// All slices, one line each. With `raw`, also the means as stamped.
#[must_use]
pub fn packet_table(book: &SliceBook, raw: bool) -> String {
    let mut out = String::new();
    let head = if raw { "      as stamped" } else { "" };
    let _ = writeln!(
        out,
        "  {:<16} {:>11} {:>11} {:>11} {:>7} {:>8} {:>10}{head}",
        "slice", "mean", "median", "p99", "cv", "share", "per packet"
    );
    for SliceReport { figures, raw_mean_ns } in book.slices() {
        let name = figures.shown();
        let _ = write!(
            out,
            "  {name:<16} {:>11} {:>11} {:>11} {:>7.2} {:>8} {:>10.3}",
            brief(figures.mean_ns),
            brief(figures.p50_ns),
            brief(figures.p99_ns),
            figures.cv,
            share(figures.total_ratio),
            figures.per_packet
        );
        end_row(&mut out, raw, raw_mean_ns);
    }
    let total = book.total();
    let _ = write!(out, "  {:<16} {} {:>8} {:>10}", "total", columns(&total), "", "");
    end_row(&mut out, raw, total.raw_mean_ns);
    if let Some(rounds) = book.rounds() {
        out.push_str(&round_row(&rounds, 16, "send call to send call"));
    }
    out
}

/// Mean, median, 99th percentile and coefficient of variation.
fn columns(SliceTimes { mean_ns, p50_ns, p99_ns, cv, .. }: &SliceTimes) -> String {
    format!("{:>11} {:>11} {:>11} {cv:>7.2}", brief(*mean_ns), brief(*p50_ns), brief(*p99_ns))
}

fn end_row(out: &mut String, raw: bool, raw_mean_ns: f64) {
    // Writing to a string cannot fail.
    let _ = if raw { writeln!(out, " {:>15}", brief(raw_mean_ns)) } else { writeln!(out) };
}

/// The row of round trips, described by `way`, below names of `width`.
fn round_row(rounds: &Loop, width: usize, way: &str) -> String {
    format!(
        "  {:<width$} {:>11} {:>11}  {} rounds, {way}; as stamped {}, median {}\n",
        "round",
        brief(rounds.mean_ns),
        brief(rounds.p50_ns),
        thousands(rounds.count),
        brief(rounds.raw_mean_ns),
        brief(rounds.raw_p50_ns)
    )
}

/// Sections of a program, with the counters of its blocks. With `raw`, also the means as stamped.
#[must_use]
pub fn program_text(report: &ProgramReport, raw: bool) -> String {
    let mut out = "slice attach\n".to_owned();
    // Writing to a string cannot fail.
    let (received, dropped) = (thousands(report.received), thousands(report.dropped));
    let _ = write!(out, "  blocks    {received} received, {dropped} dropped since the ring was full");
    if report.lost > 0 {
        let _ = write!(out, ", {} lost since their threads were killed while they wrote", thousands(report.lost));
    }
    out.push('\n');
    if report.received == 0 {
        out.push_str("  no block received: check that the program runs, that this is its ring, and that its probes are reached\n");
        return out;
    }
    let head = if raw { "      as stamped" } else { "" };
    let names: Vec<String> =
        report.sections.iter().map(|section| section.name.clone().unwrap_or_else(|| section.id.to_string())).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(20);
    let _ = writeln!(
        out,
        "  {:<width$} {:>11} {:>11} {:>11} {:>7} {:>10}{head}",
        "section", "mean", "median", "p99", "cv", "per block"
    );
    for (section, name) in report.sections.iter().zip(&names) {
        let _ = write!(out, "  {name:<width$} {} {:>10.3}", columns(&section.times), section.per_block);
        end_row(&mut out, raw, section.times.raw_mean_ns);
    }
    if let Some(rounds) = &report.rounds {
        out.push_str(&round_row(rounds, width, "block to block"));
    }
    if report.beyond > 0 {
        let _ = writeln!(
            out,
            "  beyond    {} sections, for which a block had no room, or of a number above 31",
            thousands(report.beyond)
        );
    }
    let cost = &report.overhead;
    let _ = writeln!(
        out,
        "  subtracted init {}, start+stop {}, inside {}, exit {}",
        brief(cost.alpha),
        brief(cost.beta),
        brief(cost.inside),
        brief(cost.gamma)
    );
    out
}

/// Event counts: one line per slice, one column per event.
#[must_use]
pub fn counter_table(book: &SliceBook) -> String {
    let events = &book.costs().events;
    let counted: Vec<_> = (0..events.len()).map(|event| book.counted(event)).collect();
    let mut out = format!("  {:<16}", "counted");
    for event in events {
        let _ = write!(out, " {:>width$}", event.event, width = width(&event.event));
    }
    out.push('\n');
    for SliceReport { figures, .. } in book.slices() {
        let name = figures.shown();
        let _ = write!(out, "  {name:<16}");
        for (event, counted) in events.iter().zip(&counted) {
            // A slice that is never on one CPU has no count.
            let mean =
                counted.iter().find(|counted| counted.name == figures.name).map_or("-".to_owned(), |c| number(c.mean));
            let _ = write!(out, " {mean:>width$}", width = width(&event.event));
        }
        out.push('\n');
    }
    let _ = write!(out, "  {:<16}", "a probe adds");
    for event in events {
        let _ = write!(out, " {:>width$}", number(event.inside), width = width(&event.event));
    }
    out.push('\n');
    out
}

fn width(name: &str) -> usize {
    name.len().max(11)
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { thousands(value.round() as u64) }
}

/// A frame in one line.
#[must_use]
pub fn line(record: &Record, costs: &Costs) -> String {
    let flow = &record.flow;
    let mut out = format!(
        "{}.{:09} {} {}:{} > {}:{} {} B:",
        record.stamps.first().map_or(0, |s| s.at) / 1_000_000_000,
        record.stamps.first().map_or(0, |s| s.at) % 1_000_000_000,
        if flow.protocol == 6 { "tcp" } else { "udp" },
        flow.source,
        flow.source_port,
        flow.destination,
        flow.destination_port,
        flow.payload
    );
    let parts = slices::parts(record, costs);
    let mut total = 0.0;
    let mut n = 0;
    while n < parts.len() {
        let slice = parts[n].slice;
        let mut net = 0.0;
        while n < parts.len() && parts[n].slice == slice {
            net += parts[n].net;
            n += 1;
        }
        total += net;
        let _ = write!(out, " {} {},", slice.name(), brief(net));
    }
    let _ = write!(out, " total {}", brief(total));
    if !record.matched() {
        let _ = write!(out, " ({})", record.ended.name());
    }
    out
}

/// A frame's top slices, in path order: name, and length in ns minus the cost of the probes.
#[must_use]
pub fn path_parts(record: &Record, costs: &Costs) -> Vec<(&'static str, f64)> {
    slices::parts(record, costs).iter().map(|part| (part.slice.name(), part.net)).collect()
}

/// The path of one frame: a bar for each part, to scale.
#[must_use]
pub fn waterfall(record: &Record, costs: &Costs) -> String {
    const WIDTH: f64 = 48.0;
    let parts = slices::parts(record, costs);
    let total: f64 = parts.iter().map(|part| part.net).sum();
    let mut out = String::new();
    let mut at = 0.0;
    for (part, stamp) in parts.iter().zip(&record.stamps) {
        let scale = |ns: f64| if total > 0.0 { (ns / total * WIDTH).round() as usize } else { 0 };
        let (from, to) = (scale(at), scale(at + part.net));
        let bar = if to > from { "█".repeat(to - from) } else { "▏".to_owned() };
        let _ = writeln!(
            out,
            "  {:<16} {:>11} at {:>11} cpu {:<3} {}{bar}",
            part.slice.name(),
            brief(part.net),
            time(at.round()),
            stamp.cpu,
            " ".repeat(from)
        );
        at += part.net;
    }
    let _ = writeln!(out, "  {:<16} {:>11}", "total", brief(total));
    out
}
