//! The page of slices: one stacked bar of means, one packet's way as a waterfall, the table of all figures.

use crate::text::{escape, notes, table};
use crate::{About, document};
use measure::figures::brief;
use std::fmt::Write;

/// What is drawn of a measurement of slices.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// Top slices in the order of the way: name, mean per packet in ns, and from where to where.
    pub means: Vec<(String, f64, String)>,
    /// One packet: what it is, then each part's name and length in ns.
    pub packet: Option<(String, Vec<(String, f64)>)>,
    /// Heads and rows of the table of figures.
    pub head: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// What was counted and subtracted, in sentences.
    pub notes: Vec<String>,
}

const WIDTH: f64 = 960.0;
/// Left of the waterfall's bars: room for names.
const NAMES: f64 = 150.0;
const ROW: f64 = 24.0;

/// Neighbours in the list are far apart on the wheel of colours, and one is darker than the other for those who do not see
/// that, and on paper without colours; all are readable on light and dark.
fn colour(n: usize) -> String {
    format!("hsl({} 55% {}%)", (n * 137) % 360, if n.is_multiple_of(2) { 42 } else { 64 })
}

/// The page of slices.
#[must_use]
pub fn slices(command: &str, slices: &Slices, about: &About) -> String {
    let mut main = stacked(&slices.means);
    if let Some((what, parts)) = &slices.packet {
        main.push_str(&waterfall(what, parts, &slices.means));
    }
    let figures = table("Less what the probes cost, unless it says otherwise", &slices.head, &slices.rows);
    let _ =
        writeln!(main, "<section class=\"stack\"><h2>All figures</h2>\n<div class=\"card\">{figures}</div></section>");
    main.push_str(&notes("What was counted and subtracted", &slices.notes));
    document(command, about, "", &main, "The same report for programs is in report.json beside this page.")
}

pub(crate) fn stacked(means: &[(String, f64, String)]) -> String {
    let total: f64 = means.iter().map(|(_, ns, _)| ns).sum();
    let scale = if total > 0.0 { WIDTH / total } else { 0.0 };
    let mut bars = String::new();
    let mut at = 0.0;
    for (n, (name, ns, _)) in means.iter().enumerate() {
        let (x, width) = (at * scale, ns * scale);
        let _ = writeln!(
            bars,
            "<rect x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"46\" style=\"fill:{}\"><title>{} {}</title></rect>",
            colour(n),
            escape(name),
            brief(*ns)
        );
        at += ns;
    }
    let mut legend = String::new();
    for (n, (name, ns, meaning)) in means.iter().enumerate() {
        let percent = if total > 0.0 { ns / total * 100.0 } else { 0.0 };
        let _ = writeln!(
            legend,
            "<dt><span style=\"display:inline-block;width:12px;height:12px;border-radius:3px;background:{}\"></span> {}</dt><dd>{}, {percent:.1} %: {}</dd>",
            colour(n),
            escape(name),
            brief(*ns),
            escape(meaning)
        );
    }
    let description = format!("Bar of the mean way of a packet, {}, divided into its slices.", brief(total));
    format!(
        "<section class=\"stack\"><h2>Where the time goes</h2>\n<figure class=\"card\"><h3>Mean of all packets: {}</h3>\n<figcaption>The slices in the order of the way; they do not overlap, and sum to the whole.</figcaption>\n<svg viewBox=\"0 0 {WIDTH} 46\" role=\"img\" aria-label=\"{}\">\n{bars}</svg>\n<dl class=\"terms\" style=\"margin-top:14px\">\n{legend}</dl></figure></section>\n",
        brief(total),
        escape(&description)
    )
}

pub(crate) fn waterfall(what: &str, parts: &[(String, f64)], means: &[(String, f64, String)]) -> String {
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    let scale = if total > 0.0 { (WIDTH - NAMES - 90.0) / total } else { 0.0 };
    let mut bars = String::new();
    let mut at = 0.0;
    for (row, (name, ns)) in parts.iter().enumerate() {
        let y = row as f64 * ROW;
        let (x, width) = (NAMES + at * scale, (ns * scale).max(1.0));
        let n = means.iter().position(|(mean, ..)| mean == name).unwrap_or(row);
        let _ = writeln!(
            bars,
            "<text x=\"0\" y=\"{:.1}\">{}</text><rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"16\" style=\"fill:{}\"/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y + 16.0,
            escape(name),
            y + 4.0,
            colour(n),
            x + width + 6.0,
            y + 16.0,
            brief(*ns)
        );
        at += ns;
    }
    let height = parts.len() as f64 * ROW + 6.0;
    format!(
        "<section class=\"stack\"><h2>One packet</h2>\n<figure class=\"card\"><h3>{}</h3>\n<figcaption>Of the first packets the one whose whole way, {}, is nearest to the median.</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Waterfall of the packet's slices\">\n{bars}</svg></figure></section>\n",
        escape(what),
        brief(total)
    )
}

/// The way from program to program; of several directions one each.
pub(crate) fn end_to_end(report: &measure::EndToEnd) -> String {
    if !report.directions.is_empty() {
        return report.directions.iter().map(end_to_end).collect();
    }
    if report.packets.matched == 0 {
        return String::new();
    }
    let of = |slice: &measure::slices::SliceFigures| {
        (slice.name.clone(), slice.mean_ns * slice.per_packet, format!("median {}", brief(slice.p50_ns)))
    };
    let title = report.name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let title = format!("From program to program{title}");
    let means: Vec<_> = report.slices.iter().map(of).collect();
    let parts: Vec<_> = report.typical.iter().map(|part| (part.name.clone(), part.length_ns)).collect();
    format!("{}{}", stacked(&means), waterfall(&title, &parts, &means))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_text_is_safe() {
        let slice = |name: &str, ns| (name.to_owned(), ns, "from a < b".to_owned());
        let data = Slices {
            means: vec![slice("syscall", 250.0), slice("link", 750.0)],
            packet: Some(("udp <1> B".into(), vec![("syscall".into(), 100.0), ("link".into(), 300.0)])),
            head: vec!["slice", "mean"],
            rows: vec![vec!["syscall".into(), "250 ns".into()]],
            notes: vec!["nothing lost".into()],
        };
        let page = slices("slice kernel", &data, &About::default());
        assert!(page.contains("width=\"240.0\"") && page.contains("width=\"720.0\""), "a quarter and three: {page}");
        assert!(page.contains("250 ns, 25.0 %") && page.contains("from a &lt; b") && page.contains("udp &lt;1&gt; B"));
        assert_eq!(page.matches("<rect").count(), 4);
    }
}
