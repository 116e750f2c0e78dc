use crate::{BURST, Mbuf};
use packet::Frame;
use std::cell::Cell;

/// A frame that is sent any number of times, and never changed: its buffer is also the drivers' that
/// have not sent it yet. At most 65 000 may be under way at a time.
#[derive(Debug)]
pub struct Kept {
    frame: Mbuf,
    /// Owners that were counted in advance: one atomic addition serves many sends.
    spare: Cell<u16>,
}

/// Owners that are counted at once: no fewer than are asked for at a time.
const AT_ONCE: u16 = BURST as u16;

impl From<Mbuf> for Kept {
    fn from(frame: Mbuf) -> Self {
        Kept { frame, spare: Cell::new(0) }
    }
}

impl Kept {
    /// Its bytes, without FCS.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Its length in bytes, without FCS.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.frame.len()
    }

    /// Adds owners to the frame, up to [`BURST`]; each must release it.
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

impl Drop for Kept {
    fn drop(&mut self) {
        self.frame.unshare(self.spare.get());
    }
}
