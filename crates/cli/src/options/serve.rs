use service::Address;
use std::path::PathBuf;

/// Start, watch and end runs over HTTP
///
/// Runs are resources: POST a scenario to /v1/runs, read its state, events and report, DELETE it to end it. By default only the
/// user who started the service can use it, by a socket in the file system. Each run is a process of its own. A signal ends all
/// runs and removes the socket.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe serve
  netlathe serve --listen unix:/tmp/netlathe.sock --files /data
  netlathe serve --listen :8080 --token /tmp/netlathe.token

All routes: GET /openapi.json, and docs/guide/service.md. netlathe ctl and netlathe top are clients.")]
pub(crate) struct Serve {
    /// Where to listen: unix:PATH, HOST:PORT, or :PORT for this machine alone. By TCP a token is required
    /// [default: unix:$XDG_RUNTIME_DIR/netlathe.sock, for root unix:/run/netlathe.sock]
    #[arg(long, value_name = "unix:PATH|HOST:PORT")]
    pub(crate) listen: Option<Address>,
    /// The file with the token that clients must send; written with a random one if it is not there [default by TCP: a file
    /// beside the default socket, removed at the end]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) token: Option<PathBuf>,
    /// Let scenarios name files in this folder; their relative paths begin there [default: they may name no files]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) files: Option<PathBuf>,
    /// The most runs that go on at a time
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) most: u16,
    /// Let the page at / change and end runs
    #[arg(long)]
    pub(crate) allow_changes: bool,
}
