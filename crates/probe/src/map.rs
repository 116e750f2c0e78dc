//! A file as words shared between processes, and the time-stamp counter. Contains all unsafe code of the crate.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// A mapped file. Its words are atomic, since other processes write them as well.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to no thread, and is only reached as atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Opens an existing file. The returned file allows locking.
    pub(crate) fn open(path: &Path) -> io::Result<(Map, File)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let is = file.metadata()?;
        let words = usize::try_from(is.len() / 8).map_err(io::Error::other)?;
        if words == 0 {
            let what = match is.len() {
                _ if !is.is_file() => "it is not a file: name one for the ring, as /dev/shm/ring",
                0 => "the file is empty: remove it",
                _ => "it is not a ring of probes: name another file",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok((Map::of(&file, words)?, file))
    }

    /// Creates a file of this many words, zero after `head`. It gets its name when it is complete, so no process finds
    /// a partial file, even if the creator is killed. An existing file is kept.
    pub(crate) fn make(path: &Path, words: usize, head: &[u64]) -> io::Result<()> {
        let bytes = words.checked_mul(8).ok_or_else(|| io::Error::other("the ring is too large"))?;
        let (new, file) = nameless(path)?;
        // Allocates the pages now: a full disk is an error here, not a signal later.
        let made = allocate(&file, bytes)
            .and_then(|()| {
                let head: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
                file.write_all_at(&head, 0)
            })
            .and_then(|()| match std::fs::hard_link(&new, path) {
                Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            });
        std::fs::remove_file(&new).and(made)
    }

    fn of(file: &File, words: usize) -> io::Result<Map> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // Maps all pages at once, so that faults do not count as time of the measured program.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: creates a new mapping of an open file; no existing memory is affected.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Map { start, words })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned, and `words` words stay mapped for our lifetime. They are accessed only as atomics. We
        // do not truncate the file; if another process does, reading beyond its end raises a signal, or returns zeros
        // with a `GuardedMap`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

/// A map that survives truncation of its file: reads beyond the end return zeros instead of raising a signal.
#[derive(Debug)]
pub(crate) struct GuardedMap {
    map: Map,
    place: &'static MapSlot,
}

/// A map as known to the signal handler. A start of 0 means free.
#[derive(Debug)]
struct MapSlot {
    start: AtomicUsize,
    bytes: AtomicUsize,
    cut: AtomicBool,
}

/// Per process, as signal handlers are.
static PLACES: [MapSlot; 64] =
    [const { MapSlot { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), cut: AtomicBool::new(false) } }; 64];

/// The previous action for SIGBUS; `None` if our handler could not be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

impl GuardedMap {
    /// # Errors
    /// Too many maps are kept already, or signals cannot be handled.
    pub(crate) fn new(map: Map) -> io::Result<GuardedMap> {
        if BEFORE.get_or_init(handle).is_none() {
            return Err(io::Error::other("its signal cannot be handled"));
        }
        let start = map.start.as_ptr() as usize;
        let free = |place: &&MapSlot| place.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = PLACES.iter().find(free).ok_or_else(|| io::Error::other("this process reads 64 rings already"))?;
        place.cut.store(false, Ordering::Relaxed);
        place.bytes.store(map.words * 8, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Ok(GuardedMap { map, place })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.map.words()
    }

    /// Whether a part beyond the end of the file was read. Values read since may be zeros.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.place.cut.load(Ordering::Acquire)
    }
}

impl Drop for GuardedMap {
    fn drop(&mut self) {
        self.place.start.store(0, Ordering::Release);
    }
}

fn handle() -> Option<libc::sigaction> {
    // SAFETY: plain data for which zeros are valid: no handler, no flags, no signals masked.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler only does what is allowed in handlers: atomics and two system calls.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
    (set == 0).then_some(before)
}

/// Replaces a truncated map by zeros. Passes any other SIGBUS to the previous handler.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo with SA_SIGINFO.
    let info_of = unsafe { &*info };
    // SAFETY: SIGBUS has an address field, which is also present in a signal sent by a process.
    let at = unsafe { info_of.si_addr() } as usize;
    let ours = |place: &&MapSlot| {
        let start = place.start.load(Ordering::Acquire);
        start > 1 && at.wrapping_sub(start) < place.bytes.load(Ordering::Relaxed)
    };
    if info_of.si_code > 0
        && let Some(place) = PLACES.iter().find(ours)
    {
        let start = place.start.load(Ordering::Relaxed) as *mut libc::c_void;
        let bytes = place.bytes.load(Ordering::Relaxed);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        place.cut.store(true, Ordering::Release);
        // SAFETY: replaces a mapping of ours of the same length, which is accessed only as atomics.
        let zeros = unsafe { libc::mmap(start, bytes, protection, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    let handler = BEFORE.get().copied().flatten();
    match handler.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        handler if handler == libc::SIG_DFL || handler == libc::SIG_IGN => {
            // The failed access repeats after the return and ends the process.
            // SAFETY: a plain system call.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler => {
            // SAFETY: the previous owner installed it with this signature; a handler without SA_SIGINFO ignores the
            // other arguments.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}

/// Prefetches words for writing, without waiting.
#[inline]
pub(crate) fn near(words: &[AtomicU64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(8) {
        // SAFETY: prefetches a cache line of ours and changes nothing.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no slice of it outlives us. A failure cannot be handled.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// A new file beside `path`, under a temporary name.
fn nameless(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    for n in 0..100 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".new{n:02}"));
        match options.open(&name) {
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            Err(cause) => return Err(cause),
            Ok(file) => return Ok((name.into(), file)),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "its maker was killed a hundred times: remove RING.new*"))
}

/// Locks a file exclusively until it is closed. False if another process holds the lock.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: the file is open.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        cause if cause.kind() == io::ErrorKind::WouldBlock => Ok(false),
        cause => Err(cause),
    }
}

/// Registers a function that runs in each forked child.
pub(crate) fn in_children(call: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function is valid for the lifetime of the program.
    match unsafe { libc::pthread_atfork(None, None, Some(call)) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: the file is open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Reads the time-stamp counter: ticks at a constant rate. Not ordered with the surrounding code; ordering would cost
/// more than most sections take (as in NetSlice, section 2.3).
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets user space use it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock always exists, and the timespec is valid for writing.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// As [`ticks`], after all earlier operations have completed and reached the cache, for timing from outside.
#[inline]
pub(crate) fn settled() -> u64 {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has this instruction, which only waits.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    ticks()
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    let id = unsafe { libc::gettid() };
    id.cast_unsigned()
}
