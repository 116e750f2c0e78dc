//! Draws the paper's Fig. 6: the rate of the observed user over time.

use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 45.0;
const MOST: f64 = 1.2;
const COLOURS: [&str; 2] = ["#1f6fb4", "#d9731a"];

/// An SVG with one line per series: Mbit/s by sample.
pub(crate) fn svg(lines: &[(String, Vec<f64>)]) -> String {
    let y = |mbps: f64| HEIGHT - BOTTOM - mbps / MOST * (HEIGHT - TOP - BOTTOM);
    let x = |sample: usize| LEFT + sample as f64 * (WIDTH - LEFT - RIGHT) / 18.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    // Writing to a string cannot fail.
    for tenth in (0..=12).step_by(2) {
        let mbps = f64::from(tenth) / 10.0;
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{mbps:.1}</text>",
            WIDTH - RIGHT,
            y(mbps),
            y(mbps),
            LEFT - 6.0,
            y(mbps) + 4.0
        );
    }
    for sample in (0..19).step_by(2) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(sample),
            HEIGHT - BOTTOM + 18.0,
            sample + 2
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"16\">Mbit/s of the observed user, by sample of 2 s; its limit is 1</text>"
    );
    for (i, (name, mbps)) in lines.iter().enumerate() {
        let points: Vec<String> =
            mbps.iter().enumerate().map(|(n, mbps)| format!("{:.1},{:.2}", x(n), y(*mbps))).collect();
        let colour = COLOURS[i % COLOURS.len()];
        let _ = writeln!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n<text x=\"{:.1}\" \
             y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            LEFT + 6.0,
            y(mbps.first().copied().unwrap_or_default()) + if i == 0 { -10.0 } else { 22.0 }
        );
    }
    out + "</svg>\n"
}
