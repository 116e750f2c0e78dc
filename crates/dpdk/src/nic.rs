//! PCI NICs: the kernel driver and the process that own them.

use crate::{Error, Result};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Kernel drivers that give a user-space program full control of a device.
pub const DRIVERS_FOR_PROGRAMS: [&str; 3] = ["vfio-pci", "uio_pci_generic", "igb_uio"];
/// Kernel drivers that DPDK uses while Linux keeps its interface.
pub const SHARED_DRIVERS: [&str; 3] = ["mlx4_core", "mlx5_core", "mana"];

/// The kernel's PCI devices.
const DEVICES: &str = "/sys/bus/pci/devices";

/// Expands a PCI address to its full form in lower case: `03:00.1` becomes `0000:03:00.1`. `None` if `text` is not a
/// PCI address.
#[must_use]
pub fn pci_address(text: &str) -> Option<String> {
    let hex = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (bus, function) = text.rsplit_once('.')?;
    let parts: Vec<&str> = bus.split(':').collect();
    let whole = match parts[..] {
        [bus, device] if hex(bus, 2) && hex(device, 2) => format!("0000:{text}"),
        [domain, bus, device] if hex(domain, 4) && hex(bus, 2) && hex(device, 2) => text.to_owned(),
        _ => return None,
    };
    hex(function, 1).then(|| whole.to_ascii_lowercase())
}

/// Exclusive use of a NIC by this process. The kernel's `uio` drivers would let two processes use one NIC. The lock is
/// on a sysfs file that only root may open: it leaves nothing behind, and ordinary users cannot take it.
#[derive(Debug)]
pub(crate) struct Nic {
    /// `None` if the file cannot be opened. Such users can only use VFIO, which itself refuses a second process.
    _lock: Option<File>,
    /// The driver is a `uio` driver, which uses no IOMMU. The device then needs physical addresses.
    by_uio: bool,
}

impl Nic {
    /// Takes a device that is bound to one of [`DRIVERS_FOR_PROGRAMS`] or [`SHARED_DRIVERS`].
    ///
    /// # Errors
    /// [`Error::NoNic`], [`Error::NicOfLinux`], [`Error::NicInUse`].
    pub(crate) fn take(address: &str) -> Result<Nic> {
        let driver = driver(Path::new(DEVICES), address)?;
        let resource = |number: u8| File::open(Path::new(DEVICES).join(address).join(format!("resource{number}"))).ok();
        let lock = (0..6).find_map(resource);
        if let Some(file) = &lock {
            // SAFETY: takes numbers only.
            let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
            if !locked {
                return Err(Error::NicInUse { address: address.to_owned(), owner: owner(file) });
            }
        }
        Ok(Nic { _lock: lock, by_uio: driver.contains("uio") })
    }

    /// Whether no IOMMU translates addresses for this device, regardless of DPDK's IOVA mode.
    pub(crate) fn is_by_uio(&self) -> bool {
        self.by_uio
    }
}

/// The process that holds the lock on a file, from `/proc/locks` (proc(5)).
fn owner(file: &File) -> String {
    let inode = file.metadata().map_or(0, |metadata| metadata.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let process = locks.lines().find_map(|line| {
        // The number, FLOCK, ADVISORY, WRITE, the process, and major:minor:inode.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, location, ..] = fields[..] else { return None };
        (location.rsplit(':').next()? == inode.to_string()).then_some(process)
    });
    process.map_or("another netlathe".to_owned(), |process| format!("another netlathe (process {process})"))
}

/// The kernel driver of a device, if programs can use the device through it. An error otherwise.
fn driver(devices: &Path, address: &str) -> Result<String> {
    let device = devices.join(address);
    if !device.exists() {
        return Err(Error::NoNic { address: address.to_owned() });
    }
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match driver {
        Some(driver) if [DRIVERS_FOR_PROGRAMS, SHARED_DRIVERS].concat().contains(&driver.as_str()) => Ok(driver),
        Some(driver) => Err(Error::NicOfLinux { address: address.to_owned(), bound: format!("bound to {driver}") }),
        None => Err(Error::NicOfLinux { address: address.to_owned(), bound: "bound to no driver".to_owned() }),
    }
}

/// The remedy for a NIC that DPDK refuses, found from the log of DPDK's drivers. Errors of the kernel's VFIO (vfio.rst)
/// appear only there.
pub(crate) fn remedy(log: &str) -> Option<&'static str> {
    const REMEDIES: [(&str, &str); 5] = [
        (
            "failed to select IOMMU type",
            "; the kernel has no IOMMU for VFIO: `modprobe vfio_iommu_type1`; on a machine without interrupt remapping (a virtual \
             one) `modprobe vfio_iommu_type1 allow_unsafe_interrupts=1`, or `echo 1 > \
             /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts`",
        ),
        (
            "is not viable",
            "; other devices of its IOMMU group are still bound to the kernel: bind all of them to vfio-pci \
             (/sys/bus/pci/devices/ADDRESS/iommu_group/devices lists them)",
        ),
        ("Device or resource busy", "; another process has it: end that process, or name another NIC"),
        ("Permission denied", "; run as root, or give this user /dev/vfio/GROUP"),
        (
            "Cannot get IOVA",
            "; without an IOMMU DPDK needs physical addresses, which only root may read: run as root, with huge pages",
        ),
    ];
    REMEDIES.iter().find(|(cause, _)| log.contains(cause)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn completes_addresses() {
        assert_eq!(pci_address("03:00.1").as_deref(), Some("0000:03:00.1"));
        assert_eq!(pci_address("ABCD:ef:1f.7").as_deref(), Some("abcd:ef:1f.7"));
        for no in ["net_null0", "net_ring0.1", "0000:03:00", "eth0.100", "000:03:00.1", "03:00.x", ""] {
            assert_eq!(pci_address(no), None, "{no}");
        }
    }

    #[test]
    fn refuses_a_nic_that_linux_has_and_one_that_is_missing() {
        let folder = std::env::temp_dir().join(format!("netlathe-nic-{}", std::process::id()));
        let device = folder.join("0000:03:00.0");
        fs::create_dir_all(&device).expect("a folder");
        let result = |address: &str| driver(&folder, address).map_err(|error| error.to_string());
        let free = result("0000:03:00.0").expect_err("no driver");
        assert!(free.contains("bound to no driver") && free.contains("netlathe doctor"), "{free}");
        for (name, taken) in [("e1000e", true), ("vfio-pci", false), ("mlx5_core", false)] {
            symlink(format!("../../../bus/pci/drivers/{name}"), device.join("driver")).expect("a link");
            let error = result("0000:03:00.0");
            assert_eq!(error.is_err(), taken, "{name}: {error:?}");
            if let Err(error) = error {
                assert!(error.contains("bound to e1000e, so Linux has it"), "{error}");
            }
            fs::remove_file(device.join("driver")).expect("the link");
        }
        assert!(result("0000:04:00.0").expect_err("missing").contains("No such device"));
        fs::remove_dir_all(&folder).expect("the folder");
    }

    #[test]
    fn logs_have_remedies() {
        let log = "VFIO: 0000:00:03.0 failed to select IOMMU type; EAL: Requested device 0000:00:03.0 cannot be used";
        assert!(remedy(log).is_some_and(|remedy| remedy.contains("allow_unsafe_interrupts=1")));
        assert!(remedy("EAL: 0000:00:03.0 VFIO group is not viable!").is_some_and(|remedy| remedy.contains("group")));
        assert_eq!(remedy("EAL: Probe PCI driver"), None);
    }
}
