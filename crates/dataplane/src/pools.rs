//! How many buffers a worker has, and how much memory that takes.

use crate::config::{Config, Feed, Pacing};
use crate::device::Device;
use crate::filler;
use crate::fillers::Fillers;

/// Buffers of a pool behind a schedule, where a backlog may wait: a second of 50 000 frames a second.
const DEEP_POOL: u32 = 1 << 16;
/// Buffers of a pool at most, however much stages could hold: 100 ms of full frames at 10 Gbit/s, both ways.
const MOST_FRAMES: u32 = 1 << 18;
/// Buffers of a pool behind no schedule.
pub(crate) const SHALLOW_POOL: u32 = 1 << 14;
/// Buffers of a pool of jumbo frames.
const JUMBO_POOL: u32 = 1 << 13;
/// Buffers of a pool of frames longer than any Ethernet has, as `lo` carries them.
const HUGE_POOL: u32 = 1 << 11;
/// Buffers that drivers keep in their rings: two of AF_XDP have 2 048 to fill and 2 048 to send each,
/// and more on the way. What would leave them less is dropped by us, and counted.
const XDP_RESERVE: u32 = 3 << 12;
/// The same for drivers that copy frames.
const COPY_RESERVE: u32 = 1 << 11;
/// Up to this length a frame fits the buffers of AF_XDP.
const SMALL_BUFFER: u16 = 2_048;
/// Up to this length a jumbo frame's buffer is one.
const JUMBO_BUFFER: u16 = 20_480;
/// Frames of a pool beyond those in the queue: in our hands, and what threads keep in theirs.
const MORE_FRAMES: u32 = 1_024;

/// The pool of a worker.
pub(crate) struct Size {
    /// Its buffers.
    pub(crate) frames: u32,
    /// Those of them that frames of the pipeline may not have.
    pub(crate) reserve: u32,
    /// Bytes of each.
    pub(crate) data_room: u16,
}

impl Size {
    /// Of a worker whose ports carry frames of this MTU.
    pub(crate) fn new(config: &Config, mtu: u32) -> Size {
        let data_room = Device::data_room(mtu);
        let (frames, reserve) = if data_room > JUMBO_BUFFER {
            (HUGE_POOL, HUGE_POOL / 4)
        } else if data_room > SMALL_BUFFER {
            (JUMBO_POOL, COPY_RESERVE)
        } else if matches!(config.feed, Feed::Stream(..)) {
            // No backlog waits in it, and a pool that fits the caches is several times as fast.
            (config.output.slots().map_or(SHALLOW_POOL, |slots| slots + MORE_FRAMES), 0)
        } else {
            (small(config), XDP_RESERVE)
        };
        Size { frames, reserve, data_room }
    }
}

/// Frames of a pool of small buffers: what may wait for the schedule or in the stages.
fn small(config: &Config) -> u32 {
    let least = if config.pacing == Pacing::AsReady { SHALLOW_POOL } else { DEEP_POOL };
    let wanted = config.room.saturating_add(u64::from(XDP_RESERVE)).min(MOST_FRAMES.into()) as u32;
    if config.room == 0 { least } else { least.max(wanted.next_power_of_two()) }
}

/// Frames that the output may hold at a time, as far as that is known before it is opened.
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
