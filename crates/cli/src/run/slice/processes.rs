//! Processes by ID: whether the kernel's probes can match an ID, and the descendants of a process.

use crate::output::Failure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

/// The inode of the initial PID namespace, which never changes (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// Refuses process IDs that match nothing: from another PID namespace, unused, or of a thread.
pub(super) fn check(pid: Option<u32>, with_command: bool) -> Result<(), Failure> {
    if pid.is_none() && !with_command {
        return Ok(());
    }
    let namespace = fs::read_link("/proc/self/ns/pid").ok();
    if namespace.is_some_and(|name| name.as_os_str() != FIRST_NAMESPACE) {
        let what = if with_command { "COMMAND" } else { "--pid" };
        return Err(Failure::new(format!(
            "{what}: process IDs in this PID namespace differ from those that the kernel's probes see: run it in the host's PID namespace, as docker run --pid=host does, or select packets by --port or --comm"
        )));
    }
    let Some(pid) = pid else { return Ok(()) };
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Err(Failure::new(format!("--pid {pid}: there is no such process: ps -e lists all processes")));
    };
    match status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok()) {
        Some(process) if process != pid => {
            Err(Failure::new(format!("--pid {pid}: that is a thread of process {process}: write --pid {process}")))
        }
        _ => Ok(()),
    }
}

/// A process, identified so that a reused ID is not confused with it.
pub(super) struct Process {
    id: i32,
    started: u64,
}

/// From /proc/PID/stat: state, parent, and start time in clock ticks.
fn stat(id: i32) -> Option<(char, i32, u64)> {
    let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name before these fields may contain anything, including brackets.
    let mut words = line.rsplit_once(')')?.1.split_ascii_whitespace();
    let (state, parent) = (words.next()?.chars().next()?, words.next()?.parse().ok()?);
    Some((state, parent, words.nth(17)?.parse().ok()?))
}

/// Whether a process with this ID exists and has not ended.
pub(super) fn lives(id: u32) -> bool {
    stat(id.cast_signed()).is_some_and(|(state, ..)| state != 'Z')
}

impl Process {
    /// A process and its descendants, as far as their parents are alive.
    pub(super) fn tree(id: u32) -> Vec<Process> {
        let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let all: Vec<(i32, i32, u64)> =
            ids.filter_map(|id| stat(id).map(|(_, parent, started)| (id, parent, started))).collect();
        let mut found = Vec::new();
        let mut parents = vec![id.cast_signed()];
        while let Some(parent) = parents.pop() {
            found.extend(all.iter().filter(|(id, ..)| *id == parent).map(|&(id, _, started)| Process { id, started }));
            parents.extend(all.iter().filter(|(_, of, _)| *of == parent).map(|(id, ..)| *id));
        }
        found
    }

    /// Whether the process has not ended.
    pub(super) fn lives(&self) -> bool {
        stat(self.id).is_some_and(|(state, _, started)| started == self.started && state != 'Z')
    }

    pub(super) fn signal(&self, signal: Signal) {
        if self.lives() {
            // It may have ended already, which is fine.
            let _ended = kill(Pid::from_raw(self.id), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_children_of_a_shell_are_found_and_ended() {
        let mut shell =
            Command::new("sh").args(["-c", "sleep 60 & sleep 60; true"]).stdin(Stdio::null()).spawn().expect("sh");
        let tree = || Process::tree(shell.id());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while tree().len() < 3 && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let tree = tree();
        assert_eq!(tree.len(), 3, "the shell and two that sleep");
        assert!(tree.iter().all(Process::lives));
        tree.iter().for_each(|process| process.signal(Signal::SIGKILL));
        shell.wait().expect("it is ours");
        while tree.iter().any(Process::lives) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!tree.iter().any(Process::lives));
    }
}
