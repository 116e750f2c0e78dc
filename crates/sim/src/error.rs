use crate::capture::Skip;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Why a run in virtual time could not start or had to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Frames are due later than instants reach.
    #[error(
        "the run is longer than the 213 days that virtual time reaches: end it by --duration, or ask for less delay or more rate"
    )]
    TooLong,
    /// A file cannot be opened or read.
    #[error("cannot read {}: {cause}: check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A file cannot be made or written.
    #[error("cannot write {}: {cause}: check the path, its permissions and the free space", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A capture is packed.
    #[error("{} is compressed by {program}: unpack it first, as {program} -dc {} > FILE does", path.display(), path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
        /// Who unpacks it.
        program: &'static str,
    },
    /// A capture that goes on for longer than instants reach.
    #[error(
        "{} spans more than the 213 days (18 446 744 s) that virtual time reaches: record {record} is further from the \
         first, and those before it were used: give parts of it, as editcap -i 86400 makes, or mend the stamps if a clock \
         was set while it was captured",
        path.display()
    )]
    TooWide {
        /// The file.
        path: PathBuf,
        /// The first record that is too late, from 1.
        record: u64,
    },
    /// A file is no capture.
    #[error("{} is no capture: {why}: give a pcap or pcapng file", path.display())]
    NotACapture {
        /// The file.
        path: PathBuf,
        /// What is wrong with its start.
        why: String,
    },
    /// A capture of something else than Ethernet or IP.
    #[error("{} holds records of link type {link_type}: netlathe reads Ethernet (1), IP alone (12, 14, 101, 228, 229), loopback (0, 108) and what `tcpdump -i any` writes (113, 276)", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The number in the tcpdump registry.
        link_type: u16,
    },
    /// A capture all of whose records had to be skipped.
    #[error("{} holds no record that can be used: {}", path.display(), reasons(skipped))]
    NoFrames {
        /// The file.
        path: PathBuf,
        /// How many records were skipped for which reason.
        skipped: BTreeMap<Skip, u64>,
    },
    /// A capture that is cut, or whose records cannot be told apart any more.
    #[error(
        "{} breaks after record {whole}, at byte {offset}: {why}: the records before were used; editcap {} NEW.pcap writes a file \
         of those that can be read",
        path.display(), path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// Records that were whole.
        whole: u64,
        /// Where the record that cannot be read starts, in bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
}

/// The reasons of skipped records with their meanings, on one line.
fn reasons(skipped: &BTreeMap<Skip, u64>) -> String {
    let each: Vec<String> =
        skipped.iter().map(|(why, records)| format!("{records} × {why} ({})", why.meaning())).collect();
    each.join(", ")
}
