//! Decision logs: what was done to each frame, one line per frame.

use crate::output::{self, Failure};
use crate::plan::files::beside;
use crate::plan::request::Request;
use engine::Pipeline;
use engine::stages::{Decision, Fate, Log};
use packet::Frame;
use scenario::PipelinePlan;
use sim::{Lines, SimError, WhenFull};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A log in progress.
pub(crate) struct DecisionFile {
    state: Arc<Mutex<State>>,
}

struct State {
    out: Lines,
    /// The error that ended writing.
    failure: Option<SimError>,
    /// Frames in queues, by frame number and copy number. Each gets its line when it leaves or when the run ends.
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

    /// Returns a recorder that writes decisions to this file.
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

    /// Writes the lines of frames that are still in queues, unless an error has ended writing.
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

/// Logs the decisions of the direction `name` of `plan`, if the request asks for it. Each class has a separate file.
pub(crate) fn attach<F: Frame>(
    request: &Request,
    plan: &PipelinePlan,
    name: &str,
    pipeline: &mut Pipeline<F>,
    when_full: WhenFull,
) -> Result<Vec<DecisionFile>, Failure> {
    let Some(path) = &request.decisions else { return Ok(Vec::new()) };
    let path = if plan.back.is_some() { beside(path, name) } else { path.clone() };
    let classes = if name == plan.name { &plan.classes[..] } else { &[] };
    let paths = classes.iter().map(|class| beside(&path, &class.name));
    let mut files = Vec::new();
    for (class, path) in paths.chain([path.clone()]).enumerate() {
        let file = DecisionFile::create(&path, when_full)?;
        pipeline.log_decisions(class, file.log());
        files.push(file);
    }
    Ok(files)
}
