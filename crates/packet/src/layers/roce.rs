use super::Field;
use super::kind::{Bind, Checksum, Description, Header, Next, Over};

pub(super) const DESCRIPTION: Description = Description {
    name: "roce",
    aliases: &["bth", "rocev2"],
    about: "RoCEv2: the base transport header of InfiniBand in UDP; the last 4 B of the packet are its ICRC",
    source: "InfiniBand Architecture Specification 1.4, annex A17",
    fields: &[
        Field::number("opcode", 0, 8, "opcode").named_with_layer(),
        Field::number("se", 8, 1, "solicited event"),
        Field::number("pad", 10, 2, "bytes of padding"),
        Field::number("pkey", 16, 16, "partition key"),
        Field::number("fecn", 32, 1, "forward congestion"),
        Field::number("becn", 33, 1, "backward congestion"),
        Field::number("dqp", 40, 24, "destination queue pair"),
        Field::number("ackreq", 64, 1, "acknowledgement requested"),
        Field::number("psn", 72, 24, "packet sequence number"),
    ],
    header: &[4, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Port(4791)],
    length: None,
    // Other protocols on this port fail these checks of the version and of reserved bits.
    checksum: Some(Checksum {
        at: 0,
        over: Over::Invariant,
        present: |header| header[1] & 0x0f == 0 && header[4] & 0x3f == 0 && header[8] & 0x7f == 0,
    }),
    announce: |_, _| false,
    read: |bytes| bytes.get(..12).map(|_| Header::new(12, Next::Payload)),
};
