//! Rings of both writers, Rust and C, as seen by the reader.

use probe::{Direction, Reader, Ring, ticks};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// An enabled ring of about this many bytes, `ring` in a temporary folder.
fn ring(bytes: usize) -> (TempDir, Ring, Reader) {
    let folder = folder();
    let path = folder.path().join("ring");
    let ring = Ring::configure(&path, bytes).expect("it is made");
    let reader = Reader::open(&path).expect("it is there");
    reader.enable(true);
    (folder, ring, reader)
}

#[test]
fn blocks_are_read_as_written() {
    let (_folder, ring, mut reader) = ring(64 << 10);
    ring.name(3, "outer");
    ring.name(5, "two\nlines");
    let before = ticks();
    let mut block = ring.init(17, Direction::Receive);
    block.lengths(8, 20, 1_028);
    block.start(3);
    block.start(4);
    block.stop(4);
    block.stop(3);
    block.stop(9); // never started
    ring.exit(block);
    let data = reader.next_block().expect("one block");
    assert_eq!(reader.next_block(), None);
    assert_eq!((data.protocol, data.direction, data.event), (17, Direction::Receive, 0));
    assert_eq!((data.transport_header, data.ip_header, data.length), (8, 20, 1_028));
    assert!(data.start >= before && data.thread != 0);
    let ids: Vec<u8> = data.sections.iter().map(|section| section.id).collect();
    assert_eq!(ids, [4, 3], "in the order in which they stopped");
    let (inner, outer) = (data.sections[0], data.sections[1]);
    assert!(outer.after <= inner.after && inner.length <= outer.length, "{data:?}");
    assert_eq!((reader.name(3).as_deref(), reader.name(4)), (Some("outer"), None));
    assert_eq!(reader.name(5).as_deref(), Some("two\u{fffd}lines"));
    let costs = reader.costs();
    assert!(costs.inside > 0.0 && costs.inside <= costs.beta, "{costs:?}");
}

#[test]
fn writes_nothing_without_a_reader() {
    let folder = folder();
    let path = folder.path().join("ring");
    let ring = Ring::configure(&path, 64 << 10).expect("it is made");
    let put = || {
        let mut block = ring.init(6, Direction::Send);
        block.start(0);
        block.stop(0);
        ring.exit(block);
    };
    put();
    let mut reader = Reader::open(&path).expect("it is there");
    assert_eq!(reader.next_block(), None, "it was off");
    reader.enable(true);
    put();
    assert!(reader.next_block().is_some());
    drop(reader);
    put();
    let mut reader = Reader::open(&path).expect("it is there");
    assert_eq!(reader.next_block(), None, "it is off again when its reader has gone");
}

#[test]
fn a_full_ring_drops_and_counts() {
    let folder = folder();
    let path = folder.path().join("ring");
    let mut reader = Reader::open_or_create(&path, 8 << 10).expect("it is made");
    let ring = Ring::configure(&path, 1 << 20).expect("it keeps its size");
    reader.enable(true);
    let slots = reader.slots();
    assert!(slots > 0 && slots < 20, "{slots}");
    for round in 0..3 {
        for _ in 0..slots + 5 {
            ring.exit(ring.init(6, Direction::Send));
        }
        let mut got = 0;
        while reader.next_block().is_some() {
            got += 1;
        }
        assert_eq!((got, reader.dropped()), (slots, 5 * (round + 1)));
    }
    reader.forget();
    assert_eq!(reader.dropped(), 0);
}

#[test]
fn sections_beyond_the_room_are_counted() {
    let (_folder, ring, mut reader) = ring(64 << 10);
    let mut block = ring.init(6, Direction::Send);
    for _ in 0..20 {
        block.start(1);
        block.stop(1);
    }
    ring.exit(block);
    let data = reader.next_block().expect("one block");
    assert_eq!((data.sections.len(), data.beyond), (16, 4));
}

#[test]
fn threads_share_a_ring() {
    let (_folder, ring, mut reader) = ring(4 << 20);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    ring.exit(ring.init(6, Direction::Send));
                }
            });
        }
    });
    let mut threads = BTreeMap::new();
    while let Some(data) = reader.next_block() {
        *threads.entry(data.thread).or_insert(0) += 1;
    }
    assert_eq!(threads.into_values().collect::<Vec<_>>(), [500; 4]);
}

#[test]
fn refuses_files_that_are_not_rings() {
    let folder = folder();
    for (name, content) in [("empty", Vec::new()), ("short", vec![1; 100]), ("other", vec![7; 100_000])] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        assert!(Reader::open(&path).is_err() && Ring::configure(&path, 1 << 20).is_err(), "{name}");
    }
    let refused = |path: &Path| Reader::open(path).map(drop).expect_err("it is none").to_string();
    std::fs::write(folder.path().join("letters"), "abc").expect("it can be written");
    assert!(refused(&folder.path().join("letters")).contains("not a ring"));
    let null = refused(Path::new("/dev/null"));
    assert!(null.contains("not a file") && !null.contains("remove"), "{null}");
    assert!(Reader::open(&folder.path().join("none")).is_err());
    assert!(Ring::configure(folder.path().join("tiny"), 100).is_err());
}

/// A thread that is killed between reserving a slot and filling it does not block later blocks forever.
#[test]
fn gives_up_and_counts_an_unfinished_block() {
    let (folder, ring, mut reader) = ring(64 << 10);
    let put = || ring.exit(ring.init(6, Direction::Send));
    put();
    // Reserves the slot of the second block without filling it.
    let file = File::options().read(true).write(true).open(folder.path().join("ring")).expect("it is there");
    file.write_all_at(&2_u64.to_ne_bytes(), 8 * 8).expect("it can be written");
    put();
    assert!(reader.next_block().is_some());
    assert!(reader.next_block().is_none() && reader.waits() && reader.lost() == 0, "it may still come");
    std::thread::sleep(Duration::from_millis(1_100));
    assert!(reader.next_block().is_some(), "the one behind it");
    assert_eq!((reader.lost(), reader.waits(), reader.next_block()), (1, false, None));
}

/// Blocks that began together share one wait, whatever their number.
#[test]
fn gives_up_unfinished_blocks_together() {
    let (folder, ring, mut reader) = ring(64 << 10);
    let file = File::options().read(true).write(true).open(folder.path().join("ring")).expect("it is there");
    file.write_all_at(&20_u64.to_ne_bytes(), 8 * 8).expect("it can be written");
    assert!(reader.next_block().is_none() && reader.waits());
    std::thread::sleep(Duration::from_millis(1_100));
    ring.exit(ring.init(6, Direction::Send));
    assert!(reader.next_block().is_some(), "the one behind them");
    assert_eq!((reader.lost(), reader.waits()), (20, false));
    file.write_all_at(&30_u64.to_ne_bytes(), 8 * 8).expect("it can be written");
    reader.discard_unfinished();
    assert_eq!((reader.lost(), reader.waits(), reader.is_damaged()), (29, false, false));
}

/// Wrong counts do not keep a reader from later blocks, or from its end.
#[test]
fn continues_after_contradictory_counts() {
    for (at, count) in [(8, 1_000_000), (8, u64::MAX), (8, u64::MAX / 2), (16, 7), (16, u64::MAX)] {
        let (folder, ring, mut reader) = ring(64 << 10);
        let file = File::options().read(true).write(true).open(folder.path().join("ring")).expect("it is there");
        file.write_all_at(&count.to_ne_bytes(), 8 * at).expect("it can be written");
        assert!(reader.next_block().is_none());
        assert!(reader.is_damaged() && !reader.waits() && reader.lost() == 0, "{at}: {count}");
        if count < u64::MAX / 2 {
            ring.exit(ring.init(6, Direction::Send));
            assert!(reader.next_block().is_some(), "{at}: {count}");
        }
    }
}

/// Every process that finds the file finds a complete ring, also during creation and after its creator was killed.
#[test]
fn ring_gets_its_name_when_complete() {
    let folder = folder();
    for round in 0..20 {
        let path = folder.path().join(format!("ring{round}"));
        let configure = || Ring::configure(&path, 8 << 20).map(drop);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(configure)).collect();
            for thread in threads {
                thread.join().expect("it does not panic").expect("no thread finds half a ring");
            }
        });
    }
    // A creator that was killed leaves a file with another name.
    std::fs::write(folder.path().join("late.new00"), []).expect("it can be written");
    Ring::configure(folder.path().join("late"), 64 << 10).expect("it is made nevertheless");
    let names = std::fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(names, 22, "20 rings, what was left behind, and one more");
}

#[test]
fn a_ring_has_one_reader() {
    let folder = folder();
    let path = folder.path().join("ring");
    let reader = Reader::open_or_create(&path, 64 << 10).expect("it is made");
    let error = Reader::open(&path).expect_err("each block is read once");
    assert!(error.to_string().contains("end the other"), "{error}");
    drop(reader);
    assert!(Reader::open(&path).is_ok());
}

/// The file may be truncated during any read: other maps beyond the end of their file raise a signal.
#[test]
fn truncated_ring_has_no_more_blocks() {
    for round in 0..100_u32 {
        let (folder, ring, mut reader) = ring(64 << 10);
        reader.enable(true);
        let mut block = ring.init(6, Direction::Send);
        block.start(1);
        block.stop(1);
        ring.exit(block);
        assert_eq!(reader.next_block().expect("one").protocol, 6);
        let file = File::options().write(true).open(folder.path().join("ring")).expect("it is there");
        // Truncates to nothing, or to a length that leaves some of the pages.
        let length = if round % 2 == 0 { 0 } else { 4_096 + u64::from(round) };
        let cutter = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(u64::from(round)));
            file.set_len(length).expect("it is cut");
        });
        while reader.check_length().is_ok() {
            assert_eq!(reader.next_block(), None);
            let _ = (reader.name(1), reader.costs(), reader.dropped());
        }
        cutter.join().expect("it ends");
        reader.enable(true);
        reader.forget();
        assert_eq!((reader.next_block(), reader.waits()), (None, false));
        assert!(reader.check_length().expect_err("it was cut").to_string().contains("the ring was cut"));
        drop(reader);
    }
}

/// A killed reader did not turn the probes off, so the program does it when its ring is full.
#[test]
fn probes_turn_off_after_their_reader_was_killed() {
    let folder = folder();
    let path = folder.path().join("ring");
    let mut reader = Reader::open_or_create(&path, 8 << 10).expect("it is made");
    let ring = Ring::configure(&path, 8 << 10).expect("it is there");
    let fill = || (0..30).for_each(|_| ring.exit(ring.init(6, Direction::Send)));
    let file = File::options().write(true).open(&path).expect("it is there");
    // The last poll was long ago, or the counter has restarted since. A value of 0 would mean no poll.
    for looked in [1, u64::MAX / 2] {
        reader.enable(true);
        fill();
        let dropped = reader.dropped();
        assert!(dropped > 0);
        file.write_all_at(&u64::to_ne_bytes(looked), 17 * 8).expect("it can be written");
        fill();
        assert_eq!(reader.dropped(), dropped + 1, "the first that is dropped is the last");
        while reader.next_block().is_some() {}
        fill();
        assert_eq!(reader.next_block(), None, "they are off");
    }
    reader.enable(true);
    fill();
    assert!(reader.next_block().is_some_and(|block| block.after_drop), "some were dropped before it");
    assert!(reader.next_block().is_some_and(|block| !block.after_drop));
}

#[test]
fn counts_section_numbers_above_31_as_beyond() {
    let (_folder, ring, mut reader) = ring(64 << 10);
    let mut block = ring.init(6, Direction::Send);
    for id in [33, 31, 255] {
        block.start(id);
        block.stop(id);
    }
    ring.exit(block);
    let data = reader.next_block().expect("one block");
    let ids: Vec<u8> = data.sections.iter().map(|section| section.id).collect();
    assert_eq!((ids, data.beyond), (vec![31], 2), "33 is not 1");
}

/// The header compiles without warnings under strict compiler settings.
#[test]
fn the_header_is_c_and_cpp() {
    const PROGRAM: &str = r#"
#include "netlathe_probe.h"
int main(void)
{
    struct netlathe_ring ring;
    struct netlathe_block block;
    if (netlathe_configure(&ring, "ring", 1 << 20)) return 1;
    netlathe_init(&ring, &block, 6, NETLATHE_SEND);
    netlathe_lengths(&block, 20, 20, 100);
    netlathe_start(&block, 1);
    netlathe_stop(&block, 1);
    netlathe_exit(&ring, &block);
    return 0;
}
"#;
    let folder = folder();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, source, standards) in [
        ("gcc", "p.c", &["c99", "gnu99", "c11", "gnu11", "c17"][..]),
        ("clang", "p.c", &["c99", "c11", "gnu17"]),
        ("g++", "p.cc", &["c++11", "c++17", "gnu++17"]),
    ] {
        std::fs::write(folder.path().join(source), PROGRAM).expect("it can be written");
        for standard in standards {
            let compiled = Command::new(compiler)
                .args(["-O2", "-Wall", "-Wextra", "-pedantic", "-Wshadow", "-Wconversion", "-Werror"])
                .args([&format!("-std={standard}"), source, "-o", "p", "-I"])
                .arg(&include)
                .current_dir(folder.path())
                .output();
            let Ok(compiled) = compiled else {
                println!("SKIP: there is no {compiler}");
                break;
            };
            assert!(compiled.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&compiled.stderr));
        }
    }
}

/// The same test with a C program that includes only the header.
#[test]
fn the_header_for_c_writes_the_same_ring() {
    const PROGRAM: &str = r#"
#include "netlathe_probe.h"
#include <stdio.h>
#include <sys/wait.h>
int main(int count, char **argv)
{
    struct netlathe_ring ring;
    if (count != 2 || netlathe_configure(&ring, argv[1], 64 << 10)) { perror("configure"); return 1; }
    netlathe_name(&ring, 5, "written in C");
    if (fork() < 0) return 1; /* both write: a child is another thread */
    for (int i = 0; i < 5; i++) {
        struct netlathe_block block;
        netlathe_init(&ring, &block, 6, NETLATHE_SEND);
        netlathe_lengths(&block, 32, 20, 180);
        netlathe_start(&block, 5);
        for (uint64_t t = netlathe_ticks(); netlathe_ticks() - t < 20000;) {}
        netlathe_stop(&block, 5);
        netlathe_exit(&ring, &block);
    }
    wait(NULL);
    return 0;
}
"#;
    let folder = folder();
    let (source, binary, path) = (folder.path().join("p.c"), folder.path().join("p"), folder.path().join("ring"));
    std::fs::write(&source, PROGRAM).expect("it can be written");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let compiled = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-I"])
        .args([&include, &source])
        .arg("-o")
        .arg(&binary)
        .output();
    let Ok(compiled) = compiled else {
        println!("SKIP: there is no gcc");
        return;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut reader = Reader::open_or_create(&path, 64 << 10).expect("it is made");
    reader.enable(true);
    assert!(Command::new(&binary).arg(&path).status().expect("it runs").success());
    let mut threads = BTreeMap::new();
    for _ in 0..10 {
        let data = reader.next_block().expect("ten blocks");
        *threads.entry(data.thread).or_insert(0) += 1;
        assert_eq!((data.protocol, data.direction, data.length), (6, Direction::Send, 180));
        assert_eq!((data.sections.len(), data.sections[0].id), (1, 5));
        assert!(data.sections[0].length >= 20_000, "{data:?}");
    }
    assert_eq!(threads.into_values().collect::<Vec<_>>(), [5; 2], "each process has threads of its own");
    assert_eq!((reader.next_block(), reader.dropped()), (None, 0));
    assert_eq!(reader.name(5).as_deref(), Some("written in C"));
    let costs = reader.costs();
    assert!(costs.inside > 0.0 && costs.beta < 10_000.0, "{costs:?}");
}
