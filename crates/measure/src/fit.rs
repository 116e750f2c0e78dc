use crate::neighbours::Neighbours;
use crate::ns;
use crate::special::{chi2_above, kolmogorov};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// A distribution to compare gaps with. Values are picoseconds.
pub trait Reference: Send + Sync {
    /// The law as asked.
    fn text(&self) -> &str;
    /// P(gap < `ps`) and P(gap ≤ `ps`).
    fn cdf(&self, ps: f64) -> (f64, f64);
    /// The smallest and the largest gap of the law.
    fn limits(&self) -> (f64, f64);
    /// The range divided into bins.
    fn bins(&self) -> (f64, f64);
    /// The values of a discrete law in ascending order, each with its probability.
    fn atoms(&self) -> Option<Vec<(f64, f64)>>;
    /// Single values with their own probability in an otherwise continuous law, in ascending order: repeated values of
    /// a table. Limits need not be included.
    fn jumps(&self) -> Vec<f64> {
        Vec::new()
    }
    /// Mean and standard deviation, if they exist.
    fn moments(&self) -> (Option<f64>, Option<f64>);
    /// Coefficient of the chain behind correlated gaps; 0 for independent gaps.
    fn persistence(&self) -> f64;
    /// Gaps run from the end of a frame to the start of the next.
    fn is_idle(&self) -> bool;
    /// Number of strata with one gap each, for stratified gaps.
    fn strata(&self) -> Option<u64> {
        None
    }
}

/// How well gaps follow a law.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct FitReport {
    /// The law as asked.
    pub distribution: String,
    /// Gaps compared.
    pub count: u64,
    /// Total number of gaps, if larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_from: Option<u64>,
    /// Kolmogorov–Smirnov distance between the gaps and the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_d: Option<f64>,
    /// Distance that gaps of the law exceed with a probability of 5 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_critical_05: Option<f64>,
    /// Probability that gaps of the law have at least this distance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_p: Option<f64>,
    /// Distance between the gaps and an equal number of ideal draws of the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks2_d: Option<f64>,
    /// Critical distance of that test at 5 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks2_critical_05: Option<f64>,
    /// χ² over the values of a discrete law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2: Option<f64>,
    /// Degrees of freedom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2_df: Option<u64>,
    /// Probability that gaps of the law give at least this χ².
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2_p: Option<f64>,
    /// Mean square of (share of gaps in a bin − the law's share).
    pub mse: f64,
    /// Kullback–Leibler divergence of the gaps from the law over the bins, in nats; absent if gaps occur where the law
    /// has no probability.
    pub kl_nats: Option<f64>,
    /// Number of bins, including those beyond the range.
    pub bins: u64,
    /// Share of gaps where the law has no probability.
    pub outside_ratio: f64,
    /// Pearson's correlation of neighbouring gaps.
    pub lag1: f64,
    /// Number of strata with one gap each: over the run, or over blocks of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strata: Option<u64>,
    /// Mean of the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub law_mean_ns: Option<f64>,
    /// Standard deviation of the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub law_std_ns: Option<f64>,
}

impl FitReport {
    /// Probability of a fit at least as bad as this, by the test that suits the law.
    #[must_use]
    pub fn p(&self) -> f64 {
        self.ks_p.or(self.chi2_p).unwrap_or(0.0)
    }
}

/// Limit on stored gaps; beyond it, a random sample of this size.
const KEPT: usize = 4_000_000;
/// Number of bins within the range of a law.
const BINS: usize = 100;
/// A gap this close to a single value in ps equals that value; the difference is rounding error.
const SAME: f64 = 1e-3;
/// With this many gaps of this many values, their greatest common divisor is the step they were rounded to.
const MANY_GAPS: usize = 100;
const MANY_VALUES: usize = 8;
/// A grid step with less of the law than this share of the critical distance is ignored.
const LITTLE: f64 = 0.05;
/// The asymptotic 5 % point of √n·D.
const KOLMOGOROV_05: f64 = 1.358_1;
/// Values of a discrete law with a smaller expected count are merged with their neighbours.
const LEAST_EXPECTED: f64 = 5.0;

/// Compares gaps with the law that was asked.
pub struct FitMeter {
    law: Arc<dyn Reference>,
    /// How far rounding moves a gap, in ps: a byte time of the line, or a timestamp step. A value this close to an edge
    /// may be at the edge.
    tolerance: f64,
    /// Duration of a byte on the line, if gaps are idle times.
    byte_ps: f64,
    last: Option<Time>,
    seen: u64,
    /// Limit on stored gaps.
    most: usize,
    kept: Vec<i64>,
    random: u64,
    neighbours: Neighbours,
}

impl FitMeter {
    /// A meter of one law; `byte_time` is that of the line, if there is one.
    #[must_use]
    pub fn new(law: Arc<dyn Reference>, byte_time: Option<Span>) -> Self {
        let byte_ps = byte_time.map_or(0.0, |byte| byte.as_ps() as f64);
        FitMeter {
            law,
            // The resolution of captures is a nanosecond.
            tolerance: byte_ps.max(1_000.0 * f64::from(u8::from(byte_time.is_none()))),
            byte_ps,
            last: None,
            seen: 0,
            most: KEPT,
            kept: Vec::new(),
            random: 0x6e65_746c_6174_6865,
            neighbours: Neighbours::default(),
        }
    }

    /// Sets the timestamp step that limits the resolution of the gaps to `step_ns`.
    pub fn stamped_in_steps(&mut self, step_ns: f64) {
        self.tolerance = self.tolerance.max(step_ns * 1_000.0);
    }

    /// Records that a frame of `length` started at `start`. Frames come in order.
    pub fn record(&mut self, start: Time, length: FrameLen) {
        if let Some(last) = self.last {
            self.add(start.signed_ps_since(last));
        }
        // A frame ends with its FCS.
        let busy = if self.law.is_idle() { f64::from(length.with_preamble()) * self.byte_ps } else { 0.0 };
        self.last = Some(start + Span::from_ps(busy as u64));
    }

    fn add(&mut self, gap: i64) {
        self.neighbours.add(gap);
        self.seen += 1;
        if self.kept.len() < self.most {
            self.kept.push(gap);
        } else {
            // Vitter's algorithm R: each gap so far is stored with the same probability.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let index = (u128::from(mix(self.random)) * u128::from(self.seen)) >> 64;
            if let Some(kept) = self.kept.get_mut(index as usize) {
                *kept = gap;
            }
        }
    }

    /// The figures so far; `None` before the first gap.
    #[must_use]
    pub fn report(&self) -> Option<FitReport> {
        if self.kept.is_empty() {
            return None;
        }
        let count = self.kept.len() as u64;
        let (mean, deviation) = self.law.moments();
        let mut report = FitReport {
            distribution: self.law.text().to_owned(),
            count,
            sampled_from: (self.seen > count).then_some(self.seen),
            lag1: self.neighbours.correlation(),
            strata: self.law.strata(),
            law_mean_ns: mean.map(ns),
            law_std_ns: deviation.map(ns),
            ..FitReport::default()
        };
        match self.law.atoms() {
            Some(atoms) if self.tells_apart(&atoms) => self.judge_atoms(&atoms, &mut report),
            Some(atoms) => {
                let values: Vec<f64> = atoms.iter().map(|(value, _)| *value).collect();
                self.judge_values(&values, &mut report);
            }
            None => self.judge_values(&self.law.jumps(), &mut report),
        }
        Some(report)
    }

    /// Equivalent number of independent gaps: a chain with coefficient ρ has at least the information of (1 − ρ) ÷ (1 +
    /// ρ) times as many independent values.
    fn effective(&self) -> f64 {
        let rho = self.law.persistence().max(0.0);
        self.kept.len() as f64 * (1.0 - rho) / (1.0 + rho)
    }

    /// Whether each value of a discrete law is still closest to itself after rounding.
    fn tells_apart(&self, atoms: &[(f64, f64)]) -> bool {
        atoms.windows(2).all(|pair| pair[1].0 - pair[0].0 > 2.0 * self.tolerance)
    }

    /// The step of possible gaps in ps, if timestamps were rounded to a grid: byte times of this line or of an earlier
    /// one, or the timestamp step. Determined from the gaps.
    fn grid(&self) -> Option<f64> {
        let gaps = || self.kept.iter();
        // A coarser grid than the known one is accepted if many values agree on it.
        let values: HashSet<i64> = gaps().take(MANY_GAPS).copied().collect();
        let common =
            gaps().fold(0, |sum, gap| if sum == 1 { 1 } else { greatest_common_divisor(sum, gap.unsigned_abs()) });
        if gaps().len() >= MANY_GAPS && values.len() >= MANY_VALUES && common as f64 >= self.tolerance {
            return Some(common as f64);
        }
        let off = |gap: &i64| (*gap as f64 - nearest(*gap as f64, self.tolerance)).abs() > self.tolerance / 8.0;
        (!gaps().any(off)).then_some(self.tolerance)
    }

    /// The gaps in order. Gaps within the tolerance of an edge or of a single value are moved onto it, because rounding
    /// would otherwise split one value of the law into two bins.
    fn snapped(&self, jumps: &[f64]) -> Vec<f64> {
        let (least, most) = self.law.limits();
        let snapped = |gap: &i64| {
            let gap = *gap as f64;
            let near = |edge: f64| (gap - edge).abs() <= self.tolerance;
            if near(least) {
                least
            } else if near(most) {
                most
            } else {
                let after = jumps.partition_point(|jump| *jump < gap);
                let beside = jumps[after.saturating_sub(1)..].iter().take(2).filter(|jump| near(**jump));
                *beside.min_by(|a, b| (gap - **a).abs().total_cmp(&(gap - **b).abs())).unwrap_or(&gap)
            }
        };
        let mut gaps: Vec<f64> = self.kept.iter().map(snapped).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        gaps
    }

    fn judge_values(&self, jumps: &[f64], report: &mut FitReport) {
        self.judge_distance(jumps, report);
        let gaps = self.snapped(jumps);
        let n = gaps.len() as f64;
        let (least, most) = self.law.limits();
        report.outside_ratio = gaps.iter().filter(|gap| **gap < least || **gap > most).count() as f64 / n;
        let (from, to) = self.law.bins();
        let width = (to - from) / BINS as f64;
        let edges: Vec<f64> = (0..=BINS).map(|i| from + i as f64 * width).collect();
        // A bin includes its lower edge, the last bin also its upper edge.
        let below = |i: usize, edge: f64| {
            let (strictly, upto) = self.law.cdf(edge);
            let gaps_below = gaps.partition_point(|gap| if i == BINS { *gap <= edge } else { *gap < edge });
            (gaps_below as f64 / n, if i == BINS { upto } else { strictly })
        };
        let mut bins = Vec::with_capacity(BINS + 2);
        let mut before = (0.0, 0.0);
        for (i, edge) in edges.iter().enumerate() {
            let (observed, expected) = below(i, *edge);
            bins.push((observed - before.0, expected - before.1));
            before = (observed, expected);
        }
        bins.push((1.0 - before.0, 1.0 - before.1));
        compare(&bins, report);
    }

    /// Computes the Kolmogorov–Smirnov figures.
    ///
    /// On a grid, a gap is up to one step longer or shorter than drawn. Near a limit or a single value the distance is
    /// therefore evaluated only one step away on either side. Elsewhere the law is compared as rounded to the grid, see
    /// [`Rounded`], if a step contains enough of the law to matter.
    fn judge_distance(&self, jumps: &[f64], report: &mut FitReport) {
        let grid = self.grid();
        let on_grid = |gap: &i64| grid.map_or(*gap as f64, |step| nearest(*gap as f64, step));
        let mut gaps: Vec<f64> = self.kept.iter().map(on_grid).collect();
        gaps.sort_unstable_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let law = Rounded::new(self.law.as_ref(), jumps, grid);
        // Points of comparison: the number of smaller gaps, and the law's probability below.
        let mut places: Vec<(usize, f64)> = Vec::new();
        // A coarse grid is known exactly; on a fine one, captures round once more.
        let reach = if grid.is_some() { self.tolerance.min(1_000.0) } else { self.tolerance };
        let cells = law.cells(reach);
        for (low, high) in &cells {
            places.push((gaps.partition_point(|gap| gap < low), law.below(*low)));
            places.push((gaps.partition_point(|gap| gap <= high), law.upto(*high)));
        }
        let in_cell = |gap: f64| {
            let after = cells.partition_point(|(low, _)| *low <= gap);
            after > 0 && gap <= cells[after - 1].1
        };
        let groups: Vec<&[f64]> = gaps.chunk_by(|a, b| a.total_cmp(b).is_eq()).collect();
        let plain: Vec<(f64, f64)> = groups.iter().map(|group| law.plain(group[0])).collect();
        let little = LITTLE * KOLMOGOROV_05 / n.sqrt();
        let mut at = 0;
        for (i, group) in groups.iter().enumerate() {
            let before = at;
            at += group.len();
            let gap = group[0];
            if in_cell(gap) {
                continue;
            }
            let (mut below, mut upto) = plain[i];
            // The neighbours are at least one step away.
            let from = if i > 0 { plain[i - 1].0 } else { 0.0 };
            let to = plain.get(i + 1).map_or(1.0, |next| next.1);
            if grid.is_some() && to - from > little {
                (below, upto) = (law.below(gap), law.upto(gap));
            }
            places.push((before, below));
            places.push((at, upto));
        }
        let apart = |(count, share): &(usize, f64)| (*count as f64 / n - share).abs();
        let distance = places.iter().map(apart).fold(0.0, f64::max);
        report.ks_d = Some(distance);
        report.ks_critical_05 = Some(KOLMOGOROV_05 / n.sqrt());
        report.ks_p = Some(kolmogorov(distance, self.effective()));
        report.ks2_d = Some(two_sample(&places, gaps.len()));
        report.ks2_critical_05 = Some(KOLMOGOROV_05 * (2.0 / n).sqrt());
    }

    fn judge_atoms(&self, atoms: &[(f64, f64)], report: &mut FitReport) {
        let n = self.kept.len() as f64;
        let mut counts = vec![0_u64; atoms.len()];
        let step = atoms.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
        let mut outside = 0;
        for gap in &self.kept {
            let gap = *gap as f64;
            let after = atoms.partition_point(|(value, _)| *value < gap).min(atoms.len() - 1);
            let nearer = after > 0 && gap - atoms[after - 1].0 < atoms[after].0 - gap;
            let nearest = if nearer { after - 1 } else { after };
            counts[nearest] += 1;
            outside += u64::from((gap - atoms[nearest].0).abs() > step / 2.0);
        }
        report.outside_ratio = outside as f64 / n;
        let (mut chi2, mut cells) = (0.0, 0_u64);
        let (mut observed, mut expected) = (0.0, 0.0);
        let mut rest = 1.0;
        for ((_, probability), count) in atoms.iter().zip(&counts) {
            observed += *count as f64;
            expected += probability * n;
            rest -= probability;
            if expected >= LEAST_EXPECTED && rest * n >= LEAST_EXPECTED {
                chi2 += (observed - expected) * (observed - expected) / expected;
                cells += 1;
                (observed, expected) = (0.0, 0.0);
            }
        }
        if expected > 0.0 {
            chi2 += (observed - expected) * (observed - expected) / expected;
            cells += 1;
        }
        let scale = self.effective() / n;
        let df = cells.saturating_sub(1);
        report.chi2 = Some(chi2);
        report.chi2_df = Some(df);
        report.chi2_p = Some(if df == 0 { 1.0 } else { chi2_above(df as f64, chi2 * scale) });
        let bins: Vec<(f64, f64)> =
            atoms.iter().zip(&counts).map(|((_, expected), count)| (*count as f64 / n, *expected)).collect();
        compare(&bins, report);
    }
}

/// MSE and KL over bins of (observed, expected) shares. Rounding residues in empty bins count as zero.
fn compare(bins: &[(f64, f64)], report: &mut FitReport) {
    const NONE: f64 = 1e-12;
    report.bins = bins.len() as u64;
    report.mse = bins.iter().map(|(p, q)| (p - q) * (p - q)).sum::<f64>() / bins.len() as f64;
    let filled = bins.iter().filter(|(p, _)| *p > NONE);
    let sum: f64 = filled.map(|(p, q)| if *q > NONE { p * libm::log(p / q) } else { f64::INFINITY }).sum();
    report.kl_nats = sum.is_finite().then_some(sum.max(0.0));
}

/// A law as seen in gaps whose two timestamps were rounded to a grid.
///
/// The position of a frame relative to the grid does not depend on the preceding gap. A gap x between two steps
/// therefore becomes the upper one with probability (x − lower) ÷ step, and the share of gaps up to step k is the mean
/// of the law's distribution function from k to k + 1.
struct Rounded<'a> {
    law: &'a dyn Reference,
    /// Limits and single values, in ascending order.
    special: Vec<f64>,
    has_jumps: bool,
    grid: Option<f64>,
}

impl<'a> Rounded<'a> {
    fn new(law: &'a dyn Reference, jumps: &[f64], grid: Option<f64>) -> Self {
        let (least, most) = law.limits();
        let mut special: Vec<f64> = jumps.iter().copied().chain([least, most]).filter(|x| x.is_finite()).collect();
        special.sort_unstable_by(f64::total_cmp);
        special.dedup();
        Rounded { law, special, has_jumps: !jumps.is_empty(), grid }
    }

    /// Intervals around limits and single values, as wide as the rounding. Overlapping ones meet halfway.
    fn cells(&self, reach: f64) -> Vec<(f64, f64)> {
        let middle = |a: usize, b: usize| Some((self.special.get(a)? + self.special.get(b)?) / 2.0);
        let cell = |(i, value): (usize, &f64)| {
            let low = i.checked_sub(1).and_then(|before| middle(before, i)).unwrap_or(f64::NEG_INFINITY);
            let high = middle(i, i + 1).unwrap_or(f64::INFINITY);
            (low.max(value - reach), high.min(value + reach))
        };
        self.special.iter().enumerate().map(cell).collect()
    }

    /// P(gap < `ps`) and P(gap ≤ `ps`) of the law itself, with a tolerance for rounding errors of single values.
    fn plain(&self, ps: f64) -> (f64, f64) {
        if self.has_jumps { (self.law.cdf(ps - SAME).0, self.law.cdf(ps + SAME).1) } else { self.law.cdf(ps) }
    }

    /// P(gap < `ps`) on the grid.
    fn below(&self, ps: f64) -> f64 {
        let Some(step) = self.grid else { return self.plain(ps).0 };
        let upper = libm::ceil(ps / step - 1e-6) * step;
        self.mean(upper - step, upper)
    }

    /// P(gap ≤ `ps`) on the grid.
    fn upto(&self, ps: f64) -> f64 {
        let Some(step) = self.grid else { return self.plain(ps).1 };
        let lower = libm::floor(ps / step + 1e-6) * step;
        self.mean(lower, lower + step)
    }

    /// The mean of the distribution function, by Simpson's rule between the points where it is not smooth.
    fn mean(&self, from: f64, to: f64) -> f64 {
        const CELLS: u32 = 16;
        let first = self.special.partition_point(|value| *value <= from);
        let inner = self.special[first..].iter().copied().take_while(|value| *value < to);
        let (mut sum, mut start) = (0.0, from);
        for end in inner.chain([to]) {
            let width = (end - start) / f64::from(CELLS);
            let mut piece = self.plain(start).1 + self.plain(end).0;
            for cell in 0..CELLS {
                let at = |part: f64| self.law.cdf(start + (f64::from(cell) + part) * width).1;
                piece += 4.0 * at(0.5) + if cell > 0 { 2.0 * at(0.0) } else { 0.0 };
            }
            sum += piece * width / 6.0;
            start = end;
        }
        sum / (to - from)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The step nearest to a gap.
fn nearest(gap: f64, step: f64) -> f64 {
    libm::round(gap / step) * step
}

/// The two-sample distance between gaps and an equal number of ideal draws of the law, over all points. Each point has
/// the number of smaller gaps, out of `all`, and the law's probability below. Ideal draws are uniform in probability.
fn two_sample(places: &[(usize, f64)], all: usize) -> f64 {
    let mut state = 0x6964_6561_6c00_0000_u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(state) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut ideal: Vec<f64> = (0..all).map(|_| draw()).collect();
    ideal.sort_unstable_by(f64::total_cmp);
    let apart = |(count, share): &(usize, f64)| ideal.partition_point(|value| value <= share).abs_diff(*count);
    places.iter().map(apart).max().unwrap_or(0) as f64 / all as f64
}

/// The output function of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
