//! A UDP socket whose messages the kernel stamps at departure and arrival.

use crate::options::host_clock::HostClock;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// The socket, and the clock of its stamps.
pub(super) struct StampedSocket {
    pub(super) socket: UdpSocket,
    clock: HostClock,
}

/// A received message.
pub(super) struct Arrived {
    pub(super) length: usize,
    pub(super) from: Option<SocketAddr>,
    /// Arrival in ns of UNIX time: the kernel's stamp, or else the time of the read.
    pub(super) at: i64,
    /// Whether the kernel stamped it.
    pub(super) by_kernel: bool,
}

impl StampedSocket {
    /// Enables stamps on a bound socket. A read waits for at most `patience`.
    pub(super) fn new(socket: UdpSocket, clock: HostClock, patience: Duration) -> io::Result<Self> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(&socket, sockopt::Timestamping, &flags)?;
        socket.set_read_timeout(Some(patience))?;
        Ok(StampedSocket { socket, clock })
    }

    /// The current time in ns of UNIX time.
    pub(super) fn now(&self) -> i64 {
        self.clock.now_ns().cast_signed()
    }

    /// The next message; `None` if none arrived in time.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Arrived>> {
        match self.read(buffer, MsgFlags::empty()) {
            Ok((length, from, stamp)) => {
                let at = stamp.unwrap_or_else(|| self.now());
                Ok(Some(Arrived { length, from, at, by_kernel: stamp.is_some() }))
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// The kernel's departure stamp of the last message; `None` if there is none.
    pub(super) fn left(&self) -> Option<i64> {
        let mut last = None;
        // The queue may also have stamps of earlier messages.
        while let Ok((.., stamp)) = self.read(&mut [], MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT) {
            last = stamp.or(last);
        }
        last
    }

    fn read(&self, buffer: &mut [u8], flags: MsgFlags) -> Result<(usize, Option<SocketAddr>, Option<i64>), Errno> {
        let mut control = nix::cmsg_space!([TimeSpec; 3], [u8; 64]);
        let mut slices = [IoSliceMut::new(buffer)];
        let read = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
        let mut stamp = None;
        for message in read.cmsgs()? {
            if let ControlMessageOwned::ScmTimestampsns(stamps) = message {
                let at = stamps.system;
                stamp = Some(at.tv_sec() * 1_000_000_000 + at.tv_nsec()).filter(|at| *at > 0);
            }
        }
        let from = read.address.and_then(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
        });
        Ok((read.bytes, from, stamp.map(|at| self.clock.of_kernel_ns(at))))
    }
}
