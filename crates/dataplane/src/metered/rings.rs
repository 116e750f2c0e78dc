use super::{Backoff, WorkerThreads};
use crate::Error;
use dpdk::{Eal, Mbuf};
use engine::Outlet;
use engine::Stage;
use engine::meters::{Dispatch, KeyKind, WorkerStats};
use engine::stages::{Item, Limit, Look, Metering, Settling};
use measure::DropReason;
use packet::Frame;
use rtrb::{Consumer, Producer, RingBuffer};
use std::sync::atomic::{AtomicBool, Ordering};
use units::{Span, Time};

/// Limit on frames in a worker: the ring size of a NIC queue.
const MOST: usize = 512;
/// Frames that a worker takes at once.
const BURST: usize = 32;
/// How soon to poll for results of the workers.
const SOON: Span = Span::from_us(1);

/// Workers behind rings. A flow, or with `static` a user, belongs to one worker.
pub(super) struct Rings {
    /// Dropped first: threads must end before what they use.
    crew: WorkerThreads,
    hands: Vec<WorkerRings>,
    /// Distributes by user instead of by flow.
    by_user: Option<KeyKind>,
    settling: Settling<Mbuf>,
    loads: Vec<WorkerStats>,
    next: Time,
    frames: Vec<Item<Mbuf>>,
    looks: Vec<Look>,
}

/// The rings to a worker and back, and its number of frames.
struct WorkerRings {
    jobs: Producer<Item<Mbuf>>,
    done: Consumer<(Item<Mbuf>, Look)>,
    out: usize,
    called: bool,
}

impl Rings {
    pub(super) fn start(eal: &'static Eal, limit: &Limit, seed: u64, cpus: &[usize]) -> Result<Self, Error> {
        let (meters, settling) = limit.parts(limit.workers, seed);
        let mut crew = WorkerThreads::new();
        let mut hands = Vec::new();
        for (number, metering) in meters.into_iter().enumerate() {
            let (jobs, todo) = RingBuffer::new(MOST);
            let (did, done) = RingBuffer::new(MOST);
            crew.add(eal, cpus.get(number).copied(), move |stop| work(metering, number, todo, did, stop))?;
            hands.push(WorkerRings { jobs, done, out: 0, called: true });
        }
        let by_user = (limit.algorithm.dispatch() == Dispatch::Pinned).then_some(limit.key);
        let loads = vec![WorkerStats::default(); hands.len()];
        let (frames, looks) = (Vec::new(), Vec::new());
        Ok(Rings { hands, by_user, settling, loads, next: Time::ZERO, frames, looks, crew })
    }

    fn whose(&self, frame: &[u8]) -> usize {
        let hash = match self.by_user.and_then(|kind| kind.of_frame(frame)) {
            Some(key) => key.hash(),
            None => packet::flow_hash(frame),
        };
        hash as usize % self.hands.len()
    }

    /// Collects the results of the workers.
    fn collect(&mut self, out: &mut Outlet<Mbuf>) {
        for (hand, load) in self.hands.iter_mut().zip(&mut self.loads) {
            while let Ok((item, look)) = hand.done.pop() {
                hand.out -= 1;
                load.frames += 1;
                load.exceeded += u64::from(look.exceeds());
                self.frames.push(item);
                self.looks.push(look);
            }
        }
        self.settling.settle(&mut self.looks, &mut self.frames, &self.loads, out);
    }
}

impl Stage<Mbuf> for Rings {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<Mbuf>>, out: &mut Outlet<Mbuf>) {
        self.settling.seen(now);
        self.collect(out);
        for item in batch.drain(..) {
            let number = self.whose(item.frame.bytes());
            let hand = &mut self.hands[number];
            if hand.out == MOST {
                self.loads[number].frames += 1;
                self.loads[number].overrun += 1;
                out.discard(item.frame, DropReason::Overrun);
                continue;
            }
            hand.jobs.push(item).expect("there is room for as many as may be out");
            hand.out += 1;
            hand.called = false;
        }
        for (number, hand) in self.hands.iter_mut().enumerate().filter(|(_, hand)| !hand.called) {
            hand.called = true;
            self.crew.call(number);
        }
        self.next = now + SOON;
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<Mbuf>) {
        self.collect(out);
        self.next = now + SOON;
    }

    fn deadline(&self) -> Option<Time> {
        self.hands.iter().any(|hand| hand.out > 0).then_some(self.next)
    }

    fn held(&self) -> usize {
        self.hands.iter().map(|hand| hand.out).sum()
    }
}

/// Meters frames until `stop` is set.
fn work(
    mut metering: Metering,
    number: usize,
    mut todo: Consumer<Item<Mbuf>>,
    mut did: Producer<(Item<Mbuf>, Look)>,
    stop: &AtomicBool,
) {
    let (mut frames, mut looks) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let mut patience = Backoff::default();
    while !stop.load(Ordering::Acquire) {
        while frames.len() < BURST
            && let Ok(item) = todo.pop()
        {
            frames.push(item);
        }
        if frames.is_empty() {
            patience.wait();
            continue;
        }
        patience.found();
        metering.meter(number, &frames, &mut looks);
        for done in frames.drain(..).zip(looks.drain(..)) {
            did.push(done).expect("there is room for as many as may be out");
        }
    }
}
