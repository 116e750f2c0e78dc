//! Which inode is meant: the kernel's numbers, and the files behind them.

use crate::limits::Limits;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every inode that the kernel knows, by a handle that has no rights but to name it.
///
/// A handle stays that of the same inode whatever is renamed or removed, here or behind our back. There
/// are not handles enough for all inodes of a large tree: those not used for long are closed, and
/// opened anew where the inode was last seen. An inode whose name is gone keeps its handle, which is
/// all there is of it.
pub(crate) struct Nodes {
    table: Mutex<Table>,
    /// The device of the root, whose inode numbers are shown as they are.
    device: u64,
    /// Handles that may be open at once.
    most: usize,
    /// What the mount of a file may forbid: nothing is shown whose mount forbids more.
    limits: Limits,
}

struct Table {
    by_number: HashMap<u64, Node>,
    by_file: HashMap<File, u64>,
    /// Inodes of other devices have had so many numbers.
    foreign: u64,
    /// Handles that are open.
    open: usize,
    /// Counts uses, to tell which was before which.
    clock: u64,
}

/// Device and inode number.
type File = (u64, u64);

struct Node {
    handle: Option<Arc<OwnedFd>>,
    file: File,
    /// How often the kernel was told of it.
    lookups: u64,
    /// Where it was last seen.
    place: Place,
    /// It is not there any more.
    displaced: bool,
    used: u64,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq)]
struct Place {
    parent: u64,
    name: OsString,
}

impl Place {
    fn new(parent: u64, name: &OsStr) -> Self {
        Place { parent, name: name.to_owned() }
    }
}

/// An inode whose name is about to change; its handle stays open meanwhile.
pub(crate) struct Held {
    number: u64,
    _handle: Arc<OwnedFd>,
}

/// The kernel's number of the root.
pub(crate) const ROOT: u64 = 1;
/// Where numbers of inodes of other devices begin, which could be taken on the root's.
const FOREIGN: u64 = 1 << 63;

impl Nodes {
    /// Those of a directory, with at most so many handles open.
    pub(crate) fn new(root: OwnedFd, stat: &Stat, most: usize, limits: Limits) -> Self {
        let file = (stat.st_dev, stat.st_ino);
        let node = Node {
            handle: Some(Arc::new(root)),
            file,
            lookups: 1,
            place: Place::new(ROOT, OsStr::new(".")),
            // There is no way to it but its handle.
            displaced: true,
            used: 0,
        };
        let by_number = HashMap::from([(ROOT, node)]);
        let table = Table { by_number, by_file: HashMap::from([(file, ROOT)]), foreign: 0, open: 1, clock: 0 };
        Nodes { table: Mutex::new(table), device: stat.st_dev, most, limits }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file behind a number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<OwnedFd>, Errno> {
        let (place, file) = {
            let mut table = self.table();
            table.clock += 1;
            let clock = table.clock;
            let node = table.by_number.get_mut(&number).ok_or(Errno::STALE)?;
            node.used = clock;
            match &node.handle {
                Some(handle) => return Ok(Arc::clone(handle)),
                None => (node.place.clone(), node.file),
            }
        };
        let (handle, stat) = self.find(self.get(place.parent)?, &place.name).map_err(|_| Errno::STALE)?;
        // Somebody has put another file there behind our back.
        if (stat.st_dev, stat.st_ino) != file {
            return Err(Errno::STALE);
        }
        let handle = Arc::new(handle);
        let mut table = self.table();
        if let Some(node) = table.by_number.get_mut(&number)
            && node.handle.is_none()
        {
            node.handle = Some(Arc::clone(&handle));
            table.open += 1;
        }
        self.close_some(table);
        Ok(handle)
    }

    /// Looks a name up, of which the kernel is told: what it is, and its number.
    pub(crate) fn tell(&self, parent: u64, directory: impl AsFd, name: &OsStr) -> Result<(Stat, u64), Errno> {
        let (handle, stat) = self.find(directory, name)?;
        let file = (stat.st_dev, stat.st_ino);
        let mut table = self.table();
        table.clock += 1;
        let clock = table.clock;
        if let Some(number) = table.by_file.get(&file).copied()
            && let Some(node) = table.by_number.get_mut(&number)
        {
            node.lookups += 1;
            node.used = clock;
            if number != ROOT {
                node.place = Place::new(parent, name);
                node.displaced = false;
            }
            if node.handle.is_none() {
                node.handle = Some(Arc::new(handle));
                table.open += 1;
                self.close_some(table);
            }
            return Ok((stat, number));
        }
        let own = stat.st_dev == self.device && stat.st_ino > ROOT && stat.st_ino < FOREIGN;
        let number = if own {
            stat.st_ino
        } else {
            table.foreign += 1;
            FOREIGN + table.foreign
        };
        let node = Node {
            handle: Some(Arc::new(handle)),
            file,
            lookups: 1,
            place: Place::new(parent, name),
            displaced: false,
            used: clock,
        };
        table.by_number.insert(number, node);
        table.by_file.insert(file, number);
        table.open += 1;
        self.close_some(table);
        Ok((stat, number))
    }

    /// Closes the handles that were not used for longest, if there are too many; a quarter of all, so
    /// that this is seldom.
    fn close_some(&self, mut table: MutexGuard<'_, Table>) {
        if table.open <= self.most {
            return;
        }
        let mut idle: Vec<(u64, u64)> = table
            .by_number
            .iter()
            .filter(|(_, node)| !node.displaced)
            .filter(|(_, node)| node.handle.as_ref().is_some_and(|handle| Arc::strong_count(handle) == 1))
            .map(|(number, node)| (node.used, *number))
            .collect();
        idle.sort_unstable();
        idle.truncate(table.open - self.most * 3 / 4);
        let closed: Vec<Arc<OwnedFd>> = idle
            .iter()
            .filter_map(|(_, number)| table.by_number.get_mut(number).and_then(|node| node.handle.take()))
            .collect();
        table.open -= closed.len();
        // Closing takes time: not under the lock.
        drop(table);
        drop(closed);
    }

    /// What is known by this name, if it is, before the name changes.
    pub(crate) fn hold(&self, parent: u64, directory: impl AsFd, name: &OsStr) -> Option<Held> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let number = *self.table().by_file.get(&(stat.st_dev, stat.st_ino))?;
        let handle = self.get(number).ok()?;
        let here = self.table().by_number.get(&number).is_some_and(|node| node.place == Place::new(parent, name));
        here.then_some(Held { number, _handle: handle })
    }

    /// The name is gone.
    pub(crate) fn displace(&self, held: Option<&Held>) {
        if let Some(held) = held
            && let Some(node) = self.table().by_number.get_mut(&held.number)
        {
            node.displaced = true;
        }
    }

    /// The file has another name.
    pub(crate) fn place(&self, held: Option<&Held>, parent: u64, name: &OsStr) {
        if let Some(held) = held
            && let Some(node) = self.table().by_number.get_mut(&held.number)
        {
            node.place = Place::new(parent, name);
        }
    }

    /// The number that an inode of the root's device is shown with where the kernel need not remember it.
    pub(crate) fn shown(&self, inode: u64) -> u64 {
        let number = self.table().by_file.get(&(self.device, inode)).copied();
        // Zero would end the listing for some programs.
        number.unwrap_or(inode).max(ROOT)
    }

    /// The kernel forgets that it was told `times` times.
    pub(crate) fn forget(&self, number: u64, times: u64) {
        if number == ROOT {
            return;
        }
        let mut table = self.table();
        let Some(node) = table.by_number.get_mut(&number) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups == 0
            && let Some(node) = table.by_number.remove(&number)
        {
            table.by_file.remove(&node.file);
            table.open -= usize::from(node.handle.is_some());
            // Closing the last handle of a file that is gone frees its blocks: not under the lock.
            drop(table);
            drop(node);
        }
    }

    /// A handle of what a name means.
    ///
    /// # Errors
    /// `EACCES` where another file system is mounted at that name which forbids what our mount allows: what is harmless
    /// there, such as a set-user-ID file on a `nosuid` stick, would not be harmless here.
    fn find(&self, directory: impl AsFd, name: &OsStr) -> Result<(OwnedFd, Stat), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match openat2(&directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            // Another mount, or a kernel before 5.6.
            Err(Errno::XDEV | Errno::NOSYS) => {
                let handle = openat(&directory, name, flags, Mode::empty())?;
                if self.limits.allow_more_than(Limits::of(&handle)?) {
                    return Err(Errno::ACCESS);
                }
                handle
            }
            found => found?,
        };
        let stat = fstat(&handle)?;
        Ok((handle, stat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs;
    use tempfile::TempDir;

    fn nodes(most: usize) -> (TempDir, Nodes) {
        let folder = tempfile::tempdir().expect("a folder");
        let root = openat(CWD, folder.path(), OFlags::PATH, Mode::empty()).expect("it is there");
        let stat = fstat(&root).expect("a state");
        (folder, Nodes::new(root, &stat, most, Limits::default()))
    }

    fn tell(nodes: &Nodes, parent: u64, name: &str) -> u64 {
        let directory = nodes.get(parent).expect("it is known");
        nodes.tell(parent, directory, OsStr::new(name)).expect("it is there").1
    }

    #[test]
    fn a_file_has_one_number_until_it_is_forgotten_as_often_as_told() {
        let (folder, nodes) = nodes(100);
        let a = folder.path().join("a");
        fs::write(&a, "a").expect("it can be written");
        fs::hard_link(&a, folder.path().join("b")).expect("a second name");
        let number = tell(&nodes, ROOT, "a");
        assert_eq!(number, tell(&nodes, ROOT, "b"), "names of one file");
        assert_ne!(number, ROOT);
        fs::remove_file(&a).expect("it can be removed");
        assert_eq!(fstat(nodes.get(number).expect("it is known")).expect("a state").st_nlink, 1);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_ok());
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number).expect_err("it was forgotten"), Errno::STALE);
        nodes.forget(ROOT, 99);
        assert!(nodes.get(ROOT).is_ok(), "the root is never forgotten");
    }

    #[test]
    fn more_files_than_handles() {
        let (folder, nodes) = nodes(20);
        fs::create_dir_all(folder.path().join("d/e")).expect("it is empty");
        let inner = tell(&nodes, tell(&nodes, ROOT, "d"), "e");
        let name = |i: usize| format!("f{i}");
        let numbers: Vec<u64> = (0..200)
            .map(|i| {
                fs::write(folder.path().join("d/e").join(name(i)), name(i)).expect("it can be written");
                tell(&nodes, inner, &name(i))
            })
            .collect();
        let content = |number: u64| {
            let handle = nodes.get(number)?;
            let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&*handle));
            fs::read_to_string(path).map_err(|error| Errno::from_io_error(&error).expect("of the kernel"))
        };
        for (i, number) in numbers.iter().enumerate() {
            assert_eq!(content(*number), Ok(name(i)));
            assert!(nodes.table().open <= 20);
        }
        // What is removed and renamed by way of us stays known.
        let directory = nodes.get(inner).expect("it is known");
        for i in 0..10 {
            let held = nodes.hold(inner, &directory, OsStr::new(&name(i)));
            assert!(held.is_some());
            let path = folder.path().join("d/e").join(name(i));
            if i % 2 == 0 {
                fs::remove_file(path).expect("it is there");
                nodes.displace(held.as_ref());
            } else {
                fs::rename(path, folder.path().join(name(i))).expect("it is there");
                nodes.place(held.as_ref(), ROOT, OsStr::new(&name(i)));
            }
        }
        for number in &numbers[10..] {
            assert!(content(*number).is_ok());
        }
        for (i, number) in numbers[..10].iter().enumerate() {
            assert_eq!(content(*number), Ok(name(i)));
        }
        // What another puts in the place of a file is not taken for it.
        fs::rename(folder.path().join("d/e/f11"), folder.path().join("d/e/f12")).expect("it is there");
        for number in &numbers[20..] {
            assert!(content(*number).is_ok());
        }
        assert_eq!(content(numbers[12]), Err(Errno::STALE));
    }
}
