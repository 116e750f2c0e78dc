//! `--stats FILE`: the progress of a live run for programs. Writes a JSON object on one line per interval, and a last
//! one with the figures of the report. A slow or missing reader loses lines and never delays the run.

use crate::options::common::Common;
use crate::output::{self, Failure};
use crate::plan::files;
use crate::render::output_file::cannot_write;
use crate::run::figures::{self, count};
use dataplane::Counters;
use measure::{OctavesReport, PipelineReport, Report, Tally};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde::Serialize;
use service::control::{FrameCount, Lateness, PipelineFigures};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long the last line may wait for its reader. Only the end of the program waits for it.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    command: &'a str,
    /// UNIX time.
    time_ns: u64,
    passed_ns: u64,
    interval_ns: u64,
    last: bool,
    skipped: u64,
    pipelines: &'a [PipelineFigures],
}

/// The figures of the pipeline `name` from `counters`. `asked` says whether it has a schedule. The return path is
/// separate.
pub(super) fn of_counters(name: &str, asked: bool, counters: &Counters) -> PipelineFigures {
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let count = |frames, bytes| FrameCount { frames: load(frames), bytes: load(bytes) };
    let mut octaves = counters.octaves.load();
    if !asked {
        octaves.gap_error = measure::Octaves::default();
    }
    // Departures are read first, so that they never exceed arrivals plus copies.
    let left = count(&counters.left, &counters.left_bytes);
    PipelineFigures {
        name: name.to_owned(),
        left,
        arrived: count(&counters.arrived, &counters.arrived_bytes),
        copies: load(&counters.copies),
        drops: counters.drops().map(|(reason, frames)| (reason.name().to_owned(), frames)).collect(),
        held: load(&counters.depth),
        starved: asked.then(|| load(&counters.starved)),
        lateness: asked.then(|| Lateness {
            p50_ns: load(&counters.late_median_ns) as f64,
            max_ns: load(&counters.late_max_ns) as f64,
        }),
        octaves: OctavesReport::of(&octaves).map(figures::octaves),
        ..PipelineFigures::default()
    }
}

/// The figures of a receiver.
pub(super) fn of_receiver(arrived: Tally, left_out: Option<Tally>, kernel_drops: u64) -> PipelineFigures {
    let arrived = count(arrived);
    PipelineFigures {
        name: "measure".to_owned(),
        arrived,
        left: arrived,
        left_out: left_out.map(count),
        kernel_drops: Some(kernel_drops),
        ..PipelineFigures::default()
    }
}

/// The file, and when to write to it.
pub(super) struct Stats {
    command: &'static str,
    path: PathBuf,
    /// `None` while a pipe has no reader.
    file: Option<File>,
    /// Whether this is a regular file. Lines of an earlier run are removed from it.
    is_ours: bool,
    /// Whether the file is new and the run has not begun.
    is_new: bool,
    /// The unwritten rest of a line that a pipe accepted only in part.
    rest: Vec<u8>,
    every: Duration,
    begin: Instant,
    due: Instant,
    /// The figures of the last line, and when it was written.
    before: Vec<PipelineFigures>,
    last_written: Instant,
    /// Number of lines skipped since then, because there was no reader or the reader was too slow.
    skipped: u64,
    failure: Option<Failure>,
}

impl Stats {
    /// Opens the file, if asked.
    pub(super) fn open(common: &Common, command: &'static str) -> Result<Option<Self>, Failure> {
        let Some(path) = common.stats.clone() else { return Ok(None) };
        let is = |other: &str| files::same(&path, Path::new(other));
        if path.as_os_str() == "-" {
            return Err(Failure::new("--stats -: write -q --stats /dev/stdout"));
        }
        if (common.json || !common.quiet) && is("/dev/stdout") && !is("/dev/null") {
            return Err(Failure::new(
                "--stats: standard output is for the report: name another file, or write -q, without --json",
            ));
        }
        let now = Instant::now();
        let every = common.stats_every.to_std();
        let is_new = path.symlink_metadata().is_err();
        let file = open(&path, true).map_err(|cause| cannot_write(&path, &cause))?;
        let is_ours = path.metadata().is_ok_and(|file| file.is_file()) && !is("/dev/stdout") && !is("/dev/stderr");
        Ok(Some(Stats {
            command,
            path,
            file,
            is_ours,
            is_new,
            rest: Vec::new(),
            every,
            begin: now,
            due: now + every,
            before: Vec::new(),
            last_written: now,
            skipped: 0,
            failure: None,
        }))
    }

    /// Marks the start of the run.
    pub(super) fn begins(&mut self) {
        // Not done earlier, because a refused run must keep the lines of an earlier run.
        if let Some(file) = self.file.as_ref().filter(|_| self.is_ours)
            && let Err(cause) = file.set_len(0)
        {
            self.failure = Some(cannot_write(&self.path, &cause));
        }
        self.is_new = false;
        self.begin = Instant::now();
        (self.last_written, self.due) = (self.begin, self.begin + self.every);
    }

    /// Time until the next line.
    pub(super) fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Writes a line, if it is due.
    pub(super) fn write_if_due(&mut self, so_far: impl FnOnce() -> Vec<PipelineFigures>) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        while self.due <= now {
            self.due += self.every;
        }
        let taken = self.line(so_far(), false);
        self.skipped += u64::from(!taken);
    }

    /// Writes the last line, with the figures of the report.
    pub(super) fn finish(mut self, reports: &[PipelineReport]) -> Result<(), Failure> {
        self.end(|| reports.iter().map(figures::of_report).collect())
    }

    /// Writes the last line.
    pub(super) fn end(&mut self, so_far: impl Fn() -> Vec<PipelineFigures>) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut written = false;
        loop {
            written = written || self.line(so_far(), true);
            if written && self.is_drained() || self.failure.is_some() {
                break;
            }
            if self.file.is_none() || begin.elapsed() > PATIENCE {
                let (path, before) = (self.path.display(), output::counted(self.skipped, "line"));
                output::note(format!("--stats: {path}: no reader took the last line, and {before} before it"));
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Writes a line. If only a part is accepted, keeps the rest for later. Returns false if nothing is accepted.
    fn line(&mut self, mut pipelines: Vec<PipelineFigures>, last: bool) -> bool {
        if self.failure.is_some() || !self.is_drained() {
            return false;
        }
        let now = Instant::now();
        let interval = now - self.last_written;
        for (i, pipeline) in pipelines.iter_mut().enumerate() {
            pipeline.since(self.before.get(i), interval.as_secs_f64());
        }
        let line = Line {
            schema: Report::SCHEMA,
            command: self.command,
            time_ns: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, ns),
            passed_ns: ns(now - self.begin),
            interval_ns: ns(interval),
            last,
            skipped: self.skipped,
            pipelines: &pipelines,
        };
        let mut line = serde_json::to_vec(&line).expect("names and numbers are JSON always");
        line.push(b'\n');
        let taken = self.give(&line);
        if taken == 0 {
            return false;
        }
        // If the reader is gone, drops the rest, so that a new reader starts with a whole line. The pipe may still hold
        // the accepted part of this one.
        self.rest = if self.file.is_some() { line.split_off(taken) } else { Vec::new() };
        (self.before, self.last_written, self.skipped) = (pipelines, now, 0);
        true
    }

    /// Writes the rest of the previous line. Returns true if the file is open and the whole rest is written.
    fn is_drained(&mut self) -> bool {
        if self.file.is_none() {
            self.file = open(&self.path, false).unwrap_or_default();
        }
        let mut rest = std::mem::take(&mut self.rest);
        let taken = self.give(&rest);
        if self.file.is_some() {
            self.rest = rest.split_off(taken);
        }
        self.file.is_some() && self.rest.is_empty()
    }

    /// Writes as many of these bytes as possible without waiting. Closes the file if there is no reader.
    fn give(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while let Some(file) = self.file.as_mut().filter(|_| taken < bytes.len()) {
            match file.write(&bytes[taken..]) {
                Ok(0) => break,
                Ok(more) => taken += more,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => break,
                Err(cause) => {
                    if cause.kind() != ErrorKind::BrokenPipe {
                        self.failure = Some(cannot_write(&self.path, &cause));
                    }
                    self.file = None;
                }
            }
        }
        taken
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // A refused run removes the file that it created. The caller reports why it was refused.
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens without waiting for a reader; `None` if a pipe has none yet.
fn open(path: &Path, create: bool) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.append(true).create(create).custom_flags(OFlag::O_NONBLOCK.bits());
    match options.open(path) {
        Err(cause) if cause.raw_os_error() == Some(Errno::ENXIO as i32) => {
            let is_pipe = path.metadata().is_ok_and(|file| file.file_type().is_fifo());
            let socket = || io::Error::other("it is a socket: name a file or a named pipe");
            if is_pipe { Ok(None) } else { Err(socket()) }
        }
        opened => opened.map(Some),
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
