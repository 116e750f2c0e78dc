use crate::neighbours::Neighbours;
use crate::ns;
use crate::special::{chi2_above, kolmogorov};
use serde::Serialize;
use std::sync::Arc;
use units::{FrameLen, Span, Time};

/// A distribution that gaps are judged by. Values are picoseconds.
pub trait Reference: Send + Sync {
    /// The law as it was asked.
    fn text(&self) -> &str;
    /// P(gap < `ps`) and P(gap ≤ `ps`).
    fn cdf(&self, ps: f64) -> (f64, f64);
    /// The least and the greatest gap that the law has.
    fn limits(&self) -> (f64, f64);
    /// The range that is divided in bins.
    fn bins(&self) -> (f64, f64);
    /// The values of a discrete law in ascending order, each with its probability.
    fn atoms(&self) -> Option<Vec<(f64, f64)>>;
    /// Single values that have a probability of their own in a law that is otherwise continuous, in ascending
    /// order: what a table has more than once. Those at its limits need not be told.
    fn jumps(&self) -> Vec<f64> {
        Vec::new()
    }
    /// Mean and standard deviation, where they exist.
    fn moments(&self) -> (Option<f64>, Option<f64>);
    /// Coefficient of the chain behind correlated gaps; 0 if each is drawn apart.
    fn persistence(&self) -> f64;
    /// The gap runs from the end of a frame to the start of the next.
    fn is_idle(&self) -> bool;
    /// Of how many strata each gave one gap, where they were drawn so.
    fn strata(&self) -> Option<u64> {
        None
    }
}

/// How well gaps follow a law.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FitReport {
    /// The law that was asked.
    pub distribution: String,
    /// Gaps that were judged.
    pub count: u64,
    /// Gaps that there were, where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_from: Option<u64>,
    /// Kolmogorov–Smirnov distance between the gaps and the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_d: Option<f64>,
    /// The distance that gaps of the law exceed once in 20 times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_critical_05: Option<f64>,
    /// How often gaps of the law are this far from it or farther.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks_p: Option<f64>,
    /// Distance between the gaps and as many ideal draws of the law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks2_d: Option<f64>,
    /// The critical distance of that test, at 5 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ks2_critical_05: Option<f64>,
    /// χ² over the values of a discrete law.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2: Option<f64>,
    /// Its degrees of freedom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2_df: Option<u64>,
    /// How often gaps of the law give this χ² or a greater one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chi2_p: Option<f64>,
    /// Mean square of (share of gaps in a bin − the law's).
    pub mse: f64,
    /// Kullback–Leibler divergence of the gaps from the law over the bins, in nats; absent when gaps
    /// are where the law has none.
    pub kl: Option<f64>,
    /// Bins, those for what is beyond them included.
    pub bins: u64,
    /// Share of gaps that are where the law has none.
    pub outside: f64,
    /// Pearson's correlation of neighbouring gaps.
    pub lag1: f64,
    /// Of how many strata each gave one gap: all of the run, or blocks of it.
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
    /// The probability of a fit as bad as this or worse, by the test that suits the law.
    #[must_use]
    pub fn p(&self) -> f64 {
        self.ks_p.or(self.chi2_p).unwrap_or(0.0)
    }
}

/// Gaps that are kept whole; of more, as many are kept at random.
const KEPT: usize = 4_000_000;
/// Bins of the range that a law says.
const BINS: usize = 100;
/// What is no further from a single value is that value, in ps: no more than arithmetic makes of it.
const SAME: f64 = 1e-3;
/// The asymptotic 5 % point of √n·D.
const KOLMOGOROV_05: f64 = 1.358_1;
/// Values of a discrete law that are expected less often are joined with their neighbours.
const LEAST_EXPECTED: f64 = 5.0;

/// Judges gaps by the law that was asked.
pub struct FitMeter {
    law: Arc<dyn Reference>,
    /// Half a byte time early or late is no other gap: a value so near to an edge is at the edge.
    tolerance: f64,
    /// How long a byte lasts on the line, where gaps are idle times.
    byte_ps: f64,
    last: Option<Time>,
    seen: u64,
    /// How many gaps are kept whole.
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
            // Captures stamp no finer than a nanosecond.
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

    /// A frame of `length` started at `start`. Frames come in order.
    pub fn record(&mut self, start: Time, length: FrameLen) {
        if let Some(last) = self.last {
            self.add(start.signed_ps_since(last));
        }
        // The end of a frame is that of its FCS.
        let busy = if self.law.is_idle() { f64::from(length.with_preamble()) * self.byte_ps } else { 0.0 };
        self.last = Some(start + Span::from_ps(busy as u64));
    }

    fn add(&mut self, gap: i64) {
        self.neighbours.add(gap);
        self.seen += 1;
        if self.kept.len() < self.most {
            self.kept.push(gap);
        } else {
            // Vitter's algorithm R: each gap so far is kept with the same probability.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let place = (u128::from(mix(self.random)) * u128::from(self.seen)) >> 64;
            if let Some(kept) = self.kept.get_mut(place as usize) {
                *kept = gap;
            }
        }
    }

    /// The figures so far; `None` when there was no gap yet.
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
            Some(atoms) => self.judge_atoms(&atoms, &mut report),
            None => self.judge_values(&mut report),
        }
        Some(report)
    }

    /// Gaps that are drawn apart, of which these tell as much: a chain of coefficient ρ tells at
    /// least as much as (1 − ρ) ÷ (1 + ρ) of its values.
    fn effective(&self) -> f64 {
        let rho = self.law.persistence().max(0.0);
        self.kept.len() as f64 * (1.0 - rho) / (1.0 + rho)
    }

    /// The gaps in order, those that are a byte time from an edge or a single value put on it: otherwise
    /// rounding would tear apart what is one value in the law.
    fn sorted(&self, jumps: &[f64]) -> Vec<f64> {
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

    fn judge_values(&self, report: &mut FitReport) {
        let jumps = self.law.jumps();
        let gaps = self.sorted(&jumps);
        let n = gaps.len() as f64;
        let mut distance: f64 = 0.0;
        let mut shares = Vec::with_capacity(gaps.len());
        let mut at = 0;
        for group in gaps.chunk_by(|a, b| a.total_cmp(b).is_eq()) {
            let (mut strictly, mut upto) = self.law.cdf(group[0]);
            if !jumps.is_empty() {
                (strictly, upto) = (self.law.cdf(group[0] - SAME).0, self.law.cdf(group[0] + SAME).1);
            }
            distance = distance.max((at as f64 / n - strictly).abs());
            at += group.len();
            distance = distance.max((at as f64 / n - upto).abs());
            shares.extend(std::iter::repeat_n(upto, group.len()));
        }
        report.ks_d = Some(distance);
        report.ks_critical_05 = Some(KOLMOGOROV_05 / n.sqrt());
        report.ks_p = Some(kolmogorov(distance, self.effective()));
        report.ks2_d = Some(two_sample(&shares));
        report.ks2_critical_05 = Some(KOLMOGOROV_05 * (2.0 / n).sqrt());

        let (least, most) = self.law.limits();
        report.outside = gaps.iter().filter(|gap| **gap < least || **gap > most).count() as f64 / n;
        let (from, to) = self.law.bins();
        let width = (to - from) / BINS as f64;
        let edges: Vec<f64> = (0..=BINS).map(|i| from + i as f64 * width).collect();
        // A bin holds its lower edge; the last one its upper edge too.
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
        report.outside = outside as f64 / n;
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

/// MSE and KL over bins of (observed, expected) shares. What rounding leaves of an empty bin is none.
fn compare(bins: &[(f64, f64)], report: &mut FitReport) {
    const NONE: f64 = 1e-12;
    report.bins = bins.len() as u64;
    report.mse = bins.iter().map(|(p, q)| (p - q) * (p - q)).sum::<f64>() / bins.len() as f64;
    let filled = bins.iter().filter(|(p, _)| *p > NONE);
    let sum: f64 = filled.map(|(p, q)| if *q > NONE { p * libm::log(p / q) } else { f64::INFINITY }).sum();
    report.kl = sum.is_finite().then_some(sum.max(0.0));
}

/// The two-sample distance between gaps, given by the law's P(≤ gap) of each in order, and as many
/// ideal draws. It is the same on the scale of probability, where ideal draws are uniform.
fn two_sample(shares: &[f64]) -> f64 {
    let mut state = 0x6964_6561_6c00_0000_u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(state) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut ideal: Vec<f64> = shares.iter().map(|_| draw()).collect();
    ideal.sort_unstable_by(f64::total_cmp);
    let (mut i, mut distance) = (0, 0_usize);
    for (group_end, share) in shares.iter().enumerate().map(|(k, share)| (k + 1, share)) {
        if shares.get(group_end).is_some_and(|next| next.total_cmp(share).is_eq()) {
            continue;
        }
        // Before the step of the gaps, and after it.
        while ideal.get(i).is_some_and(|value| value <= share) {
            i += 1;
        }
        distance = distance.max(i.abs_diff(group_end));
        let start = shares.partition_point(|other| other < share);
        let before = ideal.partition_point(|value| value < share);
        distance = distance.max(before.abs_diff(start));
    }
    distance as f64 / shares.len() as f64
}

/// The output function of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
