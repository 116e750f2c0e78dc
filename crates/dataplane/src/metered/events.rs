use super::{Backoff, WorkerThreads};
use crate::Error;
use dpdk::{Burst, Eal, EventCollector, EventDevice, EventFeeder, EventScheduler, EventWorker, Mbuf};
use engine::Outlet;
use engine::Stage;
use engine::meters::WorkerStats;
use engine::stages::{Item, Limit, Look, Metering, Settling, arrived};
use packet::Frame;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{Span, Time};

/// Software drivers, the most scalable first.
const IN_SOFTWARE: [&str; 2] = ["event_dsw", "event_sw"];
/// Bytes appended to a frame on its way through the device: the [`Look`] and the number of the worker that decided.
const TRAILER: usize = Look::BYTES + 1;
/// How soon to poll for results of the workers.
const SOON: Span = Span::from_us(1);

/// Workers behind a DPDK event device, which gives a user's frames to one worker at a time.
///
/// The feeder finds the user's slot. Slots are dense numbers, so users do not wait for each other as long as there are
/// no more of them than the device has flows.
pub(super) struct Events {
    /// Dropped first: threads must end before what they use.
    crew: WorkerThreads,
    finder: Metering,
    settling: Settling<Mbuf>,
    feeder: EventFeeder,
    collector: EventCollector,
    scheduler: Option<EventScheduler>,
    /// Number of flows that the device distinguishes.
    flows: u32,
    /// Frames for which the device had no room yet, and their flows.
    waiting: Burst,
    waiting_flows: Vec<u32>,
    /// Number of frames in the device.
    inside: usize,
    loads: Vec<WorkerStats>,
    next: Time,
    found: Vec<Look>,
    received: Burst,
    received_flows: Vec<u32>,
    frames: Vec<Item<Mbuf>>,
    looks: Vec<Look>,
}

impl Events {
    pub(super) fn start(eal: &'static Eal, limit: &Limit, seed: u64, cpus: &[usize]) -> Result<Self, Error> {
        let workers = u8::try_from(limit.workers).unwrap_or(u8::MAX);
        let device = match &limit.device {
            Some(device) => EventDevice::open(eal, device, workers)?,
            None => {
                IN_SOFTWARE.iter().skip(1).fold(EventDevice::open(eal, IN_SOFTWARE[0], workers), |device, driver| {
                    device.or_else(|_| EventDevice::open(eal, driver, workers))
                })?
            }
        };
        let EventDevice { feeder, workers, collector, scheduler, flows } = device;
        let (mut meters, settling) = limit.parts(workers.len() + 1, seed);
        let finder = meters.pop().expect("one more than there are workers");
        let loads = vec![WorkerStats::default(); workers.len()];
        let mut crew = WorkerThreads::new();
        for (number, (metering, worker)) in meters.into_iter().zip(workers).enumerate() {
            crew.add(eal, cpus.get(number).copied(), move |stop| work(metering, worker, number, stop))?;
        }
        Ok(Events {
            finder,
            settling,
            feeder,
            collector,
            scheduler,
            flows,
            waiting: Burst::new(),
            waiting_flows: Vec::new(),
            inside: 0,
            loads,
            next: Time::ZERO,
            found: Vec::new(),
            received: Burst::new(),
            received_flows: Vec::new(),
            frames: Vec::new(),
            looks: Vec::new(),
            crew,
        })
    }

    /// Feeds waiting frames, runs the device's scheduler, and collects the workers' results.
    fn turn(&mut self, out: &mut Outlet<Mbuf>) {
        while !self.waiting.is_empty() {
            let fed = self.feeder.feed(&mut self.waiting, &self.waiting_flows);
            self.waiting_flows.drain(..fed);
            self.inside += fed;
            if fed == 0 {
                break;
            }
        }
        self.feeder.flush();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.run();
        }
        while self.collector.take(&mut self.received, &mut self.received_flows) > 0 {
            for mut frame in self.received.drain() {
                self.inside -= 1;
                let (look, at, worker) = detach(&mut frame);
                self.loads[worker].frames += 1;
                self.loads[worker].exceeded += u64::from(look.exceeds());
                self.frames.push(Item { frame, at });
                self.looks.push(look);
            }
        }
        self.settling.settle(&mut self.looks, &mut self.frames, &self.loads, out);
    }
}

impl Stage<Mbuf> for Events {
    fn push(&mut self, now: Time, batch: &mut Vec<Item<Mbuf>>, out: &mut Outlet<Mbuf>) {
        self.settling.seen(now);
        self.finder.look(batch, &mut self.found);
        for (mut look, Item { mut frame, at }) in self.found.drain(..).zip(batch.drain(..)) {
            // A frame without a user needs no worker. A frame that fills its buffer has no room for the trailer. Both
            // are decided here.
            let Some(slot) = look.slot().filter(|_| attach(&mut frame, &look, at, 0)) else {
                self.finder.decide(&mut look, arrived(&frame, at), 0);
                self.frames.push(Item { frame, at });
                self.looks.push(look);
                continue;
            };
            match self.waiting.push(frame) {
                Ok(()) => self.waiting_flows.push(slot % self.flows),
                Err(frame) => self.settling.undealt(frame, out),
            }
        }
        self.turn(out);
        for number in 0..self.loads.len() {
            self.crew.call(number);
        }
        self.next = now + SOON;
    }

    fn wake(&mut self, now: Time, out: &mut Outlet<Mbuf>) {
        self.turn(out);
        self.next = now + SOON;
    }

    fn deadline(&self) -> Option<Time> {
        (self.held() > 0).then_some(self.next)
    }

    fn held(&self) -> usize {
        self.inside + self.waiting.len()
    }
}

/// Appends a [`Look`], the arrival time and the worker's number to a frame. Returns false if its buffer has no room.
fn attach(frame: &mut Mbuf, look: &Look, at: Time, worker: u8) -> bool {
    let length = frame.len();
    let fits = frame.set_len(length + TRAILER).is_ok();
    if fits {
        let trailer = &mut frame.bytes_mut()[length..];
        look.write(at, trailer);
        trailer[Look::BYTES] = worker;
    }
    fits
}

/// Removes the trailer that [`attach`] wrote: the [`Look`], the arrival time, and the worker that decided.
fn detach(frame: &mut Mbuf) -> (Look, Time, usize) {
    let length = frame.len() - TRAILER;
    let trailer = &frame.bytes()[length..];
    let (look, at) = Look::read(trailer);
    let worker = usize::from(trailer[Look::BYTES]);
    frame.set_len(length).expect("it is shorter than it was");
    (look, at, worker)
}

/// Meters frames until `stop` is set. Passes refused frames on as well: their [`Look`] carries the decision.
fn work(mut metering: Metering, mut device: EventWorker, number: usize, stop: &AtomicBool) {
    let (mut frames, mut flows) = (Burst::new(), Vec::new());
    let mut patience = Backoff::default();
    while !stop.load(Ordering::Acquire) {
        if device.take(&mut frames, &mut flows) == 0 {
            device.flush();
            patience.wait();
            continue;
        }
        patience.found();
        for frame in &mut frames {
            let (mut look, at, _) = detach(frame);
            metering.decide(&mut look, arrived(frame, at), number);
            let fits = attach(frame, &look, at, number as u8);
            debug_assert!(fits, "it did before");
        }
        while !frames.is_empty() && !stop.load(Ordering::Acquire) {
            let passed = device.pass(&mut frames, &flows);
            flows.drain(..passed);
            if passed == 0 {
                device.flush();
                patience.wait();
            }
        }
    }
}
