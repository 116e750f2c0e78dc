//! Queries and settings of Linux interfaces.

use crate::{Error, Result};
use packet::MacAddr;
use std::ffi::{CStr, CString};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A Linux interface of the calling thread's network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
}

impl Interface {
    pub(crate) fn named(name: &str) -> Result<Interface> {
        let c = CString::new(name).map_err(|_| Error::Nul { what: "an interface's name" })?;
        // SAFETY: the name is NUL-terminated.
        let index = unsafe { libc::if_nametoindex(c.as_ptr()) };
        if index == 0 {
            return Err(Error::NoInterface { name: name.to_owned() });
        }
        Ok(Interface { name: name.to_owned(), index })
    }

    pub(crate) fn numbered(index: u32) -> Option<Interface> {
        let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
        // SAFETY: `name` has room for IF_NAMESIZE bytes.
        let text = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the kernel terminates the name within IF_NAMESIZE.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Some(Interface { name: name.to_string_lossy().into_owned(), index })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq is plain data, for which all zeros is a valid value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes().take(libc::IF_NAMESIZE - 1)) {
            *to = from as libc::c_char;
        }
        request
    }

    /// The MTU in bytes: the longest packet, without the Ethernet header.
    pub(crate) fn mtu(&self) -> Result<u32> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        // SAFETY: the kernel reads and writes an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
        if rc < 0 {
            return Err(Error::system(format!("asking {} for its MTU", self.name)));
        }
        // SAFETY: SIOCGIFMTU writes this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(mtu.max(0) as u32)
    }

    /// Sets the length of the transmit queue in frames.
    pub(crate) fn set_queue_length(&self, frames: u32) -> Result<()> {
        let mut request = self.request();
        // The kernel reads the queue length from the same union field as the MTU.
        request.ifr_ifru.ifru_mtu = frames as i32;
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        // SAFETY: the kernel reads an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN as _, &raw mut request) };
        if rc < 0 { Err(Error::system(format!("lengthening the queue of {}", self.name))) } else { Ok(()) }
    }

    /// Refuses an interface whose frames have no Ethernet header, such as a tunnel. Frames of `lo` have one.
    pub(crate) fn check_header(&self) -> Result<()> {
        match self.hardware()? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
            _ => Err(Error::NotEthernet { name: self.name.clone() }),
        }
    }

    /// The hardware type (ARPHRD_…).
    fn hardware(&self) -> Result<libc::sa_family_t> {
        Ok(self.hardware_address()?.sa_family)
    }

    /// The MAC address.
    pub(crate) fn mac(&self) -> Result<MacAddr> {
        let [a, b, c, d, e, f, ..] = self.hardware_address()?.sa_data.map(libc::c_char::cast_unsigned);
        Ok(MacAddr([a, b, c, d, e, f]))
    }

    fn hardware_address(&self) -> Result<libc::sockaddr> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        // SAFETY: the kernel reads and writes an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) };
        if rc < 0 {
            return Err(Error::system(format!("asking {} for its address", self.name)));
        }
        // SAFETY: SIOCGIFHWADDR writes this member.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr })
    }

    /// Whether the interface is set up, and whether it is up and has a carrier.
    pub(crate) fn state(&self) -> Result<(bool, bool)> {
        let flags = self.flags()?;
        let has = |flag| flags & flag != 0;
        Ok((has(libc::IFF_UP), has(libc::IFF_UP) && has(libc::IFF_RUNNING)))
    }

    /// Whether the user has set the promiscuous flag, as `ip link set … promisc on` does.
    pub(crate) fn is_set_promiscuous(&self) -> Result<bool> {
        Ok(self.flags()? & libc::IFF_PROMISC != 0)
    }

    fn flags(&self) -> Result<i32> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        // SAFETY: the kernel reads and writes an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
        if rc < 0 {
            return Err(Error::system(format!("asking {} for its state", self.name)));
        }
        // SAFETY: SIOCGIFFLAGS writes this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(flags.into())
    }

    /// Whether the interface has only one transmit queue. Frames then keep their order even if they are sent in
    /// different ways.
    pub(crate) fn sends_by_one_queue(&self) -> Result<bool> {
        let channels = self.channels()?.unwrap_or_default();
        Ok(channels.tx + channels.combined <= 1)
    }

    /// The numbers of receive, transmit and combined queues, with their maxima. `None` if the driver does not report
    /// them.
    fn channels(&self) -> Result<Option<Channels>> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: ETHTOOL_GCHANNELS writes a `struct ethtool_channels`, whose layout `Channels` has.
        Ok(unsafe { self.ethtool(&mut channels) }?.then_some(channels))
    }

    /// Whether the driver reports a carrier now. The kernel's flag follows up to a second later. `None` if the driver
    /// does not report it.
    pub(crate) fn has_carrier(&self) -> Result<Option<bool>> {
        let mut link = [ETHTOOL_GLINK, 0];
        // SAFETY: ETHTOOL_GLINK writes the second number.
        Ok(unsafe { self.ethtool(&mut link) }?.then_some(link[1] != 0))
    }

    /// The name of the kernel driver. `None` if the kernel does not report it.
    pub(crate) fn driver(&self) -> Result<Option<String>> {
        let mut about = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        // SAFETY: ETHTOOL_GDRVINFO writes a `struct ethtool_drvinfo`, whose size `DriverInfo` has.
        if !unsafe { self.ethtool(&mut about) }? {
            return Ok(None);
        }
        let name = CStr::from_bytes_until_nul(&about.driver).ok().and_then(|name| name.to_str().ok());
        Ok(name.map(str::to_owned))
    }

    /// Whether /sys shows this interface under its name. /sys shows the network namespace in which it was mounted.
    pub(crate) fn is_in_sysfs(&self) -> bool {
        let text = |file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{}/{file}", self.name)).ok()?;
            Some(text.trim().to_owned())
        };
        let address = self.mac().map(|mac| mac.to_string()).ok();
        text("ifindex") == Some(self.index.to_string()) && address.is_some() && text("address") == address
    }

    /// Runs a SIOCETHTOOL command. Returns false if the driver refuses.
    ///
    /// # Safety
    /// The command at the start of `data` must not make the kernel write beyond `data`.
    unsafe fn ethtool<T>(&self, data: &mut T) -> Result<bool> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut *data).cast();
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } == 0)
    }

    /// Makes the interface accept frames for other stations while the socket is open. Unlike the IFF_PROMISC flag, this
    /// setting cannot outlive a killed process.
    pub(crate) fn promiscuous(&self, packet_socket: &OwnedFd) -> Result<()> {
        let request = libc::packet_mreq {
            mr_ifindex: self.index as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(packet_socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
            .map_err(|()| Error::system(format!("making {} promiscuous", self.name)))
    }
}

/// `struct ethtool_channels` of linux/ethtool.h.
#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most_rx: u32,
    most_tx: u32,
    most_other: u32,
    most_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_drvinfo` of linux/ethtool.h: the driver name, and fields not used here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GLINK: u32 = 0x0a;

/// Properties of a Linux interface before it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether the interface is set up.
    pub up: bool,
    /// Whether the interface is set up and has a carrier.
    pub carrier: bool,
    /// The number of receive queues; 1 if the driver does not report it.
    pub rx_queues: u16,
    /// The number of queues that DPDK's AF_XDP driver can use: the combined queues, or 1 if the interface's driver has
    /// none.
    pub xdp_queues: u16,
    /// The interface index in this network namespace.
    pub index: u32,
    /// Whether the interface carries Ethernet frames. False for `lo` and for IP tunnels.
    pub ethernet: bool,
}

/// Reads the properties of an interface of the calling thread's network namespace.
///
/// # Errors
/// [`Error::NoInterface`]; [`Error::System`] if the interface disappears during the call.
pub fn link(name: &str) -> Result<Link> {
    let interface = Interface::named(name)?;
    let (up, carrier) = interface.state()?;
    let channels = interface.channels()?.unwrap_or_default();
    let count = |queues: u32| queues.clamp(1, u32::from(u16::MAX)) as u16;
    Ok(Link {
        mtu: interface.mtu()?,
        up,
        carrier,
        rx_queues: count(channels.rx + channels.combined),
        xdp_queues: if channels.most_combined == 0 { 1 } else { count(channels.combined) },
        index: interface.index,
        ethernet: interface.hardware()? == libc::ARPHRD_ETHER,
    })
}

/// Whether an interface with this index is in the calling thread's network namespace, under any name.
///
/// Returns true if the kernel cannot be queried, for example because no descriptor is free.
#[must_use]
pub fn is_there(index: u32) -> bool {
    let absent = || {
        let cause = std::io::Error::last_os_error().raw_os_error();
        matches!(cause, Some(libc::ENXIO | libc::ENODEV))
    };
    Interface::numbered(index).is_some() || !absent()
}

pub(crate) fn socket(family: i32, kind: i32) -> Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let what = if family == libc::AF_PACKET { "opening a packet socket" } else { "opening a socket" };
        return Err(Error::system(what));
    }
    // SAFETY: the descriptor is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option. On failure the error is in errno.
pub(crate) fn set_option<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> std::result::Result<(), ()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a value that is borrowed during the call.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if rc < 0 { Err(()) } else { Ok(()) }
}
