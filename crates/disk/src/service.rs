//! The FUSE service: passes each operation of the kernel through the gate to the backing directory.

mod answers;

use crate::backing::{Backing, Changes, OpenFile, kind};
use crate::callers::Caller;
use crate::gate::Gate;
use crate::operations::Operation;
use fuser::{
    FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::SystemTime;

/// The file system.
pub(crate) struct Service {
    pub(crate) backing: Arc<Backing>,
    pub(crate) gate: Arc<Gate>,
    /// The page cache may hold data, and the kernel may cache names and attributes.
    pub(crate) cached: bool,
    /// Whether shared file mappings work, once the kernel has reported it.
    pub(crate) shared_maps: Arc<OnceLock<bool>>,
}

/// The longest read or write per operation, in bytes: the most that Linux sends.
const LONGEST: u32 = 1 << 20;
/// Limit on background operations, such as readahead, before the kernel throttles them.
const BACKGROUND: u16 = 1_024;

/// `O_DSYNC`, which `O_SYNC` includes. The `DSYNC` of rustix is `O_SYNC` itself.
const DSYNC: OFlags = OFlags::from_bits_retain(0o10000);

/// The longest listing per operation, in bytes.
const LARGEST_LISTING: usize = LONGEST as usize;

fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid(), umask }
}

/// Reads entries of an open directory while `take` has room.
fn entries(directory: &OpenFile, offset: u64, take: impl FnMut(&crate::reading::Entry) -> bool) -> Result<(), Errno> {
    let mut reading = directory.reading.lock().unwrap_or_else(PoisonError::into_inner);
    reading.read(directory.fd(), offset, take)
}

impl Filesystem for Service {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // We apply the umask ourselves, because a default ACL replaces it.
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            // With this flag the kernel requests a program's mode again when it reads the program to run it. At that
            // point no other program can write to it. See `Service::opened`.
            InitFlags::FUSE_AUTO_INVAL_DATA,
        ];
        if self.cached {
            wanted.extend([InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO]);
        } else {
            wanted.push(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        }
        for flag in wanted {
            // Older kernels work without it.
            let offered = config.add_capabilities(flag).is_ok();
            if flag == InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP {
                self.shared_maps.get_or_init(|| offered);
            }
        }
        // Cannot fail: the values are within fuser's limits.
        let _ = config.set_max_write(LONGEST);
        let _ = config.set_max_background(BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.serve_entry(Operation::Lookup, reply, |backing| backing.lookup(parent.0, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.backing.nodes.forget(number.0, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let handle = handle.map(|handle| handle.0);
        self.serve_attributes(Operation::Getattr, reply, |backing| backing.getattr(number.0, handle));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, size, atime, mtime };
        let handle = handle.map(|handle| handle.0);
        self.serve_attributes(Operation::Setattr, reply, |backing| {
            backing.setattr(number.0, handle, caller(request, 0), &changes)
        });
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.serve(
            Operation::Readlink,
            reply,
            |backing| backing.readlink(number.0),
            |reply, target| reply.data(target.as_bytes()),
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let caller = caller(request, umask);
        self.serve_entry(Operation::Mknod, reply, |backing| backing.mknod(parent.0, name, mode, rdev, caller));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let caller = caller(request, umask);
        self.serve_entry(Operation::Mkdir, reply, |backing| backing.mkdir(parent.0, name, mode, caller));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(Operation::Unlink, reply, |backing| backing.unlink(parent.0, name, AtFlags::empty()));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(Operation::Rmdir, reply, |backing| backing.unlink(parent.0, name, AtFlags::REMOVEDIR));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let caller = caller(request, 0);
        self.serve_entry(Operation::Symlink, reply, |backing| backing.symlink(parent.0, name, target, caller));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.serve_empty(Operation::Rename, reply, |backing| {
            backing.rename(parent.0, name, newparent.0, newname, flags.bits())
        });
    }

    fn link(&self, _: &Request, number: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.serve_entry(Operation::Link, reply, |backing| backing.link(number.0, newparent.0, newname));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let how = self.opened(flags.0);
        self.serve(
            Operation::Open,
            reply,
            |backing| backing.open(number.0, flags.0),
            move |reply, handle| reply.opened(FileHandle(handle), how),
        );
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (how, believed, caller) = (self.opened(flags), self.believed(), caller(request, umask));
        self.serve(
            Operation::Create,
            reply,
            |backing| backing.create(parent.0, name, mode, flags, caller),
            move |reply, (attributes, handle)| {
                reply.created(&believed.of(&attributes), &attributes, Generation(0), FileHandle(handle), how);
            },
        );
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        self.serve_held(
            Operation::Read,
            reply,
            size,
            |backing| backing.file(handle.0).map_or(0, |file| file.prepare_read(offset, size)),
            move |backing, _| {
                let data = backing.file(handle.0)?.read(offset, size)?;
                let bytes = data.len() as u64;
                Ok((data, bytes))
            },
            |reply, data| reply.data(&data),
        );
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Data from the page cache has a fixed position in the file.
        let writes_back = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        // The kernel passes RWF_DSYNC and RWF_SYNC of a single write as file flags.
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let append = flags.contains(OFlags::APPEND) && !writes_back;
        let kill = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then(|| caller(request, 0));
        // After a synchronous write through the page cache, the kernel requests a separate fsync.
        let sync = flags.contains(DSYNC) && !self.cached && !writes_back;
        let data_only = !flags.contains(OFlags::SYNC);
        self.serve_write(
            reply,
            |backing| {
                let written = backing.write(handle.0, offset, data, append, kill);
                if writes_back {
                    self.gate.note_write_back();
                }
                written
            },
            sync.then_some(|backing: &Backing| backing.file(handle.0)?.sync(data_only)),
        );
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.serve_empty(Operation::Flush, reply, |_| Ok(()));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.backing.release(handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.serve_empty(Operation::Fsync, reply, |backing| backing.file(handle.0)?.sync(datasync));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.serve(
            Operation::Opendir,
            reply,
            |backing| backing.opendir(number.0),
            |reply, handle| reply.opened(FileHandle(handle), FopenFlags::empty()),
        );
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        let work = move |backing: &Backing, reply: &mut ReplyDirectory| {
            entries(&*backing.file(handle.0)?, offset, |entry| {
                let number = INodeNo(backing.nodes.shown(entry.inode));
                !reply.add(number, entry.next, kind(entry.kind), &entry.name)
            })?;
            Ok(((), 0))
        };
        self.serve_held(Operation::Readdir, reply, LARGEST_LISTING, |_| 0, work, |reply, ()| reply.ok());
    }

    fn readdirplus(&self, _: &Request, parent: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let believed = self.believed();
        let work = move |backing: &Backing, reply: &mut ReplyDirectoryPlus| {
            entries(&*backing.file(handle.0)?, offset, |entry| {
                let dots = entry.name == "." || entry.name == "..";
                let name = if dots { OsStr::new(".") } else { &entry.name };
                // Skips entries that were removed since the listing.
                let Ok(mut attributes) = backing.lookup(parent.0, name) else { return true };
                let number = attributes.ino;
                if dots {
                    // The kernel uses only names and numbers of these, and does not count them as lookups.
                    attributes.ino = INodeNo(backing.nodes.shown(entry.inode));
                }
                let ttl = believed.of(&attributes);
                let full = reply.add(attributes.ino, entry.next, &entry.name, &ttl, &attributes, Generation(0));
                if full || dots {
                    backing.nodes.forget(number.0, 1);
                }
                !full
            })?;
            Ok(((), 0))
        };
        self.serve_held(Operation::Readdir, reply, LARGEST_LISTING, |_| 0, work, |reply, ()| reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.backing.release(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.serve_empty(Operation::Fsync, reply, |backing| backing.file(handle.0)?.sync(datasync));
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        self.serve(
            Operation::Statfs,
            reply,
            |backing| backing.statfs(number.0),
            |reply, of| {
                let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
                reply.statfs(
                    of.f_blocks,
                    of.f_bfree,
                    of.f_bavail,
                    of.f_files,
                    of.f_ffree,
                    small(of.f_bsize),
                    small(of.f_namemax),
                    small(of.f_frsize),
                );
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request, 0);
        self.serve_empty(Operation::Setxattr, reply, |backing| backing.setxattr(number.0, name, value, flags, caller));
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        self.serve_extended(Operation::Getxattr, reply, size, move |backing, room| {
            backing.getxattr(number.0, &name, room)
        });
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller(request, 0);
        self.serve_extended(Operation::Listxattr, reply, size, move |backing, room| {
            backing.listxattr(number.0, room, caller)
        });
    }

    fn removexattr(&self, _: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.serve_empty(Operation::Removexattr, reply, |backing| backing.removexattr(number.0, name));
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(request, 0);
        self.serve_empty(Operation::Fallocate, reply, |backing| {
            backing.fallocate(handle.0, mode, offset, length, caller)
        });
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.serve(
            Operation::Lseek,
            reply,
            |backing| backing.file(handle.0)?.seek(offset, whence),
            |reply, offset| reply.offset(offset.cast_signed()),
        );
    }
}
