use super::every_nth::EveryNth;
use super::{Due, Lengths, Schedule, wire_end};
use crate::Line;
use units::{Span, Time};

/// One frame every `gap`, from start to start or from the end of a frame to the start of the next.
#[derive(Clone, Debug)]
pub struct FixedGap {
    gap: Span,
    idle_on: Option<Line>,
    next: Option<Time>,
    short: Span,
}

impl FixedGap {
    /// A schedule with this inter-departure time.
    #[must_use]
    pub fn new(gap: Span) -> Self {
        FixedGap { gap, idle_on: None, next: None, short: Span::ZERO }
    }

    /// A schedule with this time from the end of a frame on `line` to the start of the next.
    #[must_use]
    pub fn idle(gap: Span, line: Option<Line>) -> Self {
        FixedGap { gap, idle_on: line, next: None, short: Span::ZERO }
    }
}

impl Schedule for FixedGap {
    fn depart(&mut self, ready: Time, lengths: &Lengths) -> Due {
        let due = self.next.unwrap_or(ready);
        let starved = ready > due;
        self.short = self.short + ready.since(due);
        let at = due.max(ready);
        self.next = Some(wire_end(at, self.idle_on, lengths) + self.gap);
        Due { at, starved }
    }

    fn next(&self) -> Option<Time> {
        self.next
    }

    fn forgive(&mut self, late: Span) {
        self.next = self.next.map(|next| next + late);
    }

    fn short(&self) -> Option<Span> {
        Some(self.short)
    }

    fn counts_lengths(&self) -> bool {
        self.idle_on.is_some()
    }

    fn share(&self, queue: u64, queues: u64) -> Option<Box<dyn Schedule>> {
        Some(Box::new(EveryNth::new(self.clone(), queue, queues)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::FrameLen;

    const LENGTHS: Lengths = Lengths { frame: FrameLen::MIN, packet: 46 };

    #[test]
    fn departures_are_evenly_spaced_and_absolute() {
        let mut schedule = FixedGap::new(Span::from_ps(1_234_567));
        for k in 0..1_000 {
            let due = schedule.depart(Time::ZERO, &LENGTHS);
            assert_eq!(due, Due { at: Time::from_ps(k * 1_234_567), starved: false });
        }
    }

    #[test]
    fn starvation_restarts_at_the_arrival() {
        let mut schedule = FixedGap::new(Span::from_us(10));
        schedule.depart(Time::ZERO, &LENGTHS);
        let on_time = schedule.depart(Time::from_ps(10_000_000), &LENGTHS);
        assert!(!on_time.starved, "ready just when due");
        let late = schedule.depart(Time::from_ps(20_000_001), &LENGTHS);
        assert_eq!(late, Due { at: Time::from_ps(20_000_001), starved: true });
        assert_eq!(schedule.depart(Time::ZERO, &LENGTHS).at, Time::from_ps(30_000_001));
    }
}
