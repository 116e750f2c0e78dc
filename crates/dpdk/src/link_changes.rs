//! Hearing from the kernel that an interface has changed, instead of asking it again and again.

use crate::interface::socket;
use crate::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::mem::zeroed;
use std::os::fd::AsRawFd;

/// What changes about the interfaces of a network namespace: one comes, goes, is renamed, set up or down, or gets another
/// MTU or carrier (rtnetlink(7), RTMGRP_LINK).
#[derive(Debug)]
pub struct LinkChanges {
    netlink: File,
}

impl LinkChanges {
    /// Hears from now on of those of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::System`] where there are no such sockets.
    pub fn open() -> Result<Self> {
        let netlink = socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_NONBLOCK)?;
        // SAFETY: a sockaddr_nl is plain data, for which zeros are a value.
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

    /// Whether anything has changed since it was asked last. One system call where nothing has.
    pub fn any(&mut self) -> bool {
        let mut changed = false;
        // What each message says is not looked at: one says little, and some may have been lost.
        let mut message = [0; 64];
        loop {
            match self.netlink.read(&mut message) {
                Ok(0) => return changed,
                Ok(_) => changed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return changed,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // ENOBUFS: there was more than the socket holds.
                Err(_) => return true,
            }
        }
    }
}
