//! Writes captures.

use super::LONGEST_RECORD;
use super::blocks::SECTION;
use crate::error::SimError;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes frames to a capture with nanosecond timestamps: pcapng if the file name ends so, else classic little-endian
/// pcap. Only whole records are written at a time, so a file truncated by a crash is readable up to the last write.
pub struct CaptureWriter {
    path: PathBuf,
    file: File,
    format: Format,
    /// Whole records that are not written yet.
    gathered: Vec<u8>,
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
        let unwritable = |cause| SimError::Write { path: path.to_owned(), cause };
        let file = File::create(path).map_err(unwritable)?;
        let next = path.extension().is_some_and(|extension| extension == "pcapng");
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
        let mut writer = CaptureWriter { path: path.to_owned(), file, format, gathered };
        writer.flush()?;
        Ok(writer)
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
                let seconds = u32::try_from(time_ns / 1_000_000_000).map_err(|_| SimError::Write {
                    path: self.path.clone(),
                    cause: std::io::Error::other("pcap has no stamps after 2106, pcapng has"),
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
        if self.gathered.len() >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), SimError> {
        let written = self.file.write_all(&self.gathered);
        self.gathered.clear();
        written.map_err(|cause| SimError::Write { path: self.path.clone(), cause })
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
