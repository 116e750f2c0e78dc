//! Restrictions of a mount: `nosuid`, `nodev`, `noexec`.

use rustix::fd::AsFd;
use rustix::fs::{StatVfsMountFlags, fstatvfs};
use rustix::io::Errno;
use std::fmt;

/// What a mount forbids for its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Set-user-ID and set-group-ID bits and file capabilities have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Programs cannot be run.
    pub noexec: bool,
}

impl Limits {
    /// The restrictions of the mount through which a file was opened.
    pub(crate) fn of(file: impl AsFd) -> Result<Self, Errno> {
        let flags = fstatvfs(file)?.f_flag;
        let has = |flag| flags.contains(flag);
        Ok(Limits {
            nosuid: has(StatVfsMountFlags::NOSUID),
            nodev: has(StatVfsMountFlags::NODEV),
            noexec: has(StatVfsMountFlags::NOEXEC),
        })
    }

    /// Whether `other` forbids something that these restrictions allow.
    pub(crate) const fn allow_more_than(self, other: Self) -> bool {
        (!self.nosuid && other.nosuid) || (!self.nodev && other.nodev) || (!self.noexec && other.noexec)
    }

    /// The names of the restrictions that are set, as for `mount -o`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = [("nosuid", self.nosuid), ("nodev", self.nodev), ("noexec", self.noexec)];
        named.into_iter().filter(|(_, set)| *set).map(|(name, _)| name)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_each_limit() {
        let none = Limits::default();
        let nosuid = Limits { nosuid: true, ..none };
        let noexec = Limits { noexec: true, ..none };
        assert!(none.allow_more_than(nosuid) && nosuid.allow_more_than(noexec));
        assert!(!nosuid.allow_more_than(none) && !nosuid.allow_more_than(nosuid));
        assert_eq!(Limits { nodev: true, ..nosuid }.to_string(), "nosuid,nodev");
    }
}
