//! The drawings of a pipeline.

use crate::chart::{Axis, Chart, Mark};
use crate::text::{details, escape, figures as kept, table};
use measure::figures::{bits, brief, counted, share, thousands, time};
use measure::{Bins, CrestGapPlot, CrestGapReport, GapPlot, LatenessReport, PipelineReport, RatePlot};

/// Rates are drawn on a logarithmic axis if the fastest is at least this many times the slowest.
const DECADES: f64 = 1_000.0;

/// Rows of the table beside a curve. The table shows the trend; the JSON report has every point.
const ROWS: usize = 24;

/// All drawings of a pipeline or a class; `id` identifies it within the page.
pub(crate) fn figures(report: &PipelineReport, id: &str) -> String {
    let mut out = String::new();
    let plots = report.plots.clone().unwrap_or_default();
    let got = plots.got();
    out.push_str(&match &plots.rate {
        Some(rate) => self::rate(rate, id, got),
        None => absent("Rate over time", "Too few frames for a curve: a rate needs some dozens in each window."),
    });
    match &plots.gap {
        Some(gap) => {
            out.push_str(&histogram(gap, id, &GAPS, "", got));
            out.push_str(&distribution(gap, id, got));
        }
        None => out.push_str(&absent("Gaps", "No gap: fewer than two frames left.")),
    }
    if let Some(delay) = &plots.delay {
        let about = match delay.asked {
            Some(_) => "; asked is the law of the delay, or without a law the decisions of the stages",
            None => "",
        };
        out.push_str(&histogram(delay, id, &DELAYS, about, got));
    }
    if let (Some(conformance), false) = (&report.conformance, plots.gap_error.is_empty()) {
        out.push_str(&errors(&plots.gap_error, conformance.count, id, got));
    }
    if let Some(late) = report.lateness.as_ref().filter(|_| report.says_when()) {
        out.push_str(&lateness(late, id, got));
    }
    out
}

/// The histogram of gaps as a separate file, with its colours.
pub(crate) fn gaps_alone(plot: &GapPlot) -> String {
    const STYLE: &str = "<style>svg { background: #fff; font: 11.5px sans-serif; } text { fill: #59636e; } .grid { stroke: #e9ecee; } \
        .axis { stroke: #59636e; } polyline { fill: none; } .asked { stroke: #d9822b; stroke-width: 5; opacity: .55; } \
        path { fill: #1f5fc4; }</style>";
    let (chart, _) = histogram_chart(plot, "gaps", &GAPS, "");
    let svg =
        chart.svg().replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"920\" height=\"500\" ", 1);
    svg.replacen("</desc>", &format!("</desc>{STYLE}"), 1)
}

/// The quantity that a histogram shows.
struct HistogramSubject {
    id: &'static str,
    title: &'static str,
    one: &'static str,
    many: &'static str,
}

const GAPS: HistogramSubject = HistogramSubject { id: "gaps", title: "Gaps", one: "gap", many: "gaps" };
const DELAYS: HistogramSubject = HistogramSubject { id: "delays", title: "Delays", one: "delay", many: "delays" };

fn absent(title: &str, why: &str) -> String {
    format!("<div class=\"card\"><h3>{}</h3>\n<p class=\"note\">{}</p></div>\n", escape(title), escape(why))
}

fn figure(title: &str, caption: &str, chart: &Chart, (asked, got): (bool, &str), data: &str) -> String {
    let legend = if asked {
        format!(
            "<p class=\"legend\" aria-hidden=\"true\"><span class=\"key\"></span>{got}<span class=\"key asked\"></span>asked</p>\n"
        )
    } else if got == "got" {
        String::new()
    } else {
        format!("<p class=\"legend\" aria-hidden=\"true\"><span class=\"key\"></span>{got}</p>\n")
    };
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3>\n{}</figcaption>\n{}{legend}{}</figure>\n",
        escape(title),
        kept(caption),
        chart.svg(),
        details("The data", data)
    )
}

/// A suitable unit for values up to `most` ns: its length in ns, and its name.
fn time_unit(most: f64) -> (f64, &'static str) {
    match most {
        most if most >= 1e9 => (1e9, "s"),
        most if most >= 1e6 => (1e6, "ms"),
        most if most >= 1e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    }
}

fn rate_unit(most: f64) -> (f64, &'static str) {
    match most {
        most if most >= 1e9 => (1e9, "Gbit/s"),
        most if most >= 1e6 => (1e6, "Mbit/s"),
        most if most >= 1e3 => (1e3, "kbit/s"),
        _ => (1.0, "bit/s"),
    }
}

fn rate(plot: &RatePlot, id: &str, got: &str) -> String {
    let asked = plot.asked_bps.as_deref().unwrap_or_default();
    let most = plot.got_bps.iter().chain(asked).fold(0.0, |a: f64, b| a.max(*b));
    let (per_tick, unit) = rate_unit(most);
    let end = plot.window_ns * plot.got_bps.len() as f64;
    let (per_second, seconds) = time_unit(end);
    let middle = |values: &[f64]| {
        (0..).zip(values).map(|(i, rate)| ((f64::from(i) + 0.5) * plot.window_ns, *rate)).collect::<Vec<_>>()
    };
    let mut marks = Vec::new();
    if !asked.is_empty() {
        marks.push(Mark::Line { class: "asked", points: middle(asked) });
    }
    marks.push(Mark::Line { class: "got", points: middle(&plot.got_bps) });
    // More labels would hide the curve.
    let named = plot.changes_ns.len() <= 12;
    marks.extend(plot.changes_ns.iter().enumerate().filter(|(_, at)| (0.0..=end).contains(*at)).map(|(number, at)| {
        Mark::Rule { at: *at, label: if named { (number + 1).to_string() } else { String::new() }, above: true }
    }));
    let slowest = plot.got_bps.iter().fold(f64::INFINITY, |a, b| a.min(*b));
    let least = asked.iter().fold(slowest, |a, b| a.min(*b));
    let caption = format!(
        "{} of {}: {} to {}",
        counted(plot.got_bps.len() as u64, "window"),
        time(plot.window_ns),
        bits(slowest),
        bits(plot.got_bps.iter().fold(0.0, |a: f64, b| a.max(*b)))
    );
    let chart = Chart {
        id: format!("{id}-rate"),
        description: format!("Curve of the rate over {}. {caption}.", time(end)),
        x: Axis::linear(0.0, end, per_second, format!("time, {seconds}")),
        y: if least > 0.0 && most / least >= DECADES {
            Axis::logarithmic(least * 0.8, most * 1.2, "rate", |bps| bits(bps).replace(' ', "\u{a0}"))
        } else {
            Axis::linear(0.0, most * 1.08, per_tick, unit)
        },
        marks,
    };
    let each = plot.got_bps.len().div_ceil(ROWS);
    let mean = |values: &[f64], n: usize| {
        let part = values.iter().skip(n * each).take(each);
        part.clone().sum::<f64>() / part.count().max(1) as f64
    };
    let rows: Vec<Vec<String>> = (0..plot.got_bps.len().div_ceil(each))
        .map(|n| {
            let mut row = vec![time((n * each) as f64 * plot.window_ns), bits(mean(&plot.got_bps, n))];
            row.extend((!asked.is_empty()).then(|| bits(mean(asked, n))));
            row
        })
        .collect();
    let head: &[&str] = if asked.is_empty() { &["from", got] } else { &["from", got, "asked"] };
    let data = table(&format!("Means of up to {}", counted(each as u64, "window")), head, &rows);
    figure("Rate over time", &caption, &chart, (!asked.is_empty(), got), &data)
}

/// The gaps between crests over time, together with the asked gap.
pub(crate) fn crest_gaps(plot: &CrestGapPlot, gap: &CrestGapReport, id: &str) -> String {
    let most = gap.asked_ns.unwrap_or(0.0).max(gap.max_ns);
    let end = plot.at_ns.last().copied().unwrap_or(0.0);
    let ((per_tick, unit), (per_second, seconds)) = (time_unit(most), time_unit(end));
    let asked_words = gap.asked_ns.map_or_else(String::new, |asked| format!("asked {}; ", time(asked)));
    let more = if plot.more > 0 { format!("; not drawn: {} more", thousands(plot.more)) } else { String::new() };
    let caption = format!(
        "{}: {asked_words}got {} to {}, median {}{more}",
        counted(gap.count, "gap"),
        time(gap.min_ns),
        time(gap.max_ns),
        time(gap.p50_ns)
    );
    let mut marks = Vec::new();
    if let Some(asked) = gap.asked_ns {
        marks.push(Mark::Line { class: "asked", points: vec![(0.0, asked), (end, asked)] });
    }
    marks.push(Mark::Line {
        class: "got",
        points: plot.at_ns.iter().copied().zip(plot.got_ns.iter().copied()).collect(),
    });
    let chart = Chart {
        id: format!("{id}-crest-gaps"),
        description: format!("Curve of the gaps between crests of different sources over {}. {caption}.", time(end)),
        x: Axis::linear(0.0, end, per_second, format!("time, {seconds}")),
        y: Axis::linear(0.0, most * 1.08, per_tick, format!("gap, {unit}")),
        marks,
    };
    let rows: Vec<Vec<String>> =
        plot.at_ns.iter().zip(&plot.got_ns).take(ROWS).map(|(at, got)| vec![time(*at), time(*got)]).collect();
    let first = if rows.len() < plot.at_ns.len() { "The first gaps" } else { "All gaps" };
    let data = table(first, &["at", "got"], &rows);
    figure("Gaps between crests", &caption, &chart, (gap.asked_ns.is_some(), "got"), &data)
}

/// The start of bin number `n`, which is the end of the preceding bin.
fn edge(plot: &GapPlot, n: usize) -> f64 {
    plot.edges_ns.get(n).copied().unwrap_or(plot.first_ns + n as f64 * plot.width_ns)
}

/// The start and the end of each bin.
fn edges(plot: &GapPlot) -> impl Iterator<Item = (f64, f64)> + '_ {
    (0..plot.got.counts.len()).map(|n| (edge(plot, n), edge(plot, n + 1)))
}

/// The number of values outside the bins, in words.
fn outside(bins: &Bins, one: &str) -> String {
    match (bins.below, bins.above) {
        (0, 0) => String::new(),
        (0, above) => format!("; not drawn: {} above", counted(above, one)),
        (below, 0) => format!("; not drawn: {} below", counted(below, one)),
        (below, above) => format!("; not drawn: {} below, {} above", counted(below, one), thousands(above)),
    }
}

fn gap_axis(plot: &GapPlot, one: &str) -> Axis {
    let end = edge(plot, plot.got.counts.len());
    if !plot.edges_ns.is_empty() {
        return Axis::logarithmic(plot.first_ns, end, one, short);
    }
    let (scale, unit) = time_unit(end);
    Axis::linear(plot.first_ns, end, scale, format!("{one}, {unit}"))
}

fn gap_rows(plot: &GapPlot, cell: impl Fn(&Bins, usize) -> String) -> Vec<Vec<String>> {
    let busy = |n: &usize| plot.got.counts[*n] > 0 || plot.asked.as_ref().is_some_and(|asked| asked.counts[*n] > 0);
    let edges: Vec<(f64, f64)> = edges(plot).collect();
    (0..edges.len())
        .filter(busy)
        .map(|n| {
            let mut row = vec![format!("{} to {}", time(edges[n].0), time(edges[n].1)), cell(&plot.got, n)];
            row.extend(plot.asked.as_ref().map(|asked| cell(asked, n)));
            row
        })
        .collect()
}

fn head<'a>(plot: &GapPlot, one: &'a str, got: &'a str) -> Vec<&'a str> {
    if plot.asked.is_some() { vec![one, got, "asked"] } else { vec![one, got] }
}

/// The drawing of a histogram, and its caption.
fn histogram_chart(plot: &GapPlot, id: &str, of: &HistogramSubject, about: &str) -> (Chart, String) {
    let percent = |bins: &Bins, n: usize| bins.counts[n] as f64 / bins.total().max(1) as f64 * 100.0;
    let bars =
        |bins: &Bins| edges(plot).enumerate().map(|(n, (from, to))| (from, to, percent(bins, n))).collect::<Vec<_>>();
    let got = bars(&plot.got);
    let most = got.iter().chain(plot.asked.as_ref().map(&bars).iter().flatten()).fold(0.0, |a: f64, b| a.max(b.2));
    let mut marks = vec![Mark::Bars { class: "bars", bars: got }];
    if let Some(asked) = &plot.asked {
        marks.extend(outline(&bars(asked)).into_iter().map(|points| Mark::Line { class: "asked", points }));
    }
    let caption = format!(
        "{} in {}{}{about}",
        counted(plot.got.total(), of.one),
        if plot.edges_ns.is_empty() { format!("bins of {}", time(plot.width_ns)) } else { "ten bins a decade".into() },
        outside(&plot.got, of.one)
    );
    let modal = (0..plot.got.counts.len()).max_by_key(|n| plot.got.counts[*n]).unwrap_or(0);
    let (from, to) = edges(plot).nth(modal).unwrap_or_default();
    let chart = Chart {
        id: format!("{id}-{}", of.id),
        description: format!(
            "Histogram of {}. {caption}. Most, {:.1} %, are from {} to {}.",
            of.many,
            percent(&plot.got, modal),
            time(from),
            time(to)
        ),
        x: gap_axis(plot, of.one),
        y: Axis::linear(0.0, most * 1.08, 1.0, format!("share of {}, %", of.many)),
        marks,
    };
    (chart, caption)
}

fn histogram(plot: &GapPlot, id: &str, of: &HistogramSubject, about: &str, got: &str) -> String {
    let (chart, caption) = histogram_chart(plot, id, of, about);
    // The asked gaps may be quantiles of a law, fewer than the measured gaps: scale them to the measured number.
    let scale = |bins: &Bins| plot.got.total() as f64 / bins.total().max(1) as f64;
    let rows = gap_rows(plot, |bins, n| thousands((bins.counts[n] as f64 * scale(bins)).round() as u64));
    let data = table("Non-empty bins", &head(plot, of.one, got), &rows);
    figure(of.title, &caption, &chart, (plot.asked.is_some(), got), &data)
}

/// The outlines of adjacent bars. There is no line where there is no bar.
fn outline(bars: &[(f64, f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let groups = bars.split(|(_, _, height)| *height <= 0.0).filter(|group| !group.is_empty());
    let lines = groups.map(|group| {
        let tops = group.iter().flat_map(|(from, to, height)| [(*from, *height), (*to, *height)]);
        let ends = (group[0].0, group[group.len() - 1].1);
        std::iter::once((ends.0, 0.0)).chain(tops).chain([(ends.1, 0.0)]).collect()
    });
    lines.collect()
}

/// The share of gaps up to the end of each bin, from 0 to 1. The first value is the share below all bins.
fn cumulated(bins: &Bins) -> Vec<f64> {
    let total = bins.total().max(1) as f64;
    let mut sum = bins.below;
    let mut shares = vec![sum as f64 / total];
    for count in &bins.counts {
        sum += count;
        shares.push(sum as f64 / total);
    }
    shares
}

fn distribution(plot: &GapPlot, id: &str, word: &str) -> String {
    let line = |bins: &Bins, class| {
        let shares = cumulated(bins).into_iter().enumerate();
        let points = shares.map(|(n, share)| (edge(plot, n), share * 100.0)).collect();
        Mark::Line { class, points }
    };
    let mut marks: Vec<Mark> = plot.asked.iter().map(|asked| line(asked, "asked")).collect();
    marks.push(line(&plot.got, "got"));
    let apart = plot.asked.as_ref().map(|asked| {
        let pairs = cumulated(&plot.got).into_iter().zip(cumulated(asked));
        pairs.fold(0.0, |most: f64, (got, asked)| most.max((got - asked).abs()))
    });
    let caption = match apart {
        Some(apart) => format!("Shares {word} and asked are at most {} apart where bins end", share(apart)),
        None => "Share of gaps up to a length".to_owned(),
    };
    let chart = Chart {
        id: format!("{id}-distribution"),
        description: format!("Cumulative distribution of gaps. {caption}."),
        x: gap_axis(plot, GAPS.one),
        y: Axis::linear(0.0, 100.0, 1.0, "share of gaps, %"),
        marks,
    };
    let rows = gap_rows(plot, |bins, n| share(cumulated(bins)[n + 1]));
    figure(
        "Distribution of gaps",
        &caption,
        &chart,
        (plot.asked.is_some(), word),
        &table("Share up to the end of each bin", &head(plot, GAPS.one, word), &rows),
    )
}

/// A power of ten in ns, as a short label.
fn short(ns: f64) -> String {
    time(ns).replace(' ', "\u{a0}")
}

fn errors(buckets: &[(f64, u64)], count: u64, id: &str, got: &str) -> String {
    let last = buckets.last().map_or(1.0, |bucket| bucket.0).max(2_000.0);
    let mut sum = 0;
    let mut points: Vec<(f64, f64)> = buckets
        .iter()
        .map(|(end, gaps)| {
            sum += gaps;
            (*end, sum as f64 / count.max(1) as f64 * 100.0)
        })
        .collect();
    let rows: Vec<Vec<String>> = points.iter().map(|(end, percent)| vec![time(*end), share(percent / 100.0)]).collect();
    let half = points.iter().find(|(_, percent)| *percent >= 50.0).map_or(last, |(end, _)| *end);
    points.push((last, 100.0));
    let mut marks = vec![Mark::Line { class: "got", points }];
    for (at, label, above) in [(64.0, "64 ns", true), (256.0, "256 ns", false), (1_000.0, "1 µs", true)] {
        marks.push(Mark::Rule { at, label: label.to_owned(), above });
    }
    let caption = "Share of gaps that differ from their own asked gap by at most this";
    let chart = Chart {
        id: format!("{id}-errors"),
        description: format!("{caption}. Half of them are within {}.", time(half)),
        x: Axis::logarithmic(1.0, last, "|gap − ask|", short),
        y: Axis::linear(0.0, 100.0, 1.0, "share of gaps, %"),
        marks,
    };
    figure(
        "Error of gaps",
        caption,
        &chart,
        (false, got),
        &table("Share of gaps within", &["|gap − ask|", "share"], &rows),
    )
}

fn lateness(late: &LatenessReport, id: &str, got: &str) -> String {
    let last = late.histogram.last().map_or(1.0, |bucket| bucket.0).max(1_000.0);
    let most = late.histogram.iter().map(|bucket| bucket.1).max().unwrap_or(0).max(1) as f64;
    let mut from = 0.5;
    let bars = late
        .histogram
        .iter()
        .map(|(end, departures)| {
            let bar = (from, *end, *departures as f64);
            from = *end;
            bar
        })
        .collect();
    let mut caption =
        format!("median {}, p99 {}, largest {}", brief(late.p50_ns), brief(late.p99_ns), brief(late.max_ns));
    if let Some(hiccups) = late.hiccups.filter(|hiccups| hiccups.count > 0) {
        caption += &format!("; {} of more than {}", counted(hiccups.count, "hiccup"), time(hiccups.above_ns));
    }
    let chart = Chart {
        id: format!("{id}-lateness"),
        description: format!("Histogram of lateness, both axes logarithmic: {caption}."),
        x: Axis::logarithmic(0.5, last, "departure − ask", short),
        // The axis starts between half a departure and one, so that a single departure is visible.
        y: Axis::logarithmic(0.6, most * 2.0, "departures", |count| {
            if count >= 1e6 {
                format!("{}M", count / 1e6)
            } else if count >= 1e4 {
                format!("{}k", count / 1e3)
            } else {
                format!("{count}")
            }
        }),
        marks: vec![Mark::Bars { class: "bars", bars }],
    };
    let rows: Vec<Vec<String>> =
        late.histogram.iter().map(|(end, departures)| vec![time(*end), thousands(*departures)]).collect();
    figure(
        "Lateness",
        &caption,
        &chart,
        (false, got),
        &table("Departures by lateness", &["up to", "departures"], &rows),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_side_by_side_have_one_outline() {
        let bars = [(0.0, 1.0, 0.0), (1.0, 2.0, 5.0), (2.0, 3.0, 7.0), (3.0, 4.0, 0.0), (4.0, 5.0, 1.0)];
        let lines = outline(&bars);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], [(1.0, 0.0), (1.0, 5.0), (2.0, 5.0), (2.0, 7.0), (3.0, 7.0), (3.0, 0.0)]);
        assert!(outline(&bars[..1]).is_empty());
    }

    #[test]
    fn only_sides_with_something_beyond_the_bins_are_named() {
        let beyond = |below, above| outside(&Bins { below, counts: Vec::new(), above }, "gap");
        assert_eq!(beyond(0, 426), "; not drawn: 426 gaps above");
        assert_eq!(beyond(1, 0), "; not drawn: 1 gap below");
        assert_eq!(beyond(2, 1_000), "; not drawn: 2 gaps below, 1 000 above");
        assert_eq!(beyond(0, 0), "");
    }

    #[test]
    fn half_of_the_errors_are_counted_and_not_read() {
        // 49.9999 %, which prints as 50 %.
        let text = errors(&[(10.0, 499_999), (20.0, 500_001)], 1_000_000, "id", "got");
        assert!(text.contains("Half of them are within 20"), "{text}");
    }
}
