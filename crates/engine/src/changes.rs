//! Changes of a running pipeline. A change is an input, as a frame is: it has an instant and a content.
//!
//! A change loses and reorders no frame, unless the new setting does. Frames in a replaced stage leave when they would
//! have left without the change. A new schedule continues from the last departure and does not make up for the time
//! before it; a waveform starts at the change. While departures are paused, time does not advance for the schedule.
//!
//! In virtual time, stages and schedules run on separate clocks. Each reaches a change independently, at the same
//! instant.

use crate::pipeline::Pipeline;
use crate::schedules::Schedule;
use crate::stages::Stage;
use measure::{ChangeReport, SegmentMeter, SegmentReport};
use packet::Frame;
use std::collections::VecDeque;
use units::{Span, Time};

/// All changes at one instant.
pub struct Change<F> {
    /// An identifier chosen by the planner, to recognise the change in [`Spent`].
    pub number: u64,
    /// When it took effect, since the start of the run.
    pub took_effect: Option<Span>,
    /// The changes as they were asked, for the report.
    pub asked: Vec<ChangeReport>,
    /// New stages.
    pub stages: Vec<StageChange<F>>,
    /// New settings of departures.
    pub departures: Vec<DepartureChange>,
}

impl<F> Default for Change<F> {
    fn default() -> Self {
        let (asked, stages, departures) = (Vec::new(), Vec::new(), Vec::new());
        Change { number: 0, took_effect: None, asked, stages, departures }
    }
}

/// Replaces, adds or removes a stage in the chain of a class.
pub struct StageChange<F> {
    /// Index of the class. The class without a rule is the last one, or the only one.
    pub class: usize,
    /// Index of the stage in the chain. An index past the last stage appends the new one.
    pub stage_index: usize,
    /// The new stage; `None` removes the old one.
    pub stage: Option<Box<dyn Stage<F>>>,
}

/// Changes a departure setting of a class.
pub struct DepartureChange {
    /// Index of the class.
    pub class: usize,
    /// The setting.
    pub to: DepartureSetting,
}

/// A setting of departures.
pub enum DepartureSetting {
    /// A new schedule.
    Schedule(Box<dyn Schedule>),
    /// Pauses departures (`true`) or resumes them (`false`).
    Paused(bool),
}

/// Objects that changes have replaced. A live driver drops them on another thread.
pub struct Spent<F> {
    /// Changes that took effect, with the schedules that they replaced.
    pub changes: Vec<Change<F>>,
    /// Replaced stages that no longer hold a frame.
    pub stages: Vec<Box<dyn Stage<F>>>,
}

impl<F> Default for Spent<F> {
    fn default() -> Self {
        Spent { changes: Vec::new(), stages: Vec::new() }
    }
}

impl<F> Spent<F> {
    /// True if there is nothing to drop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.stages.is_empty()
    }
}

/// The changes of a pipeline, past and future.
pub(crate) struct Changes<F> {
    /// In time order. The stages have reached the first `staged` changes, the schedules the first `departed`.
    planned: VecDeque<(Time, Change<F>)>,
    staged: usize,
    departed: usize,
    segments: SegmentMeter,
    reports: Vec<ChangeReport>,
    spent: Spent<F>,
    /// True while replaced stages may still hold frames.
    draining: bool,
    end: Time,
}

/// Number of changes for which memory is allocated at the start.
const AT_HAND: usize = 256;

impl<F> Changes<F> {
    pub(crate) fn new() -> Self {
        Changes {
            planned: VecDeque::with_capacity(AT_HAND),
            staged: 0,
            departed: 0,
            segments: SegmentMeter::new(Time::ZERO),
            reports: Vec::with_capacity(AT_HAND),
            spent: Spent { changes: Vec::with_capacity(AT_HAND), stages: Vec::with_capacity(AT_HAND) },
            draining: false,
            end: Time::ZERO,
        }
    }

    pub(crate) fn segments(&mut self) -> &mut SegmentMeter {
        &mut self.segments
    }

    /// Removes the changes that both stages and schedules have reached.
    fn retire(&mut self) {
        while self.staged > 0 && self.departed > 0 {
            let Some((_, mut change)) = self.planned.pop_front() else { return };
            self.staged -= 1;
            self.departed -= 1;
            self.reports.append(&mut change.asked);
            self.spent.changes.push(change);
        }
    }

    pub(crate) fn reports(&self) -> Vec<ChangeReport> {
        let start = self.segments.start();
        let planned = self.planned.iter().flat_map(|(at, change)| {
            let asked =
                move |asked: &ChangeReport| ChangeReport { asked_at_ns: at.since(start).as_ns_f64(), ..asked.clone() };
            change.asked.iter().map(asked)
        });
        self.reports.iter().cloned().chain(planned).collect()
    }

    pub(crate) fn segment_reports(&self, books: &measure::FrameCounters) -> Vec<SegmentReport> {
        let any = self.reports.iter().any(|report| report.took_effect_at_ns.is_some());
        if any { self.segments.report(books, self.end) } else { Vec::new() }
    }
}

impl<F: Frame> Pipeline<F> {
    /// Prepares the pipeline for changes. Call before the first frame. Frames then take the [whole
    /// path](crate::Path::Whole).
    #[must_use]
    pub fn changing(mut self) -> Self {
        self.lanes.iter_mut().for_each(crate::lane::Lane::may_change);
        self.changes = Some(Box::new(Changes::new()));
        self
    }

    /// Whether the pipeline accepts changes.
    #[must_use]
    pub fn takes_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Sets the start of the run to `start`. Reported instants count from it, and planned changes keep their distance
    /// to it.
    pub fn begin(&mut self, start: Time) {
        let Some(changes) = &mut self.changes else { return };
        let before = changes.segments.start();
        for (at, _) in &mut changes.planned {
            *at = start + at.since(before);
        }
        changes.segments.begin(start);
    }

    /// The start of the run, as [`Pipeline::begin`] set it.
    #[must_use]
    pub fn start(&self) -> Time {
        self.changes.as_ref().map_or(Time::ZERO, |changes| changes.segments.start())
    }

    /// Plans a change for `at`, after those planned for the same instant. `at` should be in the future of both clocks;
    /// a clock that has passed it reaches the change at its next step.
    ///
    /// # Panics
    /// If the pipeline [does not accept changes](Pipeline::changing), or has no such class.
    pub fn plan_change(&mut self, at: Time, change: Change<F>) {
        let classes = self.lanes.len();
        let known = |class: usize| assert!(class < classes, "there are {classes} classes");
        change.stages.iter().for_each(|stage| known(stage.class));
        change.departures.iter().for_each(|departure| known(departure.class));
        let changes = self.changes.as_mut().expect("a pipeline that takes changes");
        // After the changes that one of the clocks has reached.
        let first = changes.staged.max(changes.departed);
        let index = changes.planned.iter().skip(first).take_while(|(planned, _)| *planned <= at).count();
        changes.planned.insert(first + index, (at, change));
    }

    /// When the stages reach the next change.
    #[inline]
    #[must_use]
    pub fn next_stage_change(&self) -> Option<Time> {
        let changes = self.changes.as_ref()?;
        changes.planned.get(changes.staged).map(|(at, _)| *at)
    }

    /// When the schedules reach the next change.
    #[inline]
    #[must_use]
    pub fn next_departure_change(&self) -> Option<Time> {
        let changes = self.changes.as_ref()?;
        changes.planned.get(changes.departed).map(|(at, _)| *at)
    }

    /// Applies the next change, if there is one, to the stages at `at`.
    pub fn change_stages(&mut self, at: Time) {
        let Some(changes) = &mut self.changes else { return };
        let Some((planned, change)) = changes.planned.get_mut(changes.staged) else { return };
        took_effect(change, (*planned, at), changes.segments.start());
        changes.segments.arrivals_reach(at, &self.books);
        for StageChange { class, stage_index, stage } in &mut change.stages {
            let lane = &mut self.lanes[*class];
            let empty = lane.change_stage(*stage_index, stage.take());
            changes.spent.stages.extend(empty);
            changes.draining = true;
            self.merge.touched(lane);
        }
        changes.staged += 1;
        changes.retire();
    }

    /// Applies the next change, if there is one, to the schedules at `at`.
    pub fn change_departures(&mut self, at: Time) {
        let Some(changes) = &mut self.changes else { return };
        let Some((planned, change)) = changes.planned.get_mut(changes.departed) else { return };
        took_effect(change, (*planned, at), changes.segments.start());
        changes.segments.departures_reach(at);
        for DepartureChange { class, to } in &mut change.departures {
            let lane = &mut self.lanes[*class];
            match to {
                DepartureSetting::Schedule(schedule) => {
                    let new = std::mem::replace(schedule, Box::new(crate::schedules::AsReady));
                    *schedule = lane.change_schedule(at, new);
                    if let Some(meter) = &mut self.meter {
                        meter.target_changes(lane.class);
                    }
                }
                DepartureSetting::Paused(paused) => lane.pause(at, *paused),
            }
            self.merge.changed(lane);
        }
        changes.departed += 1;
        changes.retire();
    }

    /// Applies all changes due by `now` to both stages and schedules. A live driver calls this with its clock reading.
    pub fn change_until(&mut self, now: Time) {
        while self.next_stage_change().is_some_and(|at| at <= now) {
            self.change_stages(now);
            self.change_departures(now);
        }
    }

    /// Ends the run at `end`. Earlier changes take effect even if no frame came after them.
    pub fn end_changes(&mut self, end: Time) {
        while let Some(at) = self.next_stage_change().filter(|at| *at < end) {
            self.change_stages(at);
        }
        while let Some(at) = self.next_departure_change().filter(|at| *at < end) {
            self.change_departures(at);
        }
        self.ends(end);
    }

    /// Ends the run at `end`. Changes that the driver did not reach do not take effect.
    pub fn ends(&mut self, end: Time) {
        if let Some(changes) = &mut self.changes {
            changes.end = end;
        }
    }

    /// True if departures of any class are paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.changes.is_some() && self.lanes.iter().any(crate::lane::Lane::is_paused)
    }

    /// Takes the objects that changes have replaced, so that they can be dropped elsewhere.
    pub fn take_spent(&mut self) -> Option<Spent<F>> {
        let changes = self.changes.as_mut()?;
        if changes.draining {
            let stages = &mut changes.spent.stages;
            for lane in &mut self.lanes {
                while let Some(stage) = lane.take_empty() {
                    stages.push(stage);
                }
            }
            changes.draining = self.lanes.iter().any(crate::lane::Lane::is_changing);
        }
        (!changes.spent.is_empty()).then(|| std::mem::take(&mut changes.spent))
    }
}

/// Records when a change takes effect: when the first of the two clocks reaches it.
fn took_effect<F>(change: &mut Change<F>, (planned, at): (Time, Time), start: Time) {
    let since = |at: Time| Span::as_ns_f64(at.since(start));
    change.took_effect.get_or_insert(at.since(start));
    for asked in &mut change.asked {
        asked.asked_at_ns = since(planned);
        asked.took_effect_at_ns.get_or_insert(since(at));
    }
}

#[cfg(test)]
mod tests;
