use std::fmt;
use std::str::FromStr;
use units::ParseError;

/// A hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The address as a number; the first byte is the most significant.
    #[must_use]
    pub fn number(self) -> u128 {
        self.0.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    /// The address in the lowest 48 bits of a number.
    #[must_use]
    pub fn of_number(number: u128) -> MacAddr {
        let [.., a, b, c, d, e, f] = number.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }
}

impl FromStr for MacAddr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let bad =
            || ParseError::new(format!("'{text}' is not a MAC address"), "write six hex bytes, 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(MacAddr(bytes)) }
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print() {
        assert_eq!(
            "02:00:5e:00:00:0a".parse::<MacAddr>().map(|mac| mac.to_string()).as_deref(),
            Ok("02:00:5e:00:00:0a")
        );
        let mac = MacAddr([2, 0, 0x5e, 0, 0, 0xa]);
        assert_eq!((mac.number(), MacAddr::of_number(0x0200_5e00_000a)), (0x0200_5e00_000a, mac));
        for text in ["", "02:00:5e:00:00", "02:00:5e:00:00:0a:0b", "2:0:5e:0:0:a", "zz:00:5e:00:00:0a"] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
