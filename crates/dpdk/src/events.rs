use crate::eal::{log_mark, log_since};
use crate::error::errno_text;
use crate::{Burst, Eal, Error, Result};
use dpdk_sys as sys;
use std::cell::Cell;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A DPDK event device (Intel DLB or a software equivalent) that carries frames from one feeder through several workers
/// to one collector.
///
/// Scheduling is atomic. Frames of one flow are with one worker at a time and stay in order from the feeder to the
/// collector, even if the worker changes. Per-flow state in a worker needs no lock. Frames of other flows are processed
/// in parallel.
#[derive(Debug)]
pub struct EventDevice {
    /// The input for frames.
    pub feeder: EventFeeder,
    /// The workers. Each runs on its own thread.
    pub workers: Vec<EventWorker>,
    /// The output for frames.
    pub collector: EventCollector,
    /// The scheduler, for devices that need one of our threads to move frames (`event_sw`).
    pub scheduler: Option<EventScheduler>,
    /// The number of flows that the device distinguishes. It accepts flow numbers below 2²⁰ (DLB hardware: 2¹⁶). Flows
    /// that it does not distinguish wait for each other but are otherwise handled correctly.
    pub flows: u32,
}

#[derive(Debug)]
struct Inner {
    eal: &'static Eal,
    name: CString,
    device: u8,
}

/// The largest number of frames that an event port takes or returns in one call.
const CHUNK: usize = sys::SHIM_EVENT_BURST;

type NotSync = PhantomData<Cell<()>>;

/// The input for frames, for one thread.
#[derive(Debug)]
pub struct EventFeeder {
    inner: Arc<Inner>,
    not_sync: NotSync,
}

/// Processes frames, for one thread.
#[derive(Debug)]
pub struct EventWorker {
    inner: Arc<Inner>,
    port: u8,
    /// Frames taken and not yet passed on.
    outstanding: usize,
    not_sync: NotSync,
}

/// The output for frames, for one thread.
#[derive(Debug)]
pub struct EventCollector {
    inner: Arc<Inner>,
    port: u8,
    not_sync: NotSync,
}

/// Moves frames inside a device that needs this, for one thread. The thread may do other work too.
#[derive(Debug)]
pub struct EventScheduler {
    _inner: Arc<Inner>,
    service: i32,
    not_sync: NotSync,
}

impl EventDevice {
    /// Creates an event device of `driver` (`event_sw`, `event_dsw`) with `workers` workers. For hardware, `driver` is
    /// the name of a device passed to EAL.
    ///
    /// The device closes when the last of its parts is dropped. Frames still inside are freed.
    ///
    /// # Errors
    /// [`Error::Attach`] if the driver or device does not exist or has too few ports; [`Error::PortInUse`];
    /// [`Error::Nul`].
    pub fn open(eal: &'static Eal, driver: &str, workers: u8) -> Result<EventDevice> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = driver.starts_with("event_");
        let device = if made { format!("{driver}{}", MADE.fetch_add(1, Ordering::Relaxed)) } else { driver.to_owned() };
        let name = CString::new(device.as_str()).map_err(|_| Error::Nul { what: "a device's name" })?;
        let mut control = eal.control();
        let mark = log_mark();
        let failed = |rc: i32| {
            let log = log_since(mark);
            let reason = match rc {
                rc if rc == -libc::ENOSPC => format!("it has no ports for {workers} workers; ask for fewer"),
                _ if log.contains("failed to parse device") => {
                    "there is no such driver; event_sw and event_dsw work on any machine".to_owned()
                }
                rc => errno_text(rc),
            };
            Error::Attach { device: device.clone(), reason, log }
        };
        if !control.insert(device.clone()) {
            return Err(Error::PortInUse { device });
        }
        if made {
            // SAFETY: EAL runs, the lock is held, and the strings are copied.
            let rc = unsafe { sys::shim_attach(c"vdev".as_ptr(), name.as_ptr(), c"".as_ptr()) };
            if rc < 0 {
                control.remove(&device);
                return Err(failed(rc));
            }
        }
        let mut raw = sys::shim_event_device::default();
        // SAFETY: EAL runs, the name is NUL-terminated, and `raw` is writable.
        let rc = unsafe { sys::shim_event_open(name.as_ptr(), workers, &raw mut raw) };
        if rc < 0 {
            if made {
                // SAFETY: EAL runs, the lock is held, the strings are NUL-terminated, and the device is not in use.
                unsafe { sys::shim_detach(c"vdev".as_ptr(), name.as_ptr()) };
            }
            control.remove(&device);
            return Err(failed(rc));
        }
        drop(control);
        let inner = Arc::new(Inner { eal, name, device: raw.device });
        let worker = |port| EventWorker { inner: Arc::clone(&inner), port, outstanding: 0, not_sync: PhantomData };
        Ok(EventDevice {
            feeder: EventFeeder { inner: Arc::clone(&inner), not_sync: PhantomData },
            workers: (1..=workers).map(worker).collect(),
            collector: EventCollector { inner: Arc::clone(&inner), port: workers + 1, not_sync: PhantomData },
            scheduler: (raw.service >= 0).then(|| EventScheduler {
                _inner: Arc::clone(&inner),
                service: raw.service,
                not_sync: PhantomData,
            }),
            flows: raw.flows,
        })
    }
}

impl EventFeeder {
    /// Feeds frames into the device, each with its flow number. Removes the frames that the device took from the start
    /// of the burst and returns their number. The device takes fewer when it is full.
    ///
    /// # Panics
    /// If the number of flows differs from the number of frames.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn feed(&mut self, burst: &mut Burst, flows: &[u32]) -> usize {
        assert_eq!(burst.len(), flows.len(), "each frame has a flow");
        burst.hand_over(|frames, count| {
            let count = count.min(CHUNK) as u16;
            // SAFETY: the device outlives this feeder, no other thread uses this port, the frames are ours, and there
            // is one flow per frame.
            usize::from(unsafe { sys::shim_event_feed(self.inner.device, frames, flows.as_ptr(), count) })
        })
    }
}

impl EventWorker {
    /// Adds the next frames to process to an empty burst, and their flow numbers to `flows`. Returns the number of
    /// frames. Never blocks. The worker gives up earlier frames that it has not passed on: their flows may move to
    /// another worker.
    pub fn take(&mut self, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
        self.outstanding = take(&self.inner, self.port, burst, flows);
        self.outstanding
    }

    /// Passes frames on to the collector. Returns the number taken, as [`EventFeeder::feed`] does. Pass only frames of
    /// the last [`take`](EventWorker::take) or their replacements. Drop all others.
    ///
    /// # Panics
    /// If the number of flows differs from the number of frames, or if there are more frames than were taken.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn pass(&mut self, burst: &mut Burst, flows: &[u32]) -> usize {
        assert_eq!(burst.len(), flows.len(), "each frame has a flow");
        assert!(burst.len() <= self.outstanding, "only what was taken is passed on");
        let passed = burst.hand_over(|frames, count| {
            let count = count.min(CHUNK) as u16;
            // SAFETY: as in `feed`, and the assertion limits the frames to the number taken.
            usize::from(unsafe { sys::shim_event_pass(self.inner.device, self.port, frames, flows.as_ptr(), count) })
        });
        self.outstanding -= passed;
        passed
    }

    /// Releases frames that the device is batching. Call it when there was nothing to take.
    pub fn flush(&mut self) {
        // SAFETY: the device runs, and no other thread uses this port.
        unsafe { sys::shim_event_flush(self.inner.device, self.port) };
    }
}

impl EventFeeder {
    /// Like [`EventWorker::flush`].
    pub fn flush(&mut self) {
        // SAFETY: the device runs, and no other thread uses the feeder's port.
        unsafe { sys::shim_event_flush(self.inner.device, 0) };
    }
}

impl EventCollector {
    /// Adds processed frames to an empty burst, in order within each flow, and their flow numbers to `flows`. Returns
    /// the number of frames. Never blocks.
    pub fn take(&mut self, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
        take(&self.inner, self.port, burst, flows)
    }
}

impl EventScheduler {
    /// Moves some frames on. Call it repeatedly.
    pub fn run(&mut self) {
        // SAFETY: the service belongs to this running device, no other thread runs it, and the call does nothing on an
        // unregistered thread.
        unsafe { sys::shim_event_schedule(self.service) };
    }
}

fn take(inner: &Inner, port: u8, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
    assert!(burst.is_empty(), "what was taken before is done with");
    flows.resize(CHUNK, 0);
    let taken = burst.fill(|frames, room| {
        let room = room.min(CHUNK) as u16;
        // SAFETY: the device outlives `inner`, only the owner uses the port, there is room for `room` frames and flows,
        // and the frames become ours, whole and single-segment because only such frames are fed.
        usize::from(unsafe { sys::shim_event_take(inner.device, port, frames, flows.as_mut_ptr(), room) })
    });
    flows.truncate(taken);
    taken
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut control = self.eal.control();
        // SAFETY: the last part is gone, so the device is not in use; frames inside are freed.
        unsafe { sys::shim_event_close(self.device) };
        let name = self.name.to_string_lossy().into_owned();
        if name.starts_with("event_") {
            // SAFETY: the device is closed, and the name is NUL-terminated.
            unsafe { sys::shim_detach(c"vdev".as_ptr(), self.name.as_ptr()) };
        }
        control.remove(&name);
    }
}
