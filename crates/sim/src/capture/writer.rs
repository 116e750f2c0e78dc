//! Writes captures.

use super::blocks::SECTION;
use super::{LONGEST_RECORD, Order};
use crate::error::SimError;
use crate::output::{Output, Packing};
use measure::Tally;
use std::path::Path;
use units::FrameLen;

/// pcap. Only whole records are written at a time, so a file truncated by a crash is readable up to the last write. If
/// the disk is full, the file is truncated after the last whole record.
pub struct CaptureWriter {
    output: Output,
    format: Format,
    /// Whole records that are not written yet.
    gathered: Vec<u8>,
    /// Numbers of buffered records, and of records in the file.
    waiting: u64,
    written: u64,
    unwritten: Tally,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Classic,
    Next,
}

/// Bytes buffered before a write.
const WRITE_SIZE: usize = 1 << 20;

impl CaptureWriter {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Self, SimError> {
        let mut output = Output::create(path)?;
        let (_, unpacked) = Packing::of(path);
        let next = unpacked.extension().is_some_and(|extension| extension == "pcapng");
        let format = if next { Format::Next } else { Format::Classic };
        let mut gathered = Vec::with_capacity(WRITE_SIZE + (1 << 16));
        match format {
            // Magic of nanosecond timestamps, version 2.4, unused zone and accuracy, snap length, Ethernet.
            Format::Classic => append(&mut gathered, &[0xa1b2_3c4d, 0x0004_0002, 0, 0, LONGEST_RECORD, 1]),
            Format::Next => {
                // A section of version 1.0 with unknown length, then an Ethernet interface with nanosecond timestamps.
                gathered.extend_from_slice(&SECTION);
                append(&mut gathered, &[28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
                append(&mut gathered, &[1, 32, 1, 0, 0x0001_0009, 9, 0, 32]);
            }
        }
        let header = gathered.len();
        output.write(&gathered[..header], |_| 0).map_err(|cause| SimError::Write { path: path.to_owned(), cause })?;
        gathered.clear();
        Ok(CaptureWriter { output, format, gathered, waiting: 0, written: 0, unwritten: Tally::default() })
    }

    /// Appends a frame with timestamp `time_ns` since the UNIX epoch; `original` is its length without FCS before
    /// truncation.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, time_ns: u64, bytes: &[u8], original: u32) -> Result<(), SimError> {
        let held = bytes.len() as u32;
        match self.format {
            Format::Classic => {
                let seconds = u32::try_from(time_ns / 1_000_000_000).map_err(|_| {
                    self.unwritten.add(FrameLen::of_captured(original));
                    SimError::Write {
                        path: self.output.path().to_owned(),
                        cause: std::io::Error::other("pcap has no stamps after 2106, pcapng has"),
                    }
                })?;
                append(&mut self.gathered, &[seconds, (time_ns % 1_000_000_000) as u32, held, original]);
                self.gathered.extend_from_slice(bytes);
            }
            Format::Next => {
                let padding = held.next_multiple_of(4) - held;
                let length = 32 + held + padding;
                let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
                append(&mut self.gathered, &[6, length, 0, high, low, held, original]);
                self.gathered.extend_from_slice(bytes);
                self.gathered.extend_from_slice(&[0; 3][..padding as usize]);
                append(&mut self.gathered, &[length]);
            }
        }
        self.waiting += 1;
        if self.gathered.len() >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Frames that are missing in the file because a write failed.
    #[must_use]
    pub fn unwritten(&self) -> Tally {
        self.unwritten
    }

    /// Writes the buffered records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), SimError> {
        let format = self.format;
        let written = self.output.write(&self.gathered, |end| format.records(&self.gathered, end).0);
        let Err(cause) = written else {
            self.gathered.clear();
            self.written += std::mem::take(&mut self.waiting);
            return Ok(());
        };
        let (kept, whole) = format.records(&self.gathered, self.output.kept());
        self.written += whole;
        self.waiting = 0;
        let mut lost = &self.gathered[kept..];
        while !lost.is_empty() {
            self.unwritten.add(FrameLen::of_captured(format.original(lost)));
            lost = &lost[format.length(lost)..];
        }
        self.gathered.clear();
        Err(SimError::Full { path: self.output.path().to_owned(), cause, records: self.written })
    }
}

impl Format {
    /// End of the last whole record before `end`, and the number of records up to there.
    fn records(self, gathered: &[u8], end: usize) -> (usize, u64) {
        let (mut at, mut whole) = (0, 0);
        while at < gathered.len() && at + self.length(&gathered[at..]) <= end {
            at += self.length(&gathered[at..]);
            whole += 1;
        }
        (at, whole)
    }

    /// Length of the first record.
    fn length(self, records: &[u8]) -> usize {
        match self {
            Format::Classic => 16 + Order::Little.u32(records, 8) as usize,
            Format::Next => Order::Little.u32(records, 4) as usize,
        }
    }

    /// Length of its frame before truncation.
    fn original(self, records: &[u8]) -> u32 {
        Order::Little.u32(records, if self == Format::Classic { 12 } else { 24 })
    }
}

/// Appends words in the byte order of the file.
fn append(gathered: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        gathered.extend_from_slice(&word.to_le_bytes());
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // Callers flush and see the error; this covers runs that ended early for another reason.
        let _ = self.flush();
    }
}
