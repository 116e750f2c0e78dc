use crate::number::ParseError;
use std::str::FromStr;

/// Parses a value that a program measured: any decimal number, also with an exponent, rounded to the resolution of its
/// type. Values that users write are parsed by [`FromStr`], which never rounds.
///
/// ```
/// use units::{Span, measured};
/// assert_eq!(measured::<Span>("8.970698720165555e+01us"), Ok(Span::from_ps(89_706_987)));
/// ```
///
/// # Errors
/// As the type's own parser.
pub fn measured<T: FromStr<Err = ParseError>>(text: &str) -> Result<T, ParseError> {
    /// No type resolves more decimals of its largest unit.
    const FINEST: usize = 15;
    let exact = text.parse();
    let Some((integer, fraction, unit)) = exact.is_err().then(|| plain(text)).flatten() else { return exact };
    let mut finest = None;
    for digits in (0..=fraction.len().min(FINEST)).rev() {
        match format!("{}{unit}", rounded(&integer, &fraction, digits)).parse() {
            Ok(value) => return Ok(value),
            Err(error) => finest = finest.or(Some(error)),
        }
    }
    finest.map_or(exact, Err)
}

/// The digits before and after the decimal point, with the exponent applied, and the unit that follows.
fn plain(text: &str) -> Option<(String, String, &str)> {
    const FURTHEST: i32 = 40;
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if integer.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let (exponent, unit) = exponent(rest);
    if exponent.abs() > FURTHEST {
        return None;
    }
    let point = integer.len() as i32 + exponent;
    let digits = format!("{integer}{fraction}");
    let before = usize::try_from(-point).unwrap_or_default();
    let behind = usize::try_from(point).unwrap_or_default().saturating_sub(digits.len());
    let digits = format!("{}{digits}{}", "0".repeat(before), "0".repeat(behind));
    let (integer, fraction) = digits.split_at(usize::try_from(point).unwrap_or_default());
    let integer = integer.trim_start_matches('0');
    Some((if integer.is_empty() { "0" } else { integer }.to_owned(), fraction.to_owned(), unit))
}

/// The exponent at the start of the text, and the rest.
fn exponent(text: &str) -> (i32, &str) {
    let none = (0, text);
    let Some(rest) = text.strip_prefix(['e', 'E']) else { return none };
    let signed = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let digits = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
    let end = rest.len() - signed.len() + digits;
    rest[..end].parse().map_or(none, |exponent| (exponent, &rest[end..]))
}

/// The number rounded to this many decimals, with halves rounded up.
fn rounded(integer: &str, fraction: &str, digits: usize) -> String {
    let up = fraction.as_bytes().get(digits).is_some_and(|digit| *digit >= b'5');
    let mut all: Vec<u8> = [integer, &fraction[..digits]].concat().into_bytes();
    let mut carry = up;
    for digit in all.iter_mut().rev() {
        if !carry {
            break;
        }
        carry = *digit == b'9';
        *digit = if carry { b'0' } else { *digit + 1 };
    }
    let mut text = String::from(if carry { "1" } else { "" });
    text.extend(all.into_iter().map(char::from));
    if digits > 0 {
        text.insert(text.len() - digits, '.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BitRate, FrameRate, Span};

    #[test]
    fn rounds_floats_to_the_resolution_of_their_type() {
        let ps = |text| measured::<Span>(text).map(Span::as_ps);
        for (text, wanted) in [
            ("89.70698720165555us", 89_706_987),
            ("8.970698720165555e+01us", 89_706_987),
            ("8.970698720165555e-05s", 89_706_987),
            ("1.2e-5s", 12_000_000),
            ("1.2E-5s", 12_000_000),
            ("1e3ns", 1_000_000),
            ("12e-13s", 1),
            ("4e-13s", 0),
            ("5e-13s", 1),
            ("9.9999999999999e-1us", 1_000_000),
            ("99.9999999us", 100_000_000),
            ("0.000000000000000000e+00us", 0),
            ("1.000000000000000000e+00us", 1_000_000),
            (".5us", 500_000),
            ("5.us", 5_000_000),
            ("12.5us", 12_500_000),
        ] {
            assert_eq!(ps(text), Ok(wanted), "{text}");
        }
        assert_eq!(measured::<BitRate>("5.1234567890123Gbps").map(BitRate::bps), Ok(5_123_456_789));
        assert_eq!(measured::<FrameRate>("1.23456e1kpps").map(FrameRate::millis), Ok(12_345_600));
    }

    #[test]
    fn errors_of_other_texts_are_those_of_the_type() {
        for (text, wanted) in [
            ("NaNus", "does not start with a number"),
            ("-1.5us", "negative"),
            ("1e99us", "'1e99us' has an exponent"),
            ("1.2.3us", "does not start with a number"),
            ("1e12s", "too large"),
            ("1.25", "no unit"),
            ("1.2e-5", "no unit"),
            ("1eus", "'eus'"),
            ("us", "does not start with a number"),
        ] {
            let error = measured::<Span>(text).expect_err(text).to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
