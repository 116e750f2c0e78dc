use super::kind::{Bind, Checksum, Description, Header, Length, Next, Over, be16, by_protocol};
use super::{Field, Role};
use crate::key::Kind;

pub(super) const DESCRIPTION: Description = Description {
    name: "ip",
    aliases: &["ip4", "ipv4"],
    about: "IPv4, with options",
    source: "RFC 791",
    fields: &[
        Field::number("ihl", 4, 4, "length of the header in words").role(Role::Shape),
        Field::number("dscp", 8, 6, "differentiated services").of_kind(Kind::Dscp),
        Field::number("ecn", 14, 2, "explicit congestion notification"),
        Field::number("length", 16, 16, "length of the packet").role(Role::Length).named_with_layer(),
        Field::number("id", 32, 16, "identification").named_with_layer(),
        Field::number("df", 49, 1, "do not fragment"),
        Field::number("mf", 50, 1, "more fragments").role(Role::Shape),
        Field::number("offset", 51, 13, "fragment offset in 8 bytes").role(Role::Shape).named_with_layer(),
        Field::number("ttl", 64, 8, "time to live"),
        Field::number("proto", 72, 8, "protocol").role(Role::Shape),
        Field::number("checksum", 80, 16, "checksum of the header").role(Role::Checksum).named_with_layer(),
        Field::address("src", 96, 32, "source address"),
        Field::address("dst", 128, 32, "destination address"),
    ],
    header: &[0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::EtherType(0x0800), Bind::Protocol(4)],
    length: Some(Length { at: 2, less: 0 }),
    checksum: Some(Checksum { at: 10, over: Over::Header, present: |_| true }),
    announce: |header, next| by_protocol(header, 9, next),
    read: |bytes| {
        let fixed = bytes.get(..20)?;
        let length = usize::from(fixed[0] & 0x0f) * 4;
        if fixed[0] >> 4 != 4 || length < 20 || bytes.len() < length {
            return None;
        }
        let fragment = be16(fixed, 6)?;
        let next = if fragment & 0x1fff == 0 { Next::Protocol(fixed[9]) } else { Next::Fragment };
        let total = be16(fixed, 2)?;
        // 0 in packets that a NIC is to segment.
        let whole = (total != 0).then_some(usize::from(total));
        Some(Header { whole, fragment: fragment & 0x3fff != 0, ..Header::new(length, next) })
    },
};
