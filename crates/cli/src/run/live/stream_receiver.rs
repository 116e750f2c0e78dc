//! The receiver of a generator: counts arriving frames by their stamps during and after sending. It answers requests
//! for the destination addresses, so that a router forwards the frames.

use crate::output::{self, Failure};
use crate::plan::request::Arrivals;
use crate::plan::xdp_programs;
use crate::rights;
use crate::run::live::devices::device;
use crate::run::live::nic_links;
use crate::run::live::replay_frames;
use crate::run::stop::Stop;
use dataplane::{Arrival, ArrivalPort, ArrivalQueues, StampedArrivals};
use dpdk::{Eal, Received, RingConfig};
use engine::sources::Destinations;
use measure::{AnswersReport, Flow, QueueReport, ReplayMeter, StreamMeter};
use packet::{AnsweredRequest, Fingerprint, MacAddr, Stamp};
use scenario::PortSpec;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use units::FrameLen;

/// A port at which frames should arrive.
pub(crate) struct FarEnd {
    port: ArrivalPort,
    eal: &'static Eal,
    /// CPUs of the threads that receive. If there are none, one thread receives on any CPU.
    cpus: Vec<usize>,
    /// UNIX time in ns. Frames that departed earlier belong to an earlier run and were still in flight.
    began_ns: u64,
    /// If no missing frame has arrived for this long since sending ended, no frame is in flight any more.
    wait: Duration,
    neighbour: Neighbour,
    /// Numbers of the streams. Streams with other numbers belong to other senders.
    streams: Range<u32>,
    /// The frames of a replayed capture, which are recognised by their bytes and not by stamps.
    replay: Option<ReplayMeter>,
}

/// Answers requests on the interface.
struct Neighbour {
    targets: Vec<Destinations>,
    own: MacAddr,
    /// Addresses for which the kernel answers.
    kernels: Vec<IpAddr>,
    report: AnswersReport,
    /// Reused buffers: the frame as on the link, and the answer to it.
    frame: Vec<u8>,
    reply: Vec<u8>,
    /// Answers to send once the block of the ring is returned.
    ready: Vec<(AnsweredRequest, Vec<u8>)>,
}

/// Sending continues, so the number of frames sent is not known yet.
const SENDING: u64 = u64::MAX;

/// State shared by the threads of a receiver.
#[derive(Default)]
struct SharedProgress {
    /// Number of frames that arrived, without duplicates.
    received: AtomicU64,
    /// Set to end the threads.
    ended: AtomicBool,
    /// Frames without a stamp that other threads received. The first thread answers them.
    requests: Mutex<Vec<Vec<u8>>>,
    /// Number of such frames that were discarded because the queue was full.
    dropped_requests: AtomicU64,
}

/// Limit on `requests`. Neighbours ask again.
const MAX_REQUESTS: usize = 1_024;

/// Frames that arrived.
#[derive(Default)]
pub(crate) struct ReceivedFrames {
    pub(crate) streams: StreamMeter,
    /// Number of streams whose frames arrived on several queues.
    pub(crate) on_several_queues: u64,
    pub(crate) flow: Flow,
    /// Frames of a capture, and the number sent.
    pub(crate) replay: Option<(ReplayMeter, u64)>,
    /// The longest pause between two polls of the port, if frames are stamped at polls.
    pub(crate) longest_pause: Option<Duration>,
    /// The failure that ended counting before sending ended.
    pub(crate) failure: Option<Failure>,
}

/// How long to wait for duplicates once all frames have arrived.
const COPIES: Duration = Duration::from_millis(100);
/// Interval between checks of the end condition.
const LOOK: Duration = Duration::from_millis(20);
/// Time limit for learning frames: a router requests an address once per second.
const LEARN: Duration = Duration::from_millis(1_500);
/// The same, counted from the last arrival once frames have arrived.
const LEARNT: Duration = Duration::from_millis(100);

/// The interface whose arrivals the kernel's ring receives; `None` for ports that DPDK receives from.
pub(crate) fn ring_of(port: &PortSpec) -> Option<&str> {
    match port {
        PortSpec::Interface { driver: Some(scenario::Driver::AfXdp), .. } => None,
        port => port.interface(),
    }
}

impl FarEnd {
    /// Opens the receiver of frames to `targets`, of the streams numbered `streams`. Frames that arrive from now on
    /// are counted. `replay` recognises frames of a capture.
    pub(crate) fn open(
        eal: &'static Eal,
        arrivals: &Arrivals,
        targets: Vec<Destinations>,
        (streams, replay): (Range<u32>, Option<ReplayMeter>),
    ) -> Result<Self, Failure> {
        let (port, cpus) = (&arrivals.port, arrivals.cpus.clone());
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_ns = u64::try_from(began.as_nanos()).unwrap_or(0);
        let port = match ring_of(port) {
            Some(name) => {
                if cpus.len() > 1 {
                    return Err(Failure::new(format!(
                        "--in-cores: one thread reads the kernel's ring of {port}: name one CPU, or write if:{},driver=af_xdp",
                        units::quoted(name)
                    )));
                }
                // Holds 64-byte frames at some million frames a second for 100 ms, which is how long a hiccup lasts.
                let config = RingConfig { blocks: 512, ..RingConfig::default() };
                let ring = ArrivalPort::of_interface(name, &config).map_err(Failure::new)?;
                xdp_programs::warn_if_any(name);
                ring
            }
            None => {
                let polled = ArrivalPort::of_device(eal, &device(port)?, cpus.len().max(1) as u16);
                let polled = polled.map_err(Failure::new)?;
                nic_links::await_links(polled.nic_link(), || sim::ended_for().is_some());
                polled
            }
        };
        let own = port.mac().map_err(Failure::new)?;
        let neighbour = Neighbour {
            targets,
            own,
            kernels: addresses(),
            report: AnswersReport::default(),
            frame: Vec::new(),
            reply: Vec::new(),
            ready: Vec::new(),
        };
        let wait = arrivals.wait.to_std();
        Ok(FarEnd { port, eal, cpus, began_ns, wait, neighbour, streams, replay })
    }

    /// Waits for `frames` learning frames, and answers requests meanwhile. Missing frames are not a failure, because
    /// the test may be about them.
    pub(crate) fn learn(&mut self, frames: u32, stop: &Stop) -> Result<(), Failure> {
        let (began, mut last, mut received) = (Instant::now(), None::<Instant>, 0);
        while received < frames && began.elapsed() < LEARN && last.is_none_or(|last| last.elapsed() < LEARNT) {
            if stop.asked() {
                break;
            }
            let neighbour = &mut self.neighbour;
            let taken = self.port.next(LOOK, |frame| match Stamp::of(frame.bytes) {
                Some(Stamp { time_ns: 0, .. }) => {
                    received += 1;
                    last = Some(Instant::now());
                }
                Some(_) => {}
                None => neighbour.take(frame),
            });
            taken.map_err(|cause| broke_off(&cause))?;
            self.neighbour.send_replies(&mut self.port);
        }
        Ok(())
    }

    /// Counts frames on a separate thread while `send` runs and until no more arrive. `frames` returns the number of
    /// recognisable frames sent. If receiving fails, sets `stop`, because later frames would not be counted. A signal
    /// during the wait for the last frames ends the wait.
    pub(crate) fn during<T>(
        mut self,
        send: impl FnOnce() -> T,
        frames: impl FnOnce(&T) -> u64,
        stop: &Stop,
    ) -> (T, ReceivedFrames) {
        let sent = AtomicU64::new(SENDING);
        // True if the run was already stopped when sending ended, as by a failure of the sender. This must not cut the
        // wait short.
        let ended_by_user = AtomicBool::new(false);
        thread::scope(|scope| {
            let counting = thread::Builder::new().spawn_scoped(scope, || {
                rights::narrow(0);
                let mut arrived = ReceivedFrames::default();
                if let Err(failure) = self.count(&sent, &ended_by_user, stop, &mut arrived) {
                    arrived.failure = Some(failure);
                    stop.ask();
                }
                arrived
            });
            if counting.is_err() {
                stop.ask();
            }
            let result = send();
            ended_by_user.store(stop.asked(), Ordering::Release);
            sent.store(frames(&result), Ordering::Release);
            let failed = |why: String| ReceivedFrames { failure: Some(Failure::new(why)), ..ReceivedFrames::default() };
            let arrived = match counting {
                Ok(counting) => counting.join().unwrap_or_else(|_| failed("the receiver's thread failed".to_owned())),
                Err(cause) => failed(format!(
                    "no thread can be started for the receiver ({cause}): raise ulimit -v and ulimit -u"
                )),
            };
            (result, arrived)
        })
    }

    fn count(
        &mut self,
        sent: &AtomicU64,
        ended_by_user: &AtomicBool,
        stop: &Stop,
        arrived: &mut ReceivedFrames,
    ) -> Result<(), Failure> {
        let _registered = self.eal.register_thread().map_err(Failure::new)?;
        dataplane::pin(self.cpus.first()).map_err(Failure::new)?;
        let longest = self.port.longest().map_err(Failure::new)?;
        let others = self.port.share(self.cpus.len().saturating_sub(1));
        let (began_ns, streams) = (self.began_ns, self.streams.clone());
        let new = || StampedArrivals::new(began_ns, streams.clone(), longest);
        let (shared, mut counts) = (SharedProgress::default(), new());
        let (eal, cpus) = (self.eal, self.cpus.clone());
        let ended = thread::scope(|scope| {
            let cpus = cpus.iter().skip(1);
            let started: Vec<_> = others
                .into_iter()
                .zip(cpus)
                .map(|(queues, cpu)| {
                    let (shared, counts) = (&shared, new());
                    let count = move || {
                        rights::narrow(0);
                        count_queues(eal, *cpu, queues, counts, shared)
                    };
                    thread::Builder::new().spawn_scoped(scope, count)
                })
                .collect();
            let ended = if started.iter().all(Result::is_ok) {
                self.count_own((sent, ended_by_user, stop), &shared, &mut counts, arrived)
            } else {
                // The loop below returns the error of the thread that could not be started.
                Ok(())
            };
            shared.ended.store(true, Ordering::Release);
            let mut queues = self.port.received();
            for thread in started {
                let thread = thread.map_err(|cause| Failure::new(dataplane::Error::Thread(cause.to_string())))?;
                let failed = |_| Failure::new("a thread of the receiver failed");
                let (other, received) = thread.join().map_err(failed)??;
                arrived.longest_pause = arrived.longest_pause.max(Some(received.longest_pause()));
                queues.extend(received.received());
                arrived.on_several_queues += counts.merge(other);
            }
            queues.sort_unstable();
            arrived.flow.queues = queues.into_iter().map(|(queue, frames)| QueueReport { queue, frames }).collect();
            ended
        });
        arrived.flow.partial_checksums += counts.partial_checksums;
        arrived.flow.super_frames += counts.super_frames;
        self.neighbour.report.held += shared.dropped_requests.load(Ordering::Relaxed);
        // Set after a failure too, because the report has the figures up to then.
        arrived.streams = counts.meter;
        ended?;
        match self.replay.take() {
            Some(replay) => arrived.replay = Some((replay, sent.load(Ordering::Acquire))),
            None => {
                arrived.flow.earlier = Some(counts.earlier);
                arrived.flow.foreign = Some(counts.foreign);
                arrived.flow.answers = Some(self.neighbour.report.clone());
            }
        }
        arrived.flow.kernel_drops = self.port.lost().map_err(Failure::new)?;
        arrived.longest_pause = arrived.longest_pause.max(self.port.longest_pause());
        Ok(())
    }

    /// Counts the frames on the queues of this thread, and decides when to stop waiting for more.
    fn count_own(
        &mut self,
        (sent, ended_by_user, stop): (&AtomicU64, &AtomicBool, &Stop),
        shared: &SharedProgress,
        counts: &mut StampedArrivals,
        arrived: &mut ReceivedFrames,
    ) -> Result<(), Failure> {
        let longest = self.port.longest().map_err(Failure::new)?;
        // Times of the last arrival, and of the last arrival of a missing frame.
        let (mut last, mut found) = (Instant::now(), Instant::now());
        let mut received_before = 0;
        loop {
            let sent = sent.load(Ordering::Acquire);
            let ended = sent != SENDING;
            let (neighbour, replay) = (&mut self.neighbour, &mut self.replay);
            let (mut fresh, mut stamped) = (0, false);
            let taken = self.port.next(LOOK, |frame| {
                if let Some(replay) = replay {
                    arrived.flow.partial_checksums += u64::from(frame.partial_checksum);
                    arrived.flow.super_frames += u64::from(frame.original_len > longest);
                    let digests = Fingerprint::of(frame.bytes).map(replay_frames::digests);
                    fresh += u64::from(digests.is_some_and(|digests| replay.record(digests)));
                    return;
                }
                match counts.take(frame) {
                    Arrival::Fresh => fresh += 1,
                    Arrival::Copy => stamped = true,
                    Arrival::LeftOut => {}
                    Arrival::Unstamped => neighbour.take(frame),
                }
            });
            taken.map_err(|cause| broke_off(&cause))?;
            for request in shared.take_requests() {
                self.neighbour.take(&as_received(&request));
            }
            self.neighbour.send_replies(&mut self.port);
            // Reads the clock once per burst. One read per frame would cost as much as all figures of the frame.
            let received = shared.received.fetch_add(fresh, Ordering::Relaxed) + fresh;
            if received > received_before || stamped {
                last = Instant::now();
            }
            if received > received_before && received_before < sent {
                found = last;
            }
            received_before = received;
            if !ended {
                // The quiet period begins when sending ends.
                (last, found) = (Instant::now(), Instant::now());
            }
            if ended && !ended_by_user.load(Ordering::Acquire) && stop.asked() {
                output::warn(
                    "--in: the run was ended while it waited for frames: frames still in flight count as lost",
                );
                return Ok(());
            }
            // Duplicates, or frames of another generator, may arrive without end.
            if ended && (found.elapsed() > self.wait || received >= sent && last.elapsed() > COPIES) {
                return Ok(());
            }
        }
    }
}

impl SharedProgress {
    /// Takes the requests that wait for a reply.
    fn take_requests(&self) -> Vec<Vec<u8>> {
        // A thread that panics while it holds the lock leaves an intact list.
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn queue_request(&self, frame: &[u8]) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if requests.len() < MAX_REQUESTS {
            requests.push(frame.to_vec());
        } else {
            self.dropped_requests.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Counts the frames on these queues on another CPU, until the first thread ends.
fn count_queues(
    eal: &'static Eal,
    cpu: usize,
    mut queues: ArrivalQueues,
    mut counts: StampedArrivals,
    shared: &SharedProgress,
) -> Result<(StampedArrivals, ArrivalQueues), Failure> {
    let _registered = eal.register_thread().map_err(Failure::new)?;
    dataplane::pin(Some(&cpu)).map_err(Failure::new)?;
    while !shared.ended.load(Ordering::Acquire) {
        let mut fresh = 0;
        queues.next(LOOK, |frame| match counts.take(frame) {
            Arrival::Fresh => fresh += 1,
            Arrival::Copy | Arrival::LeftOut => {}
            Arrival::Unstamped => shared.queue_request(frame.bytes),
        });
        shared.received.fetch_add(fresh, Ordering::Relaxed);
    }
    Ok((counts, queues))
}

/// A frame that another thread received.
fn as_received(bytes: &[u8]) -> Received<'_> {
    Received { time_ns: 0, bytes, original_len: bytes.len() as u32, partial_checksum: false, vlan: None }
}

impl Neighbour {
    /// Creates the answer to a request for a destination address, unless the kernel has this address.
    fn take(&mut self, frame: &Received<'_>) {
        self.report.arrived.add(FrameLen::of_captured(frame.link_len()));
        self.frame.clear();
        frame.write_to(&mut self.frame);
        // Ignores VLAN tags, since a router may have changed them.
        let owner = |address, _| {
            let target = self.targets.iter().find(|target| target.has(address))?;
            (!self.kernels.contains(&address)).then(|| target.mac(self.own))
        };
        match packet::write_reply(&self.frame, owner, &mut self.reply) {
            Some(answered) => self.ready.push((answered, self.reply.clone())),
            None => {
                self.report.ignored += 1;
                let request = packet::parse_address_request(&self.frame);
                if let Some(request) = request.filter(|(_, target)| !self.kernels.contains(target)) {
                    self.report.count_unanswered(request);
                }
            }
        }
    }

    fn send_replies(&mut self, port: &mut ArrivalPort) {
        for (answered, frame) in self.ready.drain(..) {
            if port.send(&frame) {
                let tally = &mut self.report.answered;
                *match answered {
                    AnsweredRequest::Arp => &mut tally.arp,
                    AnsweredRequest::Solicitation => &mut tally.ndp,
                    AnsweredRequest::Echo => &mut tally.echo,
                } += 1;
            } else {
                self.report.held += 1;
            }
        }
    }
}

/// Addresses of this network namespace.
fn addresses() -> Vec<IpAddr> {
    let all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let address = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    all.filter_map(|interface| interface.address.and_then(address)).collect()
}

fn broke_off(cause: &dataplane::Error) -> Failure {
    Failure::new(format!("--in: receiving failed, which ended the run: {cause}"))
}
