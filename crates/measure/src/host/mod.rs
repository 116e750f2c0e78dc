//! A Linux receiver by its own counters: what arrived, where frames were lost, and what would mend it.
//!
//! Nothing here reads a file or runs a program: the caller gathers [`Texts`] (of `/proc`, `/sys` and `ethtool`) at two
//! moments, and [`HostReport::between`] says what happened in that time. What a kernel or driver does not count is
//! *unknown* (`None`, JSON null), never zero; so is a counter that was set back meanwhile.
//!
//! A frame on its way into a Linux host can be lost at six [`Place`]s, in this order: on the wire (broken), at the ring
//! (no free descriptor), in softnet (a CPU's backlog is full), at the protocol (not for this host, wrong checksum),
//! at the socket (its buffer is full), and at the interface's rest (`rx_dropped` beyond these).

mod advice;
mod interface;
mod kernel;
mod report;
mod settings;

pub use advice::Advice;
pub use interface::InterfaceTexts;
pub use report::{Cpu, Drop, HostReport, InterfaceReport, Lost, Place, Queue, RingSize, SocketReport};
pub use settings::{InterfaceSettings, Owner, Settings};

use interface::InterfaceCounters;
use kernel::{CpuTime, Protocols, Socket, Softnet};
use std::collections::BTreeMap;

/// The texts of the kernel's files and of `ethtool -S` at one moment; none where a file is absent.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// `/proc/net/softnet_stat`: every CPU's, whatever the network namespace.
    pub softnet_stat: Option<String>,
    /// `/sys/devices/system/cpu/online`: which CPUs the lines of `softnet_stat` are of, before Linux 5.10.
    pub online_cpus: Option<String>,
    /// `/proc/net/snmp` and `/proc/net/netstat`, one after the other.
    pub snmp: Option<String>,
    /// `/proc/net/snmp6`.
    pub snmp6: Option<String>,
    /// `/proc/net/udp` and `/proc/net/udp6`, one after the other.
    pub udp: Option<String>,
    /// `/proc/interrupts`.
    pub interrupts: Option<String>,
    /// `/proc/softirqs`.
    pub softirqs: Option<String>,
    /// `/proc/stat`.
    pub stat: Option<String>,
    /// Of each interface that is watched.
    pub interfaces: Vec<InterfaceTexts>,
}

/// Counters at one moment.
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
    /// Reads the texts. What is not as any kernel writes it is as good as absent.
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

/// How many CPUs a list such as `0-3,8` names.
#[must_use]
pub fn count_cpus(list: &str) -> usize {
    kernel::cpu_list(list).len()
}

/// What a counter grew by; none if it was set back, or is not there.
fn grown(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    after?.checked_sub(before?)
}
