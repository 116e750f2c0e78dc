use super::aqm::Line;
use super::chance::Decisions;
use super::delayed::{Delayed, Delays};
use super::loss::{Losing, LossModel};
use super::queue::{QueueLimit, Serving, Slots};
use super::{Mode, Netem};
use crate::random::Random;
use crate::stages::decision::mark;
use crate::stages::{Change, Decision, Fate, Item, Outlet, Stage, Timed, arrived};
use measure::{Choice, DropReason, Effect};
use packet::Frame;
use units::{Span, Time};

/// The running stage: one queue in time order, as in netem.
pub(super) struct Emulation<F> {
    number: u64,
    duplicate: Option<Decisions>,
    losing: Losing,
    /// The configured share of loss, if there is loss.
    lost: Option<f64>,
    ecn: bool,
    corrupt: Option<(Decisions, Mode, Random)>,
    down: Option<(Span, Span)>,
    mtu: Option<u32>,
    icmp: bool,
    limit: Option<QueueLimit>,
    reorder: Option<Decisions>,
    gap: u32,
    /// Number of frames delayed since the last one that was sent at once.
    delayed: u32,
    delays: Delays,
    /// The configured delays, until they are reported.
    asked: Vec<u64>,
    keep_order: bool,
    serving: Serving,
    /// The link, if the queue before it does more than tail drop. It then holds the waiting frames.
    line: Option<Line<F>>,
    slots: Option<Slots>,
    /// When the last frame of the queue leaves.
    last: Time,
    /// Bytes in the queue, without FCS.
    bytes: u64,
    queue: Timed<(u64, F)>,
    /// True if delays are part of the report.
    holds: bool,
    /// True if frames leave in order of arrival.
    in_order: bool,
}

/// Length of a frame as counted by tc: without FCS.
fn length<F: Frame>(frame: &F) -> u32 {
    frame.length().bytes() - 4
}

impl<F: Frame + Send + 'static> Emulation<F> {
    pub(super) fn new(config: &Netem, random: &Random) -> Self {
        let decisions = |chance, name| Decisions::new(chance, random.child(name));
        let even = config.delay.as_ref().is_none_or(|delay| delay.jitter == Span::ZERO && delay.steps.is_empty());
        let in_order = config.keep_order || even && config.reorder.is_none() && config.slot.is_none();
        Emulation {
            number: 0,
            duplicate: config.duplicate.map(|chance| decisions(chance, "duplicate")),
            losing: Losing::new(&config.loss, random.child("loss")),
            lost: (config.loss != LossModel::None).then(|| config.loss.share()),
            ecn: config.ecn,
            corrupt: config.corrupt.map(|chance| (decisions(chance, "corrupt"), config.mode, random.child("change"))),
            down: config.down,
            mtu: config.mtu,
            icmp: config.icmp,
            limit: config.limit,
            reorder: config.reorder.map(|chance| decisions(chance, "reorder")),
            gap: config.gap,
            delayed: 0,
            delays: Delays::new(config, random),
            asked: config.delay.as_ref().map(Delayed::evenly).unwrap_or_default(),
            keep_order: config.keep_order,
            serving: Serving::new(config.rate.as_ref()),
            line: config
                .aqm
                .as_ref()
                .zip(config.rate.as_ref())
                .map(|(aqm, rate)| Line::new(aqm, rate, config.ecn, random.child("queue"))),
            slots: config.slot.as_ref().map(|slot| Slots::new(slot, random.child("slot"))),
            last: Time::ZERO,
            bytes: 0,
            queue: if in_order { Timed::default() } else { Timed::sorting() },
            holds: config.delay.is_some() || config.rate.is_some(),
            in_order,
        }
    }
}

impl<F: Frame> Emulation<F> {
    /// Processes an arriving frame up to the queue, in the kernel's order.
    fn arrive(&mut self, mut frame: F, at: Time, out: &mut Outlet<F>) {
        let number = self.number;
        self.number += 1;
        if self.is_down(at) {
            return drop_it(frame, number, 0, DropReason::Outage, out);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| is_longer(&frame, *mtu)) {
            if self.icmp && out.answer(&frame, |frame, answer| packet::packet_too_big(frame, mtu, answer)) {
                out.effects.count(Effect::Answered);
            }
            return drop_it(frame, number, 0, DropReason::Mtu, out);
        }
        let twice = self.duplicate.as_mut().is_some_and(|chance| choose(chance, Choice::Duplicate, out));
        let mut marked = false;
        if self.loses(out) {
            if self.ecn && mark(&mut frame) {
                out.effects.count(Effect::Marked);
                marked = true;
            } else if twice {
                // The duplicate and the loss cancel out.
                return self.corrupt(frame, at, (number, 0, marked), out);
            } else {
                return drop_it(frame, number, 0, DropReason::Loss, out);
            }
        }
        if twice && let Some(copy) = out.copy(&frame) {
            out.effects.count(Effect::Duplicated);
            self.arrive_copy(copy, at, (number, marked), out);
        }
        self.corrupt(frame, at, (number, 0, marked), out);
    }

    fn loses(&mut self, out: &mut Outlet<F>) -> bool {
        let hit = self.losing.next();
        if let Some(asked) = self.lost {
            out.effects.chose(Choice::Loss, asked, hit);
        }
        hit
    }

    /// Processes the copy of a frame. It enters at the same time as its frame but before it, and is not duplicated
    /// again. The copy of a marked frame is marked.
    fn arrive_copy(&mut self, mut copy: F, at: Time, (number, mut marked): (u64, bool), out: &mut Outlet<F>) {
        if self.loses(out) && !marked {
            if !(self.ecn && mark(&mut copy)) {
                return drop_it(copy, number, 1, DropReason::Loss, out);
            }
            marked = true;
        }
        if marked {
            out.effects.count(Effect::Marked);
        }
        self.corrupt(copy, at, (number, 1, marked), out);
    }

    fn corrupt(&mut self, mut frame: F, at: Time, (number, copy, marked): (u64, u32, bool), out: &mut Outlet<F>) {
        let mut change = None;
        if let Some((decisions, mode, random)) = &mut self.corrupt
            && choose(decisions, Choice::Corrupt, out)
        {
            match mode.draw(frame.bytes(), random) {
                Ok(drawn) => {
                    drawn.apply(&mut frame);
                    change = Some(drawn);
                    out.effects.count(Effect::Corrupted);
                }
                Err(why) => {
                    out.effects.count(Effect::Incorruptible);
                    out.effects.count(why.effect());
                }
            }
        }
        self.enqueue(frame, at, (number, copy, marked, change), out);
    }

    fn enqueue(
        &mut self,
        mut frame: F,
        seen: Time,
        (number, copy, marked, change): (u64, u32, bool, Option<Change>),
        out: &mut Outlet<F>,
    ) {
        let bytes = length(&frame);
        while self.is_full(bytes) {
            if !self.line.as_mut().is_some_and(|line| line.makes_room(&frame, bytes, out)) {
                return drop_it(frame, number, copy, DropReason::Queue, out);
            }
        }
        let passed = |delay| move || Decision { frame: number, copy, marked, change, fate: Fate::Pass, delay };
        if let Some(reorder) = &mut self.reorder
            && self.delayed + 1 >= self.gap
            && choose(reorder, Choice::Reorder, out)
        {
            self.delayed = 0;
            out.effects.count(Effect::Hastened);
            out.effects.leaves(number);
            out.decided(passed(Span::ZERO));
            return out.release(Item { frame, at: seen });
        }
        let at = self.arrival(&frame, seen);
        if self.holds {
            frame.forget_wait();
        }
        let ready = at + self.delays.draw(at);
        if let Some(line) = &mut self.line {
            self.delayed = self.delayed.saturating_add(1);
            out.decided(|| Decision { fate: Fate::Held, ..passed(Span::ZERO)() });
            return line.push(frame, bytes, passed(Span::ZERO)(), (at, ready));
        }
        if let Some(QueueLimit::Wait(most)) = self.limit
            && self.last.since(ready) > most
        {
            return drop_it(frame, number, copy, DropReason::Queue, out);
        }
        let mut leaves = if self.serving.queues() {
            self.serving.pass(ready, self.last, self.serving.charged(&frame))
        } else {
            ready
        };
        if self.keep_order {
            leaves = leaves.max(self.last);
        }
        self.last = self.last.max(leaves);
        self.delayed = self.delayed.saturating_add(1);
        out.decided(passed(leaves.since(at)));
        self.bytes += u64::from(bytes);
        self.queue.push(leaves, (number, frame));
    }

    /// Whether the queue has no space for a frame of this many bytes.
    fn is_full(&self, bytes: u32) -> bool {
        let held = || self.line.as_ref().map_or((self.queue.len(), self.bytes), |line| (line.len(), line.bytes()));
        match self.limit {
            Some(QueueLimit::Frames(frames)) => held().0 as u64 >= frames,
            Some(QueueLimit::Bytes(most)) => held().1 + u64::from(bytes) > most,
            Some(QueueLimit::Wait(_)) | None => false,
        }
    }

    /// When a frame polled at `seen` arrived. Delays count from there. Without delays it is the poll.
    fn arrival(&self, frame: &F, seen: Time) -> Time {
        if self.holds { arrived(frame, seen) } else { seen }
    }

    /// Releases frames that may leave by `now`.
    fn release(&mut self, now: Time, out: &mut Outlet<F>) {
        if let Some(line) = &mut self.line {
            line.run(now, out);
        }
        while let Some(due) = self.queue.first() {
            let opens = self.slots.as_mut().map_or(due, |slots| slots.opens(due, now));
            if due > now || opens > now {
                return;
            }
            let Some((_, (number, frame))) = self.queue.pop(now) else { return };
            let bytes = length(&frame);
            self.bytes -= u64::from(bytes);
            if let Some(slots) = &mut self.slots {
                slots.used(opens, bytes);
            }
            out.effects.leaves(number);
            out.release(Item { frame, at: opens });
        }
    }

    /// The link is up at the start of each period and down at its end.
    fn is_down(&self, at: Time) -> bool {
        self.down.is_some_and(|(down, every)| at.as_ps() % every.as_ps() >= (every - down).as_ps())
    }
}

/// Whether the IP packet, or other payload, exceeds `mtu` bytes.
fn is_longer<F: Frame>(frame: &F, mtu: u32) -> bool {
    packet::ip_length(frame.bytes(), frame.length()).unwrap_or(length(frame) - 14) > mtu
}

fn choose<F>(chance: &mut Decisions, choice: Choice, out: &mut Outlet<F>) -> bool {
    let hit = chance.next();
    out.effects.chose(choice, chance.asked, hit);
    hit
}

fn drop_it<F>(frame: F, number: u64, copy: u32, reason: DropReason, out: &mut Outlet<F>) {
    let fate = Fate::Drop(reason);
    out.decided(|| Decision { frame: number, copy, marked: false, change: None, fate, delay: Span::ZERO });
    out.discard(frame, reason);
}

impl<F: Frame + Send> Stage<F> for Emulation<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        if !self.asked.is_empty() {
            out.effects.asks_delays(std::mem::take(&mut self.asked));
        }
        for Item { frame, at } in batch.drain(..) {
            // Frames that leave first free space in the queue.
            self.release(self.arrival(&frame, at), out);
            self.arrive(frame, at, out);
        }
        self.release(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        self.release(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        if let Some(line) = &self.line {
            return line.deadline();
        }
        let due = self.queue.first()?;
        Some(self.slots.as_ref().map_or(due, |slots| due.max(slots.next)))
    }

    fn delays(&self) -> bool {
        self.holds
    }

    fn keeps_order(&self) -> bool {
        self.in_order
    }

    fn held(&self) -> usize {
        self.queue.len() + self.line.as_ref().map_or(0, Line::len)
    }
}
