//! `measure --only`: selects the measured frames by a class rule, and counts the excluded ones.

use engine::classes::{Classifier, Rule, Unusable};
use measure::Tally;
use std::str::FromStr;
use units::{FrameLen, ParseError};

/// Separates frames that match a rule from the others, and counts the others.
#[derive(Clone, Debug)]
pub(crate) struct FrameFilter {
    rule: Rule,
    classifier: Classifier,
    left_out: Tally,
}

impl FromStr for FrameFilter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.trim().is_empty() {
            // A script whose variable is not set passes an empty rule.
            return Err(ParseError::new("the rule is empty", "write 'udp dport 53', or leave --only out"));
        }
        let rule: Rule = text.parse()?;
        let classifier = Classifier::new(&[&rule]).map_err(|bad| match bad[..] {
            [Unusable::TooMany] => {
                ParseError::new("the rule has more than 16384 alternatives", "write lists and prefixes")
            }
            _ => ParseError::new(format!("no frame can meet '{rule}'"), rule.correction()),
        })?;
        Ok(FrameFilter { rule, classifier, left_out: Tally::default() })
    }
}

impl FrameFilter {
    /// Returns whether a frame is measured, and counts it if not. `frame` excludes the FCS; `length` is the length on
    /// the link.
    pub(crate) fn takes(&mut self, frame: &[u8], length: FrameLen) -> bool {
        let meets = self.classifier.class(frame) == 0;
        if !meets {
            self.left_out.add(length);
        }
        meets
    }

    /// The parsed rule.
    pub(crate) fn rule(&self) -> String {
        self.rule.to_string()
    }

    /// Frames that arrived and did not match the rule.
    pub(crate) fn left_out(&self) -> Tally {
        self.left_out
    }
}
