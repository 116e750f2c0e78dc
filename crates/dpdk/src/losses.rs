//! Frames that the kernel dropped before a driver saw them. DPDK's drivers do not expose their sockets and report few
//! or none of these losses. The kernel counts all of them, so we read its counters.

use std::collections::BTreeSet;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

/// The XDP sockets of one port, open as long as the port.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Vec<RawFd>);

/// The descriptors of this process. Empty without /proc; losses are then unknown.
pub(crate) fn descriptors() -> BTreeSet<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

impl Sockets {
    /// Adds the XDP sockets opened since `before`.
    pub(crate) fn claim(&mut self, before: &BTreeSet<RawFd>) {
        for fd in descriptors().difference(before) {
            if option::<libc::c_int>(*fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_XDP) {
                self.0.push(*fd);
            }
        }
    }

    /// Frames dropped because a ring was full. `net_af_xdp` itself reports only frames that arrived when there was no
    /// buffer.
    pub(crate) fn lost(&self) -> u64 {
        // Before Linux 5.9 the kernel writes fewer fields and counts a full ring in a field that the driver reads.
        let full = |fd: &RawFd| {
            option::<libc::xdp_statistics>(*fd, libc::SOL_XDP, libc::XDP_STATISTICS).map_or(0, |s| s.rx_ring_full)
        };
        self.0.iter().map(full).sum()
    }
}

/// Frames that the kernel could not queue on a TAP device. The DPDK driver does not report them.
pub(crate) fn of_tap(name: &str) -> u64 {
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = devices.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    // Eight receive columns, then bytes, frames, errors and drops of the transmit side.
    line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

/// A type that the kernel may write.
///
/// # Safety
/// The type must be plain data for which any bits, including zeros, are a value.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for libc::c_int {}
// SAFETY: a struct of numbers.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: a struct of numbers.
unsafe impl Plain for libc::xdp_statistics {}

/// Reads a socket option. `None` if the kernel refuses.
pub(crate) fn option<T: Plain>(fd: RawFd, level: libc::c_int, name: libc::c_int) -> Option<T> {
    // SAFETY: all zeros is a valid value of every `Plain` type.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the value, and refuses a descriptor that is not a socket.
    let rc = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut length) };
    (rc == 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn other_descriptors_are_left_alone() {
        let before = descriptors();
        let file = std::fs::File::open("/proc/self/status").expect("it is there");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let now = descriptors();
        assert!(now.contains(&file.as_raw_fd()) && now.contains(&socket.as_raw_fd()));
        let mut sockets = Sockets::default();
        sockets.claim(&before);
        assert!(sockets.0.is_empty());
        assert_eq!(sockets.lost(), 0);
    }
}
