//! What happened: how many operations of each kind, what was asked of them, what was obtained.

use crate::operations::Operation;
use hdrhistogram::Histogram;
use std::time::Instant;
use units::{PS_PER_NS, Span};

/// What one kind of operation came to.
#[derive(Clone, Debug)]
pub struct Tally {
    /// How many were answered.
    pub count: u64,
    /// Bytes read or written; zero for operations that move none.
    pub bytes: u64,
    /// How many were told to fail, and did.
    pub injected: u64,
    /// How many failed by themselves: what is not there, is full, is not permitted.
    pub failed: u64,
    /// The delays drawn, in ns, to 0.1 %; of operations without one there is none.
    pub asked: Histogram<u64>,
    /// From being given an operation to answering it, in ns, to 0.1 %: with what the backing directory
    /// and the rate took.
    pub obtained: Histogram<u64>,
    /// When the first came and when the last was answered.
    pub span: Option<(Instant, Instant)>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new(3).expect("one to five digits are possible");
        let (asked, obtained) = (histogram(), histogram());
        Tally { count: 0, bytes: 0, injected: 0, failed: 0, asked, obtained, span: None }
    }
}

impl Tally {
    pub(crate) fn count(
        &mut self,
        bytes: u64,
        asked: Option<Span>,
        arrived: Instant,
        now: Instant,
        injected: bool,
        failed: bool,
    ) {
        self.count += 1;
        self.bytes += bytes;
        self.injected += u64::from(injected);
        self.failed += u64::from(failed);
        let grows = "the histogram grows to any value";
        if let Some(asked) = asked {
            self.asked.record(asked.as_ps() / PS_PER_NS).expect(grows);
        }
        let took = u64::try_from((now - arrived).as_nanos()).unwrap_or(u64::MAX);
        self.obtained.record(took).expect(grows);
        let (first, last) = self.span.unwrap_or((arrived, now));
        self.span = Some((first.min(arrived), last.max(now)));
    }
}

/// The tallies of all operations.
#[derive(Clone, Debug, Default)]
pub struct Tallies(Vec<(Operation, Tally)>);

impl Tallies {
    pub(crate) fn of(&mut self, operation: Operation) -> &mut Tally {
        let place = self.0.iter().position(|(other, _)| *other == operation).unwrap_or_else(|| {
            self.0.push((operation, Tally::default()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }

    /// Operations of all kinds.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(_, tally)| tally.count).sum()
    }

    /// Those of which there was at least one, in the order of [`Operation::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Operation, &Tally)> {
        Operation::ALL.iter().filter_map(|operation| {
            self.0.iter().find(|(other, _)| other == operation).map(|(operation, tally)| (*operation, tally))
        })
    }
}
