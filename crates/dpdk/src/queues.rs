//! Receive and transmit queues of a port. One thread uses a queue at a time.

use crate::packet_port::{Counts, PacketReceiver};
use crate::port::{PortBackend, PortInner, TAP};
use crate::tap_sender::TapSender;
use crate::tap_stamps::TapStamps;
use crate::waits::Arrivals;
use crate::xdp_stamps::Stamps;
use crate::{BURST, Burst, Error, Mbuf, Outgoing, PacketSender, Result, TscClock, relation};
use dpdk_sys as sys;
use packet::Frame;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::Time;

/// A receive queue. It cannot be cloned, and one thread uses it at a time.
#[derive(Debug)]
pub struct RxQueue {
    // Declared before `port` so that it is dropped first: it reads the port's sockets.
    from: Receiver,
    port: Arc<PortInner>,
    queue: u16,
    segmented: u64,
    /// The time up to which the last poll measured waits. `None` where waits are not measured.
    read_at: Option<Time>,
    arrivals: Arrivals,
    not_sync: PhantomData<Cell<()>>,
}

/// The source of a receive queue's frames.
#[derive(Debug)]
enum Receiver {
    /// The DPDK port number, and the arrival stamps if the port has any.
    Driver(u16, Option<Stamped>),
    Packet(Box<PacketReceiver>),
}

/// The source of arrival stamps for frames from a driver.
#[derive(Debug)]
enum Stamped {
    Xdp(Stamps),
    Tap(Box<TapStamps>),
}

impl RxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Result<Self> {
        let from = match &port.backend {
            PortBackend::Driver(attached) => {
                let stamps = attached.stamps().then(|| Stamped::Xdp(Stamps::default()));
                Receiver::Driver(attached.number, stamps)
            }
            PortBackend::Packet(sockets) => {
                let longest = port.max_frame.at_open + 2 * TAG;
                Receiver::Packet(Box::new(sockets.receiver(queue, &port.pool, longest)?))
            }
        };
        let (read_at, arrivals) = (None, Arrivals::default());
        Ok(RxQueue { from, port, queue, segmented: 0, read_at, arrivals, not_sync: PhantomData })
    }

    /// Makes each frame report how long it was in the port before this queue was polled ([`packet::Frame::waited`]).
    /// The wait ends at the reading of `clock` that [`read_at`](RxQueue::read_at) returns.
    ///
    /// Stamps come from the kernel's ring with packet sockets, from our XDP program with `net_af_xdp`, and from a
    /// packet socket on the same device with `net_tap`. On all other ports frames report no wait. Returns true if the
    /// port has stamps.
    pub fn measure_waits(&mut self, clock: TscClock) -> bool {
        match &mut self.from {
            Receiver::Driver(_, Some(Stamped::Xdp(stamps))) => stamps.measure_waits(clock),
            Receiver::Driver(_, Some(Stamped::Tap(_))) => {}
            Receiver::Driver(_, stamps @ None) => {
                let tap = self.port.interface.as_ref().filter(|_| self.port.device.starts_with(TAP));
                *stamps = tap.and_then(|tap| TapStamps::open(tap, clock)).map(|heard| Stamped::Tap(Box::new(heard)));
                return stamps.is_some();
            }
            Receiver::Packet(receiver) => receiver.measure_waits(clock),
        }
        true
    }

    /// Adds received frames to `burst` up to its room. Returns the number added. Never blocks.
    ///
    /// Completes checksums that a sender on this machine left to a device, because a virtual interface does not
    /// complete them. Packet sockets use the kernel's record for each frame; other drivers use
    /// [`packet::complete_checksum`]. `rx_completed` of [`Port::stats`](crate::Port::stats) counts these frames.
    ///
    /// Frames of more than one segment are dropped and counted by [`segmented`](RxQueue::segmented). If the pool is
    /// empty, nothing is received, and `rx_no_buffer` of [`Port::stats`](crate::Port::stats) counts this if the driver
    /// reports it.
    pub fn poll(&mut self, burst: &mut Burst) -> usize {
        self.poll_up_to(burst, BURST)
    }

    /// Like [`poll`](RxQueue::poll), but receives at most `most` frames. Use a small limit when a departure is near:
    /// receiving a frame takes time that can delay it.
    pub fn poll_up_to(&mut self, burst: &mut Burst, most: usize) -> usize {
        let before = burst.len();
        let completed = match &mut self.from {
            Receiver::Packet(receiver) => {
                receiver.poll(burst, most.min(BURST - before));
                self.read_at = receiver.read_at();
                receiver.completed
            }
            Receiver::Driver(port, stamps) => {
                let (port, queue) = (*port, self.queue);
                let received = burst.fill(|into, room| {
                    // SAFETY: the port outlives this queue, no other thread polls the queue, and `into` has room for
                    // `room` pointers to frames that become ours.
                    usize::from(unsafe { sys::shim_rx_burst(port, queue, into, room.min(most) as u16) })
                });
                if received == 0 {
                    return 0;
                }
                let fresh = &mut burst.as_mut_slice()[before..];
                self.read_at = match stamps {
                    Some(Stamped::Xdp(stamps)) => stamps.set_waits(fresh),
                    Some(Stamped::Tap(heard)) => Some(heard.set_waits(fresh)),
                    // Clear the field: another port of ours may have written its own wait there, and a NIC may write
                    // anything.
                    None => {
                        fresh.iter_mut().for_each(|frame| frame.set_waited(0));
                        None
                    }
                };
                if burst.as_slice()[before..].iter().any(|frame| frame.segments() != 1) {
                    self.segmented += burst.retain(|frame| frame.segments() == 1) as u64;
                }
                if self.port.interface.is_some() {
                    let fresh = burst.as_mut_slice()[before..].iter_mut();
                    fresh.map(|frame| u64::from(packet::complete_checksum(frame.bytes_mut()))).sum()
                } else {
                    0
                }
            }
        };
        if completed > 0 {
            self.port.completed.fetch_add(completed, Ordering::Relaxed);
        }
        if let Some(at) = self.read_at {
            for frame in &mut burst.as_mut_slice()[before..] {
                frame.set_waited(self.arrivals.wait(at, (frame.waited().as_ps() / 1_000) as u32));
            }
        }
        burst.len() - before
    }

    /// The time on the run's clock at which the waits of the last poll end. `None` where waits are not measured.
    #[must_use]
    pub fn read_at(&self) -> Option<Time> {
        self.read_at
    }

    /// Frames dropped because they had more than one segment.
    #[must_use]
    pub fn segmented(&self) -> u64 {
        self.segmented
    }

    /// Lengths in bytes, without FCS, of the frames that the last poll rejected. Only packet sockets reject frames:
    /// those longer than the interface's MTU at open plus the Ethernet header and two tags, and GSO super-frames of any
    /// length from a sender on this machine.
    #[must_use]
    pub fn refused(&self) -> &[u32] {
        match &self.from {
            Receiver::Driver(..) => &[],
            Receiver::Packet(receiver) => receiver.refused(),
        }
    }

    /// The queue number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }
}

/// The length of a VLAN tag in bytes.
const TAG: usize = 4;

/// A transmit queue. It cannot be cloned, and one thread uses it at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<PortInner>,
    queue: u16,
    max_frame: usize,
    oversize: u64,
    /// Consecutive calls that sent no frame.
    refusals: u32,
    by: Sender,
    /// Frames of a burst are sent one at a time.
    one_by_one: bool,
    not_sync: PhantomData<Cell<()>>,
}

/// How a queue sends. The numbers are DPDK port numbers.
#[derive(Debug)]
enum Sender {
    Driver(u16),
    /// A burst of one frame is sent by a system call, any other by the driver.
    Alone(u16, PacketSender),
    /// The driver sends kept frames.
    Tap(u16, TapSender),
    Packet(PacketSender, Arc<Counts>),
}

/// Sends the first `most` frames of a burst, one call each. Returns the number sent, and the kernel's error if it
/// stopped for any reason other than lack of room.
fn send_each(
    burst: &mut Burst,
    most: usize,
    mut send: impl FnMut(&mut Mbuf) -> Result<bool>,
) -> (usize, Option<Error>) {
    for (taken, frame) in burst.iter_mut().take(most).enumerate() {
        match send(frame) {
            Ok(true) => {}
            other => return (taken, other.err()),
        }
    }
    (burst.len().min(most), None)
}

/// The queue checks the link's MTU each time this number of consecutive calls has sent nothing. This takes a few
/// milliseconds.
const LOOK_AT_LINK: u32 = 4_096;

impl TxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Result<Self> {
        let max_frame = port.max_frame.now();
        let by = match (&port.backend, &port.interface) {
            (PortBackend::Packet(sockets), Some(interface)) => {
                let counts = Arc::clone(&sockets.sent[usize::from(queue)]);
                Sender::Packet(PacketSender::on(interface)?, counts)
            }
            (PortBackend::Packet(_), None) => unreachable!("packet sockets are an interface's"),
            (PortBackend::Driver(attached), _) => Sender::Driver(attached.number),
        };
        let not_sync = PhantomData;
        Ok(TxQueue { port, queue, max_frame, oversize: 0, refusals: 0, by, one_by_one: false, not_sync })
    }

    /// Sends each frame by its own system call, for frames that leave one at a time. See
    /// [`calls_for_each`](TxQueue::calls_for_each).
    ///
    /// Applies to ports with packet sockets and to `net_tap`. With `net_af_xdp` on a veth with one queue it applies
    /// only to bursts of one frame. Other ports are unchanged.
    ///
    /// On a veth the kernel also copies what `net_af_xdp` sends. That path is faster but less even, and every frame is
    /// out when the driver returns. On `net_tap` our call is a shorter form of the driver's.
    ///
    /// # Errors
    /// Those of [`PacketSender::open`]; [`Error::System`].
    pub fn send_by_calls(&mut self) -> Result<()> {
        let Some(interface) = &self.port.interface else { return Ok(()) };
        let PortBackend::Driver(attached) = &self.port.backend else {
            self.one_by_one = true;
            return Ok(());
        };
        match attached.driver()?.as_str() {
            "net_af_xdp" if relation::is_veth(&interface.name)? && interface.sends_by_one_queue()? => {
                self.by = Sender::Alone(attached.number, PacketSender::on(interface)?);
            }
            TAP => {
                if let Some(sender) = TapSender::open(&interface.name)? {
                    self.by = Sender::Tap(attached.number, sender);
                    self.one_by_one = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the caller should hand over the frames of a burst one at a time.
    #[must_use]
    pub fn calls_for_each(&self) -> bool {
        self.one_by_one
    }

    /// Hands frames to the driver. Removes the frames that the driver took from the start of the burst and returns
    /// their number. The others stay in the burst to be sent again or dropped. Never waits for the line, although a
    /// software driver sends within the call.
    ///
    /// Frames that the link cannot carry (see [`max_frame`](TxQueue::max_frame)) are removed, freed and counted by
    /// [`oversize`](TxQueue::oversize). Otherwise the driver would count them as sent and the kernel would drop them.
    /// So `len before = taken + oversize added + len after`.
    ///
    /// A return value of 0 for a non-empty burst means that the queue is full *or that the interface is down*.
    /// [`PortInfo::link_up`](crate::PortInfo::link_up) shows which.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        self.send_up_to(burst, BURST)
    }

    /// Like [`send`](TxQueue::send), but sends at most `most` frames.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn send_up_to(&mut self, burst: &mut Burst, most: usize) -> usize {
        let longest = self.max_frame;
        if longest < usize::from(u16::MAX) && burst.iter().take(most).any(|frame| too_long(frame, longest)) {
            self.oversize += burst.retain(|frame| !too_long(frame, longest)) as u64;
        }
        let (taken, refused) = match &mut self.by {
            Sender::Alone(_, sender) if burst.len() == 1 => send_each(burst, most, |frame| sender.send(frame.bytes())),
            Sender::Driver(port) | Sender::Alone(port, _) => {
                let (port, queue) = (*port, self.queue);
                return burst.hand_over(|frames, count| {
                    // SAFETY: the port outlives this queue, no other thread sends on the queue, and the frames are
                    // ours, whole and single-segment, and not touched once taken.
                    usize::from(unsafe { sys::shim_tx_burst(port, queue, frames, count.min(most) as u16) })
                });
            }
            Sender::Packet(sender, counts) => {
                let sent = send_each(burst, most, |frame| sender.send(frame.bytes()));
                counts.add(sent.0 as u64, burst.iter().take(sent.0).map(|frame| frame.len() as u64).sum());
                sent
            }
            Sender::Tap(_, sender) => send_each(burst, most, |frame| sender.send(frame)),
        };
        burst.drop_first(taken);
        self.note_refusal(taken, refused.as_ref());
        taken
    }

    /// Counts refusals. The caller retries frames refused for lack of room or a down interface, and leaves out frames
    /// that are too long for the current MTU.
    fn note_refusal(&mut self, taken: usize, refused: Option<&Error>) {
        self.refusals = if taken == 0 { self.refusals.wrapping_add(1) } else { 0 };
        // The kernel does not report a lower MTU at the other end of a veth pair: the queue then looks full forever.
        let stuck = self.refusals > 0 && self.refusals.is_multiple_of(LOOK_AT_LINK);
        if (stuck || refused.is_some_and(Error::is_too_long))
            && let Some(interface) = &self.port.interface
        {
            self.port.max_frame.follow(interface.index);
        }
    }

    /// Hands frames to the driver like [`send`](TxQueue::send). Returns the number taken, from the first frame on.
    ///
    /// The caller leaves out frames that the link cannot carry: see [`carries`](TxQueue::carries). Frames that were
    /// added before the MTU was lowered are dropped and count as taken.
    #[must_use = "frames that were not taken are still to be sent"]
    pub fn send_out(&mut self, frames: &mut Outgoing) -> usize {
        let (port, queue) = match &mut self.by {
            Sender::Driver(port) | Sender::Alone(port, _) | Sender::Tap(port, _) => (*port, self.queue),
            Sender::Packet(sender, counts) => {
                let (mut refused, mut bytes) = (None, 0);
                let port = &self.port;
                let taken = frames.copy_out(|frame| {
                    let sent = sender.send(frame);
                    let gone = match &sent {
                        Ok(sent) => *sent || frame.len() > port.max_frame.now() + TAG,
                        Err(error) => error.is_too_long(),
                    };
                    bytes += if gone { frame.len() as u64 } else { 0 };
                    refused = sent.err().or(refused.take());
                    gone
                });
                counts.add(taken as u64, bytes);
                self.note_refusal(taken, refused.as_ref());
                return taken;
            }
        };
        frames.hand_over(|frames, count| {
            // SAFETY: the port outlives this queue, no other thread sends on the queue, and the frames are whole,
            // single-segment and unchanging, each with one reference that passes to the driver if it takes the frame.
            usize::from(unsafe { sys::shim_tx_burst(port, queue, frames, count as u16) })
        })
    }

    /// The longest frame that the link carries, in bytes without FCS: 14 bytes plus the MTU of the interface, or of a
    /// veth's other end. The value dates from the opening of the port or the last call of
    /// [`follow_link`](TxQueue::follow_link). A frame with a VLAN tag may be 4 bytes longer.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// Adopts the latest known MTU, read by [`PortInterface::follow_mtu`](crate::PortInterface::follow_mtu) or by this
    /// queue when the kernel refused a frame. Returns true if the MTU has changed: frames accepted before may now be
    /// too long.
    #[inline]
    pub fn follow_link(&mut self) -> bool {
        let now = self.port.max_frame.now();
        std::mem::replace(&mut self.max_frame, now) != now
    }

    /// Frames freed because they were too long.
    #[must_use]
    pub fn oversize(&self) -> u64 {
        self.oversize
    }

    /// Whether the link carries a frame of this length. See [`max_frame`](TxQueue::max_frame).
    #[must_use]
    pub fn carries(&self, frame: &crate::Mbuf) -> bool {
        !too_long(frame, self.max_frame)
    }

    /// The size of the queue in frames, as configured.
    #[must_use]
    pub fn descriptors(&self) -> u16 {
        self.port.tx_descriptors
    }

    /// The queue number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }
}

#[inline]
fn too_long(frame: &crate::Mbuf, most: usize) -> bool {
    // Linux allows four more bytes for a frame with an 802.1Q tag.
    frame.len() > most && !(frame.len() <= most + TAG && packet::Frame::bytes(frame)[12..14] == [0x81, 0x00])
}
