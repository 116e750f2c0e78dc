use super::kind::{Bind, Description, Header, Next};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "pfc",
    aliases: &[],
    about: "MAC control: priority flow control",
    source: "IEEE 802.1Q, clause 36",
    fields: &[
        Field::number("opcode", 0, 16, "opcode: 0x101").role(Role::Shape).named_with_layer(),
        Field::number("classes", 24, 8, "priorities that are meant, one bit each"),
        Field::number("time0", 32, 16, "pause time of priority 0"),
        Field::number("time1", 48, 16, "pause time of priority 1"),
        Field::number("time2", 64, 16, "pause time of priority 2"),
        Field::number("time3", 80, 16, "pause time of priority 3"),
        Field::number("time4", 96, 16, "pause time of priority 4"),
        Field::number("time5", 112, 16, "pause time of priority 5"),
        Field::number("time6", 128, 16, "pause time of priority 6"),
        Field::number("time7", 144, 16, "pause time of priority 7"),
    ],
    header: &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::EtherType(0x8808)],
    length: None,
    checksum: None,
    announce: |_, _| false,
    read: |bytes| (bytes.get(..20)?[..2] == [1, 1]).then(|| Header::new(20, Next::Payload)),
};
