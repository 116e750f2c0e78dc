//! The highest load without more loss than a goal allows: which trial to run next, and what all of
//! them say together.
//!
//! A [`Search`] is asked for the next [`Trial`] and told its [`Outcome`], until there is none. It runs
//! nothing itself. RFC 2544 section 26.1 is a goal of one trial for each load; MLRsearch (RFC 9971) is a
//! goal that trials of one load may miss for a share of the time, tried first with short trials.
//!
//! A trial at which the tester did not offer the load, or took longer than it should, says nothing of
//! the device under test: it is run again, and if that fails the load counts as beyond the tester. No
//! load is reported that was not really offered.

mod bursts;
mod curve;
mod goal;

pub use bursts::{BurstRun, BurstSettings, Bursts};
pub use curve::{Curve, CurveSettings};
pub use goal::{Bound, Goal};

use units::{FrameRate, Share, Span};

/// A trial to be run: a constant load for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Intended load.
    pub load: FrameRate,
    /// Intended duration.
    pub duration: Span,
}

/// What came of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Frames sent.
    pub sent: u64,
    /// Frames that did not come back.
    pub lost: u64,
    /// How long sending took, from the first frame to when the one after the last would have been due.
    pub took: Span,
    /// Frames that the tester's own receiver lost.
    pub missed: u64,
    /// How late the latest departure was: what the tester owed by then, it sent at once.
    pub late: Span,
    /// Frames that departed late.
    pub late_frames: u64,
}

/// Why a trial says nothing of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The tester sent less than the load.
    Shortfall,
    /// The trial took longer than it should have.
    Overrun,
    /// The tester's receiver lost frames itself.
    Receiver,
    /// No more frames were lost than the tester had sent late and then together: the load was not constant.
    Hiccup,
}

impl Flaw {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Flaw::Shortfall => "shortfall",
            Flaw::Overrun => "overrun",
            Flaw::Receiver => "receiver",
            Flaw::Hiccup => "hiccup",
        }
    }
}

/// A trial that was run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// What was asked.
    pub trial: Trial,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it does not count, if it does not.
    pub flaw: Option<Flaw>,
}

impl Run {
    /// Share of the frames that were lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.outcome.sent == 0 { 0.0 } else { self.outcome.lost as f64 / self.outcome.sent as f64 }
    }

    /// Less than two thirds of the load was offered.
    fn is_far_below(&self) -> bool {
        let seconds = self.outcome.took.max(self.trial.duration).as_secs_f64();
        self.outcome.sent as f64 * 1_000.0 * 1.5 < self.trial.load.millis() as f64 * seconds
    }

    fn within(&self, goal: &Goal) -> bool {
        // In whole numbers: a loss of exactly the goal is within it.
        let billion = u128::from(Share::ONE.ppb());
        u128::from(self.outcome.lost) * billion <= u128::from(self.outcome.sent) * u128::from(goal.loss.ppb())
    }
}

/// What limits the result of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// More than this the device loses.
    DutLimited,
    /// More than this the tester does not offer, or take.
    TesterLimited,
    /// The most that was to be searched is within the goal.
    NotLimited,
    /// The device does now one thing and now the other at the same loads.
    Unstable,
    /// Even the least load is beyond the goal.
    BelowLeast,
    /// The search ended before it was done: bounds are those so far.
    Unfinished,
}

impl Verdict {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::DutLimited => "DUT-limited",
            Verdict::TesterLimited => "tester-limited",
            Verdict::NotLimited => "not-limited",
            Verdict::Unstable => "unstable",
            Verdict::BelowLeast => "below-least",
            Verdict::Unfinished => "unfinished",
        }
    }
}

/// What was found for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// Relevant lower bound: the highest load within the goal, below all that are not.
    pub lower: Option<FrameRate>,
    /// Relevant upper bound: the lowest load beyond the goal.
    pub upper: Option<FrameRate>,
    /// Conditional throughput in frames/s: what is forwarded at the lower bound in all but the share
    /// of time that the goal lets go (RFC 9971).
    pub throughput: f64,
    /// What limits it.
    pub verdict: Verdict,
}

/// How a search is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Goals, found one after the other.
    pub goals: Vec<Goal>,
    /// Loads that are tried: not less,
    pub least: FrameRate,
    /// and not more.
    pub most: FrameRate,
    /// How far the rate or the duration of a trial may be off.
    pub tolerance: Share,
    /// How late a departure may be in a trial that loses more than a goal allows, if what was late could be what
    /// was lost.
    pub late: Span,
    /// More trials at each bound, once it is found, to see whether it stays one.
    pub confirm: u32,
}

/// A search that is under way.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    runs: Vec<Run>,
    /// The lowest load that the tester could not do.
    beyond: Option<FrameRate>,
    /// Of each goal: lower bounds that did not stay ones, and the highest there ever was.
    fallen: Vec<(u32, Option<FrameRate>)>,
}

/// How often a trial is run that the tester did badly.
const ATTEMPTS: usize = 5;
/// How often one is run at which it offered far less than the load: no hiccup explains that.
const FAR_ATTEMPTS: usize = 2;
/// So many lower bounds of a goal may fall, and any number by less than so many widths, before the device
/// counts as unstable: close to the limit the last frames of a trial decide.
const MOST_FALLEN: u32 = 2;
const NEAR: f64 = 4.0;
/// A load so many widths above another is clearly above it.
const CLEAR: f64 = 2.0;
/// More trials than any search needs: bounds halve, and each load is settled by a sum of durations.
const MOST_TRIALS: usize = 10_000;

/// Why a trial says nothing of the device, if it does not: what it did too little or too slowly by `tolerance`, and what
/// was lost only because departures were later than `late`, if that is `decisive`: told what would have been lost else.
fn flaw(
    trial: &Trial,
    outcome: &Outcome,
    tolerance: Share,
    late: Span,
    decisive: impl FnOnce(&Outcome) -> bool,
) -> Option<Flaw> {
    let tolerance = tolerance.as_f64();
    let wanted = trial.load.millis() as f64 / 1_000.0 * trial.duration.as_secs_f64();
    let took = outcome.took.as_secs_f64();
    let asked = trial.duration.as_secs_f64();
    // One frame is what rounding a duration to whole frames makes.
    let frame = 1.0 / wanted.max(1.0);
    if outcome.missed > 0 && outcome.lost > 0 {
        return Some(Flaw::Receiver);
    }
    if (outcome.sent as f64) < wanted * (1.0 - tolerance - frame) {
        return Some(Flaw::Shortfall);
    }
    if took > asked * (1.0 + tolerance + frame) {
        // All were sent, but slower than asked: the load was not offered.
        return Some(if took > asked * 1.5 { Flaw::Overrun } else { Flaw::Shortfall });
    }
    // Two hiccups of the longest one's length, at most: those that are short delay many frames and hurt none.
    let at_once = (2.0 * outcome.late.as_secs_f64() * trial.load.millis() as f64 / 1_000.0) as u64;
    let at_once = outcome.late_frames.min(at_once);
    let by_itself = Outcome { lost: outcome.lost.saturating_sub(at_once), ..*outcome };
    (outcome.late > late && decisive(&by_itself)).then_some(Flaw::Hiccup)
}

/// Whether the tester did the last trial, of `load`, badly so often that it is not tried again.
fn failed(runs: &[Run], load: FrameRate) -> bool {
    let failed = runs.iter().rev().take_while(|run| run.flaw.is_some() && run.trial.load == load).take(ATTEMPTS);
    let (all, far) = failed.fold((0, 0), |(all, far), run| (all + 1, far + usize::from(run.is_far_below())));
    all == ATTEMPTS || far == FAR_ATTEMPTS
}

impl Search {
    /// A search that begins.
    ///
    /// # Panics
    /// If there is no goal.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(!settings.goals.is_empty(), "a search has a goal");
        let fallen = vec![(0, None); settings.goals.len()];
        Search { settings, runs: Vec::new(), beyond: None, fallen }
    }

    /// All trials so far.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The lowest load that the tester could not do.
    #[must_use]
    pub fn beyond(&self) -> Option<FrameRate> {
        self.beyond
    }

    /// The next trial, or `None` when all goals are found.
    #[must_use]
    pub fn next_trial(&self) -> Option<Trial> {
        if self.runs.len() >= MOST_TRIALS {
            return None;
        }
        // What the tester did badly is tried again first.
        if let Some(last) = self
            .runs
            .last()
            .filter(|last| last.flaw.is_some() && self.beyond.is_none_or(|beyond| last.trial.load < beyond))
        {
            return Some(last.trial);
        }
        (0..self.settings.goals.len()).find_map(|number| self.next_of(number))
    }

    /// Takes what came of a trial.
    pub fn tell(&mut self, trial: Trial, outcome: Outcome) {
        let before: Vec<_> = self.settings.goals.iter().map(|goal| self.bounds(goal).0).collect();
        let flaw = self.flaw(&trial, &outcome);
        self.runs.push(Run { trial, outcome, flaw });
        if flaw.is_some() {
            if failed(&self.runs, trial.load) {
                self.beyond = Some(self.beyond.map_or(trial.load, |beyond| beyond.min(trial.load)));
            }
            return;
        }
        for (number, lower) in before.into_iter().enumerate() {
            let goal = &self.settings.goals[number];
            let stays = lower.is_none_or(|lower| goal.bound(self.at(lower)) == Some(Bound::Lower));
            let (fallen, highest) = &mut self.fallen[number];
            *fallen += u32::from(!stays);
            *highest = (*highest).max(lower);
        }
    }

    fn flaw(&self, trial: &Trial, outcome: &Outcome) -> Option<Flaw> {
        let Settings { goals, tolerance, late, .. } = &self.settings;
        let within = |outcome: &Outcome, goal| Run { trial: *trial, outcome: *outcome, flaw: None }.within(goal);
        // A goal that is missed, and would not be if what was sent late had come.
        flaw(trial, outcome, *tolerance, *late, |by_itself| {
            goals.iter().any(|goal| !within(outcome, goal) && within(by_itself, goal))
        })
    }

    /// Trials of a load that count.
    fn at(&self, load: FrameRate) -> impl Iterator<Item = &Run> + Clone {
        self.runs.iter().filter(move |run| run.flaw.is_none() && run.trial.load == load)
    }

    /// The relevant bounds of a goal: the highest lower bound below the lowest upper bound. What the tester
    /// cannot do bounds the loads from above, too.
    fn bounds(&self, goal: &Goal) -> (Option<FrameRate>, Option<FrameRate>) {
        let mut loads: Vec<FrameRate> =
            self.runs.iter().filter(|run| run.flaw.is_none()).map(|run| run.trial.load).collect();
        loads.sort_unstable();
        loads.dedup();
        let upper = loads.iter().copied().find(|load| goal.bound(self.at(*load)) == Some(Bound::Upper));
        let above = upper.into_iter().chain(self.beyond).min();
        // A load that the tester offered once and then no more is no bound, and hides none below it.
        let below = loads.into_iter().filter(|load| above.is_none_or(|above| *load < above));
        let lower = below.filter(|load| goal.bound(self.at(*load)) == Some(Bound::Lower)).max();
        (lower, above)
    }

    fn next_of(&self, number: usize) -> Option<Trial> {
        let goal = &self.settings.goals[number];
        if self.is_falling(number) {
            return None;
        }
        let mut hints = (None, None);
        for phase in goal.phases() {
            let (lower, upper) = self.bounds(&phase);
            if let Some(load) = self.candidate(&phase, (lower, upper), hints) {
                return Some(Trial { load, duration: phase.trial });
            }
            hints = (lower, upper);
        }
        // They stay so? A device that changes its mind shows it when it is asked again.
        let full = |load: FrameRate| self.at(load).filter(|run| run.trial.duration >= goal.trial).count() as u64;
        let again = |load: FrameRate, settled: u32| {
            let wanted = u64::from(settled) + u64::from(self.settings.confirm);
            (full(load) < wanted).then_some(Trial { load, duration: goal.trial })
        };
        let lower = hints.0.and_then(|lower| again(lower, goal.least_trials()));
        let upper = hints.1.filter(|upper| Some(*upper) != self.beyond);
        lower.or_else(|| upper.and_then(|upper| again(upper, 1))).or_else(|| {
            // Within the goal every other time: because it is close to the limit, or because the device has none?
            let clear = self.clear_of(goal, upper.filter(|upper| self.is_mixed(goal, *upper))?);
            let above = FrameRate::from_millis((clear * (1.0 + goal.width.as_f64())) as u64 + 1);
            (above <= self.settings.most && self.beyond.is_none_or(|beyond| above < beyond)).then(|| again(above, 1))?
        })
    }

    /// Lower bounds keep falling, and by more than the last frames of a trial explain.
    fn is_falling(&self, number: usize) -> bool {
        let (fallen, highest) = self.fallen[number];
        let goal = &self.settings.goals[number];
        let lower = self.bounds(goal).0.map_or(0.0, |lower| lower.millis() as f64);
        let near = highest.map_or(0.0, |highest| highest.millis() as f64) * (1.0 - NEAR * goal.width.as_f64());
        fallen > MOST_FALLEN && lower < near
    }

    /// Loads from here on, in frames/1000 s, are clearly above `load`.
    fn clear_of(&self, goal: &Goal, load: FrameRate) -> f64 {
        load.millis() as f64 * (1.0 + CLEAR * goal.width.as_f64())
    }

    /// The load that tells most next; `None` when the bounds are close enough.
    fn candidate(
        &self,
        goal: &Goal,
        (lower, upper): (Option<FrameRate>, Option<FrameRate>),
        (below, above): (Option<FrameRate>, Option<FrameRate>),
    ) -> Option<FrameRate> {
        let (least, most) = (self.settings.least, self.settings.most);
        // A load that was begun is settled first.
        let open = |load: &FrameRate| {
            goal.bound(self.at(*load)).is_none() && self.at(*load).any(|run| run.trial.duration >= goal.trial)
        };
        let between =
            |load: FrameRate| lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper);
        if let Some(load) =
            self.runs.iter().map(|run| run.trial.load).find(|load| between(*load) && *load <= most && open(load))
        {
            return Some(load);
        }
        let as_rate = |millis: f64| FrameRate::from_millis(millis as u64);
        match (lower, upper) {
            (Some(lower), _) if lower >= most => None,
            (None, None) => Some(above.or(below).unwrap_or(most).clamp(least, most)),
            (Some(lower), None) => {
                let wider = as_rate(lower.millis() as f64 * (1.0 + 4.0 * goal.width.as_f64()));
                Some(
                    above
                        .filter(|above| *above > lower)
                        .unwrap_or_else(|| wider.max(as_rate(lower.millis() as f64 + 1.0)))
                        .min(most),
                )
            }
            (None, Some(upper)) if upper <= least => None,
            (None, Some(upper)) => {
                // What came back there is about what can be.
                let there = self.runs.iter().filter(|run| run.trial.load == upper);
                let came = there.map(|run| {
                    let seconds = run.outcome.took.max(run.trial.duration).as_secs_f64();
                    run.outcome.sent.saturating_sub(run.outcome.lost) as f64 * 1_000.0 / seconds.max(1e-9)
                });
                let came = came.fold(f64::INFINITY, f64::min);
                let guess = below.filter(|below| *below < upper).unwrap_or_else(|| as_rate(came));
                // The tester fails, too.
                let fails = |run: &&Run| !run.within(goal) || run.trial.load >= upper;
                let mut failed: Vec<FrameRate> = self.runs.iter().filter(fails).map(|run| run.trial.load).collect();
                failed.sort_unstable();
                failed.dedup();
                // Guesses that keep failing go down by more and more.
                let factor = 1.0 - (goal.width.as_f64() * f64::powi(2.0, failed.len().min(30) as i32)).min(0.5);
                let next = guess.min(as_rate(upper.millis() as f64 * factor.max(0.5)));
                Some(next.max(least).min(upper))
            }
            (Some(lower), Some(upper)) => {
                let (low, high) = (lower.millis() as f64, upper.millis() as f64);
                let wide = high - low > high * goal.width.as_f64() && upper.millis() - lower.millis() > 1;
                let middle = as_rate((low * high).sqrt());
                // As long as only the tester bounds it, what came of a load that was too high is nearer to the limit.
                let near = (Some(upper) == self.beyond).then(|| as_rate(low * (1.0 + self.step_above(goal, lower))));
                let middle = near.map_or(middle, |near| middle.min(near));
                let middle = if middle <= lower { FrameRate::from_millis(lower.millis() + 1) } else { middle };
                (wide && middle < upper).then_some(middle.min(most)).filter(|middle| *middle > lower)
            }
        }
    }

    /// How far above a lower bound to look, as a share of it: twice as far after each that was found.
    fn step_above(&self, goal: &Goal, lower: FrameRate) -> f64 {
        let mut found: Vec<FrameRate> =
            self.runs.iter().map(|run| run.trial.load).filter(|load| *load < lower).collect();
        found.sort_unstable();
        found.dedup();
        let found = found.into_iter().filter(|load| goal.bound(self.at(*load)) == Some(Bound::Lower)).count();
        4.0 * goal.width.as_f64() * f64::powi(2.0, found.min(30) as i32)
    }

    /// What was found for each goal, so far.
    #[must_use]
    pub fn found(&self) -> Vec<Found> {
        let of = |(number, goal): (usize, &Goal)| {
            let (lower, upper) = self.bounds(goal);
            let unsure = self.is_falling(number) || self.is_inverted(goal, upper);
            let by_tester = upper.is_some() && upper == self.beyond;
            let verdict = match (lower, upper) {
                _ if self.next_of(number).is_some() => Verdict::Unfinished,
                _ if unsure => Verdict::Unstable,
                (_, Some(_)) if by_tester => Verdict::TesterLimited,
                (None, Some(_)) => Verdict::BelowLeast,
                (_, Some(_)) => Verdict::DutLimited,
                _ => Verdict::NotLimited,
            };
            // What was not offered is no bound of the device.
            let upper = upper.filter(|_| !by_tester);
            let throughput = lower
                .map_or(0.0, |lower| lower.millis() as f64 / 1_000.0 * (1.0 - goal.conditional_loss(self.at(lower))));
            Found { lower, upper, throughput, verdict }
        };
        self.settings.goals.iter().enumerate().map(of).collect()
    }

    /// A load that is beyond the goal is within it more often than it may be beyond a goal.
    fn is_mixed(&self, goal: &Goal, upper: FrameRate) -> bool {
        self.at(upper).any(|run| !run.within(goal)) && self.is_often_within(goal, upper, 1)
    }

    /// Of at least `least` whole trials of a load, more are within the goal than may be beyond one.
    fn is_often_within(&self, goal: &Goal, load: FrameRate, least: u32) -> bool {
        let full = self.at(load).filter(|run| run.trial.duration >= goal.trial);
        let (good, all) = full.fold((0, 0), |(good, all), run| (good + u32::from(run.within(goal)), all + 1));
        all >= least && f64::from(good) > f64::from(all) * goal.exceed.as_f64()
    }

    /// A load clearly above one that the device does not take was taken, more often than it may not be.
    fn is_inverted(&self, goal: &Goal, upper: Option<FrameRate>) -> bool {
        let Some(upper) = upper else { return false };
        let clear = self.clear_of(goal, upper);
        let least = goal.least_trials().min(self.settings.confirm.saturating_add(1));
        let above = self.runs.iter().filter(|run| run.flaw.is_none() && run.trial.load.millis() as f64 > clear);
        above
            .map(|run| run.trial.load)
            .any(|load| goal.bound(self.at(load)) == Some(Bound::Lower) || self.is_often_within(goal, load, least))
    }
}

#[cfg(test)]
mod tests;
