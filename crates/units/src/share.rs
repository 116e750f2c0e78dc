use crate::number::{Decimal, ParseError, spaced, write_scaled};
use std::fmt;
use std::str::FromStr;

/// A share of a whole, in parts per billion: `25%` is 250 000 000 ppb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Share {
    /// The whole.
    pub const ONE: Share = Share(1_000_000_000);

    /// `ppb` parts per billion.
    #[must_use]
    pub const fn from_ppb(ppb: u32) -> Self {
        Share(ppb)
    }

    /// Parts per billion.
    #[must_use]
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// The share as a fraction, for reports only.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ONE.0)
    }
}

impl FromStr for Share {
    type Err = ParseError;

    /// Parses `25%`, `0.01%`, up to `100%`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(error) = spaced::<Self>(text) {
            return Err(error);
        }
        let number = Decimal::split(text, "a share", "25% or 0.01%")?;
        if number.unit != "%" {
            return Err(ParseError::new(
                format!("'{}' in '{text}' is not a unit of a share", number.unit),
                "write a share like 25%",
            ));
        }
        let ppb = number.whole(10_000_000, "0.0000001 %", "100%")?;
        if ppb > u64::from(Self::ONE.0) {
            return Err(ParseError::new(format!("'{text}' is more than the whole"), "write at most 100%"));
        }
        Ok(Share(ppb as u32))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, u64::from(self.0), 10_000_000)?;
        f.write_str("%")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_survive_parsing_and_printing() {
        assert_eq!("25%".parse(), Ok(Share::from_ppb(250_000_000)));
        assert_eq!("0.01%".parse(), Ok(Share::from_ppb(100_000)));
        assert_eq!("100%".parse(), Ok(Share::ONE));
        assert!("100.1%".parse::<Share>().is_err());
        assert!("0.25".parse::<Share>().is_err());
        assert_eq!(Share::from_ppb(3_000_000).to_string(), "0.3%");
    }
}
