use std::path::PathBuf;

/// Write man pages and shell completions into a folder
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe manual --to /tmp/netlathe
  cp /tmp/netlathe/*.1 /usr/local/share/man/man1
  cp /tmp/netlathe/netlathe.bash /etc/bash_completion.d/netlathe

The pages and completions come from the same definitions as --help.")]
pub(crate) struct Manual {
    /// The folder; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
}
