//! The ring's layout, in 64-bit words of the machine's own byte order. Version 1; the C header has the same numbers.
//!
//! | words | hold |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | version, and words of a slot in the upper half |
//! | 2 | number of slots |
//! | 3 | enabled: 0 or 1 |
//! | 4…7 | τα, τβ, τo, τγ in 1/1024 of a tick, calibrated by the program; τα and τγ then follow measured blocks |
//! | 8 | blocks written: the next slot to write is this modulo the number of slots |
//! | 16 | blocks read |
//! | 17 | when the reader last polled, in ticks; 0 if unknown |
//! | 24 | blocks dropped because the ring was full |
//! | 64…287 | names of sections 0…[`IDS`] − 1, [`NAME_WORDS`] words each, padded with zeros |
//! | 512… | slots |
//!
//! A slot is one data block. Word 0 is its number + 1, written last. Word 1 has the header fields of NetSlice's data
//! blocks: bits 0…7 protocol; 8…15 flags, of which 8 is the direction and 9 says that the thread's previous block was
//! dropped; 16…31 event, 0 is time; 32…39 transport header; 40…47 IP header; 48…63 length of the packet. Word 2 is its
//! start in ticks. Word 3 has the thread (bits 0…31), the number of sections (32…47) and the number of sections that
//! did not fit (48…63). Two words per section follow: id (bits 0…7), [`RECORD_MAGIC`] (8…31), start in ticks relative
//! to the block's (32…63); then its length in ticks.
//!
//! The file gets its name once its first three words and its size are set, so no process finds a partial ring. A writer
//! that finds the ring full, and its reader inactive for [`GONE`], turns the probes off: the reader was killed.

/// First word of a ring.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NLPROBE1");
/// Version of this layout.
pub const VERSION: u64 = 1;
/// Part of each section's first word.
pub const RECORD_MAGIC: u64 = 0x51_1CE;
/// Limit on sections per block.
pub const SECTIONS: usize = 16;
/// Section numbers run from 0 to `IDS` − 1.
pub const IDS: usize = 32;
/// Words per name.
pub const NAME_WORDS: usize = 7;
/// Words before the sections of a block.
pub const HEADER_WORDS: usize = 4;
/// Words per slot.
pub const SLOT_WORDS: usize = HEADER_WORDS + 2 * SECTIONS;
/// Ticks (a few seconds) without a poll after which a reader counts as gone.
pub const GONE: u64 = 1 << 33;
/// Words before the first slot.
pub const FIRST_SLOT: usize = 512;

pub(crate) const AT_MAGIC: usize = 0;
pub(crate) const AT_VERSION: usize = 1;
pub(crate) const AT_SLOTS: usize = 2;
pub(crate) const AT_ENABLED: usize = 3;
pub(crate) const AT_COSTS: usize = 4;
pub(crate) const AT_WRITTEN: usize = 8;
pub(crate) const AT_READ: usize = 16;
pub(crate) const AT_LOOKED: usize = 17;
pub(crate) const AT_DROPPED: usize = 24;
pub(crate) const AT_NAMES: usize = 64;
/// In word 1 of a slot: the thread's previous block was dropped.
pub(crate) const AFTER_DROP: u64 = 1 << 9;

/// Number of blocks that fit in a ring of this many bytes.
#[must_use]
pub fn slots(bytes: usize) -> u64 {
    ((bytes / 8).saturating_sub(FIRST_SLOT) / SLOT_WORDS) as u64
}
