use crate::counters::Counters;
use crate::intake::ReadyFrame;
use crate::return_path::{ReturnPath, with_back};
use crate::rounds::Rounds;
use dpdk::BURST;
use engine::Departure;
use measure::PipelineReport;
use std::sync::atomic::Ordering;

/// A part of a pipeline that does not carry out departures: takes frames from the input or the preceding part, runs its
/// stages, and passes ready frames to the next part, which runs on another thread.
pub(crate) struct Feeder<'a> {
    ready: rtrb::Producer<ReadyFrame>,
    back: Option<ReturnPath>,
    /// Set only in the first part, which limits the frames in progress: the counters of the other parts, the last of
    /// which carries out departures, and the counters for observers.
    shown: Option<(&'a [Counters], &'a Counters)>,
    handed: u64,
}

impl<'a> Feeder<'a> {
    /// The first part. The `others` follow it, and `shown` publishes the progress of all parts.
    pub(crate) fn first(
        ready: rtrb::Producer<ReadyFrame>,
        back: Option<ReturnPath>,
        others: &'a [Counters],
        shown: &'a Counters,
    ) -> Self {
        Feeder { ready, back, shown: Some((others, shown)), handed: 0 }
    }

    /// A part between two others.
    pub(crate) fn between(ready: rtrb::Producer<ReadyFrame>) -> Self {
        Feeder { ready, back: None, shown: None, handed: 0 }
    }

    /// Runs to the end. Returns the report of this part, and the number of frames handed over.
    pub(crate) fn run(mut self, mut rounds: Rounds<'_>) -> (PipelineReport, u64) {
        // This loop never sleeps, so it runs as others do.
        dpdk::restore_priority();
        while let Some(now) = rounds.next() {
            rounds.wake(now);
            let mut elsewhere = 0;
            if let Some((others, shown)) = self.shown {
                let gone = |sum: u64, part: &Counters| sum.wrapping_add(part.gone.load(Ordering::Relaxed));
                // The counters of the parts may be from different instants, so the difference may be negative.
                let under_way = self.handed.wrapping_sub(others.iter().fold(0, gone));
                elsewhere = if under_way > u64::MAX / 2 { 0 } else { under_way };
                if others.iter().all(|part| part.running.load(Ordering::Relaxed)) {
                    shown.running.store(true, Ordering::Relaxed);
                }
                if let Some(departing) = others.last() {
                    shown.publish_split(&rounds.pipeline, elsewhere, departing);
                }
                if rounds.publishes() {
                    shown.publish_books(rounds.pipeline.books(), others);
                }
            }
            rounds.intake.take(now, BURST, elsewhere, &mut rounds.pipeline);
            while !self.ready.is_full()
                && let Some(Departure { frame, token }) = rounds.pipeline.next_departure()
            {
                let (at, class) = (token.ready(), token.class());
                let item = ReadyFrame { frame, at, class, trace: token.hand_on(&mut rounds.pipeline) };
                self.ready.push(item).expect("there is room, and only this thread adds");
                self.handed += 1;
            }
            if let Some(back) = &mut self.back {
                back.carry(now, BURST);
                let now = rounds.clock.now();
                back.exchange(now, now, &mut rounds.pipeline);
            }
            let done = rounds.intake.ended() && rounds.pipeline.held() == 0;
            // The next part ends by itself when its schedule has ended.
            if done || self.ready.is_abandoned() {
                break;
            }
        }
        let report = with_back(rounds.report(), self.back.as_mut());
        (report, self.handed)
    }
}

/// The report of all parts: the feeding parts with the frames that each handed over, and the part
/// that carried out departures.
pub(crate) fn joined(feeding: Vec<(PipelineReport, u64)>, departing: PipelineReport) -> PipelineReport {
    let mut held = departing.held;
    let mut arrived = departing.arrived.frames;
    for (report, handed) in feeding.iter().rev() {
        // Frames handed over but not taken were in the ring between the parts.
        held += report.held + (handed - arrived);
        arrived = report.arrived.frames;
    }
    let parts = feeding.into_iter().map(|(report, _)| report).chain([departing]);
    let whole = parts.reduce(both).unwrap_or_default();
    PipelineReport { held, ..whole }
}

/// Combines the counters of two consecutive parts, except for held frames, with the figures of the later one.
fn both(mut earlier: PipelineReport, mut later: PipelineReport) -> PipelineReport {
    let classes = match (std::mem::take(&mut earlier.classes), std::mem::take(&mut later.classes)) {
        // A part that only receives has no classes.
        (none, classes) if none.is_empty() => classes,
        (earlier, later) => earlier.into_iter().zip(later).map(|(earlier, later)| of_class(earlier, later)).collect(),
    };
    let mut drops = earlier.drops;
    drops.add_all(&later.drops);
    earlier.effects.add_all(&later.effects);
    let slices = later.slices.take().map(|slices| slices.arrived_by(earlier.slices.as_ref()));
    // The stages are in one of the parts.
    let choices = if earlier.choices.is_empty() { later.choices } else { earlier.choices };
    PipelineReport {
        arrived: earlier.arrived,
        copies: earlier.copies + later.copies,
        drops,
        effects: earlier.effects,
        choices,
        reorder: earlier.reorder.or(later.reorder),
        back: earlier.back,
        backward: earlier.backward,
        depth: earlier.depth,
        slices,
        classes,
        ..later
    }
}

fn of_class(earlier: PipelineReport, later: PipelineReport) -> PipelineReport {
    let depth = later.depth.clone();
    let class = both(earlier, later);
    let arrived = class.arrived.frames + class.copies;
    PipelineReport { held: arrived - class.left.frames - class.drops.total(), depth, ..class }
}
