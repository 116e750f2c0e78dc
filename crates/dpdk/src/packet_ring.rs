//! Receiving from a Linux interface with the kernel's stamps: an AF_PACKET socket with a TPACKET_V3
//! ring.
//!
//! This is not DPDK. It lives here because it maps memory that the kernel writes, and this crate is
//! the fence around unsafe code. Blocks suit a receiver that wants all of the frames and their stamps, and none of them soon:
//! a block is handed over when it is full or old. What is to be carried on at once comes by a port's ring
//! (`packet_port`).

use crate::interface::{Interface, set_option, socket};
use crate::{Error, Result};
use packet::MacAddr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How large a ring is and how soon it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Bytes of a block: a power of two, at least a page. The longest frame is a block less 128 B.
    pub block_size: u32,
    /// Blocks in the ring.
    pub blocks: u32,
    /// Keep only this many bytes of each frame.
    pub snaplen: Option<u32>,
    /// A block that is not full is handed over after this many milliseconds (the kernel rounds up to
    /// its tick): the most that a frame waits to be seen. Its stamp is of its arrival regardless.
    pub timeout_ms: u32,
    /// Receive frames for other stations too, as long as the ring is open.
    pub promiscuous: bool,
}

impl Default for RingConfig {
    /// 32 MiB, which is 0.1 s of the shortest frames at the fastest that veth carries; 10 ms;
    /// promiscuous.
    fn default() -> Self {
        RingConfig { block_size: 256 << 10, blocks: 128, snaplen: None, timeout_ms: 10, promiscuous: true }
    }
}

/// What the kernel has counted since the ring was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// Frames that arrived, the dropped ones included.
    pub received: u64,
    /// Frames lost because the ring was full.
    pub dropped: u64,
    /// Times that the ring was found full.
    pub freezes: u64,
}

/// A VLAN tag that the kernel took out of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Priority, drop eligibility and identifier.
    pub tci: u16,
    /// Its EtherType: 0x8100 or 0x88a8.
    pub tpid: u16,
}

/// A frame in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// When the kernel had it from the driver, before it queued for its receiver: nanoseconds since the UNIX epoch.
    pub time_ns: u64,
    /// The frame without FCS and without the tag in `vlan`, cut to the snap length.
    pub bytes: &'a [u8],
    /// Its length before it was cut, without FCS and without the tag in `vlan`.
    pub original_len: u32,
    /// Whether its checksum was still to be filled in by a NIC that it never met. Such a frame
    /// comes from a sender on this machine whose checksum offload is on.
    pub partial_checksum: bool,
    /// The outermost tag, if there was one.
    pub vlan: Option<Vlan>,
}

impl Received<'_> {
    /// The frame's length as it was on the link, tag included, without FCS.
    #[must_use]
    pub fn link_len(&self) -> u32 {
        self.original_len + if self.vlan.is_some() { 4 } else { 0 }
    }

    /// Appends the frame as it was on the link: with its tag.
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

/// A receiver on one interface. Frames that the machine itself sends there are not received.
#[derive(Debug)]
pub struct PacketRing {
    interface: Interface,
    socket: OwnedFd,
    map: Map,
    block_size: usize,
    blocks: usize,
    next: usize,
    counts: RingCounts,
    /// Older kernels (before 4.20) do not leave the outgoing frames out by themselves.
    skip_outgoing: bool,
}

#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    length: usize,
}

impl Map {
    /// The rings of a socket, or the value of a map, which are `length` bytes long together; the reason why not is in errno.
    pub(crate) fn of_rings(socket: RawFd, length: usize, protection: i32) -> std::result::Result<Map, ()> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, socket, 0) };
        if start == libc::MAP_FAILED {
            return Err(());
        }
        NonNull::new(start.cast()).map(|start| Map { start, length }).ok_or(())
    }

    /// Where byte number `at` of it is.
    pub(crate) fn byte(&self, at: usize) -> NonNull<u8> {
        assert!(at < self.length, "it lies in the mapping");
        // SAFETY: so it does.
        unsafe { self.start.add(at) }
    }
}

// SAFETY: the mapping belongs to its owner alone and does not depend on the thread.
unsafe impl Send for Map {}
// SAFETY: by reference it gives addresses only; who reads or writes there says why that is sound.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is what was mapped, and what borrowed from it is gone.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl PacketRing {
    /// Opens a receiver on an interface of the calling thread's network namespace. What arrives from
    /// now on is in it.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::InterfaceDown`], [`Error::Permission`], or
    /// [`Error::System`], as for a ring that the kernel refuses.
    pub fn open(interface: &str, config: &RingConfig) -> Result<PacketRing> {
        let interface = Interface::named(interface)?;
        interface.check_header()?;
        // Protocol 0: nothing arrives before the ring is in place.
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        if !interface.state()?.0 {
            return Err(Error::InterfaceDown { name: interface.name });
        }
        let failed = |what: &str| Error::system(format!("{what} on {}", interface.name));

        // The kernel then stamps a frame as it comes from the driver; without, each ring does when it gets its copy,
        // after the queue of the CPU that receives. It begins some ms later.
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32)
            .map_err(|()| failed("asking for stamps of arrival"))?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|()| failed("asking for TPACKET_V3"))?;
        let request = libc::tpacket_req3 {
            tp_block_size: config.block_size,
            tp_block_nr: config.blocks,
            // In V3 slots are as long as their frames; the kernel still wants figures that agree.
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

    /// The next block of frames; waits for it no longer than `timeout`. `None` when there was none, or
    /// when a signal came.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`] when the interface goes down, once, [`Error::InterfaceGone`] when it goes away; [`Error::System`].
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Batch<'_>>> {
        if !self.ready() {
            self.wait(timeout)?;
            if !self.ready() {
                return Ok(None);
            }
        }
        let block = self.next;
        self.next = (self.next + 1) % self.blocks;
        // SAFETY: the block lies in the mapping and begins with its descriptor, aligned to a page; the
        // kernel has handed it over and does not write it until it has it back.
        let descriptor = unsafe { self.block(block).cast::<libc::tpacket_block_desc>().as_ref() };
        // SAFETY: the union has this one member.
        let header = unsafe { &descriptor.hdr.bh1 };
        let (frames, first) = (header.num_pkts, header.offset_to_first_pkt as usize);
        Ok(Some(Batch { frames, first, block, ring: self }))
    }

    /// What the kernel has counted.
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
        // Reading resets the kernel's.
        self.counts.received += u64::from(fresh.tp_packets);
        self.counts.dropped += u64::from(fresh.tp_drops);
        self.counts.freezes += u64::from(fresh.tp_freeze_q_cnt);
        Ok(self.counts)
    }

    /// Sends a frame, without FCS, from the interface. Does not wait: gives false where the interface takes none now.
    pub fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the kernel reads `frame.len()` bytes that are borrowed meanwhile.
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

    /// The interface's hardware address.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn mac(&self) -> Result<MacAddr> {
        self.interface.mac()
    }

    /// The interface's MTU in bytes, now. A frame longer than this and 14 bytes was never on a link:
    /// segmentation offload is on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn mtu(&self) -> Result<u32> {
        self.interface.mtu()
    }

    /// The interface's name.
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
        // SAFETY: aligned, mapped as long as the ring lives, and written atomically by both sides.
        unsafe { AtomicU32::from_ptr(status.cast().as_ptr()) }
    }

    fn ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn wait(&self, timeout: Duration) -> Result<()> {
        let mut poll = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN | libc::POLLERR, revents: 0 };
        let seconds = timeout.as_secs().min(i32::MAX as u64);
        let time = libc::timespec { tv_sec: seconds as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        // SAFETY: one pollfd, a timespec, no signal mask.
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
                // One of that name may have been made meanwhile; this socket gets nothing of it.
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

/// The frames of one block. The block goes back to the kernel when this is dropped.
#[derive(Debug)]
pub struct Batch<'r> {
    ring: &'r mut PacketRing,
    block: usize,
    frames: u32,
    first: usize,
}

impl Batch<'_> {
    /// Frames in the block, those that [`iter`](Batch::iter) leaves out as outgoing included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// The frames in the order of their arrival.
    #[must_use]
    pub fn iter(&self) -> Frames<'_> {
        Frames { batch: self, left: self.frames, at: self.first }
    }

    /// `length` bytes of the block, if they lie in it.
    fn bytes(&self, from: usize, length: usize) -> Option<&[u8]> {
        let end = from.checked_add(length)?;
        if end > self.ring.block_size {
            return None;
        }
        // SAFETY: within the block, as just checked.
        let start = unsafe { self.ring.block(self.block).add(from) };
        // SAFETY: mapped and initialised by the kernel, which does not write it until it has it back,
        // when this batch is dropped.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    fn header(&self, at: usize) -> Option<libc::tpacket3_hdr> {
        let bytes = self.bytes(at, size_of::<libc::tpacket3_hdr>())?;
        // SAFETY: as many bytes as the header has; every bit pattern is one of its values.
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

/// The frames of a [`Batch`].
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
                // A sockaddr_ll follows the header, which is aligned already.
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

/// Has the kernel keep only the first bytes of each frame.
fn keep_only(socket: &OwnedFd, snaplen: u32) -> std::result::Result<(), ()> {
    attach(socket.as_raw_fd(), &mut [instruction(libc::BPF_RET | libc::BPF_K, 0, snaplen)])
}

/// Has a packet socket receive what arrives and not what this machine sends, also in a group of sockets, to which
/// PACKET_IGNORE_OUTGOING does not apply.
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

/// Has a packet socket receive nothing.
pub(crate) fn shut(socket: RawFd) -> std::result::Result<(), ()> {
    attach(socket, &mut [instruction(libc::BPF_RET | libc::BPF_K, 0, 0)])
}

/// Has a packet socket see what this machine sends, and nothing that arrives.
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

/// Lets a socket filter decide how many bytes of each frame are kept.
fn attach(socket: RawFd, program: &mut [libc::sock_filter]) -> std::result::Result<(), ()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the struct and the instructions that it points to, as many as it says.
    let rc = unsafe {
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), length)
    };
    if rc < 0 { Err(()) } else { Ok(()) }
}

/// Binds a packet socket to an interface, to receive frames of that protocol; 0 for none.
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
