//! A file as words that processes share, and the time-stamp counter. All unsafe code of the crate.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

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
        // atomics; the file is not made shorter by us (a program that does so ends itself by a signal).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.words) }
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
