use crate::{BURST, Kept, Mbuf};
use dpdk_sys as sys;
use packet::Frame;
use std::fmt;

/// Up to [`BURST`] frames in order on their way out, of both kinds: such as are given away and such as
/// are kept. They are not read any more. Dropping it releases what it holds.
pub struct Outgoing {
    // Those at head..tail are frames, each with an owner that stands for its place here.
    frames: [*mut sys::rte_mbuf; BURST],
    head: usize,
    tail: usize,
}

// SAFETY: the frames are this value's, as those of a burst are, and may be released by any thread.
unsafe impl Send for Outgoing {}

impl Outgoing {
    /// None so far.
    #[must_use]
    pub const fn new() -> Self {
        Outgoing { frames: [std::ptr::null_mut(); BURST], head: 0, tail: 0 }
    }

    /// Frames held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// How many more can be added. Places of frames that were sent are free once all were.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        BURST - self.tail
    }

    /// Adds a frame, which is given away.
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

    /// Adds a frame that is sent again later, `times` in a row.
    ///
    /// # Panics
    /// If there is no room.
    #[inline]
    pub fn push_kept(&mut self, frame: &Kept, times: usize) {
        assert!(times <= self.room(), "there is no room for {times} more frames");
        self.frames[self.tail..self.tail + times].fill(frame.owned(times));
        self.tail += times;
    }

    /// Lets `take` take over a prefix: it gets the frames, and returns how many of them,
    /// from the first, are now its own. They are out before this returns.
    pub(crate) fn hand_over(&mut self, take: impl FnOnce(*mut *mut sys::rte_mbuf, usize) -> usize) -> usize {
        let count = self.len();
        let taken = take(self.frames[self.head..].as_mut_ptr(), count);
        assert!(taken <= count, "a driver took more frames than it was given");
        self.head += taken;
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
        taken
    }

    /// Has `send` copy frames one by one, until it takes one no more, and releases those that it took. Gives how many.
    pub(crate) fn copy_out(&mut self, mut send: impl FnMut(&[u8]) -> bool) -> usize {
        self.hand_over(|frames, count| {
            let mut taken = 0;
            while taken < count {
                // SAFETY: `count` pointers start there.
                let frame = unsafe { frames.add(taken) };
                // SAFETY: a pointer to a whole frame of ours has the form of what holds one (`burst`), and it is neither
                // changed nor dropped by this.
                let frame = unsafe { &*frame.cast::<Mbuf>() };
                if !send(frame.bytes()) {
                    break;
                }
                taken += 1;
            }
            if taken > 0 {
                // SAFETY: as many frames start there, of each of which one owner is ours to release.
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
            // SAFETY: `count` frames start there, of each of which one owner is ours to release; head and
            // tail no longer cover them.
            unsafe { sys::shim_free_bulk(self.frames[head..].as_mut_ptr(), count as u32) };
        }
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({})", self.len())
    }
}
