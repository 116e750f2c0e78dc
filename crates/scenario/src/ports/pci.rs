use super::{PortKind, PortSpec, named};
use engine::Kind;
use std::fmt;
use units::ParseError;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind {
        name: "pci",
        grammar: "pci:0000:03:00.1[,mtu=BYTES]",
        summary: "a NIC bound to DPDK",
        example: "pci:0000:03:00.1",
    },
    takes_value: true,
    is_virtual: false,
    can_receive: true,
    parse,
    print: |port, f| match port {
        PortSpec::Pci { address, mtu } => {
            write!(f, "pci:{address}")?;
            mtu.map_or(Ok(()), |mtu| write!(f, ",mtu={mtu}"))
        }
        _ => Err(fmt::Error),
    },
};

/// The range of MTUs: from the minimum of IPv4 to more than any NIC supports.
const MTU: std::ops::RangeInclusive<u16> = 68..=16_000;

fn parse(text: &str) -> Result<PortSpec, ParseError> {
    let mut words = text.split(',');
    let address = named("pci", words.next().unwrap_or_default(), "address")?;
    let mut mtu = None;
    for option in words {
        let number = option.strip_prefix("mtu=").and_then(|number| number.parse().ok());
        match number.filter(|number| MTU.contains(number)) {
            Some(number) if mtu.is_none() => mtu = Some(number),
            Some(_) => return Err(ParseError::new(format!("'{option}' is a second MTU"), "write one")),
            None => {
                let what = format!("'{option}' is no option of a NIC");
                return Err(ParseError::new(what, format!("write mtu=9000, from {} to {}", MTU.start(), MTU.end())));
            }
        }
    }
    Ok(PortSpec::Pci { address, mtu })
}

/// Whether the text is a PCI address such as 0000:03:00.1, or 03:00.1 as printed by lspci.
pub(super) fn is_pci_address(text: &str) -> bool {
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let shape = text.rsplit_once('.').is_some_and(|(front, function)| front.contains(':') && function.len() == 1);
    shape && (3..=4).contains(&parts.len()) && parts.into_iter().all(hex)
}
