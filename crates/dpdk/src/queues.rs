//! The queues of a port, each of which receives or sends for one thread at a time.

use crate::packet_port::{Counts, PacketReceiver};
use crate::port::{PortInner, TAP, Way};
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

/// A receive queue: one of a kind, to be used by one thread at a time.
#[derive(Debug)]
pub struct RxQueue {
    // It has to go before the port, whose sockets it reads.
    from: Receiver,
    port: Arc<PortInner>,
    queue: u16,
    segmented: u64,
    /// The time that the waits of the frames of the last poll end at, where they are given.
    read_at: Option<Time>,
    arrivals: Arrivals,
    not_sync: PhantomData<Cell<()>>,
}

/// Where a receive queue has its frames from.
#[derive(Debug)]
enum Receiver {
    /// DPDK's port of this number, and the stamps of what arrives there, if it has any.
    Driver(u16, Option<Stamped>),
    Packet(Box<PacketReceiver>),
}

/// Who stamps the frames that a driver delivers.
#[derive(Debug)]
enum Stamped {
    Xdp(Stamps),
    Tap(Box<TapStamps>),
}

impl RxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Result<Self> {
        let from = match &port.way {
            Way::Driver(attached) => {
                let stamps = attached.stamps().then(|| Stamped::Xdp(Stamps::default()));
                Receiver::Driver(attached.number, stamps)
            }
            Way::Packet(sockets) => {
                let longest = port.max_frame.at_open + 2 * TAG;
                Receiver::Packet(Box::new(sockets.receiver(queue, &port.pool, longest)?))
            }
        };
        let (read_at, arrivals) = (None, Arrivals::default());
        Ok(RxQueue { from, port, queue, segmented: 0, read_at, arrivals, not_sync: PhantomData })
    }

    /// From now on frames say how long they were there before this queue was polled ([`packet::Frame::waited`]), to the
    /// reading of `clock` that [`read_at`](RxQueue::read_at) gives, where the port knows: with packet sockets, whose rings hold the kernel's stamps, with `net_af_xdp`, by a program of ours, and
    /// with `net_tap`, by a packet socket beside it. Frames of others say that they have not waited. True if it knows.
    pub fn tell_waits(&mut self, clock: TscClock) -> bool {
        match &mut self.from {
            Receiver::Driver(_, Some(Stamped::Xdp(stamps))) => stamps.tell_waits(clock),
            Receiver::Driver(_, Some(Stamped::Tap(_))) => {}
            Receiver::Driver(_, stamps @ None) => {
                let tap = self.port.interface.as_ref().filter(|_| self.port.device.starts_with(TAP));
                *stamps = tap.and_then(|tap| TapStamps::open(tap, clock)).map(|heard| Stamped::Tap(Box::new(heard)));
                return stamps.is_some();
            }
            Receiver::Packet(receiver) => receiver.tell_waits(clock),
        }
        true
    }

    /// Adds to the burst what has arrived, as far as it has room, and gives how many frames that
    /// were. Never waits.
    ///
    /// Checksums that a sender on this machine left to a device, which a virtual interface is not, are filled
    /// in: by what the kernel says of each frame with packet sockets, else see [`packet::complete_checksum`]; and
    /// `rx_completed` of [`Port::stats`](crate::Port::stats).
    ///
    /// Frames in several segments are dropped and counted by [`segmented`](RxQueue::segmented). An
    /// empty pool shows as nothing received, and in `rx_no_buffer` of [`Port::stats`](crate::Port::stats) where the driver
    /// counts it.
    pub fn poll(&mut self, burst: &mut Burst) -> usize {
        self.poll_up_to(burst, BURST)
    }

    /// [`poll`](RxQueue::poll), for at most `most` frames: what a frame costs to receive, a departure
    /// may have to wait for.
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
                    // SAFETY: the port runs as long as this queue lives, no other thread polls the queue, and
                    // there is room for that many pointers. What the driver delivers is ours.
                    usize::from(unsafe { sys::shim_rx_burst(port, queue, into, room.min(most) as u16) })
                });
                if received == 0 {
                    return 0;
                }
                let fresh = &mut burst.as_mut_slice()[before..];
                self.read_at = match stamps {
                    Some(Stamped::Xdp(stamps)) => stamps.tell(fresh),
                    Some(Stamped::Tap(heard)) => Some(heard.tell(fresh)),
                    // What came by another port of ours may know of its wait there, and a NIC writes what it likes.
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

    /// The time on the run's clock at which the waits of the frames of the last poll end; none where frames do not say how
    /// long they waited.
    #[must_use]
    pub fn read_at(&self) -> Option<Time> {
        self.read_at
    }

    /// Frames dropped because they came in more than one segment.
    #[must_use]
    pub fn segmented(&self) -> u64 {
        self.segmented
    }

    /// Lengths in bytes, without FCS, of the frames that the last poll found and did not deliver, with packet sockets: those
    /// that are longer than the interface's MTU when the port was opened, with Ethernet's header and two tags, and segments
    /// that a sender on this machine left to its device to cut up, whatever their length.
    #[must_use]
    pub fn refused(&self) -> &[u32] {
        match &self.from {
            Receiver::Driver(..) => &[],
            Receiver::Packet(receiver) => receiver.refused(),
        }
    }

    /// The queue's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }
}

/// What a VLAN tag adds to a frame, in bytes.
const TAG: usize = 4;

/// A transmit queue: one of a kind, to be used by one thread at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<PortInner>,
    queue: u16,
    max_frame: usize,
    oversize: u64,
    /// Calls that took nothing, in a row.
    refusals: u32,
    by: Sender,
    /// Each frame of a burst is handed over by itself.
    one_by_one: bool,
    not_sync: PhantomData<Cell<()>>,
}

/// How a queue sends. The numbers are those of DPDK's ports.
#[derive(Debug)]
enum Sender {
    Driver(u16),
    /// What is handed over alone goes by a call.
    Alone(u16, PacketSender),
    /// Kept frames go by the driver.
    Tap(u16, TapSender),
    Packet(PacketSender, Arc<Counts>),
}

/// Sends the first `most` frames of a burst by a call each. Gives how many were taken, and why not more, if the kernel
/// said more than that there is no room.
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

/// After how many calls in a row that took nothing the link is looked at, and each time after as many again: some
/// milliseconds.
const LOOK_AT_LINK: u32 = 4_096;

impl TxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Result<Self> {
        let max_frame = port.max_frame.now();
        let by = match (&port.way, &port.interface) {
            (Way::Packet(sockets), Some(interface)) => {
                let counts = Arc::clone(&sockets.sent[usize::from(queue)]);
                Sender::Packet(PacketSender::on(interface)?, counts)
            }
            (Way::Packet(_), None) => unreachable!("packet sockets are an interface's"),
            (Way::Driver(attached), _) => Sender::Driver(attached.number),
        };
        let not_sync = PhantomData;
        Ok(TxQueue { port, queue, max_frame, oversize: 0, refusals: 0, by, one_by_one: false, not_sync })
    }

    /// From now on each frame is handed over by itself ([`calls_for_each`](TxQueue::calls_for_each)) and sent by a system
    /// call of ours, where the port has packet sockets or DPDK's driver is `net_tap`; and where that is `net_af_xdp` on a
    /// veth with one queue, each that is handed over alone. Of other ports nothing changes. For frames that leave one at a
    /// time.
    ///
    /// On a veth the kernel copies what `net_af_xdp` gives it, too, by a way that takes less time and not as evenly; it has
    /// sent all of that when the driver returns. Past `net_tap` the call is the driver's in a shorter form.
    ///
    /// # Errors
    /// Those of [`PacketSender::open`]; [`Error::System`].
    pub fn send_by_calls(&mut self) -> Result<()> {
        let Some(interface) = &self.port.interface else { return Ok(()) };
        let Way::Driver(attached) = &self.port.way else {
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

    /// Whether each frame of a burst is to be handed over by itself, one after the other.
    #[must_use]
    pub fn calls_for_each(&self) -> bool {
        self.one_by_one
    }

    /// Hands frames to the driver and gives how many it took: a prefix, which is out of the burst
    /// when this returns. The rest stays, to be sent again or dropped. Never waits for the line,
    /// though a software driver sends within the call.
    ///
    /// Frames that the link cannot carry (see [`max_frame`](TxQueue::max_frame)) are removed, freed
    /// and counted by [`oversize`](TxQueue::oversize) instead: the kernel would drop them after the
    /// driver has counted them as sent. So `len before = given + oversize added + len after`.
    ///
    /// 0 from a burst that is not empty means that the queue is full *or that the interface is down*.
    /// [`PortInfo::link_up`](crate::PortInfo::link_up) tells which.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn send(&mut self, burst: &mut Burst) -> usize {
        self.send_up_to(burst, BURST)
    }

    /// Sends as [`send`](TxQueue::send) does, but `most` frames at most.
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
                    // SAFETY: the port runs as long as this queue lives, and no other thread sends on it; the frames
                    // are ours, whole and single, and those taken are not touched again.
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

    /// What is refused, for want of room or because the interface is down, is tried again; what is too long for its MTU now,
    /// the caller leaves out.
    fn note_refusal(&mut self, taken: usize, refused: Option<&Error>) {
        self.refusals = if taken == 0 { self.refusals.wrapping_add(1) } else { 0 };
        // The kernel does not say when the other end of a veth pair gets a smaller MTU: it looks like a full queue, for ever.
        let stuck = self.refusals > 0 && self.refusals.is_multiple_of(LOOK_AT_LINK);
        if (stuck || refused.is_some_and(Error::is_too_long))
            && let Some(interface) = &self.port.interface
        {
            self.port.max_frame.follow(interface.index);
        }
    }

    /// Hands frames to the driver as [`send`](TxQueue::send) does, and gives how many it took: a prefix.
    ///
    /// Frames that the link cannot carry are for the caller to leave out, see
    /// [`carries`](TxQueue::carries). Those that were let in before its MTU was lowered are dropped, and count as taken.
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
            // SAFETY: the port runs as long as this queue lives, and no other thread sends on it; the frames
            // are whole and single, they do not change, and each is given with an owner of its own, which
            // the driver becomes of those it takes.
            usize::from(unsafe { sys::shim_tx_burst(port, queue, frames, count as u16) })
        })
    }

    /// The longest frame that the link carries, in bytes without FCS, as of when the port was opened or
    /// [`follow_link`](TxQueue::follow_link) was called: 14 bytes and the MTU of the interface, or of a veth's other end. A frame with a VLAN tag
    /// may have 4 more.
    #[must_use]
    pub fn max_frame(&self) -> usize {
        self.max_frame
    }

    /// Goes by the interface's MTU as it was when somebody looked last: [`PortInterface::follow_mtu`](crate::PortInterface::follow_mtu), or this queue
    /// itself when the kernel refused a frame. True if that has changed, so that frames which were let in before may
    /// be too long now.
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

    /// Whether the link carries a frame of this length, see [`max_frame`](TxQueue::max_frame).
    #[must_use]
    pub fn carries(&self, frame: &crate::Mbuf) -> bool {
        !too_long(frame, self.max_frame)
    }

    /// Frames that the queue holds, as it was made.
    #[must_use]
    pub fn descriptors(&self) -> u16 {
        self.port.tx_descriptors
    }

    /// The queue's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }
}

#[inline]
fn too_long(frame: &crate::Mbuf, most: usize) -> bool {
    // Linux gives a frame with an 802.1Q tag four bytes more.
    frame.len() > most && !(frame.len() <= most + TAG && packet::Frame::bytes(frame)[12..14] == [0x81, 0x00])
}
