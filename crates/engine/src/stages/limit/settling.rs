use super::metering::{Found, Look};
use super::{Limit, Marking, Mode};
use crate::meters::{Limiter, WorkerStats};
use crate::stages::{Item, Outlet};
use measure::DropReason;
use packet::{Frame, Headers, set_congestion, set_dscp};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::sync::Arc;
use units::Time;

/// Releases, drops or queues metered frames and updates the figures. Runs on one thread for all workers.
pub struct Settling<F> {
    limiter: Arc<Limiter>,
    mode: Mode,
    marking: Marking,
    /// Frames waiting until they conform.
    held: BinaryHeap<Reverse<Due<F>>>,
    arrivals: u64,
}

/// A frame that leaves at `item.at`.
struct Due<F> {
    item: Item<F>,
    /// Sequence number, which keeps frames with equal times in order.
    number: u64,
}

/// Number of EtherTypes for which frames without a key are counted separately.
const MOST_TYPES: usize = 64;

fn is_tcp(frame: &[u8]) -> bool {
    Headers::of(frame).and_then(|headers| headers.ip).is_some_and(|ip| ip.protocol == packet::TCP)
}

impl<F: Frame> Settling<F> {
    pub(super) fn new(limit: &Limit, limiter: Arc<Limiter>) -> Self {
        Settling { limiter, mode: limit.mode, marking: limit.marking, held: BinaryHeap::new(), arrivals: 0 }
    }

    /// Updates the figures and settles each frame, in order. `workers` has the statistics of the workers, if there are
    /// several.
    pub fn settle(
        &mut self,
        looks: &mut Vec<Look>,
        frames: &mut Vec<Item<F>>,
        workers: &[WorkerStats],
        out: &mut Outlet<F>,
    ) {
        let Settling { limiter, mode, marking, held, arrivals } = self;
        let users = &limiter.users;
        let mut ledger = limiter.ledger();
        let slots = looks.iter().filter_map(|look| look.slot.ok());
        black_box(slots.fold(0, |all, slot| all ^ ledger.figures.touch(slot)));
        for (look, mut item) in looks.drain(..).zip(frames.drain(..)) {
            let length = item.frame.length();
            let mut found = look.found;
            match found {
                Found::Conforms | Found::Waits(_) => ledger.conforming.add(length),
                Found::Exceeds | Found::Impatient => ledger.exceeding.add(length),
                Found::Longer => {
                    ledger.exceeding.add(length);
                    ledger.longer = (ledger.longer.0 + 1, ledger.longer.1.max(look.bytes));
                }
                Found::Yellow => {
                    ledger.exceeding.add(length);
                    ledger.yellow.add(length);
                }
                Found::Unmetered if look.key.is_none() => {
                    ledger.without_key += 1;
                    let ether_type = Headers::of(item.frame.bytes()).map_or(0, |headers| headers.ether_type);
                    if ledger.types.len() < MOST_TYPES || ledger.types.contains_key(&ether_type) {
                        *ledger.types.entry(ether_type).or_default() += 1;
                    }
                }
                Found::Unmetered => ledger.unmetered += 1,
                Found::Drop(_) => {}
            }
            // Whether an exceeding frame is marked does not affect the rate of its user.
            if let (Ok(slot), Some(key), false) = (look.slot, look.key, matches!(found, Found::Drop(_))) {
                let got = matches!(found, Found::Conforms | Found::Waits(_) | Found::Yellow);
                let first = users.count(slot, look.bytes.into(), got);
                let bps = || {
                    let word = users.word(slot).load(std::sync::atomic::Ordering::Relaxed);
                    users.bucket_of(slot, key, word).map(|bucket| bucket.rate().bps())
                };
                if first {
                    ledger.figures.begin(slot, item.arrived(), bps);
                    ledger.forget_tried(slot);
                }
                if found == Found::Exceeds && *mode == Mode::Police && is_tcp(item.frame.bytes()) {
                    ledger.policed_tcp(slot, item.arrived(), users.passed(slot), bps());
                }
                // A frame dropped as impatient would have left after the waiting frames, so it belongs to no window.
                if found != Found::Impatient && (found != Found::Longer || *mode != Mode::Shape) {
                    let at = if let Found::Waits(departs) = found { departs } else { item.arrived() };
                    let bytes = (look.bytes, if got { look.bytes } else { 0 });
                    ledger.figures.record(slot, at, bytes, bps, found != Found::Conforms);
                }
            }
            if found == Found::Yellow || found == Found::Exceeds && *mode == Mode::Mark {
                let red = found == Found::Exceeds;
                let marked = Headers::of(item.frame.bytes()).is_some_and(|headers| match *marking {
                    Marking::Dscp(yellow, other) => {
                        set_dscp(item.frame.bytes_mut(), &headers, if red { other } else { yellow })
                    }
                    Marking::Ecn => set_congestion(item.frame.bytes_mut(), &headers),
                });
                ledger.marked += u64::from(marked);
                // A sender without ECN would not slow down, so its frame is dropped (RFC 3168, section 5).
                found = if marked || *marking != Marking::Ecn { Found::Conforms } else { Found::Exceeds };
            }
            match found {
                Found::Unmetered | Found::Conforms | Found::Yellow => out.release(item),
                Found::Waits(departs) => {
                    ledger.delayed += 1;
                    item.at = departs;
                    item.frame.forget_wait();
                    held.push(Reverse(Due { item, number: *arrivals }));
                    *arrivals += 1;
                }
                Found::Exceeds => out.discard(item.frame, DropReason::Policed),
                Found::Impatient => out.discard(item.frame, DropReason::Impatient),
                Found::Longer => out.discard(item.frame, DropReason::Longer),
                Found::Drop(reason) => out.discard(item.frame, reason),
            }
        }
        if !workers.is_empty() {
            ledger.workers.clear();
            ledger.workers.extend_from_slice(workers);
        }
    }

    /// Drops a frame that no worker could accept.
    pub fn undealt(&mut self, frame: F, out: &mut Outlet<F>) {
        self.limiter.ledger().undealt += 1;
        out.discard(frame, DropReason::Overrun);
    }

    /// Releases frames whose wait has ended by `now`.
    pub(crate) fn release_due(&mut self, now: Time, out: &mut Outlet<F>) {
        while self.held.peek().is_some_and(|Reverse(due)| due.item.at <= now) {
            if let Some(Reverse(due)) = self.held.pop() {
                out.release(due.item);
            }
        }
    }

    /// When the next waiting frame may leave.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.held.peek().map(|Reverse(due)| due.item.at)
    }

    /// Number of waiting frames.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Records the clock reading. Rate changes use it, because they have no clock.
    pub fn seen(&self, now: Time) {
        self.limiter.users.seen(now);
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
