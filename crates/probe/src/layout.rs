//! The ring's layout, in 64-bit words of the machine's own byte order. Version 1; the C header has the same numbers.
//!
//! | words | hold |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | version, and words of a slot in the upper half |
//! | 2 | number of slots |
//! | 3 | enabled: 0 or 1 |
//! | 4…7 | τα, τβ, τo, τγ in 1/1024 of a tick, by the program's calibration; τα and τγ follow what blocks take |
//! | 8 | blocks written: the next place to write is this modulo the slots |
//! | 16 | blocks read |
//! | 17 | when the reader last looked, in ticks; 0 is not known |
//! | 24 | blocks dropped, since the ring was full |
//! | 64…287 | names of sections 0…[`IDS`] − 1, [`NAME_WORDS`] words each, padded with zeros |
//! | 512… | slots |
//!
//! A slot is one data block: word 0 is its number + 1, written last; word 1 has the header fields of NetSlice's data
//! blocks (bits 0…7 protocol, 8…15 flag: 8 is the direction, 9 that the thread's block before was dropped; 16…31 event: 0
//! is time, 32…39 transport header, 40…47 IP header, 48…63 length of the packet); word 2 its start in ticks; word 3 the
//! thread (bits 0…31), the number of sections (32…47) and of those for which there was no room (48…63). Then two words for
//! each section: id (bits 0…7), [`RECORD_MAGIC`] (8…31), start after the block's in ticks (32…63), and its length in ticks.
//!
//! The file gets its name when its first three words and its size are there, so nobody finds half a ring. A writer that
//! finds the ring full, and its reader not looking for [`GONE`], turns the probes off: the reader was killed.

/// First word of a ring.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NLPROBE1");
/// Of this layout.
pub const VERSION: u64 = 1;
/// In each section's first word.
pub const RECORD_MAGIC: u64 = 0x51_1CE;
/// Sections that one block has room for.
pub const SECTIONS: usize = 16;
/// Sections are numbered from 0 to this, less one.
pub const IDS: usize = 32;
/// Words of a name.
pub const NAME_WORDS: usize = 7;
/// Words before the sections of a block.
pub const HEADER_WORDS: usize = 4;
/// Words of a slot.
pub const SLOT_WORDS: usize = HEADER_WORDS + 2 * SECTIONS;
/// Ticks, some seconds, after which a reader that does not look is taken for gone.
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
/// Of a slot's word 1: the thread's block before was dropped.
pub(crate) const AFTER_DROP: u64 = 1 << 9;

/// Blocks for which a ring of so many bytes has room.
#[must_use]
pub fn slots(bytes: usize) -> u64 {
    ((bytes / 8).saturating_sub(FIRST_SLOT) / SLOT_WORDS) as u64
}
