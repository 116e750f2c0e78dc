//! Labs without root: the program starts itself again inside a user namespace, where it has the rights it needs.
//!
//! Inside, a fresh tmpfs covers /run: `ip netns` keeps its namespaces there, and an ordinary user cannot write to the
//! machine's own. All of it ends with the last process inside.

use std::convert::Infallible;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::tool;

/// Set in the process that was started again, so that it does not try a second time.
const MARK: &str = "NETLATHE_USER_NAMESPACE";
/// The two capabilities that a lab takes, as bits of `CapEff` (linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Covers /run, and /var/run where that is a folder of its own, then becomes the program.
const ENTER: &str = "mount -t tmpfs -o mode=755 tmpfs /run && \
                     { [ /var/run -ef /run ] || mount -t tmpfs -o mode=755 tmpfs /var/run; } && exec \"$@\"";

/// Whether this process may build labs where it is: it has CAP_NET_ADMIN and CAP_SYS_ADMIN. Being user 0 says little
/// in a container.
#[must_use]
pub fn privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let needed = CAP_NET_ADMIN | CAP_SYS_ADMIN;
    effective & needed == needed
}

/// Whether this process is inside a user namespace that [`reexec_in_user_namespace`] made.
#[must_use]
pub fn in_user_namespace() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Settings of the kernel that keep ordinary users from making user namespaces: the value that forbids, and one that
/// permits. The second is of Debian's kernels before 12, the third of Ubuntu since 23.10.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

/// The command that lets ordinary users make user namespaces, where a setting below `root` (`/` but in tests) forbids
/// it to them. None when no setting is against it; a container may be, all the same.
#[must_use]
pub fn permit_user_namespaces(root: &Path) -> Option<String> {
    let forbids = |name: &str, value: &str| {
        let file = root.join("proc/sys").join(name.replace('.', "/"));
        fs::read_to_string(file).is_ok_and(|text| text.trim() == value)
    };
    let against = SETTINGS.iter().filter(|(name, forbidding, _)| forbids(name, forbidding));
    let commands: Vec<String> = against.map(|(name, _, permitting)| format!("sysctl -w {name}={permitting}")).collect();
    (!commands.is_empty()).then(|| commands.join(" && "))
}

/// Starts this program again, with the same arguments, as root of a new user namespace with networks and mounts of
/// its own. Does not return when that works: the process stays the same one (number, terminal, signals).
///
/// Only one user exists inside, so programs that change to another user cannot (`tcpdump` wants `-Z root`); and the
/// machine's /run is hidden, with the sockets in it.
///
/// # Errors
/// [`Error::UserNamespaceRefused`] when the machine does not permit it, found by trying; [`Error::MissingTool`].
pub fn reexec_in_user_namespace() -> Result<Infallible> {
    let refused = |detail: String| {
        let remedy = match permit_user_namespaces(Path::new("/")) {
            Some(command) => format!("`{command}`"),
            None => "a container needs CAP_SYS_ADMIN or a seccomp profile that lets `unshare` through".to_owned(),
        };
        Error::UserNamespaceRefused { detail, remedy }
    };
    if in_user_namespace() {
        return Err(refused("already inside one, yet without the rights".to_owned()));
    }
    if tool::which("unshare").is_none() {
        return Err(Error::MissingTool { program: "unshare", package: "util-linux" });
    }
    // Tried with a program that does nothing first: after the exec below a failure cannot be explained any more.
    let trial = enter().arg("true").stdin(Stdio::null()).output().map_err(Error::io("cannot run `unshare`"))?;
    if !trial.status.success() {
        let said = String::from_utf8_lossy(&trial.stderr);
        return Err(refused(said.trim().lines().collect::<Vec<_>>().join("; ")));
    }
    let program = std::env::current_exe().map_err(Error::io("cannot find this program's own file"))?;
    let error = enter().arg(program).args(std::env::args_os().skip(1)).env(MARK, "1").exec();
    Err(Error::io("cannot run `unshare`")(error))
}

fn enter() -> Command {
    let mut command = Command::new("unshare");
    // Without --fork: it becomes the program, so signals sent to our number reach it.
    command.args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c", ENTER, "sh"]);
    command.env("PATH", tool::search_path());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named() {
        let root = tempfile::tempdir().expect("a folder");
        let set = |name: &str, value: &str| {
            let file = root.path().join("proc/sys").join(name.replace('.', "/"));
            fs::create_dir_all(file.parent().expect("a folder")).expect("it is ours");
            fs::write(file, format!("{value}\n")).expect("it is ours");
        };
        assert_eq!(permit_user_namespaces(root.path()), None, "a kernel without the settings");
        set("user.max_user_namespaces", "96365");
        set("kernel.apparmor_restrict_unprivileged_userns", "0");
        assert_eq!(permit_user_namespaces(root.path()), None);
        set("kernel.apparmor_restrict_unprivileged_userns", "1");
        let ubuntu = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
        assert_eq!(permit_user_namespaces(root.path()).as_deref(), Some(ubuntu));
        set("user.max_user_namespaces", "0");
        let both = format!("sysctl -w user.max_user_namespaces=10000 && {ubuntu}");
        assert_eq!(permit_user_namespaces(root.path()), Some(both));
    }
}
