//! The requests of the API, as JSON values, for all transports.

use crate::capture;
use crate::config;
use crate::engine::{Engine, LiveFlow, PortView, Rates};
use crate::flow;
use crate::meters::{Figures, TagValues, Transmission};
use crate::pattern::Tag;
use crate::reader::{Node, Object, Problem, Read};
use crate::receiver::lock;
use crate::wire::OpenPort;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// The supported versions of the model. Clients interpret this as a range.
const VERSIONS: &str = ">=1.30.0,<2.0.0";

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sets the configuration.
    SetConfig,
    /// Returns the configuration.
    GetConfig,
    /// Changes the rates and sizes of flows.
    UpdateConfig,
    /// Adds flows while others run.
    AppendConfig,
    /// Stops and removes flows while others run.
    DeleteConfig,
    /// Starts and stops flows, captures, devices and links.
    SetControlState,
    /// Pings.
    SetControlAction,
    /// Reads counters.
    GetMetrics,
    /// Reads neighbours.
    GetStates,
    /// Reads a capture.
    GetCapture,
    /// Returns the supported versions.
    GetVersion,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// An object of the model.
    Json(Value),
    /// A file.
    Bytes(Vec<u8>),
}

/// Why a request was rejected: each problem, with the path of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(pub Vec<Problem>);

impl Refusal {
    /// The error object of the model.
    #[must_use]
    pub fn json(&self) -> Value {
        let errors: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        json!({ "code": 400, "kind": "validation", "errors": errors })
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        Refusal(vec![problem])
    }
}

impl From<Vec<Problem>> for Refusal {
    fn from(problems: Vec<Problem>) -> Refusal {
        Refusal(problems)
    }
}

/// The server behind all transports.
pub struct Api {
    engine: Engine,
    /// The configuration as received.
    config: Mutex<Value>,
    pings: AtomicU16,
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Api")
    }
}

impl Api {
    /// Starts the engine on these ports.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start(ports: Vec<OpenPort>) -> std::io::Result<Api> {
        Ok(Api { engine: Engine::start(ports)?, config: Mutex::new(json!({})), pings: AtomicU16::new(1) })
    }

    /// Resolves neighbours and measures rates until [`Api::end`]. Run this on a separate thread.
    pub fn attend(&self) {
        self.engine.attend();
    }

    /// Ends [`Api::attend`]. Traffic ends when the value is dropped.
    pub fn end(&self) {
        self.engine.end();
    }

    /// Executes a request. May wait up to 5 s for neighbours to answer.
    ///
    /// # Errors
    /// Problems of the request, each with its path. The request then changes nothing.
    pub fn handle(&self, request: Request, body: &Value) -> Result<Reply, Refusal> {
        let node = Node::root(body);
        Ok(Reply::Json(match request {
            Request::SetConfig => self.set_config(body)?,
            Request::GetConfig => lock(&self.config).clone(),
            Request::UpdateConfig => self.update_config(&node)?,
            Request::AppendConfig => self.append_config(&node)?,
            Request::DeleteConfig => self.delete_config(&node)?,
            Request::SetControlState => self.set_control_state(&node)?,
            Request::SetControlAction => self.set_control_action(&node)?,
            Request::GetMetrics => self.metrics(&node)?,
            Request::GetStates => self.states(&node)?,
            Request::GetVersion => json!({
                "api_spec_version": VERSIONS,
                "sdk_version": VERSIONS,
                "app_version": concat!("netlathe ", env!("CARGO_PKG_VERSION")),
            }),
            Request::GetCapture => {
                let mut object = node.object()?;
                let name = object.required("port_name")?.name()?;
                let part = capture::slice(object.get("packets"))?;
                object.finish()?;
                return Ok(Reply::Bytes(self.engine.captured(&name, part)?));
            }
        }))
    }

    fn set_config(&self, body: &Value) -> Result<Value, Refusal> {
        let mut stored = lock(&self.config);
        let config = config::read(&Node::root(body), &self.engine.available)?;
        let warnings = self.engine.configure(config)?;
        *stored = body.clone();
        Ok(json!({ "warnings": warnings }))
    }

    fn update_config(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut object = node.object()?;
        object.choice(&["flows"], None)?;
        let flows = object.required("flows")?;
        object.finish()?;
        let mut object = flows.object()?;
        let properties = object.required("property_names")?;
        let words = properties.list()?.iter().map(|node| node.word(&["rate", "size"])).collect::<Read<Vec<_>>>()?;
        let changed = object.items("flows")?;
        object.finish()?;
        let mut stored = lock(&self.config);
        let mut fresh = stored.clone();
        let mut names = HashSet::new();
        // The index of each changed flow, and its path in the request.
        let mut places: Vec<(usize, String)> = Vec::new();
        let by_name: HashMap<String, usize> = stored_flows(&stored)
            .iter()
            .enumerate()
            .filter_map(|(n, flow)| Some((flow.get("name")?.as_str()?.to_owned(), n)))
            .collect();
        for node in &changed {
            let mut object = node.object()?;
            let name = object.required("name")?;
            let values =
                words.iter().map(|word| (*word, object.get(word).map(|node| node.value().clone()))).collect::<Vec<_>>();
            let all = fresh.get_mut("flows").and_then(Value::as_array_mut);
            let found = name.text().ok().and_then(|name| by_name.get(name));
            let Some(flow) = found.zip(all).and_then(|(n, all)| all.get_mut(*n)?.as_object_mut()) else {
                return Err(Problem::new(&name.path, "there is no flow of this name").into());
            };
            // The other fields have no effect, but unsupported ones are rejected here as well.
            let mut whole = flow.clone();
            let given = node.value().as_object().into_iter().flatten();
            let given = given.filter(|(key, value)| *key != "tx_rx" || !names_no_ends(value));
            whole.extend(given.map(|(key, value)| (key.clone(), value.clone())));
            flow::read(&Node::at(&Value::Object(whole), &node.path))?;
            for (word, value) in values {
                // A missing field is reset to its default.
                if let Some(value) = value {
                    flow.insert(word.to_owned(), value)
                } else {
                    flow.remove(word)
                };
            }
            names.insert(name.name()?);
            places.extend(name.text().ok().and_then(|name| by_name.get(name)).map(|n| (*n, node.path.clone())));
        }
        let in_request = |problem: Problem| {
            let place = problem.path.strip_prefix("flows[").and_then(|rest| {
                let (number, rest) = rest.split_once(']')?;
                let number: usize = number.parse().ok()?;
                Some(format!("{}{rest}", places.iter().find(|(n, _)| *n == number)?.1))
            });
            Problem { path: place.unwrap_or(problem.path), what: problem.what }
        };
        let of_request = |problems: Vec<Problem>| problems.into_iter().map(in_request).collect::<Vec<_>>();
        let mut config = config::read(&Node::root(&fresh), &self.engine.available).map_err(of_request)?;
        config.flows.retain(|flow| names.contains(&flow.flow.name));
        self.engine.change_flows(config);
        *stored = fresh;
        Ok(json!({ "warnings": [] }))
    }

    fn append_config(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut stored = lock(&self.config);
        let mut fresh = stored.clone();
        let known = stored_flows(&stored).len();
        // The path of each flow in the request.
        let mut places = Vec::new();
        let mut object = node.object()?;
        let items = object.items("config_append_list")?;
        object.finish()?;
        let flows = fresh.as_object_mut().map(|config| config.entry("flows").or_insert_with(|| json!([])));
        let Some(flows) = flows else { return Err(Problem::new("", "there is no configuration").into()) };
        if flows.is_null() {
            *flows = json!([]);
        }
        let Value::Array(flows) = flows else { return Err(Problem::new("", "flows is not a list").into()) };
        for item in &items {
            let mut object = item.object()?;
            object.choice(&["flows"], None)?;
            for flow in object.items("flows")? {
                flows.push(flow.value().clone());
                places.push(flow.path);
            }
            object.finish()?;
        }
        let in_request = |problem: Problem| {
            let place = problem.path.strip_prefix("flows[").and_then(|rest| {
                let (number, rest) = rest.split_once(']')?;
                Some(format!("{}{rest}", places.get(number.parse::<usize>().ok()?.checked_sub(known)?)?))
            });
            Problem { path: place.unwrap_or(problem.path), what: problem.what }
        };
        let of_request = |problems: Vec<Problem>| problems.into_iter().map(in_request).collect::<Vec<_>>();
        let config = config::read(&Node::root(&fresh), &self.engine.available).map_err(of_request)?;
        let warnings = self.engine.append(config, known).map_err(of_request)?;
        *stored = fresh;
        Ok(json!({ "warnings": warnings }))
    }

    fn delete_config(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut stored = lock(&self.config);
        let mut object = node.object()?;
        let items = object.items("config_delete_list")?;
        object.finish()?;
        let known: HashSet<&str> = stored_flows(&stored).iter().filter_map(|flow| flow.get("name")?.as_str()).collect();
        let mut names = HashSet::new();
        for item in &items {
            let mut object = item.object()?;
            object.choice(&["flows"], None)?;
            let flows = object.get("flows");
            object.finish()?;
            for flow in flows.as_ref().map_or(Ok(Vec::new()), Node::list)? {
                let name = flow.name()?;
                if !known.contains(name.as_str()) {
                    return flow.wrong(format!("there is no flow '{name}'")).map_err(Refusal::from);
                }
                names.insert(name);
            }
        }
        self.engine.delete(&names);
        if let Some(flows) = stored.get_mut("flows").and_then(Value::as_array_mut) {
            flows.retain(|flow| !flow.get("name").and_then(Value::as_str).is_some_and(|name| names.contains(name)));
        }
        Ok(json!({ "warnings": [] }))
    }

    fn set_control_state(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut object = node.object()?;
        let choice = object.choice(&["port", "protocol", "traffic"], None)?;
        let content = object.required(choice)?;
        object.finish()?;
        let mut object = content.object()?;
        let words: &[&'static str] = match choice {
            "port" => &["link", "capture"],
            "protocol" => &["all"],
            _ => &["flow_transmit"],
        };
        let inner = object.choice(words, None)?;
        let content = object.required(inner)?;
        object.finish()?;
        let mut object = content.object()?;
        let names =
            |object: &mut Object<'_>, key: &'static str| object.get(key).map_or(Ok(Vec::new()), |node| node.texts());
        match inner {
            "link" => {
                let ports = names(&mut object, "port_names")?;
                let state = object.required("state")?.word(&["up", "down"])?;
                let path = object.path_of("port_names");
                object.finish()?;
                self.engine.set_links(&ports, state == "up", &path)?;
            }
            "capture" => {
                let ports = names(&mut object, "port_names")?;
                let state = object.required("state")?.word(&["start", "stop"])?;
                let path = object.path_of("port_names");
                object.finish()?;
                self.engine.capture(&ports, state == "start", &path)?;
            }
            "all" => {
                let state = object.required("state")?.word(&["start", "stop"])?;
                object.finish()?;
                self.engine.set_devices(state == "start");
            }
            _ => {
                let flows = names(&mut object, "flow_names")?;
                let state = object.required("state")?.word(&["start", "stop", "pause", "resume"])?;
                let path = object.path_of("flow_names");
                object.finish()?;
                match state {
                    "start" | "resume" => self.engine.start_flows(&flows, &path, state == "resume")?,
                    _ => self.engine.halt_flows(&flows, &path, state == "pause")?,
                }
            }
        }
        Ok(json!({ "warnings": [] }))
    }

    fn set_control_action(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut object = node.object()?;
        object.choice(&["protocol"], None)?;
        let content = object.required("protocol")?;
        object.finish()?;
        let mut object = content.object()?;
        let version = object.choice(&["ipv4", "ipv6"], None)?;
        let content = object.required(version)?;
        object.finish()?;
        let mut object = content.object()?;
        object.choice(&["ping"], None)?;
        let content = object.required("ping")?;
        object.finish()?;
        let mut object = content.object()?;
        let requests = object.items("requests")?;
        object.finish()?;
        let mut wanted = Vec::new();
        for node in &requests {
            let mut object = node.object()?;
            let from = object.required("src_name")?;
            let to = object.required("dst_ip")?;
            let address: IpAddr = if version == "ipv4" { to.ipv4()?.into() } else { to.ipv6()?.into() };
            wanted.push((from.name()?, address, from.path.clone()));
            object.finish()?;
        }
        let mut responses = Vec::new();
        for (from, to, path) in wanted {
            let identifier = self.pings.fetch_add(1, Relaxed);
            let result = if self.engine.ping(&from, to, identifier, &path)? { "succeeded" } else { "failed" };
            responses.push(json!({ "src_name": from, "dst_ip": to.to_string(), "result": result }));
        }
        let ping = json!({ "choice": "ping", "ping": { "responses": responses } });
        let response = json!({ "choice": "protocol", "protocol": { "choice": version, version: ping } });
        Ok(json!({ "warnings": [], "response": response }))
    }

    fn metrics(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut object = node.object()?;
        let choice = object.choice(&["port", "flow"], Some("port"))?;
        let content = object.get(choice);
        object.finish()?;
        let mut inner = content.as_ref().map(Node::object).transpose()?;
        if choice == "port" {
            let (mut names, mut columns, mut path) = (Vec::new(), Vec::new(), String::new());
            if let Some(object) = &mut inner {
                names = object.get("port_names").map_or(Ok(names), |node| node.texts())?;
                columns = words(object.get("column_names"), &PORT_COLUMNS)?;
                path = object.path_of("port_names");
            }
            inner.map_or(Ok(()), Object::finish)?;
            let (_, rates) = self.engine.rates();
            let metrics = self.engine.with_ports(&names, &path, |port| {
                pick(port_metric(port, rates.get(port.of).copied().unwrap_or_default()), &columns)
            })?;
            return Ok(json!({ "choice": "port_metrics", "port_metrics": metrics }));
        }
        let (mut names, mut columns, mut path, mut tags) =
            (Vec::new(), Vec::new(), String::new(), TagRequest::default());
        if let Some(object) = &mut inner {
            names = object.get("flow_names").map_or(Ok(names), |node| node.texts())?;
            columns = words(object.get("metric_names"), &FLOW_COLUMNS)?;
            path = object.path_of("flow_names");
            if let Some(node) = object.get("tagged_metrics") {
                tags = tag_request(&node)?;
            }
        }
        inner.map_or(Ok(()), Object::finish)?;
        if let Some((name, path)) = tags.names.iter().find(|(name, _)| name != RX_NAME && !self.engine.has_tag(name)) {
            return Err(Problem::new(path, format!("no flow has a tag '{name}'")).into());
        }
        let (rates, _) = self.engine.rates();
        let metrics = self.engine.with_flows(&names, &path, |n, flow, config| {
            flow_metric(flow, config, rates.get(n).copied().unwrap_or_default(), &columns, &tags)
        })?;
        Ok(json!({ "choice": "flow_metrics", "flow_metrics": metrics }))
    }

    fn states(&self, node: &Node<'_>) -> Result<Value, Refusal> {
        let mut object = node.object()?;
        let choice = object.choice(&["ipv4_neighbors", "ipv6_neighbors"], Some("ipv4_neighbors"))?;
        let content = object.get(choice);
        object.finish()?;
        let (mut names, mut path) = (Vec::new(), String::new());
        if let Some(node) = content {
            let mut object = node.object()?;
            names = object.get("ethernet_names").map_or(Ok(names), |node| node.texts())?;
            path = object.path_of("ethernet_names");
            object.finish()?;
        }
        let (key, is_v4) = if choice == "ipv4_neighbors" { ("ipv4_address", true) } else { ("ipv6_address", false) };
        let neighbours = self.engine.neighbours(&names, &path)?;
        let states: Vec<Value> = neighbours
            .into_iter()
            .filter(|(_, address, _)| address.is_ipv4() == is_v4)
            .map(|(name, address, mac)| {
                let mut state = json!({ "ethernet_name": name, key: address.to_string() });
                if let Some(mac) = mac {
                    state["link_layer_address"] = json!(mac.to_string());
                }
                state
            })
            .collect();
        Ok(json!({ "choice": choice, choice: states }))
    }
}

/// Whether the ends of a flow are empty: clients must send the field even where it has no meaning.
fn names_no_ends(value: &Value) -> bool {
    let is_empty = |(key, value): (&String, &Value)| key == "choice" || *value == json!({});
    let is_known = |key: &String| ["choice", "port", "device"].contains(&key.as_str());
    value.as_object().is_some_and(|ends| ends.iter().all(is_empty) && ends.keys().all(is_known))
}

/// The flows of an accepted configuration.
fn stored_flows(config: &Value) -> &[Value] {
    config.get("flows").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The name of the tag for the port of arrival.
const RX_NAME: &str = "rx_name";

const PORT_COLUMNS: [&str; 13] = [
    "bytes_rx", "bytes_rx_rate", "bytes_tx", "bytes_tx_rate", "capture", "frames_rx", "frames_rx_rate", "frames_tx",
    "frames_tx_rate", "link", "location", "speed", "transmit",
];
const FLOW_COLUMNS: [&str; 17] = [
    "bytes_rx", "bytes_tx", "frames_rx", "frames_rx_rate", "frames_tx", "frames_tx_rate", "rx_l1_rate_bps",
    "rx_rate_bps", "rx_rate_bytes", "rx_rate_kbps", "rx_rate_mbps", "transmit", "tx_l1_rate_bps", "tx_rate_bps",
    "tx_rate_bytes", "tx_rate_kbps", "tx_rate_mbps",
];
/// Rows by tag only have counters.
const TAGGED_COLUMNS: [&str; 4] = ["bytes_rx", "bytes_tx", "frames_rx", "frames_tx"];

fn words(node: Option<Node<'_>>, all: &[&'static str]) -> Read<Vec<&'static str>> {
    node.map_or(Ok(Vec::new()), |node| node.list()?.iter().map(|item| item.word(all)).collect())
}

/// The requested columns and the identifying ones. All columns if none is requested.
fn pick(metric: Map<String, Value>, columns: &[&str]) -> Value {
    if columns.is_empty() {
        return Value::Object(metric);
    }
    let always = |key: &str| !PORT_COLUMNS.contains(&key) && !FLOW_COLUMNS.contains(&key);
    Value::Object(metric.into_iter().filter(|(key, _)| always(key) || columns.contains(&key.as_str())).collect())
}

fn port_metric(port: &PortView<'_>, [tx, tx_bytes, rx, rx_bytes]: Rates) -> Map<String, Value> {
    let meters = &port.shared.meters;
    let mut metric = Map::new();
    let mut set = |key: &str, value: Value| drop(metric.insert(key.to_owned(), value));
    set("name", json!(port.name));
    set("location", json!(port.location));
    set("link", json!(if port.is_up { "up" } else { "down" }));
    set("capture", json!(if port.captures { "started" } else { "stopped" }));
    set("frames_tx", json!(meters.tx_frames.load(Relaxed)));
    set("frames_rx", json!(meters.rx_frames.load(Relaxed)));
    set("bytes_tx", json!(meters.tx_bytes.load(Relaxed)));
    set("bytes_rx", json!(meters.rx_bytes.load(Relaxed)));
    set("frames_tx_rate", json!(tx));
    set("frames_rx_rate", json!(rx));
    set("bytes_tx_rate", json!(tx_bytes));
    set("bytes_rx_rate", json!(rx_bytes));
    set("transmit", json!(if port.transmits { "started" } else { "stopped" }));
    if let Some(bps) = port.line_bps {
        set("speed", json!(bps / 1_000_000));
    }
    metric
}

/// The requested metrics by tag.
#[derive(Debug)]
struct TagRequest {
    include: bool,
    columns: Vec<&'static str>,
    /// Names of the tags that distinguish rows, with their paths in the request. Empty for all tags.
    names: Vec<(String, String)>,
}

impl Default for TagRequest {
    fn default() -> TagRequest {
        TagRequest { include: true, columns: Vec::new(), names: Vec::new() }
    }
}

fn tag_request(node: &Node<'_>) -> Read<TagRequest> {
    let mut object = node.object()?;
    let include = object.get("include").map_or(Ok(true), |node| node.boolean())?;
    object.only("include_empty_metrics", &json!(false), "only values that were seen have a row")?;
    let columns = words(object.get("metric_names"), &TAGGED_COLUMNS)?;
    let mut names = Vec::new();
    for node in object.items("filters")? {
        let mut filter = node.object()?;
        let name = filter.required("name")?;
        names.push((name.name()?, name.path));
        filter.finish()?;
    }
    object.finish()?;
    Ok(TagRequest { include, columns, names })
}

fn set_figures(metric: &mut Map<String, Value>, flow: &LiveFlow, figures: &Figures) {
    let mut set = |key: &str, value: Value| drop(metric.insert(key.to_owned(), value));
    set("frames_tx", json!(figures.tx_frames));
    set("frames_rx", json!(figures.rx_frames));
    set("bytes_tx", json!(figures.tx_bytes));
    set("bytes_rx", json!(figures.rx_bytes));
    let metrics = flow.planned.flow.metrics;
    if metrics.loss && figures.tx_frames > 0 {
        let lost = figures.tx_frames.saturating_sub(figures.rx_frames);
        set("loss", json!(lost as f64 * 100.0 / figures.tx_frames as f64));
    }
    if let (true, Some(first), Some(last)) = (metrics.timestamps, figures.first_ns, figures.last_ns) {
        set("timestamps", json!({ "first_timestamp_ns": first as f64, "last_timestamp_ns": last as f64 }));
    }
    if let (true, Some((least, most, mean))) = (metrics.latency, figures.latency_ns) {
        set("latency", json!({ "minimum_ns": least as f64, "maximum_ns": most as f64, "average_ns": mean }));
    }
}

fn flow_metric(flow: &LiveFlow, config: &config::Config, rates: Rates, columns: &[&str], tags: &TagRequest) -> Value {
    let planned = &flow.planned;
    let figures = flow.meters.figures();
    let mut metric = Map::new();
    let mut set = |key: &str, value: Value| drop(metric.insert(key.to_owned(), value));
    set("name", json!(planned.flow.name));
    set("port_tx", json!(config.ports[planned.tx].name));
    let rx: Vec<&str> = planned.rx.iter().map(|rx| config.ports[*rx].name.as_str()).collect();
    set("port_rx", json!(rx.join(",")));
    set(
        "transmit",
        json!(match flow.meters.state() {
            Transmission::Stopped => "stopped",
            Transmission::Started => "started",
            Transmission::Paused => "paused",
        }),
    );
    for (direction, frames, bytes) in [("tx", rates[0], rates[1]), ("rx", rates[2], rates[3])] {
        set(&format!("frames_{direction}_rate"), json!(frames));
        set(&format!("{direction}_l1_rate_bps"), json!((bytes + 20.0 * frames) * 8.0));
        set(&format!("{direction}_rate_bytes"), json!(bytes));
        set(&format!("{direction}_rate_bps"), json!(bytes * 8.0));
        set(&format!("{direction}_rate_kbps"), json!(bytes * 8e-3));
        set(&format!("{direction}_rate_mbps"), json!(bytes * 8e-6));
    }
    set_figures(&mut metric, flow, &figures);
    if tags.include && flow.meters.is_tagged() {
        metric.insert("tagged_metrics".to_owned(), Value::Array(tagged_metrics(flow, config, tags)));
    }
    pick(metric, columns)
}

fn tagged_metrics(flow: &LiveFlow, config: &config::Config, request: &TagRequest) -> Vec<Value> {
    let is_wanted = |name: &str| request.names.is_empty() || request.names.iter().any(|(wanted, _)| wanted == name);
    let by_rx = is_wanted(RX_NAME);
    let shown: Vec<bool> = flow.meters.tags().iter().map(|tag| is_wanted(&tag.name)).collect();
    if !by_rx && !shown.contains(&true) {
        return Vec::new();
    }
    // Rows that differ only in tags that were not requested are merged.
    let mut rows: BTreeMap<TagValues, Figures> = BTreeMap::new();
    for ((values, port), figures) in flow.meters.tagged_figures() {
        let values = values.into_iter().zip(&shown).filter(|(_, shown)| **shown).map(|(value, _)| value).collect();
        rows.entry((values, port.filter(|_| by_rx))).or_default().add(&figures);
    }
    let value = |(tag, value): (&Tag, &u128)| {
        let digits = tag.length.div_ceil(4);
        json!({ "name": tag.name, "value": { "choice": "hex", "hex": format!("{value:0digits$x}") } })
    };
    // Sent frames have no port of arrival, so they are not in the same rows as received ones.
    let has_ports = rows.keys().any(|(_, port)| port.is_some());
    let row = |((values, port), figures): (TagValues, Figures)| {
        let tags = flow.meters.tags().iter().zip(&shown).filter(|(_, shown)| **shown).map(|(tag, _)| tag);
        let tags = tags.zip(&values).map(value);
        let name = port.and_then(|of| config.ports.iter().find(|port| port.of == of)).map(|port| &port.name);
        let of_port = name.map(|name| json!({ "name": RX_NAME, "value": { "choice": "str", "str": name } }));
        let mut metric = Map::new();
        metric.insert("tags".to_owned(), tags.chain(of_port).collect());
        set_figures(&mut metric, flow, &figures);
        if has_ports {
            metric.remove("loss");
        }
        pick(metric, &request.columns)
    };
    rows.into_iter().map(row).collect()
}
