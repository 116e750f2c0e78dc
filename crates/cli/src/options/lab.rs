use clap::Subcommand;
use lab::Node;
use std::ffi::OsString;
use std::path::PathBuf;
use units::Span;

/// Build a test network of namespaces
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe lab up --clients 3
  netlathe lab run --on client -- ping -c 3 10.77.0.100
  netlathe lab run -- netlathe shape --in c0 --out s0 --rate 50Mbps --duration 10s
  netlathe lab down
  netlathe lab up world --matrix scenarios/sites-ibm-2024.csv --check
  netlathe lab down world

A lab is client(s), a box in the middle with the interfaces c0 (to the clients) and s0 (to the
server), and a server. Clients are 10.77.0.1, .2, …; the server is 10.77.0.100. The box forwards nothing
by itself: netlathe does. A lab of sites (lab up --matrix) is one namespace for each site of a table of round
trips, and forwards by itself.")]
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
  netlathe lab up slow --matrix scenarios/sites-aws-2017.csv --loss 0.1% --rate 50Mbps
  netlathe lab up world --matrix scenarios/sites-ibm-2024.csv --each 'iperf3 -s' --check

A matrix is CSV: site names in the first line and the first column, a round trip in each cell (12.5ms, or bare
numbers with the unit in the corner cell: 'rtt ms'). A frame takes half of it each way. Corner 'one-way ms': each
cell is the delay of its direction. Loss and rate are one value, or a table with the same sites.
Sites are 10.77.1.1, .2, … and have their names as host names.

Needs root; without root, netlathe lab run builds one for a command.")]
    Up {
        /// The lab's name [default: $NETLATHE_LAB, else lab]
        name: Option<String>,
        #[command(flatten)]
        shape: Shape,
        #[command(flatten)]
        sites: SiteOptions,
    },
    /// Run a command at a site, or in another node of a lab that is up
    #[command(after_help = "\
Examples:
  netlathe lab exec world tokyo -- ping -c 3 london
  netlathe lab exec world london -- iperf3 -c tokyo -t 2

SITE is a site's name in the matrix, its host name (lower case, dashes), or site1, site2, …; in other labs a node.
The exit status is the command's.")]
    Exec {
        /// The lab's name
        name: String,
        /// The site or node to run it at
        site: String,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Ping all pairs of sites; compare the round trips with the matrix
    #[command(after_help = "\
Examples:
  netlathe lab check world
  netlathe lab check world --pings 21 --json

Sends ICMP echo requests from each site to each other one, one request per millisecond. The figure of a pair is the
median of its round trips. Exit status 1 if that of any pair is off by more than the tolerance.")]
    Check {
        /// The lab's name [default: $NETLATHE_LAB, else lab]
        name: Option<String>,
        #[command(flatten)]
        pings: PingOptions,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Forward frames between the sites of a lab, as its own process
    #[command(hide = true)]
    Forward {
        /// The lab's name
        name: String,
    },
    /// Take a lab down, including leftovers of a killed process
    #[command(after_help = "\
Examples:
  netlathe lab down
  netlathe lab down wide
  netlathe lab down world
  netlathe lab down slow

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

/// The shape of a lab to build.
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

/// A lab of sites.
#[derive(clap::Args)]
pub(crate) struct SiteOptions {
    /// Build a lab of sites with these round trips
    #[arg(long, value_name = "FILE", conflicts_with_all = ["clients", "queues"])]
    pub(crate) matrix: Option<PathBuf>,
    /// Loss of each way: a share, or a table
    #[arg(long, value_name = "FILE|SHARE", requires = "matrix")]
    pub(crate) loss: Option<String>,
    /// Rate of each way: a rate, or a table
    #[arg(long, value_name = "FILE|RATE", requires = "matrix")]
    pub(crate) rate: Option<String>,
    /// Start this shell command at every site; it runs until the lab goes down
    #[arg(long, value_name = "COMMAND", requires = "matrix")]
    pub(crate) each: Option<String>,
    /// Ping all pairs and print the table, as lab check does
    #[arg(long, requires = "matrix")]
    pub(crate) check: bool,
}

/// Options of pings between sites.
#[derive(clap::Args)]
pub(crate) struct PingOptions {
    /// Pings of each pair and direction
    #[arg(long, value_name = "N", default_value_t = PINGS, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) pings: u16,
    /// Largest accepted error of a median round trip
    #[arg(long, value_name = "TIME", default_value = "200us")]
    pub(crate) tolerance: Span,
}

const PINGS: u16 = 11;

impl Default for PingOptions {
    fn default() -> Self {
        PingOptions { pings: PINGS, tolerance: Span::from_us(200) }
    }
}

fn node(text: &str) -> Result<Node, String> {
    text.parse().map_err(|error: lab::Error| error.to_string())
}
