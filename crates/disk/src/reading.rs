//! Directory listings.

use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Read position of an open directory.
///
/// Offsets are those of the backing file system, which stay valid while entries come and go.
#[derive(Default)]
pub(crate) struct Reading {
    /// Offset of the first buffered entry.
    at: u64,
    entries: VecDeque<Entry>,
}

/// A directory entry.
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) inode: u64,
    pub(crate) kind: FileType,
    /// Offset after the entry.
    pub(crate) next: u64,
}

/// Bytes read from the backing directory at once.
const BUFFER: usize = 32 * 1024;

impl Reading {
    /// Passes the entries from `offset` on to `take`, until `take` has no room for one.
    pub(crate) fn read(
        &mut self,
        directory: &OwnedFd,
        offset: u64,
        mut take: impl FnMut(&Entry) -> bool,
    ) -> Result<(), Errno> {
        // Starts over at offset 0, as rewinddir(3) requires.
        if offset == 0 || offset != self.at || self.entries.is_empty() {
            self.entries.clear();
            rustix::fs::seek(directory, SeekFrom::Start(offset))?;
            self.at = offset;
        }
        loop {
            let Some(entry) = self.entries.front() else {
                if !self.refill(directory)? {
                    return Ok(());
                }
                continue;
            };
            if !take(entry) {
                return Ok(());
            }
            self.at = entry.next;
            self.entries.pop_front();
        }
    }

    /// Reads more entries. False at the end of the directory.
    fn refill(&mut self, directory: &OwnedFd) -> Result<bool, Errno> {
        let mut buffer = Vec::with_capacity(BUFFER);
        let mut raw = RawDir::new(directory, buffer.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry?;
            self.entries.push_back(Entry {
                name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                inode: entry.ino(),
                kind: entry.file_type(),
                next: entry.next_entry_cookie(),
            });
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(!self.entries.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::collections::BTreeSet;

    #[test]
    fn reads_directories_in_pieces_of_any_size_from_any_offset() {
        let folder = tempfile::tempdir().expect("a folder");
        let names: BTreeSet<OsString> = (0..2_000).map(|i| format!("file-{i:04}").into()).collect();
        for name in &names {
            std::fs::write(folder.path().join(name), "").expect("it can be written");
        }
        let fd = openat(CWD, folder.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("a directory");
        for piece in [1, 7, 1_000, 10_000] {
            let mut reading = Reading::default();
            let mut found = BTreeSet::new();
            let (mut offset, mut before, mut stepped_back) = (0, 0, false);
            loop {
                let mut taken = Vec::new();
                let took = reading.read(&fd, offset, |entry| {
                    let room = taken.len() < piece;
                    if room {
                        taken.push((entry.name.clone(), entry.next));
                    }
                    room
                });
                took.expect("it can be read");
                let Some((_, next)) = taken.last() else { break };
                // Steps back once, as with telldir(3) and seekdir(3).
                if found.len() >= 700 && !stepped_back {
                    stepped_back = true;
                    offset = before;
                    continue;
                }
                (before, offset) = (offset, *next);
                found.extend(taken.into_iter().map(|(name, _)| name).filter(|name| name != "." && name != ".."));
            }
            assert_eq!(found, names, "in pieces of {piece}");
        }
    }
}
