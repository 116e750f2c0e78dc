use crate::options::lab::{Action, Lab, Shape};
use crate::output::{self, Failure};
use crate::rights;
use crate::rights::list::LAB;
use crate::run::child_processes::Guardian;
use ::lab::{RunRequest, State};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::SystemTime;

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
                let run = RunRequest { name, shape: shape.said(), node: on, command, stdout_to_stderr: false };
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
