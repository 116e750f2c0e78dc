//! The receiving thread of one port. It counts and captures frames, answers requests and learns neighbours.

use crate::capture::Capture;
use crate::config::{DeviceTag, Interface};
use crate::flow::FCS;
use crate::frame::Signature;
use crate::meters::{FlowMeters, PortMeters};
use crate::wire::Receive;
use packet::layers::{LayerKind, Layers};
use packet::{Headers, MacAddr, Stamp, hardware_address, write_reply};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a receiver waits between checks for its end.
const WAIT: Duration = Duration::from_millis(50);

/// Locks a mutex even if it is poisoned: the data are consistent after each statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flows, keyed by the bytes at certain offsets of their frames. Flows with the same bytes differ in other fields.
type FlowsByBytes = HashMap<Vec<u8>, Vec<(Signature, Arc<FlowMeters>)>>;

/// The expected flows of one port.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The stream number of the first flow.
    pub(crate) first_stream: u16,
    /// Per flow; `None` for flows to other ports.
    pub(crate) flows: Vec<Option<Arc<FlowMeters>>>,
    /// Flows whose frames are too short for a stamp, identified by the bytes that all their frames share.
    pub(crate) unstamped: Vec<(Vec<usize>, FlowsByBytes)>,
    /// Non-zero numbers of bytes that follow the stamps in some of its flows.
    pub(crate) trailers: Vec<usize>,
    /// Interfaces of devices on this port, with their numbers in the configuration.
    pub(crate) interfaces: Vec<(usize, Interface)>,
}

impl Expected {
    /// Adds a flow that is identified by `signature`. Returns false if one of its frames may look like a frame of
    /// another flow.
    pub(crate) fn add_unstamped(&mut self, signature: Signature, meters: &Arc<FlowMeters>) -> bool {
        let is_like = |(other, _): &(Signature, Arc<FlowMeters>)| signature.is_like(other);
        let is_taken = self.unstamped.iter().any(|(places, flows)| {
            if *places == signature.places {
                flows.get(&signature.bytes).is_some_and(|flows| flows.iter().any(is_like))
            } else {
                flows.values().flatten().any(is_like)
            }
        });
        let group = match self.unstamped.iter().position(|(places, _)| *places == signature.places) {
            Some(group) => group,
            None => {
                self.unstamped.push((signature.places.clone(), HashMap::new()));
                self.unstamped.len() - 1
            }
        };
        let bytes = signature.bytes.clone();
        self.unstamped[group].1.entry(bytes).or_default().push((signature, Arc::clone(meters)));
        !is_taken
    }

    /// The stamp of a frame. Headers do not always announce their contents, so the stamp is also searched before each
    /// known trailer.
    fn stamp(&self, frame: &[u8]) -> Option<Stamp> {
        let before = |trailer: &usize| Stamp::of(&frame[..frame.len().checked_sub(*trailer)?]);
        Stamp::of(frame).or_else(|| self.trailers.iter().find_map(before))
    }

    fn unstamped_flow(&self, frame: &[u8]) -> Option<&Arc<FlowMeters>> {
        self.unstamped.iter().find_map(|(places, flows)| {
            let bytes: Option<Vec<u8>> = places.iter().map(|at| frame.get(*at).copied()).collect();
            let found = flows.get(&bytes?)?.iter().find(|(signature, _)| signature.fits(frame));
            found.map(|(_, meters)| meters)
        })
    }
}

/// Hardware addresses of neighbours that have answered, per interface.
#[derive(Debug, Default)]
pub(crate) struct Neighbours(Mutex<HashMap<(usize, IpAddr), MacAddr>>);

impl Neighbours {
    pub(crate) fn get(&self, interface: usize, address: IpAddr) -> Option<MacAddr> {
        lock(&self.0).get(&(interface, address)).copied()
    }

    pub(crate) fn set(&self, interface: usize, address: IpAddr, mac: MacAddr) {
        lock(&self.0).insert((interface, address), mac);
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// An answer that a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The hardware address of a neighbour of this interface.
    Neighbour { interface: usize, address: IpAddr, tags: Vec<DeviceTag> },
    /// The echo with this identifier, from the first address to the second.
    Echo { from: IpAddr, to: IpAddr, identifier: u16, tags: Vec<DeviceTag>, arrived: bool },
}

/// State that a receiver shares with requests.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) meters: PortMeters,
    pub(crate) capture: Mutex<Capture>,
    pub(crate) expected: Mutex<Arc<Expected>>,
    pub(crate) awaited: Mutex<Vec<Awaited>>,
    /// Why reception is not possible at the moment, if so.
    pub(crate) fault: Mutex<Option<String>>,
}

/// Receives until `ended`.
pub(crate) fn run(mut port: Box<dyn Receive>, of: usize, shared: &Shared, neighbours: &Neighbours, ended: &AtomicBool) {
    let mut reply = Vec::new();
    let mut replies: Vec<Vec<u8>> = Vec::new();
    while !ended.load(Relaxed) {
        // Locked only at the first frame, because the configuration may change during the wait.
        let mut expected = None;
        let received = port.receive(WAIT, &mut |time_ns, frame| {
            let bytes = (frame.len() + FCS) as u64;
            shared.meters.arrived(time_ns, bytes);
            lock(&shared.capture).take(time_ns, frame);
            let expected = &**expected.get_or_insert_with(|| Arc::clone(&lock(&shared.expected)));
            if let Some(stamp) = expected.stamp(frame) {
                let flow = usize::from(stamp.stream.wrapping_sub(expected.first_stream));
                if let Some(Some(meters)) = expected.flows.get(flow) {
                    meters.arrived(frame, of, time_ns, bytes, Some(stamp.time_ns));
                }
                return;
            }
            if let Some(meters) = expected.unstamped_flow(frame) {
                meters.arrived(frame, of, time_ns, bytes, None);
                return;
            }
            let awaits = !lock(&shared.awaited).is_empty();
            if expected.interfaces.is_empty() && !awaits {
                return;
            }
            let owner = |address: IpAddr, tags: [Option<u16>; 2]| {
                let is = |interface: &&(usize, Interface)| {
                    has_tags(tags, &interface.1.tags) && interface.1.addresses.iter().any(|one| one.address == address)
                };
                expected.interfaces.iter().find(is).map(|interface| interface.1.mac)
            };
            // A request also contains the address of its sender.
            learn(frame, expected, neighbours);
            if awaits {
                notice(frame, &mut lock(&shared.awaited), neighbours);
            }
            if write_reply(frame, owner, &mut reply).is_some() {
                replies.push(std::mem::take(&mut reply));
            }
        });
        // The receiver cannot send while it delivers frames, so answers are sent after the batch.
        for reply in replies.drain(..) {
            if port.answer(&reply) {
                shared.meters.sent((reply.len() + FCS) as u64);
            }
        }
        shared.meters.lost.store(port.lost(), Relaxed);
        let failed = received.is_err();
        *lock(&shared.fault) = received.err();
        if failed {
            std::thread::sleep(WAIT);
        }
    }
}

/// Whether a frame has the VLAN IDs of a device.
fn has_tags(of_frame: [Option<u16>; 2], of_device: &[DeviceTag]) -> bool {
    of_device.iter().map(|tag| tag.tci & 0xfff).eq(of_frame.into_iter().flatten().map(|tag| tag & 0xfff))
}

fn tags_of(frame: &[u8]) -> [Option<u16>; 2] {
    Headers::of(frame).map_or([None; 2], |headers| headers.tags)
}

/// Learns the hardware addresses of gateways, except configured ones.
fn learn(frame: &[u8], expected: &Expected, neighbours: &Neighbours) {
    let tags = tags_of(frame);
    for (number, interface) in expected.interfaces.iter().filter(|(_, interface)| has_tags(tags, &interface.tags)) {
        for address in interface.addresses.iter().filter(|address| address.gateway_mac.is_none()) {
            if let Some(mac) = hardware_address(frame, address.gateway) {
                neighbours.set(*number, address.gateway, mac);
            }
        }
    }
}

/// Checks whether a frame is an awaited answer, and records it.
fn notice(frame: &[u8], awaited: &mut [Awaited], neighbours: &Neighbours) {
    let layers = Layers::of(frame);
    let tags_here = tags_of(frame);
    for one in awaited {
        match one {
            Awaited::Neighbour { tags, .. } | Awaited::Echo { tags, .. } if !has_tags(tags_here, tags) => {}
            Awaited::Neighbour { interface, address, .. } => {
                if let Some(mac) = hardware_address(frame, *address) {
                    neighbours.set(*interface, *address, mac);
                }
            }
            Awaited::Echo { from, to, identifier, arrived, .. } => {
                let number = |kind: LayerKind, at: usize, width: usize| {
                    let layer = layers.all().iter().find(|layer| layer.kind == kind)?;
                    crate::frame::read_bits(frame, layer.start as usize * 8 + at, width)
                };
                let (ip, icmp, reply, at, width, ends) = match (&*from, &*to) {
                    (IpAddr::V4(from), IpAddr::V4(to)) => (
                        LayerKind::Ipv4,
                        LayerKind::Icmp,
                        0,
                        96,
                        32,
                        [u128::from(to.to_bits()), u128::from(from.to_bits())],
                    ),
                    (IpAddr::V6(from), IpAddr::V6(to)) => {
                        (LayerKind::Ipv6, LayerKind::Icmp6, 129, 64, 128, [to.to_bits(), from.to_bits()])
                    }
                    _ => continue,
                };
                let is = number(icmp, 0, 8) == Some(reply)
                    && number(icmp, 32, 16) == Some((*identifier).into())
                    && number(ip, at, width) == Some(ends[0])
                    && number(ip, at + width, width) == Some(ends[1]);
                *arrived |= is;
            }
        }
    }
}
