//! Mounting and unmounting.

use crate::backing::Backing;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::mounts::{self, Mount};
use crate::report::Tallies;
use crate::scheduler::before_others;
use crate::service::Service;
use crate::{DiskConfig, Error};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that take operations from the kernel. They wait for the backing directory, but not for delays.
const THREADS: usize = 16;

/// Limit on handles of files that the kernel knows and no program has open: enough for any working tree.
const MOST_HANDLES: usize = 100_000;

/// Required address space in bytes: each thread has a buffer of 16 MiB, a stack and a heap.
const LEAST_MEMORY: u64 = 2 << 30;

/// A mounted directory.
pub struct Mounted {
    mount: PathBuf,
    gate: Arc<Gate>,
    session: JoinHandle<std::io::Result<()>>,
    shared_maps: bool,
    covers: bool,
    limits: Limits,
}

/// Result of a mount.
pub struct Ended {
    /// The figures.
    pub tallies: Tallies,
    /// Programs had files open or were in the directory. It was detached for others at once, and is now gone for these
    /// programs as well.
    pub busy: bool,
    /// The kernel failed to unmount for a reason other than use, or not all changes of programs reached the backing
    /// directory.
    pub failure: Option<Error>,
}

/// Mounts a disk and serves it on separate threads.
///
/// # Errors
/// Unsuitable directories, a kernel without FUSE, or missing rights.
pub fn mount(config: &DiskConfig) -> Result<Mounted, Error> {
    if config.allow_suid && !geteuid().is_root() {
        return Err(Error::AllowSuid);
    }
    let backing = directory(&config.backing)?;
    let target = mounts::absolute(&config.mount);
    if let Some(mount) = mounts::at(&target)? {
        return Err(if mount.is_ours() {
            Error::Mounted { mount: target }
        } else {
            Error::MountPoint { mount: target, kind: mount.kind, source_of: mount.source }
        });
    }
    let target = directory(&target)?;
    if backing.starts_with(&target) || target.starts_with(&backing) {
        return Err(Error::Nested { backing, mount: target });
    }
    permitted()?;
    // A thread without memory for its buffer would abort the process and leave the mount behind.
    if let Some(has) = getrlimit(Resource::As).current.filter(|has| *has < LEAST_MEMORY) {
        return Err(Error::Memory { has, least: LEAST_MEMORY });
    }
    let covers = fs::read_dir(&target).is_ok_and(|mut entries| entries.next().is_some());
    let gate = Arc::new(Gate::new(config)?);
    let root = openat(CWD, &backing, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|cause| Error::Directory { path: backing.clone(), cause: cause.into() })?;
    let limits = forbidden(&root, config)?;
    // Mounts below the backing directory may be `nosuid` if set-user-ID files are to work anyway.
    let tolerated = Limits { nosuid: limits.nosuid || config.allow_suid, ..limits };
    // Half for files that the kernel knows, half for files that programs have open.
    let handles = (raise_open_files() / 2).clamp(16, MOST_HANDLES);
    // Each operation carries the umask of its program.
    rustix::process::umask(Mode::empty());
    let shared_maps = Arc::new(OnceLock::new());
    let service = Service {
        backing: Arc::new(
            Backing::new(root, handles, tolerated)
                .map_err(|cause| Error::Directory { path: backing.clone(), cause: cause.into() })?,
        ),
        gate: Arc::clone(&gate),
        cached: config.cached,
        shared_maps: Arc::clone(&shared_maps),
    };
    let session =
        Session::new(service, &target, &options(&backing, limits)).map_err(|cause| refused(&target, &cause))?;
    let session = std::thread::Builder::new()
        .name("disk".into())
        .spawn(move || {
            before_others();
            session.run()
        })
        .map_err(Error::Threads)?;
    let shared_maps = config.cached || shared_maps.get().copied().unwrap_or(false);
    Ok(Mounted { mount: target, gate, session, shared_maps, covers, limits })
}

impl Mounted {
    /// The absolute path of the mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// False if this kernel does not support shared file mappings here.
    #[must_use]
    pub fn has_shared_maps(&self) -> bool {
        self.shared_maps
    }

    /// The restrictions of its files: those of the mount of the backing directory. For mounts of ordinary users the
    /// kernel adds `nosuid` and `nodev`.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The mount point was not empty; its contents are hidden while mounted.
    #[must_use]
    pub fn covers_something(&self) -> bool {
        self.covers
    }

    /// True once someone else has unmounted it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.session.is_finished()
    }

    /// The figures so far.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        self.gate.tallies()
    }

    /// Unmounts, and answers all waiting operations at once.
    #[must_use]
    pub fn end(self) -> Ended {
        self.gate.hurry();
        self.gate.settle(SETTLING);
        let (mut busy, mut failure) = (false, None);
        if !self.is_gone() {
            match detach(&self.mount, UnmountFlags::empty()) {
                Ok(()) => {}
                Err(Detach::Busy) => {
                    busy = true;
                    // The mount is no longer served from here on, even if writing back fails.
                    let written = self.write_back();
                    let detached = detach(&self.mount, UnmountFlags::DETACH).map_err(|error| error.of(&self.mount));
                    failure = written.and(detached).err();
                }
                Err(error) => failure = Some(error.of(&self.mount)),
            }
        }
        if !busy && failure.is_none() {
            let ended = self.session.join();
            let ended = ended.unwrap_or_else(|_| Err(std::io::Error::other("a thread of it panicked")));
            let unmount = |cause: std::io::Error| Error::Unmount { mount: self.mount, cause: cause.to_string() };
            failure = ended.map_err(unmount).err();
        }
        Ended { tallies: self.gate.tallies(), busy, failure }
    }

    /// Asks the kernel to write back changes of mapped files.
    fn write_back(&self) -> Result<(), Error> {
        let Ok(root) = openat(CWD, &self.mount, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return Ok(()) };
        let sync = || {
            let unwritten = |cause: Errno| Error::Unwritten { mount: self.mount.clone(), cause: cause.into() };
            rustix::fs::syncfs(&root).map_err(unwritten)
        };
        let begun = sync();
        // For FUSE, newer kernels do not wait for writes that they have started, so errors arrive later.
        let end = Instant::now() + PATIENCE;
        let mut before = self.gate.write_backs();
        while Instant::now() < end {
            std::thread::sleep(QUIET);
            let now = self.gate.write_backs();
            if now == before {
                break;
            }
            before = now;
        }
        begun.and(sync())
    }
}

/// How long the end waits for pending answers; slower operations fail.
const SETTLING: Duration = Duration::from_millis(250);

/// Without a write-back for this long, none is pending. Other operations do not count: programs that keep reading and
/// writing would hold up the end.
const QUIET: Duration = Duration::from_millis(50);
/// Limit on the wait for write-backs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmounts a directory mounted by netlathe, whether that process still runs, has ended, or was killed. Returns whether
/// its process was gone.
///
/// # Errors
/// The directory is not a netlathe mount, or is in use while its netlathe runs.
pub fn unmount(mount: &Path) -> Result<bool, Error> {
    let target = mounts::absolute(mount);
    let mut stale = false;
    let mut found = false;
    while let Some(mount) = mounts::at(&target)? {
        if !mount.is_ours() {
            return if found {
                Ok(stale)
            } else {
                Err(Error::NotOurs { mount: target, kind: mount.kind, source_of: mount.source })
            };
        }
        found = true;
        let dead = is_dead(&target);
        stale |= dead;
        match detach(&target, UnmountFlags::empty()) {
            Ok(()) => {}
            // Programs cannot use a dead mount, only keep it busy.
            Err(Detach::Busy) if dead => {
                detach(&target, UnmountFlags::DETACH).map_err(|error| error.of(&target))?;
            }
            Err(error) => return Err(error.of(&target)),
        }
    }
    if found { Ok(stale) } else { Err(Error::NotMounted { mount: target }) }
}

/// Whether the process that served a mount is gone.
fn is_dead(mount: &Path) -> bool {
    fs::metadata(mount).is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()))
}

/// Why a directory could not be unmounted.
enum Detach {
    Busy,
    Other(String),
}

impl Detach {
    fn of(self, mount: &Path) -> Error {
        let mount = mount.to_owned();
        match self {
            Detach::Busy => Error::Busy { mount },
            Detach::Other(cause) => Error::Unmount { mount, cause },
        }
    }
}

fn detach(mount: &Path, flags: UnmountFlags) -> Result<(), Detach> {
    match rustix::mount::unmount(mount, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Detach::Busy),
        Err(Errno::PERM) => by_helper(mount, flags),
        Err(cause) => Err(Detach::Other(cause.to_string())),
    }
}

/// Unmounts without privilege, through the setuid helper.
fn by_helper(mount: &Path, flags: UnmountFlags) -> Result<(), Detach> {
    let Some(helper) = helper() else {
        return Err(Detach::Other("that needs root or fusermount3 (Debian: apt-get install fuse3)".into()));
    };
    let mut command = Command::new(helper);
    command.arg("-u");
    if flags.contains(UnmountFlags::DETACH) {
        command.arg("-z");
    }
    let output = command.arg("--").arg(mount).output().map_err(|cause| Detach::Other(cause.to_string()))?;
    let message = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else if message.contains("busy") {
        Err(Detach::Busy)
    } else {
        Err(Detach::Other(message.trim().replace('\n', "; ")))
    }
}

fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    ["fusermount3", "fusermount"]
        .iter()
        .find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
}

/// The canonical path of a directory.
fn directory(path: &Path) -> Result<PathBuf, Error> {
    let whole = fs::canonicalize(path).and_then(|whole| fs::metadata(&whole).map(|metadata| (whole, metadata)));
    let (whole, metadata) = whole.map_err(|cause| Error::Directory { path: path.to_owned(), cause })?;
    if metadata.is_dir() { Ok(whole) } else { Err(Error::NoDirectory { path: path.to_owned() }) }
}

/// Checks that this user may mount a FUSE file system.
///
/// # Errors
/// No FUSE, no access to it, or no helper for a user other than root.
pub fn permitted() -> Result<(), Error> {
    let device = Path::new("/dev/fuse");
    let opened = fs::OpenOptions::new().read(true).write(true).open(device);
    match opened {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Err(Error::NoFuse),
        Err(cause) => return Err(Error::Device(cause)),
        Ok(_) => {}
    }
    if !geteuid().is_root() && helper().is_none() {
        return Err(Error::NoHelper);
    }
    Ok(())
}

/// The restrictions of our mount: those of the mount of the backing directory, plus `nosuid` and `nodev` for users
/// other than root.
fn forbidden(root: &OwnedFd, config: &DiskConfig) -> Result<Limits, Error> {
    let unknown = |cause: Errno| Error::Directory { path: config.backing.clone(), cause: cause.into() };
    let limits = Limits::of(root).map_err(unknown)?;
    if geteuid().is_root() {
        Ok(Limits { nosuid: limits.nosuid && !config.allow_suid, ..limits })
    } else {
        Ok(Limits { nosuid: true, nodev: true, ..limits })
    }
}

fn options(backing: &Path, limits: Limits) -> Config {
    let mut config = Config::default();
    // A comma would start another option.
    let name = backing.to_string_lossy().replace([',', '\\'], "_");
    config.mount_options = vec![
        MountOption::FSName(name),
        MountOption::CUSTOM(format!("subtype={}", Mount::SUBTYPE)),
        MountOption::DefaultPermissions,
    ];
    if geteuid().is_root() {
        config.acl = SessionACL::All;
    }
    config.mount_options.extend([
        if limits.nosuid { MountOption::NoSuid } else { MountOption::Suid },
        if limits.nodev { MountOption::NoDev } else { MountOption::Dev },
        if limits.noexec { MountOption::NoExec } else { MountOption::Exec },
    ]);
    config.n_threads = Some(THREADS);
    config
}

fn refused(mount: &Path, cause: &std::io::Error) -> Error {
    let text = cause.to_string().trim().replace('\n', "; ");
    Error::Mount { mount: mount.to_owned(), cause: text }
}

/// Raises the limit on open files to the highest permitted value and returns it.
fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    // Only root may exceed the hard limit, and not in every container.
    for maximum in [most, limit.maximum].into_iter().flatten() {
        let wanted = Rlimit { current: Some(maximum), maximum: limit.maximum.map(|limit: u64| limit.max(maximum)) };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
