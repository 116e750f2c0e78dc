//! The private folder of a service, with its scenarios and sockets.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "netlathe-serve-";
/// A file in the folder that the service keeps locked. The kernel releases the lock however the service ends.
const LOCK: &str = "lock";

/// A folder with mode 0700 that is removed with the service. The folder of a killed service is removed when the next
/// service starts.
pub(crate) struct RunFolder {
    folder: TempDir,
    _lock: File,
}

impl RunFolder {
    /// Creates a folder in `place`. Removes folders of this user that killed services left there.
    pub(crate) fn make_in(place: &Path) -> io::Result<Self> {
        remove_dead(place);
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(place)?;
        let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(RunFolder { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders that are left behind. A folder without a lock file belongs to a service that is starting, or is not
/// ours.
fn remove_dead(place: &Path) {
    let us = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // Does not follow symbolic links.
        let is_ours = || entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == us);
        if is_named
            && is_ours()
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // A folder that cannot be removed is harmless.
            let _removed = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_service_is_removed_at_the_next_start() {
        let place = tempfile::tempdir().expect("a folder");
        let living = RunFolder::make_in(place.path()).expect("a folder");
        let dead = place.path().join("netlathe-serve-dead");
        fs::create_dir(&dead).expect("a folder");
        fs::write(dead.join("1.toml"), "schema = 2").expect("a file");
        fs::write(dead.join(LOCK), "").expect("a file");
        let other = place.path().join("netlathe-serve-other");
        fs::create_dir(&other).expect("a folder");
        let next = RunFolder::make_in(place.path()).expect("a folder");
        assert!(!dead.exists() && living.path().exists() && other.exists());
        assert_eq!(next.path().metadata().expect("it is there").mode() & 0o777, 0o700);
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
