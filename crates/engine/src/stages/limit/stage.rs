use super::{Limit, Marking, Mode, Unknown};
use crate::meters::{Answer, Colour, Full, Key, KeyKind, Limiter, Moment, Seconds, Workers, reserve};
use crate::random::Random;
use crate::stages::{Item, Outlet, Stage};
use measure::DropReason;
use packet::{Frame, Headers, set_congestion, set_dscp};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::Arc;
use units::{Layer, Span, Time};

/// The running stage.
///
/// A burst is gone through three times, so that the memory that its frames need is fetched for all of them at
/// once: keys, then slots, then buckets.
pub(super) struct Limiting<F> {
    limiter: Arc<Limiter>,
    kind: KeyKind,
    layer: Layer,
    mode: Mode,
    marking: Marking,
    unknown: Unknown,
    pass_when_full: bool,
    patience: Span,
    seconds: Option<Seconds>,
    workers: Option<Workers>,
    /// Frames that modelled workers have in their hands.
    together: Vec<Item<F>>,
    /// Frames that wait until they conform.
    held: BinaryHeap<Reverse<Due<F>>>,
    arrivals: u64,
    looks: Vec<Look>,
    moment: Moment,
}

/// A frame that leaves at `item.at`.
struct Due<F> {
    item: Item<F>,
    /// Its number, since equal times leave in order.
    number: u64,
}

/// What is known of a frame of a burst.
struct Look {
    headers: Option<Headers>,
    key: Option<Key>,
    slot: Result<u32, Full>,
    /// Length as the rate counts it.
    bytes: u32,
    fate: Fate,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// No user has it, or the user is not metered.
    Unmetered,
    Conforms,
    Waits(Time),
    Exceeds,
    Impatient,
    Yellow,
    Drop(DropReason),
}

impl<F: Frame> Limiting<F> {
    pub(super) fn new(limit: &Limit, limiter: Arc<Limiter>, seconds: Option<Seconds>, random: Random) -> Self {
        let model = limit.workers > 1 || limit.service.is_some();
        Limiting {
            limiter,
            kind: limit.key,
            layer: limit.layer,
            mode: limit.mode,
            marking: limit.marking,
            unknown: limit.unknown,
            pass_when_full: limit.pass_when_full,
            patience: limit.patience(),
            seconds,
            workers: model
                .then(|| Workers::new(limit.workers, limit.algorithm.dispatch(), limit.service, random)),
            together: Vec::new(),
            held: BinaryHeap::new(),
            arrivals: 0,
            looks: Vec::new(),
            moment: Moment::of(Time::ZERO),
        }
    }

    /// First time through: whose frames these are.
    fn look(&mut self, frames: &[Item<F>]) {
        self.looks.clear();
        let mut touched = 0;
        for Item { frame, .. } in frames {
            let headers = Headers::of(frame.bytes());
            let key = headers.as_ref().and_then(|headers| self.kind.key(headers, frame.bytes()));
            let length = frame.length();
            let bytes = match self.layer {
                Layer::Frame => length.bytes(),
                Layer::Wire => length.on_wire().bytes(),
                Layer::Ip => headers
                    .as_ref()
                    .and_then(|headers| headers.ip)
                    .map_or(length.bytes().saturating_sub(18), |ip| (ip.end - ip.start) as u32),
            };
            touched ^= key.map_or(0, |key| self.limiter.users.touch(key));
            self.looks.push(Look { headers, key, slot: Err(Full::Unknown), bytes, fate: Fate::Unmetered });
        }
        black_box(touched);
    }

    fn moment(&mut self, at: Time) -> Moment {
        if self.moment.time() != at {
            self.moment = Moment::of(at);
        }
        self.moment
    }

    /// Second time through: where their users are.
    fn find(&mut self, frames: &[Item<F>]) {
        let mut touched = 0;
        for (i, Item { at, .. }) in frames.iter().enumerate() {
            if let Some(key) = self.looks[i].key {
                let moment = self.moment(*at);
                let slot = self.limiter.users.find_or_add(key, &moment);
                touched ^= slot.map_or(0, |slot| self.limiter.users.touch_count(slot));
                self.looks[i].slot = slot;
            }
        }
        black_box(touched);
    }

    /// Decides on frame number `i`, which came at `at`, on a worker.
    fn decide(&mut self, i: usize, at: Time, worker: usize) {
        let Look { key: Some(key), slot, bytes, .. } = self.looks[i] else { return };
        let moment = self.moment(at);
        let mut slot = slot;
        let fate = loop {
            let number = match slot {
                Ok(number) => number,
                Err(Full::NoRoom) if !self.pass_when_full => break Fate::Drop(DropReason::NoRoom),
                Err(Full::Unknown) if self.unknown == Unknown::Drop => break Fate::Drop(DropReason::Unknown),
                Err(_) => break Fate::Unmetered,
            };
            let bits = u64::from(bytes) * 8;
            let Limiter { users, meter, .. } = &*self.limiter;
            let fate = if let Some(seconds) = &mut self.seconds {
                seconds.colour(users, number, key, &moment, bits).map(|colour| match colour {
                    Colour::Green => Fate::Conforms,
                    Colour::Yellow => Fate::Yellow,
                    Colour::Red => Fate::Exceeds,
                })
            } else if self.mode == Mode::Shape {
                let bucket = |word| users.bucket_of(number, key, word);
                match reserve(users.word(number), bucket, &moment, bits, self.patience) {
                    Ok(departs) if departs == at => Some(Fate::Conforms),
                    Ok(departs) => Some(Fate::Waits(departs)),
                    Err(Answer::Gone) => None,
                    Err(_) => Some(Fate::Impatient),
                }
            } else {
                match meter.charge(users, worker, number, key, &moment, bits) {
                    Answer::Conforms => Some(Fate::Conforms),
                    Answer::Exceeds => Some(Fate::Exceeds),
                    Answer::Gone => None,
                }
            };
            match fate {
                Some(fate) => break fate,
                // It was idle and made room just now.
                None => slot = users.find_or_add(key, &moment),
            }
        };
        self.looks[i].slot = slot;
        self.looks[i].fate = fate;
    }

    /// Third time through, in order: writes the figures and sends each frame where it goes.
    fn settle(&mut self, frames: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        let limiter = self.limiter.clone();
        let mut ledger = limiter.ledger();
        for (look, mut item) in self.looks.drain(..).zip(frames.drain(..)) {
            let length = item.frame.length();
            let bytes = u64::from(look.bytes);
            let mut fate = look.fate;
            match fate {
                Fate::Conforms | Fate::Waits(_) => ledger.conforming.add(length),
                Fate::Exceeds | Fate::Impatient => ledger.exceeding.add(length),
                Fate::Yellow => {
                    ledger.exceeding.add(length);
                    ledger.yellow.add(length);
                }
                Fate::Unmetered if look.key.is_none() => ledger.without_key += 1,
                Fate::Unmetered => ledger.unmetered += 1,
                Fate::Drop(_) => {}
            }
            // What a mark does to a frame that exceeds is no matter of its rate.
            if let (Ok(slot), Some(key), false) = (look.slot, look.key, matches!(fate, Fate::Drop(_))) {
                let got = matches!(fate, Fate::Conforms | Fate::Waits(_) | Fate::Yellow);
                limiter.users.count(slot, bytes, got);
                let users = &limiter.users;
                let word = users.word(slot).load(std::sync::atomic::Ordering::Relaxed);
                let at = if let Fate::Waits(departs) = fate { departs } else { item.at };
                // What was too impatient would have left after what waits: it is no part of a window.
                if let Some(bucket) = users.bucket_of(slot, key, word).filter(|_| fate != Fate::Impatient) {
                    let bits = (bytes * 8, if got { bytes * 8 } else { 0 });
                    ledger.figures.record(slot, at, bits, bucket.rate().bps(), fate != Fate::Conforms);
                }
            }
            let marks = fate == Fate::Yellow || fate == Fate::Exceeds && self.mode == Mode::Mark;
            if marks && let Some(headers) = &look.headers {
                let red = fate == Fate::Exceeds;
                let marked = match self.marking {
                    Marking::Dscp(yellow, other) => {
                        set_dscp(item.frame.bytes_mut(), headers, if red { other } else { yellow })
                    }
                    Marking::Ecn => set_congestion(item.frame.bytes_mut(), headers),
                };
                ledger.marked += u64::from(marked);
                // Who does not know ECN would not slow down (RFC 3168, section 5).
                fate = if marked || self.marking != Marking::Ecn { Fate::Conforms } else { Fate::Exceeds };
            }
            match fate {
                Fate::Unmetered | Fate::Conforms | Fate::Yellow => out.release(item),
                Fate::Waits(departs) => {
                    ledger.delayed += 1;
                    item.at = departs;
                    self.held.push(Reverse(Due { item, number: self.arrivals }));
                    self.arrivals += 1;
                }
                Fate::Exceeds => out.discard(item.frame, DropReason::Policed),
                Fate::Impatient => out.discard(item.frame, DropReason::Impatient),
                Fate::Drop(reason) => out.discard(item.frame, reason),
            }
        }
        if let Some(workers) = &self.workers {
            ledger.workers.clear();
            ledger.workers.extend_from_slice(workers.loads());
        }
    }

    /// Lets modelled workers meter what they have in their hands.
    fn interleave(&mut self, out: &mut Outlet<F>) {
        let mut frames = std::mem::take(&mut self.together);
        self.look(&frames);
        self.find(&frames);
        let Some(mut workers) = self.workers.take() else { return };
        // Frames without a user are nobody's work.
        let metered: Vec<usize> = (0..frames.len()).filter(|i| self.looks[*i].slot.is_ok()).collect();
        let users: Vec<(u32, Time)> =
            metered.iter().map(|i| (self.looks[*i].slot.unwrap_or_default(), frames[*i].at)).collect();
        for look in &mut self.looks {
            // Whoever is not asked for by a worker below found it too busy.
            look.fate = if look.slot.is_ok() { Fate::Drop(DropReason::Overrun) } else { Fate::Unmetered };
        }
        for (worker, number) in workers.order(&users) {
            let i = metered[number];
            self.decide(i, frames[i].at, worker);
            if self.looks[i].fate == Fate::Exceeds {
                workers.exceeded(worker);
            }
        }
        for (i, item) in frames.iter().enumerate() {
            if self.looks[i].slot.is_err() {
                self.decide(i, item.at, 0);
            }
        }
        self.workers = Some(workers);
        self.settle(&mut frames, out);
        self.together = frames;
    }

    fn release_due(&mut self, now: Time, out: &mut Outlet<F>) {
        while self.held.peek().is_some_and(|Reverse(due)| due.item.at <= now) {
            if let Some(Reverse(due)) = self.held.pop() {
                out.release(due.item);
            }
        }
    }
}

impl<F: Frame + Send> Stage<F> for Limiting<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        self.limiter.users.seen(now);
        self.release_due(now, out);
        if let Some(workers) = &mut self.workers {
            let mut full = false;
            for item in batch.drain(..) {
                full |= workers.arrived(item.at, self.together.len() + 1);
                self.together.push(item);
            }
            if full {
                self.interleave(out);
            }
            return;
        }
        self.look(batch);
        self.find(batch);
        for (i, item) in batch.iter().enumerate() {
            self.decide(i, item.at, 0);
        }
        self.settle(batch, out);
        // A frame may have to wait for less than a picosecond's worth, or its driver may be late.
        self.release_due(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        if self.workers.as_ref().and_then(Workers::due).is_some_and(|due| due <= now) {
            self.interleave(out);
        }
        self.release_due(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        let waits = self.held.peek().map(|Reverse(due)| due.item.at);
        waits.into_iter().chain(self.workers.as_ref().and_then(Workers::due)).min()
    }

    fn held(&self) -> usize {
        self.held.len() + self.together.len()
    }
}

impl<F> PartialEq for Due<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Due<F> {}

impl<F> PartialOrd for Due<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Due<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.item.at, self.number).cmp(&(other.item.at, other.number))
    }
}
