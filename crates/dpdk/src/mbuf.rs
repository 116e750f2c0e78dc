use crate::{Error, Result};
use dpdk_sys as sys;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use units::Span;

/// One frame in a DPDK buffer: a single segment with a single owner, this value. (What a ring delivers
/// may also be [kept](crate::Kept) by who sent it: it can be read and passed on, and to change it panics.)
///
/// Dropping it gives the buffer back to its pool. Fresh from [`Pool::alloc`](crate::Pool::alloc) it
/// is empty; growing it with [`set_len`](Mbuf::set_len) uncovers whatever the buffer last held.
#[repr(transparent)]
pub struct Mbuf {
    raw: NonNull<sys::rte_mbuf>,
}

// SAFETY: an mbuf has one owner and may be freed by any thread. It is not Sync, since it does not
// need to be: frames move from thread to thread, they are not shared.
unsafe impl Send for Mbuf {}

impl Mbuf {
    /// # Safety
    /// `raw` is a whole, unshared, single-segment mbuf of a pool, and the caller gives it up.
    pub(crate) unsafe fn from_raw(raw: NonNull<sys::rte_mbuf>) -> Self {
        Mbuf { raw }
    }

    fn head(&self) -> &sys::MbufHead {
        // SAFETY: an mbuf begins with these fields (asserted on both sides), is aligned to a cache
        // line, and is ours alone.
        unsafe { self.raw.cast::<sys::MbufHead>().as_ref() }
    }

    /// What is sent while it is [kept](crate::Kept) belongs to others too, and may come out of a ring
    /// again: it is not to be changed.
    #[inline]
    fn check_sole(&self) {
        assert!(!self.is_kept(), "a frame that is kept elsewhere is not to be changed");
    }

    /// Whether who sent it [keeps](crate::Kept) it, to send it again, as what a ring delivers may be.
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

    /// Segments of the chain: 1, except in what a driver has just delivered.
    pub(crate) fn segments(&self) -> u16 {
        self.head().nb_segs
    }

    /// The frame's length in bytes, without FCS.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty frame is one to be filled, not a case to be asked for")]
    pub fn len(&self) -> usize {
        usize::from(self.head().data_len)
    }

    /// How long the frame could be, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let head = self.head();
        usize::from(head.buf_len.saturating_sub(head.data_off))
    }

    /// Makes the frame `length` bytes long.
    ///
    /// # Errors
    /// [`Error::FrameTooLong`] beyond [`capacity`](Mbuf::capacity); the frame is then as it was.
    pub fn set_len(&mut self, length: usize) -> Result<()> {
        let room = self.capacity();
        if length > room {
            return Err(Error::FrameTooLong { length, room });
        }
        let head = self.head_mut();
        head.data_len = length as u16; // room is a u16's
        head.pkt_len = length as u32;
        Ok(())
    }

    /// Makes the frame these bytes.
    ///
    /// # Errors
    /// [`Error::FrameTooLong`] beyond [`capacity`](Mbuf::capacity); the frame is then as it was.
    pub fn copy_from(&mut self, bytes: &[u8]) -> Result<()> {
        self.set_len(bytes.len())?;
        packet::Frame::bytes_mut(self).copy_from_slice(bytes);
        Ok(())
    }

    /// Adds owners, who are to release it as many times.
    pub(crate) fn share(&self, owners: u16) {
        // Other threads cannot release what this one owns, so no ordering is needed.
        self.head().refcnt.fetch_add(owners, Ordering::Relaxed);
    }

    /// Takes back owners that were added and not used.
    pub(crate) fn unshare(&self, owners: u16) {
        self.head().refcnt.fetch_sub(owners, Ordering::Relaxed);
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mbuf {
        self.raw.as_ptr()
    }

    /// Notes for how many nanoseconds it was in its port.
    #[inline]
    pub(crate) fn set_waited(&mut self, ns: u32) {
        // Written only where it must be: what is kept is not to be written to, and has not waited.
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

    /// The frame after `ZEROS` zeros, which are written ahead of it. `None` if there is no room for them, or the frame is
    /// kept elsewhere.
    pub(crate) fn behind_zeros<const ZEROS: usize>(&mut self) -> Option<&[u8]> {
        if usize::from(self.head().data_off) < ZEROS || self.is_kept() {
            return None;
        }
        // SAFETY: `data_off` bytes of the buffer are ahead of the frame, and the zeros are no more.
        let first = unsafe { self.data().sub(ZEROS) };
        // SAFETY: they are the frame's owner's alone, to whom we have the only way.
        unsafe { first.cast::<[u8; ZEROS]>().write([0; ZEROS]) };
        // SAFETY: from there to the frame's end all is initialised, see `bytes`.
        Some(unsafe { std::slice::from_raw_parts(first, ZEROS + self.len()) })
    }

    /// The bytes right ahead of the frame, which are zeros from then on. None if there are not as many, or the frame is kept
    /// elsewhere.
    pub(crate) fn take_ahead<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        if usize::from(self.head().data_off) < COUNT || self.is_kept() {
            return None;
        }
        // SAFETY: `data_off` bytes of the buffer are ahead of the frame, and these are no more.
        let first = unsafe { self.data().sub(COUNT) };
        // SAFETY: they are initialised, see `bytes`, and the frame's owner's alone, to whom we have the only way.
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
        // SAFETY: data_off + data_len stays within the buffer (drivers and `set_len` keep it so); the
        // memory was mapped zeroed, so every byte of it is initialised; no other thread writes it while
        // the frame is ours.
        unsafe { std::slice::from_raw_parts(self.data(), self.len()) }
    }

    /// # Panics
    /// If the frame came out of a ring and is [kept](crate::Kept) by who sent it.
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.check_sole();
        // SAFETY: as in `bytes`, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.data(), self.len()) }
    }

    fn replace(&mut self, bytes: &[u8]) -> bool {
        self.copy_from(bytes).is_ok()
    }

    fn copy(&self) -> Option<Self> {
        // SAFETY: the frame is ours and stays as it is.
        let raw = unsafe { sys::shim_copy(self.raw.as_ptr()) };
        // SAFETY: a copy of one segment into an equally large buffer is one segment, and has no other owner.
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
        // SAFETY: the frame is ours and not used after this.
        unsafe { sys::shim_free_bulk(&raw mut raw, 1) };
    }
}

impl fmt::Debug for Mbuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mbuf({} B)", self.len())
    }
}
