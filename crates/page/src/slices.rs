//! The page of slices: a stacked bar of the means, the path of one packet as a waterfall, and a table of all figures.

use crate::text::{escape, notes, table};
use crate::{PageHeader, document, warnings};
use measure::figures::{brief, counted, share, thousands};
use measure::slices::SliceFigures;
use std::fmt::Write;

/// The content of the page of a measurement of slices.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// What the figures cannot show; printed at the top.
    pub warnings: Vec<String>,
    /// Top slices in the order of the path: name, mean per packet in ns, and both ends.
    pub means: Vec<(String, f64, String)>,
    /// One packet: its description, then the name and duration in ns of each part.
    pub packet: Option<(String, Vec<(String, f64)>)>,
    /// Column headings of the table of figures.
    pub head: Vec<&'static str>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// What was counted and what was subtracted, as text.
    pub notes: Vec<String>,
}

const WIDTH: f64 = 960.0;

/// Consecutive colours are far apart in hue, and also differ in brightness, for readers who cannot tell the hues apart
/// and for black-and-white print.
fn colour(n: usize) -> String {
    format!("hsl({} 55% {}%)", (n * 137) % 360, if n.is_multiple_of(2) { 42 } else { 64 })
}

/// The page of slices.
#[must_use]
pub fn slices(command: &str, slices: &Slices, about: &PageHeader) -> String {
    let mut main = warnings(&slices.warnings);
    if slices.means.is_empty() {
        main.push_str(&nothing(
            "",
            "No packet was traced to its end: check the filter, and that a program sent packets.",
        ));
    } else {
        main.push_str(&stacked("", "all packets", &slices.means));
        if let Some((what, parts)) = &slices.packet {
            main.push_str(&waterfall("", what, parts, &slices.means));
        }
        let figures =
            table("With the cost of the probes subtracted, unless stated otherwise", &slices.head, &slices.rows);
        let _ = writeln!(
            main,
            "<section class=\"stack\"><h2>All figures</h2>\n<div class=\"card\">{figures}</div></section>"
        );
    }
    main.push_str(&notes("What was counted and subtracted", &slices.notes));
    document(command, about, "", &main, "The same report for programs is in report.json beside this page.")
}

/// The title of a section about the slices of `whose`, which is empty if there is only one.
fn title(what: &str, whose: &str) -> String {
    if whose.is_empty() { what.to_owned() } else { format!("{what}: {}", escape(whose)) }
}

/// A section that explains why no slices of `whose` are drawn.
pub(crate) fn nothing(whose: &str, why: &str) -> String {
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<div class=\"card\"><p class=\"note\">{}</p></div></section>\n",
        title("Where the time goes", whose),
        escape(why)
    )
}

/// The mean path of the traced `packets` as a bar divided into slices.
pub(crate) fn stacked(whose: &str, packets: &str, means: &[(String, f64, String)]) -> String {
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
    let drawing = if total > 0.0 {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} 46\" role=\"img\" aria-label=\"Bar of the mean path, {}, divided into its slices.\">\n{bars}</svg>\n",
            brief(total)
        )
    } else {
        "<p class=\"note\">None of them took any time, so there is no bar to draw.</p>\n".to_owned()
    };
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<figure class=\"card\"><figcaption><h3>Mean of {}: {}</h3>\nThe slices in the order of the path; they do not overlap, and sum to the total.</figcaption>\n{drawing}<dl class=\"terms\" style=\"margin-top:14px\">\n{legend}</dl></figure></section>\n",
        title("Where the time goes", whose),
        escape(packets),
        brief(total)
    )
}

/// The path of one packet, as a table whose bars fill the space beside the names. The names stay readable at any width,
/// and for readers who cannot see the bars.
pub(crate) fn waterfall(whose: &str, what: &str, parts: &[(String, f64)], means: &[(String, f64, String)]) -> String {
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    let scale = if total > 0.0 { 100.0 / total } else { 0.0 };
    let mut rows = String::new();
    let mut at = 0.0;
    for (row, (name, ns)) in parts.iter().enumerate() {
        let n = means.iter().position(|(mean, ..)| mean == name).unwrap_or(row);
        // The outline keeps a very short slice visible.
        let (x, width) = ((at * scale).min(99.8), ns * scale);
        let _ = writeln!(
            rows,
            "<tr><th scope=\"row\">{}</th><td><svg aria-hidden=\"true\"><rect x=\"{x:.2}%\" width=\"{width:.2}%\" height=\"100%\" style=\"fill:{}\"/></svg></td><td>{}</td></tr>",
            escape(name),
            colour(n),
            brief(*ns)
        );
        at += ns;
    }
    let caption = format!("Of the first packets, the one whose total, {}, is closest to the median.", brief(total));
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<div class=\"card\"><h3>{}</h3>\n<table class=\"way\"><caption>{caption}</caption>\n<tbody>\n{rows}</tbody></table></div></section>\n",
        title("One packet", whose),
        escape(what)
    )
}

/// The path from program to program, per direction if there are several.
pub(crate) fn end_to_end(report: &measure::EndToEnd) -> String {
    if !report.directions.is_empty() {
        return report.directions.iter().map(end_to_end).collect();
    }
    let name = report.name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let whose = format!("from program to program{name}");
    let measure::slices::SlicedPackets { seen, matched, lost } = report.packets;
    let seen = format!("{} carried, of which {} without both ends seen", counted(seen, "packet"), thousands(lost));
    if matched == 0 {
        return nothing(&whose, &format!("Nothing to draw: {seen}."));
    }
    let of = |slice: &SliceFigures| {
        (slice.name.clone(), slice.mean_ns * slice.per_packet, format!("median {}", brief(slice.p50_ns)))
    };
    let means: Vec<_> = report.slices.iter().map(of).collect();
    let parts: Vec<_> = report.typical.iter().map(|part| (part.name.clone(), part.length_ns)).collect();
    let row = |slice: &SliceFigures| {
        let [mean, median, p99] = [slice.mean_ns, slice.p50_ns, slice.p99_ns].map(brief);
        vec![slice.name.clone(), mean, median, p99, share(slice.total_ratio), format!("{:.3}", slice.per_packet)]
    };
    let rows: Vec<Vec<String>> = report.slices.iter().map(row).collect();
    let head = ["slice", "mean", "median", "p99", "share", "per packet"];
    let figures = table(&format!("{seen}; those of kernels are less what the probes cost"), &head, &rows);
    format!(
        "{}{}<section class=\"stack\"><div class=\"card\">{figures}</div></section>\n",
        stacked(&whose, &counted(matched, "packet"), &means),
        waterfall(&whose, "From the sender's call to the receiver's", &parts, &means)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_text_is_safe() {
        let slice = |name: &str, ns| (name.to_owned(), ns, "from a < b".to_owned());
        let data = Slices {
            warnings: vec!["calibration: 41.84 % of the time".into()],
            means: vec![slice("syscall", 250.0), slice("link", 750.0)],
            packet: Some(("udp <1> B".into(), vec![("syscall".into(), 100.0), ("link".into(), 300.0)])),
            head: vec!["slice", "mean"],
            rows: vec![vec!["syscall".into(), "250 ns".into()]],
            notes: vec!["nothing lost".into()],
        };
        let page = slices("slice kernel", &data, &PageHeader::default());
        assert!(page.contains("width=\"240.0\"") && page.contains("width=\"720.0\""), "a quarter and three: {page}");
        assert!(page.contains("250 ns, 25.0 %") && page.contains("from a &lt; b") && page.contains("udp &lt;1&gt; B"));
        assert_eq!(page.matches("<rect").count(), 4);
        // The values of one packet are also text, not only bars.
        let part = "link</th><td><svg aria-hidden=\"true\"><rect x=\"25.00%\" width=\"75.00%\"";
        assert!(page.contains(part) && page.contains("</svg></td><td>300 ns</td>"), "{page}");
    }

    #[test]
    fn draws_nothing_without_traced_packets() {
        let page = slices("slice kernel", &Slices { head: vec!["slice"], ..Slices::default() }, &PageHeader::default());
        assert!(page.contains("No packet was traced to its end: check the filter"), "{page}");
        assert!(!page.contains("<svg") && !page.contains("<table"), "{page}");
        let idle = stacked("", "1 frame in 64", &[("rx".into(), 0.0, "a look".into())]);
        assert!(idle.contains("there is no bar to draw") && idle.contains("0 ns, 0.0 %: a look"), "{idle}");
        assert!(!idle.contains("<svg"), "{idle}");
        let unmatched = measure::EndToEnd {
            name: Some("forward".into()),
            packets: measure::slices::SlicedPackets { seen: 7, matched: 0, lost: 7 },
            slices: Vec::new(),
            total: measure::slices::SliceTimes::default(),
            probes: String::new(),
            typical: Vec::new(),
            directions: Vec::new(),
        };
        let section = end_to_end(&unmatched);
        assert!(section.contains("from program to program, forward</h2>"), "{section}");
        assert!(
            section.contains("Nothing to draw: 7 packets carried, of which 7 without both ends seen."),
            "{section}"
        );
    }
}
