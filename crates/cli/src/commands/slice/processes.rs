//! Whether a process can be known to the kernel's probes by its number.

use crate::output::Failure;
use std::fs;

/// The namespace of processes that the machine begins with; its number never changes (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Refuses what would follow nothing: numbers of another namespace, of nobody, or of a thread.
pub(super) fn check(pid: Option<u32>, with_command: bool) -> Result<(), Failure> {
    if pid.is_none() && !with_command {
        return Ok(());
    }
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    if namespace.is_some_and(|name| name.as_os_str() != FIRST_NAMESPACE) {
        let what = if with_command { "COMMAND" } else { "--pid" };
        return Err(Failure::new(format!(
            "{what}: processes have other numbers in this PID namespace than the kernel's probes see: run it in the host's, as docker run --pid=host does, or choose packets by --port or --comm"
        )));
    }
    let Some(pid) = pid else { return Ok(()) };
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Err(Failure::new(format!("--pid {pid}: there is no such process: ps -e lists those that are")));
    };
    match status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok()) {
        Some(process) if process != pid => {
            Err(Failure::new(format!("--pid {pid}: that is a thread of process {process}: write --pid {process}")))
        }
        _ => Ok(()),
    }
}
