use super::kind::{Description, Header, Next};
use super::{Field, LayerKind, Role};

/// The offset in bits of a field that only type III has.
fn of_type_3(header: &[u8], at: u16) -> Option<u16> {
    (header.first()? >> 4 == 2).then_some(at)
}

/// Turns a header into one of type III.
fn make_type_3(header: &mut Vec<u8>) {
    header[0] = header[0] & 0x0f | 0x20;
    header[3] &= !1;
    header.resize(12, 0);
}

/// The EtherType by which GRE announces this header.
pub(super) fn ether_type(header: &[u8]) -> [u8; 2] {
    if of_type_3(header, 0).is_some() { [0x22, 0xeb] } else { [0x88, 0xbe] }
}

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
        Field::number("timestamp", 0, 32, "timestamp of type III; a stream that names it is of type III")
            .found(|header| of_type_3(header, 32))
            .added_by(make_type_3)
            .named_with_layer(),
        Field::number("sgt", 0, 16, "security group tag of type III; a stream that names it is of type III")
            .found(|header| of_type_3(header, 64))
            .added_by(make_type_3)
            .named_with_layer(),
    ],
    header: &[0x10, 0, 0, 1, 0, 0, 0, 0],
    binds: &[],
    length: None,
    checksum: None,
    announce: |_, next| next == LayerKind::Ethernet,
    read: |bytes| {
        let length = match bytes.first()? >> 4 {
            1 => 8,
            // The last bit of the fixed header announces a platform-specific subheader.
            2 if bytes.get(11)? & 1 == 1 => 20,
            2 => 12,
            _ => return None,
        };
        (bytes.len() >= length).then(|| Header::new(length, Next::Layer(LayerKind::Ethernet)))
    },
};
