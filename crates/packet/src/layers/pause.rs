use super::kind::{Bind, Description, Header, Next};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "pause",
    aliases: &[],
    about: "MAC control: pause",
    source: "IEEE 802.3, annex 31B",
    fields: &[
        Field::number("opcode", 0, 16, "opcode: 1").role(Role::Shape).named_with_layer(),
        Field::number("quanta", 16, 16, "pause time in units of 512 bit times"),
    ],
    header: &[0, 1, 0xff, 0xff],
    binds: &[Bind::EtherType(0x8808)],
    length: None,
    checksum: None,
    announce: |_, _| false,
    read: |bytes| (bytes.get(..4)?[..2] == [0, 1]).then(|| Header::new(4, Next::Payload)),
};
