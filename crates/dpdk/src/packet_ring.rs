//! Receives from a Linux interface with the kernel's stamps, through an AF_PACKET socket with a TPACKET_V3 ring.
//!
//! This is not DPDK. It is in this crate because it maps memory that the kernel writes, and this crate contains all
//! unsafe code. Blocks suit a receiver that needs every frame and its stamp but not immediately: the kernel hands a
//! block over when it is full or its timeout expires. Frames that must be forwarded immediately come through a port's
//! ring (`packet_port`).

use crate::interface::{Interface, set_option, socket};
use crate::{Error, Result};
use packet::MacAddr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The size of a ring and its delay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Block size in bytes: a power of two, at least a page. The longest frame is a block less 128 B.
    pub block_size: u32,
    /// Number of blocks in the ring.
    pub blocks: u32,
    /// Keep only this number of bytes of each frame.
    pub snaplen: Option<u32>,
    /// The kernel hands over a block that is not full after this number of milliseconds, rounded up to its tick. This
    /// is the longest delay before a frame is visible. Its stamp is the arrival time regardless.
    pub timeout_ms: u32,
    /// Also receive frames addressed to other stations while the ring is open.
    pub promiscuous: bool,
}

impl Default for RingConfig {
    /// 32 MiB, which is 0.1 s of the shortest frames at veth's highest rate; 10 ms; promiscuous.
    fn default() -> Self {
        RingConfig { block_size: 256 << 10, blocks: 128, snaplen: None, timeout_ms: 10, promiscuous: true }
    }
}

/// Kernel counters since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Frames that arrived, including dropped ones.
    pub received: u64,
    /// Frames dropped because the ring was full.
    pub dropped: u64,
    /// Times that the ring became full.
    pub freezes: u64,
}

/// A VLAN tag that the kernel stripped from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Priority, drop eligibility and VLAN identifier.
    pub tci: u16,
    /// The tag's EtherType: 0x8100 or 0x88a8.
    pub tpid: u16,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The time at which the kernel received the frame from the driver, before it queued for its receiver, in
    /// nanoseconds since the UNIX epoch.
    pub time_ns: u64,
    /// The frame without FCS and without the tag in `vlan`, cut to the snap length.
    pub bytes: &'a [u8],
    /// The frame's length before the cut, without FCS and without the tag in `vlan`.
    pub original_len: u32,
    /// Whether the checksum is incomplete because the sender left it to a NIC. Such a frame comes from a sender on this
    /// machine with checksum offload enabled.
    pub partial_checksum: bool,
    /// The outermost VLAN tag, if any.
    pub vlan: Option<Vlan>,
}

impl Received<'_> {
    /// The frame's length on the link in bytes, including the tag, without FCS.
    #[must_use]
    pub fn link_len(&self) -> u32 {
        self.original_len + if self.vlan.is_some() { 4 } else { 0 }
    }

    /// Appends the frame as it was on the link, including the tag.
    pub fn write_to(&self, into: &mut Vec<u8>) {
        match self.vlan {
            Some(vlan) if self.bytes.len() >= 12 => {
                into.extend_from_slice(&self.bytes[..12]);
                into.extend_from_slice(&vlan.tpid.to_be_bytes());
                into.extend_from_slice(&vlan.tci.to_be_bytes());
                into.extend_from_slice(&self.bytes[12..]);
            }
            _ => into.extend_from_slice(self.bytes),
        }
    }
}

/// A receiver on one interface. It does not receive frames that this machine sends there.
#[derive(Debug)]
pub struct PacketRing {
    interface: Interface,
    socket: OwnedFd,
    map: Map,
    block_size: usize,
    blocks: usize,
    next: usize,
    counts: RingCounts,
    /// Kernels before 4.20 cannot exclude outgoing frames, so we skip them.
    skip_outgoing: bool,
}

#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    length: usize,
}

impl Map {
    /// Maps `length` bytes: the rings of a socket, or the value of a BPF map. The error is in errno.
    pub(crate) fn of_rings(socket: RawFd, length: usize, protection: i32) -> std::result::Result<Map, ()> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, socket, 0) };
        if start == libc::MAP_FAILED {
            return Err(());
        }
        NonNull::new(start.cast()).map(|start| Map { start, length }).ok_or(())
    }

    /// The address of byte `at` of the mapping.
    pub(crate) fn byte(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.length, "it lies in the mapping");
        // SAFETY: the byte lies in the mapping, as asserted.
        unsafe { self.start.add(at) }
    }
}

// SAFETY: the mapping has one owner and does not depend on the thread.
unsafe impl Send for Map {}
// SAFETY: a shared reference gives only addresses, and each access states its own safety.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this range was mapped by `of_rings`, and all borrows from it have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl PacketRing {
    /// Opens a receiver on an interface of the calling thread's network namespace. The ring holds all frames that
    /// arrive from now on.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::NotEthernet`], [`Error::InterfaceDown`], [`Error::Permission`], or
    /// [`Error::System`], for example if the kernel refuses the ring.
    pub fn open(interface: &str, config: &RingConfig) -> Result<PacketRing> {
        let interface = Interface::named(interface)?;
        interface.check_header()?;
        // Protocol 0: nothing arrives before the ring is in place.
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        if !interface.state()?.0 {
            return Err(Error::InterfaceDown { name: interface.name });
        }
        let failed = |what: &str| Error::system(format!("{what} on {}", interface.name));

        // With this option the kernel stamps a frame as it comes from the driver. Without it, each ring stamps its copy
        // after the receiving CPU's queue. The option takes effect a few ms later.
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
            .map_err(|()| failed("enabling receive timestamps"))?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|()| failed("requesting TPACKET_V3"))?;
        let request = libc::tpacket_req3 {
            tp_block_size: config.block_size,
            tp_block_nr: config.blocks,
            // V3 slots are as long as their frames, but the kernel still requires consistent sizes.
            tp_frame_size: 2048,
            tp_frame_nr: (config.block_size / 2048).saturating_mul(config.blocks),
            tp_retire_blk_tov: config.timeout_ms.max(1),
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(|()| {
            let shape = format!("a ring of {} blocks of {} B", config.blocks, config.block_size);
            failed(&shape)
        })?;
        let length = config.block_size as usize * config.blocks as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let map = Map::of_rings(socket.as_raw_fd(), length, protection).map_err(|()| failed("mapping the ring"))?;

        let skip_outgoing = set_option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1_i32).is_err();
        if let Some(snaplen) = config.snaplen {
            keep_only(&socket, snaplen).map_err(|()| failed("setting the snap length"))?;
        }
        if config.promiscuous {
            interface.promiscuous(&socket)?;
        }
        bind_to(&socket, &interface, libc::ETH_P_ALL).map_err(|()| failed("binding to the interface"))?;
        Ok(PacketRing {
            interface,
            socket,
            map,
            block_size: config.block_size as usize,
            blocks: config.blocks as usize,
            next: 0,
            counts: RingCounts::default(),
            skip_outgoing,
        })
    }

    /// The next block of frames. Waits at most `timeout`. Returns `None` if no block arrived or a signal interrupted
    /// the wait.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`] once when the interface goes down; [`Error::InterfaceGone`] when it disappears;
    /// [`Error::System`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Batch<'_>>> {
        if !self.ready() {
            self.wait(timeout)?;
            if !self.ready() {
                return Ok(None);
            }
        }
        let block = self.next;
        self.next = (self.next + 1) % self.blocks;
        // SAFETY: the block lies in the mapping and begins with its page-aligned descriptor, and the kernel has handed
        // it over and does not write it before it gets it back.
        let descriptor = unsafe { self.block(block).cast::<libc::tpacket_block_desc>().as_ref() };
        // SAFETY: the union has only this member.
        let header = unsafe { &descriptor.hdr.bh1 };
        let (frames, first) = (header.num_pkts, header.offset_to_first_pkt as usize);
        Ok(Some(Batch { frames, first, block, ring: self }))
    }

    /// The kernel's counters.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn counts(&mut self) -> Result<RingCounts> {
        let mut fresh = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes of the struct.
        let rc = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut fresh).cast(),
                &raw mut length,
            )
        };
        if rc < 0 {
            return Err(Error::system(format!("reading the counters of the ring on {}", self.interface.name)));
        }
        // Reading resets the kernel's counters.
        self.counts.received += u64::from(fresh.tp_packets);
        self.counts.dropped += u64::from(fresh.tp_drops);
        self.counts.freezes += u64::from(fresh.tp_freeze_q_cnt);
        Ok(self.counts)
    }

    /// Sends a frame, given without FCS. Never blocks. Returns false if the interface does not take the frame now.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the kernel reads `frame.len()` bytes, which are borrowed during the call.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        sent >= 0
    }

    /// The interface's MAC address.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn mac(&self) -> Result<MacAddr> {
        self.interface.mac()
    }

    /// The interface's current MTU in bytes. A frame longer than the MTU plus 14 bytes was never on a link:
    /// segmentation offload is on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn mtu(&self) -> Result<u32> {
        self.interface.mtu()
    }

    /// The interface name.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface.name
    }

    fn block(&self, index: usize) -> NonNull<u8> {
        debug_assert!(index < self.blocks);
        // SAFETY: blocks × block_size bytes are mapped.
        unsafe { self.map.start.add(index * self.block_size) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        let at = offset_of!(libc::tpacket_block_desc, hdr) + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: the descriptor lies in the block.
        let status = unsafe { self.block(index).add(at) };
        // SAFETY: the status is aligned, mapped as long as the ring lives, and written atomically by both sides.
        unsafe { AtomicU32::from_ptr(status.cast().as_ptr()) }
    }

    fn ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn wait(&self, timeout: Duration) -> Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN | libc::POLLERR, revents: 0 };
        let seconds = timeout.as_secs().min(i32::MAX as u64);
        let time = libc::timespec { tv_sec: seconds as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // SAFETY: the arguments are one pollfd, a timespec and no signal mask.
        let rc = unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) };
        if rc < 0 {
            let source = io::Error::last_os_error();
            return match source.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(Error::System { what: format!("waiting for {}", self.interface.name), source }),
            };
        }
        if poll.revents & libc::POLLERR == 0 {
            return Ok(());
        }
        let mut error: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut error).cast(),
                &raw mut length,
            )
        };
        match error {
            0 => Ok(()),
            libc::ENETDOWN | libc::ENODEV | libc::ENXIO => {
                let name = self.interface.name.clone();
                // A new interface may have taken the name. This socket receives nothing from it.
                match Interface::named(&name) {
                    Ok(there) if there.index == self.interface.index => Err(Error::InterfaceDown { name }),
                    _ => Err(Error::InterfaceGone { name }),
                }
            }
            other => Err(Error::System {
                what: format!("receiving on {}", self.interface.name),
                source: io::Error::from_raw_os_error(other),
            }),
        }
    }
}

/// The frames of one block. Dropping it returns the block to the kernel.
#[derive(Debug)]
pub struct Batch<'r> {
    ring: &'r mut PacketRing,
    block: usize,
    frames: u32,
    first: usize,
}

impl Batch<'_> {
    /// Frames in the block, including outgoing frames that [`iter`](Batch::iter) skips.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames as usize
    }

    /// Whether the block has no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// The frames, in order of arrival.
    #[must_use]
    pub fn iter(&self) -> Frames<'_> {
        Frames { batch: self, left: self.frames, at: self.first }
    }

    /// `length` bytes of the block. `None` if they exceed the block.
    fn bytes(&self, from: usize, length: usize) -> Option<&[u8]> {
        let end = from.checked_add(length)?;
        if end > self.ring.block_size {
            return None;
        }
        // SAFETY: within the block, as checked above.
        let start = unsafe { self.ring.block(self.block).add(from) };
        // SAFETY: the bytes are mapped and initialised by the kernel, which does not write them before this batch is
        // dropped.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    fn header(&self, at: usize) -> Option<libc::tpacket3_hdr> {
        let bytes = self.bytes(at, size_of::<libc::tpacket3_hdr>())?;
        // SAFETY: the slice has the size of the header, and every bit pattern is a valid header.
        Some(unsafe { bytes.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() })
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.ring.status(self.block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl<'a> IntoIterator for &'a Batch<'_> {
    type Item = Received<'a>;
    type IntoIter = Frames<'a>;
    fn into_iter(self) -> Frames<'a> {
        self.iter()
    }
}

/// Iterates over the frames of a [`Batch`].
#[derive(Debug)]
pub struct Frames<'a> {
    batch: &'a Batch<'a>,
    left: u32,
    at: usize,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Received<'a>;

    fn next(&mut self) -> Option<Received<'a>> {
        while self.left > 0 {
            self.left -= 1;
            let at = self.at;
            let header = self.batch.header(at)?;
            self.at = at + header.tp_next_offset as usize;
            if self.batch.ring.skip_outgoing {
                // A sockaddr_ll follows the header, which is already aligned.
                let kind = at + size_of::<libc::tpacket3_hdr>() + offset_of!(libc::sockaddr_ll, sll_pkttype);
                if self.batch.bytes(kind, 1)? == [libc::PACKET_OUTGOING] {
                    continue;
                }
            }
            let bytes = self.batch.bytes(at + usize::from(header.tp_mac), header.tp_snaplen as usize)?;
            let has = |flag: u32| header.tp_status & flag != 0;
            let vlan = has(libc::TP_STATUS_VLAN_VALID).then(|| Vlan {
                tci: header.hv1.tp_vlan_tci as u16,
                tpid: if has(libc::TP_STATUS_VLAN_TPID_VALID) { header.hv1.tp_vlan_tpid } else { 0x8100 },
            });
            return Some(Received {
                time_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
                bytes,
                original_len: header.tp_len,
                partial_checksum: has(libc::TP_STATUS_CSUMNOTREADY),
                vlan,
            });
        }
        None
    }
}

/// Makes the kernel keep only the first `snaplen` bytes of each frame.
fn keep_only(socket: &OwnedFd, snaplen: u32) -> std::result::Result<(), ()> {
    attach(socket.as_raw_fd(), &mut [instruction(libc::BPF_RET | libc::BPF_K, 0, snaplen)])
}

/// Makes a packet socket receive incoming frames only. Also works in a fanout group, where PACKET_IGNORE_OUTGOING has
/// no effect.
pub(crate) fn leave_out_outgoing(socket: RawFd) -> std::result::Result<(), ()> {
    let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, kind),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::PACKET_OUTGOING.into()),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
    ];
    attach(socket, &mut program)
}

/// Makes a packet socket receive nothing.
pub(crate) fn shut(socket: RawFd) -> std::result::Result<(), ()> {
    attach(socket, &mut [instruction(libc::BPF_RET | libc::BPF_K, 0, 0)])
}

/// Makes a packet socket receive only frames that this machine sends.
pub(crate) fn leave_in_outgoing(socket: RawFd) -> std::result::Result<(), ()> {
    let kind = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, kind),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::PACKET_OUTGOING.into()),
        instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0),
    ];
    attach(socket, &mut program)
}

fn instruction(code: u32, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf, k }
}

/// Attaches a socket filter. The filter decides how many bytes of each frame are kept.
fn attach(socket: RawFd, program: &mut [libc::sock_filter]) -> std::result::Result<(), ()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the struct and the `len` instructions that it points to.
    let rc = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), length)
    };
    if rc < 0 { Err(()) } else { Ok(()) }
}

/// Binds a packet socket to an interface, to receive frames of `protocol`; 0 for none.
pub(crate) fn bind_to(socket: &OwnedFd, interface: &Interface, protocol: i32) -> std::result::Result<(), ()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: interface.index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of the address.
    let rc = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if rc < 0 { Err(()) } else { Ok(()) }
}
