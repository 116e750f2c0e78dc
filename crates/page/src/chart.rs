//! Charts as SVG. Colours are classes of the page's style sheet, so that one drawing works in light mode, in dark mode
//! and on paper.

use crate::text::escape;
use std::fmt::Write;

/// Width of the drawing, in the same units as font sizes.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 250.0;
/// Margins for labels around the plot. The left margin grows with the longest tick label.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 20.0;
/// Upper bound on the average width of a letter.
const LETTER: f64 = 7.5;
const BOTTOM: f64 = 44.0;

/// One axis of a plot.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
    label: String,
}

/// The marks, drawn in this order.
pub(crate) enum Mark {
    /// A line through points.
    Line { class: &'static str, points: Vec<(f64, f64)> },
    /// Bars from the axis up: (from, to, height).
    Bars { class: &'static str, bars: Vec<(f64, f64, f64)> },
    /// A vertical line with a label above or below the plot. Alternating the side keeps the labels of neighbours apart.
    Rule { at: f64, label: String, above: bool },
}

/// A plot with its text alternative.
pub(crate) struct Chart {
    pub(crate) id: String,
    /// A description of the plot and its content, for readers who cannot see it.
    pub(crate) description: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) marks: Vec<Mark>,
}

impl Axis {
    /// A linear axis. Values are divided by `scale` for the tick labels.
    pub(crate) fn linear(low: f64, high: f64, scale: f64, label: impl Into<String>) -> Axis {
        let high = if high > low { high } else { low + scale };
        let step = nice_step((high - low) / scale / 7.0);
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / scale / step).ceil() as i64;
        let last = (high / scale / step * (1.0 + 1e-9)).floor() as i64;
        let ticks =
            (first..=last).map(|i| (i as f64 * step * scale, format!("{:.digits$}", i as f64 * step))).collect();
        Axis { low, high, logarithmic: false, ticks, label: label.into() }
    }

    /// A linear axis without ticks; rules label its positions.
    pub(crate) fn named(low: f64, high: f64, label: impl Into<String>) -> Axis {
        Axis { low, high, logarithmic: false, ticks: Vec::new(), label: label.into() }
    }

    /// A logarithmic axis with a tick at each power of ten, labelled by `name`. If there are few powers, also at 2 and
    /// 5 times each.
    pub(crate) fn logarithmic(low: f64, high: f64, label: impl Into<String>, name: impl Fn(f64) -> String) -> Axis {
        let powers = low.log10().ceil() as i32..=(high.log10() + 1e-9).floor() as i32;
        let parts: &[f64] = if powers.clone().count() < 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let values = (powers.start() - 1..=*powers.end())
            .flat_map(|power| parts.iter().map(move |part| part * 10_f64.powi(power)))
            .filter(|value| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value));
        let ticks = values.map(|value| (value, name(value))).collect();
        Axis { low, high, logarithmic: true, ticks, label: label.into() }
    }

    /// The position of a value on the axis, from 0 to 1.
    fn fraction(&self, value: f64) -> f64 {
        let fraction = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        fraction.clamp(0.0, 1.0)
    }
}

/// The smallest of 1, 2, 5 × 10ⁿ that is at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|step| step * power >= least * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

impl Chart {
    /// The drawing.
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (id, description) = (escape(&self.id), escape(&self.description));
        writeln!(
            out,
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{id}"><desc id="{id}">{description}</desc>"#
        )?;
        let left = self.left();
        for (value, name) in &self.y.ticks {
            let y = self.y(*value);
            writeln!(out, r#"<line class="grid" x1="{left}" y1="{y:.1}" x2="{right}" y2="{y:.1}"/>"#)?;
            let (x, y) = (left - 6.0, y + 4.0);
            writeln!(out, r#"<text class="tick" x="{x}" y="{y:.1}" text-anchor="end">{}</text>"#, escape(name))?;
        }
        for (value, name) in spread(&self.x.ticks, right - left) {
            let x = self.x(*value);
            let (below, label) = (floor + 4.0, floor + 17.0);
            writeln!(out, r#"<line class="axis" x1="{x:.1}" y1="{floor}" x2="{x:.1}" y2="{below}"/>"#)?;
            let (x, anchor) = within(x, name);
            writeln!(
                out,
                r#"<text class="tick" x="{x:.1}" y="{label}" text-anchor="{anchor}">{}</text>"#,
                escape(name)
            )?;
        }
        for mark in &self.marks {
            self.mark(out, mark)?;
        }
        // Labels are drawn last, so that no line crosses them.
        for mark in &self.marks {
            if let Mark::Rule { at, label, above } = mark {
                Self::name(out, self.x(*at), label, *above)?;
            }
        }
        writeln!(out, r#"<line class="axis" x1="{left}" y1="{floor}" x2="{right}" y2="{floor}"/>"#)?;
        let (middle, bottom) = (f64::midpoint(left, right), HEIGHT - 8.0);
        writeln!(
            out,
            r#"<text class="name" x="{middle}" y="{bottom}" text-anchor="middle">{}</text>"#,
            escape(&self.x.label)
        )?;
        let middle = f64::midpoint(TOP, floor);
        writeln!(
            out,
            r#"<text class="name" transform="translate(12 {middle}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(&self.y.label)
        )?;
        out.push_str("</svg>\n");
        Ok(())
    }

    fn mark(&self, out: &mut String, mark: &Mark) -> std::fmt::Result {
        let floor = HEIGHT - BOTTOM;
        match mark {
            Mark::Line { class, points } => {
                write!(out, r#"<polyline class="{class}" points=""#)?;
                for (x, y) in points {
                    write!(out, "{:.1},{:.1} ", self.x(*x), self.y(*y))?;
                }
                writeln!(out, r#""/>"#)
            }
            Mark::Bars { class, bars } => {
                write!(out, r#"<path class="{class}" d=""#)?;
                for (from, to, height) in bars {
                    let (left, right, top) = (self.x(*from), self.x(*to), self.y(*height));
                    if *height > 0.0 {
                        // A bar above zero must be visible.
                        let top = top.min(floor - 1.0);
                        write!(out, "M{left:.1} {floor}V{top:.1}H{right:.1}V{floor}z")?;
                    }
                }
                writeln!(out, r#""/>"#)
            }
            Mark::Rule { at, .. } => {
                let x = self.x(*at);
                writeln!(out, r#"<line class="rule" x1="{x:.1}" y1="{TOP}" x2="{x:.1}" y2="{floor}"/>"#)
            }
        }
    }

    /// The label of a rule at `x`.
    fn name(out: &mut String, x: f64, label: &str, above: bool) -> std::fmt::Result {
        let floor = HEIGHT - BOTTOM;
        let (x, y, anchor) = match above {
            true => {
                let (x, anchor) = within(x, label);
                (x, TOP - 8.0, anchor)
            }
            false if x < WIDTH * 0.8 => (x + 4.0, floor - 6.0, "start"),
            false => (x - 4.0, floor - 6.0, "end"),
        };
        writeln!(out, r#"<text class="halo" x="{x:.1}" y="{y}" text-anchor="{anchor}">{}</text>"#, escape(label))
    }

    /// The left edge of the plot, right of the axis title and the widest tick label.
    fn left(&self) -> f64 {
        let widest = self.y.ticks.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(0);
        (widest as f64 * LETTER + 26.0).max(LEFT)
    }

    fn x(&self, value: f64) -> f64 {
        let left = self.left();
        left + self.x.fraction(value) * (WIDTH - left - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.fraction(value) * (HEIGHT - BOTTOM - TOP)
    }
}

/// The position and anchor of a label at `x`: centred, or right-aligned if it would cross the right edge.
fn within(x: f64, name: &str) -> (f64, &'static str) {
    match x + name.chars().count() as f64 * LETTER / 2.0 {
        end if end <= WIDTH => (x, "middle"),
        _ => (WIDTH - 1.0, "end"),
    }
}

/// The ticks that can be labelled without overlap.
fn spread(ticks: &[(f64, String)], width: f64) -> impl Iterator<Item = &(f64, String)> {
    let widest = ticks.iter().map(|(_, name)| name.chars().count()).max().unwrap_or(1) as f64 * LETTER + 10.0;
    let room = (width / widest).max(1.0);
    ticks.iter().step_by((ticks.len() as f64 / room).ceil().max(1.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        for (low, high, scale) in [(0.0, 5.5e9, 1e9), (9_900.0, 10_100.0, 1e3), (0.0, 1e-3, 1.0), (3.0, 3.0, 1.0)] {
            let axis = Axis::linear(low, high, scale, "");
            assert!((3..=12).contains(&axis.ticks.len()), "{low} to {high}: {:?}", axis.ticks);
            assert!(axis.ticks.iter().all(|(value, _)| *value >= low * 0.999 && *value <= axis.high * 1.001));
            let names: Vec<&String> = axis.ticks.iter().map(|(_, name)| name).collect();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
        assert!((nice_step(0.3) - 0.5).abs() < 1e-12 && (nice_step(2.0) - 2.0).abs() < 1e-12);
        assert!((nice_step(6.0) - 10.0).abs() < 1e-12);
    }

    #[test]
    fn names_at_the_right_edge_are_not_cut_off() {
        let chart = Chart {
            id: "edge".into(),
            description: String::new(),
            x: Axis::logarithmic(1.0, 1e8, "", |value| if value < 1e8 { String::new() } else { "100 ms".into() }),
            y: Axis::linear(0.0, 1.0, 1.0, ""),
            marks: vec![
                Mark::Rule { at: 1e8, label: "at the edge".into(), above: true },
                Mark::Rule { at: 1e3, label: "within".into(), above: false },
            ],
        };
        let drawing = chart.svg();
        for name in ["100 ms", "at the edge"] {
            let line = drawing.lines().find(|line| line.contains(name)).expect("it is drawn");
            assert!(line.contains(r#"x="459.0""#) && line.contains(r#"text-anchor="end""#), "{line}");
        }
        assert_eq!(within(200.0, "100 ms"), (200.0, "middle"));
        let (rule, name) = (drawing.rfind(r#"class="rule""#), drawing.find("at the edge"));
        assert!(rule < name, "names are above lines");
    }

    #[test]
    fn values_outside_are_drawn_at_the_edge() {
        let axis = Axis::logarithmic(1.0, 1_000.0, "", |value| format!("{value}"));
        assert_eq!(axis.ticks.len(), 4);
        let narrow = |low, high| Axis::logarithmic(low, high, "", |value| format!("{value}")).ticks;
        assert_eq!(
            narrow(400.0, 2_400.0).into_iter().map(|(_, name)| name).collect::<Vec<_>>(),
            ["500", "1000", "2000"]
        );
        assert_eq!(narrow(110.0, 190.0).len(), 0, "less than a factor of two has none but round ones");
        assert_eq!(narrow(90.0, 1_100.0).len(), 2);
        assert!(axis.fraction(0.0).abs() < 1e-12 && (axis.fraction(1e9) - 1.0).abs() < 1e-12);
        assert!((axis.fraction(10.0) - 1.0 / 3.0).abs() < 1e-12);
    }
}
