use crate::Arguments;
use crate::output::{self, Failure};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write man pages and shell completions into a folder
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe manual --to /tmp/netlathe
  cp /tmp/netlathe/*.1 /usr/local/share/man/man1
  cp /tmp/netlathe/netlathe.bash /etc/bash_completion.d/netlathe

They are made from the same definitions as --help and always agree with it.")]
pub(crate) struct Manual {
    /// The folder; made if it is not there
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl Manual {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let folder = self.to.display();
        let unwritable =
            |cause| Failure::new(format!("cannot write to {folder}: {cause}: check the path and its permissions"));
        std::fs::create_dir_all(&self.to).map_err(unwritable)?;
        clap_mangen::generate_to(Arguments::command(), &self.to).map_err(unwritable)?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut Arguments::command(), "netlathe", &self.to).map_err(unwritable)?;
        }
        output::print(&format!("wrote man pages and completions to {folder}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
