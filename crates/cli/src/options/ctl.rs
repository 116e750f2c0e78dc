use std::path::PathBuf;
use units::Span;

/// Start, show, change and end runs from another terminal
///
/// The run was started with --control, or belongs to netlathe serve.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe ctl --socket /tmp/run.sock show
  netlathe ctl --socket /tmp/run.sock set down.rate 5Gbps
  netlathe ctl --socket /tmp/run.sock set down.delay '80ms 5ms' --at 10s
  netlathe ctl --socket /tmp/run.sock watch
  netlathe ctl --socket /tmp/run.sock stop
  netlathe ctl --socket /tmp/netlathe.sock start run.toml --start-at +5s")]
pub(crate) struct Ctl {
    #[command(flatten)]
    pub(crate) socket: Socket,
    /// Number of the run, if the service has several
    #[arg(long, value_name = "N", global = true)]
    pub(crate) run: Option<u64>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: Action,
}

/// Address of the service.
#[derive(clap::Args)]
pub(crate) struct Socket {
    /// The socket of a run or a service [default: $XDG_RUNTIME_DIR/netlathe.sock, for root /run/netlathe.sock]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::Other, global = true)]
    socket: Option<PathBuf>,
}

impl Socket {
    /// Returns the path without an optional `unix:` prefix, or the default.
    pub(crate) fn path(&self) -> PathBuf {
        let bare = |path: &PathBuf| path.to_str().and_then(|path| path.strip_prefix("unix:")).map(PathBuf::from);
        self.socket.as_ref().map_or_else(default_socket, |path| bare(path).unwrap_or_else(|| path.clone()))
    }
}

/// Default address of a service.
pub(crate) fn default_socket() -> PathBuf {
    runtime_folder().join("netlathe.sock")
}

/// Returns `$XDG_RUNTIME_DIR` if it is an absolute path. Otherwise returns `/run` for root and the folder for temporary
/// files for other users.
pub(crate) fn runtime_folder() -> PathBuf {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    of_session.unwrap_or_else(|| {
        let root = rustix::process::geteuid().is_root();
        if root { "/run".into() } else { std::env::temp_dir() }
    })
}

/// What to do.
#[derive(clap::Subcommand)]
pub(crate) enum Action {
    /// Start a run of netlathe serve
    Start {
        /// The scenario file, as for netlathe run
        #[arg(value_name = "SCENARIO", value_hint = clap::ValueHint::FilePath)]
        scenario: PathBuf,
        /// Live: arm, then send the first frame at this instant of the clock of the service: 2026-11-25T18:00:00Z,
        /// '2026-11-25T18:00:37 TAI', or +5s from the request [default: at once]
        #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
        start_at: Option<String>,
    },
    /// Show the state, the figures so far and the settings
    Show {
        /// Print only the paths of the settings, one per line
        #[arg(long, conflicts_with = "json")]
        paths: bool,
    },
    /// Change a setting
    Set {
        /// Setting to change, such as down.rate; show lists all
        path: String,
        /// Its new value, as written in a scenario
        #[arg(allow_hyphen_values = true)]
        value: String,
        /// When, as time since the start of the run [default: now]
        #[arg(long, value_name = "T", value_parser = super::values::parse::<Span>)]
        at: Option<Span>,
    },
    /// Print events until the run ends
    Watch,
    /// End the run, as a signal does
    Stop,
    /// Pause departures
    Pause,
    /// Resume departures
    Resume,
}
