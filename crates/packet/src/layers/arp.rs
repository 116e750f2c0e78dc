use super::kind::{Bind, Description, Header, Next};
use super::{Field, Role};

pub(super) const DESCRIPTION: Description = Description {
    name: "arp",
    aliases: &[],
    about: "ARP for IPv4 over Ethernet",
    source: "RFC 826",
    fields: &[
        Field::number("op", 48, 16, "operation: 1 request, 2 reply"),
        Field::mac("sha", 64, "sender's hardware address"),
        Field::address("src", 112, 32, "sender's IPv4 address"),
        Field::mac("tha", 144, "target's hardware address"),
        Field::address("dst", 192, 32, "target's IPv4 address"),
        Field::number("htype", 0, 16, "hardware type").role(Role::Shape),
    ],
    header: &[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    binds: &[Bind::EtherType(0x0806)],
    length: None,
    checksum: None,
    announce: |_, _| false,
    read: |bytes| (bytes.get(..28)?[..6] == [0, 1, 8, 0, 6, 4]).then(|| Header::new(28, Next::Payload)),
};
