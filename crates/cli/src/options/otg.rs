use scenario::{Driver, PortSpec};
use service::Address;

/// Serve the Open Traffic Generator API, so that snappi scripts run on these ports
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe otg --ports p1=eth1,p2=eth2
  netlathe otg --ports p1=eth1,p2=pci:0000:03:00.1
  netlathe otg --ports p1=dpdk:net_memif0,role=server --ports p2=tap:lathe0
  netlathe otg --listen 127.0.0.1:8080 --ports 'localhost:5555=eth1,localhost:5556=eth2'
  netlathe otg --listen unix:/run/otg.sock --ports eth1,eth2

In a script: api = snappi.api(location=\"http://127.0.0.1:8080\"), and ports.add(name=\"tx\", location=\"p1\").
What the model has and netlathe does not serve is refused with its path. docs/guide/snappi.md has the table.")]
pub(crate) struct Otg {
    /// Address of the HTTP server: HOST:PORT, :PORT for this machine only, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Address,
    /// Ports, each with the name that configurations use as location: an interface, pci:, dpdk:, tap: or null. Without a
    /// name, the port is the name. May be repeated; the options of a dpdk: port reach to the next NAME=KIND:
    #[arg(long, value_name = "[NAME=]PORT,...", required = true, value_parser = ports)]
    ports: Vec<PortList>,
    /// Use interfaces that carry this host's own traffic, and disturb that traffic
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print a line when requests are served
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Otg {
    /// Returns the ports of every `--ports`.
    pub(crate) fn ports(&self) -> Vec<NamedPort> {
        self.ports.iter().flat_map(|list| list.0.iter().cloned()).collect()
    }
}

/// The ports of one `--ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortList(Vec<NamedPort>);

/// A port and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    pub(crate) port: PortSpec,
}

fn ports(text: &str) -> Result<PortList, String> {
    let mut texts: Vec<String> = Vec::new();
    for part in text.split(',') {
        match texts.last_mut() {
            Some(before) if is_option(before, part) => {
                before.push(',');
                before.push_str(part);
            }
            _ => texts.push(part.to_owned()),
        }
    }
    texts.iter().map(|text| port(text)).collect::<Result<_, _>>().map(PortList)
}

/// Splits a part of `--ports` into its name, if it has one, and its port.
fn split_name(text: &str) -> (Option<&str>, &str) {
    // Names and ports may contain colons: scripts for other traffic generators use addresses as names. Only the text
    // before the first comma is searched for `=`, because options may contain it too.
    let before_options = text.split(',').next().unwrap_or(text);
    match before_options.split_once('=') {
        Some((name, _)) => (Some(name), &text[name.len() + 1..]),
        None => (None, text),
    }
}

fn has_kind(port: &str) -> bool {
    port.split_once(':').is_some_and(|(kind, _)| PortSpec::KINDS.iter().any(|known| known.name == kind))
}

/// Whether `part` is an option of the port before it, not the next port.
fn is_option(before: &str, part: &str) -> bool {
    let (_, port) = split_name(before);
    // DPDK devices may have options of any name.
    if port.starts_with("dpdk:") {
        return !has_kind(split_name(part).1);
    }
    part.split_once('=').is_some_and(|(key, _)| match port.split_once(':') {
        Some(("if", _)) => ["driver", "queues"].contains(&key),
        Some(("pci", _)) => key == "mtu",
        _ => false,
    })
}

fn port(text: &str) -> Result<NamedPort, String> {
    let (name, port) = split_name(text);
    if name == Some("") {
        return Err(format!("'{text}' has no name: write NAME=PORT"));
    }
    let port = PortSpec::parse(port).map_err(|error| error.to_string())?;
    let refused = |why: &str| Err(format!("'{port}' cannot be a port of otg: {why}"));
    match &port {
        PortSpec::Pcap(_) | PortSpec::Wire(_) | PortSpec::Line(_) => {
            return refused("write an interface, pci:, dpdk:, tap: or null, such as p1=eth1");
        }
        PortSpec::Interface { driver: None | Some(Driver::AfPacket), queues: Some(_), .. } => {
            return refused("packet sockets have one queue here: write it without queues, or with driver=af_xdp");
        }
        PortSpec::Interface { .. } | PortSpec::Pci { .. } | PortSpec::Dpdk(_) | PortSpec::Tap(_) | PortSpec::Null => {}
    }
    let own = || port.interface().map_or_else(|| port.to_string(), str::to_owned);
    Ok(NamedPort { name: name.map_or_else(own, str::to_owned), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<(String, String)> {
        let list = ports(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        list.0.into_iter().map(|one| (one.name, one.port.to_string())).collect()
    }

    #[test]
    fn ports_have_names() {
        for (text, wanted) in [
            ("p1=eth1,p2=eth2", vec![("p1", "if:eth1"), ("p2", "if:eth2")]),
            ("localhost:5555=if:eth1", vec![("localhost:5555", "if:eth1")]),
            ("eth1,tap:t0,null", vec![("eth1", "if:eth1"), ("tap:t0", "tap:t0"), ("null", "null")]),
            (
                "a=if:eth1,driver=af_xdp,queues=2,b=pci:0000:03:00.1,mtu=9000,c=eth2",
                vec![("a", "if:eth1,driver=af_xdp,queues=2"), ("b", "pci:0000:03:00.1,mtu=9000"), ("c", "if:eth2")],
            ),
            (
                "a=dpdk:net_memif0,role=server,id=1,b=dpdk:net_memif1,role=client,c=tap:t0",
                vec![("a", "dpdk:net_memif0,role=server,id=1"), ("b", "dpdk:net_memif1,role=client"), ("c", "tap:t0")],
            ),
            ("dpdk:net_memif0,role=server", vec![("dpdk:net_memif0,role=server", "dpdk:net_memif0,role=server")]),
        ] {
            let wanted: Vec<_> = wanted.into_iter().map(|(name, port)| (name.to_owned(), port.to_owned())).collect();
            assert_eq!(named(text), wanted, "{text}");
        }
    }

    #[test]
    fn other_ports_are_refused() {
        for text in ["=eth1", "p1=pcap:a.pcap", "p1=wire:10G", "p1=line:10G", "p1=", "p1=a_very_long_interface"] {
            assert!(ports(text).is_err_and(|error| error.contains("write")), "{text}");
        }
        assert!(ports("p1=if:eth1,queues=2").is_err_and(|error| error.contains("without queues")));
    }
}
