//! A slot in a chain of stages. Its stage can be replaced while frames pass.

use crate::stages::{Item, Outlet, Stage};
use packet::Frame;
use std::collections::VecDeque;
use units::{Span, Time};

/// A slot in a chain of stages: the current stage, and earlier ones that still hold frames.
///
/// A replaced stage receives no more frames. Its frames leave when they would have left without the change. If neither
/// it nor the next stage reorders frames, frames of the next stage wait until it is empty.
pub(crate) struct StageSlot<F> {
    /// `None` passes frames on unchanged.
    stage: Option<Box<dyn Stage<F>>>,
    /// Index of the stage in the report of effects.
    number: usize,
    replaced: Option<Box<Replaced<F>>>,
}

/// Stages that were replaced and still hold frames, from first to last.
struct Replaced<F> {
    earlier: VecDeque<Earlier<F>>,
    /// Frames that the current stage released and that may not overtake frames of earlier stages.
    waiting: VecDeque<Item<F>>,
    /// When the last frame of an earlier stage left.
    last: Time,
}

/// A replaced stage.
struct Earlier<F> {
    /// `None` if frames passed unchanged.
    stage: Option<Box<dyn Stage<F>>>,
    number: usize,
    waiting: VecDeque<Item<F>>,
}

impl<F: Frame> Earlier<F> {
    fn held(&self) -> usize {
        held(&self.stage) + self.waiting.len()
    }

    fn keeps_order(&self) -> bool {
        keeps_order(&self.stage)
    }
}

fn held<F: Frame>(stage: &Option<Box<dyn Stage<F>>>) -> usize {
    stage.as_ref().map_or(0, |stage| stage.held())
}

fn keeps_order<F: Frame>(stage: &Option<Box<dyn Stage<F>>>) -> bool {
    stage.as_ref().is_none_or(|stage| stage.keeps_order())
}

impl<F: Frame> StageSlot<F> {
    /// A slot with this stage, which has index `number` in the report of effects.
    pub(crate) fn new(stage: Option<Box<dyn Stage<F>>>, number: usize) -> Self {
        StageSlot { stage, number, replaced: None }
    }

    /// Replaces the stage by `next`, which has index `number` in the report of effects. Returns the old one if it holds
    /// no frame.
    pub(crate) fn replace(&mut self, next: Option<Box<dyn Stage<F>>>, number: usize) -> Option<Box<dyn Stage<F>>> {
        let old = std::mem::replace(&mut self.stage, next);
        let old_number = std::mem::replace(&mut self.number, number);
        let waits = self.replaced.as_ref().is_some_and(|replaced| !replaced.waiting.is_empty());
        if held(&old) == 0 && !waits {
            return old;
        }
        let replaced = self.replaced.get_or_insert_with(|| {
            Box::new(Replaced { earlier: VecDeque::new(), waiting: VecDeque::new(), last: Time::ZERO })
        });
        let waiting = std::mem::take(&mut replaced.waiting);
        replaced.earlier.push_back(Earlier { stage: old, number: old_number, waiting });
        None
    }

    /// Whether the current stage decides how long it holds frames.
    pub(crate) fn delays(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| stage.delays())
    }

    /// Takes all of `batch`. With `sums`, frames carry their delays.
    pub(crate) fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, sums: bool, out: &mut Outlet<F>) {
        if self.replaced.is_some() {
            return self.push_behind(now, batch, sums, out);
        }
        match &mut self.stage {
            Some(stage) => push_to(&mut **stage, self.number, (now, sums), batch, out),
            None => out.released.append(batch),
        }
    }

    #[cold]
    fn push_behind(&mut self, now: Time, batch: &mut Vec<Item<F>>, sums: bool, out: &mut Outlet<F>) {
        // Due frames of earlier stages leave first.
        self.wake_all(now, sums, out);
        let from = out.released.len();
        match &mut self.stage {
            Some(stage) => push_to(&mut **stage, self.number, (now, sums), batch, out),
            None => out.released.append(batch),
        }
        let orders = keeps_order(&self.stage);
        if let Some(replaced) = &mut self.replaced
            && orders
            && replaced.earlier.iter().any(Earlier::keeps_order)
        {
            replaced.waiting.extend(out.released.drain(from..));
            if !replaced.blocks(replaced.earlier.len()) {
                open(&mut replaced.waiting, replaced.last, sums, out);
            }
        }
    }

    /// Releases the frames that are due by `now`.
    pub(crate) fn wake(&mut self, now: Time, sums: bool, out: &mut Outlet<F>) {
        if self.replaced.is_some() {
            return self.wake_all(now, sums, out);
        }
        if let Some(stage) = &mut self.stage {
            wake_one(&mut **stage, self.number, (now, sums), out);
        }
    }

    #[cold]
    fn wake_all(&mut self, now: Time, sums: bool, out: &mut Outlet<F>) {
        let Some(replaced) = &mut self.replaced else { return };
        let before = out.released.len();
        for number in 0..replaced.earlier.len() {
            let blocked = replaced.earlier[number].keeps_order() && replaced.blocks(number);
            let last = replaced.last;
            let Earlier { stage, number, waiting } = &mut replaced.earlier[number];
            if !blocked {
                open(waiting, last, sums, out);
            }
            let from = out.released.len();
            if let Some(stage) = stage
                && is_due(&**stage, now)
            {
                wake_one(&mut **stage, *number, (now, sums), out);
            }
            if blocked {
                waiting.extend(out.released.drain(from..));
            }
            let left = out.released[before..].iter().map(|item| item.at).max();
            replaced.last = replaced.last.max(left.unwrap_or(Time::ZERO));
        }
        let from = out.released.len();
        if let Some(stage) = &mut self.stage
            && is_due(&**stage, now)
        {
            wake_one(&mut **stage, self.number, (now, sums), out);
        }
        // A late driver may wake the current stage together with the last frames of earlier stages. Its frames leave
        // after those.
        if keeps_order(&self.stage) && replaced.earlier.iter().any(Earlier::keeps_order) {
            replaced.waiting.extend(out.released.drain(from..));
        }
        let blocked = keeps_order(&self.stage) && replaced.blocks(replaced.earlier.len());
        if !blocked {
            open(&mut replaced.waiting, replaced.last, sums, out);
        }
        // A late driver may wake several stages at once.
        if !out.released[before..].is_sorted_by_key(|item| item.at) {
            out.released[before..].sort_by_key(|item| item.at);
        }
    }

    /// Takes an earlier stage that has become empty.
    pub(crate) fn take_empty(&mut self) -> Option<Box<dyn Stage<F>>> {
        let replaced = self.replaced.as_mut()?;
        let empty = replaced.earlier.iter().position(|earlier| earlier.held() == 0);
        let stage = empty.and_then(|number| replaced.earlier.remove(number)).and_then(|earlier| earlier.stage);
        if replaced.earlier.is_empty() && replaced.waiting.is_empty() {
            self.replaced = None;
        }
        stage
    }

    /// True while earlier stages hold frames.
    pub(crate) fn is_changing(&self) -> bool {
        self.replaced.is_some()
    }

    /// When to wake the slot next, if anything in it waits for an instant.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        let own = self.stage.as_ref().and_then(|stage| stage.deadline());
        match &self.replaced {
            None => own,
            Some(replaced) => {
                let stages = replaced.earlier.iter().filter_map(|earlier| earlier.stage.as_ref());
                stages.filter_map(|stage| stage.deadline()).chain(own).min()
            }
        }
    }

    /// Frames held.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        let earlier = self
            .replaced
            .as_ref()
            .map_or(0, |replaced| replaced.waiting.len() + replaced.earlier.iter().map(Earlier::held).sum::<usize>());
        held(&self.stage) + earlier
    }
}

impl<F: Frame> Replaced<F> {
    /// True if a stage before index `number` holds frames and keeps their order.
    fn blocks(&self, number: usize) -> bool {
        self.earlier.iter().take(number).any(|earlier| earlier.keeps_order() && earlier.held() > 0)
    }
}

/// Releases frames that waited for earlier stages, whose last frame left at `last`. The wait is part of the delay that
/// the stages decided.
fn open<F: Frame>(waiting: &mut VecDeque<Item<F>>, last: Time, sums: bool, out: &mut Outlet<F>) {
    for mut item in waiting.drain(..) {
        if last > item.at {
            if sums {
                let before = item.frame.stage_time().as_ps();
                item.frame.set_stage_time(Span::from_ps(before.wrapping_add(last.since(item.at).as_ps())));
            }
            item.at = last;
        }
        out.released.push(item);
    }
}

fn is_due<F: Frame>(stage: &dyn Stage<F>, now: Time) -> bool {
    stage.deadline().is_some_and(|deadline| deadline <= now)
}

/// Pushes a batch into a stage. If frames carry their delays and the stage delays, their arrival is subtracted from the
/// sum that each carries; [`leave`] adds the departure.
#[inline]
fn push_to<F: Frame>(
    stage: &mut dyn Stage<F>,
    number: usize,
    (now, sums): (Time, bool),
    batch: &mut Vec<Item<F>>,
    out: &mut Outlet<F>,
) {
    let sums = sums && stage.delays();
    if sums {
        for item in batch.iter_mut() {
            let before = item.frame.stage_time().as_ps();
            let arrival = item.arrived().as_ps();
            item.frame.set_stage_time(Span::from_ps(before.wrapping_sub(arrival)));
        }
    }
    let from = out.released.len();
    out.effects.attribute_to(number);
    stage.push(now, batch, out);
    if sums {
        leave(&mut out.released[from..]);
    }
}

#[inline]
fn wake_one<F: Frame>(stage: &mut dyn Stage<F>, number: usize, (now, sums): (Time, bool), out: &mut Outlet<F>) {
    let from = out.released.len();
    out.effects.attribute_to(number);
    stage.wake(now, out);
    if sums && stage.delays() {
        leave(&mut out.released[from..]);
    }
}

/// Adds the departure of frames from a stage that delays to the sum that each carries.
#[inline]
fn leave<F: Frame>(released: &mut [Item<F>]) {
    for item in released {
        let before = item.frame.stage_time().as_ps();
        // For a frame that was not held, the sum still includes its wait in the port.
        let left = item.arrived().as_ps();
        item.frame.set_stage_time(Span::from_ps(before.wrapping_add(left)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::StageConfig;
    use packet::HeapFrame;

    fn stage(text: &str) -> Option<Box<dyn Stage<HeapFrame>>> {
        (text != "off").then(|| StageConfig::parse(text).expect(text).build(1, text))
    }

    fn us(us: u64) -> Time {
        Time::from_ps(us * 1_000_000)
    }

    /// Sends a frame every µs from 0 to 20 µs through `stages`, which change at 5 and 7 µs. Returns the number and time
    /// of each frame that leaves, in order.
    fn drive(stages: [&str; 3]) -> Vec<(u8, u64)> {
        let mut slot = StageSlot::new(stage(stages[0]), 0);
        let mut out = Outlet::default();
        let mut left = Vec::new();
        for n in 0..200_u64 {
            let now = us(n);
            while let Some(deadline) = slot.deadline().filter(|deadline| *deadline <= now) {
                slot.wake(deadline, false, &mut out);
            }
            if n == 5 || n == 7 {
                slot.replace(stage(stages[if n == 5 { 1 } else { 2 }]), n as usize);
            }
            if n <= 20 {
                let frame = HeapFrame::new(vec![n as u8; 60]);
                slot.push(now, &mut vec![Item { frame, at: now }], false, &mut out);
            }
            left.extend(out.released.drain(..).map(|item| (item.frame.bytes()[0], item.at.as_ps() / 1_000_000)));
            while slot.take_empty().is_some() {}
            let gone = left.len() as u64;
            assert_eq!(slot.held() as u64 + gone, n.min(20) + 1, "{stages:?}");
        }
        assert!(!slot.is_changing());
        left
    }

    /// An interrupted thread wakes the old and the new stage in one call.
    #[test]
    fn a_late_driver_keeps_the_order_of_a_change() {
        let mut slot = StageSlot::new(stage("delay 50us"), 0);
        let mut out = Outlet::default();
        for n in 0..20 {
            if n == 10 {
                slot.replace(stage("delay 5us"), 1);
            }
            let frame = HeapFrame::new(vec![n as u8; 60]);
            slot.push(us(n), &mut vec![Item { frame, at: us(n) }], false, &mut out);
        }
        slot.wake(us(1_000), false, &mut out);
        let left: Vec<u8> = out.released.iter().map(|item| item.frame.bytes()[0]).collect();
        assert!(left.len() == 20 && left.is_sorted(), "{left:?}");
        assert!(out.released[10..].iter().all(|item| item.at == us(59)), "with the last frame of the old stage");
    }

    #[test]
    fn held_frames_leave_as_they_would_have_and_none_overtakes_them() {
        let left = drive(["delay 50us", "delay 10us", "off"]);
        let numbers: Vec<u8> = left.iter().map(|(number, _)| *number).collect();
        assert!(numbers.is_sorted(), "{left:?}");
        for (number, at) in left {
            // The last frame of the first stage leaves at 54 µs. Frames of later stages wait for it.
            let expected = match number {
                0..5 => u64::from(number) + 50,
                _ => 54,
            };
            assert_eq!(at, expected, "{number}");
        }
    }

    #[test]
    fn longer_delays_take_effect_at_once() {
        let left = drive(["off", "delay 10us", "delay 30us"]);
        for (number, at) in left {
            let by = match number {
                0..5 => 0,
                5..7 => 10,
                _ => 30,
            };
            assert_eq!(at, u64::from(number) + by, "{number}");
        }
    }

    #[test]
    fn stages_that_reorder_may_overtake() {
        let left = drive(["delay 50us", "delay 10us 1us", "delay 10us 1us"]);
        assert_eq!(left.len(), 21);
        assert!(left.first().is_some_and(|(number, at)| *number >= 5 && *at < 50), "{left:?}");
        assert!(left.is_sorted_by_key(|(_, at)| *at), "{left:?}");
    }
}
