use super::kind::{Bind, Description, Header, Length, Next, be16};
use super::{Field, LayerKind, Role};

/// Flags for extension headers, sequence number and N-PDU number. If any is set, the header has space for all three.
const OPTIONAL: u8 = 7;
const EXTENSIONS: u8 = 4;
/// PDU session container, the extension header of 5G (3GPP TS 38.415).
const PDU_SESSION: u8 = 0x85;

/// Length of the header, and offset of the PDU session container. `None` if an extension header has no length.
fn shape(bytes: &[u8]) -> Option<(usize, Option<usize>)> {
    let flags = *bytes.first()?;
    if flags & OPTIONAL == 0 {
        return Some((8, None));
    }
    let mut next = if flags & EXTENSIONS == 0 { 0 } else { *bytes.get(11)? };
    let (mut at, mut session) = (12, None);
    while next != 0 {
        let length = usize::from(*bytes.get(at)?) * 4;
        if next == PDU_SESSION {
            session = Some(at);
        }
        next = *bytes.get(at + length.checked_sub(1)?)?;
        at += length;
    }
    Some((at, session))
}

/// Sets a flag, adds the optional part, and appends a PDU session container.
fn add(header: &mut Vec<u8>, flag: u8, session: &[u8]) {
    header[0] |= flag;
    header.resize(header.len().max(12), 0);
    if !session.is_empty() {
        header[11] = PDU_SESSION;
        header.extend(session);
    }
}

pub(super) const DESCRIPTION: Description = Description {
    name: "gtpu",
    aliases: &["gtp", "gtp-u"],
    about: "GTP-U version 1, with extension headers",
    source: "3GPP TS 29.281",
    fields: &[
        Field::number("flags", 5, 3, "extension headers, sequence and N-PDU number present")
            .role(Role::Shape)
            .named_with_layer(),
        Field::number("message", 8, 8, "message type: 255 for a packet of a user").role(Role::Shape),
        Field::number("length", 16, 16, "length after the first 8 bytes").role(Role::Length).named_with_layer(),
        Field::number("teid", 32, 32, "tunnel endpoint identifier"),
        Field::number("seq", 0, 16, "sequence number, if present")
            .found(|header| (header.first()? & 2 != 0).then_some(64))
            .added_by(|header| add(header, 2, &[]))
            .named_with_layer(),
        Field::number("qfi", 0, 6, "QoS flow of the PDU session container, if present")
            .found(|header| Some((shape(header)?.1? * 8 + 18) as u16))
            .added_by(|header| add(header, EXTENSIONS, &[1, 0, 0, 0])),
    ],
    header: &[0x30, 255, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::Port(2152)],
    length: Some(Length { at: 2, less: 8 }),
    checksum: None,
    announce: |_, next| matches!(next, LayerKind::Ipv4 | LayerKind::Ipv6),
    read: |bytes| {
        // Version 1 of GTP, not GTP'.
        let [0x30..=0x3f, message, ..] = *bytes.get(..8)? else { return None };
        let (length, _) = shape(bytes).filter(|(length, _)| *length <= bytes.len())?;
        let next = match bytes.get(length).map(|first| first >> 4) {
            _ if message != 255 => Next::Payload,
            Some(4) => Next::Layer(LayerKind::Ipv4),
            Some(6) => Next::Layer(LayerKind::Ipv6),
            _ => Next::Payload,
        };
        // A length of 0 means up to the end of the datagram.
        let whole = Some(be16(bytes, 2)?).filter(|behind| *behind > 0).map(|behind| 8 + usize::from(behind));
        Some(Header { whole, ..Header::new(length, next) })
    },
};
