//! Addresses that a transport checksum covers.

use super::{Layer, LayerKind, Layers};

/// Where the addresses of a pseudo header are. They differ from those of the IP header while a source route has
/// segments left (RFC 791, RFC 8200 §8.1), and while a mobile node is away from home (RFC 6275 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pseudo {
    /// Offset of the source address.
    pub source: usize,
    /// Offset of the destination address.
    pub destination: usize,
    /// Length of an address in bytes: 4 or 16.
    pub width: usize,
}

/// The addresses that the checksum of layer number `of` covers; `None` without an IP layer around it, or if a source
/// route hides the last address.
#[must_use]
pub fn pseudo_header(frame: &[u8], layers: &Layers, of: usize) -> Option<Pseudo> {
    let around = layers.all().get(..of)?;
    let packet = around.iter().rposition(|layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6))?;
    let (ip, between) = around[packet..].split_first()?;
    let start = ip.start as usize;
    if ip.kind == LayerKind::Ipv4 {
        let destination = source_route(ip.header(frame)).map_or(16, |at| at);
        return Some(Pseudo { source: start + 12, destination: start + destination, width: 4 });
    }
    let mut pseudo = Pseudo { source: start + 8, destination: start + 24, width: 16 };
    for layer in between {
        match layer.kind {
            LayerKind::Routing | LayerKind::Srv6 => pseudo.destination = last_stop(layer, frame, pseudo.destination)?,
            LayerKind::DestinationOptions => {
                if let Some(at) = home_address(layer.header(frame)) {
                    pseudo.source = layer.start as usize + at;
                }
            }
            _ => {}
        }
    }
    Some(pseudo)
}

/// Whether a transport checksum covers an address that a compressed route hides (RFC 6554).
pub(crate) fn hides_an_address(frame: &[u8], layers: &Layers) -> bool {
    let covers = |layer: &Layer| {
        layer.kind.description().checksum.is_some_and(|checksum| checksum.over == super::Over::PseudoHeader)
    };
    let mut numbered = layers.all().iter().enumerate();
    numbered.any(|(of, layer)| covers(layer) && pseudo_header(frame, layers, of).is_none())
}

/// Offset of the last address in a routing header; `otherwise` if no segments are left. `None` for a compressed route.
fn last_stop(layer: &Layer, frame: &[u8], otherwise: usize) -> Option<usize> {
    let header = layer.header(frame);
    let start = layer.start as usize;
    match header {
        [_, _, _, 0, ..] => Some(otherwise),
        // Segment list[0] is the last segment (RFC 8754).
        [_, _, 4, ..] => Some(start + 8),
        // In types 0 and 2 the header ends with the last address.
        [_, _, 0 | 2, ..] => header.len().checked_sub(16).filter(|at| *at >= 8).map(|at| start + at),
        _ => None,
    }
}

/// Offset of the last address of a source route in an IPv4 header, if hops are left.
fn source_route(header: &[u8]) -> Option<usize> {
    let mut at = 20;
    loop {
        let [kind, rest @ ..] = header.get(at..)? else { return None };
        let length = match kind {
            0 => return None,
            1 => 1,
            _ => usize::from(*rest.first()?).max(2),
        };
        if matches!(kind, 0x83 | 0x89) {
            let pointer = usize::from(*rest.get(1)?);
            let last = (at + length).checked_sub(4)?;
            return (pointer + 3 <= length && last >= at + 3 && at + length <= header.len()).then_some(last);
        }
        at += length;
    }
}

/// Offset of the home address in destination options.
pub(super) fn home_address(header: &[u8]) -> Option<usize> {
    let mut at = 2;
    loop {
        let kind = *header.get(at)?;
        let length = if kind == 0 { 1 } else { 2 + usize::from(*header.get(at + 1)?) };
        if kind == 201 {
            return (length >= 18 && at + 18 <= header.len()).then_some(at + 2);
        }
        at += length;
    }
}
