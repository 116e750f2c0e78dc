use crate::Result;
use crate::error::Error;
use crate::interface::{Interface, set_option, socket};
use crate::packet_ring::bind_to;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;

/// Sends single frames on a Linux interface, each by one system call that goes past the queueing
/// discipline: nothing in software on that path does less, so it is the floor to measure others by.
#[derive(Debug)]
pub struct PacketSender {
    socket: OwnedFd,
    interface: String,
}

/// Bytes of frames on their way that a socket may have: 4096 full frames with what the kernel adds.
const SEND_BUFFER: libc::c_int = 8 << 20;

impl PacketSender {
    /// A sender on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Permission`], [`Error::System`].
    pub fn open(interface: &str) -> Result<PacketSender> {
        PacketSender::on(&Interface::named(interface)?)
    }

    pub(crate) fn on(interface: &Interface) -> Result<PacketSender> {
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        let failed = |what: &str| Error::system(format!("{what} {}", interface.name));
        // No protocol: it receives nothing.
        bind_to(&socket, interface, 0).map_err(|()| failed("binding to"))?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &on)
            .map_err(|()| failed("passing the qdisc of"))?;
        // A NIC gives the memory of frames back when they have left: its queue is to be the bound, not this. An ordinary
        // user gets what net.core.wmem_max permits.
        if set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).is_err() {
            let _smaller = set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER);
        }
        Ok(PacketSender { socket, interface: interface.name.clone() })
    }

    /// Sends a frame, given without FCS, and returns when the kernel has it. False if there was no
    /// room for it, and it is gone.
    ///
    /// # Errors
    /// [`Error::System`] for anything but a full queue, as an interface that is down.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        match send(&self.socket, frame, SendFlags::DONTWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::NOBUFS | Errno::AGAIN) => Ok(false),
            Err(errno) => Err(Error::of_system(format!("sending on {}", self.interface), errno.into())),
        }
    }
}
