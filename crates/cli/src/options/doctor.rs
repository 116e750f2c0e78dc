/// Check what this machine can do, and how to fix what is missing
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  netlathe doctor
  netlathe doctor eth1 eth2

Prints one line for each thing that netlathe can use: present, or what is missing, the effect, and the
command that fixes it. Checks the named interfaces, or all that are up, for pause frames, for
offloads that spoil a run, and for a small ring. Changes and sends nothing. The exit status is 0 even if
something is missing, since virtual time needs none of it.")]
pub(crate) struct Doctor {
    /// Interfaces to check [default: all that are up]
    #[arg(value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}
