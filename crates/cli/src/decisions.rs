//! Logs of decisions: what was done to each frame, a line for each.

use crate::background::Background;
use crate::output::{self, Failure};
use crate::stop::Stop;
use crate::table::cannot_write;
use engine::stages::{Decision, Fate, Log};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// A log that is being written.
pub(crate) struct DecisionFile {
    path: PathBuf,
    state: Arc<Mutex<State>>,
}

struct State {
    out: Background,
    /// Frames in queues, by their numbers and their copies': each has its line when it leaves, or when the run ends.
    held: BTreeMap<(u64, u32), Decision>,
}

impl DecisionFile {
    /// Begins the file. With `waits` the run waits where the file takes no more for the moment, until it is to stop; else
    /// lines are left out and counted.
    pub(crate) fn create(path: &Path, waits: Option<&Stop>) -> Result<Self, Failure> {
        let mut out = Background::create(path, waits).map_err(|cause| cannot_write(path, &cause))?;
        out.line(Decision::HEADER);
        let state = State { out, held: BTreeMap::new() };
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
                state.out.line(decision);
            }
        })
    }

    /// Writes what is left, as far as the file takes it; says what went wrong, if anything did.
    pub(crate) fn finish(&self, stop: &Stop) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for decision in std::mem::take(&mut state.held).values() {
            state.out.line(decision);
        }
        let missed = state.out.finish(stop).map_err(|cause| cannot_write(&self.path, &cause))?;
        if missed > 0 {
            output::note(format!(
                "--decisions: {} lacks {} because its reader was too slow",
                self.path.display(),
                output::counted(missed, "line")
            ));
        }
        Ok(())
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
