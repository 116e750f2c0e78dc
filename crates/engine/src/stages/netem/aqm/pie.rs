use super::super::grammar::Cursor;
use super::super::queue::Bottleneck;
use super::{Backlog, Configuration, Fifo, Manager, Queue, Verdict, happens};
use crate::random::Random;
use packet::Frame;
use std::fmt;
use units::{ParseError, Span, Time};

/// PIE (RFC 8033): selects arriving frames with a probability that a controller adjusts so that frames wait for
/// `target`.
#[derive(Clone, Debug, PartialEq)]
pub struct Pie {
    /// The target wait.
    pub target: Span,
    /// Interval between updates of the probability.
    pub tupdate: Span,
}

impl Configuration for Pie {
    const NAME: &'static str = "pie";

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let mut pie = Pie { target: Span::from_ms(15), tupdate: Span::from_ms(15) };
        while let Some(word) = cursor.peek() {
            let value = match word {
                "target" => &mut pie.target,
                "tupdate" => &mut pie.tupdate,
                _ => break,
            };
            cursor.next();
            *value = cursor.some_time()?;
            if pie.tupdate < OFTEN {
                return Err(cursor.error("is too often", "write 15ms, or 100us at least"));
            }
        }
        Ok(pie)
    }

    fn build<F: Frame + Send + 'static>(&self, _: &Bottleneck, random: Random) -> Box<dyn Queue<F>> {
        Box::new(Fifo::new(Controller {
            config: self.clone(),
            updates: Time::ZERO + self.tupdate,
            probability: 0.0,
            accumulated: 0.0,
            delay: Span::ZERO,
            delay_before: Span::ZERO,
            burst: MAX_BURST,
            random,
        }))
    }
}

impl fmt::Display for Pie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} target {} tupdate {}", Self::NAME, self.target, self.tupdate)
    }
}

/// Minimum of `tupdate`. With a shorter one, a slow link would have many more updates than frames.
const OFTEN: Span = Span::from_us(100);
/// After a pause, no frame is selected for this time.
const MAX_BURST: Span = Span::from_ms(150);
/// No frame is selected while the queue holds less than two of these, in bytes.
const MEAN_PACKET: u64 = 1_024;
/// Up to this probability, frames are marked rather than dropped (section 5.1).
const MARKS: f64 = 0.1;
/// Gains of the controller in 1/s: for the wait beyond the target, and for the growth of the wait.
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Steps for small probabilities: below the first number, the change is divided by the second.
const STEPS: [(f64, f64); 6] =
    [(0.000_001, 2_048.0), (0.000_01, 512.0), (0.000_1, 128.0), (0.001, 32.0), (0.01, 8.0), (0.1, 2.0)];

/// The state of RFC 8033, appendix A. The wait is that of the last departed frame.
struct Controller {
    config: Pie,
    /// Time of the next update.
    updates: Time,
    probability: f64,
    accumulated: f64,
    delay: Span,
    /// The wait at the last update.
    delay_before: Span,
    /// Remaining burst allowance.
    burst: Span,
    random: Random,
}

impl Controller {
    fn is_idle(&self) -> bool {
        self.probability <= 0.0
            && self.delay == Span::ZERO
            && self.delay_before == Span::ZERO
            && self.burst == MAX_BURST
    }

    fn update_until(&mut self, now: Time) {
        while self.updates <= now {
            self.update();
            self.updates += self.config.tupdate;
            if self.is_idle() {
                // The state no longer changes, so the remaining updates are skipped.
                let rest = now.since(self.updates).as_ps() / self.config.tupdate.as_ps();
                self.updates += self.config.tupdate * rest;
            }
        }
    }

    fn update(&mut self) {
        let (now, before) = (self.delay.as_secs_f64(), self.delay_before.as_secs_f64());
        let mut change = ALPHA * (now - self.config.target.as_secs_f64()) + BETA * (now - before);
        if let Some((_, less)) = STEPS.iter().find(|(below, _)| self.probability < *below) {
            change /= less;
        }
        if self.probability >= 0.1 {
            change = change.min(0.02);
        }
        self.probability += change;
        let half = self.config.target.as_ps() / 2;
        let short = self.delay.as_ps() < half && self.delay_before.as_ps() < half;
        if short {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.delay_before = self.delay;
        self.burst = self.burst - self.config.tupdate.min(self.burst);
        if self.probability <= 0.0 && short {
            self.burst = MAX_BURST;
        }
    }
}

impl Manager for Controller {
    fn enqueue(&mut self, now: Time, backlog: Backlog) -> Verdict {
        self.update_until(now);
        let short = self.delay_before.as_ps() < self.config.target.as_ps() / 2 && self.probability < 0.2;
        if self.burst > Span::ZERO || short || backlog.bytes <= 2 * MEAN_PACKET {
            return Verdict::Stays;
        }
        // Avoids both adjacent selections and long gaps (RFC 8033, section 5.4).
        self.accumulated = if self.probability <= 0.0 { 0.0 } else { self.accumulated + self.probability };
        let chosen =
            self.accumulated >= 0.85 && (self.accumulated >= 8.5 || happens(&mut self.random, self.probability));
        if chosen {
            self.accumulated = 0.0;
        }
        if chosen && self.probability > MARKS { Verdict::Dropped } else { Verdict::chosen_if(chosen) }
    }

    fn dequeue(&mut self, now: Time, waited: Span, _: u32, backlog: Backlog) -> Verdict {
        self.update_until(now);
        self.delay = if backlog.frames == 0 { Span::ZERO } else { waited };
        Verdict::Stays
    }
}
