//! Scheduler priority for a thread that sleeps and must not wake late.

use std::cell::Cell;

/// The nice value of such a thread.
const NICE: i32 = -20;

/// The time slice that the thread requests, in ns: the shortest that the kernel allows. When the thread wakes, it need
/// not wait for another thread's slice to end (Linux 6.12 and later; earlier kernels ignore it).
const SHORT_TURN: u64 = 100_000;

/// `struct sched_attr` of linux/sched/types.h, first version.
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

/// Lets the calling thread run ahead of others when it wakes, for the rest of its life, through a nice value of -20 and
/// short time slices. Returns false if the kernel does not permit this (it needs CAP_SYS_NICE) or if the user has set a
/// nice value above 0.
///
/// Only for a thread that sleeps most of the time: a spinning thread would starve all others on its CPU.
#[must_use]
pub fn set_high_priority() -> bool {
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

/// Gives the calling thread real-time priority for the rest of its life (SCHED_FIFO, priority 1). Returns false if the
/// kernel does not permit this (it needs CAP_SYS_NICE), or if the kernel does not limit real-time threads to a share of
/// the CPU: a thread with too much work would then stop the machine.
///
/// Only for a thread that sleeps most of the time.
#[must_use]
pub fn set_realtime_priority() -> bool {
    let limit = std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").unwrap_or_default();
    if limit.trim().parse::<i64>().is_ok_and(|us| us < 0) {
        return false;
    }
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel reads the parameters; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0 }
}

thread_local! {
    /// The policy that the thread had before [`raise_priority`].
    static BEFORE: Cell<Option<libc::c_int>> = const { Cell::new(None) };
}

/// Gives the calling thread real-time priority until [`restore_priority`]. Threads that it starts do not inherit the
/// priority. Meant for the last moments before an instant at which several threads of a busy machine must act. Does
/// nothing if the kernel does not permit it (it needs CAP_SYS_NICE), or if the thread already has real-time priority.
pub fn raise_priority() {
    // SAFETY: takes a number; 0 is the calling thread.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let usual = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
    if usual && set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1) {
        BEFORE.set(Some(policy));
    }
}

/// Restores the policy that the calling thread had before [`raise_priority`].
pub fn restore_priority() {
    if let Some(policy) = BEFORE.take() {
        // Lowering is always permitted.
        set(policy, 0);
    }
}

/// Sets the policy and priority of the calling thread, but not its nice value. Returns false if that is not permitted.
fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads the struct; 0 is the calling thread.
    let rc = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
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
    fn raised_priority_lasts_until_it_is_restored() {
        // SAFETY: takes a number; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        raise_priority();
        if policy() == before {
            println!("SKIP: this user may not raise priorities");
        } else {
            assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO);
            let of_child = std::thread::scope(|scope| scope.spawn(policy).join()).expect("no panic");
            assert_eq!(of_child, before, "a thread that it starts");
            raise_priority();
        }
        restore_priority();
        assert_eq!(policy(), before);
        restore_priority();
        assert_eq!(policy(), before);
    }

    #[test]
    fn priority_changes_only_for_the_calling_thread() {
        let before = nice();
        let (permitted, of_thread) =
            std::thread::scope(|scope| scope.spawn(|| (set_high_priority(), nice())).join()).expect("no panic");
        if permitted {
            assert_eq!(of_thread, NICE);
        } else {
            println!("SKIP: this user may not raise priorities");
            assert_eq!(of_thread, before, "refused, so nothing has changed");
        }
        assert_eq!(nice(), before);
    }
}
