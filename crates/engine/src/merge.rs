use crate::Line;
use crate::lane::Lane;
use crate::pipeline::Departure;
use measure::{Books, Contended};
use packet::Frame;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use units::{FrameLen, Time};

/// The order of departures of several classes, and what they cost each other. One class needs none of it.
pub(crate) struct Merge {
    /// Settled departures, the earliest first, ties in the order of classes.
    due: BinaryHeap<Reverse<(Time, u32)>>,
    /// Classes that may have something ready and nothing settled.
    unsettled: Vec<u32>,
    is_unsettled: Vec<bool>,
    /// Classes with a settled departure, also one that never comes.
    settled: usize,
    /// When classes are to be woken. An entry that is not in `noted` is out of date; the first never is.
    wakes: BinaryHeap<Reverse<(Time, u32)>>,
    noted: Vec<Option<Time>>,
    held: Vec<usize>,
    held_in_all: usize,
    line: Option<Line>,
    /// The class of the last departure, and when the line is free after it.
    last: Option<(u32, Time)>,
    contended: Vec<Contended>,
}

impl Merge {
    /// The order of so many classes; `line` is that of the output, if it has one.
    pub(crate) fn new(classes: usize, line: Option<Line>) -> Self {
        Merge {
            due: BinaryHeap::new(),
            unsettled: Vec::new(),
            is_unsettled: vec![false; classes],
            settled: 0,
            wakes: BinaryHeap::new(),
            noted: vec![None; classes],
            held: vec![0; classes],
            held_in_all: 0,
            line,
            last: None,
            contended: vec![Contended::default(); classes],
        }
    }

    /// Something was done to a class: it may be ready, wait for another time, or hold more or less.
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

    /// A class that is to be woken by `now`, of several.
    pub(crate) fn wakes(&self, now: Time) -> Option<usize> {
        let Reverse((at, class)) = self.wakes.peek()?;
        (*at <= now).then_some(*class as usize)
    }

    /// When the next class is to be woken.
    pub(crate) fn deadline<F: Frame>(&self, lanes: &[Lane<F>]) -> Option<Time> {
        match lanes {
            [lane] => lane.deadline(),
            _ => self.wakes.peek().map(|Reverse((at, _))| *at),
        }
    }

    fn settle<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut Books) {
        while let Some(class) = self.unsettled.pop() {
            self.is_unsettled[class as usize] = false;
            let lane = &mut lanes[class as usize];
            if let Some(at) = lane.due() {
                self.settled += 1;
                // What never departs must not hide that others wait for more to come, nor take their buffers.
                if at < Time::MAX {
                    self.due.push(Reverse((at, class)));
                } else {
                    lane.end(books);
                    self.touched(lane);
                }
            }
        }
    }

    /// When the next departure is due. What is found never to depart is booked in `books`.
    pub(crate) fn due<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut Books) -> Option<Time> {
        self.settle(lanes, books);
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the next departure; `books` as with [`due`](Merge::due).
    pub(crate) fn take<F: Frame>(&mut self, lanes: &mut [Lane<F>], books: &mut Books) -> Option<Departure<F>> {
        self.settle(lanes, books);
        let Reverse((_, class)) = self.due.pop()?;
        let departure = lanes[class as usize].take();
        self.settled -= 1;
        self.touched(&lanes[class as usize]);
        departure
    }

    /// Every class has a settled departure, and none goes by how many wait.
    pub(crate) fn settled<F: Frame>(&self, lanes: &[Lane<F>]) -> bool {
        self.settled == lanes.len() && !lanes.iter().any(|lane| lane.schedule.watches_depth())
    }

    /// Frames that all classes hold.
    pub(crate) fn held(&self) -> u64 {
        self.held_in_all as u64
    }

    /// A frame departs. It waited for another class if the line was busy with a frame of one when it was due.
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

    /// How often a class waited for others.
    pub(crate) fn contended(&self, class: u32) -> Contended {
        self.contended[class as usize]
    }
}
