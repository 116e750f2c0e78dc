//! Injected errors of operations.

use crate::operations::Operations;
use rustix::io::Errno;
use std::fmt;
use units::{ParseError, Share};

/// An error, and the share of operations that fail with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) errno: Errno,
    name: &'static str,
    /// The share of operations; each is decided independently.
    pub share: Share,
    /// The operations it applies to, if named.
    pub operations: Option<Operations>,
}

/// Errors that programs meet on real disks.
const ERRORS: [(&str, Errno); 6] = [
    ("eio", Errno::IO),
    ("enospc", Errno::NOSPC),
    ("edquot", Errno::DQUOT),
    ("erofs", Errno::ROFS),
    ("etimedout", Errno::TIMEDOUT),
    ("enomem", Errno::NOMEM),
];

impl Fault {
    /// Parses `eio 0.1%` and `write,fsync eio 0.1%`.
    ///
    /// # Errors
    /// An unknown error name, or an invalid share.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let bad = |what: String| {
            let names: Vec<&str> = ERRORS.iter().map(|(name, _)| *name).collect();
            ParseError::new(
                what,
                format!("write --error eio 0.1% or --error write,fsync eio 0.1%, with one of {}", names.join(", ")),
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (operations, rest) = Operations::before(&words);
        let [name, share] = *rest else {
            return Err(bad(format!("'{text}' is not an error and its share")));
        };
        let known = ERRORS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (name, errno) = *known.ok_or_else(|| bad(format!("'{name}' is not a supported error")))?;
        Ok(Fault { errno, name, share: share.parse()?, operations })
    }

    /// The name of the error, in lower case.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operations) = self.operations {
            write!(f, "{operations} ")?;
        }
        write!(f, "{} {}", self.name, self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_parsing_and_printing() {
        for text in ["eio 0.1%", "enospc 5%", "etimedout 100%", "read eio 1%", "write,fsync enospc 5%"] {
            assert_eq!(Fault::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Fault::parse("EIO  1%").expect("capitals").name(), "eio");
        for text in ["", "eio", "eio 0.1", "eoi 1%", "eio 101%", "eio 1% 2%", "1% eio", "reed eio 1%", "read 1%"] {
            let error = Fault::parse(text).expect_err(text).to_string();
            assert!(error.contains("write"), "{text}: {error}");
        }
    }
}
