//! Settings of a receiver: rings, queues, and the kernel's limits. Read once, since they rarely change during an
//! observation.

use serde::Serialize;
use std::collections::BTreeMap;

/// The kernel's limits. Most are invisible in network namespaces other than the initial one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Capacity of a CPU's backlog in frames (`net.core.netdev_max_backlog`).
    pub netdev_max_backlog: Option<u64>,
    /// Frames that a CPU processes before it turns to other work (`net.core.netdev_budget`).
    pub netdev_budget: Option<u64>,
    /// Time in µs with the same effect (`net.core.netdev_budget_usecs`, from Linux 4.12).
    pub netdev_budget_usecs: Option<u64>,
    /// Default size of a socket's buffer in bytes (`net.core.rmem_default`).
    pub rmem_default: Option<u64>,
    /// Limit on the buffer size that a program may request, in bytes (`net.core.rmem_max`).
    pub rmem_max: Option<u64>,
    /// Busy-polling time of `poll` and `select` in µs (`net.core.busy_poll`).
    pub busy_poll: Option<u64>,
    /// Busy-polling time of a read in µs (`net.core.busy_read`).
    pub busy_read: Option<u64>,
    /// Number of online CPUs.
    pub cpus: usize,
    /// The watched interfaces, by name.
    #[serde(skip)]
    pub interfaces: BTreeMap<String, InterfaceSettings>,
    /// Owners of UDP sockets, by inode.
    #[serde(skip)]
    pub owners: BTreeMap<u64, Owner>,
}

/// Settings of an interface; `None` if neither driver nor kernel reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InterfaceSettings {
    /// The driver's name.
    pub driver: Option<String>,
    /// Current descriptors per receive ring.
    pub ring: Option<u64>,
    /// Maximum.
    pub ring_max: Option<u64>,
    /// Current receive queues.
    pub queues: Option<u64>,
    /// Maximum.
    pub queues_max: Option<u64>,
    /// Receive queues used by the RSS table.
    pub rss_queues: Option<u64>,
    /// Whether the hash over UDP includes ports, not only addresses.
    pub udp_ports_hashed: Option<bool>,
    /// CPU masks of RPS, in the kernel's format.
    pub rps: Option<Vec<String>>,
}

/// Owner of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The program's name and PID.
    pub program: Option<String>,
    /// Receive buffer in bytes: the kernel's value for `SO_RCVBUF`, including its overhead.
    pub buffer: Option<u64>,
}

impl InterfaceSettings {
    /// Parses the ring size from `ethtool -g`.
    pub fn read_ring(&mut self, text: &str) {
        let (max, now) = halves(text);
        (self.ring_max, self.ring) = (field(max, "RX"), field(now, "RX"));
    }

    /// Parses the number of queues from `ethtool -l`: receive queues and combined ones.
    pub fn read_channels(&mut self, text: &str) {
        let sum = |part: &str| match (field(part, "RX"), field(part, "Combined")) {
            (None, None) => None,
            (own, shared) => Some(own.unwrap_or(0).saturating_add(shared.unwrap_or(0))).filter(|sum| *sum > 0),
        };
        let (max, now) = halves(text);
        (self.queues_max, self.queues) = (sum(max), sum(now));
    }

    /// Parses from `ethtool -x` how many queues the RSS table uses.
    pub fn read_indirection(&mut self, text: &str) {
        let rows = text.lines().skip(1).map_while(|line| {
            let (at, queues) = line.trim().split_once(':')?;
            at.parse::<u64>().ok().map(|_| queues)
        });
        let mut queues: Vec<u64> =
            rows.flat_map(str::split_whitespace).filter_map(|queue| queue.parse().ok()).collect();
        queues.sort_unstable();
        queues.dedup();
        self.rss_queues = Some(queues.len() as u64).filter(|count| *count > 0);
    }

    /// Parses from `ethtool -n NAME rx-flow-hash udp4` whether ports are hashed.
    pub fn read_udp_hash(&mut self, text: &str) {
        let known = text.contains("IP SA") || text.contains("IP DA") || text.contains("L4 bytes");
        self.udp_ports_hashed = known.then(|| text.contains("L4 bytes"));
    }
}

impl Settings {
    /// Parses the owners of sockets from `ss -H -uanmpeO`.
    pub fn read_owners(&mut self, text: &str) {
        let after = |line: &str, mark: &str| {
            let rest = &line[line.find(mark)? + mark.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse::<u64>().ok()
        };
        for line in text.lines() {
            let Some(inode) = after(line, " ino:") else { continue };
            let program = line.find("users:((\"").and_then(|at| {
                let name = line[at + 9..].split('"').next()?;
                Some(match after(&line[at..], "pid=") {
                    Some(pid) => format!("{name} (process {pid})"),
                    None => name.to_owned(),
                })
            });
            self.owners.insert(inode, Owner { program, buffer: after(line, ",rb") });
        }
    }
}

/// The parts with maximum and current values in ethtool's listings.
fn halves(text: &str) -> (&str, &str) {
    text.split_once("Current hardware settings:").unwrap_or((text, ""))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().parse().ok().filter(|value| *value > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_rings_queues_and_hashes_of_ethtool() {
        let mut of = InterfaceSettings::default();
        // ethtool 6.1 on virtio, modified to have a ring that can grow.
        of.read_ring(
            "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\n\
             Current hardware settings:\nRX:\t\t512\nRX Mini:\tn/a\nTX:\t\t256\nRX Buf Len:\t\tn/a\n",
        );
        assert_eq!((of.ring, of.ring_max), (Some(512), Some(4096)));
        of.read_channels(
            "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nCombined:\t8\n\
             Current hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nCombined:\t1\n",
        );
        assert_eq!((of.queues, of.queues_max), (Some(1), Some(8)));
        of.read_indirection(
            "RX flow hash indirection table for eth0 with 4 RX ring(s):\n    0:      0     1     2     3\n    4:      0     1     2     3\n\
             RSS hash key:\n81:22\n",
        );
        assert_eq!(of.rss_queues, Some(4));
        of.read_udp_hash("UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\n\n");
        assert_eq!(of.udp_ports_hashed, Some(false));
        of.read_udp_hash("UDP over IPV4 flows use these fields for computing Hash flow key:\nIP SA\nIP DA\nL4 bytes 0 & 1 [TCP/UDP src port]\n");
        assert_eq!(of.udp_ports_hashed, Some(true));
    }

    #[test]
    fn missing_ethtool_values_are_unknown() {
        let mut of = InterfaceSettings::default();
        for text in
            ["", "netlink error: Operation not supported\n", "RX:\t\tn/a\nCurrent hardware settings:\nRX:\t\t0\n"]
        {
            of.read_ring(text);
            of.read_channels(text);
            of.read_indirection(text);
            of.read_udp_hash(text);
            assert_eq!(of, InterfaceSettings::default(), "{text}");
        }
        let virtio =
            "RX flow hash indirection table for eth0 with 1 RX ring(s):\nOperation not supported\nRSS hash key:\n";
        of.read_indirection(virtio);
        assert_eq!(of.rss_queues, None);
    }

    #[test]
    fn parses_owners_of_sockets() {
        let mut settings = Settings::default();
        // Recorded from ss 6.1.
        settings.read_owners(
            "UNCONN 0      0            0.0.0.0:9000      0.0.0.0:*    users:((\"python3\",pid=41,fd=3)) ino:5511 sk:1 cgroup:/ <-> \
             skmem:(r0,rb212992,t0,tb212992,f4096,w0,o0,bl0,d9041)\nUNCONN 0 0 *:53 *:* ino:77 sk:2 <->\nnonsense\n",
        );
        let of = |inode| settings.owners.get(&inode).cloned().unwrap_or_default();
        assert_eq!(of(5511), Owner { program: Some("python3 (process 41)".into()), buffer: Some(212_992) });
        assert_eq!((of(77), settings.owners.len()), (Owner::default(), 2));
    }
}
