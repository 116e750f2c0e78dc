//! What an ordinary user can do, and the messages if the machine forbids it. As root, these tests switch to another
//! user. They print `SKIP: why` if user namespaces are unavailable.

use crate::bed::{Bed, Finished, Program, lab_name, netlathe, number};
use crate::common::caveats;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A copy of netlathe that any user may run, wherever the target folder is.
struct User {
    folder: TempDir,
}

impl User {
    fn new() -> User {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Copy with `cp`. If this process copied the file, a child that another test starts meanwhile would inherit it
        // open for writing, and it could not be executed.
        let copied = Command::new("cp").arg(netlathe()).arg(folder.path().join("netlathe")).status();
        assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
        User { folder }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("netlathe")
    }

    /// Runs a shell script as an ordinary user, to its end. `$0` is netlathe.
    fn shell(&self, script: &str) -> Finished {
        let mut command = Command::new("setpriv");
        if lab::privileged() {
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
        }
        // No new privileges, even as root inside a container.
        command.args(["--no-new-privs", "--", "sh", "-c", script]).arg(self.program());
        Program::start({
            command.current_dir("/").stdin(Stdio::null());
            command
        })
        .wait()
    }
}

/// Whether the machine refuses namespaces to this user. Prints the reason if so.
fn refused(finished: &Finished) -> bool {
    let refused = finished.stderr.contains("needs user namespaces");
    if refused {
        println!("SKIP: {}", finished.stderr);
    }
    refused
}

#[test]
fn shapes_in_a_lab_of_their_own() {
    let user = User::new();
    let name = lab_name("own");
    let script = "\"$0\" shape --in c0 --out s0 --json --duration 6s & \
        \"$0\" lab run --on client -- ping -c 10 -i 0.5 -W 1 $NETLATHE_SERVER >&2; \
        wait";
    let finished = user.shell(&format!("exec \"$0\" lab run --name {name} -- sh -c '{script}' \"$0\""));
    if refused(&finished) {
        return;
    }
    let report = finished.report();
    assert!(number(&report, "/out/frames") >= 5, "{finished:?}");
    assert!(number(&report, "/return/out/frames") >= 5, "{finished:?}");
    for port in caveats(&finished.whole_report(), "port") {
        assert_eq!(port["driver"], "net_af_packet");
    }
    assert!(finished.stderr.contains("bytes from 10.77.0.100"), "{finished:?}");
    assert!(!finished.stderr.contains("netlathe: "), "{finished:?}");
}

/// Packet rings are kernel memory, so a user needs no right to lock memory.
#[test]
fn shapes_whatever_memory_may_be_locked() {
    let user = User::new();
    let name = lab_name("limit");
    let shape = "\"$0\" shape --in c0 --out s0 --json --duration 100ms";
    for limit in [0, 64, 1024] {
        let finished = user.shell(&format!("ulimit -l {limit}; exec \"$0\" lab run --name {name} -- {shape}"));
        if refused(&finished) {
            return;
        }
        finished.report();
    }
}

/// Simulates a machine that forbids user namespaces: a user namespace in which no further one may be created.
#[test]
fn names_the_setting_that_forbids_namespaces() {
    let user = User::new();
    let finished = user.shell(
        "exec unshare --user --map-root-user sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && \
         exec setpriv --bounding-set=-all --inh-caps=-all -- \"$0\" lab run -- true' \"$0\"",
    );
    if finished.stderr.contains("unshare failed") && !finished.stderr.contains("netlathe: ") {
        println!("SKIP: {}", finished.stderr);
        return;
    }
    finished.assert_refused(&["needs user namespaces", "run it as root", "`sysctl -w user.max_user_namespaces=10000`"]);
}

#[test]
fn sees_which_labs_root_has() {
    let Some(bed) = Bed::shared("seen", |_| {}) else { return };
    let finished = User::new().shell("exec \"$0\" lab list");
    assert_eq!((finished.status.code(), finished.stderr.as_str()), (Some(0), ""), "{finished:?}");
    for node in ["client1", "box", "server"] {
        let namespace = format!("nl-{}-{node}", bed.lab.name());
        assert!(finished.stdout.contains(&namespace), "no {namespace} in {finished:?}");
    }
}
