//! Reads a pipe on a separate thread, so that a silent writer does not delay the end of a run.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Set to true when pipes should end.
static ENDED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// When the flag was first seen to be true.
static SEEN: OnceLock<Instant> = OnceLock::new();
/// Maximum silence of a pipe, and whether a pipe has exceeded it.
static LIMIT: OnceLock<Duration> = OnceLock::new();
static SILENT: AtomicBool = AtomicBool::new(false);
/// Interval between checks of the flag while no data arrives.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes per read, and number of such chunks to read ahead.
const CHUNK: usize = 64 << 10;
const AHEAD: usize = 4;

/// Once this flag is set, captures that are read from pipes end as if the writer had closed the pipe, and stalled
/// outputs are abandoned. Only the first call has an effect.
pub fn end_pipes_when(flag: Arc<AtomicBool>) {
    let _first = ENDED.set(flag);
}

/// Whether pipes have ended, so that truncated data is not an error.
pub(super) fn has_ended() -> bool {
    ended_for().is_some() || SILENT.load(Ordering::Relaxed)
}

/// From now on, a pipe that delivers nothing for this time ends as if its writer had closed it. For live runs with a
/// duration, which would otherwise wait for the first frame. Only the first call has an effect.
pub fn end_silent_pipes_after(limit: Duration) {
    let _first = LIMIT.set(limit);
}

/// Time since pipes ended; `None` if they have not.
pub fn ended_for() -> Option<Duration> {
    let ended = ENDED.get().is_some_and(|flag| flag.load(Ordering::Relaxed));
    ended.then(|| SEEN.get_or_init(Instant::now).elapsed())
}

/// A pipe, or another file that may temporarily have no data.
pub(super) struct Pipe {
    chunks: Mutex<Receiver<io::Result<Vec<u8>>>>,
    chunk: Vec<u8>,
    read: usize,
}

impl Pipe {
    /// Opens and reads the file on a separate thread.
    pub(super) fn of<R: Read>(open: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<Pipe> {
        let (give, chunks) = sync_channel(AHEAD);
        thread::Builder::new().name("pipe".to_owned()).spawn(move || {
            if let Err(cause) = open().and_then(|file| pump(file, &give)) {
                // The receiver may have been dropped.
                let _gone = give.send(Err(cause));
            }
        })?;
        Ok(Pipe { chunks: Mutex::new(chunks), chunk: Vec::new(), read: 0 })
    }
}

fn pump(mut file: impl Read, give: &SyncSender<io::Result<Vec<u8>>>) -> io::Result<()> {
    loop {
        let mut chunk = vec![0; CHUNK];
        let count = match file.read(&mut chunk) {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        chunk.truncate(count);
        if count == 0 || give.send(Ok(chunk)).is_err() {
            return Ok(());
        }
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let since = Instant::now();
        while self.read == self.chunk.len() {
            if LIMIT.get().is_some_and(|limit| since.elapsed() > *limit) {
                SILENT.store(true, Ordering::Relaxed);
            }
            let chunks = self.chunks.get_mut().unwrap_or_else(PoisonError::into_inner);
            match chunks.recv_timeout(LOOK) {
                Ok(chunk) => (self.chunk, self.read) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) if !has_ended() => {}
                Err(_) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.read);
        buffer[..count].copy_from_slice(&self.chunk[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
