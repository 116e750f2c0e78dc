use super::super::grammar::Cursor;
use super::super::queue::Bottleneck;
use super::super::units_of_tc as tc;
use super::codel::{Codel, Control};
use super::{Backlog, Configuration, Fifo, Hits, Queue, Waiting};
use crate::random::Random;
use measure::DropReason;
use packet::{Frame, flow_hash};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use units::{ParseError, Time};

/// `FQ-CoDel` (RFC 8290): a queue with CoDel for each flow, which take turns; a flow that has just begun goes first. A flow is
/// what [`flow_hash`] tells apart: addresses and ports.
#[derive(Clone, Debug, PartialEq)]
pub struct FqCodel {
    /// Of each flow.
    pub codel: Codel,
    /// Bytes without FCS that a flow may send in a turn.
    pub quantum: u64,
}

impl Configuration for FqCodel {
    const NAME: &'static str = "fq_codel";

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let (mut codel, mut quantum) = (Codel::default(), 1_514);
        while let Some(word) = cursor.peek() {
            if word == "quantum" {
                cursor.next();
                quantum = cursor.value(tc::count, "bytes such as 300")?;
                if !(1..=u64::from(u32::MAX)).contains(&quantum) {
                    return Err(cursor.error("is no turn of a flow", "write 1514, or 300 to favour short frames"));
                }
            } else if !codel.reads(word, cursor)? {
                break;
            }
        }
        Ok(FqCodel { codel, quantum })
    }

    fn build<F: Frame + Send + 'static>(&self, _: &Bottleneck, _: Random) -> Box<dyn Queue<F>> {
        Box::new(Fair {
            config: self.clone(),
            flows: HashMap::new(),
            lengths: BTreeSet::new(),
            ended: HashMap::new(),
            crowd: CROWD,
            new: VecDeque::new(),
            old: VecDeque::new(),
            all: Backlog::default(),
        })
    }
}

impl fmt::Display for FqCodel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FqCodel { codel, quantum } = self;
        write!(f, "{} target {} interval {} quantum {quantum}", Self::NAME, codel.target, codel.interval)
    }
}

/// So few flows that ended are not worth a look.
const CROWD: usize = 1_024;
/// Frames that go at once at most to make room, as in the RFC and in Linux.
const BATCH: usize = 64;

/// The state of RFC 8290, section 4.
struct Fair<F> {
    config: FqCodel,
    /// By the hash of their addresses and ports.
    flows: HashMap<u32, Flow<F>>,
    /// The bytes of each that has any.
    lengths: BTreeSet<(u64, u32)>,
    /// What flows that ended of late take up again when they return.
    ended: HashMap<u32, Control>,
    /// From so many on, those of them that no longer matter are let go.
    crowd: usize,
    /// Those that just began, and the others, in the order of their turns.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    all: Backlog,
}

struct Flow<F> {
    queue: Fifo<F, Control>,
    /// Bytes that it may still send in this turn; below zero of the next.
    credit: i64,
}

impl<F: Frame + Send> Fair<F> {
    /// What one flow has, before and after what `change` does to it, is what all have.
    fn of<T>(&mut self, id: u32, change: impl FnOnce(&mut Flow<F>) -> T) -> Option<T> {
        let flow = self.flows.get_mut(&id)?;
        let before = flow.queue.backlog();
        let done = change(flow);
        let after = flow.queue.backlog();
        self.all.frames = self.all.frames + after.frames - before.frames;
        self.all.bytes = self.all.bytes + after.bytes - before.bytes;
        if before.bytes != after.bytes {
            self.lengths.remove(&(before.bytes, id));
        }
        if after.bytes > 0 {
            self.lengths.insert((after.bytes, id));
        }
        Some(done)
    }

    /// Whose turn it is, and whether it has just begun.
    fn first(&mut self) -> Option<(u32, bool)> {
        loop {
            let begins = !self.new.is_empty();
            let id = *if begins { &self.new } else { &self.old }.front()?;
            let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.credit <= 0) else { return Some((id, begins)) };
            flow.credit += self.config.quantum.cast_signed();
            self.rests(begins);
        }
    }

    /// The first one goes behind the old ones.
    fn rests(&mut self, begins: bool) {
        let first = if begins { self.new.pop_front() } else { self.old.pop_front() };
        self.old.extend(first);
    }

    fn begins(&mut self, id: u32) {
        self.flows.entry(id).or_insert_with(|| {
            self.new.push_back(id);
            let control = self.ended.remove(&id).unwrap_or_else(|| Control::new(&self.config.codel));
            Flow { queue: Fifo::new(control), credit: self.config.quantum.cast_signed() }
        });
    }

    /// A flow has no frames any more. Its queue is gone, but not what CoDel has learned of it.
    fn ends(&mut self, id: u32, now: Time) {
        let Some(Flow { queue, .. }) = self.flows.remove(&id) else { return };
        if queue.manager.resumes(now) {
            self.ended.insert(id, queue.manager);
        }
        if self.ended.len() >= self.crowd {
            self.ended.retain(|_, control| control.resumes(now));
            self.crowd = CROWD.max(2 * self.ended.len());
        }
    }
}

impl<F: Frame + Send> Queue<F> for Fair<F> {
    fn backlog(&self) -> Backlog {
        self.all
    }

    fn push(&mut self, now: Time, frame: Waiting<F>, hits: &mut Hits<'_, F>) {
        let id = flow_hash(frame.frame.bytes());
        self.begins(id);
        self.of(id, |flow| flow.queue.push(now, frame, hits));
    }

    fn pop(&mut self, now: Time, hits: &mut Hits<'_, F>) -> Option<Waiting<F>> {
        while let Some((id, begins)) = self.first() {
            let next = self.of(id, |flow| {
                let next = flow.queue.pop(now, hits);
                flow.credit -= next.as_ref().map_or(0, |next| i64::from(next.bytes));
                next
            });
            if let Some(Some(next)) = next {
                return Some(next);
            }
            if begins {
                // Behind the others once: it would come first again and again else.
                self.rests(begins);
            } else {
                self.old.pop_front();
                self.ends(id, now);
            }
        }
        None
    }

    /// Of the flow that has most, the frame that comes included, half of the frames go, from the head: section 4.1.
    fn makes_room(&mut self, comes: &F, bytes: u32, hits: &mut Hits<'_, F>) -> bool {
        let own = flow_hash(comes.bytes());
        let with_it = u64::from(bytes) + self.flows.get(&own).map_or(0, |flow| flow.queue.bytes);
        let most = self.lengths.last().map_or(own, |longest| (*longest).max((with_it, own)).1);
        // The frame that comes would be in its queue by now: the flow has begun even if that is all it had.
        self.begins(most);
        let drop_half = |flow: &mut Flow<F>| {
            let frames = flow.queue.frames.len() + usize::from(own == most);
            let half = frames.div_ceil(2).min(BATCH).min(flow.queue.frames.len());
            flow.queue.frames.drain(..half).for_each(|first| {
                flow.queue.bytes -= u64::from(first.bytes);
                hits.drop(first, DropReason::Queue);
            });
            half > 0
        };
        self.of(most, drop_half).unwrap_or_default()
    }
}
