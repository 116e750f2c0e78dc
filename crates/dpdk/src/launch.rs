use crate::error::errno_text;
use crate::port::PortInner;
use crate::{Eal, Error, Mbuf, Result};
use dpdk_sys as sys;
use std::sync::{Arc, OnceLock};

/// Whether frames carry a launch time, at which the NIC sends them (DPDK's offload `SEND_ON_TIMESTAMP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchTime {
    /// Frames leave when they are handed over.
    #[default]
    Never,
    /// Frames carry launch times if the driver supports them and its clock can be read.
    IfOffered,
    /// A port without launch times is an error.
    Required,
}

/// The field of a frame that holds its launch time.
#[derive(Clone, Copy, Debug)]
pub struct LaunchField {
    offset: usize,
    flag: u64,
}

/// The size of `struct rte_mbuf` in bytes (two cache lines). The field lies within it.
const MBUF: usize = 128;

impl LaunchField {
    /// Registers the launch time field. DPDK uses one field for all ports of a process.
    ///
    /// # Errors
    /// [`Error::Launch`] if frames have no room left for the field.
    pub fn register(_eal: &Eal) -> Result<LaunchField> {
        static FIELD: OnceLock<Result<LaunchField, i32>> = OnceLock::new();
        let registered = FIELD.get_or_init(|| {
            let (mut offset, mut flag) = (0i32, 0u64);
            // SAFETY: EAL runs, and both variables are writable.
            let rc = unsafe { sys::shim_launch_register(&raw mut offset, &raw mut flag) };
            if rc < 0 {
                return Err(rc);
            }
            let offset = usize::try_from(offset).ok().filter(|at| at % 8 == 0 && at + 8 <= MBUF);
            offset.map(|offset| LaunchField { offset, flag }).ok_or(-libc::ERANGE)
        });
        registered.map_err(|rc| Error::Launch { reason: errno_text(rc) })
    }

    /// Makes the NIC send the frame when its clock reads `ticks`.
    pub fn set(&self, frame: &mut Mbuf, ticks: u64) {
        let field = frame.raw().wrapping_byte_add(self.offset).cast::<u64>();
        // SAFETY: the field lies within the mbuf, is aligned (both checked at registration), is reserved by DPDK for
        // this purpose, and the frame is borrowed mutably.
        unsafe { field.write(ticks) };
        frame.set_flag(self.flag);
    }

    /// The frame's launch time in ticks, if set.
    #[must_use]
    pub fn get(&self, frame: &Mbuf) -> Option<u64> {
        let field = frame.raw().wrapping_byte_add(self.offset).cast::<u64>();
        // SAFETY: as in `set`, and read only if the flag shows that the field was written.
        frame.has_flag(self.flag).then(|| unsafe { field.read() })
    }

    /// Clears the launch time: the frame leaves as soon as possible.
    pub fn clear(&self, frame: &mut Mbuf) {
        frame.clear_flag(self.flag);
    }
}

/// The clock of a NIC, in the NIC's own ticks.
#[derive(Clone, Debug)]
pub struct NicClock {
    // Keeps the port open.
    pub(crate) _port: Arc<PortInner>,
    pub(crate) number: u16,
}

impl NicClock {
    /// The current reading. `None` if the driver cannot read the clock.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        let mut ticks = 0;
        // SAFETY: the port is ours and stays open as long as this value, and `ticks` is writable.
        let rc = unsafe { sys::shim_port_clock(self.number, &raw mut ticks) };
        (rc == 0).then_some(ticks)
    }
}
