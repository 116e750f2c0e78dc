//! The other side: who enables the probes and reads the blocks.

use crate::layout::{
    AFTER_DROP, AT_COSTS, AT_DROPPED, AT_ENABLED, AT_LOOKED, AT_NAMES, AT_READ, AT_WRITTEN, FIRST_SLOT, HEADER_WORDS,
    IDS, NAME_WORDS, RECORD_MAGIC, SECTIONS, SLOT_WORDS,
};
use crate::map::{Kept, Map, lock, ticks};
use crate::ring::{Direction, check, open_or_make};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a block may be under way from its thread into the ring. A thread that takes longer was killed there. One that
/// was only stopped, by a debugger, and goes on writes over a block of another round of the ring.
const PATIENCE: Duration = Duration::from_secs(1);

/// A section of a block, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its number.
    pub id: u8,
    /// Its start, after the block's.
    pub after: u64,
    /// Its length.
    pub length: u64,
}

/// A data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The transport's number.
    pub protocol: u8,
    /// Which way the packet went.
    pub direction: Direction,
    /// What was measured; 0 is time.
    pub event: u16,
    /// Bytes of the transport header.
    pub transport_header: u8,
    /// Bytes of the IP header.
    pub ip_header: u8,
    /// Bytes of the packet.
    pub length: u16,
    /// The block's start, in ticks.
    pub start: u64,
    /// The thread.
    pub thread: u32,
    /// Its sections in the order in which they stopped.
    pub sections: Vec<Section>,
    /// Sections for which there was no room.
    pub beyond: u16,
    /// The thread's block before was dropped.
    pub after_drop: bool,
}

/// What the operations cost in the program, in ticks: NetSlice's τα, τβ, τo, τγ. All 0 before it has configured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// init.
    pub alpha: f64,
    /// start and stop.
    pub beta: f64,
    /// What of that lies between the two stamps.
    pub inside: f64,
    /// exit.
    pub gamma: f64,
}

/// Reads a ring. There is one reader of a ring; its probes are on as long as it lives.
#[derive(Debug)]
pub struct Reader {
    map: Kept,
    slots: u64,
    /// The block that is waited for, though others came behind it, and since when.
    missing: Option<(u64, Instant)>,
    lost: u64,
    /// Locked.
    file: File,
}

impl Reader {
    /// Opens the ring of a program.
    ///
    /// # Errors
    /// When there is none, it is no ring, or another reads it.
    pub fn open(path: &Path) -> io::Result<Reader> {
        Reader::of(Map::open(path)?)
    }

    /// Opens the ring, or makes one of about this many bytes for a program to come.
    ///
    /// # Errors
    /// When the file cannot be opened or made, is no ring, or another reads it.
    pub fn open_or_create(path: &Path, bytes: usize) -> io::Result<Reader> {
        Reader::of(open_or_make(path, bytes)?)
    }

    fn of((map, file): (Map, File)) -> io::Result<Reader> {
        let map = Kept::new(map)?;
        let slots = check(map.words())?;
        if !lock(&file)? {
            let what =
                "another reads this ring, and each block is read once: end the other netlathe slice attach first";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
        }
        Ok(Reader { map, slots, missing: None, lost: 0, file })
    }

    /// Whether the file is as long as it was. Where somebody cut it, what is gone reads as zeros: of figures that were read
    /// before this says that it is whole, none is such.
    ///
    /// # Errors
    /// When it is shorter, or was.
    pub fn whole(&self) -> io::Result<()> {
        if !self.map.is_cut() && self.file.metadata()?.len() >= 8 * self.map.words().len() as u64 {
            return Ok(());
        }
        let what = "the ring was cut while it was read: remove it, and start the program again, which makes a new one";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Whether the ring's file has no name any more, so that programs to come make another one.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Turns the probes on or off: blocks that are begun from now on are measured, or not. A program whose ring is full
    /// turns them off itself when nobody has looked for some seconds, so who reads says it again from time to time.
    pub fn enable(&self, on: bool) {
        self.map.words()[AT_LOOKED].store(ticks(), Ordering::Relaxed);
        self.map.words()[AT_ENABLED].store(u64::from(on), Ordering::Relaxed);
    }

    /// Forgets the blocks that are there, and how many were dropped.
    pub fn forget(&self) {
        let words = self.map.words();
        words[AT_READ].store(words[AT_WRITTEN].load(Ordering::Relaxed), Ordering::Release);
        words[AT_DROPPED].store(0, Ordering::Relaxed);
    }

    /// Whether blocks are there, or under way.
    #[must_use]
    pub fn waits(&self) -> bool {
        let words = self.map.words();
        words[AT_READ].load(Ordering::Relaxed) != words[AT_WRITTEN].load(Ordering::Relaxed)
    }

    /// Blocks whose threads were killed while they wrote them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The next block, if one is there. In a ring that was cut there is none.
    pub fn next_block(&mut self) -> Option<Data> {
        let words = self.map.words();
        words[AT_LOOKED].store(ticks(), Ordering::Relaxed);
        let number = words[AT_READ].load(Ordering::Relaxed);
        let at = FIRST_SLOT + (number % self.slots) as usize * SLOT_WORDS;
        let slot = &words[at..at + SLOT_WORDS];
        if slot[0].load(Ordering::Acquire) != number + 1 {
            return self.pass_over(number);
        }
        self.missing = None;
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
        words[AT_READ].store(number + 1, Ordering::Release);
        Some(data)
    }

    /// A block that is not there: none was written, or its thread is at it, or was killed there. The last is counted, and
    /// the next block taken.
    fn pass_over(&mut self, number: u64) -> Option<Data> {
        if !self.waits() {
            self.missing = None;
            return None;
        }
        match self.missing {
            Some((missing, since)) if missing == number => {
                if since.elapsed() < PATIENCE {
                    return None;
                }
                self.lost += 1;
                self.map.words()[AT_READ].store(number + 1, Ordering::Release);
                self.next_block()
            }
            _ => {
                self.missing = Some((number, Instant::now()));
                None
            }
        }
    }

    /// Blocks that the program dropped, since the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.map.words()[AT_DROPPED].load(Ordering::Relaxed)
    }

    /// Blocks that the ring has room for.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// What the operations cost: as the program measured when it configured, init and exit as it meets them since.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let word = |n: usize| self.map.words()[AT_COSTS + n].load(Ordering::Relaxed) as f64 / 1_024.0;
        Costs { alpha: word(0), beta: word(1), inside: word(2), gamma: word(3) }
    }

    /// The name of a section, if the program gave it one; what would break a line is replaced.
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
