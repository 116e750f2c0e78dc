//! Parts of a pipeline: classes, synchronised sources, streams at their receiver, and users of a limit.

use crate::lanes::{self, Lane};
use crate::pipeline::{IMPAIRMENTS, impairments};
use crate::plots;
use crate::text::{details, figures, table};
use measure::figures::{bits, brief, counted, digits, share, thousands, time};
use measure::{LimitReport, LimitedUser, PipelineReport, RatePlot, SourceArrivals, SourceCurve, Tally};

/// Maximum number of classes that are drawn. All are in the table.
const DRAWN: usize = 16;
/// Maximum number of streams that are listed. All are among the figures.
const LISTED: usize = 256;
/// Text of a cell without a figure.
const NONE: &str = "–";

/// Figures of each stream from the stamps that a receiver read.
pub(crate) fn streams(report: &PipelineReport) -> String {
    let received = report.streams.iter().filter_map(|stream| Some((stream, stream.received.as_ref()?)));
    let row = |(stream, got): (&measure::StreamReport, &measure::ReceivedStream)| {
        let time = |ns: Option<f64>| ns.map_or_else(|| NONE.to_owned(), brief);
        let delay = got.delay.as_ref();
        vec![
            stream.stream.to_string(),
            stream.sent.map_or_else(|| NONE.to_owned(), thousands),
            thousands(got.received),
            format!("{} ({})", thousands(got.lost), share(got.loss_ratio)),
            thousands(got.duplicates),
            format!("{} ({})", thousands(got.reordered), share(got.reorder_ratio)),
            thousands(got.reorder_max_extent),
            time(delay.map(|delay| delay.p50_ns)),
            time(delay.map(|delay| delay.p99_ns)),
            time(delay.map(|delay| delay.max_ns)),
            time(got.pdv.as_ref().map(|pdv| pdv.p99_ns)),
            time(got.ipdv.as_ref().map(|ipdv| ipdv.mean_ns)),
        ]
    };
    let rows: Vec<Vec<String>> = received.clone().take(LISTED).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = [
        "stream", "sent", "received", "lost", "repeated", "reordered", "extent", "median delay", "p99", "max",
        "PDV p99", "mean IPDV",
    ];
    let first = if received.count() > LISTED { format!(", the first {LISTED}") } else { String::new() };
    let caption = format!("By the stamps in their frames{first}; delays by the clocks of sender and receiver");
    format!("<div class=\"card\"><h3>Streams</h3>\n{}</div>\n", table(&caption, &head, &rows))
}

/// The figures of a stage `limit`: frames by verdict, accuracy of users' rates, and the users with the most traffic.
pub(crate) fn limit(report: &PipelineReport) -> String {
    let Some(limit) = &report.limit else { return String::new() };
    let tally = |name: &str, tally: &Tally| vec![name.to_owned(), thousands(tally.frames), thousands(tally.bytes)];
    let mut rows = vec![tally("within the bucket of their user", &limit.conforming)];
    rows.push(tally("beyond it", &limit.exceeding));
    rows.extend(limit.yellow.as_ref().map(|yellow| tally("of these yellow", yellow)));
    let more = [
        ("marked", limit.marked),
        ("waited for the rate", limit.delayed),
        ("of no user", Some(limit.without_key)),
        ("of users without a rate or room that passed", Some(limit.unmetered)),
    ];
    for (name, frames) in more {
        let frames = frames.filter(|frames| *frames > 0);
        rows.extend(frames.map(|frames| vec![name.to_owned(), thousands(frames), NONE.to_owned()]));
    }
    let caption = format!(
        "{} with a burst of {} B for each {}, {}, {}",
        bits(limit.rate_bps as f64),
        thousands(limit.burst_bytes),
        limit.key,
        limit.mode,
        limit.algorithm
    );
    let mut out =
        format!("<div class=\"card\"><h3>Limit</h3>\n{}", table(&caption, &["", "frames", "bytes with FCS"], &rows));
    let users = &limit.users;
    let refused = match users.refused {
        0 => String::new(),
        refused => format!("; {} without room", counted(refused, "frame")),
    };
    let sentence = format!(
        "{} added, {} removed to make room, {} present at the end; capacity {}{refused}.",
        counted(users.created, "user"),
        thousands(users.reclaimed),
        thousands(users.present),
        thousands(users.capacity as u64)
    );
    out.push_str(&format!("<p class=\"note\">{}</p>\n", figures(&sentence)));
    out + &obtained(limit) + &talkers(limit) + "</div>\n"
}

/// The accuracy of the rates of users that were limited.
fn obtained(limit: &LimitReport) -> String {
    let percent = |ratio: f64| format!("{} %", digits(ratio * 100.0, 6));
    let windows = ["10ms", "100ms", "1s"].into_iter().filter_map(|length| Some((length, limit.error.get(length)?)));
    let rows: Vec<Vec<String>> = windows
        .map(|(length, window)| {
            let figures = [
                window.min_ratio, window.p50_ratio, window.max_ratio, window.p99_error_ratio, window.worst_error_ratio,
                window.one_frame_ratio,
            ]
            .map(percent);
            [length.to_owned()].into_iter().chain(figures).chain([thousands(window.windows)]).collect()
        })
        .collect();
    if rows.is_empty() {
        return "<p class=\"note\">No user was limited for two consecutive windows of 10 ms, so the accuracy of rates is unknown.</p>\n".to_owned();
    }
    let head = ["windows of", "least", "median", "most", "error p99", "worst error", "one frame", "windows"];
    let caption = "Share of their rate that limited users obtained, by window length. Error is the deviation from 100 %; an error of up to one frame means only that a frame was counted in the next window";
    table(caption, &head, &rows)
}

/// The users with the most traffic.
fn talkers(limit: &LimitReport) -> String {
    let row = |user: &LimitedUser| {
        let [passed, exceeded] = [user.passed_bytes, user.exceeded_bytes].map(thousands);
        vec![user.user.clone(), bits(user.rate_bps as f64), passed, exceeded]
    };
    if limit.talkers.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = limit.talkers.iter().map(row).collect();
    let head = ["user", "rate asked", "bytes passed", "bytes beyond it"];
    table("The users with the most traffic; bytes as the rate counts them", &head, &rows)
}

/// The classes of pipeline number `i` of the page, each with its figures.
pub(crate) fn classes(report: &PipelineReport, i: usize) -> String {
    if report.classes.is_empty() {
        return String::new();
    }
    let row = |class: &PipelineReport| {
        let count = |count: Option<u64>| count.map_or_else(|| NONE.to_owned(), thousands);
        let contended = class.contended.filter(|contended| contended.frames > 0);
        vec![
            class.name.clone(),
            class.rule.clone().unwrap_or_else(|| "all that is left".to_owned()),
            thousands(class.arrived.frames),
            thousands(class.left.frames),
            thousands(class.drops.total()),
            thousands(class.held),
            class.rate.as_ref().map_or_else(|| NONE.to_owned(), |rate| bits(digits(rate.mean_bps, 4))),
            class.gap.as_ref().map_or_else(|| NONE.to_owned(), |gap| time(digits(gap.mean_ns, 4))),
            count(class.depth.as_ref().map(|depth| depth.max_frames)),
            count(class.starved),
            class.buffer.map_or_else(|| NONE.to_owned(), |buffer| brief(buffer.width_ns)),
            contended.map_or_else(
                || NONE.to_owned(),
                |contended| format!("{}, up to {}", thousands(contended.frames), brief(contended.max_ns)),
            ),
        ]
    };
    let head = [
        "class", "rule", "in", "out", "dropped", "held", "mean rate", "mean gap", "most waiting", "starved",
        "wave width", "waited for others",
    ];
    let rows: Vec<Vec<String>> = report.classes.iter().map(row).collect();
    let mut out = format!(
        "<div class=\"card\"><h3>Classes</h3>\n{}",
        table("A frame belongs to the first class whose rule it matches", &head, &rows)
    );
    out.push_str(&impaired(&report.classes));
    let sent = report.classes.iter().enumerate().filter(|(_, class)| class.left.frames > 0);
    for (n, class) in sent.clone().take(DRAWN) {
        let id = format!("p{i}c{n}");
        let drawings = format!("<div class=\"grid\">\n{}</div>\n{}", plots::figures(class, &id), curves(class, &id));
        out.push_str(&details(&format!("{}: drawings", class.name), &drawings));
    }
    if sent.count() > DRAWN {
        out.push_str(&format!(
            "<p class=\"note\">Only the first {DRAWN} classes that sent anything are drawn; report.json has the data of all.</p>\n"
        ));
    }
    out.push_str(&report.classes.iter().map(|class| table_of_sources(class, &class.name)).collect::<String>());
    out.push_str("</div>\n");
    out
}

/// Effects of stages on the frames of each class. Classes are configured differently, so there is no row for a whole
/// direction.
fn impaired(classes: &[PipelineReport]) -> String {
    let mut rows = Vec::new();
    for class in classes {
        for mut row in impairments(class) {
            row[0] = format!("{}: {}", class.name, row[0]);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    table("Impairments of each class", &IMPAIRMENTS, &rows)
}

/// Changes of settings, and the figures between them.
pub(crate) fn segments(report: &PipelineReport) -> String {
    const MOST: usize = 200;
    if report.segments.is_empty() {
        return String::new();
    }
    let changed_at = |from: f64| {
        let changes = report.changes.iter().filter(|change| change.took_effect_at_ns == Some(from));
        changes
            .map(|change| format!("{} = {} by {}", change.path, change.value, change.by))
            .collect::<Vec<_>>()
            .join("; ")
    };
    let head = ["number", "from", "to", "changed", "in", "out", "dropped", "rate", "mean gap", "mean delay"];
    let rows: Vec<Vec<String>> = report
        .segments
        .iter()
        .enumerate()
        .take(MOST)
        .map(|(number, segment)| {
            let none = || NONE.to_owned();
            vec![
                number.to_string(),
                time(segment.from_ns),
                time(segment.to_ns),
                if number == 0 { "start of the run".to_owned() } else { changed_at(segment.from_ns) },
                thousands(segment.arrived.frames),
                thousands(segment.left.frames),
                thousands(segment.drops.total()),
                segment.rate.map_or_else(none, |rate| bits(rate.mean_bps)),
                segment.gap.map_or_else(none, |gap| time(gap.mean_ns)),
                segment.delay.map_or_else(none, |delay| time(delay.mean_ns)),
            ]
        })
        .collect();
    let more = match report.segments.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!("; {} more are in the JSON report", thousands(more as u64)),
    };
    let caption = format!("figures between changes; the curve of the rate marks each change by its number{more}");
    format!("<div class=\"card\"><h3>Segments between changes</h3>\n{}</div>\n", table(&caption, &head, &rows))
}

/// The synchronised sources.
pub(crate) fn sources(report: &PipelineReport, id: &str) -> String {
    curves(report, id)
        + &match table_of_sources(report, "crests as received and as sent") {
            table if table.is_empty() => table,
            table => format!("<div class=\"card\"><h3>Sources in order</h3>\n{table}</div>\n"),
        }
}

fn table_of_sources(report: &PipelineReport, caption: &str) -> String {
    if report.sources.is_empty() {
        return String::new();
    }
    let head = [
        "source", "in", "out", "crests", "missed", "mean skew", "largest skew", "overlap at arrival",
        "overlap at departure",
    ];
    let rows: Vec<Vec<String>> = report
        .sources
        .iter()
        .map(|source| {
            vec![
                source.source.clone(),
                thousands(source.arrived.frames),
                thousands(source.left.frames),
                thousands(source.crests),
                thousands(source.missed),
                brief(source.skew.mean_ns),
                brief(source.skew.max_ns),
                brief(source.overlap.in_ns),
                brief(source.overlap.out_ns),
            ]
        })
        .collect();
    table(&format!("Sources: {caption}"), &head, &rows)
}

/// The rate of each source over time, on arrival and on departure.
fn curves(report: &PipelineReport, id: &str) -> String {
    let Some(plots) = report.plots.as_ref().filter(|plots| !plots.sources.is_empty()) else { return String::new() };
    let lanes = |of: fn(&SourceCurve) -> Option<&RatePlot>| -> Vec<Lane> {
        let lane = |source: &SourceCurve| {
            let plot = of(source);
            Lane {
                name: source.source.clone(),
                from_ns: 0.0,
                window_ns: plot.map_or(0.0, |plot| plot.window_ns),
                rates_bps: plot.map_or_else(Vec::new, |plot| plot.got_bps.clone()),
            }
        };
        plots.sources.iter().map(lane).collect()
    };
    let about = "From the first frame of any source on";
    lanes::figure("Sources as received", about, &format!("{id}-came"), &lanes(|source| source.arrived.as_ref()))
        + &lanes::figure("Sources as sent", about, &format!("{id}-left"), &lanes(|source| source.left.as_ref()))
}

/// The gaps between crests of different sources within rounds.
pub(crate) fn crest_gaps(report: &PipelineReport, id: &str) -> String {
    let plot = report.plots.as_ref().and_then(|plots| plots.crest_gaps.as_ref());
    plot.zip(report.crest_gap.as_ref()).map_or_else(String::new, |(plot, gap)| plots::crest_gaps(plot, gap, id))
}

/// Sources as seen by a receiver.
pub(crate) fn arrivals(report: &PipelineReport) -> String {
    let Some(arrivals) = &report.arrivals else { return String::new() };
    let row = |source: &SourceArrivals| {
        let after = |ns: Option<f64>| ns.map_or_else(|| NONE.to_owned(), brief);
        vec![
            source.source.clone(),
            thousands(source.arrived.frames),
            after(source.first_after_ns),
            after(source.last_after_ns),
            thousands(source.crests),
            thousands(source.out_of_turn),
        ]
    };
    let rows: Vec<Vec<String>> = arrivals.sources.iter().map(row).collect();
    let head = ["source", "in", "first frame after", "last frame after", "crests", "out of turn"];
    let spread = arrivals.spread_ns.map_or_else(String::new, |ns| format!("starts within {}; ", brief(ns)));
    let apart = arrivals.apart.map_or_else(String::new, |apart| {
        format!(
            "; pauses between sources {} to {}, median {}",
            brief(apart.min_ns),
            brief(apart.max_ns),
            brief(apart.p50_ns)
        )
    });
    let caption = format!(
        "By the stamps of this receiver: {spread}{} crests, {} overlapping, {} out of turn{apart}",
        thousands(arrivals.crests),
        thousands(arrivals.overlapping),
        thousands(arrivals.out_of_turn)
    );
    format!("<div class=\"card\"><h3>Sources at the receiver</h3>\n{}</div>\n", table(&caption, &head, &rows))
}
