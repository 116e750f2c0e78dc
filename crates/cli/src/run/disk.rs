use crate::options::disk::Disk;
use crate::output::{self, Failure, brief, digits, share, thousands};
use crate::plan::disk::DiskPlan;
use crate::render::report_printer;
use crate::render::report_text;
use crate::rights;
use crate::rights::list::DISK;
use crate::run::readiness;
use crate::run::stop::Stop;
use disk::{DiskConfig, Fault, Limits, Operation, Operations, Tallies, Tally, Times};
use measure::Report;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use units::{BitRate, Span};

/// Interval between checks of the clock and of signals.
const LOOK: Duration = Duration::from_millis(10);

/// Mounts a disk until the run ends, or unmounts one.
pub(crate) fn run(plan: DiskPlan) -> Result<ExitCode, Failure> {
    match plan {
        DiskPlan::Unmount { mount, quiet } => {
            let stale = disk::unmount(&mount).map_err(Failure::new)?;
            if !quiet {
                let whose = if stale { ", left behind by a killed netlathe" } else { "" };
                output::print(&format!("unmounted {}{whose}\n", mount.display()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        DiskPlan::Mount { config, options } => options.serve(&config),
    }
}

impl Disk {
    fn serve(&self, config: &DiskConfig) -> Result<ExitCode, Failure> {
        let root = rustix::process::geteuid().is_root();
        if root {
            rights::require(&DISK)?;
        }
        let stop = Stop::on_signals()?;
        // If a terminal stopped this process, programs that use the folder would hang.
        #[cfg(feature = "live")]
        dpdk::ignore_stops();
        let start = Instant::now();
        let mounted = disk::mount(config).map_err(Failure::new)?;
        // Only for root. For other users fusermount3 unmounts, and it must be able to gain rights.
        #[cfg(feature = "live")]
        if root {
            let keeps = rights::set(DISK.keeps);
            rights::drop_rights(rights::RunCapabilities { own: keeps, others: keeps }, None, None);
        }
        readiness::tell_starter("the disk is mounted");
        if mounted.covers_something() {
            output::warn(format!(
                "{} is not empty; its contents are hidden while the disk is mounted",
                mounted.path().display()
            ));
        }
        if !mounted.has_shared_maps() {
            output::warn(
                "this kernel has no shared mmap without the page cache (Linux 6.6 has): use --cached to allow it",
            );
        }
        if !self.quiet {
            let (backing, mount) = (config.backing.display(), mounted.path().display());
            let limits = match mounted.limits() {
                limits if limits == Limits::default() => String::new(),
                limits => format!(" ({limits})"),
            };
            output::say(format_args!("{backing} is mounted at {mount}{limits}; Ctrl-C or --duration ends it"));
        }
        let end = self.duration.map(|duration| start + duration.to_std());
        while !stop.asked() && !mounted.is_gone() && end.is_none_or(|end| Instant::now() < end) {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            std::thread::sleep(left.min(LOOK));
        }
        let lasted = start.elapsed();
        let limits = mounted.limits();
        let ended = mounted.end();
        if ended.busy {
            output::warn(format!(
                "{} was in use: it is unmounted, and programs that still use it get errors",
                config.mount.display()
            ));
        }
        let cut_short: u64 = ended.tallies.iter().map(|(_, tally)| tally.cut_short).sum();
        if cut_short > 0 {
            output::warn(format!(
                "{} cut short by the end of the disk: not in the times obtained",
                output::counted(cut_short, "operation")
            ));
        }
        if self.json {
            report_printer::print(
                &(report(config, limits, (self.duration, lasted), &ended.tallies).to_string() + "\n"),
            )?;
        } else if !self.quiet {
            report_printer::print(&table(config, &ended.tallies))?;
        }
        ended.failure.map_or(Ok(ExitCode::SUCCESS), |failure| Err(Failure::new(failure)))
    }
}

/// The bytes moved, and the time in s that this took. Operations that were answered early do not count.
fn moved(tallies: &Tallies) -> (u64, Option<f64>) {
    let moving: Vec<&Tally> = tallies.iter().map(|(_, tally)| tally).filter(|tally| tally.passed > 0).collect();
    let first = moving.iter().filter_map(|tally| tally.span).map(|(first, _)| first).min();
    let last = moving.iter().filter_map(|tally| tally.span).map(|(_, last)| last).max();
    let seconds = first.zip(last).map(|(first, last)| (last - first).as_secs_f64());
    (moving.iter().map(|tally| tally.passed).sum(), seconds)
}

/// Builds the JSON report. `duration` was asked, `lasted` was measured.
fn report(
    config: &DiskConfig,
    limits: Limits,
    (duration, lasted): (Option<Span>, Duration),
    tallies: &Tallies,
) -> Value {
    let times = |times: &Times| {
        if times.count() == 0 {
            return Value::Null;
        }
        json!({
            "count": times.count(),
            "mean_ns": times.mean(),
            "min_ns": times.least(),
            "p50_ns": times.quantile(0.5),
            "p99_ns": times.quantile(0.99),
            "max_ns": times.longest(),
        })
    };
    let mut operations = serde_json::Map::new();
    for (operation, tally) in tallies.iter() {
        let one = json!({
            "count": tally.count,
            "bytes": tally.bytes,
            "errors_injected": tally.injected,
            "error_asked_ratio": faults(config, operation),
            "error_obtained_ratio": faults(config, operation).map(|_| tally.injected as f64 / tally.count as f64),
            "errors_other": tally.failed,
            "cut_short": tally.cut_short,
            "delay_asked": times(&tally.asked),
            "delay_obtained": times(&tally.obtained),
        });
        operations.insert(operation.name().to_owned(), one);
    }
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(|(_, tally)| of(tally)).sum::<u64>();
    let (passed, seconds) = moved(tallies);
    let rate = seconds.filter(|seconds| *seconds > 0.0).map(|seconds| passed as f64 * 8.0 / seconds);
    let names = |operations: Operations| operations.iter().map(|operation| operation.name()).collect::<Vec<_>>();
    let errors: Vec<Value> = config
        .errors
        .iter()
        .map(|fault| {
            let ops = names(fault.operations.unwrap_or(config.operations));
            json!({ "error": fault.name(), "ratio": fault.share.as_f64(), "ops": ops })
        })
        .collect();
    let mut report = json!({
        "schema": Report::SCHEMA,
        "command": "disk",
        // JSON needs UTF-8, and paths may not be UTF-8.
        "backing": config.backing.to_string_lossy(),
        "mount": config.mount.to_string_lossy(),
        "asked": {
            "delay": (!config.delays.is_empty()).then(|| config.delays.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
            "rate_bps": config.rate.map(BitRate::bps),
            "errors": errors,
            "ops": names(config.operations),
            "duration_s": duration.map(|duration| duration.as_secs_f64()),
            "cached": config.cached,
            "allow_suid": config.allow_suid,
            "seed": config.seed,
        },
        "mount_options": limits.names().collect::<Vec<_>>(),
        "duration_s": lasted.as_secs_f64(),
        "total": {
            "operations": sum(|tally| tally.count),
            "bytes": sum(|tally| tally.bytes),
            "errors_injected": sum(|tally| tally.injected),
            "rate_bps": rate,
        },
        "operations": operations,
    });
    let warnings = output::warnings();
    if !warnings.is_empty() {
        report["warnings"] = json!(warnings);
    }
    report
}

/// The asked share of failures of `operation`; `None` if no error was asked for it.
fn faults(config: &DiskConfig, operation: Operation) -> Option<f64> {
    let of = |fault: &&Fault| fault.operations.unwrap_or(config.operations).iter().any(|one| one == operation);
    let shares: Vec<f64> = config.errors.iter().filter(of).map(|fault| fault.share.as_f64()).collect();
    (!shares.is_empty()).then(|| shares.iter().sum())
}

fn table(config: &DiskConfig, tallies: &Tallies) -> String {
    let mut text = report_text::warnings(&output::warnings()) + "disk\n";
    // Writing to a string cannot fail.
    for (operation, tally) in tallies.iter() {
        let _ = write!(text, "  {:<11} {:>9}", operation.name(), thousands(tally.count));
        if tally.bytes > 0 {
            let _ = write!(text, ", {} B", thousands(tally.bytes));
        }
        let at = |times: &Times, share| brief(times.quantile(share) as f64);
        if tally.asked.count() > 0 {
            let _ = write!(text, "; asked median {}", at(&tally.asked, 0.5));
        }
        if tally.obtained.count() > 0 {
            let _ = write!(text, "; got median {}, p99 {}", at(&tally.obtained, 0.5), at(&tally.obtained, 0.99));
        }
        if tally.cut_short > 0 {
            let _ = write!(text, "; {} cut short by the end", thousands(tally.cut_short));
        }
        if let Some(asked) = faults(config, operation) {
            let got = tally.injected as f64 / tally.count as f64;
            let _ = write!(text, "; errors asked {}, got {} ({})", share(asked), share(got), thousands(tally.injected));
        }
        text.push('\n');
    }
    let (bytes, seconds) = moved(tallies);
    if let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0) {
        let asked =
            config.rate.map_or(String::new(), |rate| format!("asked {}, ", bytes_rate(rate.bps() as f64 / 8.0)));
        let _ = writeln!(
            text,
            "  bytes       {asked}got {}: {} B in {}, first to last",
            bytes_rate(bytes as f64 / seconds),
            thousands(bytes),
            brief(seconds * 1e9)
        );
    }
    if tallies.iter().next().is_none() {
        text.push_str("  no operation was served\n");
    }
    text
}

/// Formats a rate in bytes per second in the usual unit of disk rates.
fn bytes_rate(rate: f64) -> String {
    let (scale, unit) = match rate {
        rate if rate >= 1e9 => (1e9, "GB/s"),
        rate if rate >= 1e6 => (1e6, "MB/s"),
        rate if rate >= 1e3 => (1e3, "kB/s"),
        _ => (1.0, "B/s"),
    };
    format!("{} {unit}", digits(rate / scale, 5))
}
