//! Prints on a separate thread, so that a reader of stdout that has stopped reading does not delay the end of a run.

use crate::output::{self, Failure};
use std::io::Write as _;
use std::thread;
use std::time::Duration;

/// How long a reader has to take the report after the user ends the run.
const PATIENCE: Duration = Duration::from_millis(800);

/// Prints the report of a run on stdout. If a signal ends a run whose stdout is not read, the report goes to stderr.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let owned = text.to_owned();
    let printing = thread::spawn(move || output::print(&owned));
    while !printing.is_finished() {
        if sim::ended_for().is_some_and(|ended| ended > PATIENCE) {
            output::note("stdout is not read: the report is written to stderr");
            // A failed write to stderr cannot be reported anywhere.
            let _ = std::io::stderr().write_all(output::shown(text).as_bytes());
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    printing.join().unwrap_or_else(|_| Err(Failure::new("the thread that prints the report failed")))
}
