//! Loads, attaches, reads and removes the kernel programs.
//!
//! Nothing is pinned: programs and maps live only as long as this process, however it ends.

mod counters;
mod object;
mod other_connections;

pub use counters::Counters;

use crate::costs::Costs;
use crate::error::{Error, few_files, maps, not_allowed, reason, refused};
use crate::events::{Event, EventCounters, EventTotal, Filled, MOST_EVENTS};
use crate::record::{Ended, Probe, Record, SIZE};
use crate::settings::{self, Direction, Filter, Settings, Words};
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf};
use aya::programs::fentry::FEntryLinkId;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, FEntry};
use aya::{Btf, Ebpf};
use object::{FORK, Program, function, open, tracepoint};
use other_connections::OtherConnections;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

/// The points at which a packet is stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// All points of this kernel, including system calls.
    All,
    /// Five points of the path, without system calls, at a third of the cost.
    Few,
}

/// Bytes of `struct waiting`.
const WAITING: usize = 8 * 2048 + 24;

/// The attached probes.
pub struct Kernel {
    // Dropping this detaches the programs.
    programs: Option<Ebpf>,
    records: RingBuf<MapData>,
    frames: Array<MapData, [u8; SIZE]>,
    cpus: PerCpuArray<MapData, [u64; counters::WORDS]>,
    settings: Array<MapData, Words>,
    family: HashMap<MapData, u32, u32>,
    sockets: HashMap<MapData, u64, [u8; WAITING]>,
    strangers: OtherConnections,
    /// Counters at the start of the window.
    before: Counters,
    /// Counters of the probes when [`Kernel::pace`] last gave a pace.
    paced: Counters,
    now: Settings,
    missing: Vec<(&'static str, String)>,
    functions: Result<(), String>,
    points: Points,
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    function: Option<FEntryLinkId>,
    counters: EventCounters,
    // Dropping these maps removes the counters from the programs.
    _events: Filled,
}

impl Kernel {
    /// Loads and attaches the programs. They trace every frame and hand nothing over until [`Kernel::follow`].
    ///
    /// `buffer` is the size of the ring of records in bytes, a power of two. Up to [`MOST_EVENTS`] of `events` are
    /// counted at each stamp, if this machine can count them.
    ///
    /// # Errors
    /// The kernel has no type information, refuses BPF to this user, or refuses a required program; or `stopped`
    /// returned true before all programs were loaded. The kernel takes some ms to verify each program.
    pub fn attach(buffer: u32, points: Points, events: &[Event], stopped: &dyn Fn() -> bool) -> Result<Kernel, Error> {
        let btf =
            Btf::from_sys_fs().map_err(|cause| few_files(&cause).unwrap_or_else(|| Error::NoTypes(reason(&cause))))?;
        let cpus = aya::util::online_cpus().map_err(|(what, cause)| Error::Maps(format!("{what}: {cause}")))?;
        let mut counters = EventCounters::on(&cpus, &events[..events.len().min(MOST_EVENTS)]);
        let (mut programs, filled) = loop {
            let mut programs = open(&btf, buffer, counters.events().len())?;
            match counters.fill(&mut programs).map_err(maps)? {
                Ok(filled) => break (programs, filled),
                // An event that BPF programs may not read, such as one counted for a whole CPU socket.
                Err((event, cause)) => counters.refuse(event, &cause),
            }
        };
        let (mut missing, mut links) = (Vec::new(), Vec::new());
        for &Program { name, probe, needed, .. } in Program::at(points) {
            if stopped() {
                return Err(Error::Stopped);
            }
            let tried = tracepoint(&mut programs, name).and_then(|program| {
                program.load(probe.name(), &btf)?;
                program.attach()
            });
            match tried {
                Ok(link) => links.push((name, link)),
                // A program that fails only for lack of open files is an error, and not left out silently.
                Err(cause) if needed || few_files(&cause).is_some() => return Err(refused(probe.name(), &cause)),
                Err(cause) => missing.push((probe.name(), reason(&cause))),
            }
        }
        let function = match points {
            Points::Few => Err("few points are asked for".to_owned()),
            Points::All => {
                let tried = function(&mut programs).and_then(|program| {
                    program.load(Probe::IpSend.name(), &btf)?;
                    program.attach()
                });
                match tried {
                    Err(cause) if few_files(&cause).is_some() => return Err(refused(Probe::IpSend.name(), &cause)),
                    tried => tried.map_err(|cause| reason(&cause)),
                }
            }
        };
        let (function, functions) = match function {
            Ok(link) => (Some(link), Ok(())),
            Err(cause) => (None, Err(cause)),
        };
        let mut take = |name: &str| programs.take_map(name).ok_or_else(|| Error::Maps(format!("there is no {name}")));
        let (records, frames, cpus) = (take("records")?, take("frames")?, take("cpus")?);
        let (settings, family, sockets) = (take("settings")?, take("family")?, take("sockets")?);
        let mut kernel = Kernel {
            programs: Some(programs),
            records: RingBuf::try_from(records).map_err(maps)?,
            frames: Array::try_from(frames).map_err(maps)?,
            cpus: PerCpuArray::try_from(cpus).map_err(maps)?,
            settings: Array::try_from(settings).map_err(maps)?,
            family: HashMap::try_from(family).map_err(maps)?,
            sockets: HashMap::try_from(sockets).map_err(maps)?,
            strangers: OtherConnections::default(),
            before: Counters::default(),
            paced: Counters::default(),
            now: Settings::new(points == Points::Few),
            missing,
            functions,
            points,
            links,
            function,
            counters,
            _events: filled,
        };
        kernel.set(kernel.now.clone())?;
        Ok(kernel)
    }

    /// Detaches the programs, which stay loaded. Until [`Kernel::resume`] nothing is stamped and the probes cost
    /// nothing, but child processes are still tracked. Gives up packets in flight, and returns how many of them
    /// match the filter.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn rest(&mut self) -> Result<u64, Error> {
        let Some(programs) = &mut self.programs else { return Ok(0) };
        let (staying, leaving): (Vec<_>, Vec<_>) = self.links.drain(..).partition(|(name, _)| *name == FORK);
        self.links = staying;
        for (name, link) in leaving {
            tracepoint(programs, name).and_then(|program| program.detach(link)).map_err(|cause| not_allowed(&cause))?;
        }
        if let Some(link) = self.function.take() {
            function(programs).and_then(|program| program.detach(link)).map_err(|cause| not_allowed(&cause))?;
        }
        let window = self.counters()?.since(&self.before);
        self.set(Settings { window: self.now.window + 1, ..self.now.clone() })?;
        // From now on, datagrams come and go unseen.
        let sockets: Vec<u64> = self.sockets.keys().filter_map(Result::ok).collect();
        for socket in sockets {
            // The kernel may have evicted the entry.
            let _gone = self.sockets.remove(&socket);
        }
        Ok(window.asked.saturating_sub(window.handed + window.full))
    }

    /// Attaches the programs again.
    ///
    /// # Errors
    /// As [`Kernel::attach`].
    pub fn resume(&mut self) -> Result<(), Error> {
        self.before = self.counters()?;
        let Some(programs) = &mut self.programs else { return Ok(()) };
        for &Program { name, probe, .. } in Program::at(self.points) {
            let there = self.links.iter().any(|(attached, _)| *attached == name);
            if !there && !self.missing.iter().any(|(missing, _)| *missing == probe.name()) {
                let link = tracepoint(programs, name)
                    .and_then(BtfTracePoint::attach)
                    .map_err(|cause| refused(probe.name(), &cause))?;
                self.links.push((name, link));
            }
        }
        if self.functions.is_ok() {
            let link =
                function(programs).and_then(FEntry::attach).map_err(|cause| refused(Probe::IpSend.name(), &cause))?;
            self.function = Some(link);
        }
        Ok(())
    }

    /// Starts to trace new frames for `time` from now. The kernel enforces the end, even if this process wakes late.
    /// Frames in flight are traced to their end.
    ///
    /// # Errors
    /// A map cannot be written.
    pub(crate) fn open_for(&mut self, time: Duration) -> Result<(), Error> {
        self.set(Settings { until: settings::monotonic_in(time), ..self.now.clone() })
    }

    /// The set of probes: `tp_btf`, or `fentry` if functions are traced too.
    #[must_use]
    pub fn probes(&self) -> &'static str {
        if self.functions.is_ok() { "fentry" } else { "tp_btf" }
    }

    /// Why there are no function probes, if there are none.
    #[must_use]
    pub fn why_no_functions(&self) -> Option<&str> {
        self.functions.as_ref().err().map(String::as_str)
    }

    /// Probes that this kernel lacks or refused, with the reason.
    #[must_use]
    pub fn missing(&self) -> &[(&'static str, String)] {
        &self.missing
    }

    /// The points at which packets are stamped.
    #[must_use]
    pub fn points(&self) -> Points {
        self.points
    }

    /// The counted events, and those that this machine cannot count.
    #[must_use]
    pub fn events(&self) -> &EventCounters {
        &self.counters
    }

    /// Counts of the events so far, on all CPUs and for all programs.
    ///
    /// # Errors
    /// A counter cannot be read.
    pub fn totals(&mut self) -> Result<Vec<EventTotal>, Error> {
        self.counters.totals().map_err(|cause| Error::Maps(format!("a counter cannot be read: {cause}")))
    }

    /// Counts of the events so far on one CPU.
    pub(crate) fn counted_on(&mut self, cpu: u32) -> Result<Vec<u64>, Error> {
        self.counters.on_cpu(cpu).map_err(|cause| Error::Maps(format!("a counter cannot be read: {cause}")))
    }

    /// Makes the calibration check packets against the same conditions as this filter. The calibration's own packets
    /// match.
    pub(crate) fn calibrate_as(&mut self, filter: &Filter) -> Result<(), Error> {
        self.adopt(std::process::id())?;
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let own = filter.comm.as_ref().map(|_| comm.trim_end().to_owned());
        let Filter { pid, family, .. } = *filter;
        self.now.filter = Filter { comm: own, port: None, pid, family, direction: Direction::Both };
        self.calibrating(true)
    }

    /// From now on traces every frame, for the calibration. With `mute`, nothing is handed over.
    pub(crate) fn calibrating(&mut self, mute: bool) -> Result<(), Error> {
        self.set(Settings { mute, ..self.now.clone() })
    }

    /// From now on traces the frames that match `filter` and hands them over. Frames in flight are forgotten.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn follow(&mut self, filter: &Filter) -> Result<(), Error> {
        if let Some(pid) = filter.pid {
            self.adopt(pid)?;
        }
        let followed = Settings { mute: false, filter: filter.clone(), ..self.now.clone() };
        self.set(Settings { mute: true, ..followed.clone() })?;
        self.forget()?;
        self.before = self.counters()?;
        self.paced = self.before.clone();
        self.set(followed)
    }

    fn set(&mut self, settings: Settings) -> Result<(), Error> {
        self.now = settings;
        self.settings.set(0, self.now.words(), 0).map_err(maps)
    }

    fn forget(&mut self) -> Result<(), Error> {
        for n in 0..self.frames.len() {
            self.frames.set(n, [0; SIZE], 0).map_err(maps)?;
        }
        while self.records.next().is_some() {}
        self.strangers = OtherConnections::default();
        Ok(())
    }

    /// Adds a process, and the processes it starts from now on, to the family.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn adopt(&mut self, pid: u32) -> Result<(), Error> {
        self.family.insert(pid, pid, 0).map_err(maps)
    }

    /// Removes a process from the family. The processes it started remain.
    ///
    /// # Errors
    /// A map cannot be written.
    pub fn disown(&mut self, pid: u32) -> Result<(), Error> {
        match self.family.remove(&pid) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(cause) => Err(maps(cause)),
        }
    }

    /// The processes of the family. Ended processes are included until their numbers are reused.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn family(&self) -> Result<Vec<u32>, Error> {
        self.family.keys().collect::<Result<_, _>>().map_err(maps)
    }

    /// Passes the available records to `each`. Stops after `within`, if given, because records may arrive faster than
    /// they are read.
    pub fn records(&mut self, within: Option<Duration>, mut each: impl FnMut(Record)) {
        let (end, events) = (within.map(|within| Instant::now() + within), self.counters.events().len());
        let mut count: u32 = 0;
        while let Some(bytes) = self.records.next() {
            if let Some(record) = Record::read(&bytes, events) {
                sort(&mut self.strangers, &self.now.filter, record, is_asked(&bytes), &mut each);
            }
            count += 1;
            // The clock is not read for each record.
            if count.is_multiple_of(64) && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
        }
    }

    /// Removes the programs from the kernel. Passes the remaining records to `each`, including those of frames in
    /// flight.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn detach(&mut self, mut each: impl FnMut(Record)) -> Result<(), Error> {
        self.programs = None;
        self.records(None, &mut each);
        for bytes in self.frames.iter() {
            let bytes = bytes.map_err(maps)?;
            let end = SIZE - 32;
            let word = |at: usize| u32::from_ne_bytes(bytes[end + at..end + at + 4].try_into().expect("four bytes"));
            let half = |at: usize| u16::from_ne_bytes(bytes[end + at..end + at + 2].try_into().expect("two bytes"));
            let (count, window) = (word(0), half(6));
            // Frames of earlier windows were given up then.
            if count == 0 || u32::from(window) != self.now.window & 0xffff {
                continue;
            }
            if let Some(record) = Record::read(&bytes, 0) {
                let record = Record { ended: Ended::Unfinished, ..record };
                sort(&mut self.strangers, &self.now.filter, record, is_asked(&bytes), &mut each);
            }
        }
        Ok(())
    }

    /// Program runs that the kernel skipped (reported since Linux 5.12; 0 before).
    fn missed(&self) -> u64 {
        let Some(programs) = &self.programs else { return 0 };
        let of = |program: &aya::programs::Program| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse::<u64>().ok())
        };
        programs.programs().filter_map(|(_, program)| of(program)).sum()
    }

    /// Run time of the probes since the last pace, as a multiple of the calibrated one. It varies because a host slows
    /// down a virtual machine and CPUs change their speed. `None` if too few probes ran.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn pace(&mut self, costs: &Costs) -> Result<Option<f64>, Error> {
        let now = self.tallies(None)?;
        let pace = costs.pace(&now.since(&self.paced));
        if pace.is_some() {
            self.paced = now;
        }
        Ok(pace)
    }

    /// Counters of the probes so far.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters { missed: self.missed(), ..self.tallies(None)? })
    }

    /// Counters of the probes on one CPU so far.
    pub(crate) fn counters_on(&self, cpu: u32) -> Result<Counters, Error> {
        self.tallies(Some(cpu as usize))
    }

    /// Counters of all CPUs, or of one, without the runs that the kernel missed.
    fn tallies(&self, cpu: Option<usize>) -> Result<Counters, Error> {
        let values = self.cpus.get(&0, 0).map_err(maps)?;
        let asked = values.iter().enumerate().filter(|(number, _)| cpu.is_none_or(|cpu| cpu == *number));
        Ok(Counters::of(asked.map(|(_, words)| words)))
    }
}

/// Whether an end of a frame matches the filter, according to its `flags`.
fn is_asked(bytes: &[u8]) -> bool {
    bytes.get(SIZE - 8..SIZE - 6).is_some_and(|flags| flags != [0, 0])
}

/// Passes on a record that matches the filter, and lost records that match it by their connection.
fn sort(strangers: &mut OtherConnections, filter: &Filter, record: Record, asked: bool, each: &mut impl FnMut(Record)) {
    if asked {
        strangers.ask(&record).into_iter().for_each(&mut *each);
        each(record);
        return;
    }
    // It left by the call of a known sender that does not match the filter.
    let sent_by_others = filter.direction == Direction::Tx && record.sender[0] != 0;
    if !record.matched()
        && !sent_by_others
        && let Some(record) = strangers.meet(record)
    {
        each(record);
    }
}
