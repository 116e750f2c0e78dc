//! The section of one pipeline: the most important figures, drawings, the fate of every frame, and all figures.

use crate::slices::{nothing, stacked, waterfall};
use crate::text::{details, escape, figures as kept, table};
use crate::{flatten, parts, plots};
use measure::figures::{bits, brief, counted, digits, share, thousands, time};
use measure::slices::{PipelineSlice, SliceFigures};
use measure::{Drops, PipelineReport, Tally};
use std::fmt::Write;

/// The section of a pipeline, number `i` of the page.
pub(crate) fn section(report: &PipelineReport, i: usize) -> String {
    let mut out = format!("<section><h2 id=\"p{i}\">{}</h2>\n", escape(&report.name));
    out.push_str(&tiles(report));
    out.push_str("<div class=\"grid\">\n");
    out.push_str(&plots::figures(report, &format!("p{i}")));
    out.push_str(&conformance(report));
    out.push_str(&fit(report));
    out.push_str(&effects(report));
    out.push_str("</div>\n<div class=\"stack\" style=\"margin-top:14px\">\n");
    out.push_str(&parts::segments(report));
    out.push_str(&parts::limit(report));
    out.push_str(&parts::streams(report));
    out.push_str(&parts::sources(report, &format!("p{i}")));
    out.push_str(&parts::arrivals(report));
    out.push_str(&parts::crest_gaps(report, &format!("p{i}")));
    out.push_str(&parts::classes(report, i));
    out.push_str(&accounting(report));
    out.push_str(&figures(report));
    out.push_str("</div></section>\n");
    for report in [report].into_iter().chain(&report.classes) {
        out.push_str(&slices(report));
    }
    out
}

/// Where frames spent their time, if frames were traced: the mean as a bar, one frame as a waterfall, and all figures.
fn slices(report: &PipelineReport) -> String {
    let Some(slices) = report.slices.as_ref().filter(|_| report.arrived.frames > 0) else { return String::new() };
    if slices.packets.matched == 0 {
        let why = format!("1 frame in {} was selected for tracing, but none departed.", thousands(slices.every));
        return nothing(&report.name, &why);
    }
    let of = |slice: &PipelineSlice| {
        let SliceFigures { name, mean_ns, .. } = &slice.figures;
        (name.clone(), *mean_ns, measure::slices::meaning(name).to_owned())
    };
    let means: Vec<_> = slices.slices.iter().map(of).collect();
    let parts: Vec<_> = slices.typical.iter().map(|part| (part.name.clone(), part.length_ns)).collect();
    let row = |slice: &PipelineSlice| {
        let SliceFigures { name, mean_ns, p50_ns, p99_ns, .. } = &slice.figures;
        let times = [*mean_ns, *p50_ns, *p99_ns, slice.intended_mean_ns];
        let errors = [slice.error.mean_ns, slice.error.p50_ns, slice.error.p99_ns, slice.error.max_ns];
        let figures = times.into_iter().chain(errors).map(brief);
        [name.clone()].into_iter().chain(figures).collect()
    };
    let rows: Vec<Vec<String>> = slices.slices.iter().map(row).collect();
    let head = ["slice", "mean", "median", "p99", "intended", "mean error", "error p50", "error p99", "error max"];
    let untold = if slices.ring_untold {
        "; the wait in the port's ring is not in it: its driver does not report it"
    } else {
        ""
    };
    let caption = format!(
        "{}: 1 frame in {}, {} departed; error is what it was less what it was meant to be{untold}",
        report.name,
        thousands(slices.every),
        thousands(slices.packets.matched)
    );
    format!(
        "{}{}<section class=\"stack\"><div class=\"card\">{}</div></section>\n",
        stacked(&report.name, &format!("1 frame in {}", thousands(slices.every)), &means),
        waterfall(&report.name, &format!("A frame of {}", report.name), &parts, &means),
        table(&caption, &head, &rows)
    )
}

/// The most important figures.
fn tiles(report: &PipelineReport) -> String {
    let mut out = "<dl class=\"tiles\">\n".to_owned();
    // Writing to a string cannot fail.
    let mut tile = |name: &str, value: String, more: String| {
        let _ = writeln!(
            out,
            "<div class=\"tile\"><dt>{}</dt><dd><span class=\"value\">{}</span><span class=\"more\">{}</span></dd></div>",
            escape(name),
            kept(&value),
            kept(&more)
        );
    };
    let dropped = match report.drops.total() {
        0 => "none dropped".to_owned(),
        dropped => format!("{} dropped", thousands(dropped)),
    };
    let held = match report.held {
        0 => String::new(),
        held => format!(", {} held at the end", thousands(held)),
    };
    let of = format!("of {} in, {dropped}{held}", thousands(report.arrived.frames));
    tile("Frames out", thousands(report.left.frames), of);
    if let Some(rate) = &report.rate {
        let range = match (rate.min_bps, rate.max_bps) {
            // A single window is not a range, and its rate may differ from the mean, which covers all frames.
            (Some(only), _) if rate.windows == 1 => {
                format!("{} in one window of {}", bits(digits(only, 4)), time(rate.window_ns))
            }
            (Some(min), Some(max)) => format!("{} to {}", bits(digits(min, 4)), bits(digits(max, 4))),
            _ => "no whole window".to_owned(),
        };
        tile("Mean rate", bits(digits(rate.mean_bps, 6)), range);
    }
    if let Some(gap) = &report.gap {
        let asked = report.conformance.as_ref().map_or_else(
            || format!("{} to {}", brief(gap.min_ns), brief(gap.max_ns)),
            |conformance| format!("asked {}", time(digits(conformance.asked_mean_ns, 6))),
        );
        tile("Mean gap", time(digits(gap.mean_ns, 6)), asked);
    }
    if let Some(conformance) = &report.conformance {
        tile(
            "Gaps within 1 µs",
            share(conformance.shares.within_1us_ratio),
            format!("median error {}", brief(conformance.p50_ns)),
        );
    }
    if let Some(late) = report.lateness.as_ref().filter(|_| report.says_when()) {
        tile("Median lateness", brief(late.p50_ns), format!("p99 {}, max {}", brief(late.p99_ns), brief(late.max_ns)));
    }
    if let Some(buffer) = report.buffer.filter(|_| paced(report)) {
        let verdict = if buffer.enough { "enough" } else { "too little" };
        tile("Wave width", brief(buffer.width_ns), format!("buffer {}: {verdict}", brief(buffer.asked_ns)));
    }
    if let Some(depth) = report.depth.as_ref().filter(|_| paced(report)) {
        let starved = report.starved.map_or(String::new(), |starved| format!("starved {}", counted(starved, "time")));
        tile("Most frames waiting", thousands(depth.max_frames), starved);
    }
    out.push_str("</dl>\n");
    out
}

/// True if departures had targets.
fn paced(report: &PipelineReport) -> bool {
    report.pacer.is_some_and(|pacer| pacer != "none")
}

fn conformance(report: &PipelineReport) -> String {
    let Some(conformance) = &report.conformance else { return String::new() };
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    if let Some(within) = conformance.shares.within_1_byte_time_ratio {
        row("within 1 byte time", share(within));
    }
    row("within 64 ns", share(conformance.shares.within_64ns_ratio));
    row("within 256 ns", share(conformance.shares.within_256ns_ratio));
    row("within 1 µs", share(conformance.shares.within_1us_ratio));
    row("back to back", share(conformance.back_to_back_ratio));
    row("median error", time(conformance.p50_ns));
    row("99 % of errors up to", time(conformance.p99_ns));
    row("largest error", time(conformance.max_ns));
    for (name, count) in [
        ("times no frame was ready", report.starved),
        ("waited for the frame before", report.crowded),
        ("less than a filler apart", report.carried),
        ("times the queue ran empty", report.underruns),
    ] {
        if let Some(count) = count.filter(|count| *count > 0) {
            row(name, thousands(count));
        }
    }
    if let Some(shortfall) = &report.shortfall {
        row("of the ask was obtained", format!("{:.4} %", shortfall.obtained_ratio * 100.0));
    }
    let caption = format!("{}, each against the gap asked just there", counted(conformance.count, "gap"));
    format!("<div class=\"card\"><h3>Conformance</h3>\n{}</div>\n", table(&caption, &[], &rows))
}

/// How well the gaps fit the configured or expected law.
fn fit(report: &PipelineReport) -> String {
    let Some(fit) = &report.fit else { return String::new() };
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    if let (Some(d), Some(critical), Some(p)) = (fit.ks_d, fit.ks_critical_05, fit.ks_p) {
        row("Kolmogorov–Smirnov D", format!("{d:.6}"));
        row("D that gaps of the law exceed once in 20 times", format!("{critical:.6}"));
        row("probability of this D or a larger one", format!("{p:.4}"));
    }
    if let (Some(chi2), Some(df), Some(p)) = (fit.chi2, fit.chi2_df, fit.chi2_p) {
        row(&format!("χ² of {df} degrees of freedom"), format!("{chi2:.3}"));
        row("probability of this χ² or a larger one", format!("{p:.4}"));
    }
    row(&format!("mean square error of shares in {} bins", fit.bins), format!("{:.2e}", fit.mse));
    let kl = fit.kl_nats.map_or_else(|| "without bound".to_owned(), |kl| format!("{kl:.2e} nats"));
    row("Kullback–Leibler divergence", kl);
    row("gaps where the law has none", share(fit.outside_ratio));
    row("correlation of a gap with the next", format!("{:.4}", fit.lag1));
    for (name, law) in [("mean of the law", fit.law_mean_ns), ("deviation of the law", fit.law_std_ns)] {
        if let Some(ns) = law {
            row(name, time(digits(ns, 6)));
        }
    }
    if let Some(gap) = &report.gap {
        row("deviation of the gaps", time(digits(gap.std_ns, 6)));
    }
    let of = fit.sampled_from.map_or_else(String::new, |all| format!(", drawn from {}", thousands(all)));
    let caption = format!("{}{of}, against {}", counted(fit.count, "gap"), fit.distribution);
    format!("<div class=\"card\"><h3>Fit to the law</h3>\n{}</div>\n", table(&caption, &[], &rows))
}

/// Effects of stages on the frames of this direction, asked and obtained.
fn effects(report: &PipelineReport) -> String {
    let rows = impairments(report);
    if rows.is_empty() {
        return String::new();
    }
    let caption = format!("Direction {}: what happened to its frames", report.name);
    let table = table(&caption, &IMPAIRMENTS, &rows);
    format!("<div class=\"card\"><h3>Impairments</h3>\n{table}</div>\n")
}

/// The column headings of [`impairments`].
pub(crate) const IMPAIRMENTS: [&str; 4] = ["", "asked", "got", "frames"];

/// A row for each effect of stages on the frames of a direction or a class.
pub(crate) fn impairments(report: &PipelineReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (name, choice) in report.choices.iter() {
        let frames = format!("{} of {}", thousands(choice.hits), thousands(choice.frames));
        rows.push(vec![name.to_owned(), share(choice.asked_ratio), share(choice.obtained_ratio), frames]);
    }
    for (effect, frames) in report.effects.iter() {
        rows.push(vec![effect.meaning().to_owned(), "–".to_owned(), "–".to_owned(), thousands(frames)]);
    }
    if let Some(order) = &report.reorder {
        let frames = format!("{} of {}", thousands(order.reordered), thousands(order.frames));
        rows.push(vec!["left after a later one (RFC 4737)".to_owned(), "–".to_owned(), share(order.ratio), frames]);
    }
    if let Some(delay) = &report.delay {
        let (asked, got) = (&delay.asked, &delay.got);
        for (name, asked, got) in [
            ("mean delay", asked.mean_ns, got.mean_ns),
            ("deviation of delays", asked.std_ns, got.std_ns),
            ("median delay", asked.p50_ns, got.p50_ns),
            ("99th percentile of delays", asked.p99_ns, got.p99_ns),
            ("largest delay", asked.max_ns, got.max_ns),
        ] {
            let value = |ns| time(digits(ns, 6));
            rows.push(vec![name.to_owned(), value(asked), value(got), thousands(delay.count)]);
        }
    }
    rows
}

/// Accounting for every frame.
fn accounting(report: &PipelineReport) -> String {
    let mut out = "<div class=\"card\"><h3>Where every frame went</h3>\n".to_owned();
    let all = report.arrived.frames + report.copies;
    if all > 0 {
        out.push_str("<div class=\"share\" aria-hidden=\"true\">");
        let parts = [("out", report.left.frames), ("dropped", report.drops.total()), ("held", report.held)];
        let parts = || parts.into_iter().filter(|(_, frames)| *frames > 0);
        for (class, frames) in parts() {
            let _ = write!(out, "<span class=\"{class}\" style=\"flex:{frames}\"></span>");
        }
        out.push_str("</div>\n<p class=\"legend\" aria-hidden=\"true\">");
        for (class, _) in parts() {
            let _ = write!(out, "<span class=\"key {class}\"></span>{class}");
        }
        out.push_str("</p>\n");
    }
    out.push_str(&balance(
        "From the input to the output", &report.arrived, report.copies, &report.left, &report.drops, report.held,
    ));
    if let Some(back) = &report.back {
        out.push_str(&balance("Return path", &back.arrived, 0, &back.left, &back.drops, back.held));
    }
    let mut notes = Vec::new();
    if let Some(fillers) = report.fillers.filter(|fillers| fillers.frames > 0) {
        notes.push(format!(
            "Besides, {} of {} B in all kept the line busy.",
            counted(fillers.frames, "filler frame"),
            thousands(fillers.bytes)
        ));
    }
    if let Some(answers) = report.answers.as_ref().filter(|answers| answers.arrived.frames > 0) {
        notes.push(format!(
            "Of {} that arrived on the port, {} ARP, {} neighbour and {} echo requests were answered; {} dropped, {} held.",
            counted(answers.arrived.frames, "frame"),
            thousands(answers.answered.arp),
            thousands(answers.answered.ndp),
            thousands(answers.answered.echo),
            thousands(answers.drops.total()),
            thousands(answers.held)
        ));
    }
    if let Some((rule, left_out)) = report.rule.as_ref().zip(report.left_out) {
        notes.push(format!(
            "Only frames that match “{rule}” were measured. Excluded from all figures here: {}, {} B.",
            counted(left_out.frames, "frame"),
            thousands(left_out.bytes)
        ));
    }
    if let Some(flow) = &report.flow {
        notes.push(format!(
            "Lost by the kernel before they were counted: {}. With unfinished checksums: {}. Longer than the MTU: {}.",
            counted(flow.kernel_drops, "frame"),
            thousands(flow.partial_checksums),
            thousands(flow.super_frames)
        ));
    }
    for note in notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", kept(&note));
    }
    out.push_str("</div>\n");
    out
}

fn balance(caption: &str, arrived: &Tally, copies: u64, left: &Tally, drops: &Drops, held: u64) -> String {
    let mut rows = vec![
        vec!["in".to_owned(), thousands(arrived.frames), thousands(arrived.bytes)],
        vec!["+ copies".to_owned(), thousands(copies), "–".to_owned()],
        vec!["= out".to_owned(), thousands(left.frames), thousands(left.bytes)],
    ];
    for (reason, frames) in drops.iter() {
        rows.push(vec![format!("+ {} ({})", reason.name(), reason.meaning()), thousands(frames), "–".to_owned()]);
    }
    if drops.total() == 0 {
        rows.push(vec!["+ dropped".to_owned(), "0".to_owned(), "–".to_owned()]);
    }
    rows.push(vec!["+ held when the run ended".to_owned(), thousands(held), "–".to_owned()]);
    let (here, there) = (arrived.frames + copies, left.frames + drops.total() + held);
    let verdict = if here == there {
        "<p class=\"verdict good\">Every frame is accounted for.</p>\n".to_owned()
    } else {
        format!(
            "<p class=\"verdict bad\">{} frames were received or generated, {} are accounted for.</p>\n",
            thousands(here),
            thousands(there)
        )
    };
    table(caption, &["", "frames", "bytes with FCS"], &rows) + &verdict
}

/// All figures, by name in the JSON report.
fn figures(report: &PipelineReport) -> String {
    let mut rows = Vec::new();
    // A report consists of figures and names, so it can always be written as JSON.
    if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(report) {
        for (name, value) in &fields {
            flatten(name, value, &mut rows);
        }
    }
    let table = table("Times in ns, rates in bit/s", &[], &rows);
    format!(
        "<div class=\"card text screen\"><h3>Every figure</h3>\n{}</div>\n",
        details("By its name in the JSON report", &table)
    )
}
