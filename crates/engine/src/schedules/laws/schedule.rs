use super::copula::Chain;
use super::sampler::Sampler;
use super::strata::Strata;
use super::{GapLaw, Placed, Sampling};
use crate::Line;
use crate::random::Random;
use crate::schedules::{Draw, Due, Lengths, Schedule, wire_end};
use std::sync::Arc;
use units::{ParseError, Span, Time};

/// Gaps drawn from a law. Departures are absolute: each is the sum of the gaps before it, with what
/// is left of a picosecond carried to the next.
pub struct LawSchedule {
    law: Arc<Placed>,
    sampler: Sampler,
    draws: Draws,
    /// Gaps run from the end of a frame on this line.
    idle_on: Option<Line>,
    carry: f64,
    next: Option<Time>,
}

/// Where uniform values come from.
enum Draws {
    Independent(Random),
    Stratified(Strata),
    Correlated(Chain),
}

/// Strata of a run whose length is not known.
const BLOCK: u64 = 65_536;

impl LawSchedule {
    /// The schedule of a law; `line` is that of the output, if it has one.
    ///
    /// # Errors
    /// A law that cannot be had, or whose table was not read.
    pub fn new(gap: &GapLaw, line: Option<Line>, draw: Draw<'_>) -> Result<Self, ParseError> {
        let law = gap.place()?;
        let random = Random::stream(draw.seed, &format!("{}/gap", draw.path));
        let draws = match (gap.sampling, law.persistence()) {
            (Sampling::Stratified, _) => Draws::Stratified(Strata::new(Self::strata(draw.frames), random)),
            (Sampling::Independent, _) if gap.correlation.is_some() => {
                Draws::Correlated(Chain::new(law.persistence(), random))
            }
            (Sampling::Independent, _) => Draws::Independent(random),
        };
        let idle_on = line.filter(|_| gap.idle);
        Ok(LawSchedule { sampler: Sampler::new(&law), law: Arc::new(law), draws, idle_on, carry: 0.0, next: None })
    }

    /// How many strata there are at one time: as many as gaps, if the number of frames is known.
    #[must_use]
    pub fn strata(frames: Option<u64>) -> u64 {
        frames.map_or(BLOCK, |frames| frames.saturating_sub(1).max(1))
    }

    /// The next gap in ps.
    fn draw(&mut self) -> f64 {
        let bits = match &mut self.draws {
            Draws::Independent(random) => random.bits(),
            Draws::Stratified(strata) => strata.bits(),
            Draws::Correlated(chain) => chain.bits(),
        };
        self.sampler.gap(bits)
    }
}

impl Schedule for LawSchedule {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        let due = self.next.unwrap_or(ready);
        let starved = ready > due;
        let at = due.max(ready);
        let exact = self.draw() + self.carry;
        let whole = exact as u64;
        // Beyond the end of time there is nothing to carry.
        self.carry = if whole == u64::MAX { 0.0 } else { exact - whole as f64 };
        self.next = Some(wire_end(at, self.idle_on, lengths) + Span::from_ps(whole));
        Due { at, starved }
    }

    fn law(&self) -> Option<Arc<dyn measure::Reference>> {
        Some(self.law.clone())
    }
}
