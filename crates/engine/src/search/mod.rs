//! Searches for the highest load whose loss meets a goal. Chooses the next trial and evaluates all trials.
//!
//! The caller takes the next [`Trial`] from a [`Search`] and reports its [`Outcome`], until there is none. The search
//! itself sends nothing. RFC 2544 section 26.1 is a goal with one trial per load. In MLRsearch (RFC 9971), the trials
//! of a load may miss the goal for a share of the time, and shorter trials come first.
//!
//! A trial in which the tester did not offer the load, or took too long, is no result of the device under test. It is
//! repeated. If it keeps failing, the load counts as beyond the tester. The result never contains a load that was not
//! actually offered.

mod bursts;
mod curve;
mod goal;

pub use bursts::{BurstRun, BurstSettings, Bursts};
pub use curve::{Curve, CurveSettings};
pub use goal::{Bound, Goal};

use units::{FrameRate, Share, Span};

/// A trial: a constant load for a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Intended load.
    pub load: FrameRate,
    /// Intended duration.
    pub duration: Span,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Frames sent.
    pub sent: u64,
    /// Frames that did not come back.
    pub lost: u64,
    /// Duration of sending, from the first frame to the instant when the frame after the last would have been due.
    pub took: Span,
    /// Frames that the tester's own receiver lost.
    pub missed: u64,
    /// Largest lateness of a departure. The tester sends overdue frames at once.
    pub late: Span,
    /// Frames that departed late.
    pub late_frames: u64,
    /// Directions that carried the load at the same time. The counts above are their sums, and the load and the
    /// durations are those of each. Usually 1.
    pub directions: u32,
}

impl Outcome {
    /// The load of all directions together, in frames per second.
    fn whole_load(&self, load: FrameRate) -> f64 {
        load.millis() as f64 / 1_000.0 * f64::from(self.directions.max(1))
    }
}

/// Why a trial is not a result of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The tester sent less than the load.
    Shortfall,
    /// The trial took longer than planned.
    Overrun,
    /// The tester's own receiver lost frames.
    Receiver,
    /// The loss is at most the number of frames sent late in a bunch: the load was not constant.
    Hiccup,
}

impl Flaw {
    /// The name in reports.
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

/// A completed trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialResult {
    /// The trial as requested.
    pub trial: Trial,
    /// The outcome.
    pub outcome: Outcome,
    /// Why the trial does not count, or `None` if it does.
    pub flaw: Option<Flaw>,
}

impl TrialResult {
    /// Share of frames lost.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.outcome.sent == 0 { 0.0 } else { self.outcome.lost as f64 / self.outcome.sent as f64 }
    }

    /// True if the tester offered less than two thirds of the load.
    fn is_far_below(&self) -> bool {
        let seconds = self.outcome.took.max(self.trial.duration).as_secs_f64();
        self.outcome.sent as f64 * 1.5 < self.outcome.whole_load(self.trial.load) * seconds
    }

    fn within(&self, goal: &Goal) -> bool {
        // In integers, so that a loss of exactly the goal meets it.
        let billion = u128::from(Share::ONE.ppb());
        u128::from(self.outcome.lost) * billion <= u128::from(self.outcome.sent) * u128::from(goal.loss.ppb())
    }
}

/// What limits the result for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device loses frames above the lower bound.
    DutLimited,
    /// The tester cannot offer or receive a higher load.
    TesterLimited,
    /// The highest load of the range meets the goal.
    NotLimited,
    /// The device gives different results at the same loads.
    Unstable,
    /// Even the lowest load misses the goal.
    BelowLeast,
    /// The search ended early; the bounds are preliminary.
    Unfinished,
}

impl Verdict {
    /// The name in reports.
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

/// Result for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalResult {
    /// Relevant lower bound: the highest load that meets the goal, below all loads that miss it.
    pub lower: Option<FrameRate>,
    /// Relevant upper bound: the lowest load that misses the goal.
    pub upper: Option<FrameRate>,
    /// Conditional throughput in frames/s: the forwarded rate at the lower bound, excluding the share of time that may
    /// be bad (RFC 9971).
    pub throughput: f64,
    /// What limits the result.
    pub verdict: Verdict,
    /// The loads at which full trials disagree.
    pub spread: Option<Spread>,
}

/// A range of loads at which full trials disagree: loads that meet the goal lie above loads that miss it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The lowest load with a trial that misses the goal.
    pub from: FrameRate,
    /// The highest load with a trial that meets the goal.
    pub to: FrameRate,
}

impl Spread {
    /// Its width, as a share of its upper end.
    #[must_use]
    pub fn share(&self) -> f64 {
        1.0 - self.from.millis() as f64 / self.to.millis() as f64
    }
}

/// Parameters of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Goals, searched in order.
    pub goals: Vec<Goal>,
    /// Lowest load.
    pub least: FrameRate,
    /// Highest load.
    pub most: FrameRate,
    /// Tolerance of the rate and the duration of a trial.
    pub tolerance: Share,
    /// Maximum lateness of departures in a trial that misses a goal, if the late frames could explain the loss.
    pub late: Span,
    /// Additional trials at each bound, to check that it is stable.
    pub confirm: u32,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    runs: Vec<TrialResult>,
    /// The lowest load that the tester failed to offer.
    beyond: Option<FrameRate>,
    /// Per goal: the number of lower bounds that later failed, and the highest lower bound ever found.
    fallen: Vec<(u32, Option<FrameRate>)>,
    /// Per goal.
    progress: Vec<Progress>,
}

/// A lower and an upper bound, if known.
type Bounds = (Option<FrameRate>, Option<FrameRate>);

/// State of the search for a goal.
#[derive(Clone, Debug)]
struct Progress {
    /// The phases, the goal itself last.
    phases: Vec<Goal>,
    /// The current phase. A completed phase stays completed, even if later trials change its bounds.
    phase: usize,
    /// The first phase with trials as long as the goal's. This and the later phases are searched together.
    full: usize,
    /// Bounds at the end of the preceding phase.
    hints: Bounds,
}

/// Number of attempts at a trial that the tester fails.
const ATTEMPTS: usize = 5;
/// Number of attempts at a trial if the tester is far below the load, which a hiccup cannot explain.
const FAR_ATTEMPTS: usize = 2;
/// A device counts as unstable if more than `MOST_FALLEN` lower bounds of a goal later failed by more than `NEAR`
/// widths. Close to the limit, a few frames at the end of a trial decide.
const MOST_FALLEN: u32 = 2;
const NEAR: f64 = 4.0;
/// If trials disagree at both bounds, at least `PROBES` trials are run about `PROBED` widths outside each bound.
const PROBES: usize = 2;
const PROBED: f64 = 5.0;
/// A load is clearly above another if it is this many widths higher.
const CLEAR: f64 = 2.0;
/// More trials than any search needs: bounds are halved, and a sum of durations decides each load.
const MOST_TRIALS: usize = 10_000;

/// Why a trial is not a result of the device; `None` if it is one. Either the tester sent too little or too slowly by
/// `tolerance`, or departures later than `late` may explain a relevant loss. `decisive` receives the outcome without
/// that loss and decides whether the loss is relevant.
fn flaw(
    trial: &Trial,
    outcome: &Outcome,
    tolerance: Share,
    late: Span,
    decisive: impl FnOnce(&Outcome) -> bool,
) -> Option<Flaw> {
    let tolerance = tolerance.as_f64();
    let wanted = outcome.whole_load(trial.load) * trial.duration.as_secs_f64();
    let took = outcome.took.as_secs_f64();
    let asked = trial.duration.as_secs_f64();
    // Rounding a duration to whole frames can change the count of each direction by one frame.
    let frame = f64::from(outcome.directions.max(1)) / wanted.max(1.0);
    if outcome.missed > 0 && outcome.lost > 0 {
        return Some(Flaw::Receiver);
    }
    if (outcome.sent as f64) < wanted * (1.0 - tolerance - frame) {
        return Some(Flaw::Shortfall);
    }
    if took > asked * (1.0 + tolerance + frame) {
        // All frames were sent, but too slowly: the load was not offered.
        return Some(if took > asked * 1.5 { Flaw::Overrun } else { Flaw::Shortfall });
    }
    // Assumes at most two hiccups of the maximum lateness. Shorter hiccups delay many frames harmlessly.
    let at_once = (2.0 * outcome.late.as_secs_f64() * outcome.whole_load(trial.load)) as u64;
    let at_once = outcome.late_frames.min(at_once);
    let by_itself = Outcome { lost: outcome.lost.saturating_sub(at_once), ..*outcome };
    (outcome.late > late && decisive(&by_itself)).then_some(Flaw::Hiccup)
}

/// True if bounds are further apart than the width of a goal.
fn is_wide(goal: &Goal, lower: FrameRate, upper: FrameRate) -> bool {
    let (low, high) = (lower.millis() as f64, upper.millis() as f64);
    high - low > high * goal.width.as_f64() && upper.millis() - lower.millis() > 1
}

/// True if the tester has failed at `load` so often that it is not tried again.
fn failed(runs: &[TrialResult], load: FrameRate) -> bool {
    let failed = runs.iter().rev().take_while(|run| run.flaw.is_some() && run.trial.load == load).take(ATTEMPTS);
    let (all, far) = failed.fold((0, 0), |(all, far), run| (all + 1, far + usize::from(run.is_far_below())));
    all == ATTEMPTS || far == FAR_ATTEMPTS
}

impl Search {
    /// Starts a search.
    ///
    /// # Panics
    /// If there is no goal.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        assert!(!settings.goals.is_empty(), "a search has a goal");
        let fallen = vec![(0, None); settings.goals.len()];
        let progress = settings.goals.iter().map(|goal| {
            let phases = goal.phases();
            let full = phases.iter().take_while(|phase| phase.trial < goal.trial).count();
            Progress { phases, phase: 0, full, hints: (None, None) }
        });
        let progress = progress.collect();
        Search { settings, runs: Vec::new(), beyond: None, fallen, progress }
    }

    /// All trials so far.
    #[must_use]
    pub fn runs(&self) -> &[TrialResult] {
        &self.runs
    }

    /// The lowest load that the tester failed to offer.
    #[must_use]
    pub fn beyond(&self) -> Option<FrameRate> {
        self.beyond
    }

    /// The next trial, or `None` when all goals are settled.
    #[must_use]
    pub fn next_trial(&self) -> Option<Trial> {
        if self.runs.len() >= MOST_TRIALS {
            return None;
        }
        // Repeats a flawed trial first.
        if let Some(last) = self
            .runs
            .last()
            .filter(|last| last.flaw.is_some() && self.beyond.is_none_or(|beyond| last.trial.load < beyond))
        {
            return Some(last.trial);
        }
        (0..self.settings.goals.len()).find_map(|number| self.next_of(number))
    }

    /// Records the outcome of a trial.
    pub fn tell(&mut self, trial: Trial, outcome: Outcome) {
        let before: Vec<_> = self.settings.goals.iter().map(|goal| self.bounds(goal).0).collect();
        let flaw = self.flaw(&trial, &outcome);
        self.runs.push(TrialResult { trial, outcome, flaw });
        if flaw.is_some() {
            if failed(&self.runs, trial.load) {
                self.beyond = Some(self.beyond.map_or(trial.load, |beyond| beyond.min(trial.load)));
                self.advance();
            }
            return;
        }
        self.advance();
        for (number, lower) in before.into_iter().enumerate() {
            let goal = &self.settings.goals[number];
            let stays = lower.is_none_or(|lower| goal.bound(self.at(lower)) == Some(Bound::Lower));
            let (fallen, highest) = &mut self.fallen[number];
            *fallen += u32::from(!stays);
            *highest = (*highest).max(lower);
        }
    }

    /// Ends the phases whose bounds are close enough together.
    fn advance(&mut self) {
        for number in 0..self.progress.len() {
            while let Progress { phases, phase, full, .. } = &self.progress[number]
                && phase < full
                && self.candidate(number).is_none()
            {
                let goal = &phases[*phase];
                let hints = self.border(goal, self.bounds(goal));
                let progress = &mut self.progress[number];
                progress.hints = hints;
                progress.phase += 1;
            }
        }
    }

    fn flaw(&self, trial: &Trial, outcome: &Outcome) -> Option<Flaw> {
        let Settings { goals, tolerance, late, .. } = &self.settings;
        let within =
            |outcome: &Outcome, goal| TrialResult { trial: *trial, outcome: *outcome, flaw: None }.within(goal);
        // Flawed if the trial misses a goal that it would meet without the loss of the late frames.
        flaw(trial, outcome, *tolerance, *late, |by_itself| {
            goals.iter().any(|goal| !within(outcome, goal) && within(by_itself, goal))
        })
    }

    /// Valid trials at a load.
    fn at(&self, load: FrameRate) -> impl Iterator<Item = &TrialResult> + Clone {
        self.runs.iter().filter(move |run| run.flaw.is_none() && run.trial.load == load)
    }

    /// The relevant bounds of a goal: the highest lower bound below the lowest upper bound. The tester's limit also
    /// counts as an upper bound.
    fn bounds(&self, goal: &Goal) -> Bounds {
        self.bounds_within(goal, (None, None))
    }

    /// The relevant bounds of a goal from the loads between two others, which count as bounds.
    fn bounds_within(&self, goal: &Goal, (low, high): Bounds) -> Bounds {
        let mut loads: Vec<FrameRate> =
            self.runs.iter().filter(|run| run.flaw.is_none()).map(|run| run.trial.load).collect();
        loads.sort_unstable();
        loads.dedup();
        loads.retain(|load| low.is_none_or(|low| *load > low) && high.is_none_or(|high| *load < high));
        let upper = loads.iter().copied().find(|load| goal.bound(self.at(*load)) == Some(Bound::Upper));
        let above = upper.into_iter().chain(self.beyond).chain(high).min();
        // A load that the tester offered once and later failed to offer is not a bound. It does not hide lower bounds
        // below it.
        let below = loads.into_iter().filter(|load| above.is_none_or(|above| *load < above));
        let lower = below.filter(|load| goal.bound(self.at(*load)) == Some(Bound::Lower)).max();
        (lower.or(low), above)
    }

    fn next_of(&self, number: usize) -> Option<Trial> {
        let goal = &self.settings.goals[number];
        if self.is_falling(number) {
            return None;
        }
        if let Some(trial) = self.candidate(number) {
            return Some(trial);
        }
        let bounds = self.bounds(goal);
        // Checks that the bounds are stable by repeating them.
        let full = |load: FrameRate| self.at(load).filter(|run| run.trial.duration >= goal.trial).count() as u64;
        let again = |load: FrameRate, settled: u32| {
            let wanted = u64::from(settled) + u64::from(self.settings.confirm);
            (full(load) < wanted).then_some(Trial { load, duration: goal.trial })
        };
        let lower = bounds.0.and_then(|lower| again(lower, goal.least_trials()));
        let upper = bounds.1.filter(|upper| Some(*upper) != self.beyond);
        let more = lower.or_else(|| upper.and_then(|upper| again(upper, 1))).or_else(|| {
            // If the upper bound meets the goal in some trials, it may be close to the limit, or the device may have no
            // limit there. A trial clearly above it decides this.
            let clear = self.clear_of(goal, upper.filter(|upper| self.is_mixed(goal, *upper))?);
            let above = FrameRate::from_millis((clear * (1.0 + goal.width.as_f64())) as u64 + 1);
            (above <= self.settings.most && self.beyond.is_none_or(|beyond| above < beyond)).then(|| again(above, 1))?
        });
        more.or_else(|| self.probe(number))
    }

    /// A trial clearly outside the bounds, if trials disagree at both bounds. It shows whether the limit itself is not
    /// sharp.
    fn probe(&self, number: usize) -> Option<Trial> {
        let goal = &self.settings.goals[number];
        let (Some(lower), Some(upper)) = self.bounds(goal) else { return None };
        let mixed = |load| {
            let mut full = self.full(goal, load);
            full.clone().any(|run| run.within(goal)) && full.any(|run| !run.within(goal))
        };
        if self.progress[number].phases.len() == 1 || self.is_spread(number) || !mixed(lower) || !mixed(upper) {
            return None;
        }
        let far = PROBED * goal.width.as_f64();
        let above = FrameRate::from_millis((upper.millis() as f64 * (1.0 + far)) as u64);
        let below = FrameRate::from_millis((lower.millis() as f64 * (1.0 - far)) as u64);
        let offered = |load: &FrameRate| {
            (self.settings.least..=self.settings.most).contains(load) && self.beyond.is_none_or(|beyond| *load < beyond)
        };
        // Somewhat shorter trials at such loads count as well.
        let near = |load: FrameRate| {
            let range = load.millis() as f64 * (1.0 - far)..=load.millis() as f64 * (1.0 + far);
            let long = |run: &&TrialResult| run.flaw.is_none() && run.trial.duration * 4 >= goal.trial;
            self.runs.iter().filter(long).filter(|run| range.contains(&(run.trial.load.millis() as f64))).count()
        };
        let load = [above, below].into_iter().filter(offered).find(|load| near(*load) < PROBES)?;
        Some(Trial { load, duration: goal.trial })
    }

    /// The loads at which full trials disagree. A shorter trial that loses more than a full one may lose counts as one
    /// that misses the goal.
    fn spread(&self, goal: &Goal) -> Option<Spread> {
        let valid = self.runs.iter().filter(|run| run.flaw.is_none());
        let met = valid.clone().filter(|run| run.trial.duration >= goal.trial && run.within(goal));
        let missed = valid.filter(|run| {
            let length = run.trial.duration.as_secs_f64();
            let of_full = run.outcome.sent as f64 * (goal.trial.as_secs_f64() / length).max(1.0);
            !run.within(goal) && run.outcome.lost as f64 > of_full * goal.loss.as_f64()
        });
        let from = missed.map(|run| run.trial.load).min()?;
        let to = met.map(|run| run.trial.load).max()?;
        (from <= to).then_some(Spread { from, to })
    }

    /// True if trials disagree over a wider range than a slightly unsharp limit explains.
    fn is_spread(&self, number: usize) -> bool {
        let goal = &self.settings.goals[number];
        let several = self.progress[number].phases.len() > 1;
        several && self.spread(goal).is_some_and(|spread| spread.share() > NEAR * goal.width.as_f64())
    }

    /// Valid trials of full length at a load.
    fn full<'a>(&'a self, goal: &Goal, load: FrameRate) -> impl Iterator<Item = &'a TrialResult> + Clone + use<'a> {
        let duration = goal.trial;
        self.at(load).filter(move |run| run.trial.duration >= duration)
    }

    /// True if lower bounds keep failing by more than the last frames of a trial explain.
    fn is_falling(&self, number: usize) -> bool {
        let (fallen, highest) = self.fallen[number];
        let goal = &self.settings.goals[number];
        let lower = self.bounds(goal).0.map_or(0.0, |lower| lower.millis() as f64);
        let near = highest.map_or(0.0, |highest| highest.millis() as f64) * (1.0 - NEAR * goal.width.as_f64());
        fallen > MOST_FALLEN && lower < near
    }

    /// The lowest load that is clearly above `load`, in frames/1000 s.
    fn clear_of(&self, goal: &Goal, load: FrameRate) -> f64 {
        load.millis() as f64 * (1.0 + CLEAR * goal.width.as_f64())
    }

    /// The next trial for a goal; `None` when the bounds are close enough.
    fn candidate(&self, number: usize) -> Option<Trial> {
        let Progress { phases, phase, full, hints } = &self.progress[number];
        let levels = if phase == full { &phases[*full..] } else { std::slice::from_ref(&phases[*phase]) };
        self.settle(levels, (None, None), *hints, phases.len() == 1)
    }

    /// The next trial between two bounds. `levels` have the same trial duration and increasing sums; the last one
    /// decides. The earlier ones choose the loads, so that a large sum is spent only on a load that a smaller one has
    /// made a bound.
    fn settle(&self, levels: &[Goal], outer: Bounds, hints: Bounds, single: bool) -> Option<Trial> {
        let (goal, before) = levels.split_last()?;
        let bounds = self.bounds_within(goal, outer);
        let trial = |load| Trial { load, duration: goal.trial };
        let Some(rougher) = before.last() else {
            return self.next_load(goal, bounds, hints, single).map(trial);
        };
        let done = match bounds {
            (Some(lower), _) if lower >= self.settings.most => true,
            (_, Some(upper)) if upper <= self.settings.least => true,
            (Some(lower), Some(upper)) => !is_wide(goal, lower, upper),
            _ => false,
        };
        if done {
            return None;
        }
        self.settle(before, bounds, hints, single).or_else(|| {
            let (lower, upper) = self.bounds_within(rougher, bounds);
            let upper = upper.filter(|upper| Some(*upper) != bounds.1 && Some(*upper) != self.beyond);
            let lower = lower.filter(|lower| Some(*lower) != bounds.0);
            let last = self.runs.last().map(|run| run.trial.load);
            let started = lower.filter(|lower| Some(*lower) == last);
            started.or(upper).or(lower).map(trial)
        })
    }

    /// The most informative next load; `None` when the bounds are close enough.
    fn next_load(&self, goal: &Goal, (lower, upper): Bounds, hints: Bounds, single: bool) -> Option<FrameRate> {
        let (below, above) = hints;
        let (least, most) = (self.settings.least, self.settings.most);
        // First decides the load of the last trial.
        let between =
            |load: FrameRate| lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper);
        let last = self.runs.last().filter(|run| run.trial.duration >= goal.trial).map(|run| run.trial.load);
        if let Some(load) = last.filter(|load| between(*load) && goal.bound(self.at(*load)).is_none()) {
            return Some(load);
        }
        // Then tries the bounds of the preceding phase, unless the bounds are already close enough together.
        let close = lower.zip(upper).is_some_and(|(lower, upper)| !is_wide(goal, lower, upper));
        let hint = above.into_iter().chain(below).find(|load| between(*load) && goal.bound(self.at(*load)).is_none());
        if let Some(load) = hint.filter(|load| !close && (least..=most).contains(load)) {
            return Some(load);
        }
        let as_rate = |millis: f64| FrameRate::from_millis(millis as u64);
        match (lower, upper) {
            (Some(lower), _) if lower >= most => None,
            (None, None) => Some(above.or(below).unwrap_or(most).clamp(least, most)),
            (Some(lower), None) => {
                let step = if single { 4.0 * goal.width.as_f64() } else { self.step_up(goal, lower, hints.1) };
                let wider = as_rate(lower.millis() as f64 * (1.0 + step));
                Some(
                    above
                        .filter(|above| *above > lower)
                        .unwrap_or_else(|| wider.max(as_rate(lower.millis() as f64 + 1.0)))
                        .min(most),
                )
            }
            (None, Some(upper)) if upper <= least => None,
            (None, Some(upper)) => {
                // The rate forwarded at that load approximates the limit. If all trials at it are flawed, the best one
                // counts.
                let there = self.runs.iter().filter(|run| run.trial.load == upper);
                let arrived = |run: &TrialResult| {
                    let seconds = run.outcome.took.max(run.trial.duration).as_secs_f64();
                    let each = 1_000.0 / f64::from(run.outcome.directions.max(1));
                    run.outcome.sent.saturating_sub(run.outcome.lost) as f64 * each / seconds.max(1e-9)
                };
                let (flawed, counts): (Vec<&TrialResult>, Vec<&TrialResult>) =
                    there.partition(|run| run.flaw.is_some());
                let least_arrived = counts.into_iter().map(arrived).reduce(f64::min);
                let arrived = least_arrived.or_else(|| flawed.into_iter().map(arrived).reduce(f64::max)).unwrap_or(0.0);
                let stepped =
                    self.step_down(goal, upper, hints.0).map(|step| as_rate(upper.millis() as f64 * (1.0 - step)));
                let next = match below.filter(|below| *below < upper) {
                    // Tries the bound found by shorter trials directly.
                    Some(below) => below,
                    None => stepped.unwrap_or(upper).min(as_rate(arrived)),
                };
                Some(next.max(least).min(upper))
            }
            (Some(lower), Some(upper)) => {
                let (low, high) = (lower.millis() as f64, upper.millis() as f64);
                let wide = is_wide(goal, lower, upper);
                let middle = as_rate((low * high).sqrt());
                // While only the tester sets the upper bound, the result at a load that was too high is closer to the
                // limit.
                let near = if Some(upper) == self.beyond {
                    Some(as_rate(low * (1.0 + self.step_above(goal, lower))))
                } else if single {
                    None
                } else {
                    return wide
                        .then(|| self.between(goal, (lower, upper), hints))
                        .filter(|load| *load > lower && *load < upper);
                };
                let middle = near.map_or(middle, |near| middle.min(near));
                let middle = if middle <= lower { FrameRate::from_millis(lower.millis() + 1) } else { middle };
                (wide && middle < upper).then_some(middle.min(most)).filter(|middle| *middle > lower)
            }
        }
    }

    /// A load between two bounds.
    fn between(&self, goal: &Goal, (lower, upper): (FrameRate, FrameRate), hints: Bounds) -> FrameRate {
        let (low, high) = (lower.millis() as f64, upper.millis() as f64);
        let width = 1.0 - goal.width.as_f64();
        let widths = (low / high).ln() / width.ln();
        // A whole number of widths on one side, so that the last step can have its full length.
        let half = (widths / 2.0).ceil().min((widths - 1.0).max(widths / 2.0));
        let middle = high * width.powf(half);
        let up = low * (1.0 + self.step_up(goal, lower, hints.1));
        let load = if self.is_balanced(goal, lower) || high / low > 2.0 {
            middle.min(up)
        } else if self.is_balanced(goal, upper) {
            middle.max(high * (1.0 - self.step_down(goal, upper, hints.0).unwrap_or(0.5)))
        } else {
            middle
        };
        FrameRate::from_millis((load as u64).max(lower.millis() + 1))
    }

    /// True if the trials of a load are split as evenly as chance allows, at the share that may be bad. Further loads
    /// one width away would then differ only by chance.
    fn is_balanced(&self, goal: &Goal, load: FrameRate) -> bool {
        let full = self.at(load).filter(|run| run.trial.duration >= goal.trial);
        let (bad, all) =
            full.fold((0.0, 0.0), |(bad, all), run| (bad + f64::from(u8::from(!run.within(goal))), all + 1.0));
        let exceed = goal.exceed.as_f64();
        bad > 0.0 && bad < all && (bad / all - exceed).abs() <= (exceed * (1.0 - exceed) / all).sqrt()
    }

    /// The loads on either side of the border that the fewest full trials contradict. A bad trial below it and a good
    /// trial above it are contradictions. On a tie, the border nearest to `bounds`.
    fn border(&self, goal: &Goal, bounds: Bounds) -> Bounds {
        let loads: Vec<FrameRate> =
            self.loads(goal).into_iter().filter(|load| self.at(*load).next().is_some()).collect();
        let exceed = goal.exceed.as_f64();
        // If the border moves above a load, the bad trials at that load become contradictions and the good ones no
        // longer are.
        let gain = |load: &FrameRate| -> f64 {
            let full = self.at(*load).filter(|run| run.trial.duration >= goal.trial);
            full.map(|run| if run.within(goal) { exceed } else { exceed - 1.0 }).sum()
        };
        let mut sum = 0.0;
        let sums: Vec<f64> = std::iter::once(0.0)
            .chain(loads.iter().map(|load| {
                sum += gain(load);
                sum
            }))
            .collect();
        let most = sums.iter().copied().fold(f64::MIN, f64::max);
        let best = |above: usize| sums[above] >= most - 1e-9;
        let at = loads.iter().take_while(|load| bounds.0.is_some_and(|lower| **load <= lower)).count();
        let above = (0..sums.len()).filter(|above| best(*above)).min_by_key(|above| above.abs_diff(at)).unwrap_or(at);
        (above.checked_sub(1).map(|below| loads[below]), loads.get(above).copied())
    }

    /// Step below an upper bound, as a share of it: one width, doubled with each failed step, and one width again after
    /// a jump to a guess. `None` if only shorter trials made the load a bound.
    fn step_down(&self, goal: &Goal, upper: FrameRate, hint: Option<FrameRate>) -> Option<f64> {
        // Loads that the tester failed to offer count as failed as well.
        let fails = |load: &FrameRate| *load >= upper || goal.bound(self.at(*load)) == Some(Bound::Upper);
        let mut failed = self.loads(goal);
        failed.retain(fails);
        let tried = !failed.is_empty();
        // The steps start at the hint.
        failed.retain(|load| hint.is_none_or(|hint| *load <= hint));
        failed.reverse();
        let width = goal.width.as_f64();
        let step = failed.windows(2).fold(width, |step, pair| {
            let [above, below] = [pair[0], pair[1]].map(|load| load.millis() as f64);
            // A rate is a whole number of frames/1000 s.
            if below + 1.0 >= above * (1.0 - step) { step * 2.0 } else { width }
        });
        tried.then(|| step.min(0.5))
    }

    /// Loads of trials with the goal's duration, including flawed ones, in ascending order.
    fn loads(&self, goal: &Goal) -> Vec<FrameRate> {
        let full = self.runs.iter().filter(|run| run.trial.duration >= goal.trial);
        let mut loads: Vec<FrameRate> = full.map(|run| run.trial.load).collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    /// Step above a lower bound, as a share of it: one width, doubled with each step that met the goal.
    fn step_up(&self, goal: &Goal, lower: FrameRate, hint: Option<FrameRate>) -> f64 {
        let mut met = self.loads(goal);
        met.retain(|load| {
            *load <= lower && hint.is_none_or(|hint| *load >= hint) && goal.bound(self.at(*load)) == Some(Bound::Lower)
        });
        let width = goal.width.as_f64();
        met.windows(2).fold(width, |step, pair| {
            let [below, above] = [pair[0], pair[1]].map(|load| load.millis() as f64);
            if above <= below * (1.0 + step) + 1.0 { step * 2.0 } else { width }
        })
    }

    /// Step above a lower bound, as a share of it. It doubles with each lower bound found.
    fn step_above(&self, goal: &Goal, lower: FrameRate) -> f64 {
        let mut found: Vec<FrameRate> =
            self.runs.iter().map(|run| run.trial.load).filter(|load| *load < lower).collect();
        found.sort_unstable();
        found.dedup();
        let found = found.into_iter().filter(|load| goal.bound(self.at(*load)) == Some(Bound::Lower)).count();
        4.0 * goal.width.as_f64() * f64::powi(2.0, found.min(30) as i32)
    }

    /// The result for each goal so far.
    #[must_use]
    pub fn found(&self) -> Vec<GoalResult> {
        let of = |(number, goal): (usize, &Goal)| {
            let (lower, upper) = self.bounds(goal);
            let unsure = self.is_falling(number) || self.is_inverted(goal, upper) || self.is_spread(number);
            let by_tester = upper.is_some() && upper == self.beyond;
            let verdict = match (lower, upper) {
                _ if self.next_of(number).is_some() => Verdict::Unfinished,
                _ if unsure => Verdict::Unstable,
                (_, Some(_)) if by_tester => Verdict::TesterLimited,
                (None, Some(_)) => Verdict::BelowLeast,
                (_, Some(_)) => Verdict::DutLimited,
                _ => Verdict::NotLimited,
            };
            // A load that was not offered is not a bound of the device.
            let upper = upper.filter(|_| !by_tester);
            let throughput = lower
                .map_or(0.0, |lower| lower.millis() as f64 / 1_000.0 * (1.0 - goal.conditional_loss(self.at(lower))));
            GoalResult { lower, upper, throughput, verdict, spread: self.spread(goal) }
        };
        self.settings.goals.iter().enumerate().map(of).collect()
    }

    /// True if a load that misses the goal meets it in more trials than allowed.
    fn is_mixed(&self, goal: &Goal, upper: FrameRate) -> bool {
        self.at(upper).any(|run| !run.within(goal)) && self.is_often_within(goal, upper, 1)
    }

    /// True if at least `least` full-length trials of a load were run, and more of them meet the goal than is allowed
    /// for a load that misses it.
    fn is_often_within(&self, goal: &Goal, load: FrameRate, least: u32) -> bool {
        let full = self.at(load).filter(|run| run.trial.duration >= goal.trial);
        let (good, all) = full.fold((0, 0), |(good, all), run| (good + u32::from(run.within(goal)), all + 1));
        all >= least && f64::from(good) > f64::from(all) * goal.exceed.as_f64()
    }

    /// True if the device forwards a load clearly above one that it fails, more often than allowed.
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
