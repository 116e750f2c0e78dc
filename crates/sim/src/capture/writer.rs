//! Writes captures.

use super::blocks::SECTION;
use super::{LONGEST_RECORD, Order};
use crate::error::SimError;
use crate::output::{Output, Packing, Records, WRITE_SIZE, WhenFull};
use measure::Tally;
use std::path::Path;
use units::FrameLen;

/// Writes pcap or pcapng. Each write consists of whole records, so a file truncated by a crash is readable up to the
/// last write. If the disk is full, the file is truncated after the last whole record.
pub struct CaptureWriter {
    output: Output,
    format: Format,
    /// Complete records that are not written yet.
    gathered: Vec<u8>,
    /// The frames in these records.
    waiting: Tally,
    /// Frames that the format cannot represent.
    refused: Tally,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Classic,
    Next,
}

impl CaptureWriter {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, when_full: WhenFull) -> Result<Self, SimError> {
        let (_, unpacked) = Packing::of(path);
        let next = unpacked.extension().is_some_and(|extension| extension == "pcapng");
        let format = if next { Format::Next } else { Format::Classic };
        let mut output = Output::create(path, when_full, format.in_bytes())?;
        let mut gathered = Vec::new();
        match format {
            // Magic number of nanosecond timestamps, version 2.4, unused zone and accuracy, snap length, Ethernet.
            Format::Classic => append(&mut gathered, &[0xa1b2_3c4d, 0x0004_0002, 0, 0, LONGEST_RECORD, 1]),
            Format::Next => {
                // A section of version 1.0 with unknown length, then an Ethernet interface with nanosecond timestamps.
                gathered.extend_from_slice(&SECTION);
                append(&mut gathered, &[28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
                append(&mut gathered, &[1, 32, 1, 0, 0x0001_0009, 9, 0, 32]);
            }
        }
        output.write(gathered, Tally::default()).map_err(|cause| SimError::Write { path: path.to_owned(), cause })?;
        let none = Tally::default();
        Ok(CaptureWriter { output, format, gathered: Vec::new(), waiting: none, refused: none })
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
                    self.refused.add(FrameLen::of_captured(original));
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
        self.waiting.add(FrameLen::of_captured(original));
        if self.gathered.len() >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Number of frames that are in the file.
    #[must_use]
    pub fn written(&self) -> Tally {
        self.output.stored()
    }

    /// Number of frames that are missing in the file, because a write failed or its reader did not accept them. Known
    /// once the file has ended.
    #[must_use]
    pub fn unwritten(&self) -> Tally {
        let mut all = self.output.missing();
        all.add_all(self.refused);
        all
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Hands the buffered records to the writer thread.
    ///
    /// # Errors
    /// An earlier write failed.
    pub fn flush(&mut self) -> Result<(), SimError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let (bytes, records) = (std::mem::take(&mut self.gathered), std::mem::take(&mut self.waiting));
        self.output.write(bytes, records).map_err(|cause| self.full(cause))
    }

    /// Ends the file. Writes as many records as the file accepts.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(&mut self) -> Result<(), SimError> {
        self.flush()?;
        self.output.finish().map_err(|cause| self.full(cause))
    }

    fn full(&self, cause: std::io::Error) -> SimError {
        SimError::Full { path: self.output.path().to_owned(), cause, records: self.output.stored().frames }
    }
}

impl Format {
    /// How to find records in a byte sequence.
    fn in_bytes(self) -> Records {
        match self {
            Format::Classic => Records {
                whole: |bytes, end| Format::Classic.whole(bytes, end),
                count: |bytes| Format::Classic.count(bytes),
            },
            Format::Next => {
                Records { whole: |bytes, end| Format::Next.whole(bytes, end), count: |bytes| Format::Next.count(bytes) }
            }
        }
    }

    /// End of the last whole record before `end`.
    fn whole(self, records: &[u8], end: usize) -> usize {
        let mut at = 0;
        while at < records.len() && at + self.length(&records[at..]) <= end {
            at += self.length(&records[at..]);
        }
        at
    }

    /// Counts the frames of complete records.
    fn count(self, mut records: &[u8]) -> Tally {
        let mut frames = Tally::default();
        while !records.is_empty() {
            frames.add(FrameLen::of_captured(self.original(records)));
            records = &records[self.length(records)..];
        }
        frames
    }

    /// Length of the first record.
    fn length(self, records: &[u8]) -> usize {
        match self {
            Format::Classic => 16 + Order::Little.u32(records, 8) as usize,
            Format::Next => Order::Little.u32(records, 4) as usize,
        }
    }

    /// Original length of the frame in the first record, before truncation.
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
        // Callers finish explicitly and see the error. This covers runs that ended early for another reason.
        let _ = self.flush();
    }
}
