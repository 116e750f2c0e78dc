//! What we ask the kernel about an interface, and tell it.

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
        // SAFETY: NUL-terminated.
        let index = unsafe { libc::if_nametoindex(c.as_ptr()) };
        if index == 0 {
            return Err(Error::NoInterface { name: name.to_owned() });
        }
        Ok(Interface { name: name.to_owned(), index })
    }

    pub(crate) fn numbered(index: u32) -> Option<Interface> {
        let mut name = [0 as libc::c_char; libc::IF_NAMESIZE];
        // SAFETY: there is room for IF_NAMESIZE bytes.
        let text = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: the kernel terminates it within IF_NAMESIZE.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Some(Interface { name: name.to_string_lossy().into_owned(), index })
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq is plain data, for which zeros are a value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes().take(libc::IF_NAMESIZE - 1)) {
            *to = from as libc::c_char;
        }
        request
    }

    /// The MTU in bytes: the longest packet, without Ethernet's header.
    pub(crate) fn mtu(&self) -> Result<u32> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        // SAFETY: the kernel reads and writes an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
        if rc < 0 {
            return Err(Error::system(format!("asking {} for its MTU", self.name)));
        }
        // SAFETY: that is the member which SIOCGIFMTU writes.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        Ok(mtu.max(0) as u32)
    }

    /// Sets how many frames wait in its queue.
    pub(crate) fn set_queue_length(&self, frames: u32) -> Result<()> {
        let mut request = self.request();
        // The kernel reads the number where the MTU would be.
        request.ifr_ifru.ifru_mtu = frames as i32;
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        // SAFETY: the kernel reads an ifreq.
        let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFTXQLEN as _, &raw mut request) };
        if rc < 0 { Err(Error::system(format!("lengthening the queue of {}", self.name))) } else { Ok(()) }
    }

    /// Refuses an interface whose frames have no Ethernet header, as those of tunnels. Those of `lo` have one.
    pub(crate) fn check_header(&self) -> Result<()> {
        match self.hardware()? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Ok(()),
            _ => Err(Error::NotEthernet { name: self.name.clone() }),
        }
    }

    /// What it is, by the type of its address.
    fn hardware(&self) -> Result<libc::sa_family_t> {
        Ok(self.hardware_address()?.sa_family)
    }

    /// Its address on Ethernet.
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
        // SAFETY: that is the member which SIOCGIFHWADDR writes.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr })
    }

    /// Whether it is set up, and whether it has a carrier besides.
    pub(crate) fn state(&self) -> Result<(bool, bool)> {
        let flags = self.flags()?;
        let has = |flag| flags & flag != 0;
        Ok((has(libc::IFF_UP), has(libc::IFF_UP) && has(libc::IFF_RUNNING)))
    }

    /// Whether somebody has set it promiscuous by its flag, as `ip link set … promisc on` does.
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
        // SAFETY: that is the member which SIOCGIFFLAGS writes.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(flags.into())
    }

    /// It has one transmit queue, so that frames which leave in any way keep their order.
    pub(crate) fn sends_by_one_queue(&self) -> Result<bool> {
        let channels = self.channels()?.unwrap_or_default();
        Ok(channels.tx + channels.combined <= 1)
    }

    /// Queues that receive, that send, and that do both; of the last also how many there could be.
    /// None where the driver does not tell.
    fn channels(&self) -> Result<Option<Channels>> {
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: that command writes what is there.
        Ok(unsafe { self.ethtool(&mut channels) }?.then_some(channels))
    }

    /// Whether frames have somewhere to go, as the driver sees it now: the kernel's flag for it follows up to a second
    /// later. None where the driver does not tell.
    pub(crate) fn has_carrier(&self) -> Result<Option<bool>> {
        let mut link = [ETHTOOL_GLINK, 0];
        // SAFETY: that command writes the second number.
        Ok(unsafe { self.ethtool(&mut link) }?.then_some(link[1] != 0))
    }

    /// The name of its driver. None where it does not tell.
    pub(crate) fn driver(&self) -> Result<Option<String>> {
        let mut about = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        // SAFETY: that command writes a `struct ethtool_drvinfo`, which has the size of this one.
        if !unsafe { self.ethtool(&mut about) }? {
            return Ok(None);
        }
        let name = CStr::from_bytes_until_nul(&about.driver).ok().and_then(|name| name.to_str().ok());
        Ok(name.map(str::to_owned))
    }

    /// Whether /sys shows this interface under its name. It shows the network namespace in which it was mounted.
    pub(crate) fn is_in_sysfs(&self) -> bool {
        let text = |file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{}/{file}", self.name)).ok()?;
            Some(text.trim().to_owned())
        };
        let address = self.mac().map(|mac| mac.to_string()).ok();
        text("ifindex") == Some(self.index.to_string()) && address.is_some() && text("address") == address
    }

    /// A command of SIOCETHTOOL; false where the driver refuses.
    ///
    /// # Safety
    /// The kernel writes no more than `data` for the command that it begins with.
    unsafe fn ethtool<T>(&self, data: &mut T) -> Result<bool> {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM)?;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut *data).cast();
        // SAFETY: the caller's promise.
        Ok(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } == 0)
    }

    /// Makes the interface accept frames for other stations, for as long as the socket is open: unlike
    /// the IFF_PROMISC flag it cannot outlive a killed process.
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

/// `struct ethtool_drvinfo` of linux/ethtool.h: the driver's name, and what is not of use here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GLINK: u32 = 0x0a;

/// What a Linux interface is before anything is opened on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The longest packet in bytes, without Ethernet's header.
    pub mtu: u32,
    /// It is set up.
    pub up: bool,
    /// It is set up and has a carrier.
    pub carrier: bool,
    /// Receive queues; 1 where the driver does not tell.
    pub rx_queues: u16,
    /// Queues that DPDK's AF_XDP driver can have: those that receive and send both, or 1 where the interface's
    /// driver has no such.
    pub xdp_queues: u16,
    /// Its number in this network namespace.
    pub index: u32,
    /// It carries Ethernet frames; `lo` and tunnels of packets do not.
    pub ethernet: bool,
}

/// Looks at an interface of the calling thread's network namespace.
///
/// # Errors
/// [`Error::NoInterface`], and [`Error::System`] when it goes meanwhile.
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

/// Whether an interface of this number is in the calling thread's network namespace, whatever its name is now.
///
/// Where the kernel cannot be asked, as without a free descriptor, it is.
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

/// Sets an option of that level; the reason is in errno.
pub(crate) fn set_option<T>(socket: &OwnedFd, level: i32, option: i32, value: &T) -> std::result::Result<(), ()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a value that is borrowed meanwhile.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if rc < 0 { Err(()) } else { Ok(()) }
}
