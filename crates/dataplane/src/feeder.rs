use crate::back::{Back, with_back};
use crate::counters::Counters;
use crate::intake::Ready;
use crate::rounds::Rounds;
use dpdk::BURST;
use measure::PipelineReport;
use std::sync::atomic::Ordering;

/// The receiving side of a split placement: receives, runs the stages, carries back, and gives what is
/// ready to the thread that makes departures, which does nothing else.
pub(crate) struct Feeder<'a> {
    ready: rtrb::Producer<Ready>,
    back: Option<Back>,
    /// What the other thread has made of it.
    departures: &'a Counters,
    /// Where those who look on see it.
    shown: &'a Counters,
    handed: u64,
}

impl<'a> Feeder<'a> {
    pub(crate) fn new(
        ready: rtrb::Producer<Ready>,
        back: Option<Back>,
        departures: &'a Counters,
        shown: &'a Counters,
    ) -> Self {
        Feeder { ready, back, departures, shown, handed: 0 }
    }

    /// Runs to the end. Gives the report of this side, and how many frames it handed over.
    pub(crate) fn run(mut self, mut rounds: Rounds<'_>) -> (PipelineReport, u64) {
        while let Some(now) = rounds.next() {
            rounds.wake(now);
            let elsewhere = self.handed.saturating_sub(self.departures.left.load(Ordering::Relaxed));
            self.shown.publish_split(&rounds.pipeline, elsewhere, self.departures);
            rounds.intake.take(now, BURST, elsewhere, &mut rounds.pipeline);
            while !self.ready.is_full()
                && let Some(departure) = rounds.pipeline.next_departure()
            {
                let way = rounds.pipeline.way_of(departure.class, &departure.frame);
                let item = Ready { frame: departure.frame, at: departure.ready, class: departure.class, way };
                self.ready.push(item).expect("there is room, and nobody else adds");
                self.handed += 1;
            }
            if let Some(back) = &mut self.back {
                back.carry(now, BURST);
                let now = rounds.clock.now();
                back.exchange(now, now, &mut rounds.pipeline);
            }
            let done = rounds.intake.ended() && rounds.pipeline.held() == 0;
            // The other thread ends by itself when its schedule has.
            if done || self.ready.is_abandoned() {
                break;
            }
        }
        let report = with_back(rounds.report(0), self.back.as_ref());
        (report, self.handed)
    }
}

/// The report of both sides together.
pub(crate) fn joined(mut receiving: PipelineReport, handed: u64, mut departing: PipelineReport) -> PipelineReport {
    let classes = std::mem::take(&mut receiving.classes).into_iter().zip(std::mem::take(&mut departing.classes));
    let classes = classes.map(|(receiving, departing)| {
        let depth = departing.depth.clone();
        let class = both(receiving, departing);
        let came = class.came.frames + class.copies;
        PipelineReport { held: came - class.left.frames - class.drops.total(), depth, ..class }
    });
    let classes = classes.collect();
    let held = receiving.held + (handed - departing.came.frames) + departing.held;
    PipelineReport { held, classes, ..both(receiving, departing) }
}

/// The books of both sides, but for what they hold, and the figures of the departures.
fn both(receiving: PipelineReport, departing: PipelineReport) -> PipelineReport {
    let mut drops = receiving.drops;
    drops.add_all(&departing.drops);
    let slices = departing.slices.map(|slices| slices.arrived_by(receiving.slices.as_ref()));
    PipelineReport {
        came: receiving.came,
        copies: receiving.copies,
        drops,
        effects: receiving.effects,
        delay: receiving.delay,
        reorder: receiving.reorder,
        back: receiving.back,
        backward: receiving.backward,
        depth: receiving.depth,
        slices,
        ..departing
    }
}
