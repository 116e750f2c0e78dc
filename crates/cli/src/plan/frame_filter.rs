//! `measure --only`: which frames are measured, by a rule as classes have it, and how many were left out.

use engine::classes::{Classifier, Rule, Unusable};
use measure::Tally;
use std::str::FromStr;
use units::{FrameLen, ParseError};

/// Tells the frames that meet a rule from the others, which it counts.
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
            // As from a script whose variable is not set.
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
    /// Whether a frame is measured. `frame` is without FCS, and `length` what it had on the link.
    pub(crate) fn takes(&mut self, frame: &[u8], length: FrameLen) -> bool {
        let meets = self.classifier.class(frame) == 0;
        if !meets {
            self.left_out.add(length);
        }
        meets
    }

    /// The rule as it was understood.
    pub(crate) fn rule(&self) -> String {
        self.rule.to_string()
    }

    /// Frames that came and did not meet it.
    pub(crate) fn left_out(&self) -> Tally {
        self.left_out
    }
}
