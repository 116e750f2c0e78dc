use clap::Subcommand;
use lab::Node;
use std::ffi::OsString;

/// Build a test network of namespaces
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe lab up --clients 3
  netlathe lab run --on client -- ping -c 3 10.77.0.100
  netlathe lab run -- netlathe shape --in c0 --out s0 --rate 50Mbps --duration 10s
  netlathe lab down

A lab is client(s), a box in the middle with the interfaces c0 (to the clients) and s0 (to the
server), and a server. Clients are 10.77.0.1, .2, …; the server is 10.77.0.100. The box forwards nothing
by itself: netlathe does.")]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Build a lab that stays until it is taken down
    #[command(after_help = "\
Examples:
  netlathe lab up
  netlathe lab up wide --clients 3 --mtu 9000

Needs root; without root, netlathe lab run builds one for a command.")]
    Up {
        /// The lab's name [default: $NETLATHE_LAB, else lab]
        name: Option<String>,
        #[command(flatten)]
        shape: Shape,
    },
    /// Take a lab down, including leftovers of a killed process
    #[command(after_help = "\
Examples:
  netlathe lab down
  netlathe lab down wide

Ends programs that still run in it: SIGTERM first, SIGKILL after two seconds.")]
    Down {
        /// The lab's name [default: $NETLATHE_LAB, else lab]
        name: Option<String>,
    },
    /// Run a command in a lab; builds a lab if there is none
    #[command(after_help = "\
Examples:
  netlathe lab run -- netlathe shape --in c0 --out s0 --rate 50Mbps --duration 10s
  netlathe lab run --on client -- ping -c 3 10.77.0.100
  netlathe lab run --clients 2 -- sh experiment.sh

Within the command, netlathe lab run finds the same lab by NETLATHE_LAB. A lab built for the command
is taken down after it. The exit status is the command's.")]
    Run {
        /// The lab's name [default: $NETLATHE_LAB, else lab]
        #[arg(long)]
        name: Option<String>,
        /// Node to run it on: client, client2, …, box, server, switch
        #[arg(long, value_name = "NODE", default_value = "box", value_parser = node)]
        on: Node,
        #[command(flatten)]
        shape: Shape,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// List all labs
    #[command(after_help = "\
Examples:
  netlathe lab list
  netlathe lab list --json")]
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
}

/// What a lab that is built looks like.
#[derive(clap::Args)]
pub(crate) struct Shape {
    /// Number of clients [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) clients: Option<u16>,
    /// Longest packet in bytes, on all links [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Queues of each interface [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) queues: Option<u16>,
}

fn node(text: &str) -> Result<Node, String> {
    text.parse().map_err(|error: lab::Error| error.to_string())
}
