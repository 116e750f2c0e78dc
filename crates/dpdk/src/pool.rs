use crate::error::errno_text;
use crate::{Burst, Eal, Error, Mbuf, Result};
use dpdk_sys as sys;
use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Frame buffers of one size. Clones are handles to the same pool.
///
/// The memory outlives the handles. When the last handle is dropped, the pool goes to a shelf and is never returned to
/// DPDK. The next [`Pool::new`] of the same shape reuses it once all its frames are free. So a frame needs no handle,
/// and a driver may free frames late.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    memory: Memory,
    name: String,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    raw: NonNull<sys::rte_mempool>,
    frames: u32,
    data_room: u16,
}

// SAFETY: any thread may use a mempool, because its ring is multi-producer, multi-consumer, its caches belong to
// registered threads, and the pointer stays valid until the process ends.
unsafe impl Send for Memory {}
// SAFETY: every call through a shared reference may run on several threads at once.
unsafe impl Sync for Memory {}

static SHELF: Mutex<Vec<Memory>> = Mutex::new(Vec::new());
static MADE: AtomicU32 = AtomicU32::new(0);

/// The largest per-thread cache, in frames.
const CACHE: u32 = 256;

impl Pool {
    /// Creates a pool of `frames` buffers with room for `data_room` bytes of frame each, not counting the headroom.
    /// 2048 B holds every frame of MTU 1500. See [`Vdev::af_xdp_data_room`](crate::Vdev::af_xdp_data_room) for the size
    /// that `net_af_xdp` needs.
    ///
    /// The name appears only in messages and need not be unique.
    ///
    /// # Errors
    /// [`Error::Pool`] if EAL has too little memory, `frames` is 0, or `data_room` is above 65407 B.
    pub fn new(eal: &Eal, name: &str, frames: u32, data_room: u16) -> Result<Pool> {
        let failed = |reason: String, log: String| Error::Pool { frames, data_room, reason, log };
        if frames == 0 || data_room > u16::MAX - sys::SHIM_HEADROOM as u16 {
            return Err(failed("a pool has at least 1 frame and at most 65407 B each".into(), String::new()));
        }
        let shelved = {
            let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = |m: &Memory| m.frames == frames && m.data_room == data_room && m.in_use() == 0;
            shelf.iter().position(fits).map(|at| shelf.swap_remove(at))
        };
        let memory = match shelved {
            Some(memory) => memory,
            None => {
                let number = MADE.fetch_add(1, Ordering::Relaxed);
                let unique = CString::new(format!("netlathe_{number}")).expect("no NUL in it");
                let mark = crate::eal::log_mark();
                let mut error: c_int = 0;
                // DPDK limits the cache to frames / 1.5.
                let cache = CACHE.min(frames / 8);
                let dense = c_int::from(!eal.has_nics());
                // SAFETY: EAL runs, as `eal` proves; the name is NUL-terminated and copied; `error` is writable.
                let raw =
                    unsafe { sys::shim_pool_create(unique.as_ptr(), frames, cache, data_room, dense, &raw mut error) };
                let Some(raw) = NonNull::new(raw) else {
                    let mut reason = errno_text(error);
                    if error == libc::ENOMEM {
                        reason += "; give DPDK more memory or ask for fewer frames";
                    }
                    return Err(failed(reason, crate::eal::log_since(mark)));
                };
                Memory { raw, frames, data_room }
            }
        };
        Ok(Pool { inner: Arc::new(PoolInner { memory, name: name.to_owned() }) })
    }

    /// Allocates one empty frame. Returns `None` if the pool has none left.
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pool is valid and `raw` has room for one pointer.
        let rc = unsafe { sys::shim_alloc_bulk(self.raw(), &raw mut raw, 1) };
        let raw = if rc == 0 { NonNull::new(raw)? } else { return None };
        // SAFETY: the frame is fresh from the pool, with one segment, one owner and no other copy of the pointer.
        Some(unsafe { Mbuf::from_raw(raw) })
    }

    /// Fills a burst with empty frames. Returns the number added: the burst's room, or 0 if the pool has fewer frames
    /// left.
    pub fn alloc_bulk(&self, burst: &mut Burst) -> usize {
        self.alloc_up_to(burst, crate::BURST)
    }

    /// Adds `count` empty frames to a burst, limited to the burst's room. Returns the number added, or 0 if the pool
    /// has fewer frames left.
    pub fn alloc_up_to(&self, burst: &mut Burst, count: usize) -> usize {
        let pool = self.raw();
        burst.fill(|into, room| {
            let count = room.min(count);
            if count == 0 {
                return 0;
            }
            // SAFETY: the pool is valid, and `into` has room for `count` pointers, of which all or none are written.
            let rc = unsafe { sys::shim_alloc_bulk(pool, into, count as u32) };
            if rc == 0 { count } else { 0 }
        })
    }

    /// Adds `count` frames of `length` bytes to a burst, limited to the burst's room. Each frame has the bytes that its
    /// buffer last held: in a pool with a single sender, the bytes of an earlier frame. Returns the number added, or 0
    /// if the pool has fewer frames left.
    ///
    /// # Panics
    /// If `length` exceeds the buffer size.
    pub fn take_up_to(&self, burst: &mut Burst, count: usize, length: u16) -> usize {
        assert!(length <= self.data_room(), "{length} B do not fit a buffer of {}", self.data_room());
        let pool = self.raw();
        burst.fill(|into, room| {
            let count = room.min(count);
            if count == 0 {
                return 0;
            }
            // SAFETY: the pool is valid, `into` has room for `count` pointers, of which all or none are written, and
            // the buffers are initialised because the memory was mapped zeroed.
            let rc = unsafe { sys::shim_take_bulk(pool, into, count as u32, length) };
            if rc == 0 { count } else { 0 }
        })
    }

    /// The number of free frames. Includes frames in the caches of other registered threads (up to 384 each), although
    /// only those threads can allocate them.
    #[must_use]
    pub fn available(&self) -> usize {
        // SAFETY: the pool is valid, and the call only reads a count, which may be stale.
        unsafe { sys::shim_pool_available(self.raw()) as usize }
    }

    /// The total number of frames.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.inner.memory.frames
    }

    /// The room for frame data in a buffer, in bytes.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        self.inner.memory.data_room
    }

    /// The name given to [`Pool::new`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.inner.memory.raw.as_ptr()
    }
}

impl Memory {
    fn in_use(&self) -> u32 {
        // SAFETY: the pointer is valid because pools are never freed.
        unsafe { sys::shim_pool_in_use(self.raw.as_ptr()) }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        SHELF.lock().unwrap_or_else(PoisonError::into_inner).push(self.memory);
    }
}
