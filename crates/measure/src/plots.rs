use crate::arrivals::SourceCurve;
use crate::buckets::Buckets;
use crate::conformance::ConformanceMeter;
use crate::crest_gaps::CrestGapPlot;
use crate::gaps::GapMeter;
use crate::ns;
use crate::timeline::Timeline;
use hdrhistogram::Histogram;
use serde::Serialize;
use units::{PS_PER_NS, Time};

/// Data for plots of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plots {
    /// The departures drawn are planned, not measured.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub planned: bool,
    /// The rate over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RatePlot>,
    /// Inter-departure times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapPlot>,
    /// Delays by stages, in bins like the gaps. Asked delays come from the law if there is one, else from the decisions
    /// of the stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<GapPlot>,
    /// The rate of each source over time, if sources were named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceCurve>,
    /// Gaps between the crests of sources, if sources were named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crest_gaps: Option<CrestGapPlot>,
    /// Gaps by |obtained − asked|, in ten steps per decade.
    #[serde(skip_serializing_if = "Buckets::is_empty")]
    pub gap_error: Buckets,
}

/// Rates of frames with FCS in consecutive windows since the first frame.
#[derive(Clone, Debug, Serialize)]
pub struct RatePlot {
    /// Length of a window.
    pub window_ns: f64,
    /// Asked rate per window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_bps: Option<Vec<f64>>,
    /// Measured rate per window.
    pub got_bps: Vec<f64>,
    /// When settings changed, since the first frame.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes_ns: Vec<f64>,
    /// The first frame.
    #[serde(skip)]
    pub first: Time,
}

/// Gaps in bins of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct GapPlot {
    /// Start of the first bin.
    pub first_ns: f64,
    /// Width of each bin.
    pub width_ns: f64,
    /// Start of the first bin and the ends of all bins, if values span decades: ten bins per decade, so widths differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges_ns: Vec<f64>,
    /// The asked gaps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Bins>,
    /// The measured gaps.
    pub got: Bins,
}

/// Counts of values per bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bins {
    /// Values below the first bin.
    pub below: u64,
    /// Values in each bin.
    pub counts: Vec<u64>,
    /// Values above the last bin.
    pub above: u64,
}

impl Bins {
    /// Number of all values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.below + self.counts.iter().sum::<u64>() + self.above
    }
}

impl Plots {
    /// The plots of these meters; `conformance` if there was a target.
    #[must_use]
    pub fn of(gaps: &GapMeter, conformance: Option<&ConformanceMeter>, timeline: &Timeline) -> Plots {
        Plots {
            planned: false,
            rate: timeline.report(),
            gap: GapPlot::of(&gaps.histogram(), conformance.map(ConformanceMeter::asked).as_ref()),
            delay: None,
            sources: Vec::new(),
            crest_gaps: None,
            gap_error: conformance.map(ConformanceMeter::errors).unwrap_or_default(),
        }
    }

    /// The name of the plotted departures in reports.
    #[must_use]
    pub const fn got(&self) -> &'static str {
        if self.planned { "planned" } else { "got" }
    }

    /// Removes comparisons with a target.
    pub fn forget_ask(&mut self) {
        self.gap_error.clear();
        if let Some(rate) = &mut self.rate {
            rate.asked_bps = None;
        }
        if let Some(gap) = &mut self.gap {
            gap.asked = None;
        }
    }
}

/// If the largest plotted value is at least this many times the smallest, bins are logarithmic.
const DECADES: u64 = 1_000;
/// Bins per decade.
const PER_DECADE: i32 = 10;
/// Number of bins between the extreme quantiles; a few empty ones are added on each side.
const BINS: u64 = 64;
/// Shares of measured and asked gaps that may lie outside on either side. Asked gaps should appear completely, but a
/// few hiccups should not compress everything else into one bar.
const TAILS: (f64, f64) = (0.001, 0.01);

impl GapPlot {
    pub(crate) fn of(got: &Histogram<u64>, asked: Option<&Histogram<u64>>) -> Option<GapPlot> {
        if got.is_empty() {
            return None;
        }
        let asked = asked.filter(|asked| !asked.is_empty());
        let both = || [(got, TAILS.1)].into_iter().chain(asked.map(|asked| (asked, TAILS.0)));
        let least = |h: &Histogram<u64>, quantile| h.lowest_equivalent(h.value_at_quantile(quantile));
        let low = both().map(|(h, tail)| least(h, tail)).min().unwrap_or(0);
        let high = both().map(|(h, tail)| least(h, 1.0 - tail)).max().unwrap_or(0);
        if high / low.max(PS_PER_NS) >= DECADES {
            return Some(GapPlot::by_decades(got, asked, (low, high)));
        }
        // A power of two that is not finer than the histograms' resolution at `high` divides all bucket ends, so no
        // bucket spans two bins.
        let mut width =
            both().map(|(h, _)| h.highest_equivalent(high) + 1 - h.lowest_equivalent(high)).max().unwrap_or(1);
        while (high - low) / width >= BINS {
            width *= 2;
        }
        let (first, last) = (low / width, high / width);
        let margin = if last - first < 8 { 6 } else { 2 };
        let (first, last) = (first.saturating_sub(margin), last + margin);
        let bins = |histogram: &Histogram<u64>| {
            let mut bins = Bins { counts: vec![0; (last - first + 1) as usize], ..Bins::default() };
            for value in histogram.iter_recorded() {
                let bin = histogram.lowest_equivalent(value.value_iterated_to()) / width;
                let count = value.count_since_last_iteration();
                match bin.checked_sub(first).and_then(|bin| bins.counts.get_mut(bin as usize)) {
                    Some(bin) => *bin += count,
                    None if bin < first => bins.below += count,
                    None => bins.above += count,
                }
            }
            bins
        };
        Some(GapPlot {
            first_ns: ns((first * width) as f64),
            width_ns: ns(width as f64),
            edges_ns: Vec::new(),
            asked: asked.map(&bins),
            got: bins(got),
        })
    }

    /// Bins of equal ratio that cover all values.
    fn by_decades(got: &Histogram<u64>, asked: Option<&Histogram<u64>>, (low, high): (u64, u64)) -> GapPlot {
        let step = |ps: u64| (ns(ps.max(PS_PER_NS) as f64).log10() * f64::from(PER_DECADE)).floor() as i32;
        let (first, last) = (step(low), step(high.max(got.max())));
        let edges_ns: Vec<f64> =
            (first..=last + 1).map(|step| 10_f64.powf(f64::from(step) / f64::from(PER_DECADE))).collect();
        let bins = |histogram: &Histogram<u64>| {
            let mut bins = Bins { counts: vec![0; edges_ns.len() - 1], ..Bins::default() };
            for value in histogram.iter_recorded() {
                let value_ns = ns(histogram.lowest_equivalent(value.value_iterated_to()) as f64);
                let count = value.count_since_last_iteration();
                match edges_ns.partition_point(|edge| *edge <= value_ns) {
                    0 => bins.below += count,
                    bin if bin < edges_ns.len() => bins.counts[bin - 1] += count,
                    _ => bins.above += count,
                }
            }
            bins
        };
        let (asked, got) = (asked.map(&bins), bins(got));
        GapPlot { first_ns: edges_ns[0], width_ns: 0.0, edges_ns, asked, got }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Tallies;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut histogram = Tallies::default();
        for value in values {
            histogram.count(value);
        }
        histogram.all()
    }

    #[test]
    fn single_gap_is_a_spike_with_a_margin() {
        let plot = GapPlot::of(&of([10_000_000]), None).expect("a gap");
        assert_eq!(plot.got.counts.iter().position(|count| *count == 1), Some(6));
        assert_eq!((plot.got.counts.len(), plot.got.total()), (13, 1));
        let spike = plot.first_ns + 6.0 * plot.width_ns;
        assert!((spike..spike + plot.width_ns).contains(&10_000.0));
    }

    #[test]
    fn even_spread_is_a_flat_histogram() {
        let plot = GapPlot::of(&of((80_000..120_000).map(|ns| ns * 1_000)), None).expect("gaps");
        let inner = &plot.got.counts[4..plot.got.counts.len() - 4];
        let (least, most) = (inner.iter().min().expect("bins"), inner.iter().max().expect("bins"));
        assert!(inner.len() > 30 && most - least <= most / 10, "{least} to {most} in {} bins", inner.len());
        assert_eq!(plot.got.total(), 40_000);
    }

    #[test]
    fn outliers_are_counted_without_stretching_the_axis() {
        let got = of((0..10_000).map(|i| 10_000_000 + i % 100 * 1_000).chain([0, 7_000_000_000]));
        let asked = of([10_000_000; 10_001]);
        let plot = GapPlot::of(&got, Some(&asked)).expect("gaps");
        assert!(plot.first_ns > 9_000.0 && plot.first_ns + plot.width_ns * (plot.got.counts.len() as f64) < 11_000.0);
        assert_eq!((plot.got.below, plot.got.above, plot.got.total()), (1, 1, 10_002));
        assert_eq!(plot.asked.expect("asks").total(), 10_001);
    }

    #[test]
    fn values_that_span_decades_have_bins_of_equal_ratio() {
        let gaps = (0..1_000_u64).map(|i| 1_000_000 * 10_u64.pow((i % 6) as u32)).chain([0]);
        let plot = GapPlot::of(&of(gaps), None).expect("gaps");
        assert_eq!((plot.got.total(), plot.got.below), (1_001, 1));
        assert_eq!(plot.edges_ns.len(), plot.got.counts.len() + 1);
        assert!(plot.edges_ns.windows(2).all(|pair| (pair[1] / pair[0] - 10_f64.powf(0.1)).abs() < 1e-9));
        assert_eq!(plot.got.counts.iter().filter(|count| **count > 0).count(), 6, "{plot:?}");
    }

    #[test]
    fn smallest_and_largest_gaps_have_bins() {
        assert!(GapPlot::of(&of([]), None).is_none());
        for gap in [0, 1, i64::MAX.unsigned_abs()] {
            assert_eq!(GapPlot::of(&of([gap]), Some(&of([gap]))).expect("a gap").got.total(), 1);
        }
    }
}
