//! Records of a capture that are not as one would expect, counted.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// Why a record is no frame of a run. The run goes on without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skip {
    /// Its link type, by the number in the tcpdump registry, is not read.
    LinkType(u16),
    /// It was captured without an Ethernet header, and holds no IP packet that could get one.
    NotIp,
    /// Its cooked header says that it is no frame of Ethernet: CAN, netlink, 802.11.
    NotEthernet,
    /// It is shorter than the header of its link type.
    Short,
    /// It is an LLC frame longer than the length field of Ethernet can say.
    LongLlc,
    /// It is longer than any frame.
    TooLong,
    /// It has no time stamp, and one is needed.
    NoStamp,
    /// It names an interface that the file does not describe.
    UnknownInterface,
    /// Its length does not fit in its block.
    BadLength,
}

impl Skip {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        self.to_string()
    }

    /// What it means, and what helps.
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

/// Records of a capture that are not as one would expect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// They were skipped, by reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// They were captured without an Ethernet header, and have got one.
    pub made_headers: u64,
    /// Their stamp was before that of the record ahead of them.
    pub disordered: u64,
    /// From them on the clock was set back: the gap before counts as none.
    pub clock_steps: u64,
    /// Their stamp was far from those of the records around them, or out of range: they arrive together with the one
    /// ahead.
    pub stray_stamps: u64,
    /// The gap before them was longer than virtual time reaches, and was shortened.
    pub shortened_gaps: u64,
}

impl Oddities {
    pub(crate) fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }

    /// Records that were skipped, by the name of the reason.
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
        self.shortened_gaps += other.shortened_gaps;
    }
}
