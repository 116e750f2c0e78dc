use crate::arrivals::Arrivals;
use crate::capture::{CaptureAnomalies, CaptureReader};
use crate::error::SimError;
use crate::source::Source;
use packet::{HeapFrame, Rewrite};
use std::path::{Path, PathBuf};
use units::{PS_PER_S, Span, Time};

/// A replayed capture. Frames are read on demand, so the file may be larger than memory.
pub struct ReplaySource {
    path: PathBuf,
    arrivals: Arrivals,
    /// Converts times of the capture to times of the run.
    scale: Box<dyn Fn(Span) -> Span + Send + Sync>,
    /// Whether all frames are present from the start.
    backlog: bool,
    rewrite: Vec<Rewrite>,
    /// Number of rounds after this one.
    again: u64,
    /// Maximum number of remaining frames.
    left: u64,
    /// The pause between rounds, and the maximum gap within one.
    pauses: Pauses,
    /// Start of this round in the run, and the total by which gaps have been shortened since.
    began: Span,
    shortened: Span,
    /// The last record: its time in the capture relative to the first, its arrival in the run, and its number in this
    /// round.
    since: Span,
    last: Span,
    records: u64,
    next: HeapFrame,
    arrival: Option<Time>,
    failed: Option<SimError>,
}

/// Times that a replay does not take from its capture.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauses {
    /// Time from the last frame of a round to the first of the next; if not set, the mean gap of the round.
    pub loop_gap: Option<Span>,
    /// Longer gaps are shortened to this value.
    pub max_gap: Option<Span>,
}

impl ReplaySource {
    /// Replays a capture `times` times, with at most `most` frames in total. `scale` converts times of the capture to
    /// times of the run; without it, all frames are present from the start.
    ///
    /// # Errors
    /// As [`CaptureReader::open`].
    pub fn open(
        path: &Path,
        (times, most): (u64, u64),
        scale: Option<Box<dyn Fn(Span) -> Span + Send + Sync>>,
        pauses: Pauses,
        rewrite: Vec<Rewrite>,
    ) -> Result<Self, SimError> {
        let mut source = ReplaySource {
            path: path.to_owned(),
            arrivals: Arrivals::new(CaptureReader::open(path)?),
            backlog: scale.is_none(),
            scale: scale.unwrap_or_else(|| Box::new(|_| Span::ZERO)),
            rewrite,
            again: times.saturating_sub(1),
            left: most,
            pauses,
            began: Span::ZERO,
            shortened: Span::ZERO,
            since: Span::ZERO,
            last: Span::ZERO,
            records: 0,
            next: HeapFrame::default(),
            arrival: None,
            failed: None,
        };
        source.look_ahead();
        Ok(source)
    }

    fn look_ahead(&mut self) {
        self.arrival = self.next_arrival().unwrap_or_else(|error| {
            self.failed = Some(error);
            None
        });
    }

    /// Reads the next frame.
    fn next_arrival(&mut self) -> Result<Option<Time>, SimError> {
        if self.left == 0 {
            return Ok(None);
        }
        let since = loop {
            let read = match self.backlog {
                // Timestamps are not needed.
                true => self.arrivals.read_unstamped(&mut self.next)?.then_some(Time::ZERO),
                false => self.arrivals.read(&mut self.next)?,
            };
            match read {
                Some(at) => break at.since(Time::ZERO),
                None if self.again > 0 && self.records > 0 => {
                    self.again -= 1;
                    self.arrivals.restart(&self.path)?;
                    let gaps = (self.records - 1).max(1);
                    let mean = match self.shortened {
                        Span::ZERO => (self.scale)(Span::from_ps(self.since.as_ps() / gaps)),
                        _ => Span::from_ps((self.last - self.began).as_ps() / gaps),
                    };
                    let pause = self.pauses.loop_gap.unwrap_or(mean);
                    (self.began, self.shortened) = (self.last + pause, Span::ZERO);
                    self.records = 0;
                }
                None => return Ok(None),
            }
        };
        self.records += 1;
        self.left -= 1;
        self.since = since;
        let at = self.began.as_ps().checked_add((self.scale)(since).as_ps()).ok_or(SimError::TooLong)?;
        let mut at = Span::from_ps(at) - self.shortened;
        if let Some(most) = self.pauses.max_gap.filter(|most| self.records > 1 && at - self.last > *most) {
            self.arrivals.count_capped();
            self.shortened = self.shortened + (at - self.last - most);
            at = self.last + most;
        }
        self.last = at;
        Ok(Some(Time::ZERO + at))
    }
}

impl Source for ReplaySource {
    fn arrival(&self) -> Option<Time> {
        self.arrival
    }

    fn take(&mut self, frame: &mut HeapFrame) {
        std::mem::swap(frame, &mut self.next);
        if !self.rewrite.is_empty() {
            let mut changed = true;
            frame.edit(|bytes| self.rewrite.iter().for_each(|rule| changed &= rule.apply(bytes)));
            self.arrivals.count_unrewritten(!changed);
        }
        self.look_ahead();
    }

    fn failure(&mut self) -> Option<SimError> {
        self.failed.take()
    }

    fn epoch_ns(&self) -> u64 {
        // Gaps are shortened in capture time.
        let second = (self.scale)(Span::from_ps(PS_PER_S)).as_ps();
        let shortened = u128::from(self.arrivals.shortened_ns()) * u128::from(second) / u128::from(PS_PER_S);
        self.arrivals.first_ns().saturating_add(u64::try_from(shortened).unwrap_or(u64::MAX))
    }

    fn anomalies(&self) -> Option<&CaptureAnomalies> {
        Some(self.arrivals.reader().anomalies())
    }

    fn is_backlog(&self) -> bool {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::CaptureWriter;
    use crate::output::WhenFull;
    use packet::Frame;

    /// Frames of 60, 61 and 62 bytes at 0, 10 and 40 ns.
    fn capture(folder: &Path) -> PathBuf {
        let path = folder.join("a.pcap");
        let mut writer = CaptureWriter::create(&path, WhenFull::Wait).expect("writable");
        for (at, length) in [(0, 60), (10, 61), (40, 62)] {
            writer.write(1_700_000_000_000_000_000 + at, &vec![2; length], length as u32).expect("written");
        }
        writer.finish().expect("written");
        path
    }

    fn arrivals(mut source: ReplaySource) -> Vec<(u64, usize)> {
        let mut got = Vec::new();
        let mut frame = HeapFrame::default();
        while let Some(arrival) = source.arrival() {
            source.take(&mut frame);
            got.push((arrival.as_ps(), frame.bytes().len()));
        }
        assert!(source.failure().is_none());
        got
    }

    #[test]
    fn replays_with_original_timing_rounds_and_scale() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = capture(folder.path());
        let own = ReplaySource::open(&path, (2, u64::MAX), Some(Box::new(|span| span)), Pauses::default(), Vec::new())
            .expect("a capture");
        assert_eq!(own.epoch_ns(), 1_700_000_000_000_000_000);
        // The rounds are separated by the mean gap, 20 ns.
        let expected = [(0, 60), (10_000, 61), (40_000, 62), (60_000, 60), (70_000, 61), (100_000, 62)];
        assert_eq!(arrivals(own), expected);
        for most in 1..7 {
            let some = ReplaySource::open(&path, (2, most), Some(Box::new(|span| span)), Pauses::default(), Vec::new())
                .expect("a capture");
            assert_eq!(arrivals(some), expected[..most as usize]);
        }
        let half = Box::new(|span: Span| Span::from_ps(span.as_ps() / 2));
        let fast =
            ReplaySource::open(&path, (1, u64::MAX), Some(half), Pauses::default(), Vec::new()).expect("a capture");
        assert_eq!(arrivals(fast), [(0, 60), (5_000, 61), (20_000, 62)]);
        let backlog = ReplaySource::open(&path, (1, u64::MAX), None, Pauses::default(), Vec::new()).expect("a capture");
        assert!(backlog.is_backlog());
        assert_eq!(arrivals(backlog), [(0, 60), (0, 61), (0, 62)]);
    }

    #[test]
    fn applies_changes_and_adjusts_lengths() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = vec!["vlan 5".parse().expect("a rule"), "dmac 02:00:00:00:00:09".parse().expect("a rule")];
        let source = ReplaySource::open(&capture(folder.path()), (1, u64::MAX), None, Pauses::default(), rules)
            .expect("a capture");
        assert_eq!(arrivals(source).iter().map(|(_, length)| *length).collect::<Vec<_>>(), [64, 65, 66]);
    }
}
