//! Paths of packets from program to program through our pipeline: combines the kernel's stamps at both ends with those
//! of the pipeline.

use crate::output::{self, Failure};
use crate::plan::request::{ListenerFactory, SliceListener};
use crate::rights;
use crate::rights::list::SLICE;
use measure::slices::RING;
use measure::{EndToEnd, EndToEndMeter};
use packet::Identity;
use slice::{Costs, Ends, Filter, ForwardedPacket, Kernel, Key, Points, Record};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use units::{PS_PER_NS, Time};

/// Size of the record buffer.
const BUFFER: u32 = 16 << 20;
/// Interval between reads of records.
const LOOK: Duration = Duration::from_millis(20);
/// Limit on stored packets of the kernel and of the pipeline: a minute at 10 000 per second and direction.
const RECORDS: usize = 1_200_000;
/// Number of packets before and after a packet whose clock comparisons are considered for it. The tightest one is used.
const NEIGHBOURS: usize = 50;

/// A packet traced by the pipeline, on the pipeline's clock.
struct SeenPacket {
    /// Index of its direction.
    direction: usize,
    identity: Identity,
    /// The poll that found it, and its time in the port's ring in ns, if the port reports it.
    arrived: Time,
    waited: Option<f64>,
    slices: Vec<(String, f64)>,
    departed: Time,
    /// CLOCK_MONOTONIC minus the pipeline's clock, in ns; too large by the time between the two readings.
    ahead: i64,
}

/// Records gathered so far.
struct PathCollector {
    directions: Arc<Mutex<Vec<String>>>,
    seen: mpsc::Receiver<SeenPacket>,
    /// Number of packets seen, whether stored or not.
    count: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    kernel: JoinHandle<Result<(Vec<Record>, Costs), slice::Error>>,
    probes: &'static str,
}

/// Attaches the probes, traces packets from now on, and combines their paths when the run has ended.
pub(super) fn listener(port: Option<u16>) -> Result<SliceListener, Failure> {
    rights::require(&SLICE)?;
    let filter = Filter { port, ..Filter::default() };
    let (mut kernel, costs) = slice::calibrate(BUFFER, Points::All, &[], &filter, &|| false).map_err(Failure::new)?;
    kernel.follow(&filter).map_err(Failure::new)?;
    let probes = kernel.probes();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let kernel = thread::Builder::new()
        .spawn(move || gather(kernel, &costs, &stopped))
        .map_err(|cause| Failure::new(format!("cannot start a thread: {cause}: raise ulimit -v and ulimit -u")))?;
    let (packets, seen) = mpsc::channel();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let directions = Arc::new(Mutex::new(Vec::new()));
    let names = Arc::clone(&directions);
    let hears: ListenerFactory = Arc::new(move |name| {
        let (packets, counted) = (packets.clone(), Arc::clone(&counted));
        let direction = {
            let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
            names.push(name.to_owned());
            names.len() - 1
        };
        Arc::new(move |trace, meter, now| {
            // Packets that the kernel does not trace would lack both ends.
            let asked = |identity: &Identity| {
                port.is_none_or(|port| [identity.source_port, identity.destination_port].contains(&port))
            };
            let monotonic = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
            let (Some(identity), Ok(monotonic)) = (trace.identity.filter(asked), monotonic) else { return };
            let ns = monotonic.tv_sec() * 1_000_000_000 + monotonic.tv_nsec();
            let ahead = ns - (now.as_ps() / PS_PER_NS).cast_signed();
            let mut parts = meter.parts(&trace.marks);
            // The last slice begins at the hand-over to the driver, where the kernel's stamps continue.
            parts.pop();
            // The wait in the ring is kept apart, because it cannot exceed the time between the kernel's stamp and the
            // poll.
            let ring = parts.first().is_some_and(|part| part.name == RING).then(|| parts.remove(0).length_ns);
            let look = trace.marks.get(usize::from(ring.is_some()));
            let (Some(look), Some(departed)) = (look, trace.marks.iter().nth_back(1)) else { return };
            let slices = parts.into_iter().map(|part| (part.name, part.length_ns)).collect();
            let packet = SeenPacket {
                direction,
                identity,
                arrived: look.at,
                waited: ring,
                slices,
                departed: departed.at,
                ahead,
            };
            if counted.fetch_add(1, Ordering::Relaxed) < RECORDS {
                // The channel's receiver is gone after the end of the run.
                let _late = packets.send(packet);
            }
        })
    });
    let gathering = Mutex::new(Some(PathCollector { directions, seen, count, stop, kernel, probes }));
    let concludes = move || {
        let gathering = gathering.lock().unwrap_or_else(PoisonError::into_inner).take();
        gathering.map_or_else(|| Err(Failure::new("slices were already combined")), conclude)
    };
    Ok(SliceListener { hears: Some(hears), concludes: Some(Arc::new(concludes)) })
}

/// Reads records until asked to stop, then drains the rest. Also returns the cost of the probes at the pace of the run.
fn gather(mut kernel: Kernel, costs: &Costs, stop: &AtomicBool) -> Result<(Vec<Record>, Costs), slice::Error> {
    let mut records = Vec::new();
    let mut beyond: u64 = 0;
    let mut keep = |record: Record| if records.len() < RECORDS { records.push(record) } else { beyond += 1 };
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        kernel.records(Some(LOOK), &mut keep);
    }
    let pace = kernel.pace(costs)?.unwrap_or(1.0);
    kernel.detach(&mut keep)?;
    if beyond > 0 {
        output::warn(format!(
            "{} kernel records were dropped because the store is full: give --port",
            output::thousands(beyond)
        ));
    }
    Ok((records, costs.at_pace(pace)))
}

fn conclude(gathering: PathCollector) -> Result<EndToEnd, Failure> {
    let PathCollector { directions, seen, count, stop, kernel, probes } = gathering;
    stop.store(true, Ordering::Relaxed);
    let (records, costs) =
        kernel.join().map_err(|_| Failure::new("the thread that reads records failed"))?.map_err(Failure::new)?;
    let seen: Vec<SeenPacket> = seen.try_iter().collect();
    let beyond = count.load(Ordering::Relaxed).saturating_sub(RECORDS);
    if beyond > 0 {
        output::warn(format!(
            "{} pipeline packets were dropped because the store is full: give --port, or trace fewer with --every 1/N",
            output::thousands(beyond as u64)
        ));
    }
    let ends = Ends::new(&records, &costs);
    let names = directions.lock().unwrap_or_else(PoisonError::into_inner);
    let mut meter = EndToEndMeter::new(&names);
    for (n, packet) in seen.iter().enumerate() {
        let near = &seen[n.saturating_sub(NEIGHBOURS)..(n + NEIGHBOURS).min(seen.len())];
        let ahead = near.iter().map(|packet| packet.ahead).min().unwrap_or(packet.ahead);
        meter.add(packet.direction, ends.journey(&packet.carried(ahead)).as_deref());
    }
    Ok(meter.report(probes))
}

impl SeenPacket {
    /// Converts to the kernel's clock, which is `ahead` ns ahead.
    fn carried(&self, ahead: i64) -> ForwardedPacket {
        let Identity { source, destination, source_port, destination_port, protocol, number, payload } = self.identity;
        let instant = |time: Time| ((time.as_ps() / PS_PER_NS).cast_signed() + ahead).max(0).unsigned_abs();
        ForwardedPacket {
            key: Key { source, destination, source_port, destination_port, protocol, number, payload },
            arrived: instant(self.arrived),
            waited: self.waited,
            slices: self.slices.clone(),
            departed: instant(self.departed),
        }
    }
}
