//! Carries out `slice`: where a packet's time goes.

use crate::options::slice::{Action, Slice};
use crate::output::Failure;
use std::process::ExitCode;

mod attach;
mod end_to_end;
mod kernel;
mod pipeline;
mod processes;

impl Slice {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Kernel(command) => command.run(),
            Action::Pipeline(command) => command.run(),
            Action::Attach(command) => command.run(),
        }
    }
}
