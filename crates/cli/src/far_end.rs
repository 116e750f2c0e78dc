//! The receiver of a generator: counts what comes back by its stamps, while and after frames are sent.

use crate::output::Failure;
use dpdk::{PacketRing, RingConfig};
use measure::{Flow, StreamMeter};
use packet::Stamp;
use scenario::PortSpec;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// An interface on which frames are to arrive.
pub(crate) struct FarEnd {
    ring: PacketRing,
}

/// What arrived.
pub(crate) struct Arrived {
    pub(crate) streams: StreamMeter,
    pub(crate) flow: Flow,
}

/// With nothing more arriving for so long after the last frame was sent, nothing is on its way.
const QUIET: Duration = Duration::from_millis(300);
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(20);

impl FarEnd {
    /// Opens the receiver. What arrives from now on is counted.
    pub(crate) fn open(port: &PortSpec) -> Result<Self, Failure> {
        let PortSpec::Interface { name, .. } = port else {
            return Err(Failure::new(format!(
                "--in: nothing can be received from {port} while sending: name an interface"
            )));
        };
        // Stamps of 64-byte frames at some million frames a second for 100 ms: what a hiccup lasts.
        let ring =
            PacketRing::open(name, &RingConfig { blocks: 512, ..RingConfig::default() }).map_err(Failure::new)?;
        Ok(FarEnd { ring })
    }

    /// Counts on a thread of its own while `send` runs, and until nothing more arrives.
    pub(crate) fn during<T>(mut self, send: impl FnOnce() -> T) -> (T, Result<Arrived, Failure>) {
        let sent = AtomicBool::new(false);
        thread::scope(|scope| {
            let counting = scope.spawn(|| self.count(&sent));
            let result = send();
            sent.store(true, Ordering::Release);
            let arrived = counting.join().unwrap_or_else(|_| Err(Failure::new("the receiver's thread failed")));
            (result, arrived)
        })
    }

    fn count(&mut self, sent: &AtomicBool) -> Result<Arrived, Failure> {
        let longest = self.ring.mtu().map_err(Failure::new)? + 14;
        let mut arrived = Arrived { streams: StreamMeter::default(), flow: Flow::default() };
        let mut last = Instant::now();
        loop {
            let over = sent.load(Ordering::Acquire);
            match self.ring.next(LOOK).map_err(Failure::new)? {
                Some(batch) => {
                    for frame in &batch {
                        let Some(stamp) = Stamp::of(frame.bytes) else { continue };
                        arrived.streams.record(stamp.stream, stamp.sequence, stamp.time_ns, frame.time_ns);
                        arrived.flow.partial_checksums += u64::from(frame.partial_checksum);
                        arrived.flow.super_frames += u64::from(frame.original_len > longest);
                        last = Instant::now();
                    }
                }
                None if over && last.elapsed() > QUIET => break,
                None => {}
            }
            if !over {
                // The quiet begins when the last frame was sent.
                last = Instant::now();
            }
        }
        arrived.flow.kernel_drops = self.ring.counts().map_err(Failure::new)?.dropped;
        Ok(arrived)
    }
}
