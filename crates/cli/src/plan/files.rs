//! Files that targets name, such as tables of laws and captures whose gaps are a law, and files that a run writes.

use super::capture_anomalies;
use super::free_memory::free_memory;
use crate::output;
use engine::schedules::Files;
use measure::Caveat;
use packet::HeapFrame;
use sim::{CaptureReader, PcapSource, Source, is_standard};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use units::{ParseError, Time};

/// Read limit for pipes and devices, which may never end.
const ENDLESS: usize = 256 << 20;

/// Reads a whole text. Refuses binary data at the first zero byte, so that a device such as `/dev/zero` does not fill
/// the memory.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    read(path, PER_BYTE)
}

/// Reads a scenario like [`read_text`].
pub(crate) fn read_scenario_text(path: &Path) -> io::Result<String> {
    read(path, PER_BYTE_OF_SCENARIO)
}

fn read(path: &Path, per_byte: u64) -> io::Result<String> {
    let broken = |what: String| io::Error::new(ErrorKind::InvalidData, what);
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    let endless = !metadata.is_file();
    if let Some(lacking) = lacking_memory(metadata.len(), per_byte) {
        return Err(io::Error::new(ErrorKind::OutOfMemory, lacking));
    }
    let mut text = Vec::new();
    loop {
        let before = text.len();
        if (&mut file).take(1 << 20).read_to_end(&mut text)? == 0 {
            break;
        }
        if let Some(position) = text[before..].iter().position(|byte| *byte == 0) {
            return Err(broken(format!("byte {} is zero, so this is not text", before + position + 1)));
        }
        if endless && text.len() > ENDLESS {
            return Err(broken(format!(
                "it is not a regular file, and {} MiB were read without an end",
                ENDLESS >> 20
            )));
        }
    }
    // The length of a pipe is known only now.
    if let Some(lacking) = lacking_memory(text.len() as u64, per_byte).filter(|_| endless) {
        return Err(io::Error::new(ErrorKind::OutOfMemory, lacking));
    }
    // Windows editors write an invisible byte order mark before the text.
    let mark = if text.starts_with(MARK) { MARK.len() } else { 0 };
    String::from_utf8(text.split_off(mark)).map_err(|error| broken(error.utf8_error().to_string()))
}

/// Texts up to this size, in bytes, are read without a check of the memory.
const SMALL: u64 = 4 << 20;
/// Bytes of memory per byte of text: the text itself, its values, and the spare capacity of growing vectors.
const PER_BYTE: u64 = 8;
/// The same for scenarios, each of whose values has a position: tables with dotted names take most.
const PER_BYTE_OF_SCENARIO: u64 = 256;

/// Returns why a text of this length does not fit in memory, or `None` if it fits.
fn lacking_memory(length: u64, per_byte: u64) -> Option<String> {
    let (bytes, megabytes) = (length.saturating_mul(per_byte), |bytes: u64| output::thousands(bytes / 1_000_000));
    let (free, leaves, _) = free_memory().into_iter().min_by_key(|(free, ..)| *free)?;
    (length > SMALL && bytes > free).then(|| {
        let (length, needs, free) = (megabytes(length), megabytes(bytes), megabytes(free));
        format!("its {length} MB of text take up to {needs} MB of memory, and {leaves} {free} MB")
    })
}

/// U+FEFF in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Files of this machine.
pub(crate) struct OnDisk;

impl Files for OnDisk {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        read_text(path).map_err(|cause| {
            let remedy = match cause.kind() {
                ErrorKind::OutOfMemory => {
                    "give fewer lines, such as a sample of them by shuf -n 1000000, or more memory (ulimit -v, the machine's)"
                }
                _ => "check the path, its permissions, and that it is a text file",
            };
            ParseError::new(format!("cannot read {}: {cause}", path.display()), remedy)
        })
    }

    fn capture(&self, path: &Path) -> Result<(), ParseError> {
        // A pipe can be read only once, so it is left to the run.
        if is_standard(path) || path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Ok(());
        }
        CaptureReader::open(path).map(drop).map_err(|error| {
            let problem = error.to_string();
            let (what, remedy) = problem.rsplit_once(": ").unwrap_or((&problem, "give another capture"));
            ParseError::new(what, remedy)
        })
    }

    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
        let (gaps, warnings) = read_gaps(path)?;
        warnings.iter().for_each(|warning| output::warn(warning.line()));
        Ok(gaps)
    }

    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError> {
        let broken = |error: sim::SimError| ParseError::new(error.to_string(), "name a complete capture");
        let mut reader = CaptureReader::open(path).map_err(broken)?;
        let mut frame = HeapFrame::default();
        let mut read = 0;
        while reader.read(&mut frame).map_err(broken)?.is_some() {
            read += 1;
            if read == number {
                return Ok(packet::Frame::bytes(&frame).to_vec());
            }
        }
        Err(ParseError::new(format!("{} has {read} frames, not {number}", path.display()), "name one of them"))
    }

    #[cfg(feature = "live")]
    fn memory(&self) -> Option<engine::schedules::Advise> {
        Some(dpdk::prefer_huge_pages)
    }
}

/// Returns the gaps between the records of a capture in ps, and caveats about skipped records and shortened gaps.
fn read_gaps(path: &Path) -> Result<(Vec<u64>, Vec<Caveat>), ParseError> {
    let broken = |error: sim::SimError| ParseError::new(error.to_string(), "name a complete capture");
    let mut source = PcapSource::open(path).map_err(broken)?;
    let mut frame = HeapFrame::default();
    let mut last: Option<Time> = None;
    let mut gaps = Vec::new();
    while let Some(arrival) = source.arrival() {
        let before = last.replace(arrival);
        gaps.extend(before.map(|before| arrival.since(before).as_ps()));
        source.take(&mut frame);
    }
    source.failure().map_or(Ok(()), |error| Err(broken(error)))?;
    let warnings = source.anomalies().map(|anomalies| capture_anomalies::warnings(path.display(), anomalies));
    Ok((gaps, warnings.unwrap_or_default()))
}

/// Files of this machine. Records the paths that were read, so that no output overwrites them, and the caveats about
/// their contents for the report.
#[derive(Default)]
pub(crate) struct RecordedFiles {
    paths: RefCell<Vec<PathBuf>>,
    caveats: RefCell<Vec<Caveat>>,
}

impl RecordedFiles {
    fn list(&self, path: &Path) {
        self.paths.borrow_mut().push(path.to_owned());
    }

    /// Returns the files that were read, and the caveats about them.
    pub(crate) fn into_parts(self) -> (Vec<PathBuf>, Vec<Caveat>) {
        (self.paths.into_inner(), self.caveats.into_inner())
    }
}

impl Files for RecordedFiles {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        self.list(path);
        OnDisk.text(path)
    }

    fn capture(&self, path: &Path) -> Result<(), ParseError> {
        OnDisk.capture(path)
    }

    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
        self.list(path);
        let (gaps, warnings) = read_gaps(path)?;
        let mut caveats = self.caveats.borrow_mut();
        // The same caveat can occur twice: a scenario may be read more than once, and several pipelines may use one
        // file.
        for warning in warnings {
            if caveats.iter().all(|known| known.line() != warning.line()) {
                caveats.push(warning);
            }
        }
        Ok(gaps)
    }

    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError> {
        self.list(path);
        OnDisk.frame(path, number)
    }

    fn memory(&self) -> Option<engine::schedules::Advise> {
        OnDisk.memory()
    }
}

/// Whether a capture can be read more than once. Pipes and standard input cannot.
pub(crate) fn is_read_again(path: &Path) -> bool {
    path.is_file() && !is_standard(path)
}

/// Whether the path is a named pipe. A pipe is opened for writing once it has a reader.
#[cfg(feature = "live")]
pub(crate) fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.metadata().is_ok_and(|file| file.file_type().is_fifo())
}

/// Whether two names refer to one file, even if the file does not exist yet or has several links.
pub(crate) fn same(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    if let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) {
        return (a.dev(), a.ino()) == (b.dev(), b.ino());
    }
    let resolved = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        folder.canonicalize().ok().zip(path.file_name()).map(|(folder, name)| folder.join(name))
    };
    resolved(a).is_some_and(|a| resolved(b) == Some(a))
}

/// Returns the file name for a direction or class: `log.csv` becomes `log-backward.csv`.
pub(crate) fn beside(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-{name}{extension}"))
}

#[cfg(test)]
mod tests {
    use super::{beside, read_text};
    use std::fs;
    use std::path::Path;

    #[test]
    fn byte_order_mark_is_not_part_of_a_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.txt");
        for (bytes, text) in [("\u{feff}0s 5Mbps\r\n", "0s 5Mbps\r\n"), ("0s \u{feff}", "0s \u{feff}"), ("", "")] {
            fs::write(&file, bytes).expect("it can be written");
            assert_eq!(read_text(&file).expect("a text"), text);
        }
    }

    #[test]
    fn each_direction_has_its_own_file() {
        assert_eq!(beside(Path::new("a/log.csv"), "backward"), Path::new("a/log-backward.csv"));
        assert_eq!(beside(Path::new("log"), "forward"), Path::new("log-forward"));
    }
}
