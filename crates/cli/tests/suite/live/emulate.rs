//! `emulate` between two live ports: each direction gets its own impairments and its own figures. Each test has a lab
//! of its own and prints `SKIP: why` if the machine permits none.

use crate::bed::{Bed, Program, number};
use crate::common::port;
use lab::Node;
use serde_json::Value;
use std::time::{Duration, Instant};

const CLIENT: Node = Node::Client(1);

/// Starts `emulate` in the box, and waits until it carries small frames both ways.
fn emulate(bed: &Bed, words: &str) -> Program {
    emulate_between(bed, "c0 s0", words)
}

fn emulate_between(bed: &Bed, ports: &str, words: &str) -> Program {
    let program = bed.start(Node::Box, &format!("emulate --between {ports} --json --duration 60s {words}"));
    let start = Instant::now();
    while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "emulate carries nothing");
    }
    program
}

/// The output of ping, successful or not.
fn ping(bed: &Bed, words: &str) -> String {
    let output = bed.output(CLIENT, &format!("ping {words} 10.77.0.100"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The round-trip times that ping printed.
fn round_trips_ms(said: &str) -> Vec<f64> {
    said.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok()).collect()
}

/// Bytes that a server received by TCP.
fn received_by_tcp(bed: &Bed, words: &str) -> u64 {
    let server = Program::start(bed.command(Node::Server, "iperf3", &["-s", "-1"]));
    while !bed.stdout(Node::Server, "ss -Hltn sport = 5201").contains("5201") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = bed.output(CLIENT, &format!("timeout 20 iperf3 -c 10.77.0.100 --connect-timeout 5000 {words} -J"));
    drop(server);
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    said["end"]["sum_received"]["bytes"].as_u64().unwrap_or_else(|| panic!("no connection: {said}"))
}

/// The two directions of a report.
fn directions(report: &Value) -> (&Value, &Value) {
    let pipelines = report["pipelines"].as_array().expect("pipelines");
    assert_eq!((&pipelines[0]["name"], &pipelines[1]["name"]), (&"forward".into(), &"backward".into()));
    (&pipelines[0], &pipelines[1])
}

#[test]
fn effect_only_the_direction_named_is_hit() {
    let Some(bed) = Bed::shared("emulate-direction", |_| {}) else { return };
    for (option, hit, other) in [("--forward", 0, 1), ("--backward", 1, 0)] {
        let emulation = emulate(&bed, &format!("{option} 'mtu 200'"));
        let said = ping(&bed, "-c 5 -i 0.2 -W 1 -s 500");
        assert!(said.contains("5 packets transmitted, 0 received"), "large packets pass: {said}");
        let report = emulation.stop().whole_report();
        let (forward, backward) = directions(&report);
        let pipelines = [forward, backward];
        assert_eq!(number(pipelines[hit], "/drops/mtu"), 5, "{report}");
        assert!(pipelines[other]["drops"].as_object().is_some_and(serde_json::Map::is_empty), "{report}");
        // No frame had a scheduled departure, so none is late.
        assert!(pipelines.iter().all(|pipeline| pipeline.get("lateness").is_none()), "{report}");
    }
}

#[test]
fn effect_delays_of_both_directions_add_up() {
    let Some(bed) = Bed::shared("emulate-delay", |_| {}) else { return };
    let emulation = emulate(&bed, "--forward 'delay 20ms' --backward 'delay 30ms duplicate 100%'");
    let said = ping(&bed, "-c 20 -i 0.1 -W 5");
    let times = round_trips_ms(&said);
    assert!(times.len() >= 10, "{said}");
    // A busy machine can only make replies later, never earlier. ping rounds to three digits.
    assert!(times.iter().all(|ms| *ms >= 49.9), "{said}");
    assert!(said.contains("DUP!"), "answers are there twice: {said}");
    let report = emulation.stop().whole_report();
    let (forward, backward) = directions(&report);
    assert_eq!(forward["delay"]["asked"]["mean_ns"], 20_000_000.0);
    assert!(forward["delay"]["mean_ns"].as_f64().is_some_and(|ns| ns > 20e6), "got is measured: {forward}");
    assert_eq!(number(backward, "/copies"), number(backward, "/in/frames"));
}

#[test]
fn effect_both_applies_after_the_spec_of_one_direction() {
    let Some(bed) = Bed::shared("emulate-both", |_| {}) else { return };
    let emulation = emulate(&bed, "--forward 'delay 30ms' --both 'delay 20ms'");
    let said = ping(&bed, "-c 10 -i 0.1 -W 5");
    let times = round_trips_ms(&said);
    assert!(times.len() >= 5, "{said}");
    assert!(times.iter().all(|ms| *ms >= 69.9), "{said}");
    let report = emulation.stop().whole_report();
    let (forward, backward) = directions(&report);
    // The delays of several stages add up.
    let asked = |direction: &Value| direction["delay"]["asked"]["mean_ns"].as_f64();
    assert_eq!((asked(forward), asked(backward)), (Some(50e6), Some(20e6)));
}

#[test]
fn effect_reports_held_frames_that_leave_late() {
    let Some(bed) = Bed::shared("emulate-late", |_| {}) else { return };
    let emulation = emulate(&bed, "--both 'delay 300ms'");
    let pings = Program::start(bed.command(CLIENT, "ping", &["-c", "60", "-i", "0.05", "-W", "5", "10.77.0.100"]));
    std::thread::sleep(Duration::from_secs(1));
    // Simulate a machine that stalls for a second. The frames in the stages are due within 0.3 s.
    emulation.signal("STOP");
    std::thread::sleep(Duration::from_secs(1));
    emulation.signal("CONT");
    let pings = pings.wait();
    let report = emulation.stop().whole_report();
    let (forward, backward) = directions(&report);
    for direction in [forward, backward] {
        assert_eq!(direction["delay"]["asked"]["max_ns"], 300_000_000.0, "{direction}");
        let late = direction.pointer("/lateness/max_ns").and_then(Value::as_f64).expect("a lateness");
        assert!((500e6..40e9).contains(&late), "{direction}");
        // The obtained delay includes the lateness.
        let got = direction.pointer("/delay/max_ns").and_then(Value::as_f64).expect("a delay");
        assert!(got > 300e6 + late - 1.0, "{direction}");
    }
    // Delays count from the kernel's receive stamp, so frames that arrived during the stall waited too.
    let mean = |direction: &Value| direction["delay"]["mean_ns"].as_f64().expect("a delay") / 1e6;
    let times = round_trips_ms(&pings.stdout);
    let (pinged, got) = (times.iter().sum::<f64>() / times.len() as f64, mean(forward) + mean(backward));
    assert!((pinged - got).abs() < 0.1 * pinged, "ping saw {pinged} ms, the report has {got}: {report}");
}

#[test]
fn effect_a_planted_delay_shows_in_its_slice_of_either_direction() {
    let Some(bed) = Bed::alone("emulate-slices", |_| {}) else { return };
    let emulation = emulate(&bed, "--forward 'delay 500us' --backward 'delay 1ms' --slices 1/1");
    ping(&bed, "-c 300 -i 0.002 -W 5");
    let report = emulation.stop().whole_report();
    let (forward, backward) = directions(&report);
    for (direction, asked) in [(forward, 500_000.0), (backward, 1_000_000.0)] {
        let slices = direction["slices"]["slices"].as_array().expect("slices");
        let of = |name: &str, figure: &str| {
            let slice = slices.iter().find(|slice| slice["name"] == name).expect("a slice");
            slice.pointer(figure).and_then(Value::as_f64).expect("a figure")
        };
        assert!(number(direction, "/slices/packets/matched") >= 200, "{direction}");
        assert!((of("netem", "/intended_mean_ns") - asked).abs() < 1e-6, "{direction}");
        // Compare medians: a busy machine may delay single frames by any amount, but none leaves early. The stage
        // counts from the arrival: from the start of `ring` if the port reports it, else from the start of `rx`.
        let ring = slices.iter().find(|slice| slice["name"] == "ring").and_then(|ring| ring["p50_ns"].as_f64());
        let before = ring.unwrap_or(0.0) + of("rx", "/p50_ns");
        let (held, total) =
            (of("netem", "/p50_ns"), direction["slices"]["total"]["p50_ns"].as_f64().expect("a figure"));
        assert!(held + before >= asked * 0.9 && held > asked * 0.6, "{direction}");
        assert!(["rx", "queueing", "pacer", "tx"].iter().all(|name| of(name, "/p50_ns") < held / 2.0), "{direction}");
        assert!(held / total > 0.6, "{direction}");
        assert!(direction["slices"]["overhead"]["tau_o_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{direction}");
    }
}

#[test]
fn senders_learn_an_mtu_only_from_icmp() {
    let Some(bed) = Bed::shared("emulate-mtu", |_| {}) else { return };
    // The client's path MTU to the server, learned after it sent a packet that is too long.
    let learnt = |address: &str| bed.stdout(CLIENT, &format!("ip route get {address}")).contains("mtu 1300");
    for address in ["10.77.0.100", "fd77::100"] {
        let emulation = emulate(&bed, "--forward 'mtu 1300'");
        bed.output(CLIENT, &format!("ping -M do -c 2 -i 0.2 -W 1 -s 1400 {address}"));
        assert!(!learnt(address), "a black hole sends no error");
        assert_eq!(number(&emulation.stop().whole_report(), "/pipelines/0/drops/mtu"), 2);
        let emulation = emulate(&bed, "--forward 'mtu 1300 icmp'");
        let said = bed.output(CLIENT, &format!("ping -M do -c 2 -i 0.2 -W 1 -s 1400 {address}"));
        assert!(learnt(address), "{}", String::from_utf8_lossy(&said.stdout));
        let report = emulation.stop().whole_report();
        let (forward, backward) = directions(&report);
        let told = number(forward, "/effects/answered");
        assert!(told >= 1 && number(forward, "/drops/mtu") == told, "{report}");
        assert!(number(backward, "/out/frames") >= told, "{report}");
    }
}

#[test]
fn tcp_passes_a_small_mtu_with_icmp() {
    let Some(bed) = Bed::shared("emulate-pmtud", |_| {}) else { return };
    let emulation = emulate(&bed, "--forward 'mtu 1300 icmp'");
    let received = received_by_tcp(&bed, "-n 4M");
    assert!(received >= 1_000_000, "a black hole lets next to nothing through: {received} B");
    let report = emulation.stop().whole_report();
    assert!(number(&report, "/pipelines/0/effects/answered") >= 1, "{report}");
}

/// veth with its default offloads, as outside a lab. The kernel leaves checksums to the device, which does not compute
/// them. With TSO it also leaves the segmentation to the device.
#[test]
fn completes_or_reports_offloaded_checksums() {
    let Some(bed) = Bed::shared("emulate-offloads", |_| {}) else { return };
    for node in [CLIENT, Node::Server] {
        bed.stdout(node, "ethtool -K eth0 tx on");
    }
    let emulation = emulate(&bed, "--both 'delay 1ms'");
    assert!(received_by_tcp(&bed, "-n 4M") >= 1_000_000, "without checksums there is no connection");
    let finished = emulation.stop();
    assert!(finished.stderr.contains("unfinished checksums and completed them"), "{}", finished.stderr);
    let report = finished.whole_report();
    for name in ["c0", "s0"] {
        assert!(number(&port(&report, &format!("if:{name}")), "/rx_completed") > 5, "{report}");
    }

    bed.stdout(CLIENT, "ethtool -K eth0 sg on tso on gso on");
    let ports = "if:c0,driver=af_packet if:s0,driver=af_packet";
    let emulation = emulate_between(&bed, ports, "--both 'delay 1ms'");
    received_by_tcp(&bed, "-t 1");
    let finished = emulation.stop();
    assert!(finished.stderr.contains("tso off gso off"), "{}", finished.stderr);
    assert!(number(&finished.whole_report(), "/pipelines/0/drops/too-long") > 0);
}

/// Whether the kernel permits tracing its packets here.
#[cfg(feature = "slice")]
fn follows_the_kernel(bed: &Bed) -> bool {
    let tried = bed.run(Node::Box, "slice kernel --duration 1ms -q");
    let refused = tried.status.code() == Some(2);
    if refused {
        assert!(!tried.stderr.contains("Permission denied"), "{}", tried.stderr);
        println!("SKIP: {}", tried.stderr.trim());
    }
    !refused
}

#[cfg(feature = "slice")]
#[test]
fn paths_are_joined_from_program_to_program() {
    const SERVER: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.100', 7))
while True:
    data, peer = s.recvfrom(2000); s.sendto(data, peer)";
    const CLIENT_PROGRAM: &str = "import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('10.77.0.100', 7))
for n in range(200):
    s.send(n.to_bytes(4, 'big') * 25); s.recv(2000)
print('done')";
    let Some(bed) = Bed::alone("emulate-ways", |_| {}) else { return };
    if !follows_the_kernel(&bed) {
        return;
    }
    let words = "slice pipeline --kernel --port 7 -- emulate --between c0 s0 --json --duration 60s \
         --forward 'delay 300us' --backward 'delay 100us'";
    let pipeline = bed.start(Node::Box, words);
    let start = Instant::now();
    while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
        assert!(start.elapsed() < Duration::from_secs(40), "emulate carries nothing");
    }
    let server = Program::start(bed.command(Node::Server, "python3", &["-c", SERVER]));
    std::thread::sleep(Duration::from_secs(1));
    let client = bed.command(CLIENT, "python3", &["-c", CLIENT_PROGRAM]).output().expect("python is there");
    assert_eq!(String::from_utf8_lossy(&client.stdout).trim(), "done", "{client:?}");
    let report = pipeline.stop().whole_report();
    drop(server);
    let ways = &report["end_to_end"];
    let held = |name: &str| {
        let directions = ways["directions"].as_array().expect("two of them");
        let direction = directions.iter().find(|direction| direction["name"] == name).expect(name);
        let slices = direction["slices"].as_array().expect("slices");
        let netem = slices.iter().find(|slice| slice["name"] == "netlathe netem").expect("the stage");
        netem["p50_ns"].as_f64().expect("a figure")
    };
    let (there, back) = (held("forward"), held("backward"));
    assert!(there > 240_000.0 && back > 60_000.0 && back < 240_000.0, "{there} there, {back} back: {ways}");
    let (seen, matched) = (number(ways, "/packets/seen"), number(ways, "/packets/matched"));
    assert_eq!(seen, 400, "200 there and 200 back: {ways}");
    assert!(matched > 300, "the buffers of some may be used again before all of it was seen: {ways}");
    let slices = ways["slices"].as_array().expect("slices");
    let figure = |name: &str, figure: &str| {
        let slice = slices.iter().find(|slice| slice["name"] == name).unwrap_or_else(|| panic!("no {name}: {ways}"));
        slice[figure].as_f64().expect("a figure")
    };
    for name in ["client syscall-udp-ip", "to netlathe", "netlathe netem", "from netlathe", "server ip-udp-receive"] {
        assert!(figure(name, "per_packet") > 0.9, "{name}: {ways}");
    }
    let sum: f64 =
        slices.iter().map(|s| s["mean_ns"].as_f64().unwrap_or(0.0) * s["per_packet"].as_f64().unwrap_or(0.0)).sum();
    let total = ways["total"]["mean_ns"].as_f64().expect("a figure");
    assert!((sum / total - 1.0).abs() < 1e-6, "the slices sum to {sum}, the total is {total}");
    assert!(figure("from netlathe", "p50_ns") < 100_000.0 && figure("from netlathe", "p50_ns") > 0.0, "{ways}");
}

/// DPDK's driver sends ring frames as page fragments. At the first probes, the linear buffer still holds old data,
/// often the same headers. So this test may pass by chance if frames are not sent by system calls.
#[cfg(feature = "slice")]
#[test]
fn paths_over_af_packet_are_complete() {
    const SERVER: &str = "import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('10.77.0.100', 7)); s.listen()
while True:
    c = s.accept()[0]; c.setsockopt(6, 1, 1)
    while data := c.recv(2000): c.send(data)";
    const CLIENT_PROGRAM: &str = "import socket
s = socket.socket(); s.settimeout(5); s.connect(('10.77.0.100', 7)); s.setsockopt(6, 1, 1)
for n in range(200):
    s.send(b'x' * 100); s.recv(2000)
print('done')";
    let Some(bed) = Bed::alone("emulate-whole", |_| {}) else { return };
    if !follows_the_kernel(&bed) {
        return;
    }
    let server = Program::start(bed.command(Node::Server, "python3", &["-c", SERVER]));
    for _ in 0..2 {
        let words = "slice pipeline --kernel --port 7 -- emulate --between if:c0,driver=af_packet if:s0,driver=af_packet \
             --both 'delay 100us' --json --duration 60s";
        let pipeline = bed.start(Node::Box, words);
        let start = Instant::now();
        while !bed.output(CLIENT, "ping -c 1 -W 1 10.77.0.100").status.success() {
            assert!(start.elapsed() < Duration::from_secs(40), "emulate carries nothing");
        }
        std::thread::sleep(Duration::from_secs(1));
        let client = bed.command(CLIENT, "python3", &["-c", CLIENT_PROGRAM]).output().expect("python is there");
        assert_eq!(String::from_utf8_lossy(&client.stdout).trim(), "done", "{client:?}");
        let report = pipeline.stop().whole_report();
        let packets = &report["end_to_end"]["packets"];
        let (seen, matched) = (number(packets, "/seen"), number(packets, "/matched"));
        assert!(seen >= 400 && matched * 50 >= seen * 49, "{packets}");
    }
    drop(server);
}
