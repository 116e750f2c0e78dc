use service::Address;
use std::path::PathBuf;

/// Start, watch and end runs over HTTP
///
/// Runs are resources: POST a scenario to /v1/runs, read its state, events and report, DELETE it to end it. By default,
/// only the user who started the service can use it, through a Unix socket. Each run is a separate process. A signal
/// ends all runs and removes the socket.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe serve
  netlathe serve --listen unix:/tmp/netlathe.sock --files /data
  netlathe serve --listen :8080 --token /tmp/netlathe.token

All routes: GET /openapi.json, and docs/guide/service.md. netlathe ctl and netlathe top are clients.")]
pub(crate) struct Serve {
    /// Address to listen on: unix:PATH, HOST:PORT, or :PORT for this machine only. TCP requires a token
    /// [default: unix:$XDG_RUNTIME_DIR/netlathe.sock, for root unix:/run/netlathe.sock]
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub(crate) listen: Option<Address>,
    /// File with the token that clients must send; created with a random token if it does not exist [default for TCP:
    /// a file beside the default socket, removed at the end]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token: Option<PathBuf>,
    /// Folder whose files scenarios may name; relative paths start there [default: scenarios may not name files]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) files: Option<PathBuf>,
    /// Maximum number of simultaneous runs
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) most: u16,
    /// Allow the page at / to change and end runs
    #[arg(long)]
    pub(crate) allow_changes: bool,
}
