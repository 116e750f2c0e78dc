//! Ends the processes in a lab's namespaces, because a namespace without a name exists as long as a process is in it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::record::namespace_file;

/// Time for a process to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);
/// Time for a killed process to disappear.
const LAST: Duration = Duration::from_secs(1);

/// Ends the processes in these namespaces, except this process and its ancestors (a `lab down` typed in a shell inside
/// the lab must not end that shell). Returns their PIDs and names.
pub(crate) fn end_processes_in(namespaces: &[String]) -> Vec<(u32, String)> {
    let ids: HashSet<(u64, u64)> = namespaces
        .iter()
        .filter_map(|name| fs::metadata(namespace_file(name)).ok())
        .map(|m| (m.dev(), m.ino()))
        .collect();
    let spared = own_line();
    let mut ended: Vec<(u32, String)> = Vec::new();
    for (signal, patience) in [(Signal::SIGTERM, GRACE), (Signal::SIGKILL, LAST)] {
        let start = Instant::now();
        let mut told: HashSet<u32> = HashSet::new();
        loop {
            let there = processes_in(&ids, &spared);
            if there.is_empty() {
                return ended;
            }
            if start.elapsed() > patience {
                break;
            }
            for pid in there {
                // Processes started meanwhile are signalled as well, each once.
                if told.insert(pid) {
                    if !ended.iter().any(|(known, _)| *known == pid) {
                        ended.push((pid, name_of(pid)));
                    }
                    // It may already have ended.
                    let _gone = i32::try_from(pid).map(|pid| kill(Pid::from_raw(pid), signal));
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    ended
}

fn processes_in(ids: &HashSet<(u64, u64)>, spared: &HashSet<u32>) -> Vec<u32> {
    if ids.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| !spared.contains(pid))
        .filter(|pid| fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| ids.contains(&(m.dev(), m.ino()))))
        .collect()
}

/// This process and its ancestors.
fn own_line() -> HashSet<u32> {
    let mut line = HashSet::new();
    let mut pid = Some(std::process::id());
    while let Some(this) = pid.filter(|&p| p > 0 && line.insert(p)) {
        pid = fs::read_to_string(format!("/proc/{this}/stat"))
            .ok()
            .and_then(|stat| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok());
    }
    line
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| "?".to_owned(), |name| name.trim().to_owned())
}
