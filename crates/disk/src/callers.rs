//! The programs that request operations, and their permissions on Linux.

use rustix::process::Pid;
use rustix::thread::CapabilitySet;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// The program that requested an operation.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Its thread ID in our PID namespace; 0 if it is not visible there.
    pub(crate) pid: u32,
    pub(crate) umask: u32,
}

impl Caller {
    /// Whether the caller has a capability in our user namespace. Reads `/proc`, so call only if necessary. If `/proc`
    /// gives no answer, only root is assumed to have it.
    pub(crate) fn has(self, capability: CapabilitySet) -> bool {
        let namespace = |who: &str| fs::metadata(format!("/proc/{who}/ns/user")).map(|link| (link.dev(), link.ino()));
        let thread = Pid::from_raw(self.pid.cast_signed());
        let sets = thread.and_then(|thread| rustix::thread::capabilities(Some(thread)).ok());
        match (sets, namespace(&self.pid.to_string()), namespace("self")) {
            (Some(sets), Ok(theirs), Ok(ours)) => theirs == ours && sets.effective.contains(capability),
            _ => self.uid == 0,
        }
    }

    /// Whether the caller is in a group.
    pub(crate) fn is_in_group(self, gid: u32) -> bool {
        if self.gid == gid {
            return true;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
        groups.split_whitespace().any(|group| group.parse() == Ok(gid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_thread(uid: u32, gid: u32) -> Caller {
        let pid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        Caller { uid, gid, pid, umask: 0 }
    }

    #[test]
    fn reads_groups_and_capabilities_of_the_thread() {
        let own = rustix::process::getgroups().expect("they can be asked");
        let caller = this_thread(0, 4_000_000_000);
        assert!(own.iter().all(|group| caller.is_in_group(group.as_raw())));
        assert!(caller.is_in_group(4_000_000_000) && !caller.is_in_group(4_000_000_001));
        let effective = rustix::thread::capabilities(None).expect("they can be asked").effective;
        for capability in [CapabilitySet::FSETID, CapabilitySet::SYS_ADMIN, CapabilitySet::WAKE_ALARM] {
            assert_eq!(caller.has(capability), effective.contains(capability), "{capability:?}");
        }
    }

    #[test]
    fn invisible_caller_is_judged_by_its_user_id() {
        for (uid, has) in [(0, true), (1000, false)] {
            let caller = Caller { pid: 0, ..this_thread(uid, 7) };
            assert_eq!(caller.has(CapabilitySet::FSETID), has);
            assert!(caller.is_in_group(7) && !caller.is_in_group(8));
        }
    }
}
