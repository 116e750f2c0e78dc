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
    /// A capture whose records have longer headers.
    #[error("{} is a modified pcap (Kuznetzov's): turn it into pcapng first, as editcap {} NEW.pcapng does", path.display(), path.display())]
    Modified {
        /// The file.
        path: PathBuf,
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
    #[error("{} holds records of link type {link_type}: netlathe reads Ethernet (1), IP alone (101) and what `tcpdump -i any` writes (113, 276)", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// The number in the tcpdump registry.
        link_type: u32,
    },
    /// A capture that ends or breaks within a record.
    #[error(
        "{} breaks after record {whole}, at byte {offset}: {why}: the whole records were used, capture again for the rest",
        path.display()
    )]
    Broken {
        /// The file.
        path: PathBuf,
        /// Records that were whole.
        whole: u64,
        /// Where the broken record starts, in bytes from the start of the file.
        offset: u64,
        /// What is wrong there.
        why: String,
    },
}
