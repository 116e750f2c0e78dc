use crate::random::Random;
use std::collections::VecDeque;
use units::{Span, Time};

/// How frames are distributed to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// To any worker, frame by frame. Several workers may hold frames of one flow at the same time.
    Spread,
    /// By flow, as NIC queues do. A user's flows spread over all workers; each flow stays in order.
    Flow,
    /// Each user has a fixed worker.
    Pinned,
    /// To the worker that already holds frames of this user, else to the least busy one.
    Atomic,
}

/// Frames that a worker takes per turn, as usual in DPDK programs.
const BURST: usize = 32;
/// Maximum number of frames waiting for a worker: the ring size of a NIC queue.
const RING: u64 = 512;
/// Frames that arrive within this time are processed concurrently.
const TOGETHER: Span = Span::from_us(10);

/// A frame to meter.
#[derive(Clone, Copy, Debug)]
pub struct Metered {
    /// The slot of its user.
    pub user: u32,
    /// The flow of the frame, if [`Dispatch::Flow`] needs it.
    pub flow: u32,
    /// When the frame arrived.
    pub at: Time,
}

/// A model of workers that meter frames concurrently. It decides which worker gets a frame, and in which order the
/// workers reach their users' buckets.
///
/// The model collects frames for 10 µs, or 32 per worker, and distributes them. It meters them in a seeded random
/// order: at each step any worker that has frames may be next. Each worker keeps the order of its frames. Frames leave
/// in order of arrival and at their arrival times, since the model does not cover processing delay. With a `service`
/// time, each frame also occupies its worker for that long, and a frame that finds 512 frames waiting is dropped, as in
/// a NIC.
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

/// Load of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Frames received.
    pub frames: u64,
    /// Frames that exceeded, out of these.
    pub exceeded: u64,
    /// Frames dropped because the worker was busy.
    pub overrun: u64,
}

impl Workers {
    /// A model of `workers` workers. `random` determines their order.
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

    /// The load of each worker.
    #[must_use]
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Counts a frame that exceeded on this worker.
    pub fn exceeded(&mut self, worker: usize) {
        self.loads[worker].exceeded += 1;
    }

    /// When the frames waiting since `first` must be metered.
    #[must_use]
    pub fn due(&self) -> Option<Time> {
        self.first.map(|first| first + TOGETHER)
    }

    /// Records an arrival at `at`. True if enough frames wait to be metered.
    pub fn arrived(&mut self, at: Time, waiting: usize) -> bool {
        self.first.get_or_insert(at);
        waiting >= BURST * self.loads.len()
    }

    /// True if the distribution depends on the flow.
    #[must_use]
    pub(crate) fn ask_for_flows(&self) -> bool {
        self.dispatch == Dispatch::Flow && self.loads.len() > 1
    }

    /// Distributes frames and returns the order in which they are metered, as pairs of worker and frame index. Frames
    /// missing from the result found the ring of their worker full.
    pub fn order(&mut self, frames: &[Metered]) -> Vec<(usize, usize)> {
        self.first = None;
        let workers = self.loads.len();
        // The worker that holds frames of a user. The scheduler identifies flows by 16 bits.
        let mut holders: std::collections::HashMap<u16, usize> = std::collections::HashMap::new();
        // Fibonacci hashing spreads consecutive users over all workers.
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
    fn meters_every_frame_once_and_in_order_per_worker() {
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
                    // One worker at a time per user or flow, so that its frames stay in order.
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
    fn scheduler_balances_load_that_pinning_leaves_uneven() {
        // Ten of a hundred users are heavy.
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
