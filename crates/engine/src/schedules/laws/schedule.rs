use super::copula::{Chain, Transfer};
use super::sampler::Sampler;
use super::strata::Strata;
use super::{GapDistribution, GapLaw, Sampling};
use crate::Line;
use crate::random::Random;
use crate::schedules::every_nth::EveryNth;
use crate::schedules::{Draw, Due, Lengths, Schedule, wire_end};
use std::sync::Arc;
use units::{ParseError, Span, Time};

/// Departures with gaps drawn from a law. Departures are absolute: each is the sum of all gaps before it, and fractions
/// of a picosecond are carried over.
///
/// Stratified gaps are whole byte times of the line, if there is one. Rounding the departures instead would change each
/// gap by up to one byte time at random, which exceeds the variation that strata leave.
#[derive(Clone)]
pub struct LawSchedule {
    law: Arc<GapDistribution>,
    draws: Draws,
    /// If set, gaps run from the end of a frame on this line.
    idle_on: Option<Line>,
    /// If set, gaps are whole byte times of this line.
    steps_of: Option<Line>,
    carry: f64,
    next: Option<Time>,
    short: Span,
}

/// The source of gaps.
#[derive(Clone)]
enum Draws {
    Independent(Random, Sampler),
    Stratified(Strata, Sampler),
    Correlated(Chain, Transfer),
}

/// Number of strata for a run of unknown length.
const BLOCK: u64 = 65_536;

impl LawSchedule {
    /// The schedule of a law. `line` is the line of the output, if it has one.
    ///
    /// # Errors
    /// An impossible law, or a table that was not read.
    pub fn new(gap: &GapLaw, line: Option<Line>, draw: Draw<'_>) -> Result<Self, ParseError> {
        let mut law = gap.distribution()?;
        let random = Random::stream(draw.seed, &format!("{}/gap", draw.path));
        let sampler = Sampler::new(&law);
        let draws = match gap.sampling {
            Sampling::Stratified => {
                // One gap less than frames, if their number is known.
                let strata = draw.frames.map_or(BLOCK, |frames| frames.saturating_sub(1).max(1));
                law = law.in_strata(strata);
                Draws::Stratified(Strata::new(strata, random), sampler)
            }
            Sampling::Independent if gap.correlation.is_some() => {
                Draws::Correlated(Chain::new(law.persistence(), random), Transfer::new(&law, sampler))
            }
            Sampling::Independent => Draws::Independent(random, sampler),
        };
        let idle_on = line.filter(|_| gap.idle);
        let steps_of = line.filter(|_| matches!(draws, Draws::Stratified(..)));
        Ok(LawSchedule { law: Arc::new(law), draws, idle_on, steps_of, carry: 0.0, next: None, short: Span::ZERO })
    }

    /// The next gap in ps.
    fn draw(&mut self) -> f64 {
        match &mut self.draws {
            Draws::Independent(random, sampler) => sampler.gap(random.bits()),
            Draws::Stratified(strata, sampler) => sampler.gap(strata.bits()),
            Draws::Correlated(chain, transfer) => transfer.gap(chain.next()),
        }
    }
}

impl Schedule for LawSchedule {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        let due = self.next.unwrap_or(ready);
        let starved = ready > due;
        self.short = self.short + ready.since(due);
        let at = due.max(ready);
        let exact = self.draw() + self.carry;
        // Signed integers convert faster.
        let whole = (exact as i64).max(0);
        let mut gap = Span::from_ps(whole.cast_unsigned());
        if whole == i64::MAX {
            // No frame departs after the end of time, so there is no remainder.
            (gap, self.carry) = (Span::from_ps(u64::MAX), 0.0);
        } else if let Some(line) = self.steps_of {
            gap = line.nearest(gap);
        } else {
            self.carry = exact - whole as f64;
        }
        self.next = Some(wire_end(at, self.idle_on, lengths) + gap);
        Due { at, starved }
    }

    fn next(&self) -> Option<Time> {
        self.next
    }

    fn forgive(&mut self, late: Span) {
        self.next = self.next.map(|next| next + late);
    }

    fn short(&self) -> Option<Span> {
        Some(self.short)
    }

    fn counts_lengths(&self) -> bool {
        self.idle_on.is_some()
    }

    fn share(&self, queue: u64, queues: u64) -> Option<Box<dyn Schedule>> {
        Some(Box::new(EveryNth::new(self.clone(), queue, queues)))
    }

    fn law(&self) -> Option<Arc<dyn measure::Reference>> {
        Some(self.law.clone())
    }
}
