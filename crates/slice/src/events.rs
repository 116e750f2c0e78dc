//! Events that the CPU or the kernel counts: cycles, cache misses, context switches. There is one counter per event and
//! CPU. The kernel programs read it at each stamp.

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Dynamic, Hardware, Raw, Software};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::str::FromStr;

/// Limit on events counted at once: `EVENTS` of `bpf/maps.h`.
pub const MOST_EVENTS: usize = 4;

/// Where Linux lists its performance monitoring units.
const UNITS: &str = "/sys/bus/event_source/devices";

/// The source of an event's counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hardware(Hardware),
    Software(Software),
    Cache(CacheId, CacheOp, CacheResult),
    Raw(u64),
    /// `UNIT/EVENT/`, found in [`UNITS`].
    Unit,
}

const fn loads(cache: CacheId, result: CacheResult) -> Kind {
    Kind::Cache(cache, CacheOp::READ, result)
}

/// Event names of perf, each with its alias.
const EVENTS: &[(&str, &str, Kind)] = &[
    ("cycles", "cpu-cycles", Kind::Hardware(Hardware::CPU_CYCLES)),
    ("instructions", "", Kind::Hardware(Hardware::INSTRUCTIONS)),
    ("cache-references", "", Kind::Hardware(Hardware::CACHE_REFERENCES)),
    ("cache-misses", "", Kind::Hardware(Hardware::CACHE_MISSES)),
    ("branches", "branch-instructions", Kind::Hardware(Hardware::BRANCH_INSTRUCTIONS)),
    ("branch-misses", "", Kind::Hardware(Hardware::BRANCH_MISSES)),
    ("bus-cycles", "", Kind::Hardware(Hardware::BUS_CYCLES)),
    ("ref-cycles", "", Kind::Hardware(Hardware::REF_CPU_CYCLES)),
    ("stalled-cycles-frontend", "idle-cycles-frontend", Kind::Hardware(Hardware::STALLED_CYCLES_FRONTEND)),
    ("stalled-cycles-backend", "idle-cycles-backend", Kind::Hardware(Hardware::STALLED_CYCLES_BACKEND)),
    ("L1-dcache-loads", "", loads(CacheId::L1D, CacheResult::ACCESS)),
    ("L1-dcache-load-misses", "", loads(CacheId::L1D, CacheResult::MISS)),
    ("L1-icache-load-misses", "", loads(CacheId::L1I, CacheResult::MISS)),
    ("LLC-loads", "", loads(CacheId::LL, CacheResult::ACCESS)),
    ("LLC-load-misses", "", loads(CacheId::LL, CacheResult::MISS)),
    ("dTLB-loads", "", loads(CacheId::DTLB, CacheResult::ACCESS)),
    ("dTLB-load-misses", "", loads(CacheId::DTLB, CacheResult::MISS)),
    ("iTLB-load-misses", "", loads(CacheId::ITLB, CacheResult::MISS)),
    ("cpu-clock", "", Kind::Software(Software::CPU_CLOCK)),
    ("task-clock", "", Kind::Software(Software::TASK_CLOCK)),
    ("context-switches", "cs", Kind::Software(Software::CONTEXT_SWITCHES)),
    ("cpu-migrations", "migrations", Kind::Software(Software::CPU_MIGRATIONS)),
    ("page-faults", "faults", Kind::Software(Software::PAGE_FAULTS)),
    ("minor-faults", "", Kind::Software(Software::PAGE_FAULTS_MIN)),
    ("major-faults", "", Kind::Software(Software::PAGE_FAULTS_MAJ)),
    ("alignment-faults", "", Kind::Software(Software::ALIGNMENT_FAULTS)),
    ("emulation-faults", "", Kind::Software(Software::EMULATION_FAULTS)),
];

/// An event, by its name in `perf list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    name: String,
    kind: Kind,
}

impl FromStr for Event {
    type Err = units::ParseError;

    fn from_str(text: &str) -> Result<Event, units::ParseError> {
        let event = |kind| Ok(Event { name: text.to_owned(), kind });
        if let Some((name, _, kind)) =
            EVENTS.iter().find(|(name, other, _)| !text.is_empty() && [*name, *other].contains(&text))
        {
            return Ok(Event { name: (*name).to_owned(), kind: *kind });
        }
        let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
        if let Some(number) = text.strip_prefix('r').filter(|digits| digits.len() <= 16).and_then(hex) {
            return event(Kind::Raw(number));
        }
        let unit = text.strip_suffix('/').and_then(|text| text.split_once('/'));
        if unit.is_some_and(|(unit, event)| is_name(unit) && is_name(event)) {
            return event(Kind::Unit);
        }
        let what = format!("'{text}' is not an event");
        let names = || EVENTS.iter().flat_map(|(name, other, _)| [*name, *other]).filter(|name| !name.is_empty());
        let scored = names().map(|name| (strsim::jaro_winkler(text, name), name)).filter(|(score, _)| *score > 0.8);
        let remedy = match scored.max_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, name)) => format!("did you mean '{name}'?"),
            None => {
                let names: Vec<&str> = EVENTS.iter().map(|(name, ..)| *name).collect();
                format!(
                    "write one of {}, a raw event such as r1a8, or UNIT/EVENT/ as perf list shows it",
                    names.join(", ")
                )
            }
        };
        Err(units::ParseError::new(what, remedy))
    }
}

/// Whether a word may be part of a path.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')) && text != ".."
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// An event that this machine cannot count, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// Name of the event.
    pub event: String,
    /// The reason.
    pub unsupported: String,
}

impl Event {
    /// The event's name in perf.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A running counter of a CPU, for all programs.
    fn counter(&self, cpu: u32) -> io::Result<Counter> {
        let mut builder = match self.kind {
            Kind::Hardware(event) => Builder::new(event),
            Kind::Software(event) => Builder::new(event),
            Kind::Cache(which, operation, result) => Builder::new(Cache { which, operation, result }),
            Kind::Raw(number) => Builder::new(Raw::new(number)),
            Kind::Unit => {
                let (unit, event) = self.name.trim_end_matches('/').split_once('/').unwrap_or((&self.name, ""));
                if !Path::new(UNITS).join(unit).is_dir() {
                    return Err(io::Error::other(format!("there is no {UNITS}/{unit}")));
                }
                if !Path::new(UNITS).join(unit).join("events").join(event).is_file() {
                    return Err(io::Error::other(format!("{UNITS}/{unit} has no event '{event}'")));
                }
                let found = Dynamic::builder(unit)?.event(event).map_err(io::Error::other)?.build();
                Builder::new(found.map_err(io::Error::other)?)
            }
        };
        builder.include_kernel();
        builder.any_pid().one_cpu(cpu as usize);
        let mut counter = match builder.build() {
            // The unit cannot exclude the hypervisor, as in virtual machines.
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => builder.include_hv().build()?,
            built => built?,
        };
        counter.enable()?;
        Ok(counter)
    }

    fn unsupported(&self, cause: &io::Error) -> Unsupported {
        let by_cpu = !matches!(self.kind, Kind::Software(_) | Kind::Unit);
        let has_unit =
            ["cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0"].iter().any(|n| Path::new(UNITS).join(n).is_dir());
        let reason = match cause.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                format!("the kernel does not permit it ({cause}): run it as root, or with CAP_PERFMON")
            }
            Some(libc::EMFILE) => format!("{cause}: `ulimit -n 1024`, or more"),
            Some(_) if by_cpu && !has_unit => {
                format!("this machine shows no performance counters of its CPU ({cause}), as virtual machines often")
            }
            Some(_) => format!("this machine does not count it ({cause})"),
            None => cause.to_string(),
        };
        Unsupported { event: self.name.clone(), unsupported: reason }
    }
}

/// The programs' maps that hold the counters.
pub(crate) type Filled = Vec<Array<MapData, u32>>;

/// Running counters, one per event and CPU.
pub struct EventCounters {
    events: Vec<Event>,
    /// By event, then CPU.
    counters: Vec<Vec<(u32, Counter)>>,
    unsupported: Vec<Unsupported>,
}

impl EventCounters {
    /// No counters.
    #[must_use]
    pub fn none() -> EventCounters {
        EventCounters { events: Vec::new(), counters: Vec::new(), unsupported: Vec::new() }
    }

    /// Starts counters on these CPUs. Events that the machine cannot count are left out and listed by
    /// [`EventCounters::unsupported`].
    #[must_use]
    pub fn on(cpus: &[u32], events: &[Event]) -> EventCounters {
        let mut all = EventCounters::none();
        for event in events {
            let each = cpus.iter().map(|&cpu| Ok((cpu, event.counter(cpu)?)));
            match each.collect::<io::Result<Vec<_>>>() {
                Ok(counters) => {
                    all.events.push(event.clone());
                    all.counters.push(counters);
                }
                Err(cause) => all.unsupported.push(event.unsupported(&cause)),
            }
        }
        all
    }

    /// The events that are counted.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The events that this machine cannot count.
    #[must_use]
    pub fn unsupported(&self) -> &[Unsupported] {
        &self.unsupported
    }

    pub(crate) fn refuse(&mut self, index: usize, cause: &io::Error) {
        let event = self.events.remove(index);
        self.counters.remove(index);
        self.unsupported.push(event.unsupported(cause));
    }

    /// Puts the counters into the programs' maps. The inner error is an event that the kernel does not let programs
    /// read, with the cause.
    pub(crate) fn fill(&self, programs: &mut Ebpf) -> Result<Result<Filled, (usize, io::Error)>, MapError> {
        let mut filled = Vec::new();
        for (event, counters) in self.counters.iter().enumerate() {
            let Some(Map::PerfEventArray(map)) = programs.take_map(&format!("event{event}")) else {
                return Err(MapError::InvalidMapType { map_type: 0 });
            };
            // User space sees an array of descriptors.
            let mut array: Array<MapData, u32> = Array::try_from(Map::Array(map))?;
            for (cpu, counter) in counters {
                match array.set(*cpu, counter.as_raw_fd().cast_unsigned(), 0) {
                    Ok(()) => {}
                    Err(MapError::SyscallError(cause)) => return Ok(Err((event, cause.io_error))),
                    Err(cause) => return Err(cause),
                }
            }
            filled.push(array);
        }
        Ok(Ok(filled))
    }

    /// Counts of each event so far on all CPUs, and the share of the time in which it was counted. The share is below 1
    /// if there are more events than the CPU has counters.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn totals(&mut self) -> io::Result<Vec<EventTotal>> {
        let total = |counters: &mut Vec<(u32, Counter)>| {
            let (mut count, mut enabled, mut running) = (0, 0.0, 0.0);
            for (_, counter) in counters {
                let read = counter.read_full()?;
                count += read.count();
                enabled += read.time_enabled().unwrap_or_default().as_secs_f64();
                running += read.time_running().unwrap_or_default().as_secs_f64();
            }
            Ok(EventTotal { count, counted: if enabled > 0.0 { running / enabled } else { 1.0 } })
        };
        self.counters.iter_mut().map(total).collect()
    }

    /// Counts of each event so far on one CPU.
    pub(crate) fn on_cpu(&mut self, cpu: u32) -> io::Result<Vec<u64>> {
        let of = |counters: &mut Vec<(u32, Counter)>| {
            counters.iter_mut().find(|(at, _)| *at == cpu).map_or(Ok(0), |(_, counter)| counter.read())
        };
        self.counters.iter_mut().map(of).collect()
    }
}

/// Count of an event on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventTotal {
    /// Occurrences.
    pub count: u64,
    /// Share of the time in which they were counted.
    pub counted: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Event, String> {
        text.parse().map_err(|error: units::ParseError| error.to_string())
    }

    #[test]
    fn events_have_the_names_of_perf() {
        assert_eq!(parse("cycles").map(|event| event.kind), Ok(Kind::Hardware(Hardware::CPU_CYCLES)));
        assert_eq!(parse("cs").map(|event| event.to_string()), Ok("context-switches".to_owned()));
        assert_eq!(parse("r1a8").map(|event| event.kind), Ok(Kind::Raw(0x1a8)));
        assert_eq!(parse("msr/tsc/").map(|event| event.kind), Ok(Kind::Unit));
        for bad in ["", "r", "msr/../", "/tsc/", "msr/tsc", "a b", "rxyz", "r11112222333344445"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_misspelt_word_has_a_nearest_word() {
        let error = parse("contex-switch").expect_err("it is not an event");
        assert!(error.contains("did you mean 'context-switches'"), "{error}");
        let error = parse("bananas").expect_err("it is not an event");
        assert!(error.contains("write one of cycles, instructions"), "{error}");
    }

    #[test]
    fn counts_supported_events_and_names_the_others() {
        let events = ["page-faults", "no_such_unit/event/"].map(|name| parse(name).expect("they are well formed"));
        let mut counters = EventCounters::on(&aya::util::online_cpus().expect("Linux says"), &events);
        assert_eq!(counters.unsupported().len() + counters.events().len(), 2);
        let named = counters.unsupported().iter().find(|event| event.event == "no_such_unit/event/");
        assert!(named.expect("no machine has it").unsupported.contains("no_such_unit"));
        if counters.events().is_empty() {
            println!("SKIP: {:?}", counters.unsupported());
            return;
        }
        let before = counters.totals().expect("they run")[0].count;
        // Each new page faults on its first write. There are as few as two if pages are huge.
        let pages = std::hint::black_box(vec![1_u8; 4 << 20]);
        let after = counters.totals().expect("they run")[0].count;
        drop(pages);
        assert!(after > before, "{before} {after}");
        assert!((counters.totals().expect("they run")[0].counted - 1.0).abs() < 0.01);
    }
}
