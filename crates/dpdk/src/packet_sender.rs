use crate::Result;
use crate::error::Error;
use crate::interface::{Interface, set_option, socket};
use crate::packet_ring::bind_to;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;

/// Sends single frames on a Linux interface. Each frame takes one system call, which bypasses the queueing discipline.
/// No software on that path does less, so this is the baseline for measurements.
#[derive(Debug)]
pub struct PacketSender {
    socket: OwnedFd,
    interface: String,
}

/// The send buffer in bytes: 4096 full frames with the kernel's overhead.
const SEND_BUFFER: libc::c_int = 8 << 20;

impl PacketSender {
    /// Opens a sender on an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Permission`], [`Error::System`].
    pub fn open(interface: &str) -> Result<PacketSender> {
        PacketSender::on(&Interface::named(interface)?)
    }

    pub(crate) fn on(interface: &Interface) -> Result<PacketSender> {
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW)?;
        let failed = |what: &str| Error::system(format!("{what} {}", interface.name));
        // No protocol: the socket receives nothing.
        bind_to(&socket, interface, 0).map_err(|()| failed("binding to"))?;
        let on: libc::c_int = 1;
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &on)
            .map_err(|()| failed("passing the qdisc of"))?;
        // A NIC frees a frame's memory after sending it. The NIC's queue should be the limit, not this buffer.
        // Unprivileged users get at most net.core.wmem_max.
        if set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER).is_err() {
            let _smaller = set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &SEND_BUFFER);
        }
        Ok(PacketSender { socket, interface: interface.name.clone() })
    }

    /// Sends a frame, given without FCS, and returns when the kernel has taken it. Returns false if there was no room;
    /// the frame is then dropped.
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
}
