//! Several labs at once, each removed with the programs in it.

use super::CLIENT;
use crate::bed::{Bed, Program, lab_name, number};
use lab::Node;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn lab_down_ends_running_and_killed_programs() {
    let Some(bed) = Bed::shared("down", |_| {}) else { return };
    let killed = bed.shape("");
    killed.signal("KILL");
    killed.wait();
    let running = bed.shape("");
    let name = bed.lab.name().to_owned();
    let down = Command::new(crate::bed::netlathe()).args(["lab", "down", &name]).output().expect("it runs");
    assert!(down.status.success(), "{down:?}");
    assert!(String::from_utf8_lossy(&down.stderr).contains("ended netlathe"), "{down:?}");
    running.wait().report();
    let left = fs::read_dir("/run/netns")
        .expect("namespaces are there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(left.filter(|left| left.starts_with(&format!("nl-{name}-"))).collect::<Vec<_>>(), Vec::<String>::new());
    assert!(!Path::new(&format!("/run/netlathe/labs/{name}.json")).exists());
}

#[test]
fn labs_run_side_by_side() {
    let Some(one) = Bed::shared("side-a", |_| {}) else { return };
    // The second lab does not take the lock on the cores: taking it twice in one thread could deadlock.
    let two = lab::Guard::up(&lab::Topology::named(lab_name("side-b"))).expect("a second lab comes up");
    let shape = one.shape("");
    let in_two = |node, arguments: &[&str]| {
        let mut command = two.command(node, arguments[0]).expect("the program exists");
        command.args(&arguments[1..]).stdin(Stdio::null());
        command
    };
    let ping = ["ping", "-c", "2", "-i", "0.2", "-W", "1", "10.77.0.100"];
    let alone = in_two(CLIENT, &ping).output().expect("it runs");
    assert!(!alone.status.success(), "the first lab's shape carries the second lab's frames");
    let other =
        Program::start(in_two(Node::Box, &[crate::bed::netlathe(), "shape", "--in", "c0", "--out", "s0", "--json"]));
    let start = Instant::now();
    while !in_two(CLIENT, &ping).output().expect("it runs").status.success() {
        assert!(start.elapsed() < Duration::from_secs(20), "the second carries nothing");
    }
    // The loop above ends with one reply of two: the first ping may have been sent before the shape started.
    let again = in_two(CLIENT, &ping).output().expect("it runs");
    assert!(again.status.success(), "{again:?}");
    one.stdout(CLIENT, "ping -c 2 -i 0.2 -W 1 10.77.0.100");
    let other = other.stop();
    assert!(number(&other.report(), "/out/frames") >= 2, "{other:?}");
    shape.stop().report();
}
