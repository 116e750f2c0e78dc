//! Formats slices for people.

use super::{PipelineSlices, SlicePart, SlicedPackets};
use crate::figures::{brief, share, thousands, time};
use std::fmt::Write;

impl PipelineSlices {
    /// A table for people; with `raw`, also the means as stamped.
    #[must_use]
    pub fn table(&self, raw: bool) -> String {
        let mut out = String::new();
        let SlicedPackets { seen, matched, lost } = self.packets;
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "  slices    1 frame in {}: {} seen, {} departed, {} lost; each reading of the clock took {}",
            thousands(self.every),
            thousands(seen),
            thousands(matched),
            thousands(lost),
            brief(self.overhead.tau_o_ns)
        );
        if self.ring_untold {
            let _ =
                writeln!(out, "            the wait in the port's ring is not in it: its driver does not report it");
        }
        let head = if raw { "      as stamped" } else { "" };
        let _ = writeln!(
            out,
            "  {:<16} {:>11} {:>11} {:>11} {:>8} {:>11} {:>11} {:>11}{head}",
            "slice", "mean", "median", "p99", "share", "intended", "error p50", "error p99"
        );
        for slice in &self.slices {
            let figures = &slice.figures;
            let _ = write!(
                out,
                "  {:<16} {:>11} {:>11} {:>11} {:>8} {:>11} {:>11} {:>11}",
                figures.name,
                brief(figures.mean_ns),
                brief(figures.p50_ns),
                brief(figures.p99_ns),
                share(figures.total_ratio),
                brief(slice.intended_mean_ns),
                brief(slice.error.p50_ns),
                brief(slice.error.p99_ns)
            );
            let _ = if raw { writeln!(out, " {:>15}", brief(slice.raw_mean_ns)) } else { writeln!(out) };
        }
        let total = &self.total;
        let _ = write!(
            out,
            "  {:<16} {:>11} {:>11} {:>11} {:>44}",
            "total",
            brief(total.mean_ns),
            brief(total.p50_ns),
            brief(total.p99_ns),
            ""
        );
        let _ = if raw { writeln!(out, " {:>15}", brief(total.raw_mean_ns)) } else { writeln!(out) };
        out
    }
}

/// A bar chart to scale of one packet's slices, one line each.
#[must_use]
pub fn waterfall(parts: &[SlicePart]) -> String {
    const WIDTH: f64 = 48.0;
    let whole = parts.iter().map(|part| part.start_ns + part.length_ns).fold(0.0, f64::max);
    let scale = |ns: f64| if whole > 0.0 { (ns.max(0.0) / whole * WIDTH).round() as usize } else { 0 };
    let mut out = String::new();
    for part in parts {
        let (from, to) = (scale(part.start_ns), scale(part.start_ns + part.length_ns));
        let bar = if to > from { "█".repeat(to - from) } else { "▏".to_owned() };
        let _ = writeln!(
            out,
            "  {:<20} {:>11} at {:>13} {}{bar}",
            part.name,
            brief(part.length_ns),
            time(part.start_ns.round()),
            " ".repeat(from)
        );
    }
    let _ = writeln!(out, "  {:<20} {:>11}", "total", brief(whole));
    out
}
