//! Frames of streams that arrive, counted by their stamps.

use dpdk::Received;
use measure::StreamMeter;
use packet::Stamp;

/// Counts the stamped frames of one receive queue, or of a port with one. Each thread of a receiver has its own.
#[derive(Debug)]
pub struct StampedArrivals {
    /// UNIX time in ns: frames that departed before it are of an earlier run.
    began_ns: u64,
    /// Streams from this number on are not the sender's.
    streams: u32,
    /// The longest frame that the port's MTU allows, in bytes without FCS.
    longest: u32,
    /// The figures of each stream.
    pub meter: StreamMeter,
    /// Frames of an earlier run.
    pub earlier: u64,
    /// Frames of streams that are not the sender's.
    pub foreign: u64,
    /// Frames whose checksum was left to missing hardware.
    pub partial_checksums: u64,
    /// Frames longer than the MTU allows.
    pub super_frames: u64,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame of the streams that had not arrived before.
    Fresh,
    /// A copy of one that had.
    Copy,
    /// A stamped frame that is not counted: of an earlier run, of another sender, or for a router to learn from.
    LeftOut,
    /// A frame without a stamp.
    Unstamped,
}

impl StampedArrivals {
    /// Counts frames of streams below the number `streams` that departed at `began_ns` or later.
    #[must_use]
    pub fn new(began_ns: u64, streams: u32, longest: u32) -> Self {
        let meter = StreamMeter::default();
        let (earlier, foreign, partial_checksums, super_frames) = (0, 0, 0, 0);
        StampedArrivals { began_ns, streams, longest, meter, earlier, foreign, partial_checksums, super_frames }
    }

    /// Counts a frame.
    #[inline]
    pub fn take(&mut self, frame: &Received<'_>) -> Arrival {
        let Some(stamp) = Stamp::of(frame.bytes) else { return Arrival::Unstamped };
        if stamp.time_ns < self.began_ns {
            // A learning frame has no time. It was answered, or is too late.
            self.earlier += u64::from(stamp.time_ns != 0);
            return Arrival::LeftOut;
        }
        // Other hosts may send these without end.
        if u32::from(stamp.stream) >= self.streams {
            self.foreign += 1;
            return Arrival::LeftOut;
        }
        self.partial_checksums += u64::from(frame.partial_checksum);
        self.super_frames += u64::from(frame.original_len > self.longest);
        let fresh = self.meter.record(stamp.stream, stamp.sequence, stamp.time_ns, frame.time_ns);
        if fresh { Arrival::Fresh } else { Arrival::Copy }
    }

    /// Adds what another queue of the same port received. Returns the number of streams that came on both.
    pub fn merge(&mut self, other: StampedArrivals) -> u64 {
        self.earlier += other.earlier;
        self.foreign += other.foreign;
        self.partial_checksums += other.partial_checksums;
        self.super_frames += other.super_frames;
        self.meter.merge(other.meter)
    }
}
