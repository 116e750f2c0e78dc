//! Output files of a run.

use crate::capture::is_standard;
use crate::error::SimError;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Compression of a file, by its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// The compression for a file name, and the name without that extension.
    pub(crate) fn of(path: &Path) -> (Packing, PathBuf) {
        let packing = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => return (Packing::None, path.to_owned()),
        };
        (packing, path.with_extension(""))
    }

    /// Compresses `bytes` into a separate member (gzip) or frame (zstd); files may contain several in a row.
    fn pack(self, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
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

/// A file that is written in whole records, or standard output. If the disk is full, the file is truncated after the
/// last whole record; a compressed file after the last complete write, because each write is compressed separately.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
    packing: Packing,
    /// Length in bytes of the whole records in the file. `None` for standard output, which may have contained data
    /// before.
    length: Option<u64>,
    /// Number of bytes of the last write that are in the file.
    kept: usize,
}

impl Output {
    /// Creates the file, or truncates it.
    pub(crate) fn create(path: &Path) -> std::result::Result<Self, SimError> {
        let unwritable = |cause| SimError::Write { path: path.to_owned(), cause };
        let standard = is_standard(path);
        let file = match standard {
            true => std::io::stdout().as_fd().try_clone_to_owned().map(File::from),
            false => File::create(path),
        };
        let file = file.map_err(unwritable)?;
        let (packing, length) = (Packing::of(path).0, (!standard).then_some(0));
        Ok(Output { path: path.to_owned(), file, packing, length, kept: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes of the last write that are in the file.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Writes `bytes`. `whole` returns the end of the last whole record within the given number of bytes.
    pub(crate) fn write(&mut self, bytes: &[u8], whole: impl Fn(usize) -> usize) -> Result<()> {
        let packed = self.packing.pack(bytes)?;
        let content = packed.as_deref().unwrap_or(bytes);
        let mut written = 0;
        let failed = loop {
            if written == content.len() {
                break None;
            }
            match self.file.write(&content[written..]) {
                Ok(0) => break Some(ErrorKind::WriteZero.into()),
                Ok(more) => written += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Some(error),
            }
        };
        let Some(error): Option<Error> = failed else {
            self.kept = bytes.len();
            self.length = self.length.map(|length| length + content.len() as u64);
            return Ok(());
        };
        self.kept = if packed.is_some() { 0 } else { whole(written) };
        if let Some(length) = self.length {
            // A pipe cannot be truncated.
            let _ = self.file.set_len(length + self.kept as u64);
        }
        Err(error)
    }
}
