use crate::number::{Decimal, ParseError, spaced, write_scaled};
use crate::{PS_PER_S, Share, Span};
use std::fmt;
use std::str::FromStr;

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

/// Frames per second, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameRate(u64);

/// Which bytes of a frame a bit rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The frame with FCS; the default of a rate.
    #[default]
    Frame,
    /// The frame with FCS, preamble and inter-frame gap: `5Gbps wire`.
    Wire,
    /// The packet inside the frame: `5Gbps ip`.
    Ip,
}

/// A rate as written by users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// Bits per second of one layer.
    Bits(BitRate, Layer),
    /// Frames per second.
    Frames(FrameRate),
    /// A share of the line's time, including preamble and gap.
    Line(Share),
}

impl BitRate {
    /// `bps` bits per second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        BitRate(bps)
    }

    /// `gbps` × 10⁹ bits per second.
    #[must_use]
    pub const fn from_gbps(gbps: u64) -> Self {
        BitRate(gbps * 1_000_000_000)
    }

    /// Bits per second.
    #[must_use]
    pub const fn bps(self) -> u64 {
        self.0
    }
}

impl FrameRate {
    /// `mfps` thousandths of a frame per second.
    #[must_use]
    pub const fn from_millis(mfps: u64) -> Self {
        FrameRate(mfps)
    }

    /// Thousandths of a frame per second.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Time between frames, rounded to the nearest picosecond; for display.
    #[must_use]
    pub const fn gap(self) -> Span {
        Span::from_ps(((PS_PER_S as u128 * 1_000 + self.0 as u128 / 2) / self.0 as u128) as u64)
    }
}

/// Bit-rate suffixes as multiples of one bit per second, smallest first.
const BITS: [(&str, u64); 5] =
    [("bps", 1), ("kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000), ("Tbps", 1_000_000_000_000)];

fn bit_scale(unit: &str) -> Option<u128> {
    let per_second = unit.strip_suffix("/s");
    Some(match per_second.unwrap_or(unit) {
        "bit" | "bps" => 1,
        "kbit" | "Kbit" | "kbps" | "Kbps" => 1_000,
        "Mbit" | "mbit" | "Mbps" => 1_000_000,
        "Gbit" | "gbit" | "Gbps" => 1_000_000_000,
        "Tbit" | "tbit" | "Tbps" => 1_000_000_000_000,
        "b" if per_second.is_some() => 1,
        "kb" | "Kb" if per_second.is_some() => 1_000,
        "Mb" if per_second.is_some() => 1_000_000,
        "Gb" if per_second.is_some() => 1_000_000_000,
        "Tb" if per_second.is_some() => 1_000_000_000_000,
        "B" => 8,
        "kB" => 8_000,
        "MB" => 8_000_000,
        "GB" => 8_000_000_000,
        "KiB" => 8 << 10,
        "MiB" => 8 << 20,
        "GiB" => 8 << 30,
        _ => return None,
    })
}

/// The quantity that a misspelt rate unit counts.
enum Counts {
    Bits,
    Bytes,
    Frames,
    Unsaid,
}

/// The prefix of a misspelt rate unit in its correct spelling, and what the unit counts, if clear.
fn meant(unit: &str) -> Option<(&'static str, Counts)> {
    let counts = |rest: &str| {
        Some(match rest {
            "" => Counts::Unsaid,
            "B" | "Bps" | "Byte" | "Bytes" | "byte" | "bytes" | "bytes/s" | "byte/s" => Counts::Bytes,
            "p" | "pps" | "PPS" | "fps" | "p/s" | "packets" | "packets/s" | "pkts/s" | "pkt/s" | "frames"
            | "frames/s" => Counts::Frames,
            _ => match rest.to_ascii_lowercase().trim_end_matches("/sec").trim_end_matches("/s") {
                "b" | "bit" | "bits" | "bps" | "bitps" | "bitsps" => Counts::Bits,
                _ => return None,
            },
        })
    };
    let prefix = match unit.chars().next()? {
        'k' | 'K' => "k",
        'm' | 'M' => "M",
        'g' | 'G' => "G",
        't' | 'T' => "T",
        _ => return counts(unit).map(|counts| ("", counts)),
    };
    counts(&unit[1..]).map(|counts| (prefix, counts))
}

/// Which other kinds of rate are valid.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherRates {
    /// None: only bits or bytes per second.
    No,
    /// Frames per second, and shares of the line.
    Frames,
}

/// The error for an unknown unit of a rate.
fn unknown_unit(number: &Decimal<'_>, text: &str, also: OtherRates) -> ParseError {
    let unit = number.unit;
    let number = number.number();
    if ["mbps", "gbps", "tbps"].contains(&unit) {
        let prefix = unit[..1].to_uppercase();
        let what = format!("'{unit}' in '{text}' means bytes to tc and bits to everybody else");
        return ParseError::new(what, format!("write {number}{prefix}B/s for bytes or {number}{prefix}bps for bits"));
    }
    let what = format!("'{unit}' in '{text}' is not a unit of rate");
    let remedy = match (meant(unit), also) {
        (Some((prefix, Counts::Bits)), _) => format!("write {number}{prefix}bps"),
        (Some((prefix, Counts::Bytes)), _) => format!("write {number}{prefix}B/s"),
        (Some((prefix, Counts::Frames)), OtherRates::Frames) => format!("write {number}{prefix}pps"),
        (Some((prefix, Counts::Unsaid)), OtherRates::Frames) => {
            format!(
                "write {number}{prefix}bps for bits, {number}{prefix}B/s for bytes or {number}{prefix}pps for frames"
            )
        }
        (Some((prefix, Counts::Unsaid)), OtherRates::No) => {
            format!("write {number}{prefix}bps for bits or {number}{prefix}B/s for bytes")
        }
        (_, OtherRates::Frames) => "write 10Mbps, 10Mbit/s, 10MB/s, 1.2Mpps or 50%".to_owned(),
        (_, OtherRates::No) => "write 10Mbps, 10Mbit/s or 10MB/s".to_owned(),
    };
    ParseError::new(what, remedy)
}

impl FromStr for BitRate {
    type Err = ParseError;

    /// Parses `10Mbit`, `10Mbit/s`, `10Mb/s`, `10Mbps` (10⁶ bits per second) and `10MB/s`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        spaced::<Self>(text).map_or_else(|| Self::read(text, OtherRates::No), Err)
    }
}

impl BitRate {
    fn read(text: &str, also: OtherRates) -> Result<Self, ParseError> {
        let number = Decimal::split(text, "a rate", "5Gbps, 10Mbit/s or 10MB/s")?;
        let bytes_without_time = number.unit.ends_with('B');
        let scale =
            bit_scale(number.unit).filter(|_| !bytes_without_time).ok_or_else(|| unknown_unit(&number, text, also))?;
        let bps = number.whole(scale, "1 bit/s", "18446744Tbps")?;
        if bps == 0 {
            return Err(ParseError::new(format!("'{text}' is not a rate"), "write more than zero"));
        }
        Ok(BitRate(bps))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = BITS.iter().rev().find(|(_, scale)| self.0 >= *scale).unwrap_or(&BITS[0]);
        write_scaled(f, self.0, *scale)?;
        f.write_str(name)
    }
}

/// Frame-rate suffixes, in thousandths of a frame per second, smallest first.
const FRAMES: [(&str, u64); 4] =
    [("pps", 1_000), ("kpps", 1_000_000), ("Mpps", 1_000_000_000), ("Gpps", 1_000_000_000_000)];

impl FromStr for FrameRate {
    type Err = ParseError;

    /// Parses `100pps`, `50kpps`, `1.2Mpps`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(error) = spaced::<Self>(text) {
            return Err(error);
        }
        let number = Decimal::split(text, "a frame rate", "50kpps or 1.2Mpps")?;
        let found = FRAMES.iter().find(|(name, _)| *name == number.unit);
        let unknown = || {
            let what = format!("'{}' in '{text}' is not a unit of frame rate", number.unit);
            match meant(number.unit) {
                Some((prefix, Counts::Frames | Counts::Unsaid)) if prefix != "T" => {
                    ParseError::new(what, format!("write {}{prefix}pps", number.number()))
                }
                _ => ParseError::new(what, "write frames a second: 50kpps or 1.2Mpps"),
            }
        };
        let scale = found.ok_or_else(unknown)?.1;
        let millis = number.whole(scale.into(), "0.001 frames/s", "18446744Gpps")?;
        if millis == 0 {
            return Err(ParseError::new(format!("'{text}' is not a rate"), "write more than zero"));
        }
        Ok(FrameRate(millis))
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, scale) = FRAMES.iter().rev().find(|(_, scale)| self.0 >= *scale).unwrap_or(&FRAMES[0]);
        write_scaled(f, self.0, *scale)?;
        f.write_str(name)
    }
}

impl FromStr for Rate {
    type Err = ParseError;

    /// Parses a bit rate with an optional layer (`5Gbps wire`), a frame rate or a share of the line.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (value, layer) = match text.trim().split_once(char::is_whitespace) {
            Some((value, layer)) => (value, Some(layer.trim())),
            None => (text.trim(), None),
        };
        if let Some(unit) = layer.and_then(|layer| layer.split_whitespace().next())
            && unit.starts_with(|first: char| first.is_ascii_alphabetic() || first == '%')
            && value.ends_with(|last: char| last.is_ascii_digit())
            && format!("{value}{unit}").parse::<Rate>().is_ok()
        {
            return Err(ParseError::new(
                format!("'{text}' has a space between a number and its unit"),
                format!("write {value}{unit}"),
            ));
        }
        let rate = if value.ends_with("pps") {
            Rate::Frames(value.parse()?)
        } else if value.ends_with('%') {
            let share: Share = value.parse()?;
            if share == Share::default() {
                return Err(ParseError::new(format!("'{value}' is not a rate"), "write more than zero"));
            }
            Rate::Line(share)
        } else {
            Rate::Bits(BitRate::read(value, OtherRates::Frames)?, Layer::Frame)
        };
        match (rate, layer) {
            (rate, None) => Ok(rate),
            (Rate::Bits(rate, _), Some("wire")) => Ok(Rate::Bits(rate, Layer::Wire)),
            (Rate::Bits(rate, _), Some("ip")) => Ok(Rate::Bits(rate, Layer::Ip)),
            (Rate::Bits(..), Some(word)) if !word.starts_with("then") => Err(ParseError::new(
                format!("'{word}' after '{value}' is not a layer"),
                "write nothing (frame with FCS), wire or ip",
            )),
            (_, Some(word)) if word.starts_with("then ") || word == "then" => Err(ParseError::new(
                format!("'{word}' after '{value}' is unexpected: then is a word of delays"),
                "write 'steps FILE' for a rate that changes, a file of times and rates",
            )),
            (_, Some(word)) => {
                Err(ParseError::new(format!("'{word}' after '{value}' is unexpected"), format!("write {value} alone")))
            }
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Bits(rate, Layer::Frame) => rate.fmt(f),
            Rate::Bits(rate, Layer::Wire) => write!(f, "{rate} wire"),
            Rate::Bits(rate, Layer::Ip) => write!(f, "{rate} ip"),
            Rate::Frames(rate) => rate.fmt(f),
            Rate::Line(share) => share.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn distinguishes_bits_from_bytes() {
        for (text, bps) in [
            ("10Mbit", 10_000_000),
            ("10Mbit/s", 10_000_000),
            ("10Mbps", 10_000_000),
            ("10mbit", 10_000_000),
            ("3.7Gbps", 3_700_000_000),
            ("0.37Gbps", 370_000_000),
            ("10MB/s", 80_000_000),
            ("1Gb/s", 1_000_000_000),
            ("1.5kb/s", 1_500),
            ("1KiB/s", 8_192),
        ] {
            assert_eq!(text.parse::<BitRate>().map(BitRate::bps), Ok(bps), "{text}");
        }
    }

    #[test]
    fn refuses_ambiguous_units_with_a_hint() {
        let error = "10mbps".parse::<Rate>().expect_err("mbps").to_string();
        assert!(error.contains("MB/s") && error.contains("Mbps"), "{error}");
        for text in ["10", "10M", "10MB", "-1Gbps", "0Gbps", "0%", "0pps", "5Gbps l1", "50% wire", "1.5bps"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["10M", "10MB", "5pps", "50%"] {
            let error = text.parse::<BitRate>().expect_err(text).to_string();
            assert!(
                !error.contains("Mpps") && !error.contains("or 50%"),
                "suggests no unit that is refused too: {error}"
            );
        }
        for text in ["1Gbps", "50%", "1M", "1mpps", "5MB/s"] {
            let error = text.parse::<FrameRate>().expect_err(text).to_string();
            let remedy = error.split(": ").skip(1).collect::<String>();
            assert!(
                remedy.contains("Mpps") && !remedy.contains("Mbps"),
                "suggests no unit that is refused too: {error}"
            );
        }
    }

    #[test]
    fn errors_name_the_intended_spelling() {
        for (text, expected) in [
            ("1G", "write 1Gbps for bits, 1GB/s for bytes or 1Gpps for frames"),
            ("2.5k", "write 2.5kbps for bits, 2.5kB/s for bytes or 2.5kpps for frames"),
            ("1Gb", "write 1Gbps"),
            ("10MBit", "write 10Mbps"),
            ("10Mbits/sec", "write 10Mbps"),
            ("10MB", "write 10MB/s"),
            ("10MBps", "write 10MB/s"),
            ("1Mfps", "write 1Mpps"),
            ("1kpkts/s", "write 1kpps"),
            ("10mbps", "write 10MB/s for bytes or 10Mbps for bits"),
            ("10xyz", "write 10Mbps, 10Mbit/s, 10MB/s, 1.2Mpps or 50%"),
        ] {
            let error = text.parse::<Rate>().expect_err(text).to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
        for (text, expected) in [("1G", "write 1Gbps for bits or 1GB/s for bytes"), ("5 Gbps", "write 5Gbps")] {
            let error = text.parse::<BitRate>().expect_err(text).to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
        for (text, expected) in [("1M", "write 1Mpps"), ("1mpps", "write 1Mpps"), ("5 kpps", "write 5kpps")] {
            let error = text.parse::<FrameRate>().expect_err(text).to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_a_space_before_the_unit() {
        for (text, expected) in [
            ("5 Gbps", "write 5Gbps"),
            ("1.5 Gbps wire", "write 1.5Gbps"),
            ("10 %", "write 10%"),
            ("3 kpps", "write 3kpps"),
            ("5 wire", "no unit"),
            ("1,5Gbps", "has a ',' in its number"),
        ] {
            let error = text.parse::<Rate>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn parses_layers_and_frame_rates() {
        assert_eq!("5Gbps wire".parse(), Ok(Rate::Bits(BitRate::from_gbps(5), Layer::Wire)));
        assert_eq!("1.2Mpps".parse(), Ok(Rate::Frames(FrameRate::from_millis(1_200_000_000))));
        assert_eq!("50%".parse(), Ok(Rate::Line(Share::from_ppb(500_000_000))));
        assert_eq!(FrameRate::from_millis(50_000_000).gap(), Span::from_us(20));
    }

    proptest! {
        #[test]
        fn survives_printing_and_parsing(bps in 1..u64::MAX, mfps in 1..u64::MAX) {
            prop_assert_eq!(BitRate(bps).to_string().parse::<BitRate>(), Ok(BitRate(bps)));
            prop_assert_eq!(FrameRate(mfps).to_string().parse::<FrameRate>(), Ok(FrameRate(mfps)));
        }
    }
}
