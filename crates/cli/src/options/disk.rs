use super::values::parse;
use disk::Operations;
use std::path::PathBuf;
use units::{BitRate, Span};

/// Mount a directory as a slow or failing disk
#[derive(clap::Args)]
#[command(override_usage = "\
netlathe disk --backing <DIR> --mount <DIR> [OPTIONS]
       netlathe disk --unmount <DIR>")]
#[command(after_help = "\
Examples:
  netlathe disk --backing /data --mount /mnt/slow --delay 10ms
  netlathe disk --backing /data --mount /mnt/slow --delay 5ms 2ms distribution normal --rate 20MB/s
  netlathe disk --backing /data --mount /mnt/slow --delay 'exp mean 10ms' --ops read --duration 60s
  netlathe disk --backing /data --mount /mnt/slow --delay 'read 5ms; write,fsync 20ms 2ms' --error write eio 0.1%
  netlathe disk --backing /media/stick --mount /mnt/slow --allow-suid
  netlathe disk --unmount /mnt/slow

Programs use the mount point; their data are in the backing directory. Each read and write takes the
delay, because the page cache is not used (--cached uses it). Ctrl-C, SIGTERM or --duration ends the
disk: it is unmounted, and the report is printed.

Operations: read, write, fsync (the default), lookup, getattr, setattr, open, create, flush, opendir,
readdir, mkdir, mknod, symlink, readlink, link, rename, unlink, rmdir, fallocate, lseek, statfs,
getxattr, setxattr, listxattr, removexattr; or all.")]
pub(crate) struct Disk {
    /// The directory that holds the data
    #[arg(long, value_name = "DIR", required_unless_present = "unmount")]
    pub(crate) backing: Option<PathBuf>,
    /// The mount point: another directory, usually empty
    #[arg(long, value_name = "DIR", required_unless_present = "unmount")]
    pub(crate) mount: Option<PathBuf>,
    /// How long an operation takes: 10ms; 10ms 2ms (±, uniform); 10ms 2ms 25% (correlated);
    /// 10ms 2ms distribution normal|pareto|…; or a law such as 'exp mean 10ms'. Where operations differ:
    /// 'read 5ms; write,fsync 20ms 2ms'
    #[arg(long, value_name = "T [J [C]] [distribution NAME]", num_args = 1.., action = clap::ArgAction::Set, allow_hyphen_values = false)]
    pub(crate) delay: Option<Vec<String>>,
    /// Rate limit of reads and writes together: 20MB/s, 100Mbps
    #[arg(long, value_name = "RATE", value_parser = parse::<BitRate>, allow_hyphen_values = true)]
    pub(crate) rate: Option<BitRate>,
    /// An error and the share of operations that fail with it: eio 0.1%, or with the operations: write,fsync eio 0.1%;
    /// may be given several times
    #[arg(long, value_names = ["[OPS] NAME", "SHARE"], num_args = 1..=3, action = clap::ArgAction::Append)]
    pub(crate) error: Vec<String>,
    /// Operations that --delay and --error apply to if they name none [default: read,write,fsync]
    #[arg(long, value_name = "LIST", value_parser = parse::<Operations>)]
    pub(crate) ops: Option<Operations>,
    /// Use the page cache: data read before is returned at once
    #[arg(long)]
    pub(crate) cached: bool,
    /// Let set-user-ID files work at the mount point although the backing directory's mount is nosuid (root only)
    #[arg(long)]
    pub(crate) allow_suid: bool,
    /// End after this time, such as 60s
    #[arg(long, value_name = "TIME", value_parser = parse::<Span>, allow_hyphen_values = true)]
    pub(crate) duration: Option<Span>,
    /// Seed of delays and errors
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print only the report on stdout, as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no text report
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Unmount DIR, even after its netlathe was killed
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "backing", "mount", "delay", "rate", "error", "ops", "cached", "allow_suid", "duration", "seed", "json"
    ])]
    pub(crate) unmount: Option<PathBuf>,
}
