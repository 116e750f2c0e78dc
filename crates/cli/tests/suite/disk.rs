//! Slow and failing disks: the requested faults happen, nothing else changes, and nothing is left behind. Tests print
//! `SKIP: why` on machines that do not permit mounts.
//!
//! Machines hiccup, so timing tests use medians and never rely on an upper bound alone.

mod bed;
mod ends;
mod limits;
mod mirror;
mod rights;

use bed::{Disk, can_mount, figure, has, netlathe};
use mirror::Pair;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

fn shell(script: &str, folder: &Path) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn each_operation_takes_as_long_as_asked() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(&["--delay", "10ms"]);
    let start = Instant::now();
    shell("dd if=/dev/urandom of=f bs=4k count=100 conv=fsync 2>&1; dd if=f of=/dev/null bs=4k", &disk.path());
    assert!(start.elapsed() >= Duration::from_millis(10 * 201), "{:?}", start.elapsed());
    let report = disk.report();
    for (operation, count) in [("read", 100_u32), ("write", 100), ("fsync", 1)] {
        let of = |name: &str| figure(&report, &format!("/operations/{operation}/{name}"));
        // A read at the end of the file returns no data, but takes the full delay.
        assert!((f64::from(count)..=f64::from(count + 2)).contains(&of("count")), "{report}");
        for figure in ["min_ns", "mean_ns", "p50_ns", "p99_ns", "max_ns"] {
            assert_eq!(of(&format!("delay_asked/{figure}")).to_bits(), 10e6_f64.to_bits(), "{figure} in {report}");
        }
        assert!(of("delay_obtained/min_ns") >= 10e6, "{report}");
        // A single fsync gives no useful median: the underlying file system may be slow.
        assert!(count == 1 || of("delay_obtained/p50_ns") < 15e6, "{report}");
    }
    assert!(report["operations"]["create"]["delay_asked"].is_null(), "not asked");
    assert!(report.get("warnings").is_none(), "{report}");
}

/// Warnings are in both forms of a report. Asked errors are shown beside obtained errors.
#[test]
fn reports_begin_with_warnings_and_compare_errors() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell("mkdir backing mount; echo > mount/hidden", folder.path());
    for json in [true, false] {
        let script = format!(
            "\"$0\" disk --backing backing --mount mount --error write eio 50% --duration 60s {} > report 2> said & pid=$!
            for i in $(seq 500); do mountpoint -q mount && break; sleep 0.02; done
            for i in $(seq 100); do echo > mount/f || true; done 2> lost; kill -TERM $pid; wait $pid; cat report",
            if json { "--json" } else { "" }
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).current_dir(folder.path());
        let output = command.output().expect("a shell");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        if json {
            let report: Value = serde_json::from_str(&text).expect("one JSON object");
            let warning = report.pointer("/warnings/0").and_then(Value::as_str).unwrap_or_default();
            assert!(warning.contains("is not empty"), "{report}");
            let of = |name: &str| figure(&report, &format!("/operations/write/{name}"));
            assert!((of("error_asked_ratio") - 0.5).abs() < 1e-9, "{report}");
            // With 100 draws the standard deviation is 0.05.
            assert!((0.2..0.8).contains(&of("error_obtained_ratio")), "{report}");
            assert!((of("errors_injected") / of("count") - of("error_obtained_ratio")).abs() < 1e-9, "{report}");
            assert!(report["operations"]["open"]["error_asked_ratio"].is_null(), "{report}");
            assert!((figure(&report, "/asked/duration_s") - 60.0).abs() < 1e-9, "{report}");
        } else {
            assert!(text.starts_with("warning: ") && text.contains("\ndisk\n"), "{text}");
            assert!(text.contains("errors asked 50.00 %, got "), "{text}");
        }
    }
}

#[test]
fn a_disk_reports_when_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let disk = Disk::notifying(&path);
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).expect("a notification arrives");
    assert_eq!(&bytes[..length], b"READY=1");
    fs::write(disk.path().join("file"), "there").expect("it works");
    disk.report();
    // A disk that cannot be mounted does not report ready.
    let arguments = ["disk", "--mount", "/nowhere", "--backing", "/nowhere/else"];
    let refused = netlathe().args(arguments).env("NOTIFY_SOCKET", &path).output().expect("the binary runs");
    assert_eq!(refused.status.code(), Some(2));
    socket.set_nonblocking(true).expect("it can be asked");
    assert!(socket.recv(&mut bytes).is_err(), "told once");
}

#[test]
fn operations_do_not_wait_for_each_other() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(&["--delay", "200ms", "--ops", "read"]);
    fs::write(disk.path().join("f"), vec![7; 64 * 4096]).expect("writing takes no time");
    let file = File::open(disk.path().join("f")).expect("it is there");
    let together = Barrier::new(64);
    thread::scope(|scope| {
        for n in 0..64 {
            let (file, together) = (&file, &together);
            scope.spawn(move || {
                let mut block = [0; 4096];
                together.wait();
                file.read_exact_at(&mut block, n * 4096).expect("it can be read");
                assert_eq!(block, [7; 4096]);
            });
        }
    });
    drop(file);
    let report = disk.report();
    assert!(figure(&report, "/operations/read/count") >= 64.0);
    // If the reads were delayed one after the other, the median would be 6.4 s.
    let median = figure(&report, "/operations/read/delay_obtained/p50_ns");
    assert!((199e6..1_000e6).contains(&median), "{report}");
}

#[test]
fn bytes_pass_at_the_rate() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(&["--rate", "4MB/s"]);
    let start = Instant::now();
    shell("dd if=/dev/zero of=f bs=50k count=100", &disk.path());
    shell("dd if=f of=/dev/null bs=100k", &disk.path());
    let took = start.elapsed().as_secs_f64();
    // Twice 5.12 MB at 4 MB/s, minus what an idle bucket has saved up.
    let asked = 2.0 * 5.12e6 / 4e6;
    assert!(took > asked * 0.98, "{took} s instead of {asked} s");
    let report = disk.report();
    assert_eq!(figure(&report, "/total/bytes").to_bits(), 10_240_000_f64.to_bits());
    let got = figure(&report, "/total/rate_bps");
    assert!(got < 32e6 * 1.02 && got > 32e6 * 0.5, "{got}");
}

#[test]
fn delays_are_of_the_law_and_of_the_seed() {
    if !can_mount() {
        return;
    }
    let run = |seed: &str| {
        let disk = Disk::mounted(&["--delay", "uniform 1ms..5ms", "--ops", "write", "--seed", seed]);
        shell("dd if=/dev/zero of=f bs=512 count=300", &disk.path());
        let report = disk.report();
        let of = |name: &str| figure(&report, &format!("/operations/write/delay_asked/{name}"));
        assert!(of("min_ns") >= 0.99e6 && of("max_ns") <= 5.01e6, "{report}");
        // The mean of 300 draws has a standard deviation of 67 µs.
        assert!((of("mean_ns") - 3e6).abs() < 6.0 * 67e3, "{report}");
        report["operations"]["write"]["delay_asked"].clone()
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn operations_have_delays_and_errors_of_their_own() {
    if !can_mount() {
        return;
    }
    let options = ["--delay", "read 2ms; write,unlink 20ms", "--error", "fsync", "eio", "100%"];
    let disk = Disk::mounted(&options);
    shell("dd if=/dev/zero of=f bs=4k count=20 && dd if=f of=/dev/null bs=4k", &disk.path());
    let synced = File::open(disk.path().join("f")).expect("it is there").sync_all();
    assert_eq!(synced.map_err(|error| error.raw_os_error()), Err(Some(5)));
    fs::remove_file(disk.path().join("f")).expect("it can be removed");
    let report = disk.report();
    for (operation, ns) in [("read", 2e6), ("write", 20e6), ("unlink", 20e6)] {
        let of = |name: &str| figure(&report, &format!("/operations/{operation}/{name}"));
        assert!((of("delay_asked/p50_ns") / ns - 1.0).abs() < 2e-3, "{report}");
        assert!((1.0..1.5).contains(&(of("delay_obtained/p50_ns") / ns)), "{report}");
        assert!(of("errors_injected").abs() < 0.5, "{report}");
    }
    assert!(report["operations"]["fsync"]["delay_asked"].is_null(), "no delay names it: {report}");
}

#[test]
fn errors_occur_at_the_asked_rate() {
    if !can_mount() {
        return;
    }
    let disk = Disk::mounted(&["--error", "eio", "5%", "--error", "enospc 2%", "--ops", "write"]);
    let file = File::create(disk.path().join("f")).expect("it can be made");
    let mut seen = [0_u32; 2];
    const WRITES: u32 = 20_000;
    for i in 0..WRITES {
        match file.write_at(&i.to_le_bytes(), u64::from(i) * 4).map_err(|error| error.raw_os_error()) {
            Ok(4) => {}
            Err(Some(5)) => seen[0] += 1,
            Err(Some(28)) => seen[1] += 1,
            other => panic!("{other:?}"),
        }
    }
    for (seen, share) in [(seen[0], 0.05), (seen[1], 0.02)] {
        let (n, share): (f64, f64) = (WRITES.into(), share);
        let sigma = (n * share * (1.0 - share)).sqrt();
        assert!((f64::from(seen) - n * share).abs() < 4.0 * sigma, "{seen}");
    }
    // Failed writes were not done.
    let content = fs::read(disk.backing().join("f")).expect("it is there");
    let missing = (1..WRITES)
        .filter(|i| content.get(*i as usize * 4..*i as usize * 4 + 4).is_none_or(|at| at != i.to_le_bytes()))
        .count();
    assert!(missing.abs_diff((seen[0] + seen[1]) as usize) <= 1, "{missing} instead of {seen:?}");
    drop(file);
    let report = disk.report();
    let injected = figure(&report, "/total/errors_injected");
    assert_eq!(injected.to_bits(), f64::from(seen[0] + seen[1]).to_bits());
}

#[test]
fn synchronous_writes_are_synced_and_take_the_time_and_errors_of_fsync() {
    if !can_mount() || !has("python3") {
        return;
    }
    const SCRIPT: &str = include_str!("disk/synchronous.py");
    const SYNCHRONOUS: f64 = 21.0;
    let script = |folder: &Path| {
        let output = Command::new("python3").args(["-c", SCRIPT]).arg(folder).output().expect("python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for cached in [&[][..], &["--cached"]] {
        // The backing directory is itself a disk, so its report shows which operations reach it.
        let below = Disk::mounted(&[]);
        let disk = Disk::mounted_on(&below, &[&["--delay", "fsync 20ms"], cached].concat());
        let start = Instant::now();
        let said = script(&disk.path());
        assert!(start.elapsed() >= Duration::from_millis(21 * 20), "{cached:?}: {:?}", start.elapsed());
        let report = disk.report();
        assert_eq!(figure(&report, "/operations/fsync/count").to_bits(), SYNCHRONOUS.to_bits(), "{cached:?}: {report}");
        assert!(figure(&report, "/operations/fsync/delay_obtained/min_ns") >= 20e6, "{cached:?}: {report}");
        assert!(figure(&report, "/operations/write/delay_obtained/p50_ns") < 15e6, "{cached:?}: {report}");
        let report = below.report();
        assert_eq!(figure(&report, "/operations/fsync/count").to_bits(), SYNCHRONOUS.to_bits(), "{cached:?}: {report}");
        assert!(said.starts_with("0 0 True"), "{cached:?}: {said}");

        let disk = Disk::mounted(&[&["--error", "fsync", "eio", "100%"], cached].concat());
        assert_eq!(script(&disk.path()), said.replacen('0', "21", 1), "{cached:?}: what failed is there all the same");
        let report = disk.report();
        assert_eq!(figure(&report, "/total/errors_injected").to_bits(), SYNCHRONOUS.to_bits(), "{cached:?}: {report}");
    }
}

#[test]
fn programs_find_the_semantics_they_rely_on() {
    if !can_mount() || !has("python3") {
        return;
    }
    const SCRIPT: &str = include_str!("disk/semantics.py");
    for options in [&[][..], &["--cached"]] {
        let disk = Disk::mounted(options);
        // The script checks Linux semantics, so an ordinary folder passes too.
        for folder in [disk.mirror(), disk.path()] {
            let mut command = Command::new("python3");
            let output = command.args(["-c", SCRIPT]).arg(&folder).output().expect("python runs");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{options:?} {}: {said}", folder.display());
            assert!(String::from_utf8_lossy(&output.stdout).contains("concurrently"));
        }
        drop(disk.report());
    }
}

/// Random operations on the disk and on an ordinary directory. `NETLATHE_DISK_OPERATIONS` sets how many.
#[test]
fn random_operations_leave_no_difference() {
    if !can_mount() {
        return;
    }
    let wanted = std::env::var("NETLATHE_DISK_OPERATIONS").ok();
    let operations: u32 = wanted.map_or(4_000, |text| text.parse().expect("a number of operations"));
    for (options, seed) in [(&[][..], 3), (&["--cached"], 5)] {
        let disk = Disk::mounted(options);
        let mut pair = Pair::new(&disk.path(), &disk.mirror(), seed);
        for _ in 0..operations {
            pair.step();
        }
        let succeeded: u64 = pair.done.values().map(|(_, succeeded)| succeeded).sum();
        assert!(succeeded > u64::from(operations) / 4, "most did nothing: {:?}", pair.done);
        if operations >= 8_000 {
            assert!(pair.done.values().all(|(_, succeeded)| *succeeded > 0), "{:?}", pair.done);
        }
        drop(pair);
        let mirror = mirror::listing(&disk.mirror());
        assert!(mirror.len() > 10);
        assert_eq!(mirror::listing(&disk.path()), mirror, "the mount point");
        assert_eq!(mirror::listing(&disk.backing()), mirror, "the backing directory");
        drop(disk.report());
    }
}

#[test]
fn there_may_be_more_files_than_handles() {
    if !can_mount() {
        return;
    }
    let disk = Disk::limited(200, &[]);
    let make = "for d in 1 2 3 4 5 6 7 8; do mkdir -p t/$d/e; for i in $(seq 250); do echo $i > t/$d/e/$i; done; done";
    shell(make, &disk.path());
    shell(
        "cp -a t u; diff -r t u; diff -r u ../backing/t; find u -type f | xargs -n 500 chmod 600; mv u v; rm -r t",
        &disk.path(),
    );
    let left = shell("find v -type f -perm 600 | wc -l; cat v/7/e/249", &disk.path());
    assert_eq!(left.split_whitespace().collect::<Vec<_>>(), ["2000", "249"]);
    let mut pair = Pair::new(&disk.path(), &disk.mirror(), 11);
    for _ in 0..2_000 {
        pair.step();
    }
    drop(pair);
    shell("rm -r v", &disk.path());
    assert_eq!(mirror::listing(&disk.backing()), mirror::listing(&disk.mirror()));
    drop(disk.report());
}

#[test]
fn sqlite_works_with_a_write_ahead_log() {
    if !can_mount() || !has("python3") {
        return;
    }
    const SCRIPT: &str = r#"
import multiprocessing, sqlite3
def connect():
    db = sqlite3.connect("db", timeout=60, isolation_level=None)
    assert db.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    return db
def work(number):
    db = connect()
    for i in range(100):
        db.execute("begin immediate")
        db.execute("update sum set value = value + ?", (number,))
        db.execute("insert into log values (?, ?)", (number, i))
        db.execute("commit")
db = connect()
db.execute("create table sum (value)")
db.execute("insert into sum values (0)")
db.execute("create table log (number, i)")
workers = [multiprocessing.Process(target=work, args=(n,)) for n in range(1, 5)]
for worker in workers: worker.start()
for worker in workers: worker.join()
assert [worker.exitcode for worker in workers] == [0] * 4
assert db.execute("select value from sum").fetchone() == (1000,)
assert db.execute("select count(*) from log").fetchone() == (400,)
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
print("ok")
"#;
    for options in [&[][..], &["--cached"]] {
        let disk = Disk::mounted(options);
        fs::write(disk.mirror().join("script.py"), SCRIPT).expect("it can be written");
        assert_eq!(shell("python3 ../mirror/script.py", &disk.path()), "ok\n", "{options:?}");
        drop(disk.report());
    }
}

#[test]
fn git_clones_into_it() {
    if !can_mount() || !has("git") {
        return;
    }
    let disk = Disk::mounted(&[]);
    let make = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=/nonexistent
        git init -q source; cd source; git config user.email a@b; git config user.name n
        for i in $(seq 200); do mkdir -p d$((i % 7)); seq $i $((i * 3)) > d$((i % 7))/f$i; done
        git add .; git commit -qm all; git gc -q";
    shell(make, &disk.mirror());
    let clone = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null HOME=/nonexistent
        git clone -q --no-hardlinks ../mirror/source clone; cd clone; git fsck --strict; git status --porcelain
        git checkout -q -b other; git rm -q -r d3; git -c user.email=a@b -c user.name=n commit -qm less; git checkout -q -
        git gc -q; git fsck --strict; diff -r --exclude=.git . ../../mirror/source";
    assert_eq!(shell(clone, &disk.path()), "");
    drop(disk.report());
}

#[test]
fn a_killed_disk_is_unmounted_and_its_files_are_complete() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::mounted(&["--delay", "1ms"]);
    let written =
        shell("for i in $(seq 20); do head -c 10000 /dev/zero | tr '\\0' x > f$i; echo f$i; done", &disk.path());
    let held = File::open(disk.path().join("f1")).expect("it is there");
    disk.signal(Signal::KILL);
    disk.wait();
    assert!(disk.is_mounted() && fs::metadata(disk.path()).is_err(), "a dead mount");
    let again = netlathe().arg("disk").arg("--backing").arg(disk.backing()).arg("--mount").arg(disk.path()).output();
    let said = String::from_utf8(again.expect("the binary runs").stderr).expect("text");
    assert!(said.contains("--unmount") && said.lines().count() == 1, "{said}");
    let output = disk.unmount();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("left behind"));
    assert!(!disk.is_mounted() && fs::read_dir(disk.path()).expect("a folder").next().is_none());
    drop(held);
    for name in written.lines() {
        assert_eq!(fs::read(disk.backing().join(name)).expect("it is there"), [b'x'; 10_000], "{name}");
    }
    let output = disk.unmount();
    assert_eq!(output.status.code(), Some(2), "nothing is there any more");
    disk.mount(&[]);
    assert_eq!(fs::read(disk.path().join("f20")).expect("it is there"), [b'x'; 10_000]);
    drop(disk.report());
}

#[test]
fn page_cache_serves_repeated_reads_without_delay() {
    if !can_mount() {
        return;
    }
    for (options, again) in [(&["--cached"][..], 0.0), (&[], 100.0)] {
        let disk = Disk::mounted(options);
        fs::write(disk.backing().join("f"), vec![1; 409_600]).expect("it can be written");
        let read = || shell("dd if=f of=/dev/null bs=4096 count=100", &disk.path());
        read();
        read();
        let report = disk.report();
        let count = figure(&report, "/operations/read/count");
        let bytes = figure(&report, "/operations/read/bytes");
        // With the page cache, the kernel reads ahead in larger pieces. The second read is served from the cache.
        if again > 0.0 {
            assert!((200.0..=202.0).contains(&count), "{report}");
        } else {
            assert!(bytes <= 409_600.0 && count < 100.0, "{report}");
        }
    }
}

/// File names are bytes, but JSON holds only text.
#[test]
fn reports_folders_with_names_that_are_not_utf8() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let name = |first: u8| folder.path().join(OsStr::from_bytes(&[first, 0xe9]));
    for first in *b"ab" {
        fs::create_dir(name(first)).expect("it is empty");
    }
    let mut command = netlathe();
    command.args(["disk", "--json", "--duration", "100ms", "--backing"]).arg(name(b'a')).arg("--mount").arg(name(b'b'));
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object on stdout");
    assert!(report["backing"].as_str().expect("text").ends_with("/a\u{fffd}"), "{report}");
    assert!(report["mount"].as_str().expect("text").ends_with("/b\u{fffd}"), "{report}");
}

#[test]
fn reports_too_little_memory_and_mounts_nothing() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    shell("mkdir backing mount", folder.path());
    for (kib, code) in [(500_000, 2), (2_097_152, 0)] {
        let script = format!("ulimit -v {kib}; exec \"$0\" disk --backing backing --mount mount -q --duration 300ms");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_netlathe")]).current_dir(folder.path());
        let output = command.output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        let left = bed::is_mounted(&folder.path().join("mount"));
        if left {
            let unmount = netlathe().args(["disk", "--unmount", "mount"]).current_dir(folder.path()).status();
            unmount.expect("the binary runs");
        }
        assert_eq!((output.status.code(), left), (Some(code), false), "{kib} KiB: {said}");
        assert_eq!(said.contains("memory is limited to 500000 KiB"), code == 2, "{kib} KiB: {said}");
    }
}

#[test]
fn bad_input_is_refused_in_one_line_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("it is there");
    for name in ["a", "b", "a/in"] {
        fs::create_dir(root.join(name)).expect("it is empty");
    }
    fs::write(root.join("file"), "").expect("it can be written");
    for (arguments, expected) in [
        ("--backing a --mount b --delay 10", "has no unit"),
        ("--backing a --mount b --delay 10ms 2", "has no unit"),
        ("--backing a --mount b --delay 10ms 2ms distribution nromal", "not a distribution"),
        ("--backing a --mount b --delay 10ms --delay 2ms", "multiple times"),
        ("--backing a --mount b --delay 10ms ; read 2ms", "read has two delays"),
        ("--backing a --mount b --delay reed 2ms", "--delay 'read 5ms; write,fsync 20ms'"),
        ("--backing a --mount b --error write eio", "not an error and its share"),
        ("--backing a --mount b --rate 1", "has no unit"),
        ("--backing a --mount b --rate 1MB", "write"),
        ("--backing a --mount b --error eio", "share"),
        ("--backing a --mount b --error eoi 1%", "'eoi'"),
        ("--backing a --mount b --error eio 1", "has no unit"),
        ("--backing a --mount b --error eio 60% --error enospc 60%", "exceed 100 %"),
        ("--backing a --mount b --ops reed", "'reed'"),
        ("--backing a --mount b --duration 10", "has no unit"),
        ("--backing a --mount a", "the same, or one contains the other"),
        ("--backing a --mount a/in", "the same, or one contains the other"),
        ("--backing a/in --mount a", "the same, or one contains the other"),
        ("--backing none --mount b", "none"),
        ("--backing a --mount none", "none"),
        ("--backing file --mount b", "not a directory"),
        ("--backing a --mount file", "not a directory"),
        ("--backing a --mount /proc", "already a mount point"),
        ("--backing a", "--mount"),
        ("--mount b", "--backing"),
        ("--unmount b --backing a", "--backing"),
        ("--unmount b", "nothing is mounted"),
        ("--unmount none", "nothing is mounted"),
        ("--unmount /proc", "not of netlathe's"),
    ] {
        let output = netlathe().arg("disk").args(arguments.split(' ')).current_dir(&root).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(expected), "{arguments}: {said}");
        assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{arguments}: {said}");
    }
}

/// Root becomes another user for this test. `fusermount3`, which lets ordinary users mount, must be installed.
#[test]
fn an_ordinary_user_mounts_with_help() {
    if !can_mount() || !has("fusermount3") || !has("setpriv") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    fs::copy(env!("CARGO_BIN_EXE_netlathe"), folder.path().join("netlathe")).expect("it can be copied");
    let script = "mkdir b m; ./netlathe disk --backing b --mount m --delay 1ms --json > report 2> said & pid=$!
        for i in $(seq 500); do grep -q \"$PWD/m\" /proc/self/mountinfo && break; kill -0 $pid 2> /dev/null || break; sleep 0.02; done
        if ! kill -0 $pid 2> /dev/null; then echo SKIP: $(cat said); exit; fi
        echo text > m/f; cat m/f b/f; stat -c %U m/f > /dev/null; ./netlathe disk --unmount m; wait $pid; echo $?
        ./netlathe disk --backing b --mount m 2> said & pid=$!
        for i in $(seq 500); do grep -q \"$PWD/m\" /proc/self/mountinfo && break; sleep 0.02; done
        kill -9 $pid; wait $pid; ./netlathe disk --unmount m; grep -c $PWD/m /proc/self/mountinfo; cat b/f";
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    let output =
        command.args(["-c", script]).current_dir(folder.path()).stdin(Stdio::null()).output().expect("it runs");
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if told.contains("SKIP") {
        println!("{told}");
        return;
    }
    let wanted = "text\ntext\nunmounted m\n0\nunmounted m, left behind by a killed netlathe\n0\ntext\n";
    assert_eq!(told, wanted, "{said}");
}
