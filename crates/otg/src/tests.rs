//! Complete requests, on two ports connected by an in-memory cable.
#![allow(clippy::needless_pass_by_value, reason = "values are written where they are passed")]

use crate::api::{Api, Refusal, Reply, Request};
use crate::pattern::mixed;
use crate::wire::cable;
use serde_json::{Value, json};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

struct Bed {
    api: Arc<Api>,
    attending: Option<thread::JoinHandle<()>>,
}

impl Bed {
    fn new() -> Bed {
        let api = Arc::new(Api::start(cable::pair()).expect("threads"));
        let attending = Arc::clone(&api);
        Bed { api, attending: Some(thread::spawn(move || attending.attend())) }
    }

    fn ask(&self, request: Request, body: &Value) -> Result<Value, Refusal> {
        self.api.handle(request, body).map(|reply| match reply {
            Reply::Json(value) => value,
            Reply::Bytes(bytes) => json!(bytes),
        })
    }

    fn does(&self, request: Request, body: &Value) -> Value {
        self.ask(request, body).unwrap_or_else(|refusal| panic!("{:?}: {body}", refusal.0))
    }

    fn transmit(&self, state: &str, flows: &[&str]) {
        let body = json!({ "choice": "traffic", "traffic": { "choice": "flow_transmit", "flow_transmit": { "state": state, "flow_names": flows } } });
        self.does(Request::SetControlState, &body);
    }

    fn flows(&self) -> Vec<Value> {
        let answer = self.does(Request::GetMetrics, &json!({ "choice": "flow", "flow": { "flow_names": [] } }));
        answer["flow_metrics"].as_array().expect("a list").clone()
    }

    /// The metrics after all flows have stopped and the last frames have arrived.
    fn at_end(&self) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(20);
        while self.flows().iter().any(|flow| flow["transmit"] != "stopped") {
            assert!(Instant::now() < end, "{:?}", self.flows());
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(100));
        self.flows()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.api.end();
        if let Some(thread) = self.attending.take() {
            thread.join().expect("no panic");
        }
    }
}

fn flow(name: &str, packets: u64, pps: u64, change: Value) -> Value {
    let mut flow = json!({
        "name": name,
        "tx_rx": { "choice": "port", "port": { "tx_name": "p1", "rx_names": ["p2"] } },
        "packet": [
            { "choice": "ethernet", "ethernet": { "src": { "choice": "value", "value": "00:00:01:01:01:01" } } },
            { "choice": "ipv4", "ipv4": { "src": { "value": "1.1.1.1" }, "dst": { "value": "1.1.1.2" } } },
            { "choice": "udp", "udp": { "src_port": { "value": 5000 }, "dst_port": { "value": 6000 } } },
        ],
        "size": { "choice": "fixed", "fixed": 128 },
        "rate": { "choice": "pps", "pps": pps },
        "duration": { "choice": "fixed_packets", "fixed_packets": { "packets": packets } },
        "metrics": { "enable": true, "loss": true, "timestamps": true, "latency": { "enable": true, "mode": "cut_through" } },
    });
    flow.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
    flow
}

fn config(flows: Vec<Value>) -> Value {
    json!({ "ports": [{ "name": "p1", "location": "p1" }, { "name": "p2", "location": "p2" }], "flows": flows })
}

#[test]
fn flows_are_sent_received_and_measured() {
    let bed = Bed::new();
    bed.does(
        Request::SetConfig,
        &config(vec![flow("f", 200, 1_000, json!({})), flow("g", 100, 500, json!({ "size": { "fixed": 64 } }))]),
    );
    bed.transmit("start", &[]);
    let flows = bed.at_end();
    for (flow, (name, frames, bytes)) in flows.iter().zip([("f", 200, 25_600), ("g", 100, 6_400)]) {
        assert_eq!((&flow["name"], &flow["port_tx"], &flow["port_rx"]), (&json!(name), &json!("p1"), &json!("p2")));
        for (key, value) in [("frames_tx", frames), ("frames_rx", frames), ("bytes_tx", bytes), ("bytes_rx", bytes)] {
            assert_eq!(flow[key], value, "{key} of {flow}");
        }
        assert_eq!(flow["loss"], 0.0);
        let time = |key: &str| flow["timestamps"][key].as_f64().expect("a time");
        let spread = time("last_timestamp_ns") - time("first_timestamp_ns");
        assert!((0.15e9..2e9).contains(&spread), "0.2 s of frames took {spread} ns");
        let latency = |key: &str| flow["latency"][key].as_f64().expect("a time");
        let (least, mean, most) = (latency("minimum_ns"), latency("average_ns"), latency("maximum_ns"));
        assert!(0.0 < least && least <= mean && mean <= most, "{flow}");
    }
    let ports = bed.does(
        Request::GetMetrics,
        &json!({ "choice": "port", "port": { "column_names": ["frames_tx", "frames_rx"] } }),
    );
    assert_eq!(ports["port_metrics"][0], json!({ "name": "p1", "frames_tx": 300, "frames_rx": 0 }));
    assert_eq!(ports["port_metrics"][1]["frames_rx"], 300);
    // Starting clears the counters.
    bed.transmit("start", &["g"]);
    assert_eq!(
        bed.at_end().iter().map(|flow| flow["frames_rx"].as_u64().expect("a count")).collect::<Vec<_>>(),
        [200, 100]
    );
}

#[test]
fn flows_start_stop_pause_and_resume_singly() {
    let bed = Bed::new();
    let endless = json!({ "duration": { "choice": "continuous" } });
    bed.does(Request::SetConfig, &config(vec![flow("a", 1, 1_000, endless.clone()), flow("b", 1, 1_000, endless)]));
    bed.transmit("start", &["a"]);
    thread::sleep(Duration::from_millis(100));
    let count = |n: usize| bed.flows()[n]["frames_tx"].as_u64().expect("a count");
    assert!(count(0) > 20 && count(1) == 0);
    bed.transmit("pause", &["a"]);
    let paused = count(0);
    thread::sleep(Duration::from_millis(100));
    assert_eq!((count(0), &bed.flows()[0]["transmit"]), (paused, &json!("paused")));
    bed.transmit("resume", &["a"]);
    thread::sleep(Duration::from_millis(100));
    assert!(count(0) > paused + 20);
    bed.transmit("stop", &[]);
    let states: Vec<Value> = bed.flows().iter().map(|flow| flow["transmit"].clone()).collect();
    assert_eq!(states, ["stopped", "stopped"]);
    let stopped = count(0);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(count(0), stopped);
    assert_eq!(bed.flows()[0]["frames_rx"], stopped, "frames on their way are counted when the stop returns");
    let refusal = bed.ask(
        Request::SetControlState,
        &json!({ "traffic": { "flow_transmit": { "state": "start", "flow_names": ["c"] } } }),
    );
    assert_eq!(refusal.expect_err("refused").0[0].path, "traffic.flow_transmit.flow_names");
}

#[test]
fn short_frames_are_counted_by_their_headers() {
    let bed = Bed::new();
    let tcp = |port: u64| {
        json!({
            "packet": [{ "ethernet": {} }, { "ipv4": {} }, { "tcp": { "src_port": { "increment": { "start": 1, "count": 50 } }, "dst_port": { "value": port } } }],
            "size": { "fixed": 64 }, "metrics": { "enable": true },
        })
    };
    bed.does(Request::SetConfig, &config(vec![flow("a", 50, 1_000, tcp(80)), flow("b", 30, 1_000, tcp(81))]));
    bed.transmit("start", &[]);
    let counts: Vec<Value> = bed.at_end().iter().map(|flow| flow["frames_rx"].clone()).collect();
    assert_eq!(counts, [50, 30]);
    let same = bed.ask(Request::SetConfig, &config(vec![flow("a", 50, 1_000, tcp(80)), flow("b", 30, 1_000, tcp(80))]));
    let refusal = same.expect_err("their frames are the same");
    assert_eq!(refusal.0[0].path, "flows[1].size");
    assert_eq!(bed.flows().len(), 2, "the configuration before stays");
}

/// One in ten frames of the first flow is a frame of the second one.
#[test]
fn short_frames_of_a_range_are_not_mistaken_for_those_of_a_flow_in_it() {
    let bed = Bed::new();
    let to = |port: Value, vlan: Value| {
        json!({
            "packet": [{ "ethernet": {} }, { "vlan": { "id": vlan } }, { "ipv4": {} }, { "tcp": { "dst_port": port } }],
            "size": { "fixed": 64 }, "metrics": { "enable": true },
        })
    };
    let up = |start: u64, count: u64| json!({ "increment": { "start": start, "count": count } });
    let one = |value: u64| json!({ "value": value });
    for (ranged, single) in [((up(80, 10), one(5)), (one(85), one(5))), ((one(80), up(1, 10)), (one(80), one(5)))] {
        for (first, second) in [(&ranged, &single), (&single, &ranged)] {
            let flows = [("a", first), ("b", second)];
            let flows = flows.map(|(name, (port, vlan))| flow(name, 9, 1_000, to(port.clone(), vlan.clone())));
            let refusal = bed.ask(Request::SetConfig, &config(flows.to_vec())).expect_err("they may be alike");
            assert_eq!(refusal.0[0].path, "flows[1].size");
        }
    }
    let ranges = [(up(80, 10), one(5)), (one(90), one(5)), (up(100, 20), one(5)), (one(80), up(6, 9))];
    let flows = ranges.into_iter().zip(["a", "b", "c", "d"]);
    let flows = flows.map(|((port, vlan), name)| flow(name, 40, 1_000, to(port, vlan)));
    bed.does(Request::SetConfig, &config(flows.collect()));
    bed.transmit("start", &[]);
    let counts: Vec<Value> = bed.at_end().iter().map(|flow| flow["frames_rx"].clone()).collect();
    assert_eq!(counts, [40, 40, 40, 40]);
}

/// For short frames, only the wait determines to which run they belong.
#[test]
fn frames_in_flight_count_for_the_run_before() {
    let bed = Bed::new();
    let endless = json!({ "duration": { "choice": "continuous" }, "size": { "fixed": 64 }, "metrics": { "enable": true }, "packet": [{ "ethernet": {} }, { "ipv4": {} }, { "tcp": {} }] });
    let configuration = config(vec![flow("a", 1, 20_000, endless)]);
    for _ in 0..5 {
        bed.does(Request::SetConfig, &configuration);
        bed.transmit("start", &[]);
        thread::sleep(Duration::from_millis(50));
        bed.transmit("start", &[]);
        thread::sleep(Duration::from_millis(50));
        bed.transmit("stop", &[]);
        let flow = &bed.at_end()[0];
        assert_eq!(flow["frames_rx"], flow["frames_tx"]);
        bed.transmit("start", &[]);
        thread::sleep(Duration::from_millis(50));
        bed.does(Request::SetConfig, &configuration);
        thread::sleep(Duration::from_millis(50));
        let ports = bed.does(Request::GetMetrics, &json!({ "choice": "port", "port": {} }));
        let counts = [0, 1].map(|n| [&ports["port_metrics"][n]["frames_tx"], &ports["port_metrics"][n]["frames_rx"]]);
        assert_eq!(counts, [[&json!(0); 2]; 2]);
    }
}

#[test]
fn rates_change_while_flows_run_and_are_measured() {
    let bed = Bed::new();
    let configuration = config(vec![flow("a", 1, 200, json!({ "duration": { "choice": "continuous" } }))]);
    bed.does(Request::SetConfig, &configuration);
    bed.transmit("start", &[]);
    let update = json!({ "choice": "flows", "flows": { "property_names": ["rate"], "flows": [{ "name": "a", "tx_rx": {}, "rate": { "pps": 2_000 } }] } });
    for (flow, path) in [
        (json!({ "name": "x" }), "name"),
        (json!({ "name": "a", "rate": { "pps": 0 } }), "rate.pps"),
        (json!({ "name": "a", "rate": { "percentage": 5 } }), "rate"),
        (json!({ "name": "a", "rate": { "pps": 1 }, "metrics": { "enabled": true } }), "metrics.enabled"),
        (json!({ "name": "a", "rate": { "pps": 1 }, "egress": {} }), "egress"),
    ] {
        let body = json!({ "flows": { "property_names": ["rate"], "flows": [flow] } });
        let refused = bed.ask(Request::UpdateConfig, &body).expect_err("refused");
        assert!(refused.0[0].path.starts_with(&format!("flows.flows[0].{path}")), "{}", refused.json());
    }
    bed.does(Request::UpdateConfig, &update);
    thread::sleep(Duration::from_millis(2_500));
    let flow = &bed.flows()[0];
    for key in ["frames_tx_rate", "frames_rx_rate"] {
        let rate = flow[key].as_f64().expect("a rate");
        assert!((1_400.0..2_400.0).contains(&rate), "{key}: {rate}");
    }
    let stored = bed.does(Request::GetConfig, &Value::Null);
    assert_eq!(stored["flows"][0]["rate"], json!({ "pps": 2_000 }));
}

/// Frames whose headers do not announce what follows are counted like any others.
#[test]
fn frames_with_wrong_headers_are_counted() {
    let bed = Bed::new();
    let headers = ["ethernet", "ipv4", "udp", "vxlan", "ethernet", "ipv4", "udp"];
    let packet = |change: usize, fields: Value| {
        let header = |(n, kind): (usize, &&str)| json!({ *kind: if n == change { fields.clone() } else { json!({}) } });
        json!({ "packet": headers.iter().enumerate().map(header).collect::<Vec<_>>() })
    };
    let changes = [
        (3, json!({ "flags": { "value": 0x14 } })),
        (0, json!({ "ether_type": { "value": 1_000 } })),
        (1, json!({ "total_length": { "value": 60 } })),
        (1, json!({ "protocol": { "value": 99 } })),
        (1, json!({ "version": { "value": 6 } })),
        (2, json!({ "length": { "value": 9 } })),
        (5, json!({ "total_length": { "value": 30 } })),
    ];
    let flows = changes.into_iter().enumerate();
    let flows = flows.map(|(n, (at, fields))| flow(&format!("f{n}"), 5, 1_000, packet(at, fields)));
    let flows: Vec<Value> = flows
        .map(|mut flow| {
            flow["size"] = json!({ "fixed": 180 });
            flow
        })
        .collect();
    bed.does(Request::SetConfig, &config(flows));
    bed.transmit("start", &[]);
    for flow in bed.at_end() {
        assert_eq!((&flow["frames_tx"], &flow["frames_rx"]), (&json!(5), &json!(5)), "{flow}");
    }
}

#[test]
fn tags_split_metrics_by_their_values() {
    let bed = Bed::new();
    let packet = json!({
        "packet": [
            { "ethernet": {} },
            { "ipv4": { "priority": { "dscp": { "phb": { "values": [10, 46], "metric_tags": [{ "name": "dscp" }] } } } } },
            { "udp": {} },
        ],
        "metrics": { "enable": true, "loss": true, "predefined_metric_tags": { "rx_name": true } },
    });
    bed.does(Request::SetConfig, &config(vec![flow("a", 101, 2_000, packet)]));
    bed.transmit("start", &[]);
    let flow = &bed.at_end()[0];
    let tagged = flow["tagged_metrics"].as_array().expect("a list");
    let of = |hex: &str, key: &str| -> u64 {
        let rows = tagged.iter().filter(|row| row["tags"][0]["value"]["hex"] == hex);
        rows.map(|row| row[key].as_u64().expect("a count")).sum()
    };
    assert_eq!(
        [of("0a", "frames_tx"), of("2e", "frames_tx"), of("0a", "frames_rx"), of("2e", "frames_rx")],
        [51, 50, 51, 50]
    );
    assert!(
        tagged
            .iter()
            .any(|row| row["tags"][1] == json!({ "name": "rx_name", "value": { "choice": "str", "str": "p2" } }))
    );
    // Rows of sent frames have no port of arrival, so no row has a loss.
    assert!(tagged.iter().all(|row| row["loss"].is_null()), "{tagged:?}");
    let filtered = |name: &str| {
        let request = json!({ "choice": "flow", "flow": { "tagged_metrics": { "filters": [{ "name": name }] } } });
        let answer = bed.does(Request::GetMetrics, &request);
        answer["flow_metrics"][0]["tagged_metrics"].as_array().expect("a list").clone()
    };
    let rows = filtered("dscp");
    let counts: Vec<_> = rows.iter().map(|row| (&row["frames_tx"], &row["frames_rx"], &row["loss"])).collect();
    let both = [51, 50].map(|frames| (json!(frames), json!(frames), json!(0.0)));
    assert_eq!(counts, both.each_ref().map(|(sent, arrived, loss)| (sent, arrived, loss)));
    assert!(rows.iter().all(|row| row["tags"].as_array().is_some_and(|tags| tags.len() == 1)), "{rows:?}");
    let arrived: Vec<u64> = filtered("rx_name").iter().map(|row| row["frames_rx"].as_u64().expect("a count")).collect();
    assert_eq!(arrived, [0, 101], "sent and received frames");
}

#[test]
fn captures_have_the_frames_between_start_and_stop() {
    let bed = Bed::new();
    let mut configuration = config(vec![flow("a", 20, 1_000, json!({}))]);
    configuration["captures"] =
        json!([{ "name": "c", "port_names": ["p2"], "filters": [{ "ipv4": { "dst": { "value": "01010102" } } }] }]);
    bed.does(Request::SetConfig, &configuration);
    let capture = |state: &str| json!({ "choice": "port", "port": { "choice": "capture", "capture": { "port_names": ["p2"], "state": state } } });
    bed.does(Request::SetControlState, &capture("start"));
    bed.transmit("start", &[]);
    bed.at_end();
    bed.does(Request::SetControlState, &capture("stop"));
    bed.transmit("start", &[]);
    bed.at_end();
    let file = bed.does(Request::GetCapture, &json!({ "port_name": "p2" }));
    assert_eq!(file.as_array().expect("bytes").len(), 24 + 20 * (16 + 128));
    let part = json!({ "port_name": "p2", "packets": { "slice": { "initial": { "start": 2, "count": 3 } } } });
    assert_eq!(bed.does(Request::GetCapture, &part).as_array().expect("bytes").len(), 24 + 3 * (16 + 128));
    assert!(bed.ask(Request::GetCapture, &json!({ "port_name": "p1" })).is_err(), "no capture has p1");
}

fn devices() -> Value {
    let device = |n: u8, other: u8| {
        json!({ "name": format!("d{n}"), "ethernets": [{
            "name": format!("e{n}"), "connection": { "choice": "port_name", "port_name": format!("p{n}") },
            "mac": format!("00:00:01:01:01:0{n}"),
            "ipv4_addresses": [{ "name": format!("i{n}"), "address": format!("1.1.1.{n}"), "gateway": format!("1.1.1.{other}"), "prefix": 24 }],
            "ipv6_addresses": [{ "name": format!("s{n}"), "address": format!("fd00::{n}"), "gateway": format!("fd00::{other}"), "prefix": 64 }],
            "vlans": [{ "name": format!("v{n}"), "id": 7 }],
        }] })
    };
    json!([device(1, 2), device(2, 1)])
}

#[test]
fn devices_find_their_neighbours_and_answer_pings() {
    let bed = Bed::new();
    let packet = json!({
        "tx_rx": { "choice": "device", "device": { "tx_names": ["i1"], "rx_names": ["i2"] } },
        "packet": [{ "ethernet": {} }, { "vlan": { "id": { "value": 7 } } }, { "ipv4": {} }],
        "metrics": { "enable": true },
    });
    let mut configuration = config(vec![flow("f", 50, 1_000, packet)]);
    configuration["devices"] = devices();
    configuration["captures"] =
        json!([{ "name": "c", "port_names": ["p2"], "filters": [{ "ipv4": { "protocol": { "value": "3d" } } }] }]);
    bed.does(Request::SetConfig, &configuration);
    for (version, key) in [("ipv4_neighbors", "ipv4_address"), ("ipv6_neighbors", "ipv6_address")] {
        let end = Instant::now() + Duration::from_secs(10);
        let states = loop {
            let answer = bed.does(Request::GetStates, &json!({ "choice": version, version: {} }));
            let states = answer[version].as_array().expect("a list").clone();
            if states.iter().all(|state| !state["link_layer_address"].is_null()) {
                break states;
            }
            assert!(Instant::now() < end, "{states:?}");
            thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(states.len(), 2);
        assert_eq!(states[0]["link_layer_address"], "00:00:01:01:01:02");
        assert!(states[0][key].as_str().is_some_and(|address| address.ends_with('2')), "{states:?}");
    }
    bed.does(Request::SetControlState, &json!({ "port": { "capture": { "state": "start" } } }));
    bed.transmit("start", &[]);
    assert_eq!(bed.at_end()[0]["frames_rx"], 50);
    let file = bed.does(Request::GetCapture, &json!({ "port_name": "p2" }));
    assert_eq!(
        file.as_array().expect("bytes")[40..52],
        [0, 0, 1, 1, 1, 2, 0, 0, 1, 1, 1, 1],
        "addresses of both devices"
    );
    let ping = |version: &str, requests: Value| {
        let body = json!({ "choice": "protocol", "protocol": { "choice": version, version: { "choice": "ping", "ping": { "requests": requests } } } });
        bed.does(Request::SetControlAction, &body)["response"]["protocol"][version]["ping"]["responses"].clone()
    };
    let answered =
        ping("ipv4", json!([{ "src_name": "i1", "dst_ip": "1.1.1.2" }, { "src_name": "i1", "dst_ip": "1.1.1.9" }]));
    assert_eq!((&answered[0]["result"], &answered[1]["result"]), (&json!("succeeded"), &json!("failed")));
    let other_way = || ping("ipv6", json!([{ "src_name": "s2", "dst_ip": "fd00::1" }]))[0]["result"].clone();
    assert_eq!(other_way(), "succeeded");
    let devices =
        |state: &str| json!({ "choice": "protocol", "protocol": { "choice": "all", "all": { "state": state } } });
    bed.does(Request::SetControlState, &devices("stop"));
    assert_eq!(other_way(), "failed", "a device that is stopped does not answer");
    let states = bed.does(Request::GetStates, &json!({ "choice": "ipv4_neighbors" }));
    assert!(states["ipv4_neighbors"][0]["link_layer_address"].is_null(), "{states}");
    bed.does(Request::SetControlState, &devices("start"));
    assert_eq!(other_way(), "succeeded");
}

/// Two gateways have the same address, each in its own VLAN.
#[test]
fn neighbours_are_those_of_the_same_vlan() {
    let bed = Bed::new();
    let device = |port: u8, vlan: u8, own: u8, gateway: u8| {
        json!({ "name": format!("d{port}{vlan}"), "ethernets": [{
            "name": format!("e{port}{vlan}"), "connection": { "port_name": format!("p{port}") },
            "mac": format!("00:00:01:01:0{port}:{vlan}"), "vlans": [{ "name": format!("v{port}{vlan}"), "id": vlan }],
            "ipv4_addresses": [{ "name": format!("i{port}{vlan}"), "address": format!("10.5.0.{own}"), "gateway": format!("10.5.0.{gateway}") }],
        }] })
    };
    let mut configuration = config(Vec::new());
    configuration["devices"] =
        json!([device(1, 10, 2, 1), device(1, 20, 2, 1), device(2, 10, 1, 2), device(2, 20, 1, 2)]);
    bed.does(Request::SetConfig, &configuration);
    let end = Instant::now() + Duration::from_secs(10);
    let macs = loop {
        let answer = bed.does(Request::GetStates, &json!({ "choice": "ipv4_neighbors", "ipv4_neighbors": {} }));
        let states = answer["ipv4_neighbors"].as_array().expect("a list").iter();
        let macs: Vec<Value> = states.map(|state| state["link_layer_address"].clone()).collect();
        if macs.iter().all(|mac| !mac.is_null()) {
            break macs;
        }
        assert!(Instant::now() < end, "{macs:?}");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(macs, ["00:00:01:01:02:10", "00:00:01:01:02:20", "00:00:01:01:01:10", "00:00:01:01:01:20"]);
}

#[test]
fn senders_of_a_flow_take_turns() {
    let bed = Bed::new();
    let device = |n: u8, port: u8, gateway: u8| {
        json!({ "name": format!("d{n}"), "ethernets": [{
            "name": format!("e{n}"), "connection": { "choice": "port_name", "port_name": format!("p{port}") },
            "mac": format!("00:00:01:01:01:0{n}"),
            "ipv4_addresses": [{ "name": format!("i{n}"), "address": format!("1.1.1.{n}"), "gateway": format!("1.1.1.{gateway}") }],
        }] })
    };
    let with = |mode: &str, senders: Value, receivers: Value| {
        let packet = json!({
            "tx_rx": { "choice": "device", "device": { "mode": mode, "tx_names": senders, "rx_names": receivers } },
            "packet": [{ "ethernet": {} }, { "ipv4": { "src": { "values": ["1.1.1.1", "1.1.1.2"] } } }],
            "metrics": { "enable": true },
        });
        let mut configuration = config(vec![flow("f", 40, 1_000, packet)]);
        configuration["devices"] = json!([device(1, 1, 3), device(2, 1, 4), device(3, 2, 1), device(4, 2, 2)]);
        configuration["captures"] =
            json!([{ "name": "c", "port_names": ["p2"], "filters": [{ "ipv4": { "protocol": { "value": "3d" } } }] }]);
        configuration
    };
    bed.does(Request::SetConfig, &with("one_to_one", json!(["i1", "i2"]), json!(["i3", "i4"])));
    bed.does(Request::SetControlState, &json!({ "port": { "capture": { "state": "start" } } }));
    bed.transmit("start", &[]);
    assert_eq!(bed.at_end()[0]["frames_rx"], 40);
    let file = bed.does(Request::GetCapture, &json!({ "port_name": "p2" }));
    let bytes = file.as_array().expect("bytes");
    for n in 0..40 {
        let frame = &bytes[24 + n * (16 + 128) + 16..];
        let own = 1 + n % 2;
        // Sender 1 has the gateway .3, sender 2 the gateway .4. The values of other fields follow.
        assert_eq!([&frame[5], &frame[11], &frame[29]], [&json!(own + 2), &json!(own), &json!(own)], "frame {n}");
    }
    bed.does(Request::SetConfig, &with("mesh", json!(["i1"]), json!(["i3", "i4"])));
    let refused = bed.ask(Request::SetConfig, &with("mesh", json!(["i1", "i3"]), json!(["i4"])));
    let problem = &refused.expect_err("two ports").0[0];
    assert!(problem.path == "flows[0].tx_rx.device.tx_names" && problem.what.contains("another port"), "{problem}");
}

#[test]
fn flows_are_added_and_deleted_while_others_run() {
    let bed = Bed::new();
    let endless = json!({ "duration": { "choice": "continuous" } });
    bed.does(Request::SetConfig, &config(vec![flow("a", 1, 500, endless.clone()), flow("b", 1, 500, endless.clone())]));
    bed.transmit("start", &[]);
    let add = |flows: Value| json!({ "config_append_list": [{ "choice": "flows", "flows": flows }] });
    bed.does(Request::AppendConfig, &add(json!([flow("c", 30, 1_000, json!({})), flow("d", 1, 500, endless)])));
    let names = |bed: &Bed| bed.flows().iter().map(|flow| flow["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&bed), ["a", "b", "c", "d"]);
    assert_eq!(bed.flows()[0]["transmit"], "started", "the others go on");
    bed.transmit("start", &["c", "d"]);
    bed.does(Request::DeleteConfig, &json!({ "config_delete_list": [{ "choice": "flows", "flows": ["a", "d"] }] }));
    assert_eq!(names(&bed), ["b", "c"]);
    let end = Instant::now() + Duration::from_secs(20);
    while bed.flows()[1]["frames_rx"] != 30 {
        assert!(Instant::now() < end, "{:?}", bed.flows());
        thread::sleep(Duration::from_millis(10));
    }
    let before = bed.flows()[0]["frames_rx"].as_u64().expect("a count");
    bed.does(Request::AppendConfig, &add(json!([flow("a", 20, 1_000, json!({}))])));
    bed.transmit("start", &["a"]);
    while bed.flows()[2]["frames_rx"] != 20 {
        assert!(Instant::now() < end, "{:?}", bed.flows());
        thread::sleep(Duration::from_millis(10));
    }
    bed.transmit("stop", &[]);
    let flows = bed.flows();
    assert!(flows[0]["frames_rx"].as_u64().is_some_and(|arrived| arrived > before), "b went on: {flows:?}");
    assert_eq!(flows[0]["frames_rx"], flows[0]["frames_tx"]);
    let stored = bed.does(Request::GetConfig, &Value::Null);
    let stored: Vec<&Value> = stored["flows"].as_array().expect("a list").iter().map(|flow| &flow["name"]).collect();
    assert_eq!(stored, ["b", "c", "a"]);

    for (request, body, path) in [
        (Request::AppendConfig, add(json!([flow("b", 1, 1, json!({}))])), "config_append_list[0].flows[0].name"),
        (
            Request::AppendConfig,
            add(json!([flow("x", 1, 1, json!({})), flow("y", 1, 1, json!({ "rate": { "pps": 0 } }))])),
            "config_append_list[0].flows[1].rate.pps",
        ),
        (Request::AppendConfig, json!({ "config_append_list": [{ "devices": [] }] }), "config_append_list[0].devices"),
        (
            Request::DeleteConfig,
            json!({ "config_delete_list": [{ "flows": ["b"] }, { "flows": ["zz"] }] }),
            "config_delete_list[1].flows[0]",
        ),
    ] {
        let refusal = bed.ask(request, &body).expect_err("refused");
        assert_eq!(refusal.0[0].path, path, "{}", refusal.json());
    }
    assert_eq!(names(&bed), ["b", "c", "a"], "a refused request changes nothing");
}

#[test]
fn unsupported_settings_are_refused_by_path() {
    let bed = Bed::new();
    for (request, body, path) in [
        (Request::SetConfig, json!({ "lags": [] }), "lags"),
        (Request::SetConfig, config(vec![flow("a", 1, 1, json!({ "size": { "fixed": 1_519 } }))]), "flows[0].size"),
        (Request::SetConfig, json!({ "devices": [{ "name": "d", "isis": {} }] }), "devices[0].isis"),
        (Request::SetConfig, json!({ "devices": [{ "name": "d", "macsec": {} }] }), "devices[0].macsec"),
        (Request::SetConfig, json!({ "stateful_flows": {} }), "stateful_flows"),
        (
            Request::SetConfig,
            config(vec![flow("a", 1, 1, json!({ "tx_rx": { "group": {} } }))]),
            "flows[0].tx_rx.group",
        ),
        (
            Request::SetConfig,
            json!({ "devices": [{ "name": "d", "ethernets": [{ "name": "e", "connection": { "lag_name": "l" } }] }] }),
            "devices[0].ethernets[0].connection.lag_name",
        ),
        (
            Request::SetControlState,
            json!({ "choice": "protocol", "protocol": { "choice": "lacp", "lacp": {} } }),
            "protocol.choice",
        ),
        (Request::SetControlAction, json!({ "choice": "port", "port": {} }), "choice"),
        (Request::GetMetrics, json!({ "choice": "bgpv4", "bgpv4": {} }), "choice"),
        (Request::GetStates, json!({ "isis_lsps": {} }), "isis_lsps"),
        (Request::UpdateConfig, json!({ "choice": "protocols" }), "choice"),
        (Request::GetMetrics, json!({ "flow": { "flow_names": ["none"] } }), "flow.flow_names"),
        (Request::GetMetrics, json!({ "port": { "column_names": ["link", "last_change"] } }), "port.column_names[1]"),
        (
            Request::GetMetrics,
            json!({ "flow": { "tagged_metrics": { "filters": [{ "name": "none" }] } } }),
            "flow.tagged_metrics.filters[0].name",
        ),
        (
            Request::GetMetrics,
            json!({ "flow": { "tagged_metrics": { "include_empty_metrics": true } } }),
            "flow.tagged_metrics.include_empty_metrics",
        ),
        (
            Request::GetMetrics,
            json!({ "flow": { "tagged_metrics": { "metric_names": ["frames_tx_rate"] } } }),
            "flow.tagged_metrics.metric_names[0]",
        ),
    ] {
        let refusal = bed.ask(request, &body).expect_err("refused");
        assert_eq!(refusal.0[0].path, path, "{body}: {}", refusal.json());
    }
}

/// Flows with one frame per second each leave in turn, as planned. Together they are a steady stream, not one burst per
/// second.
#[test]
fn a_thousand_slow_flows_depart_evenly() {
    let bed = Bed::new();
    let flows = (0..1_000).map(|n| flow(&format!("f{n}"), 3, 1, json!({}))).collect();
    let mut configuration = config(flows);
    configuration["captures"] = json!([{ "name": "c", "port_names": ["p2"] }]);
    bed.does(Request::SetConfig, &configuration);
    bed.does(Request::SetControlState, &json!({ "port": { "capture": { "state": "start" } } }));
    bed.transmit("start", &[]);
    bed.at_end();
    let file = bed.does(Request::GetCapture, &json!({ "port_name": "p2" }));
    let bytes: Vec<u8> =
        file.as_array().expect("bytes").iter().map(|byte| byte.as_u64().expect("a byte") as u8).collect();
    let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")));
    let records = (24..bytes.len()).step_by(16 + 128);
    let times: Vec<u64> = records.clone().map(|at| word(at) * 1_000_000_000 + word(at + 4)).collect();
    let stamps = records.map(|at| packet::Stamp::of(&bytes[at + 16..at + 16 + 124]).expect("a stamp"));
    let order: Vec<(u16, u32)> = stamps.map(|stamp| (stamp.stream, stamp.sequence)).collect();
    let first = order[0].0;
    let wanted: Vec<(u16, u32)> = (0..3_000_u32).map(|n| (first.wrapping_add((n % 1_000) as u16), n / 1_000)).collect();
    assert!(order == wanted, "every flow has its turn");
    let mut gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    let median = gaps[gaps.len() / 2];
    assert!((900_000..1_100_000).contains(&median), "the median gap is {median} ns");
    let together = gaps.iter().filter(|gap| **gap < 100_000).count();
    assert!(together < gaps.len() / 5, "{together} of {} gaps are below 0.1 ms", gaps.len());
}

/// `bench/otg.py speed` measures the times.
#[test]
fn thousands_of_flows_are_configured_and_read() {
    let bed = Bed::new();
    let flows = (0..4_096).map(|n| flow(&format!("f{n}"), 1, 100, json!({}))).collect();
    bed.does(Request::SetConfig, &config(flows));
    let named = |flows: &[Value]| flows.iter().map(|flow| flow["name"].clone()).collect::<Vec<_>>();
    assert_eq!(named(&bed.flows()), (0..4_096).map(|n| json!(format!("f{n}"))).collect::<Vec<_>>());
    bed.transmit("start", &[]);
    let flows = bed.at_end();
    assert!(flows.iter().all(|flow| flow["frames_tx"] == 1 && flow["frames_rx"] == 1), "each has its own counters");
}

/// Collects the paths of all fields of a JSON value.
fn paths(value: &Value, at: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            all.push(format!("{at}/{key}"));
            paths(value, &format!("{at}/{key}"), all);
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(n, value)| paths(value, &format!("{at}/{n}"), all)),
        _ => {}
    }
}

/// Mutations of a valid configuration are accepted or rejected, and an unknown field is always rejected.
#[test]
fn mutated_configurations_never_crash_and_unknown_fields_are_never_accepted() {
    let bed = Bed::new();
    let mut valid = config(vec![
        flow("a", 1, 1, json!({ "size": { "weight_pairs": { "custom": [{ "size": 100, "weight": 2.0 }] } } })),
        flow(
            "b",
            1,
            1,
            json!({ "rate": { "choice": "mbps", "mbps": 5 }, "size": { "choice": "random", "random": { "min": 100, "max": 200 } } }),
        ),
        flow(
            "c",
            1,
            1,
            json!({ "duration": { "burst": { "bursts": 1, "packets": 2, "inter_burst_gap": { "nanoseconds": 7.5 } } } }),
        ),
        flow(
            "d",
            1,
            1,
            json!({ "packet": [{ "ethernet": {} }, { "mpls": {} }, { "ipv4": { "priority": { "tos": { "delay": {} } } } }, { "gre": {} }, { "ipv6": {} }, { "custom": { "bytes": "00ff", "metric_tags": [{ "name": "t" }] } }] }),
        ),
    ]);
    valid["devices"] = devices();
    valid["layer1"] = json!([{ "name": "l", "port_names": ["p1"], "speed": "speed_1_gbps" }]);
    valid["captures"] =
        json!([{ "name": "cap", "port_names": ["p1"], "filters": [{ "custom": { "offset": 3, "value": "0a" } }] }]);
    bed.does(Request::SetConfig, &valid);
    let mut all = Vec::new();
    paths(&valid, "", &mut all);
    assert!(all.len() > 150, "{}", all.len());
    let others = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}\u{202e}"),
        json!([]),
        json!({}),
        json!(true),
        json!("00:00:00:00:00"),
        json!("999.1.1.1"),
        json!([[]]),
        json!(0),
    ];
    let mut accepted = 0;
    for n in 0..1_500_u64 {
        let path = &all[(mixed(n) % all.len() as u64) as usize];
        let mut mutated = valid.clone();
        let place = mutated.pointer_mut(path).expect("it is there");
        let adds = mixed(n + 7_000).is_multiple_of(3) && place.is_object();
        if adds {
            place["never_a_field"] = others[(mixed(n + 1) % others.len() as u64) as usize].clone();
        } else {
            *place = others[(mixed(n + 2) % others.len() as u64) as usize].clone();
        }
        match bed.ask(Request::SetConfig, &mutated) {
            Ok(_) => {
                assert!(!adds, "an unknown field in {path} was accepted");
                accepted += 1;
            }
            Err(refusal) => {
                assert!(!refusal.0.is_empty());
                let named = refusal.0.iter().any(|problem| problem.path.ends_with("never_a_field"));
                assert!(!adds || named, "{path}: {:?}", refusal.0);
            }
        }
    }
    assert!(accepted > 20, "{accepted}: nulls and some values are valid");
    bed.does(Request::SetConfig, &valid);
}

/// Runs the same flow over both transports and prints the results of each.
const OVER_BOTH: &str = r#"
import sys, time
import snappi

address = sys.argv[1]
apis = [snappi.api(location="http://" + address, version_check=True), snappi.api(location=address, transport="grpc", version_check=True)]
# The same calls, in messages of 64 B.
apis.append(snappi.api(location=address, transport="grpc"))
apis[2].enable_grpc_streaming, apis[2]._chunk_size = True, 64
for api in apis:
    config = api.config()
    config.ports.port(name="tx", location="p1").port(name="rx", location="p2")
    capture = config.captures.capture(name="c")[-1]
    capture.port_names = ["rx"]
    flow = config.flows.flow(name="f")[-1]
    flow.tx_rx.port.tx_name, flow.tx_rx.port.rx_names = "tx", ["rx"]
    ethernet, ip, udp = flow.packet.ethernet().ipv4().udp()
    ip.dst.increment.start, ip.dst.increment.count = "10.0.0.1", 3
    udp.src_port.values = [1, 2, 300]
    flow.size.fixed, flow.rate.pps, flow.duration.fixed_packets.packets = 200, 1000, 100
    flow.metrics.enable = flow.metrics.loss = flow.metrics.latency.enable = True
    api.set_config(config)
    assert api.get_config().flows[0].rate.pps == 1000
    control = api.control_state()
    control.port.capture.state = control.port.capture.START
    api.set_control_state(control)
    control = api.control_state()
    control.traffic.flow_transmit.state = control.traffic.flow_transmit.START
    api.set_control_state(control)
    request = api.metrics_request()
    request.flow.flow_names = ["f"]
    end = time.time() + 20
    while api.get_metrics(request).flow_metrics[0].transmit != "stopped" and time.time() < end:
        time.sleep(0.05)
    time.sleep(1.5)
    metrics = [api.get_metrics(request).flow_metrics[0] for api in apis]
    rows = [(m.name, m.port_tx, m.port_rx, m.frames_tx, m.frames_rx, m.bytes_rx, m.loss, m.latency.minimum_ns, m.latency.maximum_ns) for m in metrics]
    assert rows[0] == rows[1] == rows[2] and rows[0][3:6] == (100, 100, 20000), rows
    capture = api.capture_request()
    capture.port_name = "rx"
    assert len(api.get_capture(capture).read()) == 24 + 100 * 216
    change = api.config_append()
    other = change.config_append_list.add().flows.flow(name="g")[-1]
    other.tx_rx.port.tx_name = "tx"
    api.append_config(change)
    assert [flow.name for flow in api.get_config().flows] == ["f", "g"]
    change = api.config_delete()
    change.config_delete_list.add().flows = ["g"]
    api.delete_config(change)
    assert [flow.name for flow in api.get_config().flows] == ["f"]
    config.devices.device(name="d")[-1].bgp.router_id = "1.1.1.1"
    try:
        api.set_config(config)
    except Exception as refused:
        assert "devices[0]" in str(refused), refused
    else:
        raise AssertionError("BGP was accepted")
print("the same")
"#;

#[test]
fn snappi_gets_the_same_metrics_over_http_and_grpc() {
    let named = std::env::var("NETLATHE_SNAPPI_PYTHON").ok();
    let has_snappi = |python: &String| {
        let import = std::process::Command::new(python).args(["-c", "import snappi"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    let Some(python) = named.into_iter().chain(["python3".to_owned()]).find(has_snappi) else {
        println!("SKIP: no Python has snappi: pip install snappi, and name the Python in NETLATHE_SNAPPI_PYTHON");
        return;
    };
    let bed = Bed::new();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let router = crate::router(Arc::clone(&bed.api));
    runtime.spawn(async move { axum::serve(listener, router).await });
    let output = std::process::Command::new(python).args(["-c", OVER_BOTH, &address]).output().expect("it starts");
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("the same"), "{printed}");
}
