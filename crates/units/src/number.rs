use std::fmt;
use std::str::FromStr;

/// A text that is not a valid value: the problem and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    what: String,
    remedy: String,
}

impl ParseError {
    /// An error with a problem and a remedy.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        ParseError { what: what.into(), remedy: remedy.into() }
    }

    /// Adds the column of the affected word, from 1, unless the problem already names a column.
    #[must_use]
    pub fn at_column(self, column: usize) -> Self {
        if self.what.contains("(column ") {
            return self;
        }
        ParseError { what: format!("{} (column {column})", self.what), ..self }
    }
}

impl ParseError {
    /// The problem.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// How to fix it.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

impl std::error::Error for ParseError {}

/// A decimal number and its unit, split but not yet scaled.
pub(crate) struct Decimal<'a> {
    text: &'a str,
    integer: &'a str,
    fraction: &'a str,
    pub(crate) unit: &'a str,
}

impl<'a> Decimal<'a> {
    /// Splits `12.5us` into `12`, `5` and `us`. `kind` and `example` are for error messages.
    pub(crate) fn split(text: &'a str, kind: &str, example: &str) -> Result<Self, ParseError> {
        let bad = |what: String| ParseError::new(what, format!("write {kind} like {example}"));
        if text.starts_with('-') {
            return Err(bad(format!("'{text}' is negative")));
        }
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (integer, fraction) = match number.split_once('.') {
            Some((integer, fraction)) if !fraction.is_empty() => (integer, fraction),
            Some(_) => return Err(bad(format!("'{text}' has no digit after its point"))),
            None => (number, ""),
        };
        if integer.is_empty() || fraction.contains('.') {
            return Err(bad(format!("'{text}' does not start with a number")));
        }
        if unit.is_empty() {
            return Err(bad(format!("'{text}' has no unit")));
        }
        let mut behind = unit.chars();
        if let (Some(mark @ (',' | '_' | '\'')), Some('0'..='9')) = (behind.next(), behind.next()) {
            return Err(bad(format!("'{text}' has a '{mark}' in its number, where only a decimal point may be")));
        }
        if unit.starts_with(['e', 'E']) && unit[1..].starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
            return Err(bad(format!("'{text}' has an exponent, which is not supported")));
        }
        Ok(Decimal { text, integer, fraction, unit })
    }

    /// The number as written, without its unit.
    pub(crate) fn number(&self) -> &'a str {
        &self.text[..self.text.len() - self.unit.len()]
    }

    /// The value × `scale`, which must be a whole number. For error messages, `resolution` names the smallest step and
    /// `most` the largest value.
    pub(crate) fn whole(&self, scale: u128, resolution: &str, most: &str) -> Result<u64, ParseError> {
        let text = self.text;
        let too_large = || ParseError::new(format!("'{text}' is too large"), format!("write at most {most}"));
        let fraction = self.fraction.trim_end_matches('0');
        if self.integer.len() > 20 {
            return Err(too_large());
        }
        if fraction.len() > 18 {
            return Err(ParseError::new(
                format!("'{text}' is finer than {resolution}"),
                "write fewer digits after the point",
            ));
        }
        let integer: u128 = self.integer.parse().map_err(|_| too_large())?;
        let numerator: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
        let denominator = 10u128.pow(fraction.len() as u32);
        if !(numerator * scale).is_multiple_of(denominator) {
            return Err(ParseError::new(
                format!("'{text}' is finer than {resolution}"),
                format!("write a whole multiple of {resolution}"),
            ));
        }
        let value = integer.checked_mul(scale).and_then(|v| v.checked_add(numerator * scale / denominator));
        value.and_then(|v| u64::try_from(v).ok()).ok_or_else(too_large)
    }
}

/// The error for a space between a number and its unit, if the text is a value without the space.
pub(crate) fn spaced<T: FromStr>(text: &str) -> Option<ParseError> {
    let (number, unit) = text.trim().split_once(char::is_whitespace)?;
    let joined = format!("{number}{}", unit.trim_start());
    joined.parse::<T>().ok()?;
    Some(ParseError::new(format!("'{text}' has a space between a number and its unit"), format!("write {joined}")))
}

/// Writes `value / scale` as an exact decimal; `scale` is a power of ten.
pub(crate) fn write_scaled(f: &mut fmt::Formatter<'_>, value: u64, scale: u64) -> fmt::Result {
    write!(f, "{}", value / scale)?;
    let rest = value % scale;
    if rest > 0 {
        let width = scale.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    Ok(())
}
