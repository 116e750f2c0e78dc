use engine::Line;
use std::time::Duration;
use units::{PS_PER_NS, Span, Time, WireLen};

/// A queue that holds more than this lets its pacer sleep, for an eighth of what it holds but no longer
/// than `NAP`. A thread that always runs is interrupted, for a tick of the kernel's clock (1 to 10 ms) or
/// two, when its turn is over; one that sleeps by itself has turns left.
const NAP_ABOVE: Span = Span::from_ms(2);
const NAP: Span = Span::from_us(300);

/// How much two clocks may differ in this time, and what an interruption of the port may hide.
fn slack(elapsed: Span) -> Span {
    Span::from_us(50) + Span::from_ps(elapsed.as_ps() / 1_000)
}

/// What the port's queue holds, as far as that can be known from outside: from what it took, from the
/// clock, and from the moments at which it is full.
pub(crate) struct Queue {
    line: Line,
    /// Frames that it holds at most, and the longest of them.
    slots: usize,
    longest: WireLen,
    /// Starts of the last frames that it took, more than `slots` of them, by their number modulo a power of two.
    starts: Vec<u64>,
    /// Frames that it took since it was empty.
    taken: u64,
    /// The end of the last frame that it took.
    taken_to: Option<u64>,
    /// How far the line's time is behind the clock, in ps.
    lag: i64,
    /// Start of the first frame that it took, and when it had it.
    began: Option<(u64, Time)>,
    /// When it was seen first to take more wire time than has passed and than it can hold: how much, and in which time.
    faster: Option<(Span, Span)>,
}

impl Queue {
    /// When it is full, up to so many frames may have left that the port does not know of yet: NICs
    /// look at what they have sent by the 32, and fetch ahead.
    const UNKNOWN: u64 = 64;

    pub(crate) fn new(line: Line, slots: usize, longest: WireLen) -> Self {
        let starts = vec![0; (slots + 2 * Self::UNKNOWN as usize).next_power_of_two()];
        Queue { line, slots, longest, starts, taken: 0, taken_to: None, lag: 0, began: None, faster: None }
    }

    /// Frames that it holds at most.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// It took frames of these lengths, the first of which is planned to start at `position`.
    pub(crate) fn took(&mut self, position: u64, lengths: &[u32], now: Time) {
        if lengths.is_empty() {
            return;
        }
        if self.taken_to.is_none() {
            // An empty line starts it at once.
            self.lag = now.signed_ps_since(self.line.time(position));
            self.began = Some((position, now));
        }
        let mut start = position;
        for length in lengths {
            let place = self.place(self.taken);
            self.starts[place] = start;
            self.taken += 1;
            start += u64::from(*length);
        }
        self.taken_to = Some(start);
    }

    fn place(&self, frame: u64) -> usize {
        frame as usize & (self.starts.len() - 1)
    }

    /// Where the line is.
    fn reached(&self, now: Time) -> u64 {
        self.line.position(Time::from_ps(now.as_ps().saturating_add_signed(-self.lag)))
    }

    /// Byte times that the line has idled since it sent all that was taken.
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

    /// It holds more than fits.
    pub(crate) fn is_ahead(&mut self, now: Time) -> bool {
        // So many more that `judge` sees it whatever the lengths.
        let most = (self.slots as u64 + 2 * Self::UNKNOWN) * u64::from(self.longest.bytes());
        let ahead = self.taken_to.is_some_and(|taken_to| taken_to >= self.reached(now) + most);
        if ahead && self.faster.is_none() {
            self.judge(now);
        }
        ahead
    }

    /// Looks whether the port has taken more wire time than can have passed on a line since its first frame, but for
    /// what its queue holds.
    pub(crate) fn judge(&mut self, now: Time) {
        let (Some((first, since)), Some(taken_to)) = (self.began, self.taken_to) else { return };
        let oldest = self.taken.saturating_sub(self.slots as u64 + Self::UNKNOWN);
        let held_from = if self.taken == 0 { taken_to } else { self.starts[self.place(oldest)] };
        let wire = self.wire(first, taken_to);
        let elapsed = now.since(since);
        if self.faster.is_none() && wire > elapsed + self.wire(held_from, taken_to) + slack(elapsed) {
            self.faster = Some((wire, elapsed));
        }
    }

    fn wire(&self, from: u64, to: u64) -> Span {
        self.line.time(to).since(self.line.time(from))
    }

    /// The wire time that the port took and the time in which it did, if these show that it does not keep the line's
    /// rate: it took too much, or was found full of what should have left it.
    pub(crate) fn pace(&self, now: Time) -> Option<(Span, Span)> {
        let (first, since) = self.began?;
        let elapsed = now.since(since);
        let sent = self.wire(first, self.reached(now).max(first));
        self.faster.or_else(|| (sent + slack(elapsed) < elapsed).then_some((sent, elapsed)))
    }

    /// How long its pacer may sleep when it is full; nothing where it holds little.
    pub(crate) fn nap(&self, now: Time) -> Duration {
        let reached = self.line.time(self.reached(now));
        let holds = self.taken_to.map_or(Span::ZERO, |taken_to| self.line.time(taken_to).since(reached));
        let nap = if holds > NAP_ABOVE { Span::from_ps(holds.as_ps() / 8).min(NAP) } else { Span::ZERO };
        Duration::from_nanos(nap.as_ps() / PS_PER_NS)
    }

    /// It refused a frame, so it holds as many as it can: that tells where the line is, and how much
    /// faster or slower than this clock it goes.
    pub(crate) fn is_full(&mut self, now: Time) {
        if self.taken == 0 {
            return;
        }
        let oldest = self.taken.saturating_sub(self.slots as u64);
        let least = self.starts[self.place(oldest)];
        let reached = self.reached(now);
        let unknown = (oldest + Self::UNKNOWN).min(self.taken - 1);
        let right = reached.clamp(least, self.starts[self.place(unknown)].max(least));
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
    fn a_line_that_has_sent_all_has_idled() {
        let (mut queue, start) = queue(4);
        assert_eq!(queue.idled(start + Span::from_ns(3_200)), 0, "just all");
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 100);
        assert_eq!(queue.idled(start + Span::from_ns(3_280)), 0, "counted once");
        assert_eq!(Queue::new(Line::new(LINE), 4, WireLen::MAX_STANDARD).idled(start), 0, "nothing was to be sent");
    }

    #[test]
    fn a_full_queue_tells_where_the_line_is() {
        // By the clock 125 frames have gone, but the full queue holds four: the other 200 have.
        let (mut queue, start) = queue(204);
        let now = start + Span::from_us(100);
        queue.is_full(now);
        assert_eq!(queue.reached(now), 200_000, "it is not behind what has left the queue");
        queue.is_full(start + Span::from_us(500));
        assert_eq!(queue.reached(start + Span::from_us(500)), 203_000, "its last frame may be on the line by now");
    }

    #[test]
    fn only_a_queue_that_outlasts_a_tick_lets_its_pacer_sleep() {
        // 4 frames of 1000 byte times are 3.2 µs, 3000 are 2.4 ms.
        let (few, start) = queue(4);
        assert_eq!(few.nap(start), Duration::ZERO);
        let (many, start) = queue(3_000);
        assert_eq!(many.nap(start), Duration::from_micros(300));
        assert_eq!(many.nap(start + Span::from_us(399)), Duration::from_nanos(250_125));
        assert_eq!(many.nap(start + Span::from_us(400)), Duration::ZERO, "2 ms are left");
    }

    #[test]
    fn ports_that_refuse_nothing_are_bounded() {
        let (mut queue, start) = queue(4);
        assert!(!queue.is_ahead(start));
        for n in 0..66 {
            queue.took(4_000 + n * 3_076, &[1_538, 1_538], start);
        }
        assert!(queue.is_ahead(start) && !queue.is_ahead(start + Span::from_us(4)));
    }

    /// 1000 byte times last 0.8 µs, and up to 4 + 64 frames may be held.
    #[test]
    fn a_port_that_takes_more_than_passes_is_seen() {
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
    fn a_port_that_is_slower_than_its_line_is_seen() {
        // It took 1000 frames and refused more, so it has sent up to 999, which should have taken 799.2 µs.
        for (elapsed_us, slower) in [(700, false), (850, false), (1_600, true)] {
            let (mut queue, start) = queue(1_000);
            let now = start + Span::from_us(elapsed_us);
            queue.is_full(now);
            let sent = queue.pace(now).map(|(sent, _)| sent);
            assert_eq!(sent, slower.then_some(Span::from_ns(799_200)), "after {elapsed_us} µs");
        }
    }
}
