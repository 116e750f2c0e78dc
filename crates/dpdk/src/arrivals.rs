//! What the kernel says of frames that `net_af_packet` receives: when they came, and what their outer tag was. It writes
//! that before each frame in the ring of a packet socket, and DPDK's driver, as of 22.11, leaves it there: it puts each tag
//! back that the kernel took out, but as one of 802.1Q. So the ring is mapped once more, to be read only, and looked into
//! right before the driver is.

use crate::clock::kernel_ns;
use crate::losses::Sockets;
use crate::packet_ring::Map;
use crate::{BURST, Mbuf};
use packet::Frame;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, Ordering};

/// The stamps and tags of a receive queue's frames.
#[derive(Debug)]
pub(crate) struct Arrivals {
    ring: Map,
    /// Bytes of a slot, how many slots there are, and the one that the driver takes next.
    slot: usize,
    slots: usize,
    next: usize,
    /// What lies in the slots from there on.
    seen: [Seen; BURST],
    count: usize,
    /// Looks that found nothing since the driver was asked.
    empty: u32,
    /// What the slots say is what the driver took from them.
    in_step: bool,
    /// Frames are told how long they waited.
    tells: bool,
    clocks: Clocks,
}

/// What a slot says of the frame in it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// In ns since the UNIX epoch.
    stamp: u64,
    /// Without the tag that the kernel took out.
    length: u32,
    /// That tag's EtherType, if it is another than 8100.
    tag: Option<u16>,
}

const VLAN: u16 = 0x8100;

/// So many looks that find nothing, and the driver is asked nevertheless: nothing is to hang on what we make of its ring.
const EMPTY: u32 = 1_024;

impl Arrivals {
    /// Of a queue of the port with these sockets, which was made by these arguments. `None` where they are not those of
    /// [`Vdev::af_packet`](crate::Vdev::af_packet), or the kernel refuses: frames then came when they are seen,
    /// and have the tags that the driver gives them.
    pub(crate) fn of(sockets: &Sockets, arguments: &str, queue: u16) -> Option<Arrivals> {
        let argument = |name: &str| {
            let value = arguments.split(',').find_map(|a| a.strip_prefix(name)?.strip_prefix('='))?;
            value.parse().ok()
        };
        let (slot, slots): (usize, usize) = (argument("framesz")?, argument("framecnt")?);
        let queues = argument("qpairs").unwrap_or(1);
        let socket = *sockets.packet().get(usize::from(queue)).filter(|_| sockets.packet().len() == queues)?;
        // The ring of what is sent lies behind that of what is received, and both have one size.
        let ring = Map::of_rings(socket, 2 * slot * slots, libc::PROT_READ).ok()?;
        let clocks = Clocks::new(Reading::of_kernel());
        let seen = [Seen::default(); BURST];
        Some(Arrivals { ring, slot, slots, next: 0, seen, count: 0, empty: 0, in_step: true, tells: false, clocks })
    }

    /// From now on frames are told how long they waited.
    pub(crate) fn tell_waits(&mut self) {
        self.tells = true;
    }

    /// Notes what is said of up to `most` frames that the driver can take now: once it has, the kernel may write over them.
    /// Gives how many the driver is to be asked for. It is no more than that, since frames that come after this look have
    /// no stamp and no tag, and long after it they come where this thread is stopped in between.
    #[inline]
    pub(crate) fn look(&mut self, most: usize) -> usize {
        self.count = 0;
        while self.count < most.min(BURST) {
            let slot = self.next + self.count;
            let slot = if slot < self.slots { slot } else { slot - self.slots };
            let Some(seen) = self.frame_in(slot) else { break };
            self.seen[self.count] = seen;
            self.count += 1;
        }
        if self.count > 0 {
            self.empty = 0;
            return self.count;
        }
        self.empty += 1;
        if self.empty < EMPTY {
            return 0;
        }
        self.empty = 0;
        most
    }

    /// What a slot says of the frame in it, if there is one.
    #[inline]
    fn frame_in(&self, slot: usize) -> Option<Seen> {
        let header = self.ring.byte(slot * self.slot);
        let number = |offset: usize| {
            // SAFETY: a slot is longer than its header, lies in the mapping, and its numbers are aligned.
            let number = unsafe { header.add(offset) };
            // SAFETY: as above; mapped as long as this lives, and the kernel and the driver may write it at any time.
            unsafe { AtomicU32::from_ptr(number.cast().as_ptr()) }
        };
        let status = number(offset_of!(libc::tpacket2_hdr, tp_status)).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let read = |offset| number(offset).load(Ordering::Relaxed);
        let seconds = read(offset_of!(libc::tpacket2_hdr, tp_sec));
        let ns = read(offset_of!(libc::tpacket2_hdr, tp_nsec));
        let length = read(offset_of!(libc::tpacket2_hdr, tp_snaplen));
        // The lower half, in the kernel's order of bytes, is the tag's identifier.
        let tag = (status & libc::TP_STATUS_VLAN_TPID_VALID != 0).then(|| {
            let [.., a, b] = read(offset_of!(libc::tpacket2_hdr, tp_vlan_tci)).to_ne_bytes();
            u16::from_ne_bytes([a, b])
        });
        let stamp = u64::from(seconds) * 1_000_000_000 + u64::from(ns);
        Some(Seen { stamp, length, tag: tag.filter(|tag| *tag != VLAN) })
    }

    /// Gives the frames that the driver took since, in order, the tags that they came with, and tells them how long they
    /// have been there, if that was asked. Those that the look did not find have not waited.
    #[inline]
    pub(crate) fn tell(&mut self, frames: &mut [Mbuf]) {
        self.next = (self.next + frames.len()) % self.slots;
        if self.tells && self.count > 0 {
            self.clocks.read(Reading::of_kernel);
        }
        for (i, frame) in frames.iter_mut().enumerate() {
            let mut waited = 0;
            if let Some(seen) = self.seen[..self.count].get(i) {
                let more = frame.len().wrapping_sub(seen.length as usize);
                // The driver puts a tag back that the kernel took out. Who is out of step with it has nothing to say.
                self.in_step &= more == 0 || more == 4;
                if self.in_step {
                    if let Some(tag) = seen.tag.filter(|_| more == 4) {
                        set_tag(frame.bytes_mut(), tag);
                    }
                    waited = if self.tells { self.clocks.waited(seen.stamp) } else { 0 };
                }
            }
            frame.set_waited(waited);
        }
    }
}

/// Gives the driver's tag its own EtherType back.
fn set_tag(frame: &mut [u8], tag: u16) {
    if let Some(written) = frame.get_mut(12..14)
        && written == VLAN.to_be_bytes()
    {
        written.copy_from_slice(&tag.to_be_bytes());
    }
}

/// Both clocks of the kernel, in ns: the one of the stamps, which may be set, and one that never is.
#[derive(Clone, Copy, Debug)]
struct Reading {
    wall: u64,
    steady: u64,
}

impl Reading {
    #[inline]
    fn of_kernel() -> Reading {
        Reading { wall: kernel_ns(libc::CLOCK_REALTIME), steady: kernel_ns(libc::CLOCK_MONOTONIC) }
    }

    /// By how much they differ. Slewing moves both alike.
    fn apart(self) -> u64 {
        self.wall.wrapping_sub(self.steady)
    }
}

/// From stamps to waits, whatever becomes of the clock of the stamps.
#[derive(Debug)]
struct Clocks {
    now: Reading,
    /// By how much the clocks differed when the clock of the stamps was set last.
    apart: u64,
    /// Stamps before this instant of the steady clock may be of the time before it was set.
    doubted_until: u64,
    /// The last frame's stamp.
    last: u64,
}

/// A stamp that is older counts for nothing: it is wrong, or its frame lay there before anybody looked.
const OLDEST: u64 = 1_000_000_000;

/// A clock that is off by more was set, unless this thread was stopped between the two readings.
const STEP: u64 = 1_000_000;

impl Clocks {
    fn new(now: Reading) -> Clocks {
        Clocks { now, apart: now.apart(), doubted_until: 0, last: 0 }
    }

    #[inline]
    fn read(&mut self, read: impl Fn() -> Reading) {
        let is_set = |now: Reading| now.apart().wrapping_sub(self.apart).cast_signed().unsigned_abs() > STEP;
        self.now = read();
        for _ in 0..3 {
            if !is_set(self.now) {
                return;
            }
            self.now = read();
        }
        (self.apart, self.last) = (self.now.apart(), 0);
        self.doubted_until = self.now.steady + OLDEST;
    }

    /// Nanoseconds since the stamp of a frame, which did not come before the frame ahead of it.
    #[inline]
    fn waited(&mut self, stamp: u64) -> u32 {
        if self.now.steady < self.doubted_until {
            return 0;
        }
        let stamp = stamp.max(self.last);
        match self.now.wall.checked_sub(stamp) {
            Some(waited) if waited <= OLDEST => {
                self.last = stamp;
                waited as u32 // a second fits
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const S: u64 = 1_000 * MS;
    /// The wall clock at first, when the steady one shows nothing.
    const WALL: u64 = 1_790_000_000 * S;

    fn at(steady: u64, set_by: i64) -> Reading {
        Reading { wall: (WALL + steady).wrapping_add_signed(set_by), steady }
    }

    /// Reads the clocks, and gives the wait of a frame that came at `came`, by the clock as it was set then.
    fn waited(clocks: &mut Clocks, now: Reading, came: Reading) -> u64 {
        clocks.read(|| now);
        clocks.waited(came.wall).into()
    }

    #[test]
    fn waits_are_from_the_stamp() {
        let mut clocks = Clocks::new(at(0, 0));
        assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(3 * MS, 0)), 17 * MS);
        assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(2 * MS, 0)), 17 * MS, "not before the frame ahead of it");
        assert_eq!(waited(&mut clocks, at(21 * MS, 0), at(22 * MS, 0)), 0, "never later than now");
        assert_eq!(waited(&mut clocks, at(23 * MS, 0), at(22 * MS, 0)), MS, "that stamp bounds no other");
        assert_eq!(waited(&mut clocks, at(3 * S, 0), at(2 * S, 0)), S);
        assert_eq!(waited(&mut clocks, at(4 * S, 0), at(3 * S - 1, 0)), 0, "too old");
    }

    #[test]
    fn a_clock_that_is_set_says_nothing_for_a_while() {
        for by in [-3_600, -1, 1, 3_600].map(|s: i64| s * S as i64 / 10) {
            let mut clocks = Clocks::new(at(0, 0));
            assert_eq!(waited(&mut clocks, at(20 * MS, 0), at(3 * MS, 0)), 17 * MS);
            assert_eq!(waited(&mut clocks, at(30 * MS, by), at(25 * MS, 0)), 0, "it was set by {by} ns meanwhile");
            assert_eq!(waited(&mut clocks, at(40 * MS, by), at(26 * MS, 0)), 0, "more of that time was there");
            assert_eq!(waited(&mut clocks, at(S, by), at(S - MS, by)), 0);
            assert_eq!(waited(&mut clocks, at(2 * S, by), at(2 * S - MS, by)), MS, "known anew");
        }
    }

    #[test]
    fn who_is_stopped_between_the_readings_reads_again() {
        let mut clocks = Clocks::new(at(0, 0));
        let readings = std::cell::Cell::new(0);
        clocks.read(|| {
            readings.set(readings.get() + 1);
            let stopped = if readings.get() == 1 { 5 * MS as i64 } else { 0 };
            at(20 * MS, -stopped)
        });
        assert_eq!((readings.get(), clocks.waited(at(3 * MS, 0).wall)), (2, 17 * MS as u32));
    }
}
