//! The thread that receives on one port: it counts, captures, and answers and learns neighbours.

use crate::capture::Capture;
use crate::config::Interface;
use crate::flow::FCS;
use crate::meters::{FlowMeters, PortMeters};
use crate::wire::Receive;
use packet::layers::{LayerKind, Layers};
use packet::{MacAddr, Stamp, answer, told};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a receiver waits between checks for its end.
const WAIT: Duration = Duration::from_millis(50);

/// The data are consistent after each statement, so a panic in another thread does not matter.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flows, identified by bytes at certain offsets of their frames.
type FlowsByBytes = HashMap<Vec<u8>, Arc<FlowMeters>>;

/// The expected flows of one port.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The stream of the first flow.
    pub(crate) first_stream: u16,
    /// By flow; `None` for flows to other ports.
    pub(crate) flows: Vec<Option<Arc<FlowMeters>>>,
    /// Flows with frames too short for a stamp, identified by the bytes that all their frames share.
    pub(crate) unstamped: Vec<(Vec<usize>, FlowsByBytes)>,
    /// Bytes that follow the stamps of some of its flows: more than none.
    pub(crate) trailers: Vec<usize>,
    /// Interfaces of devices on this port, with their numbers in the configuration.
    pub(crate) interfaces: Vec<(usize, Interface)>,
}

impl Expected {
    /// Adds a flow that is identified by these bytes. Returns false if another flow has the same bytes.
    pub(crate) fn add_unstamped(&mut self, signature: &[(usize, u8)], meters: &Arc<FlowMeters>) -> bool {
        let places: Vec<usize> = signature.iter().map(|(at, _)| *at).collect();
        let bytes = signature.iter().map(|(_, byte)| *byte).collect();
        let group = match self.unstamped.iter().position(|(known, _)| *known == places) {
            Some(group) => group,
            None => {
                self.unstamped.push((places, HashMap::new()));
                // The match with the most bytes comes first.
                self.unstamped.sort_by_key(|(places, _)| std::cmp::Reverse(places.len()));
                return self.add_unstamped(signature, meters);
            }
        };
        self.unstamped[group].1.insert(bytes, Arc::clone(meters)).is_none()
    }

    /// The stamp of a frame. Headers that do not announce what they hold must not hide one before a trailer.
    fn stamp(&self, frame: &[u8]) -> Option<Stamp> {
        let before = |trailer: &usize| Stamp::of(&frame[..frame.len().checked_sub(*trailer)?]);
        Stamp::of(frame).or_else(|| self.trailers.iter().find_map(before))
    }

    fn unstamped_flow(&self, frame: &[u8]) -> Option<&Arc<FlowMeters>> {
        self.unstamped.iter().find_map(|(places, flows)| {
            let bytes: Option<Vec<u8>> = places.iter().map(|at| frame.get(*at).copied()).collect();
            flows.get(&bytes?)
        })
    }
}

/// Hardware addresses of neighbours that have answered, by interface.
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
    Neighbour { interface: usize, address: IpAddr },
    /// The echo with this identifier, from the first address to the second.
    Echo { from: IpAddr, to: IpAddr, identifier: u16, came: bool },
}

/// State that a receiver shares with requests.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) meters: PortMeters,
    pub(crate) capture: Mutex<Capture>,
    pub(crate) expected: Mutex<Arc<Expected>>,
    pub(crate) awaited: Mutex<Vec<Awaited>>,
    /// Why nothing can be received now, if so.
    pub(crate) fault: Mutex<Option<String>>,
}

/// Receives until `ended`.
pub(crate) fn run(mut port: Box<dyn Receive>, of: usize, shared: &Shared, neighbours: &Neighbours, ended: &AtomicBool) {
    let mut reply = Vec::new();
    let mut replies: Vec<Vec<u8>> = Vec::new();
    while !ended.load(Relaxed) {
        // Locked with the first frame, because the configuration may change during the wait.
        let mut expected = None;
        let received = port.receive(WAIT, &mut |time_ns, frame| {
            let bytes = (frame.len() + FCS) as u64;
            shared.meters.came(bytes);
            lock(&shared.capture).take(time_ns, frame);
            let expected = &**expected.get_or_insert_with(|| Arc::clone(&lock(&shared.expected)));
            if let Some(stamp) = expected.stamp(frame) {
                let flow = usize::from(stamp.stream.wrapping_sub(expected.first_stream));
                if let Some(Some(meters)) = expected.flows.get(flow) {
                    meters.came(frame, of, time_ns, bytes, Some(stamp.time_ns));
                }
                return;
            }
            if let Some(meters) = expected.unstamped_flow(frame) {
                meters.came(frame, of, time_ns, bytes, None);
                return;
            }
            let awaits = !lock(&shared.awaited).is_empty();
            if expected.interfaces.is_empty() && !awaits {
                return;
            }
            let owner = |address: IpAddr, tags: [Option<u16>; 2]| {
                let is = |interface: &&(usize, Interface)| {
                    let own = interface.1.tags.iter().map(|tag| tag.tci & 0xfff);
                    own.eq(tags.into_iter().flatten()) && interface.1.addresses.iter().any(|one| one.address == address)
                };
                expected.interfaces.iter().find(is).map(|interface| interface.1.mac)
            };
            if answer(frame, owner, &mut reply).is_some() {
                replies.push(std::mem::take(&mut reply));
                return;
            }
            learn(frame, expected, neighbours);
            if awaits {
                notice(frame, &mut lock(&shared.awaited), neighbours);
            }
        });
        // The receiver cannot send while it delivers frames, so answers wait for the end of the batch.
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

/// Learns the hardware addresses of gateways.
fn learn(frame: &[u8], expected: &Expected, neighbours: &Neighbours) {
    for (number, interface) in &expected.interfaces {
        for address in &interface.addresses {
            if let Some(mac) = told(frame, address.gateway) {
                neighbours.set(*number, address.gateway, mac);
            }
        }
    }
}

/// Checks whether a frame is an answer that a request waits for.
fn notice(frame: &[u8], awaited: &mut [Awaited], neighbours: &Neighbours) {
    let layers = Layers::of(frame);
    for one in awaited {
        match one {
            Awaited::Neighbour { interface, address } => {
                if let Some(mac) = told(frame, *address) {
                    neighbours.set(*interface, *address, mac);
                }
            }
            Awaited::Echo { from, to, identifier, came } => {
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
                *came |= is;
            }
        }
    }
}
