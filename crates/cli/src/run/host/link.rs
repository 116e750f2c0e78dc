//! An interface as netlink describes it. Netlink uses the network namespace of this process. `/sys` may show another
//! one, the namespace in which it was mounted.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An interface at one instant.
#[derive(Debug)]
pub(super) struct Link {
    name: String,
    index: i32,
    address: Vec<u8>,
    /// The device behind it: a PCI address, or `virtio2`. `None` for virtual interfaces, and before Linux 5.14.
    pub(super) device: Option<String>,
    /// Its counters, by their names in sysfs.
    pub(super) statistics: BTreeMap<String, u64>,
}

/// The fields of `struct rtnl_link_stats64`, in order. Older kernels lack the last ones.
const STATISTICS: [&str; 24] = [
    "rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
    "multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors",
    "rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors",
    "tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed", "rx_nohandler",
];

// From linux/netlink.h, linux/rtnetlink.h and linux/if_link.h.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
const IFLA_PARENT_DEV_NAME: u16 = 56;
/// Bytes of `struct nlmsghdr`, of `struct ifinfomsg`, and of the longest name with its terminating zero.
const HEADER: usize = 16;
const INFO: usize = 16;
const NAME: usize = 16;

impl Link {
    /// The interface of this name in this network namespace.
    pub(super) fn named(name: &str) -> io::Result<Link> {
        if name.is_empty() || name.len() >= NAME || name.contains('\0') {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        send(&socket, &request(name), SendFlags::empty())?;
        let mut answer = vec![0; 32 << 10];
        // The kernel has answered when `send` returns.
        let (length, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
        read(name, &answer[..length])
    }

    /// The interface's folder in sysfs, unless sysfs shows another interface of this name.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        let folder = Path::new("/sys/class/net").join(&self.name);
        let text = |file: &str| fs::read_to_string(folder.join(file)).map(|text| text.trim().to_owned()).ok();
        let address: Vec<String> = self.address.iter().map(|byte| format!("{byte:02x}")).collect();
        let same = text("ifindex")? == self.index.to_string() && text("address")? == address.join(":");
        same.then_some(folder)
    }
}

/// Whether the error means that there is no interface of this name.
pub(super) fn is_absence(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::NotFound || cause.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn request(name: &str) -> Vec<u8> {
    let attribute = 4 + name.len() + 1;
    let length = HEADER + INFO + attribute.next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number, port ID, and an empty `struct ifinfomsg`.
    request.resize(HEADER + INFO, 0);
    request.extend((attribute as u16).to_ne_bytes());
    request.extend(IFLA_IFNAME.to_ne_bytes());
    request.extend(name.bytes());
    request.resize(length, 0);
    request
}

fn read(name: &str, answer: &[u8]) -> io::Result<Link> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about the interface cannot be read");
    let word = |at: usize| answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
    let half = |at: usize| answer.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match half(4).ok_or_else(odd)? {
        RTM_NEWLINK => {}
        NLMSG_ERROR => return Err(io::Error::from_raw_os_error(-word(HEADER).ok_or_else(odd)?)),
        _ => return Err(odd()),
    }
    let index = word(HEADER + 4).ok_or_else(odd)?;
    let mut link =
        Link { name: name.to_owned(), index, address: Vec::new(), device: None, statistics: BTreeMap::new() };
    let end = answer.len().min(word(0).and_then(|length| usize::try_from(length).ok()).ok_or_else(odd)?);
    let mut at = HEADER + INFO;
    while at + 4 <= end {
        let length = usize::from(half(at).ok_or_else(odd)?);
        let value = answer.get(at + 4..at + length).ok_or_else(odd)?;
        match half(at + 2).ok_or_else(odd)? {
            IFLA_ADDRESS => link.address = value.to_vec(),
            IFLA_PARENT_DEV_NAME => {
                let text = value.strip_suffix(b"\0").unwrap_or(value);
                link.device = Some(String::from_utf8_lossy(text).into_owned());
            }
            IFLA_STATS64 => {
                let count = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
                let named = STATISTICS.into_iter().zip(value.chunks_exact(8));
                link.statistics = named.map(|(name, bytes)| (name.to_owned(), count(bytes))).collect();
            }
            _ => {}
        }
        at += length.max(4).next_multiple_of(4);
    }
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_describes_lo_as_sysfs_does() {
        let lo = Link::named("lo").expect("every namespace has it");
        assert_eq!((lo.index, lo.address.as_slice(), &lo.device), (1, &[0; 6][..], &None));
        assert_eq!(lo.statistics.len(), STATISTICS.len());
        let entries = fs::read_dir("/sys/class/net/lo/statistics").into_iter().flatten().flatten();
        for name in entries.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
            assert!(lo.statistics.contains_key(&name), "{name}");
        }
    }

    #[test]
    fn absent_interfaces_and_odd_names_are_not_found() {
        for name in ["nosuch0", "", "a/b", "lo\0x", "a-name-of-16-byte"] {
            let cause = Link::named(name).expect_err(name);
            assert!(is_absence(&cause), "{name}: {cause:?}");
        }
    }

    #[test]
    fn broken_answers_are_errors() {
        let mut answer = request("eth0");
        answer[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        assert!(read("eth0", &answer).is_ok());
        for length in 0..HEADER + INFO {
            assert!(read("eth0", &answer[..length]).is_err() || length >= HEADER + 8, "{length}");
        }
        // An attribute longer than the answer.
        answer[HEADER + INFO..HEADER + INFO + 2].copy_from_slice(&999_u16.to_ne_bytes());
        assert!(read("eth0", &answer).is_err());
    }
}
