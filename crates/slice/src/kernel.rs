//! The programs in the kernel: loaded, attached, read and taken away again.
//!
//! Nothing is pinned: programs and maps live as long as this process holds them, however it ends.

mod counters;
mod object;
mod strangers;

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
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};
use strangers::Strangers;

/// At how many points a packet is stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Points {
    /// All that this kernel has, system calls among them.
    All,
    /// No system calls, and five points of the way: a third of the cost.
    Few,
}

/// Bytes of `struct waiting`.
const WAITING: usize = 8 * 2048 + 24;

/// The probes, attached.
pub struct Kernel {
    // The programs are detached when this goes.
    programs: Option<Ebpf>,
    records: RingBuf<MapData>,
    frames: Array<MapData, [u8; SIZE]>,
    cpus: PerCpuArray<MapData, [u64; counters::WORDS]>,
    settings: Array<MapData, Words>,
    family: HashMap<MapData, u32, u32>,
    sockets: HashMap<MapData, u64, [u8; WAITING]>,
    strangers: Strangers,
    /// Frames that were asked for and given until the window began.
    before: Counters,
    /// What the probes counted when their pace was asked for last.
    paced: Counters,
    now: Settings,
    missing: Vec<(&'static str, String)>,
    functions: Result<(), String>,
    points: Points,
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    function: Option<FEntryLinkId>,
    counters: EventCounters,
    // The kernel takes the counters out of them when they go.
    _events: Filled,
}

impl Kernel {
    /// Loads and attaches the programs. They follow every frame and hand nothing over until [`Kernel::follow`].
    ///
    /// `buffer` is the size of the ring of records in bytes, a power of two. Of `events`, up to [`MOST_EVENTS`] are
    /// counted at each stamp, if this machine counts them.
    ///
    /// # Errors
    /// When the kernel has no types, refuses BPF to this user, or refuses a program that is needed.
    pub fn attach(buffer: u32, points: Points, events: &[Event]) -> Result<Kernel, Error> {
        let btf =
            Btf::from_sys_fs().map_err(|cause| few_files(&cause).unwrap_or_else(|| Error::NoTypes(reason(&cause))))?;
        let cpus = aya::util::online_cpus().map_err(|(what, cause)| Error::Maps(format!("{what}: {cause}")))?;
        let mut counters = EventCounters::on(&cpus, &events[..events.len().min(MOST_EVENTS)]);
        let (mut programs, filled) = loop {
            let mut programs = open(&btf, buffer, counters.events().len())?;
            match counters.fill(&mut programs).map_err(maps)? {
                Ok(filled) => break (programs, filled),
                // One that the kernel does not let programs read, such as one that counts for the whole socket.
                Err((event, cause)) => counters.refuse(event, &cause),
            }
        };
        let (mut missing, mut links) = (Vec::new(), Vec::new());
        for &Program { name, probe, needed, .. } in Program::at(points) {
            let tried = tracepoint(&mut programs, name).and_then(|program| {
                program.load(probe.name(), &btf)?;
                program.attach()
            });
            match tried {
                Ok(link) => links.push((name, link)),
                // One that could be had with more files is not left out without a word.
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
            strangers: Strangers::default(),
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

    /// Detaches the programs, which stay loaded: until [`Kernel::resume`] nothing is stamped and nothing costs, but that
    /// processes are still known by who started them. What was followed is given up; says how many frames of those
    /// that were asked for.
    ///
    /// # Errors
    /// When the kernel refuses.
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
        // Datagrams come and go unseen from now on.
        let sockets: Vec<u64> = self.sockets.keys().filter_map(Result::ok).collect();
        for socket in sockets {
            // The kernel may have taken it out for another.
            let _gone = self.sockets.remove(&socket);
        }
        Ok(window.asked.saturating_sub(window.handed + window.full))
    }

    /// Attaches them again.
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

    /// Frames begin to be followed for so long from now on, and no longer, however late we look; those under way still
    /// are.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub(crate) fn open_for(&mut self, time: Duration) -> Result<(), Error> {
        self.set(Settings { until: settings::monotonic_in(time), ..self.now.clone() })
    }

    /// Which set of probes this is: `tp_btf`, or `fentry` where functions are traced, too.
    #[must_use]
    pub fn probes(&self) -> &'static str {
        if self.functions.is_ok() { "fentry" } else { "tp_btf" }
    }

    /// Why there are no finer points, if there are none.
    #[must_use]
    pub fn why_no_functions(&self) -> Option<&str> {
        self.functions.as_ref().err().map(String::as_str)
    }

    /// Probes that this kernel does not have, or refused, and why.
    #[must_use]
    pub fn missing(&self) -> &[(&'static str, String)] {
        &self.missing
    }

    /// At which points packets are stamped.
    #[must_use]
    pub fn points(&self) -> Points {
        self.points
    }

    /// The events that are counted, and those that this machine does not count.
    #[must_use]
    pub fn events(&self) -> &EventCounters {
        &self.counters
    }

    /// What the events counted so far, on all CPUs, whoever ran.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn totals(&mut self) -> Result<Vec<EventTotal>, Error> {
        self.counters.totals().map_err(|cause| Error::Maps(format!("a counter cannot be read: {cause}")))
    }

    /// What the events counted so far on one CPU.
    pub(crate) fn counted_on(&mut self, cpu: u32) -> Result<Vec<u64>, Error> {
        self.counters.on_cpu(cpu).map_err(|cause| Error::Maps(format!("a counter cannot be read: {cause}")))
    }

    /// The calibration asks of packets whose they are, as this filter does; its own are those that are asked for.
    pub(crate) fn calibrate_as(&mut self, filter: &Filter) -> Result<(), Error> {
        self.adopt(std::process::id())?;
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let own = filter.comm.as_ref().map(|_| comm.trim_end().to_owned());
        let Filter { pid, family, .. } = *filter;
        self.now.filter = Filter { comm: own, port: None, pid, family, direction: Direction::Both };
        self.calibrating(true)
    }

    /// From now on every frame is followed, for the calibration; `mute` hands nothing over.
    pub(crate) fn calibrating(&mut self, mute: bool) -> Result<(), Error> {
        self.set(Settings { mute, ..self.now.clone() })
    }

    /// From now on the frames that are asked for are followed and handed over; those under way are forgotten.
    ///
    /// # Errors
    /// When a map cannot be written.
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
        self.strangers = Strangers::default();
        Ok(())
    }

    /// Counts a process, and those it starts from now on, among the family.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn adopt(&mut self, pid: u32) -> Result<(), Error> {
        self.family.insert(pid, pid, 0).map_err(maps)
    }

    /// Takes a process out of the family; those it started stay.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn disown(&mut self, pid: u32) -> Result<(), Error> {
        match self.family.remove(&pid) {
            Err(MapError::KeyNotFound) | Ok(()) => Ok(()),
            Err(cause) => Err(maps(cause)),
        }
    }

    /// The processes of the family, those that have ended included as long as their numbers are not reused.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn family(&self) -> Result<Vec<u32>, Error> {
        self.family.keys().collect::<Result<_, _>>().map_err(maps)
    }

    /// Gives the records that are there; where they may come faster than they are taken, those of so long.
    pub fn records(&mut self, within: Option<Duration>, mut each: impl FnMut(Record)) {
        let (end, events) = (within.map(|within| Instant::now() + within), self.counters.events().len());
        let mut count: u32 = 0;
        while let Some(bytes) = self.records.next() {
            if let Some(record) = Record::read(&bytes, events) {
                sort(&mut self.strangers, &self.now.filter, record, is_asked(&bytes), &mut each);
            }
            count += 1;
            // The clock is not asked for each.
            if count.is_multiple_of(64) && end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
        }
    }

    /// Takes the programs out of the kernel and gives the records that are left, with those of frames still under
    /// way.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn detach(&mut self, mut each: impl FnMut(Record)) -> Result<(), Error> {
        self.programs = None;
        self.records(None, &mut each);
        for bytes in self.frames.iter() {
            let bytes = bytes.map_err(maps)?;
            let end = SIZE - 32;
            let word = |at: usize| u32::from_ne_bytes(bytes[end + at..end + at + 4].try_into().expect("four bytes"));
            let half = |at: usize| u16::from_ne_bytes(bytes[end + at..end + at + 2].try_into().expect("two bytes"));
            let (count, window) = (word(0), half(6));
            // Those of windows before were given up then.
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

    /// What the kernel says of its programs (since Linux 5.12; before, nothing).
    fn missed(&self) -> u64 {
        let Some(programs) = &self.programs else { return 0 };
        let of = |program: &aya::programs::Program| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            text.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse::<u64>().ok())
        };
        programs.programs().filter_map(|(_, program)| of(program)).sum()
    }

    /// How much longer the probes took since this was asked for last than in the calibration: a host slows a virtual
    /// machine down, and CPUs change their speed. `None` where too few ran.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn pace(&mut self, costs: &Costs) -> Result<Option<f64>, Error> {
        let now = self.tallies(None)?;
        let pace = costs.pace(&now.since(&self.paced));
        if pace.is_some() {
            self.paced = now;
        }
        Ok(pace)
    }

    /// What the probes counted so far.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters { missed: self.missed(), ..self.tallies(None)? })
    }

    /// What the probes of one CPU counted so far.
    pub(crate) fn counters_on(&self, cpu: u32) -> Result<Counters, Error> {
        self.tallies(Some(cpu as usize))
    }

    /// Of all CPUs or one, without what the kernel left out.
    fn tallies(&self, cpu: Option<usize>) -> Result<Counters, Error> {
        let values = self.cpus.get(&0, 0).map_err(maps)?;
        let asked = values.iter().enumerate().filter(|(number, _)| cpu.is_none_or(|cpu| cpu == *number));
        Ok(Counters::of(asked.map(|(_, words)| words)))
    }
}

/// Whether an end of a frame is one that was asked for, by its `flags`.
fn is_asked(bytes: &[u8]) -> bool {
    bytes.get(SIZE - 8..SIZE - 6).is_some_and(|flags| flags != [0, 0])
}

/// Gives a record that was asked for, and lost ones that are so by their connection.
fn sort(strangers: &mut Strangers, filter: &Filter, record: Record, asked: bool, each: &mut impl FnMut(Record)) {
    if asked {
        strangers.ask(&record).into_iter().for_each(&mut *each);
        each(record);
        return;
    }
    // It left by its sender's call, which is known, and is not one that was asked for.
    let sent_by_others = filter.direction == Direction::Tx && record.sender[0] != 0;
    if !record.matched()
        && !sent_by_others
        && let Some(record) = strangers.meet(record)
    {
        each(record);
    }
}
