//! How disks end while programs use them.

use crate::disk::bed::{Disk, can_mount, figure, has};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn ends_on_a_signal_with_operations_waiting() {
    if !can_mount() {
        return;
    }
    // SIGHUP is what a closing terminal sends.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut disk = Disk::mounted(&["--delay", "1000s", "--ops", "read"]);
        fs::write(disk.path().join("f"), "data").expect("writing takes no time");
        let path = disk.path().join("f");
        let reader = thread::spawn(move || fs::read(path));
        thread::sleep(Duration::from_millis(200));
        disk.signal(signal);
        let output = disk.wait();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!disk.is_mounted());
        // The waiting read is answered, since it had already been done. A later read finds no disk.
        let read = reader.join().expect("it ends");
        assert!(read.as_ref().map_or(true, |data| data == b"data"), "{read:?}");
    }
    let start = Instant::now();
    let mut disk = Disk::mounted(&["--duration", "1s"]);
    assert_eq!(disk.wait().status.code(), Some(0));
    assert!(!disk.is_mounted() && start.elapsed() >= Duration::from_secs(1));
    let mut disk = Disk::mounted(&[]);
    assert!(disk.unmount().status.success());
    assert_eq!(disk.wait().status.code(), Some(0), "unmounted by somebody else");
}

#[test]
fn a_disk_in_use_is_not_unmounted_by_others_but_by_itself() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::mounted(&[]);
    fs::write(disk.path().join("f"), "data").expect("it can be written");
    let held = File::open(disk.path().join("f")).expect("it is there");
    let output = disk.unmount();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("in use"), "{said}");
    disk.signal(Signal::TERM);
    let output = disk.wait();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(0) && said.contains("in use"), "{said}");
    assert!(!disk.is_mounted());
    assert!(held.read_at(&mut [0; 4], 0).is_err(), "there is nothing behind it");
}

#[test]
fn reports_a_failed_flush_and_unmounts_anyway() {
    if !can_mount() || !has("python3") {
        return;
    }
    let mut disk = Disk::short(64, "f", 1 << 20);
    // The program is in the directory and has changed a mapped page beyond the limit of the backing directory.
    let program = "import mmap, os, sys, time\n\
                   os.chdir(sys.argv[1])\n\
                   m = mmap.mmap(os.open('f', os.O_RDWR), 0)\n\
                   m[700_000] = 1\n\
                   print('ready', flush=True)\n\
                   time.sleep(60)";
    let mut command = Command::new("python3");
    command.args(["-c", program]).arg(disk.path()).stdout(Stdio::piped());
    let mut holder = command.spawn().expect("python runs");
    let mut ready = [0; 5];
    holder.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
    disk.signal(Signal::INT);
    let output = disk.wait();
    holder.kill().expect("it sleeps");
    holder.wait().expect("it is ours");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("in use") && said.contains("did not reach the backing directory"), "{said}");
    assert!(!disk.is_mounted(), "{said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report all the same");
    assert!(report["total"]["operations"].as_u64().is_some_and(|count| count > 0), "{report}");
}

#[test]
fn programs_that_go_on_writing_change_no_figure_and_do_not_keep_it() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::mounted(&["--delay", "5ms", "--rate", "4MB/s"]);
    let path = disk.path().join("f");
    // Write until it fails. Once the disk starts to end, nothing is delayed.
    let writer = thread::spawn(move || {
        let file = File::create(path).expect("it can be written");
        let mut written = 0;
        while let Ok(bytes) = file.write_at(&[0; 50_000], written) {
            written += bytes as u64;
        }
        written
    });
    thread::sleep(Duration::from_secs(1));
    disk.signal(Signal::INT);
    let output = disk.wait();
    let written = writer.join().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let of = |name: &str| figure(&report, &format!("/operations/write/{name}"));
    assert!(of("delay_obtained/min_ns") >= 5e6, "{report}");
    assert!(of("cut_short") <= 1.0, "one program waits for one answer at most: {report}");
    let (count, asked) = (of("count"), of("delay_asked/count"));
    assert_eq!(
        (count.to_bits(), asked.to_bits()),
        ((of("delay_obtained/count") + of("cut_short")).to_bits(), count.to_bits())
    );
    assert!(figure(&report, "/total/rate_bps") < 32e6 * 1.1, "{report}");
    assert!(of("bytes") <= written as f64, "{report}");
}

#[test]
fn counts_operations_cut_short_by_the_end_separately() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::mounted(&["--delay", "1000s", "--ops", "write"]);
    let path = disk.path().join("f");
    let writer = thread::spawn(move || fs::write(path, [0; 1_000]));
    thread::sleep(Duration::from_millis(200));
    disk.signal(Signal::INT);
    let output = disk.wait();
    assert!(writer.join().expect("it ends").is_ok(), "what waited was done, and is answered");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let write = &report["operations"]["write"];
    assert_eq!(
        (&write["count"], &write["cut_short"], &write["bytes"]),
        (&1.into(), &1.into(), &1_000.into()),
        "{report}"
    );
    assert!(write["delay_obtained"].is_null() && report["total"]["rate_bps"].is_null(), "{report}");
}
