use super::super::laws::as_word;
use super::super::{Files, delivery_opportunities};
use super::{Kind, Shape, Stretch, Waveform, Words};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use units::{ParseError, Span};

/// A Mahimahi trace (Netravali et al. 2015): each line is a millisecond at which a packet of 1500 bytes may be
/// delivered. At its end the trace restarts.
///
/// Here an opportunity carries 1500 bytes of IP packets. Mahimahi uses 1504, because it counts four bytes of its tunnel
/// header with each packet.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The file.
    pub path: PathBuf,
    opportunities: Option<Arc<Vec<Span>>>,
}

impl PartialEq for Trace {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Trace {}

/// Bits per delivery opportunity.
const OPPORTUNITY: u64 = 1_500 * 8;

impl Waveform for Trace {
    const KIND: Kind = Kind {
        name: "trace",
        grammar: "trace FILE",
        summary: "a Mahimahi trace: each line is a millisecond at which 1500 bytes may leave",
        example: "trace verizon-lte.down",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        words.take("trace");
        let path = words.file("trace", "trace FILE")?;
        Ok(Trace { path: path.into(), opportunities: None })
    }

    fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        self.opportunities = Some(Arc::new(delivery_opportunities(files, &self.path)?));
        Ok(())
    }

    fn shape(&self) -> Option<Shape> {
        let mut pieces = Vec::new();
        let mut now = Span::ZERO;
        for group in self.opportunities.as_ref()?.chunk_by(|a, b| a == b) {
            pieces.push(Stretch::Rates(group[0] - now, None, None));
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
