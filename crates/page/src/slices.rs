//! The page of slices: one stacked bar of means, one packet's way as a waterfall, the table of all figures.

use crate::text::{escape, notes, table};
use crate::{PageHeader, document, warnings};
use measure::figures::{brief, counted, share, thousands};
use measure::slices::SliceFigures;
use std::fmt::Write;

/// What is drawn of a measurement of slices.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// What the figures cannot show, to stand on top.
    pub warnings: Vec<String>,
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

/// Neighbours in the list are far apart on the wheel of colours, and one is darker than the other for those who do not see
/// that, and on paper without colours.
fn colour(n: usize) -> String {
    format!("hsl({} 55% {}%)", (n * 137) % 360, if n.is_multiple_of(2) { 42 } else { 64 })
}

/// The page of slices.
#[must_use]
pub fn slices(command: &str, slices: &Slices, about: &PageHeader) -> String {
    let mut main = warnings(&slices.warnings);
    if slices.means.is_empty() {
        main.push_str(&nothing("", "No packet was followed to its end: is the filter right, did anything send?"));
    } else {
        main.push_str(&stacked("", "all packets", &slices.means));
        if let Some((what, parts)) = &slices.packet {
            main.push_str(&waterfall("", what, parts, &slices.means));
        }
        let figures = table("Less what the probes cost, unless it says otherwise", &slices.head, &slices.rows);
        let _ = writeln!(
            main,
            "<section class=\"stack\"><h2>All figures</h2>\n<div class=\"card\">{figures}</div></section>"
        );
    }
    main.push_str(&notes("What was counted and subtracted", &slices.notes));
    document(command, about, "", &main, "The same report for programs is in report.json beside this page.")
}

/// The title of a section about `whose` slices, where there may be several.
fn title(what: &str, whose: &str) -> String {
    if whose.is_empty() { what.to_owned() } else { format!("{what}: {}", escape(whose)) }
}

/// Why nothing is drawn of `whose` slices.
pub(crate) fn nothing(whose: &str, why: &str) -> String {
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<div class=\"card\"><p class=\"note\">{}</p></div></section>\n",
        title("Where the time goes", whose),
        escape(why)
    )
}

/// The mean way of `packets`, those that were followed, as a bar divided into slices.
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
            "<svg viewBox=\"0 0 {WIDTH} 46\" role=\"img\" aria-label=\"Bar of the mean way, {}, divided into its slices.\">\n{bars}</svg>\n",
            brief(total)
        )
    } else {
        "<p class=\"note\">None of them took any time: there is no bar to divide.</p>\n".to_owned()
    };
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<figure class=\"card\"><figcaption><h3>Mean of {}: {}</h3>\nThe slices in the order of the way; they do not overlap, and sum to the whole.</figcaption>\n{drawing}<dl class=\"terms\" style=\"margin-top:14px\">\n{legend}</dl></figure></section>\n",
        title("Where the time goes", whose),
        escape(packets),
        brief(total)
    )
}

/// One packet's way. A table, in which the bars take what room the names leave: at any width names can be read, and
/// also by those who do not see bars.
pub(crate) fn waterfall(whose: &str, what: &str, parts: &[(String, f64)], means: &[(String, f64, String)]) -> String {
    let total: f64 = parts.iter().map(|(_, ns)| ns).sum();
    let scale = if total > 0.0 { 100.0 / total } else { 0.0 };
    let mut rows = String::new();
    let mut at = 0.0;
    for (row, (name, ns)) in parts.iter().enumerate() {
        let n = means.iter().position(|(mean, ..)| mean == name).unwrap_or(row);
        // Of a slice of next to nothing the outline is seen.
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
    let caption = format!("Of the first packets the one whose whole way, {}, is nearest to the median.", brief(total));
    format!(
        "<section class=\"stack\"><h2>{}</h2>\n<div class=\"card\"><h3>{}</h3>\n<table class=\"way\"><caption>{caption}</caption>\n<tbody>\n{rows}</tbody></table></div></section>\n",
        title("One packet", whose),
        escape(what)
    )
}

/// The way from program to program; of several directions one each.
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
        // The values of one packet are text, whatever becomes of the bars.
        let part = "link</th><td><svg aria-hidden=\"true\"><rect x=\"25.00%\" width=\"75.00%\"";
        assert!(page.contains(part) && page.contains("</svg></td><td>300 ns</td>"), "{page}");
    }

    #[test]
    fn draws_nothing_without_traced_packets() {
        let page = slices("slice kernel", &Slices { head: vec!["slice"], ..Slices::default() }, &PageHeader::default());
        assert!(page.contains("No packet was followed to its end: is the filter right"), "{page}");
        assert!(!page.contains("<svg") && !page.contains("<table"), "{page}");
        let idle = stacked("", "1 frame in 64", &[("rx".into(), 0.0, "a look".into())]);
        assert!(idle.contains("there is no bar to divide") && idle.contains("0 ns, 0.0 %: a look"), "{idle}");
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
