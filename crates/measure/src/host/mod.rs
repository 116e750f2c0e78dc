//! Diagnoses a Linux receiver from its own counters: what arrived, where frames were lost, and how to fix it.
//!
//! Nothing here reads a file or runs a program. The caller collects [`Texts`] (of `/proc`, `/sys` and `ethtool`) at two
//! instants, and [`HostReport::between`] reports what happened in between. A figure that a kernel or driver does not
//! count is *unknown* (`None`, JSON null), never zero; so is a counter that was reset meanwhile.
//!
//! On its way into a Linux host, a frame can be lost at six [`LossPoint`]s, in this order: on the wire (broken), at the
//! ring (no free descriptor), in softnet (a CPU's backlog is full), at the protocol (not for this host, wrong
//! checksum), at the socket (its buffer is full), and elsewhere at the interface (the rest of `rx_dropped`).

mod advice;
mod interface;
mod kernel;
mod report;
mod settings;

pub use advice::Advice;
pub use interface::InterfaceTexts;
pub use report::{Cpu, DropCounter, HostReport, InterfaceReport, LossCounts, LossPoint, Queue, RingSize, SocketReport};
pub use settings::{InterfaceSettings, Owner, Settings};

use interface::InterfaceCounters;
use kernel::{CpuTime, Protocols, Socket, Softnet};
use std::collections::BTreeMap;

/// Contents of kernel files and of `ethtool -S` at one instant; `None` if a file is absent.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// `/proc/net/softnet_stat`: covers all CPUs and all network namespaces.
    pub softnet_stat: Option<String>,
    /// `/sys/devices/system/cpu/online`: identifies the lines of `softnet_stat` before Linux 5.10.
    pub online_cpus: Option<String>,
    /// `/proc/net/snmp` followed by `/proc/net/netstat`.
    pub snmp: Option<String>,
    /// `/proc/net/snmp6`.
    pub snmp6: Option<String>,
    /// `/proc/net/udp` followed by `/proc/net/udp6`.
    pub udp: Option<String>,
    /// `/proc/interrupts`.
    pub interrupts: Option<String>,
    /// `/proc/softirqs`.
    pub softirqs: Option<String>,
    /// `/proc/stat`.
    pub stat: Option<String>,
    /// The watched interfaces.
    pub interfaces: Vec<InterfaceTexts>,
}

/// Counters at one instant.
#[derive(Clone, Debug)]
pub struct Snapshot {
    softnet: Option<Vec<Softnet>>,
    protocols: Option<Protocols>,
    sockets: Option<Vec<Socket>>,
    net_rx: Option<BTreeMap<usize, u64>>,
    times: Option<BTreeMap<usize, CpuTime>>,
    interfaces: Vec<InterfaceCounters>,
}

impl Snapshot {
    /// Parses the texts. Content in an unknown format counts as absent.
    #[must_use]
    pub fn read(texts: &Texts) -> Snapshot {
        let online = texts.online_cpus.as_deref().map(kernel::cpu_list).unwrap_or_default();
        let mut protocols = texts.snmp.as_deref().and_then(kernel::paired_lines);
        if let (Some(protocols), Some(text)) = (&mut protocols, texts.snmp6.as_deref()) {
            protocols.extend(kernel::named_values(text));
        }
        Snapshot {
            softnet: texts.softnet_stat.as_deref().and_then(|text| kernel::softnet(text, &online)),
            protocols,
            sockets: texts.udp.as_deref().map(kernel::sockets),
            net_rx: texts.softirqs.as_deref().and_then(|text| kernel::softirq(text, "NET_RX")),
            times: texts.stat.as_deref().and_then(kernel::cpu_times),
            interfaces: texts
                .interfaces
                .iter()
                .map(|texts_of_one| InterfaceCounters::read(texts_of_one, texts.interrupts.as_deref()))
                .collect(),
        }
    }
}

/// The number of CPUs in a list such as `0-3,8`.
#[must_use]
pub fn count_cpus(list: &str) -> usize {
    kernel::cpu_list(list).len()
}

/// Increase of a counter; `None` if it was reset or is missing.
fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}
