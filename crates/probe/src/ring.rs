//! The program's side: configure, init, start, stop, exit.

use crate::layout::{
    AFTER_DROP, AT_COSTS, AT_DROPPED, AT_ENABLED, AT_LOOKED, AT_MAGIC, AT_NAMES, AT_READ, AT_SLOTS, AT_VERSION,
    AT_WRITTEN, FIRST_SLOT, GONE, HEADER_WORDS, IDS, MAGIC, NAME_WORDS, RECORD_MAGIC, SECTIONS, SLOT_WORDS, VERSION,
    slots,
};
use crate::map::{Map, in_children, near, settled, thread_id, ticks};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Direction of a block's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet is sent.
    Send = 0,
    /// The packet is received.
    Receive = 1,
}

/// A ring of data blocks in a file, shared with its reader. Threads may share it.
#[derive(Debug)]
pub struct Ring {
    map: Map,
    slots: u64,
    /// Time between two ordered readings of the clock, in 1/1024 of a tick.
    clock: u64,
}

/// The sections of one packet, in the program's memory until [`Ring::exit`].
#[derive(Clone, Debug)]
pub struct Block {
    on: bool,
    /// If not 0, init and exit are timed, and a cost moves by 1/`timed` of itself per measurement.
    timed: u64,
    header: u64,
    start: u64,
    count: usize,
    beyond: u64,
    open: [u64; IDS],
    sections: [(u64, u64); SECTIONS],
}

thread_local! {
    /// Read from the kernel once per thread.
    static THREAD: Cell<u32> = const { Cell::new(0) };
    /// Number of blocks of the thread.
    static BLOCKS: Cell<u32> = const { Cell::new(0) };
    /// `AFTER_DROP` if the thread's last block was dropped.
    static AFTER: Cell<u64> = const { Cell::new(0) };
}

/// The first `FIRST` blocks of a thread are timed, then one in `EVERY`.
const FIRST: u32 = 64;
const EVERY: u32 = 16;
/// Indices of costs.
const ALPHA: usize = 0;
const GAMMA: usize = 3;

/// Opens the ring, or creates one of about this many bytes.
pub(crate) fn open_or_make(path: &Path, bytes: usize) -> io::Result<(Map, File)> {
    match Map::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let slots = slots(bytes);
    if slots == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a ring needs 8 KiB at least"));
    }
    let head = [MAGIC, VERSION | (SLOT_WORDS as u64) << 32, slots];
    Map::make(path, FIRST_SLOT + slots as usize * SLOT_WORDS, &head)?;
    Map::open(path)
}

/// In a forked process, the remaining thread has another ID.
extern "C" fn forget_thread() {
    THREAD.set(0);
}

fn forget_thread_in_children() -> io::Result<()> {
    static DONE: OnceLock<Option<i32>> = OnceLock::new();
    let errno = DONE.get_or_init(|| in_children(forget_thread).err().and_then(|cause| cause.raw_os_error()));
    errno.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
}

/// Checks that it is a complete ring of this version. Returns its number of slots.
pub(crate) fn check(words: &[AtomicU64]) -> io::Result<u64> {
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if words.len() < FIRST_SLOT + SLOT_WORDS || words[AT_MAGIC].load(Ordering::Acquire) != MAGIC {
        return wrong("it is not a ring of probes: name another file");
    }
    if words[AT_VERSION].load(Ordering::Relaxed) != VERSION | (SLOT_WORDS as u64) << 32 {
        return wrong(
            "it is a ring of another version of the probes: remove it, and build the program with this version's",
        );
    }
    let slots = words[AT_SLOTS].load(Ordering::Relaxed);
    let room = ((words.len() - FIRST_SLOT) / SLOT_WORDS) as u64;
    if slots == 0 || slots > room { wrong("it is a ring that was cut short: remove it") } else { Ok(slots) }
}

impl Ring {
    /// Opens the ring in a file, or creates one of about this many bytes, and calibrates the cost of the operations
    /// (about a millisecond). An existing ring keeps its size. Probes do nothing until `netlathe slice attach` enables
    /// them.
    ///
    /// # Errors
    /// The file cannot be opened or created, or is not a ring.
    pub fn configure(path: impl AsRef<Path>, bytes: usize) -> io::Result<Ring> {
        let (map, _) = open_or_make(path.as_ref(), bytes)?;
        let slots = check(map.words())?;
        forget_thread_in_children()?;
        let mut ring = Ring { map, slots, clock: 0 };
        ring.calibrate();
        Ok(ring)
    }

    /// Sets the display name of a section, of up to 55 bytes. Numbers from 32 on have no name.
    pub fn name(&self, id: u8, name: &str) {
        if usize::from(id) >= IDS {
            return;
        }
        let mut bytes = [0_u8; NAME_WORDS * 8];
        let length = name.len().min(bytes.len() - 1);
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let at = AT_NAMES + usize::from(id) * NAME_WORDS;
        for (word, bytes) in self.map.words()[at..].iter().zip(bytes.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Ordering::Relaxed);
        }
    }

    /// Starts the block of a packet. `protocol` is the IP protocol number, 6 for TCP and 17 for UDP.
    #[inline]
    #[must_use]
    pub fn init(&self, protocol: u8, direction: Direction) -> Block {
        let on = self.map.words()[AT_ENABLED].load(Ordering::Relaxed) != 0;
        let header = u64::from(protocol) | (direction as u64) << 8;
        if !on {
            return Block::new(on, header);
        }
        let blocks = BLOCKS.get().wrapping_add(1);
        BLOCKS.set(blocks);
        if blocks > FIRST && !blocks.is_multiple_of(EVERY) {
            return Block::new(on, header);
        }
        let begun = settled();
        let mut block = Block::new(on, header);
        block.timed = if blocks > FIRST { 32 } else { 8 };
        self.learn(ALPHA, settled().saturating_sub(begun), block.timed);
        block
    }

    /// Learns a cost measured in the program's own loop, with its real cache misses. The figure moves by a step towards
    /// each measurement, at first by larger steps, and so tracks the median.
    fn learn(&self, cost: usize, taken: u64, timed: u64) {
        let word = &self.map.words()[AT_COSTS + cost];
        let old = word.load(Ordering::Relaxed);
        let step = old / timed + 1;
        let met = (taken << 10).saturating_sub(self.clock) > old;
        word.store(if met { old + step } else { old.saturating_sub(step) }, Ordering::Relaxed);
    }

    /// Ends a block: writes it to the ring, or counts it as dropped if the ring is full.
    #[inline]
    pub fn exit(&self, block: Block) {
        if !block.on {
            return;
        }
        if block.timed == 0 {
            self.put(&block);
            return;
        }
        let begun = settled();
        if self.put(&block) {
            // Includes the time until its stores are in the cache, because the program's next call would wait for that.
            self.learn(GAMMA, settled().saturating_sub(begun), block.timed);
        }
    }

    /// Writes the block. False if the ring was full.
    #[inline]
    fn put(&self, block: &Block) -> bool {
        let words = self.map.words();
        let mut number = words[AT_WRITTEN].load(Ordering::Relaxed);
        loop {
            if number.wrapping_sub(words[AT_READ].load(Ordering::Acquire)) >= self.slots {
                self.drop_one();
                return false;
            }
            let taken =
                words[AT_WRITTEN].compare_exchange_weak(number, number + 1, Ordering::Relaxed, Ordering::Relaxed);
            match taken {
                Ok(_) => break,
                Err(now) => number = now,
            }
        }
        let slot = |number: u64| &words[FIRST_SLOT + (number % self.slots) as usize * SLOT_WORDS..][..SLOT_WORDS];
        write_slot(slot(number), block, number);
        // The reader accessed the next slot last, so stores to it would miss and fill the CPU's store buffer, which
        // would delay the first sections of the next block: 0.1 µs that would go unnoticed.
        near(&slot(number + 1)[..HEADER_WORDS + 2 * block.count]);
        true
    }

    #[cold]
    fn drop_one(&self) {
        let words = self.map.words();
        words[AT_DROPPED].fetch_add(1, Ordering::Relaxed);
        AFTER.set(AFTER_DROP);
        let looked = words[AT_LOOKED].load(Ordering::Relaxed);
        // A ring on disk may be from an earlier boot, whose counter was ahead.
        if looked != 0 && ticks().abs_diff(looked) > GONE {
            words[AT_ENABLED].store(0, Ordering::Relaxed);
        }
    }

    /// Calibrates the cost of each operation: medians of many tries, in 1/1024 of a tick. Caches are warm, so for init
    /// and exit these are only the starting values of learning.
    fn calibrate(&mut self) {
        const TRIES: usize = 501;
        // Several pairs, because one takes little longer than a reading of the clock.
        const PAIRS: u8 = 8;
        let mut took = [const { Vec::new() }; 6];
        let slot = [const { AtomicU64::new(0) }; SLOT_WORDS];
        for _ in 0..TRIES {
            let begin = ticks();
            let mut block = Block::new(true, 6);
            let begun = ticks();
            for id in 0..PAIRS {
                block.start(id);
                block.stop(id);
            }
            let stopped = ticks();
            write_slot(&slot, std::hint::black_box(&block), 0);
            let written = ticks();
            let end = ticks();
            let pairs = u64::from(PAIRS);
            let inside = block.sections[..block.count].iter().map(|(_, length)| length).sum::<u64>();
            let fine = |ticks: u64| ticks << 10;
            let each = [(begin, begun), (begun, stopped), (stopped, written), (written, end)];
            let each = each.map(|(from, to)| fine(to.saturating_sub(from)));
            let begin = settled();
            let settling = fine(settled().saturating_sub(begin));
            for (took, each) in took.iter_mut().zip(each.into_iter().chain([fine(inside) / pairs, settling])) {
                took.push(each);
            }
        }
        let [alpha, pairs, gamma, clock, inside, settling] = took.map(|mut took| {
            took.sort_unstable();
            took[TRIES / 2]
        });
        self.clock = settling;
        // Of the time between two readings, one reading belongs to the clock.
        let less = |taken: u64| taken.saturating_sub(clock);
        let costs = [less(alpha), less(pairs) / u64::from(PAIRS), inside, less(gamma)];
        for (word, cost) in self.map.words()[AT_COSTS..].iter().zip(costs) {
            word.store(cost, Ordering::Relaxed);
        }
    }
}

#[inline]
fn write_slot(slot: &[AtomicU64], block: &Block, number: u64) {
    let thread = THREAD.get();
    let thread = if thread == 0 {
        THREAD.set(thread_id());
        THREAD.get()
    } else {
        thread
    };
    slot[1].store(block.header | AFTER.replace(0), Ordering::Relaxed);
    slot[2].store(block.start, Ordering::Relaxed);
    let count = (block.count as u64) << 32;
    slot[3].store(u64::from(thread) | count | block.beyond.min(0xffff) << 48, Ordering::Relaxed);
    for (words, (first, length)) in slot[HEADER_WORDS..].chunks_exact(2).zip(&block.sections[..block.count]) {
        words[0].store(*first, Ordering::Relaxed);
        words[1].store(*length, Ordering::Relaxed);
    }
    slot[0].store(number + 1, Ordering::Release);
}

impl Block {
    fn new(on: bool, header: u64) -> Block {
        let start = if on { ticks() } else { 0 };
        Block { on, timed: 0, header, start, count: 0, beyond: 0, open: [0; IDS], sections: [(0, 0); SECTIONS] }
    }

    /// Sets the packet's lengths in bytes: transport header, IP header, whole packet.
    #[inline]
    pub fn lengths(&mut self, transport: u8, ip: u8, length: u16) {
        self.header &= 0xffff_ffff;
        self.header |= u64::from(transport) << 32 | u64::from(ip) << 40 | u64::from(length) << 48;
    }

    /// Starts a section, numbered 0 to 31. Sections may overlap.
    #[inline(always)]
    pub fn start(&mut self, id: u8) {
        if self.on
            && let Some(open) = self.open.get_mut(usize::from(id))
        {
            *open = ticks();
        }
    }

    /// Stops a section. Ignores one that was not started, or has stopped. One with a number above 31, or one that does
    /// not fit, is only counted.
    #[inline(always)]
    pub fn stop(&mut self, id: u8) {
        if self.on {
            let now = ticks();
            let Some(open) = self.open.get_mut(usize::from(id)) else {
                self.beyond += 1;
                return;
            };
            let started = std::mem::take(open);
            if started == 0 {
                return;
            }
            let Some(section) = self.sections.get_mut(self.count) else {
                self.beyond += 1;
                return;
            };
            // If the counters of two CPUs differ, a migrated thread may see time go backwards.
            let after = started.saturating_sub(self.start).min(0xffff_ffff);
            *section = (u64::from(id) | RECORD_MAGIC << 8 | after << 32, now.saturating_sub(started));
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    /// A wrong cost converges to the cost of init and exit on this machine.
    #[test]
    fn learns_costs_from_the_blocks() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("ring");
        let ring = Ring::configure(&path, 1 << 20).expect("it is made");
        let reader = Reader::open(&path).expect("it is there");
        let absurd = 1_u64 << 50;
        for cost in [ALPHA, GAMMA] {
            ring.map.words()[AT_COSTS + cost].store(absurd, Ordering::Relaxed);
        }
        let put = |blocks: u32| {
            for _ in 0..blocks {
                let mut block = ring.init(6, Direction::Send);
                for id in 0..16 {
                    block.start(id);
                    block.stop(id);
                }
                ring.exit(block);
                reader.forget();
            }
        };
        put(10_000);
        assert!(reader.costs().gamma > 1e9, "it was off");
        reader.enable(true);
        put(64);
        let early = reader.costs();
        assert!(early.alpha < 1e10 && early.gamma < 1e10, "of 1e12 ticks, larger steps first: {early:?}");
        put(20_000);
        let costs = reader.costs();
        // No block takes a second of ticks.
        assert!(costs.alpha < 1e6 && costs.gamma < 1e6 && costs.gamma > 0.0, "{costs:?}");
    }
}
