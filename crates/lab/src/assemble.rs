//! Builds and removes labs.

use std::ffi::OsStr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::record::{self, Owner, Record};
use crate::topology::{self, Node, Topology};
use crate::{hosts_file, offload, processes, tool, user_namespace};

/// The box's interface towards the clients.
const CLIENT_SIDE: &str = "c0";
/// The box's interface towards the server.
const SERVER_SIDE: &str = "s0";
/// The interface of a client and of the server.
const HOST_SIDE: &str = "eth0";
/// The switch's bridge, and its port towards the box.
const BRIDGE: &str = "br0";
const UPLINK: &str = "up0";
/// Time without new namespaces after which a lab counts as removed.
const SETTLED: Duration = Duration::from_secs(1);
/// Limit on the time until links are up.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// A lab that is up. Dropping this value leaves the lab up; see [`Guard`] for the alternative.
#[derive(Debug, Clone)]
pub struct Lab {
    record: Record,
}

/// What [`down`] removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// The namespaces removed.
    pub namespaces: Vec<String>,
    /// The processes that were ended in them: PID and name.
    pub processes: Vec<(u32, String)>,
}

/// Builds a lab that stays until [`down`]. If a step fails, removes what was built.
///
/// # Errors
/// A topology out of bounds, a missing tool, missing rights, an existing lab of that name ([`Error::Exists`],
/// [`Error::LeftBehind`], …), or the command that failed.
pub fn up(topology: &Topology) -> Result<Lab> {
    Lab::build(topology, None)
}

/// Removes a lab by name: ends the programs left in it (SIGTERM, after two seconds SIGKILL; never the caller or its
/// ancestors), and removes its namespaces and its record. Works on half-built labs, on labs whose process was killed,
/// and on namespaces without a record.
///
/// # Errors
/// [`Error::NotUp`] if nothing of that name exists; otherwise the first error, after everything else was tried.
pub fn down(name: &str) -> Result<Ended> {
    topology::check_name(name)?;
    // Checks both: a record may lack namespaces (killed early), and namespaces may lack a record (lost).
    let namespaces = record::namespaces_of(name)?;
    if namespaces.is_empty() {
        hosts_file::remove(name)?;
        return if Record::remove(name)? { Ok(Ended::default()) } else { Err(Error::NotUp(name.to_owned())) };
    }
    let mut processes = processes::end_processes_in(&namespaces);
    // The forwarder is part of the lab. An unreadable record does not keep a lab from being removed.
    let forwarder = Record::read(name).ok().flatten().and_then(|record| record.forwarder());
    processes.retain(|(pid, _)| forwarder.is_none_or(|forwarder| forwarder.pid != *pid));
    hosts_file::remove(name)?;
    let mut first_failure = None;
    for namespace in &namespaces {
        if let Err(error) = tool::batch("ip", None, &[format!("netns del {namespace}")])
            && record::namespace_file(namespace).exists()
        {
            first_failure.get_or_insert(error);
        }
    }
    match first_failure {
        // Keeps the record, so that the next attempt finds the rest.
        Some(error) => Err(error),
        None => {
            Record::remove(name)?;
            Ok(Ended { namespaces, processes })
        }
    }
}

/// Removes the lab of that name, as [`down`] does, if it belongs to the process `owner`, which has ended. Returns
/// whether the lab belonged to it. An `ip` that `owner` started may still be creating namespaces, so this repeats until
/// none has appeared for [`SETTLED`].
///
/// # Errors
/// As [`down`], if the lab cannot be removed within [`LINK_PATIENCE`].
pub fn down_of(name: &str, owner: u32) -> Result<bool> {
    topology::check_name(name)?;
    let is_owned = |record: &Record| record.owner.as_ref().is_some_and(|of| of.pid == owner);
    if !Record::read(name)?.as_ref().is_some_and(is_owned) {
        return Ok(false);
    }
    let start = Instant::now();
    let mut gone_since = None;
    loop {
        // Another process may have taken the name meanwhile.
        if Record::read(name)?.is_some_and(|record| !is_owned(&record)) {
            return Ok(true);
        }
        match down(name) {
            Err(Error::NotUp(_)) if gone_since.is_some_and(|since: Instant| since.elapsed() > SETTLED) => {
                return Ok(true);
            }
            Err(Error::NotUp(_)) => {
                gone_since.get_or_insert_with(Instant::now);
            }
            Ok(_) => gone_since = None,
            Err(error) if start.elapsed() > LINK_PATIENCE => return Err(error),
            Err(_) => {}
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Lab {
    fn build(topology: &Topology, owner: Option<Owner>) -> Result<Lab> {
        topology.check()?;
        tool::check_all()?;
        if !user_namespace::privileged() {
            return Err(Error::Unprivileged);
        }
        let record = Record::claim(topology, owner)?;
        let mut lab = Lab { record };
        match assemble(topology).and_then(|()| lab.record.completed()) {
            Ok(()) => Ok(lab),
            Err(error) => {
                // Reports the first failure; `lab down` finds what is left.
                let _also_failed = down(&topology.name);
                Err(error)
            }
        }
    }

    /// The lab of that name, if it is up and complete.
    ///
    /// # Errors
    /// [`Error::NotUp`], or why the existing lab cannot be used.
    pub fn find(name: &str) -> Result<Lab> {
        topology::check_name(name)?;
        let Some(record) = Record::read(name)? else {
            let unrecorded = !record::namespaces_of(name)?.is_empty();
            return Err(if unrecorded { Error::Unrecorded(name.to_owned()) } else { Error::NotUp(name.to_owned()) });
        };
        record.usable()?;
        Ok(Lab { record })
    }

    /// Removes this lab.
    ///
    /// # Errors
    /// As [`down`].
    pub fn down(self) -> Result<Ended> {
        down(self.name())
    }

    /// The requested topology.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.record.topology
    }

    /// Records the process that forwards frames between the sites, so that [`crate::list`] shows whether it still runs.
    ///
    /// # Errors
    /// The process has ended, or the record cannot be written.
    pub fn forwarded_by(&mut self, pid: u32) -> Result<()> {
        let owner = Owner::of(pid).ok_or(Error::NoForwarder(self.name().to_owned()))?;
        self.record.forwarder = Some(owner);
        self.record.write()
    }

    /// The file into which the forwarder writes its counters. It is removed with the lab.
    #[must_use]
    pub fn counters_file(&self) -> PathBuf {
        record::counters_path(self.name())
    }

    /// Whether the process that forwards frames between the sites runs.
    #[must_use]
    pub fn is_forwarded(&self) -> bool {
        self.record.forwarder().is_some_and(|forwarder| forwarder.running)
    }

    /// The lab's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.record.topology.name
    }

    /// The process whose end ends the lab. `None` for a lab that stays.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.record.owner.as_ref().map(|owner| owner.pid)
    }

    /// A command that will run `program` in a node, with [`Lab::environment`] set. It becomes the program without a
    /// process in between, so its PID, signals and exit status are the program's.
    ///
    /// # Errors
    /// [`Error::NoSuchNode`], or [`Error::NoProgram`] if there is no such program. `ip netns exec` would report that as
    /// well, but with an exit status that could be the program's own.
    pub fn command(&self, node: Node, program: impl AsRef<OsStr>) -> Result<Command> {
        let program = program.as_ref();
        let topology = self.topology();
        if !topology.nodes().contains(&node) {
            let has: Vec<String> = topology.nodes().iter().map(Node::to_string).collect();
            return Err(Error::NoSuchNode { lab: self.name().to_owned(), node: node.to_string(), has: has.join(", ") });
        }
        let shown = program.to_string_lossy();
        let path = tool::which(&shown).ok_or_else(|| Error::NoProgram(shown.into_owned()))?;
        let ip = tool::which("ip").ok_or(Error::MissingTool { program: "ip", package: "iproute2" })?;
        let mut command = Command::new(ip);
        command.args(["netns", "exec", &topology.namespace(node)]).arg(path);
        command.envs(self.environment(node));
        Ok(command)
    }

    /// The environment of programs in the lab: `NETLATHE_LAB` and `NETLATHE_NODE`; the addresses `NETLATHE_CLIENT`,
    /// `NETLATHE_CLIENT2`, …, `NETLATHE_SERVER`, each also with `_V6` and `_MAC`; and the box's interfaces
    /// `NETLATHE_CLIENT_IF` and `NETLATHE_SERVER_IF`. In a lab of sites `NETLATHE_SITE` and `NETLATHE_ADDRESS` are the
    /// node's own name and address; the others have host names.
    #[must_use]
    pub fn environment(&self, node: Node) -> Vec<(String, String)> {
        let topology = self.topology();
        let mut all =
            vec![("NETLATHE_LAB".to_owned(), self.name().to_owned()), ("NETLATHE_NODE".to_owned(), node.to_string())];
        if topology.has_sites() {
            all.extend(topology.site_of(node).map(|site| ("NETLATHE_SITE".to_owned(), site.host.clone())));
            all.extend(topology.ipv4(node).map(|address| ("NETLATHE_ADDRESS".to_owned(), address.to_string())));
            return all;
        }
        all.push(("NETLATHE_CLIENT_IF".to_owned(), CLIENT_SIDE.to_owned()));
        all.push(("NETLATHE_SERVER_IF".to_owned(), SERVER_SIDE.to_owned()));
        for host in topology.hosts() {
            let stem = match host {
                Node::Client(1) => "NETLATHE_CLIENT".to_owned(),
                other => format!("NETLATHE_{}", other.to_string().to_uppercase()),
            };
            all.extend(topology.ipv4(host).map(|address| (stem.clone(), address.to_string())));
            all.extend(topology.ipv6(host).map(|address| (format!("{stem}_V6"), address.to_string())));
            all.extend(topology.mac(host).map(|address| (format!("{stem}_MAC"), address)));
        }
        all
    }
}

/// A lab that is removed when this value is dropped. If the process is killed before that, `lab list` shows the lab as
/// left behind.
#[derive(Debug)]
pub struct Guard {
    lab: Option<Lab>,
}

impl Guard {
    /// Builds a lab for as long as the guard lives.
    ///
    /// # Errors
    /// As [`up`].
    pub fn up(topology: &Topology) -> Result<Guard> {
        Ok(Guard { lab: Some(Lab::build(topology, Some(Owner::this()?))?) })
    }

    /// Removes the lab and returns the outcome, which a drop cannot do. Succeeds if the lab is already gone.
    ///
    /// # Errors
    /// As [`down`].
    pub fn down(mut self) -> Result<Ended> {
        let lab = self.lab.take().expect("only `down` and `drop` take it");
        match lab.down() {
            Err(Error::NotUp(_)) => Ok(Ended::default()),
            other => other,
        }
    }
}

impl Deref for Guard {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        self.lab.as_ref().expect("only `down` and `drop` take it")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(lab) = self.lab.take() {
            // A drop cannot report errors; `lab list` and `lab down` find what is left.
            let _unreported = lab.down();
        }
    }
}

/// Creates the namespaces, the veth pairs between them and the settings of their ends.
fn assemble(topology: &Topology) -> Result<()> {
    let namespaces: Vec<(Node, String)> = topology.nodes().into_iter().map(|n| (n, topology.namespace(n))).collect();
    let add: Vec<String> = namespaces.iter().map(|(_, name)| format!("netns add {name}")).collect();
    tool::batch("ip", None, &add)?;
    // Before interfaces exist, because they take the namespace's defaults when they are created.
    for (node, namespace) in &namespaces {
        set_kernel(*node, namespace)?;
    }
    wire(topology)?;
    for (node, namespace) in &namespaces {
        for interface in interfaces(topology, *node) {
            offload::turn_off(namespace, &interface)?;
        }
    }
    // Links come up last, so no frame passes before offloads are off.
    for (node, namespace) in &namespaces {
        let mut lines = vec!["link set dev lo up".to_owned()];
        lines.extend(interfaces(topology, *node).iter().map(|interface| format!("link set dev {interface} up")));
        if *node == Node::Switch {
            lines.push(format!("link set dev {BRIDGE} up"));
        }
        tool::batch("ip", Some(namespace), &lines)?;
    }
    for host in topology.hosts() {
        tool::batch("ip", Some(&topology.namespace(host)), &address(topology, host))?;
    }
    if topology.has_switch() {
        // Static entries, because learning would flood the first frame for each client to all of them.
        let mut lines: Vec<String> = (1..=topology.clients)
            .filter_map(|n| Some((n, topology.mac(Node::Client(n))?)))
            .map(|(n, mac)| format!("fdb replace {mac} dev p{n} master static"))
            .collect();
        lines.extend(topology.mac(Node::Server).map(|mac| format!("fdb replace {mac} dev {UPLINK} master static")));
        tool::batch("bridge", Some(&topology.namespace(Node::Switch)), &lines)?;
    }
    hosts_file::write(topology)?;
    namespaces.iter().try_for_each(|(_, namespace)| await_links(namespace))
}

/// Waits until every interface of a namespace carries frames. The kernel notices a link up to a second late and drops
/// frames until then, so the first frames of a run would be lost.
fn await_links(namespace: &str) -> Result<()> {
    let start = Instant::now();
    loop {
        let mut command = tool::command("ip");
        command.args(["-n", namespace, "-details", "-json", "link", "show"]);
        let shown = tool::line_of(&command);
        let waiting: Vec<String> =
            tool::json(command)?.as_array().into_iter().flatten().filter_map(not_ready).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if start.elapsed() > LINK_PATIENCE {
            return Err(Error::Tool {
                command: shown,
                detail: format!("{} did not come up within {LINK_PATIENCE:?}", waiting.join(", ")),
                remedy: "the machine may be overloaded: try again",
            });
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The name of an interface that does not carry frames yet.
fn not_ready(link: &Value) -> Option<String> {
    let name = link.get("ifname")?.as_str()?;
    let up = link.get("operstate").is_some_and(|state| state == "UP");
    // A bridge port has an additional state.
    let forwards = link.pointer("/linkinfo/info_slave_data/state").is_none_or(|state| state == "forwarding");
    (name != "lo" && !(up && forwards)).then(|| name.to_owned())
}

/// The veth ends in a node.
pub(crate) fn interfaces(topology: &Topology, node: Node) -> Vec<String> {
    match node {
        Node::Client(_) | Node::Server | Node::Site(_) => vec![HOST_SIDE.to_owned()],
        Node::Box if topology.has_sites() => (1..=topology.sites.len()).map(|n| format!("p{n}")).collect(),
        Node::Box => vec![CLIENT_SIDE.to_owned(), SERVER_SIDE.to_owned()],
        Node::Switch => (1..=topology.clients).map(|n| format!("p{n}")).chain([UPLINK.to_owned()]).collect(),
    }
}

/// Sets kernel parameters of a namespace. Skips those that do not exist, such as the IPv6 settings on a kernel without
/// IPv6.
fn set_kernel(node: Node, namespace: &str) -> Result<()> {
    let settings: &[(&str, &str)] = match node {
        Node::Box | Node::Switch => &[
            // New namespaces may inherit the machine's setting, and machines with containers forward.
            ("ipv4/ip_forward", "0"),
            ("ipv6/conf/all/disable_ipv6", "1"),
            ("ipv6/conf/default/disable_ipv6", "1"),
            // Prevents automatic addresses if IPv6 is turned on again.
            ("ipv6/conf/default/addr_gen_mode", "1"),
        ],
        Node::Client(_) | Node::Server | Node::Site(_) => &[
            ("ipv4/ip_forward", "0"),
            ("ipv6/conf/all/forwarding", "0"),
            // No link-local address, router solicitation or duplicate address detection, so that an idle lab is silent.
            ("ipv6/conf/default/addr_gen_mode", "1"),
            ("ipv6/conf/default/accept_ra", "0"),
            ("ipv6/conf/default/router_solicitations", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
            // TCP metrics saved from earlier runs would make runs differ.
            ("ipv4/tcp_no_metrics_save", "1"),
            // Lets any user of the lab `ping`, even if only group 0 exists.
            ("ipv4/ping_group_range", "0 0"),
        ],
    };
    let script: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("f=/proc/sys/net/{name}; [ ! -e $f ] || echo {value} > $f"))
        .collect();
    let mut command = tool::command("ip");
    command.args(["netns", "exec", namespace, "sh", "-ec", &script.join("\n")]);
    tool::output(command).map(drop)
}

/// Creates the veth pairs directly in their namespaces; nothing appears in the caller's namespace.
fn wire(topology: &Topology) -> Result<()> {
    let (mtu, queues) = (topology.mtu, topology.queues);
    let settings = format!("mtu {mtu} numtxqueues {queues} numrxqueues {queues}");
    let pair = |near: &str, near_mac: Option<String>, far: &str, far_node: Node| {
        let mac = near_mac.map_or_else(String::new, |mac| format!("address {mac} "));
        let far_namespace = topology.namespace(far_node);
        format!("link add name {near} {mac}{settings} type veth peer name {far} {settings} netns {far_namespace}")
    };
    if topology.has_sites() {
        for (host, far) in topology.hosts().into_iter().zip(interfaces(topology, Node::Box)) {
            let line = pair(HOST_SIDE, topology.mac(host), &far, Node::Box);
            tool::batch("ip", Some(&topology.namespace(host)), &[line])?;
        }
        return quieten_box(topology);
    }
    let middle = if topology.has_switch() { Node::Switch } else { Node::Box };
    for n in 1..=topology.clients {
        let client = Node::Client(n);
        let far = if topology.has_switch() { format!("p{n}") } else { CLIENT_SIDE.to_owned() };
        let line = pair(HOST_SIDE, topology.mac(client), &far, middle);
        tool::batch("ip", Some(&topology.namespace(client)), &[line])?;
    }
    let line = pair(HOST_SIDE, topology.mac(Node::Server), SERVER_SIDE, Node::Box);
    tool::batch("ip", Some(&topology.namespace(Node::Server)), &[line])?;
    if topology.has_switch() {
        // Without spanning tree and multicast snooping, the bridge sends nothing of its own.
        let mut lines = vec![
            pair(UPLINK, None, CLIENT_SIDE, Node::Box),
            format!("link add name {BRIDGE} mtu {mtu} type bridge stp_state 0 mcast_snooping 0 forward_delay 0"),
        ];
        lines.extend(interfaces(topology, middle).iter().map(|port| format!("link set dev {port} master {BRIDGE}")));
        tool::batch("ip", Some(&topology.namespace(middle)), &lines)?;
    }
    quieten_box(topology)
}

/// The box's interfaces only carry frames.
fn quieten_box(topology: &Topology) -> Result<()> {
    let quiet: Vec<String> = interfaces(topology, Node::Box)
        .iter()
        .map(|side| format!("link set dev {side} arp off promisc on multicast off"))
        .collect();
    tool::batch("ip", Some(&topology.namespace(Node::Box)), &quiet)
}

/// Addresses of a host, and permanent neighbour entries for all other hosts.
fn address(topology: &Topology, host: Node) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(topology.ipv4(host).map(|a| format!("addr add {a}/24 dev {HOST_SIDE}")));
    lines.extend(topology.ipv6(host).map(|a| format!("addr add {a}/64 dev {HOST_SIDE} nodad")));
    for other in topology.hosts().into_iter().filter(|other| *other != host) {
        let Some(mac) = topology.mac(other) else { continue };
        let neighbour = |address: String| format!("neigh replace {address} lladdr {mac} dev {HOST_SIDE} nud permanent");
        lines.extend(topology.ipv4(other).map(|a| neighbour(a.to_string())));
        lines.extend(topology.ipv6(other).map(|a| neighbour(a.to_string())));
    }
    lines
}
