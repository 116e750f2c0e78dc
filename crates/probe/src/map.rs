//! A file as words that processes share, and the time-stamp counter. All unsafe code of the crate.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// A mapped file; its words are atomic, since other processes write them too.
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
    /// Opens a file that is there. It can be locked as long as it is kept.
    pub(crate) fn open(path: &Path) -> io::Result<(Map, File)> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let is = file.metadata()?;
        let words = usize::try_from(is.len() / 8).map_err(io::Error::other)?;
        if words == 0 {
            let what = match is.len() {
                _ if !is.is_file() => "it is no file: name one for the ring, as /dev/shm/ring",
                0 => "the file is empty: remove it",
                _ => "it is no ring of probes: name another file",
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok((Map::of(&file, words)?, file))
    }

    /// Makes a file of this many words, all zero behind `head`. It gets its name when all of it is there: whoever opens
    /// it meanwhile, or after its maker was killed, does not find half of it. One that is there already stays.
    pub(crate) fn make(path: &Path, words: usize, head: &[u64]) -> io::Result<()> {
        let bytes = words.checked_mul(8).ok_or_else(|| io::Error::other("the ring is too large"))?;
        let (new, file) = nameless(path)?;
        // Its pages are found now: a full disk is an error here, not a signal later.
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
        // All pages at once: a fault in the measured program would look like its own time.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping, of a file that is open; nothing of ours lies there.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), words * 8, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Map { start, words })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned, `words` of it are mapped as long as we live, and nobody has them as anything but
        // atomics; the file is not made shorter by us (where somebody does, whoever reads on is ended by a signal, or
        // finds zeros if it is a `Kept`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

/// A map that outlives its file: where somebody cuts that, reading on is no signal, but finds zeros.
#[derive(Debug)]
pub(crate) struct Kept {
    map: Map,
    place: &'static Place,
}

/// Where the handler of the signal finds a map: one that starts at 0 is free.
#[derive(Debug)]
struct Place {
    start: AtomicUsize,
    bytes: AtomicUsize,
    cut: AtomicBool,
}

/// Of each process, as its handlers of signals are.
static PLACES: [Place; 64] =
    [const { Place { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), cut: AtomicBool::new(false) } }; 64];

/// What is done about SIGBUS elsewhere. `None`: our handler could not be set.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

impl Kept {
    /// # Errors
    /// When too many are kept already, or signals cannot be handled.
    pub(crate) fn new(map: Map) -> io::Result<Kept> {
        if BEFORE.get_or_init(handle).is_none() {
            return Err(io::Error::other("its signal cannot be handled"));
        }
        let start = map.start.as_ptr() as usize;
        let free = |place: &&Place| place.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let place = PLACES.iter().find(free).ok_or_else(|| io::Error::other("this process reads 64 rings already"))?;
        place.cut.store(false, Ordering::Relaxed);
        place.bytes.store(map.words * 8, Ordering::Relaxed);
        place.start.store(start, Ordering::Release);
        Ok(Kept { map, place })
    }

    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.map.words()
    }

    /// Whether a part was read that is no longer in the file: what was read since may be zeros.
    #[inline]
    pub(crate) fn is_cut(&self) -> bool {
        self.place.cut.load(Ordering::Acquire)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.place.start.store(0, Ordering::Release);
    }
}

fn handle() -> Option<libc::sigaction> {
    // SAFETY: it is plain data, for which zeros are valid: no handler, no flags, no signals masked.
    let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    ours.sa_sigaction = on_bus as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler does what a handler may: atomics, and two calls of the kernel.
    let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) };
    (set == 0).then_some(before)
}

/// Puts zeros in the place of a map of ours; what else the signal is about is left to whoever handled it before.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands one over with SA_SIGINFO.
    let info_of = unsafe { &*info };
    // SAFETY: SIGBUS has an address, and of one that somebody sent the field is there, too.
    let at = unsafe { info_of.si_addr() } as usize;
    let ours = |place: &&Place| {
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
        // SAFETY: it takes the place of a mapping of ours, of the same length, which is only reached as atomics.
        let zeros = unsafe { libc::mmap(start, bytes, protection, flags, -1, 0) };
        if zeros != libc::MAP_FAILED {
            return;
        }
    }
    let handler = BEFORE.get().copied().flatten();
    match handler.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        handler if handler == libc::SIG_DFL || handler == libc::SIG_IGN => {
            // The access that failed is made again when we return, and ends the process.
            // SAFETY: a call of the kernel.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler => {
            // SAFETY: whoever set it said that it can be called so; one without SA_SIGINFO does not look at the rest.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
    }
}

/// Has words fetched that are written to soon, without waiting for them.
#[inline]
pub(crate) fn near(words: &[AtomicU64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(8) {
        // SAFETY: it asks for a cache line of ours and changes nothing.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it is our mapping, and no slice of it outlives us. Nothing can be done should it fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// A new file beside `path`, under a name that nobody looks for.
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

/// Holds a file against others who want to hold it, until it is closed. False when another does.
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

/// Has a function called in each process that this one forks, once it is there.
pub(crate) fn in_children(call: extern "C" fn()) -> io::Result<()> {
    // SAFETY: the function is there as long as the program.
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

/// The time-stamp counter: ticks at a constant rate. It is not ordered with the code around it, which would cost more
/// than most sections take (as in NetSlice, section 2.3).
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
        // SAFETY: the clock exists everywhere; a timespec is written.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// The same, when all that came before has been done and is in the cache: for what is timed from outside.
#[inline]
pub(crate) fn settled() -> u64 {
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, which waits and does nothing.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
    ticks()
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    id.cast_unsigned()
}
