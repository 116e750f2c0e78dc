//! Counts unusual records of a capture.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// Why a record cannot be used as a frame. The run continues without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// The link type with this number in the tcpdump registry is not supported.
    LinkType(u16),
    /// Captured without an Ethernet header, and not an IP packet, for which one could be generated.
    NotIp,
    /// Not an Ethernet frame according to its cooked header: CAN, netlink, 802.11.
    NotEthernet,
    /// Shorter than the header of its link type.
    Short,
    /// An LLC frame that is too long for Ethernet's length field.
    LongLlc,
    /// Longer than any frame.
    TooLong,
    /// No timestamp where one is needed.
    NoStamp,
    /// Its interface is not described in the file.
    UnknownInterface,
    /// Its length exceeds its block.
    BadLength,
}

impl SkipReason {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// The meaning and the remedy.
    #[must_use]
    pub fn meaning(self) -> String {
        match self {
            SkipReason::LinkType(number) => format!(
                "link type {number} is not read: netlathe reads Ethernet (1), IP alone (12, 14, 101, 228, 229), loopback (0, 108) and tcpdump -i any (113, 276)"
            ),
            SkipReason::NotIp => "no Ethernet header, and no IP packet that could get one".into(),
            SkipReason::NotEthernet => "CAN, netlink or 802.11 of a cooked capture, which Ethernet cannot carry".into(),
            SkipReason::Short => "shorter than the header of the link type".into(),
            SkipReason::LongLlc => "an LLC frame over 1500 B, which the length field of Ethernet cannot express".into(),
            SkipReason::TooLong => "longer than 262 144 B".into(),
            SkipReason::NoStamp => {
                "no time stamp, like all simple packet blocks: gen --pcap with --rate, --gap or --speed max needs none"
                    .into()
            }
            SkipReason::UnknownInterface => "an interface that the file does not describe".into(),
            SkipReason::BadLength => "a length that does not fit in the block".into(),
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::LinkType(number) => return write!(f, "link-type-{number}"),
            SkipReason::NotIp => "not-ip",
            SkipReason::NotEthernet => "not-ethernet",
            SkipReason::Short => "short-header",
            SkipReason::LongLlc => "long-llc",
            SkipReason::TooLong => "too-long",
            SkipReason::NoStamp => "no-stamp",
            SkipReason::UnknownInterface => "unknown-interface",
            SkipReason::BadLength => "bad-length",
        })
    }
}

/// Unusual records of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureAnomalies {
    /// Skipped records, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Frames captured without an Ethernet header, for which one was generated.
    pub made_headers: u64,
    /// Frames with a timestamp before that of the preceding record.
    pub disordered: u64,
    /// Frames before which the clock was set back. The gap before them counts as zero.
    pub clock_steps: u64,
    /// Frames whose timestamp is far from its neighbours, or out of range. They arrive together with the preceding
    /// frame.
    pub stray_stamps: u64,
    /// Frames that a rewrite left unchanged, because their checksum covers an address that a compressed routing header
    /// hides.
    pub unrewritten: u64,
    /// Gaps that exceed the range of virtual time and were shortened.
    pub shortened_gaps: u64,
    /// Gaps that exceeded the configured maximum and were shortened to it.
    pub capped_gaps: u64,
}

impl CaptureAnomalies {
    pub(crate) fn skip(&mut self, why: SkipReason) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Skipped records, by the name of the reason.
    #[must_use]
    pub fn skipped_by_name(&self) -> BTreeMap<String, u64> {
        self.skipped.iter().map(|(why, records)| (why.name(), *records)).collect()
    }
}

impl AddAssign<&CaptureAnomalies> for CaptureAnomalies {
    fn add_assign(&mut self, other: &CaptureAnomalies) {
        for (why, records) in &other.skipped {
            *self.skipped.entry(*why).or_default() += records;
        }
        self.made_headers += other.made_headers;
        self.disordered += other.disordered;
        self.clock_steps += other.clock_steps;
        self.stray_stamps += other.stray_stamps;
        self.unrewritten += other.unrewritten;
        self.shortened_gaps += other.shortened_gaps;
        self.capped_gaps += other.capped_gaps;
    }
}
