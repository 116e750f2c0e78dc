//! Filler frames: one frame per length, passed to the driver again and again.

use crate::Error;
use dpdk::{Eal, Pool, SharedFrame, Started};
use engine::filler::{long_fillers, next_long_filler};
use packet::FillerKind;
use units::{FrameLen, WireLen};

/// A filler of each standard length, and some longer ones. Several copies of each, if the port may hold one frame more
/// often than its reference count allows.
pub(crate) struct Fillers {
    frames: Vec<SharedFrame>,
    /// Lengths of the long fillers, longest first; their frames follow the others.
    long: Vec<WireLen>,
    copies: usize,
    turn: usize,
}

impl Fillers {
    const LEAST: u32 = WireLen::MIN.bytes();
    const LENGTHS: u32 = WireLen::MAX_STANDARD.bytes() - Self::LEAST + 1;
    /// Limit on the references that a port holds to one frame.
    const UNDER_WAY: usize = 1 << 15;
    /// Frames beyond those needed, because threads cache some.
    const MORE: u32 = 1_024;

    /// Fillers of a kind of up to `most` bytes, for a port that holds up to `slots` frames.
    ///
    /// # Errors
    /// Not enough memory.
    pub(crate) fn new(eal: &Eal, kind: FillerKind, slots: usize, most: FrameLen) -> Result<Self, Error> {
        let copies = Self::copies(slots);
        let long = long_fillers(most);
        let standard: Vec<WireLen> = (Self::LEAST..Self::LEAST + Self::LENGTHS).map(WireLen::new).collect();
        let mut frames = Vec::new();
        for lengths in [&standard, &long] {
            let Some(longest) = lengths.iter().max() else { continue };
            let count = (lengths.len() * copies) as u32 + Self::MORE.min(8 * lengths.len() as u32);
            let pool = Pool::new(eal, "fillers", count, longest.frame().bytes() as u16)?;
            let mut bytes = Vec::new();
            for length in lengths {
                kind.write(&mut bytes, length.frame());
                for _ in 0..copies {
                    let mut frame = pool.alloc().ok_or_else(|| dpdk::Error::Pool {
                        frames: count,
                        data_room: pool.data_room(),
                        reason: "its frames are in use".to_owned(),
                        log: String::new(),
                    })?;
                    frame.copy_from(&bytes)?;
                    frames.push(SharedFrame::from(frame));
                }
            }
        }
        Ok(Fillers { frames, long, copies, turn: 0 })
    }

    /// MiB of memory for the fillers.
    pub(crate) fn memory_mib(slots: usize) -> u32 {
        // With headers, a standard filler takes less than 2 KiB, and a long one less than 10 KiB.
        let copies = Self::copies(slots) as u32;
        let long = long_fillers(FrameLen::MAX).len() as u32;
        (Self::LENGTHS * copies + Self::MORE) / 512 + long * (copies + 8) / 100 + 2
    }

    fn copies(slots: usize) -> usize {
        slots.div_ceil(Self::UNDER_WAY).max(1)
    }

    #[inline]
    pub(crate) fn of(&self, length: WireLen) -> &SharedFrame {
        &self.frames[(length.bytes() - Self::LEAST) as usize * self.copies + self.turn]
    }

    /// A long filler that leaves room for another one in `fill` byte times, and its length.
    pub(crate) fn long(&self, fill: u64) -> Option<(WireLen, &SharedFrame)> {
        let number = next_long_filler(fill, &self.long)?;
        Some((self.long[number], &self.frames[(Self::LENGTHS as usize + number) * self.copies + self.turn]))
    }

    /// The longest filler, in byte times.
    pub(crate) fn longest(&self) -> WireLen {
        self.long.first().copied().unwrap_or(WireLen::MAX_STANDARD)
    }

    /// Uses other copies for the next burst.
    pub(crate) fn turn(&mut self) {
        self.turn = if self.turn + 1 == self.copies { 0 } else { self.turn + 1 };
    }
}

/// Checks that a port takes fillers of up to this length.
///
/// # Errors
/// The port does not.
pub(crate) fn carries(port: &Started, longest: FrameLen) -> Result<(), Error> {
    let most = port.tx.first().map_or(FrameLen::MAX, |tx| FrameLen::of_captured(tx.max_frame() as u32));
    if longest <= most {
        return Ok(());
    }
    let what = format!("fillers of {longest} are longer than the port's maximum of {most}");
    Err(units::ParseError::new(what, format!("write longest={most}, or give the interface a larger MTU")).into())
}
