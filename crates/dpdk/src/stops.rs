//! Signals by which a terminal stops a program.

/// Ignores the signals that a terminal stops programs by (TSTP, TTIN, TTOU), until the process ends: while a program is
/// stopped whose process carries others' frames, nothing passes. Programs that are started inherit it.
///
/// SIGSTOP cannot be ignored.
pub fn ignore_stops() {
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: takes numbers only; to ignore a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
