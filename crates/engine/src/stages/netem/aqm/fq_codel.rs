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

/// `FQ-CoDel` (RFC 8290): one CoDel queue per flow, served in turn, with new flows first. [`flow_hash`] identifies
/// flows by addresses and ports.
#[derive(Clone, Debug, PartialEq)]
pub struct FqCodel {
    /// CoDel of each flow.
    pub codel: Codel,
    /// Bytes without FCS that a flow may send per turn.
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
                    return Err(cursor.error("is not a quantum", "write 1514, or 300 to favour short frames"));
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

/// Ended flows are purged only beyond this number.
const CROWD: usize = 1_024;
/// Maximum number of frames dropped at once to free space, as in the RFC and in Linux.
const BATCH: usize = 64;

/// The state of RFC 8290, section 4.
struct Fair<F> {
    config: FqCodel,
    /// Flows by the hash of addresses and ports.
    flows: HashMap<u32, Flow<F>>,
    /// Backlog in bytes of each flow that has one.
    lengths: BTreeSet<(u64, u32)>,
    /// CoDel states of recently ended flows, restored when they return.
    ended: HashMap<u32, Control>,
    /// Number of ended flows at which irrelevant ones are purged.
    crowd: usize,
    /// New flows and old flows, each in order of their turns.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    all: Backlog,
}

struct Flow<F> {
    queue: Fifo<F, Control>,
    /// Number of bytes that it may still send in this turn; negative if it used part of the next turn.
    credit: i64,
}

impl<F: Frame + Send> Fair<F> {
    /// Applies `change` to one flow and updates the totals.
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

    /// The flow whose turn it is, and whether it is new.
    fn first(&mut self) -> Option<(u32, bool)> {
        loop {
            let begins = !self.new.is_empty();
            let id = *if begins { &self.new } else { &self.old }.front()?;
            let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.credit <= 0) else { return Some((id, begins)) };
            flow.credit += self.config.quantum.cast_signed();
            self.rests(begins);
        }
    }

    /// Moves the first flow to the end of the old flows.
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

    /// Removes a flow without frames. Keeps its CoDel state if that is still relevant.
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
                // Moves it after the old flows once; otherwise it would always be first.
                self.rests(begins);
            } else {
                self.old.pop_front();
                self.ends(id, now);
            }
        }
        None
    }

    /// Drops half the frames of the flow with the largest backlog from its head (section 4.1). The arriving frame
    /// counts as part of its flow.
    fn makes_room(&mut self, arriving: &F, bytes: u32, hits: &mut Hits<'_, F>) -> bool {
        let own = flow_hash(arriving.bytes());
        let with_it = u64::from(bytes) + self.flows.get(&own).map_or(0, |flow| flow.queue.bytes);
        let most = self.lengths.last().map_or(own, |longest| (*longest).max((with_it, own)).1);
        // The arriving frame counts as queued, so its flow has started even if it has no other frame.
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
