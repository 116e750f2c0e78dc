//! Counts unusual records of a capture.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// Why a record cannot be used as a frame. The run continues without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// Unsupported link type, by its number in the tcpdump registry.
    LinkType(u16),
    /// Captured without an Ethernet header, and not an IP packet that could get one.
    NotIp,
    /// Not an Ethernet frame according to its cooked header: CAN, netlink, 802.11.
    NotEthernet,
    /// Shorter than the header of its link type.
    Short,
    /// An LLC frame longer than Ethernet's length field allows.
    LongLlc,
    /// Longer than any frame.
    TooLong,
    /// Without a timestamp where one is needed.
    NoStamp,
    /// Its interface is not described in the file.
    UnknownInterface,
    /// Its length exceeds its block.
    BadLength,
}

impl Skip {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// The meaning and the remedy.
    #[must_use]
    pub fn meaning(self) -> String {
        match self {
            Skip::LinkType(number) => format!(
                "link type {number} is not read: netlathe reads Ethernet (1), IP alone (12, 14, 101, 228, 229), loopback (0, 108) and tcpdump -i any (113, 276)"
            ),
            Skip::NotIp => "no Ethernet header, and no IP packet that could get one".into(),
            Skip::NotEthernet => "CAN, netlink or 802.11 of a cooked capture, which Ethernet cannot carry".into(),
            Skip::Short => "shorter than the header of the link type".into(),
            Skip::LongLlc => "an LLC frame over 1500 B, which the length field of Ethernet cannot say".into(),
            Skip::TooLong => "longer than 262 144 B".into(),
            Skip::NoStamp => {
                "no time stamp, as all simple packet blocks: gen --pcap with --rate, --gap or --speed max needs none"
                    .into()
            }
            Skip::UnknownInterface => "an interface that the file does not describe".into(),
            Skip::BadLength => "a length that does not fit in the block".into(),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Skip::LinkType(number) => return write!(f, "link-type-{number}"),
            Skip::NotIp => "not-ip",
            Skip::NotEthernet => "not-ethernet",
            Skip::Short => "short-header",
            Skip::LongLlc => "long-llc",
            Skip::TooLong => "too-long",
            Skip::NoStamp => "no-stamp",
            Skip::UnknownInterface => "unknown-interface",
            Skip::BadLength => "bad-length",
        })
    }
}

/// Unusual records of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Skipped records, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Frames captured without an Ethernet header, which got a generated one.
    pub made_headers: u64,
    /// Frames with a timestamp before that of the preceding record.
    pub disordered: u64,
    /// Frames from which on the clock was set back. The gap before them counts as zero.
    pub clock_steps: u64,
    /// Frames whose timestamp is far from those around them, or out of range. They arrive together with the preceding
    /// frame.
    pub stray_stamps: u64,
    /// Frames left unchanged by a rewrite because their checksum covers an address that a compressed routing header hides.
    pub unrewritten: u64,
    /// Gaps longer than virtual time reaches, which were shortened.
    pub shortened_gaps: u64,
    /// The gap before them was longer than asked, and was shortened to that.
    pub capped_gaps: u64,
}

impl Oddities {
    pub(crate) fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Skipped records, by name of the reason.
    #[must_use]
    pub fn skipped_by_name(&self) -> BTreeMap<String, u64> {
        self.skipped.iter().map(|(why, records)| (why.name(), *records)).collect()
    }
}

impl AddAssign<&Oddities> for Oddities {
    fn add_assign(&mut self, other: &Oddities) {
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
