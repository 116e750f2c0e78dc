//! Random operations, each done in two directories. The two results must be equal.

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A simple random number generator, good enough to choose operations.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The result of an operation, in a form that can be compared.
type Outcome = Result<String, Errno>;

/// Two directories, and the files open in each.
pub(crate) struct Pair {
    roots: [PathBuf; 2],
    open: Vec<[File; 2]>,
    dice: Dice,
    /// By name: how many operations were done, and how many of them succeeded.
    pub(crate) done: BTreeMap<&'static str, (u64, u64)>,
}

impl Pair {
    pub(crate) fn new(tried: &Path, mirror: &Path, seed: u64) -> Self {
        let roots = [tried.to_owned(), mirror.to_owned()];
        Pair { roots, open: Vec::new(), dice: Dice::new(seed), done: BTreeMap::new() }
    }

    /// A name in one of a few directories, so that operations collide.
    fn name(&mut self) -> PathBuf {
        let mut path = PathBuf::new();
        for _ in 0..[0, 0, 0, 1, 1, 2][self.dice.below(6) as usize] {
            path.push(format!("d{}", self.dice.below(4)));
        }
        let kind = ["f", "d"][usize::from(self.dice.below(5) == 0)];
        path.join(format!("{kind}{}", self.dice.below(if kind == "d" { 4 } else { 12 })))
    }

    /// Does one operation in both directories and compares the results.
    pub(crate) fn step(&mut self) {
        let (name, outcomes) = self.operation();
        assert_eq!(outcomes[0], outcomes[1], "{name}, after {:?}", self.done);
        let counts = self.done.entry(name).or_default();
        counts.0 += 1;
        counts.1 += u64::from(outcomes[0].is_ok());
    }

    fn both(&self, operation: impl Fn(&Path) -> Outcome) -> [Outcome; 2] {
        [operation(&self.roots[0]), operation(&self.roots[1])]
    }

    fn opened(&self, file: usize, operation: impl Fn(&File) -> Outcome) -> [Outcome; 2] {
        let [tried, mirror] = &self.open[file];
        [operation(tried), operation(mirror)]
    }

    fn operation(&mut self) -> (&'static str, [Outcome; 2]) {
        let path = self.name();
        let other = self.name();
        let dice = self.dice.below(100);
        let number = self.dice.below(1 << 20);
        // Usually a small write, sometimes more than the kernel puts into one operation.
        let length = if number.is_multiple_of(50) { 1_500_000 } else { number as usize % 20_000 };
        let offset = self.dice.below(60_000);
        let data: Vec<u8> = (0..length).map(|i| (i as u64 * 31 + number) as u8).collect();
        let open = (!self.open.is_empty()).then(|| number as usize % self.open.len());
        match (dice, open) {
            (0..8, _) => {
                let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
                for (bit, flag) in [OFlags::CREATE, OFlags::CREATE, OFlags::TRUNC, OFlags::APPEND, OFlags::EXCL]
                    .into_iter()
                    .enumerate()
                {
                    if number >> bit & 1 == 1 {
                        flags |= flag;
                    }
                }
                ("open", self.open_both(&path, flags))
            }
            (8..11, Some(file)) => {
                self.open.swap_remove(file);
                ("close", [Ok(String::new()), Ok(String::new())])
            }
            (11..27, Some(file)) => ("write", self.opened(file, |f| same(f.write_at(&data, offset)))),
            (27..41, Some(file)) => (
                "read",
                self.opened(file, |f| {
                    let mut read = vec![0; length];
                    let n = f.read_at(&mut read, offset).map_err(errno)?;
                    Ok(format!("{n} {:x}", sum(&read[..n])))
                }),
            ),
            (41..44, Some(file)) => ("ftruncate", self.opened(file, |f| same(f.set_len(offset)))),
            (44..46, Some(file)) => (
                "fallocate",
                self.opened(file, |f| {
                    let modes = [
                        FallocateFlags::empty(),
                        FallocateFlags::KEEP_SIZE,
                        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                        FallocateFlags::ZERO_RANGE,
                    ];
                    rustix::fs::fallocate(f, modes[number as usize % 4], offset, length as u64 + 1)?;
                    Ok(String::new())
                }),
            ),
            (46..48, Some(file)) => ("fsync", self.opened(file, |f| same(f.sync_data()))),
            (48..51, Some(file)) => ("fstat", self.opened(file, |f| Ok(shown(&f.metadata().map_err(errno)?)))),
            (51..57, _) => {
                ("stat", self.both(|root| Ok(shown(&fs::symlink_metadata(root.join(&path)).map_err(errno)?))))
            }
            (57..62, _) => ("mkdir", self.both(|root| same(fs::create_dir(root.join(&path))))),
            (62..65, _) => ("rmdir", self.both(|root| same(fs::remove_dir(root.join(&path))))),
            (65..70, _) => ("unlink", self.both(|root| same(fs::remove_file(root.join(&path))))),
            (70..76, _) => (
                "rename",
                self.both(|root| {
                    let flags = match number % 4 {
                        0 => RenameFlags::NOREPLACE,
                        1 => RenameFlags::EXCHANGE,
                        _ => RenameFlags::empty(),
                    };
                    rustix::fs::renameat_with(CWD, root.join(&path), CWD, root.join(&other), flags)?;
                    Ok(String::new())
                }),
            ),
            (76..79, _) => (
                "link",
                self.both(|root| {
                    rustix::fs::linkat(CWD, root.join(&path), CWD, root.join(&other), AtFlags::empty())?;
                    Ok(String::new())
                }),
            ),
            (79..81, _) => ("symlink", self.both(|root| same(std::os::unix::fs::symlink(&path, root.join(&other))))),
            (81..83, _) => {
                ("readlink", self.both(|root| Ok(format!("{:?}", fs::read_link(root.join(&path)).map_err(errno)?))))
            }
            (83..86, _) => (
                "chmod",
                self.both(|root| {
                    let mode = Mode::from_raw_mode(number as u32 & 0o7777 | 0o600);
                    rustix::fs::chmodat(CWD, root.join(&path), mode, AtFlags::empty())?;
                    Ok(String::new())
                }),
            ),
            (86..89, _) => (
                "utimes",
                self.both(|root| {
                    let time = rustix::fs::Timespec { tv_sec: number as i64 * 1_000, tv_nsec: offset as i64 };
                    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
                    rustix::fs::utimensat(CWD, root.join(&path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
                    Ok(String::new())
                }),
            ),
            (89..92, _) => (
                "setxattr",
                self.both(|root| {
                    let value = &data[..data.len().min(500)];
                    let name = ["user.a", "user.b"][number as usize % 2];
                    rustix::fs::setxattr(root.join(&path), name, value, XattrFlags::empty())?;
                    Ok(String::new())
                }),
            ),
            (92..94, _) => (
                "removexattr",
                self.both(|root| {
                    rustix::fs::removexattr(root.join(&path), ["user.a", "user.b"][number as usize % 2])?;
                    Ok(String::new())
                }),
            ),
            (94..96, _) => (
                "truncate",
                self.both(|root| {
                    let file = fs::OpenOptions::new().write(true).open(root.join(&path)).map_err(errno)?;
                    same(file.set_len(offset))
                }),
            ),
            (96..98, _) => (
                "readdir",
                self.both(|root| {
                    let mut names = Vec::new();
                    for entry in fs::read_dir(root.join(&path)).map_err(errno)? {
                        let entry = entry.map_err(errno)?;
                        names.push((entry.file_name(), entry.file_type().map_err(errno)?.is_dir()));
                    }
                    names.sort();
                    Ok(format!("{names:?}"))
                }),
            ),
            _ => (
                "copy",
                self.both(|root| {
                    let n = fs::copy(root.join(&path), root.join(&other)).map_err(errno)?;
                    Ok(n.to_string())
                }),
            ),
        }
    }

    fn open_both(&mut self, path: &Path, flags: OFlags) -> [Outcome; 2] {
        let open = |root: &PathBuf| rustix::fs::open(root.join(path), flags, Mode::from_raw_mode(0o644));
        let (tried, mirror) = (open(&self.roots[0]), open(&self.roots[1]));
        let outcome = |opened: &Result<_, Errno>| match opened {
            Ok(_) => Ok("opened".to_owned()),
            Err(error) => Err(*error),
        };
        let outcomes = [outcome(&tried), outcome(&mirror)];
        if let (Ok(tried), Ok(mirror)) = (tried, mirror) {
            // Few files, so each is used more than once.
            if self.open.len() >= 16 {
                self.open.swap_remove(0);
            }
            self.open.push([File::from(tried), File::from(mirror)]);
        }
        outcomes
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err gives it")]
fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn same<T: std::fmt::Debug>(result: std::io::Result<T>) -> Outcome {
    result.map(|value| format!("{value:?}")).map_err(errno)
}

/// The metadata that two equal files share: everything but the inode and the times.
fn shown(metadata: &fs::Metadata) -> String {
    let kind = metadata.file_type();
    // The size of a directory depends on the file system and only grows.
    let size = if kind.is_dir() { 0 } else { metadata.size() };
    format!("{:o} {} {} {} {size}", metadata.mode(), metadata.nlink(), metadata.uid(), metadata.gid())
}

fn sum(data: &[u8]) -> u64 {
    // FNV-1a.
    data.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Everything below a directory: names, kinds, modes, contents, attributes and links. Times are included only if they
/// were set, since others differ between two directories.
pub(crate) fn listing(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("a folder can be read") {
            let name = folder.join(entry.expect("an entry").file_name());
            let path = root.join(&name);
            let metadata = fs::symlink_metadata(&path).expect("it is there");
            let mut text = shown(&metadata);
            if metadata.is_dir() {
                folders.push(name.clone());
            } else if metadata.is_symlink() {
                text += &format!(" -> {:?}", fs::read_link(&path).expect("a link"));
            } else if metadata.is_file() {
                text += &format!(" {:x}", sum(&fs::read(&path).expect("it can be read")));
            }
            if !metadata.is_symlink() {
                for attribute in ["user.a", "user.b"] {
                    let mut value = vec![0; 1_000];
                    if let Ok(length) = rustix::fs::getxattr(&path, attribute, &mut value[..]) {
                        text += &format!(" {attribute}={:x}", sum(&value[..length]));
                    }
                }
                // The operations set only times in the past, so an old time was set and a recent one was not.
                if metadata.mtime() < 1_600_000_000 {
                    text += &format!(" {}.{:09}", metadata.mtime(), metadata.mtime_nsec());
                }
            }
            found.insert(name, text);
        }
    }
    found
}
