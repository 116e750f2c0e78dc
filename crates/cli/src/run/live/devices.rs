//! Converts ports to devices of the data plane and of DPDK.

use crate::output::Failure;
use dataplane::{Device, Driver};
use dpdk::LogLevel;
use scenario::PortSpec;

/// Limit on listed frames of a line, because they are kept in memory until the run has ended.
pub(super) const LISTED: usize = 4_194_304;

pub(super) fn log_level(verbose: u8) -> LogLevel {
    match verbose {
        0 => LogLevel::Quiet,
        1 => LogLevel::Normal,
        _ => LogLevel::Debug,
    }
}

pub(super) fn as_driver(driver: scenario::Driver) -> Driver {
    match driver {
        scenario::Driver::AfXdp => Driver::AfXdp,
        scenario::Driver::AfPacket => Driver::AfPacket,
    }
}

pub(super) fn device(port: &PortSpec) -> Result<Device, Failure> {
    Ok(match port {
        PortSpec::Interface { name, driver, queues } => {
            Device::Interface { name: name.clone(), queues: *queues, driver: driver.map(as_driver) }
        }
        PortSpec::Tap(name) => Device::Tap(name.clone()),
        PortSpec::Pci { address, mtu } => Device::Pci { address: address.clone(), mtu: *mtu },
        PortSpec::Dpdk(arguments) => Device::Vdev(arguments.clone()),
        PortSpec::Null => Device::Null,
        PortSpec::Line(line) => Device::Line {
            slots: line.slots,
            list: if line.frames.is_some() { LISTED } else { 0 },
            keep_fillers: line.keep_fillers,
        },
        PortSpec::Pcap(_) | PortSpec::Wire(_) => return Err(Failure::new(format!("{port} is not a live port"))),
    })
}
