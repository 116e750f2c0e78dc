use super::kind::{Bind, Checksum, Description, Header, Next, Over};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "sctp",
    aliases: &[],
    about: "SCTP",
    source: "RFC 9260",
    fields: &[
        Field::number("sport", 0, 16, "source port"),
        Field::number("dport", 16, 16, "destination port"),
        Field::number("vtag", 32, 32, "verification tag"),
        Field::number("checksum", 64, 32, "CRC-32C").role(Role::Checksum).named_with_layer(),
    ],
    header: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Protocol(132)],
    length: None,
    checksum: Some(Checksum { at: 8, over: Over::Crc32c, present: |_| true }),
    announce: |_, next| next == LayerKind::SctpData,
    read: |bytes| bytes.get(..12).map(|_| Header::new(12, Next::Layer(LayerKind::SctpData))),
};
