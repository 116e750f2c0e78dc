//! Frames from and to a Linux interface by packet sockets of our own, without a driver of DPDK.
//!
//! Each receive queue is a socket with a TPACKET_V2 ring: the kernel hands over each frame by itself, as soon as it is
//! there, with its stamp, the tag that it took out, and what its sender left to a device (`PACKET_VNET_HDR`). A single
//! queue is in no group of sockets, so any number of ports, processes and programs receive from one interface, each
//! everything. IP fragments stay what they are. What is sent goes by one call for each frame ([`PacketSender`](crate::PacketSender)).

use crate::interface::{Interface, set_option, socket};
use crate::losses::option;
use crate::packet_ring::{Map, bind_to, leave_out_outgoing, shut};
use crate::waits::{Clocks, Reading};
use crate::{BURST, Burst, Error, Mbuf, Pool, Result, TscClock};
use packet::{Frame, internet_checksum};
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use units::Time;

/// The receiving sockets of a port, open as long as it is, and what they and the sending ones have counted.
#[derive(Debug)]
pub(crate) struct PacketPort {
    receiving: Vec<Receiving>,
    pub(crate) received: Vec<Arc<Counts>>,
    pub(crate) sent: Vec<Arc<Counts>>,
    /// The kernel forgets a socket's losses when it has reported them.
    lost: AtomicU64,
    /// Times that frames were there and no buffer for them.
    no_buffer: Arc<AtomicU64>,
}

/// A socket whose ring is still to be given to a queue.
#[derive(Debug)]
struct Receiving {
    socket: OwnedFd,
    shape: Shape,
}

/// Frames and bytes of a queue. One thread adds, others look.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    /// Adds without a locked operation, since one thread alone does.
    pub(crate) fn add(&self, frames: u64, bytes: u64) {
        for (count, more) in [(&self.frames, frames), (&self.bytes, bytes)] {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    /// The sums of several queues: frames and bytes.
    pub(crate) fn of_all(queues: &[Arc<Counts>]) -> (u64, u64) {
        let sum = |count: fn(&Counts) -> &AtomicU64| queues.iter().map(|of| count(of).load(Ordering::Relaxed)).sum();
        (sum(|of| &of.frames), sum(|of| &of.bytes))
    }
}

impl PacketPort {
    /// Opens the sockets of the queues each way. Frames that arrive from now on are in their rings.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::System`].
    pub(crate) fn open(interface: &Interface, mtu: u32, rx_queues: u16, tx_queues: u16) -> Result<PacketPort> {
        let shape = Shape::of(mtu);
        let mut group = None;
        let mut receiving = Vec::new();
        for _ in 0..rx_queues {
            let socket = receiver(interface, &shape)?;
            let failed = |what: &str| Error::system(format!("{what} {}", interface.name));
            let fd = socket.as_raw_fd();
            if rx_queues == 1 {
                // A filter does the same where the kernel is older than 4.20, after a copy.
                if set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32).is_err() {
                    leave_out_outgoing(fd).map_err(|()| failed("leaving out what leaves"))?;
                }
                bind_to(&socket, interface, libc::ETH_P_ALL).map_err(|()| failed("binding to"))?;
            } else {
                // Until it is in the group it would get what is the others'.
                shut(fd).map_err(|()| failed("opening several queues on"))?;
                bind_to(&socket, interface, libc::ETH_P_ALL).map_err(|()| failed("binding to"))?;
                group = Some(join(&socket, group).map_err(|()| failed("sharing frames between queues on"))?);
                leave_out_outgoing(fd).map_err(|()| failed("leaving out what leaves"))?;
            }
            receiving.push(Receiving { socket, shape: shape.clone() });
        }
        let counts = |queues| (0..queues).map(|_| Arc::default()).collect();
        Ok(PacketPort {
            receiving,
            received: counts(rx_queues),
            sent: counts(tx_queues),
            lost: AtomicU64::new(0),
            no_buffer: Arc::default(),
        })
    }

    /// The ring of a receive queue, which delivers frames of up to `longest` bytes into buffers of the pool.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot be mapped.
    pub(crate) fn receiver(&self, queue: u16, pool: &Pool, longest: usize) -> Result<PacketReceiver> {
        let Receiving { socket, shape } = &self.receiving[usize::from(queue)];
        let fd = socket.as_raw_fd();
        let ring = Map::of_rings(fd, shape.bytes(), libc::PROT_READ | libc::PROT_WRITE)
            .map_err(|()| Error::system("mapping the ring of a packet socket"))?;
        Ok(PacketReceiver {
            ring,
            socket: fd,
            shape: shape.clone(),
            next: 0,
            pool: pool.clone(),
            longest,
            refused: Vec::with_capacity(BURST),
            completed: 0,
            clocks: None,
            counts: Arc::clone(&self.received[usize::from(queue)]),
            no_buffer: Arc::clone(&self.no_buffer),
        })
    }

    /// Frames that the kernel lost because a ring was full.
    pub(crate) fn lost(&self) -> u64 {
        for Receiving { socket, .. } in &self.receiving {
            let fresh = option::<libc::tpacket_stats>(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
            self.lost.fetch_add(fresh.map_or(0, |fresh| u64::from(fresh.tp_drops)), Ordering::Relaxed);
        }
        self.lost.load(Ordering::Relaxed)
    }

    /// Times that frames were there and no buffer for them.
    pub(crate) fn no_buffer(&self) -> u64 {
        self.no_buffer.load(Ordering::Relaxed)
    }
}

/// A packet socket with a ring, which is bound to nothing yet.
fn receiver(interface: &Interface, shape: &Shape) -> Result<OwnedFd> {
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
    let failed = |what: &str| Error::system(format!("{what} on {}", interface.name));
    let version = libc::tpacket_versions::TPACKET_V2 as i32;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
        .map_err(|()| failed("asking for TPACKET_V2"))?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)
        .map_err(|()| failed("asking for what senders left to a device"))?;
    let request = libc::tpacket_req {
        tp_block_size: shape.block() as u32,
        tp_block_nr: shape.blocks as u32,
        tp_frame_size: shape.slot as u32,
        tp_frame_nr: shape.slots() as u32,
    };
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(|()| {
        let what = format!("a ring of {} blocks of {} B", shape.blocks, shape.block());
        failed(&what)
    })?;
    Ok(socket)
}

/// Has a bound socket share what arrives with the others of a group, by flow, or with those of a new one. Gives the
/// group's number.
fn join(socket: &OwnedFd, group: Option<u16>) -> std::result::Result<u16, ()> {
    // Without PACKET_FANOUT_FLAG_DEFRAG, which would put fragments together. All of one packet have one hash.
    let how = libc::PACKET_FANOUT_HASH | if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let word = u32::from(group.unwrap_or(0)) | how << 16;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)?;
    match group {
        Some(group) => Ok(group),
        None => {
            let word: libc::c_int = option(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT).ok_or(())?;
            Ok(word as u16) // the number is the lower half
        }
    }
}

/// The frames of a receive queue.
#[derive(Debug)]
pub(crate) struct PacketReceiver {
    ring: Map,
    /// Open as long as the port, which outlives its queues.
    socket: RawFd,
    shape: Shape,
    next: usize,
    pool: Pool,
    longest: usize,
    refused: Vec<u32>,
    /// Frames of the last look whose checksum was completed.
    pub(crate) completed: u64,
    /// Frames are given how long they waited.
    clocks: Option<(Clocks, TscClock)>,
    counts: Arc<Counts>,
    no_buffer: Arc<AtomicU64>,
}

/// What the kernel says of a frame in a slot.
#[derive(Clone, Copy, Debug)]
struct Seen {
    status: u32,
    /// Without the tag that the kernel took out.
    length: u32,
    /// How much of it is in the slot.
    here: u32,
    /// Where it is in the slot.
    at: u16,
    stamp_ns: u64,
    tci: u16,
    tpid: u16,
}

impl PacketReceiver {
    /// From now on frames are given how long they waited.
    pub(crate) fn tell_waits(&mut self, clock: TscClock) {
        // The kernel then stamps a frame when its device gives it, ahead of the queue of the CPU that receives; where it
        // refuses, when the frame is put into the ring.
        let on: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        // SAFETY: the kernel reads `length` bytes of a number.
        let _refused = unsafe { libc::setsockopt(self.socket, level, name, (&raw const on).cast(), length) };
        self.clocks = Some((Clocks::new(Reading::of_kernel(&clock)), clock));
    }

    /// When the last poll that found frames read the clock, if frames are given how long they waited.
    pub(crate) fn read_at(&self) -> Option<Time> {
        self.clocks.as_ref().map(|(clocks, _)| clocks.at())
    }

    /// Lengths in bytes of the frames that the last look found and did not deliver: they are longer than the interface's MTU
    /// was, or are several segments that their sender left to a device to cut up.
    pub(crate) fn refused(&self) -> &[u32] {
        &self.refused
    }

    /// Adds up to `most` of the frames that are there to a burst with room for them. Gives how many.
    pub(crate) fn poll(&mut self, burst: &mut Burst, most: usize) -> usize {
        self.refused.clear();
        self.completed = 0;
        let mut there = 0;
        while there < most && self.status(self.shape.after(self.next, there)) & libc::TP_STATUS_USER != 0 {
            there += 1;
        }
        if there == 0 {
            return 0;
        }
        let before = burst.len();
        // All or none; of the last few some are better than none.
        if self.pool.alloc_up_to(burst, there) == 0 {
            there = self.pool.alloc_up_to(burst, 1);
            if there == 0 {
                self.no_buffer.fetch_add(1, Ordering::Relaxed);
                return 0;
            }
        }
        if let Some((clocks, clock)) = &mut self.clocks {
            clocks.read(|| Reading::of_kernel(clock));
        }
        let (mut taken, mut bytes) = (0, 0);
        for _ in 0..there {
            let slot = self.next;
            self.next = self.shape.after(slot, 1);
            let frame = &mut burst.as_mut_slice()[before + taken];
            if let Some(length) = self.take(slot, frame) {
                taken += 1;
                bytes += length as u64;
            }
            self.word(slot, offset_of!(libc::tpacket2_hdr, tp_status)).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        burst.drop_last(there - taken);
        self.counts.add(taken as u64, bytes);
        taken
    }

    /// Makes `frame` what a slot has, and gives its length. `None` if that is not to be delivered.
    #[inline]
    fn take(&mut self, slot: usize, frame: &mut Mbuf) -> Option<usize> {
        let seen = self.seen(slot);
        let has = |flag: u32| seen.status & flag != 0;
        let tag = has(libc::TP_STATUS_VLAN_VALID).then(|| {
            let tpid = if has(libc::TP_STATUS_VLAN_TPID_VALID) { seen.tpid } else { 0x8100 };
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), seen.tci.to_be_bytes());
            [a, b, c, d]
        });
        let length = seen.length as usize + if tag.is_some() { 4 } else { 0 };
        let whole = seen.here == seen.length && length <= self.longest && length >= 14;
        let left = Left::read(self.bytes(slot, usize::from(seen.at).wrapping_sub(Left::BYTES), Left::BYTES));
        if !whole || left.is_some_and(Left::is_several) || frame.set_len(length).is_err() {
            self.refused.push(length as u32);
            return None;
        }
        let bytes = self.bytes(slot, usize::from(seen.at), seen.here as usize)?;
        let into = frame.bytes_mut();
        let behind = match tag {
            Some(tag) => {
                into[..12].copy_from_slice(&bytes[..12]);
                into[12..16].copy_from_slice(&tag);
                into[16..].copy_from_slice(&bytes[12..]);
                4
            }
            None => {
                into.copy_from_slice(bytes);
                0
            }
        };
        if let Some((start, offset)) = left.and_then(Left::checksum)
            && complete(into, start + behind, offset)
        {
            self.completed += 1;
        }
        if let Some((clocks, _)) = &mut self.clocks {
            frame.set_waited(clocks.waited(seen.stamp_ns));
        }
        Some(length)
    }

    #[inline]
    fn seen(&self, slot: usize) -> Seen {
        let read = |offset: usize| self.word(slot, offset).load(Ordering::Relaxed);
        let halves = |offset: usize| {
            let [a, b, c, d] = read(offset).to_ne_bytes();
            (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]))
        };
        let (at, _) = halves(offset_of!(libc::tpacket2_hdr, tp_mac));
        let (tci, tpid) = halves(offset_of!(libc::tpacket2_hdr, tp_vlan_tci));
        let seconds = read(offset_of!(libc::tpacket2_hdr, tp_sec));
        let ns = read(offset_of!(libc::tpacket2_hdr, tp_nsec));
        Seen {
            status: self.status(slot),
            length: read(offset_of!(libc::tpacket2_hdr, tp_len)),
            here: read(offset_of!(libc::tpacket2_hdr, tp_snaplen)),
            at,
            stamp_ns: u64::from(seconds) * 1_000_000_000 + u64::from(ns),
            tci,
            tpid,
        }
    }

    #[inline]
    fn status(&self, slot: usize) -> u32 {
        self.word(slot, offset_of!(libc::tpacket2_hdr, tp_status)).load(Ordering::Acquire)
    }

    /// A word of a slot's header.
    #[inline]
    fn word(&self, slot: usize, offset: usize) -> &AtomicU32 {
        let word = self.ring.byte(slot * self.shape.slot + offset);
        // SAFETY: a slot is longer than its header, lies in the mapping, and its numbers are aligned; mapped as long as this
        // lives, and the kernel may write it at any time.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Bytes of a slot that the kernel has handed over, if they lie in it.
    #[inline]
    fn bytes(&self, slot: usize, from: usize, length: usize) -> Option<&[u8]> {
        from.checked_add(length).filter(|end| length > 0 && *end <= self.shape.slot)?;
        let first = self.ring.byte(slot * self.shape.slot + from);
        // SAFETY: within the slot, as just checked; the kernel has written it, and does not again before it has it back.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), length) })
    }
}

/// What a sender on this machine left to its device: `struct virtio_net_hdr` ahead of the frame.
#[derive(Clone, Copy, Debug)]
struct Left {
    flags: u8,
    kind: u8,
    start: u16,
    offset: u16,
}

impl Left {
    const BYTES: usize = 10;
    /// VIRTIO_NET_HDR_F_NEEDS_CSUM.
    const CHECKSUM: u8 = 1;
    /// Where the checksum is in an SCTP header: a CRC, which a sum would spoil.
    const OF_SCTP: u16 = 8;

    #[inline]
    fn read(bytes: Option<&[u8]>) -> Option<Left> {
        let header: [u8; Left::BYTES] = bytes?.try_into().ok()?;
        let [flags, kind, _, _, _, _, a, b, c, d] = header;
        Some(Left { flags, kind, start: u16::from_ne_bytes([a, b]), offset: u16::from_ne_bytes([c, d]) })
    }

    /// Several segments (VIRTIO_NET_HDR_GSO_…).
    fn is_several(self) -> bool {
        self.kind != 0
    }

    /// Where the sum begins, and how far behind that it is written, if it is unfinished.
    fn checksum(self) -> Option<(usize, usize)> {
        let unfinished = self.flags & Left::CHECKSUM != 0 && self.offset != Left::OF_SCTP;
        unfinished.then(|| (usize::from(self.start), usize::from(self.offset)))
    }
}

/// Writes the Internet checksum of what begins at `start`, where the sum of the pseudo header stands in its place.
fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(summed) = frame.get(start..).filter(|summed| offset + 2 <= summed.len()) else { return false };
    // Zero would say that there is none.
    let sum = match internet_checksum(&[summed]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// How a ring lies in memory: blocks of 64 slots, each of a whole number of cache lines, so that blocks are whole pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    slot: usize,
    blocks: usize,
}

/// Slots of a ring, where memory permits: 10 ms at 512 000 frames a second.
const SLOTS: usize = 5_120;
/// Bytes of a ring at most.
const MOST_BYTES: usize = 64 << 20;
/// Slots of a block.
const PER_BLOCK: usize = 64;
/// What is ahead of a frame in its slot at most: the kernel's header and address, and what a sender left.
const HEADERS: usize = 96;

impl Shape {
    /// Of an interface with this MTU: a slot holds Ethernet's header and two tags besides.
    fn of(mtu: u32) -> Shape {
        let needed = HEADERS + mtu as usize + 14 + 8;
        // Slots of an odd number of cache lines use all sets of a cache alike.
        let slot = (needed.div_ceil(64) | 1) * 64;
        let blocks = (SLOTS / PER_BLOCK).min(MOST_BYTES / (slot * PER_BLOCK));
        Shape { slot, blocks }
    }

    fn slots(&self) -> usize {
        self.blocks * PER_BLOCK
    }

    fn block(&self) -> usize {
        self.slot * PER_BLOCK
    }

    fn bytes(&self) -> usize {
        self.slot * self.slots()
    }

    /// The slot `more` places after another, less than a round.
    #[inline]
    fn after(&self, slot: usize, more: usize) -> usize {
        let slot = slot + more;
        if slot < self.slots() { slot } else { slot - self.slots() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_frames_of_every_mtu_and_fill_whole_pages() {
        for mtu in (68..=65_536).step_by(7).chain([1_500, 9_000, 65_536]) {
            let shape = Shape::of(mtu);
            assert!(shape.slot >= mtu as usize + 22 + HEADERS && shape.slot.is_multiple_of(16), "{mtu}: {shape:?}");
            assert!(shape.block().is_multiple_of(4_096) && shape.bytes() <= MOST_BYTES, "{mtu}: {shape:?}");
            assert!(shape.slots() == SLOTS || shape.bytes() > MOST_BYTES - 2 * shape.block(), "{mtu}: {shape:?}");
            assert_eq!(shape.after(shape.slots() - 1, 1), 0);
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_ones() {
        // The sum of the pseudo header in its place, and data that make the whole ones.
        let mut frame = [0, 0, 0x12, 0x34, 0xed, 0xcb];
        assert!(complete(&mut frame, 2, 0));
        assert_eq!(frame, [0, 0, 0xff, 0xff, 0xed, 0xcb]);
        assert!(!complete(&mut frame, 2, 3), "beyond the end");
        assert!(!complete(&mut frame, 9, 0), "beyond the end");
    }

    #[test]
    fn crcs_are_not_taken_for_sums() {
        let header = |flags, kind, offset: u16| {
            let [a, b] = offset.to_ne_bytes();
            Left::read(Some(&[flags, kind, 0, 0, 0, 0, 34_u16.to_ne_bytes()[0], 34_u16.to_ne_bytes()[1], a, b]))
        };
        assert_eq!(header(1, 0, 16).and_then(Left::checksum), Some((34, 16)));
        assert_eq!(header(1, 0, 8).and_then(Left::checksum), None);
        assert_eq!(header(0, 0, 16).and_then(Left::checksum), None);
        assert!(header(1, 0x81, 16).is_some_and(Left::is_several));
    }
}
