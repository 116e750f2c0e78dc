//! Lists labs. Interfaces and addresses come from the kernel, not from the record.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::record::{self, Record};
use crate::topology::{self, Node};
use crate::{tool, user_namespace};

/// State of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Up, until it is removed.
    Up,
    /// Up while this process lives.
    Held {
        /// The process.
        pid: u32,
    },
    /// Being built, or the build was interrupted.
    Incomplete,
    /// The process that it was built for is gone: it may be removed.
    LeftBehind {
        /// The process that is gone.
        pid: u32,
    },
    /// Namespaces without a record, or an unreadable record: it may be removed.
    Unrecorded,
}

/// A lab, for display.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The name.
    pub name: String,
    /// The state.
    pub state: State,
    /// When it was built, if recorded.
    #[serde(skip)]
    pub since: Option<SystemTime>,
    /// The process that forwards frames between sites; only in a lab of sites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarder: Option<Forwarder>,
    /// Its existing nodes, clients first, server last.
    pub nodes: Vec<NodeSummary>,
}

/// The process that forwards frames between the sites of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Forwarder {
    /// The process.
    pub pid: u32,
    /// Whether it runs. If it has ended, no frame passes.
    pub running: bool,
}

/// A node of a lab, for display.
#[derive(Debug, Clone, Serialize)]
pub struct NodeSummary {
    /// `client1`, `box`, …
    pub node: String,
    /// The site's host name; only in a lab of sites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Name of the namespace, as in `ip netns exec NAMESPACE …`.
    pub namespace: String,
    /// Interfaces without `lo`; empty if the caller lacks the rights to read them.
    pub interfaces: Vec<Interface>,
}

/// An interface of a node, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// The MAC address.
    pub mac: String,
    /// The MTU in bytes (L3).
    pub mtu: u32,
    /// Whether both ends of the link are up.
    pub up: bool,
    /// Addresses with their prefix lengths, `10.77.0.1/24`.
    pub addresses: Vec<String>,
}

/// All labs of this machine (or of this user namespace), by name, including those left by killed processes.
///
/// # Errors
/// A folder that cannot be read, or a failing `ip`. Omits labs that disappear meanwhile.
pub fn list() -> Result<Vec<Summary>> {
    let namespaces = record::namespaces()?;
    let named = namespaces.iter().filter_map(|n| topology::parse_namespace(n)).map(|(lab, _)| lab);
    let names: BTreeSet<String> = record::recorded()?.into_iter().chain(named).collect();
    names.into_iter().map(|name| summary(&name)).collect()
}

fn summary(name: &str) -> Result<Summary> {
    let record = match Record::read(name) {
        Err(Error::Record { .. }) => None,
        other => other?,
    };
    let state = record.as_ref().map_or(State::Unrecorded, Record::state);
    let mut found: Vec<(Node, String)> = record::namespaces_of(name)?
        .into_iter()
        .filter_map(|namespace| Some((topology::parse_namespace(&namespace)?.1, namespace)))
        .collect();
    found.sort_by_key(|(node, _)| *node);
    let mut nodes = Vec::new();
    for (node, namespace) in found {
        // Entering a namespace needs rights; without them the lab is listed without interfaces.
        let looked = if user_namespace::privileged() { interfaces(&namespace)? } else { Some(Vec::new()) };
        let site = record.as_ref().and_then(|r| r.topology.site_of(node)).map(|site| site.host.clone());
        nodes.extend(looked.map(|interfaces| NodeSummary { node: node.to_string(), site, namespace, interfaces }));
    }
    let forwarder = record.as_ref().and_then(Record::forwarder);
    Ok(Summary { name: name.to_owned(), state, since: record.map(|r| r.since()), forwarder, nodes })
}

/// The interfaces in a namespace; `None` if it disappears meanwhile. Removing a lab ends the processes in it, including
/// our `ip`, some time before the namespace disappears. A failure therefore counts only if the namespace still exists
/// later.
fn interfaces(namespace: &str) -> Result<Option<Vec<Interface>>> {
    const PATIENCE: Duration = Duration::from_secs(4);
    let start = Instant::now();
    loop {
        let mut command = tool::command("ip");
        command.args(["-n", namespace, "-json", "address", "show"]);
        match tool::json(command) {
            Ok(value) => {
                let all = value.as_array().into_iter().flatten().filter_map(interface);
                return Ok(Some(all.filter(|interface| interface.name != "lo").collect()));
            }
            Err(_) if !record::namespace_file(namespace).exists() => return Ok(None),
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn interface(value: &Value) -> Option<Interface> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let addresses = value.get("addr_info").and_then(Value::as_array).into_iter().flatten().filter_map(|entry| {
        let address: IpAddr = text(entry, "local")?.parse().ok()?;
        Some(format!("{address}/{}", entry.get("prefixlen")?.as_u64()?))
    });
    Some(Interface {
        name: text(value, "ifname")?,
        mac: text(value, "address").unwrap_or_default(),
        mtu: value.get("mtu")?.as_u64()?.try_into().ok()?,
        up: value.get("flags")?.as_array()?.iter().any(|flag| flag == "LOWER_UP"),
        addresses: addresses.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_output_of_ip() {
        let value = serde_json::json!({
            "ifname": "eth0", "address": "02:77:00:00:00:01", "mtu": 1500, "flags": ["BROADCAST", "UP", "LOWER_UP"],
            "addr_info": [{"family": "inet", "local": "10.77.0.1", "prefixlen": 24},
                          {"family": "inet6", "local": "fd77::1", "prefixlen": 64}, {}],
        });
        let expected = Interface {
            name: "eth0".to_owned(),
            mac: "02:77:00:00:00:01".to_owned(),
            mtu: 1500,
            up: true,
            addresses: vec!["10.77.0.1/24".to_owned(), "fd77::1/64".to_owned()],
        };
        assert_eq!(interface(&value), Some(expected));
    }
}
