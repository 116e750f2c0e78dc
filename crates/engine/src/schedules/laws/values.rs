use super::copula::{Chain, Transfer};
use super::sampler::Sampler;
use super::{GapLaw, Sampling};
use crate::random::Random;
use units::{ParseError, Span};

/// Times drawn from a law one after the other, for what is no schedule of departures.
#[derive(Clone, Debug)]
pub struct Values(Draws);

#[derive(Clone, Debug)]
enum Draws {
    Independent(Random, Sampler),
    Correlated(Chain, Transfer),
}

impl Values {
    /// The values of a law; the same ones for the same `seed` and `path`.
    ///
    /// # Errors
    /// A law that cannot be had, or whose table was not read; stratified sampling, since nobody knows
    /// how many values there will be.
    pub fn new(law: &GapLaw, seed: u64, path: &str) -> Result<Self, ParseError> {
        if law.sampling == Sampling::Stratified {
            return Err(ParseError::new(
                "stratified draws need to know how many there will be",
                "leave sampling stratified out",
            ));
        }
        let placed = law.place()?;
        let random = Random::stream(seed, path);
        let sampler = Sampler::new(&placed);
        Ok(Values(match law.correlation {
            Some(_) => Draws::Correlated(Chain::new(placed.persistence(), random), Transfer::new(&placed, sampler)),
            None => Draws::Independent(random, sampler),
        }))
    }

    /// The next value, rounded down to a picosecond.
    pub fn draw(&mut self) -> Span {
        let ps = match &mut self.0 {
            Draws::Independent(random, sampler) => sampler.gap(random.bits()),
            Draws::Correlated(chain, transfer) => transfer.gap(chain.next()),
        };
        Span::from_ps(ps as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(law: &str, seed: u64) -> Result<Values, ParseError> {
        let law = GapLaw::parse(law).expect("a law's name").expect("a law");
        Values::new(&law, seed, "test")
    }

    #[test]
    fn values_are_of_the_law_and_of_the_seed() {
        let draw = |seed| -> Vec<u64> {
            let mut values = values("uniform 8ms..12ms", seed).expect("it can be had");
            (0..10_000).map(|_| values.draw().as_ps()).collect()
        };
        let drawn = draw(7);
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
        let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
        // The mean of 10 000 draws has a deviation of 4 ms / √12 / 100 = 11.5 µs.
        assert!((mean - 1e10).abs() < 6.0 * 11.5e6, "{mean}");
        assert!(drawn.iter().all(|ps| (8_000_000_000..=12_000_000_000).contains(ps)));
    }

    #[test]
    fn neighbours_are_correlated_as_asked() {
        let mut values = values("uniform 8ms..12ms corr 50%", 1).expect("it can be had");
        let drawn: Vec<f64> = (0..100_000).map(|_| values.draw().as_ps() as f64 / 1e9 - 10.0).collect();
        let product = |lag: usize| drawn.iter().zip(&drawn[lag..]).map(|(a, b)| a * b).sum::<f64>();
        let lag1 = product(1) / product(0);
        assert!((lag1 - 0.5).abs() < 0.02, "{lag1}");
    }

    #[test]
    fn strata_are_refused() {
        assert!(values("uniform 8ms..12ms sampling stratified", 1).is_err());
    }
}
