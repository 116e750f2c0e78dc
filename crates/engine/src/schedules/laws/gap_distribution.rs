use super::copula;
use super::{Edges, GapLaw, Law};
use measure::special::Probability;
use units::{ParseError, Span};

/// The distribution of the gaps: a law, scaled and shifted in time, with its limits.
///
/// A gap is shift + scale × X, with X in the law's own unit and within [`low`, `high`]; values outside are drawn again.
/// Values are picoseconds in f64 with 53 bits: exact up to 2.5 hours, and to a part in 10¹⁶ beyond.
#[derive(Clone, Debug)]
pub struct GapDistribution {
    law: Law,
    text: String,
    shift: f64,
    scale: f64,
    low: f64,
    high: f64,
    /// The law's cumulative probability at `low` and at `high`.
    from: Probability,
    to: Probability,
    mass: f64,
    /// Values beyond these limits are clamped to them.
    limits: (f64, f64),
    saturates: bool,
    bins: (f64, f64),
    persistence: f64,
    idle: bool,
    strata: Option<u64>,
}

/// A law with more than this probability below zero is rejected; with less, negative values are drawn again.
const NEGATIVE: f64 = 1e-4;
/// A range with less than this probability is rejected.
const LEAST_MASS: f64 = 1e-6;

/// The scale and shift of a law in time, and its limits.
struct Scaling {
    shift: f64,
    scale: f64,
    low: f64,
    high: f64,
    limits: (f64, f64),
}

impl Scaling {
    /// The scale and shift as configured: by a range, by a mean and a deviation, by a mean, or in the law's own unit.
    fn asked(gap: &GapLaw) -> Result<Scaling, ParseError> {
        let shape = gap.law.shape();
        let (mean, deviation) = shape.moments();
        let one_value =
            || ParseError::new(format!("'{}' has one value only", gap.law), "write fixed 10us for equal gaps");
        let whole = Scaling {
            shift: 0.0,
            scale: 1.0,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            limits: (0.0, f64::INFINITY),
        };
        match (gap.mean, gap.sd, gap.within) {
            (wanted, _, Some((from, to))) => {
                let tail = gap.tail.as_f64();
                let ends = (shape.quantile(Probability::below(tail)), shape.quantile(Probability::above(tail)));
                if ends.0 >= ends.1 {
                    return Err(one_value());
                }
                let (limits, scale) = ((ps(from), ps(to)), (ps(to) - ps(from)) / (ends.1 - ends.0));
                let Some(wanted) = wanted else {
                    return Ok(Scaling { shift: ps(from) - scale * ends.0, scale, low: ends.0, high: ends.1, limits });
                };
                if wanted <= from || wanted >= to {
                    return Err(ParseError::new(
                        format!("a mean of {wanted} is not within {from}..{to}"),
                        "write a mean between the two",
                    ));
                }
                let shift = ps(wanted) - scale * mean.ok_or_else(|| no_moment(gap, "mean"))?;
                Ok(Scaling { shift, scale, low: (limits.0 - shift) / scale, high: (limits.1 - shift) / scale, limits })
            }
            (Some(wanted), Some(sd), None) => {
                let deviation = deviation.ok_or_else(|| no_moment(gap, "standard deviation"))?;
                if deviation <= 0.0 {
                    return Err(one_value());
                }
                let scale = ps(sd) / deviation;
                let shift = ps(wanted) - scale * mean.ok_or_else(|| no_moment(gap, "mean"))?;
                Ok(Scaling { shift, scale, ..whole })
            }
            (Some(wanted), None, None) => Ok(Scaling { scale: ps(wanted), ..whole }),
            _ => Ok(whole),
        }
    }

    /// The scaling with the limits of `edges` applied.
    fn cut(self, edges: Option<Edges>) -> Scaling {
        let Scaling { shift, scale, low, high, limits } = self;
        let within = |from, to| (limits.0.max(ps(from)), limits.1.min(ps(to)));
        match edges {
            Some(Edges::Clip(from, to)) => Scaling {
                low: low.max((ps(from) - shift) / scale),
                high: high.min((ps(to) - shift) / scale),
                limits: within(from, to),
                ..self
            },
            Some(Edges::Saturate(from, to)) => Scaling { limits: within(from, to), ..self },
            None => self,
        }
    }
}

fn ps(span: Span) -> f64 {
    span.as_ps() as f64
}

fn no_moment(gap: &GapLaw, what: &str) -> ParseError {
    ParseError::new(format!("'{}' has no {what}", gap.law), "write in 80us..120us, or a greater shape")
}

impl GapDistribution {
    pub(super) fn new(gap: &GapLaw) -> Result<Self, ParseError> {
        let shape = gap.law.shape();
        let Scaling { shift, scale, mut low, high, limits } = Scaling::asked(gap)?.cut(gap.edges);
        let saturates = matches!(gap.edges, Some(Edges::Saturate(..)));
        let zero = -shift / scale;
        if !saturates && low < zero {
            let negative = shape.strictly(zero).below;
            if negative > NEGATIVE {
                return Err(ParseError::new(
                    format!("'{gap}' is below zero with a probability of {negative:.4}"),
                    "add clip A..B or saturate A..B, or write a smaller sd",
                ));
            }
            low = low.max(zero);
        }
        let from = if low.is_finite() { shape.strictly(low) } else { Probability::NONE };
        let to = if high.is_finite() { shape.cdf(high) } else { Probability::ALL };
        let mass = if from.below < 0.5 { to.below - from.below } else { from.above - to.above };
        if mass < LEAST_MASS || limits.0 >= limits.1 {
            return Err(ParseError::new(
                format!("the range of '{gap}' excludes the whole law"),
                "write a range that the law reaches, or leave clip out",
            ));
        }
        let text = gap.to_string();
        let mut placed = GapDistribution {
            law: gap.law.clone(),
            text,
            shift,
            scale,
            low,
            high,
            from,
            to,
            mass,
            limits,
            saturates,
            bins: limits,
            persistence: 0.0,
            idle: gap.idle,
            strata: None,
        };
        if gap.within.is_none() || gap.mean.is_some() || gap.edges.is_some() {
            let tail = gap.tail.as_f64();
            placed.bins = (placed.quantile(Probability::below(tail)), placed.quantile(Probability::above(tail)));
        }
        if let Some(correlation) = gap.correlation {
            if shape.moments().1.is_none() && limits.1.is_infinite() {
                return Err(no_moment(gap, "standard deviation, and so no correlation"));
            }
            placed.persistence = copula::persistence(&placed, correlation.as_f64())?;
        }
        Ok(placed)
    }

    /// The distribution of `shift` + `scale` × X with X from a table. Not standardised and never below zero, as in
    /// netem.
    pub(super) fn of_table(
        table: super::Table,
        shift: Span,
        scale: Span,
        correlation: Option<super::Correlation>,
    ) -> Result<Self, ParseError> {
        let limits = (0.0, f64::INFINITY);
        let mut placed = GapDistribution {
            text: table.to_string(),
            law: Law::Table(table),
            shift: ps(shift),
            scale: ps(scale),
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
            from: Probability::NONE,
            to: Probability::ALL,
            mass: 1.0,
            limits,
            saturates: true,
            bins: limits,
            persistence: 0.0,
            idle: false,
            strata: None,
        };
        if let Some(correlation) = correlation {
            placed.persistence = copula::persistence(&placed, correlation.as_f64())?;
        }
        Ok(placed)
    }

    /// The quantile in ps: a share `p` of all gaps is at most this long.
    #[must_use]
    pub fn quantile(&self, p: Probability) -> f64 {
        self.before_limits(p).clamp(self.limits.0, self.limits.1)
    }

    /// The quantile before limits are applied; as smooth as the law.
    pub(super) fn before_limits(&self, p: Probability) -> f64 {
        let inner =
            Probability { below: self.from.below + p.below * self.mass, above: self.to.above + p.above * self.mass };
        self.shift + self.scale * self.law.shape().quantile(inner).clamp(self.low, self.high)
    }

    /// Values beyond these limits are clamped to them.
    pub(super) fn limits(&self) -> (f64, f64) {
        self.limits
    }

    /// P(gap ≤ `ps`).
    #[must_use]
    pub fn cdf(&self, ps: f64) -> Probability {
        if ps < self.limits.0 {
            Probability::NONE
        } else if ps >= self.limits.1 {
            Probability::ALL
        } else {
            self.within(self.law.shape().cdf(self.unplaced(ps)))
        }
    }

    /// P(gap < `ps`).
    #[must_use]
    pub fn strictly(&self, ps: f64) -> Probability {
        if ps <= self.limits.0 {
            Probability::NONE
        } else if ps > self.limits.1 {
            Probability::ALL
        } else {
            self.within(self.law.shape().strictly(self.unplaced(ps)))
        }
    }

    /// The law's own value of a gap. Integer-valued laws round it.
    fn unplaced(&self, ps: f64) -> f64 {
        let x = (ps - self.shift) / self.scale;
        let nearest = libm::round(x);
        if self.is_discrete() && (x - nearest).abs() < 1e-6 { nearest } else { x }
    }

    fn within(&self, p: Probability) -> Probability {
        let below = ((p.below - self.from.below) / self.mass).clamp(0.0, 1.0);
        let above = ((p.above - self.to.above) / self.mass).clamp(0.0, 1.0);
        Probability { below, above }
    }

    /// True if the law is discrete.
    #[must_use]
    pub(crate) fn is_discrete(&self) -> bool {
        self.law.shape().is_discrete()
    }

    pub(super) fn is_fast(&self) -> bool {
        self.law.shape().is_fast()
    }

    /// The values of a discrete law with their probabilities.
    #[must_use]
    pub fn atoms(&self) -> Vec<(f64, f64)> {
        let shape = self.law.shape();
        // Values with a probability below 2⁻⁶⁵ are never drawn.
        let last = shape.quantile(Probability::above(1e-20)).min(libm::floor(self.high + 1e-6));
        let mut k = libm::ceil(self.low.max(0.0) - 1e-6);
        let mut atoms: Vec<(f64, f64)> = Vec::new();
        while k <= last {
            let mass =
                |p: Probability, q: Probability| if q.below < 0.5 { p.below - q.below } else { q.above - p.above };
            let probability = mass(shape.cdf(k), shape.strictly(k)) / self.mass;
            let value = (self.shift + self.scale * k).clamp(self.limits.0, self.limits.1);
            match atoms.last_mut() {
                Some((before, sum)) if value <= *before => *sum += probability,
                _ => atoms.push((value, probability)),
            }
            k += 1.0;
        }
        atoms
    }

    /// Coefficient of the first-order chain of normal values that generates correlated gaps.
    #[must_use]
    pub fn persistence(&self) -> f64 {
        self.persistence
    }

    /// Sets the number of strata, for reports.
    pub(super) fn in_strata(mut self, strata: u64) -> Self {
        self.strata = Some(strata);
        self
    }

    /// True if gaps run from the end of a frame to the start of the next.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// Mean and standard deviation of the gaps in ps, if they exist. For the whole law in closed form. For a truncated
    /// law by Simpson's rule over the quantiles, with finer steps towards the ends.
    #[must_use]
    pub fn moments(&self) -> (Option<f64>, Option<f64>) {
        if self.mass >= 1.0 && !self.saturates {
            let (mean, deviation) = self.law.shape().moments();
            return (
                mean.map(|mean| self.shift + self.scale * mean),
                deviation.map(|deviation| self.scale * deviation),
            );
        }
        if self.is_discrete() {
            let atoms = self.atoms();
            let mean: f64 = atoms.iter().map(|(value, p)| value * p).sum();
            let variance: f64 = atoms.iter().map(|(value, p)| (value - mean) * (value - mean) * p).sum();
            return (Some(mean), Some(libm::sqrt(variance)));
        }
        const CELLS: u32 = 64;
        let middle = self.quantile(Probability::below(0.5));
        let (mut sum, mut squares) = (0.0, 0.0);
        for upper in [false, true] {
            let mut width = 0.25;
            for _ in 0..48 {
                let step = width / f64::from(CELLS);
                for cell in 0..CELLS * 2 {
                    let p = width + f64::from(cell) * step / 2.0;
                    let at = |p: f64| self.quantile(if upper { Probability::above(p) } else { Probability::below(p) });
                    let (a, b, c) = (at(p) - middle, at(p + step / 4.0) - middle, at(p + step / 2.0) - middle);
                    sum += (a + 4.0 * b + c) * step / 12.0;
                    squares += (a * a + 4.0 * b * b + c * c) * step / 12.0;
                }
                width /= 2.0;
            }
        }
        let finite = self.limits.1.is_finite() || self.law.shape().moments().1.is_some();
        (Some(middle + sum), finite.then(|| libm::sqrt(squares - sum * sum)))
    }
}

impl measure::Reference for GapDistribution {
    fn text(&self) -> &str {
        &self.text
    }

    fn cdf(&self, ps: f64) -> (f64, f64) {
        (self.strictly(ps).below, GapDistribution::cdf(self, ps).below)
    }

    fn limits(&self) -> (f64, f64) {
        self.limits
    }

    fn bins(&self) -> (f64, f64) {
        self.bins
    }

    fn atoms(&self) -> Option<Vec<(f64, f64)>> {
        self.is_discrete().then(|| GapDistribution::atoms(self))
    }

    fn jumps(&self) -> Vec<f64> {
        let Law::Table(table) = &self.law else { return Vec::new() };
        let within = table.repeated().filter(|x| (self.low..=self.high).contains(x));
        within.map(|x| (self.shift + self.scale * x).clamp(self.limits.0, self.limits.1)).collect()
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        GapDistribution::moments(self)
    }

    fn persistence(&self) -> f64 {
        self.persistence
    }

    fn is_idle(&self) -> bool {
        self.idle
    }

    fn strata(&self) -> Option<u64> {
        self.strata
    }
}
