use super::{PortKind, PortSpec, named};
use engine::Kind;
use std::fmt;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind {
        name: "pci",
        grammar: "pci:0000:03:00.1",
        summary: "a NIC bound to DPDK",
        example: "pci:0000:03:00.1",
    },
    takes_value: true,
    is_virtual: false,
    can_receive: true,
    parse: |address| Ok(PortSpec::Pci(named("pci", address, "address")?)),
    print: |port, f| match port {
        PortSpec::Pci(address) => write!(f, "pci:{address}"),
        _ => Err(fmt::Error),
    },
};

/// Whether the text is a PCI address such as 0000:03:00.1, or 03:00.1 as printed by lspci.
pub(super) fn is_pci_address(text: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let shape = text.rsplit_once('.').is_some_and(|(front, function)| front.contains(':') && function.len() == 1);
    shape && (3..=4).contains(&parts.len()) && parts.into_iter().all(hex)
}
