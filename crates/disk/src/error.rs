use std::path::PathBuf;
use thiserror::Error as ThisError;
use units::ParseError;

/// Why a slow disk cannot be mounted or unmounted.
#[derive(Debug, ThisError)]
pub enum Error {
    /// An impossible request.
    #[error(transparent)]
    Ask(#[from] ParseError),
    /// A directory cannot be accessed.
    #[error("cannot use {}: {cause}: give an existing directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the kernel.
        cause: std::io::Error,
    },
    /// The path is not a directory.
    #[error("{} is not a directory: give one", path.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
    },
    /// One directory contains the other.
    #[error(
        "{} and {} are the same, or one contains the other: give a mount point outside of the backing directory, as mkdir /mnt/slow",
        backing.display(),
        mount.display()
    )]
    Nested {
        /// The backing directory.
        backing: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
    /// A netlathe disk is mounted there.
    #[error("netlathe already has a disk at {0}: netlathe disk --unmount {0}", mount.display())]
    Mounted {
        /// The mount point.
        mount: PathBuf,
    },
    /// Another file system is mounted there.
    #[error(
        "{} is already a mount point, of {source_of} ({kind}): give another directory, as mkdir /mnt/slow",
        mount.display()
    )]
    MountPoint {
        /// The mount point.
        mount: PathBuf,
        /// Its type.
        kind: String,
        /// Its device.
        source_of: String,
    },
    /// The kernel lacks FUSE.
    #[error(
        "there is no /dev/fuse: as root, modprobe fuse; in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN"
    )]
    NoFuse,
    /// FUSE is not accessible to this user.
    #[error(
        "cannot open /dev/fuse: {0}: run as root or let this user read and write it; in a container, start it with --device /dev/fuse"
    )]
    Device(std::io::Error),
    /// Mounting without root needs a helper program.
    #[error("mounting needs root or fusermount3, which is not here: run as root, or install it (fuse3 on Debian)")]
    NoHelper,
    /// The kernel refused to mount.
    #[error(
        "cannot mount at {}: {cause}: a container needs CAP_SYS_ADMIN, a user the right to write in the mount point",
        mount.display()
    )]
    Mount {
        /// The mount point.
        mount: PathBuf,
        /// The reported error.
        cause: String,
    },
    /// Only mounts of root can have set-user-ID files.
    #[error("--allow-suid needs root: in a user's own mount set-user-ID files never have an effect; leave it out")]
    AllowSuid,
    /// The list of mounts cannot be read.
    #[error("cannot read /proc/self/mountinfo: {0}: mount /proc")]
    Mounts(std::io::Error),
    /// Nothing is mounted there.
    #[error("nothing is mounted at {0}: findmnt -t fuse.netlathe lists netlathe's mounts", mount.display())]
    NotMounted {
        /// The mount point.
        mount: PathBuf,
    },
    /// Another file system is mounted there.
    #[error("{0} is a mount of {source_of} ({kind}), not of netlathe's: umount {0} if that is meant", mount.display())]
    NotOurs {
        /// The mount point.
        mount: PathBuf,
        /// Its type.
        kind: String,
        /// Its device.
        source_of: String,
    },
    /// Programs use it.
    #[error("{0} is in use: end the programs that are in it (fuser -vm {0} lists them), then try again", mount.display())]
    Busy {
        /// The mount point.
        mount: PathBuf,
    },
    /// The kernel refused to unmount.
    #[error("cannot unmount {}: {cause}", mount.display())]
    Unmount {
        /// The mount point.
        mount: PathBuf,
        /// The reported error.
        cause: String,
    },
    /// Changes in mapped files were not written completely.
    #[error(
        "some changes to files mapped from {} did not reach the backing directory: {cause}: check those files",
        mount.display()
    )]
    Unwritten {
        /// The mount point.
        mount: PathBuf,
        /// The error of the backing directory.
        cause: std::io::Error,
    },
    /// Threads cannot be created.
    #[error("cannot start a thread: {0}: end other programs, or raise ulimit -u")]
    Threads(std::io::Error),
    /// The memory limit of the process is too low.
    #[error("memory is limited to {} KiB, which may be too little: ulimit -v {}, or more", has / 1024, least / 1024)]
    Memory {
        /// The limit in bytes.
        has: u64,
        /// The required memory in bytes.
        least: u64,
    },
}
