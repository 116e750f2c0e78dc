//! Lanes: the rates of several sources or hosts on one time axis, stacked vertically.

use crate::text::{details, escape, figures as kept, table};
use measure::figures::{bits, thousands, time};
use std::fmt::Write;

/// Width of the drawing, and left edge of the curves, in the same units as font sizes.
const WIDTH: f64 = 920.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 14.0;
/// Height of a lane, and of the curve in it.
const LANE: f64 = 46.0;
const CURVE: f64 = 36.0;
const BOTTOM: f64 = 40.0;
/// Maximum number of letters of a name.
const NAME: usize = 22;

/// A curve and its position on the time axis.
pub struct Lane {
    /// Name of the source or host.
    pub name: String,
    /// Start of the first window in ns, on the time axis of all lanes.
    pub from_ns: f64,
    /// Length of a window.
    pub window_ns: f64,
    /// Rate in each window.
    pub rates_bps: Vec<f64>,
}

impl Lane {
    fn end_ns(&self) -> f64 {
        self.from_ns + self.window_ns * self.rates_bps.len() as f64
    }
}

/// The lanes as a figure with the id `id`. Empty if there is no curve.
pub(crate) fn figure(title: &str, caption: &str, id: &str, lanes: &[Lane]) -> String {
    let drawn = || lanes.iter().filter(|lane| !lane.rates_bps.is_empty());
    let begin = drawn().map(|lane| lane.from_ns).fold(f64::INFINITY, f64::min);
    let end = drawn().map(Lane::end_ns).fold(f64::NEG_INFINITY, f64::max);
    let most = drawn().flat_map(|lane| &lane.rates_bps).fold(0.0, |a: f64, b| a.max(*b));
    if end <= begin || most <= 0.0 {
        return String::new();
    }
    let floor = LANE * lanes.len() as f64 + 6.0;
    let x = |ns: f64| LEFT + (ns - begin) / (end - begin) * (WIDTH - LEFT - RIGHT);
    let mut out = String::new();
    let described =
        format!("{title}: {}, each to the same scale, over {}.", thousands(lanes.len() as u64), time(end - begin));
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-labelledby=\"{id}\"><desc id=\"{id}\">{}</desc>",
        floor + BOTTOM,
        escape(&described)
    );
    for (number, lane) in lanes.iter().enumerate() {
        let base = LANE * (number + 1) as f64;
        let mut name: String = lane.name.chars().take(NAME).collect();
        if name.len() < lane.name.len() {
            name.push('…');
        }
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><line class=\"grid\" x1=\"{LEFT}\" y1=\"{base}\" x2=\"{}\" y2=\"{base}\"/>",
            LEFT - 8.0,
            base - 4.0,
            escape(&name),
            WIDTH - RIGHT
        );
        let mut points = String::new();
        for (window, rate) in lane.rates_bps.iter().enumerate() {
            let y = base - rate / most * CURVE;
            let at = |window: usize| x(lane.from_ns + window as f64 * lane.window_ns);
            let _ = write!(points, "{:.1},{y:.1} {:.1},{y:.1} ", at(window), at(window + 1));
        }
        if !points.is_empty() {
            let _ = writeln!(
                out,
                "<polyline class=\"got\" points=\"{:.1},{base} {points}{:.1},{base}\"/>",
                x(lane.from_ns),
                x(lane.end_ns())
            );
        }
    }
    let _ =
        writeln!(out, "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{floor}\" x2=\"{}\" y2=\"{floor}\"/>", WIDTH - RIGHT);
    for tick in 0..=5 {
        let ns = begin + (end - begin) * f64::from(tick) / 5.0;
        let anchor = if tick == 5 { "end" } else { "middle" };
        let _ = writeln!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x(ns),
            floor + 18.0,
            escape(&time(measure::figures::digits(ns - begin, 4)))
        );
    }
    out.push_str("</svg>\n");
    let row = |lane: &Lane| {
        let best = lane.rates_bps.iter().fold(0.0, |a: f64, b| a.max(*b));
        let mean = lane.rates_bps.iter().sum::<f64>() / lane.rates_bps.len().max(1) as f64;
        let from = if lane.rates_bps.is_empty() { "no curve".to_owned() } else { time(lane.from_ns - begin) };
        vec![lane.name.clone(), from, bits(mean), bits(best), thousands(lane.rates_bps.len() as u64)]
    };
    let rows: Vec<Vec<String>> = lanes.iter().map(row).collect();
    let data = table("Of each lane", &["name", "from", "mean rate", "highest window", "windows"], &rows);
    let caption = format!("{caption}; the full height of each lane is {}", bits(most));
    format!(
        "<figure class=\"card\"><figcaption><h3>{}</h3>\n{}</figcaption>\n{out}{}</figure>\n",
        escape(title),
        kept(&caption),
        details("The data", &data)
    )
}
