use crate::Error;
use crate::intake::{Read, Ready};
use dpdk::{BURST, Eal, Kept, Pool};
use packet::{Frame, HeapFrame};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use units::Time;

/// Frames that come from elsewhere than a port, each with the time at which it is ready, counted from
/// the start of the run.
pub trait Supply: Send + Sync {
    /// Makes `frame` the next one and gives its time; `None` at the end.
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time>;

    /// What ended it before its end, if anything did.
    fn failure(&mut self) -> Option<String>;
}

/// All frames of a supply, where they fit in memory.
#[derive(Clone, Debug, Default)]
pub struct Whole {
    /// Their bytes, without FCS.
    pub frames: Vec<Vec<u8>>,
    /// How often they are sent.
    pub times: u64,
}

impl Whole {
    /// Frames at most: each takes a buffer, however short it is.
    pub const MOST: usize = 1 << 15;

    /// Puts them in buffers of a pool of their own, in which short captures stand several times, since
    /// bursts are to be long. Gives them and how many frames are to be sent; `None` if one is longer than
    /// `longest`.
    ///
    /// # Errors
    /// There is no memory for them.
    pub(crate) fn load(&self, eal: &Eal, longest: usize) -> Result<Option<(Vec<Kept>, u64)>, Error> {
        let (count, length) = (self.frames.len(), self.frames.iter().map(Vec::len).max().unwrap_or(0));
        if count == 0 || count > Self::MOST || length > longest.min(JUMBO) {
            return Ok(None);
        }
        let copies = (4 * BURST).div_ceil(count);
        // More than there are frames: threads keep some at hand.
        let pool = Pool::new(eal, "capture", (count * copies) as u32 + 1_024, length as u16)?;
        let frames = self.frames.iter().cycle().take(count * copies);
        let kept = frames.map(|bytes| {
            let mut frame = pool.alloc()?;
            frame.copy_from(bytes).ok()?;
            Some(Kept::from(frame))
        });
        let kept: Option<Vec<Kept>> = kept.collect();
        Ok(kept.map(|kept| (kept, self.times.saturating_mul(count as u64))))
    }
}

/// The longest frame that is kept, without FCS.
const JUMBO: usize = 9_600;

/// How long the start of a run waits for the first frames to be read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads frames ahead on a thread of its own, so that no departure waits for a disk: as many as `ring`
/// holds. Ends with the supply, or when nobody takes frames any more. Returns once the ring is full or
/// all was read; the thread gives what failed.
pub(crate) fn read(
    eal: &'static Eal,
    mut supply: Box<dyn Supply>,
    pool: Pool,
    mut ring: rtrb::Producer<Read>,
) -> JoinHandle<Option<String>> {
    let (told, full) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let _registered = match eal.register_thread() {
            Ok(registered) => registered,
            Err(error) => return Some(error.to_string()),
        };
        let mut next = HeapFrame::default();
        while let Some(at) = supply.next(&mut next) {
            let mut frame = loop {
                if ring.is_abandoned() {
                    return None;
                }
                if ring.is_full() {
                    // Nobody listens any more once the run has begun.
                    let _ = told.send(());
                } else if let Some(frame) = pool.alloc() {
                    break frame;
                }
                thread::sleep(Duration::from_micros(20));
            };
            let read = match frame.copy_from(next.bytes()) {
                Ok(()) => Read::Frame(Ready { frame, class: 0, at, way: None }),
                Err(_) => Read::TooLong(next.length()),
            };
            // There is room, and nobody else adds.
            let _ = ring.push(read);
        }
        supply.failure()
    });
    // An error means that the thread has ended, and so all was read, or that the disk is slow.
    let _ = full.recv_timeout(PATIENCE);
    thread
}
