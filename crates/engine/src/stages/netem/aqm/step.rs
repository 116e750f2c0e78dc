use super::super::grammar::{self, Cursor};
use super::super::queue::{Bottleneck, QueueLimit};
use super::{Backlog, Configuration, Fifo, Manager, Queue, Verdict};
use crate::random::Random;
use packet::Frame;
use std::fmt;
use units::{ParseError, Span, Time};

/// Selects each frame that finds more than a limit in the queue or has waited longer. This is the marking of DCTCP (RFC
/// 8257, section 3.1) and of a shallow queue for L4S (RFC 9332).
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The limit.
    pub above: QueueLimit,
}

impl Configuration for Step {
    const NAME: &'static str = "step";

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let above = |word: &str| {
            let is_not = || ("is where 'above' should be".to_owned(), "write queue step above 65".to_owned());
            (word == "above").then_some(()).ok_or_else(is_not)
        };
        cursor.value(above, "above 65")?;
        Ok(Step { above: grammar::limit(cursor)? })
    }

    fn build<F: Frame + Send + 'static>(&self, _: &Bottleneck, _: Random) -> Box<dyn Queue<F>> {
        Box::new(Fifo::new(self.above))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} above {}", Self::NAME, self.above)
    }
}

impl Manager for QueueLimit {
    fn enqueue(&mut self, _: Time, backlog: Backlog) -> Verdict {
        Verdict::chosen_if(match *self {
            QueueLimit::Frames(most) => backlog.frames > most,
            QueueLimit::Bytes(most) => backlog.bytes > most,
            QueueLimit::Wait(_) => false,
        })
    }

    fn dequeue(&mut self, _: Time, waited: Span, _: u32, _: Backlog) -> Verdict {
        Verdict::chosen_if(matches!(*self, QueueLimit::Wait(most) if waited > most))
    }
}
