//! Standard error, written by a separate thread: a stopped terminal, or a pipe that is not read, must not block a
//! thread that waits for the end of a run.

use std::cell::Cell;
use std::io::Write as _;
use std::mem;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a caller waits for its text to be written. After a timeout, callers queue their text without waiting, until
/// the thread has written again.
const PATIENCE: Duration = Duration::from_millis(100);
/// Limit on queued texts. Further ones are dropped.
const WAITING: usize = 1_024;

/// A job, and the channel that reports its end.
type Job = (Box<dyn FnOnce() + Send>, SyncSender<()>);

static QUEUE: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();
static STALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// Writes text. Ignores errors, because there is nowhere to report them.
pub(crate) fn write(text: String) {
    run(move || {
        let _ = std::io::stderr().write_all(text.as_bytes());
    });
}

/// Runs a job that writes to standard error. Returns when it is done, unless standard error stalls.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) {
    // The caller writes if there is no memory for a thread, or if it is the thread.
    let Some(queue) = QUEUE.get_or_init(start).as_ref().filter(|_| !IS_WRITER.get()) else { return job() };
    let (notify, done) = sync_channel(1);
    if let Err(refused) = queue.try_send((Box::new(job), notify)) {
        // Do not drop the job: dropping a progress line redraws it, which writes to stderr from this thread.
        mem::forget(refused);
    } else if !STALLED.load(Ordering::Relaxed) && done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
        STALLED.store(true, Ordering::Relaxed);
    }
}

/// Waits for a slow reader to take the last texts before the program ends.
pub(crate) fn finish() {
    if STALLED.swap(false, Ordering::Relaxed) {
        run(|| {});
    }
}

fn start() -> Option<SyncSender<Job>> {
    let (give, jobs) = sync_channel(WAITING);
    thread::Builder::new().name("stderr".to_owned()).spawn(move || write_all(&jobs)).ok().map(|_| give)
}

fn write_all(jobs: &Receiver<Job>) {
    IS_WRITER.set(true);
    for (job, notify) in jobs {
        job();
        STALLED.store(false, Ordering::Relaxed);
        // The caller may have stopped waiting.
        let _ = notify.send(());
    }
}
