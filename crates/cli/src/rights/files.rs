//! Landlock: the files that may be opened for writing once a run is set up.

use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Rules that permit writing only to these files and within these folders, and removing files only in the folder
/// `removable`. Reading is not restricted. `None` if the kernel has no Landlock.
///
/// # Errors The kernel rejects the rules.
pub(super) fn rules(writable: &[PathBuf], removable: Option<&Path>) -> Result<Option<OwnedFd>, RulesetError> {
    // Linux 6.2 enforces all of these. Earlier kernels do not restrict truncation, and kernels before 5.19 do not
    // restrict moves between folders.
    let writing = AccessFs::from_write(ABI::V3);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(writing)?;
    let mut ruleset = ruleset.create()?;
    for path in writable.iter().map(PathBuf::as_path).chain([Path::new("/dev/null")]) {
        // A missing file cannot be written to either.
        let Ok(there) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { writing } else { AccessFs::from_file(ABI::V3) & writing };
        ruleset = ruleset.add_rule(PathBeneath::new(there, access))?;
    }
    if let Some(Ok(folder)) = removable.map(PathFd::new) {
        ruleset = ruleset.add_rule(PathBeneath::new(folder, AccessFs::RemoveFile))?;
    }
    Ok(ruleset.into())
}
