//! Values in tc's units: `0.3%`, `10msec`, `1mbit`, `1mbps` (bytes), `10k` (1024). A number without a unit is rejected
//! where tc would assume one.

use units::{BitRate, Share, Span};

/// An invalid value: the problem and the remedy.
pub(super) type Wrong = (String, String);

fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> Wrong {
    (what.into(), remedy.into())
}

/// Splits a word into a number and a lower-case unit.
fn split(word: &str) -> (&str, String) {
    let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
    (&word[..end], word[end..].to_ascii_lowercase())
}

/// Whether a word is a number without a unit.
fn is_bare(word: &str) -> bool {
    let (number, unit) = split(word);
    unit.is_empty() && number.starts_with(|c: char| c.is_ascii_digit())
}

/// A time in tc's units, in upper or lower case, or in ps.
pub(super) fn time(word: &str) -> Result<Span, Wrong> {
    let (number, unit) = split(word);
    let unit = match unit.as_str() {
        "" => {
            return Err(wrong(
                "has no unit, and tc itself has read it in three ways: µs up to iproute2 6.8, ns since, ms by its manual",
                format!("write {word}ms, {word}us or {word}ns"),
            ));
        }
        "s" | "sec" | "secs" => "s",
        "ms" | "msec" | "msecs" => "ms",
        "us" | "usec" | "usecs" | "µs" | "μs" => "us",
        "ns" | "nsec" | "nsecs" => "ns",
        "ps" => "ps",
        "min" | "mins" => "min",
        "h" => "h",
        "d" => "d",
        _ if word.starts_with('-') => return Err(wrong("is below zero", "write 10ms, 10us or 1s")),
        other => {
            // The parser for times outside SPECs suggests the right spelling for more units.
            let meant = word.parse::<Span>().err().map(|error| error.to_string());
            let meant = meant.and_then(|error| Some(error.rsplit_once(": ")?.1.to_owned()));
            let remedy = meant.filter(|meant| meant.starts_with(&format!("write {number}")));
            let remedy = remedy.unwrap_or_else(|| "write 10ms, 10us or 1s".to_owned());
            return Err(wrong(format!("ends in '{other}', which is not a unit of time"), remedy));
        }
    };
    format!("{number}{unit}").parse().map_err(|error: units::ParseError| wrong("is not a time", error.to_string()))
}

/// A share. Zero needs no unit.
pub(super) fn share(word: &str) -> Result<Share, Wrong> {
    if is_bare(word) && word != "0" {
        return Err(wrong(format!("has no unit, and tc reads it as {word} %"), format!("write {word}%")));
    }
    let text = word.strip_suffix('%').unwrap_or(word);
    format!("{text}%").parse().map_err(|error: units::ParseError| {
        let (number, unit) = split(word);
        if number.is_empty() || ["", "%"].contains(&unit.as_str()) {
            return wrong("is not a share", error.to_string());
        }
        wrong(format!("ends in '{unit}', which is not a unit of a share"), "write 1% or 0.3%")
    })
}

/// A rate. Also returns true if it was written in bytes with a spelling that means bits elsewhere (`mbps`).
pub(super) fn rate(word: &str) -> Result<(BitRate, bool), Wrong> {
    const HOW: &str = "write 10mbit, 100kbit or 1gbit, or mbps for megabytes a second";
    if is_bare(word) {
        return Err(wrong(
            format!("has no unit, and tc reads it as {word} bit/s"),
            format!("write {word}mbit, {word}kbit or {word}bit"),
        ));
    }
    let (number, unit) = split(word);
    let (scale, bytes) = match unit.as_str() {
        "bit" => (1, false),
        _ if word.starts_with('-') => return Err(wrong("is negative", HOW)),
        "%" => return Err(wrong("is a share of a device's speed, which is not known here", HOW)),
        _ => {
            let (prefix, bytes) = match (unit.strip_suffix("bit"), unit.strip_suffix("bps")) {
                (Some(prefix), _) => (prefix, false),
                (_, Some(prefix)) => (prefix, true),
                _ => {
                    let remedy = meant_rate(number, &word[number.len()..]).unwrap_or_else(|| HOW.to_owned());
                    return Err(wrong(format!("ends in '{unit}', which is not a unit of rate in tc"), remedy));
                }
            };
            let scale: u64 = match prefix {
                "" => 1,
                "k" => 1_000,
                "m" => 1_000_000,
                "g" => 1_000_000_000,
                "t" => 1_000_000_000_000,
                "ki" => 1 << 10,
                "mi" => 1 << 20,
                "gi" => 1 << 30,
                "ti" => 1 << 40,
                _ => return Err(wrong(format!("ends in '{unit}', which is not a unit of rate in tc"), HOW)),
            };
            (scale, bytes)
        }
    };
    let bits = decimal(number, u128::from(scale) * if bytes { 8 } else { 1 });
    match bits {
        Some(0) => Err(wrong("would pass no frame", HOW)),
        Some(bits) => Ok((BitRate::from_bps(bits), bytes)),
        None => Err(wrong("is not a rate of whole bits a second", HOW)),
    }
}

/// tc's spelling of a rate in another tool's unit, if the meaning is clear.
fn meant_rate(number: &str, unit: &str) -> Option<String> {
    let prefix = match unit.chars().next()? {
        'k' | 'K' => "k",
        'm' | 'M' => "m",
        'g' | 'G' => "g",
        't' | 'T' => "t",
        _ => "",
    };
    let rest = unit[prefix.len()..].trim_end_matches("/sec").trim_end_matches("/s").trim_end_matches("ps");
    match rest {
        "" if !prefix.is_empty() => {
            Some(format!("write {number}{prefix}bit for bits a second or {number}{prefix}bps for bytes a second"))
        }
        "b" | "bit" | "bits" | "Bit" | "Bits" => Some(format!("write {number}{prefix}bit")),
        "B" | "byte" | "bytes" | "Byte" | "Bytes" => Some(format!("write {number}{prefix}bps, which are bytes to tc")),
        _ => None,
    }
}

/// Whether a number and the next word form one value that was split by a space.
pub(super) fn is_split(number: &str, unit: &str) -> bool {
    let joined = format!("{number}{unit}");
    let is_unit = unit.starts_with(|c: char| c.is_ascii_alphabetic() || c == '%');
    is_bare(number) && is_unit && (unit == "%" || time(&joined).is_ok() || rate(&joined).is_ok())
}

/// A decimal number × `scale`, if that is a whole number.
fn decimal(text: &str, scale: u128) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || whole.len() > 18 || fraction.len() > 15 {
        return None;
    }
    let units = 10_u128.pow(fraction.len() as u32);
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scaled = (whole.parse::<u128>().ok()? * units + part).checked_mul(scale)?;
    if scaled.is_multiple_of(units) { u64::try_from(scaled / units).ok() } else { None }
}

/// A whole number; `k` and `m` are multiples of 1024, as in tc's sizes.
pub(super) fn count(word: &str) -> Result<u64, Wrong> {
    let (number, unit) = split(word);
    let scale: u64 = match unit.as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(wrong("is not a whole number", "write 1000 or 10k")),
    };
    let value = number.parse::<u64>().ok().and_then(|value| value.checked_mul(scale));
    value.ok_or_else(|| wrong("is not a whole number", "write 1000 or 10k"))
}

/// A number of bytes that may be negative.
pub(super) fn signed(word: &str) -> Result<i32, Wrong> {
    let number = word.parse().ok().filter(|n: &i32| (-65_536..=65_536).contains(n));
    number.ok_or_else(|| wrong("is not a number of bytes", "write 14 or -14"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_values_like_tc() {
        for (word, ps) in [
            ("10ms", 10_000_000_000),
            ("1.5MSEC", 1_500_000_000),
            ("2secs", 2_000_000_000_000),
            ("3usecs", 3_000_000),
            ("7ns", 7_000),
            ("1min", 60_000_000_000_000),
            ("2h", 7_200_000_000_000_000),
        ] {
            assert_eq!(time(word).map(Span::as_ps), Ok(ps), "{word}");
        }
        for (word, bits) in [
            ("10mbit", 10_000_000),
            ("1.5Mbit", 1_500_000),
            ("1mbps", 8_000_000),
            ("9600bit", 9_600),
            ("1kibit", 1_024),
            ("1KBps", 8_000),
        ] {
            assert_eq!(rate(word).map(|(rate, _)| rate.bps()), Ok(bits), "{word}");
        }
        assert_eq!(share("0"), share("0%"));
        assert_eq!((count("1000"), count("2k")), (Ok(1_000), Ok(2_048)));
    }

    #[test]
    fn refuses_values_that_tc_refuses() {
        assert!(time("100").is_err_and(|(what, _)| what.contains("6.8")));
        for (what, of) in [
            (share("0.3").err(), "tc reads it as 0.3 %"),
            (share("25").err(), "tc reads it as 25 %"),
            (rate("9600").err(), "tc reads it as 9600 bit/s"),
            (rate("0").err(), "tc reads it as 0 bit/s"),
        ] {
            assert!(what.is_some_and(|(what, _)| what.contains(of)), "{of}");
        }
        for word in ["10m", "ms", "10 ms", "-1ms"] {
            assert!(time(word).is_err(), "{word}");
        }
        for word in ["10Mbit/s", "0bit", "10%", "mbit", "10xbit", "0.1bit"] {
            assert!(rate(word).is_err(), "{word}");
        }
        for (word, expected) in [
            ("10Mbit/s", "write 10mbit"),
            ("1Gb/s", "write 1gbit"),
            ("1G", "write 1gbit for bits a second or 1gbps for bytes a second"),
            ("10MB/s", "write 10mbps, which are bytes to tc"),
            ("10xbit", "write 10mbit, 100kbit or 1gbit, or mbps for megabytes a second"),
        ] {
            assert_eq!(rate(word).err().map(|(_, how)| how), Some(expected.to_owned()), "{word}");
        }
        for (word, expected) in [("5hours", "write 5h"), ("5m", "write 5ms or 5min"), ("5x", "write 10ms, 10us or 1s")]
        {
            assert_eq!(time(word).err().map(|(_, how)| how), Some(expected.to_owned()), "{word}");
        }
        assert!(is_split("10", "ms") && is_split("1.5", "mbit") && is_split("1", "%"));
        assert!(!is_split("1", "delay") && !is_split("10ms", "ms") && !is_split("7", "8"));
        assert!(share("101%").is_err() && share("-1%").is_err() && count("1.5").is_err());
    }
}
