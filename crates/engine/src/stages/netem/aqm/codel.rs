use super::super::grammar::Cursor;
use super::super::queue::Bottleneck;
use super::{Backlog, Configuration, Fifo, Manager, Queue, Verdict};
use crate::random::Random;
use packet::Frame;
use std::fmt;
use units::{ParseError, Span, Time};

/// CoDel (RFC 8289): selects frames at the head of the queue once all frames of an `interval` have waited longer than
/// `target`. It starts with one frame per interval and then increases the rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Codel {
    /// The acceptable wait.
    pub target: Span,
    /// Approximate upper limit of the round-trip time.
    pub interval: Span,
}

impl Default for Codel {
    fn default() -> Self {
        Codel { target: Span::from_ms(5), interval: Span::from_ms(100) }
    }
}

impl Codel {
    /// Parses the value of `word` if it is a keyword of CoDel. Returns whether it was.
    pub(super) fn reads(&mut self, word: &str, cursor: &mut Cursor<'_>) -> Result<bool, ParseError> {
        let value = match word {
            "target" => &mut self.target,
            "interval" => &mut self.interval,
            _ => return Ok(false),
        };
        cursor.next();
        *value = cursor.some_time()?;
        Ok(true)
    }
}

impl Configuration for Codel {
    const NAME: &'static str = "codel";

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let mut codel = Codel::default();
        while let Some(word) = cursor.peek()
            && codel.reads(word, cursor)?
        {}
        Ok(codel)
    }

    fn build<F: Frame + Send + 'static>(&self, _: &Bottleneck, _: Random) -> Box<dyn Queue<F>> {
        Box::new(Fifo::new(Control::new(self)))
    }
}

impl fmt::Display for Codel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {} interval {}", Self::NAME, self.target, self.interval)
    }
}

/// The state of RFC 8289, section 5, with its names.
pub(super) struct Control {
    target: Span,
    interval: Span,
    /// Length of the longest frame, but at least a full Ethernet frame. Up to this backlog, the wait is that of the
    /// link itself.
    max_packet: u32,
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    last_count: u32,
    /// Whether the previous frame was selected. The next selection is postponed if that frame was marked or the wait is
    /// still too long.
    chose: bool,
}

/// The longest Ethernet frame, without FCS.
const ETHERNET: u32 = 1_514;
/// Dropping resumes at its previous rate if it ended less than this many intervals ago.
const RECENT: u64 = 16;

impl Control {
    pub(super) fn new(config: &Codel) -> Self {
        Control {
            target: config.target,
            interval: config.interval,
            max_packet: ETHERNET,
            first_above: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            chose: false,
        }
    }

    /// Whether all frames of an interval have waited too long.
    fn is_above(&mut self, now: Time, waited: Span, left: u64) -> bool {
        if waited < self.target || left <= u64::from(self.max_packet) {
            self.first_above = None;
            return false;
        }
        now >= *self.first_above.get_or_insert(now + self.interval)
    }

    /// Whether dropping that starts at `now` would resume the previous rate.
    pub(super) fn resumes(&self, now: Time) -> bool {
        self.count.saturating_sub(self.last_count) > 1 && now.since(self.drop_next) < self.interval * RECENT
    }

    /// Postpones the next selection.
    fn put_off(&mut self) {
        if std::mem::take(&mut self.chose) {
            self.drop_next = self.after(self.drop_next);
        }
    }

    /// The intervals shrink so that TCP slows down linearly, since its rate falls with the square root of its losses.
    fn after(&self, time: Time) -> Time {
        time + Span::from_ps((self.interval.as_ps() as f64 / f64::from(self.count).sqrt()).round() as u64)
    }
}

impl Manager for Control {
    fn marked(&mut self) {
        self.put_off();
    }

    fn on_idle(&mut self) {
        // The last frames may have been dropped to free space, which `dequeue` does not see.
        self.first_above = None;
        self.dropping = false;
    }

    fn dequeue(&mut self, now: Time, waited: Span, bytes: u32, backlog: Backlog) -> Verdict {
        self.max_packet = self.max_packet.max(bytes);
        if !self.is_above(now, waited, backlog.bytes) {
            self.dropping = false;
            return Verdict::Stays;
        }
        if self.dropping {
            self.put_off();
            if now < self.drop_next {
                return Verdict::Stays;
            }
            self.count = self.count.saturating_add(1);
            self.chose = true;
            return Verdict::Chosen;
        }
        self.dropping = true;
        self.count = if self.resumes(now) { self.count - self.last_count } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.after(now);
        self.chose = false;
        Verdict::Chosen
    }
}
