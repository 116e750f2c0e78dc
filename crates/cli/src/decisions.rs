//! Logs of decisions: what was done to each frame, a line for each.

use crate::output::Failure;
use crate::table::cannot_write;
use engine::stages::{Decision, Fate, Log};
use std::collections::BTreeMap;
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
    /// Frames in queues, by their numbers and their copies': each has its line when it leaves, or when the run ends.
    held: BTreeMap<(u64, u32), Decision>,
    failure: Option<io::Error>,
}

impl State {
    fn write(&mut self, decision: &Decision) {
        if self.failure.is_none()
            && let Err(cause) = writeln!(self.out, "{decision}")
        {
            self.failure = Some(cause);
        }
    }
}

impl DecisionFile {
    /// Begins the file.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |cause: io::Error| cannot_write(path, &cause);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(failed)?);
        writeln!(out, "{}", Decision::HEADER).map_err(failed)?;
        let state = State { out, held: BTreeMap::new(), failure: None };
        Ok(DecisionFile { path: path.to_owned(), state: Arc::new(Mutex::new(state)) })
    }

    /// Who is to be told of decisions.
    pub(crate) fn log(&self) -> Log {
        let state = self.state.clone();
        Box::new(move |decision| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if decision.fate == Fate::Held {
                state.held.insert((decision.frame, decision.copy), decision.clone());
            } else {
                state.held.remove(&(decision.frame, decision.copy));
                state.write(decision);
            }
        })
    }

    /// Writes what is left; says what went wrong, if anything did.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in std::mem::take(&mut state.held).values() {
            state.write(decision);
        }
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
