//! Terminal stop signals.

/// Ignores the signals by which a terminal stops programs (TSTP, TTIN, TTOU) until the process ends. If a process
/// carries other hosts' frames, stopping it would block them. Programs that this process starts inherit the setting.
///
/// SIGSTOP cannot be ignored.
pub fn ignore_stops() {
    for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: takes numbers only, and ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
