use super::{PortKind, PortSpec, line_rate};
use engine::Kind;
use std::fmt;
use std::path::PathBuf;
use units::{BitRate, ParseError};

pub(super) const PORT: PortKind = PortKind {
    kind: Kind {
        name: "line",
        grammar: "line:10G[,slots=N][,frames=FILE][,fillers=keep]",
        summary: "a line in real time, without a NIC",
        example: "line:10G",
    },
    takes_value: true,
    is_virtual: false,
    can_receive: false,
    parse: |options| line(options).map(PortSpec::Line),
    print: |port, f| match port {
        PortSpec::Line(line) => {
            write!(f, "line:{},slots={}", line.rate, line.slots)?;
            if let Some(path) = &line.frames {
                write!(f, ",frames={}", path.display())?;
            }
            f.write_str(if line.keep_fillers { ",fillers=keep" } else { "" })
        }
        _ => Err(fmt::Error),
    },
};

/// A real-time model line, and the output at its far end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineSpec {
    /// Line rate.
    pub rate: BitRate,
    /// Capacity of the queue before it, in frames.
    pub slots: u32,
    /// List of frames with their starts in picoseconds.
    pub frames: Option<PathBuf>,
    /// Also lists fillers.
    pub keep_fillers: bool,
}

impl LineSpec {
    /// Default slots of the queue, as in NICs.
    pub const SLOTS: u32 = 4_096;
}

fn line(options: &str) -> Result<LineSpec, ParseError> {
    let mut parts = options.split(',');
    let rate = line_rate(parts.next().unwrap_or_default(), "line:")?;
    let mut line = LineSpec { rate, slots: LineSpec::SLOTS, frames: None, keep_fillers: false };
    for option in parts {
        match option.split_once('=') {
            Some(("frames", file)) if !file.is_empty() => line.frames = Some(file.into()),
            Some(("fillers", "keep")) => line.keep_fillers = true,
            Some(("slots", number)) => {
                line.slots = number.parse().ok().filter(|slots| (64..=1 << 20).contains(slots)).ok_or_else(|| {
                    ParseError::new(format!("'{number}' is not a number of slots"), "write slots=64 to slots=1048576")
                })?;
            }
            _ => {
                return Err(ParseError::new(
                    format!("'{option}' is not an option of line"),
                    "write slots=N, frames=FILE or fillers=keep",
                ));
            }
        }
    }
    if line.keep_fillers && line.frames.is_none() {
        return Err(ParseError::new("fillers=keep has nothing to keep them in", "add frames=FILE"));
    }
    Ok(line)
}
