//! Drops rights on all threads of this process.
//!
//! Capabilities, `no_new_privs` and Landlock belong to a thread. No system call of Linux 6.x changes those of another
//! thread. DPDK already has helper threads when the rights can be dropped. So each thread receives a signal, and its
//! handler makes the system calls, as in libpsx and in the C library's setuid(2).

use crate::{Error, Result};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Input of the handler: the capabilities to keep, and the Landlock ruleset to enforce or -1.
static KEEP: AtomicU64 = AtomicU64::new(0);
static RULES: AtomicI32 = AtomicI32::new(-1);
/// Result of the handler: the errno of the failed call, 0 for success, or NONE if it has not run yet.
static ANSWER: AtomicI32 = AtomicI32::new(NONE);
const NONE: i32 = -1;

/// The longest wait for a thread's answer. A thread that is blocked in a system call answers immediately.
const PATIENCE: Duration = Duration::from_secs(2);

/// Drops capabilities on all threads of this process. The calling thread keeps those in `own`, the others keep those in
/// `others`, if they have them (bit N is capability N of linux/capability.h). Threads started later inherit from the
/// thread that starts them. Sets `no_new_privs` on all threads, so that programs they start gain no rights. Enforces
/// the Landlock ruleset `rules`, if given.
///
/// # Errors
/// [`Error::System`]: a thread kept its rights. Threads processed before it have lost theirs.
pub fn drop_capabilities(own: u64, others: u64, rules: Option<BorrowedFd<'_>>) -> Result<()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = rules.map_or(-1, |rules| rules.as_raw_fd());
    KEEP.store(others, Ordering::SeqCst);
    RULES.store(rules, Ordering::SeqCst);
    let failed = |what: String, source| Error::System { what, source };
    failing(apply(own, rules)).map_err(|source| failed("giving up rights".to_owned(), source))?;
    let signal = libc::SIGRTMAX() - 1;
    let before = handle(signal, on_signal as *const () as libc::sighandler_t)
        .map_err(|source| failed("handling a signal".to_owned(), source))?;
    let signalled =
        signal_all(signal).map_err(|(thread, source)| failed(format!("giving up rights of {thread}"), source));
    let back = restore(signal, &before).map_err(|source| failed("handling a signal".to_owned(), source));
    signalled.and(back)
}

/// Like [`drop_capabilities`], but only for the calling thread, if it needs less than the thread that started it.
///
/// # Errors
/// [`Error::System`].
pub fn drop_thread_capabilities(keep: u64) -> Result<()> {
    failing(apply(keep, -1)).map_err(|source| Error::System { what: "giving up rights".to_owned(), source })
}

/// Signals each other thread and repeats until there are no new ones, because a thread that still had rights may have
/// started another. On failure returns the thread's name.
fn signal_all(signal: libc::c_int) -> std::result::Result<(), (String, io::Error)> {
    // SAFETY: takes no arguments.
    let own = unsafe { libc::gettid() };
    let mut done = HashSet::from([own]);
    loop {
        let entries = fs::read_dir("/proc/self/task").map_err(|source| ("threads".to_owned(), source))?;
        let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok());
        let new: Vec<libc::pid_t> = all.filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new {
            signal_thread(thread, signal).map_err(|source| (called(thread), source))?;
            done.insert(thread);
        }
    }
}

/// Makes one thread drop its rights. A thread that has ended counts as done.
fn signal_thread(thread: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    ANSWER.store(NONE, Ordering::SeqCst);
    let process = std::process::id();
    // SAFETY: takes numbers only, and the thread is one of this process or does not exist.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    if rc < 0 {
        let cause = io::Error::last_os_error();
        return if cause.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(cause) };
    }
    let start = Instant::now();
    loop {
        match ANSWER.load(Ordering::SeqCst) {
            NONE if start.elapsed() > PATIENCE => {
                return if has_ended(thread) { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) };
            }
            NONE => thread::sleep(Duration::from_micros(20)),
            errno => return failing(errno),
        }
        if has_ended(thread) {
            return Ok(());
        }
    }
}

fn has_ended(thread: libc::pid_t) -> bool {
    fs::metadata(format!("/proc/self/task/{thread}")).is_err()
}

fn called(thread: libc::pid_t) -> String {
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    format!("thread {thread} ({})", name.trim())
}

fn failing(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Sets a signal handler and returns the previous one.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<libc::sigaction> {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler;
    // Blocked system calls continue after the handler.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut before: libc::sigaction = unsafe { zeroed() };
    // SAFETY: the handler is async-signal-safe, and both structs are borrowed for the call.
    match unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

fn restore(signal: libc::c_int, before: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `before` came from the kernel, and nothing is written.
    match unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: returns the address of this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread.
    let saved = unsafe { *errno };
    let answer = apply(KEEP.load(Ordering::SeqCst), RULES.load(Ordering::SeqCst));
    // SAFETY: the address is valid as long as the thread.
    unsafe { *errno = saved };
    ANSWER.store(answer, Ordering::SeqCst);
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 capabilities each.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    thread: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Words {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops the rights of the calling thread. Returns the errno of the failed call, or 0. Makes only system calls, because
/// it runs in a signal handler.
fn apply(keep: u64, rules: i32) -> i32 {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return errno();
    }
    // SAFETY: takes numbers only, and the descriptor stays open while threads are signalled.
    if rules >= 0 && unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) } < 0 {
        return errno();
    }
    let mut header = Header { version: VERSION, thread: 0 };
    let mut words = [Words::default(); 2];
    // SAFETY: the kernel writes two words for this version.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) } < 0 {
        return errno();
    }
    for (words, keep) in words.iter_mut().zip([keep as u32, (keep >> 32) as u32]) {
        *words = Words { effective: words.effective & keep, permitted: words.permitted & keep, inheritable: 0 };
    }
    // SAFETY: the kernel reads two words for this version. Clearing the inheritable set also clears the ambient one.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) } < 0 {
        return errno();
    }
    0
}

fn errno() -> i32 {
    // SAFETY: returns the address of this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid as long as the thread.
    unsafe { *errno }
}
