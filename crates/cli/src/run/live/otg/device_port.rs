//! Ports of DPDK: NICs, virtual devices, TAP devices, and interfaces with XDP sockets.

use super::interface_port::set_link;
use crate::output::Failure;
use crate::run::live::devices::device;
use crate::run::live::nic_links;
use crate::run::stop::Stop;
use dataplane::{ArrivalQueues, DuplexPort, FrameSender};
use dpdk::{Eal, EalConfig, LogLevel, Port};
use otg::{Link, OpenPort, Receive, Transmit};
use packet::MacAddr;
use scenario::PortSpec;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Interval between reads of a port's counters, which may take a NIC some microseconds.
const COUNTERS: Duration = Duration::from_millis(100);

/// DPDK, started for some ports.
pub(super) struct Dpdk<'s> {
    eal: &'static Eal,
    stop: &'s Stop,
}

impl<'s> Dpdk<'s> {
    /// Starts DPDK with memory for these ports; `None` if there are none.
    pub(super) fn start(ports: &[&PortSpec], log: LogLevel, stop: &'s Stop) -> Result<Option<Dpdk<'s>>, Failure> {
        if ports.is_empty() {
            return Ok(None);
        }
        let mut config = EalConfig::new("netlathe").memory_mib(ports.len() as u32 * DuplexPort::memory_mib()).log(log);
        for port in ports {
            if let Some(address) = device(port)?.pci() {
                config = config.pci(address);
            }
        }
        let eal = Eal::init(&config).map_err(Failure::new)?;
        Ok(Some(Dpdk { eal, stop }))
    }

    /// Opens a port, and waits a few seconds for its link.
    pub(super) fn open(&self, name: &str, spec: &PortSpec) -> Result<OpenPort, Failure> {
        let duplex = DuplexPort::open(self.eal, &device(spec)?).map_err(Failure::new)?;
        nic_links::await_links(duplex.port.nic_link(), || self.stop.asked());
        let mac = MacAddr(duplex.info().map_err(Failure::new)?.mac);
        let line_bps = duplex.line_bps();
        let DuplexPort { sender, queues, port, mtu } = duplex;
        Ok(OpenPort {
            name: name.to_owned(),
            text: spec.to_string(),
            mac,
            mtu,
            line_bps,
            transmit: Box::new(Sender(sender.clone())),
            receive: Box::new(Receiver { queues, sender, port: Arc::clone(&port), lost: 0, looked: None }),
            link: Box::new(PortLink { port, text: spec.to_string() }),
        })
    }
}

struct Sender(FrameSender);

impl Transmit for Sender {
    fn begin(&mut self) {
        // The kernel wakes a thread late by up to this slack in ns. The default is 50 µs.
        let _refused = nix::sys::prctl::set_timerslack(1);
    }

    fn set_raised_priority(&mut self, raised: bool) {
        if raised { dpdk::raise_priority() } else { dpdk::restore_priority() }
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, String> {
        self.0.send(frame).map_err(|error| error.to_string())
    }
}

struct Receiver {
    queues: ArrivalQueues,
    sender: FrameSender,
    port: Arc<Port>,
    lost: u64,
    /// When the counters were read.
    looked: Option<Instant>,
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
        // The stamp is UNIX time, which the kernel adjusts. One reading serves the whole burst, because all of its
        // frames had arrived by then.
        let mut now = None;
        self.queues.next(wait, |frame| {
            let now = *now.get_or_insert_with(|| {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                since.as_nanos() as u64
            });
            each(now, frame.bytes);
        });
        Ok(())
    }

    fn answer(&mut self, frame: &[u8]) -> bool {
        self.sender.send(frame).unwrap_or(false)
    }

    fn lost(&mut self) -> u64 {
        if self.looked.is_none_or(|at| at.elapsed() >= COUNTERS) {
            self.looked = Some(Instant::now());
            // A device that has disappeared keeps its last count.
            self.lost = self.port.stats().map_or(self.lost, |s| s.rx_missed + s.rx_no_buffer + s.rx_errors);
        }
        self.lost
    }
}

struct PortLink {
    port: Arc<Port>,
    text: String,
}

impl Link for PortLink {
    fn is_up(&self) -> bool {
        self.port.info().is_ok_and(|info| info.link_up)
    }

    fn set(&self, up: bool) -> Result<(), String> {
        match self.port.interface() {
            Some(interface) => set_link(interface.name(), up),
            None => Err(format!("netlathe does not take the link of {} up or down: do it at the other end", self.text)),
        }
    }
}
