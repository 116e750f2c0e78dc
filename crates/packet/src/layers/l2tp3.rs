use super::kind::{Bind, Description, Header, Next, be16};
use super::{Field, LayerKind};

/// Lengths of what may precede the frame: a cookie of 0, 4 or 8 bytes and a sublayer of 0 or 4 bytes. Both ends agree
/// on them, and no bit announces them.
const BEFORE: [usize; 4] = [0, 4, 8, 12];

pub(super) const DESCRIPTION: Description = Description {
    name: "l2tp3",
    aliases: &["l2tpv3"],
    about: "L2TPv3 over IP, with Ethernet in it; cookie and sublayer are found by the EtherType after them",
    source: "RFC 3931, RFC 4719",
    fields: &[Field::number("session", 0, 32, "session").named_with_layer()],
    header: &[0, 0, 0, 1],
    binds: &[Bind::Protocol(115)],
    length: None,
    checksum: None,
    announce: |_, next| next == LayerKind::Ethernet,
    read: |bytes| {
        // Session 0: control messages.
        if bytes.get(..4)? == [0; 4] {
            return Some(Header::new(4, Next::Payload));
        }
        let found = |before: &usize| {
            let content = 4 + before + 14;
            // An 802.3 length equals the number of bytes that follow.
            let is_length = |value: u16| usize::from(value) + content == bytes.len();
            be16(bytes, content - 2).is_some_and(|value| is_known(value) || is_length(value))
        };
        Some(match BEFORE.iter().copied().find(found) {
            Some(before) => Header::new(4 + before, Next::Layer(LayerKind::Ethernet)),
            None => Header::new(4, Next::Payload),
        })
    },
};

/// Whether an EtherType shows where the Ethernet header of a session starts: a known one, or the experimental one.
fn is_known(ether_type: u16) -> bool {
    ether_type == 0x88b5 || super::walk::announces(Bind::EtherType(ether_type))
}
