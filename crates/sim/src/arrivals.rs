//! Arrival times of a capture's frames: their timestamps, made monotonic and kept within the range of instants.

use crate::capture::{CaptureReader, Record, is_standard};
use crate::error::SimError;
use packet::HeapFrame;
use std::path::Path;
use units::{PS_PER_NS, Time};

/// Maximum disorder of frames that were captured from several interfaces or queues. Such a frame arrives together with
/// the preceding one. A clock that is set back, or a wrong timestamp, deviates by more.
const MIXED_NS: u64 = 1_000_000;
/// Later than this since the first frame, gaps are shortened to [`SILENCE_NS`]. The range of instants ends 5 days after
/// it.
const REACH_NS: u64 = 18_000_000_000_000_000;
const SILENCE_NS: u64 = 1_000_000_000;

/// The frames of a capture and their arrival times, which never decrease. The first frame arrives at zero.
///
/// If a stamp is more than a millisecond before the preceding one, the next stamp shows the reason. If only a single
/// record is wrong, it arrives together with the preceding one. If the clock was set back, later gaps follow the new
/// time.
pub(crate) struct Arrivals {
    reader: CaptureReader,
    /// A record read ahead, to distinguish a stray stamp from a step of the clock.
    ahead: Option<Result<Option<u64>, SimError>>,
    ahead_frame: HeapFrame,
    /// The stamp of the last record, and the last stamp that was neither stray nor out of order.
    before_ns: Option<u64>,
    line_ns: u64,
    /// Arrival of the last frame, relative to the first.
    at_ns: u64,
    /// Stamp of the first frame, and the total time by which gaps have been shortened since.
    first_ns: u64,
    shortened_ns: u64,
}

impl Arrivals {
    pub(crate) fn new(reader: CaptureReader) -> Self {
        Arrivals {
            reader,
            ahead: None,
            ahead_frame: HeapFrame::default(),
            before_ns: None,
            line_ns: 0,
            at_ns: 0,
            first_ns: 0,
            shortened_ns: 0,
        }
    }

    pub(crate) fn reader(&self) -> &CaptureReader {
        &self.reader
    }

    /// If `is_one`, counts a frame that could not be rewritten and was left unchanged.
    pub(crate) fn count_unrewritten(&mut self, is_one: bool) {
        self.reader.anomalies.unrewritten += u64::from(is_one);
    }

    /// Counts a gap that the replay shortens because of its settings.
    pub(crate) fn count_capped(&mut self) {
        self.reader.anomalies.capped_gaps += 1;
    }

    /// The stamp of the first frame.
    pub(crate) fn first_ns(&self) -> u64 {
        self.first_ns
    }

    /// The total time by which gaps have been shortened up to the last frame.
    pub(crate) fn shortened_ns(&self) -> u64 {
        self.shortened_ns
    }

    /// Restarts with the first frame of the file. Counters are kept.
    pub(crate) fn restart(&mut self, path: &Path) -> Result<(), SimError> {
        if is_standard(path) {
            return Err(SimError::Once);
        }
        let anomalies = std::mem::take(&mut self.reader.anomalies);
        let mut reader = CaptureReader::open(path)?;
        reader.anomalies = anomalies;
        *self = Arrivals { shortened_ns: self.shortened_ns, ..Arrivals::new(reader) };
        Ok(())
    }

    /// Reads the next frame, ignoring its stamp.
    pub(crate) fn read_unstamped(&mut self, frame: &mut HeapFrame) -> Result<bool, SimError> {
        Ok(self.reader.read(frame)?.is_some())
    }

    /// Reads the next frame and returns its arrival time.
    pub(crate) fn read(&mut self, frame: &mut HeapFrame) -> Result<Option<Time>, SimError> {
        let stamp = match self.ahead.take() {
            Some(read) => {
                std::mem::swap(frame, &mut self.ahead_frame);
                read?
            }
            None => self.reader.read_stamped(frame)?,
        };
        let Some(mut stamp) = stamp else { return Ok(None) };
        let Some(before) = self.before_ns.replace(stamp) else {
            if stamp == Record::NO_TIME {
                self.reader.anomalies.stray_stamps += 1;
                stamp = self.look_ahead().filter(|next| *next != Record::NO_TIME).unwrap_or_default();
            }
            (self.line_ns, self.first_ns) = (stamp, stamp);
            return Ok(Some(Time::ZERO));
        };
        self.reader.anomalies.disordered += u64::from(stamp < before);
        let gap = stamp.checked_sub(self.line_ns);
        match gap {
            _ if stamp == Record::NO_TIME => self.reader.anomalies.stray_stamps += 1,
            Some(gap) if gap < MIXED_NS => self.advance(gap, stamp)?,
            // Stray if the next stamp continues as if this record were not there.
            Some(gap) => match self.look_ahead() {
                None if gap > REACH_NS => self.reader.anomalies.stray_stamps += 1,
                Some(next) if next.saturating_add(MIXED_NS) < stamp && next.saturating_add(MIXED_NS) > self.line_ns => {
                    self.reader.anomalies.stray_stamps += 1;
                }
                _ => self.advance(gap, stamp)?,
            },
            None if stamp.saturating_add(MIXED_NS) > self.line_ns => {}
            None => match self.look_ahead() {
                Some(next) if next.saturating_add(MIXED_NS) < self.line_ns => {
                    self.reader.anomalies.clock_steps += 1;
                    self.line_ns = stamp;
                }
                _ => self.reader.anomalies.stray_stamps += 1,
            },
        }
        Ok(Some(Time::from_ps(self.at_ns * PS_PER_NS)))
    }

    /// Moves to the next arrival, `gap` after the preceding one.
    fn advance(&mut self, gap: u64, stamp: u64) -> Result<(), SimError> {
        let mut at = self.at_ns.checked_add(gap);
        if gap > SILENCE_NS && at.is_none_or(|at| at > REACH_NS) {
            self.reader.anomalies.shortened_gaps += 1;
            self.shortened_ns += gap - SILENCE_NS;
            at = self.at_ns.checked_add(SILENCE_NS);
        }
        self.at_ns = at.filter(|at| *at <= u64::MAX / PS_PER_NS).ok_or_else(|| self.reader.too_wide())?;
        self.line_ns = stamp;
        Ok(())
    }

    /// The stamp of the frame after the last one read. Errors are reported when that frame is read.
    fn look_ahead(&mut self) -> Option<u64> {
        let read = self.reader.read_stamped(&mut self.ahead_frame);
        let next = read.as_ref().ok().copied().flatten();
        self.ahead = Some(read);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{CaptureAnomalies, CaptureWriter};
    use crate::output::WhenFull;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_700_000_000_000_000_000;

    /// Arrivals in ms of frames with stamps in ms, and the anomalies.
    fn arrivals(stamps: &[i64]) -> (Vec<u64>, CaptureAnomalies, Vec<u64>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcapng");
        let mut writer = CaptureWriter::create(&path, WhenFull::Wait).expect("writable");
        for (number, stamp) in stamps.iter().enumerate() {
            let ns = START.wrapping_add_signed(stamp * MS as i64);
            writer.write(ns, &[number as u8; 60], 60).expect("written");
        }
        writer.finish().expect("written");
        let mut arrivals = Arrivals::new(CaptureReader::open(&path).expect("a capture"));
        let (mut frame, mut got, mut truly) = (HeapFrame::default(), Vec::new(), Vec::new());
        while let Some(at) = arrivals.read(&mut frame).expect("readable") {
            assert_eq!(packet::Frame::bytes(&frame)[0] as usize, got.len(), "frames keep their order");
            got.push(at.as_ps() / PS_PER_NS / MS);
            truly.push((arrivals.first_ns() - START + arrivals.shortened_ns()) / MS + at.as_ps() / PS_PER_NS / MS);
        }
        (got, arrivals.reader().anomalies().clone(), truly)
    }

    #[test]
    fn clock_set_back_costs_one_gap() {
        let stamps = [0, 10, 20, 0, 10, 20, 30, 40];
        let (got, odd, _) = arrivals(&stamps);
        assert_eq!(got, [0, 10, 20, 20, 30, 40, 50, 60]);
        assert_eq!((odd.disordered, odd.clock_steps, odd.stray_stamps), (1, 1, 0));
        let (got, odd, _) = arrivals(&[0, 10, -3_600_000, -3_599_990, -3_599_980]);
        assert_eq!((got, odd.clock_steps), (vec![0, 10, 10, 20, 30], 1));
    }

    #[test]
    fn stray_stamp_affects_one_frame() {
        for off in [-3_600_000, -50, 100, 3_600_000] {
            let (got, odd, _) = arrivals(&[0, 10, 20 + off, 30, 40]);
            assert_eq!(got, [0, 10, 10, 30, 40], "{off}");
            assert_eq!((odd.disordered, odd.clock_steps, odd.stray_stamps), (1, 0, 1), "{off}");
        }
        // The last record is far ahead, and no record follows it.
        assert_eq!(arrivals(&[0, 10, 300 * 86_400_000]).0, [0, 10, 10]);
        // The last record, and two stray records with a good one in between.
        assert_eq!(arrivals(&[0, 10, -90]).0, [0, 10, 10]);
        let (got, odd, _) = arrivals(&[0, 10, 900, 30, 800, 50, 60]);
        assert_eq!((got, odd.stray_stamps), (vec![0, 10, 10, 30, 30, 50, 60], 2));
    }

    #[test]
    fn keeps_pauses() {
        let (got, odd, _) = arrivals(&[0, 10, 3_600_000, 3_600_010, 7_200_000]);
        assert_eq!((got, odd), (vec![0, 10, 3_600_000, 3_600_010, 7_200_000], CaptureAnomalies::default()));
    }

    #[test]
    fn shortens_a_gap_beyond_the_range_and_keeps_later_stamps() {
        let day = 86_400_000;
        let stamps = [0, 150 * day, 300 * day, 300 * day + 5, 301 * day, 3_000 * day, 3_000 * day + 1];
        let (got, odd, truly) = arrivals(&stamps);
        let third = 150 * day as u64 + 1_000;
        let fifth = third + 86_400_000;
        assert_eq!(got, [0, 150 * day as u64, third, third + 5, fifth, fifth + 1_000, fifth + 1_001]);
        assert_eq!(odd.shortened_gaps, 2);
        assert_eq!(truly, stamps.map(|stamp| stamp as u64));
    }
}
