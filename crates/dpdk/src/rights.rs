//! Giving up rights on all threads of this process.
//!
//! Capabilities, `no_new_privs` and Landlock belong to a thread; no system call of Linux 6.x changes those of another one.
//! DPDK has helper threads by the time the rights can go. So each thread gets a signal, and its handler makes the system
//! calls, as libpsx does and as the C library does for setuid(2).

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

/// The capabilities to keep, and the Landlock rules to take on or -1, for the handler.
static KEEP: AtomicU64 = AtomicU64::new(0);
static RULES: AtomicI32 = AtomicI32::new(-1);
/// What the handler did last: none yet, or the errno of the call that failed, 0 for none.
static ANSWER: AtomicI32 = AtomicI32::new(NONE);
const NONE: i32 = -1;

/// How long a thread may take to answer. One that waits answers at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Drops capabilities on all threads of this process: the calling one keeps those of `own`, the others those of `others`,
/// as far as they have them (bit N is capability N of linux/capability.h). Threads that are started later have those of the
/// thread that starts them. Sets `no_new_privs` on all threads, so that no program that they start has more, and takes on
/// the Landlock rules of `rules` if there are any.
///
/// # Errors
/// [`Error::System`]: a thread kept its rights. Those before it have lost theirs.
pub fn give_up(own: u64, others: u64, rules: Option<BorrowedFd<'_>>) -> Result<()> {
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
    let asked = ask_all(signal).map_err(|(thread, source)| failed(format!("giving up rights of {thread}"), source));
    let back = restore(signal, &before).map_err(|source| failed("handling a signal".to_owned(), source));
    asked.and(back)
}

/// The same of the calling thread alone, for one that needs less than the thread that started it.
///
/// # Errors
/// [`Error::System`].
pub fn give_up_here(keep: u64) -> Result<()> {
    failing(apply(keep, -1)).map_err(|source| Error::System { what: "giving up rights".to_owned(), source })
}

/// Asks each thread but this one, until there is none that was not asked: one that still had rights may have started
/// another. Gives the name of one that failed.
fn ask_all(signal: libc::c_int) -> std::result::Result<(), (String, io::Error)> {
    // SAFETY: takes nothing.
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
            ask(thread, signal).map_err(|source| (called(thread), source))?;
            done.insert(thread);
        }
    }
}

/// Lets one thread give up its rights. One that has ended needs not.
fn ask(thread: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    ANSWER.store(NONE, Ordering::SeqCst);
    let process = std::process::id();
    // SAFETY: takes numbers only; the thread is one of this process, or none.
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

/// Sets a handler, and gives what was there before.
fn handle(signal: libc::c_int, handler: libc::sighandler_t) -> io::Result<libc::sigaction> {
    // SAFETY: plain data, for which zeros are a value.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler;
    // What waits in a system call goes on waiting.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: plain data, for which zeros are a value.
    let mut before: libc::sigaction = unsafe { zeroed() };
    // SAFETY: the handler is safe in a signal; both structs are borrowed for the call.
    match unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

fn restore(signal: libc::c_int, before: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the kernel gave it; nothing is written.
    match unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_signal(_: libc::c_int) {
    // SAFETY: this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is valid for as long as the thread.
    let saved = unsafe { *errno };
    let answer = apply(KEEP.load(Ordering::SeqCst), RULES.load(Ordering::SeqCst));
    // SAFETY: as above.
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

/// Changes the calling thread. Gives the errno of the call that failed, or 0. Makes system calls only, as a signal's handler
/// must.
fn apply(keep: u64, rules: i32) -> i32 {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return errno();
    }
    // SAFETY: takes numbers only; the descriptor is open while threads are asked.
    if rules >= 0 && unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) } < 0 {
        return errno();
    }
    let mut header = Header { version: VERSION, thread: 0 };
    let mut words = [Words::default(); 2];
    // SAFETY: the kernel writes two words of this version.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) } < 0 {
        return errno();
    }
    for (words, keep) in words.iter_mut().zip([keep as u32, (keep >> 32) as u32]) {
        *words = Words { effective: words.effective & keep, permitted: words.permitted & keep, inheritable: 0 };
    }
    // SAFETY: the kernel reads two words of this version. Ambient capabilities go with the inheritable ones.
    if unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) } < 0 {
        return errno();
    }
    0
}

fn errno() -> i32 {
    // SAFETY: this thread's own errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is valid for as long as the thread.
    unsafe { *errno }
}
