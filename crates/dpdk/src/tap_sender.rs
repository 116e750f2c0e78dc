use crate::error::Error;
use crate::interface::Interface;
use crate::{Mbuf, Result};
use packet::Frame;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Sends single frames into a TAP device that DPDK has made, each by one `write`. DPDK's driver has the kernel gather
/// the frame from two places (`writev`), which takes a quarter more of the whole call.
#[derive(Debug)]
pub(crate) struct TapSender {
    /// A queue of the device, which is the driver's too.
    queue: File,
    interface: String,
    /// The device takes a header ahead of each frame.
    has_header: bool,
}

/// Flags, and the EtherType, which a TAP takes from the frame.
const PACKET_INFORMATION: usize = 4;

impl TapSender {
    /// A sender by a queue of the device that this process has under that name. `None` where there is none whose frames
    /// may be written as they are.
    pub(crate) fn open(interface: &str) -> Result<Option<TapSender>> {
        let Some(has_header) = has_header(interface) else { return Ok(None) };
        let failed = || Error::system("looking for the queues of a TAP device");
        for entry in fs::read_dir("/proc/self/fd").map_err(|_| failed())? {
            let entry = entry.map_err(|_| failed())?;
            let number = entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
            let is_tap = fs::read_link(entry.path()).is_ok_and(|path| path.ends_with("net/tun"));
            let Some(number) = number.filter(|_| is_tap) else { continue };
            // SAFETY: open a moment ago. Were it closed meanwhile, the copy fails, or is of something that is asked below
            // what it is.
            let driver = unsafe { BorrowedFd::borrow_raw(number) };
            let Ok(queue) = driver.try_clone_to_owned().map(File::from) else { continue };
            // The driver has one that is detached besides, to keep the device.
            let Some((name, false)) = device_of(&queue) else { continue };
            if name == interface {
                return Ok(Some(TapSender { queue, interface: name, has_header }));
            }
        }
        Ok(None)
    }

    /// Sends a frame. False if the kernel does not take it, as when the interface is down.
    ///
    /// # Errors
    /// [`Error::System`] for what trying again does not mend.
    pub(crate) fn send(&mut self, frame: &mut Mbuf) -> Result<bool> {
        // Past libc, in whose calls other threads may cancel this one: two locked operations each.
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

/// Whether a header goes ahead of each frame to a TAP device; `None` where it is not one of zeros, or where /sys does not
/// show the device, but perhaps another of its name: it shows the namespace in which it was mounted.
fn has_header(interface: &str) -> Option<bool> {
    Interface::named(interface).ok().filter(Interface::is_in_sysfs)?;
    let flags = fs::read_to_string(format!("/sys/class/net/{interface}/tun_flags")).ok()?;
    let flags = i32::from_str_radix(flags.trim().strip_prefix("0x")?, 16).ok()?;
    let plain = flags & libc::IFF_VNET_HDR == 0;
    plain.then_some(flags & libc::IFF_NO_PI == 0)
}

/// The TAP device that an open queue is of, and whether the queue is detached from it.
fn device_of(queue: &File) -> Option<(String, bool)> {
    // SAFETY: all of it is numbers and arrays of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes an `ifreq`, whatever the descriptor is of.
    let rc = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETIFF, &raw mut request) };
    if rc < 0 {
        return None;
    }
    // SAFETY: the kernel ends a name within its array.
    let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
    // SAFETY: TUNGETIFF fills in the flags. Of these, IFF_NO_PI here means filters (IFF_NOFILTER has its number).
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Some((name.to_str().ok()?.to_owned(), i32::from(flags) & libc::IFF_DETACH_QUEUE != 0))
}
