//! Gaps between the crests of different sources within a round, against the asked gap.

use crate::histogram::{Tallies, at_quantile};
use crate::ns;
use schemars::JsonSchema;
use serde::Serialize;
use units::{Span, Time};

/// Limit on gaps that are kept for the drawing. Later ones count in the figures only.
const DRAWN: usize = 4_096;

/// Gaps between crests of different sources within a round.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize)]
pub struct CrestGapReport {
    /// The asked gap, if one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_ns: Option<f64>,
    /// Number of gaps: one before each crest that followed the crest of another source in its round.
    pub count: u64,
    /// Least, as obtained.
    pub min_ns: f64,
    /// Median, as obtained, exact to 0.1 %.
    pub p50_ns: f64,
    /// Largest, as obtained.
    pub max_ns: f64,
}

/// The gaps in order of time.
#[derive(Clone, Debug, Serialize)]
pub struct CrestGapPlot {
    /// The asked gap, if the user gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_ns: Option<f64>,
    /// When each gap ended, at the first frame of the later crest, since the first frame of any source.
    pub at_ns: Vec<f64>,
    /// Length of each gap.
    pub got_ns: Vec<f64>,
    /// Number of later gaps that are not listed.
    pub more: u64,
}

/// Collects the gaps.
#[derive(Default)]
pub struct CrestGapMeter {
    asked: Option<Span>,
    all: Tallies,
    /// Smallest and largest gap, in ps.
    ends: Option<(u64, u64)>,
    drawn: Vec<(Span, u64)>,
}

impl CrestGapMeter {
    /// Creates a meter; `asked` is the gap that was asked, if there is one.
    #[must_use]
    pub fn new(asked: Option<Span>) -> Self {
        CrestGapMeter { asked, ..CrestGapMeter::default() }
    }

    /// Records the gap from `ended` to the start of the next crest at `start`; `origin` is the first frame of any source.
    pub fn record(&mut self, origin: Time, ended: Time, start: Time) {
        let gap = start.signed_ps_since(ended).max(0).unsigned_abs();
        self.all.count(gap);
        let (least, most) = self.ends.unwrap_or((gap, gap));
        self.ends = Some((least.min(gap), most.max(gap)));
        if self.drawn.len() < DRAWN {
            self.drawn.push((start.since(origin), gap));
        }
    }

    /// The figures; `None` without a gap.
    #[must_use]
    pub fn report(&self) -> Option<CrestGapReport> {
        let (least, most) = self.ends?;
        Some(CrestGapReport {
            asked_ns: self.asked.map(Span::as_ns_f64),
            count: self.all.len(),
            min_ns: ns(least as f64),
            p50_ns: ns((at_quantile(&self.all.all(), 0.5) as f64).clamp(least as f64, most as f64)),
            max_ns: ns(most as f64),
        })
    }

    /// The gaps for a drawing; `None` without a gap.
    #[must_use]
    pub fn plot(&self) -> Option<CrestGapPlot> {
        self.ends?;
        Some(CrestGapPlot {
            asked_ns: self.asked.map(Span::as_ns_f64),
            at_ns: self.drawn.iter().map(|(at, _)| at.as_ns_f64()).collect(),
            got_ns: self.drawn.iter().map(|(_, gap)| ns(*gap as f64)).collect(),
            more: self.all.len() - self.drawn.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_gap_and_draws_the_first_ones() {
        let us = |us: u64| Time::from_ps(us * 1_000_000);
        let mut meter = CrestGapMeter::new(Some(Span::from_us(10)));
        assert!(meter.report().is_none() && meter.plot().is_none());
        for i in 0..5_000 {
            meter.record(us(7), us(100 * i + 50), us(100 * i + 60 + u64::from(i == 4_999)));
        }
        let seen = meter.report().expect("gaps");
        assert_eq!((seen.asked_ns, seen.count), (Some(10_000.0), 5_000));
        assert_eq!((seen.min_ns, seen.max_ns), (10_000.0, 11_000.0));
        assert!((seen.p50_ns / 10_000.0 - 1.0).abs() < 1e-3);
        let plot = meter.plot().expect("gaps");
        assert_eq!((plot.at_ns[1], plot.got_ns[1]), (153_000.0, 10_000.0));
        assert_eq!((plot.got_ns.len(), plot.more), (4_096, 904));
        // An interface's timestamps may go back a little; no gap is below zero.
        meter.record(us(7), us(20), us(19));
        let seen = meter.report().expect("gaps");
        assert_eq!((seen.min_ns, seen.max_ns), (0.0, 11_000.0));
    }
}
