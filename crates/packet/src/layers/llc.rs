use super::kind::{Description, Header, Length, Next, be16, by_ether_type};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "llc",
    aliases: &["snap"],
    about: "802.2 logical link control after an 802.3 length, with SNAP",
    source: "IEEE 802.2",
    fields: &[
        Field::number("dsap", 0, 8, "destination service access point").role(Role::Shape),
        Field::number("ssap", 8, 8, "source service access point").role(Role::Shape),
        Field::number("control", 16, 8, "control").role(Role::Shape).named_with_layer(),
    ],
    header: &[0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xb5],
    binds: &[],
    length: Some(Length { at: -2, less: 0 }),
    checksum: None,
    announce: |header, next| by_ether_type(header, 6, next),
    read: |bytes| match bytes.get(..3)? {
        [0xaa, 0xaa, 3] if bytes.get(3..6)? == [0, 0, 0] => {
            // SNAP has an EtherType, never a length.
            let next = be16(bytes, 6)?;
            Some(Header::new(8, if next < 0x0600 { Next::Payload } else { Next::EtherType(next) }))
        }
        _ => Some(Header::new(3, Next::Payload)),
    },
};
