//! `measure --host`: looks at a Linux receiver's own counters until told to stop. What they mean is `measure::host`'s.

use crate::commands::Common;
use crate::output::{self, Failure};
use crate::stop::Stop;
use measure::host::{
    HostReport, InterfaceReport, InterfaceSettings, InterfaceTexts, Lost, Place, Settings, Snapshot, Texts,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use units::Span;

const INTERFACES: &str = "/sys/class/net";

/// One interval of a run.
#[derive(Serialize)]
struct Interval {
    /// Its end, in s since the run began.
    at: f64,
    interfaces: BTreeMap<String, Speed>,
    lost: Lost,
}

#[derive(Clone, Copy, Serialize)]
struct Speed {
    pps: f64,
    bps: f64,
}

/// Watches until the time is up or the user has seen enough, then reports.
pub(crate) fn watch(names: &[String], interval: Span, common: &Common) -> Result<ExitCode, Failure> {
    let names = checked(names)?;
    let stop = Stop::on_signals()?;
    let mut settings = settings(&names);
    let first = snapshot(&names)?;
    let begin = Instant::now();
    let end = common.duration.map(|duration| begin + duration_of(duration));
    let missing: Vec<&str> = ["ethtool", "ss"].into_iter().filter(|program| !installed(program)).collect();
    if !missing.is_empty() {
        output::note(format_args!(
            "{} not installed: what it would tell is unknown (rings, queues and drivers' counters by ethtool, programs by ss): \
             apt-get install ethtool iproute2",
            missing.join(", ")
        ));
    }
    if common.verbose > 0 {
        output::note(format_args!("watching {}", names.join(", ")));
    }
    let lines = common.progress == "auto" && !common.quiet && std::io::stderr().is_terminal();
    let interval = duration_of(interval);
    let (mut intervals, mut failure) = (Vec::new(), None);
    let (mut last, mut last_at) = (first.clone(), begin);
    loop {
        let due = last_at + interval;
        nap(end.map_or(due, |end| end.min(due)), &stop);
        let next = match snapshot(&names) {
            Ok(next) => next,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let now = Instant::now();
        let part = HostReport::between(&last, &next, now.duration_since(last_at).as_secs_f64(), &settings);
        let passed = now.duration_since(begin);
        if lines {
            output::line(line(passed, &part));
        }
        intervals.push(Interval { at: passed.as_secs_f64(), interfaces: speeds(&part), lost: part.lost });
        (last, last_at) = (next, now);
        if stop.asked() || end.is_some_and(|end| now >= end) {
            break;
        }
    }
    if let Some(text) = run("ss", &["-H", "-uanmpeO"]) {
        settings.read_owners(&text);
    }
    let report = HostReport::between(&first, &last, last_at.duration_since(begin).as_secs_f64(), &settings);
    let text = if common.json {
        json(&report, &intervals).to_string() + "\n"
    } else if common.quiet {
        String::new()
    } else {
        table(&report, &intervals, interval)
    };
    output::print(&text)?;
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Names of interfaces that are there, each once; `if:eth0` is `eth0`.
fn checked(names: &[String]) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = names.iter().map(|name| name.strip_prefix("if:").unwrap_or(name).to_owned()).collect();
    let mut problems = Vec::new();
    for (nth, name) in names.iter().enumerate() {
        let there =
            !name.is_empty() && !name.contains('/') && Path::new(INTERFACES).join(name).join("statistics").is_dir();
        if !there {
            problems.push(format!(
                "--host: there is no interface '{name}' in this network namespace: `ip link` lists them, name one or more as eth0,eth1"
            ));
        } else if names[..nth].contains(name) {
            problems.push(format!("--host: {name} is named twice: name each interface once"));
        }
    }
    if problems.is_empty() { Ok(names) } else { Err(Failure::new(problems.join("\n"))) }
}

fn duration_of(span: Span) -> Duration {
    Duration::from_nanos(span.as_ps() / units::PS_PER_NS)
}

/// Sleeps in short pieces, so that a signal is obeyed at once.
fn nap(until: Instant, stop: &Stop) {
    const PIECE: Duration = Duration::from_millis(20);
    while !stop.asked() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(PIECE));
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// PATH with the administrators' folders, which ordinary users' lacks on Debian.
fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn installed(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file())
}

/// What a program prints; none if it is not there, or fails because driver or kernel have no such thing.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// All counters now.
fn snapshot(names: &[String]) -> Result<Snapshot, Failure> {
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
    let folder = Path::new(INTERFACES).join(name);
    let gone = |cause| Failure::new(format!("{name} cannot be watched any more: {cause}; check it with `ip link`"));
    let mut statistics = BTreeMap::new();
    for entry in fs::read_dir(folder.join("statistics")).map_err(gone)? {
        let entry = entry.map_err(gone)?;
        let value = number(entry.path())
            .ok_or_else(|| Failure::new(format!("{name} went away while it was watched: check it with `ip link`")))?;
        statistics.insert(entry.file_name().to_string_lossy().into_owned(), value);
    }
    let device = fs::read_link(folder.join("device")).ok();
    let device = device.and_then(|device| Some(device.file_name()?.to_string_lossy().into_owned()));
    Ok(InterfaceTexts { name: name.to_owned(), device, statistics, ethtool: run("ethtool", &["-S", name]) })
}

/// How the receiver is set.
fn settings(names: &[String]) -> Settings {
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
    let queues = fs::read_dir(Path::new(INTERFACES).join(name).join("queues")).into_iter().flatten().flatten();
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

fn speeds(report: &HostReport) -> BTreeMap<String, Speed> {
    let of = |of: &InterfaceReport| (of.name.clone(), Speed { pps: of.pps, bps: of.bps });
    report.interfaces.iter().map(of).collect()
}

/// An interval in a line: what came, and where something was lost.
fn line(passed: Duration, report: &HostReport) -> String {
    let mut text = format!("{:>5.1} s", passed.as_secs_f64());
    for of in &report.interfaces {
        let _ = write!(text, "  {} {} frames/s, {}", of.name, whole(of.pps), rate(of.bps));
    }
    let lost: Vec<String> = report
        .lost
        .places()
        .into_iter()
        .filter_map(|(place, lost)| Some(format!("{} {}", place.name(), output::thousands(lost.filter(|n| *n > 0)?))))
        .collect();
    text.push_str(if lost.is_empty() { "  nothing lost that is counted" } else { "  lost at " });
    text.push_str(&lost.join(", "));
    text
}

fn whole(value: f64) -> String {
    output::thousands(value.round() as u64)
}

fn rate(bps: f64) -> String {
    output::bits(output::digits(bps, 4))
}

fn json(report: &HostReport, intervals: &[Interval]) -> serde_json::Value {
    serde_json::json!({
        "schema": 1,
        "command": "measure",
        "host": report,
        "intervals": intervals,
        "limits": {
            "null": "nobody counts it here, or the counter was set back meanwhile: it is not zero",
            "softnet": "counts of all interfaces and network namespaces of this machine",
            "bytes": "the driver's count and 4 B of FCS for each frame",
        },
    })
}

/// The report for people.
fn table(report: &HostReport, intervals: &[Interval], interval: Duration) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, report, intervals, interval);
    text
}

fn write_table(out: &mut String, report: &HostReport, intervals: &[Interval], interval: Duration) -> fmt::Result {
    writeln!(out, "measure")?;
    writeln!(out, "  watched   {}, {} CPUs", output::time((report.seconds * 1e3).round() * 1e6), report.settings.cpus)?;
    for of in &report.interfaces {
        let settings = &of.settings;
        let name = &of.name;
        writeln!(
            out,
            "  {name:<8}  {} frames, {} B with FCS",
            output::thousands(of.frames),
            output::thousands(of.bytes)
        )?;
        write!(out, "  rate      mean {} frames/s, {}", whole(of.pps), rate(of.bps))?;
        let highest = intervals.iter().filter_map(|part| part.interfaces.get(name)).map(|speed| speed.pps);
        if let (Some(highest), true) = (highest.reduce(f64::max), intervals.len() > 1) {
            write!(out, "; highest {} frames/s in {}", whole(highest), output::time(interval.as_nanos() as f64))?;
        }
        let driver = settings.driver.as_deref().unwrap_or("not known");
        let ring = match of.ring {
            Some(ring) => match ring.max {
                Some(max) => format!("ring of {} descriptors, at most {max}", ring.now),
                None => format!("ring of {} descriptors", ring.now),
            },
            None => "ring not known".to_owned(),
        };
        writeln!(out, "\n  driver    {driver}, {ring}, {}", queues(of))?;
    }
    for (nth, (place, lost)) in report.lost.places().into_iter().enumerate() {
        let label = if nth == 0 { "lost at" } else { "" };
        let count = lost.map_or_else(|| format!("not known: {}", unknown(place)), output::thousands);
        let grown: Vec<String> = by_name(report, place);
        let names = if grown.is_empty() { String::new() } else { format!("  ({})", grown.join(", ")) };
        writeln!(out, "  {label:<8}  {:<9} {count}{names}", place.name())?;
    }
    for cpu in &report.cpus {
        let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), output::thousands);
        let part = |part: Option<f64>| part.map_or_else(|| "?".to_owned(), |part| format!("{:.0} %", part * 100.0));
        writeln!(
            out,
            "  {:<8}  {} frames through the stack, {} dropped, {} squeezed; {} busy, {} in interrupts",
            format!("CPU {}", cpu.cpu),
            count(cpu.processed),
            count(cpu.dropped),
            count(cpu.time_squeeze),
            part(cpu.busy),
            part(cpu.interrupts)
        )?;
    }
    for socket in report.sockets.iter().flatten().take(8) {
        write!(out, "  socket    {} lost {}", socket.local, output::thousands(socket.drops))?;
        if let Some(bytes) = socket.buffer {
            write!(out, ", buffer {} B", output::thousands(bytes))?;
        }
        writeln!(out, "{}", socket.program.as_ref().map_or(String::new(), |program| format!(", {program}")))?;
    }
    for advice in &report.advice {
        let interface = advice.interface.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        writeln!(out, "  advice    {}{interface}: {}", advice.place.name(), advice.seen)?;
        for command in &advice.commands {
            writeln!(out, "            {command}")?;
        }
    }
    Ok(())
}

fn queues(of: &InterfaceReport) -> String {
    let Some(queues) = &of.queues else {
        return match of.settings.queues {
            Some(1) => "one queue".to_owned(),
            Some(count) => format!("{count} queues, whose frames it does not count"),
            None => "queues not known".to_owned(),
        };
    };
    if let [_] = queues.as_slice() {
        return "one queue".to_owned();
    }
    let all = queues.iter().map(|queue| queue.frames).sum::<u64>().max(1) as f64;
    let mut busiest = queues.clone();
    busiest.sort_by_key(|queue| std::cmp::Reverse(queue.frames));
    let shares: Vec<String> = busiest
        .iter()
        .take(8)
        .map(|queue| format!("{}: {:.1} %", queue.queue, queue.frames as f64 / all * 100.0))
        .collect();
    format!("{} queues, busiest {}", queues.len(), shares.join(", "))
}

/// The counters of a place that grew.
fn by_name(report: &HostReport, place: Place) -> Vec<String> {
    let of_interfaces = report.interfaces.iter().flat_map(|of| &of.drops).filter(|drop| drop.place == place);
    let mut found: Vec<String> = of_interfaces
        .filter(|drop| drop.frames > 0 && place != Place::Interface)
        .map(|drop| format!("{} {}", drop.counter, output::thousands(drop.frames)))
        .collect();
    let named = report.protocol_losses(place).into_iter();
    found.extend(named.map(|(name, count)| format!("{name} {}", output::thousands(count))));
    found
}

/// Why nobody knows what was lost at a place.
fn unknown(place: Place) -> &'static str {
    match place {
        Place::Wire => "the interface has no NIC behind it",
        Place::Ring => "the driver counts no losses there",
        Place::Queue => "frames are not lost here",
        Place::Softnet => "/proc/net/softnet_stat cannot be read",
        Place::Interface => "the counter was set back",
        Place::Protocol | Place::Socket => "/proc/net/snmp cannot be read",
    }
}
