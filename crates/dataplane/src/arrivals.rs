//! Receives frames on any live port, with arrival times, for programs that only count frames.

use crate::Error;
use crate::device::{Device, ReceiveMode};
use crate::pools::{SHALLOW_POOL, SMALL_BUFFER};
use dpdk::{
    Burst, Eal, LaunchTime, NicLink, PacketRing, Pool, Port, Received, RingConfig, RxQueue, Started, TscClock, TxQueue,
};
use packet::{Frame, MacAddr};
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

/// How long a receiver polls without a pause after the last arrival, so that the stamps of ongoing traffic are
/// accurate.
const EAGER: Duration = Duration::from_millis(2);
/// The pause between two polls of a quiet port. The kernel adds about 0.05 ms.
const PAUSE: Duration = Duration::from_micros(20);
/// Buffers of a pool per receive queue, for the driver's ring and for frames in progress.
const BUFFERS_OF_QUEUE: u32 = 1 << 11;

/// A port that receives.
pub struct ArrivalPort(Source);

enum Source {
    /// A Linux interface, with the kernel's ring and stamps.
    Ring(PacketRing),
    /// A DPDK port, which is polled.
    Polled(Box<Polled>),
}

struct Polled {
    // Declared before the port, so that the queues, which keep the port open, are dropped first.
    queues: ArrivalQueues,
    port: Port,
    senders: Vec<TxQueue>,
    pool: Pool,
    answer: Burst,
}

/// Some receive queues of a DPDK port. One thread polls them. Other threads may poll the port's other queues.
pub struct ArrivalQueues {
    queues: Vec<RxQueue>,
    clock: TscClock,
    frames: Burst,
    /// Frames that each queue received.
    received: Vec<u64>,
    /// The queue that is polled first.
    turn: usize,
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

    /// Opens a DPDK port with at least `queues` receive queues: more if its interface has more. A NIC distributes
    /// frames to the queues by flow.
    ///
    /// # Errors
    /// A port that cannot be opened, with the remedy.
    pub fn of_device(eal: &'static Eal, device: &Device, queues: u16) -> Result<ArrivalPort, Error> {
        // Long frames get fewer buffers, so that the memory stays the same.
        let data_room = Device::data_room(device.mtu()?);
        let frames = Self::buffers(queues) / u32::from(data_room).div_ceil(SMALL_BUFFER.into());
        let pool = Pool::new(eal, "arrivals", frames - 1, data_room)?;
        let opened = device.open(eal, &pool, LaunchTime::Never, 1, ReceiveMode::All { queues }, None)?;
        Ok(ArrivalPort::of_started(opened.started, pool, TscClock::new(eal)))
    }

    /// Receives from a running port. Frames to send are allocated from `pool`.
    #[must_use]
    pub fn of_started(started: Started, pool: Pool, clock: TscClock) -> ArrivalPort {
        let Started { port, rx, tx } = started;
        let polled = Polled { queues: ArrivalQueues::new(rx, clock), port, senders: tx, pool, answer: Burst::new() };
        ArrivalPort(Source::Polled(Box::new(polled)))
    }

    fn buffers(queues: u16) -> u32 {
        SHALLOW_POOL.max(u32::from(queues).next_power_of_two() * BUFFERS_OF_QUEUE)
    }

    /// MiB of memory that EAL needs for a polled port with this number of queues.
    #[must_use]
    pub fn memory_mib(queues: u16) -> u32 {
        Self::buffers(queues) / 1024 * 3 + 32
    }

    /// Splits off receive queues for `threads` other threads to poll. The queues are shared out evenly, and the port
    /// keeps one share itself. Returns fewer than `threads` shares if the port has too few queues.
    pub fn share(&mut self, threads: usize) -> Vec<ArrivalQueues> {
        match &mut self.0 {
            Source::Ring(_) => Vec::new(),
            Source::Polled(polled) => polled.queues.share(threads),
        }
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
            Source::Polled(polled) => polled.queues.next(timeout, take),
        }
        Ok(())
    }

    /// Sends a frame. Returns false if the port does not take it.
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
            Source::Polled(polled) => Ok(MacAddr(polled.port.info()?.mac)),
        }
    }

    /// The longest frame, in bytes without FCS and without VLAN tags.
    ///
    /// # Errors
    /// An interface that has disappeared.
    pub fn longest(&self) -> Result<u32, Error> {
        match &self.0 {
            Source::Ring(ring) => Ok(ring.mtu()? + 14),
            Source::Polled(polled) => Ok(polled.port.info()?.mtu + 14),
        }
    }

    /// Frames that arrived but were lost before they were read, because the kernel's ring or the NIC's queue was full
    /// or no buffer was free.
    ///
    /// # Errors
    /// Counters that cannot be read.
    pub fn lost(&mut self) -> Result<u64, Error> {
        match &mut self.0 {
            Source::Ring(ring) => Ok(ring.counts()?.dropped),
            Source::Polled(polled) => {
                let stats = polled.port.stats()?;
                Ok(stats.rx_missed + stats.rx_no_buffer + stats.rx_errors)
            }
        }
    }

    /// The longest time between a poll that found frames and the poll before it. No stamp is late by more than this.
    /// `None` if the kernel stamps frames.
    #[must_use]
    pub fn longest_pause(&self) -> Option<Duration> {
        match &self.0 {
            Source::Ring(_) => None,
            Source::Polled(polled) => Some(polled.queues.longest_pause),
        }
    }

    /// The number of each receive queue that the port still has, with its count of received frames. Empty if the kernel
    /// receives.
    #[must_use]
    pub fn received(&self) -> Vec<(u16, u64)> {
        match &self.0 {
            Source::Ring(_) => Vec::new(),
            Source::Polled(polled) => polled.queues.received().collect(),
        }
    }

    /// The link, if the port is a NIC on PCI.
    #[must_use]
    pub fn nic_link(&self) -> Option<NicLink> {
        match &self.0 {
            Source::Ring(_) => None,
            Source::Polled(polled) => polled.port.nic_link(),
        }
    }
}

impl Polled {
    fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(mut frame) = self.pool.alloc() else { return false };
        if frame.copy_from(bytes).is_err() || self.answer.push(frame).is_err() {
            return false;
        }
        let taken = self.senders.first_mut().is_some_and(|queue| queue.send(&mut self.answer) == 1);
        self.answer.clear();
        taken
    }
}

impl ArrivalQueues {
    /// Receives from these queues.
    #[must_use]
    pub fn new(queues: Vec<RxQueue>, clock: TscClock) -> ArrivalQueues {
        let (received, now) = (vec![0; queues.len()], Instant::now());
        let (frames, turn) = (Burst::new(), 0);
        ArrivalQueues { queues, clock, frames, received, turn, last: now, polled: now, longest_pause: Duration::ZERO }
    }

    fn share(&mut self, threads: usize) -> Vec<ArrivalQueues> {
        let mut shares: Vec<Vec<RxQueue>> = (0..=threads).map(|_| Vec::new()).collect();
        for (number, queue) in std::mem::take(&mut self.queues).into_iter().enumerate() {
            shares[number % (threads + 1)].push(queue);
        }
        let mut shares = shares.into_iter().filter(|share| !share.is_empty());
        *self = ArrivalQueues::new(shares.next().unwrap_or_default(), self.clock);
        shares.map(|share| ArrivalQueues::new(share, self.clock)).collect()
    }

    /// Waits up to `timeout` for frames, and passes one burst to `take`, in order.
    pub fn next(&mut self, timeout: Duration, mut take: impl FnMut(&Received<'_>)) {
        let start = Instant::now();
        loop {
            // Read the clock before the poll. A frame found by this poll may have come at any time since the last one.
            let now = Instant::now();
            // Start with another queue each time, because a busy queue fills the burst and the others would wait.
            let queues = self.queues.len();
            for number in (self.turn..queues).chain(0..self.turn) {
                self.received[number] += self.queues[number].poll(&mut self.frames) as u64;
            }
            self.turn = if self.turn + 1 < queues { self.turn + 1 } else { 0 };
            if !self.frames.is_empty() {
                let time_ns = self.clock.wall_at_zero() + self.clock.now().as_ps() / units::PS_PER_NS;
                self.longest_pause = self.longest_pause.max(now - self.polled);
                (self.last, self.polled) = (now, now);
                // The frames are in another core's cache or in memory. Fetch all of them at once and not one by one.
                black_box(self.frames.iter().fold(0, |read, frame| read ^ frame.bytes().last().copied().unwrap_or(0)));
                for frame in &self.frames {
                    let bytes = frame.bytes();
                    let original_len = bytes.len() as u32;
                    take(&Received { time_ns, bytes, original_len, partial_checksum: false, vlan: None });
                }
                // Free all buffers with one call.
                self.frames.clear();
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

    /// The number of each queue, with its count of received frames.
    pub fn received(&self) -> impl Iterator<Item = (u16, u64)> {
        self.queues.iter().map(RxQueue::number).zip(self.received.iter().copied())
    }

    /// Like [`ArrivalPort::longest_pause`], for these queues.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }
}
