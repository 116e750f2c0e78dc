//! Performs operations on the backing directory.

use crate::callers::Caller;
use crate::limits::Limits;
use crate::nodes::Nodes;
use crate::reading::Reading;
use fuser::{FileAttr, FileType, INodeNo};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, StatVfs, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The backing directory, and the files that the kernel has open in it.
///
/// Files are identified by handles, never by paths, so that renaming and removing cannot redirect an operation to
/// another file.
pub(crate) struct Backing {
    pub(crate) nodes: Nodes,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    handles: AtomicU64,
    /// Whether we may change owners. If so, each new file is given to the program that created it.
    privileged: bool,
}

/// A file or directory opened by a program.
pub(crate) struct OpenFile {
    fd: Arc<OwnedFd>,
    /// Position of the directory listing.
    pub(crate) reading: Mutex<Reading>,
}

/// Requested changes of a file's attributes.
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<fuser::TimeOrNow>,
    pub(crate) mtime: Option<fuser::TimeOrNow>,
}

type Result<T> = std::result::Result<T, Errno>;

/// Open flags of programs that are passed to the backing file. Excludes O_APPEND and O_SYNC, because each write states
/// whether it appends and is synchronous, and O_DIRECT, which requires aligned memory.
const PASSED_ON: OFlags = OFlags::RWMODE.union(OFlags::NOATIME);

impl Backing {
    pub(crate) fn new(root: OwnedFd, handles: usize, limits: Limits) -> Result<Self> {
        let stat = rustix::fs::fstat(&root)?;
        Ok(Backing {
            nodes: Nodes::new(root, &stat, handles, limits),
            files: Mutex::default(),
            handles: AtomicU64::new(1),
            privileged: rustix::process::geteuid().is_root(),
        })
    }

    /// The open file with this handle.
    pub(crate) fn file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&handle).cloned().ok_or(Errno::BADF)
    }

    fn keep(&self, fd: OwnedFd) -> u64 {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(OpenFile { fd: Arc::new(fd), reading: Mutex::default() });
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, file);
        handle
    }

    pub(crate) fn release(&self, handle: u64) {
        let file = self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        // Closing may take long, so it happens outside the lock.
        drop(file);
    }

    /// The attributes of a name. The kernel knows the file from then on.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let directory = self.nodes.get(parent)?;
        let (stat, number) = self.nodes.look_up(parent, directory, name)?;
        Ok(attributes(&stat, number))
    }

    /// The file of an operation: the open file if there is a handle, else the inode.
    fn target(&self, number: u64, handle: Option<u64>) -> Result<Arc<OwnedFd>> {
        match handle {
            Some(handle) => Ok(Arc::clone(&self.file(handle)?.fd)),
            None => self.nodes.get(number),
        }
    }

    pub(crate) fn getattr(&self, number: u64, handle: Option<u64>) -> Result<FileAttr> {
        let stat = rustix::fs::fstat(self.target(number, handle)?)?;
        Ok(attributes(&stat, number))
    }

    pub(crate) fn setattr(
        &self,
        number: u64,
        handle: Option<u64>,
        caller: Caller,
        changes: &Changes,
    ) -> Result<FileAttr> {
        let node = self.target(number, handle)?;
        let here = path_of(&node);
        if changes.uid.is_some() || changes.gid.is_some() || changes.size.is_some() {
            self.take_setid_away(&node, caller, false)?;
        }
        // Owner first, because changing it clears set-user-ID; times last, because all other changes update them.
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            rustix::fs::chownat(&node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = changes.mode {
            rustix::fs::chmodat(CWD, &here, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        if let Some(size) = changes.size {
            match handle {
                Some(_) => rustix::fs::ftruncate(&node, size)?,
                None => {
                    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                    let fd = rustix::fs::open(&here, flags, Mode::empty())?;
                    rustix::fs::ftruncate(&fd, size)?;
                }
            }
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps { last_access: timespec(changes.atime), last_modification: timespec(changes.mtime) };
            rustix::fs::utimensat(&node, "", &times, AtFlags::EMPTY_PATH)?;
        }
        self.getattr(number, handle)
    }

    pub(crate) fn readlink(&self, number: u64) -> Result<CString> {
        rustix::fs::readlinkat(self.nodes.get(number)?, "", Vec::new())
    }

    pub(crate) fn mkdir(&self, parent: u64, name: &OsStr, mode: u32, caller: Caller) -> Result<FileAttr> {
        let directory = self.nodes.get(parent)?;
        let mode = masked(&directory, mode, caller);
        rustix::fs::mkdirat(&directory, name, mode)?;
        self.give(&directory, name, caller, AtFlags::REMOVEDIR)?;
        self.lookup(parent, name)
    }

    pub(crate) fn mknod(&self, parent: u64, name: &OsStr, mode: u32, device: u32, caller: Caller) -> Result<FileAttr> {
        let directory = self.nodes.get(parent)?;
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        rustix::fs::mknodat(&directory, name, kind, masked(&directory, mode, caller), device.into())?;
        self.give(&directory, name, caller, AtFlags::empty())?;
        self.lookup(parent, name)
    }

    pub(crate) fn symlink(&self, parent: u64, name: &OsStr, target: &Path, caller: Caller) -> Result<FileAttr> {
        let directory = self.nodes.get(parent)?;
        rustix::fs::symlinkat(target, &directory, name)?;
        self.give(&directory, name, caller, AtFlags::empty())?;
        self.lookup(parent, name)
    }

    pub(crate) fn link(&self, number: u64, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let (node, directory) = (self.nodes.get(number)?, self.nodes.get(parent)?);
        rustix::fs::linkat(CWD, path_of(&node), &directory, name, AtFlags::SYMLINK_FOLLOW)?;
        self.lookup(parent, name)
    }

    pub(crate) fn rename(&self, from: u64, name: &OsStr, to: u64, new: &OsStr, flags: u32) -> Result<()> {
        let (source, target) = (self.nodes.get(from)?, self.nodes.get(to)?);
        let flags = RenameFlags::from_bits_retain(flags);
        let moved = self.nodes.hold(from, &source, name);
        let replaced = self.nodes.hold(to, &target, new);
        rustix::fs::renameat_with(&source, name, &target, new, flags)?;
        self.nodes.set_location(moved.as_ref(), to, new);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.nodes.set_location(replaced.as_ref(), from, name);
        } else {
            self.nodes.mark_displaced(replaced.as_ref());
        }
        Ok(())
    }

    pub(crate) fn unlink(&self, parent: u64, name: &OsStr, flags: AtFlags) -> Result<()> {
        let directory = self.nodes.get(parent)?;
        let removed = self.nodes.hold(parent, &directory, name);
        rustix::fs::unlinkat(&directory, name, flags)?;
        self.nodes.mark_displaced(removed.as_ref());
        Ok(())
    }

    pub(crate) fn open(&self, number: u64, flags: i32) -> Result<u64> {
        let node = self.nodes.get(number)?;
        let flags = OFlags::from_bits_retain(flags.cast_unsigned()) & PASSED_ON | OFlags::CLOEXEC;
        Ok(self.keep(reopened(&node, flags)?))
    }

    pub(crate) fn opendir(&self, number: u64) -> Result<u64> {
        let node = self.nodes.get(number)?;
        Ok(self.keep(reopened(&node, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC)?))
    }

    pub(crate) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
        caller: Caller,
    ) -> Result<(FileAttr, u64)> {
        let directory = self.nodes.get(parent)?;
        let wanted = OFlags::from_bits_retain(flags.cast_unsigned());
        let mode = masked(&directory, mode, caller);
        let opened = wanted & PASSED_ON | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&directory, name, opened | OFlags::CREATE | OFlags::EXCL, mode) {
            // Another process created the file in the meantime.
            Err(Errno::EXIST) if !wanted.contains(OFlags::EXCL) => {
                let fd = rustix::fs::openat(&directory, name, opened, Mode::empty())?;
                if wanted.contains(OFlags::TRUNC) {
                    self.take_setid_away(&fd, caller, false)?;
                    rustix::fs::ftruncate(&fd, 0)?;
                }
                fd
            }
            Err(error) => return Err(error),
            Ok(fd) => {
                self.give(&directory, name, caller, AtFlags::empty())?;
                if mode.intersects(Mode::SUID | Mode::SGID) {
                    // The change of owner has cleared them.
                    rustix::fs::fchmod(&fd, mode)?;
                }
                fd
            }
        };
        let attributes = self.lookup(parent, name)?;
        Ok((attributes, self.keep(fd)))
    }

    /// Makes the caller the owner of a new file. Removes the file if that fails.
    fn give(&self, parent: &OwnedFd, name: &OsStr, caller: Caller, remove: AtFlags) -> Result<()> {
        if !self.privileged || (caller.uid, caller.gid) == (0, 0) {
            return Ok(());
        }
        let inherits = rustix::fs::fstat(parent)?.st_mode & 0o2000 != 0;
        let gid = if inherits { None } else { Some(Gid::from_raw(caller.gid)) };
        let given = rustix::fs::chownat(parent, name, Some(Uid::from_raw(caller.uid)), gid, AtFlags::SYMLINK_NOFOLLOW);
        given.inspect_err(|_| {
            // Reports the first error.
            let _ = rustix::fs::unlinkat(parent, name, remove);
        })
    }

    pub(crate) fn statfs(&self, number: u64) -> Result<StatVfs> {
        rustix::fs::fstatvfs(self.nodes.get(number)?)
    }

    /// Writes at `offset` or at the end of the file. `kill` is set if the kernel reports that the caller lacks
    /// `CAP_FSETID`.
    pub(crate) fn write(
        &self,
        handle: u64,
        offset: u64,
        data: &[u8],
        append: bool,
        kill: Option<Caller>,
    ) -> Result<usize> {
        let file = self.file(handle)?;
        if let Some(caller) = kill {
            self.take_setid_away(&file.fd, caller, true)?;
        }
        file.write(offset, data, append)
    }

    pub(crate) fn fallocate(&self, handle: u64, mode: i32, offset: u64, length: u64, caller: Caller) -> Result<()> {
        let file = self.file(handle)?;
        self.take_setid_away(&file.fd, caller, false)?;
        file.fallocate(mode, offset, length)
    }

    /// Clears set-user-ID and set-group-ID, as Linux does before a program without `CAP_FSETID` changes a file
    /// (`setattr_should_drop_suidgid`). Done before the change, so the new content never has these bits.
    ///
    /// `lacks`: the caller is known to lack the capability. Without privilege, the backing file system does this for
    /// us, as for any program. It clears file capabilities in either case.
    fn take_setid_away(&self, fd: &OwnedFd, caller: Caller, lacks: bool) -> Result<()> {
        if !self.privileged {
            return Ok(());
        }
        let stat = rustix::fs::fstat(fd)?;
        if !has_setid(&stat) || (!lacks && caller.has(CapabilitySet::FSETID)) {
            return Ok(());
        }
        let mode = stat.st_mode & 0o7777;
        let group = mode & 0o010 != 0 || !caller.is_in_group(stat.st_gid);
        let left = mode & !(if group { 0o6000 } else { 0o4000 });
        rustix::fs::chmodat(CWD, path_of(fd), Mode::from_raw_mode(left), AtFlags::empty())
    }

    /// The value of an attribute, or its length if `room` is 0.
    pub(crate) fn getxattr(&self, number: u64, name: &OsStr, room: usize) -> Result<Attribute> {
        let node = self.nodes.get(number)?;
        let mut value = Vec::with_capacity(if room == 0 { LARGEST_ATTRIBUTE } else { room });
        rustix::fs::getxattr(path_of(&node), name, spare_capacity(&mut value))?;
        value.shrink_to_fit();
        Ok(if room == 0 { Attribute::Length(value.len()) } else { Attribute::Value(value) })
    }

    /// The names of the attributes, each terminated by a zero byte. As on Linux's own file systems, names starting with
    /// `trusted.` are listed only for callers with `CAP_SYS_ADMIN`.
    pub(crate) fn listxattr(&self, number: u64, room: usize, caller: Caller) -> Result<Attribute> {
        const TRUSTED: &[u8] = b"trusted.";
        let node = self.nodes.get(number)?;
        let mut names = Vec::with_capacity(LARGEST_ATTRIBUTE);
        rustix::fs::listxattr(path_of(&node), spare_capacity(&mut names))?;
        let each = || names.split_inclusive(|byte| *byte == 0);
        if each().any(|name| name.starts_with(TRUSTED)) && !caller.has(CapabilitySet::SYS_ADMIN) {
            names = each().filter(|name| !name.starts_with(TRUSTED)).flatten().copied().collect();
        }
        names.shrink_to_fit();
        match room {
            0 => Ok(Attribute::Length(names.len())),
            room if room < names.len() => Err(Errno::RANGE),
            _ => Ok(Attribute::Value(names)),
        }
    }

    pub(crate) fn setxattr(&self, number: u64, name: &OsStr, value: &[u8], flags: i32, caller: Caller) -> Result<()> {
        let node = self.nodes.get(number)?;
        rustix::fs::setxattr(path_of(&node), name, value, XattrFlags::from_bits_retain(flags.cast_unsigned()))?;
        // As with chmod, an ACL set by a non-member of the group clears set-group-ID.
        if self.privileged && name == "system.posix_acl_access" {
            let stat = rustix::fs::fstat(&node)?;
            let mode = stat.st_mode & 0o7777;
            if mode & 0o2000 != 0 && !caller.is_in_group(stat.st_gid) && !caller.has(CapabilitySet::FSETID) {
                rustix::fs::chmodat(CWD, path_of(&node), Mode::from_raw_mode(mode & !0o2000), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    pub(crate) fn removexattr(&self, number: u64, name: &OsStr) -> Result<()> {
        let node = self.nodes.get(number)?;
        rustix::fs::removexattr(path_of(&node), name)
    }
}

/// Reply to a request for an extended attribute.
pub(crate) enum Attribute {
    Length(usize),
    Value(Vec<u8>),
}

/// Limit on Linux for an attribute and for the list of them.
const LARGEST_ATTRIBUTE: usize = 65_536;

impl OpenFile {
    /// Reads up to `size` bytes, fewer only at the end of the file.
    pub(crate) fn read(&self, offset: u64, size: usize) -> Result<Vec<u8>> {
        let mut data = Vec::with_capacity(size);
        while data.len() < size {
            let at = offset + data.len() as u64;
            match rustix::io::pread(&self.fd, spare_capacity(&mut data), at) {
                Ok(0) => break,
                // Returns the bytes read so far; the next read will fail again.
                Err(_) if !data.is_empty() => break,
                Err(Errno::INTR) => {}
                read => {
                    read?;
                }
            }
        }
        Ok(data)
    }

    /// Writes at `offset`, or atomically at the current end of the file.
    fn write(&self, offset: u64, data: &[u8], append: bool) -> Result<usize> {
        if append {
            let data = [std::io::IoSlice::new(data)];
            rustix::io::pwritev2(&self.fd, &data, offset, rustix::io::ReadWriteFlags::APPEND)
        } else {
            rustix::io::pwrite(&self.fd, data, offset)
        }
    }

    /// Returns how many bytes a read will return, from the file's length, and makes the kernel prefetch them.
    pub(crate) fn prepare_read(&self, offset: u64, size: usize) -> u64 {
        // Prefetching is only an optimisation.
        let _ = rustix::fs::fadvise(&self.fd, offset, NonZeroU64::new(size as u64), Advice::WillNeed);
        let length = rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_size.cast_unsigned());
        length.saturating_sub(offset).min(size as u64)
    }

    pub(crate) fn sync(&self, data_only: bool) -> Result<()> {
        if data_only { rustix::fs::fdatasync(&self.fd) } else { rustix::fs::fsync(&self.fd) }
    }

    fn fallocate(&self, mode: i32, offset: u64, length: u64) -> Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::from_bits_retain(mode.cast_unsigned()), offset, length)
    }

    /// Seeks the next data or hole; the kernel requests no other kind of seek.
    pub(crate) fn seek(&self, offset: i64, whence: i32) -> Result<u64> {
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        match whence {
            SEEK_DATA => rustix::fs::seek(&self.fd, SeekFrom::Data(offset)),
            SEEK_HOLE => rustix::fs::seek(&self.fd, SeekFrom::Hole(offset)),
            _ => Err(Errno::INVAL),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// A path to the file of a handle, for calls that do not accept O_PATH handles.
fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn reopened(node: &OwnedFd, flags: OFlags) -> Result<OwnedFd> {
    match rustix::fs::open(path_of(node), flags, Mode::empty()) {
        // Only owners may use O_NOATIME; the kernel has checked that the caller is one.
        Err(Errno::PERM) if flags.contains(OFlags::NOATIME) => {
            rustix::fs::open(path_of(node), flags.difference(OFlags::NOATIME), Mode::empty())
        }
        opened => opened,
    }
}

/// The mode of a new file. A default ACL of the directory replaces the umask.
fn masked(parent: &OwnedFd, mode: u32, caller: Caller) -> Mode {
    let acl = || rustix::fs::getxattr(path_of(parent), "system.posix_acl_default", &mut [0_u8; 4096][..]).is_ok();
    let mask = if caller.umask == 0 || acl() { 0 } else { caller.umask };
    Mode::from_raw_mode(mode & 0o7777 & !mask)
}

/// Whether a file has set-user-ID or set-group-ID, which grant rights to whoever runs it.
fn has_setid(stat: &Stat) -> bool {
    rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_mode & 0o6000 != 0
}

/// Attributes in the form of the protocol.
fn attributes(stat: &Stat, number: u64) -> FileAttr {
    let mtime = time(stat.st_mtime, stat.st_mtime_nsec);
    FileAttr {
        ino: INodeNo(number),
        size: stat.st_size.cast_unsigned(),
        blocks: stat.st_blocks.cast_unsigned(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime,
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: mtime,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        // Both the C library and the kernel encode major and minor in these 32 bits.
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4_096),
        flags: 0,
    }
}

/// Converts a file type to that of the protocol.
pub(crate) fn kind(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => FileType::RegularFile,
    }
}

fn time(seconds: impl TryInto<i64>, nanoseconds: impl TryInto<u32>) -> SystemTime {
    let seconds = seconds.try_into().unwrap_or(0);
    let part = Duration::from_nanos(nanoseconds.try_into().unwrap_or(0).into());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - whole + part } else { UNIX_EPOCH + whole + part }
}

fn timespec(time: Option<fuser::TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(rustix::fs::UTIME_OMIT),
        Some(fuser::TimeOrNow::Now) => special(rustix::fs::UTIME_NOW),
        Some(fuser::TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() },
            // Fuser decodes −s seconds and n nanoseconds as −(s + n); this compensates for it.
            Err(before) => {
                let before = before.duration();
                Timespec { tv_sec: -before.as_secs().cast_signed(), tv_nsec: before.subsec_nanos().into() }
            }
        },
    }
}
