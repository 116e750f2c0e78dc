use super::kind::{Bind, Description, Header, Next};
use super::{Field, Role};

/// Length in bytes without authentication.
const BYTES: usize = 24;

pub(super) const DESCRIPTION: Description = Description {
    name: "bfd",
    aliases: &[],
    about: "BFD control packet, over one hop or several",
    source: "RFC 5880",
    fields: &[
        Field::number("version", 0, 3, "version: 1").role(Role::Shape).named_with_layer(),
        Field::number("diag", 3, 5, "diagnostic code"),
        Field::number("state", 8, 2, "0 admin down, 1 down, 2 init, 3 up").named_with_layer(),
        Field::number("flags", 10, 6, "poll, final, control plane independent, authentication, demand, multipoint")
            .named_with_layer(),
        Field::number("multiplier", 16, 8, "detection multiplier"),
        Field::number("length", 24, 8, "length of the packet").role(Role::Shape).named_with_layer(),
        Field::number("mine", 32, 32, "discriminator of the sender").named_with_layer(),
        Field::number("yours", 64, 32, "discriminator of the receiver").named_with_layer(),
        Field::number("min-tx", 96, 32, "shortest interval that the sender would like to send at, in µs"),
        Field::number("min-rx", 128, 32, "shortest interval that the sender can receive at, in µs"),
        Field::number("min-echo-rx", 160, 32, "the same for echo packets, in µs"),
    ],
    header: &[0x20, 0xc0, 3, BYTES as u8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x0f, 0x42, 0x40, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0],
    binds: &[Bind::Port(3784), Bind::Port(4784)],
    length: None,
    checksum: None,
    announce: |_, _| false,
    read: |bytes| {
        let header = bytes.get(..BYTES)?;
        (header[0] >> 5 == 1 && usize::from(header[3]) >= BYTES).then(|| Header::new(BYTES, Next::Payload))
    },
};
