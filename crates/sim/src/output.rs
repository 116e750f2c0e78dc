//! Output files of a run.
//!
//! Each file is written on its own thread behind a bounded queue. A stopped reader or a slow disk then delays neither
//! frames nor the end of a run.

use crate::capture::{ended_for, is_standard};
use crate::error::SimError;
use measure::Tally;
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Number of bytes that callers gather before a write.
pub(crate) const WRITE_SIZE: usize = 256 << 10;
/// How long, at the end, a file that is not a regular file may accept no byte before it is abandoned. After a signal,
/// this is the total for all such files.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval between checks for space in the queue, and for the end.
const LOOK: Duration = Duration::from_millis(2);

/// The caller's behaviour when the queue of a file is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits until the user ends the run. For virtual time, where the file is the result and there is no real-time
    /// clock.
    Wait,
    /// Drops the records and counts them. For live runs.
    LeaveOut,
}

impl WhenFull {
    /// Number of writes in the queue of a file: 4 MiB if the run can wait for the disk, otherwise 64 MiB.
    const fn waiting(self) -> usize {
        match self {
            WhenFull::Wait => 16,
            WhenFull::LeaveOut => 256,
        }
    }
}

/// Extensions of compressed files that are read but not written.
const READ_ONLY: [&str; 3] = ["xz", "bz2", "lz4"];

/// Compression of a file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// The compression for a file name, and the name without its extension.
    pub(crate) fn of(path: &Path) -> (Packing, PathBuf) {
        let packing = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => return (Packing::None, path.to_owned()),
        };
        (packing, path.with_extension(""))
    }

    /// Compresses `bytes` into a separate member (gzip) or frame (zstd). Files may contain several of these.
    fn pack(self, bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
        match self {
            Packing::None => Ok(None),
            Packing::Gzip => {
                let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packed.write_all(bytes)?;
                packed.finish().map(Some)
            }
            Packing::Zstd => zstd::bulk::compress(bytes, 1).map(Some),
        }
    }
}

/// Finds the records in the bytes of an output.
#[derive(Clone, Copy)]
pub(crate) struct Records {
    /// Returns the end of the last whole record within the first `end` of these bytes.
    pub(crate) whole: fn(&[u8], usize) -> usize,
    /// Counts whole records.
    pub(crate) count: fn(&[u8]) -> Tally,
}

/// A file that is written in whole records, or standard output. If the disk is full, the file is truncated after the
/// last whole record. A compressed file is truncated after the last complete write, because each write is compressed
/// separately.
pub(crate) struct Output {
    path: PathBuf,
    queue: Option<SyncSender<Piece>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    state: Arc<State>,
    when_full: WhenFull,
    /// Whether a write may never complete, because the file is not a regular file.
    can_stall: bool,
    given: Tally,
    missing: Tally,
}

/// Bytes of one write, and the records in them.
struct Piece {
    bytes: Vec<u8>,
    records: Tally,
}

/// Progress of the writer thread.
#[derive(Default)]
struct State {
    stored: Mutex<Tally>,
    bytes: AtomicU64,
}

impl State {
    fn stored(&self) -> MutexGuard<'_, Tally> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    /// Creates the file, or truncates it. A named pipe without a reader is opened once a reader appears.
    pub(crate) fn create(path: &Path, when_full: WhenFull, records: Records) -> Result<Self, SimError> {
        let unwritable = |cause| SimError::Write { path: path.to_owned(), cause };
        if path.extension().is_some_and(|extension| READ_ONLY.iter().any(|name| extension == *name)) {
            return Err(SimError::Packing { path: path.to_owned() });
        }
        let (file, regular) = open(path).map_err(unwritable)?;
        let (queue, pieces) = sync_channel(when_full.waiting());
        let state = Arc::<State>::default();
        let writer = Writer {
            path: path.to_owned(),
            packing: Packing::of(path).0,
            length: (regular && !is_standard(path)).then_some(0),
            records,
            state: Arc::clone(&state),
        };
        let thread = thread::Builder::new().name("file".to_owned()).spawn(move || writer.run(file, &pieces));
        Ok(Output {
            path: path.to_owned(),
            queue: Some(queue),
            thread: Some(thread.map_err(unwritable)?),
            state,
            when_full,
            can_stall: !regular,
            given: Tally::default(),
            missing: Tally::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of records that are in the file.
    pub(crate) fn stored(&self) -> Tally {
        *self.state.stored()
    }

    /// Number of records that are not in the file. Known once the file has ended or failed.
    pub(crate) fn missing(&self) -> Tally {
        self.missing
    }

    /// Hands `bytes`, which contain these whole `records`, to the writer thread. For a header, `records` is zero.
    ///
    /// # Errors
    /// An earlier write failed.
    pub(crate) fn write(&mut self, bytes: Vec<u8>, records: Tally) -> io::Result<()> {
        self.given.add_all(records);
        let mut next = Piece { bytes, records };
        loop {
            let Some(queue) = &self.queue else {
                self.missing.add_all(records);
                return Ok(());
            };
            match queue.try_send(next) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) if self.when_full == WhenFull::Wait && ended_for().is_none() => {
                    next = back;
                    thread::sleep(LOOK);
                }
                Err(TrySendError::Full(_)) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return self.close(),
            }
        }
    }

    /// Ends the file. Waits until everything is written, but not for a stalled reader or, after a signal, for a disk that
    /// hangs: see [`PATIENCE`].
    ///
    /// # Errors
    /// A write failed.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.await_thread(self.when_full == WhenFull::LeaveOut)
    }

    fn await_thread(&mut self, gives_up: bool) -> io::Result<()> {
        self.queue = None;
        let (mut bytes, mut since) = (0, Instant::now());
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let now = self.state.bytes.load(Ordering::Relaxed);
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
            let stalls = since.elapsed() > PATIENCE;
            let ended = ended_for().is_some_and(|ended| ended > PATIENCE);
            // After a signal, even a disk is not waited for if it hangs, as network file systems do.
            if self.can_stall && (gives_up && stalls || ended) || stalls && ended {
                // The thread is left behind and ends with the process.
                self.thread = None;
                self.missing = self.given.since(self.stored());
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        self.close()
    }

    /// Waits for the thread to end and returns its result.
    fn close(&mut self) -> io::Result<()> {
        self.queue = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let result = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes it failed")));
        self.missing = self.given.since(self.stored());
        result
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // Callers finish explicitly and see the error. This covers runs that ended early for another reason.
        let _ = self.await_thread(true);
    }
}

/// Opens a file for writing; `None` for a named pipe that has no reader. Also returns whether it is a regular file.
fn open(path: &Path) -> io::Result<(Option<File>, bool)> {
    let is_pipe = path.metadata().is_ok_and(|file| file.file_type().is_fifo());
    let file = if is_standard(path) {
        File::from(io::stdout().as_fd().try_clone_to_owned()?)
    } else if is_pipe {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Err(cause) if cause.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                return Ok((None, false));
            }
            opened => {
                let file = opened?;
                fcntl_setfl(&file, OFlags::empty())?;
                file
            }
        }
    } else {
        File::create(path)?
    };
    let regular = file.metadata()?.is_file();
    Ok((Some(file), regular))
}

/// The writer thread of a file.
struct Writer {
    path: PathBuf,
    packing: Packing,
    /// Length in bytes of the whole records in the file. `None` for standard output, which may already contain data,
    /// and for files that cannot be truncated.
    length: Option<u64>,
    records: Records,
    state: Arc<State>,
}

impl Writer {
    fn run(mut self, file: Option<File>, pieces: &Receiver<Piece>) -> io::Result<()> {
        let mut file = match file {
            Some(file) => file,
            None => OpenOptions::new().write(true).open(&self.path)?,
        };
        pieces.iter().try_for_each(|piece| self.write(&mut file, &piece))
    }

    fn write(&mut self, file: &mut File, piece: &Piece) -> io::Result<()> {
        let packed = self.packing.pack(&piece.bytes)?;
        let content = packed.as_deref().unwrap_or(&piece.bytes);
        let mut written = 0;
        let failed = loop {
            if written == content.len() {
                break None;
            }
            match file.write(&content[written..]) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(more) => {
                    written += more;
                    self.state.bytes.fetch_add(more as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Another program that shares standard output may have made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(LOOK),
                Err(error) => break Some(error),
            }
        };
        let Some(error): Option<io::Error> = failed else {
            self.length = self.length.map(|length| length + content.len() as u64);
            self.state.stored().add_all(piece.records);
            return Ok(());
        };
        let has_records = piece.records.frames > 0 && packed.is_none();
        let kept = if has_records { (self.records.whole)(&piece.bytes, written) } else { 0 };
        self.state.stored().add_all((self.records.count)(&piece.bytes[..kept]));
        if let Some(length) = self.length {
            // A pipe cannot be truncated.
            let _ = file.set_len(length + kept as u64);
        }
        Err(error)
    }
}

/// A text file that is written line by line.
pub struct Lines {
    output: Output,
    gathered: Vec<u8>,
}

/// Lines as records. Their bytes are not counted.
const LINES: Records = Records {
    whole: |bytes, end| bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
    count: |bytes| Tally { frames: bytes.iter().filter(|byte| **byte == b'\n').count() as u64, bytes: 0 },
};

impl Lines {
    /// Creates the file, or truncates it. A named pipe without a reader is opened once a reader appears.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path, when_full: WhenFull) -> Result<Self, SimError> {
        Ok(Lines { output: Output::create(path, when_full, LINES)?, gathered: Vec::new() })
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.output.path()
    }

    /// Adds a line. It may be written later.
    ///
    /// # Errors
    /// An earlier write failed.
    pub fn line(&mut self, line: impl std::fmt::Display) -> Result<(), SimError> {
        writeln!(self, "{line}").map_err(|cause| self.failed(cause))
    }

    /// Ends the file. Returns the number of lines that its reader did not accept.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(&mut self) -> Result<u64, SimError> {
        let ended = self.flush().and_then(|()| self.output.finish());
        ended.map(|()| self.missing()).map_err(|cause| self.failed(cause))
    }

    /// Number of lines that are not in the file. Known once the file has ended or failed.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.output.missing().frames
    }

    fn failed(&self, cause: io::Error) -> SimError {
        SimError::Write { path: self.output.path().to_owned(), cause }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= WRITE_SIZE && bytes.ends_with(b"\n") {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.gathered);
        let records = (LINES.count)(&bytes);
        self.output.write(bytes, records)
    }
}
