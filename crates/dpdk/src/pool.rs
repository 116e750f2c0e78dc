use crate::error::errno_text;
use crate::{Burst, Eal, Error, Mbuf, Result};
use dpdk_sys as sys;
use std::ffi::{CString, c_int};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Frame buffers of one size. Clones are handles to the same pool.
///
/// A buffer's memory outlives its handles: a pool whose last handle is gone is shelved, never given
/// back to DPDK, and the next [`Pool::new`] of the same shape takes it from the shelf once all its
/// frames have come home. A frame therefore needs no handle of its own, and a driver that frees
/// late does no harm.
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

// SAFETY: a mempool may be used by any thread (its ring is multi-producer, multi-consumer, and its
// caches belong to registered threads); the pointer stays valid until the process ends.
unsafe impl Send for Memory {}
// SAFETY: as above: every call made through a shared reference may be made by several threads at once.
unsafe impl Sync for Memory {}

static SHELF: Mutex<Vec<Memory>> = Mutex::new(Vec::new());
static MADE: AtomicU32 = AtomicU32::new(0);

/// Frames that a registered thread keeps at hand, at most.
const CACHE: u32 = 256;

impl Pool {
    /// A pool of `frames` buffers with room for `data_room` bytes of frame each (headroom comes on
    /// top). 2048 B holds every frame of MTU 1500; see [`Vdev::af_xdp_data_room`](crate::Vdev::af_xdp_data_room) for what
    /// that driver asks.
    ///
    /// The name serves messages only and need not be unique.
    ///
    /// # Errors
    /// [`Error::Pool`] when EAL's memory does not suffice or `frames` is 0.
    pub fn new(_eal: &Eal, name: &str, frames: u32, data_room: u16) -> Result<Pool> {
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
                // DPDK wants a cache of at most frames / 1.5.
                let cache = CACHE.min(frames / 8);
                // SAFETY: EAL runs, as `_eal` proves; the name is NUL-terminated and copied; `error` is written.
                let raw = unsafe { sys::shim_pool_create(unique.as_ptr(), frames, cache, data_room, &raw mut error) };
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

    /// One empty frame, or `None` when none is left.
    #[must_use]
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pool is valid and there is room for the one pointer.
        let rc = unsafe { sys::shim_alloc_bulk(self.raw(), &raw mut raw, 1) };
        let raw = if rc == 0 { NonNull::new(raw)? } else { return None };
        // SAFETY: fresh from the pool: one segment, one owner, and no other copy of the pointer.
        Some(unsafe { Mbuf::from_raw(raw) })
    }

    /// Fills a burst with empty frames. Gives how many were added: all that it has room for, or 0
    /// when fewer are left.
    pub fn alloc_bulk(&self, burst: &mut Burst) -> usize {
        self.alloc_up_to(burst, crate::BURST)
    }

    /// Adds `count` empty frames to a burst, or as many as it has room for. Gives how many were
    /// added: 0 when fewer are left than that.
    pub fn alloc_up_to(&self, burst: &mut Burst, count: usize) -> usize {
        let pool = self.raw();
        burst.fill(|into, room| {
            let count = room.min(count);
            if count == 0 {
                return 0;
            }
            // SAFETY: the pool is valid and `into` has room for `count` pointers; all or none are written.
            let rc = unsafe { sys::shim_alloc_bulk(pool, into, count as u32) };
            if rc == 0 { count } else { 0 }
        })
    }

    /// Adds `count` frames of `length` bytes to a burst, or as many as it has room for, with the bytes that
    /// their buffers last held: in a pool that only one sender uses, what it sent before. Gives how many
    /// were added: 0 when fewer are left than that.
    ///
    /// # Panics
    /// If a buffer has no room for that many bytes.
    pub fn take_up_to(&self, burst: &mut Burst, count: usize, length: u16) -> usize {
        assert!(length <= self.data_room(), "{length} B do not fit a buffer of {}", self.data_room());
        let pool = self.raw();
        burst.fill(|into, room| {
            let count = room.min(count);
            if count == 0 {
                return 0;
            }
            // SAFETY: the pool is valid and `into` has room for `count` pointers; all or none are written.
            // The memory was mapped zeroed, so that whatever is in a buffer is initialised.
            let rc = unsafe { sys::shim_take_bulk(pool, into, count as u32, length) };
            if rc == 0 { count } else { 0 }
        })
    }

    /// Frames that are not in use. Those that another registered thread keeps at hand (up to 384
    /// each) are counted, though only that thread can have them.
    #[must_use]
    pub fn available(&self) -> usize {
        // SAFETY: the pool is valid; the count may be stale but reads nothing else.
        unsafe { sys::shim_pool_available(self.raw()) as usize }
    }

    /// Frames in all.
    #[must_use]
    pub fn frames(&self) -> u32 {
        self.inner.memory.frames
    }

    /// Bytes of frame that a buffer has room for.
    #[must_use]
    pub fn data_room(&self) -> u16 {
        self.inner.memory.data_room
    }

    /// The name given.
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
        // SAFETY: pools are never freed, so the pointer is valid.
        unsafe { sys::shim_pool_in_use(self.raw.as_ptr()) }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        SHELF.lock().unwrap_or_else(PoisonError::into_inner).push(self.memory);
    }
}
