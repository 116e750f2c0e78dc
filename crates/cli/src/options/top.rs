/// Show all runs of a service on the terminal, live
///
/// Rates asked and obtained, lateness, queues and drops of each pipeline, twice a second. q ends it.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe top
  netlathe top --socket /tmp/run.sock")]
pub(crate) struct Top {
    #[command(flatten)]
    pub(crate) socket: super::ctl::Socket,
}
