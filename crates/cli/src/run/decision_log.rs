//! Logs of decisions: what was done to each frame, a line for each.

use crate::output::{self, Failure};
use engine::stages::{Decision, Fate, Log};
use sim::{Lines, SimError, WhenFull};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A log that is being written.
pub(crate) struct DecisionFile {
    state: Arc<Mutex<State>>,
}

struct State {
    out: Lines,
    /// The error that ended the writing.
    failure: Option<SimError>,
    /// Frames in queues, by their numbers and their copies': each has its line when it leaves, or when the run ends.
    held: BTreeMap<(u64, u32), Decision>,
}

impl DecisionFile {
    /// Creates the file.
    pub(crate) fn create(path: &Path, when_full: WhenFull) -> Result<Self, Failure> {
        let out = Lines::create(path, when_full).map_err(Failure::new)?;
        let mut state = State { out, failure: None, held: BTreeMap::new() };
        state.line(Decision::HEADER);
        Ok(DecisionFile { state: Arc::new(Mutex::new(state)) })
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
                state.line(decision);
            }
        })
    }

    /// Writes the rest, as far as the file takes it.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in std::mem::take(&mut state.held).values() {
            state.line(decision);
        }
        let ended = state.out.finish();
        let missed = state.failure.take().map_or(ended, Err).map_err(Failure::new)?;
        output::warn_of_lacks(state.out.path(), missed, "line");
        Ok(())
    }
}

impl State {
    fn line(&mut self, line: impl fmt::Display) {
        if self.failure.is_none() {
            self.failure = self.out.line(line).err();
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
