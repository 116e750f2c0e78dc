use crate::intake::{Read, Ready};
use dpdk::{Eal, Pool};
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
