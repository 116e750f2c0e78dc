use super::{Kind, Shape, Stretch, Waveform, Words, profile, rate};
use std::fmt;
use units::{ParseError, Rate, Span};

/// Bursts at one rate with silence between them, or a sequence of different bursts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// The bursts in order. They repeat after the last one, unless that has a count.
    pub terms: Vec<Term>,
}

/// `burst RATE for TIME every TIME [count N]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// The rate within a burst.
    pub rate: Rate,
    /// Duration of a burst.
    pub lasts: Span,
    /// Time from the start of one burst to the start of the next.
    pub every: Span,
    /// Number of bursts before the next term; 1 if not given.
    pub count: Option<u32>,
}

const EXAMPLE: &str = "burst 8Gbps for 2ms every 10ms";
/// Maximum number of bursts per round. Bounds the table of the waveform.
const MOST: u32 = 100_000;

impl Waveform for Burst {
    const KIND: Kind = Kind {
        name: "burst",
        grammar: "burst RATE for TIME every TIME [count N] [+ burst …]",
        summary: "bursts with silence between them",
        example: EXAMPLE,
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        let mut terms = Vec::new();
        loop {
            if !words.take("burst") {
                return Err(ParseError::new("only bursts are joined by +", format!("write + {EXAMPLE}")));
            }
            terms.push(term(words)?);
            if !words.take("+") {
                return Ok(Burst { terms });
            }
        }
    }

    fn shape(&self) -> Option<Shape> {
        let mut pieces = Vec::new();
        for term in &self.terms {
            for _ in 0..term.count.unwrap_or(1) {
                pieces.push(Stretch::Rates(term.lasts, Some(term.rate), Some(term.rate)));
                pieces.push(Stretch::Rates(term.every - term.lasts, None, None));
            }
        }
        let repeats = self.terms.last().is_some_and(|term| term.count.is_none());
        if !repeats {
            // After the last burst the rate is zero, even without a silence after it.
            pieces.push(Stretch::Rates(Span::from_ps(1), None, None));
        }
        Some(Shape { pieces, repeats })
    }
}

fn term(words: &mut Words<'_>) -> Result<Term, ParseError> {
    let rate = rate(words, EXAMPLE)?;
    let missing = |what: &str| ParseError::new(format!("a burst does not say {what}"), format!("write {EXAMPLE}"));
    let lasts = words.time_after("for")?.ok_or_else(|| missing("how long it lasts"))?;
    let every = words.time_after("every")?.ok_or_else(|| missing("how often it comes"))?;
    if lasts > every || !profile::is_short_enough(every) {
        return Err(ParseError::new(
            format!("bursts of {lasts} do not fit in {every}"),
            "write every with a time as long as the burst at least, and a day at most",
        ));
    }
    let count = if words.take("count") {
        let word = words.next().unwrap_or_default();
        let count = word.parse::<u32>().ok().filter(|count| (1..=MOST).contains(count));
        let wrong = || ParseError::new(format!("'{word}' is not a count of bursts"), format!("write 1 to {MOST}"));
        Some(count.ok_or_else(wrong)?)
    } else {
        None
    };
    Ok(Term { rate, lasts, every, count })
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, term) in self.terms.iter().enumerate() {
            let joint = if i > 0 { " + " } else { "" };
            write!(f, "{joint}burst {} for {} every {}", term.rate, term.lasts, term.every)?;
            if let Some(count) = term.count {
                write!(f, " count {count}")?;
            }
        }
        Ok(())
    }
}
