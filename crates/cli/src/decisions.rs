//! Logs of decisions: what was done to each frame, a line for each.

use crate::output::Failure;
use crate::table::cannot_write;
use engine::stages::{Decision, Log};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A log that is being written.
pub(crate) struct DecisionFile {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    out: BufWriter<File>,
    failure: Option<io::Error>,
}

impl DecisionFile {
    /// Begins the file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |cause: io::Error| cannot_write(path, &cause);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
        writeln!(out, "{}", Decision::HEADER).map_err(failed)?;
        Ok(DecisionFile { path: path.to_owned(), state: Arc::new(Mutex::new(State { out, failure: None })) })
    }

    /// Who is to be told of decisions.
    pub(crate) fn log(&self) -> Log {
        let state = self.state.clone();
        Box::new(move |decision| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.failure.is_none()
                && let Err(cause) = writeln!(state.out, "{decision}")
            {
                state.failure = Some(cause);
            }
        })
    }

    /// Writes what is left; says what went wrong, if anything did.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let flushed = state.out.flush();
        match state.failure.take().or_else(|| flushed.err()) {
            Some(cause) => Err(cannot_write(&self.path, &cause)),
            None => Ok(()),
        }
    }
}

/// The file of one of two directions, or of a class: `log.csv` becomes `log-backward.csv`.
pub(crate) fn beside(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-{name}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_have_files_of_their_own() {
        assert_eq!(beside(Path::new("a/log.csv"), "backward"), Path::new("a/log-backward.csv"));
        assert_eq!(beside(Path::new("log"), "forward"), Path::new("log-forward"));
    }
}
