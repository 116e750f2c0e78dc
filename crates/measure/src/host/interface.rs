//! Counters of an interface: those of the kernel, with the same names for all interfaces, and those of the driver, with
//! its own names.

use super::kernel;
use std::collections::BTreeMap;

/// Texts of an interface at one instant.
#[derive(Clone, Debug, Default)]
pub struct InterfaceTexts {
    /// The name.
    pub name: String,
    /// The device behind it: a PCI address, or `virtio2`.
    pub device: Option<String>,
    /// The kernel's counters, by file name in `/sys/class/net/NAME/statistics`.
    pub statistics: BTreeMap<String, u64>,
    /// Output of `ethtool -S`; `None` if the driver has no counters.
    pub ethtool: Option<String>,
}

/// Counters of an interface at one instant.
#[derive(Clone, Debug)]
pub(super) struct InterfaceCounters {
    pub(super) name: String,
    /// It has a device on the PCI or virtio bus, and so a wire and a ring.
    pub(super) has_device: bool,
    pub(super) statistics: BTreeMap<String, u64>,
    pub(super) driver: BTreeMap<String, u64>,
    pub(super) interrupts: BTreeMap<String, BTreeMap<usize, u64>>,
}

/// Driver counters of frames per receive queue: the name before and after the queue number, and the drivers that use
/// it.
const QUEUES: [(&str, &str); 13] = [
    ("rx_queue_", "_packets"),       // ixgbe, igb, igc, ice, hv_netvsc; virtio before 6.8
    ("rx-", ".packets"),             // iavf, i40e from 5.1
    ("rx-", ".rx_packets"),          // i40e before, sfc
    ("rx", "_packets"),              // mlx5, mlx4
    ("rx_queue_", "_xdp_packets"),   // veth, which counts here only with GRO or XDP
    ("[", "]: rx_ucast_packets"),    // bnxt
    ("queue_", "_rx_cnt"),           // ena
    ("rx_packets[", "]"),            // gve
    ("rvec_", "_rx_pkts"),           // nfp
    ("rxq", "_packets"),             // hns3
    ("queue[", "] inpackets"),       // atlantic
    ("", ": rcv_pkts"),              // qede
    ("rx queue ", " ucast pkts rx"), // vmxnet3
];

/// Driver counters of frames that found no free descriptor in the ring, or no space in the NIC's memory.
const RING: [&str; 16] = [
    "rx_missed_errors",      // e1000e, igb, igc, ixgbe
    "rx_missed",             // r8169
    "rx_no_dma_resources",   // ixgbe
    "rx_fifo_errors",        // many
    "rx_over_errors",        // many
    "port.rx_dropped",       // i40e before 5.x
    "port.rx_discards",      // i40e
    "rx_dropped.nic",        // ice
    "rx_discards.nic",       // ice, older
    "rx_out_of_buffer",      // mlx5: no descriptor
    "rx_discards_phy",       // mlx5: no space in the port's memory
    "rx_discards",           // tg3, bnxt
    "rx_total_discard_pkts", // bnxt
    "port_rx_nodesc_drops",  // sfc
    "rx_overruns",           // ena
    "pkts rx oob",           // vmxnet3
];

/// Driver counters of a shortage without loss: the NIC found no descriptor and held the frame.
const RING_SIGNS: [&str; 1] = ["rx_no_buffer_count"];

/// The kernel's counters of broken frames; `rx_errors` is their sum.
const WIRE: [&str; 4] = ["rx_crc_errors", "rx_frame_errors", "rx_length_errors", "rx_errors"];

impl InterfaceCounters {
    pub(super) fn read(texts: &InterfaceTexts, interrupts: Option<&str>) -> InterfaceCounters {
        InterfaceCounters {
            name: texts.name.clone(),
            has_device: texts.device.is_some(),
            statistics: texts.statistics.clone(),
            driver: texts.ethtool.as_deref().map(driver_counters).unwrap_or_default(),
            // Without a device there are no interrupts; those with its name belong to an interface of another
            // namespace.
            interrupts: interrupts
                .filter(|_| texts.device.is_some())
                .map(|text| kernel::interrupts(text, &texts.name, texts.device.as_deref()))
                .unwrap_or_default(),
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.statistics.get("rx_packets").copied().unwrap_or(0)
    }

    /// Bytes with FCS. The driver counts without it, so this adds 4 per frame.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.statistics.get("rx_bytes").copied().unwrap_or(0);
        bytes.saturating_add(self.frames().saturating_mul(4))
    }

    /// Frames per receive queue, if the driver counts them.
    pub(super) fn queues(&self) -> BTreeMap<usize, u64> {
        // Uses only the first naming scheme that matches, because some drivers count the same frames under two.
        let of = |(before, after): &(&str, &str)| {
            let number = |name: &str| name.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
            let queues: BTreeMap<usize, u64> =
                self.driver.iter().filter_map(|(name, value)| Some((number(name)?, *value))).collect();
            (!queues.is_empty()).then_some(queues)
        };
        QUEUES.iter().find_map(of).unwrap_or_default()
    }

    /// The driver's and the kernel's counters of frames lost at the ring.
    pub(super) fn ring(&self) -> BTreeMap<String, u64> {
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (name, value) in &self.driver {
            if let Some(name) = RING.iter().find(|ring| without_queue(name) == **ring) {
                let sum = found.entry((*name).to_owned()).or_default();
                *sum = sum.saturating_add(*value);
            }
        }
        // The kernel has these files for every interface, even if the driver never updates them, so a zero means
        // nothing.
        for name in ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"] {
            if let Some(value) = self.statistics.get(name).copied().filter(|value| *value > 0) {
                found.entry(name.to_owned()).or_insert(value);
            }
        }
        found
    }

    /// Counters that indicate a lack of descriptors without loss.
    pub(super) fn signs(&self) -> BTreeMap<String, u64> {
        let named = |name: &&str| Some(((*name).to_owned(), *self.driver.get(*name)?));
        RING_SIGNS.iter().filter_map(named).collect()
    }

    /// Broken frames by kind; `rx_errors`, the sum, is last.
    pub(super) fn wire(&self) -> Vec<(String, u64)> {
        let named = |name: &&str| Some(((*name).to_owned(), *self.statistics.get(*name)?));
        WIRE.iter().filter_map(named).collect()
    }
}

/// Removes the queue from names such as `[3]: rx_discards` and `rx queue 3 pkts rx oob`.
fn without_queue(name: &str) -> &str {
    let bracketed = name.strip_prefix('[').and_then(|rest| Some(rest.split_once("]: ")?.1));
    let numbered = name.strip_prefix("rx queue ").and_then(|rest| Some(rest.split_once(' ')?.1));
    bracketed.or(numbered).unwrap_or(name)
}

/// Parses `ethtool -S` into names in lower case and their values. Values are unsigned; names may contain colons, as in
/// bnxt.
fn driver_counters(text: &str) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    // vmxnet3 prints the number of a queue once, before its counters.
    let mut queue = None;
    for line in text.lines() {
        let Some((name, value)) = line.rsplit_once(':') else { continue };
        let (name, Ok(value)) = (name.trim().to_lowercase(), value.trim().parse::<u64>()) else { continue };
        match name.as_str() {
            "rx queue#" => queue = Some(format!("rx queue {value} ")),
            "tx queue#" => queue = Some(format!("tx queue {value} ")),
            _ => {
                counters.insert(queue.as_deref().unwrap_or_default().to_owned() + &name, value);
            }
        }
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(ethtool: &str) -> InterfaceCounters {
        let texts = InterfaceTexts { name: "eth1".into(), ethtool: Some(ethtool.into()), ..InterfaceTexts::default() };
        InterfaceCounters::read(&texts, None)
    }

    #[test]
    fn finds_queues_under_the_names_of_every_driver() {
        let of = |lines: &str| counters(&format!("NIC statistics:\n{lines}\n")).queues();
        for lines in [
            "     rx_queue_0_packets: 7\n     rx_queue_11_packets: 8\n     rx_queue_0_bytes: 9",
            "     rx-0.packets: 7\n     rx-11.packets: 8\n     tx-0.packets: 5",
            "     rx0_packets: 7\n     rx11_packets: 8\n     rx_packets: 15\n     rx0_bytes: 1",
            "     [0]: rx_ucast_packets: 7\n     [11]: rx_ucast_packets: 8",
            "     queue_0_rx_cnt: 7\n     queue_11_rx_cnt: 8",
            "     Queue[0] InPackets: 7\n     Queue[11] InPackets: 8",
            "  Rx Queue#: 0\n  ucast pkts rx: 7\n  Rx Queue#: 11\n  ucast pkts rx: 8",
        ] {
            assert_eq!(of(lines), BTreeMap::from([(0, 7), (11, 8)]), "{lines}");
        }
        assert!(of("     rx_packets: 15\n     rx_queue_x_packets: 1").is_empty());
    }

    #[test]
    fn finds_ring_losses_under_the_names_of_every_driver() {
        let of = |lines: &str| counters(&format!("NIC statistics:\n{lines}\n")).ring().into_iter().collect::<Vec<_>>();
        let one = |name: &str, value| vec![(name.to_owned(), value)];
        assert_eq!(of("     rx_out_of_buffer: 12\n     tx_dropped: 3"), one("rx_out_of_buffer", 12));
        assert_eq!(of("     [0]: rx_discards: 2\n     [1]: rx_discards: 3"), one("rx_discards", 5));
        assert_eq!(of("     rx_dropped.nic: 0"), one("rx_dropped.nic", 0), "counted, and none");
        assert!(of("     rx0_drops: 4").is_empty(), "a driver's own drops are not those of a ring");
        assert_eq!(counters("x\n rx_no_buffer_count: 4\n").signs().len(), 1);
    }

    #[test]
    fn zeros_of_the_kernel_count_as_unknown() {
        let mut counters = counters("no stats available\n");
        counters.statistics.insert("rx_missed_errors".into(), 0);
        assert!(counters.ring().is_empty());
        counters.statistics.insert("rx_missed_errors".into(), 3);
        assert_eq!(counters.ring().get("rx_missed_errors"), Some(&3));
    }

    #[test]
    fn bytes_include_the_fcs() {
        let statistics = BTreeMap::from([("rx_packets".to_owned(), 10), ("rx_bytes".to_owned(), 600)]);
        let texts = InterfaceTexts { statistics, ..InterfaceTexts::default() };
        assert_eq!(InterfaceCounters::read(&texts, None).bytes(), 640);
    }
}
