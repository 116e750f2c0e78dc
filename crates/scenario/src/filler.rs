use engine::filler::long_fillers;
use packet::{FillerKind, MacAddr};
use std::fmt;
use units::{FrameLen, ParseError, parse_size};

/// Requested fillers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillerSpec {
    /// The device that discards them.
    pub kind: FillerKind,
    /// Alignment of data frames in bytes.
    pub align: u64,
    /// The longest filler.
    pub longest: FrameLen,
}

impl Default for FillerSpec {
    fn default() -> Self {
        FillerSpec { kind: FillerKind::Own, align: 1, longest: FrameLen::MAX_STANDARD }
    }
}

impl FillerSpec {
    /// Parses `self`, `mac-control` or `blackhole=MAC`, optionally followed by `,align=4` or `,align=8` and
    /// `,longest=9018B`.
    ///
    /// # Errors
    /// Another word, a group address, another alignment, or a longest filler without benefit (up to 2 972 B, except the
    /// standard length) or above 9 216 B.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        const HOW: &str =
            "write self, mac-control or blackhole=MAC, then ,align=4 or ,align=8 and ,longest=LENGTH if wanted";
        let mut parts = text.split(',');
        let kind = match parts.next().unwrap_or_default() {
            "self" => FillerKind::Own,
            "mac-control" => FillerKind::MacControl,
            word => match word.strip_prefix("blackhole=") {
                Some(mac) => FillerKind::BlackHole(black_hole(mac)?),
                None => return Err(ParseError::new(format!("'{word}' is not a kind of filler"), HOW)),
            },
        };
        let mut filler = FillerSpec { kind, ..FillerSpec::default() };
        for option in parts {
            match (option, option.strip_prefix("longest=")) {
                ("align=4", _) => filler.align = 4,
                ("align=8", _) => filler.align = 8,
                (_, Some(length)) => {
                    let bytes = parse_size(length)?;
                    let standard = bytes == u64::from(FrameLen::MAX_STANDARD.bytes());
                    filler.longest = match length.parse() {
                        Ok(longest) if standard || !long_fillers(longest).is_empty() => longest,
                        _ => {
                            return Err(ParseError::new(
                                format!(
                                    "fillers of up to {length} need as many frames as standard ones, or are not frames"
                                ),
                                "write longest=2973B to longest=9216B, as far as the port and the devices after it accept them",
                            ));
                        }
                    };
                }
                _ => return Err(ParseError::new(format!("'{option}' is not an option of a filler"), HOW)),
            }
        }
        Ok(filler)
    }
}

fn black_hole(text: &str) -> Result<MacAddr, ParseError> {
    let mac: MacAddr = text.parse()?;
    if mac.0[0] & 1 == 1 {
        return Err(ParseError::new(
            format!("{mac} is a group address, which switches flood"),
            "write one whose first byte is even, 02:00:00:00:00:ff",
        ));
    }
    Ok(mac)
}

impl fmt::Display for FillerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FillerKind::Own => f.write_str("self")?,
            FillerKind::MacControl => f.write_str("mac-control")?,
            FillerKind::BlackHole(mac) => write!(f, "blackhole={mac}")?,
        }
        if self.align > 1 {
            write!(f, ",align={}", self.align)?;
        }
        if self.longest > FrameLen::MAX_STANDARD { write!(f, ",longest={}", self.longest) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_fillers() {
        assert_eq!(FillerSpec::parse("self"), Ok(FillerSpec::default()));
        assert_eq!(FillerSpec::parse("mac-control,align=8").map(|filler| filler.align), Ok(8));
        assert!(FillerSpec::parse("blackhole=02:00:00:00:00:ff").is_ok());
        let longest = |text| FillerSpec::parse(text).map(|filler| filler.longest.bytes());
        assert_eq!((longest("self"), longest("self,longest=9018B,align=4")), (Ok(1_518), Ok(9_018)));
        assert_eq!((longest("self,longest=1518B"), longest("self,longest=2973B")), (Ok(1_518), Ok(2_973)));
        for text in ["", "blackhole", "blackhole=01:00:00:00:00:ff", "self,align=3", "hole"] {
            assert!(FillerSpec::parse(text).is_err(), "{text}");
        }
        for text in ["self,longest=9018", "self,longest=2972B", "self,longest=9217B", "self,longest="] {
            assert!(FillerSpec::parse(text).is_err(), "{text}");
        }
    }
}
