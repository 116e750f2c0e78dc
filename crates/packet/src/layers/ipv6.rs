use super::kind::{Bind, Description, Header, Length, be16, by_protocol, following};
use super::{Field, Role};
use crate::key::Kind;

/// Payload of the smallest frame in bytes, padding included.
const SMALLEST: usize = 46;

pub(super) const DESCRIPTION: Description = Description {
    name: "ip6",
    aliases: &["ipv6"],
    about: "IPv6; extension headers are layers of their own",
    source: "RFC 8200",
    fields: &[
        Field::number("dscp", 4, 6, "differentiated services").of_kind(Kind::Dscp),
        Field::number("ecn", 10, 2, "explicit congestion notification"),
        Field::number("flow-label", 12, 20, "flow label"),
        Field::number("length", 32, 16, "length after this header").role(Role::Length).named_with_layer(),
        Field::number("proto", 48, 8, "next header").role(Role::Shape),
        Field::number("ttl", 56, 8, "hop limit"),
        Field::address("src", 64, 128, "source address"),
        Field::address("dst", 192, 128, "destination address"),
    ],
    header: &{
        let mut header = [0; 40];
        (header[0], header[6], header[7]) = (0x60, 59, 64);
        header
    },
    // Port 3544: Teredo (RFC 4380).
    binds: &[Bind::EtherType(0x86dd), Bind::Protocol(41), Bind::Port(3544)],
    length: Some(Length { at: 4, less: 40 }),
    checksum: None,
    announce: |header, next| by_protocol(header, 6, next),
    read: |bytes| {
        let fixed = bytes.get(..40)?;
        if fixed[0] >> 4 != 6 {
            return None;
        }
        // 0 in packets of more than 64 KiB, in packets that a NIC is to segment, and in packets without content.
        let whole = match usize::from(be16(fixed, 4)?) {
            0 if bytes.len() > SMALLEST => None,
            length => Some(40 + length),
        };
        Some(Header { whole, ..Header::new(40, following(fixed[6])) })
    },
};
