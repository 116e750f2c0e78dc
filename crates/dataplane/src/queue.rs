use engine::Line;
use std::time::Duration;
use units::{PS_PER_NS, Span, Time, WireLen};

/// The pacer may sleep if the queue holds more than this, for an eighth of its contents but at most `NAP`. The kernel
/// interrupts a thread that always runs for one or two clock ticks (1 to 10 ms each) at the end of its time slice; a
/// thread that sleeps by itself has time left.
const NAP_ABOVE: Span = Span::from_ms(2);
const NAP: Span = Span::from_us(300);

/// Tolerance for the drift of two clocks in this time, and for an interruption of the port.
fn slack(elapsed: Span) -> Span {
    Span::from_us(50) + Span::from_ps(elapsed.as_ps() / 1_000)
}

/// Model of a port's queue, inferred from the frames it took, the clock, and the moments at which it is full.
pub(crate) struct Queue {
    line: Line,
    /// Capacity in frames, and the longest frame.
    slots: usize,
    longest: WireLen,
    /// Starts of the last frames taken, for more than `slots` frames, indexed by frame number modulo a power of two.
    starts: Vec<u64>,
    /// Frames taken since it was empty.
    taken: u64,
    /// End of the last frame taken.
    taken_to: Option<u64>,
    /// How far the line's time is behind the clock, in ps.
    lag: i64,
    /// Planned start of the first frame, and when the port took it.
    began: Option<(u64, Time)>,
    /// The first observation that the port took more wire time than has passed plus what its queue can hold: the wire
    /// time and the elapsed time.
    faster: Option<(Span, Span)>,
}

impl Queue {
    /// When a queue reports that it is full, up to this many of its frames may already have left: NICs reclaim sent
    /// frames in batches of 32, and prefetch.
    const UNKNOWN: u64 = 64;

    pub(crate) fn new(line: Line, slots: usize, longest: WireLen) -> Self {
        let starts = vec![0; (slots + 2 * Self::UNKNOWN as usize).next_power_of_two()];
        Queue { line, slots, longest, starts, taken: 0, taken_to: None, lag: 0, began: None, faster: None }
    }

    /// Capacity in frames.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// Records that the port took frames of these lengths. The plan starts the first one at `position`.
    pub(crate) fn took(&mut self, position: u64, lengths: &[u32], now: Time) {
        if lengths.is_empty() {
            return;
        }
        if self.taken_to.is_none() {
            // An empty line starts the frame at once.
            self.lag = now.signed_ps_since(self.line.time(position));
            self.began = Some((position, now));
        }
        let mut start = position;
        for length in lengths {
            let slot = self.slot(self.taken);
            self.starts[slot] = start;
            self.taken += 1;
            start += u64::from(*length);
        }
        self.taken_to = Some(start);
    }

    fn slot(&self, frame: u64) -> usize {
        frame as usize & (self.starts.len() - 1)
    }

    /// The current position of the line.
    fn reached(&self, now: Time) -> u64 {
        self.line.position(Time::from_ps(now.as_ps().saturating_add_signed(-self.lag)))
    }

    /// Byte times that the line has idled since it sent everything taken.
    pub(crate) fn idled(&mut self, now: Time) -> u64 {
        let Some(taken_to) = self.taken_to else { return 0 };
        let reached = self.reached(now);
        if reached <= taken_to {
            return 0;
        }
        self.taken_to = Some(reached);
        self.taken = 0;
        reached - taken_to
    }

    /// True if the port took more than its queue can hold.
    pub(crate) fn is_ahead(&mut self, now: Time) -> bool {
        // Enough more that `judge` detects it for any lengths.
        let most = (self.slots as u64 + 2 * Self::UNKNOWN) * u64::from(self.longest.bytes());
        let ahead = self.taken_to.is_some_and(|taken_to| taken_to >= self.reached(now) + most);
        if ahead && self.faster.is_none() {
            self.judge(now);
        }
        ahead
    }

    /// Checks whether the port has taken more wire time than can have passed on a line since its first frame, apart
    /// from the contents of its queue.
    pub(crate) fn judge(&mut self, now: Time) {
        let (Some((first, since)), Some(taken_to)) = (self.began, self.taken_to) else { return };
        let oldest = self.taken.saturating_sub(self.slots as u64 + Self::UNKNOWN);
        let held_from = if self.taken == 0 { taken_to } else { self.starts[self.slot(oldest)] };
        let wire = self.wire(first, taken_to);
        let elapsed = now.since(since);
        if self.faster.is_none() && wire > elapsed + self.wire(held_from, taken_to) + slack(elapsed) {
            self.faster = Some((wire, elapsed));
        }
    }

    fn wire(&self, from: u64, to: u64) -> Span {
        self.line.time(to).since(self.line.time(from))
    }

    /// The wire time that the port took and the elapsed time, if they show that it does not keep the line rate: it took
    /// too much, or was full of frames that should have left.
    pub(crate) fn pace(&self, now: Time) -> Option<(Span, Span)> {
        let (first, since) = self.began?;
        let elapsed = now.since(since);
        let sent = self.wire(first, self.reached(now).max(first));
        self.faster.or_else(|| (sent + slack(elapsed) < elapsed).then_some((sent, elapsed)))
    }

    /// How long the pacer may sleep while the queue is full; zero if it holds little.
    pub(crate) fn nap(&self, now: Time) -> Duration {
        let reached = self.line.time(self.reached(now));
        let holds = self.taken_to.map_or(Span::ZERO, |taken_to| self.line.time(taken_to).since(reached));
        let nap = if holds > NAP_ABOVE { Span::from_ps(holds.as_ps() / 8).min(NAP) } else { Span::ZERO };
        Duration::from_nanos(nap.as_ps() / PS_PER_NS)
    }

    /// The port refused a frame, so its queue is full. This gives the line's position, and its speed relative to this
    /// clock.
    pub(crate) fn is_full(&mut self, now: Time) {
        if self.taken == 0 {
            return;
        }
        let oldest = self.taken.saturating_sub(self.slots as u64);
        let least = self.starts[self.slot(oldest)];
        let reached = self.reached(now);
        let unknown = (oldest + Self::UNKNOWN).min(self.taken - 1);
        let right = reached.clamp(least, self.starts[self.slot(unknown)].max(least));
        if right != reached {
            self.lag = now.signed_ps_since(self.line.time(right));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::BitRate;

    const LINE: BitRate = BitRate::from_gbps(10);

    /// A queue of 4 slots that took frames of 1000 byte times back to back from 5 µs on.
    fn queue(frames: u64) -> (Queue, Time) {
        let mut queue = Queue::new(Line::new(LINE), 4, WireLen::MAX_STANDARD);
        let start = Time::from_ps(5_000_000);
        for n in 0..frames / 2 {
            queue.took(n * 2_000, &[1_000, 1_000], start);
        }
        (queue, start)
    }

    #[test]
    fn counts_idle_time_after_the_last_frame() {
        let (mut queue, start) = queue(4);
        assert_eq!(queue.idled(start + Span::from_ns(3_200)), 0, "just all");
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 100);
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 0, "counted once");
        assert_eq!(Queue::new(Line::new(LINE), 4, WireLen::MAX_STANDARD).idled(start), 0, "nothing was to be sent");
    }

    #[test]
    fn full_queue_reveals_the_position_of_the_line() {
        // By the clock 125 frames have left, but the full queue holds four, so the other 200 have left.
        let (mut queue, start) = queue(204);
        let now = start + Span::from_us(100);
        queue.is_full(now);
        assert_eq!(queue.reached(now), 200_000, "it is not behind what has left the queue");
        queue.is_full(start + Span::from_us(500));
        assert_eq!(queue.reached(start + Span::from_us(500)), 203_000, "its last frame may be on the line by now");
    }

    #[test]
    fn pacer_sleeps_only_if_the_queue_outlasts_a_tick() {
        // 4 frames of 1000 byte times take 3.2 µs; 3000 take 2.4 ms.
        let (few, start) = queue(4);
        assert_eq!(few.nap(start), Duration::ZERO);
        let (many, start) = queue(3_000);
        assert_eq!(many.nap(start), Duration::from_micros(300));
        assert_eq!(many.nap(start + Span::from_us(399)), Duration::from_nanos(250_125));
        assert_eq!(many.nap(start + Span::from_us(400)), Duration::ZERO, "2 ms are left");
    }

    #[test]
    fn bounds_ports_that_refuse_nothing() {
        let (mut queue, start) = queue(4);
        assert!(!queue.is_ahead(start));
        for n in 0..66 {
            queue.took(4_000 + n * 3_076, &[1_538, 1_538], start);
        }
        assert!(queue.is_ahead(start) && !queue.is_ahead(start + Span::from_us(4)));
    }

    /// 1000 byte times take 0.8 µs, and up to 4 + 64 frames may be held.
    #[test]
    fn detects_a_port_that_takes_too_much() {
        for (frames, elapsed_us, faster) in [(68, 1, false), (250, 100, false), (250, 90, true), (5_000, 3, true)] {
            let (mut queue, start) = queue(frames);
            let now = start + Span::from_us(elapsed_us);
            queue.judge(now);
            let pace = queue.pace(now);
            let expected = faster.then_some((Span::from_ns(800) * frames, Span::from_us(elapsed_us)));
            assert_eq!(pace, expected, "{frames} frames in {elapsed_us} µs");
        }
    }

    #[test]
    fn detects_a_port_slower_than_its_line() {
        // It took 1000 frames and refused more, so it has sent up to 999, which should take 799.2 µs.
        for (elapsed_us, slower) in [(700, false), (850, false), (1_600, true)] {
            let (mut queue, start) = queue(1_000);
            let now = start + Span::from_us(elapsed_us);
            queue.is_full(now);
            let sent = queue.pace(now).map(|(sent, _)| sent);
            assert_eq!(sent, slower.then_some(Span::from_ns(799_200)), "after {elapsed_us} µs");
        }
    }
}
