use super::kind::{Bind, Checksum, Description, Header, Next, Over};
use super::{Field, Role};
use crate::key::Kind;

pub(super) const DESCRIPTION: Description = Description {
    name: "tcp",
    aliases: &[],
    about: "TCP, with options",
    source: "RFC 9293",
    fields: &[
        Field::number("sport", 0, 16, "source port"),
        Field::number("dport", 16, 16, "destination port"),
        Field::number("seq", 32, 32, "sequence number"),
        Field::number("ack", 64, 32, "acknowledgement number"),
        Field::number("offset", 96, 4, "length of the header in words").role(Role::Shape).named_with_layer(),
        Field::number("flags", 104, 8, "flags").of_kind(Kind::Flags),
        Field::number("window", 112, 16, "window"),
        Field::number("checksum", 128, 16, "checksum").role(Role::Checksum).named_with_layer(),
        Field::number("urgent", 144, 16, "urgent pointer"),
    ],
    header: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0],
    binds: &[Bind::Protocol(6)],
    length: None,
    checksum: Some(Checksum { at: 16, over: Over::PseudoHeader, present: |_| true }),
    announce: |_, _| false,
    read: |bytes| {
        let length = usize::from(bytes.get(..20)?[12] >> 4) * 4;
        // A header that is truncated within its options still has its fields.
        (length >= 20).then(|| Header::new(length.min(bytes.len()), Next::Payload))
    },
};
