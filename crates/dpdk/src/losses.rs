//! What the kernel lost before a driver saw it. DPDK's drivers keep their sockets to themselves and report some losses
//! or none; the kernel counts all, and is asked here.

use std::collections::BTreeSet;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

/// The XDP sockets of one port, open as long as it is.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Vec<RawFd>);

/// The descriptors that this process has. None where there is no /proc: losses are then unknown.
pub(crate) fn descriptors() -> BTreeSet<RawFd> {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return BTreeSet::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

impl Sockets {
    /// Takes the sockets among what was opened since `before`.
    pub(crate) fn claim(&mut self, before: &BTreeSet<RawFd>) {
        for fd in descriptors().difference(before) {
            if option::<libc::c_int>(*fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_XDP) {
                self.0.push(*fd);
            }
        }
    }

    /// Frames lost because a ring was full. `net_af_xdp` itself reports only those that came while there was no buffer.
    pub(crate) fn lost(&self) -> u64 {
        // Before Linux 5.9 the kernel writes less, and counts a full ring where the driver looks.
        let full = |fd: &RawFd| {
            option::<libc::xdp_statistics>(*fd, libc::SOL_XDP, libc::XDP_STATISTICS).map_or(0, |s| s.rx_ring_full)
        };
        self.0.iter().map(full).sum()
    }
}

/// Frames that the kernel wanted to send through a TAP device and found no room for: its driver tells
/// of none.
pub(crate) fn of_tap(name: &str) -> u64 {
    let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = devices.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    // Eight columns of what came, then bytes, frames, errors and drops of what was to go.
    line.and_then(|line| line.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

/// What the kernel may write.
///
/// # Safety
/// Plain data of which any bits, zeros too, are a value.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: a number.
unsafe impl Plain for libc::c_int {}
// SAFETY: numbers.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: numbers.
unsafe impl Plain for libc::xdp_statistics {}

/// Reads a socket's option; `None` where the kernel refuses.
pub(crate) fn option<T: Plain>(fd: RawFd, level: libc::c_int, name: libc::c_int) -> Option<T> {
    // SAFETY: zeros are a value of what is Plain.
    let mut value: T = unsafe { zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of the value, and refuses what is no socket.
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
