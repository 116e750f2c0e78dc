//! The queues of a port, each of which receives or sends for one thread at a time.

use crate::arrivals::Arrivals;
use crate::port::{PortInner, TAP, text};
use crate::tap_sender::TapSender;
use crate::xdp_stamps::Stamps;
use crate::{BURST, Burst, Mbuf, Outgoing, PacketSender, Result, relation};
use dpdk_sys as sys;
use packet::Frame;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A receive queue: one of a kind, to be used by one thread at a time.
#[derive(Debug)]
pub struct RxQueue {
    // It has to go before the port, whose socket it keeps open.
    arrivals: Option<Arrivals>,
    stamps: Option<Stamps>,
    port: Arc<PortInner>,
    queue: u16,
    segmented: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl RxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Self {
        let arrivals = Arrivals::of(&port.sockets, &port.arguments, queue);
        let stamps = port.stamper.is_some().then(Stamps::default);
        RxQueue { arrivals, stamps, port, queue, segmented: 0, not_sync: PhantomData }
    }

    /// From now on frames say how long they were there before this queue was polled ([`packet::Frame::waited`]), where the
    /// port tells: with `net_af_packet`, whose rings hold the kernel's stamps, and with `net_af_xdp`, by a program of ours.
    /// Frames of others say that they have not waited. True if it tells.
    pub fn tell_waits(&mut self) -> bool {
        let ring = self.arrivals.as_mut().map(Arrivals::tell_waits).is_some();
        let stamps = self.stamps.as_mut().map(Stamps::tell_waits).is_some();
        ring || stamps
    }

    /// Adds to the burst what has arrived, as far as it has room, and gives how many frames that
    /// were. Never waits.
    ///
    /// Checksums that a sender on this machine left to a device, which a virtual interface is not, are filled
    /// in: see [`packet::complete_checksum`], and `rx_completed` of [`Port::stats`](crate::Port::stats).
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
        let (port, queue) = (self.port.number, self.queue);
        let most = match &mut self.arrivals {
            Some(arrivals) => arrivals.look(most.min(BURST - before)),
            None => most,
        };
        if most == 0 {
            return 0;
        }
        let received = burst.fill(|into, room| {
            // SAFETY: the port runs as long as this queue lives, the queue is polled by nobody else, and
            // there is room for that many pointers. What the driver delivers is ours.
            usize::from(unsafe { sys::shim_rx_burst(port, queue, into, room.min(most) as u16) })
        });
        if received > 0 {
            let fresh = &mut burst.as_mut_slice()[before..];
            match (&mut self.arrivals, &self.stamps) {
                (Some(arrivals), _) => arrivals.tell(fresh),
                (None, Some(stamps)) => stamps.tell(fresh),
                // What came by another port of ours may know of its wait there, and a NIC writes what it likes.
                (None, None) => fresh.iter_mut().for_each(|frame| frame.set_waited(0)),
            }
        }
        if received > 0 && burst.as_slice()[before..].iter().any(|frame| frame.segments() != 1) {
            self.segmented += burst.retain(|frame| frame.segments() == 1) as u64;
        }
        if received > 0 && self.port.interface.is_some() {
            let fresh = burst.as_mut_slice()[before..].iter_mut();
            let completed =
                fresh.filter_map(|frame| packet::complete_checksum(frame.bytes_mut()).then_some(())).count();
            if completed > 0 {
                self.port.completed.fetch_add(completed as u64, Ordering::Relaxed);
            }
        }
        burst.len() - before
    }

    /// Frames dropped because they came in more than one segment.
    #[must_use]
    pub fn segmented(&self) -> u64 {
        self.segmented
    }

    /// The longest frame that can arrive whole, in bytes without FCS, where the driver cuts longer ones and does not
    /// tell: what is longer was cut, or was merged of several. The interface's MTU when the port was opened, with
    /// Ethernet's header and two tags.
    #[must_use]
    pub fn longest_whole(&self) -> usize {
        let cuts = self.port.device.starts_with("net_af_packet");
        if cuts { self.port.max_frame.at_open + 8 } else { usize::MAX }
    }

    /// The queue's number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.queue
    }
}

/// A transmit queue: one of a kind, to be used by one thread at a time.
#[derive(Debug)]
pub struct TxQueue {
    port: Arc<PortInner>,
    queue: u16,
    max_frame: usize,
    oversize: u64,
    /// Calls that took nothing, in a row.
    refusals: u32,
    /// Sends frames past the driver: each, or each that leaves alone.
    calls: Option<Calls>,
    only_alone: bool,
    not_sync: PhantomData<Cell<()>>,
}

/// One system call for each frame.
#[derive(Debug)]
enum Calls {
    Socket(PacketSender),
    Tap(TapSender),
}

impl Calls {
    fn send(&mut self, frame: &mut Mbuf) -> Result<bool> {
        match self {
            Calls::Socket(sender) => sender.send(frame.bytes()),
            Calls::Tap(sender) => sender.send(frame),
        }
    }
}

/// After how many calls in a row that took nothing the link is looked at, and each time after as many again: some
/// milliseconds.
const LOOK_AT_LINK: u32 = 4_096;

impl TxQueue {
    pub(crate) fn new(port: Arc<PortInner>, queue: u16) -> Self {
        let max_frame = port.max_frame.now();
        let not_sync = PhantomData;
        TxQueue { port, queue, max_frame, oversize: 0, refusals: 0, calls: None, only_alone: false, not_sync }
    }

    /// From now on each frame is sent by a system call of ours, where the driver is `net_af_packet` or `net_tap`, and where
    /// it is `net_af_xdp` on a veth with one queue, each that is handed over alone. Of other ports nothing changes. For frames that leave
    /// one at a time.
    ///
    /// Past `net_af_packet` their way takes as long as any other packet socket's, while that through the driver's ring
    /// takes longer the longer the frame is, since the ring's memory is seldom in a cache. A burst takes longer: use it
    /// for neither or all frames of a queue, since what waits in the ring is overtaken. On a veth the kernel copies what
    /// `net_af_xdp` gives it, too, by a way that takes less time and not as evenly; it has sent all of that when the
    /// driver returns. Past `net_tap` the call is the driver's in a shorter form.
    ///
    /// # Errors
    /// Those of [`PacketSender::open`]; [`Error::System`].
    pub fn send_by_calls(&mut self) -> Result<()> {
        let Some(interface) = &self.port.interface else { return Ok(()) };
        self.calls = match text(&self.port.raw_info()?.driver).as_str() {
            "net_af_packet" => Some(Calls::Socket(PacketSender::open(&interface.name)?)),
            "net_af_xdp" if relation::is_veth(interface)? && interface.sends_by_one_queue()? => {
                self.only_alone = true;
                Some(Calls::Socket(PacketSender::open(&interface.name)?))
            }
            TAP => TapSender::open(&interface.name)?.map(Calls::Tap),
            _ => None,
        };
        Ok(())
    }

    /// Whether each frame of a burst leaves by a call of its own, one after the other.
    #[must_use]
    pub fn calls_for_each(&self) -> bool {
        self.calls.is_some() && !self.only_alone
    }

    /// Hands frames to the driver and gives how many it took: a prefix, which is out of the burst
    /// when this returns. The rest stays, to be sent again or dropped. Never waits for the line,
    /// though a software driver sends within the call.
    ///
    /// Frames that the link cannot carry (see [`max_frame`](TxQueue::max_frame)) are removed, freed
    /// and counted by [`oversize`](TxQueue::oversize) instead: the kernel would drop them after the
    /// driver has counted them as sent. So `len before = given + oversize added + len after`.
    ///
    /// 0 from a burst that is not empty means that the queue is full *or that the interface is down*:
    /// `net_af_packet` takes frames until its ring is full, then none until the interface is up
    /// again; the ring's are sent then. [`PortInfo::link_up`](crate::PortInfo::link_up) tells.
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
        if let Some(calls) = &mut self.calls
            && (!self.only_alone || burst.len() == 1)
        {
            // What is refused, for want of room or because the interface is down, is tried again; what is too long for
            // its MTU now, the caller leaves out.
            let (mut taken, mut refused) = (0, None);
            for frame in burst.iter_mut().take(most) {
                match calls.send(frame) {
                    Ok(true) => taken += 1,
                    other => {
                        refused = other.err();
                        break;
                    }
                }
            }
            self.refusals = if taken == 0 { self.refusals.wrapping_add(1) } else { 0 };
            // Nobody says when the other end of a veth pair gets a smaller MTU: it looks like a full queue, for ever.
            let stuck = self.refusals > 0 && self.refusals.is_multiple_of(LOOK_AT_LINK);
            if (stuck || refused.is_some_and(|error| error.is_too_long()))
                && let Some(interface) = &self.port.interface
            {
                self.port.max_frame.follow(interface.index);
            }
            burst.drop_first(taken);
            return taken;
        }
        let (port, queue) = (self.port.number, self.queue);
        burst.hand_over(|frames, count| {
            // SAFETY: the port runs as long as this queue lives, and nobody else sends on it; the frames
            // are ours, whole and single, and those taken are not touched again.
            usize::from(unsafe { sys::shim_tx_burst(port, queue, frames, count.min(most) as u16) })
        })
    }

    /// Hands frames to the driver as [`send`](TxQueue::send) does, and gives how many it took: a prefix.
    ///
    /// Frames that the link cannot carry are for the caller to leave out, see
    /// [`carries`](TxQueue::carries).
    #[must_use = "frames that were not taken are still to be sent"]
    pub fn send_out(&mut self, frames: &mut Outgoing) -> usize {
        let (port, queue) = (self.port.number, self.queue);
        frames.hand_over(|frames, count| {
            // SAFETY: the port runs as long as this queue lives, and nobody else sends on it; the frames
            // are whole and single, nobody changes them, and each is given with an owner of its own, which
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
    frame.len() > most && !(frame.len() <= most + 4 && packet::Frame::bytes(frame)[12..14] == [0x81, 0x00])
}
