//! Programs that a command has started end with it, even if it is killed. Each test prints `SKIP: why` if the machine
//! permits none.

use crate::bed::{Bed, Program};
use lab::Node;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// State and parent of a process.
fn stat(process: u32) -> Option<(char, u32)> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut words = line.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}

/// The first child of `parent` with this name.
fn child(parent: u32, name: &str) -> Option<u32> {
    let listed = fs::read_dir("/proc").expect("it is mounted").flatten();
    let mut all = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.find(|process| {
        let called = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        called.trim() == name && stat(*process).is_some_and(|(state, of)| of == parent && state != 'Z')
    })
}

/// Kills the command once it has started a program of this name. Returns an error if the program does not end too.
fn ends_with(command: Program, name: &str) -> Result<(), String> {
    let start = Instant::now();
    let program = loop {
        if let Some(program) = child(command.pid(), name) {
            break program;
        }
        if start.elapsed() > PATIENCE || stat(command.pid()).is_none_or(|(state, _)| state == 'Z') {
            return Err(format!("no {name} was started: {:?}", command.wait()));
        }
        thread::sleep(Duration::from_millis(5));
    };
    command.signal("KILL");
    command.wait();
    let start = Instant::now();
    while stat(program).is_some_and(|(state, _)| state != 'Z') {
        assert!(start.elapsed() < PATIENCE, "{name} lives on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn the_generator_of_a_search_ends_with_it() {
    let Some(bed) = Bed::paired("orphan-gen") else { return };
    let search = bed.start(Node::Box, "search --out a0 --in a1 --trial 60s --max 2kpps --size 64B");
    ends_with(search, "netlathe").expect("a generator runs");
}

#[test]
fn the_command_of_a_lab_ends_with_it() {
    let name = crate::bed::lab_name("orphan-lab");
    let mut command = Command::new(crate::bed::netlathe());
    // The program ignores SIGTERM, so a plain request would not end it.
    command.args(["lab", "run", "--name", &name, "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"]);
    let ended = ends_with(Program::start(command), "sh");
    let _left = lab::down(&name);
    if let Err(why) = ended {
        println!("SKIP: {why}");
    }
}

#[cfg(feature = "slice")]
#[test]
fn the_command_of_slice_kernel_ends_with_it() {
    let mut command = Command::new(crate::bed::netlathe());
    command.args(["slice", "kernel", "--port", "7", "--duration", "60s", "--", "sleep", "60"]);
    if let Err(why) = ends_with(Program::start(command), "sleep") {
        println!("SKIP: {why}");
    }
}

/// Whether a process with these arguments runs.
fn runs(arguments: &[&str]) -> bool {
    let wanted: Vec<u8> = arguments.iter().flat_map(|word| word.bytes().chain([0])).collect();
    let listed = fs::read_dir("/proc").expect("it is mounted").flatten();
    listed.into_iter().any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|words| words == wanted))
}

/// Kills the command once the children of its program run. One of them is in its own session.
fn grandchildren_end_with(words: &[&str], nap: &str) -> Result<(), String> {
    let script = format!("sleep {nap}1 & setsid sleep {nap}2 & wait");
    let naps = [format!("{nap}1"), format!("{nap}2")];
    let naps = naps.each_ref().map(|nap| ["sleep", nap.as_str()]);
    let mut command = Command::new(crate::bed::netlathe());
    command.args(words).args(["--", "sh", "-c", &script]);
    let command = Program::start(command);
    let start = Instant::now();
    while !naps.iter().all(|nap| runs(nap)) {
        if start.elapsed() > PATIENCE || stat(command.pid()).is_none_or(|(state, _)| state == 'Z') {
            return Err(format!("no program was started: {:?}", command.wait()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    command.signal("KILL");
    command.wait();
    let start = Instant::now();
    while naps.iter().any(|nap| runs(nap)) {
        assert!(start.elapsed() < PATIENCE, "{words:?}: a program lives on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn programs_that_a_command_has_started_end_with_it() {
    let name = crate::bed::lab_name("orphan-grand");
    let nap = std::process::id().to_string();
    let ended = grandchildren_end_with(&["lab", "run", "--name", &name], &nap);
    let _left = lab::down(&name);
    if let Err(why) = ended {
        println!("SKIP: {why}");
    }
    if cfg!(feature = "slice")
        && let Err(why) = grandchildren_end_with(&["slice", "kernel", "--port", "7", "--duration", "60s"], &(nap + "0"))
    {
        println!("SKIP: {why}");
    }
}

#[test]
fn the_word_between_two_netlathes_is_refused_by_others() {
    let run = |words: &[&str]| Command::new(crate::bed::netlathe()).args(words).output().expect("it runs");
    // Process 1 is not the parent.
    let stray = run(&["program-child-of", "1", "echo", "here"]);
    assert!(!stray.status.success() && stray.stdout.is_empty(), "{stray:?}");
    let own = std::process::id().to_string();
    assert_eq!(run(&["program-child-of", &own, "echo", "here"]).stdout, b"here\n");
    assert_eq!(run(&["program-child-of", &own, "no-such-program"]).status.code(), Some(127));
    assert!(run(&["netlathe-child-of", &own, "--version"]).stdout.starts_with(b"netlathe "));
}
