use crate::buckets::Buckets;
use crate::conformance::ConformanceMeter;
use crate::gaps::GapMeter;
use crate::ns;
use crate::timeline::Timeline;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Data for plots of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Plots {
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
}

/// Gaps in bins of equal width.
#[derive(Clone, Debug, Serialize)]
pub struct GapPlot {
    /// Start of the first bin.
    pub first_ns: f64,
    /// Width of each bin.
    pub width_ns: f64,
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
            rate: timeline.report(),
            gap: GapPlot::of(&gaps.histogram(), conformance.map(ConformanceMeter::asked).as_ref()),
            delay: None,
            gap_error: conformance.map(ConformanceMeter::errors).unwrap_or_default(),
        }
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

/// Number of bins between the extreme quantiles; a few empty ones are added on both sides.
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
        // A power of two not finer than the histograms' resolution at `high` divides the ends of all their buckets, so
        // no bucket spans two bins.
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
            asked: asked.map(&bins),
            got: bins(got),
        })
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
    fn smallest_and_largest_gaps_have_bins() {
        assert!(GapPlot::of(&of([]), None).is_none());
        for gap in [0, 1, i64::MAX.unsigned_abs()] {
            assert_eq!(GapPlot::of(&of([gap]), Some(&of([gap]))).expect("a gap").got.total(), 1);
        }
    }
}
