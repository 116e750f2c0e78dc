use crate::eal::{log_mark, log_since};
use crate::error::errno_text;
use crate::{Burst, Eal, Error, Result};
use dpdk_sys as sys;
use std::cell::Cell;
use std::ffi::CString;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// DPDK's event devices (Intel's DLB and what does the same in software) as a way from one feeder
/// through several workers to one collector.
///
/// Frames of one flow are with one worker at a time and keep their order from the feeder to the
/// collector, whoever works on them (atomic scheduling): what a worker keeps per flow needs no lock.
/// Other flows are worked on meanwhile.
#[derive(Debug)]
pub struct EventDevice {
    /// Where frames come in.
    pub feeder: EventFeeder,
    /// Where they are worked on; each for a thread of its own.
    pub workers: Vec<EventWorker>,
    /// Where they come out.
    pub collector: EventCollector,
    /// What moves the frames, where the device needs a thread of ours for that (`event_sw`).
    pub scheduler: Option<EventScheduler>,
    /// Flows that the device tells apart. It takes any number below 2²⁰ (DLB hardware: 2¹⁶); flows that it
    /// cannot tell apart wait for each other and are otherwise right.
    pub flows: u32,
}

#[derive(Debug)]
struct Inner {
    eal: &'static Eal,
    name: CString,
    device: u8,
}

/// The most frames that an event port takes or gives in one call.
const CHUNK: usize = sys::SHIM_EVENT_BURST;

type NotSync = PhantomData<Cell<()>>;

/// Where frames come in: for one thread.
#[derive(Debug)]
pub struct EventFeeder {
    inner: Arc<Inner>,
    not_sync: NotSync,
}

/// Where frames are worked on: for one thread.
#[derive(Debug)]
pub struct EventWorker {
    inner: Arc<Inner>,
    port: u8,
    /// Frames taken that may still be passed on.
    outstanding: usize,
    not_sync: NotSync,
}

/// Where frames come out: for one thread.
#[derive(Debug)]
pub struct EventCollector {
    inner: Arc<Inner>,
    port: u8,
    not_sync: NotSync,
}

/// Moves frames of a device that does not do so itself: for one thread, which may do other things too.
#[derive(Debug)]
pub struct EventScheduler {
    _inner: Arc<Inner>,
    service: i32,
    not_sync: NotSync,
}

impl EventDevice {
    /// Makes an event device of `driver` (`event_sw`, `event_dsw`) for `workers` workers; for hardware,
    /// the name of a device that EAL was told of.
    ///
    /// It ends when the last of its parts is dropped; frames that are inside by then are freed.
    ///
    /// # Errors
    /// [`Error::Attach`] when there is no such driver or device, or it has too few ports.
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
        // SAFETY: EAL runs; NUL-terminated; the struct is written.
        let rc = unsafe { sys::shim_event_open(name.as_ptr(), workers, &raw mut raw) };
        if rc < 0 {
            if made {
                // SAFETY: as when it was attached; it is not in use.
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
    /// Hands frames over, each with the number of its flow, and gives how many were taken: a prefix,
    /// which is out of the burst when this returns. Fewer when the device is full.
    ///
    /// # Panics
    /// If there are not as many flows as frames.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn feed(&mut self, burst: &mut Burst, flows: &[u32]) -> usize {
        assert_eq!(burst.len(), flows.len(), "each frame has a flow");
        burst.hand_over(|frames, count| {
            let count = count.min(CHUNK) as u16;
            // SAFETY: the device runs as long as this lives, no other thread uses this port, the frames
            // are ours, and there are as many flows.
            usize::from(unsafe { sys::shim_event_feed(self.inner.device, frames, flows.as_ptr(), count) })
        })
    }
}

impl EventWorker {
    /// Adds to an empty burst what is to be worked on, and the flow of each; gives how many frames
    /// that were. Never waits. Frames that were taken before and not passed on are given up: their
    /// flows may go to another worker.
    pub fn take(&mut self, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
        self.outstanding = take(&self.inner, self.port, burst, flows);
        self.outstanding
    }

    /// Hands frames on to the collector and gives how many were taken, as [`EventFeeder::feed`] does.
    /// Only frames of the last [`take`](EventWorker::take), or what became of them; drop the others.
    ///
    /// # Panics
    /// If there are not as many flows as frames, or more frames than were taken.
    #[must_use = "frames that were not taken are still in the burst"]
    pub fn pass(&mut self, burst: &mut Burst, flows: &[u32]) -> usize {
        assert_eq!(burst.len(), flows.len(), "each frame has a flow");
        assert!(burst.len() <= self.outstanding, "only what was taken is passed on");
        let passed = burst.hand_over(|frames, count| {
            let count = count.min(CHUNK) as u16;
            // SAFETY: as in `feed`; no more than were taken, as asserted.
            usize::from(unsafe { sys::shim_event_pass(self.inner.device, self.port, frames, flows.as_ptr(), count) })
        });
        self.outstanding -= passed;
        passed
    }

    /// Lets go what the device gathers before it moves it on: when there was nothing to take.
    pub fn flush(&mut self) {
        // SAFETY: the device runs, and no other thread uses this port.
        unsafe { sys::shim_event_flush(self.inner.device, self.port) };
    }
}

impl EventFeeder {
    /// As [`EventWorker::flush`].
    pub fn flush(&mut self) {
        // SAFETY: the device runs, and no other thread uses the feeder's port.
        unsafe { sys::shim_event_flush(self.inner.device, 0) };
    }
}

impl EventCollector {
    /// Adds to an empty burst what came through, in the order of each flow, and the flow of each frame;
    /// gives how many frames that were. Never waits.
    pub fn take(&mut self, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
        take(&self.inner, self.port, burst, flows)
    }
}

impl EventScheduler {
    /// Moves some frames on. To be called again and again.
    pub fn run(&mut self) {
        // SAFETY: the service is this device's, which runs, and no other thread runs it. It refuses when the
        // thread is not registered, which moves nothing.
        unsafe { sys::shim_event_schedule(self.service) };
    }
}

fn take(inner: &Inner, port: u8, burst: &mut Burst, flows: &mut Vec<u32>) -> usize {
    assert!(burst.is_empty(), "what was taken before is done with");
    flows.resize(CHUNK, 0);
    let taken = burst.fill(|frames, room| {
        let room = room.min(CHUNK) as u16;
        // SAFETY: the device runs as long as `inner` lives, the port is used by its owner alone, there is
        // room for that many frames and flows, and the frames are ours from now on: only whole, single
        // ones are fed.
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
            // SAFETY: it is closed; NUL-terminated.
            unsafe { sys::shim_detach(c"vdev".as_ptr(), self.name.as_ptr()) };
        }
        control.remove(&name);
    }
}
