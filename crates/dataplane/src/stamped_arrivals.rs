//! Counts arriving frames of streams by their stamps.

use dpdk::Received;
use measure::StreamMeter;
use packet::Stamp;
use std::ops::Range;

/// Counts the stamped frames of one receive queue, or of a port with one. Each thread of a receiver has its own.
#[derive(Debug)]
pub struct StampedArrivals {
    /// UNIX time in ns. Frames that departed earlier belong to an earlier run.
    began_ns: u64,
    /// Numbers of the sender's streams. Streams with other numbers come from others.
    streams: Range<u32>,
    /// The longest frame that the port's MTU allows, in bytes without FCS.
    longest: u32,
    /// The figures of each stream.
    pub meter: StreamMeter,
    /// Frames of an earlier run.
    pub earlier: u64,
    /// Frames of streams from other senders.
    pub foreign: u64,
    /// Frames with an incomplete checksum, which the sender left to hardware.
    pub partial_checksums: u64,
    /// Frames longer than the MTU allows.
    pub super_frames: u64,
}

/// Kind of an arriving frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame of the streams that arrives for the first time.
    Fresh,
    /// A duplicate of a frame that has arrived before.
    Copy,
    /// A stamped frame that is not counted: from an earlier run or another sender, or a learning frame.
    LeftOut,
    /// A frame without a stamp.
    Unstamped,
}

impl StampedArrivals {
    /// Counts frames of the streams numbered `streams` that departed at `began_ns` or later.
    #[must_use]
    pub fn new(began_ns: u64, streams: Range<u32>, longest: u32) -> Self {
        let meter = StreamMeter::default();
        let (earlier, foreign, partial_checksums, super_frames) = (0, 0, 0, 0);
        StampedArrivals { began_ns, streams, longest, meter, earlier, foreign, partial_checksums, super_frames }
    }

    /// Counts a frame.
    #[inline]
    pub fn take(&mut self, frame: &Received<'_>) -> Arrival {
        let Some(stamp) = Stamp::of(frame.bytes) else { return Arrival::Unstamped };
        if stamp.time_ns < self.began_ns {
            // Learning frames have no time and do not count as frames of an earlier run.
            self.earlier += u64::from(stamp.time_ns != 0);
            return Arrival::LeftOut;
        }
        // Leave these out of the meter: other hosts may send any number of streams.
        if !self.streams.contains(&u32::from(stamp.stream)) {
            self.foreign += 1;
            return Arrival::LeftOut;
        }
        self.partial_checksums += u64::from(frame.partial_checksum);
        self.super_frames += u64::from(frame.original_len > self.longest);
        let fresh = self.meter.record(stamp.stream, stamp.sequence, stamp.time_ns, frame.time_ns);
        if fresh { Arrival::Fresh } else { Arrival::Copy }
    }

    /// Adds the counts of another queue of the same port. Returns the number of streams that arrived on both queues.
    pub fn merge(&mut self, other: StampedArrivals) -> u64 {
        self.earlier += other.earlier;
        self.foreign += other.foreign;
        self.partial_checksums += other.partial_checksums;
        self.super_frames += other.super_frames;
        self.meter.merge(other.meter)
    }
}
