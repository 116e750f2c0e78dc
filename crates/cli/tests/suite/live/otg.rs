//! `otg` on veth pairs: requests over a Unix socket without a client library, snappi over TCP if it is installed, and
//! requests that are refused.

use crate::bed::{Bed, Program};
use crate::typed::root;
use lab::Node;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Status and body of a request.
fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: otg\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", text.len());
    stream.write_all((head + &text).as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, answer[end + 4..].to_vec())
}

fn json_of(socket: &Path, method: &str, path: &str, body: &Value) -> Value {
    let (status, bytes) = ask(socket, method, path, body);
    let text = String::from_utf8_lossy(&bytes);
    assert_eq!(status, 200, "{method} {path}: {text}");
    serde_json::from_str(&text).expect("JSON")
}

fn start(bed: &Bed, options: &str, socket: &Path) -> Program {
    let otg = bed.start(Node::Box, &format!("otg --listen unix:{} {options}", socket.display()));
    let begin = Instant::now();
    while UnixStream::connect(socket).is_err() {
        assert!(!otg.has_ended() && begin.elapsed() < PATIENCE, "it does not listen");
        thread::sleep(Duration::from_millis(10));
    }
    otg
}

/// Returns the flow metrics once no flow transmits and the last frames have arrived.
fn at_end(socket: &Path) -> Vec<Value> {
    let metrics = || {
        json_of(socket, "POST", "/monitor/metrics", &json!({ "choice": "flow", "flow": {} }))["flow_metrics"].clone()
    };
    let begin = Instant::now();
    loop {
        let flows = metrics();
        if flows.as_array().expect("a list").iter().all(|flow| flow["transmit"] == "stopped") {
            thread::sleep(Duration::from_millis(200));
            return metrics().as_array().expect("a list").clone();
        }
        assert!(begin.elapsed() < PATIENCE, "{flows}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn transmit(state: &str) -> Value {
    json!({ "choice": "traffic", "traffic": { "choice": "flow_transmit", "flow_transmit": { "state": state } } })
}

#[test]
fn flows_captures_and_refusals_over_a_socket() {
    let Some(bed) = Bed::paired("otg") else { return };
    let socket = bed.path("otg.sock");
    let otg = start(&bed, "--ports p1=a0,p2=a1", &socket);
    let version = json_of(&socket, "GET", "/capabilities/version", &Value::Null);
    assert_eq!(version["api_spec_version"], ">=1.30.0,<2.0.0");

    let flow = |name: &str, size: u32, tag: Value| {
        json!({
            "name": name,
            "tx_rx": { "choice": "port", "port": { "tx_name": "tx", "rx_names": ["rx"] } },
            "packet": [{ "choice": "ethernet" }, tag, { "choice": "ipv4" }, { "choice": "udp" }],
            "size": { "choice": "fixed", "fixed": size },
            "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": 500 } },
            "rate": { "choice": "pps", "pps": 1_000 },
            "metrics": { "enable": true, "loss": true, "latency": { "enable": true, "mode": "store_forward" } },
        })
    };
    let vlan = json!({ "choice": "vlan", "vlan": { "id": { "choice": "value", "value": 5 } } });
    let config = json!({
        "ports": [{ "name": "tx", "location": "p1" }, { "name": "rx", "location": "p2" }],
        "flows": [flow("plain", 128, json!({ "choice": "custom", "custom": { "bytes": "0800" } })), flow("tagged", 1_522, vlan)],
        "captures": [{ "name": "c", "port_names": ["rx"], "filters": [{ "choice": "vlan", "vlan": { "id": { "value": "005" } } }] }],
    });
    json_of(&socket, "POST", "/config", &config);
    assert_eq!(json_of(&socket, "GET", "/config", &Value::Null), config);
    let capture = |state: &str| json!({ "choice": "port", "port": { "choice": "capture", "capture": { "port_names": ["rx"], "state": state } } });
    json_of(&socket, "POST", "/control/state", &capture("start"));
    json_of(&socket, "POST", "/control/state", &transmit("start"));
    for (flow, size) in at_end(&socket).iter().zip([128_u64, 1_522]) {
        assert_eq!((&flow["frames_tx"], &flow["frames_rx"]), (&json!(500), &json!(500)), "{flow}");
        assert_eq!((&flow["bytes_rx"], &flow["loss"]), (&json!(500 * size), &json!(0.0)), "{flow}");
        let latency = flow["latency"]["average_ns"].as_f64().expect("a figure");
        assert!((100.0..1e9).contains(&latency), "{flow}");
    }
    json_of(&socket, "POST", "/control/state", &capture("stop"));
    let (status, file) = ask(&socket, "POST", "/monitor/capture", &json!({ "port_name": "rx" }));
    assert_eq!((status, file.len()), (200, 24 + 500 * (16 + 1_522)), "the tagged frames, whole");
    assert_eq!(&file[24 + 16 + 12..24 + 16 + 16], [0x81, 0, 0, 5]);

    let mut again = config.clone();
    again["captures"][0]["format"] = json!("pcapng");
    json_of(&socket, "POST", "/config", &again);
    json_of(&socket, "POST", "/control/state", &capture("start"));
    json_of(&socket, "POST", "/control/state", &transmit("start"));
    at_end(&socket);
    let (_, file) = ask(&socket, "POST", "/monitor/capture", &json!({ "port_name": "rx" }));
    std::fs::write(bed.path("c.pcapng"), file).expect("a file");
    let read =
        Command::new("tshark").arg("-r").arg(bed.path("c.pcapng")).args(["-T", "fields", "-e", "frame.len"]).output();
    match read {
        Ok(output) => {
            let lengths = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(lengths.lines().count() == 500 && lengths.lines().all(|length| length == "1522"), "{output:?}");
        }
        Err(_) => println!("SKIP: tshark is missing"),
    }

    // A link can be taken down, and the port metrics show that.
    let link = |state: &str| json!({ "port": { "link": { "port_names": ["rx"], "state": state } } });
    json_of(&socket, "POST", "/control/state", &link("down"));
    let ports = json_of(&socket, "POST", "/monitor/metrics", &json!({ "port": { "column_names": ["link"] } }));
    assert_eq!(ports["port_metrics"][1], json!({ "name": "rx", "link": "down" }));
    json_of(&socket, "POST", "/control/state", &link("up"));

    for (path, body, wanted) in [
        ("/config", json!({ "lags": [{}] }), "lags: netlathe does not serve this field"),
        ("/config", json!([]), "[] is not an object"),
        ("/control/state", json!({ "choice": "protocol", "protocol": { "bgp": {} } }), "protocol.bgp"),
        ("/monitor/metrics", json!({ "choice": "isis" }), "'isis' is not served"),
    ] {
        let (status, bytes) = ask(&socket, "POST", path, &body);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        assert!(status == 400 && text.contains(wanted), "{path}: {status} {text}");
    }
    assert_eq!(ask(&socket, "POST", "/results", &json!({})).0, 404);

    // The first signal ends everything, even while traffic runs.
    let mut endless = config;
    endless["flows"][0]["duration"] = json!({ "choice": "continuous" });
    json_of(&socket, "POST", "/config", &endless);
    json_of(&socket, "POST", "/control/state", &transmit("start"));
    let finished = otg.stop();
    assert_eq!(finished.status.code(), Some(0), "{finished:?}");
    assert!(!socket.exists());
}

#[test]
fn refuses_ports_of_the_host_and_bad_options() {
    let Some(bed) = Bed::paired("otghost") else { return };
    bed.stdout(Node::Box, "ip address add 10.99.0.1/24 dev a0");
    bed.run(Node::Box, "otg --ports p1=a0,p2=a1").assert_refused(&["a0", "10.99.0.1/24", "--take-over"]);
    bed.run(Node::Box, "otg --ports p1=b0,p1=b1").assert_refused(&["'p1' twice"]);
    bed.run(Node::Box, "otg --ports p1=none").assert_refused(&["none"]);
    bed.run(Node::Box, "otg --ports p1=pcap:a.pcap").assert_refused(&["pcap:a.pcap", "write an interface"]);
    bed.run(Node::Box, "otg --ports p1=dpdk:net_ring0 --ports p2=dpdk:net_ring0").assert_refused(&["net_ring0' twice"]);
    bed.run(Node::Box, "otg --ports p1=dpdk:net_none0").assert_refused(&["net_none0"]);
    bed.run(Node::Box, "otg --ports p1=pci:0000:99:00.0").assert_refused(&["0000:99:00.0"]);
    bed.run(Node::Box, "otg --ports p1=if:a0,driver=af_xdp,p2=b0").assert_refused(&["a0", "--take-over"]);
    bed.run(Node::Box, "otg --ports b0 --listen 8080").assert_refused(&["'8080'", "HOST:PORT"]);
}

/// A configuration with a device at each port, which is the gateway of the other, and a flow each way.
fn both_ways(packets: u64) -> Value {
    let flow = |name: &str, tx: &str, rx: &str| {
        json!({
            "name": name,
            "tx_rx": { "port": { "tx_name": tx, "rx_names": [rx] } },
            "packet": [{ "ethernet": {} }, { "vlan": { "id": { "value": 7 } } }, { "ipv4": {} }, { "udp": {} }],
            "size": { "fixed": 256 },
            "duration": { "fixed_packets": { "packets": packets } },
            "rate": { "pps": 1_000 },
            "metrics": { "enable": true, "loss": true, "latency": { "enable": true, "mode": "cut_through" } },
        })
    };
    let device = |n: u8, other: u8| {
        json!({ "name": format!("d{n}"), "ethernets": [{
            "name": format!("e{n}"), "connection": { "port_name": format!("p{n}") }, "mac": format!("02:00:00:00:00:0{n}"),
            "ipv4_addresses": [{ "name": format!("i{n}"), "address": format!("10.9.0.{n}"), "gateway": format!("10.9.0.{other}") }],
        }] })
    };
    json!({
        "ports": [{ "name": "p1", "location": "p1" }, { "name": "p2", "location": "p2" }],
        "flows": [flow("there", "p1", "p2"), flow("back", "p2", "p1")],
        "devices": [device(1, 2), device(2, 1)],
    })
}

/// The hardware addresses of gateways, once all have answered.
fn neighbours(socket: &Path) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let states = json_of(socket, "POST", "/monitor/states", &json!({ "ipv4_neighbors": {} }));
        let found = states["ipv4_neighbors"].as_array().expect("a list").clone();
        if found.iter().all(|one| one["link_layer_address"].is_string()) {
            return found.iter().map(|one| one["link_layer_address"].clone()).collect();
        }
        assert!(begin.elapsed() < PATIENCE, "{states}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A pair of ports carries flows, whatever kind the ports are.
#[test]
fn ports_of_dpdk_carry_flows_and_devices() {
    let Some(bed) = Bed::paired("otgdpdk") else { return };
    let memif = |n: u8, role: &str| {
        let socket = bed.path("memif.sock");
        format!("--ports p{n}=dpdk:net_memif{n},role={role},socket={},socket-abstract=no", socket.display())
    };
    let memifs = format!("{} {}", memif(1, "server"), memif(2, "client"));
    for (ports, kernel) in [(memifs.as_str(), false), ("--ports p1=if:a0,driver=af_xdp,p2=a1", true)] {
        let socket = bed.path("otg.sock");
        let otg = start(&bed, ports, &socket);
        json_of(&socket, "POST", "/config", &both_ways(500));
        json_of(&socket, "POST", "/control/state", &transmit("start"));
        for flow in at_end(&socket) {
            assert_eq!((&flow["frames_tx"], &flow["frames_rx"]), (&json!(500), &json!(500)), "{ports}: {flow}");
            assert_eq!((&flow["bytes_rx"], &flow["loss"]), (&json!(500 * 256), &json!(0.0)), "{ports}: {flow}");
            let latency = flow["latency"]["average_ns"].as_f64().expect("a figure");
            assert!((10.0..1e9).contains(&latency), "{ports}: {flow}");
        }
        assert_eq!(neighbours(&socket), ["02:00:00:00:00:02", "02:00:00:00:00:01"], "{ports}");
        let ping =
            json!({ "protocol": { "ipv4": { "ping": { "requests": [{ "src_name": "i1", "dst_ip": "10.9.0.2" }] } } } });
        let answer = json_of(&socket, "POST", "/control/action", &ping);
        assert_eq!(answer["response"]["protocol"]["ipv4"]["ping"]["responses"][0]["result"], "succeeded", "{answer}");
        let ports_up = json_of(&socket, "POST", "/monitor/metrics", &json!({ "port": { "column_names": ["link"] } }));
        assert_eq!(ports_up["port_metrics"][0]["link"], "up", "{ports}");
        let down = json!({ "port": { "link": { "port_names": ["p1"], "state": "down" } } });
        let (status, text) = ask(&socket, "POST", "/control/state", &down);
        let text = String::from_utf8_lossy(&text).into_owned();
        if kernel {
            assert_eq!(status, 200, "{text}");
        } else {
            assert!(status == 400 && text.contains("port.link") && text.contains("dpdk:net_memif1"), "{status} {text}");
        }
        assert_eq!(otg.stop().status.code(), Some(0));
    }
}

/// The kernel is the neighbour of a device on a TAP port, and receives its flows.
#[test]
fn devices_on_a_tap_port_talk_to_the_kernel() {
    let Some(bed) = Bed::paired("otgtap") else { return };
    let socket = bed.path("otg.sock");
    let otg = start(&bed, "--ports p1=tap:lathe0,p2=null", &socket);
    bed.output(Node::Box, "sysctl -qw net.ipv6.conf.lathe0.disable_ipv6=1");
    bed.stdout(Node::Box, "ip address add 10.9.0.2/24 dev lathe0");
    let mut config = both_ways(200);
    config["flows"].as_array_mut().expect("a list").truncate(1);
    config["devices"].as_array_mut().expect("a list").truncate(1);
    let mac = bed.stdout(Node::Box, "cat /sys/class/net/lathe0/address");
    let mac = mac.trim();
    let addresses = json!({ "src": { "value": "10.9.0.1" }, "dst": { "value": "10.9.0.2" } });
    let ethernet = json!({ "src": { "value": "02:00:00:00:00:01" }, "dst": { "value": mac } });
    config["flows"][0]["packet"] = json!([{ "ethernet": ethernet }, { "ipv4": addresses }, { "icmp": { "echo": {} } }]);
    json_of(&socket, "POST", "/config", &config);
    assert_eq!(neighbours(&socket), [mac]);
    let ping = bed.output(Node::Box, "ping -c 3 -W 5 10.9.0.1");
    assert!(ping.status.success(), "{ping:?}");
    json_of(&socket, "POST", "/control/state", &transmit("start"));
    assert_eq!(at_end(&socket)[0]["frames_tx"], 200);
    // The kernel answers each echo of the flow.
    let ports = json_of(&socket, "POST", "/monitor/metrics", &json!({ "port": {} }));
    let received = ports["port_metrics"][0]["frames_rx"].as_u64().expect("a count");
    assert!(received >= 200, "{ports}");
    let link = |state: &str| json!({ "port": { "link": { "port_names": ["p1"], "state": state } } });
    json_of(&socket, "POST", "/control/state", &link("down"));
    let ports = json_of(&socket, "POST", "/monitor/metrics", &json!({ "port": { "column_names": ["link"] } }));
    assert_eq!(ports["port_metrics"][0], json!({ "name": "p1", "link": "down" }));
    assert_eq!(otg.stop().status.code(), Some(0));
    assert!(!bed.output(Node::Box, "ip link show lathe0").status.success(), "the device goes with its port");
}

/// Returns a Python that has snappi: the one named in `NETLATHE_SNAPPI_PYTHON`, or the first in `PATH`.
fn python_with_snappi() -> Option<String> {
    let named = std::env::var("NETLATHE_SNAPPI_PYTHON").ok();
    named.into_iter().chain(["python3".to_owned()]).find(|python| {
        Command::new(python).args(["-c", "import snappi"]).output().is_ok_and(|output| output.status.success())
    })
}

/// Waits until something listens on a TCP port of the box.
fn await_port(bed: &Bed, port: u16) {
    let begin = Instant::now();
    while !bed.stdout(Node::Box, "ss -Htln").contains(&format!(":{port} ")) {
        assert!(begin.elapsed() < PATIENCE, "nothing listens on {port}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn snappi_scripts_run_unmodified() {
    let Some(python) = python_with_snappi() else {
        println!("SKIP: no Python has snappi: pip install snappi, and name the Python in NETLATHE_SNAPPI_PYTHON");
        return;
    };
    let Some(bed) = Bed::paired("snappi") else { return };
    let otg = bed.start(Node::Box, "otg --listen 127.0.0.1:18080 --ports p1=a0,p2=a1");
    await_port(&bed, 18_080);
    let script = root().join("crates/cli/tests/snappi/back_to_back.py");
    let output = bed.output(Node::Box, &format!("'{python}' '{}' http://127.0.0.1:18080", script.display()));
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("all checks passed"), "{printed}");
    assert_eq!(otg.stop().status.code(), Some(0));
}

/// Devices at both ports, and a separate namespace that forwards between them.
#[test]
fn snappi_scripts_pass_a_linux_router() {
    let Some(python) = python_with_snappi() else {
        println!("SKIP: no Python has snappi: pip install snappi, and name the Python in NETLATHE_SNAPPI_PYTHON");
        return;
    };
    let Some(bed) = Bed::paired("snappirouter") else { return };
    let router = bed.lab.topology().namespace(Node::Server);
    for (end, net) in [("a1", 1), ("b1", 2)] {
        bed.stdout(Node::Box, &format!("ip link set {end} netns {router}"));
        bed.stdout(Node::Server, &format!("sysctl -qw net.ipv6.conf.{end}.disable_ipv6=0"));
        bed.stdout(Node::Server, &format!("ip link set {end} up"));
        bed.stdout(Node::Server, &format!("ip address add 10.{net}.0.1/24 dev {end}"));
        bed.stdout(Node::Server, &format!("ip address add fd0{net}::1/64 dev {end} nodad"));
    }
    bed.stdout(Node::Server, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
    let otg = bed.start(Node::Box, "otg --listen 127.0.0.1:18081 --ports p1=a0,p2=b0");
    await_port(&bed, 18_081);
    let script = root().join("crates/cli/tests/snappi/through_router.py");
    let output = bed.output(Node::Box, &format!("'{python}' '{}' 127.0.0.1:18081", script.display()));
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("all checks passed"), "{printed}");
    assert_eq!(otg.stop().status.code(), Some(0));
}
