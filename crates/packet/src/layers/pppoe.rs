use super::kind::{Bind, Description, Header, Length, Next, be16};
use super::{Field, LayerKind, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "pppoe",
    aliases: &[],
    about: "PPP over Ethernet, with the PPP protocol",
    source: "RFC 2516",
    fields: &[
        Field::number("code", 8, 8, "code: 0 in a session").role(Role::Shape).named_with_layer(),
        Field::number("session", 16, 16, "identifier of the session"),
        Field::number("length", 32, 16, "length").role(Role::Length).named_with_layer(),
        Field::number("ppp", 48, 16, "PPP protocol").role(Role::Shape),
    ],
    header: &[0x11, 0, 0, 1, 0, 2, 0, 0x21],
    binds: &[Bind::EtherType(0x8864), Bind::EtherType(0x8863)],
    length: Some(Length { at: 4, less: 6 }),
    checksum: None,
    announce: |header, next| {
        let number: u16 = match next {
            LayerKind::Ipv4 => 0x0021,
            LayerKind::Ipv6 => 0x0057,
            LayerKind::Mpls => 0x0281,
            _ => return false,
        };
        header[6..8].copy_from_slice(&number.to_be_bytes());
        true
    },
    read: |bytes| {
        let [0x11, code, ..] = *bytes.get(..6)? else { return None };
        let whole = 6 + usize::from(be16(bytes, 4)?);
        if code != 0 {
            // Discovery.
            return Some(Header::new(6, Next::Payload).whole(whole));
        }
        let next = match be16(bytes, 6)? {
            0x0021 => Next::Layer(LayerKind::Ipv4),
            0x0057 => Next::Layer(LayerKind::Ipv6),
            0x0281 => Next::Layer(LayerKind::Mpls),
            _ => Next::Payload,
        };
        Some(Header::new(8, next).whole(whole))
    },
};
