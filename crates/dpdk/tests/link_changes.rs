//! The kernel's notifications of interface changes, in a separate network namespace.

mod common;

use common::{inside, ip, veth};
use dpdk::LinkChanges;
use std::time::{Duration, Instant};

/// Whether a change is reported within 5 s.
fn sees_change(changes: &mut LinkChanges) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        if changes.any() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Waits until the kernel has sent all messages of a change, such as a carrier change that follows it.
fn settle(changes: &mut LinkChanges) {
    let mut quiet = 0;
    for _ in 0..500 {
        quiet = if changes.any() { 0 } else { quiet + 1 };
        if quiet == 30 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the kernel does not fall silent");
}

#[test]
fn reports_changes_and_nothing_without_them() {
    if !inside("reports_changes_and_nothing_without_them", "-n") {
        return;
    }
    let mut changes = LinkChanges::open().expect("a socket");
    assert!(!changes.any());
    veth("nla", "nlb", 1500);
    assert!(sees_change(&mut changes));
    settle(&mut changes);
    for change in ["mtu 1400", "down", "name nlc", "up"] {
        let name = if change == "up" { "nlc" } else { "nla" };
        ip(&format!("link set {name} {change}"));
        assert!(sees_change(&mut changes), "{change}");
        settle(&mut changes);
    }
    ip("link del nlb");
    assert!(sees_change(&mut changes), "deleted");
    // More messages than the socket buffer holds.
    for n in 0..400 {
        ip(&format!("link set lo mtu {}", 2_000 + n % 2));
    }
    assert!(sees_change(&mut changes), "an overflow is a change");
    settle(&mut changes);
}
