//! Stages `limit` whose frames several threads meter.
//!
//! ```text
//! the pipeline's thread ── frames ──▶ workers: whose? does it conform? ── frames and answers ──▶ the same thread
//! ```
//!
//! The pipeline's thread receives, keeps the books and sends; to it such a stage is one that holds frames for a
//! moment. Users and their buckets are shared. What became of a frame comes back with it, refused ones too, so
//! that nothing is lost and every figure is written by one thread. A flow's frames keep their order.

mod events;
mod rings;

use crate::Error;
use crate::worker::pin;
use dpdk::{Eal, Mbuf};
use engine::Stage;
use engine::meters::Algorithm;
use engine::random::Random;
use engine::stages::Limit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Most workers of a live stage: DPDK knows 128 threads.
pub const MOST_LIVE_WORKERS: usize = 64;
/// Looks at nothing before a worker sleeps until it is called.
const LOOKS: u32 = 200;
/// It looks again by itself after this: event devices have housekeeping.
const SLEEP: Duration = Duration::from_millis(1);

/// Whether a stage has threads of its own on live ports.
#[must_use]
pub fn has_threads(limit: &Limit) -> bool {
    limit.workers > 1 || limit.algorithm == Algorithm::AtomicQueue
}

/// The stage `limit`, as [`engine::stages::StageConfig::build`] makes it, with a thread for each of its workers: frames
/// are dealt out over lock-free rings, by flow; with `static` by user; with `atomic-queue` by an event device of DPDK.
/// The threads run on `cpus`, where those are named.
///
/// # Errors
/// A thread that cannot be started, or an event device that cannot be had.
pub fn limit_stage(
    eal: &'static Eal,
    limit: &Limit,
    (seed, path): (u64, &str),
    cpus: &[usize],
) -> Result<Box<dyn Stage<Mbuf>>, Error> {
    let seed = Random::stream(seed, path).bits();
    if limit.algorithm == Algorithm::AtomicQueue {
        return Ok(Box::new(events::Events::start(eal, limit, seed, cpus)?));
    }
    Ok(Box::new(rings::Rings::start(eal, limit, seed, cpus)?))
}

/// Threads that end when this is dropped.
struct Crew {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Crew {
    fn new() -> Self {
        Crew { threads: Vec::new(), stop: Arc::default() }
    }

    /// Adds a thread that DPDK knows, on `cpu` if that is said. It runs `work` until the flag is set.
    fn add(
        &mut self,
        eal: &'static Eal,
        cpu: Option<usize>,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let (tell, told) = mpsc::channel();
        let run = move || {
            let ready = eal.register_thread().map_err(Error::from).and_then(|known| pin(cpu.as_ref()).map(|()| known));
            let (ready, _known) = match ready {
                Ok(known) => (Ok(()), Some(known)),
                Err(error) => (Err(error), None),
            };
            let works = ready.is_ok();
            // Whoever started this thread waits for it.
            if tell.send(ready).is_ok() && works {
                work(&stop);
            }
        };
        let name = format!("meter-{}", self.threads.len());
        let thread = thread::Builder::new().name(name).spawn(run).map_err(|cause| Error::Thread(cause.to_string()))?;
        self.threads.push(thread);
        told.recv().map_err(|_| Error::Worker("the workers of limit".to_owned()))?
    }

    /// Calls a thread that may sleep.
    fn call(&self, number: usize) {
        self.threads[number].thread().unpark();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // What it panicked of was said on stderr; its frames are counted as held.
            let _ = thread.join();
        }
    }
}

/// Waits for work: looks for a while, then sleeps until it is called.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn found(&mut self) {
        self.0 = 0;
    }

    fn wait(&mut self) {
        self.0 += 1;
        if self.0 < LOOKS {
            std::hint::spin_loop();
        } else {
            thread::park_timeout(SLEEP);
        }
    }
}
