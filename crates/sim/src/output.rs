//! Output files of a run.

use crate::error::SimError;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

/// A file that is written in whole records. If the disk is full, the file is truncated after the last whole record.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    /// Length in bytes of the whole records in the file.
    length: u64,
    /// Number of bytes of the last write that are in the file.
    kept: usize,
}

impl Output {
    /// Creates the file, or truncates it.
    pub(crate) fn create(path: &Path) -> std::result::Result<Self, SimError> {
        let file = File::create(path).map_err(|cause| SimError::Write { path: path.to_owned(), cause })?;
        Ok(Output { path: path.to_owned(), file, length: 0, kept: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes of the last write that are in the file.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Writes `bytes`. `whole` returns the end of the last whole record within the given number of bytes.
    pub(crate) fn write(&mut self, bytes: &[u8], whole: impl Fn(usize) -> usize) -> Result<()> {
        let mut written = 0;
        let failed = loop {
            if written == bytes.len() {
                break None;
            }
            match self.file.write(&bytes[written..]) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        self.kept = if failed.is_some() { whole(written) } else { written };
        self.length += self.kept as u64;
        if failed.is_some() {
            // A pipe cannot be truncated.
            let _ = self.file.set_len(self.length);
        }
        failed.map_or(Ok(()), |error: Error| Err(error))
    }
}
