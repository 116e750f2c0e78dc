//! A disk mounted by root must not grant rights that the backing directory does not grant.

use crate::disk::bed::{Disk, can_mount, has, netlathe};
use std::path::Path;
use std::process::Command;

/// Whether a test can switch to other users. Prints the reason if not.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIP: only root can be two users");
    }
    root
}

fn python(script: &str, arguments: &[&str], folder: &Path) -> String {
    let output = Command::new("python3").args(["-c", script]).arg(folder).args(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Follows xfstests generic/355, 375, 683, 684 and 685, with more ways to change a file.
#[test]
fn set_user_id_and_capabilities_go_as_in_an_ordinary_directory() {
    if !can_mount() || !has("python3") || !is_root() {
        return;
    }
    const SCRIPT: &str = include_str!("rights.py");
    for options in [&[][..], &["--cached"]] {
        let disk = Disk::mounted(options);
        let (expected, got) = (python(SCRIPT, &[], &disk.mirror()), python(SCRIPT, &[], &disk.path()));
        let different: Vec<_> = expected.lines().zip(got.lines()).filter(|(expected, got)| expected != got).collect();
        assert!(different.is_empty(), "{options:?}: {different:#?}");
        assert!(expected.lines().count() > 200 && expected.lines().count() == got.lines().count());
        drop(disk.report());
    }
}

#[test]
fn user_written_files_never_run_as_root() {
    if !can_mount() || !has("python3") || !has("id") || !is_root() {
        return;
    }
    const SCRIPT: &str = include_str!("overwrite.py");
    let slow = ["--delay", "open 60ms"];
    let slow_cached = ["--delay", "open 60ms", "--cached"];
    for (options, when) in [(&[][..], "before"), (&["--cached"], "before"), (&slow, "during"), (&slow_cached, "during")]
    {
        let disk = Disk::mounted(options);
        assert_eq!(python(SCRIPT, &["100", when], &disk.path()), "100 0\n", "{options:?} {when}");
        drop(disk.report());
    }
}

/// Runs a script in its own mount namespace. The script must print the lines in `expected`. In the script, `$N` is
/// netlathe, `mounted OPTIONS` mounts `b` at `m`, `ended` ends that mount, and `user COMMAND` runs a command as an
/// ordinary user.
fn in_own_mounts(script: &str, expected: &[&str]) {
    if !can_mount() || !has("unshare") || !has("setpriv") || !has("id") || !is_root() {
        return;
    }
    const FUNCTIONS: &str = r#"
        mounted() {
            "$N" disk --backing b --mount m --json "$@" > report 2> said & pid=$!
            for i in $(seq 500); do grep -q "$PWD/m " /proc/self/mountinfo && return; sleep 0.02; done
            cat said; exit 1
        }
        ended() { kill -INT $pid; wait $pid; }
        user() { setpriv --reuid 1234 --regid 1234 --clear-groups -- "$@" 2>&1 | sed 's/.*: //'; }
        mkdir b m; chmod 755 .; chmod 777 b m
    "#;
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!("set -e; {FUNCTIONS}\n{script}");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).env("N", env!("CARGO_BIN_EXE_netlathe")).current_dir(folder.path());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") {
        println!("SKIP: {said}");
        return;
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let told = String::from_utf8(output.stdout).expect("text");
    assert_eq!(told.lines().collect::<Vec<_>>(), expected, "{said}");
}

#[test]
fn keeps_restrictions_of_the_backing_mount() {
    let script = r#"
        try() { # OPTIONS: what a mount with them lets a user do, and what the disk of it
            mount -t tmpfs -o mode=777,"$1" none b
            cp "$(command -v id)" b/id; chmod 4755 b/id; mknod b/null c 1 3; chmod 666 b/null
            mounted $2
            echo "$1 $2:" $(grep " $PWD/m " /proc/self/mountinfo | grep -oE '(nosuid|nodev|noexec)' | sort -u)
            for d in b m; do echo "$d" $(user $d/id -u) $(user sh -c "echo x > $d/null && echo written"); done
            ended; grep -o '"mount_options":[^]]*' report; umount b
        }
        try suid
        try nosuid
        try nodev
        try noexec
        try nosuid,nodev,noexec
        try nosuid,nodev --allow-suid
    "#;
    let denied = "Permission denied";
    let lines = |asked: &str, names: &str, run: &str, device: &str, listed: &str| {
        let head = format!("{asked}: {names}").trim_end().to_owned();
        let options = format!("\"mount_options\":[{listed}");
        (head, run.to_owned(), device.to_owned(), options)
    };
    let mut expected = Vec::new();
    for (head, run, device, options) in [
        lines("suid ", "", "0", "written", ""),
        lines("nosuid ", "nosuid", "1234", "written", "\"nosuid\""),
        lines("nodev ", "nodev", "0", denied, "\"nodev\""),
        lines("noexec ", "noexec", denied, "written", "\"noexec\""),
        lines("nosuid,nodev,noexec ", "nodev noexec nosuid", denied, denied, "\"nosuid\",\"nodev\",\"noexec\""),
    ] {
        expected.extend([head, format!("b {run} {device}"), format!("m {run} {device}"), options]);
    }
    expected.extend(
        [
            "nosuid,nodev --allow-suid: nodev",
            "b 1234 Permission denied",
            "m 0 Permission denied",
            "\"mount_options\":[\"nodev\"",
        ]
        .map(str::to_owned),
    );
    in_own_mounts(script, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn file_capabilities_stay_without_effect_where_the_backing_mount_is_nosuid() {
    if !has("python3") {
        return;
    }
    // The file capability CAP_SETUID, effective when the program starts.
    let script = r#"
        mount -t tmpfs -o mode=777,nosuid none b
        cp "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" b/python
        python3 -c 'import os, struct; os.setxattr("b/python", "security.capability",
            struct.pack("<5I", 0x02000001, 1 << 7, 0, 0, 0))'
        for options in "" --cached --allow-suid; do
            mounted $options
            user m/python -c 'import os; os.setuid(0); print("became", os.getuid())' | tail -n 1
            ended
        done
    "#;
    in_own_mounts(script, &["[Errno 1] Operation not permitted", "[Errno 1] Operation not permitted", "became 0"]);
}

#[test]
fn a_mount_below_that_forbids_more_is_not_entered() {
    let script = r#"
        stick() { mount -t tmpfs -o mode=777,$1 none b/$2; cp "$(command -v id)" b/$2/id; chmod 4755 b/$2/id; }
        look() { user ls m/$1 | head -n 1; user m/$1/id -u; }
        mkdir b/stick b/plain b/later; cp "$(command -v id)" b/file; cp b/file b/other; chmod 4755 b/file
        stick nosuid stick; stick suid plain
        mount --bind b/stick/id b/other
        mounted
        look stick; look plain; user m/other -u
        stick nodev,nosuid later; sleep 0.05; look later
        ls m | tr '\n' ' '; echo
        ended; mounted --allow-suid
        look stick; look later
        ended; mount -t tmpfs -o mode=777,nosuid none b; mkdir b/stick; stick nosuid stick
        mounted; look stick; ended
    "#;
    let denied = "Permission denied";
    let expected = [
        denied,
        denied,
        "id",
        "0",
        denied,
        denied,
        denied,
        "file later other plain stick ",
        "id",
        "0",
        denied,
        denied,
        "id",
        "1234",
    ];
    in_own_mounts(script, &expected);
}

#[test]
fn only_root_may_allow_set_user_id() {
    if !has("setpriv") || !is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["b", "m"] {
        std::fs::create_dir(folder.path().join(name)).expect("it is empty");
    }
    std::os::unix::fs::chown(folder.path(), Some(1234), Some(1234)).expect("root may");
    std::fs::copy(env!("CARGO_BIN_EXE_netlathe"), folder.path().join("netlathe")).expect("it can be copied");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1234", "--regid", "1234", "--clear-groups", "--", "./netlathe", "disk"]);
    command.args(["--backing", "b", "--mount", "m", "--allow-suid"]).current_dir(folder.path());
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--allow-suid needs root"), "{said}");
    assert!(said.lines().count() == 1, "{said}");
    let help = netlathe().args(["disk", "--help"]).output().expect("it runs").stdout;
    assert!(String::from_utf8_lossy(&help).contains("--allow-suid"));
}
