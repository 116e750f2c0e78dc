use crate::{Error, Result};
use dpdk_sys as sys;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use units::Span;

/// A frame in a DPDK buffer: one segment, owned by this value. A frame from a ring may also be
/// [kept](crate::SharedFrame) by its sender. Such a frame can be read and passed on; changing it panics.
///
/// Dropping the frame returns the buffer to its pool. A frame from [`Pool::alloc`](crate::Pool::alloc) is empty.
/// Growing it with [`set_len`](Mbuf::set_len) exposes the buffer's previous contents.
#[repr(transparent)]
pub struct Mbuf {
    raw: NonNull<sys::rte_mbuf>,
}

// SAFETY: an mbuf has one owner, and any thread may free it. It is not Sync because threads do not share frames.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// # Safety
    /// `raw` must be a whole, unshared, single-segment mbuf of a pool, and the caller must not use it afterwards.
    pub(crate) unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>) -> Self {
        Mbuf { raw }
    }

    fn head(&self) -> &sys::MbufHead {
        // SAFETY: an mbuf begins with these fields (asserted on both sides), is cache-line aligned, and is ours alone.
        unsafe { self.raw.cast::<sys::MbufHead>().as_ref() }
    }

    /// Panics if the frame is [kept](crate::SharedFrame). A kept frame must not change, because it is shared and may be
    /// received from a ring again.
    #[inline]
    fn check_sole(&self) {
        assert!(!self.is_kept(), "a frame with another owner must not be changed");
    }

    /// Whether the sender [keeps](crate::SharedFrame) this frame to send it again. This can happen with frames from a
    /// ring.
    #[must_use]
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.head().refcnt.load(Ordering::Relaxed) > 1
    }

    fn head_mut(&mut self) -> &mut sys::MbufHead {
        self.check_sole();
        // SAFETY: as in `head`, and borrowed mutably.
        unsafe { self.raw.cast::<sys::MbufHead>().as_mut() }
    }

    /// The number of segments: 1, except in a frame that a driver has just delivered.
    pub(crate) fn segments(&self) -> u16 {
        self.head().nb_segs
    }

    /// The frame length in bytes, without FCS.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty frame is about to be filled, not a case to check for")]
    pub fn len(&self) -> usize {
        usize::from(self.head().data_len)
    }

    /// The largest possible frame length in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let head = self.head();
        usize::from(head.buf_len.saturating_sub(head.data_off))
    }

    /// Sets the frame length in bytes.
    ///
    /// # Errors
    /// [`Error::FrameTooLong`] beyond [`capacity`](Mbuf::capacity). The frame is then unchanged.
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        let room = self.capacity();
        if length > room {
            return Err(Error::FrameTooLong { length, room });
        }
        let head = self.head_mut();
        head.data_len = length as u16; // `room` comes from a u16
        head.pkt_len = length as u32;
        Ok(())
    }

    /// Replaces the frame's contents with `bytes`.
    ///
    /// # Errors
    /// [`Error::FrameTooLong`] beyond [`capacity`](Mbuf::capacity). The frame is then unchanged.
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        packet::Frame::bytes_mut(self).copy_from_slice(bytes);
        Ok(())
    }

    /// Adds `owners` references. Each must be released once.
    pub(crate) fn share(&self, owners: u16) {
        // Other threads cannot release this owner's reference, so no ordering is needed.
        self.head().refcnt.fetch_add(owners, Ordering::Relaxed);
    }

    /// Removes references that were added and not used.
    pub(crate) fn unshare(&self, owners: u16) {
        self.head().refcnt.fetch_sub(owners, Ordering::Relaxed);
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mbuf {
        self.raw.as_ptr()
    }

    /// Records the wait in the port, in nanoseconds.
    #[inline]
    pub(crate) fn set_waited(&mut self, ns: u32) {
        // Write only on change: a kept frame must not be written to, and has no wait.
        if self.head().waited != ns {
            self.head_mut().waited = ns;
        }
    }

    pub(crate) fn has_flag(&self, flag: u64) -> bool {
        self.head().ol_flags & flag != 0
    }

    pub(crate) fn set_flag(&mut self, flag: u64) {
        self.head_mut().ol_flags |= flag;
    }

    pub(crate) fn clear_flag(&mut self, flag: u64) {
        self.head_mut().ol_flags &= !flag;
    }

    /// Writes `ZEROS` zero bytes directly ahead of the frame and returns them together with the frame. `None` if the
    /// headroom is too small or the frame is kept elsewhere.
    pub(crate) fn behind_zeros<const ZEROS: usize>(&mut self) -> Option<&[u8]> {
        if usize::from(self.head().data_off) < ZEROS || self.is_kept() {
            return None;
        }
        // SAFETY: the buffer has `data_off` bytes ahead of the frame, and `ZEROS` is no larger.
        let first = unsafe { self.data().sub(ZEROS) };
        // SAFETY: these bytes belong to the frame's only owner, borrowed mutably here.
        unsafe { first.cast::<[u8; ZEROS]>().write([0; ZEROS]) };
        // SAFETY: all bytes from `first` to the end of the frame are initialised, as in `bytes`.
        Some(unsafe { std::slice::from_raw_parts(first, ZEROS + self.len()) })
    }

    /// Returns the `COUNT` bytes directly ahead of the frame and zeroes them. `None` if the headroom is smaller or the
    /// frame is kept elsewhere.
    pub(crate) fn take_ahead<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        if usize::from(self.head().data_off) < COUNT || self.is_kept() {
            return None;
        }
        // SAFETY: the buffer has `data_off` bytes ahead of the frame, and `COUNT` is no larger.
        let first = unsafe { self.data().sub(COUNT) };
        // SAFETY: these bytes are initialised, as in `bytes`, and belong to the frame's only owner, borrowed mutably
        // here.
        Some(unsafe { first.cast::<[u8; COUNT]>().replace([0; COUNT]) })
    }

    fn data(&self) -> *mut u8 {
        let head = self.head();
        // SAFETY: DPDK keeps data_off within the buffer, and nothing here changes it.
        unsafe { head.buf_addr.add(usize::from(head.data_off)) }
    }
}

impl packet::Frame for Mbuf {
    fn bytes(&self) -> &[u8] {
        // SAFETY: data_off + data_len stays within the buffer (drivers and `set_len` ensure it), all of which is
        // initialised because the memory was mapped zeroed, and no other thread writes it while the frame is ours.
        unsafe { std::slice::from_raw_parts(self.data(), self.len()) }
    }

    /// # Panics
    /// If the frame came from a ring and its sender [keeps](crate::SharedFrame) it.
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.check_sole();
        // SAFETY: as in `bytes`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.data(), self.len()) }
    }

    fn replace(&mut self, bytes: &[u8]) -> bool {
        self.copy_from(bytes).is_ok()
    }

    fn copy(&self) -> Option<Self> {
        // SAFETY: the frame is ours and does not change.
        let raw = unsafe { sys::shim_copy(self.raw.as_ptr()) };
        // SAFETY: the copy of one segment into a buffer of equal size has one segment and no other owner.
        NonNull::new(raw).map(|raw| unsafe { Mbuf::from_raw(raw) })
    }

    fn tag(&self) -> u32 {
        self.head().usr
    }

    fn set_tag(&mut self, tag: u32) {
        self.head_mut().usr = tag;
    }

    fn stage_time(&self) -> Span {
        Span::from_ps(self.head().stage_time)
    }

    fn set_stage_time(&mut self, time: Span) {
        self.head_mut().stage_time = time.as_ps();
    }

    fn waited(&self) -> Span {
        Span::from_ns(self.head().waited.into())
    }

    fn forget_wait(&mut self) {
        self.set_waited(0);
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        let mut raw = self.raw.as_ptr();
        // SAFETY: the frame is ours and not used again.
        unsafe { sys::shim_free_bulk(&raw mut raw, 1) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mbuf({} B)", self.len())
    }
}
