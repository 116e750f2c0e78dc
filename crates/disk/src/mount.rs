//! Mounting, and putting back what was there before.

use crate::backing::Backing;
use crate::gate::Gate;
use crate::later::before_others;
use crate::limits::Limits;
use crate::mounts::{self, Mount};
use crate::report::Tallies;
use crate::service::Service;
use crate::{Ask, Error};
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

/// Threads that take operations from the kernel. They do not wait for what is delayed, but for the
/// backing directory they do.
const THREADS: usize = 16;

/// Handles of files that the kernel knows and no program has open: enough for any tree that is worked in.
const MOST_HANDLES: usize = 100_000;

/// Addresses that may be needed, in bytes: a thread has a buffer of 16 MiB, a stack and a heap of its own.
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

/// How a mount ended.
pub struct Ended {
    /// What came to pass.
    pub tallies: Tallies,
    /// Programs had files open or were in the directory: it is gone for all others, and for them now.
    pub busy: bool,
    /// The kernel did not unmount, for another reason than that it was in use; or it did, and not all that programs
    /// had changed reached the backing directory.
    pub failure: Option<Error>,
}

/// Mounts what is asked, and serves it from threads of its own.
///
/// # Errors
/// Directories that cannot be used for this, a kernel without FUSE, missing rights.
pub fn mount(ask: &Ask) -> Result<Mounted, Error> {
    if ask.allow_suid && !geteuid().is_root() {
        return Err(Error::AllowSuid);
    }
    let backing = directory(&ask.backing)?;
    let target = mounts::absolute(&ask.mount);
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
    // A thread that finds no room for its buffer would end the process, and leave the mount behind.
    if let Some(has) = getrlimit(Resource::As).current.filter(|has| *has < LEAST_MEMORY) {
        return Err(Error::Memory { has, least: LEAST_MEMORY });
    }
    let covers = fs::read_dir(&target).is_ok_and(|mut entries| entries.next().is_some());
    let gate = Arc::new(Gate::new(ask)?);
    let root = openat(CWD, &backing, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|cause| Error::Directory { path: backing.clone(), cause: cause.into() })?;
    let limits = forbidden(&root, ask)?;
    // What is mounted below may be `nosuid` if set-user-ID files are to work all the same.
    let tolerated = Limits { nosuid: limits.nosuid || ask.allow_suid, ..limits };
    // One half for what the kernel knows, one for what programs have open.
    let handles = (raise_open_files() / 2).clamp(16, MOST_HANDLES);
    // Each operation brings the umask of its program.
    rustix::process::umask(Mode::empty());
    let shared_maps = Arc::new(OnceLock::new());
    let service = Service {
        backing: Arc::new(
            Backing::new(root, handles, tolerated)
                .map_err(|cause| Error::Directory { path: backing.clone(), cause: cause.into() })?,
        ),
        gate: Arc::clone(&gate),
        cached: ask.cached,
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
    let shared_maps = ask.cached || shared_maps.get().copied().unwrap_or(false);
    Ok(Mounted { mount: target, gate, session, shared_maps, covers, limits })
}

impl Mounted {
    /// Where it is, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// False where this kernel does not let programs map files that others see the changes of.
    #[must_use]
    pub fn has_shared_maps(&self) -> bool {
        self.shared_maps
    }

    /// What cannot be done with the files there: what the mount of the backing directory forbids. To a user's own mount
    /// the kernel adds `nosuid` and `nodev`.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The mount point was not empty: what is in it is hidden for the time being.
    #[must_use]
    pub fn covers_something(&self) -> bool {
        self.covers
    }

    /// True once somebody else has unmounted it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.session.is_finished()
    }

    /// What came so far.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        self.gate.tallies()
    }

    /// Unmounts, answering at once whatever still waits.
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
                    // Whether or not that can be written, nobody serves the mount from now on.
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

    /// Has the kernel write what programs have changed in mapped files, which is not on its way yet.
    fn write_back(&self) -> Result<(), Error> {
        let Ok(root) = openat(CWD, &self.mount, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return Ok(()) };
        let sync = || {
            let unwritten = |cause: Errno| Error::Unwritten { mount: self.mount.clone(), cause: cause.into() };
            rustix::fs::syncfs(&root).map_err(unwritten)
        };
        let begun = sync();
        // Of FUSE, newer kernels do not wait for what they have begun to write, so that errors come later.
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

/// How long the end waits for answers to be given: what takes longer finds the disk gone.
const SETTLING: Duration = Duration::from_millis(250);

/// So long without such a write nothing is on its way any more. Other operations are none of it: programs that go on
/// reading and writing would keep the disk, which is as fast as its backing directory by then.
const QUIET: Duration = Duration::from_millis(50);
/// How long what is on its way is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Unmounts a directory that some netlathe mounted, whether that still runs, has ended, or was killed.
/// Says whether it was left behind by one that is gone.
///
/// # Errors
/// The directory is not a mount of netlathe's, or is in use while its netlathe runs.
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
            // Nobody can do anything in it any more but hold it.
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

/// Why a mount is still there.
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

/// Unmounting without privilege, by the program that has it.
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
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else if said.contains("busy") {
        Err(Detach::Busy)
    } else {
        Err(Detach::Other(said.trim().replace('\n', "; ")))
    }
}

fn helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    ["fusermount3", "fusermount"]
        .iter()
        .find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file()))
}

/// A directory's path without links.
fn directory(path: &Path) -> Result<PathBuf, Error> {
    let whole = fs::canonicalize(path).and_then(|whole| fs::metadata(&whole).map(|metadata| (whole, metadata)));
    let (whole, metadata) = whole.map_err(|cause| Error::Directory { path: path.to_owned(), cause })?;
    if metadata.is_dir() { Ok(whole) } else { Err(Error::NoDirectory { path: path.to_owned() }) }
}

/// Whether this machine lets this user mount a file system of their own.
///
/// # Errors
/// No FUSE, no right to use it, nobody to help a user who is not root.
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

/// What our mount is to forbid: what the mount of the backing directory does, and to users who are not root set-user-ID
/// files and devices in any case.
fn forbidden(root: &OwnedFd, ask: &Ask) -> Result<Limits, Error> {
    let unknown = |cause: Errno| Error::Directory { path: ask.backing.clone(), cause: cause.into() };
    let limits = Limits::of(root).map_err(unknown)?;
    if geteuid().is_root() {
        Ok(Limits { nosuid: limits.nosuid && !ask.allow_suid, ..limits })
    } else {
        Ok(Limits { nosuid: true, nodev: true, ..limits })
    }
}

fn options(backing: &Path, limits: Limits) -> Config {
    let mut config = Config::default();
    // A comma would begin another option.
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

/// Raises the limit of open files as far as that goes; says where it is.
fn raise_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    // Only root may have more than the hard limit, and not in every container.
    for maximum in [most, limit.maximum].into_iter().flatten() {
        let wanted = Rlimit { current: Some(maximum), maximum: limit.maximum.map(|limit: u64| limit.max(maximum)) };
        if setrlimit(Resource::Nofile, wanted).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
