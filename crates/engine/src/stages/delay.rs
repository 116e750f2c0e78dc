use super::{Configuration, Item, Kind, Outlet, Stage};
use crate::random::Random;
use packet::Frame;
use std::collections::VecDeque;
use std::fmt;
use units::{ParseError, Span, Time};

/// Every frame stays for the same time, so that order is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// How long.
    pub by: Span,
}

impl Configuration for Delay {
    const KIND: Kind = Kind {
        name: "delay",
        grammar: "delay TIME",
        summary: "holds every frame for TIME",
        example: "delay 20ms",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        match words {
            [time] => Ok(Delay { by: time.parse()? }),
            _ => Err(ParseError::new("delay takes one time", "write delay 20ms")),
        }
    }

    fn build<F: Frame + Send + 'static>(&self, _: Random) -> Box<dyn Stage<F>> {
        Box::new(Holding { by: self.by, held: VecDeque::new() })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", self.by)
    }
}

/// Frames in the order in which they leave, with the instants at which they do.
struct Holding<F> {
    by: Span,
    held: VecDeque<Item<F>>,
}

impl<F: Frame + Send> Stage<F> for Holding<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        self.held.extend(batch.drain(..).map(|item| Item { at: item.at + self.by, ..item }));
        self.wake(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        while self.held.front().is_some_and(|item| item.at <= now) {
            if let Some(item) = self.held.pop_front() {
                out.release(item);
            }
        }
    }

    fn deadline(&self) -> Option<Time> {
        self.held.front().map(|item| item.at)
    }

    fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::HeapFrame;

    #[test]
    fn effect_both_sides_of_the_delay() {
        let mut stage = Delay { by: Span::from_us(5) }.build(Random::stream(1, "test"));
        let mut out = Outlet::default();
        let item = Item { frame: HeapFrame::new(vec![1; 60]), at: Time::from_ps(1_000) };
        stage.push(Time::from_ps(1_000), &mut vec![item], &mut out);
        assert_eq!((out.released.len(), stage.held()), (0, 1));
        assert_eq!(stage.deadline(), Some(Time::from_ps(5_001_000)));
        stage.wake(Time::from_ps(5_000_999), &mut out);
        assert_eq!(out.released.len(), 0, "one picosecond early");
        stage.wake(Time::from_ps(9_000_000), &mut out);
        assert_eq!(out.released[0].at, Time::from_ps(5_001_000), "a late driver does not move the frame");
    }
}
