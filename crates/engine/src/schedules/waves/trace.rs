use super::super::Files;
use super::super::laws::as_word;
use super::{Shape, Stretch, WaveKind, Waveform, Words};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{ParseError, Span};

/// A trace of Mahimahi (Netravali et al. 2015): each line is a millisecond at which a packet of
/// 1500 bytes may be delivered. At its end the trace starts again.
///
/// An opportunity carries 1500 bytes of IP packets here; Mahimahi's own 1504 count four bytes of its
/// tunnel with each packet.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The file.
    pub path: PathBuf,
    opportunities: Option<Arc<Vec<u64>>>,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Trace {}

/// Bits of a delivery opportunity.
const OPPORTUNITY: u64 = 1_500 * 8;

impl Waveform for Trace {
    const KIND: WaveKind = WaveKind {
        name: "trace",
        grammar: "trace FILE",
        summary: "a trace of Mahimahi: each line a millisecond at which 1500 bytes may go",
        example: "trace verizon-lte.down",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        words.take("trace");
        let path = words.file("trace", "trace FILE")?;
        Ok(Trace { path: path.into(), opportunities: None })
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        const HOW: &str = "write a whole number of milliseconds on each line, in order, the last one above 0";
        let text = files.text(&self.path)?;
        let mut times: Vec<u64> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |what: &str| ParseError::new(format!("{}:{number}: '{line}' {what}", self.path.display()), HOW);
            let time: u64 =
                line.parse().ok().filter(|ms| *ms <= 86_400_000).ok_or_else(|| wrong("is no time in ms"))?;
            if times.last().is_some_and(|before| *before > time) {
                return Err(wrong("is before the line ahead of it"));
            }
            times.push(time);
        }
        if times.last().is_none_or(|last| *last == 0) {
            return Err(ParseError::new(format!("{} has no delivery opportunities", self.path.display()), HOW));
        }
        self.opportunities = Some(Arc::new(times));
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let mut pieces = Vec::new();
        let mut now = 0;
        for group in self.opportunities.as_ref()?.chunk_by(|a, b| a == b) {
            pieces.push(Stretch::Rates(Span::from_ms(group[0] - now), None, None));
            pieces.push(Stretch::Opportunity(group.len() as u64 * OPPORTUNITY));
            now = group[0];
        }
        Some(Shape { pieces, repeats: true })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace {}", as_word(&self.path.display().to_string()))
    }
}
