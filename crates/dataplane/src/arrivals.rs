//! Frames that arrive on any live port, each with the time of its arrival, for programs that only count them.

use crate::Error;
use crate::device::{Device, Opened, ReceiveMode};
use crate::pools::SHALLOW_POOL;
use dpdk::{Burst, Eal, LaunchTime, NicLink, PacketRing, Pool, Received, RingConfig, TscClock};
use packet::{Frame, MacAddr};
use std::thread;
use std::time::{Duration, Instant};

/// How long a receiver polls without a pause after the last arrival. Traffic under way is stamped as it arrives.
const EAGER: Duration = Duration::from_millis(2);
/// The pause between two polls of a quiet port. The kernel adds about 0.05 ms.
const PAUSE: Duration = Duration::from_micros(20);

/// A port that receives.
pub struct ArrivalPort(Source);

enum Source {
    /// A Linux interface, by the kernel's ring and stamps.
    Ring(PacketRing),
    /// A port of DPDK, polled.
    Polled(Box<Polled>),
}

struct Polled {
    opened: Opened,
    pool: Pool,
    clock: TscClock,
    frames: Burst,
    answer: Burst,
    last: Instant,
    polled: Instant,
    longest_pause: Duration,
}

impl ArrivalPort {
    /// Opens a Linux interface.
    ///
    /// # Errors
    /// An interface that cannot be opened, with the remedy.
    pub fn of_interface(name: &str, config: &RingConfig) -> Result<ArrivalPort, Error> {
        Ok(ArrivalPort(Source::Ring(PacketRing::open(name, config)?)))
    }

    /// Opens a port of DPDK.
    ///
    /// # Errors
    /// A port that cannot be opened, with the remedy.
    pub fn of_device(eal: &'static Eal, device: &Device) -> Result<ArrivalPort, Error> {
        let pool = Pool::new(eal, "arrivals", SHALLOW_POOL - 1, Device::data_room(device.mtu()?))?;
        let opened = device.open(eal, &pool, LaunchTime::Never, 1, ReceiveMode::All, None)?;
        let (clock, now) = (TscClock::new(eal), Instant::now());
        let polled = Polled {
            opened,
            pool,
            clock,
            frames: Burst::new(),
            answer: Burst::new(),
            last: now,
            polled: now,
            longest_pause: Duration::ZERO,
        };
        Ok(ArrivalPort(Source::Polled(Box::new(polled))))
    }

    /// MiB of memory that EAL needs for a polled port.
    #[must_use]
    pub fn memory_mib() -> u32 {
        SHALLOW_POOL / 1024 * 3 + 32
    }

    /// Waits up to `timeout` for frames, and passes those that arrived to `take`, in order.
    ///
    /// # Errors
    /// A socket that fails.
    pub fn next(&mut self, timeout: Duration, mut take: impl FnMut(&Received<'_>)) -> Result<(), Error> {
        match &mut self.0 {
            Source::Ring(ring) => {
                if let Some(batch) = ring.next(timeout)? {
                    batch.iter().for_each(|frame| take(&frame));
                }
            }
            Source::Polled(polled) => polled.next(timeout, take),
        }
        Ok(())
    }

    /// Sends a frame. False if the port does not take it.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        match &mut self.0 {
            Source::Ring(ring) => ring.send(bytes),
            Source::Polled(polled) => polled.send(bytes),
        }
    }

    /// The port's MAC address.
    ///
    /// # Errors
    /// An interface that has disappeared.
    pub fn mac(&self) -> Result<MacAddr, Error> {
        match &self.0 {
            Source::Ring(ring) => Ok(ring.mac()?),
            Source::Polled(polled) => Ok(MacAddr(polled.opened.started.port.info()?.mac)),
        }
    }

    /// The longest frame, in bytes without FCS and without VLAN tags.
    ///
    /// # Errors
    /// An interface that has disappeared.
    pub fn longest(&self) -> Result<u32, Error> {
        match &self.0 {
            Source::Ring(ring) => Ok(ring.mtu()? + 14),
            Source::Polled(polled) => Ok(polled.opened.started.port.info()?.mtu + 14),
        }
    }

    /// Frames that arrived and were lost before they were read: the kernel's ring was full, or the NIC's queue, or no
    /// buffer was free.
    ///
    /// # Errors
    /// Counters that cannot be read.
    pub fn lost(&mut self) -> Result<u64, Error> {
        match &mut self.0 {
            Source::Ring(ring) => Ok(ring.counts()?.dropped),
            Source::Polled(polled) => {
                let stats = polled.opened.started.port.stats()?;
                Ok(stats.rx_missed + stats.rx_no_buffer + stats.rx_errors)
            }
        }
    }

    /// The longest time between two polls after which frames were found, so the most by which a stamp is late. `None` if
    /// the kernel stamps frames.
    #[must_use]
    pub fn longest_pause(&self) -> Option<Duration> {
        match &self.0 {
            Source::Ring(_) => None,
            Source::Polled(polled) => Some(polled.longest_pause),
        }
    }

    /// The link, if the port is a NIC on PCI.
    #[must_use]
    pub fn nic_link(&self) -> Option<NicLink> {
        match &self.0 {
            Source::Ring(_) => None,
            Source::Polled(polled) => polled.opened.started.port.nic_link(),
        }
    }
}

impl Polled {
    fn next(&mut self, timeout: Duration, mut take: impl FnMut(&Received<'_>)) {
        let start = Instant::now();
        loop {
            // Before the poll: a frame was there by the time that the poll ended, but may have come since the one before.
            let now = Instant::now();
            for queue in &mut self.opened.started.rx {
                queue.poll(&mut self.frames);
            }
            if !self.frames.is_empty() {
                let time_ns = self.clock.wall_at_zero() + self.clock.now().as_ps() / units::PS_PER_NS;
                self.longest_pause = self.longest_pause.max(now - self.polled);
                (self.last, self.polled) = (now, now);
                for frame in self.frames.drain() {
                    let bytes = frame.bytes();
                    let original_len = bytes.len() as u32;
                    take(&Received { time_ns, bytes, original_len, partial_checksum: false, vlan: None });
                }
                return;
            }
            self.polled = now;
            if now - start >= timeout {
                return;
            }
            if now - self.last > EAGER {
                thread::sleep(PAUSE);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(mut frame) = self.pool.alloc() else { return false };
        if frame.copy_from(bytes).is_err() || self.answer.push(frame).is_err() {
            return false;
        }
        let taken = self.opened.started.tx.first_mut().is_some_and(|queue| queue.send(&mut self.answer) == 1);
        self.answer.clear();
        taken
    }
}
