//! Runs a command in a lab that is up.

use crate::output::Failure;
use crate::run::child_processes::Guardian;
use lab::{Lab, RunRequest, Shape};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs a command at a site, and returns its exit status.
pub(super) fn run(name: String, site: &str, command: Vec<OsString>) -> Result<ExitCode, Failure> {
    let lab = Lab::find(&name).map_err(Failure::new)?;
    let node = lab.topology().site(site).map_err(Failure::new)?;
    super::check_rights()?;
    let run = RunRequest { name, shape: Shape::default(), node, command, stdout_to_stderr: false };
    let guardian = Guardian::start().map_err(|cause| Failure::new(format!("cannot run netlathe: {cause}")))?;
    let status = lab::run_by(&run, |command| guardian.ending_with_us(&command)).map_err(Failure::new)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}
