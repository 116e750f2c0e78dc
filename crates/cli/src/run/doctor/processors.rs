//! Clocks, and how often the CPUs are interrupted.

use super::machine::{Finding, Machine};
use std::time::{Duration, Instant};

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    vec![tsc(machine), clock_source(machine), governor(machine), isolated(machine), hiccups()]
}

fn tsc(machine: &Machine) -> Finding {
    let flags = machine.read("proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if has("constant_tsc") && has("nonstop_tsc") {
        Finding::good("TSC", "constant and never stops: fit for pacing")
    } else {
        Finding::bad("TSC", "changes its rate or stops", "use virtual time; live departures would drift")
    }
}

/// Checks the source of the kernel's stamps. Reading hpet or acpi_pm takes a microsecond and a lock.
fn clock_source(machine: &Machine) -> Finding {
    const WHAT: &str = "clock source";
    let folder = "sys/devices/system/clocksource/clocksource0";
    let current = machine.read(&format!("{folder}/current_clocksource")).unwrap_or_default();
    let available = machine.read(&format!("{folder}/available_clocksource")).unwrap_or_default();
    match current.as_str() {
        "tsc" => Finding::good(WHAT, "tsc: stamps of received frames are cheap"),
        "kvm-clock" | "hyperv_clocksource_tsc_page" | "xen" | "arch_sys_counter" => {
            Finding::good(WHAT, format!("{current}: stamps of received frames are cheap"))
        }
        "" => Finding::bad(WHAT, format!("unknown: there is no /{folder}"), "mount -t sysfs sysfs /sys"),
        slow => {
            let found = format!("'{slow}': slow to read, so stamping a frame delays it");
            let remedy = if available.split_whitespace().any(|name| name == "tsc") {
                format!("echo tsc > /{folder}/current_clocksource")
            } else {
                "tsc=reliable on the kernel's command line, where the machine's TSC is sound".to_owned()
            };
            Finding::bad(WHAT, found, remedy)
        }
    }
}

/// Checks the frequency governors. A CPU that changes its frequency is slow after each pause.
fn governor(machine: &Machine) -> Finding {
    const WHAT: &str = "CPU frequency";
    let folder = "sys/devices/system/cpu";
    let mut governors: Vec<String> = machine
        .names(folder)
        .iter()
        .filter_map(|name| machine.read(&format!("{folder}/{name}/cpufreq/scaling_governor")))
        .collect();
    governors.sort();
    governors.dedup();
    match governors.as_slice() {
        [] => Finding::good(WHAT, "not controlled by Linux: no governor"),
        [one] if one == "performance" => Finding::good(WHAT, "governor performance"),
        others => Finding::bad(
            WHAT,
            format!("governor {}: departures after a pause are late", others.join(", ")),
            "echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        ),
    }
}

fn isolated(machine: &Machine) -> Finding {
    const WHAT: &str = "isolated cores";
    let list = |name: &str| machine.read(&format!("sys/devices/system/cpu/{name}")).filter(|list| !list.is_empty());
    // Kernels without the option print "(null)".
    let nohz = list("nohz_full").filter(|list| list != "(null)");
    match (list("isolated"), nohz) {
        (Some(cores), Some(nohz)) => {
            Finding::good(WHAT, format!("{cores}, without ticks {nohz}: taskset -c {cores} netlathe …"))
        }
        (Some(cores), None) => Finding::bad(
            WHAT,
            format!("{cores}, but the tick interrupts them"),
            format!("nohz_full={cores} rcu_nocbs={cores} on the kernel's command line"),
        ),
        (None, _) => {
            let last = list("online").and_then(|online| online.rsplit(['-', ',']).next().map(str::to_owned));
            let core = last.unwrap_or_else(|| "N".to_owned());
            Finding::bad(
                WHAT,
                "none: other programs interrupt departures",
                format!("isolcpus={core} nohz_full={core} rcu_nocbs={core} on the kernel's command line"),
            )
        }
    }
}

/// Measures how often a busy loop is interrupted. No live departure on this machine can be more exact.
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
        "a busy loop was interrupted {:.0} times per second for more than 5 µs, at most for {:.1} µs",
        f64::from(count) / WATCH.as_secs_f64(),
        longest.as_secs_f64() * 1e6
    );
    if longest < Duration::from_micros(100) {
        Finding::good("interruptions", found)
    } else {
        Finding::bad(
            "interruptions",
            found,
            "isolate cores for netlathe (isolcpus, nohz_full), and stop other programs",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::FakeMachine;
    use super::*;

    #[test]
    fn a_tsc_must_be_constant_and_nonstop() {
        let with = |flags: &str| {
            let (_fake, machine) = FakeMachine::new(&[("proc/cpuinfo", &format!("flags\t: fpu {flags} sse"))]);
            tsc(&machine).good
        };
        assert!(with("constant_tsc nonstop_tsc"));
        assert!(!with("constant_tsc") && !with("nonstop_tsc") && !with(""));
    }

    #[test]
    fn a_slow_clock_source_has_a_remedy() {
        let folder = "sys/devices/system/clocksource/clocksource0";
        let (fake, machine) = FakeMachine::new(&[]);
        assert!(clock_source(&machine).found.starts_with("unknown"), "a container need not have /sys");
        fake.write(&format!("{folder}/current_clocksource"), "hpet");
        assert!(clock_source(&machine).remedy.is_some_and(|remedy| remedy.contains("tsc=reliable")));
        fake.write(&format!("{folder}/available_clocksource"), "tsc hpet acpi_pm");
        assert!(clock_source(&machine).remedy.is_some_and(|remedy| remedy.starts_with("echo tsc > /sys/devices")));
        fake.write(&format!("{folder}/current_clocksource"), "kvm-clock");
        assert!(clock_source(&machine).good);
    }

    #[test]
    fn every_processor_must_run_at_full_speed() {
        let file = |n: u32| format!("sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor");
        let (fake, machine) = FakeMachine::new(&[]);
        assert!(governor(&machine).good, "a virtual machine has none");
        fake.write(&file(0), "performance");
        assert_eq!(governor(&machine).found, "governor performance");
        fake.write(&file(1), "schedutil");
        let mixed = governor(&machine);
        assert!(!mixed.good && mixed.found.starts_with("governor performance, schedutil"), "{mixed:?}");
    }

    #[test]
    fn isolated_cores_are_named() {
        let (fake, machine) =
            FakeMachine::new(&[("sys/devices/system/cpu/isolated", ""), ("sys/devices/system/cpu/online", "0-3")]);
        assert!(isolated(&machine).remedy.is_some_and(|remedy| remedy.starts_with("isolcpus=3 ")));
        fake.write("sys/devices/system/cpu/isolated", "2-3");
        fake.write("sys/devices/system/cpu/nohz_full", "(null)");
        assert!(isolated(&machine).remedy.is_some_and(|remedy| remedy.starts_with("nohz_full=2-3 ")));
        fake.write("sys/devices/system/cpu/nohz_full", "2-3");
        assert!(isolated(&machine).good);
    }
}
