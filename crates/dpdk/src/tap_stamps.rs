//! Arrival stamps for frames on a TAP device. Reading from the device does not return stamps.
//!
//! A packet socket on the device sees each frame with the kernel's stamp when it is handed over, in the same order.
//! Frames are matched by length and first bytes, so the stamp of a frame that the device had no room for is skipped.

use crate::interface::{Interface, set_option, socket};
use crate::packet_ring::{bind_to, leave_in_outgoing};
use crate::waits::{Clocks, Reading};
use crate::{Mbuf, TscClock};
use packet::Frame;
use std::collections::VecDeque;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use units::Time;

/// Stamps of frames handed to a TAP device and not yet read from it.
#[derive(Debug)]
pub(crate) struct TapStamps {
    socket: OwnedFd,
    seen: VecDeque<SentStamp>,
    clocks: Clocks,
    clock: TscClock,
}

#[derive(Clone, Copy, Debug)]
struct SentStamp {
    /// The stamp in ns since the UNIX epoch.
    stamp: u64,
    length: usize,
    head: [u8; HEAD],
}

/// The Ethernet and IPv4 headers, including the IPv4 identification, in bytes.
const HEAD: usize = 34;
/// Frames per call.
const CALL: usize = 64;
/// The largest number of stamps to remember: more than a device holds.
const MOST: usize = 1 << 15;
/// The number of stamps searched for a frame. Stamps ahead of the match belong to lost frames.
const NEAR: usize = 1_024;
/// The socket's receive buffer in bytes.
const ROOM: libc::c_int = 16 << 20;

impl TapStamps {
    /// Opens a packet socket on the device. `None` if the kernel refuses.
    pub(crate) fn open(interface: &Interface, clock: TscClock) -> Option<TapStamps> {
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK).ok()?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on).ok()?;
        // Without the privilege the buffer stays at the system's limit.
        let _as_it_was = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &ROOM);
        leave_in_outgoing(socket.as_raw_fd()).ok()?;
        bind_to(&socket, interface, libc::ETH_P_ALL).ok()?;
        Some(TapStamps { socket, seen: VecDeque::new(), clocks: Clocks::new(Reading::of_kernel(&clock)), clock })
    }

    /// Sets the waits of frames that were just read from the device. The waits end at the returned time.
    pub(crate) fn set_waits(&mut self, frames: &mut [Mbuf]) -> Time {
        while self.listen() == CALL {}
        self.clocks.read(|| Reading::of_kernel(&self.clock));
        for frame in frames {
            let near = self.seen.iter().take(NEAR);
            let found =
                near.enumerate().find(|(_, seen)| seen.is(frame.bytes())).map(|(index, seen)| (index, seen.stamp));
            let waited = found.map_or(0, |(index, stamp)| {
                self.seen.drain(..=index);
                self.clocks.waited(stamp)
            });
            frame.set_waited(waited);
        }
        let over = self.seen.len().saturating_sub(MOST);
        self.seen.drain(..over);
        self.clocks.at()
    }

    /// Reads some stamps from the socket. Returns their number.
    fn listen(&mut self) -> usize {
        let mut heads = [[0_u8; HEAD]; CALL];
        let mut controls = [[0_u64; 8]; CALL];
        let mut parts: [libc::iovec; CALL] =
            std::array::from_fn(|i| libc::iovec { iov_base: (&raw mut heads[i]).cast(), iov_len: HEAD });
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut messages: [libc::mmsghdr; CALL] = unsafe { zeroed() };
        for (i, message) in messages.iter_mut().enumerate() {
            message.msg_hdr.msg_iov = &raw mut parts[i];
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = (&raw mut controls[i]).cast();
            message.msg_hdr.msg_controllen = size_of_val(&controls[i]) as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: there are CALL messages, whose parts are borrowed during the call, and there is no timeout.
        let heard = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                CALL as u32,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        let heard = usize::try_from(heard).unwrap_or(0);
        for (message, head) in messages.iter().zip(&heads).take(heard) {
            if let Some(stamp) = stamp_of(&message.msg_hdr) {
                self.seen.push_back(SentStamp { stamp, length: message.msg_len as usize, head: *head });
            }
        }
        heard
    }
}

/// The kernel's stamp in a message's control data.
fn stamp_of(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel has filled the control buffer up to the length in the message.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: the pointer is null or within that buffer, which is aligned.
    let header = unsafe { first.as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: `first` is a header in that buffer, as checked above.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: a header of this type is followed by a timespec.
    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    Some(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned())
}

impl SentStamp {
    /// Whether the stamp belongs to this frame. The frame may have regained the VLAN tag that the kernel stripped.
    fn is(&self, frame: &[u8]) -> bool {
        let same = |from: usize, to: usize| frame.get(from..to).is_some_and(|bytes| bytes == &self.head[from..to]);
        match frame.len().checked_sub(self.length) {
            Some(0) => same(0, HEAD.min(frame.len())),
            Some(4) => same(0, 12),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_known_by_their_length_and_head() {
        let mut head = [7; HEAD];
        head[18] = 9;
        let seen = SentStamp { stamp: 1, length: 60, head };
        let mut frame = [7; 64];
        assert!(!seen.is(&frame[..60]), "another identification");
        frame[18] = 9;
        assert!(seen.is(&frame[..60]) && seen.is(&frame), "with its tag or without");
        assert!(!seen.is(&frame[..61]) && !seen.is(&frame[..59]));
        let short = SentStamp { stamp: 1, length: 20, head };
        assert!(short.is(&frame[..20]));
    }
}
