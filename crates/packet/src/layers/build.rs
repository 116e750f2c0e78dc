//! Frames of a stack of layers.

use super::{Field, LayerKind, Layers, Next, make_checksums_right};
use std::fmt;

/// A protocol that does not carry the next one of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoStack {
    /// The one below.
    pub below: LayerKind,
    /// The one that it does not carry.
    pub above: LayerKind,
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not carry {}", self.below.name(), self.above.name())
    }
}

impl std::error::Error for NoStack {}

/// The layers of a stack with the Ethernet headers that are between them: around all, and where a tunnel carries Ethernet
/// unless said otherwise. Behind a label, a control word precedes it.
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
    // Without a control word, receivers take addresses for one (RFC 4448).
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

/// Whether its default header announces Ethernet.
fn is_for_ethernet(kind: LayerKind) -> bool {
    let description = kind.description();
    let header = [description.header, &[0; 64]].concat();
    let next = (description.read)(&header).map(|header| header.next);
    matches!(next, Some(Next::Layer(LayerKind::Ethernet) | Next::EtherType(0x6558))) && kind != LayerKind::Mpls
        || kind == LayerKind::L2tp3
}

/// A frame of these layers, outermost first, around `payload`: default headers, each announcing the next, with right
/// lengths and checksums. UDP around a tunnel has no checksum.
///
/// # Errors
/// A layer that the one below does not carry.
pub fn stack(kinds: &[LayerKind], payload: &[u8]) -> Result<Vec<u8>, NoStack> {
    stack_with(kinds, &[], payload)
}

/// The same with optional fields of layers, by their number: their headers get room for these.
///
/// # Errors
/// As [`stack`].
pub fn stack_with(kinds: &[LayerKind], with: &[(usize, &Field)], payload: &[u8]) -> Result<Vec<u8>, NoStack> {
    let mut headers: Vec<Vec<u8>> = kinds.iter().map(|kind| kind.description().header.to_vec()).collect();
    for (of, field) in with {
        if let Some(header) = headers.get_mut(*of).filter(|header| field.offset(header).is_none()) {
            (field.add)(header);
        }
    }
    for (i, pair) in kinds.windows(2).enumerate() {
        if !(pair[0].description().announce)(&mut headers[i], pair[1]) {
            return Err(NoStack { below: pair[0], above: pair[1] });
        }
    }
    let mut frame = headers.concat();
    frame.extend(payload);
    let mut start = 0;
    for (kind, header) in kinds.iter().zip(&headers) {
        if let Some(length) = kind.description().length {
            let at = (start as isize + length.at) as usize;
            // A length of more than 16 bits has no place: 0, as a NIC that cuts segments has it.
            let value = u16::try_from(frame.len() - start - length.less).unwrap_or(0);
            frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
        }
        start += header.len();
    }
    // What the payload looks like stays as it is.
    let layers = Layers::of(&frame).first(kinds.len());
    make_checksums_right(&mut frame, &layers);
    // A lone datagram over IPv4 has a checksum, too.
    if let Some(of) =
        layers.all().iter().rposition(|layer| layer.kind == LayerKind::Udp).filter(|of| *of + 1 == kinds.len())
    {
        let at = layers.all()[of].start as usize + 6;
        frame[at..at + 2].copy_from_slice(&[0xff, 0xff]);
        make_checksums_right(&mut frame, &layers);
    }
    Ok(frame)
}
