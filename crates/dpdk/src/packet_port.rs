//! Receives and sends frames on a Linux interface through our own packet sockets, without a DPDK driver.
//!
//! Each receive queue is a socket with a TPACKET_V2 ring. The kernel delivers each frame immediately, with its stamp,
//! the VLAN tag that it stripped, and the offload work that the sender left to a device (`PACKET_VNET_HDR`). A single
//! queue joins no fanout group, so any number of ports, processes and programs can receive from one interface, and each
//! receives every frame. IP fragments are not reassembled. Each frame is sent by its own system call
//! ([`PacketSender`](crate::PacketSender)).

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

/// The receiving sockets of a port, open as long as the port, and the counters of both directions.
#[derive(Debug)]
pub(crate) struct PacketPort {
    receiving: Vec<Receiving>,
    pub(crate) received: Vec<Arc<Counts>>,
    pub(crate) sent: Vec<Arc<Counts>>,
    /// Accumulated losses. The kernel resets a socket's count when it is read.
    lost: AtomicU64,
    /// Times that frames had arrived and the pool had no buffer.
    no_buffer: Arc<AtomicU64>,
}

/// A socket whose ring no queue has mapped yet.
#[derive(Debug)]
struct Receiving {
    socket: OwnedFd,
    shape: Shape,
}

/// Frame and byte counters of a queue. One thread adds, others read.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Counts {
    /// Adds without a locked operation, because only one thread adds.
    pub(crate) fn add(&self, frames: u64, bytes: u64) {
        for (count, more) in [(&self.frames, frames), (&self.bytes, bytes)] {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    /// Total frames and bytes over several queues.
    pub(crate) fn of_all(queues: &[Arc<Counts>]) -> (u64, u64) {
        let sum = |count: fn(&Counts) -> &AtomicU64| queues.iter().map(|of| count(of).load(Ordering::Relaxed)).sum();
        (sum(|of| &of.frames), sum(|of| &of.bytes))
    }
}

impl PacketPort {
    /// Opens the sockets of all receive queues. Their rings hold all frames that arrive from now on.
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
                // On kernels before 4.20 a filter does the same, after a copy.
                if set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32).is_err() {
                    leave_out_outgoing(fd).map_err(|()| failed("leaving out what leaves"))?;
                }
                bind_to(&socket, interface, libc::ETH_P_ALL).map_err(|()| failed("binding to"))?;
            } else {
                // Before it joins the group, the socket would receive frames of the other queues.
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

    /// Maps the ring of a receive queue. The ring delivers frames of up to `longest` bytes into buffers of `pool`.
    ///
    /// # Errors
    /// [`Error::System`] if the ring cannot be mapped.
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

    /// Frames that the kernel dropped because a ring was full.
    pub(crate) fn lost(&self) -> u64 {
        for Receiving { socket, .. } in &self.receiving {
            let fresh = option::<libc::tpacket_stats>(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS);
            self.lost.fetch_add(fresh.map_or(0, |fresh| u64::from(fresh.tp_drops)), Ordering::Relaxed);
        }
        self.lost.load(Ordering::Relaxed)
    }

    /// Times that frames had arrived and the pool had no buffer.
    pub(crate) fn no_buffer(&self) -> u64 {
        self.no_buffer.load(Ordering::Relaxed)
    }
}

/// Opens a packet socket with a ring. The socket is not bound yet.
fn receiver(interface: &Interface, shape: &Shape) -> Result<OwnedFd> {
    let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
    let failed = |what: &str| Error::system(format!("{what} on {}", interface.name));
    let version = libc::tpacket_versions::TPACKET_V2 as i32;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
        .map_err(|()| failed("requesting TPACKET_V2"))?;
    set_option(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1_i32)
        .map_err(|()| failed("requesting the offload header of each frame"))?;
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

/// Makes a bound socket share frames by flow with the other sockets of a fanout group, or creates a new group. Returns
/// the group number.
fn join(socket: &OwnedFd, group: Option<u16>) -> std::result::Result<u16, ()> {
    // Without PACKET_FANOUT_FLAG_DEFRAG, which reassembles fragments. All fragments of a packet have the same hash.
    let how = libc::PACKET_FANOUT_HASH | if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
    let word = u32::from(group.unwrap_or(0)) | how << 16;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)?;
    match group {
        Some(group) => Ok(group),
        None => {
            let word: libc::c_int = option(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT).ok_or(())?;
            Ok(word as u16) // the lower half is the group number
        }
    }
}

/// The ring of a receive queue.
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
    /// Frames of the last poll whose checksum was completed.
    pub(crate) completed: u64,
    /// The clocks for measuring waits, if waits are measured.
    clocks: Option<(Clocks, TscClock)>,
    counts: Arc<Counts>,
    no_buffer: Arc<AtomicU64>,
}

/// The kernel's description of a frame in a slot.
#[derive(Clone, Copy, Debug)]
struct SlotFrame {
    status: u32,
    /// The frame length without the stripped tag.
    length: u32,
    /// The number of bytes in the slot.
    here: u32,
    /// The offset of the frame in the slot.
    at: u16,
    stamp_ns: u64,
    tci: u16,
    tpid: u16,
}

impl PacketReceiver {
    /// Makes each frame report its wait from now on, measured with `clock`.
    pub(crate) fn measure_waits(&mut self, clock: TscClock) {
        // With this option the kernel stamps a frame when the device delivers it, ahead of the receiving CPU's queue.
        // If the kernel refuses, it stamps the frame when it enters the ring.
        let on: libc::c_int = 1;
        let length = size_of::<libc::c_int>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        // SAFETY: the kernel reads `length` bytes of a number.
        let _refused = unsafe { libc::setsockopt(self.socket, level, name, (&raw const on).cast(), length) };
        self.clocks = Some((Clocks::new(Reading::of_kernel(&clock)), clock));
    }

    /// The time at which the last poll that found frames read the clock. `None` if waits are not measured.
    pub(crate) fn read_at(&self) -> Option<Time> {
        self.clocks.as_ref().map(|(clocks, _)| clocks.at())
    }

    /// Lengths in bytes of the frames that the last poll rejected: those longer than the interface's MTU at open
    /// allows, and GSO super-frames that the sender left to a device to segment.
    pub(crate) fn refused(&self) -> &[u32] {
        &self.refused
    }

    /// Adds up to `most` received frames to `burst`, which must have room for them. Returns the number added.
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
        // Allocation is all or nothing. If the pool has fewer buffers left, take one.
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

    /// Copies the frame in `slot` to `frame` and returns its length. `None` if the frame is rejected.
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
        let left = PendingOffload::read(self.bytes(
            slot,
            usize::from(seen.at).wrapping_sub(PendingOffload::BYTES),
            PendingOffload::BYTES,
        ));
        if !whole || left.is_some_and(PendingOffload::is_several) || frame.set_len(length).is_err() {
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
        if let Some((start, offset)) = left.and_then(PendingOffload::checksum)
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
    fn seen(&self, slot: usize) -> SlotFrame {
        let read = |offset: usize| self.word(slot, offset).load(Ordering::Relaxed);
        let halves = |offset: usize| {
            let [a, b, c, d] = read(offset).to_ne_bytes();
            (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]))
        };
        let (at, _) = halves(offset_of!(libc::tpacket2_hdr, tp_mac));
        let (tci, tpid) = halves(offset_of!(libc::tpacket2_hdr, tp_vlan_tci));
        let seconds = read(offset_of!(libc::tpacket2_hdr, tp_sec));
        let ns = read(offset_of!(libc::tpacket2_hdr, tp_nsec));
        SlotFrame {
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
        // SAFETY: the word lies in a mapped slot, which is longer than its header, is aligned, and is mapped as long as
        // this value lives; the kernel may write it at any time.
        unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
    }

    /// Bytes of a slot that the kernel has handed over. `None` if they exceed the slot.
    #[inline]
    fn bytes(&self, slot: usize, from: usize, length: usize) -> Option<&[u8]> {
        from.checked_add(length).filter(|end| length > 0 && *end <= self.shape.slot)?;
        let first = self.ring.byte(slot * self.shape.slot + from);
        // SAFETY: the bytes lie in the slot, as checked above, and the kernel has written them and does not write again
        // before it gets the slot back.
        Some(unsafe { std::slice::from_raw_parts(first.as_ptr(), length) })
    }
}

/// Offload work that a sender on this machine left to a device: `struct virtio_net_hdr` ahead of the frame.
#[derive(Clone, Copy, Debug)]
struct PendingOffload {
    flags: u8,
    kind: u8,
    start: u16,
    offset: u16,
}

impl PendingOffload {
    const BYTES: usize = 10;
    /// VIRTIO_NET_HDR_F_NEEDS_CSUM.
    const CHECKSUM: u8 = 1;
    /// The offset of the checksum in an SCTP header. That checksum is a CRC, which an Internet checksum would corrupt.
    const OF_SCTP: u16 = 8;

    #[inline]
    fn read(bytes: Option<&[u8]>) -> Option<PendingOffload> {
        let header: [u8; PendingOffload::BYTES] = bytes?.try_into().ok()?;
        let [flags, kind, _, _, _, _, a, b, c, d] = header;
        Some(PendingOffload { flags, kind, start: u16::from_ne_bytes([a, b]), offset: u16::from_ne_bytes([c, d]) })
    }

    /// Whether the frame is a super-frame of several segments (VIRTIO_NET_HDR_GSO_…).
    fn is_several(self) -> bool {
        self.kind != 0
    }

    /// The start of the checksummed bytes and the offset of the checksum from there, if the checksum is incomplete.
    fn checksum(self) -> Option<(usize, usize)> {
        let unfinished = self.flags & PendingOffload::CHECKSUM != 0 && self.offset != PendingOffload::OF_SCTP;
        unfinished.then(|| (usize::from(self.start), usize::from(self.offset)))
    }
}

/// Writes the Internet checksum of the bytes from `start` on. The checksum field holds the sum of the pseudo header.
fn complete(frame: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(summed) = frame.get(start..).filter(|summed| offset + 2 <= summed.len()) else { return false };
    // A zero would mean that there is no checksum.
    let sum = match internet_checksum(&[summed]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// The memory layout of a ring: blocks of 64 slots. A slot is a whole number of cache lines, so a block is a whole
/// number of pages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    slot: usize,
    blocks: usize,
}

/// Slots of a ring, if memory permits: 10 ms at 512 000 frames per second.
const SLOTS: usize = 5_120;
/// The largest size of a ring in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Slots per block.
const PER_BLOCK: usize = 64;
/// The largest number of bytes ahead of a frame in its slot: the kernel's header and address, and the offload header.
const HEADERS: usize = 96;

impl Shape {
    /// The layout for an interface with this MTU. A slot also holds the Ethernet header and two tags.
    fn of(mtu: u32) -> Shape {
        let needed = HEADERS + mtu as usize + 14 + 8;
        // Slots of an odd number of cache lines use all cache sets equally.
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

    /// The slot `more` places after `slot`, for less than one round.
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
        // The pseudo-header sum is in the checksum field, and the data makes the total all ones.
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
            PendingOffload::read(Some(&[
                flags,
                kind,
                0,
                0,
                0,
                0,
                34_u16.to_ne_bytes()[0],
                34_u16.to_ne_bytes()[1],
                a,
                b,
            ]))
        };
        assert_eq!(header(1, 0, 16).and_then(PendingOffload::checksum), Some((34, 16)));
        assert_eq!(header(1, 0, 8).and_then(PendingOffload::checksum), None);
        assert_eq!(header(0, 0, 16).and_then(PendingOffload::checksum), None);
        assert!(header(1, 0x81, 16).is_some_and(PendingOffload::is_several));
    }
}
