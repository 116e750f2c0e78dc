//! A DPDK port on which one thread sends single frames and another receives, for programs that time their own
//! departures.

use crate::arrivals::ArrivalQueues;
use crate::device::{Device, ReceiveMode};
use crate::pools::SMALL_BUFFER;
use crate::{Error, LaunchTime};
use dpdk::{Burst, Eal, Pool, Port, PortInfo, Started, TscClock, TxQueue};
use std::sync::{Arc, Mutex, PoisonError};

/// Buffers of the pool: for two full rings of the driver, a full ring of the device behind it, and frames in progress.
const BUFFERS: u32 = 1 << 13;

/// An open port.
pub struct DuplexPort {
    /// Sends frames.
    pub sender: FrameSender,
    /// Receives frames.
    pub queues: ArrivalQueues,
    /// For state and counters.
    pub port: Arc<Port>,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// Sends frames on one port. Its clones share a queue, so that a receiving thread can answer.
#[derive(Clone)]
pub struct FrameSender(Arc<Mutex<SendState>>);

struct SendState {
    queue: TxQueue,
    pool: Pool,
    burst: Burst,
}

impl DuplexPort {
    /// Opens a port. All frames that arrive on it are received.
    ///
    /// # Errors
    /// A port that cannot be opened, with the remedy.
    pub fn open(eal: &'static Eal, device: &Device) -> Result<DuplexPort, Error> {
        let mtu = device.mtu()?;
        let data_room = Device::data_room(mtu);
        // Long frames get fewer buffers, so that the memory stays the same.
        let buffers = BUFFERS / u32::from(data_room).div_ceil(SMALL_BUFFER.into());
        let pool = Pool::new(eal, "duplex", buffers - 1, data_room)?;
        let opened = device.open(eal, &pool, LaunchTime::Never, 1, ReceiveMode::All { queues: 1 }, None)?;
        let Started { rx, tx, port } = opened.started;
        let mut queue = tx.into_iter().next().expect("a port has a transmit queue");
        queue.send_by_calls()?;
        let state = SendState { queue, pool, burst: Burst::new() };
        let sender = FrameSender(Arc::new(Mutex::new(state)));
        Ok(DuplexPort { sender, queues: ArrivalQueues::new(rx, TscClock::new(eal)), port: Arc::new(port), mtu })
    }

    /// MiB of memory that EAL needs for a port.
    #[must_use]
    pub fn memory_mib() -> u32 {
        BUFFERS / 1024 * 3 + 32
    }

    /// The link's speed in bits per second, if the port is a NIC and its link is up. Other drivers report no speed or a
    /// made-up one.
    #[must_use]
    pub fn line_bps(&self) -> Option<u64> {
        Some(u64::from(self.port.nic_link()?.speed_mbps()?) * 1_000_000)
    }

    /// The port's state.
    ///
    /// # Errors
    /// A device that has disappeared.
    pub fn info(&self) -> Result<PortInfo, Error> {
        Ok(self.port.info()?)
    }
}

impl FrameSender {
    /// Sends a frame, given without FCS. Returns false if there is no room for it now.
    ///
    /// # Errors
    /// A frame that the port cannot carry.
    pub fn send(&self, bytes: &[u8]) -> Result<bool, Error> {
        // A thread that panics while it holds the lock leaves a burst that is cleared below.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let SendState { queue, pool, burst } = &mut *state;
        burst.clear();
        let Some(mut frame) = pool.alloc() else { return Ok(false) };
        frame.copy_from(bytes)?;
        if burst.push(frame).is_err() {
            return Ok(false);
        }
        let oversize = queue.oversize();
        let taken = queue.send(burst) == 1;
        burst.clear();
        if queue.oversize() > oversize {
            return Err(dpdk::Error::FrameTooLong { length: bytes.len(), room: queue.max_frame() }.into());
        }
        Ok(taken)
    }
}
