//! Tables for other programs: a file of comma-separated values, opened before a run and written after it.

use crate::output::Failure;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is to be written at the end.
pub(crate) struct Table {
    path: PathBuf,
    file: File,
}

impl Table {
    /// Opens it, so that a run does not end with a table that has no place.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|cause| cannot_write(path, &cause))?;
        Ok(Table { path: path.to_owned(), file })
    }

    /// Writes the whole table.
    pub(crate) fn finish(mut self, text: &str) -> Result<(), Failure> {
        self.file.write_all(text.as_bytes()).map_err(|cause| cannot_write(&self.path, &cause))
    }
}

/// What to say of a file that cannot be written.
pub(crate) fn cannot_write(path: &Path, cause: &io::Error) -> Failure {
    Failure::new(format!(
        "cannot write {}: {cause}: check the path, its permissions and the free space",
        path.display()
    ))
}
