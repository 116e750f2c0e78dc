use crate::random::Random;
use std::collections::VecDeque;
use units::{Span, Time};

/// Which worker gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Any, frame by frame: even those of one flow are with several workers at a time.
    Spread,
    /// That of its flow, as the queues of a NIC have it: a user's flows go to all workers, each in order.
    Flow,
    /// The user's own.
    Pinned,
    /// The one that has frames of this user, else the least busy one.
    Atomic,
}

/// Frames that a worker takes at once, as DPDK's programs do.
const BURST: usize = 32;
/// Frames that wait for a worker at most: what the ring of a NIC's queue holds.
const RING: u64 = 512;
/// Frames that arrive within this time are in the hands of workers together.
const TOGETHER: Span = Span::from_us(10);

/// A frame that is to be metered.
#[derive(Clone, Copy, Debug)]
pub struct Metered {
    /// The slot of its user.
    pub user: u32,
    /// Which flow it is of, where [`Dispatch::Flow`] asks.
    pub flow: u32,
    /// When it came.
    pub at: Time,
}

/// A model of workers that meter frames at the same time: who gets a frame, and in which order they get to
/// their users' buckets.
///
/// Frames of 10 µs, or 32 for each worker, are dealt out and then metered in an order that a seeded draw
/// makes: at any step any worker that has frames may be next. Each keeps the order of its own. Frames leave
/// in the order in which they came, and at the same instants: what a model of time would add is no part
/// of the question. With a `service` time a worker is also busy for that long with each frame, and what
/// finds 512 frames waiting is dropped, as a NIC does.
#[derive(Debug)]
pub struct Workers {
    dispatch: Dispatch,
    random: Random,
    service: Option<Span>,
    free_at: Vec<Time>,
    loads: Vec<Load>,
    queues: Vec<VecDeque<usize>>,
    first: Option<Time>,
}

/// What one worker did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Frames that it got.
    pub frames: u64,
    /// Of them those that exceeded.
    pub exceeded: u64,
    /// Frames that it had no time for.
    pub overrun: u64,
}

impl Workers {
    /// So many workers, as `random` has them run.
    #[must_use]
    pub fn new(workers: usize, dispatch: Dispatch, service: Option<Span>, random: Random) -> Self {
        Workers {
            dispatch,
            random,
            service,
            free_at: vec![Time::ZERO; workers],
            loads: vec![Load::default(); workers],
            queues: vec![VecDeque::new(); workers],
            first: None,
        }
    }

    /// What each worker did.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// One more exceeded on this worker.
    pub fn exceeded(&mut self, worker: usize) {
        self.loads[worker].exceeded += 1;
    }

    /// When the frames that wait since `first` are metered: nothing waits for longer.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.first.map(|first| first + TOGETHER)
    }

    /// A frame is there at `at`; true if as many are as are metered at once.
    pub fn arrived(&mut self, at: Time, waiting: usize) -> bool {
        self.first.get_or_insert(at);
        waiting >= BURST * self.loads.len()
    }

    /// It matters which flow a frame is of.
    #[must_use]
    pub(crate) fn ask_for_flows(&self) -> bool {
        self.dispatch == Dispatch::Flow && self.loads.len() > 1
    }

    /// Deals out frames and gives the order in which they are metered: pairs of the worker and the number of
    /// the frame. Frames that are not among them found a worker too busy.
    pub fn order(&mut self, frames: &[Metered]) -> Vec<(usize, usize)> {
        self.first = None;
        let workers = self.loads.len();
        // In flight: which worker has a user's frames; the scheduler knows flows by 16 bits.
        let mut holders: std::collections::HashMap<u16, usize> = std::collections::HashMap::new();
        // Fibonacci hashing: users in a row spread over all workers.
        let of_hash = |number: u32| ((u64::from(number.wrapping_mul(0x9e37_79b9)) * workers as u64) >> 32) as usize;
        for (number, Metered { user, flow, at }) in frames.iter().enumerate() {
            let worker = match self.dispatch {
                _ if workers == 1 => 0,
                Dispatch::Spread => self.random.below(workers as u64) as usize,
                Dispatch::Flow => of_hash(*flow),
                Dispatch::Pinned => of_hash(*user),
                Dispatch::Atomic => *holders.entry(*user as u16).or_insert_with(|| {
                    let busy = |worker: &usize| {
                        (self.queues[*worker].len(), self.free_at[*worker], self.loads[*worker].frames)
                    };
                    (0..workers).min_by_key(busy).unwrap_or(0)
                }),
            };
            self.loads[worker].frames += 1;
            if let Some(service) = self.service {
                let free = self.free_at[worker].max(*at);
                if free.since(*at) > service * RING {
                    self.loads[worker].overrun += 1;
                    continue;
                }
                self.free_at[worker] = free + service;
            }
            self.queues[worker].push_back(number);
        }
        let mut order = Vec::with_capacity(frames.len());
        let mut busy: Vec<usize> = (0..workers).filter(|worker| !self.queues[*worker].is_empty()).collect();
        while !busy.is_empty() {
            let turn = if busy.len() == 1 { 0 } else { self.random.below(busy.len() as u64) as usize };
            let worker = busy[turn];
            if let Some(frame) = self.queues[worker].pop_front() {
                order.push((worker, frame));
            }
            if self.queues[worker].is_empty() {
                busy.swap_remove(turn);
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(users: u32) -> Vec<Metered> {
        let frame = |i: u32| Metered {
            user: i * 7 % users,
            flow: i * 7 % (3 * users),
            at: Time::from_ps(u64::from(i) * 5_000),
        };
        (0..2_000).map(frame).collect()
    }

    #[test]
    fn every_frame_is_metered_once_and_workers_keep_their_order() {
        for dispatch in [Dispatch::Spread, Dispatch::Flow, Dispatch::Pinned, Dispatch::Atomic] {
            for workers in [1, 2, 8, 64] {
                let mut model = Workers::new(workers, dispatch, None, Random::stream(1, "test"));
                let users = frames(100);
                let order = model.order(&users);
                let mut numbers: Vec<usize> = order.iter().map(|(_, frame)| *frame).collect();
                for worker in 0..workers {
                    let own: Vec<usize> = order.iter().filter(|(w, _)| *w == worker).map(|(_, f)| *f).collect();
                    assert!(own.is_sorted(), "{dispatch:?} {workers}");
                }
                let of = |number: fn(&Metered) -> u32, which: u32| -> Vec<usize> {
                    let all = order.iter().map(|(_, frame)| *frame);
                    all.filter(|frame| number(&users[*frame]) == which).collect()
                };
                for which in 0..100 {
                    // One worker for each user, or flow, at a time, so that its frames stay in order.
                    let own = match dispatch {
                        Dispatch::Spread => Vec::new(),
                        Dispatch::Flow => of(|frame| frame.flow, which),
                        Dispatch::Pinned | Dispatch::Atomic => of(|frame| frame.user, which),
                    };
                    assert!(own.is_sorted(), "{dispatch:?} {workers} {which}");
                }
                numbers.sort_unstable();
                assert_eq!(numbers, (0..users.len()).collect::<Vec<_>>());
                assert_eq!(model.loads().iter().map(|load| load.frames).sum::<u64>(), 2_000);
            }
        }
    }

    #[test]
    fn a_scheduler_balances_what_pinning_does_not() {
        // Ten heavy users of a hundred.
        let user = |i| if i % 2 == 0 { i % 10 } else { i % 100 };
        let users: Vec<Metered> = (0..200_000_u32)
            .map(|i| Metered { user: user(i), flow: i, at: Time::from_ps(u64::from(i) * 10_000) })
            .collect();
        let spread = |dispatch| {
            let mut model = Workers::new(8, dispatch, Some(Span::from_ns(60)), Random::stream(1, "test"));
            for chunk in users.chunks(256) {
                model.order(chunk);
            }
            let loads: Vec<u64> = model.loads().iter().map(|load| load.frames).collect();
            let overrun: u64 = model.loads().iter().map(|load| load.overrun).sum();
            (*loads.iter().max().expect("eight") as f64 / 25_000.0, overrun)
        };
        let (pinned, lost) = spread(Dispatch::Pinned);
        let (atomic, none) = spread(Dispatch::Atomic);
        assert!(pinned > 1.2 && atomic < 1.1, "{pinned} {atomic}");
        assert!(none == 0 && lost > 0, "a worker has time for 1.3 times its share: {lost} {none}");
    }
}
