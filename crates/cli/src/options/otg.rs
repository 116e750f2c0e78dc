use service::Address;

/// Serve the Open Traffic Generator API, so that snappi scripts run on these ports
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe otg --ports p1=eth1,p2=eth2
  netlathe otg --listen 127.0.0.1:8080 --ports 'localhost:5555=eth1,localhost:5556=eth2'
  netlathe otg --listen unix:/run/otg.sock --ports eth1,eth2

In a script: api = snappi.api(location=\"http://127.0.0.1:8080\"), and ports.add(name=\"tx\", location=\"p1\").
What the model has and netlathe does not serve is refused with its path. docs/guide/snappi.md has the table.")]
pub(crate) struct Otg {
    /// Address of the HTTP server: HOST:PORT, :PORT for this machine alone, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub(crate) listen: Address,
    /// Ports by the names that configurations have as location. Without a name, the interface is the name
    #[arg(long, value_name = "[NAME=]PORT,...", required = true, value_delimiter = ',', value_parser = port)]
    pub(crate) ports: Vec<NamedPort>,
    /// Use interfaces that carry this host's own traffic, and disturb that traffic
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Print a line when requests are served
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// A port and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    /// The Linux interface.
    pub(crate) interface: String,
}

fn port(text: &str) -> Result<NamedPort, String> {
    // Names may contain colons, like addresses of other traffic generators. Ports without options contain no equals
    // sign.
    let (name, port) = text.split_once('=').map_or((None, text), |(name, port)| (Some(name), port));
    if name == Some("") {
        return Err(format!("'{text}' has no name: write NAME=PORT"));
    }
    match scenario::PortSpec::parse(port).map_err(|error| error.to_string())? {
        scenario::PortSpec::Interface { name: interface, driver: None, queues: None } => {
            Ok(NamedPort { name: name.unwrap_or(&interface).to_owned(), interface })
        }
        other => Err(format!("'{other}' cannot be a port of otg: write a Linux interface, such as p1=eth1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_names() {
        let named = |name: &str, interface: &str| Ok(NamedPort { name: name.into(), interface: interface.into() });
        assert_eq!(port("p1=eth1"), named("p1", "eth1"));
        assert_eq!(port("localhost:5555=if:eth1"), named("localhost:5555", "eth1"));
        assert_eq!(port("eth1"), named("eth1", "eth1"));
        for text in ["=eth1", "p1=pcap:a.pcap", "p1=pci:0000:03:00.1", "p1=", "p1=a_very_long_interface"] {
            assert!(port(text).is_err_and(|error| error.contains("write")), "{text}");
        }
    }
}
