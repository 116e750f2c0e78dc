//! Streams and replays over real interfaces: a receiver's counts agree with the known impairments on the path.

use crate::bed::{Bed, Program, notified, number};
use crate::common::caveat;
use lab::Node;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const STREAMS: &str = "--stream 'udp 10.0.0.1:1-1000 > 10.0.0.2:9 size 64B' \
                       --stream 'tcp [fd00::1]:1 > [fd00::2]:80 vlan 5 size 100B-200B weight 2'";

#[test]
fn generator_counts_arrivals() {
    let Some(bed) = Bed::paired("counts") else { return };
    let line = format!("gen --out a0 --in a1 --rate 20kpps --count 30000 --json {STREAMS}");
    let report = bed.run(Node::Box, &line).report();
    for (stream, sent) in [(0, 10_000), (1, 20_000)] {
        let figure = |name: &str| number(&report, &format!("/streams/{stream}/{name}"));
        assert_eq!(["sent", "received", "lost", "duplicates", "reordered"].map(figure), [sent, sent, 0, 0, 0]);
        // Both stamps are from one clock, so the delay is positive and within the receiver's wait.
        let least = report.pointer(&format!("/streams/{stream}/delay/min_ns")).and_then(serde_json::Value::as_f64);
        assert!(least.is_some_and(|least| (0.0..1e8).contains(&least)), "{least:?}");
    }
}

/// Ports that DPDK polls give the same counts as the kernel's ring. The report states what their stamps cannot resolve.
#[test]
fn generator_counts_arrivals_on_polled_ports() {
    let Some(bed) = Bed::paired("polled") else { return };
    let socket = bed.path("memif.sock");
    let memif = |end: &str, role: &str| {
        format!("dpdk:net_memif{end},role={role},socket={},socket-abstract=no", socket.display())
    };
    let (server, client) = (memif("0", "server"), memif("1", "client"));
    for (out, input) in [("a0", "if:a1,driver=af_xdp"), (server.as_str(), client.as_str())] {
        let line = format!("gen --out {out} --in {input} --rate 20kpps --count 30000 --json {STREAMS}");
        let report = bed.run(Node::Box, &line).whole_report();
        for (stream, sent) in [(0, 10_000), (1, 20_000)] {
            let figure = |name: &str| number(&report, &format!("/pipelines/0/streams/{stream}/{name}"));
            assert_eq!(["sent", "received", "lost", "duplicates", "reordered"].map(figure), [sent, sent, 0, 0, 0]);
        }
        let caveats = report["caveats"].as_array().expect("caveats");
        let polled = caveats.iter().find(|caveat| caveat["kind"] == "polled-stamps").expect("the stamps' resolution");
        assert!(polled["longest_pause_ns"].as_f64().is_some_and(|pause| pause > 0.0), "{polled}");
    }
}

/// Each CPU of the sender has a queue. Its frames arrive on the receive queue of the same number.
#[test]
fn receives_from_several_queues_on_several_cpus() {
    let Some(bed) = Bed::paired("queues") else { return };
    let cpus = two_cpus();
    let [first, second] = cpus[..] else { return println!("SKIP: two queues want two CPUs") };
    let socket = bed.path("memif.sock");
    // Senders and receivers share the CPUs, so each ring has 2^14 slots, enough for all frames of its queue.
    let memif = |end: &str, role: &str| {
        format!("dpdk:net_memif{end},role={role},socket={},socket-abstract=no,rsize=14", socket.display())
    };
    let (server, client) = (memif("0", "server"), memif("1", "client"));
    let cpus = format!("--cores {first},{second} --in-cores {first},{second}");
    let line = format!("gen --out {server} --in {client} {cpus} --wait 2s --count 30000 --json {STREAMS}");
    let report = bed.run(Node::Box, &line).report();
    let streams = report["streams"].as_array().expect("streams");
    let sum = |name: &str| streams.iter().map(|stream| number(stream, &format!("/{name}"))).sum::<u64>();
    assert_eq!(["sent", "received", "lost", "duplicates", "reordered"].map(sum), [30_000, 30_000, 0, 0, 0], "{report}");
    let queues = report.pointer("/flow/queues").and_then(|queues| queues.as_array()).expect("figures per queue");
    let frames: Vec<u64> = queues.iter().map(|queue| number(queue, "/frames")).collect();
    assert_eq!((frames.len(), frames.iter().sum::<u64>()), (2, 30_000), "{report}");
    assert!(frames.iter().all(|frames| *frames > 0), "{frames:?}");

    let refused = bed.run(Node::Box, &format!("gen --out a0 --in a1 --in-cores {first},{second} --count 9 {STREAMS}"));
    refused.assert_refused(&["--in-cores", "a1", "if:a1,driver=af_xdp"]);
}

/// The first two CPUs that this process may use.
fn two_cpus() -> Vec<usize> {
    let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("the CPUs of this process");
    (0..nix::sched::CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).take(2).collect()
}

#[test]
fn measure_receives_from_a_tap_device() {
    let Some(bed) = Bed::paired("tapped") else { return };
    let measure = bed.start(Node::Box, "measure --in tap:tap9 --write t.pcap --json --duration 60s");
    while !bed.path("t.pcap").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    bed.stdout(Node::Box, "ip link set tap9 up");
    let line =
        "gen --out if:tap9,driver=af_packet --rate 5kpps --count 500 --json --stream 'udp 10.0.0.1:1 > 10.0.0.2:9'";
    bed.run(Node::Box, line).report();
    let report = measure.stop().report();
    let figure = |name: &str| number(&report, &format!("/streams/0/{name}"));
    assert_eq!(["received", "lost", "duplicates"].map(figure), [500, 0, 0], "{report}");
    let refused = bed.run(Node::Box, "measure --in null --json");
    refused.assert_refused(&["--in", "nothing can be received from null"]);
}

#[test]
fn streams_of_classes_keep_their_rates_on_a_port() {
    let Some(bed) = Bed::paired("rates") else { return };
    let line = "gen --out a0 --duration 3s --json --stream 'udp 10.0.0.1:1 > 10.0.0.2:53' --stream 'udp 10.0.0.1:1 > 10.0.0.2:80-89' \
                --class 'dns = dport 53' --rate dns=50pps --rate 50kpps";
    let report = bed.run(Node::Box, line).report();
    for (class, gap, frames) in [(0, 20e6, 150), (1, 20e3, 150_000)] {
        let of =
            |figure: &str| report.pointer(&format!("/classes/{class}/{figure}")).and_then(serde_json::Value::as_f64);
        let median = of("gap/p50_ns").expect("a median");
        assert!((median / gap - 1.0).abs() < 0.25, "class {class}: {median} ns instead of {gap}");
        let sent = number(&report, &format!("/classes/{class}/out/frames"));
        assert!((frames * 9 / 10..=frames + 1).contains(&sent), "class {class}: {sent} frames instead of {frames}");
    }
}

#[test]
fn frames_that_are_lost_on_the_way_are_counted_and_change_the_status() {
    let Some(bed) = Bed::paired("loses") else { return };
    let shape = bed.start(Node::Box, "shape --in a1 --out b0 --one-way --stage 'loss 10%' --json --duration 30s");
    thread::sleep(Duration::from_secs(2));
    let generated = bed.run(Node::Box, &format!("gen --out a0 --in b1 --rate 10kpps --count 30000 --json {STREAMS}"));
    assert_eq!(generated.status.code(), Some(1), "{}", generated.stderr);
    assert!(generated.stderr.contains("frames were lost"), "{}", generated.stderr);
    let shaped = shape.stop().report();
    let report = serde_json::from_str::<serde_json::Value>(&generated.stdout).expect("a report");
    let lost: u64 = (0..2).map(|stream| number(&report, &format!("/pipelines/0/streams/{stream}/lost"))).sum();
    assert_eq!(lost, number(&shaped, "/drops/loss"), "{report} {shaped}");
}

/// Sends back what arrives on a1.
const REFLECTOR: &str = "
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300)
s.bind(('a1', 0))
print('ready', flush=True)
while True:
    frame, address = s.recvfrom(2048)
    if address[2] != socket.PACKET_OUTGOING: s.send(frame)";

#[test]
fn frames_that_come_back_to_the_sending_interface_are_counted() {
    let Some(bed) = Bed::paired("reflected") else { return };
    let mut reflector = bed.command(Node::Box, "timeout", &["60", "python3", "-c", REFLECTOR]);
    let mut reflector = reflector.stdout(Stdio::piped()).spawn().expect("python3 is there");
    BufReader::new(reflector.stdout.take().expect("piped")).read_line(&mut String::new()).expect("a line");
    let stream = "--stream 'udp 10.0.0.1:1000 > 10.0.0.2:9 size 100B'";
    let sent = bed.run(Node::Box, &format!("gen --out a0 --in a0 --rate 1kpps --count 200 --wait 2s --json {stream}"));
    let _killed = reflector.kill();
    let _reaped = reflector.wait();
    let report = sent.report();
    assert_eq!((number(&report, "/streams/0/received"), number(&report, "/streams/0/lost")), (200, 0), "{sent:?}");
}

#[test]
fn explains_why_the_sending_interface_receives_nothing() {
    let Some(bed) = Bed::paired("itself") else { return };
    let stream = "--count 10 --wait 50ms --stream 'udp 10.0.0.1:1 > 10.0.0.2:9'";
    for driver in ["af_packet", "af_xdp"] {
        let itself = bed.run(Node::Box, &format!("gen --out if:a0,driver={driver} --in a0 {stream}"));
        assert_eq!(itself.status.code(), Some(1), "{itself:?}");
        assert!(itself.stderr.contains("--in: nothing came back to the sending interface"), "{itself:?}");
    }
    let other = bed.run(Node::Box, &format!("gen --out a0 --in b0 {stream}"));
    assert!(!other.stderr.contains("that sent"), "{other:?}");
}

/// `gen` from `a0` to `b1` with a short wait. Returns its status and the pipeline's report.
fn sent_through(bed: &Bed, options: &str) -> (Option<i32>, serde_json::Value) {
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9' --wait 100ms --json";
    let generated = bed.run(Node::Box, &format!("gen --out a0 --in b1 {stream} {options}"));
    let report: serde_json::Value = serde_json::from_str(&generated.stdout).expect("a report");
    (generated.status.code(), report["pipelines"][0].clone())
}

#[test]
fn frames_of_an_earlier_run_are_not_taken_for_those_of_this_one() {
    let Some(bed) = Bed::paired("earlier") else { return };
    let held = bed.start(Node::Box, "emulate --in a1 --out b0 --one-way --forward 'delay 4s' --duration 30s");
    thread::sleep(Duration::from_secs(2));
    let (status, first) = sent_through(&bed, "--rate 10kpps --count 100");
    assert_eq!((status, number(&first, "/streams/0/lost")), (Some(1), 100), "none is back after 0.1 s: {first}");
    // While this run listens, frames of the first run arrive with the same sequence numbers.
    let (status, second) = sent_through(&bed, "--rate 10pps --count 36");
    let of = |name: &str| number(&second, name);
    assert_eq!((status, of("/streams/0/received"), of("/streams/0/lost")), (Some(1), 0, 36), "{second}");
    assert!(of("/flow/earlier") <= 100, "{second}");
    drop(held.stop());
}

#[test]
fn signal_ends_the_wait_for_frames() {
    let Some(bed) = Bed::paired("awaited") else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9' --count 10 --rate 1kpps --wait 1000s";
    let path = bed.path("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be bounded");
    let mut command = bed.netlathe(Node::Box, &format!("gen --out a0 --in b1 {stream}"));
    command.env("NOTIFY_SOCKET", &path);
    let own = Program::start(command);
    assert_eq!(notified(&socket).as_deref(), Some("READY=1"));
    // All frames are sent within 10 ms. An earlier signal would end the sending instead of the wait.
    thread::sleep(Duration::from_secs(2));
    let ended = own.stop();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("while it waited for frames"), "{ended:?}");
    assert!(ended.stdout.contains("10 sent, 0 received, 10 lost"), "{ended:?}");
}

#[test]
fn late_frames_depart_when_they_are_sent() {
    let Some(bed) = Bed::paired("late") else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9'";
    // Each frame takes a system call, which takes longer than the gap. Nearly all frames are late, many at once.
    for output in ["if:a0,driver=af_packet", "tap:late0"] {
        let line = format!("gen --out {output} --gap 100ns --count 20000 --json {stream}");
        let report = bed.run(Node::Box, &line).report();
        let of = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_f64).expect("a number");
        assert_eq!(number(&report, "/out/frames"), 20_000);
        assert!(of("/lateness/p50_ns") > 10_000.0, "{report}");
        assert!(of("/gap/min_ns") > 0.0 && of("/conformance/back_to_back_ratio") <= 0.0, "{report}");
    }
}

#[test]
fn another_generator_without_an_end_keeps_no_receiver() {
    let Some(bed) = Bed::paired("another") else { return };
    let other = bed.start(Node::Box, "gen --out a1 --rate 2kpps --stream 'udp 10.0.0.3:1 > 10.0.0.2:9'");
    thread::sleep(Duration::from_secs(2));
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9' --rate 1kpps --count 50 --wait 100ms";
    // The test is whether the run ends.
    let own = bed.run(Node::Box, &format!("gen --out b0 --in a0 {stream}"));
    assert!(own.stderr.contains("more frames arrived than were sent"), "{own:?}");
    drop(other.stop());
}

#[test]
fn a_replay_keeps_its_pace_on_a_port() {
    let Some(bed) = Bed::paired("replays") else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 64B-200B'";
    bed.run(Node::Box, &format!("gen --out pcap:in.pcap --count 20000 --gap 100us --json {stream}")).report();
    let listens = bed.start(Node::Box, "measure --in a1 --write got.pcap --count 20000 --duration 30s --json");
    while !bed.path("got.pcap").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let line = "gen --out a0 --pcap in.pcap --speed 2 --rewrite 'dst 10.0.0.0/8 > 20.0.0.0/8, dport 7' --json";
    let sent = bed.run(Node::Box, line).report();
    assert_eq!(["/out/frames", "/held"].map(|name| number(&sent, name)), [20_000, 0]);
    listens.wait().report();
    let (was, got) = (bed.records("in.pcap").0, bed.records("got.pcap").0);
    assert_eq!(got.len(), 20_000);
    for (was, got) in was.iter().zip(&got) {
        assert_eq!((was.bytes.len(), got.bytes[30], &got.bytes[36..38]), (got.bytes.len(), 20, &[0, 7][..]));
    }
    // The schedule is absolute, so hiccups of a busy machine do not add up.
    let pace = (got[19_999].ns - got[0].ns) as f64 / (19_999.0 * 50_000.0);
    assert!((pace - 1.0).abs() < 0.1, "{pace}");
}

/// The device logs which frames it dropped and changed.
#[test]
fn a_replay_names_the_frames_that_a_device_drops_or_changes() {
    let Some(bed) = Bed::paired("missing") else { return };
    let stream = "--stream 'udp 10.0.0.1:1000-1999 > 10.0.0.2:9 size 100B-200B'";
    bed.run(Node::Box, &format!("gen --out pcap:in.pcap --count 1000 --gap 200us --json {stream}")).report();
    bed.await_quiet();
    let device = "emulate --in a1 --out b0 --one-way --forward 'loss 1% corrupt 1%' --decisions log.csv --duration 60s";
    let device = bed.start(Node::Box, &format!("{device} --json"));
    thread::sleep(Duration::from_secs(2));
    let sent = bed.run(Node::Box, "gen --out a0 --in b1 --pcap in.pcap --write-missing missing.pcap --json");
    assert_eq!(sent.status.code(), Some(1), "{}", sent.stderr);
    let passed = device.stop().report();
    assert_eq!(number(&passed, "/in/frames"), 1_000, "no other frames: those would shift the log");
    let report: serde_json::Value = serde_json::from_str(&sent.stdout).expect("a report");
    let named = |fate: &str| -> Vec<u64> {
        let frames = report["pipelines"][0]["replay"]["frames"].as_array().expect("frames");
        let of_fate = frames.iter().filter(|frame| frame["fate"] == fate);
        of_fate.map(|frame| frame["frame"].as_u64().expect("a number")).collect()
    };
    let log = std::fs::read_to_string(bed.path("log.csv")).expect("the device's log");
    let lines = || log.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let number_of = |line: &[&str]| line[0].parse::<u64>().expect("a number") + 1;
    let dropped: Vec<u64> = lines().filter(|line| line[2] == "loss").map(|line| number_of(&line)).collect();
    assert!(!dropped.is_empty());
    assert_eq!(named("lost"), dropped);
    // A router changes hardware addresses and the TTL too, so these do not count as changes.
    let changed: Vec<u64> = lines().filter(|line| !line[4].is_empty()).map(|line| number_of(&line)).collect();
    assert!(!named("changed").is_empty() && named("changed").iter().all(|frame| changed.contains(frame)));
    let missing = [named("lost"), named("changed")].concat().into_iter().collect::<std::collections::BTreeSet<_>>();
    let all = bed.records("in.pcap").0;
    let expected: Vec<_> = missing.iter().map(|frame| all[*frame as usize - 1].bytes.clone()).collect();
    assert_eq!(bed.records("missing.pcap").0.into_iter().map(|record| record.bytes).collect::<Vec<_>>(), expected);
    for (line, words) in [
        ("gen --out a0 --in b1 --pcap in.pcap --class 'a = dport 9'", "leave out --class"),
        ("gen --out a0 --pcap in.pcap --write-missing missing.pcap", "--in"),
        ("gen --out a0 --in b1 --pcap in.pcap --write-missing in.pcap", "in.pcap"),
    ] {
        bed.run(Node::Box, line).assert_refused(&[words]);
    }
}

/// Frames that the link cannot carry do not count as lost by the device, and later frames keep their numbers.
#[test]
fn frames_of_a_capture_that_are_not_sent_are_not_lost() {
    let Some(bed) = Bed::paired("unsent") else { return };
    let stream = "--stream 'udp 10.0.0.1:1-65535 > 10.0.0.2:9 size 64B:4,2000B:1'";
    bed.run(Node::Box, &format!("gen --out pcap:in.pcap --count 50 --gap 1ms --json {stream}")).report();
    bed.await_quiet();
    let fit = (1..).zip(bed.records("in.pcap").0).filter(|(_, record)| record.bytes.len() <= 1_514);
    let fit: Vec<u64> = fit.map(|(number, _)| number).collect();
    assert_eq!(fit.len(), 40);
    let pattern: String = (0..40).map(|number| if [37, 39].contains(&number) { '1' } else { '0' }).collect();
    std::fs::write(bed.path("drop.txt"), pattern).expect("our folder");
    let device = "emulate --in a1 --out b0 --one-way --forward 'loss pattern drop.txt' --duration 60s --json";
    let device = bed.start(Node::Box, device);
    thread::sleep(Duration::from_secs(2));
    let sent = bed.run(Node::Box, "gen --out a0 --in b1 --pcap in.pcap --write-missing missing.pcap --json");
    assert_eq!(number(&device.stop().report(), "/in/frames"), 40, "no other frames: those would shift the pattern");
    let report: serde_json::Value = serde_json::from_str(&sent.stdout).expect("a report");
    let replay = &report["pipelines"][0]["replay"];
    let named = |fate: &str| -> Vec<u64> {
        let frames = replay["frames"].as_array().expect("frames").iter().filter(|frame| frame["fate"] == fate);
        frames.map(|frame| frame["frame"].as_u64().expect("a number")).collect()
    };
    assert_eq!(named("lost"), [fit[37], fit[39]]);
    let unsent: Vec<u64> = (1..=50).filter(|number| !fit.contains(number)).collect();
    assert_eq!(named("not-sent"), unsent);
    assert_eq!(["sent", "received", "lost"].map(|name| number(replay, &format!("/{name}"))), [40, 38, 2]);
    assert_eq!(bed.records("missing.pcap").0.len(), 2);
}

/// Runs a command that sends through `a0`. Returns its report, the report at `a1`, and the frames received there.
fn received(bed: &Bed, frames: usize, line: &str) -> (serde_json::Value, serde_json::Value, Vec<Vec<u8>>) {
    let listens =
        bed.start(Node::Box, &format!("measure --in a1 --write got.pcap --count {frames} --duration 30s --json"));
    while !bed.path("got.pcap").exists() {
        thread::sleep(Duration::from_millis(5));
    }
    let sent = bed.run(Node::Box, line).report();
    let measured = listens.wait().report();
    let got = bed.records("got.pcap").0.into_iter().map(|record| record.bytes).collect();
    (sent, measured, got)
}

#[test]
fn several_cores_send_the_same_frames_as_one() {
    let Some(bed) = Bed::paired("cores") else { return };
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("SKIP: one CPU only");
        return;
    }
    let line = "gen --out if:a0,driver=af_packet --cores 0,1 --count 5001 --json \
                --stream 'udp 10.0.0.1:1-1000 > 10.0.0.2:9 size 64B'";
    let (sent, measured, got) = received(&bed, 5_001, line);
    assert_eq!(["/in/frames", "/out/frames", "/held"].map(|name| number(&sent, name)), [5_001, 5_001, 0]);
    for (stream, frames) in [(0, 2_501), (1, 2_500)] {
        assert_eq!(number(&sent, &format!("/streams/{stream}/sent")), frames);
        let figure = |name: &str| number(&measured, &format!("/streams/{stream}/{name}"));
        assert_eq!(["received", "lost", "duplicates", "reordered"].map(figure), [frames, 0, 0, 0]);
    }
    let mut times = vec![0; 1_001];
    got.iter().for_each(|frame| times[usize::from(u16::from_be_bytes([frame[34], frame[35]]))] += 1);
    assert_eq!((times[0], times[1]), (0, 6));
    assert!(times[2..].iter().all(|times| *times == 5), "every value as often as one core would send it");
}

/// Each of two CPUs makes every second departure. The rate is that of both together, and no frame is sent twice.
#[test]
fn several_cores_share_the_departures_of_a_rate() {
    let Some(bed) = Bed::paired("shares") else { return };
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("SKIP: one CPU only");
        return;
    }
    let stream = "--stream 'udp 10.0.0.1:1-1000 > 10.0.0.2:9 size 64B'";
    for target in ["--rate 10kpps", "--gap 'exp mean 100us'", "--rate 5.12Mbps"] {
        let line = format!("gen --out if:a0,driver=af_packet --cores 0,1 --count 5001 --json {stream} {target}");
        let (sent, measured, got) = received(&bed, 5_001, &line);
        assert_eq!(["/in/frames", "/out/frames", "/held"].map(|name| number(&sent, name)), [5_001, 5_001, 0]);
        for (stream, frames) in [(0, 2_501), (1, 2_500)] {
            assert_eq!(number(&sent, &format!("/streams/{stream}/sent")), frames);
            let figure = |name: &str| number(&measured, &format!("/streams/{stream}/{name}"));
            assert_eq!(["received", "lost", "duplicates", "reordered"].map(figure), [frames, 0, 0, 0]);
        }
        assert!(sent["gap"].is_null(), "the order of frames of two queues is unknown");
        let figure = |report: &serde_json::Value, name: &str| report.pointer(name).and_then(|it| it.as_f64());
        for report in [&sent, &measured] {
            let fps = figure(report, "/rate/mean_fps").expect("a rate");
            assert!((fps / 10_000.0 - 1.0).abs() < 0.05, "{target}: {fps} frames/s");
        }
        let mut times = vec![0; 1_001];
        got.iter().for_each(|frame| times[usize::from(u16::from_be_bytes([frame[34], frame[35]]))] += 1);
        assert_eq!((times[0], times[1]), (0, 6));
        assert!(times[2..].iter().all(|times| *times == 5), "{target}: every value as often as one core would send it");
    }
    // The departure that is due at the end is not sent.
    for cores in ["0", "0,1"] {
        let line = format!(
            "gen --out dpdk:net_null0 --cores {cores} --start-at +300ms --duration 200ms --json {stream} --rate 3kpps"
        );
        let sent = number(&bed.run(Node::Box, &line).report(), "/out/frames");
        assert!((300..=600).contains(&sent), "{sent} frames of 600 on {cores}");
    }
    // A stage, classes or forgiven lateness need one thread that sees all frames: a second CPU only departs.
    let line = format!("gen --out a0 --cores 0,1 --count 20 --json {stream} --rate 10kpps --catch-up none");
    let streams = bed.run(Node::Box, &line).report()["streams"].as_array().map(Vec::len);
    assert_eq!(streams, Some(1));
}

/// A stage that changed a frame must not change later frames that reuse its buffer.
#[test]
fn a_corrupted_frame_is_corrupted_once() {
    let Some(bed) = Bed::paired("corrupts") else { return };
    let scenario = "schema = 1\n[[pipeline]]\nname = \"c\"\nout = \"if:a0,driver=af_packet\"\ncount = 5000\ngap = \"50us\"\n\
                    stream = \"udp 10.0.0.1:1 > 10.0.0.2:9 size 64B\"\nstages = [\"netem corrupt 2%\"]\n";
    std::fs::write(bed.path("c.toml"), scenario).expect("a scenario");
    let (sent, _, got) = received(&bed, 5_000, "run c.toml --json");
    let corrupted = number(&sent, "/effects/corrupted") as usize;
    // Everything but the stamp is the same in every frame.
    let mut headers: Vec<&[u8]> = got.iter().map(|frame| &frame[..42]).collect();
    headers.sort_unstable();
    let whole = headers.chunk_by(|a, b| a == b).map(<[_]>::len).max().expect("frames");
    assert!((corrupted / 3..=corrupted).contains(&(5_000 - whole)), "{corrupted} corrupted, {whole} whole");
}

#[test]
fn frames_that_never_left_have_not_arrived() {
    let Some(bed) = Bed::paired("never") else { return };
    let line = "gen --out a0 --in a1 --count 7 --json --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1519B weight 2' \
                --stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 200B'";
    let finished = bed.run(Node::Box, line);
    assert_eq!(finished.status.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("5 frames were dropped"), "{}", finished.stderr);
}

#[test]
fn records_that_were_cut_go_out_as_long_as_they_were() {
    let Some(bed) = Bed::paired("cut") else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 200B-209B payload increment'";
    bed.run(Node::Box, &format!("gen --out pcap:whole.pcap --count 10 --json {stream}")).report();
    // Like a capture with a snap length of 64 bytes, with the second record stamped before the first.
    let mut cut = std::fs::read(bed.path("whole.pcap")).expect("a capture")[..24].to_vec();
    let whole = bed.records("whole.pcap").0;
    for (i, record) in whole.iter().enumerate() {
        let ns = 1_000_000 * if i < 2 { 2 - i as u32 } else { i as u32 };
        for word in [0, ns, 64, record.bytes.len() as u32] {
            cut.extend(word.to_le_bytes());
        }
        cut.extend(&record.bytes[..64]);
    }
    std::fs::write(bed.path("in.pcap"), cut).expect("a capture");
    for (way, disordered) in [("", 1), ("--speed max", 0)] {
        let line = format!("gen --out if:a0,driver=af_packet --pcap in.pcap --rewrite 'ttl 9' --json {way}");
        let _ = std::fs::remove_file(bed.path("got.pcap"));
        let listens = bed.start(Node::Box, "measure --in a1 --write got.pcap --count 10 --duration 30s --json");
        while !bed.path("got.pcap").exists() {
            thread::sleep(Duration::from_millis(5));
        }
        let sent = bed.run(Node::Box, &line);
        listens.wait().report();
        let report: serde_json::Value = serde_json::from_str(&sent.stdout).expect("a report");
        assert_eq!(caveat(&report, "cut-records")["records"], 10, "{way}: {report}");
        let expected = (disordered > 0).then_some(disordered);
        let found = caveat(&report, "disordered-records")["records"].as_u64();
        assert_eq!(found, expected, "{way}: {report}");
        assert!(sent.stderr.contains("10 records of the capture are truncated"), "{}", sent.stderr);
        for (got, was) in bed.records("got.pcap").0.iter().zip(&whole) {
            assert_eq!((got.bytes.len(), &got.bytes[42..64]), (was.bytes.len(), &was.bytes[42..64]), "{way}");
            assert!(got.bytes[22] == 9 && got.bytes[64..].iter().all(|byte| *byte == 0), "{way}");
        }
    }
}

#[test]
fn records_without_a_header_are_sent_as_the_report_says() {
    let Some(bed) = Bed::paired("runts") else { return };
    bed.run(Node::Box, "gen --out pcap:one.pcap --count 1 --stream 'udp 10.0.0.1:1 > 10.0.0.2:9' -q");
    let mut runts = std::fs::read(bed.path("one.pcap")).expect("a capture");
    let whole = bed.records("one.pcap").0[0].bytes.clone();
    for (ms, length) in [(1, 0), (2, 10), (3, 14), (4, 59)] {
        for word in [0, ms * 1_000_000, length as u32, length as u32] {
            runts.extend(word.to_le_bytes());
        }
        runts.extend(&whole[..length]);
    }
    std::fs::write(bed.path("in.pcap"), runts).expect("a capture");
    for way in ["driver=af_packet --speed max", "driver=af_packet", "driver=af_xdp"] {
        let _ = std::fs::remove_file(bed.path("got.pcap"));
        let (sent, _, got) = received(&bed, 5, &format!("gen --pcap in.pcap --json --out if:a0,{way}"));
        assert_eq!((number(&sent, "/out/frames"), got.len()), (5, 5), "{way}");
        let starts = [60, 0, 10, 14, 59];
        assert!(
            got.iter().zip(starts).all(|(got, length)| got.len() >= 14 && got[..length] == whole[..length]),
            "{got:?}"
        );
    }
}

#[test]
fn a_port_that_goes_down_lowers_the_rate_obtained() {
    let Some(bed) = Bed::paired("downs") else { return };
    for driver in ["af_xdp", "af_packet"] {
        let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9'";
        let line = format!("gen --out if:a0,driver={driver} --rate 2kpps --duration 4s -v --json {stream}");
        let sending = bed.start(Node::Box, &line);
        thread::sleep(Duration::from_millis(2_500));
        bed.stdout(Node::Box, "ip link set a0 down");
        let sent = sending.wait().report();
        bed.stdout(Node::Box, "ip link set a0 up");
        let out = number(&sent, "/out/frames");
        let figure = |at: &str| sent.pointer(at).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
        assert!(out < 7_000, "{driver}: {sent}");
        // The rate counts the time in which frames were due and none left.
        let (rate, share) = (figure("/rate/mean_fps"), figure("/shortfall/obtained_ratio"));
        let expected = out as f64 / 4.0;
        assert!((rate / expected - 1.0).abs() < 0.1, "{driver}: {rate} instead of {expected}: {sent}");
        assert!((share / (expected / 2_000.0) - 1.0).abs() < 0.1, "{driver}: {share}: {sent}");
    }
}

#[test]
fn warns_of_a_rate_beyond_the_port() {
    let Some(bed) = Bed::paired("much") else { return };
    let stream = "--stream 'udp 10.0.0.1:1 > 10.0.0.2:9 size 1500B'";
    let report = bed.run(Node::Box, &format!("gen --out a0 --rate 5Tbps --duration 300ms --json {stream}")).report();
    let share = report.pointer("/shortfall/obtained_ratio").and_then(serde_json::Value::as_f64);
    assert!(share.is_some_and(|share| share < 0.5), "{report}");
    let slow = bed.run(Node::Box, &format!("gen --out a0 --rate 1Mbps --duration 300ms {stream}"));
    assert!(slow.stdout.contains("out ") && !slow.stdout.contains("shortfall"), "{}", slow.stdout);
}

#[test]
fn a_short_capture_is_sent_again_and_again_in_its_order() {
    let Some(bed) = Bed::paired("again") else { return };
    let stream = "--stream 'udp 10.0.0.1:1-7 > 10.0.0.2:9 size 64B-200B stamp off'";
    bed.run(Node::Box, &format!("gen --out pcap:in.pcap --count 7 --json {stream}")).report();
    let line = "gen --out if:a0,driver=af_packet --pcap in.pcap --speed max --loop 301 --rewrite 'dport 7' --json";
    let (sent, _, got) = received(&bed, 7 * 301, line);
    assert_eq!(["/in/frames", "/out/frames", "/held"].map(|name| number(&sent, name)), [2_107, 2_107, 0]);
    let piped = format!(
        "cat in.pcap | {} gen --out if:a0,driver=af_packet --pcap /dev/stdin --speed max",
        crate::bed::netlathe()
    );
    let piped = bed.command(Node::Box, "sh", &["-c", &piped]).output().expect("sh is there");
    assert!(String::from_utf8_lossy(&piped.stdout).contains("out       7 frames"), "a pipe is read once: {piped:?}");
    let was = bed.records("in.pcap").0;
    assert_eq!(number(&sent, "/out/bytes"), 301 * was.iter().map(|record| record.bytes.len() as u64 + 4).sum::<u64>());
    assert_eq!(got.len(), 2_107);
    for (frame, was) in got.iter().zip(was.iter().cycle()) {
        assert_eq!((frame.len(), &frame[26..36], &frame[36..38]), (was.bytes.len(), &was.bytes[26..36], &[0, 7][..]));
    }
}

#[test]
fn flood_sends_the_described_frames() {
    let Some(bed) = Bed::paired("fast") else { return };
    for (stream, frames) in [
        ("udp 10.0.0.1-10.0.0.9:1-1000 > random 10.1.0.0/16:9 size 64B", 3_000),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2-5 size random 80B-300B weight 3", 1_001),
    ] {
        let count = format!("--count {frames} --seed 7 --json --stream '{stream}'");
        bed.run(Node::Box, &format!("gen --out pcap:in.pcap {count}")).report();
        let (sent, measured, got) = received(&bed, frames, &format!("gen --out if:a0,driver=af_packet {count}"));
        assert_eq!(number(&sent, "/out/frames"), frames as u64);
        assert_eq!(number(&measured, "/streams/0/received"), frames as u64);
        for (frame, was) in got.iter().zip(bed.records("in.pcap").0) {
            // Everything but the time and its checksum adjustment in the stamp at the end.
            let end = was.bytes.len() - 16;
            assert_eq!((&frame[..end], &frame[end + 2..end + 8]), (&was.bytes[..end], &was.bytes[end + 2..end + 8]));
        }
    }
}
