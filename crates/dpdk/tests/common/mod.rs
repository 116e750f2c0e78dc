//! Shared by the tests of this folder: DPDK started once, and a separate network namespace for a test.
#![allow(dead_code, reason = "each test file uses its part")]

use dpdk::{Eal, EalConfig, HugePages};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Returns DPDK. The first test of the process starts it.
pub(crate) fn eal() -> &'static Eal {
    static FIRST: Mutex<()> = Mutex::new(());
    let _guard = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    Eal::running().unwrap_or_else(|| {
        let config = EalConfig::new("test").memory_mib(512).hugepages(HugePages::Never);
        Eal::init(&config).expect("DPDK starts")
    })
}

const INSIDE: &str = "NETLATHE_TEST_NAMESPACE";

/// Runs the named test again in a separate process inside new namespaces. The namespaces disappear with that process,
/// so nothing is left behind. Returns true inside, where the caller then does its work. `unshare` holds the options of
/// unshare(1); if they do not work, as `-n` for ordinary users, `-Urn` is tried.
pub(crate) fn inside(test: &str, unshare: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let works = |unshare: &&str| {
        let mut trial = Command::new("unshare");
        trial.args([*unshare, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        trial.status().is_ok_and(|status| status.success())
    };
    let Some(unshare) = [unshare, "-Urn"].into_iter().find(works) else {
        println!("SKIP: neither `unshare {unshare}` nor `unshare -Urn` works here");
        return false;
    };
    let program = std::env::current_exe().expect("this test's program");
    let output = Command::new("unshare")
        .arg(unshare)
        .arg(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "inside the namespace: {}", String::from_utf8_lossy(&output.stderr));
    false
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) {
    // An ordinary user's PATH lacks the administrators' folders.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let status = Command::new("ip").args(words.split_whitespace()).env("PATH", path).status().expect("ip runs");
    assert!(status.success(), "ip {words}");
}

/// Creates a veth pair with both ends up, on which Linux itself sends nothing.
pub(crate) fn veth(a: &str, b: &str, mtu: u16) {
    // Fails on a kernel without IPv6, where there is nothing to disable.
    for what in ["all", "default"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{what}/disable_ipv6"), "1");
    }
    ip(&format!("link add {a} mtu {mtu} type veth peer name {b} mtu {mtu}"));
    ip(&format!("link set {a} up"));
    ip(&format!("link set {b} up"));
}

/// Bytes of a broadcast frame that carries a number. Its EtherType is not used otherwise.
pub(crate) fn frame(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; length];
    bytes[..6].fill(0xff);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..22].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// The number in a frame made by [`frame`].
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    (bytes.get(12..14)? == [0x88, 0xb5]).then_some(())?;
    Some(u64::from_be_bytes(bytes.get(14..22)?.try_into().ok()?))
}
