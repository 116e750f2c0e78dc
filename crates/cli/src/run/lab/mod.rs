//! Labs: networks of namespaces.

mod exec;
mod forward;
mod pings;
mod sites;

use crate::options::lab::{Action, Lab, Shape};
use crate::output::{self, Failure};
use crate::rights;
use crate::rights::list::LAB;
use crate::run::child_processes::Guardian;
use ::lab::{RunRequest, State};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::SystemTime;

/// Limit on the programs that `lab down` names.
const MOST_NOTES: usize = 10;

impl Shape {
    fn to_lab_shape(&self) -> ::lab::Shape {
        ::lab::Shape { clients: self.clients, mtu: self.mtu, queues: self.queues }
    }
}

impl Lab {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Up { name, shape, sites } => {
                let topology = shape.to_lab_shape().named(name.unwrap_or_else(::lab::default_name));
                if let Some(matrix) = &sites.matrix {
                    let table = crate::plan::sites::read(matrix, sites.loss.as_deref(), sites.rate.as_deref())?;
                    check_rights()?;
                    return sites::up(topology, &table, &sites);
                }
                check_rights()?;
                let lab = ::lab::up(&topology).map_err(Failure::new)?;
                output::print(&format!("lab {} is up; netlathe lab list shows it\n", lab.name()))?;
            }
            Action::Exec { name, site, command } => {
                crate::options::trailing_command::check("lab exec", &command)?;
                return exec::run(name, &site, command);
            }
            Action::Check { name, pings, json } => {
                check_rights()?;
                let lab = ::lab::Lab::find(&name.unwrap_or_else(::lab::default_name)).map_err(Failure::new)?;
                let report = pings::check(&lab, &pings)?;
                return report.print(json);
            }
            Action::Forward { name } => return forward::run(&name),
            Action::Down { name } => {
                check_rights()?;
                let ended = ::lab::down(&name.unwrap_or_else(::lab::default_name)).map_err(Failure::new)?;
                for (pid, program) in ended.processes.iter().take(MOST_NOTES) {
                    output::note(format!("ended {program} ({pid}), which still ran in the lab"));
                }
                if let more @ 1.. = ended.processes.len().saturating_sub(MOST_NOTES) {
                    output::note(format!("ended {more} more programs, which still ran in the lab"));
                }
                output::print(&format!("took down {}\n", ended.namespaces.join(", ")))?;
            }
            Action::Run { name, on, shape, command } => {
                crate::options::trailing_command::check("lab run", &command)?;
                if !::lab::privileged() {
                    match ::lab::reexec_in_user_namespace().map_err(Failure::new)? {}
                }
                let name = name.unwrap_or_else(::lab::default_name);
                let run = RunRequest { name, shape: shape.to_lab_shape(), node: on, command, stdout_to_stderr: false };
                let guardian =
                    Guardian::start().map_err(|cause| Failure::new(format!("cannot run netlathe: {cause}")))?;
                let ours = |command| guardian.ending_with_us(&command);
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

/// Checks the rights for building a lab. Root needs no capability to write below /run.
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
        if let Some(forwarder) = lab.forwarder {
            let pid = forwarder.pid;
            let _ = match forwarder.running {
                true => writeln!(text, "  forwarded by process {pid}"),
                false => writeln!(
                    text,
                    "  no frame passes: the forwarder, process {pid}, has ended: netlathe lab down {}",
                    lab.name
                ),
            };
        }
        for node in &lab.nodes {
            let _ = write!(text, "  {:<8} {:<24}", node.node, node.namespace);
            if let Some(site) = &node.site {
                let _ = write!(text, " {site:<16}");
            } else if lab.forwarder.is_some() {
                // The box has one interface for each site, without addresses.
                let _ = writeln!(text, " {} interfaces", node.interfaces.len());
                continue;
            }
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
