//! Checksums of every layer: how they are computed, and how they follow changes.

use super::field::write_bits;
use super::kind::{Checksum, Over};
use super::{Field, Layer, LayerKind, Layers, Pseudo, pseudo_header};
use crate::checksum::{folded, sum};
use crate::headers::{TCP, UDP};
use crate::key::{ICMP, ICMPV6};
use crate::layers::is_announced_port;
use std::ops::Range;

/// Whether the checksum of layer number `of` is correct; `None` if it has none, or if part of what it covers is
/// missing.
#[must_use]
pub fn checksum_is_right(frame: &[u8], layers: &Layers, of: usize) -> Option<bool> {
    let (at, width, right) = computed(frame, layers, of)?;
    let found = &frame[at..at + width];
    // 0 and all ones are the same sum; only in UDP does 0 have another meaning.
    let is_nothing = |bytes: &[u8]| bytes == [0, 0] || bytes == [0xff, 0xff];
    let either = layers.all()[of].kind != LayerKind::Udp && is_nothing(found) && is_nothing(&right[..width]);
    Some(found == &right[..width] || either)
}

/// Corrects every checksum of a frame, innermost first, if all that it covers is in the frame. A UDP datagram without a
/// checksum keeps none where this is allowed: over IPv4, and around a tunnel (RFC 6935).
pub fn make_checksums_right(frame: &mut [u8], layers: &Layers) {
    for of in (0..layers.all().len()).rev() {
        if let Some((at, width, right)) = computed(frame, layers, of) {
            frame[at..at + width].copy_from_slice(&right[..width]);
        }
    }
}

/// Writes a field of layer number `of`, and updates every checksum that covers it, in this and all outer layers:
/// correct ones stay correct, wrong ones stay wrong (RFC 1624). Returns false if the layer lacks the field.
pub fn write_field(frame: &mut [u8], layers: &Layers, of: usize, field: &Field, value: u128) -> bool {
    let Some(layer) = layers.all().get(of) else { return false };
    let Some(offset) = field.offset(layer.header(frame)) else { return false };
    let bit = layer.start as usize * 8 + usize::from(offset);
    let width = usize::from(field.width());
    let (first, end) = (bit / 8, (bit + width).div_ceil(8));
    let mut new = [0; 20];
    let new = &mut new[..end - first];
    new.copy_from_slice(&frame[first..end]);
    write_bits(new, bit - first * 8, width, value);
    replace(frame, layers, first, new);
    true
}

/// Bytes before and after a change.
#[derive(Clone, Copy)]
struct Change {
    at: usize,
    width: usize,
    old: [u8; 20],
    new: [u8; 20],
}

/// Replaces up to 20 bytes, and updates the checksums that cover them.
pub(crate) fn replace(frame: &mut [u8], layers: &Layers, at: usize, new: &[u8]) {
    let before = is_in_a_route(layers, at).then(|| frame.to_vec());
    let mut changes = Vec::with_capacity(4);
    change(frame, &mut changes, at, new);
    // A change of an inner checksum changes the ones around it.
    for (of, layer) in layers.all().iter().enumerate().rev() {
        let description = layer.kind.description();
        let Some(checksum) = description.checksum.filter(|sum| (sum.present)(layer.header(frame))) else { continue };
        if matches!(checksum.over, Over::Crc32c | Over::Invariant) {
            keep_crc(frame, layers, of, &mut changes);
            continue;
        }
        let place = layer.start as usize + checksum.at;
        let mut difference: u64 = changes.iter().map(|change| difference(frame, layers, of, checksum, change)).sum();
        if let Some(before) = before.as_deref().filter(|_| checksum.over == Over::PseudoHeader) {
            difference += other_addresses(before, frame, layers, of);
        }
        // A difference of zero folds to 0 or to all ones.
        if matches!(folded(difference), 0 | 0xffff) {
            continue;
        }
        let old = u16::from_be_bytes([frame[place], frame[place + 1]]);
        let new = !folded(u64::from(!old) + difference);
        let new = if new == 0 && layer.kind == LayerKind::Udp { 0xffff } else { new };
        change(frame, &mut changes, place, &new.to_be_bytes());
    }
}

fn change(frame: &mut [u8], changes: &mut Vec<Change>, at: usize, bytes: &[u8]) {
    let (mut old, mut new) = ([0; 20], [0; 20]);
    old[..bytes.len()].copy_from_slice(&frame[at..at + bytes.len()]);
    new[..bytes.len()].copy_from_slice(bytes);
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    changes.push(Change { at, width: bytes.len(), old, new });
}

/// What a change adds to the sum that a checksum is made of.
fn difference(frame: &[u8], layers: &Layers, of: usize, checksum: Checksum, change: &Change) -> u64 {
    let layer = layers.all()[of];
    let start = layer.start as usize;
    let end = if checksum.over == Over::Header { layer.content } else { layer.end } as usize;
    let mut total = part(change, start, end, start, Some(start + checksum.at));
    if checksum.over == Over::PseudoHeader
        && let Some(pseudo) = pseudo_header(frame, layers, of)
    {
        for address in [pseudo.source, pseudo.destination] {
            total += part(change, address, address + pseudo.width, address, None);
        }
    }
    total
}

/// Whether a byte is in a routing header, whose segments left select the final destination.
fn is_in_a_route(layers: &Layers, at: usize) -> bool {
    let is_route = |layer: &&Layer| matches!(layer.kind, LayerKind::Routing | LayerKind::Srv6);
    layers.all().iter().filter(is_route).any(|layer| (layer.start as usize..layer.content as usize).contains(&at))
}

/// What a sum gains when a change makes it cover other addresses.
fn other_addresses(before: &[u8], after: &[u8], layers: &Layers, of: usize) -> u64 {
    let (Some(left), Some(joined)) = (pseudo_header(before, layers, of), pseudo_header(after, layers, of)) else {
        return 0;
    };
    // The changed bytes already count at the new offsets, so both sums use the bytes before the change.
    let words = |at: usize| folded(sum(&before[at..at + left.width]));
    let gain = |from: usize, to: usize| u64::from(words(to)) + u64::from(!words(from));
    gain(left.source, joined.source) + gain(left.destination, joined.destination)
}

/// What the bytes of a change within `start..end` add, in words that are counted from `origin`. The two bytes of the
/// checksum itself are not covered.
fn part(change: &Change, start: usize, end: usize, origin: usize, checksum: Option<usize>) -> u64 {
    let mut total = 0;
    for i in 0..change.width {
        let at = change.at + i;
        let is_itself = checksum.is_some_and(|place| at == place || at == place + 1);
        if at < start || at >= end || is_itself {
            continue;
        }
        let shift = if (at - origin).is_multiple_of(2) { 8 } else { 0 };
        total += (u64::from(change.new[i]) << shift) + (0xffff - (u64::from(change.old[i]) << shift));
    }
    total
}

/// Corrects a CRC that was correct before the changes.
fn keep_crc(frame: &mut [u8], layers: &Layers, of: usize, changes: &mut Vec<Change>) {
    let layer = layers.all()[of];
    let from = match packet_around(layers, of) {
        Some(packet) if layer.kind == LayerKind::Roce => packet.start,
        _ => layer.start,
    };
    let covers = |change: &Change| change.at < layer.end as usize && change.at + change.width > from as usize;
    if !changes.iter().any(covers) {
        return;
    }
    let mut before = frame.to_vec();
    for change in changes.iter().rev() {
        before[change.at..change.at + change.width].copy_from_slice(&change.old[..change.width]);
    }
    if checksum_is_right(&before, layers, of) == Some(true)
        && let Some((place, width, right)) = computed(frame, layers, of)
    {
        change(frame, changes, place, &right[..width]);
    }
}

/// Whether there is a layer with a CRC, and all CRCs are correct. In a CRC, changes do not cancel out as in a sum.
pub(crate) fn has_right_crc(frame: &[u8], layers: &Layers) -> bool {
    let mut crcs = crcs(layers).filter_map(|of| checksum_is_right(frame, layers, of)).peekable();
    crcs.peek().is_some() && crcs.all(|right| right)
}

/// Corrects every CRC, and updates the checksums that cover it.
pub(crate) fn make_crcs_right(frame: &mut [u8], layers: &Layers) {
    for of in crcs(layers) {
        if let Some((at, width, right)) = computed(frame, layers, of)
            && frame[at..at + width] != right[..width]
        {
            replace(frame, layers, at, &right[..width]);
        }
    }
}

/// Makes a change that keeps every Internet checksum valid, and updates correct CRCs.
#[inline]
pub fn keep_crcs(frame: &mut [u8], change: impl FnOnce(&mut [u8])) {
    if !may_have_crc(frame) {
        return change(frame);
    }
    let layers = Layers::of(frame);
    let has_crc = has_right_crc(frame, &layers);
    change(frame);
    if has_crc {
        make_crcs_right(frame, &layers);
    }
}

/// Whether the frame may have a layer with a CRC. Called for every stamped frame, so plain TCP, UDP and ICMP packets
/// are excluded by a few bytes.
#[inline]
fn may_have_crc(frame: &[u8]) -> bool {
    let (protocol, ports) = match frame.get(12..15) {
        Some([0x08, 0x00, 0x45]) => (frame.get(23), frame.get(34..38)),
        Some([0x86, 0xdd, _]) => (frame.get(20), frame.get(54..58)),
        Some([0x08, 0x06, _] | [0x88, 0xb5, _]) | None => return false,
        _ => return true,
    };
    match (protocol, ports) {
        (Some(&(TCP | ICMP | ICMPV6)), _) => false,
        (Some(&UDP), Some(&[a, b, c, d])) => {
            is_announced_port(u16::from_be_bytes([a, b])) || is_announced_port(u16::from_be_bytes([c, d]))
        }
        _ => true,
    }
}

/// The layers with a CRC, innermost first.
fn crcs(layers: &Layers) -> impl Iterator<Item = usize> {
    (0..layers.all().len()).rev().filter(|of| matches!(layers.all()[*of].kind, LayerKind::Sctp | LayerKind::Roce))
}

/// The IP header around layer number `of`.
fn packet_around(layers: &Layers, of: usize) -> Option<&Layer> {
    layers.all().get(..of)?.iter().rev().find(|layer| matches!(layer.kind, LayerKind::Ipv4 | LayerKind::Ipv6))
}

/// The checksum of a layer, if it has one.
fn present(layer: &Layer, frame: &[u8], layers: &Layers, of: usize) -> Option<Checksum> {
    let checksum = layer.kind.description().checksum?;
    let header = layer.header(frame);
    let is_there = (checksum.present)(header);
    // UDP over IPv6 must have a checksum unless it carries a tunnel (RFC 6935).
    let must = !is_there && layer.kind == LayerKind::Udp && over_v6(layers, of) && layers.all().len() == of + 1;
    (is_there || must).then_some(checksum)
}

fn over_v6(layers: &Layers, of: usize) -> bool {
    let mut around = layers.all()[..of].iter().rev();
    around.find_map(|layer| match layer.kind {
        LayerKind::Ipv4 => Some(false),
        LayerKind::Ipv6 => Some(true),
        _ => None,
    }) == Some(true)
}

/// What an Internet checksum covers.
pub(super) struct Covered {
    /// Offset of the checksum, at an even distance from the start of what it covers.
    pub(super) at: usize,
    content: Range<usize>,
    addresses: Option<Pseudo>,
    /// Protocol and length of the pseudo header.
    extra: u64,
    /// 0 is sent as all ones (RFC 768).
    pub(super) never_zero: bool,
}

impl Covered {
    /// The byte ranges in the sum; words count from the start of each. They include the checksum, which is not in the
    /// sum.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let address = |pseudo: Pseudo| [pseudo.source, pseudo.destination].map(|at| at..at + pseudo.width);
        self.addresses.map(address).into_iter().flatten().chain([self.content.clone()])
    }

    /// The sum.
    pub(super) fn sum(&self, frame: &[u8]) -> u64 {
        let address = |pseudo: Pseudo| {
            let words = |at: usize| sum(&frame[at..at + pseudo.width]);
            words(pseudo.source) + words(pseudo.destination)
        };
        let content = sum(&frame[self.content.start..self.at]) + sum(&frame[self.at + 2..self.content.end]);
        content + self.addresses.map_or(0, address) + self.extra
    }
}

/// What the Internet checksum of a layer covers. `None` if it has no checksum, or if part of what it covers is missing;
/// `Some(None)` if it is a CRC.
pub(super) fn covered(frame: &[u8], layers: &Layers, of: usize) -> Option<Option<Covered>> {
    let layer = layers.all().get(of)?;
    let checksum = present(layer, frame, layers, of)?;
    let start = layer.start as usize;
    let whole = layer.complete && !layer.fragment && layer.end as usize <= frame.len();
    let end = match checksum.over {
        Over::Header => layer.content,
        _ if whole => layer.end,
        _ => return None,
    } as usize;
    let pseudo = match checksum.over {
        Over::Crc32c | Over::Invariant => return Some(None),
        Over::Header | Over::Content => None,
        Over::PseudoHeader => Some((pseudo_header(frame, layers, of)?, layer.kind.description().protocol()?)),
    };
    let extra = pseudo.map_or(0, |(_, protocol)| u64::from(protocol) + (end - start) as u64);
    let never_zero = layer.kind == LayerKind::Udp;
    let addresses = pseudo.map(|(addresses, _)| addresses);
    Some(Some(Covered { at: start + checksum.at, content: start..end, addresses, extra, never_zero }))
}

/// Offset, width and correct value of a layer's checksum.
fn computed(frame: &[u8], layers: &Layers, of: usize) -> Option<(usize, usize, [u8; 4])> {
    let Some(covered) = covered(frame, layers, of)? else { return computed_crc(frame, layers, of) };
    let value = !folded(covered.sum(frame));
    let value = if value == 0 && covered.never_zero { 0xffff } else { value };
    let [high, low] = value.to_be_bytes();
    Some((covered.at, 2, [high, low, 0, 0]))
}

/// As [`computed`], for a layer with a CRC.
fn computed_crc(frame: &[u8], layers: &Layers, of: usize) -> Option<(usize, usize, [u8; 4])> {
    let layer = layers.all().get(of)?;
    let checksum = layer.kind.description().checksum?;
    let (start, end) = (layer.start as usize, layer.end as usize);
    let at = start + checksum.at;
    let covered = frame.get(start..end)?;
    match checksum.over {
        Over::Header | Over::Content | Over::PseudoHeader => None,
        Over::Crc32c => {
            let place = checksum.at;
            let state = crc32c(!0, &covered[..place]);
            let state = crc32c(state, &[0; 4]);
            let state = crc32c(state, covered.get(place + 4..)?);
            // SCTP sends the lowest byte of the reflected remainder first.
            Some((at, 4, (!state).to_le_bytes()))
        }
        Over::Invariant => {
            let at = end.checked_sub(ICRC).filter(|at| *at >= layer.content as usize)?;
            let udp = layers.all().get(of.checked_sub(1)?).filter(|below| below.kind == LayerKind::Udp)?;
            let packet = packet_around(layers, of)?;
            let masked: &[usize] = match packet.kind {
                LayerKind::Ipv4 => &[1, 8, 10, 11],
                _ => &[1, 2, 3, 7],
            };
            let header = packet.header(frame);
            // Eight bytes of ones replace the routing header of InfiniBand.
            let mut state = crc32(!0, &[0xff; 8]);
            for (at, byte) in header.iter().enumerate() {
                let version = if packet.kind == LayerKind::Ipv6 && at == 0 { 0x0f } else { 0 };
                state = crc32(state, &[if masked.contains(&at) { 0xff } else { *byte | version }]);
            }
            state = crc32(state, frame.get(packet.content as usize..udp.start as usize)?);
            state = crc32(state, &udp.header(frame)[..6]);
            state = crc32(state, &[0xff; 2]);
            let header = layer.header(frame);
            state = crc32(state, &header[..4]);
            state = crc32(state, &[0xff]);
            state = crc32(state, &header[5..]);
            state = crc32(state, frame.get(layer.content as usize..at)?);
            Some((at, ICRC, (!state).to_le_bytes()))
        }
    }
}

/// Length of an invariant CRC in bytes.
pub(crate) const ICRC: usize = 4;

/// CRC-32C (Castagnoli), reflected (RFC 9260, appendix A).
fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table(0x82f6_3b78);
    bytes.iter().fold(state, |state, byte| state >> 8 ^ TABLE[((state ^ u32::from(*byte)) & 0xff) as usize])
}

/// CRC-32 of Ethernet, reflected (IEEE 802.3, 3.2.9).
fn crc32(state: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table(0xedb8_8320);
    bytes.iter().fold(state, |state, byte| state >> 8 ^ TABLE[((state ^ u32::from(*byte)) & 0xff) as usize])
}

/// The remainder for each byte value by a reflected polynomial.
const fn crc_table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let (mut value, mut bit) = (i as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_agrees_with_its_check_value() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
    }
}
