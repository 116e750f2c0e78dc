//! Parses the kernel's counters, from Linux 2.6.35 to 6.18.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Protocol counters, such as `Udp.RcvbufErrors`, `TcpExt.ListenDrops`, `Udp6RcvbufErrors`.
pub(super) type Protocols = BTreeMap<String, u64>;

/// A CPU's line of `/proc/net/softnet_stat`. These counters have 32 bits and wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Softnet {
    pub(super) cpu: usize,
    /// Frames processed by this CPU.
    pub(super) processed: u32,
    /// Frames that found the CPU's backlog full.
    pub(super) dropped: u32,
    /// Times that the CPU stopped with work left because of `netdev_budget` or `netdev_budget_usecs`.
    pub(super) time_squeeze: u32,
    /// Wake-ups by another CPU through RPS.
    pub(super) received_rps: Option<u32>,
    /// Frames dropped in favour of smaller flows.
    pub(super) flow_limit: Option<u32>,
}

/// Parses `/proc/net/softnet_stat`: 10 columns from Linux 2.6.35 (RPS), 11 from 3.11 (flow limit), 13 from 5.10
/// (backlog, CPU number), 15 from 6.6. Without CPU numbers, the n-th line belongs to the n-th online CPU.
pub(super) fn softnet(text: &str, online: &[usize]) -> Option<Vec<Softnet>> {
    let line = |(nth, line): (usize, &str)| {
        let columns: Vec<u32> =
            line.split_whitespace().map(|column| u32::from_str_radix(column, 16).ok()).collect::<Option<_>>()?;
        let cpu = columns.get(12).map(|cpu| *cpu as usize).or_else(|| online.get(nth).copied()).unwrap_or(nth);
        Some(Softnet {
            cpu,
            processed: *columns.first()?,
            dropped: *columns.get(1)?,
            time_squeeze: *columns.get(2)?,
            received_rps: columns.get(9).copied(),
            flow_limit: columns.get(10).copied(),
        })
    };
    let cpus: Vec<Softnet> = text.lines().enumerate().map(line).collect::<Option<_>>()?;
    (!cpus.is_empty()).then_some(cpus)
}

/// Parses a list such as `0-3,8`, the kernel's format of CPU sets.
pub(super) fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    };
    // No machine has more CPUs; a larger number does not come from the kernel.
    const MOST: usize = 65_536;
    let ranges = text.trim().split(',').filter_map(range);
    ranges.flat_map(|(first, last)| first..=last.min(first.saturating_add(MOST))).collect()
}

/// Parses pairs of lines with a common prefix, names then values, as in `/proc/net/snmp` and `/proc/net/netstat`.
pub(super) fn paired_lines(text: &str) -> Option<Protocols> {
    let mut counters = Protocols::new();
    let mut names: Option<(&str, &str)> = None;
    for line in text.lines() {
        let (prefix, rest) = line.split_once(':')?;
        match names.take() {
            Some((before, columns)) if before == prefix => {
                for (name, value) in columns.split_whitespace().zip(rest.split_whitespace()) {
                    // Tcp.MaxConn may be -1, which is not a count.
                    if let Ok(value) = value.parse() {
                        counters.insert(format!("{prefix}.{name}"), value);
                    }
                }
            }
            _ => names = Some((prefix, rest)),
        }
    }
    (!counters.is_empty()).then_some(counters)
}

/// Parses lines of a name and a value, as in `/proc/net/snmp6`.
pub(super) fn named_values(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    })
}

/// A UDP socket and its drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub(super) inode: u64,
    pub(super) local: SocketAddr,
    pub(super) drops: u64,
}

/// Parses `/proc/net/udp` and `/proc/net/udp6`. Kernels before 2.6.27 lack the last column, and so the drops.
pub(super) fn sockets(text: &str) -> Vec<Socket> {
    let line = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        Some(Socket {
            local: address(columns.get(1)?)?,
            inode: columns.get(9)?.parse().ok()?,
            drops: columns.get(12)?.parse().ok()?,
        })
    };
    text.lines().filter_map(line).collect()
}

/// Parses `0100007F:0035`: an address as 32-bit words in the machine's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok().map(u32::to_ne_bytes))
        .collect::<Option<Vec<[u8; 4]>>>()?;
    let address = match words.as_slice() {
        [word] => IpAddr::V4(Ipv4Addr::from(*word)),
        [_, _, _, _] => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// CPU time in kernel ticks since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTime {
    pub(super) total: u64,
    /// Including I/O wait.
    pub(super) idle: u64,
    /// Hard and soft interrupts.
    pub(super) interrupts: u64,
}

/// Parses the CPU lines of `/proc/stat`.
pub(super) fn cpu_times(text: &str) -> Option<BTreeMap<usize, CpuTime>> {
    let line = |line: &str| {
        let (cpu, rest) = line.strip_prefix("cpu")?.split_once(' ')?;
        let ticks: Vec<u64> = rest.split_whitespace().map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
        let at = |column: usize| ticks.get(column).copied().unwrap_or(0);
        // Guest time is included in user and nice.
        let total = ticks.iter().take(8).fold(0_u64, |sum, tick| sum.saturating_add(*tick));
        let (idle, interrupts) = (at(3).saturating_add(at(4)), at(5).saturating_add(at(6)));
        Some((cpu.parse().ok()?, CpuTime { total, idle, interrupts }))
    };
    let cpus: BTreeMap<usize, CpuTime> = text.lines().filter_map(line).collect();
    (!cpus.is_empty()).then_some(cpus)
}

/// Parses a row of `/proc/softirqs`, by CPU.
pub(super) fn softirq(text: &str, name: &str) -> Option<BTreeMap<usize, u64>> {
    let (cpus, rows) = by_cpu(text)?;
    let row = rows.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    Some(cpus.into_iter().zip(row.split_whitespace().map_while(|count| count.parse().ok())).collect())
}

/// The interrupts of a device's receive queues by name and CPU, from `/proc/interrupts`. Drivers name them after the
/// interface (`eth0-rx-1`, `i40e-eth0-TxRx-3`) or the device (`mlx5_comp3@pci:0000:03:00.0`, `virtio2-input.0`).
pub(super) fn interrupts(text: &str, interface: &str, device: Option<&str>) -> BTreeMap<String, BTreeMap<usize, u64>> {
    let Some((cpus, rows)) = by_cpu(text) else { return BTreeMap::new() };
    let row = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let counts: BTreeMap<usize, u64> =
            cpus.iter().copied().zip(rest.split_whitespace().map_while(|count| count.parse().ok())).collect();
        let name = rest.split_whitespace().last()?;
        (counts.len() == cpus.len() && is_of(name, interface, device)).then(|| (name.to_owned(), counts))
    };
    rows.lines().filter_map(row).collect()
}

/// Whether an interrupt of this name signals received frames.
fn is_of(name: &str, interface: &str, device: Option<&str>) -> bool {
    let lower = name.to_lowercase();
    if ["output", "config", "-tx-", "async", "event", "control", "misc"].iter().any(|other| lower.contains(other)) {
        return false;
    }
    let whole = |part: &str| {
        name.match_indices(part).any(|(at, _)| {
            let ends = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
            let before = at.checked_sub(1).and_then(|at| name.as_bytes().get(at));
            ends(before) && ends(name.as_bytes().get(at + part.len()))
        })
    };
    whole(interface) || device.is_some_and(whole)
}

/// The CPUs in a table's header, and the rows below it.
fn by_cpu(text: &str) -> Option<(Vec<usize>, &str)> {
    let (header, rows) = text.split_once('\n')?;
    let cpus: Vec<usize> =
        header.split_whitespace().map(|cpu| cpu.strip_prefix("CPU")?.parse().ok()).collect::<Option<_>>()?;
    (!cpus.is_empty()).then_some((cpus, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_softnet_of_all_kernels() {
        let old = "0000ffff 00000002 00000003 00000000 00000000 00000000 00000000 00000000 00000000 00000005\n";
        let cpu = softnet(old, &[]).expect("2.6.35")[0];
        assert_eq!((cpu.cpu, cpu.processed, cpu.dropped, cpu.time_squeeze), (0, 65_535, 2, 3));
        assert_eq!((cpu.received_rps, cpu.flow_limit), (Some(5), None));

        // 4.x has the flow limit but no CPU numbers; CPU 1 is offline here.
        let middle = format!("{} 00000007\n{} 00000008\n", old.trim(), old.trim());
        let cpus = softnet(&middle, &cpu_list("0,2-3\n")).expect("4.19");
        assert_eq!(cpus.iter().map(|cpu| (cpu.cpu, cpu.flow_limit)).collect::<Vec<_>>(), [(0, Some(7)), (2, Some(8))]);

        // 5.10 numbers its lines; 6.6 adds the lengths of two queues.
        let numbered = format!("{} 00000007 00000000 0000000a\n", old.trim());
        assert_eq!(softnet(&numbered, &[0]).expect("5.10")[0].cpu, 10);
        assert_eq!(softnet(&format!("{} 0 0\n", numbered.trim()), &[0]).expect("6.6")[0].cpu, 10);

        for broken in ["", "00000001 zz 00000000\n", "00000001\n", "\n"] {
            assert_eq!(softnet(broken, &[]), None, "{broken:?}");
        }
    }

    #[test]
    fn parses_pairs_of_lines() {
        let text = "Tcp: MaxConn InSegs\nTcp: -1 5\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 890 1 7\n";
        let counters = paired_lines(text).expect("counters");
        assert_eq!(counters.get("Udp.RcvbufErrors"), Some(&7));
        assert_eq!((counters.get("Tcp.MaxConn"), counters.get("Tcp.InSegs")), (None, Some(&5)));
        assert_eq!(paired_lines("no colon here"), None);
    }

    #[test]
    fn parses_drops_of_sockets() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            \x20 123: 64644D0A:1F90 00000000:0000 07 00000000:00034200 00:00000000 00000000     0        0 5511 2 00000000deadbeef 9041\n\
            \x20 124: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 77 2 0 0\n";
        let found = sockets(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].local.to_string().as_str(), found[0].drops), ("10.77.100.100:8080", 9041));
        assert_eq!((found[1].local.to_string().as_str(), found[1].inode), ("[::1]:53", 77));
    }

    #[test]
    fn parses_cpu_times() {
        let text = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu3 10 0 20 60 5 1 4 0 0 0\nintr 5\n";
        let times = cpu_times(text).expect("one CPU");
        assert_eq!(times.get(&3), Some(&CpuTime { total: 100, idle: 65, interrupts: 5 }));
        assert_eq!(times.len(), 1, "the sum is not a CPU");
    }

    #[test]
    fn finds_interrupts_by_interface_or_device() {
        let text = "           CPU0       CPU2\n 34:   10   0  PCI-MSI 1-edge  i40e-eno1-TxRx-0\n 35:   0   7  PCI-MSI 2-edge  i40e-eno10-TxRx-0\n\
            \x20 38:   5   6  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n 39:  1 1 PCI-MSIX 2-edge virtio2-output.0\n\
            \x20 40:  3 4 IR-PCI-MSI 9-edge mlx5_comp3@pci:0000:03:00.0\nLOC: 1 2 Local timer interrupts\nERR: 0\n";
        let names = |interface, device| interrupts(text, interface, device).into_keys().collect::<Vec<_>>();
        assert_eq!(names("eno1", None), ["i40e-eno1-TxRx-0"]);
        assert_eq!(names("eth0", Some("virtio2")), ["virtio2-input.0"]);
        assert_eq!(names("eth1", Some("0000:03:00.0")), ["mlx5_comp3@pci:0000:03:00.0"]);
        assert_eq!(interrupts(text, "eno1", None)["i40e-eno1-TxRx-0"], BTreeMap::from([(0, 10), (2, 0)]));
        assert_eq!(softirq("  CPU0 CPU1\n HI: 1 2\n NET_RX: 7 8\n", "NET_RX"), Some(BTreeMap::from([(0, 7), (1, 8)])));
    }
}
