use super::{PortKind, PortSpec};
use engine::Kind;
use std::fmt;
use units::ParseError;

pub(super) const PORT: PortKind = PortKind {
    kind: Kind {
        name: "if",
        grammar: "eth0, if:eth0[,driver=af_xdp|af_packet][,queues=N]",
        summary: "a Linux interface",
        example: "if:eth0",
    },
    takes_value: true,
    is_virtual: false,
    can_receive: true,
    parse: interface,
    print: |port, f| match port {
        PortSpec::Interface { name, driver, queues } => {
            write!(f, "if:{name}")?;
            match driver {
                Some(Driver::AfXdp) => f.write_str(",driver=af_xdp")?,
                Some(Driver::AfPacket) => f.write_str(",driver=af_packet")?,
                None => {}
            }
            queues.map_or(Ok(()), |queues| write!(f, ",queues={queues}"))
        }
        _ => Err(fmt::Error),
    },
};

/// How to access a Linux interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// AF_XDP sockets.
    AfXdp,
    /// AF_PACKET sockets.
    AfPacket,
}

fn interface(text: &str) -> Result<PortSpec, ParseError> {
    let mut parts = text.split(',');
    let name = interface_name(parts.next().unwrap_or_default())?;
    let (mut driver, mut queues) = (None, None);
    for option in parts {
        match (option, option.strip_prefix("queues=").and_then(|number| number.parse().ok())) {
            ("driver=af_xdp", _) => driver = Some(Driver::AfXdp),
            ("driver=af_packet", _) => driver = Some(Driver::AfPacket),
            (_, Some(number @ 1..=64)) => queues = Some(number),
            _ => {
                let what = format!("'{option}' is not an option of an interface");
                return Err(ParseError::new(what, "write driver=af_xdp, driver=af_packet or queues=1 to queues=64"));
            }
        }
    }
    Ok(PortSpec::Interface { name, driver, queues })
}

/// An interface name that Linux and the arguments of DPDK's drivers accept: 1 to 15 bytes without slashes, spaces and
/// control characters, and without the characters that are special there (`,` `:` `%`).
pub(super) fn interface_name(name: &str) -> Result<String, ParseError> {
    // Invisible characters make a name look like another one, or turn the text around it.
    let invisible = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let refused = |c: char| c.is_whitespace() || c.is_control() || invisible(c) || "/,:%".contains(c);
    if name.is_empty() || name.len() > 15 || name.contains(refused) || name == "." || name == ".." {
        let what = format!("'{}' cannot be the name of an interface", name.escape_debug());
        let how = match name.split_once(',') {
            Some((own, _)) if !own.is_empty() => format!("write {own} without options"),
            _ if name.contains('%') => "write the whole name, such as tap0, without %".to_owned(),
            _ => "write 1 to 15 characters without slash, colon or space, or pcap:FILE for a capture".to_owned(),
        };
        return Err(ParseError::new(what, how));
    }
    Ok(name.to_owned())
}
