//! `clock` on six hosts of one network whose clocks differ by known offsets, and runs that refuse such clocks.

use crate::bed::{Bed, Program, netlathe, number};
use lab::Node;
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable that adds an offset to the clock of a process.
const VARIABLE: &str = "NETLATHE_CLOCK_OFFSET";

fn figure(report: &Value, at: &str) -> f64 {
    report.pointer(at).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {at} in {report}"))
}

/// Starts netlathe in a node, with `offset` added to its clock.
fn start(bed: &Bed, node: Node, offset: &str, line: &str) -> Program {
    let mut command = bed.netlathe(node, line);
    command.env(VARIABLE, offset);
    Program::start(command)
}

#[test]
fn finds_the_offsets_of_six_hosts() {
    let Some(bed) = Bed::alone("clocksix", |topology| topology.clients = 7) else { return };
    bed.await_quiet();
    let reference = start(&bed, Node::Client(7), "12.5ms", "clock --answer --duration 50s --json");
    let offsets_us = [0, 250, -1_300, 40_000, 777, -9_000_000];
    let compared: Vec<Program> = (1..)
        .zip(offsets_us)
        .map(|(host, us)| {
            start(&bed, Node::Client(host), &format!("{us}us"), "clock --peer 10.77.0.7 --duration 3s --json")
        })
        .collect();
    for (program, us) in compared.into_iter().zip(offsets_us) {
        let ended = program.wait();
        assert!(ended.status.success(), "{ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let expected = 12_500_000.0 - f64::from(us) * 1_000.0;
        let (found, error) = (figure(&report, "/peers/0/offset_ns"), figure(&report, "/peers/0/error_ns"));
        assert!((found - expected).abs() < 20_000.0, "{us} us: {found} instead of {expected}: {report}");
        assert!((found - expected).abs() <= error, "{us} us: {found} ± {error} does not hold {expected}");
        assert_eq!(report["peers"][0]["stamps"], "kernel", "{report}");
        assert!(report["peers"][0]["drift_ppm"].is_number(), "{report}");
        let services = report["services"].as_array().expect("a list");
        assert!(services.iter().any(|service| service["name"] == "chrony" && service["state"].is_string()));
    }
    let ended = reference.stop();
    let answered: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(number(&answered, "/answered") > 600, "{answered}");
}

#[test]
fn a_run_refuses_clocks_that_disagree_and_reports_the_worst() {
    let Some(bed) = Bed::alone("clockrun", |topology| topology.clients = 2) else { return };
    bed.await_quiet();
    let reference = start(&bed, Node::Client(2), "3ms", "clock --answer --duration 50s");
    let gen_line = |options: &str| {
        format!(
            "gen --out eth0 --rate 1kpps --duration 1s --json --clock-peer 10.77.0.2 {options} \
             --stream 'udp 10.77.0.1:1000 > 10.77.0.2:9 smac 02:77:00:00:00:01 dmac 02:77:00:00:00:02'"
        )
    };
    let refused = start(&bed, Node::Client(1), "", &gen_line("")).wait();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    for word in ["--max-clock-error", "10.77.0.2", "from this host's, above 100us", "chrony"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    let ran = start(&bed, Node::Client(1), "", &gen_line("--max-clock-error 4ms")).wait();
    let clock = &ran.whole_report()["clocks"][0];
    assert_eq!((&clock["peer"], &clock["stamps"]), (&json!("10.77.0.2"), &json!("kernel")), "{clock}");
    let worst = figure(clock, "/worst_ns");
    assert!((figure(clock, "/offset_ns") - 3e6).abs() < 20_000.0 && (3e6..4e6).contains(&worst), "{clock}");
    let report = number(&ran.whole_report(), "/pipelines/0/out/frames");
    assert!(report > 500, "{report}");
    reference.stop();
    let silent = start(&bed, Node::Client(1), "", &gen_line("")).wait();
    assert_eq!(silent.status.code(), Some(2), "{silent:?}");
    assert!(silent.stderr.contains("start netlathe clock --answer there"), "{}", silent.stderr);
}

#[test]
fn first_signal_ends_a_run_that_waits_for_a_silent_peer() {
    let Some(bed) = Bed::paired("clocksilent") else { return };
    bed.stdout(Node::Box, "ip addr add 10.5.0.1/24 dev a0");
    bed.stdout(Node::Box, "ip neigh add 10.5.0.2 lladdr 02:00:00:00:00:05 dev a0");
    let line = "measure --in b0 --clock-peer 10.5.0.2 --max-clock-error 1s --json";
    let waiting = bed.start(Node::Box, line);
    thread::sleep(Duration::from_secs(1));
    let begun = Instant::now();
    let ended = waiting.stop();
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str::<Value>(&ended.stdout).expect("a report");
    // All exchanges with a silent peer take 5 s more.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Starts the answering side on a free loopback port.
fn answering() -> (std::process::Child, std::net::SocketAddr) {
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let mut command = Command::new(netlathe());
    command.args(["clock", "--answer", "--listen", &free.to_string(), "--duration", "3s", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    while UdpSocket::bind(free).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    (child, free)
}

#[test]
fn answers_only_complete_requests_and_with_equal_length() {
    let (child, address) = answering();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.connect(address).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
    let mut request = [0; 64];
    request[..6].copy_from_slice(b"NLCK\x01\x01");
    request[8..16].copy_from_slice(&77_u64.to_be_bytes());
    let mut buffer = [0; 2_000];
    let odd = [&request[..63], &[&request[..], &[0]].concat(), &[7; 64], b"", &[0; 1_400]].map(<[u8]>::to_vec);
    for bytes in &odd {
        socket.send(bytes).expect("it is sent");
    }
    assert!(socket.recv(&mut buffer).is_err(), "nothing is answered");
    socket.send(&request).expect("it is sent");
    assert_eq!(socket.recv(&mut buffer).expect("an answer"), request.len());
    let answer = buffer[..64].to_vec();
    socket.send(&answer).expect("it is sent");
    assert!(socket.recv(&mut buffer).is_err(), "an answer is not answered");
    let output = child.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&report["answered"], &report["ignored"]), (&json!(1), &json!(odd.len() + 1)), "{report}");
}

#[test]
fn text_names_the_peer_and_a_limit_ends_with_status_1() {
    let (mut child, address) = answering();
    let run = |offset: &str, options: &[&str]| {
        let mut command = Command::new(netlathe());
        command.args(["clock", "--duration", "700ms", "--peer", &address.to_string()]).args(options);
        command.env(VARIABLE, offset).output().expect("it starts")
    };
    let output = run("", &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let row = text.lines().find(|line| line.contains(&address.to_string())).unwrap_or_else(|| panic!("{output:?}"));
    assert!(
        row.contains(" ± ") && row.contains("round trip at least") && row.contains("stamps by the kernel"),
        "{row}"
    );
    let output = run("-1ms", &["--max-clock-error", "50us"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("above 50us"), "{output:?}");
    let output = run("one", &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(VARIABLE), "{output:?}");
    child.wait().expect("it ends");
    let output = run("", &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("refuses messages to that port"), "{output:?}");
}
