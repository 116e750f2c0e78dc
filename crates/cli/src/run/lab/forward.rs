//! The process that forwards frames between the sites of a lab.

use super::sites::READY;
use crate::output::{self, Failure};
use crate::rights::list::Capability;
use crate::rights::{self, RunCapabilities};
use crate::run::stop::Stop;
use dataplane::{ForwarderCounters, SiteForwarder, SitePort};
use engine::stages::StageConfig;
use lab::{Lab, SiteWay};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use units::{Share, Span};

/// Memory for held frames in bytes: 0.2 s of 10 Gbit/s.
const MOST_BYTES: u64 = 256 << 20;
/// The seed of losses, which is the same in each lab.
const SEED: u64 = 1;
/// Shortest interval between updates of the counters file.
const WRITES: Duration = Duration::from_secs(1);

/// Forwards until a signal arrives. Prints [`READY`] on standard output when its ports are open, then writes only to
/// its counters file.
pub(super) fn run(name: &str) -> Result<ExitCode, Failure> {
    // Signals of the terminal of `lab up` must not end this process. The call fails only for a group leader, which
    // already has its own group.
    let _leads_already = nix::unistd::setsid();
    let stop = Stop::on_signals()?;
    let lab = Lab::find(name).map_err(Failure::new)?;
    let file = lab.counters_file();
    let mut forwarder = open(&lab)?;
    // Without this priority, frames are late on a busy machine; the pings of `lab check` show it.
    let _refused = dpdk::set_realtime_priority() || dpdk::set_high_priority();
    // The kernel otherwise adds 50 µs to each sleep.
    let _refused = nix::sys::prctl::set_timerslack(1);
    let kept = rights::set(&[Capability::DacOverride]);
    let folder = file.parent().map(Path::to_owned);
    // Each new counters file replaces the previous one, so its folder must stay writable.
    rights::drop_rights(RunCapabilities { own: kept, others: kept }, Some(folder.as_slice()), file.parent());
    output::print(&format!("{READY}\n"))?;

    let mut written = (ForwarderCounters::default(), Instant::now());
    let ended = forwarder.run(|counters| {
        if stop.asked() {
            return false;
        }
        if *counters != written.0 && written.1.elapsed() >= WRITES {
            written = (*counters, Instant::now());
            // A full /run must not end forwarding. The counts in `lab check` then show that the file is old.
            let _unwritten = write(&file, &to_json(counters, None));
        }
        true
    });
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            // The streams of a background process are closed, so this is the only way to report it.
            write(&file, &to_json(&written.0, Some(&error.to_string()))).map_err(Failure::new)?;
            Err(Failure::new(error))
        }
    }
}

fn open(lab: &Lab) -> Result<SiteForwarder, Failure> {
    let topology = lab.topology();
    let mut ports = Vec::new();
    for (number, node) in topology.hosts().into_iter().enumerate() {
        let address = topology.mac(node).unwrap_or_default().parse().map_err(Failure::new)?;
        ports.push(SitePort { interface: format!("p{}", number + 1), address });
    }
    let ways =
        topology.sites.iter().map(|site| site.ways.iter().map(stage).collect()).collect::<Result<Vec<_>, _>>()?;
    SiteForwarder::open(&ports, ways, SEED, MOST_BYTES).map_err(Failure::new)
}

/// The stage of one direction of a site; `None` if it does nothing.
fn stage(way: &SiteWay) -> Result<Option<StageConfig>, Failure> {
    let mut words = String::new();
    if way.delay_ps > 0 {
        words += &format!(" delay {}", Span::from_ps(way.delay_ps));
    }
    if way.loss_ppb > 0 {
        words += &format!(" loss {}", Share::from_ppb(way.loss_ppb));
    }
    if let Some(rate) = way.rate_bps {
        words += &format!(" rate {rate}bit");
    }
    if words.is_empty() {
        return Ok(None);
    }
    StageConfig::parse(&format!("netem{words}")).map(Some).map_err(Failure::new)
}

fn to_json(counters: &ForwarderCounters, error: Option<&str>) -> serde_json::Value {
    let mut value = serde_json::json!({
        "received": counters.received, "copies": counters.copies, "sent": counters.sent, "held": counters.held,
        "drops": {
            "loss": counters.lost, "queue": counters.queue, "memory": counters.memory, "unknown": counters.unknown,
            "refused": counters.refused, "overrun": counters.overrun,
        },
    });
    if let Some(error) = error {
        value["error"] = error.into();
    }
    value
}

/// Writes a file and renames it into place, so that a reader never sees a partial file.
fn write(file: &Path, value: &serde_json::Value) -> io::Result<()> {
    let draft = file.with_extension("draft");
    fs::File::create(&draft)?.write_all(value.to_string().as_bytes())?;
    fs::rename(&draft, file)
}
