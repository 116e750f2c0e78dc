use crate::Error;
use dpdk::{Eal, LaunchTime, Pool, Port, PortConfig, Started, Vdev};

/// A live port, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A Linux interface.
    Interface {
        /// The name.
        name: String,
        /// The driver; the best that works if `None`.
        driver: Option<Driver>,
        /// Queues per direction; if `None`, as many as the driver needs to receive everything.
        queues: Option<u16>,
    },
    /// A TAP device that we create.
    Tap(String),
    /// A TAP device that we create for an interface whose traffic is diverted through it. The kernel sends nothing of
    /// its own there.
    Detour(String),
    /// A NIC bound to DPDK.
    Pci {
        /// The PCI address.
        address: String,
        /// The MTU; the driver's if `None`.
        mtu: Option<u16>,
    },
    /// Any EAL device.
    Vdev(String),
    /// Discards frames.
    Null,
    /// A line without a NIC: a ring that drains at line rate.
    Line {
        /// Capacity of the ring in frames.
        slots: u32,
        /// Limit on listed frames.
        list: usize,
        /// Lists fillers, too.
        keep_fillers: bool,
    },
}

/// How to access a Linux interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP sockets.
    AfXdp,
    /// AF_PACKET sockets.
    AfPacket,
}

/// The frames that a pipeline reads from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveMode {
    /// All frames that arrive, because each counts. A NIC distributes them by flow to this number of queues. An
    /// interface has at least this number of queues.
    All {
        /// The number of queues.
        queues: u16,
    },
    /// Frames that may be for us. Frames on further queues may be missed.
    Some,
    /// None.
    Nothing,
}

/// The largest MTU that AF_XDP's one-page buffers hold.
const XDP_MTU: u32 = 3_400 - 18;

/// The largest MTU for which buffers of 2048 B are enough with any driver.
const SMALL_MTU: u32 = 1_950;

/// Number of buffers of AF_XDP's driver: 40 ms of 50 000 frames/s.
const XDP_RING: u16 = 2_048;

/// Checks that DPDK's AF_XDP driver can have `wanted` queues of an interface, and that they include all queues that
/// must be read.
fn xdp_has(name: &str, link: &dpdk::Link, wanted: u16, receives: bool) -> Result<(), Error> {
    let (has, most) = (link.rx_queues, link.xdp_queues);
    let cause = if wanted > most && has > most {
        format!("it receives on {has} queues, and af_xdp can use only the {most} that also send")
    } else if wanted > most {
        format!("af_xdp needs {wanted} queues, but only {most} of its queues receive and send")
    } else if receives && wanted < has {
        format!("it receives on {has} queues, and with queues={wanted} frames on the others would be lost")
    } else {
        return Ok(());
    };
    let remedy = if has > most {
        format!("`ethtool -L {} rx 1 tx 1`, of a veth at both ends, or write driver=af_packet", units::quoted(name))
    } else if wanted > most {
        format!("write queues={most}, or driver=af_packet")
    } else {
        format!("write queues={has}, or `ethtool -L {} combined {wanted}`", units::quoted(name))
    };
    Err(Error::Queues { interface: name.to_owned(), cause, remedy })
}

/// A running port.
pub(crate) struct Opened {
    pub(crate) started: Started,
    /// The driver it was opened with, for the report.
    pub(crate) driver: String,
}

impl Device {
    /// The MTU of the port's frames.
    pub(crate) fn mtu(&self) -> Result<u32, Error> {
        match self {
            Device::Interface { name, .. } => Ok(dpdk::link(name)?.mtu),
            Device::Pci { mtu, .. } => Ok(mtu.unwrap_or(1_500).into()),
            Device::Tap(_) | Device::Detour(_) | Device::Vdev(_) | Device::Null | Device::Line { .. } => Ok(1_500),
        }
    }

    /// Bytes that a pool's buffers must hold for frames of this MTU with any driver. AF_XDP reserves 256 B of each.
    pub(crate) fn data_room(mtu: u32) -> u16 {
        // DPDK's buffers hold no more.
        const MOST: u32 = 65_407;
        if mtu <= SMALL_MTU { 2_048 } else { (mtu + 18 + 256).min(MOST) as u16 }
    }

    /// Opens and starts the port. For an interface without a stated driver, tries AF_XDP first and falls back to
    /// AF_PACKET.
    ///
    /// The port has at least `senders` transmit queues. With [`ReceiveMode::All`], no frame may arrive on a queue that
    /// is not read. `mtu_of_nic` is the minimum MTU that a NIC bound to DPDK needs for fillers.
    pub(crate) fn open(
        &self,
        eal: &'static Eal,
        pool: &Pool,
        launch_time: LaunchTime,
        senders: u16,
        reads: ReceiveMode,
        mtu_of_nic: Option<u16>,
    ) -> Result<Opened, Error> {
        let receivers = if let ReceiveMode::All { queues } = reads { queues.max(1) } else { 1 };
        let tx_queues = senders.max(1);
        let mut config = PortConfig { launch_time, rx_queues: receivers, tx_queues, ..PortConfig::default() };
        if matches!(self, Device::Interface { .. }) {
            (config.rx_descriptors, config.tx_descriptors) = (XDP_RING, XDP_RING);
        }
        let started = |port: Port| -> Result<Opened, Error> {
            let started = port.start()?;
            let driver = started.port.info()?.driver;
            Ok(Opened { started, driver })
        };
        let start = |device: &str, config: &PortConfig| started(Port::open(eal, device, pool, config)?);
        match self {
            Device::Interface { name, driver, queues } => {
                let link = dpdk::link(name)?;
                if !link.up {
                    return Err(dpdk::Error::InterfaceDown { name: name.clone() }.into());
                }
                // One packet socket receives from all queues; an XDP socket receives from its own queue.
                let packet = || {
                    let tx_queues = queues.unwrap_or(1).max(senders);
                    let rx_queues = if reads == ReceiveMode::Nothing { 0 } else { queues.unwrap_or(1) };
                    started(Port::packet(name, pool, &PortConfig { rx_queues, tx_queues, ..config.clone() })?)
                };
                let xdp = || {
                    let wanted = queues.unwrap_or(link.rx_queues).max(senders).max(receivers);
                    xdp_has(name, &link, wanted, matches!(reads, ReceiveMode::All { .. }))?;
                    let queues = wanted;
                    // The buffers of all rings come from one pool.
                    let ring = (XDP_RING / queues.next_power_of_two()).max(64);
                    let each = PortConfig { rx_queues: queues, tx_queues: queues, ..config.clone() };
                    let each = PortConfig { rx_descriptors: ring, tx_descriptors: ring, ..each };
                    start(Vdev::af_xdp(name, queues).as_str(), &each)
                };
                match driver {
                    Some(Driver::AfPacket) => packet(),
                    Some(Driver::AfXdp) => xdp(),
                    None if link.mtu > XDP_MTU => packet(),
                    None => match xdp() {
                        // Do not fall back: beside such a program, af_packet would receive nothing, or frames meant
                        // for others.
                        Err(Error::Dpdk(taken @ (dpdk::Error::XdpInUse { .. } | dpdk::Error::XdpProgram { .. }))) => {
                            Err(taken.into())
                        }
                        Err(_) => packet(),
                        opened => opened,
                    },
                }
            }
            // The TAP driver has a receive queue per transmit queue.
            Device::Tap(name) => {
                let queues = tx_queues.max(receivers);
                start(Vdev::tap(name).as_str(), &PortConfig { rx_queues: queues, tx_queues: queues, ..config.clone() })
            }
            Device::Detour(tap) => {
                let port = Port::open(eal, Vdev::tap(tap), pool, &config)?;
                // Before the link is up, so that IPv6 sends nothing on it.
                dpdk::seclude(tap)?;
                started(port)
            }
            Device::Pci { address, mtu } => start(address, &PortConfig { mtu: mtu_of_nic.max(*mtu), ..config.clone() }),
            Device::Vdev(arguments) => start(arguments, &config),
            Device::Null => start(Vdev::null().as_str(), &config),
            Device::Line { slots, .. } => started(Port::ring(eal, *slots, 1, pool)?),
        }
    }

    /// True if neither the driver nor a receiver writes to the frames that `driver` sends.
    pub(crate) fn leaves_frames(&self, driver: &str) -> bool {
        let known = ["net_null", "net_af_packet", "net_tap"].contains(&driver);
        known || matches!(self, Device::Pci { .. } | Device::Line { .. })
    }

    /// Capacity of the transmit queue in frames, if we set it.
    pub(crate) fn slots(&self) -> Option<u32> {
        match self {
            Device::Line { slots, .. } => Some(*slots),
            _ => None,
        }
    }

    /// Whether frames for the return path may arrive on it.
    pub(crate) fn gives(&self) -> bool {
        !matches!(self, Device::Null | Device::Line { .. })
    }

    /// Whether a neighbour may send requests. The endless frames of `net_null` come from no neighbour.
    pub(crate) fn has_neighbours(&self, driver: &str) -> bool {
        self.gives() && driver != "net_null"
    }

    /// Whether a port may have any number of transmit queues. A line has one, and shared memory (memif) connects only if
    /// its other end has as many.
    #[must_use]
    pub fn has_queues(&self) -> bool {
        match self {
            Device::Line { .. } => false,
            Device::Vdev(arguments) => !arguments.contains("memif"),
            _ => true,
        }
    }

    /// The PCI address to pass to EAL.
    #[must_use]
    pub fn pci(&self) -> Option<&str> {
        match self {
            Device::Pci { address, .. } => Some(address),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_queues_that_are_not_read() {
        let with = |rx_queues, xdp_queues, wanted, receives| {
            let link =
                dpdk::Link { mtu: 1_500, up: true, carrier: true, rx_queues, xdp_queues, index: 1, ethernet: true };
            xdp_has("eth1", &link, wanted, receives).map_err(|error| error.to_string())
        };
        // A NIC with four queues: all of them, or fewer if nothing is received.
        assert_eq!((with(4, 4, 4, true), with(4, 4, 1, false), with(1, 1, 1, true)), (Ok(()), Ok(()), Ok(())));
        let few = with(4, 4, 3, true).expect_err("one is not read");
        assert!(few.contains("queues=3") && few.ends_with("write queues=4, or `ethtool -L eth1 combined 3`"), "{few}");
        let many = with(4, 4, 5, false).expect_err("there is no fifth");
        assert!(many.ends_with("write queues=4, or driver=af_packet"), "{many}");
        // A veth pair with two queues per direction.
        for (wanted, receives) in [(1, true), (2, true), (2, false)] {
            let split = with(2, 1, wanted, receives).expect_err("one at most, and two receive");
            assert!(
                split.ends_with("`ethtool -L eth1 rx 1 tx 1`, of a veth at both ends, or write driver=af_packet"),
                "{split}"
            );
        }
    }
}
