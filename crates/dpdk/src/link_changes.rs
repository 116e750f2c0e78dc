//! Kernel notifications of interface changes, in place of polling.

use crate::interface::socket;
use crate::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::zeroed;
use std::os::fd::AsRawFd;

/// Notifies of changes to the interfaces of a network namespace: created, deleted, renamed, set up or down, new MTU, or
/// carrier change (rtnetlink(7), RTMGRP_LINK).
#[derive(Debug)]
pub struct LinkChanges {
    netlink: File,
}

impl LinkChanges {
    /// Starts watching the interfaces of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel lacks these sockets.
    pub fn open() -> Result<Self> {
        let netlink = socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_NONBLOCK)?;
        // SAFETY: a sockaddr_nl is plain data, for which all zeros is a valid value.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = libc::RTMGRP_LINK as u32;
        let length = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of the address.
        let rc = unsafe { libc::bind(netlink.as_raw_fd(), (&raw const address).cast(), length) };
        if rc < 0 {
            return Err(Error::system("watching interfaces for changes"));
        }
        Ok(LinkChanges { netlink: File::from(netlink) })
    }

    /// Whether anything has changed since the last call. Costs one system call if nothing has.
    pub fn any(&mut self) -> bool {
        let mut changed = false;
        // Ignore the contents, because messages may have been lost: callers read the state of the interface instead.
        let mut message = [0; 64];
        loop {
            match self.netlink.read(&mut message) {
                Ok(0) => return changed,
                Ok(_) => changed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return changed,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // ENOBUFS: the socket buffer overflowed.
                Err(_) => return true,
            }
        }
    }
}
