use super::{PortKind, PortSpec, line_rate};
use engine::Kind;
use std::fmt;
use std::path::PathBuf;
use units::{BitRate, ParseError};

pub(super) const PORT: PortKind = PortKind {
    kind: Kind {
        name: "wire",
        grammar: "wire:10G[,pcap=FILE][,frames=FILE][,fillers=keep][,dic=on]",
        summary: "the model line",
        example: "wire:10G",
    },
    takes_value: true,
    is_virtual: true,
    can_receive: false,
    parse: |options| wire(options).map(PortSpec::Wire),
    print: |port, f| match port {
        PortSpec::Wire(wire) => {
            write!(f, "wire:{}", wire.rate)?;
            if let Some(path) = &wire.pcap {
                write!(f, ",pcap={}", path.display())?;
            }
            if let Some(path) = &wire.frames {
                write!(f, ",frames={}", path.display())?;
            }
            f.write_str(if wire.keep_fillers { ",fillers=keep" } else { "" })?;
            f.write_str(if wire.deficit_idle_count { ",dic=on" } else { "" })
        }
        _ => Err(fmt::Error),
    },
};

/// The model line and its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSpec {
    /// Line rate.
    pub rate: BitRate,
    /// Capture of the frames that the receiver sees.
    pub pcap: Option<PathBuf>,
    /// List of frames with their starts in picoseconds.
    pub frames: Option<PathBuf>,
    /// Also lists and captures fillers.
    pub keep_fillers: bool,
    /// Whether the MAC aligns frames with a deficit idle count.
    pub deficit_idle_count: bool,
}

fn wire(options: &str) -> Result<WireSpec, ParseError> {
    let mut parts = options.split(',');
    let rate = line_rate(parts.next().unwrap_or_default(), "wire:")?;
    let mut wire = WireSpec { rate, pcap: None, frames: None, keep_fillers: false, deficit_idle_count: false };
    for option in parts {
        match option.split_once('=') {
            Some(("pcap", file)) if !file.is_empty() => wire.pcap = Some(file.into()),
            Some(("frames", file)) if !file.is_empty() => wire.frames = Some(file.into()),
            Some(("fillers", "keep")) => wire.keep_fillers = true,
            Some(("dic", "on")) => wire.deficit_idle_count = true,
            _ => {
                return Err(ParseError::new(
                    format!("'{option}' is not an option of wire"),
                    "write pcap=FILE, frames=FILE, fillers=keep or dic=on",
                ));
            }
        }
    }
    if wire.keep_fillers && wire.pcap.is_none() && wire.frames.is_none() {
        return Err(ParseError::new("fillers=keep has nothing to keep them in", "add pcap=FILE or frames=FILE"));
    }
    Ok(wire)
}
