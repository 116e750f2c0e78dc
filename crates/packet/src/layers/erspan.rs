use super::kind::{Description, Header, Next};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "erspan",
    aliases: &[],
    about: "mirrored frames in GRE, types II and III",
    source: "draft-foschiano-erspan-03",
    fields: &[
        Field::number("version", 0, 4, "1 for type II, 2 for type III").role(Role::Shape).named_with_layer(),
        Field::number("vlan", 4, 12, "VLAN of the mirrored frame").named_with_layer(),
        Field::number("cos", 16, 3, "priority of the mirrored frame"),
        Field::number("truncated", 21, 1, "the mirrored frame is cut"),
        Field::number("session", 22, 10, "session").named_with_layer(),
    ],
    header: &[0x10, 0, 0, 1, 0, 0, 0, 0],
    binds: &[],
    length: None,
    checksum: None,
    announce: |_, next| next == LayerKind::Ethernet,
    read: |bytes| {
        let length = match bytes.first()? >> 4 {
            1 => 8,
            // The last bit of the fixed header announces a platform's own part.
            2 if bytes.get(11)? & 1 == 1 => 20,
            2 => 12,
            _ => return None,
        };
        (bytes.len() >= length).then(|| Header::new(length, Next::Layer(LayerKind::Ethernet)))
    },
};
