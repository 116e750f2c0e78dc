use crate::capture::SkipReason;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why a run in virtual time could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Frames are due after the last representable instant.
    #[error(
        "the run is longer than 213 days, the limit of virtual time: end it with --duration, or use a shorter delay or a higher rate"
    )]
    TooLong,
    /// A file cannot be opened or read.
    #[error("cannot read {}: {cause}: check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A file cannot be created or written.
    #[error("cannot write {}: {cause}: check the path, its permissions and the free space", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// A file name asks for a compression that is only read.
    #[error(
        "cannot write {}: files are compressed as .gz or .zst only: name one of these, or leave the compression out",
        path.display()
    )]
    Packing {
        /// The file.
        path: PathBuf,
    },
    /// A file accepts no more data.
    #[error(
        "cannot write more to {}: {cause}: it holds the first {records} records, all complete: check the free space",
        path.display()
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
        /// Records in the file.
        records: u64,
    },
    /// Captures to be merged start too far apart.
    #[error(
        "the captures begin {days} days apart, more than the 213 days of virtual time: give captures of one run, or \
         shift one with editcap -t"
    )]
    FarApart {
        /// The days between the first and the last.
        days: u64,
    },
    /// A capture that can be read only once would have to be repeated.
    #[error("standard input can be read only once: leave --loop out, or name a file")]
    Once,
    /// The capture spans more time than the range of instants.
    #[error(
        "{} spans more than 213 days (18 446 744 s), the limit of virtual time: record {record} is too far from the \
         first, and only the records before it were used: split it with editcap -i 86400, or correct the stamps if a clock \
         was set during the capture",
        path.display()
    )]
    TooWide {
        /// The file.
        path: PathBuf,
        /// Number, from 1, of the first record that is out of range.
        record: u64,
    },
    /// The first bytes of a compressed file cannot be decompressed.
    #[error(
        "{} cannot be decompressed: {cause}: none of its records can be read: copy or download it again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error of the decompression library.
        cause: std::io::Error,
    },
    /// The file is not a capture.
    #[error("{} is not a capture: {why}: give a pcap or pcapng file", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// The problem at its start.
        why: String,
    },
    /// The capture is neither Ethernet nor IP.
    #[error("{} holds records of link type {link_type}: netlathe reads Ethernet (1), IP alone (12, 14, 101, 228, 229), loopback (0, 108) and what `tcpdump -i any` writes (113, 276)", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The link type in the tcpdump registry.
        link_type: u16,
    },
    /// All records of the capture were skipped.
    #[error("{} holds no record that can be used: {}", path.display(), reasons(skipped))]
    NoFrames {
        /// The file.
        path: PathBuf,
        /// Number of skipped records per reason.
        skipped: BTreeMap<SkipReason, u64>,
    },
    /// The capture is truncated, or its records can no longer be delimited.
    #[error(
        "{} breaks after record {whole}, at byte {offset}{}: {why}: the records before it were used; {} writes a file with \
         the readable records",
        path.display(), if *packed { " of what it unpacks to" } else { "" }, rescue(path, *packed)
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// Whether the file is compressed. The offset then refers to its decompressed data.
        packed: bool,
        /// Number of whole records.
        whole: u64,
        /// Offset of the unreadable record in bytes.
        offset: u64,
        /// The problem at this offset.
        why: String,
    },
}

/// The command that writes the readable records of a broken capture to a new file. editcap does not read all compressed
/// formats.
fn rescue(path: &Path, packed: bool) -> String {
    if packed {
        format!("netlathe gen --pcap {} --out pcap:NEW.pcap", path.display())
    } else {
        format!("editcap {} NEW.pcap", path.display())
    }
}

/// The reasons for skipped records and their meanings, on one line.
fn reasons(skipped: &BTreeMap<SkipReason, u64>) -> String {
    let each: Vec<String> =
        skipped.iter().map(|(why, records)| format!("{records} × {why} ({})", why.meaning())).collect();
    each.join(", ")
}
