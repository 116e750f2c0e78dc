use super::kind::{Bind, Checksum, Description, Header, Length, Next, Over, be16, by_port};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "udp",
    aliases: &[],
    about: "UDP",
    source: "RFC 768",
    fields: &[
        Field::number("sport", 0, 16, "source port"),
        Field::number("dport", 16, 16, "destination port"),
        Field::number("length", 32, 16, "length").role(Role::Length).named_with_layer(),
        Field::number("checksum", 48, 16, "checksum; 0 for none").role(Role::Checksum).named_with_layer(),
    ],
    header: &[0, 0, 0, 0, 0, 8, 0, 0],
    binds: &[Bind::Protocol(17)],
    length: Some(Length { at: 4, less: 0 }),
    checksum: Some(Checksum { at: 6, over: Over::PseudoHeader, present: |header| header[6..8] != [0, 0] }),
    announce: |header, next| by_port(header, next),
    read: |bytes| {
        let next = Next::Ports(be16(bytes, 2)?, be16(bytes, 0)?);
        bytes.get(..8)?;
        // 0 in jumbograms, and in datagrams that a NIC is to segment.
        let whole = Some(usize::from(be16(bytes, 4)?)).filter(|length| *length >= 8);
        Some(Header { whole, ..Header::new(8, next) })
    },
};
