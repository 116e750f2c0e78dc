//! Least privilege: what each command needs, what a run keeps, and that the documents, the systemd unit and the program
//! agree. Runs as root of the machine; prints `SKIP: why` otherwise.

#[allow(dead_code, reason = "the program uses the rest")]
#[path = "../../../src/rights/list.rs"]
mod list;

use crate::bed::{Bed, Finished, Program, netlathe};
use lab::Node;
use list::{
    Capability, DISK, LAB, NOTHING, ON, OTG, PACKET, ROWS, RequiredRights, SHIPPED, SLICE, TAP, XDP, for_setcap, names,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const STREAM: &str = "--rate 1kpps --stream 'udp 10.1.0.1:1 > 10.2.0.1:2'";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the clone")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect(path)
}

/// Whether this is root of the machine with every capability that the rows name.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("it is there");
    let map = fs::read_to_string("/proc/self/uid_map").expect("it is there");
    let all = ROWS.iter().flat_map(|row| row.needs).fold(0, |all, capability| all | capability.bit());
    let is = map.split_whitespace().eq(["0", "0", "4294967295"]) && field(&status, "CapEff:") & all == all;
    if !is {
        println!("SKIP: this takes root of the machine");
    }
    is
}

/// A capability set in a status file.
fn field(status: &str, name: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix(name)).expect("a set");
    u64::from_str_radix(set.trim(), 16).expect("a set")
}

fn set(capabilities: &[Capability]) -> u64 {
    capabilities.iter().fold(0, |set, capability| set | capability.bit())
}

#[test]
fn the_guide_has_the_list() {
    let guide = text("docs/guide/privileges.md");
    let or_none = |capabilities: &[Capability]| match capabilities {
        [] => "none".to_owned(),
        some => names(some),
    };
    for RequiredRights { what, needs, keeps, why } in ROWS {
        let row = format!("| {what} | {} | {} | {why} |\n", or_none(needs), or_none(keeps));
        assert!(guide.contains(&row), "docs/guide/privileges.md lacks\n{row}");
    }
}

#[test]
fn the_unit_and_the_line_of_setcap_give_what_is_shipped() {
    let line = format!("sudo setcap {} /usr/local/bin/netlathe", for_setcap(SHIPPED));
    assert!(text("docs/guide/privileges.md").contains(&line), "{line}");
    let unit = text("packaging/netlathe@.service");
    for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
        let given = unit.lines().find_map(|line| line.strip_prefix(key)).expect(key);
        assert_eq!(given, names(SHIPPED).replace(", ", " "), "{key}");
    }
}

#[test]
fn systemd_understands_the_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("netlathe@.service");
    let unit = text("packaging/netlathe@.service").replace("/usr/local/bin/netlathe", netlathe());
    fs::write(&path, unit).expect("it can be written");
    let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output();
    let Ok(output) = verify else {
        println!("SKIP: no systemd-analyze here");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    // The tool may also report problems with other units of the machine.
    let about: Vec<&str> = said.lines().filter(|line| line.contains("netlathe")).collect();
    assert!(about.is_empty(), "{about:?}");
}

/// netlathe as a user with only the given capabilities.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> User {
        let folder = tempfile::tempdir().expect("a folder");
        // Copy with `cp`. If this process copied the file, a child that another test starts meanwhile would inherit it
        // open for writing, and it could not be executed.
        let copied = Command::new("cp").arg(netlathe()).arg(folder.path().join("netlathe")).status();
        assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
        User { folder }
    }

    /// Runs a line at a lab's client with only these capabilities. `$0` is netlathe.
    fn run(&self, bed: &Bed, as_root: bool, has: &[Capability], line: &str) -> Finished {
        let given = has.iter().map(|capability| capability.name().replacen("CAP_", ",+", 1).to_lowercase());
        let set = format!("-all{}", given.collect::<String>());
        let program = self.folder.path().join("netlathe");
        let mut arguments = vec!["--bounding-set", &set];
        if as_root {
            arguments.extend(["--inh-caps=-all"]);
        } else {
            arguments.extend(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
            arguments.extend(["--inh-caps", &set, "--ambient-caps", &set]);
        }
        arguments.extend(["--", "sh", "-c", line, program.to_str().expect("a plain path")]);
        let mut command = bed.command(Node::Client(1), "setpriv", &arguments);
        command.current_dir(self.folder.path());
        Program::start(command).wait()
    }
}

/// The command to run for each row, and whether root runs it.
fn trials() -> Vec<(&'static RequiredRights, bool, String)> {
    let gen_to = |port: &str| format!("\"$0\" gen --out {port} {STREAM} --duration 100ms -q");
    vec![
        (&NOTHING, false, "\"$0\" gen --out pcap:a.pcap --rate 1kpps --count 9 --stream 'udp 10.1.0.1:1 > 10.2.0.1:2' -q && \"$0\" measure --pcap a.pcap -q && \"$0\" doctor --json".to_owned()),
        (&NOTHING, false, gen_to("line:10G").replace("1kpps", "1Gbps")),
        (&NOTHING, false, "\"$0\" measure --host eth0 --duration 1s -q".to_owned()),
        (&PACKET, false, gen_to("if:eth0,driver=af_packet")),
        (&PACKET, false, "\"$0\" measure --in eth0 --duration 100ms -q".to_owned()),
        (&OTG, false, "timeout -s INT 1 \"$0\" otg --listen unix:s --ports eth0 --take-over; s=$?; test $s = 124 && exit 0; exit $s".to_owned()),
        (&XDP, false, format!("ulimit -l 64; {}", gen_to("if:eth0,driver=af_xdp"))),
        (&TAP, false, gen_to("tap:nl0")),
        (&ON, false, "\"$0\" emulate --on eth0 --forward 'loss 0%' --duration 100ms -q".to_owned()),
        (&SLICE, false, "\"$0\" slice kernel --port 9 --duration 100ms -q".to_owned()),
        (&DISK, true, "mkdir -p b m && \"$0\" disk --backing b --mount m --duration 100ms -q".to_owned()),
        (&LAB, false, format!("\"$0\" lab up r{0} && \"$0\" lab down r{0}", std::process::id())),
    ]
}

#[test]
fn each_row_runs_with_just_these_capabilities_and_with_one_less_says_which() {
    if !is_root() {
        return;
    }
    let Some(bed) = Bed::shared("rows", |_| {}) else { return };
    let user = User::new();
    for (row, as_root, line) in trials() {
        let finished = user.run(&bed, as_root, row.needs, &line);
        if ["no links at tc", "no XDP sockets", "/dev/fuse"].iter().any(|why| finished.stderr.contains(why)) {
            println!("SKIP: {}: {}", row.what, finished.stderr);
            continue;
        }
        assert_eq!(finished.status.code(), Some(0), "{line}: {finished:?}");
        for one in row.needs {
            let others: Vec<Capability> = row.needs.iter().copied().filter(|other| other != one).collect();
            let finished = user.run(&bed, as_root, &others, &line);
            assert_eq!(finished.status.code(), Some(2), "{line} without {}: {finished:?}", one.name());
            let remedy = match as_root {
                true => format!("--cap-add {}", &one.name()[4..]),
                false => format!("sudo setcap {} ", for_setcap(row.needs)),
            };
            for part in [format!("{} is missing", one.name()), remedy] {
                assert!(finished.stderr.contains(&part), "{line} without {}: {finished:?}", one.name());
            }
        }
    }
}

/// Capabilities and `no_new_privs` of each thread of a process, by thread name and number.
fn threads(process: u32) -> BTreeMap<String, (u64, u64, bool)> {
    let mut threads = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let (name, status) = (read("comm"), read("status"));
        // A thread that has ended meanwhile has no status.
        if !status.contains("CapEff:") {
            continue;
        }
        let name = format!("{} {}", name.trim(), entry.file_name().to_string_lossy());
        let no_new = status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]));
        threads.insert(name, (field(&status, "CapEff:"), field(&status, "CapPrm:"), no_new));
    }
    threads
}

/// Checks the capabilities that the threads of a root run keep: `workers` for each thread, plus `main` for the main
/// thread.
fn assert_keeps(bed: &Bed, line: &str, workers: &[Capability], main: &[Capability]) {
    let running = bed.start(Node::Client(1), &format!("{line} --duration 30s -q"));
    let own = format!(" {}", running.pid());
    let begin = Instant::now();
    loop {
        let seen = threads(running.pid());
        let keeps = |(name, (effective, permitted, no_new)): (&String, &(u64, u64, bool))| {
            // Helper threads keep fewer rights than those that carry frames.
            let fits = match name.ends_with(&own) {
                true => *effective == set(workers) | set(main),
                false => effective & !set(workers) == 0,
            };
            fits && effective == permitted && *no_new
        };
        // The thread started last creates the departures and drops its rights then.
        let all = seen.len() >= 4 || (line.starts_with("measure") && seen.len() >= 2);
        let carries = seen.values().any(|(effective, ..)| *effective == set(workers));
        if all && carries && seen.iter().all(keeps) {
            break;
        }
        assert!(!running.has_ended() && begin.elapsed() < Duration::from_secs(20), "{line}: {seen:#x?}");
        thread::sleep(Duration::from_millis(20));
    }
    let finished = running.stop();
    assert_eq!(finished.status.code(), Some(0), "{line}: {finished:?}");
}

#[test]
fn threads_keep_what_the_list_says() {
    if !is_root() {
        return;
    }
    let Some(bed) = Bed::shared("kept", |_| {}) else { return };
    let veth = &[Capability::NetAdmin];
    let gen_to = |port: &str| format!("gen --out {port} {STREAM}");
    assert_keeps(&bed, &gen_to("if:eth0,driver=af_packet"), PACKET.keeps, veth);
    assert_keeps(&bed, &gen_to("if:eth0,driver=af_xdp"), XDP.keeps, veth);
    assert_keeps(&bed, &gen_to("tap:nl0"), TAP.keeps, &[]);
    assert_keeps(&bed, &gen_to("dpdk:net_null0"), NOTHING.keeps, &[]);
    assert_keeps(&bed, "emulate --on eth0 --forward 'delay 1ms'", ON.keeps, &[]);
    assert_keeps(&bed, "measure --in eth0", PACKET.keeps, &[]);
    let folder = bed.path("page");
    let with_page = format!("{} --report {}", gen_to("dpdk:net_null0"), folder.display());
    assert_keeps(&bed, &with_page, &[], &[Capability::DacOverride]);
    assert!(folder.join("report.html").is_file(), "the page is written without CAP_FOWNER and the like");
    // Nothing is left that needs rights to remove.
    let links = bed.stdout(Node::Client(1), "ip -d link");
    assert!(!["xdp", "nl0", "nlh", "nlw"].iter().any(|left| links.contains(left)), "{links}");
}

#[test]
fn a_disk_keeps_what_serves_files_and_a_command_of_slices_keeps_all() {
    if !is_root() {
        return;
    }
    let Some(bed) = Bed::shared("children", |_| {}) else { return };
    for folder in ["b", "m"] {
        fs::create_dir(bed.path(folder)).expect("it is ours");
    }
    let disk = bed.start(Node::Client(1), "disk --backing b --mount m --duration 30s -q");
    let begin = Instant::now();
    while !threads(disk.pid()).values().all(|(.., no_new)| *no_new) {
        assert!(!disk.has_ended() && begin.elapsed() < Duration::from_secs(30));
        thread::sleep(Duration::from_millis(20));
    }
    for (name, (effective, permitted, _)) in threads(disk.pid()) {
        assert_eq!((effective & !set(DISK.keeps), permitted & !set(DISK.keeps)), (0, 0), "{name}");
    }
    let finished = disk.stop();
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");

    let ours = field(&fs::read_to_string("/proc/self/status").expect("it is there"), "CapEff:");
    let finished = bed.run(Node::Client(1), "slice kernel --quiet -- grep -E 'CapEff|NoNewPrivs' /proc/self/status");
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert_eq!(field(&finished.stdout, "CapEff:"), ours, "{finished:?}");
    assert!(finished.stdout.contains("NoNewPrivs:\t0"), "{finished:?}");
}

/// A folder is replaced by a link to another folder during the run. Root would follow the link.
#[test]
fn no_file_elsewhere_can_be_written_after_set_up() {
    let Some(bed) = Bed::shared("landlock", |_| {}) else { return };
    let doctor = bed.run(Node::Client(1), "doctor --json");
    let findings: serde_json::Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    let findings = findings["findings"].as_array().expect("findings");
    let landlock = findings.iter().find(|finding| finding["what"] == "Landlock").expect("a finding");
    if landlock["good"] != true {
        println!("SKIP: {}", landlock["found"]);
        return;
    }
    for (line, file) in [
        ("gen --out dpdk:net_null0 --rate 1kpps --stream 'udp 10.1.0.1:1 > 10.2.0.1:2' --report page", "report.html"),
        ("measure --in eth0 --report page", "report.html"),
        ("measure --in eth0 --csv page/gaps.csv", "gaps.csv"),
    ] {
        let (page, moved, other) = (bed.path("page"), bed.path("moved"), bed.path("other"));
        for folder in [&page, &other] {
            fs::create_dir(folder).expect("it is ours");
        }
        let running = bed.start(Node::Client(1), &format!("{line} --duration 30s -q"));
        let begin = Instant::now();
        while !threads(running.pid()).values().all(|(.., no_new)| *no_new) {
            assert!(!running.has_ended() && begin.elapsed() < Duration::from_secs(30), "{line}");
            thread::sleep(Duration::from_millis(20));
        }
        fs::rename(&page, &moved).expect("it is ours");
        std::os::unix::fs::symlink(&other, &page).expect("it is ours");
        let finished = running.stop();
        assert!(!other.join(file).exists(), "{line}: {finished:?}");
        assert_eq!(finished.status.code(), Some(2), "{line}: {finished:?}");
        assert!(finished.stderr.contains("Permission denied"), "{line}: {finished:?}");
        fs::remove_file(&page).expect("it is ours");
        for folder in [&moved, &other] {
            fs::remove_dir_all(folder).expect("it is ours");
        }
    }
}
