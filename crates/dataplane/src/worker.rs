use crate::Error;
use crate::device::{Device, Opened};
use dpdk::{BURST, Burst, Eal, Mbuf, Pool, Port, RxQueue, TscClock, TxQueue};
use engine::sources::Stream;
use engine::{Departure, Pipeline};
use measure::{Books, DepartureMeter, DropReason, PipelineReport, ReturnReport};
use packet::Frame;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use units::{FrameLen, Span, Time};

/// What a worker is to do.
pub struct Config {
    /// The pipeline's name in reports.
    pub name: String,
    /// Where frames come from.
    pub feed: Feed,
    /// Where they leave.
    pub output: Device,
    /// Nothing is carried back from the output to the input.
    pub one_way: bool,
    /// Departures wait for their instant; false sends as soon as possible, in bursts.
    pub paced: bool,
    /// The fixed gap that was asked, to measure against.
    pub asked_gap: Option<Span>,
    /// Windows of the rate.
    pub window: Span,
    /// When to end by itself.
    pub duration: Option<Span>,
}

/// Where frames come from.
pub enum Feed {
    /// A port.
    Device(Device),
    /// A stream that is made, and how many frames of it.
    Stream(Box<Stream>, Option<u64>),
}

/// What a run has done so far, for those who look on.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames that came in.
    pub came: AtomicU64,
    /// Frames that left.
    pub left: AtomicU64,
}

/// What came of a run.
pub struct Finished {
    /// The figures.
    pub report: PipelineReport,
    /// Each port by name: its driver and what it lost before we saw it.
    pub ports: Vec<PortSummary>,
}

/// A port as it was used.
#[derive(Clone, Debug)]
pub struct PortSummary {
    /// DPDK's driver.
    pub driver: String,
    /// Frames that the driver says it missed.
    pub rx_missed: u64,
    /// Times that a frame came while no buffer was free.
    pub rx_no_buffer: u64,
}

/// Buffers of a pool behind a schedule, where a backlog may wait: a second of 50 000 frames a second.
const DEEP_POOL: u32 = 1 << 16;
/// Buffers of a pool behind no schedule.
const SHALLOW_POOL: u32 = 1 << 14;
/// Buffers of a pool of jumbo frames.
const JUMBO_POOL: u32 = 1 << 13;
/// Buffers of a pool of frames longer than any Ethernet has, as `lo` carries them.
const HUGE_POOL: u32 = 1 << 11;
/// Buffers that drivers keep in their rings: two of AF_XDP have 2 048 to fill and 2 048 to send each,
/// and more on the way. What would leave them less is dropped by us, and counted.
const XDP_RESERVE: u32 = 3 << 12;
/// The same for drivers that copy frames.
const COPY_RESERVE: u32 = 1 << 11;
/// Up to this length a frame fits the buffers of AF_XDP.
const SMALL_BUFFER: u16 = 2_048;
/// Up to this length a jumbo frame's buffer is one.
const JUMBO_BUFFER: u16 = 20_480;
/// This close to a departure nothing else is begun: reading a burst may take as long.
const GUARD: Span = Span::from_us(3);
/// With nothing to do for so long, the worker sleeps between looks.
const IDLE: Span = Span::from_ms(5);
const NAP: Duration = Duration::from_micros(50);
/// A nap must not reach into a departure: it may last several times as long as asked.
const NAP_MARGIN: Span = Span::from_ms(1);
/// Frames of a stream that are made ahead.
const AHEAD: usize = 32;

/// One pipeline over live ports, on one thread.
pub struct Worker {
    config: Config,
    pipeline: Pipeline<Mbuf>,
    pool: Pool,
    limit: u64,
    /// The input port and its queues; none for a stream.
    input: Option<Opened>,
    output: Opened,
}

impl Worker {
    /// Opens the ports. Nothing is sent yet, but what arrives from now on is received.
    ///
    /// # Errors
    /// A port that cannot be opened, with what to do about it.
    pub fn open(eal: &'static Eal, config: Config, pipeline: Pipeline<Mbuf>) -> Result<Self, Error> {
        let mtu = match &config.feed {
            Feed::Device(device) => device.mtu()?.max(config.output.mtu()?),
            Feed::Stream(..) => config.output.mtu()?,
        };
        let data_room = Device::data_room(mtu);
        let (frames, reserve) = if data_room > JUMBO_BUFFER {
            (HUGE_POOL, HUGE_POOL / 4)
        } else if data_room > SMALL_BUFFER {
            (JUMBO_POOL, COPY_RESERVE)
        } else {
            (if config.paced { DEEP_POOL } else { SHALLOW_POOL }, XDP_RESERVE)
        };
        // A power of two less one suits DPDK's ring best.
        let pool = Pool::new(eal, &config.name, frames - 1, data_room)?;
        let input = match &config.feed {
            Feed::Device(device) => Some(device.open(eal, &pool)?),
            Feed::Stream(..) => None,
        };
        let output = config.output.open(eal, &pool)?;
        Ok(Worker { config, pipeline, pool, limit: u64::from(frames - reserve), input, output })
    }

    /// MiB of memory that EAL needs for one worker.
    #[must_use]
    pub const fn memory_mib() -> u32 {
        // A small buffer with its headers takes less than 3 KiB; the other pools are smaller.
        DEEP_POOL / 1024 * 3 + 96
    }

    /// The drivers of the input, if there is one, and of the output.
    #[must_use]
    pub fn drivers(&self) -> Vec<&str> {
        self.input.iter().chain([&self.output]).map(|opened| opened.driver.as_str()).collect()
    }

    /// Runs until `stop` is set, the time is up or the stream has ended. `counters` tell how far it is.
    ///
    /// # Errors
    /// The thread cannot be registered with DPDK.
    pub fn run(self, eal: &'static Eal, stop: &AtomicBool, counters: &Counters) -> Result<Finished, Error> {
        let _registered = eal.register_thread()?;
        let clock = TscClock::new(eal);
        let Worker { config, pipeline, pool, limit, input, output } = self;
        let mut ports = Vec::new();
        let mut queues = |opened: Opened| {
            let Opened { mut started, driver } = opened;
            let (rx, tx) = (started.rx.pop(), started.tx.pop());
            ports.push((started.port, driver));
            (rx, tx)
        };
        let (input_rx, input_tx) = input.map_or((None, None), &mut queues);
        let (output_rx, output_tx) = queues(output);
        let feed = match config.feed {
            Feed::Device(_) => Frames::Port(input_rx.expect("a port is started with one receive queue")),
            Feed::Stream(stream, count) => {
                Frames::Stream { stream, left: count.unwrap_or(u64::MAX), pool, start: None }
            }
        };
        let back = match (output_rx, input_tx) {
            (Some(rx), Some(tx)) if !config.one_way => {
                Some(Back { rx, tx, burst: Burst::new(), books: Books::default() })
            }
            _ => None,
        };
        let mut machine = Machine {
            clock,
            pipeline,
            feed,
            limit,
            paced: config.paced,
            tx: output_tx.expect("a port is started with one transmit queue"),
            back,
            pending: None,
            burst: Burst::new(),
            in_burst: VecDeque::with_capacity(BURST),
            received: Burst::new(),
            segmented: 0,
            oversize: 0,
            depth: 0,
            meter: DepartureMeter::new(config.asked_gap, None, config.window),
        };
        machine.run(config.duration, stop, counters);
        let report = machine.report(config.name);
        drop(machine);
        let ports = ports.into_iter().map(|(port, driver)| summary(&port, driver)).collect();
        Ok(Finished { report, ports })
    }
}

fn summary(port: &Port, driver: String) -> PortSummary {
    // A driver that cannot tell has told nothing: the summary is an extra.
    let stats = port.stats().unwrap_or_default();
    PortSummary { driver, rx_missed: stats.rx_missed, rx_no_buffer: stats.rx_no_buffer }
}

/// Where frames come from while the worker runs.
enum Frames {
    Port(RxQueue),
    Stream { stream: Box<Stream>, left: u64, pool: Pool, start: Option<Time> },
}

/// The way back: output to input, unchanged and at once.
struct Back {
    rx: RxQueue,
    tx: TxQueue,
    /// Frames that the input did not take yet.
    burst: Burst,
    books: Books,
}

/// Everything that the loop touches.
struct Machine {
    clock: TscClock,
    pipeline: Pipeline<Mbuf>,
    feed: Frames,
    /// Frames that the pipeline may hold.
    limit: u64,
    paced: bool,
    tx: TxQueue,
    back: Option<Back>,
    /// The next departure, when it is settled but not yet due.
    pending: Option<Departure<Mbuf>>,
    /// Frames whose time has come, and their asks and lengths.
    burst: Burst,
    in_burst: VecDeque<(Time, FrameLen)>,
    received: Burst,
    segmented: u64,
    oversize: u64,
    depth: u64,
    meter: DepartureMeter,
}

impl Machine {
    fn run(&mut self, duration: Option<Span>, stop: &AtomicBool, counters: &Counters) {
        let begin = self.clock.now();
        let end = duration.and_then(|duration| begin.checked_add(duration)).unwrap_or(Time::MAX);
        let mut busy_at = begin;
        for round in 0_u64.. {
            let now = self.clock.now();
            if round.is_multiple_of(64) {
                counters.came.store(self.pipeline.books().came.frames, Ordering::Relaxed);
                counters.left.store(self.pipeline.books().left.frames, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
            if now >= end || self.ended() {
                return;
            }
            let mut busy = self.depart(now);
            // While the output takes nothing, the input and the way back go on.
            let stuck = !busy && !self.burst.is_empty();
            if !stuck
                && let Some(at) = self.next_departure()
                && at.since(now) <= GUARD
            {
                self.clock.spin_until(at.min(end));
                continue;
            }
            if self.pipeline.deadline().is_some_and(|deadline| deadline <= now) {
                self.pipeline.wake(now);
                busy = true;
            }
            busy |= self.receive(now);
            busy |= self.back.as_mut().is_some_and(Back::carry);
            if busy {
                busy_at = now;
            } else if now.since(busy_at) > IDLE && self.nothing_before(now + NAP_MARGIN) {
                std::thread::sleep(NAP);
            }
        }
    }

    /// When the next departure is due, if one is settled or can be.
    fn next_departure(&mut self) -> Option<Time> {
        if self.pending.is_none() {
            self.pending = self.pipeline.next_departure();
        }
        self.pending.as_ref().map(|departure| departure.at)
    }

    fn nothing_before(&mut self, time: Time) -> bool {
        let departs = self.next_departure().is_some_and(|at| at < time);
        let wakes = self.pipeline.deadline().is_some_and(|at| at < time);
        !departs && !wakes && self.burst.is_empty()
    }

    /// A stream that was made whole and sent whole.
    fn ended(&mut self) -> bool {
        let made = matches!(self.feed, Frames::Stream { left: 0, .. });
        made && self.next_departure().is_none() && self.burst.is_empty() && self.pipeline.held() == 0
    }

    /// Hands over what is due. True if anything was.
    fn depart(&mut self, now: Time) -> bool {
        while self.burst.room() > 0 && self.next_departure().is_some_and(|at| at <= now) {
            let Some(Departure { frame, length, at, .. }) = self.pending.take() else { break };
            // One longer by a tag may pass; the queue decides on those.
            if frame.len() > self.tx.max_frame() + 4 {
                self.pipeline.lost(DropReason::TooLong);
                continue;
            }
            if self.burst.push(frame).is_ok() {
                self.in_burst.push_back((at, length));
            }
        }
        if self.burst.is_empty() {
            return false;
        }
        let at = if self.paced { self.clock.now() } else { now };
        let sent = self.tx.send(&mut self.burst);
        for _ in self.oversize..self.tx.oversize() {
            self.in_burst.pop_front();
            self.pipeline.lost(DropReason::TooLong);
        }
        self.oversize = self.tx.oversize();
        for (ask, length) in self.in_burst.drain(..sent) {
            self.pipeline.sent(length);
            self.meter.record(ask, at, length);
        }
        sent > 0
    }

    /// Takes in what has arrived or is to be made. True if anything was.
    fn receive(&mut self, now: Time) -> bool {
        let rx = match &mut self.feed {
            Frames::Port(rx) => rx,
            Frames::Stream { stream, left, pool, start } => {
                let start = *start.get_or_insert(now);
                let mut made = false;
                while *left > 0 && self.pipeline.ready() < AHEAD {
                    let Some(mut frame) = pool.alloc() else { break };
                    if frame.copy_from(stream.next_frame()).is_err() {
                        *left -= 1;
                        self.pipeline.refuse(FrameLen::new(0), DropReason::TooLong);
                        continue;
                    }
                    *left -= 1;
                    made = true;
                    self.pipeline.push(now, start, frame);
                }
                return made;
            }
        };
        if rx.poll(&mut self.received) == 0 {
            return false;
        }
        let segmented = rx.segmented();
        for _ in self.segmented..segmented {
            self.pipeline.refuse(FrameLen::new(0), DropReason::Segments);
        }
        self.segmented = segmented;
        let held = self.pipeline.held() + u64::from(self.pending.is_some());
        let room = self.limit.saturating_sub(held);
        for (i, frame) in self.received.drain().enumerate() {
            if i as u64 >= room {
                self.pipeline.refuse(frame.length(), DropReason::Pool);
            } else {
                self.pipeline.push(now, now, frame);
            }
        }
        self.depth = self.depth.max(self.pipeline.held());
        true
    }

    fn report(&self, name: String) -> PipelineReport {
        let held = self.pipeline.held() + u64::from(self.pending.is_some()) + self.burst.len() as u64;
        let report = self.meter.report(self.pipeline.books(), held);
        PipelineReport {
            name,
            back: self.back.as_ref().map(Back::report),
            // Nothing is late where nothing was asked.
            lateness: report.lateness.filter(|_| self.paced),
            starved: self.paced.then(|| self.pipeline.starved()),
            depth: Some(measure::DepthReport { max: self.depth }),
            ..report
        }
    }
}

impl Back {
    /// Carries what has arrived. While the input takes nothing, nothing more is read: the driver's
    /// ring is the queue, and what it loses is in its own counters.
    fn carry(&mut self) -> bool {
        let before = self.burst.len();
        if before == 0 && self.rx.poll(&mut self.burst) == 0 {
            return false;
        }
        if before == 0 {
            for frame in &self.burst {
                self.books.came.add(frame.length());
            }
        }
        let oversize = self.tx.oversize();
        let lengths: Vec<FrameLen> = self.burst.iter().map(Frame::length).collect();
        let sent = self.tx.send(&mut self.burst);
        let refused = self.tx.oversize() - oversize;
        self.books.drop_many(DropReason::TooLong, refused);
        for length in lengths.iter().take(sent) {
            self.books.left.add(*length);
        }
        sent > 0 || refused > 0
    }

    fn report(&self) -> ReturnReport {
        ReturnReport {
            came: self.books.came,
            left: self.books.left,
            drops: self.books.drops(),
            held: self.burst.len() as u64,
        }
    }
}
