//! The receiver of a generator: counts arriving frames by their stamps during and after sending. It answers requests
//! for the destination addresses, so that a router forwards the frames.

use crate::output::{self, Failure};
use crate::plan::xdp_programs;
use crate::rights;
use crate::run::live::devices::device;
use crate::run::live::nic_links;
use crate::run::live::replay_frames;
use crate::run::stop::Stop;
use dataplane::ArrivalPort;
use dpdk::{Eal, Received, RingConfig};
use engine::sources::Destinations;
use measure::{AnswersReport, Flow, ReplayMeter, StreamMeter};
use packet::{AnsweredRequest, Fingerprint, MacAddr, Stamp};
use scenario::PortSpec;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use units::FrameLen;

/// A port on which frames are to arrive.
pub(crate) struct FarEnd {
    port: ArrivalPort,
    /// UNIX time in ns: what had departed by then is of an earlier run, and was on its way all the time.
    began_ns: u64,
    /// When no frame has arrived for this long after the last one was sent, none is on its way.
    wait: Duration,
    neighbour: Neighbour,
    /// Streams from this number on are not the sender's.
    streams: u32,
    /// The frames of a capture, if one is replayed: they are recognised by their bytes, not by stamps.
    replay: Option<ReplayMeter>,
}

/// What answers on the interface.
struct Neighbour {
    targets: Vec<Destinations>,
    own: MacAddr,
    /// Addresses that the kernel answers for by itself.
    kernels: Vec<IpAddr>,
    report: AnswersReport,
    /// The frame as it was on the link, and the answer to it.
    asked: Vec<u8>,
    answer: Vec<u8>,
    /// Answers to send once the ring's block is given back.
    ready: Vec<(AnsweredRequest, Vec<u8>)>,
}

/// The number of frames sent is not known yet.
const SENDING: u64 = u64::MAX;

/// Frames that arrived.
#[derive(Default)]
pub(crate) struct ReceivedFrames {
    pub(crate) streams: StreamMeter,
    pub(crate) flow: Flow,
    /// Frames of a capture, and how many were sent.
    pub(crate) replay: Option<(ReplayMeter, u64)>,
    /// The longest pause between two polls of the port, if no clock but ours stamps its frames.
    pub(crate) longest_pause: Option<Duration>,
    /// The failure that ended the counting before the sending.
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
    /// Opens the receiver of frames that go to `targets`, of streams below the number `streams`. What arrives from now on is
    /// counted. Frames of a capture are recognised by `replay`.
    pub(crate) fn open(
        eal: &'static Eal,
        port: &PortSpec,
        targets: Vec<Destinations>,
        (streams, replay): (u32, Option<ReplayMeter>),
        wait: Duration,
    ) -> Result<Self, Failure> {
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_ns = u64::try_from(began.as_nanos()).unwrap_or(0);
        let port = match ring_of(port) {
            Some(name) => {
                // Stamps of 64-byte frames at some million frames a second for 100 ms: what a hiccup lasts.
                let config = RingConfig { blocks: 512, ..RingConfig::default() };
                let ring = ArrivalPort::of_interface(name, &config).map_err(Failure::new)?;
                xdp_programs::warn_if_any(name);
                ring
            }
            None => {
                let polled = ArrivalPort::of_device(eal, &device(port)?).map_err(Failure::new)?;
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
            asked: Vec::new(),
            answer: Vec::new(),
            ready: Vec::new(),
        };
        Ok(FarEnd { port, began_ns, wait, neighbour, streams, replay })
    }

    /// Waits for `frames` learning frames, and answers requests meanwhile. Missing ones are not a failure: the test may
    /// be about that.
    pub(crate) fn learn(&mut self, frames: u32, stop: &Stop) -> Result<(), Failure> {
        let (began, mut last, mut came) = (Instant::now(), None::<Instant>, 0);
        while came < frames && began.elapsed() < LEARN && last.is_none_or(|last| last.elapsed() < LEARNT) {
            if stop.asked() {
                break;
            }
            let neighbour = &mut self.neighbour;
            let taken = self.port.next(LOOK, |frame| match Stamp::of(frame.bytes) {
                Some(Stamp { time_ns: 0, .. }) => {
                    came += 1;
                    last = Some(Instant::now());
                }
                Some(_) => {}
                None => neighbour.look(frame),
            });
            taken.map_err(|cause| broke_off(&cause))?;
            self.neighbour.speak(&mut self.port);
        }
        Ok(())
    }

    /// Counts on its own thread while `send` runs, and until nothing more arrives. `frames` returns the number of
    /// recognisable frames sent. If receiving fails, sets `stop`, because later frames would not be counted. A signal
    /// while it waits for the last frames ends the wait.
    pub(crate) fn during<T>(
        mut self,
        send: impl FnOnce() -> T,
        frames: impl FnOnce(&T) -> u64,
        stop: &Stop,
    ) -> (T, ReceivedFrames) {
        let sent = AtomicU64::new(SENDING);
        // A failure of the sender must not cut the wait short.
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
        let longest = self.port.longest().map_err(Failure::new)?;
        // When a frame came last, and when one did that was still missing.
        let (mut last, mut found) = (Instant::now(), Instant::now());
        let (mut came, mut earlier, mut foreign) = (0, 0, 0);
        loop {
            let sent = sent.load(Ordering::Acquire);
            let over = sent != SENDING;
            let (neighbour, began_ns, streams) = (&mut self.neighbour, self.began_ns, self.streams);
            let replay = &mut self.replay;
            let taken = self.port.next(LOOK, |frame| {
                if let Some(replay) = replay {
                    arrived.flow.partial_checksums += u64::from(frame.partial_checksum);
                    arrived.flow.super_frames += u64::from(frame.original_len > longest);
                    if Fingerprint::of(frame.bytes).is_some_and(|found| replay.record(replay_frames::digests(found))) {
                        (last, found) = (Instant::now(), Instant::now());
                        came += 1;
                    }
                    return;
                }
                let Some(stamp) = Stamp::of(frame.bytes) else {
                    neighbour.look(frame);
                    return;
                };
                // A learning frame was answered for, or is too late.
                if stamp.time_ns == 0 {
                    return;
                }
                if stamp.time_ns < began_ns {
                    earlier += 1;
                    return;
                }
                // Other hosts may send these without end.
                if u32::from(stamp.stream) >= streams {
                    foreign += 1;
                    return;
                }
                last = Instant::now();
                if arrived.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, frame.time_ns) {
                    if came < sent {
                        found = last;
                    }
                    came += 1;
                }
                arrived.flow.partial_checksums += u64::from(frame.partial_checksum);
                arrived.flow.super_frames += u64::from(frame.original_len > longest);
            });
            taken.map_err(|cause| broke_off(&cause))?;
            self.neighbour.speak(&mut self.port);
            if !over {
                // The quiet period begins when the last frame was sent.
                (last, found) = (Instant::now(), Instant::now());
            }
            if over && !ended_by_user.load(Ordering::Acquire) && stop.asked() {
                output::warn(
                    "--in: the run was ended while it waited for frames: frames still in flight count as lost",
                );
                break;
            }
            // Duplicates, or frames of another generator, may arrive without end.
            if over && (found.elapsed() > self.wait || came >= sent && last.elapsed() > COPIES) {
                break;
            }
        }
        match self.replay.take() {
            Some(replay) => arrived.replay = Some((replay, sent.load(Ordering::Acquire))),
            None => {
                arrived.flow.earlier = Some(earlier);
                arrived.flow.foreign = Some(foreign);
                arrived.flow.answers = Some(self.neighbour.report.clone());
            }
        }
        arrived.flow.kernel_drops = self.port.lost().map_err(Failure::new)?;
        arrived.longest_pause = self.port.longest_pause();
        Ok(())
    }
}

impl Neighbour {
    /// Creates the answer to a request for a destination address, unless the kernel has this address.
    fn look(&mut self, frame: &Received<'_>) {
        self.report.came.add(FrameLen::of_captured(frame.link_len()));
        self.asked.clear();
        frame.write_to(&mut self.asked);
        // Ignores VLAN tags, since a router may have changed them.
        let owner = |address, _| {
            let target = self.targets.iter().find(|target| target.has(address))?;
            (!self.kernels.contains(&address)).then(|| target.mac(self.own))
        };
        match packet::answer(&self.asked, owner, &mut self.answer) {
            Some(answered) => self.ready.push((answered, self.answer.clone())),
            None => {
                self.report.ignored += 1;
                let question = packet::asked(&self.asked);
                if let Some(question) = question.filter(|(_, target)| !self.kernels.contains(target)) {
                    self.report.ask_in_vain(question);
                }
            }
        }
    }

    fn speak(&mut self, port: &mut ArrivalPort) {
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
