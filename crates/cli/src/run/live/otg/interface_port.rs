//! Linux interfaces, by packet sockets.

use crate::output::Failure;
use dpdk::{PacketRing, PacketSender, RingConfig};
use otg::{Link, OpenPort, Receive, Transmit};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Opens `interface` as the API's port `name`.
pub(super) fn open(name: &str, text: String, interface: &str) -> Result<OpenPort, Failure> {
    let ring = PacketRing::open(interface, &ring_config()).map_err(Failure::new)?;
    let sender = PacketSender::open(interface).map_err(Failure::new)?;
    Ok(OpenPort {
        name: name.to_owned(),
        text,
        mac: ring.mac().map_err(Failure::new)?,
        mtu: ring.mtu().map_err(Failure::new)?,
        line_bps: line_rate(interface),
        transmit: Box::new(Sender { sender, interface: interface.to_owned() }),
        receive: Box::new(Receiver { ring: Some(ring), interface: interface.to_owned(), lost: 0, whole: Vec::new() }),
        link: Box::new(InterfaceLink(interface.to_owned())),
    })
}

fn ring_config() -> RingConfig {
    RingConfig { block_size: 128 << 10, blocks: 128, timeout_ms: 2, ..RingConfig::default() }
}

/// The speed of a NIC's link. Virtual interfaces have none; the speed they report is fictitious.
fn line_rate(interface: &str) -> Option<u64> {
    let folder = Path::new("/sys/class/net").join(interface);
    if !folder.join("device").exists() {
        return None;
    }
    let mbps: u64 = std::fs::read_to_string(folder.join("speed")).ok()?.trim().parse().ok()?;
    Some(mbps * 1_000_000).filter(|bps| *bps > 0)
}

struct Sender {
    sender: PacketSender,
    interface: String,
}

impl Transmit for Sender {
    fn begin(&mut self) {
        // The kernel wakes a thread late by up to this slack in ns. The default is 50 µs. The kernel accepts any
        // shorter slack.
        let _refused = nix::sys::prctl::set_timerslack(1);
    }

    fn set_raised_priority(&mut self, raised: bool) {
        if raised { dpdk::raise_priority() } else { dpdk::restore_priority() }
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, String> {
        let sent = self.sender.send(frame).map_err(|error| error.to_string());
        // An interface that was deleted and created again has a new index.
        if sent.is_err()
            && let Ok(fresh) = PacketSender::open(&self.interface)
        {
            self.sender = fresh;
        }
        sent
    }
}

struct Receiver {
    /// `None` while the interface does not exist.
    ring: Option<PacketRing>,
    interface: String,
    /// Losses of earlier rings.
    lost: u64,
    whole: Vec<u8>,
}

impl Receive for Receiver {
    fn receive(&mut self, wait: Duration, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), String> {
        let Some(ring) = &mut self.ring else {
            self.ring = Some(PacketRing::open(&self.interface, &ring_config()).map_err(|error| error.to_string())?);
            return Ok(());
        };
        let error = match ring.next(wait) {
            Ok(Some(batch)) => {
                for frame in &batch {
                    if frame.vlan.is_some() {
                        self.whole.clear();
                        frame.write_to(&mut self.whole);
                        each(frame.time_ns, &self.whole);
                    } else {
                        each(frame.time_ns, frame.bytes);
                    }
                }
                return Ok(());
            }
            Ok(None) => return Ok(()),
            Err(error) => error,
        };
        if matches!(error, dpdk::Error::InterfaceGone { .. }) {
            self.lost = self.lost();
            self.ring = None;
        }
        Err(error.to_string())
    }

    fn answer(&mut self, frame: &[u8]) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.send(frame))
    }

    fn lost(&mut self) -> u64 {
        self.lost + self.ring.as_mut().and_then(|ring| ring.counts().ok()).map_or(0, |counts| counts.dropped)
    }
}

struct InterfaceLink(String);

impl Link for InterfaceLink {
    fn is_up(&self) -> bool {
        dpdk::link(&self.0).is_ok_and(|link| link.up && link.carrier)
    }

    fn set(&self, up: bool) -> Result<(), String> {
        set_link(&self.0, up)
    }
}

/// Takes the link of an interface up or down.
pub(super) fn set_link(interface: &str, up: bool) -> Result<(), String> {
    let state = if up { "up" } else { "down" };
    let mut ip = Command::new("ip");
    ip.args(["link", "set", "dev", interface, state]).stdin(Stdio::null());
    let done = ip.output().map_err(|cause| format!("ip cannot be run: {cause}"))?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()) }
}
