//! Stages `limit` whose frames are metered by several threads.
//!
//! ```text
//! pipeline thread ── frames ──▶ workers: find the user, meter ── frames and decisions ──▶ pipeline thread
//! ```
//!
//! The pipeline's thread receives, accounts and sends; for it, such a stage holds frames for a moment. Workers share
//! the users and their buckets. Frames return with their decisions, including refused frames, so nothing is lost and
//! one thread writes every figure. The frames of a flow stay in order.

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

/// Limit on workers of a live stage: DPDK supports 128 threads.
pub const MOST_LIVE_WORKERS: usize = 64;
/// Polls without work before a worker sleeps until it is called.
const LOOKS: u32 = 200;
/// Longest sleep of a worker. Event devices need a regular poll for their housekeeping.
const SLEEP: Duration = Duration::from_millis(1);

/// Whether a stage has its own threads on live ports.
#[must_use]
pub fn has_threads(limit: &Limit) -> bool {
    limit.workers > 1 || limit.algorithm == Algorithm::AtomicQueue
}

/// The stage `limit`, equivalent to [`engine::stages::StageConfig::build`], with a thread per worker. Frames are
/// distributed over lock-free rings by flow, with `static` by user, with `atomic-queue` by a DPDK event device. The
/// threads run on `cpus`, if given.
///
/// # Errors
/// A thread that cannot be started, or an event device that is unavailable.
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

/// Threads that are stopped when this is dropped.
struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl WorkerThreads {
    fn new() -> Self {
        WorkerThreads { threads: Vec::new(), stop: Arc::default() }
    }

    /// Starts a thread registered with DPDK, on `cpu` if given. It runs `work` until the flag is set.
    fn add(
        &mut self,
        eal: &'static Eal,
        cpu: Option<usize>,
        work: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let (started, has_started) = mpsc::channel();
        let run = move || {
            let ready = eal.register_thread().map_err(Error::from).and_then(|known| pin(cpu.as_ref()).map(|()| known));
            let (ready, _known) = match ready {
                Ok(known) => (Ok(()), Some(known)),
                Err(error) => (Err(error), None),
            };
            let works = ready.is_ok();
            // The starting thread waits for this message.
            if started.send(ready).is_ok() && works {
                work(&stop);
            }
        };
        let name = format!("meter-{}", self.threads.len());
        let thread = thread::Builder::new().name(name).spawn(run).map_err(|cause| Error::Thread(cause.to_string()))?;
        self.threads.push(thread);
        has_started.recv().map_err(|_| Error::Worker("the workers of limit".to_owned()))?
    }

    /// Wakes a thread that may sleep.
    fn call(&self, number: usize) {
        self.threads[number].thread().unpark();
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // The panic message is on stderr, and its frames count as held.
            let _ = thread.join();
        }
    }
}

/// Waits for work: spins for a while, then sleeps until it is called.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
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
