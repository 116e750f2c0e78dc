//! Which inode is meant: the kernel's numbers, and the files behind them.

use rustix::fd::OwnedFd;
use rustix::fs::Stat;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every inode that the kernel knows, held open by a handle that has no rights but to name it.
///
/// A handle stays that of the same inode whatever is renamed or removed, here or behind our back, and
/// the file system cannot give its number to another one meanwhile.
pub(crate) struct Nodes {
    table: Mutex<Table>,
    /// The device of the root, whose inode numbers are shown as they are.
    device: u64,
}

struct Table {
    by_number: HashMap<u64, Node>,
    by_file: HashMap<(u64, u64), u64>,
    /// Inodes of other devices have had so many numbers.
    foreign: u64,
}

struct Node {
    handle: Arc<OwnedFd>,
    file: (u64, u64),
    /// How often the kernel was told of it.
    lookups: u64,
}

/// The kernel's number of the root.
pub(crate) const ROOT: u64 = 1;
/// Where numbers of inodes of other devices begin, which could be taken on the root's.
const FOREIGN: u64 = 1 << 63;

impl Nodes {
    pub(crate) fn new(root: OwnedFd, stat: &Stat) -> Self {
        let file = (stat.st_dev, stat.st_ino);
        let node = Node { handle: Arc::new(root), file, lookups: 1 };
        let table =
            Table { by_number: HashMap::from([(ROOT, node)]), by_file: HashMap::from([(file, ROOT)]), foreign: 0 };
        Nodes { table: Mutex::new(table), device: stat.st_dev }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file behind a number.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<OwnedFd>, Errno> {
        let table = self.table();
        table.by_number.get(&number).map(|node| Arc::clone(&node.handle)).ok_or(Errno::STALE)
    }

    /// The number of a file of which the kernel is told now.
    pub(crate) fn tell(&self, handle: OwnedFd, stat: &Stat) -> u64 {
        let file = (stat.st_dev, stat.st_ino);
        let mut table = self.table();
        if let Some(number) = table.by_file.get(&file).copied()
            && let Some(node) = table.by_number.get_mut(&number)
        {
            node.lookups += 1;
            return number;
        }
        let own = stat.st_dev == self.device && stat.st_ino > ROOT && stat.st_ino < FOREIGN;
        let number = if own {
            stat.st_ino
        } else {
            table.foreign += 1;
            FOREIGN + table.foreign
        };
        table.by_number.insert(number, Node { handle: Arc::new(handle), file, lookups: 1 });
        table.by_file.insert(file, number);
        number
    }

    /// The number that a file is shown with where the kernel need not remember it.
    pub(crate) fn shown(&self, device: u64, inode: u64) -> u64 {
        let table = self.table();
        table.by_file.get(&(device, inode)).copied().unwrap_or(inode)
    }

    /// The device of the root.
    pub(crate) fn device(&self) -> u64 {
        self.device
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
            // Closing the last handle of a file that is gone frees its blocks: not under the lock.
            drop(table);
            drop(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
    use std::path::Path;

    fn handle(path: &Path) -> (OwnedFd, Stat) {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
        let stat = fstat(&fd).expect("it has a state");
        (fd, stat)
    }

    #[test]
    fn a_file_has_one_number_until_it_is_forgotten_as_often_as_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, stat) = handle(folder.path());
        let nodes = Nodes::new(root, &stat);
        let a = folder.path().join("a");
        std::fs::write(&a, "a").expect("it can be written");
        std::fs::hard_link(&a, folder.path().join("b")).expect("a second name");
        let tell = |name: &str| {
            let (fd, stat) = handle(&folder.path().join(name));
            nodes.tell(fd, &stat)
        };
        let number = tell("a");
        assert_eq!(number, tell("b"), "names of one file");
        assert_ne!(number, ROOT);
        std::fs::remove_file(&a).expect("it can be removed");
        assert_eq!(fstat(nodes.get(number).expect("it is known")).expect("a state").st_nlink, 1);
        nodes.forget(number, 1);
        assert!(nodes.get(number).is_ok());
        nodes.forget(number, 1);
        assert_eq!(nodes.get(number).expect_err("it was forgotten"), Errno::STALE);
        nodes.forget(ROOT, 99);
        assert!(nodes.get(ROOT).is_ok(), "the root is never forgotten");
    }
}
