use super::{Configuration, Decision, Fate, Item, Kind, Outlet, Stage, Timed, arrived, frames_of_10g};
use crate::random::Random;
use crate::schedules::Files;
use measure::Effect;
use packet::Frame;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{ParseError, Span, Time};

/// Repeats the logged decisions of an earlier run, frame by frame.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The log of decisions.
    pub file: PathBuf,
    decisions: Arc<Vec<Decision>>,
}

impl PartialEq for Replay {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Configuration for Replay {
    const KIND: Kind = Kind {
        name: "replay",
        grammar: "replay FILE",
        summary: "repeats the decisions of a log (emulate --decisions)",
        example: "replay decisions.csv",
    };

    fn parse(words: &[&str]) -> Result<Self, ParseError> {
        match words {
            [file] => Ok(Replay { file: file.into(), decisions: Arc::default() }),
            _ => Err(ParseError::new("replay takes one file", "write replay decisions.csv")),
        }
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        let text = files.text(&self.file)?;
        let name = self.file.display();
        let mut decisions = Vec::new();
        let mut lines = (1..).zip(text.lines());
        if lines.next().map(|(_, line)| line) != Some(Decision::HEADER) {
            return Err(ParseError::new(
                format!("{name}:1: this is not a log of decisions"),
                format!("give a file that emulate --decisions wrote: its first line is {}", Decision::HEADER),
            ));
        }
        for (number, line) in lines {
            let decision = Decision::parse(line).map_err(|error| {
                ParseError::new(format!("{name}:{number}: {error}"), "correct the line, or write the log again")
            })?;
            decisions.push(decision);
        }
        // In the log, a copy comes before its frame.
        decisions.sort_by_key(|decision| (decision.frame, decision.copy));
        self.decisions = Arc::new(decisions);
        Ok(())
    }

    fn room(&self) -> u64 {
        frames_of_10g(self.decisions.iter().map(|decision| decision.delay).max().unwrap_or_default())
    }

    fn build<F: Frame + Send + 'static>(&self, _: Random) -> Box<dyn Stage<F>> {
        let (decisions, queue) = (self.decisions.clone(), Timed::sorting());
        Box::new(Replaying { decisions, next: 0, number: 0, queue, kept: Vec::new() })
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replay {}", self.file.display())
    }
}

struct Replaying<F> {
    decisions: Arc<Vec<Decision>>,
    next: usize,
    number: u64,
    queue: Timed<(u64, F)>,
    /// Frames that were still held when the logged run ended.
    kept: Vec<F>,
}

impl<F: Frame> Replaying<F> {
    fn follow(&mut self, decision: &Decision, at: Time, mut frame: F, out: &mut Outlet<F>) {
        let mark = |frame: &mut F, out: &mut Outlet<F>| {
            super::decision::mark(frame);
            out.effects.count(Effect::Marked);
        };
        if decision.marked {
            mark(&mut frame, out);
        }
        if let Some(change) = decision.change {
            change.apply(&mut frame);
            out.effects.count(Effect::Corrupted);
        }
        match decision.fate {
            Fate::Drop(reason) => return out.discard(frame, reason),
            Fate::Held => return self.kept.push(frame),
            Fate::Mark => mark(&mut frame, out),
            Fate::Pass => {}
        }
        let mut leaves = at;
        if decision.delay > Span::ZERO {
            leaves = arrived(&frame, at) + decision.delay;
            frame.forget_wait();
        }
        self.queue.push(leaves, (decision.frame, frame));
    }

    fn release(&mut self, now: Time, out: &mut Outlet<F>) {
        while let Some((at, (number, frame))) = self.queue.pop(now) {
            out.effects.leaves(number);
            out.release(Item { frame, at });
        }
    }
}

impl<F: Frame + Send> Stage<F> for Replaying<F> {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<F>>, out: &mut Outlet<F>) {
        let decisions = self.decisions.clone();
        for Item { frame, at } in batch.drain(..) {
            self.release(at, out);
            let number = self.number;
            self.number += 1;
            let from = self.next;
            while decisions.get(self.next).is_some_and(|decision| decision.frame <= number) {
                self.next += 1;
            }
            let Some((own, copies)) = decisions[from..self.next].split_first() else {
                out.effects.count(Effect::Unlogged);
                out.effects.leaves(number);
                out.release(Item { frame, at });
                continue;
            };
            for decision in copies {
                if let Some(copy) = out.copy(&frame) {
                    out.effects.count(Effect::Duplicated);
                    self.follow(decision, at, copy, out);
                }
            }
            self.follow(own, at, frame, out);
        }
        self.release(now, out);
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<F>) {
        self.release(now, out);
    }

    fn deadline(&self) -> Option<Time> {
        self.queue.first()
    }

    fn delays(&self) -> bool {
        true
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn held(&self) -> usize {
        self.queue.len() + self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::Text;
    use crate::stages::StageConfig;
    use packet::HeapFrame;

    #[test]
    fn effect_repeats_the_logged_decisions() {
        let log = "frame,copy,fate,delay_ps,change\n0,0,loss,0,\n1,1,pass,7,\n1,0,pass,5,flip 3 0x01\n";
        let mut config = StageConfig::parse("replay log.csv").expect("a stage");
        config.load(&Text(log)).expect("a log");
        let mut stage = config.build::<HeapFrame>(1, "test");
        let mut out = Outlet::default();
        let item = || Item { frame: HeapFrame::new(vec![0; 60]), at: Time::ZERO };
        stage.push(Time::ZERO, &mut vec![item(), item(), item()], &mut out);
        assert_eq!((out.released.len(), out.dropped.len(), out.copies), (1, 1, 1));
        assert_eq!(out.effects.counted(Effect::Unlogged), 1);
        stage.wake(Time::from_ps(9), &mut out);
        let left: Vec<_> = out.released[1..].iter().map(|item| (item.at.as_ps(), item.frame.bytes()[3])).collect();
        assert_eq!(left, [(5, 1), (7, 0)]);
    }

    #[test]
    fn refuses_other_files_with_the_line() {
        let load = |text| {
            let mut config = StageConfig::parse("replay log.csv").expect("a stage");
            config.load(&Text(text)).expect_err(text).to_string()
        };
        assert!(load("start_ps,length\n").contains("log.csv:1"));
        assert!(load("frame,copy,fate,delay_ps,change\n0,0,gone,0,\n").contains("log.csv:2"));
    }
}
