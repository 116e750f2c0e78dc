//! Prints on a separate thread, so that a stalled reader of stdout does not delay the end of a run.

use crate::output::{self, Failure, stderr};
#[cfg(feature = "slice")]
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
#[cfg(feature = "slice")]
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a reader of stdout has to take the rest after the user ends the run.
pub(crate) const PATIENCE: Duration = Duration::from_millis(600);
/// Interval between checks for space in the queue and for the end of the run.
const LOOK: Duration = Duration::from_millis(1);

/// Prints the report of a run on stdout. If a signal ends a run whose stdout is not read, the report goes to stderr.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let owned = text.to_owned();
    let printing = thread::spawn(move || output::print(&owned));
    // On a busy machine, ending the run may itself take longer than `PATIENCE`. The reader gets the full time from here
    // on.
    let begun = Instant::now();
    while !printing.is_finished() {
        if begun.elapsed() > PATIENCE && sim::ended_for().is_some_and(|ended| ended > PATIENCE) {
            output::note("stdout is not read: the report is written to stderr");
            stderr::write(output::shown(text).into_owned());
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    printing.join().unwrap_or_else(|_| Err(Failure::new("the thread that prints the report failed")))
}

/// Limit on queued items.
#[cfg(feature = "slice")]
const WAITING: usize = 1 << 14;

/// Prints items on stdout during a run.
#[cfg(feature = "slice")]
pub(crate) struct ItemPrinter {
    queue: SyncSender<String>,
    thread: JoinHandle<Result<bool, Failure>>,
    waits: bool,
    left_out: u64,
}

#[cfg(feature = "slice")]
impl ItemPrinter {
    /// Starts the thread. If the reader is too slow and `waits` is set, printing waits until the user ends the run.
    /// Otherwise items are left out and counted.
    pub(crate) fn start(waits: bool) -> Result<Self, Failure> {
        let (queue, texts) = sync_channel::<String>(WAITING);
        let print = move || {
            for text in texts {
                if !output::is_read(&text)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let thread = thread::Builder::new().name("stdout".to_owned()).spawn(print);
        let thread = thread
            .map_err(|cause| Failure::new(format!("cannot start a thread: {cause}: raise ulimit -v and ulimit -u")))?;
        Ok(ItemPrinter { queue, thread, waits, left_out: 0 })
    }

    /// Queues an item for printing. Returns false if stdout is closed or cannot be written.
    pub(crate) fn print(&mut self, text: String) -> bool {
        let mut next = text;
        loop {
            match self.queue.try_send(next) {
                Ok(()) => return true,
                Err(TrySendError::Disconnected(_)) => return false,
                Err(TrySendError::Full(back)) if self.waits && sim::ended_for().is_none() => next = back,
                Err(TrySendError::Full(_)) => {
                    self.left_out += 1;
                    return true;
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Prints the queued items. Waits for a stalled reader until the user ends the run.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let ItemPrinter { queue, thread, left_out, .. } = self;
        drop(queue);
        let begun = Instant::now();
        while !thread.is_finished() {
            if begun.elapsed() > PATIENCE && sim::ended_for().is_some_and(|ended| ended > PATIENCE) {
                output::warn("stdout is not read: some lines were not printed");
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        if left_out > 0 {
            let lines = output::counted(left_out, "item");
            output::warn(format!("{lines} of --each were not printed because stdout was read too slowly"));
        }
        thread.join().map_err(|_| Failure::new("the thread that prints items failed"))?.map(drop)
    }
}
