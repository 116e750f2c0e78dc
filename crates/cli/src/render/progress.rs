//! Progress of a run: one line per pipeline, only on a terminal, removed when the run ends.

use crate::output::{self, stderr};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// The progress lines. They are drawn only if stderr is a terminal.
pub(crate) struct Progress {
    all: MultiProgress,
    lines: Vec<ProgressBar>,
    shown: bool,
    last: Option<Instant>,
    begin: Instant,
    starting: bool,
}

impl Progress {
    /// Interval between updates.
    const EVERY: Duration = Duration::from_millis(250);

    /// Creates a line for each of these names. Lines are drawn if progress is `wanted` and standard error is a
    /// terminal.
    pub(crate) fn new<'a>(wanted: bool, names: impl IntoIterator<Item = &'a str>) -> Self {
        let target = if wanted { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let shown = !target.is_hidden();
        let all = MultiProgress::with_draw_target(target);
        let style = ProgressStyle::with_template("{prefix}  {wide_msg}").expect("the template is well formed");
        let lines = names
            .into_iter()
            .map(|name| all.add(ProgressBar::no_length().with_style(style.clone()).with_prefix(name.to_owned())))
            .collect();
        Progress { all, lines, shown, last: None, begin: Instant::now(), starting: false }
    }

    /// Shows one line, "starting", until the value is dropped, because set-up takes a second or two. The line is drawn
    /// if it is `wanted` and standard error is a terminal.
    #[cfg(any(feature = "live", feature = "slice"))]
    pub(crate) fn starting(wanted: bool, name: &str) -> Self {
        let mut progress = Progress::new(wanted, [name]);
        progress.starting = true;
        output::set_starting(progress.shown);
        progress.say(0, "starting".to_owned());
        let lines = progress.lines.clone();
        stderr::run(move || lines.iter().for_each(ProgressBar::tick));
        progress
    }

    /// Returns true if the lines are visible and due for an update.
    pub(crate) fn is_due(&mut self) -> bool {
        let due = self.shown && self.last.is_none_or(|last| last.elapsed() >= Self::EVERY);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    /// Returns the time since the run began.
    pub(crate) fn passed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Writes a note. The lines are cleared meanwhile.
    pub(crate) fn note(&self, text: String) {
        let all = self.all.clone();
        stderr::run(move || all.suspend(|| output::note(text)));
    }

    /// Sets the text of line number `i`.
    pub(crate) fn say(&self, i: usize, text: String) {
        let line = self.lines[i].clone();
        stderr::run(move || line.set_message(text));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.starting {
            output::set_starting(false);
        }
        // Hidden lines need no clearing.
        if self.shown {
            let lines = self.lines.clone();
            stderr::run(move || lines.iter().for_each(ProgressBar::finish_and_clear));
        }
    }
}
