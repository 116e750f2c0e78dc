use super::kind::{Description, Header, Length, Next, be16};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "sctp-data",
    aliases: &[],
    about: "first chunk of SCTP, if it has data",
    source: "RFC 9260, section 3.3.1",
    fields: &[
        Field::number("flags", 8, 8, "1 end, 2 beginning, 4 unordered").named_with_layer(),
        Field::number("length", 16, 16, "length of the chunk").role(Role::Length).named_with_layer(),
        Field::number("tsn", 32, 32, "transmission sequence number"),
        Field::number("stream", 64, 16, "stream").named_with_layer(),
        Field::number("seq", 80, 16, "stream sequence number").named_with_layer(),
        Field::number("ppid", 96, 32, "payload protocol identifier"),
    ],
    header: &[0, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[],
    length: Some(Length { at: 2, less: 0 }),
    checksum: None,
    announce: |_, _| false,
    read: |bytes| {
        let header = bytes.get(..16)?;
        let length = usize::from(be16(header, 2)?);
        // Other chunks and padding may follow, so the packet determines where the content ends.
        (header[0] == 0 && length >= 16).then(|| Header::new(16, Next::Payload))
    },
};
