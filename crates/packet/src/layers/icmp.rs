use super::kind::{Bind, Checksum, Description, Header, Next, Over};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "icmp",
    aliases: &[],
    about: "ICMP",
    source: "RFC 792",
    fields: &[
        Field::number("type", 0, 8, "type"),
        Field::number("code", 8, 8, "code"),
        Field::number("checksum", 16, 16, "checksum").role(Role::Checksum).named_with_layer(),
        Field::number("id", 32, 16, "identifier of an echo").named_with_layer(),
        Field::number("seq", 48, 16, "sequence number of an echo").named_with_layer(),
    ],
    header: &[8, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Protocol(1)],
    length: None,
    checksum: Some(Checksum { at: 2, over: Over::Content, present: |_| true }),
    announce: |_, _| false,
    read: |bytes| bytes.get(..8).map(|_| Header::new(8, Next::Payload)),
};
