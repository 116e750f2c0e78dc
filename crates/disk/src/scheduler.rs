//! Delayed replies.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs jobs when they are due, on its own threads.
///
/// The caller does not wait, so any number of operations can be in progress.
pub(crate) struct Scheduler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Signalled when nothing waits and nothing runs.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    jobs: BinaryHeap<Job>,
    /// Number of threads running a job.
    busy: usize,
    /// Orders jobs that are due at the same instant.
    count: u64,
    /// Jobs no longer wait.
    hurry: bool,
    ended: bool,
}

struct Job {
    due: Instant,
    number: u64,
    run: Box<dyn FnOnce() + Send>,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    /// Reversed, because the heap returns its greatest element.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl Scheduler {
    /// Two, because copying a large reply takes time, in which the other thread handles jobs that are due.
    const THREADS: usize = 2;

    /// Starts the threads.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (changed, idle) = (Condvar::new(), Condvar::new());
        let shared = Arc::new(Shared { state: Mutex::default(), changed, idle });
        let mut later = Scheduler { shared, threads: Vec::new() };
        for _ in 0..Self::THREADS {
            let shared = Arc::clone(&later.shared);
            later.threads.push(std::thread::Builder::new().name("disk-later".into()).spawn(move || shared.work())?);
        }
        Ok(later)
    }

    /// Runs `job` when it is due.
    pub(crate) fn at(&self, due: Instant, run: Box<dyn FnOnce() + Send>) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = state.count;
        state.count += 1;
        state.jobs.push(Job { due, number, run });
        if state.jobs.peek().is_some_and(|job| job.number == number) {
            self.shared.changed.notify_all();
        }
    }

    /// From now on runs everything at once, pending jobs first.
    pub(crate) fn hurry(&self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).hurry = true;
        self.shared.changed.notify_all();
    }

    /// Waits until all jobs are done, up to `patience`.
    pub(crate) fn settle(&self, patience: Duration) {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = |state: &mut State| state.busy > 0 || !state.jobs.is_empty();
        // The caller continues in either case.
        drop(self.shared.idle.wait_timeout_while(state, patience, under_way));
    }
}

/// Raises the priority of this thread and of threads it starts: their work is short, and late if it waits. Only root
/// may do this.
pub(crate) fn before_others() {
    let _ = rustix::process::setpriority_process(None, -10);
}

impl Shared {
    fn work(&self) {
        // By default, timers of ordinary threads may fire 50 µs late to save power. If the change is not permitted,
        // they are that late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        before_others();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            match state.jobs.peek().map(|job| job.due) {
                Some(due) if due <= now || state.hurry || state.ended => {
                    if let Some(job) = state.jobs.pop() {
                        state.busy += 1;
                        drop(state);
                        (job.run)();
                        state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                        state.busy -= 1;
                        if state.busy == 0 && state.jobs.is_empty() {
                            self.idle.notify_all();
                        }
                    }
                }
                Some(due) => {
                    let waited = self.changed.wait_timeout(state, due - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None if state.ended => return,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Drop for Scheduler {
    /// Runs the remaining jobs at once.
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The panic message of a job is already on stderr.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn runs_jobs_in_order_and_never_early() {
        let later = Scheduler::start().expect("threads");
        let (done, order) = channel();
        let start = Instant::now();
        for ms in [30, 10, 20, 10] {
            let done = done.clone();
            let due = start + Duration::from_millis(ms);
            later.at(due, Box::new(move || done.send((ms, Instant::now() >= due)).expect("somebody listens")));
        }
        let got: Vec<(u64, bool)> = (0..4).map(|_| order.recv().expect("it was done")).collect();
        assert_eq!(got, [(10, true), (10, true), (20, true), (30, true)]);
    }

    #[test]
    fn runs_hurried_jobs_before_settle_returns() {
        let later = Scheduler::start().expect("threads");
        let done = Arc::new(Mutex::new(0));
        for _ in 0..50 {
            let done = Arc::clone(&done);
            let slow = move || {
                std::thread::sleep(Duration::from_millis(1));
                *done.lock().expect("no job panics") += 1;
            };
            later.at(Instant::now() + Duration::from_secs(3_600), Box::new(slow));
        }
        later.settle(Duration::from_millis(5));
        assert_eq!(*done.lock().expect("no job panics"), 0, "patience has an end");
        later.hurry();
        later.settle(Duration::from_secs(60));
        assert_eq!(*done.lock().expect("no job panics"), 50);
    }

    #[test]
    fn runs_remaining_jobs_on_drop() {
        for hurry in [false, true] {
            let later = Scheduler::start().expect("threads");
            let (done, count) = channel();
            for _ in 0..100 {
                let done = done.clone();
                let due = Instant::now() + Duration::from_secs(3_600);
                later.at(due, Box::new(move || done.send(()).expect("somebody listens")));
            }
            drop(done);
            if hurry {
                later.hurry();
                assert_eq!(count.iter().count(), 100);
            } else {
                drop(later);
                assert_eq!(count.try_iter().count(), 100);
            }
        }
    }
}
