use crate::Mbuf;
use dpdk_sys as sys;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// The capacity of a [`Burst`] in frames.
pub const BURST: usize = 64;

/// Up to [`BURST`] frames, in order. Dropping a burst frees its frames in one call.
pub struct Burst {
    // Slots head..tail are initialised.
    frames: [MaybeUninit<Mbuf>; BURST],
    head: usize,
    tail: usize,
}

impl Burst {
    /// Creates an empty burst.
    #[must_use]
    pub const fn new() -> Self {
        Burst { frames: [const { MaybeUninit::uninit() }; BURST], head: 0, tail: 0 }
    }

    /// The number of frames in the burst.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether the burst has no frames.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// The number of frames that can still be added.
    #[must_use]
    pub fn room(&self) -> usize {
        BURST - self.len()
    }

    /// Adds a frame at the end.
    ///
    /// # Errors
    /// Returns the frame if the burst is full.
    pub fn push(&mut self, frame: Mbuf) -> Result<(), Mbuf> {
        if self.tail == BURST {
            if self.head == 0 {
                return Err(frame);
            }
            self.compact();
        }
        self.frames[self.tail].write(frame);
        self.tail += 1;
        Ok(())
    }

    /// Removes and returns the first frame.
    pub fn pop_front(&mut self) -> Option<Mbuf> {
        if self.is_empty() {
            return None;
        }
        let slot = self.head;
        self.head += 1;
        // SAFETY: the slot is initialised, and head has moved past it, so it is read only once.
        Some(unsafe { self.frames[slot].assume_init_read() })
    }

    /// Removes the frames one by one. Dropping the iterator frees the frames that are left.
    pub fn drain(&mut self) -> Drain<'_> {
        Drain { burst: self }
    }

    /// The frames, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Mbuf> {
        self.as_slice().iter()
    }

    /// The frames, in order, for rewriting.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Mbuf> {
        self.as_mut_slice().iter_mut()
    }

    /// The frames, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[Mbuf] {
        let held = &self.frames[self.head..self.tail];
        // SAFETY: MaybeUninit<Mbuf> has the layout of Mbuf, and head..tail are initialised.
        unsafe { &*(std::ptr::from_ref(held) as *const [Mbuf]) }
    }

    /// The frames, in order, for rewriting or reordering.
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        let held = &mut self.frames[self.head..self.tail];
        // SAFETY: as in `as_slice`, and borrowed mutably.
        unsafe { &mut *(std::ptr::from_mut(held) as *mut [Mbuf]) }
    }

    /// Keeps the frames for which `keep` returns true, in order, and frees the others in one call. Returns the number
    /// freed.
    pub fn retain(&mut self, mut keep: impl FnMut(&Mbuf) -> bool) -> usize {
        // Common case: all frames stay and none is moved.
        let Some(first) = self.iter().position(|frame| !keep(frame)) else { return 0 };
        let mut refused = Burst::new();
        let mut kept = Burst::new();
        for (index, frame) in self.drain().enumerate() {
            let stays = index < first || (index > first && keep(&frame));
            let into = if stays { &mut kept } else { &mut refused };
            into.push(frame).expect("bursts have the same capacity");
        }
        std::mem::swap(self, &mut kept);
        refused.len()
    }

    /// Frees all frames.
    pub fn clear(&mut self) {
        let (head, count) = (self.head, self.len());
        (self.head, self.tail) = (0, 0);
        if count == 0 {
            return;
        }
        let first = self.frames[head..].as_mut_ptr().cast::<*mut sys::rte_mbuf>();
        // SAFETY: `first` points to `count` initialised pointers that we own and that head and tail no longer cover.
        unsafe { sys::shim_free_bulk(first, count as u32) };
    }

    /// Frees the first `count` frames in one call.
    ///
    /// # Panics
    /// If the burst has fewer frames.
    pub(crate) fn drop_first(&mut self, count: usize) {
        assert!(count <= self.len(), "at most all frames of the burst are freed");
        let first = self.frames[self.head..].as_mut_ptr().cast::<*mut sys::rte_mbuf>();
        self.head += count;
        // SAFETY: `first` points to `count` initialised pointers that we own and that head has moved past.
        unsafe { sys::shim_free_bulk(first, count as u32) };
    }

    /// Frees the last `count` frames.
    ///
    /// # Panics
    /// If the burst has fewer frames.
    pub(crate) fn drop_last(&mut self, count: usize) {
        assert!(count <= self.len(), "at most all frames of the burst are freed");
        if count == 0 {
            return;
        }
        self.tail -= count;
        let first = self.frames[self.tail..].as_mut_ptr().cast::<*mut sys::rte_mbuf>();
        // SAFETY: `first` points to `count` initialised pointers that we own and that tail no longer covers.
        unsafe { sys::shim_free_bulk(first, count as u32) };
    }

    /// Appends frames through `write`. `write` receives the first free slot and the number of free slots, and returns
    /// the number of whole, owned mbufs that it stored.
    pub(crate) fn fill(&mut self, write: impl FnOnce(*mut *mut sys::rte_mbuf, usize) -> usize) -> usize {
        self.compact();
        let room = BURST - self.tail;
        let free = self.frames[self.tail..].as_mut_ptr().cast::<*mut sys::rte_mbuf>();
        let written = write(free, room);
        assert!(written <= room, "the driver returned more frames than requested");
        self.tail += written;
        written
    }

    /// Hands a prefix of the frames to `take`. `take` receives the frames and returns the number that it now
    /// owns, from the first on. These are removed from the burst.
    pub(crate) fn hand_over(&mut self, take: impl FnOnce(*mut *mut sys::rte_mbuf, usize) -> usize) -> usize {
        let count = self.len();
        let first = self.frames[self.head..].as_mut_ptr().cast::<*mut sys::rte_mbuf>();
        let taken = take(first, count);
        assert!(taken <= count, "the driver accepted more frames than offered");
        self.head += taken;
        taken
    }

    fn compact(&mut self) {
        if self.head == 0 {
            return;
        }
        let count = self.len();
        if count > 0 {
            let base = self.frames.as_mut_ptr();
            // SAFETY: head is within the array.
            let first = unsafe { base.add(self.head) };
            // SAFETY: both ranges lie in the array and may overlap, and the old slots are not used again because head
            // and tail move with the frames.
            unsafe { std::ptr::copy(first, base, count) };
        }
        (self.head, self.tail) = (0, count);
    }
}

impl Default for Burst {
    fn default() -> Self {
        Burst::new()
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &'a Burst {
    type Item = &'a Mbuf;
    type IntoIter = std::slice::Iter<'a, Mbuf>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Burst {
    type Item = &'a mut Mbuf;
    type IntoIter = std::slice::IterMut<'a, Mbuf>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

/// Removes frames from a [`Burst`] one by one. See [`Burst::drain`].
#[derive(Debug)]
pub struct Drain<'a> {
    burst: &'a mut Burst,
}

impl Iterator for Drain<'_> {
    type Item = Mbuf;

    fn next(&mut self) -> Option<Mbuf> {
        self.burst.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.burst.len(), Some(self.burst.len()))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.burst.clear();
    }
}

// The cast of a slot to C's pointer depends on this.
const _: () = assert!(size_of::<MaybeUninit<Mbuf>>() == size_of::<NonNull<sys::rte_mbuf>>());
