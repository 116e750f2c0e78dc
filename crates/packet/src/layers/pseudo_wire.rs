use super::kind::{Description, Header, Next};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "pw",
    aliases: &["control-word"],
    about: "control word of an Ethernet pseudowire after MPLS; found if it is zero",
    source: "RFC 4385",
    fields: &[
        Field::number("flags", 4, 4, "flags").role(Role::Shape).named_with_layer(),
        Field::number("sequence", 16, 16, "sequence number").role(Role::Shape).named_with_layer(),
    ],
    header: &[0; 4],
    binds: &[],
    length: None,
    checksum: None,
    announce: |_, next| next == LayerKind::Ethernet,
    read: |bytes| bytes.get(..4).map(|_| Header::new(4, Next::Layer(LayerKind::Ethernet))),
};
