//! Buffered bytes of a capture.

use std::io::{ErrorKind, Read, Result};

/// Number of bytes requested from the file at once.
const READ_SIZE: usize = 256 << 10;

/// Reads ahead, but never waits for more bytes than requested, so that data from a pipe is available as soon as it is
/// written.
pub(super) struct Bytes {
    file: Box<dyn Read + Send + Sync>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl Bytes {
    pub(super) fn new(file: Box<dyn Read + Send + Sync>) -> Self {
        Bytes { file, buffer: vec![0; READ_SIZE], start: 0, end: 0, offset: 0 }
    }

    /// Number of bytes consumed so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next `count` bytes, without consuming them; fewer only at the end of the file.
    pub(super) fn peek(&mut self, count: usize) -> Result<&[u8]> {
        if self.end - self.start < count {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.buffer.len() < count {
                self.buffer.resize(count, 0);
            }
            while self.end < count {
                match self.file.read(&mut self.buffer[self.end..]) {
                    Ok(0) => break,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + count)])
    }

    /// Consumes `count` bytes that were peeked at.
    pub(super) fn take(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time, and panics if read after its end.
    struct Slow(Vec<u8>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            assert!(!self.0.is_empty(), "more was asked for than is needed");
            buffer[0] = self.0.remove(0);
            Ok(1)
        }
    }

    #[test]
    fn waits_for_no_more_bytes_than_requested() {
        let mut bytes = Bytes::new(Box::new(Slow(vec![1, 2, 3, 4, 5])));
        assert_eq!(bytes.peek(2).expect("readable"), [1, 2]);
        bytes.take(1);
        assert_eq!(bytes.peek(4).expect("readable"), [2, 3, 4, 5]);
        bytes.take(4);
        assert_eq!(bytes.offset(), 5);
    }

    #[test]
    fn returns_the_rest_at_the_end() {
        let long = vec![7; READ_SIZE + 10];
        let mut bytes = Bytes::new(Box::new(std::io::Cursor::new(long)));
        bytes.peek(5).expect("readable");
        bytes.take(5);
        assert_eq!(bytes.peek(READ_SIZE + 100).expect("readable").len(), READ_SIZE + 5);
    }
}
