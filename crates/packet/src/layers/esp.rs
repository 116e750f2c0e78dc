use super::Field;
use super::kind::{Bind, Description, Header, Next};

pub(super) const DESCRIPTION: Description = Description {
    name: "esp",
    aliases: &[],
    about: "IPsec encapsulating security payload, also in UDP",
    source: "RFC 4303",
    fields: &[
        Field::number("spi", 0, 32, "security parameters index"),
        Field::number("seq", 32, 32, "sequence number").named_with_layer(),
    ],
    header: &[0, 0, 1, 0, 0, 0, 0, 1],
    // Port 4500: RFC 3948.
    binds: &[Bind::Protocol(50), Bind::Port(4500)],
    length: None,
    checksum: None,
    // An SPI of zero marks IKE in UDP.
    announce: |_, _| false,
    read: |bytes| (bytes.get(..8)?[..4] != [0; 4]).then(|| Header::new(8, Next::Payload)),
};
