//! The shim also compiles with later long-term releases of DPDK than the installed one. The headers come from packages
//! of later Debian releases, unpacked beside the build. Prints `SKIP: why` if they are unavailable.

use std::path::Path;
use std::process::Command;

#[track_caller]
fn compiles_with(release: &str, version: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/check-shim.sh");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk");
    let output = Command::new(script).arg(folder).args([release, version]).output().expect("bash is there");
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    match output.status.code() {
        Some(0) => assert!(said.contains(version), "{said}"),
        Some(77) => assert!(said.starts_with("SKIP: "), "{said}"),
        _ => panic!("{said}{}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[test]
fn dpdk_24_11() {
    compiles_with("trixie", "24.11");
}

#[test]
fn dpdk_25_11() {
    compiles_with("forky", "25.11");
}
