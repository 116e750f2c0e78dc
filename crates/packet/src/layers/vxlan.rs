use super::kind::{Bind, Description, Header, Next};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "vxlan",
    aliases: &[],
    about: "VXLAN",
    source: "RFC 7348",
    fields: &[
        Field::number("flags", 0, 8, "flags").role(Role::Shape).named_with_layer(),
        Field::number("group", 16, 16, "group policy, if its flag is set")
            .found(|header| (header.first()? & 0x80 != 0).then_some(16))
            .added_by(|header| header[0] |= 0x80)
            .named_with_layer(),
        Field::number("vni", 32, 24, "network identifier"),
    ],
    header: &[8, 0, 0, 0, 0, 0, 0, 0],
    // 8472 is Linux's default from before 4789 was assigned.
    binds: &[Bind::Port(4789), Bind::Port(8472)],
    length: None,
    checksum: None,
    announce: |_, next| next == LayerKind::Ethernet,
    read: |bytes| (bytes.get(..8)?[0] & 8 != 0).then(|| Header::new(8, Next::Layer(LayerKind::Ethernet))),
};
