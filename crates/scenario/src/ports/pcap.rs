use super::{PortKind, PortSpec, named};
use engine::Kind;
use std::fmt;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind { name: "pcap", grammar: "pcap:FILE", summary: "a capture, read or written", example: "pcap:in.pcap" },
    takes_value: true,
    is_virtual: true,
    can_receive: false,
    parse: |file| Ok(PortSpec::Pcap(named("pcap", file, "file")?.into())),
    print: |port, f| match port {
        PortSpec::Pcap(path) => write!(f, "pcap:{}", path.display()),
        _ => Err(fmt::Error),
    },
};
