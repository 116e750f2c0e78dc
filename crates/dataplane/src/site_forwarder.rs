//! Forwards frames between many sites. Each direction of each pair has its own stage.
//!
//! One thread waits for all ports together and sleeps until a frame arrives or departs. It busy-waits only for the last
//! [`SPIN`] before a departure, because the kernel wakes a thread late by tens of microseconds. A frame's delay counts
//! from the kernel's stamp of its arrival, so the time until it is read is part of the delay.
//!
//! Stages are created when the first frame of a pair arrives, and all held frames share one limit in bytes, so silent
//! pairs take no memory.

use crate::Error;
use dpdk::{StampedSocket, steady_ns};
use engine::stages::{Item, StageConfig};
use engine::{Outlet, Stage};
use measure::DropReason;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use packet::{Frame as _, HeapFrame, MacAddr};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::AsFd as _;
use units::{Span, Time};

/// The forwarder busy-waits for this time before a departure.
const SPIN: Span = Span::from_us(80);
/// The longest sleep, after which the caller is asked whether to go on.
const NAP: Span = Span::from_ms(200);
/// Frames received from one port before the others have their turn.
const TURN: usize = 64;
/// The longest frame in bytes, without FCS: the largest MTU with its header.
const LONGEST: usize = 65_536 + 18;
/// Memory of a held frame beyond its bytes.
const OVERHEAD: u64 = 128;

/// A site as the forwarder knows it.
#[derive(Clone, Debug)]
pub struct SitePort {
    /// The interface towards the site, in the forwarder's network namespace.
    pub interface: String,
    /// The site's address. Frames to it leave on this interface.
    pub address: MacAddr,
}

/// Frames of all sites since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwarderCounters {
    /// Frames that arrived from sites.
    pub received: u64,
    /// Copies of frames to a group address, one for each further site.
    pub copies: u64,
    /// Frames sent to sites.
    pub sent: u64,
    /// Frames lost as asked.
    pub lost: u64,
    /// Frames dropped because the queue before a rate was full.
    pub queue: u64,
    /// Frames dropped because the held frames had reached their limit in bytes.
    pub memory: u64,
    /// Frames to an address of no site, and frames too long for any link.
    pub unknown: u64,
    /// Frames that a site's interface did not take.
    pub refused: u64,
    /// Frames that the kernel dropped because the forwarder did not read them in time.
    pub overrun: u64,
    /// Frames held now.
    pub held: u64,
}

/// Forwards frames between sites.
pub struct SiteForwarder {
    ports: Vec<StampedSocket>,
    sites: HashMap<[u8; 6], usize>,
    /// By sender and receiver: `from * ports + to`. A pair without a configuration passes frames at once.
    paths: Vec<SitePath>,
    seed: u64,
    /// When to wake each way. An entry that differs from its way's `noted` is stale.
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
    outlet: Outlet<HeapFrame>,
    batch: Vec<Item<HeapFrame>>,
    counters: ForwarderCounters,
    held_bytes: u64,
    most_bytes: u64,
    start_ns: u64,
    buffer: Vec<u8>,
}

#[derive(Default)]
struct SitePath {
    config: Option<StageConfig>,
    stage: Option<Box<dyn Stage<HeapFrame>>>,
    noted: Option<Time>,
}

impl SiteForwarder {
    /// Opens the ports in the calling thread's network namespace. `paths[from][to]` is the stage of a direction; held
    /// frames take at most `most_bytes`.
    ///
    /// # Errors
    /// [`Error::Dpdk`] if an interface is missing or cannot be opened.
    pub fn open(
        sites: &[SitePort],
        paths: Vec<Vec<Option<StageConfig>>>,
        seed: u64,
        most_bytes: u64,
    ) -> Result<SiteForwarder, Error> {
        let ports = sites.iter().map(|site| StampedSocket::open(&site.interface)).collect::<Result<Vec<_>, _>>()?;
        let paths = paths.into_iter().flatten().map(|config| SitePath { config, ..SitePath::default() });
        Ok(SiteForwarder {
            ports,
            sites: sites.iter().enumerate().map(|(number, site)| (site.address.0, number)).collect(),
            paths: paths.collect(),
            seed,
            wakes: BinaryHeap::new(),
            outlet: Outlet::default(),
            batch: Vec::new(),
            counters: ForwarderCounters::default(),
            held_bytes: 0,
            most_bytes,
            start_ns: steady_ns(),
            buffer: vec![0; LONGEST],
        })
    }

    /// Forwards frames while `go_on` returns true. It is asked several times per second, and is given the counters.
    ///
    /// # Errors
    /// [`Error::Dpdk`] if an interface fails.
    pub fn run(&mut self, mut go_on: impl FnMut(&ForwarderCounters) -> bool) -> Result<(), Error> {
        let mut asked = self.now();
        loop {
            let ready = self.wait();
            for port in ready {
                self.receive(port)?;
            }
            self.depart();
            let now = self.now();
            if now.since(asked) >= NAP {
                asked = now;
                self.count_overruns()?;
                if !go_on(&self.counters) {
                    return Ok(());
                }
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Span::from_ns(steady_ns().saturating_sub(self.start_ns))
    }

    /// Waits until a port has frames or a departure is close. Returns the ports that have frames.
    fn wait(&mut self) -> Vec<usize> {
        let sleep = match self.next_wake() {
            None => NAP,
            Some(at) => {
                let left = at.since(self.now());
                Span::from_ps(left.as_ps().saturating_sub(SPIN.as_ps())).min(NAP)
            }
        };
        let mut polled: Vec<PollFd<'_>> =
            self.ports.iter().map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN)).collect();
        let timeout = TimeSpec::from_duration(sleep.to_std());
        // An interrupted wait is a short one.
        let _interrupted = ppoll(&mut polled, Some(timeout), None);
        let ready = |(number, port): (usize, &PollFd<'_>)| {
            let events = port.revents().unwrap_or(PollFlags::empty());
            (!events.is_empty()).then_some(number)
        };
        polled.iter().enumerate().filter_map(ready).collect()
    }

    /// When the next stage is to be woken.
    fn next_wake(&mut self) -> Option<Time> {
        while let Some(Reverse((at, path))) = self.wakes.peek() {
            if self.paths[*path].noted == Some(*at) {
                return Some(*at);
            }
            self.wakes.pop();
        }
        None
    }

    fn receive(&mut self, from: usize) -> Result<(), Error> {
        self.ports[from].read_clocks();
        let now = self.now();
        for _ in 0..TURN {
            let frame = match self.ports[from].receive(&mut self.buffer) {
                Ok(Some(frame)) => frame,
                // A site may set its interface down and up again.
                Ok(None) | Err(dpdk::Error::InterfaceDown { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            self.counters.received += 1;
            let arrived = Time::ZERO + now.since(Time::ZERO + frame.waited);
            self.enter(from, frame.length, arrived, now);
        }
        Ok(())
    }

    /// Passes the frame in the buffer to the stages towards its destinations.
    fn enter(&mut self, from: usize, length: usize, arrived: Time, now: Time) {
        let frame = self.buffer.get(..length);
        let Some(destination) = frame.and_then(|frame| frame.first_chunk::<6>()).copied() else {
            self.counters.unknown += 1;
            return;
        };
        let is_group = destination[0] & 1 != 0;
        match self.sites.get(&destination) {
            Some(&to) if to != from => self.pass(from, to, length, arrived, now),
            None if is_group => {
                self.counters.copies += (self.ports.len() as u64).saturating_sub(2);
                for to in (0..self.ports.len()).filter(|to| *to != from) {
                    self.pass(from, to, length, arrived, now);
                }
            }
            _ => self.counters.unknown += 1,
        }
    }

    fn pass(&mut self, from: usize, to: usize, length: usize, arrived: Time, now: Time) {
        let number = from * self.ports.len() + to;
        let path = &mut self.paths[number];
        let Some(config) = &path.config else {
            count_sent(&mut self.counters, &self.ports[to].send(&self.buffer[..length]));
            return;
        };
        let bytes = length as u64 + OVERHEAD;
        if self.held_bytes + bytes > self.most_bytes {
            self.counters.memory += 1;
            return;
        }
        let seed = self.seed;
        let stage = path.stage.get_or_insert_with(|| config.build(seed, &format!("site{}-site{}", from + 1, to + 1)));
        self.held_bytes += bytes;
        self.counters.held += 1;
        self.batch.push(Item { frame: HeapFrame::new(self.buffer[..length].to_vec()), at: arrived });
        stage.push(now, &mut self.batch, &mut self.outlet);
        self.finish(number);
    }

    /// Wakes all stages that are due.
    fn depart(&mut self) {
        loop {
            let now = self.now();
            let Some(at) = self.next_wake() else { return };
            if at > now {
                return;
            }
            let Some(Reverse((_, number))) = self.wakes.pop() else { return };
            self.paths[number].noted = None;
            if let Some(stage) = &mut self.paths[number].stage {
                stage.wake(now, &mut self.outlet);
            }
            self.finish(number);
        }
    }

    /// Sends what a stage released, counts what it dropped, and notes when to wake it next.
    fn finish(&mut self, number: usize) {
        let to = number % self.ports.len();
        let (released, dropped) = self.outlet.drain();
        for (frame, reason) in dropped {
            self.held_bytes -= frame.bytes().len() as u64 + OVERHEAD;
            self.counters.held -= 1;
            match reason {
                DropReason::Loss => self.counters.lost += 1,
                _ => self.counters.queue += 1,
            }
        }
        for item in released {
            let bytes = item.frame.bytes();
            self.held_bytes -= bytes.len() as u64 + OVERHEAD;
            self.counters.held -= 1;
            count_sent(&mut self.counters, &self.ports[to].send(bytes));
        }
        let path = &mut self.paths[number];
        let deadline = path.stage.as_ref().and_then(|stage| stage.deadline());
        if path.noted != deadline {
            path.noted = deadline;
            self.wakes.extend(deadline.map(|at| Reverse((at, number))));
        }
    }

    fn count_overruns(&mut self) -> Result<(), Error> {
        let mut overrun = 0;
        for port in &mut self.ports {
            overrun += port.dropped()?;
        }
        self.counters.overrun = overrun;
        Ok(())
    }
}

/// Counts a frame as sent or refused. A site's link may be down or too short for the frame. The other sites continue.
fn count_sent(counters: &mut ForwarderCounters, sent: &dpdk::Result<bool>) {
    match sent {
        Ok(true) => counters.sent += 1,
        Ok(false) | Err(_) => counters.refused += 1,
    }
}
