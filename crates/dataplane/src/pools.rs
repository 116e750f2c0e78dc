//! Number of buffers per worker, and their memory.

use crate::config::{Config, Feed, Pacing};
use crate::device::Device;
use crate::filler;
use crate::fillers::Fillers;

/// Buffers of a pool before a schedule, where a backlog may wait: one second of 50 000 frames/s.
const DEEP_POOL: u32 = 1 << 16;
/// Limit on buffers per pool, for any stages: 100 ms of full-size frames at 10 Gbit/s in both directions.
const MOST_FRAMES: u32 = 1 << 18;
/// Buffers of a pool without a schedule.
pub(crate) const SHALLOW_POOL: u32 = 1 << 14;
/// Buffers of a pool of jumbo frames.
const JUMBO_POOL: u32 = 1 << 13;
/// Buffers of a pool of frames longer than any Ethernet frame, as on `lo`.
const HUGE_POOL: u32 = 1 << 11;
/// Buffers that drivers keep in their rings: two AF_XDP ports each have 2 048 to fill and 2 048 to send, and more in
/// transit. A frame that would reduce this reserve is dropped and counted.
const XDP_RESERVE: u32 = 3 << 12;
/// The additional reserve for each further port that only receives.
const XDP_PORT: u32 = 1 << 12;
/// The reserve for drivers that copy frames.
const COPY_RESERVE: u32 = 1 << 11;
/// Frames of up to this length fit AF_XDP's buffers.
pub(crate) const SMALL_BUFFER: u16 = 2_048;
/// Largest buffer of a jumbo frame.
const JUMBO_BUFFER: u16 = 20_480;
/// Frames of a pool beyond those in the queue: in progress, or cached by threads.
const MORE_FRAMES: u32 = 1_024;

/// The pool size of a worker.
pub(crate) struct Size {
    /// Number of buffers.
    pub(crate) frames: u32,
    /// Buffers that the pipeline's frames may not use.
    pub(crate) reserve: u32,
    /// Bytes per buffer.
    pub(crate) data_room: u16,
}

impl Size {
    /// The size for a worker whose ports carry frames of this MTU.
    pub(crate) fn new(config: &Config, mtu: u32) -> Size {
        let data_room = Device::data_room(mtu);
        let (frames, reserve) = if data_room > JUMBO_BUFFER {
            (HUGE_POOL, HUGE_POOL / 4)
        } else if data_room > SMALL_BUFFER {
            (JUMBO_POOL, COPY_RESERVE)
        } else if matches!(config.feed, Feed::Stream(..)) {
            // No backlog waits in this pool, and a pool that fits the caches is several times as fast.
            (config.output.slots().map_or(SHALLOW_POOL, |slots| slots + MORE_FRAMES), 0)
        } else {
            (small(config), XDP_RESERVE + more_rings(config))
        };
        Size { frames, reserve, data_room }
    }
}

/// Number of small buffers, for frames that wait for the schedule or in the stages.
fn small(config: &Config) -> u32 {
    let least = if config.pacing == Pacing::AsReady { SHALLOW_POOL } else { DEEP_POOL };
    let wanted = config.room.saturating_add(u64::from(XDP_RESERVE)).min(MOST_FRAMES.into()) as u32;
    let frames = if config.room == 0 { least } else { least.max(wanted.next_power_of_two()) };
    (frames + more_rings(config)).next_power_of_two()
}

/// Buffers in the rings of further inputs.
fn more_rings(config: &Config) -> u32 {
    config.more_inputs.len() as u32 * XDP_PORT
}

/// Capacity of the output in frames, if we set it. Otherwise it is known only after opening, and this returns
/// [`filler::NIC_SLOTS`].
pub(crate) fn slots(output: &Device) -> usize {
    output.slots().unwrap_or(filler::NIC_SLOTS) as usize
}

impl Config {
    /// MiB of memory that EAL needs for a worker of this configuration.
    #[must_use]
    pub fn memory_mib(&self) -> u32 {
        // A small buffer with its headers takes less than 3 KiB; the other pools are smaller.
        let fillers = match self.pacing {
            Pacing::Filler { .. } => Fillers::memory_mib(slots(&self.output)),
            _ => 0,
        };
        let slots = self.output.slots();
        let frames = slots.map_or(0, |slots| slots + MORE_FRAMES).max(DEEP_POOL).max(small(self));
        frames / 1024 * 3 + fillers + 96
    }
}
