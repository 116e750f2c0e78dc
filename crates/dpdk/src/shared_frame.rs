use crate::{BURST, Mbuf};
use packet::Frame;
use std::cell::Cell;

/// A frame that is sent any number of times and never changes. Drivers that have not sent it yet share its buffer. At
/// most 65 000 sends may be pending.
#[derive(Debug)]
pub struct SharedFrame {
    frame: Mbuf,
    /// References counted in advance, so that one atomic addition serves many sends.
    spare: Cell<u16>,
}

/// References added at once: at least the largest number that one call needs.
const AT_ONCE: u16 = BURST as u16;

impl From<Mbuf> for SharedFrame {
    fn from(frame: Mbuf) -> Self {
        SharedFrame { frame, spare: Cell::new(0) }
    }
}

impl SharedFrame {
    /// The frame's bytes, without FCS.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// The frame's length in bytes, without FCS.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Adds `times` references to the frame, at most [`BURST`]. Each must be released.
    #[inline]
    pub(crate) fn owned(&self, times: usize) -> *mut dpdk_sys::rte_mbuf {
        let times = times as u16;
        if self.spare.get() < times {
            self.frame.share(AT_ONCE);
            self.spare.set(self.spare.get() + AT_ONCE);
        }
        self.spare.set(self.spare.get() - times);
        self.frame.raw()
    }
}

impl Drop for SharedFrame {
    fn drop(&mut self) {
        self.frame.unshare(self.spare.get());
    }
}
