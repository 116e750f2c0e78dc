use std::path::PathBuf;
use thiserror::Error as ThisError;
use units::ParseError;

/// Why there is no slow disk, or it cannot be put away.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The ask cannot be had.
    #[error(transparent)]
    Ask(#[from] ParseError),
    /// A directory cannot be looked at.
    #[error("cannot use {}: {cause}: give a directory that is there", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the kernel says.
        cause: std::io::Error,
    },
    /// Something else is there.
    #[error("{} is no directory: give one", path.display())]
    NoDirectory {
        /// What.
        path: PathBuf,
    },
    /// One directory is in the other.
    #[error(
        "{} and {} are the same or one is in the other: give a mount point outside of the backing directory, as mkdir /mnt/slow",
        backing.display(),
        mount.display()
    )]
    Nested {
        /// The backing directory.
        backing: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
    /// Another disk is mounted there.
    #[error("there is a disk of netlathe's at {0} already: netlathe disk --unmount {0}", mount.display())]
    Mounted {
        /// Where.
        mount: PathBuf,
    },
    /// Something else is mounted there.
    #[error(
        "{} is a mount point already, of {source_of} ({kind}): give another directory, as mkdir /mnt/slow",
        mount.display()
    )]
    MountPoint {
        /// Where.
        mount: PathBuf,
        /// Its file system.
        kind: String,
        /// Its device.
        source_of: String,
    },
    /// The kernel has no FUSE.
    #[error(
        "there is no /dev/fuse: as root, modprobe fuse; in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN"
    )]
    NoFuse,
    /// It has, but not for us.
    #[error(
        "cannot open /dev/fuse: {0}: run as root or let this user read and write it; in a container, start it with --device /dev/fuse"
    )]
    Device(std::io::Error),
    /// Without root it needs help.
    #[error("mounting needs root or fusermount3, which is not here: run as root, or install it (fuse3 on Debian)")]
    NoHelper,
    /// The kernel does not mount.
    #[error(
        "cannot mount at {}: {cause}: a container needs CAP_SYS_ADMIN, a user the right to write in the mount point",
        mount.display()
    )]
    Mount {
        /// Where.
        mount: PathBuf,
        /// What is said.
        cause: String,
    },
    /// Only root's mounts can have set-user-ID files.
    #[error("--allow-suid needs root: in a user's own mount set-user-ID files never have an effect; leave it out")]
    AllowSuid,
    /// The list of mounts cannot be read.
    #[error("cannot read /proc/self/mountinfo: {0}: mount /proc")]
    Mounts(std::io::Error),
    /// Nothing is mounted there.
    #[error("nothing is mounted at {0}: findmnt -t fuse.netlathe lists what is", mount.display())]
    NotMounted {
        /// Where.
        mount: PathBuf,
    },
    /// Something else is mounted there.
    #[error("{0} is a mount of {source_of} ({kind}), not of netlathe's: umount {0} if that is meant", mount.display())]
    NotOurs {
        /// Where.
        mount: PathBuf,
        /// Its file system.
        kind: String,
        /// Its device.
        source_of: String,
    },
    /// Programs are in it.
    #[error("{0} is in use: end the programs that are in it (fuser -vm {0} lists them), then try again", mount.display())]
    Busy {
        /// Where.
        mount: PathBuf,
    },
    /// The kernel does not unmount.
    #[error("cannot unmount {}: {cause}", mount.display())]
    Unmount {
        /// Where.
        mount: PathBuf,
        /// What is said.
        cause: String,
    },
    /// Files that programs had mapped are not whole.
    #[error(
        "not all that programs changed in files mapped from {} reached the backing directory: {cause}: check those files",
        mount.display()
    )]
    Unwritten {
        /// Where.
        mount: PathBuf,
        /// What the backing directory says.
        cause: std::io::Error,
    },
    /// No threads to serve it.
    #[error("cannot start a thread: {0}: end other programs, or raise ulimit -u")]
    Threads(std::io::Error),
    /// The process may not have memory enough.
    #[error("memory is limited to {} KiB, which may not do: ulimit -v {}, or more", has / 1024, least / 1024)]
    Memory {
        /// What it may have, in bytes.
        has: u64,
        /// What it needs, in bytes.
        least: u64,
    },
}
