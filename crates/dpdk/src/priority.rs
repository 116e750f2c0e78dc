//! The kernel's scheduler, told of a thread that sleeps and must not wake late.

/// The nice value of such a thread.
const NICE: i32 = -20;

/// The turn that it asks for, in ns: the shortest there is. When it wakes, it need not wait for the end
/// of another's turn (Linux 6.12 and later; others take no notice).
const SHORT_TURN: u64 = 100_000;

/// `struct sched_attr` of linux/sched/types.h, as of its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Lets the calling thread run before others when it wakes, for the rest of its life: a nice value of
/// -20 and short turns. False where the kernel does not permit that (it wants CAP_SYS_NICE), and where
/// the user has given us a nice value above 0.
///
/// For a thread that sleeps most of the time only: one that spins would take its CPU from all others.
#[must_use]
pub fn wake_first() -> bool {
    // SAFETY: takes numbers only; 0 is the calling thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    if nice > 0 {
        return false;
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: NICE,
        priority: 0,
        runtime: SHORT_TURN,
        deadline: 0,
        period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of the struct; 0 is the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    rc == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> i32 {
        // SAFETY: takes numbers only; 0 is the calling thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[test]
    fn it_is_the_thread_alone() {
        let before = nice();
        let (permitted, of_thread) =
            std::thread::scope(|scope| scope.spawn(|| (wake_first(), nice())).join()).expect("no panic");
        if permitted {
            assert_eq!(of_thread, NICE);
        } else {
            println!("SKIP: this user may not raise priorities");
            assert_eq!(of_thread, before, "refused, so nothing has changed");
        }
        assert_eq!(nice(), before);
    }
}
