use crate::output::{self, Failure};
use crate::rights;
use crate::rights::list::LAB;
use ::lab::{Node, Run, State};
use clap::Subcommand;
use std::ffi::OsString;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::SystemTime;

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
    clients: Option<u16>,
    /// Longest packet in bytes, on all links [default: 1500]
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// Queues of each interface [default: 1]
    #[arg(long, value_name = "N")]
    queues: Option<u16>,
}

fn node(text: &str) -> Result<Node, String> {
    text.parse().map_err(|error: ::lab::Error| error.to_string())
}

impl Shape {
    fn said(&self) -> ::lab::Shape {
        ::lab::Shape { clients: self.clients, mtu: self.mtu, queues: self.queues }
    }
}

impl Lab {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Up { name, shape } => {
                check_rights()?;
                let lab =
                    ::lab::up(&shape.said().named(name.unwrap_or_else(::lab::default_name))).map_err(Failure::new)?;
                output::print(&format!("lab {} is up; netlathe lab list shows it\n", lab.name()))?;
            }
            Action::Down { name } => {
                check_rights()?;
                let ended = ::lab::down(&name.unwrap_or_else(::lab::default_name)).map_err(Failure::new)?;
                for (pid, program) in &ended.processes {
                    output::note(format!("ended {program} ({pid}), which still ran in the lab"));
                }
                output::print(&format!("took down {}\n", ended.namespaces.join(", ")))?;
            }
            Action::Run { name, on, shape, command } => {
                crate::options::trailing_command::check("lab run", &command)?;
                if !::lab::privileged() {
                    match ::lab::reexec_in_user_namespace().map_err(Failure::new)? {}
                }
                let name = name.unwrap_or_else(::lab::default_name);
                let run = Run { name, shape: shape.said(), node: on, command, stdout_to_stderr: false };
                let ours = |command| crate::run::child_processes::ending_with_us(&command);
                let status = ::lab::run_by(&run, ours).map_err(Failure::new)?;
                return Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)));
            }
            Action::List { json } => {
                let labs = ::lab::list().map_err(Failure::new)?;
                let text = if json { serde_json::to_string(&labs).map_err(Failure::new)? + "\n" } else { table(&labs) };
                output::print(&text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Root writes below /run without a capability.
fn check_rights() -> Result<(), Failure> {
    let root = rustix::process::geteuid().is_root();
    if root && ::lab::privileged() { Ok(()) } else { rights::require(&LAB) }
}

fn table(labs: &[::lab::Summary]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for lab in labs {
        let state = match lab.state {
            State::Up => "up".to_owned(),
            State::Held { pid } => format!("up as long as process {pid}"),
            State::Incomplete => "being built, or left incomplete".to_owned(),
            State::LeftBehind { pid } => format!("left behind by process {pid}: netlathe lab down {}", lab.name),
            State::Unrecorded => format!("without a record: netlathe lab down {}", lab.name),
        };
        let age = lab.since.and_then(|since| SystemTime::now().duration_since(since).ok());
        let age = age.map_or(String::new(), |age| format!(", for {} s", age.as_secs()));
        let _ = writeln!(text, "{}: {state}{age}", lab.name);
        for node in &lab.nodes {
            let _ = write!(text, "  {:<8} {:<24}", node.node, node.namespace);
            for interface in &node.interfaces {
                let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
                let down = if interface.up { "" } else { " down" };
                let _ = write!(text, " {}{down} {}", interface.name, addresses.join(" "));
            }
            text.push('\n');
        }
    }
    if text.is_empty() { "there is no lab: netlathe lab up builds one\n".into() } else { text }
}
