//! Files for other programs, opened before a run and written after it.

use crate::output::{self, Failure};
use sim::{Lines, WhenFull};
use std::io::{self, Write as _};
use std::path::Path;

/// A file that is written at the end of a run.
pub(crate) struct Table(Lines);

impl Table {
    /// Opens the file. Called before the run, so that a bad path cannot cost the results.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        Lines::create(path, WhenFull::Wait).map(Table).map_err(Failure::new)
    }

    /// Writes the whole table. Waits for a slow reader until the user ends the run.
    pub(crate) fn finish(mut self, text: &str) -> Result<(), Failure> {
        let path = self.0.path().to_owned();
        self.0.write_all(text.as_bytes()).map_err(|cause| cannot_write(&path, &cause))?;
        let missed = self.0.finish().map_err(Failure::new)?;
        output::warn_of_lacks(&path, missed, "line");
        Ok(())
    }
}

/// Writes a whole file, like [`Table::finish`].
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Table::create(path)?.finish(text)
}

/// Returns the failure for a file that cannot be written.
pub(crate) fn cannot_write(path: &Path, cause: &io::Error) -> Failure {
    Failure::new(format!(
        "cannot write {}: {cause}: check the path, its permissions and the free space",
        path.display()
    ))
}
