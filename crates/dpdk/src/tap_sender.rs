use crate::error::Error;
use crate::interface::Interface;
use crate::{Mbuf, Result};
use packet::Frame;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Sends single frames into a TAP device created by DPDK, one `write` each. DPDK's driver makes the kernel gather each
/// frame from two places (`writev`), which makes the whole call a quarter slower.
#[derive(Debug)]
pub(crate) struct TapSender {
    /// A queue of the device, shared with the driver.
    queue: File,
    interface: String,
    /// Whether the device expects a header ahead of each frame.
    has_header: bool,
}

/// The header length in bytes: flags and the EtherType, which a TAP device reads from the frame.
const PACKET_INFORMATION: usize = 4;

impl TapSender {
    /// Opens a sender on a queue that this process has of the named device. `None` if there is no such queue or its
    /// frames need a header other than zeros.
    pub(crate) fn open(interface: &str) -> Result<Option<TapSender>> {
        let Some(has_header) = has_header(interface) else { return Ok(None) };
        let failed = || Error::system("looking for the queues of a TAP device");
        for entry in fs::read_dir("/proc/self/fd").map_err(|_| failed())? {
            let entry = entry.map_err(|_| failed())?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
            let is_tap = fs::read_link(entry.path()).is_ok_and(|path| path.ends_with("net/tun"));
            let Some(number) = number.filter(|_| is_tap) else { continue };
            // SAFETY: the descriptor was open a moment ago, and if it has been closed since, the copy fails or refers
            // to a file that is checked below.
            let driver = unsafe { BorrowedFd::borrow_raw(number) };
            let Ok(queue) = driver.try_clone_to_owned().map(File::from) else { continue };
            // The driver also holds a detached queue to keep the device alive.
            let Some((name, false)) = device_of(&queue) else { continue };
            if name == interface {
                return Ok(Some(TapSender { queue, interface: name, has_header }));
            }
        }
        Ok(None)
    }

    /// Sends a frame. Returns false if the kernel does not take it, for example because the interface is down.
    ///
    /// # Errors
    /// [`Error::System`] for errors that a retry does not fix.
    pub(crate) fn send(&mut self, frame: &mut Mbuf) -> Result<bool> {
        // Avoid libc, whose cancellation points cost two locked operations per call.
        let written = if !self.has_header {
            rustix::io::write(&self.queue, frame.bytes())
        } else if let Some(bytes) = frame.behind_zeros::<PACKET_INFORMATION>() {
            rustix::io::write(&self.queue, bytes)
        } else {
            let header = IoSlice::new(&[0; PACKET_INFORMATION]);
            rustix::io::writev(&self.queue, &[header, IoSlice::new(frame.bytes())])
        };
        match written {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN | Errno::IO) => Ok(false),
            Err(error) => Err(Error::of_system(format!("sending to {}", self.interface), error.into())),
        }
    }
}

/// Whether a TAP device expects a header ahead of each frame. `None` if the header is not all zeros, or if /sys does
/// not show this device: /sys shows the network namespace in which it was mounted, which may have another device of
/// that name.
fn has_header(interface: &str) -> Option<bool> {
    Interface::named(interface).ok().filter(Interface::is_in_sysfs)?;
    let flags = fs::read_to_string(format!("/sys/class/net/{interface}/tun_flags")).ok()?;
    let flags = i32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    let plain = flags & libc::IFF_VNET_HDR == 0;
    plain.then_some(flags & libc::IFF_NO_PI == 0)
}

/// The TAP device of an open queue, and whether the queue is detached.
fn device_of(queue: &File) -> Option<(String, bool)> {
    // SAFETY: an ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes an `ifreq` or refuses the descriptor.
    let rc = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    if rc < 0 {
        return None;
    }
    // SAFETY: the kernel terminates the name within its array.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    // SAFETY: TUNGETIFF writes the flags. Among them the bit of IFF_NO_PI means IFF_NOFILTER here.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Some((name.to_str().ok()?.to_owned(), i32::from(flags) & libc::IFF_DETACH_QUEUE != 0))
}
