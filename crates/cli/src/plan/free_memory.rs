//! Memory available for a run.

use std::fs;

/// Returns the available memory in bytes for each limit, with the words that name the limit in a message, and the
/// remedy.
pub(crate) fn free_memory() -> Vec<(u64, &'static str, &'static str)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let machine = read("/proc/meminfo");
    let free = kibibytes(&machine, "MemAvailable:").map(|free| free + kibibytes(&machine, "SwapFree:").unwrap_or(0));
    let used = kibibytes(&read("/proc/self/status"), "VmSize:").unwrap_or(0);
    let limit = read("/proc/self/limits").lines().find_map(|line| {
        let soft = line.strip_prefix("Max address space")?.split_whitespace().next()?;
        soft.parse::<u64>().ok().map(|bytes| (bytes / 1024).saturating_sub(used))
    });
    let bounds = [
        (free, "the machine has", "give it more memory"),
        (limit, "the limit on memory leaves", "raise the limit with ulimit -v"),
    ];
    bounds.into_iter().filter_map(|(free, leaves, raise)| Some((free? * 1024, leaves, raise))).collect()
}

/// Returns a field of a file in /proc that is in KiB.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}
