//! Receives and sends single frames on a Linux interface. Each received frame has the kernel's stamp.
//!
//! Each frame takes one system call per direction. One thread can wait for many sockets at once without the delay of a
//! ring with blocks, and an idle socket takes no memory. For millions of frames per second use a ring.

use crate::interface::{Interface, set_option, socket};
use crate::packet_ring::bind_to;
use crate::waits::{Clocks, Reading};
use crate::{Error, Result};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use units::Span;

/// A packet socket on one interface. It does not receive the frames that it sends.
#[derive(Debug)]
pub struct StampedSocket {
    socket: OwnedFd,
    interface: String,
    clocks: Clocks,
    dropped: u64,
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampedFrame {
    /// The frame's length without FCS. If it exceeds the buffer, only the start of the frame is in the buffer.
    pub length: usize,
    /// The time from the kernel's stamp until the frame was read. Zero if it is unknown, for example just after the
    /// clock was set.
    pub waited: Span,
}

/// The size of a socket's buffers in bytes.
const BUFFER: libc::c_int = 4 << 20;

/// The offset of a VLAN tag in a frame.
const TAG_AT: usize = 12;

/// Words of control data: a stamp and `struct tpacket_auxdata`, each with its header.
const CONTROL: usize = 16;

impl StampedSocket {
    /// Opens a socket on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::NotEthernet`], [`Error::Permission`], [`Error::System`].
    pub fn open(interface: &str) -> Result<StampedSocket> {
        let interface = Interface::named(interface)?;
        interface.check_header()?;
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK)?;
        let failed = |what: &str| Error::system(format!("{what} on {}", interface.name));
        let on: libc::c_int = 1;
        for (level, option, what) in [
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "enabling receive timestamps"),
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, "requesting VLAN tags"),
            (libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, "leaving out frames that are sent"),
            (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, "passing the qdisc"),
        ] {
            set_option(&socket, level, option, &on).map_err(|()| failed(what))?;
        }
        for (forced, usual) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            // Unprivileged users get at most the machine's maximum.
            if set_option(&socket, libc::SOL_SOCKET, forced, &BUFFER).is_err() {
                let _smaller = set_option(&socket, libc::SOL_SOCKET, usual, &BUFFER);
            }
        }
        interface.promiscuous(&socket)?;
        bind_to(&socket, &interface, libc::ETH_P_ALL).map_err(|()| failed("binding to the interface"))?;
        Ok(StampedSocket {
            socket,
            interface: interface.name,
            clocks: Clocks::new(Reading::of_both_clocks()),
            dropped: 0,
        })
    }

    /// Reads the clocks. Call it once before the frames of a wake-up are received: their waits end here.
    pub fn read_clocks(&mut self) {
        self.clocks.read(Reading::of_both_clocks);
    }

    /// The next frame, including its VLAN tag, or `None` if there is none. Never blocks.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`] once when the interface goes down; [`Error::System`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<Option<StampedFrame>> {
        let mut control = [0_u64; CONTROL];
        let mut part = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: the message's parts are borrowed during the call.
        let length = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, flags) };
        let Ok(length) = usize::try_from(length) else {
            let source = std::io::Error::last_os_error();
            return match source.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                Some(libc::ENETDOWN) => Err(Error::InterfaceDown { name: self.interface.clone() }),
                _ => Err(Error::of_system(format!("receiving on {}", self.interface), source)),
            };
        };
        let seen = Control::of(&message);
        let waited = seen.stamp.map_or(0, |stamp| self.clocks.waited(stamp));
        let length = match seen.tag {
            Some(tag) => put_tag(into, length, tag),
            None => length,
        };
        Ok(Some(StampedFrame { length, waited: Span::from_ns(waited.into()) }))
    }

    /// Sends a frame, given without FCS. Never blocks. Returns false if there was no room; the frame is then dropped.
    ///
    /// # Errors
    /// [`Error::System`] for any error other than a full queue, such as an interface that is down.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        match send(&self.socket, frame, SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::NOBUFS | Errno::AGAIN) => Ok(false),
            Err(errno) => Err(Error::of_system(format!("sending on {}", self.interface), errno.into())),
        }
    }

    /// Frames that the kernel dropped since the socket was opened, because its buffer was full.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn dropped(&mut self) -> Result<u64> {
        let mut fresh = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let descriptor = self.socket.as_raw_fd();
        let into = (&raw mut fresh).cast();
        // SAFETY: the kernel writes at most `length` bytes of the struct.
        let rc =
            unsafe { libc::getsockopt(descriptor, libc::SOL_PACKET, libc::PACKET_STATISTICS, into, &raw mut length) };
        if rc < 0 {
            return Err(Error::system(format!("reading the counters of {}", self.interface)));
        }
        // Reading resets the kernel's counters.
        self.dropped += u64::from(fresh.tp_drops);
        Ok(self.dropped)
    }
}

impl AsFd for StampedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The kernel's steady clock in nanoseconds, which is never set.
#[must_use]
pub fn steady_ns() -> u64 {
    crate::clock::kernel_ns(libc::CLOCK_MONOTONIC)
}

/// Puts a tag that the kernel stripped back into a frame of `length` bytes. Returns the frame's length with the tag.
fn put_tag(frame: &mut [u8], length: usize, tag: [u8; 4]) -> usize {
    let whole = length + tag.len();
    if length >= TAG_AT && whole <= frame.len() {
        frame.copy_within(TAG_AT..length, TAG_AT + tag.len());
        frame[TAG_AT..TAG_AT + tag.len()].copy_from_slice(&tag);
    }
    whole
}

/// Control data of a received frame: its stamp and its VLAN tag.
#[derive(Default)]
struct Control {
    stamp: Option<u64>,
    tag: Option<[u8; 4]>,
}

impl Control {
    fn of(message: &libc::msghdr) -> Control {
        let mut control = Control::default();
        // SAFETY: the kernel has filled the control buffer up to the length in the message.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: the pointer is null or within that buffer, which is aligned.
        while let Some(header) = unsafe { next.as_ref() } {
            // SAFETY: `next` is a header in that buffer.
            let data = unsafe { libc::CMSG_DATA(next) };
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: a header of this type is followed by a timespec.
                    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    control.stamp = Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned());
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    // SAFETY: a header of this type is followed by a tpacket_auxdata.
                    let auxiliary = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                    control.tag = tag_of(&auxiliary);
                }
                _ => {}
            }
            // SAFETY: `next` is a header of the message's control buffer.
            next = unsafe { libc::CMSG_NXTHDR(message, next) };
        }
        control
    }
}

fn tag_of(auxiliary: &libc::tpacket_auxdata) -> Option<[u8; 4]> {
    let has = |flag: u32| auxiliary.tp_status & flag != 0;
    has(libc::TP_STATUS_VLAN_VALID).then(|| {
        let tpid = if has(libc::TP_STATUS_VLAN_TPID_VALID) { auxiliary.tp_vlan_tpid } else { 0x8100 };
        let ([a, b], [c, d]) = (tpid.to_be_bytes(), auxiliary.tp_vlan_tci.to_be_bytes());
        [a, b, c, d]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripped_tag_is_put_back_behind_the_addresses() {
        let mut frame: Vec<u8> = (0..20).collect();
        assert_eq!(put_tag(&mut frame, 16, [0x81, 0, 0, 5]), 20);
        assert_eq!(frame[..12], (0..12).collect::<Vec<u8>>()[..]);
        assert_eq!(frame[12..16], [0x81, 0, 0, 5]);
        assert_eq!(frame[16..], [12, 13, 14, 15]);
        assert_eq!(put_tag(&mut [0; 16], 16, [0; 4]), 20, "longer than the buffer");
    }
}
