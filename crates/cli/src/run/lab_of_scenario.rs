//! The lab of a scenario, built for the run and removed after it. Another netlathe process in the lab's box carries out
//! the run.

use crate::output::Failure;
use crate::plan::request::Request;
use crate::run::child_processes::Guardian;
use ::lab::{Node, RunRequest, Shape};
use std::env;
use std::process::ExitCode;

/// Environment variable with the name of the lab, for the netlathe process in the box.
pub(super) const MARK: &str = "NETLATHE_SCENARIO_LAB";

/// Runs this command in the lab of the request; `None` if there is no lab to build.
pub(super) fn run(request: &Request) -> Result<Option<ExitCode>, Failure> {
    let Some(plan) = &request.beside.lab else { return Ok(None) };
    if env::var_os(MARK).is_some_and(|name| env::var_os("NETLATHE_LAB") == Some(name)) {
        return Ok(None);
    }
    if !::lab::privileged() {
        match ::lab::reexec_in_user_namespace().map_err(Failure::new)? {}
    }
    let name = plan.name.clone().unwrap_or_else(|| format!("run-{}", std::process::id()));
    let cannot = |cause: std::io::Error| Failure::new(format!("cannot run netlathe: {cause}"));
    let command = env::current_exe().map_err(cannot)?.into_os_string();
    let run = RunRequest {
        name: name.clone(),
        shape: Shape { clients: plan.clients, mtu: plan.mtu, queues: plan.queues },
        node: Node::Box,
        command: [command].into_iter().chain(env::args_os().skip(1)).collect(),
        stdout_to_stderr: false,
    };
    let guardian = Guardian::with_lab(&name).map_err(cannot)?;
    let inside = |command| {
        let mut command = guardian.ending_with_us(&command)?;
        command.env(MARK, &name);
        Ok(command)
    };
    let status = ::lab::run_by(&run, inside).map_err(Failure::new)?;
    Ok(Some(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))))
}
