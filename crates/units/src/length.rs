use crate::number::{Decimal, ParseError};
use std::fmt;
use std::str::FromStr;

/// Length of an Ethernet frame in bytes **with FCS**, as in RFC 1242 and RFC 2544 (64…1518).
///
/// Captures and DPDK count four bytes less; [`FrameLen::of_captured`] converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameLen(u32);

/// Length of a frame on the line in bytes: the frame with FCS, 8 bytes of preamble and SFD before it, and 12 bytes of
/// inter-frame gap after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireLen(u32);

impl FrameLen {
    /// Length of the frame check sequence in bytes.
    pub const FCS: u32 = 4;
    /// The shortest frame that Ethernet allows.
    pub const MIN: FrameLen = FrameLen(64);
    /// The longest standard frame without a VLAN tag.
    pub const MAX_STANDARD: FrameLen = FrameLen(1518);
    /// The longest frame that netlathe sends (jumbo: 9 000 bytes of payload and space for tags).
    pub const MAX: FrameLen = FrameLen(9_216);

    /// A frame of `bytes` bytes with FCS.
    #[must_use]
    pub const fn new(bytes: u32) -> Self {
        FrameLen(bytes)
    }

    /// A frame of `bytes` bytes without FCS, as captures and DPDK count. Shorter frames are padded to the minimum, as
    /// in every Ethernet MAC. Saturates, because a broken record of a capture may claim any length.
    #[must_use]
    pub const fn of_captured(bytes: u32) -> Self {
        const MOST: u32 = u32::MAX - WireLen::OVERHEAD;
        let with_fcs = bytes.saturating_add(Self::FCS);
        FrameLen(if with_fcs < Self::MIN.0 {
            Self::MIN.0
        } else if with_fcs > MOST {
            MOST
        } else {
            with_fcs
        })
    }

    /// Length in bytes with FCS.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// Length in bytes without FCS, as in memory and in captures.
    #[must_use]
    pub const fn without_fcs(self) -> u32 {
        self.0 - Self::FCS
    }

    /// Byte times from the first byte of the preamble to the last of the FCS: the length on the line without the gap.
    #[must_use]
    pub const fn with_preamble(self) -> u32 {
        self.0 + WireLen::PREAMBLE
    }

    /// The length on the line.
    #[must_use]
    pub const fn on_wire(self) -> WireLen {
        WireLen(self.0 + WireLen::OVERHEAD)
    }
}

impl WireLen {
    /// Preamble, start-of-frame delimiter and inter-frame gap.
    pub const OVERHEAD: u32 = 20;
    /// Preamble and start-of-frame delimiter.
    const PREAMBLE: u32 = 8;
    /// Length on the line of the shortest frame.
    pub const MIN: WireLen = FrameLen::MIN.on_wire();
    /// Length on the line of the longest standard frame.
    pub const MAX_STANDARD: WireLen = FrameLen::MAX_STANDARD.on_wire();

    /// A length of `bytes` byte times.
    #[must_use]
    pub const fn new(bytes: u32) -> Self {
        WireLen(bytes)
    }

    /// Length in byte times.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.0
    }

    /// The frame with this length on the line.
    ///
    /// # Panics
    /// If shorter than the overhead of a frame.
    #[must_use]
    pub const fn frame(self) -> FrameLen {
        FrameLen(self.0 - Self::OVERHEAD)
    }
}

impl FromStr for FrameLen {
    type Err = ParseError;

    /// Parses `64B`: a frame with FCS of 64 to 9 216 bytes.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bytes = parse_size(text)?;
        if (u64::from(Self::MIN.0)..=u64::from(Self::MAX.0)).contains(&bytes) {
            Ok(FrameLen(bytes as u32))
        } else {
            Err(ParseError::new(
                format!("a frame of {bytes} B cannot be sent"),
                format!("write 64B to {}B, FCS included", Self::MAX.0),
            ))
        }
    }
}

impl fmt::Display for FrameLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// Parses a size in bytes: `64B`, `1500B`, `9kB` (1 000), `64KiB` (1 024), up to `TB` and `TiB`.
///
/// # Errors
/// No unit, an unknown unit, or a fraction of a byte.
pub fn parse_size(text: &str) -> Result<u64, ParseError> {
    if let Some((number, unit)) = text.trim().split_once(char::is_whitespace)
        && let joined = format!("{number}{}", unit.trim_start())
        && parse_size(&joined).is_ok()
    {
        let what = format!("'{text}' has a space between a number and its unit");
        return Err(ParseError::new(what, format!("write {joined}")));
    }
    let number = Decimal::split(text, "a size", "64B, 1500B or 64KiB")?;
    let scale: u128 = match number.unit {
        "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        unit => {
            let written = |unit: &str| format!("write {}{unit}", number.number());
            let remedy = match unit.trim() {
                "b" | "byte" | "bytes" | "Byte" | "Bytes" => written("B"),
                "k" | "K" | "KB" | "kb" | "Kb" => format!("{} (1000) or {}KiB (1024)", written("kB"), number.number()),
                "m" | "M" | "mb" | "Mb" => written("MB"),
                "g" | "G" | "gb" | "Gb" => written("GB"),
                "kib" | "Kib" | "kiB" | "Ki" => written("KiB"),
                "mib" | "Mib" | "miB" | "Mi" => written("MiB"),
                "gib" | "Gib" | "giB" | "Gi" => written("GiB"),
                _ => "write B, kB (1000), KiB (1024), MB, MiB, GB or GiB".to_owned(),
            };
            return Err(ParseError::new(format!("'{unit}' in '{text}' is not a unit of size"), remedy));
        }
    };
    number.whole(scale, "1 B", "16777215TiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_lengths_match_the_standard() {
        assert_eq!(FrameLen::MIN.on_wire().bytes(), 84);
        assert_eq!(FrameLen::MAX_STANDARD.on_wire().bytes(), 1538);
        assert_eq!(FrameLen::of_captured(60), FrameLen::MIN);
        assert_eq!(FrameLen::of_captured(42), FrameLen::MIN);
        assert_eq!(FrameLen::of_captured(61).bytes(), 65);
        assert_eq!(FrameLen::of_captured(u32::MAX).on_wire().bytes(), u32::MAX);
        assert_eq!(FrameLen::new(64).without_fcs(), 60);
    }

    #[test]
    fn parses_sizes_with_units() {
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("1.5kB"), Ok(1_500));
        assert!(parse_size("64").is_err());
        assert!(parse_size("0.5B").is_err());
        assert!(parse_size("64k").is_err());
        assert!("63B".parse::<FrameLen>().is_err());
        assert!("64B".parse::<FrameLen>().is_ok());
        assert!("9216B".parse::<FrameLen>().is_ok());
        assert!("9217B".parse::<FrameLen>().is_err());
    }
}
