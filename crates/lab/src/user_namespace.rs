//! Labs without root: the program restarts itself inside a user namespace, where it has the necessary rights.
//!
//! Inside, a new tmpfs covers /run, because `ip netns` keeps its namespaces there and an ordinary user cannot write to
//! the machine's /run. Everything disappears with the last process inside.

use std::convert::Infallible;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::tool;

/// Set in the restarted process, so that it does not try a second time.
const MARK: &str = "NETLATHE_USER_NAMESPACE";
/// The two capabilities that a lab needs, as bits of `CapEff` (linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;
/// Covers /run, and /var/run if that is a separate folder, then becomes the program.
const ENTER: &str = "mount -t tmpfs -o mode=755 tmpfs /run && \
                     { [ /var/run -ef /run ] || mount -t tmpfs -o mode=755 tmpfs /var/run; } && exec \"$@\"";

/// Whether this process may build labs: it has CAP_NET_ADMIN and CAP_SYS_ADMIN. User ID 0 is not sufficient in a
/// container.
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

/// Whether this process is inside a user namespace created by [`reexec_in_user_namespace`].
#[must_use]
pub fn in_user_namespace() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Kernel settings that forbid user namespaces to ordinary users: the forbidding value and an allowing one. The second
/// is from Debian's kernels before 12, the third from Ubuntu since 23.10.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

/// The command that allows ordinary users to create user namespaces, if a setting below `root` (`/` except in tests)
/// forbids it. `None` if no setting does; a container may still forbid it.
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

/// Restarts this program with the same arguments, as root of a new user namespace with its own networks and mounts.
/// Does not return on success: the process stays the same (PID, terminal, signals).
///
/// Only one user exists inside, so programs cannot change to another user (`tcpdump` needs `-Z root`). The machine's
/// /run and its sockets are hidden.
///
/// # Errors
/// [`Error::UserNamespaceRefused`] if an attempt shows that the machine does not permit it; [`Error::MissingTool`].
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
    // Try `true` first, because a failure after the exec below could not be explained.
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
    // Without --fork, unshare becomes the program, so signals to our PID reach it.
    command.args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c", ENTER, "sh"]);
    command.env("PATH", tool::search_path());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_setting_that_forbids() {
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
