use super::kind::{Bind, Checksum, Description, Header, Next, Over, be16, by_ether_type};
use super::{Field, LayerKind, Role};

const CHECKSUM: u8 = 0x80;
const ROUTING: u8 = 0x40;
const KEY: u8 = 0x20;
const SEQUENCE: u8 = 0x10;

/// Offset in bits of the field that `flag` announces. Fields of higher flags come first.
fn behind(header: &[u8], flag: u8) -> Option<u16> {
    let flags = *header.first()?;
    (flags & flag != 0).then(|| 32 + 32 * (flags & !(flag | (flag - 1)) & 0xb0).count_ones() as u16)
}

/// Sets the flag, and inserts four bytes for its field.
fn add(header: &mut Vec<u8>, flag: u8) {
    if let Some(at) = header.first_mut().map(|flags| *flags |= flag).and_then(|()| behind(header, flag)) {
        let at = usize::from(at / 8);
        header.splice(at..at, [0; 4]);
    }
}

pub(super) const DESCRIPTION: Description = Description {
    name: "gre",
    aliases: &["nvgre"],
    about: "GRE, also as NVGRE and around ERSPAN",
    source: "RFC 2784, RFC 2890, RFC 7637",
    fields: &[
        Field::number("flags", 0, 4, "checksum, routing, key and sequence number present")
            .role(Role::Shape)
            .named_with_layer(),
        Field::number("ethertype", 16, 16, "EtherType of what it carries").role(Role::Shape).named_with_layer(),
        Field::number("checksum", 0, 16, "checksum, if present")
            .found(|header| behind(header, CHECKSUM))
            .added_by(|header| add(header, CHECKSUM))
            .role(Role::Checksum)
            .named_with_layer(),
        Field::number("key", 0, 32, "key, if present")
            .found(|header| behind(header, KEY))
            .added_by(|header| add(header, KEY)),
        Field::number("vsid", 0, 24, "upper 24 bits of the key: virtual subnet of NVGRE")
            .found(|header| behind(header, KEY))
            .added_by(|header| add(header, KEY)),
        Field::number("flow-id", 0, 8, "lower 8 bits of the key: flow of NVGRE")
            .found(|header| behind(header, KEY).map(|at| at + 24))
            .added_by(|header| add(header, KEY)),
        Field::number("seq", 0, 32, "sequence number, if present")
            .found(|header| behind(header, SEQUENCE))
            .added_by(|header| add(header, SEQUENCE))
            .named_with_layer(),
    ],
    header: &[0, 0, 0x08, 0x00],
    binds: &[Bind::Protocol(47)],
    length: None,
    checksum: Some(Checksum { at: 4, over: Over::Content, present: |header| header[0] & CHECKSUM != 0 }),
    announce: |header, next| {
        let number: u16 = match next {
            LayerKind::Erspan if header[0] & SEQUENCE == 0 => {
                let length = header.len();
                header[0] |= SEQUENCE;
                header.resize(length + 4, 0);
                0x88be
            }
            LayerKind::Erspan => 0x88be,
            _ => return by_ether_type(header, 2, next),
        };
        header[2..4].copy_from_slice(&number.to_be_bytes());
        true
    },
    read: |bytes| {
        let (flags, version) = (*bytes.first()?, bytes.get(1)? & 7);
        // Source routes (RFC 1701) and the variant of PPTP are not supported.
        if flags & ROUTING != 0 || version != 0 {
            return None;
        }
        let length = 4 + 4 * (flags & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize;
        let next = match be16(bytes, 2)? {
            // ERSPAN type II has a sequence number and a header of its own; type I has neither.
            0x88be if flags & SEQUENCE == 0 => Next::Layer(LayerKind::Ethernet),
            0x88be | 0x22eb => Next::Layer(LayerKind::Erspan),
            0x6559 => Next::Payload,
            other if other < 0x0600 => Next::Payload,
            other => Next::EtherType(other),
        };
        (bytes.len() >= length).then(|| Header::new(length, next))
    },
};
