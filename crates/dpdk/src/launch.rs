use crate::error::errno_text;
use crate::port::PortInner;
use crate::{Eal, Error, Mbuf, Result};
use dpdk_sys as sys;
use std::sync::{Arc, OnceLock};

/// Whether frames are to say when they depart, so that the NIC makes it so (DPDK's offload
/// `SEND_ON_TIMESTAMP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchTime {
    /// Frames leave when they are handed over.
    #[default]
    Never,
    /// If the driver offers it and its clock can be read.
    IfOffered,
    /// A port that does not is an error.
    Required,
}

/// Where a frame keeps when it is to depart.
#[derive(Clone, Copy, Debug)]
pub struct LaunchField {
    offset: usize,
    flag: u64,
}

/// The size of `struct rte_mbuf` (two cache lines), within which the field lies.
const MBUF: usize = 128;

impl LaunchField {
    /// The field of this process: DPDK keeps one for all ports.
    ///
    /// # Errors
    /// [`Error::Launch`] when frames have no room left for it.
    pub fn register(_eal: &Eal) -> Result<LaunchField> {
        static FIELD: OnceLock<Result<LaunchField, i32>> = OnceLock::new();
        let registered = FIELD.get_or_init(|| {
            let (mut offset, mut flag) = (0i32, 0u64);
            // SAFETY: EAL runs; both are written.
            let rc = unsafe { sys::shim_launch_register(&raw mut offset, &raw mut flag) };
            if rc < 0 {
                return Err(rc);
            }
            let offset = usize::try_from(offset).ok().filter(|at| at % 8 == 0 && at + 8 <= MBUF);
            offset.map(|offset| LaunchField { offset, flag }).ok_or(-libc::ERANGE)
        });
        registered.map_err(|rc| Error::Launch { reason: errno_text(rc) })
    }

    /// Lets the frame depart when the NIC's clock reads `ticks`.
    pub fn set(&self, frame: &mut Mbuf, ticks: u64) {
        let field = frame.raw().wrapping_byte_add(self.offset).cast::<u64>();
        // SAFETY: the field lies within the mbuf, is aligned (both checked when it was registered), is
        // DPDK's for this purpose, and the frame is borrowed mutably.
        unsafe { field.write(ticks) };
        frame.set_flag(self.flag);
    }

    /// When the frame is to depart, if it says so.
    #[must_use]
    pub fn get(&self, frame: &Mbuf) -> Option<u64> {
        let field = frame.raw().wrapping_byte_add(self.offset).cast::<u64>();
        // SAFETY: as in `set`, and only read once the flag says that it was written.
        frame.has_flag(self.flag).then(|| unsafe { field.read() })
    }

    /// Lets the frame depart as soon as it may, whatever it said before.
    pub fn clear(&self, frame: &mut Mbuf) {
        frame.clear_flag(self.flag);
    }
}

/// The clock of a NIC, in ticks of its own.
#[derive(Clone, Debug)]
pub struct NicClock {
    // Keeps the port open.
    pub(crate) _port: Arc<PortInner>,
    pub(crate) number: u16,
}

impl NicClock {
    /// What it reads; `None` when the driver cannot tell.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        let mut ticks = 0;
        // SAFETY: the port is ours and stays open as long as this lives; `ticks` is written.
        let rc = unsafe { sys::shim_port_clock(self.number, &raw mut ticks) };
        (rc == 0).then_some(ticks)
    }
}
