//! A DPDK device attached as a port.

use crate::eal::{log_mark, log_since};
use crate::error::errno_text;
use crate::interface::Interface;
use crate::losses::{self, Sockets};
use crate::nic;
use crate::xdp::Claim;
use crate::xdp_stamps::Stamper;
use crate::{Eal, Error, Pool, Result};
use dpdk_sys as sys;
use std::ffi::{CString, c_int};

/// The port of a device. Dropping it stops, closes and detaches the device.
#[derive(Debug)]
pub(crate) struct Attached {
    eal: &'static Eal,
    pub(crate) number: u16,
    device: String,
    bus: &'static CString,
    sockets: Sockets,
    // Dropped after the driver has removed its program, which `Drop` does.
    pub(crate) claim: Option<Claim>,
    // Dropped before the driver closes.
    stamper: Option<Stamper>,
}

impl Attached {
    /// Finds or attaches a device and marks it as in use. `text` is the name and arguments as the user gave them.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::Attach`], [`Error::Nul`].
    pub(crate) fn open(eal: &'static Eal, name: &str, arguments: &str, text: &str) -> Result<Attached> {
        let c_name = CString::new(name).map_err(|_| Error::Nul { what: "a device's name" })?;
        let c_arguments = CString::new(arguments).map_err(|_| Error::Nul { what: "a device's arguments" })?;
        let bus = if nic::pci_address(name).is_some() { bus_pci() } else { bus_vdev() };
        let mark = log_mark();
        let failed = |rc: i32| {
            let log = log_since(mark);
            Error::Attach { device: text.to_owned(), reason: reason(rc, &log), log }
        };

        let mut open = eal.control();
        let before = losses::descriptors();
        let mut sockets = Sockets::default();
        if !open.insert(name.to_owned()) {
            return Err(Error::PortInUse { device: name.to_owned() });
        }
        // SAFETY: EAL runs, and the name is NUL-terminated.
        let mut number = unsafe { sys::shim_port_find(c_name.as_ptr()) };
        if number < 0 {
            // SAFETY: EAL runs, the lock is held, and the strings are copied.
            let rc = unsafe { sys::shim_attach(bus.as_ptr(), c_name.as_ptr(), c_arguments.as_ptr()) };
            if rc < 0 {
                open.remove(name);
                return Err(failed(rc));
            }
            // SAFETY: EAL runs, and the name is NUL-terminated.
            number = unsafe { sys::shim_port_find(c_name.as_ptr()) };
            if number < 0 {
                open.remove(name);
                return Err(failed(number));
            }
        }
        sockets.claim(&before);
        drop(open);
        // From here on, dropping the value closes and detaches the device.
        Ok(Attached { eal, number: number as u16, device: name.to_owned(), bus, sockets, claim: None, stamper: None })
    }

    /// Whether our XDP program stamps arriving frames.
    pub(crate) fn stamps(&self) -> bool {
        self.stamper.is_some()
    }

    pub(crate) fn is_pci(&self) -> bool {
        self.bus.as_bytes() == b"pci"
    }

    /// The name of the DPDK driver.
    pub(crate) fn driver(&self) -> Result<String> {
        Ok(text(&self.info()?.driver))
    }

    pub(crate) fn info(&self) -> Result<sys::shim_port_info> {
        let _control = self.eal.control();
        let mark = log_mark();
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut raw: sys::shim_port_info = unsafe { std::mem::zeroed() };
        // SAFETY: the port is ours, and `raw` is writable.
        let rc = unsafe { sys::shim_port_info(self.number, &raw mut raw) };
        self.check("ask about", rc, mark)?;
        Ok(raw)
    }

    /// Configures the port to receive into buffers of `pool`, which must outlive the port. `interface` is the Linux
    /// interface behind the port.
    pub(crate) fn configure(
        &mut self,
        config: &mut sys::shim_port_config,
        pool: &Pool,
        interface: Option<&Interface>,
    ) -> Result<()> {
        {
            let _control = self.eal.control();
            let before = losses::descriptors();
            let mark = log_mark();
            // SAFETY: the port is ours, stopped, and configured by this thread only, and the pool stays valid until the
            // port is closed.
            let rc = unsafe { sys::shim_port_configure(self.number, config, pool.raw()) };
            self.sockets.claim(&before);
            self.check("configure", rc, mark)?;
            if self.claim.is_some() {
                self.stamper = interface.and_then(|interface| Stamper::open(interface, &before));
            }
        }
        self.claim.as_mut().map_or(Ok(()), Claim::note)
    }

    /// Enables promiscuous mode. A driver without this setting has no address filter either.
    pub(crate) fn be_promiscuous(&self) {
        let _control = self.eal.control();
        // SAFETY: the port is ours.
        unsafe { sys::shim_port_promiscuous(self.number, 1) };
    }

    pub(crate) fn start(&self) -> Result<()> {
        let _control = self.eal.control();
        let mark = log_mark();
        // SAFETY: the port is ours, configured and stopped.
        let rc = unsafe { sys::shim_port_start(self.number) };
        self.check("start", rc, mark)
    }

    /// Frames that were dropped before the driver saw them. The driver does not report these.
    pub(crate) fn lost(&self) -> u64 {
        self.sockets.lost()
    }

    pub(crate) fn stats(&self) -> Result<sys::shim_port_stats> {
        let _control = self.eal.control();
        let mark = log_mark();
        let mut raw = sys::shim_port_stats::default();
        // SAFETY: the port is ours, and `raw` is writable.
        let rc = unsafe { sys::shim_port_stats(self.number, &raw mut raw) };
        self.check("read the counters of", rc, mark)?;
        Ok(raw)
    }

    pub(crate) fn xstats(&self) -> Result<Vec<(String, u64)>> {
        let _control = self.eal.control();
        let mut raw = Vec::new();
        loop {
            let mark = log_mark();
            // SAFETY: the port is ours, and `raw` holds at least the number of counters passed.
            let rc = unsafe { sys::shim_port_xstats(self.number, raw.as_mut_ptr(), raw.len() as u32) };
            self.check("read the counters of", rc, mark)?;
            let count = rc.max(0) as usize;
            if count <= raw.len() {
                raw.truncate(count);
                return Ok(raw.iter().map(|x: &sys::shim_xstat| (text(&x.name), x.value)).collect());
            }
            raw.resize(count, sys::shim_xstat { name: [0; 64], value: 0 });
        }
    }

    fn check(&self, what: &'static str, rc: c_int, mark: u64) -> Result<()> {
        if rc >= 0 {
            return Ok(());
        }
        let log = log_since(mark);
        Err(Error::Port { what, device: self.device.clone(), reason: reason(rc, &log), log })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut open = self.eal.control();
        self.stamper = None;
        // SAFETY: the last handle and queue are gone, so nothing uses the port, and stopping a port that was never
        // started is harmless.
        unsafe { sys::shim_port_stop(self.number) };
        // SAFETY: the port is stopped.
        unsafe { sys::shim_port_close(self.number) };
        if let Ok(name) = CString::new(self.device.as_str()) {
            // SAFETY: the port is closed, and the strings are NUL-terminated.
            unsafe { sys::shim_detach(self.bus.as_ptr(), name.as_ptr()) };
        }
        open.remove(&self.device);
    }
}

fn bus_pci() -> &'static CString {
    static NAME: std::sync::OnceLock<CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| CString::from(c"pci"))
}

fn bus_vdev() -> &'static CString {
    static NAME: std::sync::OnceLock<CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| CString::from(c"vdev"))
}

/// The text of an errno, with a remedy where known.
pub(crate) fn reason(rc: c_int, log: &str) -> String {
    let mut text = errno_text(rc);
    let remedy = if let Some(remedy) = nic::remedy(log) {
        text = "DPDK cannot use this NIC".to_owned();
        remedy
    } else if log.contains("not permitted") || rc == -libc::EACCES || (rc == -libc::EPERM && log.is_empty()) {
        "; run as root (in a container with CAP_NET_RAW and CAP_NET_ADMIN), or in a namespace of your own: `unshare -Urn` \
         (XDP sockets need root)"
    } else if log.contains("not less than peer tx queues") {
        text = "the other end of this veth sends on more queues than this one receives on".to_owned();
        "; `ethtool -L` with rx 1 tx 1 at both ends, or use af_packet"
    } else if log.contains("xdp socket") || log.contains("umem") {
        "; XDP sockets need root outside of any user namespace, an MTU of at most 3500, and buffers of at most 3700 B: \
         use af_packet otherwise"
    } else if log.contains("TUNSETIFF") {
        "; an interface of that name exists and is not a free TAP device: choose another name, or make it by `ip tuntap add NAME \
         mode tap multi_queue`"
    } else if log.contains("failed to parse device") {
        text = "there is no such driver".to_owned();
        "; DPDK's begin with net_, such as net_null0, net_ring0, net_memif0"
    } else if log.contains("Cannot find device") {
        "; `netlathe doctor` lists the NICs, and which driver has them"
    } else if rc == -libc::ENOMEM {
        "; give DPDK more memory, or the ring fewer frames"
    } else if rc == -1 {
        // Drivers return -1 without giving a reason; it does not mean EPERM.
        text = "its driver refuses".to_owned();
        "; check the arguments after its name"
    } else {
        ""
    };
    text + remedy
}

pub(crate) fn text(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_come_with_remedies() {
        assert!(reason(-libc::EPERM, "").contains("unshare -Urn"));
        assert!(reason(-1, "could not create an XDP socket: Operation not permitted").contains("root"));
        let veth = reason(
            -22,
            "libbpf: Kernel error message: veth: XDP expects number of rx queues not less than peer tx queues; xsk_configure(): Failed to create xsk socket.",
        );
        assert!(veth.contains("both ends"), "{veth}");
        assert!(!reason(-1, "Driver cannot attach the device").contains("root"));
        assert!(reason(-libc::EFAULT, "failed to parse device \"vdev:net_x0\"").contains("no such driver"));
        assert!(reason(-libc::EINVAL, "Unable to set TUNSETIFF for c0: Invalid argument").contains("another name"));
    }
}
