use super::{Due, Lengths, Schedule};
use units::{Span, Time};

/// Every n-th departure of a schedule. Queue k of n takes departures k, k + n, k + 2n and so on, so all queues together
/// send at the instants of the schedule. Each queue computes all of them.
///
/// For frames that are ready from the start and whose lengths do not change the departures of the other queues.
pub(super) struct EveryNth<S> {
    schedule: S,
    /// Departures of other queues before the next one.
    skip: u64,
    queues: u64,
}

impl<S: Schedule> EveryNth<S> {
    /// The departures of queue number `queue`, from 0, of `queues`.
    pub(super) fn new(schedule: S, queue: u64, queues: u64) -> Self {
        EveryNth { schedule, skip: queue, queues }
    }
}

impl<S: Schedule> Schedule for EveryNth<S> {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        for _ in 0..std::mem::replace(&mut self.skip, self.queues - 1) {
            self.schedule.depart(ready, lengths);
        }
        self.schedule.depart(ready, lengths)
    }

    fn forgive(&mut self, late: Span) {
        self.schedule.forgive(late);
    }

    fn short(&self) -> Option<Span> {
        self.schedule.short()
    }

    fn ended(&self) -> bool {
        self.schedule.ended()
    }

    fn forfeited(&self) -> Option<f64> {
        self.schedule.forfeited()
    }
}

#[cfg(test)]
mod tests {
    use crate::Line;
    use crate::schedules::waves::Wave;
    use crate::schedules::{Draw, Lengths, Schedule, Target};
    use units::{BitRate, FrameLen, Time};

    const LENGTHS: Lengths = Lengths { frame: FrameLen::MIN, packet: 46 };

    fn schedule(target: &str) -> Box<dyn Schedule> {
        let line = Some(Line::new(BitRate::from_gbps(10)));
        let draw = Draw { seed: 7, path: "p", frames: None };
        let target = match target.parse() {
            Ok(rate) => Target::Rate(rate),
            Err(_) => Target::Wave(Wave::parse(target).expect("a waveform").expect(target).into()),
        };
        target.schedule(line, draw).expect("a schedule")
    }

    #[test]
    fn queues_together_have_the_departures_of_the_schedule() {
        for target in ["3.7Mpps", "1Gbps", "burst 8Gbps for 2ms every 10ms", "sine 1Mpps..9Mpps every 1ms"] {
            for queues in [1, 2, 3, 4] {
                let mut whole = schedule(target);
                let expected: Vec<_> = (0..20_000).map(|_| whole.depart(Time::ZERO, &LENGTHS).at).collect();
                let mut all: Vec<Time> = Vec::new();
                for queue in 0..queues {
                    let mut part = schedule(target).share(queue, queues).expect("it can be shared");
                    let frames = (20_000 - queue).div_ceil(queues);
                    all.extend((0..frames).map(|_| part.depart(Time::ZERO, &LENGTHS).at));
                }
                all.sort_unstable();
                assert_eq!(all, expected, "{target} on {queues} queues");
            }
        }
    }
}
