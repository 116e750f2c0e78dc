//! `--start-at`: the first departure is at the asked instant, by the sender's report and by the stamps of a receiver.

use crate::bed::{Bed, Finished, Program, netlathe, number};
use crate::common::words;
use lab::Node;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const STREAM: &str = "--stream 'udp 10.0.0.1:1000 > 10.0.0.2:9 size 64B'";

fn unix_now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// Returns an instant this far ahead, in the form of `--start-at` and as UNIX time in ns.
fn ahead(bed: &Bed, by: Duration) -> (String, u64) {
    let at = unix_now_ns() + by.as_nanos() as u64;
    (utc(bed, at), at)
}

fn utc(bed: &Bed, at: u64) -> String {
    let (seconds, fraction) = (at / 1_000_000_000, at % 1_000_000_000);
    let text = bed.stdout(Node::Box, &format!("date -u -d @{seconds} +%Y-%m-%dT%H:%M:%S"));
    format!("{}.{fraction:09}Z", text.trim())
}

fn signed(report: &Value, at: &str) -> i64 {
    report.pointer(at).and_then(Value::as_i64).unwrap_or_else(|| panic!("no {at} in {report}"))
}

/// Returns the median of some distances in ns.
fn median(mut all: Vec<i64>) -> i64 {
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn the_first_frame_departs_at_the_asked_instant() {
    let Some(bed) = Bed::paired("startat") else { return };
    bed.await_quiet();
    let kinds = [
        ("paced", "--rate 1kpps"),
        ("paced", "--rate 1kpps"),
        ("paced", "--rate 1kpps"),
        ("flood", ""),
        ("stages", "--rate 1kpps --class 'all = dport 9' --rate all=1kpps"),
    ];
    let (mut by_sender, mut by_receiver) = (Vec::new(), Vec::new());
    for (name, options) in kinds {
        let file = format!("{name}{}.pcap", by_sender.len());
        let listens = bed.start(Node::Box, &format!("measure --in a1 --write {file} --count 20 --duration 30s --json"));
        let (text, at) = ahead(&bed, Duration::from_millis(3_000));
        let line = format!("gen --out if:a0,driver=af_packet {options} --count 20 --start-at {text} --json {STREAM}");
        let report = bed.run(Node::Box, &line).report();
        listens.wait();
        assert_eq!(number(&report, "/start/asked_unix_ns"), at, "{name}");
        let miss = signed(&report, "/start/miss_ns");
        assert_eq!(number(&report, "/start/obtained_unix_ns"), at.saturating_add_signed(miss));
        assert!(miss >= 0 || name == "flood" || miss > -1_000, "{name}: {miss} ns early");
        let first = bed.records(&file).0[0].ns;
        by_sender.push(miss);
        by_receiver.push(first.cast_signed() - at.cast_signed());
    }
    let (sender, receiver) = (median(by_sender), median(by_receiver.clone()));
    assert!(sender.abs() < 1_000_000, "the sender says {sender} ns");
    assert!(receiver.abs() < 1_000_000, "the receiver says {receiver} ns of {by_receiver:?}");
}

#[test]
fn an_instant_of_tai_is_earlier_in_utc_and_text_says_the_miss() {
    let Some(bed) = Bed::paired("starttai") else { return };
    let (text, at) = ahead(&bed, Duration::from_secs(39));
    let tai = text.replace('Z', " TAI");
    let line = format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 3 --start-at '{tai}' --json {STREAM}");
    let report = bed.run(Node::Box, &line).report();
    let earlier = (at - number(&report, "/start/asked_unix_ns")) / 1_000_000_000;
    assert!((37..60).contains(&earlier), "TAI is ahead of UTC by 37 s or more, not {earlier} s");
    let line = format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 3 --start-at +1s {STREAM}");
    let ended = bed.run(Node::Box, &line);
    let row = ended.stdout.lines().find(|line| line.contains("  start  ")).unwrap_or_else(|| panic!("{ended:?}"));
    assert!(row.contains("asked 20") && row.contains("Z, first departure"), "{row}");
}

#[test]
fn a_gate_opens_for_frames_that_wait_and_for_a_receiver() {
    let Some(bed) = Bed::paired("startgate") else { return };
    let (text, at) = ahead(&bed, Duration::from_secs(5));
    let out = bed.start(Node::Box, &format!("measure --in b1 --start-at {text} --duration 2s --json"));
    let shape = format!("shape --in a1 --out b0 --gap 1ms --start-at {text} --duration 2s --json");
    let shape = bed.start(Node::Box, &shape);
    // Send 20 frames before the instant. They wait in the port.
    thread::sleep(Duration::from_millis(3_500));
    bed.run(Node::Box, &format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 20 {STREAM}"));
    assert!(unix_now_ns() < at, "the machine is too slow for this test: it took 1.5 s to send 20 frames");
    let (shaped, measured) = (shape.wait().report(), out.wait().report());
    assert_eq!(number(&shaped, "/out/frames"), 20, "{shaped}");
    assert_eq!(number(&measured, "/in/frames"), 20, "{measured}");
    for report in [&shaped, &measured] {
        let miss = signed(report, "/start/miss_ns");
        assert!((-1_000..50_000_000).contains(&miss), "{miss} ns: {report}");
    }
}

/// Starts netlathe in the box with `--start-at stdin`, and waits until it is armed.
fn armed(bed: &Bed, options: &str) -> (std::process::Child, BufReader<std::process::ChildStderr>) {
    let line =
        format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 9 --start-at stdin --json {options} {STREAM}");
    let words = words(&line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = bed.command(Node::Box, netlathe(), &words);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("piped"));
    let mut first = String::new();
    said.read_line(&mut first).expect("text");
    assert_eq!(first, "netlathe: armed\n");
    (child, said)
}

#[test]
fn stdin_gives_the_instant_to_an_armed_run() {
    let Some(bed) = Bed::paired("startstdin") else { return };
    let (mut child, _said) = armed(&bed, "");
    let (text, at) = ahead(&bed, Duration::from_millis(700));
    writeln!(child.stdin.take().expect("piped"), "{text}").expect("it reads");
    let mut report = String::new();
    child.stdout.take().expect("piped").read_to_string(&mut report).expect("text");
    assert!(child.wait().expect("it ends").success());
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(number(&report, "/pipelines/0/start/asked_unix_ns"), at);
    assert_eq!(number(&report, "/pipelines/0/out/frames"), 9);

    for (line, wanted) in
        [("", "ended without an instant"), ("soon\n", "is not an instant"), ("+0s\n", "name an instant to come")]
    {
        let (mut child, mut said) = armed(&bed, "");
        child.stdin.take().expect("piped").write_all(line.as_bytes()).expect("it reads");
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("text");
        assert_eq!(child.wait().expect("it ends").code(), Some(2), "{line:?}: {rest}");
        assert!(rest.contains("--start-at") && rest.contains(wanted), "{line:?}: {rest}");
    }
}

/// Sends a request to a service.
fn ask(socket: &Path, request: &str, body: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let head =
        format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/toml\r\n");
    let text = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{request}: {head}: {body}"))
}

#[test]
fn runs_of_a_service_start_at_the_asked_instant() {
    let Some(bed) = Bed::paired("startserve") else { return };
    let scenario = |port: &str| {
        format!(
            "schema = 1\n[[pipeline]]\nname = 'a'\nout = 'if:{port},driver=af_packet'\nrate = '1kpps'\ncount = 20\n\
             stream = ['udp 10.0.0.1:1000 > 10.0.0.2:9 size 64B']\n"
        )
    };
    fs::write(bed.path("one.toml"), scenario("a0")).expect("a file");
    let socket = bed.path("s.sock");
    let service = bed.start(Node::Box, &format!("serve --listen unix:{}", socket.display()));
    while UnixStream::connect(&socket).is_err() {
        assert!(!service.has_ended(), "it does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    let ends = |id: u64| loop {
        let run = ask(&socket, &format!("GET /v1/runs/{id}"), "");
        if run["state"] == "ended" {
            return run;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let (mut by_sender, mut by_receiver) = (Vec::new(), Vec::new());
    for round in 0..3 {
        let file = |port: &str| format!("{port}-{round}.pcap");
        let listens = ["a1", "b1"].map(|port| {
            bed.start(
                Node::Box,
                &format!("measure --in {port} --write {} --count 20 --duration 30s --json", file(port)),
            )
        });
        let (text, at) = ahead(&bed, Duration::from_secs(5));
        let ctl = bed.run(Node::Box, &format!("ctl --socket s.sock start one.toml --start-at {text}"));
        assert_eq!(
            ctl.stdout,
            format!("run {} was started, its first departure is at {text}\n", 2 * round + 1),
            "{ctl:?}"
        );
        // The same instant an hour east of UTC, as a form encodes it.
        let query = utc(&bed, at + 3_600_000_000_000).replace(':', "%3A").replace('Z', "%2B01%3A00");
        let started = ask(&socket, &format!("POST /v1/runs?start-at={query}"), &scenario("b0"));
        assert_eq!(started["id"], 2 * round + 2, "{started}");
        for id in [2 * round + 1, 2 * round + 2] {
            let run = ends(id);
            assert_eq!((&run["status"], &run["failure"]), (&Value::from(0), &Value::Null), "{run}");
            let report = ask(&socket, &format!("GET /v1/runs/{id}/report"), "");
            let start = &report["pipelines"][0]["start"];
            assert_eq!(run["start_at"], *text, "{run}");
            assert_eq!(start["asked_unix_ns"], at, "{start}");
            by_sender.push(start["miss_ns"].as_i64().expect("it states the miss"));
        }
        for program in listens {
            program.wait();
        }
        by_receiver.extend(["a1", "b1"].map(|port| bed.records(&file(port)).0[0].ns.cast_signed() - at.cast_signed()));
    }
    let (sender, receiver) = (median(by_sender), median(by_receiver.clone()));
    assert!(sender.abs() < 2_000_000, "the senders say {sender} ns");
    assert!(receiver.abs() < 2_000_000, "the receivers say {receiver} ns of {by_receiver:?}");

    // This instant passes while ports are opened, and the run reports that.
    let started = ask(&socket, "POST /v1/runs?start-at=+1ms", &scenario("a0"));
    let failed = ends(started["id"].as_u64().expect("a number"));
    assert_eq!(failed["status"], 2, "{failed}");
    assert!(
        failed["failure"].as_str().is_some_and(|why| why.contains("--start-at") && why.contains("name")),
        "{failed}"
    );
    // A run that waits for its instant can be ended.
    let waits = ask(&socket, "POST /v1/runs?start-at=+1h", &scenario("a0"));
    let id = waits["id"].as_u64().expect("a number");
    while ask(&socket, &format!("GET /v1/runs/{id}"), "")["state"] != "running" {
        thread::sleep(Duration::from_millis(50));
    }
    ask(&socket, &format!("DELETE /v1/runs/{id}"), "");
    assert_eq!(ends(id)["status"], 0);
    assert_eq!(ask(&socket, &format!("GET /v1/runs/{id}/report"), "")["pipelines"][0]["out"]["frames"], 0);
    assert_eq!(service.stop().status.code(), Some(0));
}

fn refused(bed: &Bed, options: &str) -> Finished {
    let ended =
        bed.run(Node::Box, &format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 3 {options} {STREAM}"));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    ended
}

#[test]
fn refuses_what_has_passed_and_ends_while_it_waits() {
    let Some(bed) = Bed::paired("startpast") else { return };
    let past = refused(&bed, "--start-at 2020-01-01T00:00:00Z").stderr;
    assert!(past.contains("2020-01-01T00:00:00.000000000Z was") && past.contains("ago by this host's clock"), "{past}");
    let late = refused(&bed, "--start-at +1ms").stderr;
    assert!(late.contains("after the instant: name a later one"), "{late}");
    let waits: Program = bed.start(
        Node::Box,
        &format!("gen --out if:a0,driver=af_packet --rate 1kpps --count 3 --start-at +1h --json {STREAM}"),
    );
    thread::sleep(Duration::from_millis(2_500));
    let ended = waits.stop();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(number(&ended.report(), "/out/frames"), 0);
}
