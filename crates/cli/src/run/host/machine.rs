//! Reads the state of a receiver: netlink, files of /proc and /sys, ethtool and ss.

use super::link::Link;
use crate::output::Failure;
use measure::host::{InterfaceSettings, InterfaceTexts, Settings, Snapshot, Texts};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// PATH with the sbin folders, which the PATH of ordinary users lacks on Debian.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

pub(super) fn installed(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file())
}

/// The output of a program; `None` if it is missing, or fails because the driver or kernel lacks the feature.
pub(super) fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The current counters.
pub(super) fn snapshot(names: &[String]) -> Result<Snapshot, Failure> {
    let both = |first: &str, second: &str| match (read(first), read(second)) {
        (Some(first), second) => Some(first + &second.unwrap_or_default()),
        (None, second) => second,
    };
    let interfaces: Vec<InterfaceTexts> = names.iter().map(|name| interface(name)).collect::<Result<_, _>>()?;
    Ok(Snapshot::read(&Texts {
        softnet_stat: read("/proc/net/softnet_stat"),
        online_cpus: read("/sys/devices/system/cpu/online"),
        snmp: both("/proc/net/snmp", "/proc/net/netstat"),
        snmp6: read("/proc/net/snmp6"),
        udp: both("/proc/net/udp", "/proc/net/udp6"),
        interrupts: read("/proc/interrupts"),
        softirqs: read("/proc/softirqs"),
        stat: read("/proc/stat"),
        interfaces,
    }))
}

fn interface(name: &str) -> Result<InterfaceTexts, Failure> {
    let gone = |cause| Failure::new(format!("{name} can no longer be watched: {cause}; check it with `ip link`"));
    let link = Link::named(name).map_err(gone)?;
    // Kernels before 5.14 do not report the device over netlink.
    let linked =
        || Some(fs::read_link(link.folder()?.join("device")).ok()?.file_name()?.to_string_lossy().into_owned());
    let device = link.device.clone().or_else(linked);
    let statistics = link.statistics;
    Ok(InterfaceTexts { name: name.to_owned(), device, statistics, ethtool: run("ethtool", &["-S", name]) })
}

/// The settings of the receiver.
pub(super) fn settings(names: &[String]) -> Settings {
    let core = |name: &str| number(Path::new("/proc/sys/net/core").join(name));
    let mut settings = Settings {
        netdev_max_backlog: core("netdev_max_backlog"),
        netdev_budget: core("netdev_budget"),
        netdev_budget_usecs: core("netdev_budget_usecs"),
        rmem_default: core("rmem_default"),
        rmem_max: core("rmem_max"),
        busy_poll: core("busy_poll"),
        busy_read: core("busy_read"),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        ..Settings::default()
    };
    if let Some(online) = read("/sys/devices/system/cpu/online") {
        settings.cpus = measure::host::count_cpus(&online).max(1);
    }
    for name in names {
        settings.interfaces.insert(name.clone(), interface_settings(name));
    }
    if let Some(text) = run("ss", &["-H", "-uanmpeO"]) {
        settings.read_owners(&text);
    }
    settings
}

fn interface_settings(name: &str) -> InterfaceSettings {
    let mut settings = InterfaceSettings::default();
    let about = run("ethtool", &["-i", name]).unwrap_or_default();
    settings.driver = about.lines().find_map(|line| Some(line.strip_prefix("driver:")?.trim().to_owned()));
    if let Some(text) = run("ethtool", &["-g", name]) {
        settings.read_ring(&text);
    }
    if let Some(text) = run("ethtool", &["-l", name]) {
        settings.read_channels(&text);
    }
    if let Some(text) = run("ethtool", &["-x", name]) {
        settings.read_indirection(&text);
    }
    if let Some(text) = run("ethtool", &["-n", name, "rx-flow-hash", "udp4"]) {
        settings.read_udp_hash(&text);
    }
    // If sysfs shows another namespace, queues and RPS are unknown.
    let folder = Link::named(name).ok().and_then(|link| link.folder());
    let queues = folder.and_then(|folder| fs::read_dir(folder.join("queues")).ok()).into_iter().flatten().flatten();
    let mut receive: Vec<_> = queues
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("rx-")))
        .collect();
    receive.sort();
    if !receive.is_empty() {
        settings.queues = settings.queues.or(Some(receive.len() as u64));
    }
    // Without RPS in the kernel there are no such files.
    settings.rps = receive.iter().map(|queue| Some(read(queue.join("rps_cpus"))?.trim().to_owned())).collect();
    settings.rps = settings.rps.filter(|masks: &Vec<String>| !masks.is_empty());
    settings
}
