use crate::output::{self, Failure};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Tell what this machine can do, and what to mend
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  netlathe doctor

One line for each thing that netlathe can use: there, or what is missing, what that means and how to
mend it. Nothing is changed or sent. The exit status is 0 also when something is missing: virtual time
needs nothing of it.")]
pub(crate) struct Doctor {
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

/// What was found of one thing.
#[derive(Serialize)]
struct Finding {
    what: &'static str,
    good: bool,
    found: String,
    /// What to do where it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn good(what: &'static str, found: impl Into<String>) -> Self {
        Finding { what, good: true, found: found.into(), remedy: None }
    }

    fn bad(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { what, good: false, found: found.into(), remedy: Some(remedy.into()) }
    }
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let findings = [virtual_time(), privileges(), dpdk(), hugepages(), iommu(), tsc(), hiccups(), tools()];
        let text = if self.json {
            let object = serde_json::json!({ "schema": 1, "command": "doctor", "findings": findings });
            object.to_string() + "\n"
        } else {
            findings.iter().map(line).collect()
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn line(finding: &Finding) -> String {
    let mark = if finding.good { "ok" } else { "--" };
    let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!(": {remedy}"));
    format!("{mark}  {:<13} {}{remedy}\n", finding.what, finding.found)
}

fn virtual_time() -> Finding {
    Finding::good("virtual time", "captures and model lines need nothing of what follows")
}

#[cfg(feature = "live")]
fn privileges() -> Finding {
    if lab::privileged() {
        return Finding::good("privileges", "root: every kind of port");
    }
    let limit = read("/proc/sys/user/max_user_namespaces");
    let apparmor = read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
    if limit.as_deref() != Some("0") && apparmor.as_deref() != Some("1") {
        Finding::good("privileges", "no root, but user namespaces: netlathe lab run works, by af_packet")
    } else {
        Finding::bad(
            "privileges",
            "neither root nor user namespaces: no live ports",
            "run as root, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    }
}

#[cfg(not(feature = "live"))]
fn privileges() -> Finding {
    Finding::bad("live ports", "this netlathe was built without them", "build with the default features")
}

/// DPDK starts, and finds its drivers.
#[cfg(feature = "live")]
fn dpdk() -> Finding {
    use ::dpdk::{Eal, EalConfig, Pool, Port, PortConfig, Vdev};
    let opened = Eal::init(&EalConfig::new("netlathe-doctor").memory_mib(64)).and_then(|eal| {
        let pool = Pool::new(eal, "doctor", 1_023, 2_048)?;
        Port::open(eal, Vdev::null(), &pool, &PortConfig::default()).map(drop)
    });
    match opened {
        Ok(()) => Finding::good("DPDK", format!("{}, drivers found", Eal::version())),
        Err(error) => Finding::bad("DPDK", error.to_string(), "scripts/setup.sh installs it with its drivers"),
    }
}

#[cfg(not(feature = "live"))]
fn dpdk() -> Finding {
    Finding::bad("DPDK", "not built in", "build with the default features")
}

fn hugepages() -> Finding {
    let folder = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let free: u64 = folder
        .filter_map(|entry| read(entry.path().join("free_hugepages")))
        .filter_map(|count| count.parse::<u64>().ok())
        .sum();
    let mounted = read("/proc/mounts").is_some_and(|mounts| mounts.lines().any(|line| line.contains(" hugetlbfs ")));
    if free > 0 && mounted {
        return Finding::good("huge pages", format!("{free} free"));
    }
    Finding::bad(
        "huge pages",
        if free > 0 {
            "free, but not mounted"
        } else {
            "none free; ordinary pages are used, which only NICs on PCI mind"
        },
        "echo 256 > /proc/sys/vm/nr_hugepages; mount -t hugetlbfs none /dev/hugepages",
    )
}

fn iommu() -> Finding {
    let groups = fs::read_dir("/sys/kernel/iommu_groups").map_or(0, |entries| entries.flatten().count());
    if groups > 0 {
        Finding::good("IOMMU", format!("{groups} groups: NICs can be bound to vfio-pci"))
    } else {
        Finding::bad(
            "IOMMU",
            "none; only NICs on PCI mind",
            "intel_iommu=on or amd_iommu=on on the kernel's command line, and in the firmware",
        )
    }
}

fn tsc() -> Finding {
    let flags = read("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if has("constant_tsc") && has("nonstop_tsc") {
        Finding::good("TSC", "constant and never stops: departures follow it")
    } else {
        Finding::bad("TSC", "changes its rate or stops", "use virtual time here; live departures would drift")
    }
}

/// How often a loop that does nothing is interrupted: what no live departure here can be better than.
fn hiccups() -> Finding {
    const WATCH: Duration = Duration::from_millis(300);
    const NOTABLE: Duration = Duration::from_micros(5);
    let begin = Instant::now();
    let (mut last, mut count, mut longest) = (begin, 0, Duration::ZERO);
    while last.duration_since(begin) < WATCH {
        let now = Instant::now();
        let gap = now.duration_since(last);
        if gap > NOTABLE {
            count += 1;
            longest = longest.max(gap);
        }
        last = now;
    }
    let found = format!(
        "a busy loop was interrupted {:.0} times a second for more than 5 µs, at most for {:.1} µs",
        f64::from(count) / WATCH.as_secs_f64(),
        longest.as_secs_f64() * 1e6
    );
    if longest < Duration::from_micros(100) {
        Finding::good("interruptions", found)
    } else {
        Finding::bad("interruptions", found, "isolate cores for netlathe (isolcpus, nohz_full), and end what else runs")
    }
}

fn tools() -> Finding {
    let missing: Vec<&str> = ["ip", "ethtool"].into_iter().filter(|tool| !runs(tool)).collect();
    if missing.is_empty() {
        Finding::good("tools", "ip and ethtool, which labs are built with")
    } else {
        Finding::bad("tools", format!("{} missing: no labs", missing.join(" and ")), "apt-get install iproute2 ethtool")
    }
}

fn runs(tool: &str) -> bool {
    let version = if tool == "ip" { "-V" } else { "--version" };
    Command::new(tool)
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
