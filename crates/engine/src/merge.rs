use crate::Line;
use crate::departure::Departure;
use crate::lane::Lane;
use measure::{Contended, FrameCounters};
use packet::Frame;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use units::{FrameLen, Time};

/// Merges the departures of several classes and counts how long they wait for each other. Not needed with a single
/// class.
pub(crate) struct Merge {
    /// Settled departures, earliest first; ties in class order.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    /// Classes that may have a ready frame but no settled departure.
    unsettled: Vec<u32>,
    is_unsettled: Vec<bool>,
    /// Number of classes with a settled departure, including departures that never come.
    settled: usize,
    is_settled: Vec<bool>,
    /// When to wake each class. An entry that differs from `noted` is stale; the first entry never is.
    wakes: BinaryHeap<Reverse<(Time, u32)>>,
    noted: Vec<Option<Time>>,
    held: Vec<usize>,
    held_in_all: usize,
    line: Option<Line>,
    /// The class of the last departure, and the instant at which the line is free after it.
    last: Option<(u32, Time)>,
    contended: Vec<Contended>,
}

impl Merge {
    /// A merge of `classes` classes; `line` is the line of the output, if it has one.
    pub(crate) fn new(classes: usize, line: Option<Line>) -> Self {
        Merge {
            due: BinaryHeap::new(),
            unsettled: Vec::new(),
            is_unsettled: vec![false; classes],
            settled: 0,
            is_settled: vec![false; classes],
            wakes: BinaryHeap::new(),
            noted: vec![None; classes],
            held: vec![0; classes],
            held_in_all: 0,
            line,
            last: None,
            contended: vec![Contended::default(); classes],
        }
    }

    /// Updates the readiness, wake time and held-frame count of a class. Call after any change to it.
    #[inline]
    pub(crate) fn touched<F: Frame>(&mut self, lane: &Lane<F>) {
        if self.noted.len() == 1 {
            return;
        }
        let class = lane.class as usize;
        let held = lane.held();
        self.held_in_all = self.held_in_all - self.held[class] + held;
        self.held[class] = held;
        if !lane.is_settled() && lane.waiting() > 0 && !self.is_unsettled[class] {
            self.is_unsettled[class] = true;
            self.unsettled.push(lane.class);
        }
        let deadline = lane.deadline();
        if self.noted[class] != deadline {
            self.noted[class] = deadline;
            if let Some(at) = deadline {
                self.wakes.push(Reverse((at, lane.class)));
            }
            while let Some(Reverse((at, class))) = self.wakes.peek()
                && self.noted[*class as usize] != Some(*at)
            {
                self.wakes.pop();
            }
        }
    }

    /// A class to wake by `now`. Only with several classes.
    pub(crate) fn wakes(&self, now: Time) -> Option<usize> {
        let Reverse((at, class)) = self.wakes.peek()?;
        (*at <= now).then_some(*class as usize)
    }

    /// When to wake the next class.
    pub(crate) fn deadline<F: Frame>(&self, lanes: &[Lane<F>]) -> Option<Time> {
        match lanes {
            [lane] => lane.deadline(),
            _ => self.wakes.peek().map(|Reverse((at, _))| *at),
        }
    }

    fn settle<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut FrameCounters) {
        while let Some(class) = self.unsettled.pop() {
            self.is_unsettled[class as usize] = false;
            let lane = &mut lanes[class as usize];
            if let Some(at) = lane.due() {
                self.settled += 1;
                self.is_settled[class as usize] = true;
                // A departure that never comes must not block the other classes or their buffers.
                if at < Time::MAX {
                    self.due.push(Reverse((at, class)));
                } else {
                    lane.end(books);
                    self.touched(lane);
                }
            }
        }
    }

    /// When the next departure is due. Counts frames in `books` that turn out never to depart.
    pub(crate) fn due<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut FrameCounters) -> Option<Time> {
        self.settle(lanes, books);
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next departure. `books` is used as in [`due`](Merge::due).
    pub(crate) fn take<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut FrameCounters) -> Option<Departure<F>> {
        self.settle(lanes, books);
        let Reverse((_, class)) = self.due.pop()?;
        let departure = lanes[class as usize].take();
        self.settled -= 1;
        self.is_settled[class as usize] = false;
        self.touched(&lanes[class as usize]);
        departure
    }

    /// Marks the departure of a class as unsettled after its departure settings changed.
    pub(crate) fn changed<F: Frame>(&mut self, lane: &Lane<F>) {
        let class = lane.class as usize;
        if self.noted.len() == 1 {
            return;
        }
        if std::mem::take(&mut self.is_settled[class]) {
            self.settled -= 1;
            self.due.retain(|Reverse((_, other))| *other != lane.class);
        }
        if lane.waiting() > 0 && !self.is_unsettled[class] {
            self.is_unsettled[class] = true;
            self.unsettled.push(lane.class);
        }
    }

    /// True if every class has a settled departure and no schedule follows the queue depth.
    pub(crate) fn settled<F: Frame>(&self, lanes: &[Lane<F>]) -> bool {
        self.settled == lanes.len() && !lanes.iter().any(|lane| lane.schedule.watches_depth())
    }

    /// Frames held by all classes.
    pub(crate) fn held(&self) -> u64 {
        self.held_in_all as u64
    }

    /// Records a departure. Counts it as contended if, when it was due, the line was busy with a frame of another
    /// class.
    pub(crate) fn departed(&mut self, class: u32, length: FrameLen, ask: Time, start: Time) {
        let Some(line) = self.line else { return };
        if let Some((other, free)) = self.last
            && other != class
            && ask < free
            && start > ask
        {
            let contended = &mut self.contended[class as usize];
            contended.frames += 1;
            contended.max_ns = contended.max_ns.max(start.since(ask).as_ns_f64());
        }
        self.last = Some((class, start + line.span(u64::from(length.on_wire().bytes()))));
    }

    /// How often a class waited for other classes.
    pub(crate) fn contended(&self, class: u32) -> Contended {
        self.contended[class as usize]
    }
}
