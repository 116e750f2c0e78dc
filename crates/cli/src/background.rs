//! A file that is written on a thread of its own: a reader who does not read, or a slow disk, holds up neither frames nor
//! the end of a run.

use crate::stop::Stop;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes that are handed over at once, and how often: what waits to be written is bounded by 64 MiB.
const CHUNK: usize = 64 << 10;
const WAITING: usize = 1_024;
/// At the end, how long a pipe may take no byte until it is given up; all together once the user wants the end.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// Lines on their way into a file.
pub(crate) struct Background {
    chunk: Vec<u8>,
    /// Lines in it, and lines before it.
    lines: u64,
    handed: u64,
    missed: u64,
    queue: Option<SyncSender<(Vec<u8>, u64)>>,
    written: Arc<Written>,
    thread: Option<JoinHandle<()>>,
    is_pipe: bool,
    /// Waits for room where nothing else does, as in virtual time: until the user wants the end.
    waits: Option<Stop>,
}

#[derive(Default)]
struct Written {
    lines: AtomicU64,
    bytes: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl Background {
    /// Creates the file, or opens a named pipe as soon as it has a reader. With `waits` no line is left out while the run
    /// goes on: whoever writes waits instead.
    pub(crate) fn create(path: &Path, waits: Option<&Stop>) -> io::Result<Self> {
        let is_pipe = path.metadata().is_ok_and(|file| file.file_type().is_fifo());
        // Without a reader to open a pipe waits, for ever if none comes.
        let file = if is_pipe { None } else { Some(File::create(path)?) };
        let (queue, chunks) = sync_channel(WAITING);
        let written = Arc::<Written>::default();
        let (done, path) = (Arc::clone(&written), path.to_owned());
        let thread = thread::Builder::new().name("log".to_owned()).spawn(move || {
            if let Err(cause) = write_all(file, &path, &chunks, &done) {
                *done.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
            }
        })?;
        Ok(Background {
            chunk: Vec::with_capacity(CHUNK),
            lines: 0,
            handed: 0,
            missed: 0,
            queue: Some(queue),
            written,
            thread: Some(thread),
            is_pipe,
            waits: waits.cloned(),
        })
    }

    /// Writes a line, as far as anything waits for it.
    pub(crate) fn line(&mut self, line: impl fmt::Display) {
        // Memory takes any line.
        let _ = writeln!(self.chunk, "{line}");
        self.lines += 1;
        if self.chunk.len() >= CHUNK {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let Some(queue) = &self.queue else { return };
        let mut next = (chunk, lines);
        loop {
            match queue.try_send(next) {
                Ok(()) => self.handed += lines,
                Err(TrySendError::Full(back)) if self.waits.as_ref().is_some_and(|stop| !stop.asked()) => {
                    next = back;
                    thread::sleep(LOOK);
                    continue;
                }
                Err(TrySendError::Full(_)) => self.missed += lines,
                // It could not be written further, which is said at the end.
                Err(TrySendError::Disconnected(_)) => {}
            }
            return;
        }
    }

    /// Writes what is left, as long as the file takes any of it. Gives how many lines it did not get.
    ///
    /// # Errors
    /// What ended the writing.
    pub(crate) fn finish(&mut self, stop: &Stop) -> io::Result<u64> {
        self.hand_over();
        self.queue = None;
        let (mut bytes, mut since, mut asked) = (0, Instant::now(), None::<Instant>);
        // A write to a regular file always completes, so wait for it.
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let now = self.written.bytes.load(Ordering::Relaxed);
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
            let ended = stop.asked() && asked.get_or_insert_with(Instant::now).elapsed() > PATIENCE;
            let stalls = self.waits.is_none() && since.elapsed() > PATIENCE;
            if self.is_pipe && (ended || stalls) {
                break;
            }
            thread::sleep(LOOK);
        }
        match self.written.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(cause) => Err(cause),
            None => Ok(self.missed + self.handed - self.written.lines.load(Ordering::Relaxed)),
        }
    }
}

fn write_all(file: Option<File>, path: &Path, chunks: &Receiver<(Vec<u8>, u64)>, written: &Written) -> io::Result<()> {
    let mut file = match file {
        Some(file) => file,
        None => OpenOptions::new().write(true).open(path)?,
    };
    for (chunk, lines) in chunks {
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            match file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    written.bytes.fetch_add(taken as u64, Ordering::Relaxed);
                    rest = &rest[taken..];
                }
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        written.lines.fetch_add(lines, Ordering::Relaxed);
    }
    Ok(())
}
