//! Maps the kernel's inode numbers to files.

use crate::limits::Limits;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All inodes that the kernel knows, each with an O_PATH handle.
///
/// A handle refers to the same inode after any renaming or removal, by us or by others. There are too few handles for
/// all inodes of a large tree, so those unused for longest are closed, and reopened at the inode's last known name. An
/// inode without a name keeps its handle, which is the only way to reach it.
pub(crate) struct Nodes {
    table: Mutex<Table>,
    /// The device of the root, whose inode numbers are used unchanged.
    device: u64,
    /// Limit on open handles.
    most: usize,
    /// Restrictions that a file's mount may have; files on mounts that forbid more are hidden.
    limits: Limits,
}

struct Table {
    by_number: HashMap<u64, Node>,
    by_file: HashMap<File, u64>,
    /// Numbers assigned to inodes of other devices so far.
    foreign: u64,
    /// Number of open handles.
    open: usize,
    /// Counts uses, for the order of last use.
    clock: u64,
}

/// Device and inode number.
type File = (u64, u64);

struct Node {
    handle: Option<Arc<OwnedFd>>,
    file: File,
    /// Number of lookups by the kernel that it has not forgotten.
    lookups: u64,
    /// Last known name.
    location: NodeName,
    /// The name is gone.
    displaced: bool,
    used: u64,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq)]
struct NodeName {
    parent: u64,
    name: OsString,
}

impl NodeName {
    fn new(parent: u64, name: &OsStr) -> Self {
        NodeName { parent, name: name.to_owned() }
    }
}

/// An inode whose name is about to change. Its handle stays open meanwhile.
pub(crate) struct Held {
    number: u64,
    _handle: Arc<OwnedFd>,
}

/// The kernel's inode number for the root.
pub(crate) const ROOT: u64 = 1;
/// First number for inodes of other devices. Their own numbers may collide with those of the root's device.
const FOREIGN: u64 = 1 << 63;

impl Nodes {
    /// The table of a directory, with at most `most` open handles.
    pub(crate) fn new(root: OwnedFd, stat: &Stat, most: usize, limits: Limits) -> Self {
        let file = (stat.st_dev, stat.st_ino);
        let node = Node {
            handle: Some(Arc::new(root)),
            file,
            lookups: 1,
            location: NodeName::new(ROOT, OsStr::new(".")),
            // It is reachable only through its handle.
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

    /// The file with this number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<OwnedFd>, Errno> {
        let (location, file) = {
            let mut table = self.table();
            table.clock += 1;
            let clock = table.clock;
            let node = table.by_number.get_mut(&number).ok_or(Errno::STALE)?;
            node.used = clock;
            match &node.handle {
                Some(handle) => return Ok(Arc::clone(handle)),
                None => (node.location.clone(), node.file),
            }
        };
        let (handle, stat) = self.find(self.get(location.parent)?, &location.name).map_err(|_| Errno::STALE)?;
        // Another file has taken this name.
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

    /// Looks up a name for the kernel. Returns its state and number.
    pub(crate) fn look_up(&self, parent: u64, directory: impl AsFd, name: &OsStr) -> Result<(Stat, u64), Errno> {
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
                node.location = NodeName::new(parent, name);
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
            location: NodeName::new(parent, name),
            displaced: false,
            used: clock,
        };
        table.by_number.insert(number, node);
        table.by_file.insert(file, number);
        table.open += 1;
        self.close_some(table);
        Ok((stat, number))
    }

    /// Closes the handles unused for longest if there are too many; a quarter of all, so that it happens rarely.
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
        // Closing takes time, so it happens outside the lock.
        drop(table);
        drop(closed);
    }

    /// Holds the known inode of this name, if there is one, before the name changes.
    pub(crate) fn hold(&self, parent: u64, directory: impl AsFd, name: &OsStr) -> Option<Held> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let number = *self.table().by_file.get(&(stat.st_dev, stat.st_ino))?;
        let handle = self.get(number).ok()?;
        let here = self.table().by_number.get(&number).is_some_and(|node| node.location == NodeName::new(parent, name));
        here.then_some(Held { number, _handle: handle })
    }

    /// Records that the name is gone.
    pub(crate) fn mark_displaced(&self, held: Option<&Held>) {
        if let Some(held) = held
            && let Some(node) = self.table().by_number.get_mut(&held.number)
        {
            node.displaced = true;
        }
    }

    /// Records that the file has another name.
    pub(crate) fn set_location(&self, held: Option<&Held>, parent: u64, name: &OsStr) {
        if let Some(held) = held
            && let Some(node) = self.table().by_number.get_mut(&held.number)
        {
            node.location = NodeName::new(parent, name);
        }
    }

    /// The number under which a directory listing shows an inode of the root's device.
    pub(crate) fn shown(&self, inode: u64) -> u64 {
        let number = self.table().by_file.get(&(self.device, inode)).copied();
        // Some programs end a listing at zero.
        number.unwrap_or(inode).max(ROOT)
    }

    /// Records that the kernel forgets `times` lookups.
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
            // Closing the last handle of a removed file frees its blocks, so it happens outside the lock.
            drop(table);
            drop(node);
        }
    }

    /// Opens a handle of a name.
    ///
    /// # Errors
    /// `EACCES` if another file system is mounted at that name and forbids something that our mount allows. For
    /// example, a set-user-ID file that is harmless on a `nosuid` stick would be dangerous here.
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

    fn look_up(nodes: &Nodes, parent: u64, name: &str) -> u64 {
        let directory = nodes.get(parent).expect("it is known");
        nodes.look_up(parent, directory, OsStr::new(name)).expect("it is there").1
    }

    #[test]
    fn file_keeps_its_number_until_all_lookups_are_forgotten() {
        let (folder, nodes) = nodes(100);
        let a = folder.path().join("a");
        fs::write(&a, "a").expect("it can be written");
        fs::hard_link(&a, folder.path().join("b")).expect("a second name");
        let number = look_up(&nodes, ROOT, "a");
        assert_eq!(number, look_up(&nodes, ROOT, "b"), "names of one file");
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
    fn serves_more_files_than_handles() {
        let (folder, nodes) = nodes(20);
        fs::create_dir_all(folder.path().join("d/e")).expect("it is empty");
        let inner = look_up(&nodes, look_up(&nodes, ROOT, "d"), "e");
        let name = |i: usize| format!("f{i}");
        let numbers: Vec<u64> = (0..200)
            .map(|i| {
                fs::write(folder.path().join("d/e").join(name(i)), name(i)).expect("it can be written");
                look_up(&nodes, inner, &name(i))
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
        // Files removed or renamed through us stay known.
        let directory = nodes.get(inner).expect("it is known");
        for i in 0..10 {
            let held = nodes.hold(inner, &directory, OsStr::new(&name(i)));
            assert!(held.is_some());
            let path = folder.path().join("d/e").join(name(i));
            if i % 2 == 0 {
                fs::remove_file(path).expect("it is there");
                nodes.mark_displaced(held.as_ref());
            } else {
                fs::rename(path, folder.path().join(name(i))).expect("it is there");
                nodes.set_location(held.as_ref(), ROOT, OsStr::new(&name(i)));
            }
        }
        for number in &numbers[10..] {
            assert!(content(*number).is_ok());
        }
        for (i, number) in numbers[..10].iter().enumerate() {
            assert_eq!(content(*number), Ok(name(i)));
        }
        // A file that takes another's name is not mistaken for it.
        fs::rename(folder.path().join("d/e/f11"), folder.path().join("d/e/f12")).expect("it is there");
        for number in &numbers[20..] {
            assert!(content(*number).is_ok());
        }
        assert_eq!(content(numbers[12]), Err(Errno::STALE));
    }
}
