//! The search between live ports, against our own devices: a policer of known rate, a plain wire, and a device that
//! changes its behaviour. Tests print `SKIP: why` if labs are unavailable. Rates on a busy machine are not checked. The
//! tests check that bounds, counters and verdicts agree with the trials.

use crate::bed::{Bed, Finished, Program, netlathe, notified};
use lab::Node;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn report(finished: &Finished) -> Value {
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    serde_json::from_str(&finished.stdout).expect("one object on stdout")
}

fn figure(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

/// Checks a search with one goal: each trial that counts was offered in full, and no bound contradicts a trial.
fn consistent(search: &Value, allowed: f64) {
    let goal = &search["goals"][0];
    for trial in search["trials"].as_array().expect("trials") {
        let (load, sent) = (figure(trial, "/load_fps"), figure(trial, "/sent"));
        if !trial["flaw"].is_null() {
            continue;
        }
        let seconds = figure(trial, "/took_ns") / 1e9;
        assert!(sent >= (load * figure(trial, "/duration_ns") / 1e9 - 1.0) * 0.995, "{trial}");
        assert!((sent / seconds / load - 1.0).abs() < 0.02, "a load that was offered: {trial}");
        if goal["lower_fps"].as_f64() == Some(load) {
            assert!(figure(trial, "/loss_ratio") <= allowed, "a lower bound is within the goal: {trial}");
        }
    }
}

#[test]
fn a_policer_is_found_between_ports() {
    let Some(bed) = Bed::paired("policer") else { return };
    // 20 000 frames/s of 64 B, and 2000 at once. Hiccups below 100 ms do not matter.
    let limit = "limit --in a1 --out b0 --one-way --key dst-ip --rate 10240000bps --mode police --burst 128000B --json";
    let limit = bed.start(Node::Box, limit);
    thread::sleep(Duration::from_secs(2));
    let options = "--loss 0.1% --trial 2s --max 40kpps --min 5kpps --width 1% --confirm 0 --tolerance 2% --late 90ms";
    let line = format!("search --out a0 --in b1 {options} --wait 200ms --trials t.jsonl --report page --json");
    let found = bed.run(Node::Box, &line);
    let report = report(&found);
    let search = &report["searches"][0];
    consistent(search, 0.001);
    let lower = figure(search, "/goals/0/lower_fps");
    // Over 2 s the bucket adds 1000 frames/s, and the goal allows 0.1 % loss. No higher rate can be found.
    assert!(lower <= 21_000.0 / 0.999 * 1.001, "{lower}: {report}");
    if search["goals"][0]["verdict"] == "DUT-limited" {
        assert!(lower >= 20_000.0 * 0.98, "{lower}: {report}");
    }
    assert!(figure(search, "/goals/0/delay/p50_ns") > 0.0);
    // All trials are kept: the same search again runs no trial and reports the same.
    limit.stop();
    assert_eq!(self::report(&bed.run(Node::Box, &line)), report);
    assert!(bed.path("page/report.html").exists());
}

#[test]
fn both_directions_carry_the_load_at_the_same_time() {
    let Some(bed) = Bed::paired("both") else { return };
    // The bridge carries 1 Mbit/s from b1 to a0, which is some 2000 frames/s of 60 B. The other way has no limit.
    bed.stdout(Node::Box, "ip link add bridge type bridge forward_delay 0");
    bed.stdout(Node::Box, "ip link set bridge up");
    for end in ["a1", "b0"] {
        bed.stdout(Node::Box, &format!("ip link set {end} master bridge"));
    }
    bed.stdout(Node::Box, "tc qdisc add dev a1 root tbf rate 1mbit burst 2000 limit 2000");
    let options =
        "--max 8kpps --min 500pps --trial 1s --width 20% --confirm 0 --tolerance 5% --late 200ms --wait 200ms";
    let line = format!("search --out a0 --in b1 --both {options} -v --trials t.jsonl");
    let finished = bed.run(Node::Box, &format!("{line} --json"));
    let found = report(&finished);
    assert_eq!(found["asked"]["directions"][1]["out"], "b1");
    let reverse = "udp 198.19.0.1:9 > 198.18.0.1:1024 smac 02:00:00:00:00:02 dmac 02:00:00:00:00:01";
    assert_eq!(found["asked"]["directions"][1]["streams"][0], reverse);
    // The bridge has learnt each address at its own port.
    let learnt = bed.stdout(Node::Box, "bridge fdb show br bridge");
    let at = |address: &str, port: &str| learnt.lines().any(|line| line.contains(address) && line.contains(port));
    assert!(at("02:00:00:00:00:01", "dev a1") && at("02:00:00:00:00:02", "dev b0"), "{learnt}");
    let search = &found["searches"][0];
    let trial = &search["trials"][0];
    let part = |number: usize, name: &str| figure(trial, &format!("/directions/{number}/{name}"));
    assert_eq!((part(0, "sent"), part(1, "sent")), (8_000.0, 8_000.0), "each at the whole load: {trial}");
    assert_eq!(trial["directions"][0]["lost"], 0, "{trial}");
    assert!(part(1, "lost") > 3_000.0, "{trial}");
    assert_eq!((figure(trial, "/sent"), figure(trial, "/lost")), (16_000.0, part(1, "lost")), "sums: {trial}");
    let offered = figure(trial, "/offered_fps");
    assert!((offered / 8_000.0 - 1.0).abs() < 0.06, "of each direction: {trial}");
    assert!(figure(search, "/goals/0/upper_fps") < 4_000.0, "the slower direction decides: {search}");
    assert!(finished.stderr.contains("lost (b1 to a0: "), "{finished:?}");
    let text = bed.run(Node::Box, &line);
    assert!(text.stdout.contains("2 directions at the same time, frames/s of each: a0 to b1, b1 to a0"), "{text:?}");

    // A direction that carries nothing is named.
    bed.stdout(Node::Box, "tc qdisc replace dev a1 root tbf rate 8bit burst 1 limit 1");
    let dead = "search --out a0 --in b1 --both --max 1kpps --min 1kpps --trial 200ms --wait 100ms --late 1s -q";
    let dead = bed.run(Node::Box, dead);
    assert!(dead.stderr.contains("b1 to a0: nothing came back in any trial"), "{dead:?}");
    assert!(!dead.stderr.contains("a0 to b1: nothing"), "{dead:?}");
}

#[test]
fn several_pairs_are_searched_together() {
    let Some(bed) = Bed::paired("pairs") else { return };
    let options =
        "--max 2kpps --min 500pps --trial 300ms --width 50% --confirm 0 --tolerance 20% --late 1s --wait 100ms";
    let ports = "--out a0 --in a1 --out b0 --in b1";
    let own = "--stream 'b0=udp 10.1.0.1:5 > 10.1.0.2:6'";
    let line = format!("search {ports} {options} --start-at +1s --json");
    let found = report(&bed.run(Node::Box, &format!("{line} {own}")));
    let streams = |number: usize| found["asked"]["directions"][number]["streams"].to_string();
    assert!(streams(0).contains("198.18.0.1") && streams(1).contains("10.1.0.1:5"), "{found}");
    let parts = found["searches"][0]["trials"][0]["directions"].as_array().expect("two pairs");
    assert!(parts.iter().all(|part| part["sent"] == 600 && part["lost"] == 0), "{found}");
    assert!(figure(&found, "/start/asked_unix_ns") > 0.0, "{found}");
    // The frames of one pair are not mistaken for those of another.
    let defaults = report(&bed.run(Node::Box, &line));
    let second = "udp 198.18.1.1:1024 > 198.19.1.1:9 smac 02:00:00:00:01:01 dmac 02:00:00:00:01:02";
    assert_eq!(defaults["asked"]["directions"][1]["streams"][0], second);

    for (line, remedy) in [
        ("search --out a0 --in a1 --in b1", "write an --in for each --out"),
        ("search --out a0 --in a1 --out a0 --in b1", "'a0' is there twice"),
        ("search --out tap:t0 --in a1 --both", "only driver=af_packet can do both"),
        ("search --out if:a0,driver=af_xdp --in a1 --both", "only driver=af_packet can do both"),
        (
            "search --out a0 --in a1 --both --stream 'hex 00112233445502000000000108000000'",
            "write what a1 sends as --stream",
        ),
        ("search --out a0 --in a1 --gateway a0=x", "'x' is not an IP address"),
        ("search --out a0 --in a1 --gateway a1=10.0.0.1", "a1 sends nothing: add --both"),
        ("search --out a0 --in a1 --out a1 --in a0 --both", "name each pair once"),
        ("search --out a0 --in a1 --stream 'a0=eth' --stream 'eth vlan 5'", "no port sends 'eth vlan 5'"),
    ] {
        let refused = bed.run(Node::Box, line);
        assert_eq!(refused.status.code(), Some(2), "{line}: {refused:?}");
        assert!(refused.stderr.contains(remedy), "{line}: {refused:?}");
    }
}

#[test]
fn loads_that_the_tester_cannot_offer_are_not_reported() {
    let Some(bed) = Bed::paired("fast") else { return };
    // A wire that passes everything: only the tester can be the limit.
    let report = report(&bed.run(
        Node::Box,
        "search --out a0 --in a1 --trial 100ms --max 20Mpps --min 1kpps --width 50% --confirm 0 --wait 50ms --json",
    ));
    let search = &report["searches"][0];
    consistent(search, 0.0);
    assert_eq!(search["goals"][0]["verdict"], "tester-limited", "{report}");
    assert!(search["goals"][0]["lower_fps"].as_f64().is_none_or(|lower| lower < 5e7), "{report}");
}

#[test]
fn a_search_reports_when_frames_of_its_first_trial_pass() {
    let Some(bed) = Bed::paired("searches") else { return };
    let path = bed.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let options = "--trial 2s --max 2kpps --min 1kpps --confirm 0 --width 50% --tolerance 50% --late 1s --wait 50ms -v";
    let mut command = bed.netlathe(Node::Box, &format!("search --out a0 --in a1 {options} --trials t.jsonl --json"));
    command.env("NOTIFY_SOCKET", &path);
    let search = Program::start(command);
    assert_eq!(notified(&socket).as_deref(), Some("READY=1"));
    let trials = std::fs::read_to_string(bed.path("t.jsonl")).expect("it is kept").lines().count();
    assert_eq!(trials, 1, "the line that says of what, and no trial that has ended");
    let found = search.wait();
    assert!(report(&found)["searches"][0]["trials"].as_array().is_some_and(|trials| !trials.is_empty()));
    assert_eq!(found.stderr.lines().filter(|line| *line == "netlathe: ready").count(), 1, "{found:?}");
    // Ready is reported once, not by each trial.
    socket.set_nonblocking(true).expect("it can be asked");
    assert_eq!(notified(&socket), None);

    // A search that never sends does not report ready.
    let mut command = bed.netlathe(Node::Box, "search --out nosuch0 --in a1 --trial 1s -v");
    command.env("NOTIFY_SOCKET", &path);
    let failed = Program::start(command).wait();
    assert_eq!((failed.status.code(), notified(&socket)), (Some(2), None), "{failed:?}");
    assert!(!failed.stderr.contains("ready"), "{failed:?}");
}

#[test]
fn search_reports_before_its_failure() {
    let Some(bed) = Bed::paired("broken") else { return };
    let options = "--trial 1s --max 5kpps --min 1kpps --confirm 20 --tolerance 50% --late 1s --wait 50ms --json";
    let search = bed.start(Node::Box, &format!("search --out a0 --in a1 {options} --trials t.jsonl"));
    let trials = || std::fs::read_to_string(bed.path("t.jsonl")).unwrap_or_default().lines().count();
    while trials() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    bed.stdout(Node::Box, "ip link set a1 down");
    let broken = search.wait();
    assert_eq!(broken.status.code(), Some(2), "{broken:?}");
    assert!(broken.stderr.contains("a1"), "{broken:?}");
    let report: Value = serde_json::from_str(&broken.stdout).expect("a report all the same");
    let search = &report["searches"][0];
    assert_eq!(search["goals"][0]["verdict"], "unfinished");
    assert!(
        search["trials"].as_array().is_some_and(|trials| trials.iter().all(|trial| trial["lost"] == 0)),
        "{search}"
    );
    bed.stdout(Node::Box, "ip link set a1 up");
    // Frames that exceed the port's MTU are detected in the first trial of their size, not in the last.
    let sizes = "--size 64B --size 9000B --confirm 0";
    let line = format!("search --out a0 --in a1 {sizes} {}", options.replace("--confirm 20", ""));
    let long = bed.run(Node::Box, &line);
    assert_eq!(long.status.code(), Some(2), "{long:?}");
    assert!(long.stderr.contains("9000B") && long.stderr.contains("MTU"), "{long:?}");
    let report: Value = serde_json::from_str(&long.stdout).expect("the other size");
    assert!(report["searches"][0]["goals"][0]["lower_fps"].is_number(), "{report}");
    assert_eq!(report["searches"][1]["goals"][0]["verdict"], "unfinished", "{report}");
}

#[test]
fn signal_ends_the_search_and_its_trial() {
    let Some(bed) = Bed::paired("told") else { return };
    // The trial is longer than a test waits. Only the search process gets the signal, as from a supervisor.
    let options = "--trial 1000s --max 1kpps --wait 50ms -v --json";
    for driver in ["af_xdp", "af_packet"] {
        let path = bed.path(driver);
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
        let mut command = bed.netlathe(Node::Box, &format!("search --out if:a0,driver={driver} --in a1 {options}"));
        command.env("NOTIFY_SOCKET", &path);
        let search = Program::start(command);
        assert_eq!(notified(&socket).as_deref(), Some("READY=1"));
        search.signal("TERM");
        let ended = search.wait();
        let report = report(&ended);
        assert_eq!(report["searches"][0]["goals"][0]["verdict"], "unfinished", "{report}");
        assert!(report["searches"][0]["trials"].as_array().is_some_and(Vec::is_empty), "{report}");
        assert!(!bed.has_xdp("a0"), "{driver}");
    }
}

#[test]
fn a_search_without_memory_for_its_threads_ends_with_an_error() {
    let Some(bed) = Bed::paired("search-threads") else { return };
    let mut refused = 0;
    // The limit at which threads cannot be created depends on the libraries. It lies in this range.
    for kib in (20_000..36_000).step_by(1_000) {
        let search = "search --out a0 --in a1 --trial 50ms --max 20kpps --size 64B --wait 50ms -q";
        let line = format!("ulimit -v {kib}; exec timeout 30 {} {search}", crate::bed::netlathe());
        let output = bed.command(Node::Box, "sh", &["-c", &line]).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked") && output.status.code() != Some(124), "{kib} KiB: {said}");
        refused += usize::from(said.contains("no thread can be started"));
    }
    assert!(refused > 0, "no limit of this range refuses a thread");
}

/// Options of a search of two short trials.
const SHORT: &str = "--out if:a0,driver=af_packet --in a1 --trial 200ms --max 2kpps --min 1kpps --confirm 0 --width 50% --tolerance 50% --late 1s --wait 50ms";

#[test]
fn the_first_trial_starts_at_the_asked_instant() {
    let Some(bed) = Bed::paired("searchat") else { return };
    let asked = unix_now_ns() + 4_000_000_000;
    let (seconds, fraction) = (asked / 1_000_000_000, asked % 1_000_000_000);
    let text = bed.stdout(Node::Box, &format!("date -u -d @{seconds} +%Y-%m-%dT%H:%M:%S"));
    let at = format!("{}.{fraction:09}Z", text.trim());
    let listens =
        bed.start(Node::Box, "measure --in a1 --only 'udp dport 9' --write seen.pcap --count 20 --duration 30s --json");
    let found =
        bed.run(Node::Box, &format!("search {SHORT} --size 64B --size 128B --start-at {at} --report page --json"));
    listens.wait();
    let found = report(&found);
    assert_eq!(found["start"]["asked_unix_ns"].as_u64(), Some(asked), "{found}");
    let miss = found["start"]["miss_ns"].as_i64().expect("frames were sent");
    assert_eq!(found["start"]["obtained_unix_ns"].as_u64(), Some(asked.saturating_add_signed(miss)));
    // Without the option, the first frames would arrive seconds earlier.
    let first = bed.records("seen.pcap").0[0].ns;
    assert!(first + 1_000 >= asked, "the receiver has a frame {} ns before the instant", asked - first);
    assert!((first - asked).abs_diff(miss.max(0).unsigned_abs()) < 50_000_000, "{first} against {asked} and {miss}");
    let page = std::fs::read_to_string(bed.path("page/report.html")).expect("a page");
    assert!(page.contains("start: asked 20"), "the page has the start");
    assert!(found["searches"][1]["goals"][0]["lower_fps"].is_number(), "the other trials follow: {found}");
}

#[test]
fn a_search_is_armed_and_reads_its_instant() {
    let Some(bed) = Bed::paired("searcharm") else { return };
    let words = crate::common::words(&format!("search {SHORT} --trials t.jsonl --start-at stdin"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = bed.command(Node::Box, netlathe(), &words);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut first = String::new();
    said.read_line(&mut first).expect("text");
    assert_eq!(first, "netlathe: armed\n");
    writeln!(child.stdin.take().expect("piped"), "+700ms").expect("it reads");
    let mut text = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    assert!(child.wait().expect("it ends").success());
    assert!(text.contains("start: asked 20") && text.contains("Z, first departure"), "{text}");

    // Trials from a file are not sent again, so nothing starts.
    let again = bed.run(Node::Box, &format!("search {SHORT} --trials t.jsonl --start-at +1h --json"));
    let again = report(&again);
    assert!(again["start"].is_null() && again["warnings"].to_string().contains("no trial was sent"), "{again}");

    let past = bed.run(Node::Box, &format!("search {SHORT} --start-at 2020-01-01T00:00:00Z"));
    assert_eq!(past.status.code(), Some(2), "{past:?}");
    assert!(past.stderr.contains("name an instant to come"), "{past:?}");
    let dut = bed.run(Node::Box, "search --dut 'loss 1%' --start-at +1s");
    assert_eq!(dut.status.code(), Some(2), "{dut:?}");
    assert!(dut.stderr.contains("--start-at"), "{dut:?}");
}

fn unix_now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}
