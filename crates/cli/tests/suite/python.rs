//! Runs the tests of the Python package and its pytest plugin in `python/tests`. `make test-python` also installs the
//! package, checks its types, and runs its notebooks.

use crate::typed::root;
use std::process::Command;

/// Returns a Python that has pytest: the first in `PATH`, or Debian's.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        Command::new(python).args(["-c", "import pytest"]).output().is_ok_and(|output| output.status.success())
    })
}

#[test]
fn the_python_package_passes_its_tests() {
    let Some(python) = python() else {
        println!("SKIP: no Python has pytest: apt-get install python3-pytest");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--basetemp"])
        .arg(folder.path().join("tests"))
        .current_dir(root().join("python"))
        .env("NETLATHE", env!("CARGO_BIN_EXE_netlathe"))
        .env("PYTHONPATH", root().join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    // Report tests that this machine does not permit, or whose packages are missing.
    for line in printed.lines().filter(|line| line.starts_with("SKIPPED")) {
        println!("SKIP: {line}");
    }
    assert!(printed.contains(" passed"), "{printed}");
}
