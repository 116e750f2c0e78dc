use super::copula::{Chain, Transfer};
use super::sampler::Sampler;
use super::{Correlation, GapDistribution, GapLaw, Sampling, Shape, Table};
use crate::random::Random;
use crate::schedules::Files;
use std::fmt;
use std::path::PathBuf;
use units::{ParseError, Span};

/// Successive times drawn from a law, for uses other than departure schedules.
#[derive(Clone, Debug)]
pub struct Values {
    draws: Draws,
    carry: f64,
}

#[derive(Clone, Debug)]
enum Draws {
    Independent(Random, Sampler),
    Correlated(Chain, Transfer),
}

impl Values {
    /// The values of a law. The same `seed` and `path` give the same values.
    ///
    /// # Errors
    /// An impossible law, or a table that was not read. Also stratified sampling, because the number of values is
    /// unknown, and `idle`, which applies only to gaps.
    pub fn new(law: &GapLaw, seed: u64, path: &str) -> Result<Self, ParseError> {
        Self::of_law(law, Random::stream(seed, path))
    }

    /// Like [`Values::new`], from an existing stream of random numbers.
    pub(crate) fn of_law(law: &GapLaw, random: Random) -> Result<Self, ParseError> {
        Self::allow(law)?;
        Ok(Self::of(&law.distribution()?, law.correlation.is_some(), random))
    }

    /// Checks that values can be drawn from a law. The table of the law need not be read yet.
    ///
    /// # Errors
    /// Stratified sampling, or `idle`.
    pub fn allow(law: &GapLaw) -> Result<(), ParseError> {
        if law.sampling == Sampling::Stratified {
            return Err(ParseError::new(
                "stratified draws need to know how many there will be",
                "leave sampling stratified out",
            ));
        }
        if law.idle {
            return Err(ParseError::new("'idle' is about gaps between frames, not about delays", "leave idle out"));
        }
        Ok(())
    }

    /// `mean` + `jitter` × X with X from a table, never below zero. This is how netem draws delays.
    ///
    /// # Errors
    /// A correlation that the law cannot have.
    pub fn of_distribution(
        distribution: &Distribution,
        mean: Span,
        jitter: Span,
        correlation: Option<Correlation>,
        random: Random,
    ) -> Result<Self, ParseError> {
        let placed = GapDistribution::of_table(distribution.table(), mean, jitter, correlation)?;
        Ok(Self::of(&placed, correlation.is_some(), random))
    }

    /// The values of [`of_distribution`](Self::of_distribution) in ps, at 4 096 equal steps of probability.
    pub(crate) fn evenly(distribution: &Distribution, mean: Span, jitter: Span) -> Vec<u64> {
        let Ok(placed) = GapDistribution::of_table(distribution.table(), mean, jitter, None) else { return Vec::new() };
        let sampler = Sampler::new(&placed);
        (0..1 << 12).map(|i: u64| sampler.gap(i << 52 | 1 << 51) as u64).collect()
    }

    fn of(law: &GapDistribution, correlated: bool, random: Random) -> Self {
        let sampler = Sampler::new(law);
        let draws = if correlated {
            Draws::Correlated(Chain::new(law.persistence(), random), Transfer::new(law, sampler))
        } else {
            Draws::Independent(random, sampler)
        };
        Values { draws, carry: 0.0 }
    }

    /// The next value. Fractions of a picosecond are carried over to the next one, so that means are exact.
    pub fn draw(&mut self) -> Span {
        let exact = self.carry
            + match &mut self.draws {
                Draws::Independent(random, sampler) => sampler.gap(random.bits()),
                Draws::Correlated(chain, transfer) => transfer.gap(chain.next()),
            };
        let whole = exact as u64;
        self.carry = if whole == u64::MAX { 0.0 } else { exact - whole as f64 };
        Span::from_ps(whole)
    }
}

/// Directories with iproute2's tables.
const TABLES: [&str; 5] =
    ["/usr/lib/tc", "/usr/lib/x86_64-linux-gnu/tc", "/usr/lib/aarch64-linux-gnu/tc", "/usr/lib64/tc", "/usr/share/tc"];

fn in_folder(folder: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("{folder}/{name}.dist"))
}

/// A distribution of iproute2: values around 0 in units of the jitter.
///
/// The tables that iproute2 distributes are recomputed from the formulas of their generators (NIST Net, in the public
/// domain): 4096 equally likely values in steps of 1/8192, limited to ±4.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// From −1 to 1: netem's default.
    Uniform,
    /// The standard normal law.
    Normal,
    /// ((1 − p)^(−1/3) − 1.5) × 4/3: a Pareto law of shape 3, shifted to a mean of zero. With the limit, its standard
    /// deviation is 0.86.
    Pareto,
    /// A quarter of the normal value plus three quarters of the Pareto value at the same p.
    ParetoNormal,
    /// A table from a file.
    File(Table),
}

impl Distribution {
    /// Names of distributions without a file.
    pub const NAMES: [&'static str; 4] = ["uniform", "normal", "pareto", "paretonormal"];

    /// The distribution with this name. Any other name is that of a tc table, or of a file that ends in `.dist`.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "uniform" => Distribution::Uniform,
            "normal" => Distribution::Normal,
            "pareto" => Distribution::Pareto,
            "paretonormal" => Distribution::ParetoNormal,
            file if file.contains('/') || file.ends_with(".dist") => Distribution::File(Table::of_file(file.into())),
            other => Distribution::File(Table::of_file(in_folder(TABLES[0], other))),
        }
    }

    /// Reads the file, if it has one.
    ///
    /// # Errors
    /// The file cannot be read or is not a table.
    pub fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        match self {
            Distribution::File(table) => {
                let path = table.file.path();
                let of_tc =
                    path.starts_with(TABLES[0]).then(|| path.file_stem()?.to_str().map(str::to_owned)).flatten();
                let Some(name) = of_tc else { return table.load(files) };
                // The directory differs between systems.
                let found = TABLES
                    .iter()
                    .map(|folder| Table::of_file(in_folder(folder, &name)))
                    .find_map(|mut found| found.load(files).is_ok().then_some(found));
                *table = found.ok_or_else(|| {
                    ParseError::new(
                        format!("there is no table {name}.dist of tc in {}", TABLES.join(", ")),
                        format!("install iproute2, write {}, or give a file as ./{name}.dist", Self::NAMES.join(", ")),
                    )
                })?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// False until the file of the distribution is read.
    #[must_use]
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self, Distribution::File(table) if !table.is_read())
    }

    /// The value, in units of the jitter, that this share of the draws does not exceed. `None` before the file is read.
    #[must_use]
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        self.is_ready().then(|| self.table().quantile(measure::special::Probability::below(share)))
    }

    fn table(&self) -> Table {
        const ENTRIES: u32 = 4_096;
        const SCALE: f64 = 8_192.0;
        let normal = |i: u32| {
            let p = measure::special::Probability::below((f64::from(4 * i) + 0.5) / f64::from(4 * ENTRIES));
            // The original generator moves along the axis in steps of this size.
            let z = libm::floor(measure::special::normal_quantile(p) * 20_000.0) / 20_000.0;
            libm::rint(z * SCALE).clamp(-32_768.0, 32_767.0)
        };
        let pareto = |i: u32| {
            let above = 1.0 - f64::from(i) / f64::from(ENTRIES);
            libm::rint((libm::pow(above, -1.0 / 3.0) - 1.5) * (4.0 / 3.0) * SCALE).min(32_767.0)
        };
        let made = |name: &str, value: &dyn Fn(u32) -> f64| {
            Table::of_values(name, (0..ENTRIES).map(|i| value(i) / SCALE).collect())
        };
        match self {
            Distribution::Uniform => Table::of_values("uniform", vec![-1.0, 1.0]),
            Distribution::Normal => made("normal", &normal),
            Distribution::Pareto => made("pareto", &pareto),
            Distribution::ParetoNormal => made("paretonormal", &|i| libm::trunc((normal(i) + 3.0 * pareto(i)) / 4.0)),
            Distribution::File(table) => table.clone(),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Normal => f.write_str("normal"),
            Distribution::Pareto => f.write_str("pareto"),
            Distribution::ParetoNormal => f.write_str("paretonormal"),
            Distribution::File(table) => table.file.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(distribution: &Distribution, correlation: Option<&str>) -> Vec<f64> {
        let correlation = correlation.map(|text| Correlation::parse(text).expect(text));
        let random = Random::stream(5, "test");
        let (mean, jitter) = (Span::from_ms(10), Span::from_ms(2));
        let mut values = Values::of_distribution(distribution, mean, jitter, correlation, random).expect("a law");
        (0..200_000).map(|_| values.draw().as_ps() as f64 / 1e9).collect()
    }

    fn moments(values: &[f64]) -> (f64, f64) {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn tables_match_their_generators() {
        // Entries as printed by iproute2's programs.
        let entries = |distribution: Distribution| {
            let table = distribution.table();
            [0, 100, 2_048, 4_000, 4_095].map(|i| libm::rint(table.entry(i) * 8_192.0) as i32)
        };
        assert_eq!(entries(Distribution::Normal), [-32_768, -16_135, 0, 16_285, 28_858]);
        assert_eq!(entries(Distribution::Pareto), [-5_461, -5_371, -2_622, 21_783, 32_767]);
        assert_eq!(entries(Distribution::ParetoNormal), [-12_287, -8_062, -1_966, 20_408, 31_789]);
    }

    #[test]
    fn effect_distributions_have_their_mean_and_deviation() {
        let (mean, deviation) = moments(&drawn(&Distribution::Uniform, None));
        assert!((mean - 10.0).abs() < 0.011 && (deviation - 2.0 / 3.0_f64.sqrt()).abs() < 0.01, "{mean} {deviation}");
        let (mean, deviation) = moments(&drawn(&Distribution::Normal, None));
        assert!((mean - 10.0).abs() < 0.02 && (deviation - 2.0).abs() < 0.02, "{mean} {deviation}");
    }

    #[test]
    fn correlation_matches_the_request_and_keeps_the_law() {
        for distribution in [Distribution::Uniform, Distribution::Normal, Distribution::Pareto] {
            let values = drawn(&distribution, Some("25%"));
            let (mean, deviation) = moments(&values);
            let lag: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
            let lag = lag / values.len() as f64 / deviation / deviation;
            assert!((lag - 0.25).abs() < 0.01, "{distribution}: {lag}");
            let (plain, spread) = moments(&drawn(&distribution, None));
            assert!((mean - plain).abs() < 0.04 && (deviation - spread).abs() < 0.04, "{distribution}");
        }
    }

    #[test]
    fn values_are_never_below_zero() {
        let random = Random::stream(5, "test");
        let (mean, jitter) = (Span::from_ms(1), Span::from_ms(2));
        let mut values = Values::of_distribution(&Distribution::Normal, mean, jitter, None, random).expect("a law");
        let zeros = (0..10_000).filter(|_| values.draw() == Span::ZERO).count();
        // P(X < −1/2) = 0.3085; four standard deviations are 0.0185.
        assert!((2_900..3_270).contains(&zeros), "{zeros}");
    }

    fn values(law: &str, seed: u64) -> Result<Values, ParseError> {
        let law = GapLaw::parse(law).expect("a law's name").expect("a law");
        Values::new(&law, seed, "test")
    }

    #[test]
    fn values_follow_the_law_and_the_seed() {
        let draw = |seed| -> Vec<u64> {
            let mut values = values("uniform 8ms..12ms", seed).expect("it can be had");
            (0..10_000).map(|_| values.draw().as_ps()).collect()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        // The mean of 10 000 draws has a standard deviation of 4 ms / √12 / 100 = 11.5 µs.
        assert!((mean - 1e10).abs() < 6.0 * 11.5e6, "{mean}");
        assert!(drawn.iter().all(|ps| (8_000_000_000..=12_000_000_000).contains(ps)));
    }

    #[test]
    fn neighbours_have_the_requested_correlation() {
        let mut values = values("uniform 8ms..12ms corr 50%", 1).expect("it can be had");
        let drawn: Vec<f64> = (0..100_000).map(|_| values.draw().as_ps() as f64 / 1e9 - 10.0).collect();
        let product = |lag: usize| drawn.iter().zip(&drawn[lag..]).map(|(a, b)| a * b).sum::<f64>();
        let lag1 = product(1) / product(0);
        assert!((lag1 - 0.5).abs() < 0.02, "{lag1}");
    }

    #[test]
    fn refuses_stratified_sampling() {
        assert!(values("uniform 8ms..12ms sampling stratified", 1).is_err());
    }
}
