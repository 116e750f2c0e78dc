use crate::{BURST, Mbuf, SharedFrame};
use dpdk_sys as sys;
use packet::Frame;
use std::fmt;

/// Up to [`BURST`] frames to send, in order. A frame is either given away or kept by the caller for sending again.
/// Frames cannot be read while they are here. Dropping the value releases them.
pub struct Outgoing {
    // Slots head..tail are frames, each with one reference for its slot.
    frames: [*mut sys::rte_mbuf; BURST],
    head: usize,
    tail: usize,
}

// SAFETY: this value owns one reference to each frame, and any thread may release it.
unsafe impl Send for Outgoing {}

impl Outgoing {
    /// Creates an empty value.
    #[must_use]
    pub const fn new() -> Self {
        Outgoing { frames: [std::ptr::null_mut(); BURST], head: 0, tail: 0 }
    }

    /// The number of frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether there are no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The number of frames that can still be added. Slots of sent frames become free when all frames are sent.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        BURST - self.tail
    }

    /// Adds a frame and gives it away.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push(&mut self, frame: Mbuf) {
        assert!(self.tail < BURST, "there is no room for another frame");
        self.frames[self.tail] = frame.raw();
        self.tail += 1;
        std::mem::forget(frame);
    }

    /// Adds a kept frame `times` times in a row. The frame can be sent again later.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push_kept(&mut self, frame: &SharedFrame, times: usize) {
        assert!(times <= self.room(), "there is no room for {times} more frames");
        self.frames[self.tail..self.tail + times].fill(frame.owned(times));
        self.tail += times;
    }

    /// Hands a prefix of the frames to `take`. `take` receives the frames and returns the number that it now
    /// owns, from the first on. These are removed.
    pub(crate) fn hand_over(&mut self, take: impl FnOnce(*mut *mut sys::rte_mbuf, usize) -> usize) -> usize {
        let count = self.len();
        let taken = take(self.frames[self.head..].as_mut_ptr(), count);
        assert!(taken <= count, "the driver accepted more frames than offered");
        self.head += taken;
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
        taken
    }

    /// Copies frames out one by one with `send` until `send` returns false. Releases the copied frames and returns
    /// their number.
    pub(crate) fn copy_out(&mut self, mut send: impl FnMut(&[u8]) -> bool) -> usize {
        self.hand_over(|frames, count| {
            let mut taken = 0;
            while taken < count {
                // SAFETY: `frames` points to `count` pointers, and `taken` is below `count`.
                let frame = unsafe { frames.add(taken) };
                // SAFETY: an Mbuf has the layout of a pointer to a whole frame (asserted in `burst`), and this
                // reference neither changes nor drops it.
                let frame = unsafe { &*frame.cast::<Mbuf>() };
                if !send(frame.bytes()) {
                    break;
                }
                taken += 1;
            }
            if taken > 0 {
                // SAFETY: `frames` points to at least `taken` frames, and we own one reference to each.
                unsafe { sys::shim_free_bulk(frames, taken as u32) };
            }
            taken
        })
    }
}

impl Default for Outgoing {
    fn default() -> Self {
        Outgoing::new()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        let (head, count) = (self.head, self.len());
        (self.head, self.tail) = (0, 0);
        if count > 0 {
            // SAFETY: `count` frames start at head, we own one reference to each, and head and tail no longer cover
            // them.
            unsafe { sys::shim_free_bulk(self.frames[head..].as_mut_ptr(), count as u32) };
        }
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({})", self.len())
    }
}
