//! A machine, described by its kernel's files, and the findings of the checks.

use serde::Serialize;
use std::fs;
use std::path::PathBuf;

/// The result of one check.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) what: String,
    pub(super) good: bool,
    pub(super) found: String,
    /// The remedy, unless the finding is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn good(what: impl Into<String>, found: impl Into<String>) -> Self {
        Finding { what: what.into(), good: true, found: found.into(), remedy: None }
    }

    pub(super) fn bad(what: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { what: what.into(), good: false, found: found.into(), remedy: Some(remedy.into()) }
    }
}

/// The kernel's files of a machine, below `root`.
pub(super) struct Machine {
    pub(super) root: PathBuf,
}

impl Machine {
    /// The trimmed text of a file; `None` if it is absent or cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The names in a folder, sorted; empty if it is absent.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The interfaces of this network namespace, sorted; `None` if unknown. `/sys` is not used, because it shows the
    /// namespace in which it was mounted.
    #[cfg(feature = "live")]
    pub(super) fn interfaces(&self) -> Option<Vec<String>> {
        let listed = self.read("proc/net/dev")?;
        let name = |line: &str| line.split_once(':').map(|(name, _)| name.trim().to_owned());
        let mut names: Vec<String> = listed.lines().filter_map(name).collect();
        names.sort();
        Some(names)
    }

    /// Whether this is the initial user namespace, the only one that maps all users to themselves.
    #[cfg(feature = "live")]
    pub(super) fn is_first_user_namespace(&self) -> bool {
        self.read("proc/self/uid_map").is_some_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
    }

    /// The last component of a link's target.
    #[cfg(feature = "live")]
    pub(super) fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.root.join(path)).ok()?.file_name()?.to_string_lossy().into_owned())
    }
}

/// A machine with files that a test writes.
#[cfg(test)]
pub(super) struct FakeMachine {
    pub(super) folder: tempfile::TempDir,
}

#[cfg(test)]
impl FakeMachine {
    pub(super) fn new(files: &[(&str, &str)]) -> (FakeMachine, Machine) {
        let fake = FakeMachine { folder: tempfile::tempdir().expect("a folder") };
        for (path, text) in files {
            fake.write(path, text);
        }
        let root = fake.folder.path().to_owned();
        (fake, Machine { root })
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is ours");
        fs::write(path, format!("{text}\n")).expect("it is ours");
    }

    #[cfg(feature = "live")]
    pub(super) fn link(&self, path: &str, to: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is ours");
        std::os::unix::fs::symlink(to, path).expect("it is ours");
    }
}
