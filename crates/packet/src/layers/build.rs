//! Builds frames from stacks of layers.

use super::{Field, LayerKind, Layers, Next, make_checksums_right};
use std::fmt;

/// A protocol cannot carry the next one of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStack {
    /// The lower protocol.
    pub below: LayerKind,
    /// The protocol that it does not carry.
    pub above: LayerKind,
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not carry {}", self.below.name(), self.above.name())
    }
}

impl std::error::Error for NoStack {}

/// Adds the Ethernet headers to a stack of layers: the outermost one, and one wherever a tunnel carries Ethernet by
/// default. After an MPLS label, a control word precedes the header.
#[must_use]
pub fn with_ethernet(kinds: &[LayerKind]) -> Vec<LayerKind> {
    let carries = |below: LayerKind, above: LayerKind| {
        (below.description().announce)(&mut below.description().header.to_vec(), above)
    };
    let mut whole = vec![LayerKind::Ethernet];
    for kind in kinds.iter().skip(usize::from(kinds.first() == Some(&LayerKind::Ethernet))) {
        let below = whole[whole.len() - 1];
        let wants = is_for_ethernet(below) || !carries(below, *kind) && carries(below, LayerKind::Ethernet);
        if wants && *kind != LayerKind::Ethernet && below != LayerKind::Ethernet && carries(LayerKind::Ethernet, *kind)
        {
            whole.push(LayerKind::Ethernet);
        }
        whole.push(*kind);
    }
    // Without a control word, receivers mistake addresses for one (RFC 4448).
    let mut at = 1;
    while at < whole.len() {
        if whole[at - 1] == LayerKind::Mpls && whole[at] == LayerKind::Ethernet {
            whole.insert(at, LayerKind::PseudoWire);
        }
        at += 1;
    }
    if whole.last().is_some_and(|last| is_for_ethernet(*last)) {
        whole.push(LayerKind::Ethernet);
    }
    whole
}

/// Whether the default header of a protocol announces Ethernet.
fn is_for_ethernet(kind: LayerKind) -> bool {
    let description = kind.description();
    let header = [description.header, &[0; 64]].concat();
    let next = (description.read)(&header).map(|header| header.next);
    matches!(next, Some(Next::Layer(LayerKind::Ethernet) | Next::EtherType(0x6558))) && kind != LayerKind::Mpls
        || kind == LayerKind::L2tp3
}

/// Builds a frame of these layers, outermost first, around `payload`. Each has its default header, which announces the
/// next layer. Lengths and checksums are correct; UDP around a tunnel has no checksum. The last four bytes of what RoCE
/// carries become its ICRC.
///
/// # Errors
/// A layer cannot carry the next one.
pub fn stack(kinds: &[LayerKind], payload: &[u8]) -> Result<Vec<u8>, NoStack> {
    stack_with(kinds, &[], payload)
}

/// As [`stack`], with optional fields, each with the number of its layer. The headers grow by these fields.
///
/// # Errors
/// As [`stack`].
pub fn stack_with(kinds: &[LayerKind], with: &[(usize, &Field)], payload: &[u8]) -> Result<Vec<u8>, NoStack> {
    stack_around(kinds, with, &[], payload).map(|(frame, _)| frame)
}

/// As [`stack_with`], with bytes of no protocol, each with the number of the layer that they precede. Also returns the
/// layers, since a walk ends at such bytes. No header announces the bytes, so the layer below keeps its default.
///
/// # Errors
/// As [`stack`].
pub fn stack_around(
    kinds: &[LayerKind],
    with: &[(usize, &Field)],
    bytes: &[(usize, Vec<u8>)],
    payload: &[u8],
) -> Result<(Vec<u8>, Layers), NoStack> {
    let mut headers: Vec<Vec<u8>> = kinds.iter().map(|kind| kind.description().header.to_vec()).collect();
    for (of, field) in with {
        if let Some(header) = headers.get_mut(*of).filter(|header| field.offset(header).is_none()) {
            (field.add)(header);
        }
    }
    let in_front = |of: usize| -> Vec<u8> {
        bytes.iter().filter(|(before, _)| *before == of).flat_map(|(_, bytes)| bytes.clone()).collect()
    };
    for (i, pair) in kinds.windows(2).enumerate().filter(|(i, _)| in_front(i + 1).is_empty()) {
        if !(pair[0].description().announce)(&mut headers[i], pair[1]) {
            return Err(NoStack { below: pair[0], above: pair[1] });
        }
        if pair[1] == LayerKind::Erspan {
            let ether_type = super::erspan::ether_type(&headers[i + 1]);
            headers[i][2..4].copy_from_slice(&ether_type);
        }
    }
    let mut frame = Vec::new();
    let mut places = Vec::new();
    for (of, (kind, header)) in kinds.iter().zip(&headers).enumerate() {
        frame.extend(in_front(of));
        places.push((*kind, frame.len(), frame.len() + header.len()));
        frame.extend(header);
    }
    frame.extend(in_front(kinds.len()));
    frame.extend(payload);
    for (kind, start, _) in &places {
        if let Some(length) = kind.description().length {
            let at = (*start as isize + length.at) as usize;
            // A length of more than 16 bits becomes 0, as in packets that a NIC is to segment.
            let value = u16::try_from(frame.len() - start - length.less).unwrap_or(0);
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
    }
    // Ignores layers that the payload may look like.
    let layers = if bytes.is_empty() {
        Layers::of(&frame).first(kinds.len())
    } else {
        Layers::placed(&places).resized(frame.len())
    };
    make_checksums_right(&mut frame, &layers);
    // UDP without a tunnel in it has a checksum over IPv4 too.
    if let Some(of) =
        layers.all().iter().rposition(|layer| layer.kind == LayerKind::Udp).filter(|of| *of + 1 == kinds.len())
    {
        let at = layers.all()[of].start as usize + 6;
        frame[at..at + 2].copy_from_slice(&[0xff, 0xff]);
        make_checksums_right(&mut frame, &layers);
    }
    Ok((frame, layers))
}
