//! Advice from the counters of a receiver, with commands that fix the problem.

use super::report::{HostReport, InterfaceReport, LossPoint, TCP_FULL, UDP_FULL, UNWANTED};
use crate::figures::{counted, share, thousands};
use serde::Serialize;
use units::quoted;

/// An observation and its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// A stable name: `ring-small`, `ring-full`, `one-queue`, `one-cpu`, `backlog`, `budget`, `socket-buffer`,
    /// `slow-reader`, `tcp-buffer`, `accept-queue`, `no-port`, `other-address`, `checksum`, `reverse-path`,
    /// `unwanted`, `broken-frames`, `interface-drops`.
    pub name: &'static str,
    /// The loss point.
    pub place: LossPoint,
    /// The interface concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Frames lost there; `None` if the advice concerns future losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// The observation and its meaning.
    pub seen: String,
    /// Commands that fix the problem, or that show more if the cause is unknown.
    pub commands: Vec<String>,
}

/// A CPU or queue with more than this share has practically everything.
const ALL: f64 = 0.9;
/// A CPU above this load has no time left.
const FULL: f64 = 0.9;
/// Below this rate in frames/s, the distribution does not matter.
const NOTABLE_PPS: f64 = 1_000.0;

/// All advice, in order of a frame's path.
pub(super) fn advise(report: &HostReport) -> Vec<Advice> {
    let mut advice = Vec::new();
    for interface in &report.interfaces {
        advice.extend(wire(interface));
        advice.extend(ring(report, interface));
        advice.extend(spread(report, interface));
    }
    advice.extend(backlog(report));
    advice.extend(budget(report));
    advice.extend(rest(report));
    advice.extend(protocol(report));
    advice.extend(udp(report));
    advice.extend(tcp(report));
    advice.sort_by_key(|advice| advice.place);
    advice
}

fn wire(interface: &InterfaceReport) -> Option<Advice> {
    let name = &interface.name;
    let shell = quoted(name);
    let broken = interface.lost(LossPoint::Wire).filter(|broken| *broken > 0)?;
    Some(Advice {
        name: "broken-frames",
        place: LossPoint::Wire,
        interface: Some(name.clone()),
        frames: Some(broken),
        seen: format!(
            "{} arrived corrupted: check the cable, the optics, and the sender's frames",
            counted(broken, "frame")
        ),
        commands: vec![format!("ethtool -S {shell} | grep -iE 'crc|err|length'"), format!("ethtool -m {shell}")],
    })
}

/// First finding of the case in docs/guide/receiver.md: 512 descriptors lost frames above 120 000 frames/s with an idle
/// CPU; 4096 descriptors held 1.4 million.
fn ring(report: &HostReport, interface: &InterfaceReport) -> Option<Advice> {
    let name = &interface.name;
    let shell = quoted(name);
    let lost = interface.lost(LossPoint::Ring).filter(|lost| *lost > 0);
    let held = interface.no_buffer.filter(|times| *times > 0);
    let what = match (lost, held) {
        (Some(lost), _) => format!("{} found no free descriptor", counted(lost, "frame")),
        (None, Some(times)) => {
            format!("the NIC found no free descriptor {} times, and could hold the frame", thousands(times))
        }
        (None, None) => return None,
    };
    let idle = report.busiest().and_then(|(cpu, _)| Some((cpu.cpu, 1.0 - cpu.busy_ratio?)));
    let advice = |name_of_it, seen, commands| {
        Some(Advice {
            name: name_of_it,
            place: LossPoint::Ring,
            interface: Some(name.clone()),
            frames: lost,
            seen,
            commands,
        })
    };
    let ring = interface.ring;
    if let Some((now, max)) = ring.and_then(|ring| Some((ring.now, ring.max?))).filter(|(now, max)| now < max) {
        let why = match idle {
            Some((cpu, idle)) if idle > 1.0 - FULL => {
                format!(
                    "; CPU {cpu}, which took most frames, was idle for {}: bursts are the cause, not load",
                    share(idle)
                )
            }
            Some((cpu, _)) => format!("; CPU {cpu}, which took most frames, had no time left: spread them, too"),
            None => String::new(),
        };
        let seen = format!("{what}: the ring has {now} of {max} descriptors{why}");
        return advice("ring-small", seen, vec![format!("ethtool -G {shell} rx {max}")]);
    }
    let size = match ring {
        Some(ring) => format!("the ring is as large as it can be ({} descriptors)", ring.now),
        None => "the ring's size is not known".to_owned(),
    };
    match idle {
        Some(_) if all_full(report) => advice(
            "ring-full",
            format!(
                "{what}: {size}, and every CPU had no time left: fewer frames, faster CPUs, or less work for each frame"
            ),
            vec!["perf top".to_owned()],
        ),
        Some((cpu, idle)) if idle <= 1.0 - FULL => advice(
            "ring-full",
            format!(
                "{what}: {size}, and CPU {cpu}, which took most frames, had no time left: more CPUs must take them"
            ),
            spreading(report, interface),
        ),
        _ => {
            let mut commands = vec![format!("ethtool -C {shell} adaptive-rx off rx-usecs 10")];
            if ring.is_none() {
                commands.insert(0, format!("ethtool -g {shell}"));
            }
            let seen = format!("{what}: {size}, and no CPU was full: frames are fetched too seldom, or in bursts");
            advice("ring-full", seen, commands)
        }
    }
}

/// Whether every CPU is busy, so that distribution does not help.
fn all_full(report: &HostReport) -> bool {
    let mut busy = report.cpus.iter().filter_map(|cpu| cpu.busy_ratio).peekable();
    busy.peek().is_some() && busy.all(|busy| busy > FULL)
}

/// Second finding of that case: a single flow uses one queue and one CPU; many flows reached 1.4 to 6 million frames/s.
fn spread(report: &HostReport, interface: &InterfaceReport) -> Option<Advice> {
    if interface.fps < NOTABLE_PPS || report.settings.cpus < 2 {
        return None;
    }
    let name = &interface.name;
    let advice = |name_of_it, seen, commands| {
        Some(Advice {
            name: name_of_it,
            place: LossPoint::Queue,
            interface: Some(name.clone()),
            frames: None,
            seen,
            commands,
        })
    };
    if let Some(queues) = interface.queues.as_ref().filter(|queues| queues.len() > 1) {
        let all: u64 = queues.iter().map(|queue| queue.frames).sum();
        let busiest = queues.iter().max_by_key(|queue| queue.frames)?;
        let of_all = busiest.frames as f64 / all as f64;
        if of_all < ALL {
            return None;
        }
        let why = if interface.settings.rss_queues == Some(1) {
            "RSS leads to one queue only"
        } else if interface.settings.udp_ports_hashed == Some(false) {
            "RSS hashes UDP by addresses only, or there is one flow"
        } else {
            "there is one flow, or RSS is off; a flow stays on one queue, so send more of them to use more CPUs"
        };
        let seen = format!("queue {} of {} took {} of the frames: {why}", busiest.queue, queues.len(), share(of_all));
        return advice("one-queue", seen, spreading(report, interface));
    }
    let (cpu, of_all) = report.busiest().filter(|(_, of_all)| *of_all >= ALL)?;
    let queues = interface.queues.as_ref().map(|queues| queues.len() as u64).or(interface.settings.queues);
    let queues = match queues {
        Some(1) => "the interface has one queue".to_owned(),
        Some(many) => format!("the driver does not count frames by queue ({many} of them)"),
        None => "how many queues there are is not known".to_owned(),
    };
    let seen = format!(
        "CPU {} took {} of all frames through the stack: {queues}, or there is one flow",
        cpu.cpu,
        share(of_all)
    );
    advice("one-cpu", seen, spreading(report, interface))
}

/// Ways to use more CPUs: more queues if the NIC supports them, else a finer hash, else RPS.
fn spreading(report: &HostReport, interface: &InterfaceReport) -> Vec<String> {
    let name = &interface.name;
    let shell = quoted(name);
    let settings = &interface.settings;
    let cpus = report.settings.cpus as u64;
    let mut commands = Vec::new();
    let most = settings.queues_max.map_or(1, |max| max.min(cpus));
    let queues = settings.queues.unwrap_or(1);
    if queues < most {
        commands.push(format!("ethtool -L {shell} combined {most}"));
    }
    if settings.rss_queues.is_some_and(|used| used < queues) {
        commands.push(format!("ethtool -X {shell} equal {queues}"));
    }
    if settings.udp_ports_hashed == Some(false) {
        commands.push(format!("ethtool -N {shell} rx-flow-hash udp4 sdfn"));
    }
    if commands.is_empty() && queues == 1 && settings.rps.as_ref().is_some_and(|masks| !masks.iter().any(|m| is_set(m)))
    {
        commands.push(format!("echo {} > /sys/class/net/{shell}/queues/rx-0/rps_cpus", mask(cpus)));
    }
    if commands.is_empty() {
        commands.push("netlathe gen --stream 'udp 10.0.0.1:1000-1999 > …'".to_owned());
    }
    commands
}

fn is_set(mask: &str) -> bool {
    mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0')
}

/// A mask of the first `cpus` CPUs in 32-bit words, as the kernel reads it.
fn mask(cpus: u64) -> String {
    let words = cpus.div_ceil(32).max(1);
    let word = |nth: u64| match cpus.saturating_sub(nth * 32) {
        more if more >= 32 => u32::MAX,
        some => (1 << some) - 1,
    };
    let mut text = format!("{:x}", word(words - 1));
    for nth in (0..words - 1).rev() {
        text.push_str(&format!(",{:08x}", word(nth)));
    }
    text
}

fn setting(name: &str, value: Option<u64>) -> String {
    match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} cannot be seen in this network namespace"),
    }
}

fn backlog(report: &HostReport) -> Option<Advice> {
    let lost = report.lost.softnet.filter(|lost| *lost > 0)?;
    let worst = report.cpus.iter().max_by_key(|cpu| cpu.dropped)?;
    let now = report.settings.netdev_max_backlog;
    let mut seen = format!(
        "{} found the backlog of a CPU full, most that of CPU {} ({})",
        counted(lost, "frame"),
        worst.cpu,
        setting("netdev_max_backlog", now)
    );
    let limited: u64 = report.cpus.iter().filter_map(|cpu| cpu.flow_limit).sum();
    if limited > 0 {
        seen.push_str(&format!("; {} of them to protect smaller flows (flow_limit_cpu_bitmap)", thousands(limited)));
    }
    let mut commands = vec![format!("sysctl -w net.core.netdev_max_backlog={}{}", larger(now, 10_000), or_more(now))];
    if worst.busy_ratio.is_some_and(|busy| busy > FULL) {
        seen.push_str("; that CPU had no time left: a longer backlog only outlasts bursts");
        let spread = report.interfaces.iter().filter(|_| !all_full(report)).max_by_key(|interface| interface.frames);
        if let Some(interface) = spread {
            commands.extend(spreading(report, interface));
        }
    }
    Some(Advice { name: "backlog", place: LossPoint::Softnet, interface: None, frames: Some(lost), seen, commands })
}

/// Comment for a command whose current limit is unknown.
fn or_more(now: Option<u64>) -> &'static str {
    if now.is_some() { "" } else { "     # or twice what it is" }
}

/// Twice the current value, but at least `least`.
fn larger(now: Option<u64>, least: u64) -> u64 {
    now.unwrap_or(0).saturating_mul(2).max(least)
}

/// Squeezes per second that indicate a limit. A few are normal: the kernel yields the CPU for fairness.
const SQUEEZES: f64 = 10.0;

fn budget(report: &HostReport) -> Option<Advice> {
    let times: u64 = report.cpus.iter().filter_map(|cpu| cpu.time_squeeze).sum();
    if times == 0 || (times as f64) < report.observed_s * SQUEEZES {
        return None;
    }
    let worst = report.cpus.iter().max_by_key(|cpu| cpu.time_squeeze)?;
    let (budget, usecs) = (report.settings.netdev_budget, report.settings.netdev_budget_usecs);
    let seen = format!(
        "CPUs stopped {} times with frames left, most often CPU {} ({}, {}): nothing is lost by that, but rings and backlogs fill meanwhile",
        thousands(times),
        worst.cpu,
        setting("netdev_budget", budget),
        setting("netdev_budget_usecs", usecs)
    );
    let command = format!(
        "sysctl -w net.core.netdev_budget={} net.core.netdev_budget_usecs={}{}",
        larger(budget, 600),
        larger(usecs, 16_000),
        or_more(budget)
    );
    Some(Advice {
        name: "budget",
        place: LossPoint::Softnet,
        interface: None,
        frames: None,
        seen,
        commands: vec![command],
    })
}

fn rest(report: &HostReport) -> Option<Advice> {
    let lost = report.lost.interface.filter(|lost| *lost > 0)?;
    let worst = report.interfaces.iter().max_by_key(|interface| interface.lost(LossPoint::Interface))?;
    Some(Advice {
        name: "interface-drops",
        place: LossPoint::Interface,
        interface: Some(worst.name.clone()),
        frames: Some(lost),
        seen: format!(
            "rx_dropped counts {} that neither ring nor softnet explains: of a VLAN or protocol that nothing here takes, or the driver's own",
            counted(lost, "frame")
        ),
        commands: vec![
            format!("tcpdump -eni {} -c 20", quoted(&worst.name)),
            format!("ethtool -S {} | grep -i drop", quoted(&worst.name)),
        ],
    })
}

fn protocol(report: &HostReport) -> Vec<Advice> {
    let known: [(&'static str, &[&str], &str, &str); 5] = [
        (
            "other-address",
            &["Ip.InAddrErrors", "Ip6InAddrErrors", "IpExt.InNoRoutes"],
            "for no address of this host, or without a route: the kernel received and discarded them, which is enough for a test of its receive path",
            "ip -br address",
        ),
        (
            "no-port",
            &["Udp.NoPorts", "Udp6NoPorts"],
            "for UDP ports on which nothing listens; each may be answered by ICMP",
            "ss -uanp",
        ),
        (
            "checksum",
            &["Udp.InCsumErrors", "Udp6InCsumErrors"],
            "with a wrong checksum: the sender leaves checksums to an offload that does not compute them, or damages frames",
            "ethtool -K DEVICE tx off     # at the sender",
        ),
        (
            "reverse-path",
            &["TcpExt.IPReversePathFilter"],
            "from addresses that would be answered by another interface (rp_filter)",
            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0",
        ),
        (
            "unwanted",
            &[
                "Ip.InHdrErrors", "Ip.InUnknownProtos", "Ip.InDiscards", "IpExt.InTruncatedPkts", "Ip6InHdrErrors",
                "Ip6InDiscards",
            ],
            "that IP cannot read or has no memory for",
            "nstat -az 'Ip*'",
        ),
    ];
    debug_assert!(UNWANTED.iter().all(|name| known.iter().any(|(_, names, ..)| names.contains(name))));
    let advice = |(name, counters, why, command): (&'static str, &[&str], &str, &str)| {
        let count: u64 = counters.iter().map(|counter| report.protocol(counter)).fold(0, u64::saturating_add);
        (count > 0).then(|| Advice {
            name,
            place: LossPoint::Protocol,
            interface: None,
            frames: Some(count),
            seen: format!("{} arrived {why}", counted(count, "frame")),
            commands: vec![command.to_owned()],
        })
    };
    known.into_iter().filter_map(advice).collect()
}

/// A reader that loses more than this share is too slow; below it, bursts are the cause.
const SLOW: f64 = 0.1;
const BUFFER: u64 = 16 << 20;

fn udp(report: &HostReport) -> Option<Advice> {
    let lost: u64 = UDP_FULL.iter().map(|name| report.protocol(name)).fold(0, u64::saturating_add);
    if lost == 0 {
        return None;
    }
    let taken = report.protocol("Udp.InDatagrams").saturating_add(report.protocol("Udp6InDatagrams"));
    let of_all = lost as f64 / (lost as f64 + taken as f64);
    let mut seen = format!("{} ({}) found a UDP socket's buffer full", counted(lost, "frame"), share(of_all));
    if let Some(worst) = report.sockets.as_ref().and_then(|sockets| sockets.first()) {
        let whose = worst.program.as_deref().map_or(String::new(), |program| format!(" of {program}"));
        let size = worst.buffer_bytes.map_or(String::new(), |bytes| format!(", which has {} B", thousands(bytes)));
        seen.push_str(&format!(", most that of {}{whose}{size}", worst.local));
    }
    let limits = &report.settings;
    let commands = vec![
        format!(
            "sysctl -w net.core.rmem_max={}     # then the program may ask for it by SO_RCVBUF",
            larger(limits.rmem_max, BUFFER)
        ),
        format!(
            "sysctl -w net.core.rmem_default={}     # for programs that do not ask, once restarted",
            larger(limits.rmem_default, BUFFER)
        ),
    ];
    let slow = of_all > SLOW;
    if slow {
        seen.push_str(
            "; the program reads too slowly, and a larger buffer only outlasts bursts: let it read by several sockets \
             (SO_REUSEPORT), many datagrams at once (recvmmsg)",
        );
    }
    let name = if slow { "slow-reader" } else { "socket-buffer" };
    Some(Advice { name, place: LossPoint::Socket, interface: None, frames: Some(lost), seen, commands })
}

fn tcp(report: &HostReport) -> Vec<Advice> {
    const ACCEPT: &str = "TcpExt.ListenDrops";
    let waiting = report.protocol(ACCEPT);
    let full: u64 = TCP_FULL.iter().filter(|name| **name != ACCEPT).map(|name| report.protocol(name)).sum();
    let advice = |name, count: u64, why: &str, command: &str| {
        (count > 0).then(|| Advice {
            name,
            place: LossPoint::Socket,
            interface: None,
            frames: Some(count),
            seen: format!("{} {why}", counted(count, "frame")),
            commands: vec![command.to_owned()],
        })
    };
    let full = advice(
        "tcp-buffer",
        full,
        "of TCP found a socket's buffer or backlog full; they are sent again",
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432'",
    );
    let waiting = advice(
        "accept-queue",
        waiting,
        "of new connections found a full accept queue",
        "sysctl -w net.core.somaxconn=8192     # and a larger backlog in the program's listen()",
    );
    full.into_iter().chain(waiting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_the_format_of_the_kernel() {
        assert_eq!([1, 2, 8, 32, 33, 72].map(mask), ["1", "3", "ff", "ffffffff", "1,ffffffff", "ff,ffffffff,ffffffff"]);
        assert!(!is_set("00000000,00000000") && is_set("00000002,00000000"));
    }
}
