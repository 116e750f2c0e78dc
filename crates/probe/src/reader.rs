//! The reader: enables the probes and reads the blocks.

use crate::layout::{
    AFTER_DROP, AT_COSTS, AT_DROPPED, AT_ENABLED, AT_LOOKED, AT_NAMES, AT_READ, AT_WRITTEN, FIRST_SLOT, HEADER_WORDS,
    IDS, NAME_WORDS, RECORD_MAGIC, SECTIONS, SLOT_WORDS,
};
use crate::map::{GuardedMap, Map, lock, ticks};
use crate::ring::{Direction, check, open_or_make};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a thread may take to write a block. A thread that takes longer counts as killed. If it was only stopped,
/// for example by a debugger, it later overwrites a block of another round of the ring.
const PATIENCE: Duration = Duration::from_secs(1);

/// A section of a block, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its number.
    pub id: u8,
    /// Start relative to the block's.
    pub after: u64,
    /// Length.
    pub length: u64,
}

/// A data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// IP protocol number of the transport.
    pub protocol: u8,
    /// Direction of the packet.
    pub direction: Direction,
    /// Measured quantity; 0 is time.
    pub event: u16,
    /// Length of the transport header in bytes.
    pub transport_header: u8,
    /// Length of the IP header in bytes.
    pub ip_header: u8,
    /// Length of the packet in bytes.
    pub length: u16,
    /// Start of the block in ticks.
    pub start: u64,
    /// The thread ID.
    pub thread: u32,
    /// Sections, in the order in which they stopped.
    pub sections: Vec<Section>,
    /// Number of sections that did not fit.
    pub beyond: u16,
    /// The thread's previous block was dropped.
    pub after_drop: bool,
}

/// Cost of the operations in the program, in ticks: NetSlice's τα, τβ, τo, τγ. All 0 before the program has configured
/// the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// init.
    pub alpha: f64,
    /// start and stop.
    pub beta: f64,
    /// The part of it between the two timestamps.
    pub inside: f64,
    /// exit.
    pub gamma: f64,
}

/// Reads a ring. A ring has one reader, and its probes are on while the reader lives.
#[derive(Debug)]
pub struct Reader {
    map: GuardedMap,
    slots: u64,
    /// The first missing block, since when the reader has waited for it, and the number of blocks begun by then.
    missing: Option<(u64, Instant, u64)>,
    /// Blocks below this number get no further wait.
    overdue: u64,
    lost: u64,
    damaged: bool,
    /// The locked file.
    file: File,
}

impl Reader {
    /// Opens the ring of a program.
    ///
    /// # Errors
    /// There is no such file, it is not a ring, or it has another reader.
    pub fn open(path: &Path) -> io::Result<Reader> {
        Reader::of(Map::open(path)?)
    }

    /// Opens the ring, or creates one of about this many bytes for a future program.
    ///
    /// # Errors
    /// The file cannot be opened or created, is not a ring, or has another reader.
    pub fn open_or_create(path: &Path, bytes: usize) -> io::Result<Reader> {
        Reader::of(open_or_make(path, bytes)?)
    }

    fn of((map, file): (Map, File)) -> io::Result<Reader> {
        let map = GuardedMap::new(map)?;
        let slots = check(map.words())?;
        if !lock(&file)? {
            let what =
                "another reads this ring, and each block is read once: end the other netlathe slice attach first";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
        }
        Ok(Reader { map, slots, missing: None, overdue: 0, lost: 0, damaged: false, file })
    }

    /// Checks that the file has its full length. Truncated parts read as zeros, so figures read before a successful
    /// check are valid.
    ///
    /// # Errors
    /// The file is, or was, shorter.
    pub fn check_length(&self) -> io::Result<()> {
        if !self.map.is_cut() && self.file.metadata()?.len() >= 8 * self.map.words().len() as u64 {
            return Ok(());
        }
        let what = "the ring was cut while it was read: remove it, and start the program again, which makes a new one";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Whether the ring's file was unlinked, so that future programs create another one.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Turns the probes on or off, for blocks that start from now on. A program with a full ring turns them off itself
    /// if the reader has not polled for some seconds, so a reader must repeat the call from time to time.
    pub fn enable(&self, on: bool) {
        self.map.words()[AT_LOOKED].store(ticks(), Ordering::Relaxed);
        self.map.words()[AT_ENABLED].store(u64::from(on), Ordering::Relaxed);
    }

    /// Discards the present blocks, and the count of dropped ones.
    pub fn forget(&self) {
        let words = self.map.words();
        words[AT_READ].store(words[AT_WRITTEN].load(Ordering::Relaxed), Ordering::Release);
        words[AT_DROPPED].store(0, Ordering::Relaxed);
    }

    /// Whether blocks are present or being written.
    #[must_use]
    pub fn waits(&self) -> bool {
        let words = self.map.words();
        words[AT_READ].load(Ordering::Relaxed) != words[AT_WRITTEN].load(Ordering::Relaxed)
    }

    /// Blocks whose threads were killed while writing them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether the ring's counts of written and read blocks contradicted each other: the file was damaged, or something
    /// other than the probes writes to it.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Counts the blocks that are still being written as lost, for a reader that is about to end.
    pub fn discard_unfinished(&mut self) {
        let words = self.map.words();
        let (written, read) = (words[AT_WRITTEN].load(Ordering::Relaxed), words[AT_READ].load(Ordering::Relaxed));
        self.lost += written.saturating_sub(read).min(self.slots);
        words[AT_READ].store(written, Ordering::Release);
    }

    /// The next block, if there is one. A truncated ring has none. Looks at no more blocks than the ring holds.
    pub fn next_block(&mut self) -> Option<Data> {
        let words = self.map.words();
        words[AT_LOOKED].store(ticks(), Ordering::Relaxed);
        let read = words[AT_READ].load(Ordering::Relaxed);
        let written = words[AT_WRITTEN].load(Ordering::Relaxed);
        // A program begins no block without a free slot.
        if written.checked_sub(read).is_none_or(|begun| begun > self.slots) {
            self.damaged = true;
            self.missing = None;
            words[AT_READ].store(written, Ordering::Release);
            return None;
        }
        for number in read..written {
            if self.is_written(number) {
                return self.take(number);
            }
            if !self.is_overdue(number, written) {
                return None;
            }
            self.lost += 1;
            self.map.words()[AT_READ].store(number + 1, Ordering::Release);
        }
        self.missing = None;
        None
    }

    fn slot(&self, number: u64) -> &[AtomicU64] {
        let at = FIRST_SLOT + (number % self.slots) as usize * SLOT_WORDS;
        &self.map.words()[at..at + SLOT_WORDS]
    }

    fn is_written(&self, number: u64) -> bool {
        self.slot(number)[0].load(Ordering::Acquire) == number.wrapping_add(1)
    }

    /// Whether the reader has waited long enough for an unwritten block: its thread is still writing it, or was killed
    /// while writing. Blocks that had begun when the wait started share it.
    fn is_overdue(&mut self, number: u64, written: u64) -> bool {
        if number < self.overdue {
            return true;
        }
        match self.missing {
            Some((missing, since, begun)) if missing == number => {
                let overdue = since.elapsed() >= PATIENCE;
                if overdue {
                    self.overdue = begun;
                    self.missing = None;
                }
                overdue
            }
            _ => {
                self.missing = Some((number, Instant::now(), written));
                false
            }
        }
    }

    /// Reads a written block and frees its slot.
    fn take(&mut self, number: u64) -> Option<Data> {
        self.missing = None;
        let slot = self.slot(number);
        let word = |n: usize| slot[n].load(Ordering::Relaxed);
        let (header, thread) = (word(1), word(3));
        let count = ((thread >> 32) as u16 as usize).min(SECTIONS);
        let section = |n: usize| {
            let (first, length) = (word(HEADER_WORDS + 2 * n), word(HEADER_WORDS + 2 * n + 1));
            let sound = first >> 8 & 0xff_ffff == RECORD_MAGIC;
            sound.then_some(Section { id: first as u8, after: first >> 32, length })
        };
        let data = Data {
            protocol: header as u8,
            direction: if header >> 8 & 1 == 0 { Direction::Send } else { Direction::Receive },
            event: (header >> 16) as u16,
            transport_header: (header >> 32) as u8,
            ip_header: (header >> 40) as u8,
            length: (header >> 48) as u16,
            start: word(2),
            thread: thread as u32,
            sections: (0..count).filter_map(section).collect(),
            beyond: (thread >> 48) as u16,
            after_drop: header & AFTER_DROP != 0,
        };
        if self.map.is_cut() {
            return None;
        }
        self.map.words()[AT_READ].store(number + 1, Ordering::Release);
        Some(data)
    }

    /// Blocks that the program dropped because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.map.words()[AT_DROPPED].load(Ordering::Relaxed)
    }

    /// Capacity of the ring in blocks.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Cost of the operations, as the program calibrated them; init and exit as measured since.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let word = |n: usize| self.map.words()[AT_COSTS + n].load(Ordering::Relaxed) as f64 / 1_024.0;
        Costs { alpha: word(0), beta: word(1), inside: word(2), gamma: word(3) }
    }

    /// The name of a section, if the program set one. Characters that would break a line are replaced.
    #[must_use]
    pub fn name(&self, id: u8) -> Option<String> {
        let at = AT_NAMES + usize::from(id) * NAME_WORDS;
        if usize::from(id) >= IDS {
            return None;
        }
        let words = self.map.words()[at..at + NAME_WORDS].iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).chars().map(printable).collect())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.enable(false);
    }
}
