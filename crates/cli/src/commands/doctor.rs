use crate::output::Failure;
use std::process::ExitCode;

/// Tell what this machine can do, and what to mend
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe doctor

Prints one line for each thing that netlathe can use: present, or what is missing and how to get it.
The exit status is 0 also when something is missing: virtual time needs nothing of it.")]
pub(crate) struct Doctor {
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        Err(Failure::new("not yet"))
    }
}
