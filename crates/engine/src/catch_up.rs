use std::fmt;
use std::str::FromStr;
use units::{ParseError, Span, Time};

/// How the schedule continues after a frame departs late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// The schedule is absolute: late frames leave back to back until they have caught up with it. Keeps the rate.
    #[default]
    All,
    /// At most this many late frames leave back to back. Lateness that remains is forgiven: the rest of the schedule is
    /// delayed by it. 0 keeps the gaps.
    AtMost(u32),
}

impl FromStr for CatchUp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match (text, text.parse()) {
            ("all", _) => Ok(CatchUp::All),
            ("none", _) => Ok(CatchUp::AtMost(0)),
            (_, Ok(frames)) => Ok(CatchUp::AtMost(frames)),
            _ => Err(ParseError::new(
                format!("'{text}' is not a policy for late frames"),
                "write all, none, or how many may go back to back",
            )),
        }
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CatchUp::All => f.write_str("all"),
            CatchUp::AtMost(0) => f.write_str("none"),
            CatchUp::AtMost(frames) => write!(f, "{frames}"),
        }
    }
}

/// Watches departures and computes by how much the rest of the schedule moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forgiveness {
    policy: CatchUp,
    /// Lateness up to this counts as on time, because clocks and lines have a finite resolution.
    tolerance: Span,
    /// Late frames in a row.
    late: u32,
    times: u64,
    total: Span,
}

impl Forgiveness {
    pub(crate) fn new(policy: CatchUp, tolerance: Span) -> Self {
        Forgiveness { policy, tolerance, ..Forgiveness::default() }
    }

    /// Records that a frame with target `ask` departed at `start`. Returns the forgiven lateness, if any.
    pub(crate) fn departed(&mut self, ask: Time, start: Time) -> Option<Span> {
        let CatchUp::AtMost(most) = self.policy else { return None };
        let late = start.since(ask);
        if late <= self.tolerance {
            self.late = 0;
            return None;
        }
        self.late += 1;
        if self.late <= most {
            return None;
        }
        self.late = 0;
        self.times += 1;
        self.total = Span::from_ps(self.total.as_ps().saturating_add(late.as_ps()));
        Some(late)
    }

    /// How often lateness was forgiven and how much in total; `None` if the policy never forgives.
    pub(crate) fn total(&self) -> Option<(u64, Span)> {
        (self.policy != CatchUp::All).then_some((self.times, self.total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_catch_up() {
        for (text, policy) in [("all", CatchUp::All), ("none", CatchUp::AtMost(0)), ("3", CatchUp::AtMost(3))] {
            assert_eq!(text.parse(), Ok(policy));
            assert_eq!(policy.to_string(), text);
        }
        for text in ["", "some", "-1", "1.5"] {
            assert!(text.parse::<CatchUp>().is_err(), "{text}");
        }
    }

    #[test]
    fn forgives_lateness_after_the_allowed_run_of_late_frames() {
        let us = |us: u64| Time::from_ps(us * 1_000_000);
        let mut forgiveness = Forgiveness::new(CatchUp::AtMost(2), Span::from_us(1));
        assert_eq!(forgiveness.departed(us(10), us(11)), None, "within the tolerance");
        assert_eq!(forgiveness.departed(us(20), us(50)), None);
        assert_eq!(forgiveness.departed(us(30), us(50)), None);
        assert_eq!(forgiveness.departed(us(40), us(50)), Some(Span::from_us(10)));
        assert_eq!(forgiveness.departed(us(60), us(99)), None, "counted anew");
        assert_eq!(forgiveness.total(), Some((1, Span::from_us(10))));
        assert_eq!(Forgiveness::new(CatchUp::All, Span::ZERO).departed(us(1), us(9)), None);
    }
}
