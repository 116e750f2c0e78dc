//! Reads and writes captures.

mod anomalies;
mod blocks;
mod bytes;
mod classic;
mod link;
mod packed;
mod pipe;
mod writer;

pub use anomalies::{CaptureAnomalies, SkipReason};
pub use packed::{is_standard, open_plain};
pub use pipe::{end_pipes_when, end_silent_pipes_after, ended_for};
pub use writer::CaptureWriter;

use crate::error::SimError;
use blocks::Blocks;
use bytes::Bytes;
use classic::{Classic, FILE_HEADER};
use packet::HeapFrame;
use std::path::{Path, PathBuf};

/// An Ethernet capture without records.
const NO_RECORDS: &[u8; FILE_HEADER] =
    b"\x4d\x3c\xb2\xa1\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00";
/// Maximum length of a frame. A classic record with a larger length is corrupt.
const LONGEST_RECORD: u32 = 262_144;

/// Reads the frames of a pcap or pcapng file one by one, in constant memory. Records that are not frames are skipped
/// and counted. Reading ends early only if the file is truncated or its records can no longer be delimited.
pub struct CaptureReader {
    path: PathBuf,
    packed: bool,
    bytes: Bytes,
    format: Format,
    /// Number of records read, including those that are not frames.
    records: u64,
    frames: u64,
    pub(crate) anomalies: CaptureAnomalies,
}

enum Format {
    Classic(Classic),
    Next(Blocks),
}

/// Metadata of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Timestamp in nanoseconds since the UNIX epoch; `None` for a simple packet block. [`Record::NO_TIME`] represents
    /// a time before 1970 or after 2554.
    pub time_ns: Option<u64>,
    /// Whether it was captured without an Ethernet header, and one was generated.
    pub made_header: bool,
}

impl Record {
    /// Timestamp out of range.
    pub const NO_TIME: u64 = u64::MAX;
}

/// Result of reading a record.
enum ReadOutcome {
    Frame(Record),
    Skipped(SkipReason),
    End,
}

/// Why reading cannot continue.
struct BrokenCapture(String);

impl BrokenCapture {
    fn cut() -> Self {
        BrokenCapture("the file ends within a record".into())
    }
}

impl From<std::io::Error> for BrokenCapture {
    fn from(cause: std::io::Error) -> Self {
        BrokenCapture(cause.to_string())
    }
}

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = array(bytes, at);
        if self == Order::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = array(bytes, at);
        if self == Order::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let bytes = array(bytes, at);
        if self == Order::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) }
    }
}

/// The `N` bytes at offset `at`, which must exist.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

impl CaptureReader {
    /// Opens a capture and reads its header.
    ///
    /// # Errors
    /// The file cannot be read, is not a capture, or is a classic capture of an unsupported link type.
    pub fn open(path: &Path) -> Result<Self, SimError> {
        let unreadable = |cause| SimError::Read { path: path.to_owned(), cause };
        let not_a_capture = |why: &str| SimError::NotACapture { path: path.to_owned(), why: why.to_owned() };
        let (file, mut packed) = packed::open(path)?;
        // The file could be opened, so a read error means that its compressed data is damaged.
        let damaged = packed;
        let unreadable = |cause| {
            if damaged { SimError::Damaged { path: path.to_owned(), cause } } else { unreadable(cause) }
        };
        let mut bytes = Bytes::new(file);
        // The run ended before the capture's header arrived, so there are no records.
        if !bytes.peek(FILE_HEADER).is_ok_and(|header| header.len() == FILE_HEADER) && pipe::has_ended() {
            (bytes, packed) = (Bytes::new(Box::new(&NO_RECORDS[..])), false);
        }
        let too_short = || not_a_capture("it is shorter than a capture's header");
        let magic = *bytes.peek(4).map_err(unreadable)?.first_chunk::<4>().ok_or_else(too_short)?;
        let header = bytes.peek(FILE_HEADER).map_err(unreadable)?;
        let header = *header.first_chunk::<FILE_HEADER>().ok_or_else(too_short)?;
        let format = if magic == blocks::SECTION {
            Format::Next(Blocks::new())
        } else {
            let classic = Classic::of(&header).ok_or_else(|| not_a_capture("it does not start like one"))?;
            let link_type = |link_type| SimError::LinkType { path: path.to_owned(), link_type };
            let classic = classic.map_err(link_type)?;
            bytes.take(FILE_HEADER);
            Format::Classic(classic)
        };
        Ok(CaptureReader {
            path: path.to_owned(),
            packed,
            bytes,
            format,
            records: 0,
            frames: 0,
            anomalies: CaptureAnomalies::default(),
        })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The anomalies so far.
    #[must_use]
    pub fn anomalies(&self) -> &CaptureAnomalies {
        &self.anomalies
    }

    /// The error for a capture whose last record is outside the range of instants.
    pub(crate) fn too_wide(&self) -> SimError {
        SimError::TooWide { path: self.path.clone(), record: self.records }
    }

    /// The timestamp resolution of the capture in nanoseconds; 1 000 for most programs. In a pcapng file it depends on
    /// the interface; this is the coarsest of the interfaces described so far.
    #[must_use]
    pub fn step_ns(&self) -> f64 {
        match &self.format {
            Format::Classic(classic) => classic.step_ns(),
            Format::Next(blocks) => blocks.step_ns(),
        }
    }

    /// Reads the next frame into `frame`; `None` at the end.
    ///
    /// # Errors
    /// The file is truncated, its records can no longer be delimited, or none of them was a frame.
    pub fn read(&mut self, frame: &mut HeapFrame) -> Result<Option<Record>, SimError> {
        self.next(frame, |_| None)
    }

    /// Reads the next frame with a timestamp into `frame`, and returns the timestamp in nanoseconds since the UNIX
    /// epoch. Skips and counts frames without one.
    ///
    /// # Errors
    /// As [`CaptureReader::read`].
    pub fn read_stamped(&mut self, frame: &mut HeapFrame) -> Result<Option<u64>, SimError> {
        let record = self.next(frame, |record| record.time_ns.is_none().then_some(SkipReason::NoStamp))?;
        Ok(record.and_then(|record| record.time_ns))
    }

    /// Reads the next frame that `skip` does not reject.
    fn next(
        &mut self,
        frame: &mut HeapFrame,
        unfit: impl Fn(&Record) -> Option<SkipReason>,
    ) -> Result<Option<Record>, SimError> {
        loop {
            let read = match &mut self.format {
                Format::Classic(classic) => classic.read(&mut self.bytes, frame),
                Format::Next(blocks) => blocks.read(&mut self.bytes, frame),
            };
            let skipped = match read {
                Ok(ReadOutcome::Frame(record)) => match unfit(&record) {
                    None => {
                        self.records += 1;
                        self.frames += 1;
                        self.anomalies.made_headers += u64::from(record.made_header);
                        return Ok(Some(record));
                    }
                    Some(why) => why,
                },
                Ok(ReadOutcome::Skipped(why)) => why,
                Ok(ReadOutcome::End) if self.frames == 0 && self.records > 0 => {
                    let skipped = self.anomalies.skipped.clone();
                    return Err(SimError::NoFrames { path: self.path.clone(), skipped });
                }
                Ok(ReadOutcome::End) => return Ok(None),
                // The pipe ended within the record.
                Err(_) if pipe::has_ended() => return Ok(None),
                Err(BrokenCapture(why)) => {
                    let (whole, offset) = (self.records, self.bytes.offset());
                    return Err(SimError::Broken { path: self.path.clone(), packed: self.packed, whole, offset, why });
                }
            };
            self.records += 1;
            self.anomalies.skip(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::WhenFull;
    use packet::Frame;
    use std::collections::BTreeMap;

    fn write(path: &Path, frames: u64) {
        let mut writer = CaptureWriter::create(path, WhenFull::Wait).expect("writable");
        for i in 0..frames {
            let bytes = vec![i as u8; 60 + i as usize];
            writer.write(1_700_000_000_123_456_789 + i, &bytes, bytes.len() as u32).expect("written");
        }
        writer.finish().expect("written");
    }

    fn read(path: &Path) -> (Vec<(u64, usize)>, Option<SimError>) {
        let mut reader = CaptureReader::open(path).expect("a capture");
        let mut frame = HeapFrame::default();
        let mut frames = Vec::new();
        loop {
            match reader.read(&mut frame) {
                Ok(Some(record)) => frames.push((record.time_ns.expect("a stamp"), frame.bytes().len())),
                Ok(None) => return (frames, None),
                Err(error) => return (frames, Some(error)),
            }
        }
    }

    #[test]
    fn both_formats_survive_writing_and_reading_to_the_nanosecond() {
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
    fn truncated_file_yields_whole_records_and_the_position_of_the_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        write(&path, 10);
        let bytes = std::fs::read(&path).expect("readable");
        // Truncated within the data of the last record, within its header, and just before it.
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
    fn rejects_non_capture_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        for content in [b"".as_slice(), b"abc", b"this is a text, not a capture at all", &blocks::SECTION] {
            std::fs::write(&path, content).expect("writable");
            assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::NotACapture { .. })), "{content:?}");
        }
        std::fs::write(&path, b"\x1f\x8b\x08\0").expect("writable");
        assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::NotACapture { .. })), "packed, and cut");
        std::fs::write(&path, b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xff\xff\xff\xff\xff\xff").expect("writable");
        assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::Damaged { .. })), "packed, and damaged");
        assert!(matches!(CaptureReader::open(folder.path()).err(), Some(SimError::NotACapture { .. })));
        assert!(matches!(CaptureReader::open(&folder.path().join("none")).err(), Some(SimError::Read { .. })));
    }

    /// Builds captures in either byte order.
    struct Build {
        big: bool,
        bytes: Vec<u8>,
    }

    impl Build {
        fn new(big: bool) -> Self {
            Build { big, bytes: Vec::new() }
        }

        fn u16(mut self, value: u16) -> Self {
            self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
            self
        }

        fn words(mut self, values: &[u32]) -> Self {
            for value in values {
                self.bytes.extend(if self.big { value.to_be_bytes() } else { value.to_le_bytes() });
            }
            self
        }

        fn raw(mut self, bytes: &[u8]) -> Self {
            self.bytes.extend_from_slice(bytes);
            self
        }

        /// A pcapng block with a padded body.
        fn block(self, kind: u32, body: impl FnOnce(Build) -> Build) -> Self {
            let big = self.big;
            let mut body = body(Build::new(big)).bytes;
            body.resize(body.len().next_multiple_of(4), 0);
            let length = body.len() as u32 + 12;
            self.words(&[kind, length]).raw(&body).words(&[length])
        }

        fn section(self) -> Self {
            self.block(0x0a0d_0d0a, |body| body.words(&[0x1a2b_3c4d]).u16(1).u16(0).words(&[u32::MAX, u32::MAX]))
        }

        /// An interface with raw options.
        fn interface(self, link_type: u16, options: &[u8]) -> Self {
            self.block(1, |body| body.u16(link_type).u16(0).words(&[0]).raw(options))
        }

        /// An enhanced packet at `micros` with raw options.
        fn packet(self, interface: u32, micros: u32, data: &[u8], options: &[u8]) -> Self {
            let held = data.len() as u32;
            let padding = &[0; 3][..data.len().next_multiple_of(4) - data.len()];
            self.block(6, |body| body.words(&[interface, 0, micros, held, held]).raw(data).raw(padding).raw(options))
        }
    }

    /// Timestamps in µs and first bytes of the frames, the skipped records, and the error that ended the file.
    type Seen = (Vec<(u64, u8)>, BTreeMap<SkipReason, u64>, Option<SimError>);

    fn see(bytes: &[u8]) -> Seen {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        std::fs::write(&path, bytes).expect("writable");
        let mut reader = CaptureReader::open(&path).expect("a capture");
        let (mut frame, mut seen, mut ended) = (HeapFrame::default(), Vec::new(), None);
        loop {
            match reader.read_stamped(&mut frame) {
                Ok(Some(ns)) => seen.push((ns / 1_000, frame.bytes().first().copied().unwrap_or_default())),
                Ok(None) => break,
                Err(error) => {
                    ended = Some(error);
                    break;
                }
            }
        }
        (seen, reader.anomalies.skipped.clone(), ended)
    }

    #[test]
    fn reads_every_magic_of_classic_captures() {
        for (magic, fraction, micros, header) in
            [(0xa1b2_c3d4_u32, 7, 7, 16), (0xa1b2_3c4d, 7_000, 7, 16), (0xa1b2_cd34, 7, 7, 24)]
        {
            for big in [false, true] {
                let file = Build::new(big).words(&[magic]).u16(2).u16(4).words(&[0, 0, 65_535, 1]);
                let record = |file: Build, first| {
                    file.words(&[1, fraction, 60, 60]).raw(&vec![0; header - 16]).raw(&[first; 60])
                };
                let file = record(record(file, 1), 2);
                let (seen, skipped, ended) = see(&file.bytes);
                assert!(skipped.is_empty() && ended.is_none(), "{magic:x} {big}");
                assert_eq!(seen, [(1_000_000 + micros, 1), (1_000_000 + micros, 2)], "{magic:x} {big}");
            }
        }
        // Before version 2.4 the two lengths may be swapped.
        let file = Build::new(false).words(&[0xa1b2_c3d4]).u16(2).u16(3).words(&[0, 0, 65_535, 1]);
        let file = file.words(&[0, 0, 100, 60]).raw(&[9; 60]).words(&[0, 1, 60, 60]).raw(&[8; 60]);
        assert_eq!(see(&file.bytes).0, [(0, 9), (1, 8)]);
    }

    #[test]
    fn reads_or_skips_blocks_of_every_kind() {
        for big in [false, true] {
            let text = |code: u16, bytes: &[u8]| Build::new(big).u16(code).u16(bytes.len() as u16).raw(bytes).bytes;
            let latin = text(1, b"caf\xe9!");
            let utf16 = text(2, &[0xff, 0xfe, 0x41, 0x00, 0x00, 0xd8]);
            let long = text(1, &[0; 40])[..12].to_vec();
            let file = Build::new(big)
                .section()
                .interface(1, &latin)
                .packet(0, 1, &[1; 60], &latin)
                .packet(0, 2, &[2; 61], &utf16)
                .packet(0, 3, &[3; 62], &long)
                // Name resolution, statistics, secrets, journal, custom and unknown blocks.
                .block(4, |body| body.words(&[0xffff_ffff]))
                .block(5, |body| body)
                .block(10, |body| body.raw(&[0xaa; 100_000]))
                .block(9, |body| body.raw(b"__REALTIME"))
                .block(0xbad, |body| body.words(&[32_473]))
                .block(0x4000_0bad, |body| body.words(&[32_473]))
                .block(0x7777_7777, |body| body.raw(&[1; 5]))
                // An obsolete packet block: 16 bits of interface, 16 bits of drops.
                .block(2, |body| body.u16(0).u16(7).words(&[0, 4, 60, 60]).raw(&[4; 60]))
                // A simple packet block has no timestamp.
                .block(3, |body| body.words(&[60]).raw(&[5; 60]))
                .packet(0, 6, &[6; 60], &[]);
            // A section in the other byte order, with other interfaces.
            let other = Build::new(!big).section().interface(105, &[]).interface(1, &[]);
            let other = other.packet(0, 7, &[7; 60], &[]).packet(1, 8, &[8; 60], &[]).packet(2, 9, &[9; 60], &[]);
            let (seen, skipped, ended) = see(&file.raw(&other.bytes).bytes);
            assert!(ended.is_none(), "{ended:?}");
            assert_eq!(seen, [(1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (8, 8)]);
            let expected =
                [(SkipReason::LinkType(105), 1), (SkipReason::NoStamp, 1), (SkipReason::UnknownInterface, 1)];
            assert_eq!(skipped, BTreeMap::from(expected));
        }
    }

    #[test]
    fn converts_timestamps_by_interface() {
        for big in [false, true] {
            let offset = |seconds: i64| {
                let bytes = if big { seconds.to_be_bytes() } else { seconds.to_le_bytes() };
                Build::new(big).u16(9).u16(1).raw(&[6, 0, 0, 0]).u16(14).u16(8).raw(&bytes).bytes
            };
            let power = Build::new(big).u16(9).u16(1).raw(&[0x80 | 20, 0, 0, 0]).bytes;
            let file = Build::new(big)
                .section()
                .interface(1, &offset(10))
                .interface(1, &offset(-1))
                .interface(1, &power)
                .interface(1, &offset(-5))
                .packet(0, 1, &[1; 60], &[])
                .packet(1, 3_000_000, &[2; 60], &[])
                .packet(2, 3 << 20, &[3; 60], &[])
                .packet(3, 1, &[4; 60], &[]);
            let (seen, skipped, ended) = see(&file.bytes);
            assert!(ended.is_none(), "{ended:?}");
            assert_eq!(seen, [(10_000_001, 1), (2_000_000, 2), (3_000_000, 3), (Record::NO_TIME / 1_000, 4)]);
            assert!(skipped.is_empty(), "{skipped:?}");
        }
    }

    #[test]
    fn skips_corrupt_blocks_and_stops_at_a_block_without_end() {
        let start = || Build::new(false).section().interface(1, &[]).packet(0, 1, &[1; 60], &[]);
        let file = start().block(6, |body| body.words(&[0, 0, 2, 900, 900]).raw(&[2; 60])).block(6, |body| body);
        let (seen, skipped, ended) = see(&file.packet(0, 3, &[3; 60], &[]).bytes);
        assert!(ended.is_none(), "{ended:?}");
        assert_eq!((seen, skipped), (vec![(1, 1), (3, 3)], BTreeMap::from([(SkipReason::BadLength, 2)])));
        let place = start().bytes.len() as u64;
        for broken in [
            start().words(&[6, 8]),
            start().words(&[6, u32::MAX, 0, 0]),
            start().words(&[6, 32, 0, 0]),
            start().words(&[6, 16, 0, 20]).packet(0, 3, &[3; 60], &[]),
            start().words(&[6]),
            start().words(&[0x0a0d_0d0a, 28, 5, 0, 0, 0, 28]),
        ] {
            match see(&broken.bytes) {
                (seen, _, Some(SimError::Broken { whole: 1, offset, .. })) => {
                    assert_eq!((seen.len(), offset), (1, place));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn file_without_frames_is_an_error_with_reasons() {
        let file = Build::new(false).section().interface(127, &[]).packet(0, 1, &[1; 60], &[]);
        let said = see(&file.bytes).2.map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("no record that can be used: 1 × link-type-127 (link type 127 is not read"), "{said}");
        let empty = Build::new(false).section().interface(127, &[]);
        assert!(see(&empty.bytes).2.is_none());
    }

    #[test]
    fn removes_the_fcs_declared_by_interface_or_frame() {
        let mut frame = HeapFrame::default();
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcapng");
        // Captured whole, truncated within the FCS, truncated within the frame, and shorter than an FCS.
        for (held, original) in [(64_u32, 64_u32), (62, 64), (40, 64), (3, 3)] {
            for (of_interface, of_frame, fcs) in [
                (None, None, 0),
                (Some(0), None, 0),
                (Some(32), None, 4),
                (Some(16), None, 2),
                (Some(4), None, 4),
                (None, Some(0x0000_0081_u32), 4),
                (Some(32), Some(0x0000_0041), 2),
                (Some(32), Some(0x0000_0001), 4),
                (None, Some(0xffff_fe1f), 0),
            ] {
                let bytes: Vec<u8> = (0..held).map(|at| 0x40 + at as u8).collect();
                let padding = &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()];
                let option = of_interface.map(|bits| [13, 0, 1, 0, bits, 0, 0, 0]);
                let flags = of_frame.map(|flags| Build::new(false).u16(2).u16(4).words(&[flags]).bytes);
                let file = Build::new(false).section().interface(1, option.as_ref().map_or(&[], |option| option));
                let file = file.block(6, |body| {
                    let body = body.words(&[0, 0, 0, held, original]).raw(&bytes).raw(padding);
                    body.raw(&flags.unwrap_or_default())
                });
                std::fs::write(&path, &file.bytes).expect("writable");
                let mut reader = CaptureReader::open(&path).expect("a capture");
                assert!(matches!(reader.read(&mut frame), Ok(Some(_))));
                let left = original.saturating_sub(fcs);
                let wanted = &bytes[..held.min(left) as usize];
                let said = (of_interface, of_frame, held);
                assert_eq!((frame.original(), frame.bytes()), (left, wanted), "{said:?}");
            }
        }
    }

    #[test]
    fn refuses_link_types_without_packets() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        write(&path, 1);
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes[20] = 105;
        std::fs::write(&path, &bytes).expect("writable");
        assert!(matches!(CaptureReader::open(&path).err(), Some(SimError::LinkType { link_type: 105, .. })));
    }

    #[test]
    fn removes_the_fcs_declared_by_the_file_header() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.pcap");
        let mut frame = HeapFrame::default();
        // Captured whole, truncated within the FCS, truncated within the frame, and shorter than an FCS.
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
