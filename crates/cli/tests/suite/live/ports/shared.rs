//! One interface in several pipelines of a run, and in several processes, with packet sockets.

use super::CLIENT;
use crate::bed::{Bed, Program, number};
use crate::common::port;
use lab::Node;
use serde_json::Value;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const UP: &str = "name = \"up\"\nin = \"if:c0,driver=af_packet\"\nout = \"if:s0,driver=af_packet\"\none-way = true\n";
const DOWN: &str =
    "name = \"down\"\nin = \"if:s0,driver=af_packet\"\nout = \"if:c0,driver=af_packet\"\none-way = true\n";

/// Runs a scenario in the box.
fn run(bed: &Bed, name: &str, pipelines: &[&str]) -> Program {
    let file = format!("{name}.toml");
    let pipelines: String = pipelines.iter().map(|of| format!("[[pipeline]]\n{of}")).collect();
    fs::write(bed.path(&file), format!("schema = 1\nduration = \"60s\"\n{pipelines}")).expect("a scenario");
    bed.start(Node::Box, &format!("run {file} --json"))
}

fn await_ping(bed: &Bed) {
    let begin = Instant::now();
    while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing is carried");
    }
}

/// Ping replies that the client's kernel received, of IPv4 and IPv6.
fn replies(bed: &Bed) -> u64 {
    let v4 = bed.stdout(CLIENT, "cat /proc/net/snmp");
    let mut icmp = v4.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let at = icmp.next().and_then(|names| names.split(' ').position(|name| name == "InEchoReps")).expect("a column");
    let v4: u64 = icmp.next().and_then(|counts| counts.split(' ').nth(at)?.parse().ok()).expect("a count");
    let v6 = bed.stdout(CLIENT, "cat /proc/net/snmp6");
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Icmp6InEchoReplies")?.trim().parse::<u64>().ok());
    v4 + v6.expect("a count")
}

/// Checks that every ping is answered, of IPv4 and IPv6, whole and in fragments.
fn assert_answers(bed: &Bed) {
    await_ping(bed);
    bed.stdout(CLIENT, "ping -6 -c 2 -i 0.2 -W 2 fd77::100");
    for (count, line) in [
        (100, "ping -q -c 100 -i 0.002 -W 2 10.77.0.100"),
        (100, "ping -6 -q -c 100 -i 0.002 -W 2 fd77::100"),
        (10, "ping -q -c 10 -i 0.02 -W 2 -s 4000 10.77.0.100"),
        (10, "ping -6 -q -c 10 -i 0.02 -W 2 -s 4000 fd77::100"),
    ] {
        let before = replies(bed);
        bed.stdout(CLIENT, line);
        // ping waits for the last reply for two round trips at most.
        let begin = Instant::now();
        while replies(bed) < before + count {
            assert!(begin.elapsed() < Duration::from_secs(5), "{line}: {} of {count}", replies(bed) - before);
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(replies(bed) - before, count, "{line}");
    }
}

/// The report of a pipeline, by its name.
fn of<'a>(report: &'a Value, name: &str) -> &'a Value {
    let pipelines = report["pipelines"].as_array().expect("pipelines");
    pipelines.iter().find(|pipeline| pipeline["name"] == name).expect(name)
}

#[test]
fn two_pipelines_carry_all_frames_between_two_interfaces() {
    let Some(bed) = Bed::shared("two-pipes", |_| {}) else { return };
    let run = run(&bed, "two", &[UP, DOWN]);
    assert_answers(&bed);
    let finished = run.stop();
    assert_eq!(finished.stderr, "", "nothing is carried twice");
    let report = finished.whole_report();
    for name in ["up", "down"] {
        let pipeline = of(&report, name);
        assert_eq!(pipeline["drops"], serde_json::json!({}), "{report}");
        // Three fragments of IPv4, as many of IPv6.
        assert!(number(pipeline, "/in/frames") >= 100 + 100 + 30 + 30, "{report}");
        assert_eq!(number(pipeline, "/in/frames"), number(pipeline, "/out/frames"), "{report}");
    }
    for name in ["c0", "s0"] {
        assert_eq!(port(&report, &format!("if:{name},driver=af_packet"))["rx_missed"], 0, "{report}");
    }
}

#[test]
fn a_generator_and_a_counter_share_an_interface() {
    let Some(bed) = Bed::shared("gen-count", |_| {}) else { return };
    let sends = "name = \"sends\"\nstream = \"udp 10.77.0.50:1000 > 10.77.0.1:9 size 100B\"\nrate = \"500pps\"\n\
                 out = \"if:c0,driver=af_packet\"\n";
    let counts = "name = \"counts\"\nin = \"if:c0,driver=af_packet\"\nout = \"null\"\n";
    let scenario = run(&bed, "share", &[sends, counts]);
    super::await_counter(&bed, "c0", "tx_packets", 50);
    bed.stdout(CLIENT, "ip neighbour replace 10.77.0.77 lladdr 02:00:00:00:00:77 dev eth0");
    // These pings have no reply, but each must be counted.
    let _unanswered = bed.output(CLIENT, "ping -q -c 300 -i 0.002 -W 0.1 10.77.0.77");
    thread::sleep(Duration::from_millis(200));
    let report = scenario.stop().whole_report();
    let counted = number(of(&report, "counts"), "/in/frames");
    assert!((300..400).contains(&counted), "what leaves has not arrived: {report}");
    assert_eq!(of(&report, "counts")["drops"], serde_json::json!({}));
}

#[test]
fn three_processes_share_two_interfaces() {
    let Some(bed) = Bed::shared("three", |_| {}) else { return };
    let up = run(&bed, "up", &[UP]);
    let down = run(&bed, "down", &[DOWN]);
    let counts = bed.start(Node::Box, "shape --in if:c0,driver=af_packet --out null --json --duration 60s");
    assert_answers(&bed);
    let (up, down) = (up.stop().whole_report(), down.stop().whole_report());
    let counted = counts.stop().report();
    assert_eq!(
        (&of(&up, "up")["drops"], &of(&down, "down")["drops"]),
        (&serde_json::json!({}), &serde_json::json!({}))
    );
    assert!(number(&counted, "/in/frames") >= 260, "{counted}");
}

/// Several readers each carry a frame. Several queues of one reader carry it once.
#[test]
fn several_queues_carry_fragments_too() {
    let Some(bed) = Bed::shared("queues", |_| {}) else { return };
    let shape = bed.between("--in if:c0,driver=af_packet,queues=3 --out if:s0,driver=af_packet,queues=2", "");
    assert_answers(&bed);
    let report = shape.stop().report();
    assert_eq!((&report["drops"], &report["return"]["drops"]), (&serde_json::json!({}), &serde_json::json!({})));
}

#[test]
fn two_pipelines_that_carry_the_same_frames_say_so() {
    let Some(bed) = Bed::shared("same-twice", |_| {}) else { return };
    let again = UP.replace("\"up\"", "\"again\"");
    let scenario = run(&bed, "twice", &[UP, &again, DOWN]);
    await_ping(&bed);
    let said = bed.output(CLIENT, "ping -c 5 -i 0.1 -W 2 10.77.0.100");
    assert!(String::from_utf8_lossy(&said.stdout).contains("5 received, +"), "{said:?}");
    let finished = scenario.stop();
    assert!(
        finished.stderr.contains("c0: another pipeline of this run also forwards what arrives there"),
        "{finished:?}"
    );
}
