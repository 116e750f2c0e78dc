use super::TrialResult;
use units::{Share, Span};

/// The criteria that a load must meet (RFC 9971, section 4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Goal {
    /// Goal loss ratio: a trial with more loss is bad.
    pub loss: Share,
    /// Goal exceed ratio: the share of the time that bad trials may take; at most about one half.
    pub exceed: Share,
    /// Goal final trial duration.
    pub trial: Span,
    /// Goal duration sum: total duration of the trials that decide a load.
    pub sum: Span,
    /// Goal width: distance between the bounds, as a share of the upper one.
    pub width: Share,
    /// Goal initial trial duration: short trials locate the region first.
    pub initial: Span,
}

/// Result of a load against a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The load meets the goal.
    Lower,
    /// The load misses the goal.
    Upper,
}

impl Goal {
    /// The goal of RFC 2544, section 26.1: one trial decides.
    #[must_use]
    pub const fn rfc2544(loss: Share, trial: Span, width: Share) -> Self {
        Goal { loss, exceed: Share::from_ppb(0), trial, sum: trial, width, initial: trial }
    }

    /// A goal of MLRsearch (RFC 9971): the trials of a load take `sum` in total, of which a share `exceed` may be bad.
    #[must_use]
    pub fn mlrsearch(loss: Share, exceed: Share, trial: Span, sum: Span, width: Share) -> Self {
        Goal { loss, exceed, trial, sum, width, initial: Span::from_ps(trial.as_ps() / 8) }
    }

    /// The phases of a search. First, short trials locate the region with a coarse width; their duration doubles from
    /// phase to phase. Then one full trial per load narrows the bounds to the width. Last, loads are decided by an
    /// intermediate sum and then by the whole sum. Most loads that miss the goal are thus dropped before a whole sum is
    /// spent on them.
    pub(super) fn phases(self) -> Vec<Goal> {
        let mut phases = vec![self];
        let middle = Span::from_ps((self.trial.as_ps() as f64 * self.sum.as_ps() as f64).sqrt() as u64);
        for sum in [middle, self.trial] {
            if sum >= self.trial && sum < phases[phases.len() - 1].sum {
                phases.push(Goal { sum, ..self });
            }
        }
        let mut earlier = Goal { sum: self.trial, ..self };
        while earlier.trial > self.initial && phases.len() < 8 {
            let trial = Span::from_ps(earlier.trial.as_ps() / 2).max(self.initial);
            let width = Share::from_ppb((u64::from(earlier.width.ppb()) * 2).min(500_000_000) as u32);
            earlier = Goal { trial, sum: trial, width, ..earlier };
            phases.push(earlier);
        }
        phases.reverse();
        phases
    }

    /// Minimum number of full-length trials that can decide a load.
    pub(super) fn least_trials(&self) -> u32 {
        let (sum, trial) = (self.sum.as_ps(), self.trial.as_ps().max(1));
        // Good trials alone must fill the share that may not be bad.
        let good = (sum as f64 * (1.0 - self.exceed.as_f64())).ceil() as u64;
        u32::try_from(good.div_ceil(trial)).unwrap_or(u32::MAX).max(1)
    }

    /// Classifies a load by its trials; `None` while further trials could change the result (RFC 9971, Appendix A).
    pub(super) fn bound<'a>(&self, runs: impl Iterator<Item = &'a TrialResult>) -> Option<Bound> {
        let (mut full_low, mut full_high, mut short_low, mut short_high) = (0.0, 0.0, 0.0, 0.0);
        for run in runs {
            let seconds = run.trial.duration.as_secs_f64();
            *match (run.trial.duration >= self.trial, run.within(self)) {
                (true, true) => &mut full_low,
                (true, false) => &mut full_high,
                (false, true) => &mut short_low,
                (false, false) => &mut short_high,
            } += seconds;
        }
        let exceed = self.exceed.as_f64();
        // Short bad trials count only beyond the number that short good ones balance.
        let balance = short_low * exceed / (1.0 - exceed).max(1e-9);
        let high: f64 = full_high + f64::max(0.0, short_high - balance);
        let whole = f64::max(full_low + high, self.sum.as_secs_f64());
        // Assume that the remaining time is all good, then all bad.
        let optimistic = high / whole;
        let pessimistic = (whole - full_low) / whole;
        // Sums of durations have rounding errors.
        const NOTHING: f64 = 1e-9;
        if optimistic > exceed + NOTHING {
            Some(Bound::Upper)
        } else if pessimistic <= exceed + NOTHING {
            Some(Bound::Lower)
        } else {
            None
        }
    }

    /// The maximum loss of a load, excluding the share of time that may be bad (RFC 9971, Appendix B).
    pub(super) fn conditional_loss<'a>(&self, runs: impl Iterator<Item = &'a TrialResult>) -> f64 {
        let mut trials: Vec<(f64, f64)> = runs
            .filter(|run| run.trial.duration >= self.trial)
            .map(|run| (run.loss(), run.trial.duration.as_secs_f64()))
            .collect();
        trials.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: f64 = trials.iter().map(|(_, seconds)| seconds).sum();
        let mut left = f64::max(all, self.sum.as_secs_f64()) * (1.0 - self.exceed.as_f64());
        for (loss, seconds) in &trials {
            left -= seconds;
            if left <= 1e-9 {
                return *loss;
            }
        }
        trials.last().map_or(1.0, |(loss, _)| *loss)
    }
}
