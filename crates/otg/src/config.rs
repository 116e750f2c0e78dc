//! A complete configuration: ports, layer 1, devices, captures and flows, with all names resolved.

use crate::capture::{self, CaptureSettings};
use crate::flow::{self, Asked, Ends, FCS, Flow, Rate};
use crate::reader::{Node, Problem, Read};
use packet::MacAddr;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Maximum number of flows in a configuration. Their numbers are in the stamps of frames.
pub(crate) const MOST_FLOWS: usize = 32_768;

/// A port from the command line.
#[derive(Clone, Debug)]
pub(crate) struct Available {
    /// Its name on the command line. Configurations use it as `location`.
    pub(crate) name: String,
    /// The port in netlathe's syntax, such as `if:eth1`.
    pub(crate) text: String,
    /// Its MTU in bytes.
    pub(crate) mtu: u32,
    /// Its line rate in bits per second, if it is known.
    pub(crate) line_bps: Option<u64>,
}

/// A port of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ConfigPort {
    pub(crate) name: String,
    pub(crate) location: String,
    /// Index of the available port.
    pub(crate) of: usize,
    mtu: u32,
    pub(crate) line_bps: Option<u64>,
}

/// A VLAN tag of a device's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTag {
    pub(crate) tpid: u16,
    pub(crate) tci: u16,
}

/// An address of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceAddress {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
    pub(crate) gateway: IpAddr,
    /// The hardware address of the gateway, if it is configured.
    pub(crate) gateway_mac: Option<MacAddr>,
}

/// An Ethernet interface of a device.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// Index of the port in the configuration.
    pub(crate) port: usize,
    pub(crate) mac: MacAddr,
    pub(crate) tags: Vec<DeviceTag>,
    pub(crate) addresses: Vec<DeviceAddress>,
}

/// A flow with its resolved ports.
#[derive(Clone, Debug)]
pub(crate) struct PlannedFlow {
    pub(crate) flow: Flow,
    pub(crate) tx: usize,
    pub(crate) rx: Vec<usize>,
    pub(crate) rate: Rate,
    /// The senders, which send frames in turn. Empty for a flow between ports.
    pub(crate) senders: Vec<Sender>,
}

/// Index of an interface, and optionally of one of its addresses.
pub(crate) type Sender = (usize, Option<usize>);

/// An accepted configuration.
#[derive(Debug, Default)]
pub(crate) struct Config {
    pub(crate) ports: Vec<ConfigPort>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) flows: Vec<PlannedFlow>,
    /// Per port.
    pub(crate) captures: Vec<Option<CaptureSettings>>,
    pub(crate) warnings: Vec<String>,
}

/// Reads a configuration. Collects the errors of all parts.
pub(crate) fn read(node: &Node<'_>, available: &[Available]) -> Result<Config, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut config = Config::default();
    let mut names: HashSet<String> = HashSet::new();
    let mut object = node.object().map_err(|problem| vec![problem])?;
    let mut lists = |key: &'static str| {
        object.items(key).unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        })
    };
    let [ports, layers, captures, devices, flows] = ["ports", "layer1", "captures", "devices", "flows"].map(&mut lists);
    if let Some(node) = object.get("options") {
        collect(options(&node), &mut problems);
    }
    collect(object.finish(), &mut problems);
    let mut is_new = |name: &str, path: &str, problems: &mut Vec<Problem>| {
        if !names.insert(name.to_owned()) {
            problems
                .push(Problem::new(&format!("{path}.name"), format!("'{name}' is the name of something else, too")));
        }
    };

    for node in &ports {
        if let Some(port) = collect(port(node, available), &mut problems) {
            is_new(&port.name, &node.path, &mut problems);
            if let Some(other) = config.ports.iter().find(|other| other.of == port.of) {
                problems.push(Problem::new(
                    &format!("{}.location", node.path),
                    format!("the port '{}' has it already", other.name),
                ));
            }
            config.ports.push(port);
        }
    }
    for node in &layers {
        if let Some(name) = collect(layer1(node, &mut config), &mut problems) {
            is_new(&name, &node.path, &mut problems);
        }
    }
    config.captures = vec![None; config.ports.len()];
    for node in &captures {
        let Some((name, of, settings)) = collect(capture::read(node), &mut problems) else { continue };
        is_new(&name, &node.path, &mut problems);
        for port in of {
            match port_named(&config, &port, &format!("{}.port_names", node.path)) {
                Ok(of) if config.captures[of].is_some() => {
                    problems.push(Problem::new(
                        &format!("{}.port_names", node.path),
                        format!("another capture has '{port}'"),
                    ));
                }
                Ok(of) => config.captures[of] = Some(settings.clone()),
                Err(problem) => problems.push(problem),
            }
        }
    }
    for node in &devices {
        if let Some(device_names) = collect(device(node, &mut config), &mut problems) {
            for name in device_names {
                is_new(&name, &node.path, &mut problems);
            }
        }
    }
    let mut by_name: HashMap<String, (usize, Option<usize>)> = HashMap::new();
    for (n, interface) in config.interfaces.iter().enumerate() {
        by_name.insert(interface.name.clone(), (n, None));
        by_name.extend(interface.addresses.iter().enumerate().map(|(a, address)| (address.name.clone(), (n, Some(a)))));
    }
    if flows.len() > MOST_FLOWS {
        problems.push(Problem::new("flows", format!("{MOST_FLOWS} flows are served at most")));
        return Err(problems);
    }
    let port_numbers: HashMap<String, usize> =
        config.ports.iter().enumerate().map(|(n, port)| (port.name.clone(), n)).collect();
    for node in &flows {
        let planned = flow::read(node).and_then(|flow| resolve(flow, &config, &port_numbers, &by_name));
        if let Some(planned) = collect(planned, &mut problems) {
            is_new(&planned.flow.name, &node.path, &mut problems);
            config.flows.push(planned);
        }
        if problems.len() > 50 {
            break;
        }
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn collect<T>(read: Read<T>, problems: &mut Vec<Problem>) -> Option<T> {
    read.map_err(|problem| problems.push(problem)).ok()
}

fn port_named(config: &Config, name: &str, path: &str) -> Read<usize> {
    let found = config.ports.iter().position(|port| port.name == name);
    found.ok_or_else(|| Problem::new(path, format!("there is no port '{name}'")))
}

fn port(node: &Node<'_>, available: &[Available]) -> Read<ConfigPort> {
    let mut object = node.object()?;
    let name = object.required("name")?.name()?;
    let given = object.get("location");
    let location = given.as_ref().map_or(Ok(name.clone()), |node| node.text().map(str::to_owned))?;
    object.finish()?;
    let is = |port: &Available| {
        port.name == location || port.text == location || port.text.strip_prefix("if:") == Some(&location)
    };
    match available.iter().position(is) {
        Some(of) => Ok(ConfigPort { name, location, of, mtu: available[of].mtu, line_bps: available[of].line_bps }),
        None => {
            let all: Vec<&str> = available.iter().map(|port| port.name.as_str()).collect();
            let path = given.map_or_else(|| node.path.clone(), |given| given.path);
            Err(Problem::new(
                &path,
                format!("'{location}' is not a port of this server: --ports has {}", all.join(", ")),
            ))
        }
    }
}

/// Layer 1. Only the speed has an effect: percentages refer to it if the line rate of the port is unknown.
fn layer1(node: &Node<'_>, config: &mut Config) -> Read<String> {
    const SPEEDS: [(&str, u64); 13] = [
        ("speed_10_fd_mbps", 10),
        ("speed_10_hd_mbps", 10),
        ("speed_100_fd_mbps", 100),
        ("speed_100_hd_mbps", 100),
        ("speed_1_gbps", 1_000),
        ("speed_10_gbps", 10_000),
        ("speed_25_gbps", 25_000),
        ("speed_40_gbps", 40_000),
        ("speed_50_gbps", 50_000),
        ("speed_100_gbps", 100_000),
        ("speed_200_gbps", 200_000),
        ("speed_400_gbps", 400_000),
        ("speed_800_gbps", 800_000),
    ];
    let mut object = node.object()?;
    let name = object.required("name")?.name()?;
    let ports = object.required("port_names")?;
    let mtu = object.get("mtu").map(|node| node.integer(64, 14_000)).transpose()?;
    let speed = object.get("speed").map(|node| node.word(&SPEEDS.map(|(word, _)| word))).transpose()?;
    object.only("promiscuous", &serde_json::Value::Bool(true), "ports receive every frame")?;
    object.finish()?;
    for port in ports.texts()? {
        let of = port_named(config, &port, &ports.path)?;
        let asked =
            speed.and_then(|speed| SPEEDS.iter().find(|(word, _)| *word == speed)).map(|(_, mbps)| mbps * 1_000_000);
        let port = &mut config.ports[of];
        // Clients always send the default of 1500.
        if let Some(mtu) = mtu.filter(|mtu| *mtu != u64::from(port.mtu) && *mtu != 1_500) {
            config.warnings.push(format!(
                "{}.mtu: that of '{}' is {} B, which netlathe does not change to {mtu} B",
                node.path, port.name, port.mtu
            ));
        }
        match (port.line_bps, asked) {
            (Some(real), Some(asked)) if real != asked => config.warnings.push(format!(
                "{}.speed: the link of '{}' has {} Mbps, which netlathe does not change",
                node.path,
                port.name,
                real / 1_000_000
            )),
            (None, Some(asked)) => port.line_bps = Some(asked),
            _ => {}
        }
    }
    Ok(name)
}

fn options(node: &Node<'_>) -> Read<()> {
    let mut object = node.object()?;
    if let Some(node) = object.get("port_options") {
        let mut ports = node.object()?;
        // The ports of this server have no other users, so this has no effect.
        if let Some(node) = ports.get("location_preemption") {
            node.boolean()?;
        }
        ports.finish()?;
    }
    if let Some(node) = object.get("protocol_options") {
        let mut protocols = node.object()?;
        protocols.only("auto_start_all", &serde_json::Value::Bool(true), "devices answer from the configuration on")?;
        protocols.finish()?;
    }
    object.finish()
}

/// Reads a device. Returns all names in it.
fn device(node: &Node<'_>, config: &mut Config) -> Read<Vec<String>> {
    let mut object = node.object()?;
    let mut names = vec![object.required("name")?.name()?];
    let ethernets = object.items("ethernets")?;
    object.finish()?;
    for node in &ethernets {
        let interface = interface(node, config)?;
        names.push(interface.name.clone());
        names.extend(interface.addresses.iter().map(|address| address.name.clone()));
        config.interfaces.push(interface);
    }
    Ok(names)
}

fn interface(node: &Node<'_>, config: &Config) -> Read<Interface> {
    let mut object = node.object()?;
    let name = object.required("name")?.name()?;
    let connection = object.required("connection")?;
    let mut inner = connection.object()?;
    inner.choice(&["port_name"], Some("port_name"))?;
    let port = inner.chosen("port_name")?;
    let port = port_named(config, port.text()?, &port.path)?;
    inner.finish()?;
    let number = config.interfaces.len() as u16;
    let [high, low] = number.to_be_bytes();
    let mac = object.get("mac").map_or(Ok(MacAddr([2, 0x0a, 0, port as u8, high, low])), |node| node.mac())?;
    if mac.0[0] & 1 == 1 || mac.0 == [0; 6] {
        return Err(Problem::new(&object.path_of("mac"), "a station cannot have it"));
    }
    if let Some(node) = object.get("mtu") {
        node.integer(68, 65_535)?;
    }
    let mut tags = Vec::new();
    let mut others = Vec::new();
    for node in object.items("vlans")? {
        const TPIDS: [(&str, u16); 5] =
            [("x8100", 0x8100), ("x88A8", 0x88a8), ("x9100", 0x9100), ("x9200", 0x9200), ("x9300", 0x9300)];
        let mut tag = node.object()?;
        others.push(tag.required("name")?.name()?);
        let word = tag.get("tpid").map_or(Ok("x8100"), |node| node.word(&TPIDS.map(|(word, _)| word)))?;
        let tpid = TPIDS.iter().find(|(one, _)| *one == word).map_or(0x8100, |(_, tpid)| *tpid);
        let priority = tag.get("priority").map_or(Ok(0), |node| node.integer(0, 7))? as u16;
        let id = tag.get("id").map_or(Ok(1), |node| node.integer(0, 4_095))? as u16;
        tag.finish()?;
        tags.push(DeviceTag { tpid, tci: priority << 13 | id });
    }
    if tags.len() > 2 {
        return Err(Problem::new(&object.path_of("vlans"), "two tags are served at most"));
    }
    let mut addresses = Vec::new();
    for node in object.items("ipv4_addresses")? {
        let mut object = node.object()?;
        let [address, gateway] = [object.required("address")?.ipv4()?, object.required("gateway")?.ipv4()?];
        let prefix = object.get("prefix").map_or(Ok(24), |node| node.integer(1, 32))? as u8;
        addresses.push(self::address(&mut object, address.into(), gateway.into(), prefix)?);
        object.finish()?;
    }
    for node in object.items("ipv6_addresses")? {
        let mut object = node.object()?;
        let [address, gateway] = [object.required("address")?.ipv6()?, object.required("gateway")?.ipv6()?];
        let prefix = object.get("prefix").map_or(Ok(64), |node| node.integer(1, 128))? as u8;
        addresses.push(self::address(&mut object, address.into(), gateway.into(), prefix)?);
        object.finish()?;
    }
    object.finish()?;
    Ok(Interface { name, port, mac, tags, addresses })
}

fn address(
    object: &mut crate::reader::Object<'_>,
    address: IpAddr,
    gateway: IpAddr,
    prefix: u8,
) -> Read<DeviceAddress> {
    let name = object.required("name")?.name()?;
    let mut gateway_mac = None;
    if let Some(node) = object.get("gateway_mac") {
        let mut inner = node.object()?;
        let choice = inner.choice(&["auto", "value"], Some("auto"))?;
        let mac = inner.get(choice).map(|node| node.mac()).transpose()?;
        inner.finish()?;
        gateway_mac = mac.filter(|_| choice == "value");
    }
    Ok(DeviceAddress { name, address, prefix, gateway, gateway_mac })
}

/// Resolves the ports of a flow and its rate.
fn resolve(
    flow: Flow,
    config: &Config,
    ports: &HashMap<String, usize>,
    devices: &HashMap<String, (usize, Option<usize>)>,
) -> Read<PlannedFlow> {
    let path = |rest: &str| format!("{}.tx_rx.{rest}", flow.path);
    let port = |name: &str, at: &str| {
        ports.get(name).copied().ok_or_else(|| Problem::new(&path(at), format!("there is no port '{name}'")))
    };
    let device = |name: &str, at: &str| {
        devices
            .get(name)
            .copied()
            .ok_or_else(|| Problem::new(&path(at), format!("no device has an interface or address '{name}'")))
    };
    let (tx, mut rx, senders) = match &flow.ends {
        Ends::Ports { tx, rx } => {
            let tx = port(tx, "port.tx_name")?;
            let rx = rx.iter().map(|name| port(name, "port.rx_names")).collect::<Read<Vec<usize>>>()?;
            let others = || (0..config.ports.len()).filter(|one| *one != tx).collect();
            (tx, if rx.is_empty() { others() } else { rx }, Vec::new())
        }
        Ends::Devices { pairs } => {
            let mut senders =
                pairs.iter().map(|(from, _)| device(from, "device.tx_names")).collect::<Read<Vec<_>>>()?;
            let to = pairs.iter().map(|(_, to)| device(to, "device.rx_names")).collect::<Read<Vec<_>>>()?;
            let rx = to.iter().map(|(interface, _)| config.interfaces[*interface].port).collect();
            let port = |sender: &Sender| config.interfaces[sender.0].port;
            let tx = senders.first().map_or(0, port);
            if let Some(other) = senders.iter().position(|sender| port(sender) != tx) {
                let what = format!(
                    "'{}' is on another port than '{}': write a flow for each port",
                    pairs[other].0, pairs[0].0
                );
                return Err(Problem::new(&path("device.tx_names"), what));
            }
            // With only one distinct sender, there is no need for turns.
            if senders.iter().all(|sender| *sender == senders[0]) {
                senders.truncate(1);
            }
            (tx, rx, senders)
        }
    };
    rx.sort_unstable();
    rx.dedup();
    let longest = config.ports[tx].mtu as usize + flow.maker.link_header() + FCS;
    if flow.sizes.most() as usize > longest {
        let what = format!(
            "frames of {} B are longer than the {longest} B that '{}' sends: its MTU is {} B",
            flow.sizes.most(),
            config.ports[tx].name,
            config.ports[tx].mtu
        );
        return Err(Problem::new(&format!("{}.size", flow.path), what));
    }
    let rate = match (flow.rate, config.ports[tx].line_bps) {
        (Asked::Rate(rate), _) => rate,
        (Asked::Percent(percent), Some(line)) => Rate::Wire(line as f64 * percent / 100.0),
        (Asked::Percent(_), None) => {
            let path = format!("{}.rate.percentage", flow.path);
            let name = &config.ports[tx].name;
            return Err(Problem::new(&path, format!("'{name}' has no line rate: write layer1 with its speed, or pps")));
        }
    };
    Ok(PlannedFlow { flow, tx, rx, rate, senders })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports() -> Vec<Available> {
        ["p1", "p2"]
            .map(|name| Available { name: name.to_owned(), text: format!("if:{name}-eth"), mtu: 1_500, line_bps: None })
            .to_vec()
    }

    fn read_value(value: &Value) -> Result<Config, Vec<String>> {
        read(&Node::root(value), &ports()).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn ports_are_found_by_name_location_and_text() {
        for location in ["p1", "if:p1-eth", "p1-eth"] {
            let config = read_value(&json!({ "ports": [{ "name": "tx", "location": location }] })).expect("accepted");
            assert_eq!(config.ports[0].of, 0);
        }
        let refused = read_value(&json!({ "ports": [{ "name": "tx", "location": "eth7" }] })).expect_err("refused");
        assert_eq!(refused, ["ports[0].location: 'eth7' is not a port of this server: --ports has p1, p2"]);
    }

    #[test]
    fn problems_of_all_parts_are_reported_together() {
        let refused = read_value(&json!({
            "ports": [{ "name": "p1" }, { "name": "p1", "location": "p2" }],
            "lags": [],
            "devices": [{ "name": "d", "bgp": {} }],
            "flows": [{ "name": "f", "tx_rx": { "port": { "tx_name": "nine" } } }],
        }))
        .expect_err("refused");
        for part in
            ["lags:", "ports[1].name:", "devices[0].bgp:", "flows[0].tx_rx.port.tx_name: there is no port 'nine'"]
        {
            assert!(refused.iter().any(|problem| problem.starts_with(part)), "{part} in {refused:?}");
        }
    }

    #[test]
    fn percentages_need_a_line_rate() {
        let with = |layer1: Value| {
            json!({
                "ports": [{ "name": "p1" }], "layer1": layer1,
                "flows": [{ "name": "f", "tx_rx": { "port": { "tx_name": "p1" } }, "rate": { "percentage": 50 } }],
            })
        };
        assert!(
            read_value(&with(json!([]))).expect_err("refused")[0]
                .starts_with("flows[0].rate.percentage: 'p1' has no line rate")
        );
        let config = read_value(&with(json!([{ "name": "l", "port_names": ["p1"], "speed": "speed_1_gbps" }])))
            .expect("accepted");
        assert_eq!(config.flows[0].rate, Rate::Wire(5e8));
    }

    #[test]
    fn devices_give_flows_their_ports_and_addresses() {
        let config = read_value(&json!({
            "ports": [{ "name": "p1" }, { "name": "p2" }],
            "devices": [
                { "name": "a", "ethernets": [{ "name": "ae", "connection": { "port_name": "p1" }, "mac": "00:00:01:01:01:01",
                    "ipv4_addresses": [{ "name": "ai", "address": "1.1.1.1", "gateway": "1.1.1.2" }] }] },
                { "name": "b", "ethernets": [{ "name": "be", "connection": { "choice": "port_name", "port_name": "p2" },
                    "ipv6_addresses": [{ "name": "bi", "address": "fd00::2", "gateway": "fd00::1", "prefix": 48 }] }] },
            ],
            "flows": [{ "name": "f", "tx_rx": { "device": { "tx_names": ["ai"], "rx_names": ["bi"] } } }],
        }))
        .expect("accepted");
        let flow = &config.flows[0];
        assert_eq!((flow.tx, flow.rx.as_slice(), flow.senders.as_slice()), (0, &[1][..], &[(0, Some(0))][..]));
        assert!(flow.flow.maker.wants_next_hop());
        assert_eq!(config.interfaces[1].addresses[0].prefix, 48);
        assert_ne!(config.interfaces[1].mac.0, [0; 6]);
    }
}
