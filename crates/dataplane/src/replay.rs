use crate::Error;
use crate::intake::{CaptureItem, ReadyFrame};
use dpdk::{BURST, Eal, Pool, SharedFrame};
use packet::{Frame, HeapFrame};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use units::Time;

/// Frames from a source other than a port, each with its ready time since the start of the run.
pub trait FrameSupply: Send + Sync {
    /// Writes the next frame to `frame` and returns its time; `None` at the end.
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time>;

    /// The error that ended it early, if any.
    fn failure(&mut self) -> Option<String>;
}

/// All frames of a supply, if they fit in memory.
#[derive(Clone, Debug, Default)]
pub struct BufferedReplay {
    /// Bytes of the frames, without FCS.
    pub frames: Vec<Vec<u8>>,
    /// Number of repetitions.
    pub times: u64,
}

impl BufferedReplay {
    /// Limit on the number of frames, because each takes a whole buffer.
    pub const MOST: usize = 1 << 15;

    /// Loads the frames into a separate pool. Repeats short captures, so that bursts are long. Returns the frames and
    /// the number to send; `None` if one is longer than `longest`.
    ///
    /// # Errors
    /// Not enough memory.
    pub(crate) fn load(&self, eal: &Eal, longest: usize) -> Result<Option<(Vec<SharedFrame>, u64)>, Error> {
        let (count, length) = (self.frames.len(), self.frames.iter().map(Vec::len).max().unwrap_or(0));
        if count == 0 || count > Self::MOST || length > longest.min(JUMBO) {
            return Ok(None);
        }
        let copies = (4 * BURST).div_ceil(count);
        // More buffers than frames, because threads cache some.
        let pool = Pool::new(eal, "capture", (count * copies) as u32 + 1_024, length as u16)?;
        let frames = self.frames.iter().cycle().take(count * copies);
        let kept = frames.map(|bytes| {
            let mut frame = pool.alloc()?;
            frame.copy_from(bytes).ok()?;
            Some(SharedFrame::from(frame))
        });
        let kept: Option<Vec<SharedFrame>> = kept.collect();
        Ok(kept.map(|kept| (kept, self.times.saturating_mul(count as u64))))
    }
}

/// The longest retained frame, without FCS.
const JUMBO: usize = 9_600;

/// How long the start of a run waits until the first frames are read.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the thread ends within half a second.
pub(crate) fn ends_soon(reader: &JoinHandle<Option<String>>) -> bool {
    let begin = Instant::now();
    while !reader.is_finished() && begin.elapsed() < Duration::from_millis(500) {
        thread::sleep(Duration::from_millis(1));
    }
    reader.is_finished()
}

/// Reads frames ahead on a separate thread, up to the capacity of `ring`, so that no departure waits for a disk. Ends
/// with the supply, or when the ring's consumer is gone. Returns once the ring is full or everything was read; the
/// thread returns the error of the supply, if any.
///
/// # Errors
/// A thread that cannot be started.
pub(crate) fn read(
    eal: &'static Eal,
    mut supply: Box<dyn FrameSupply>,
    pool: Pool,
    mut ring: rtrb::Producer<CaptureItem>,
) -> Result<JoinHandle<Option<String>>, Error> {
    let (notify, full) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
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
                    // The receiver is gone once the run has started.
                    let _ = notify.send(());
                } else if let Some(frame) = pool.alloc() {
                    break frame;
                }
                thread::sleep(Duration::from_micros(20));
            };
            let read = match frame.copy_from(next.bytes()) {
                Ok(()) => CaptureItem::Frame(ReadyFrame { frame, class: 0, at, trace: None }),
                Err(_) => CaptureItem::TooLong(next.length()),
            };
            // There is room, and this thread is the only producer.
            let _ = ring.push(read);
        }
        supply.failure()
    });
    let thread = thread.map_err(|cause| Error::Thread(cause.to_string()))?;
    // An error means that the thread has ended, so everything was read, or that the disk is slow.
    let _ = full.recv_timeout(PATIENCE);
    Ok(thread)
}
