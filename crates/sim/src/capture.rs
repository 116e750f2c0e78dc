//! Captures, read and written.

use crate::error::SimError;
use crate::link::Link;
use crate::pcapng::{NextError, Ticks, next_frame};
use packet::HeapFrame;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::borrow::Cow;
use std::fs::File;
use std::io::{Chain, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first bytes of a pcapng file: the type of its section header block.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// The first bytes of what packs captures.
const COMPRESSED: [(&[u8], &str); 4] =
    [(b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zX", "xz"), (b"BZh", "bzip2")];
/// The first bytes of what a patched libpcap wrote (Kuznetzov), in both orders.
const MODIFIED: [[u8; 4]; 2] = [*b"\xa1\xb2\xcd\x34", *b"\x34\xcd\xb2\xa1"];
/// No Ethernet frame is longer; a record that says so is broken.
const LONGEST_RECORD: u32 = 262_144;
/// Bytes of the headers of classic captures: of the file and of each record.
const FILE_HEADER: u64 = 24;
const RECORD_HEADER: u64 = 16;

/// Reads the frames of a pcap or pcapng file, one after the other, in memory that does not grow.
pub struct CaptureReader {
    path: PathBuf,
    format: Format,
    whole: u64,
    /// Where the next record starts; known for classic captures only.
    offset: u64,
}

enum Format {
    Classic { reader: PcapReader<Counting>, fraction_ns: u64, link: Link, fcs: u32 },
    Next(Box<PcapNgReader<Counting>>),
}

/// What is known of a frame besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Stamp in nanoseconds since the UNIX epoch.
    pub time_ns: u64,
    /// It was captured without an Ethernet header, and has got one.
    pub made_header: bool,
}

/// A file whose first bytes were looked at already, so that pipes can be read too. Counts the bytes
/// that a reader was given, to say where the file broke.
struct Counting {
    file: Chain<Cursor<[u8; 4]>, File>,
    read: u64,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read += n as u64;
        Ok(n)
    }
}

impl CaptureReader {
    /// Opens a capture and reads its header.
    ///
    /// # Errors
    /// The file cannot be read, is no capture, or holds something else than Ethernet or IP.
    pub fn open(path: &Path) -> Result<Self, SimError> {
        let unreadable = |cause| SimError::Read { path: path.to_owned(), cause };
        let not_a_capture = |why: String| SimError::NotACapture { path: path.to_owned(), why };
        let mut file = File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(not_a_capture("it is a directory".into()));
        }
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(|cause| match cause.kind() {
            ErrorKind::UnexpectedEof => not_a_capture("it is shorter than a capture's header".into()),
            _ => unreadable(cause),
        })?;
        if let Some((_, program)) = COMPRESSED.iter().find(|(first, _)| magic.starts_with(first)) {
            return Err(SimError::Compressed { path: path.to_owned(), program });
        }
        if MODIFIED.contains(&magic) {
            return Err(SimError::Modified { path: path.to_owned() });
        }
        let file = Counting { file: Cursor::new(magic).chain(file), read: 0 };
        let format = if magic == PCAPNG_MAGIC {
            let reader = PcapNgReader::new(file).map_err(|error| not_a_capture(error.to_string()))?;
            Format::Next(Box::new(reader))
        } else {
            let reader = PcapReader::new(file).map_err(|error| {
                not_a_capture(match error {
                    PcapError::IoError(_) => "it is shorter than a capture's header".into(),
                    _ => "it does not start like one".to_owned(),
                })
            })?;
            let header = reader.header();
            let (link_type, fcs) = link_type(header.datalink.into());
            let unread = || SimError::LinkType { path: path.to_owned(), link_type };
            let link = Link::of(link_type.into()).ok_or_else(unread)?;
            let fraction_ns = match header.ts_resolution {
                TsResolution::MicroSecond => 1_000,
                TsResolution::NanoSecond => 1,
            };
            Format::Classic { reader, fraction_ns, link, fcs }
        };
        Ok(CaptureReader { path: path.to_owned(), format, whole: 0, offset: FILE_HEADER })
    }

    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What ends a run whose instants do not reach the stamp of the record that was read last.
    pub(crate) fn too_wide(&self) -> SimError {
        SimError::TooWide { path: self.path.clone(), record: self.whole }
    }

    /// The step of the capture's stamps in nanoseconds: 1 000 for what most programs write. A pcapng
    /// file has one for each interface; the coarsest of those described so far counts.
    #[must_use]
    pub fn step_ns(&self) -> f64 {
        match &self.format {
            Format::Classic { fraction_ns, .. } => *fraction_ns as f64,
            Format::Next(reader) => {
                let steps = reader.interfaces().iter().filter_map(|interface| Ticks::of(interface).step_ns());
                steps.fold(0.0, f64::max)
            }
        }
    }

    /// Reads the next frame into `frame`; `None` at the end.
    ///
    /// # Errors
    /// The file breaks within a record, or cannot be read further.
    pub fn read(&mut self, frame: &mut HeapFrame) -> Result<Option<Record>, SimError> {
        let record = match &mut self.format {
            Format::Classic { reader, fraction_ns, link, fcs } => {
                let Some(record) = reader.next_raw_packet() else { return Ok(None) };
                match record {
                    Ok(raw) if raw.incl_len > LONGEST_RECORD => Err(format!("a record claims {} bytes", raw.incl_len)),
                    Ok(raw) => {
                        frame.refill(&raw.data, raw.orig_len);
                        frame.leave_out_fcs(*fcs);
                        let time_ns = u64::from(raw.ts_sec) * 1_000_000_000 + u64::from(raw.ts_frac) * *fraction_ns;
                        let made = link.make_frame(frame);
                        if made.is_ok() {
                            self.offset += RECORD_HEADER + u64::from(raw.incl_len);
                        }
                        made.map(|made_header| Record { time_ns, made_header })
                    }
                    Err(error) => Err(why(error)),
                }
            }
            Format::Next(reader) => match next_frame(reader, frame) {
                Ok(None) => return Ok(None),
                Ok(Some(record)) => Ok(record),
                Err(NextError::LinkType(link_type)) => {
                    return Err(SimError::LinkType { path: self.path.clone(), link_type });
                }
                Err(NextError::Broken(why)) => {
                    // The reader is ahead by what it buffers, so this is the place at most.
                    self.offset = reader.get_ref().read;
                    Err(why)
                }
            },
        };
        match record {
            Ok(record) => {
                self.whole += 1;
                Ok(Some(record))
            }
            Err(why) => Err(SimError::Broken { path: self.path.clone(), whole: self.whole, offset: self.offset, why }),
        }
    }
}

/// The link type that the header of a classic capture has in its lower half, and of how many bytes of FCS the upper half
/// tells, which each record then ends with (pcap-savefile(5)): units of 16 bits in the highest four bits, where bit 26
/// says that this is known.
fn link_type(field: u32) -> (u32, u32) {
    const KNOWN: u32 = 1 << 26;
    let fcs = if field & KNOWN == 0 { 0 } else { (field >> 28) * 2 };
    (field & 0xffff, fcs)
}

pub(crate) fn why(error: PcapError) -> String {
    match error {
        PcapError::IoError(cause) if cause.kind() == ErrorKind::UnexpectedEof => "the file ends within a record".into(),
        PcapError::IoError(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

/// Writes frames to a capture with nanosecond stamps: pcapng if the name says so, else classic
/// little-endian pcap. Whole records are written at a time, so that a file that was cut short by a
/// crash is readable up to the last write.
pub struct CaptureWriter {
    path: PathBuf,
    file: File,
    records: Records,
}

enum Records {
    Classic(Vec<u8>),
    Next(PcapNgWriter<Vec<u8>>),
}

/// Bytes that are gathered before they are written.
const WRITE_SIZE: usize = 1 << 20;

impl CaptureWriter {
    /// Makes the file, or empties it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Self, SimError> {
        let unwritable = |cause| SimError::Write { path: path.to_owned(), cause };
        let file = File::create(path).map_err(unwritable)?;
        let records = if path.extension().is_some_and(|extension| extension == "pcapng") {
            let interface = InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: 0,
                options: vec![InterfaceDescriptionOption::IfTsResol(9)],
            };
            let started = PcapNgWriter::new(Vec::with_capacity(WRITE_SIZE))
                .and_then(|mut writer| writer.write_pcapng_block(interface).map(|_| writer));
            Records::Next(started.map_err(|error| unwritable(std::io::Error::other(error)))?)
        } else {
            let mut buffer = Vec::with_capacity(WRITE_SIZE);
            // Magic of nanosecond stamps, version 2.4, zone and accuracy unused, snap length, Ethernet.
            for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, LONGEST_RECORD, 1] {
                buffer.extend_from_slice(&word.to_le_bytes());
            }
            Records::Classic(buffer)
        };
        let mut writer = CaptureWriter { path: path.to_owned(), file, records };
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a frame, stamped `time_ns` since the UNIX epoch; `original` is its length without FCS
    /// before anything cut it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, time_ns: u64, bytes: &[u8], original: u32) -> Result<(), SimError> {
        let gathered = match &mut self.records {
            Records::Classic(buffer) => {
                let seconds = u32::try_from(time_ns / 1_000_000_000).map_err(|_| SimError::Write {
                    path: self.path.clone(),
                    cause: std::io::Error::other("pcap has no stamps after 2106, pcapng has"),
                })?;
                let fraction = (time_ns % 1_000_000_000) as u32;
                for word in [seconds, fraction, bytes.len() as u32, original] {
                    buffer.extend_from_slice(&word.to_le_bytes());
                }
                buffer.extend_from_slice(bytes);
                buffer.len()
            }
            Records::Next(writer) => {
                let block = EnhancedPacketBlock {
                    interface_id: 0,
                    timestamp: Duration::from_nanos(time_ns),
                    original_len: original,
                    data: Cow::Borrowed(bytes),
                    options: Vec::new(),
                };
                let written = writer.write_pcapng_block(block);
                written.map_err(|error| SimError::Write {
                    path: self.path.clone(),
                    cause: std::io::Error::other(error),
                })?;
                writer.get_ref().len()
            }
        };
        if gathered >= WRITE_SIZE { self.flush() } else { Ok(()) }
    }

    /// Writes what was gathered.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), SimError> {
        let buffer = match &mut self.records {
            Records::Classic(buffer) => buffer,
            Records::Next(writer) => writer.get_mut(),
        };
        let written = self.file.write_all(buffer);
        buffer.clear();
        written.map_err(|cause| SimError::Write { path: self.path.clone(), cause })
    }
}

impl Drop for CaptureWriter {
    fn drop(&mut self) {
        // Callers flush and see the error; this is for those that ended early for another reason.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Frame;

    fn write(path: &Path, frames: u64) {
        let mut writer = CaptureWriter::create(path).expect("writable");
        for i in 0..frames {
            let bytes = vec![i as u8; 60 + i as usize];
            writer.write(1_700_000_000_123_456_789 + i, &bytes, bytes.len() as u32).expect("written");
        }
        writer.flush().expect("flushed");
    }

    fn read(path: &Path) -> (Vec<(u64, usize)>, Option<SimError>) {
        let mut reader = CaptureReader::open(path).expect("a capture");
        let mut frame = HeapFrame::default();
        let mut frames = Vec::new();
        loop {
            match reader.read(&mut frame) {
                Ok(Some(record)) => frames.push((record.time_ns, frame.bytes().len())),
                Ok(None) => return (frames, None),
                Err(error) => return (frames, Some(error)),
            }
        }
    }

    #[test]
    fn both_formats_read_back_to_the_nanosecond() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.pcap", "a.pcapng"] {
            let path = folder.path().join(name);
            write(&path, 100);
            let (frames, error) = read(&path);
            assert!(error.is_none() && frames.len() == 100, "{name}: {error:?}");
            assert_eq!(frames[99], (1_700_000_000_123_456_888, 159), "{name}");
        }
    }

    #[test]
    fn a_cut_file_gives_its_whole_records_and_says_where_it_broke() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        write(&path, 10);
        let bytes = std::fs::read(&path).expect("readable");
        // Cut within the data of the last record, within its header, and right after the one before.
        let last = bytes.len() - 16 - 69;
        for (cut, whole) in [(bytes.len() - 1, 9), (last + 5, 9), (last, 9), (30, 0)] {
            std::fs::write(&path, &bytes[..cut]).expect("writable");
            let (frames, error) = read(&path);
            assert_eq!(frames.len(), whole);
            match error {
                Some(SimError::Broken { whole, offset, .. }) => {
                    assert_eq!(
                        (whole, offset),
                        (frames.len() as u64, if frames.is_empty() { 24 } else { last as u64 })
                    );
                }
                None => assert_eq!(cut, last),
                Some(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn what_is_no_capture_is_said_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        for content in [b"".as_slice(), b"abc", b"this is a text, not a capture at all", &PCAPNG_MAGIC] {
            std::fs::write(&path, content).expect("writable");
            assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::NotACapture { .. })), "{content:?}");
        }
        std::fs::write(&path, b"\x1f\x8b\x08\0").expect("writable");
        let told = CaptureReader::open(&path).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(told.contains("gzip: unpack it first, as gzip -dc /"), "{told}");
        assert!(matches!(CaptureReader::open(folder.path()).err(), Some(SimError::NotACapture { .. })));
        assert!(matches!(CaptureReader::open(&folder.path().join("none")).err(), Some(SimError::Read { .. })));
    }

    #[test]
    fn a_modified_capture_is_told_how_to_be_turned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        for first in MODIFIED {
            std::fs::write(&path, [&first[..], &[0; 40]].concat()).expect("writable");
            let told = CaptureReader::open(&path).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(told.contains("turn it into pcapng first, as editcap /"), "{first:?}: {told}");
        }
    }

    #[test]
    fn link_types_that_hold_no_packets_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        write(&path, 1);
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes[20] = 105;
        std::fs::write(&path, &bytes).expect("writable");
        assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::LinkType { link_type: 105, .. })));
    }

    #[test]
    fn an_fcs_that_the_header_tells_of_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        let mut frame = HeapFrame::default();
        // As captured whole, cut within the FCS, cut within the frame, and shorter than an FCS.
        for (held, original) in [(64_u32, 64_u32), (62, 64), (40, 64), (3, 3)] {
            for (upper, fcs) in [(0x2400, 4), (0x1400, 2), (0x0400, 0), (0x2000, 0), (0x2800, 0), (0x27ff, 4)] {
                for (link, made) in [(1, 0), (101, 14)].into_iter().filter(|(link, _)| *link == 1 || held > fcs) {
                    let mut bytes = Vec::new();
                    let word = upper << 16 | link;
                    for word in [0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, word, 0, 0, held, original] {
                        bytes.extend_from_slice(&u32::to_le_bytes(word));
                    }
                    bytes.extend((0..held).map(|at| 0x40 + at as u8));
                    std::fs::write(&path, &bytes).expect("writable");
                    let mut reader = CaptureReader::open(&path).expect("its link type is read");
                    let left = original.saturating_sub(fcs);
                    let read =
                        reader.read(&mut frame).expect("a whole record").map(|_| (frame.original(), frame.bytes()));
                    let wanted: Vec<u8> = (0..held.min(left)).map(|at| 0x40 + at as u8).collect();
                    assert_eq!(
                        read.map(|(original, bytes)| (original, &bytes[made..])),
                        Some((left + made as u32, &wanted[..]))
                    );
                }
            }
        }
    }
}
