//! Opens captures from files and standard input, and decompresses them.

use super::pipe::Pipe;
use crate::error::SimError;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Error, Read, stdin};
use std::path::Path;

/// The path that represents standard input and output.
const STANDARD: &str = "-";

/// Whether a path represents standard input or output.
#[must_use]
pub fn is_standard(path: &Path) -> bool {
    path == Path::new(STANDARD)
}

/// Maximum memory for decompression of an xz file, in KiB; `xz -9` needs 65 MiB. zstd has its own maximum, 128 MiB.
const MOST_MEMORY_KIB: u32 = 256 << 10;

type Bytes = Box<dyn Read + Send + Sync>;

/// Opens a file or standard input without decompressing it. A pipe ends as soon as the user ends the run.
///
/// # Errors
/// The file cannot be opened.
pub fn open_plain(path: &Path) -> Result<Box<dyn Read>, SimError> {
    let unreadable = |cause| SimError::Read { path: path.to_owned(), cause };
    if path.metadata().map_err(unreadable)?.is_file() {
        return Ok(Box::new(File::open(path).map_err(unreadable)?));
    }
    let pipe = path.to_owned();
    Ok(Box::new(Pipe::of(move || File::open(pipe)).map_err(unreadable)?))
}

/// Opens a file or standard input. Decompresses it if its first bytes identify a known format. Returns the bytes, and
/// whether they were compressed.
pub(super) fn open(path: &Path) -> Result<(Bytes, bool), SimError> {
    let unreadable = |cause| SimError::Read { path: path.to_owned(), cause };
    if is_standard(path) {
        return Pipe::of(|| Ok(stdin())).and_then(|pipe| unpack(Box::new(pipe))).map_err(unreadable);
    }
    let kind = path.metadata().map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(SimError::NotACapture { path: path.to_owned(), why: "it is a directory".to_owned() });
    }
    if kind.is_file() {
        return File::open(path).and_then(|file| unpack(Box::new(file))).map_err(unreadable);
    }
    // Opening a named pipe waits for its writer.
    let pipe = path.to_owned();
    Pipe::of(move || File::open(pipe)).and_then(|pipe| unpack(Box::new(pipe))).map_err(unreadable)
}

/// Detects the format from the first bytes. No capture is shorter than these.
fn unpack(mut file: Bytes) -> Result<(Bytes, bool), Error> {
    const FIRST: u64 = 6;
    let mut first = Vec::new();
    (&mut file).take(FIRST).read_to_end(&mut first)?;
    let start = first.clone();
    let file = BufReader::new(Cursor::new(first).chain(file));
    let unpacked: Bytes = match start[..] {
        [0x1f, 0x8b, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        // A frame, or a skippable frame, which some programs write first.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(zstd::stream::read::Decoder::with_buffer(file)?)
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, MOST_MEMORY_KIB)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
        [0x04, 0x22, 0x4d, 0x18, ..] => Box::new(Lz4(Some(lz4_flex::frame::FrameDecoder::new(file)))),
        _ => return Ok((Box::new(file.into_inner()), false)),
    };
    Ok((unpacked, true))
}

/// Reads consecutive frames as one stream. Each frame has its own decoder: the library keeps the buffers of its first
/// frame, and panics at a later frame with larger blocks. Any frame may be empty.
struct Lz4<R: BufRead>(Option<lz4_flex::frame::FrameDecoder<R>>);

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        while let Some(mut frame) = self.0.take() {
            let read = frame.read(buffer);
            let ended = matches!(read, Ok(0)) && !buffer.is_empty();
            if ended && !frame.get_mut().fill_buf()?.is_empty() {
                self.0 = Some(lz4_flex::frame::FrameDecoder::new(frame.into_inner()));
                continue;
            }
            self.0 = Some(frame);
            return read;
        }
        Ok(0)
    }
}
