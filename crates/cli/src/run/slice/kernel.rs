use super::processes::{self, Process};
use crate::options::slice::KernelSlices;
use crate::output::{self, Failure, thousands};
use crate::render::page_folder::PageFolder;
use crate::render::progress::Progress;
use crate::render::report_printer::{self, ItemPrinter};
use crate::render::slices::{ProbeSet, SlicesReport, WindowsReport};
use crate::rights;
#[cfg(feature = "live")]
use crate::rights::list::Capability;
use crate::rights::list::SLICE;
use crate::run::child_processes::{self, Guardian};
use crate::run::stop::Stop;
use nix::sys::signal::Signal;
use sim::{Lines, WhenFull};
use slice::{
    Costs, Direction, Entry, EventTotal, Filter, Header, Journal, JournalWriter, Kernel, Points, Record, SliceBook,
    Turn, Turns,
};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const NOT_STARTED: &str = "a signal ended the run before its start: no packet was followed";
/// Interval between reads of records, long enough not to disturb the measured programs.
const LOOK: Duration = Duration::from_millis(20);
/// Interval between checks whether the process of `--pid` or any of its descendants is alive.
const LOOK_FOR_PID: Duration = Duration::from_millis(500);
/// Time limit for a command to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);

impl KernelSlices {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        crate::options::trailing_command::check("slice kernel", &self.program)?;
        #[cfg(feature = "live")]
        dpdk::name_less_memory("use a smaller --buffer, or fewer packets with --port, --count or --windows");
        let folder = self.folder.as_deref().map(PageFolder::open).transpose()?;
        match &self.read {
            Some(path) => {
                // A pipe whose writer is silent ends with the first signal.
                let stop = Stop::on_signals()?;
                let file = sim::open_plain(path).map_err(Failure::new)?;
                self.read_file(Journal::read(path, file), folder, &stop)
            }
            None => self.follow(folder),
        }
    }

    fn read_file(
        &self,
        journal: Result<Journal, slice::Error>,
        folder: Option<PageFolder>,
        stop: &Stop,
    ) -> Result<ExitCode, Failure> {
        let ended_early = || output::warn("a signal ended the reading: later packets are missing");
        let (journal, header) = match journal {
            Ok(journal) => {
                let header = journal.header().clone();
                (Some(journal), header)
            }
            // Nothing had arrived from a silent pipe.
            Err(_) if stop.asked() => {
                ended_early();
                (None, Header::new(Costs::default(), "unknown"))
            }
            Err(cause) => return Err(Failure::new(cause)),
        };
        let mut book = SliceBook::new(header.costs);
        let mut items = self.items(true)?;
        let mut first = Vec::new();
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut broken = None;
        for entry in journal.into_iter().flatten() {
            match entry {
                Ok(Entry::Window(_)) => book.window(),
                Ok(Entry::Pace(pace)) => book.at_pace(pace),
                _ if left == 0 => break,
                Ok(Entry::Lost { unfinished, evicted }) => {
                    book.given_up(unfinished);
                    book.lost_records(evicted);
                }
                Ok(Entry::Record(record)) => {
                    let read = self.take(&record, &mut book, items.as_mut())?;
                    left = if read { left.saturating_sub(record.packets.into()) } else { 0 };
                    keep(&mut first, &record);
                }
                Err(_) if stop.asked() => {
                    ended_early();
                    break;
                }
                // The writer was killed; the complete records count.
                Err(cause) => {
                    broken = Some(Failure::new(cause));
                    break;
                }
            }
        }
        items.map_or(Ok(()), ItemPrinter::finish)?;
        let why = vec!["the records were read from a file".to_owned()];
        let set = ProbeSet { probes: header.probes, why, ..ProbeSet::default() };
        let done = self.report(&book, set, None, folder.map(|folder| (folder, first)))?;
        broken.map_or(Ok(done), Err)
    }

    fn follow(&self, folder: Option<PageFolder>) -> Result<ExitCode, Failure> {
        self.check_counters()?;
        processes::check(self.pid, !self.program.is_empty())?;
        rights::require(&SLICE)?;
        let create = |path| Lines::create(path, WhenFull::LeaveOut).map(|file| JournalWriter::new(path, file));
        let mut journal = self.write.as_deref().map(create).transpose().map_err(Failure::new)?;
        let stop = Stop::on_signals()?;
        let points = if self.points == "few" { Points::Few } else { Points::All };
        let filter = self.filter();
        // Loading the probes and measuring their cost takes seconds.
        let starting = Progress::starting(!self.quiet, "slice kernel");
        let calibrated = slice::calibrate(self.buffer, points, &self.counters, &filter, &|| stop.asked());
        let (mut kernel, costs) = match calibrated {
            Err(slice::Error::Stopped) => {
                drop(starting);
                return self.report_nothing(journal, folder);
            }
            calibrated => calibrated.map_err(Failure::new)?,
        };
        if let Some(journal) = &mut journal {
            journal.header(&Header::new(costs.clone(), kernel.probes())).map_err(Failure::new)?;
        }
        let mut run = RecordOutput {
            asked: self,
            book: SliceBook::new(costs),
            items: self.items(false)?,
            journal,
            left: self.count.unwrap_or(u64::MAX),
            failure: None,
            first: Vec::new(),
        };
        kernel.follow(&filter).map_err(Failure::new)?;
        let before = kernel.counters().map_err(Failure::new)?;
        let counted_before = kernel.totals().map_err(Failure::new)?;
        drop(starting);
        let started = match stop.asked() {
            true => {
                output::warn(NOT_STARTED);
                None
            }
            false => self.start(&mut kernel)?,
        };
        let (mut program, _guardian) = started.unzip();
        // The command has already been started, with the user's rights.
        #[cfg(feature = "live")]
        self.keep_what_is_needed();
        let begun = Instant::now();
        let mut turns =
            self.windows.map(|windows| Turns::begin(windows, &mut kernel)).transpose().map_err(Failure::new)?;
        let watched = run.watch(&mut kernel, turns.as_mut(), program.as_mut(), begun, &stop);
        let took = begun.elapsed();
        // The command must not outlive the run, however it ended.
        if let (Some(program), Ok(None) | Err(_)) = (&mut program, &watched) {
            end_program(program)?;
        }
        let status = watched?;
        run.look(&mut kernel)?;
        let mut set = ProbeSet::of(&kernel);
        set.windows = self.windows.zip(turns.as_ref()).map(|(windows, turns)| WindowsReport {
            count: turns.opened(),
            open_ns: windows.open.as_ps() as f64 / 1e3,
            every_ns: windows.every.as_ps() as f64 / 1e3,
            in_place_ratio: turns.in_place(begun + took).as_secs_f64() / took.as_secs_f64(),
        });
        set.counters = Some(kernel.counters().map_err(Failure::new)?.since(&before));
        let totals = kernel.totals().map_err(Failure::new)?.into_iter().zip(counted_before);
        set.totals = totals.map(|(after, before)| EventTotal { count: after.count - before.count, ..after }).collect();
        kernel.detach(|record| run.take(&record)).map_err(Failure::new)?;
        if let Some(counters) = &set.counters {
            run.lost(0, counters.full);
        }
        let printed = run.items.map_or(Ok(()), ItemPrinter::finish);
        let written = run.journal.map_or(Ok(()), end_journal);
        let page = folder.map(|folder| (folder, run.first));
        // A failure of the run must not lose its report.
        let done = self.report(&run.book, set, status, page)?;
        run.failure.map_or(Ok(()), Err).and(printed).and(written).and(Ok(done))
    }

    /// The report of a run that a signal ended before the probes were in place.
    fn report_nothing(
        &self,
        mut journal: Option<JournalWriter<Lines>>,
        folder: Option<PageFolder>,
    ) -> Result<ExitCode, Failure> {
        output::warn(NOT_STARTED);
        if let Some(journal) = &mut journal {
            journal.header(&Header::new(Costs::default(), "none")).map_err(Failure::new)?;
        }
        let written = journal.map_or(Ok(()), end_journal);
        let why = vec!["a signal ended the run before they were in place".to_owned()];
        let set = ProbeSet { probes: "none".to_owned(), why, ..ProbeSet::default() };
        let page = folder.map(|folder| (folder, Vec::new()));
        let done = self.report(&SliceBook::new(Costs::default()), set, None, page)?;
        written.map(|()| done)
    }

    /// Keeps the rights to detach and attach probes, to write files at the end, and to end the command if it changed
    /// its user.
    #[cfg(feature = "live")]
    fn keep_what_is_needed(&self) {
        let files = if self.folder.is_some() { rights::set(&[Capability::DacOverride]) } else { 0 };
        let ends = if self.program.is_empty() { 0 } else { rights::set(&[Capability::Kill]) };
        let own = rights::set(SLICE.keeps) | files | ends;
        let pipe = self.write.iter().find(|path| crate::plan::files::is_pipe(path));
        let writable: Vec<std::path::PathBuf> = self.folder.iter().chain(pipe).cloned().collect();
        let others = if pipe.is_some() { rights::set(&[Capability::DacOverride]) } else { 0 };
        rights::drop_rights(rights::RunCapabilities { own, others }, Some(&writable), None);
    }

    fn check_counters(&self) -> Result<(), Failure> {
        if self.counters.len() > slice::MOST_EVENTS {
            let (asked, most) = (self.counters.len(), slice::MOST_EVENTS);
            return Err(Failure::new(format!(
                "--counters: {asked} events are too many: name up to {most}, and run again for more"
            )));
        }
        match (1..self.counters.len()).find(|&n| self.counters[..n].contains(&self.counters[n])) {
            Some(twice) => {
                Err(Failure::new(format!("--counters: {} is named twice: leave one out", self.counters[twice])))
            }
            None => Ok(()),
        }
    }

    fn filter(&self) -> Filter {
        Filter {
            port: self.port,
            pid: self.pid,
            family: !self.program.is_empty(),
            comm: self.comm.clone(),
            direction: match self.direction.as_str() {
                "tx" => Direction::Tx,
                "rx" => Direction::Rx,
                _ => Direction::Both,
            },
        }
    }

    /// Whether the requested process and all its descendants have ended, so that no more packets can follow.
    fn has_ended(&self, kernel: &Kernel) -> Result<bool, Failure> {
        let Some(pid) = self.pid.filter(|pid| self.program.is_empty() && !processes::lives(*pid)) else {
            return Ok(false);
        };
        let ended = !kernel.family().map_err(Failure::new)?.into_iter().any(processes::lives);
        if ended {
            output::note(format_args!("process {pid} and its children have ended"));
        }
        Ok(ended)
    }

    /// Starts the command, if any, so that its packets are traced from its first instruction on.
    fn start(&self, kernel: &mut Kernel) -> Result<Option<(Child, Guardian)>, Failure> {
        let Some((name, arguments)) = self.program.split_first() else { return Ok(None) };
        let failed = |cause| Failure::new(format!("cannot run '{}': {cause}", name.to_string_lossy()));
        let mut command = Command::new(child_processes::find(name).map_err(failed)?);
        command.args(arguments);
        let guardian = Guardian::start().map_err(failed)?;
        let mut command = guardian.ending_with_us(&command).map_err(failed)?;
        if self.json {
            let stderr = io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(stderr.map_err(waiting)?));
        }
        let own = std::process::id();
        kernel.adopt(own).map_err(Failure::new)?;
        let child = command.spawn();
        kernel.disown(own).map_err(Failure::new)?;
        let child = child.map_err(failed)?;
        kernel.adopt(child.id()).map_err(Failure::new)?;
        Ok(Some((child, guardian)))
    }

    /// Counts a packet, and prints it with `--each`. Returns false if stdout is closed.
    fn take(&self, record: &Record, book: &mut SliceBook, items: Option<&mut ItemPrinter>) -> Result<bool, Failure> {
        book.add(record);
        let Some(items) = items else { return Ok(true) };
        Ok(items.print(match self.each.as_deref() {
            Some("lines") => slice::line(record, book.costs()) + "\n",
            Some("waterfall") => {
                let head = slice::line(record, book.costs());
                let head = head.split_once(" B:").map_or("", |(head, _)| head);
                format!("{head} B\n{}\n", slice::waterfall(record, book.costs()))
            }
            _ => serde_json::to_string(record).map_err(Failure::new)? + "\n",
        }))
    }

    /// The printer of `--each`.
    fn items(&self, waits: bool) -> Result<Option<ItemPrinter>, Failure> {
        self.each.is_some().then(|| ItemPrinter::start(waits)).transpose()
    }

    fn report(
        &self,
        book: &SliceBook,
        set: ProbeSet,
        status: Option<ExitStatus>,
        page: Option<(PageFolder, Vec<Record>)>,
    ) -> Result<ExitCode, Failure> {
        let code = status.map(|status| status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(128));
        let report = SlicesReport::new(book, set, code);
        let json = serde_json::to_string(&report).map_err(Failure::new)? + "\n";
        if let Some((mut folder, first)) = page {
            let shown = report.page(typical(&first, book));
            folder.write_slices("slice kernel", &shown, json.clone())?;
        }
        if self.json {
            report_printer::print(&json)?;
        } else if !self.quiet {
            report_printer::print(&report.text(book, self.raw))?;
        }
        match code.filter(|code| *code != 0) {
            Some(code) => {
                output::note(format!("the command ended with status {code}"));
                Ok(ExitCode::from(Failure::MISSED))
            }
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn waiting(cause: io::Error) -> Failure {
    Failure::new(format!("cannot wait for the command: {cause}"))
}

/// Ends the command and its descendants: with SIGTERM, then with SIGKILL.
fn end_program(program: &mut Child) -> Result<(), Failure> {
    let all = Process::tree(program.id());
    all.iter().for_each(|process| process.signal(Signal::SIGTERM));
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if program.try_wait().map_err(waiting)?.is_some() && !all.iter().any(Process::lives) {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    all.iter().for_each(|process| process.signal(Signal::SIGKILL));
    program.wait().map(drop).map_err(waiting)
}

/// The typical packet is chosen among this number of first packets.
const FIRST: usize = 1_000;

fn keep(first: &mut Vec<Record>, record: &Record) {
    if first.len() < FIRST && record.matched() {
        first.push(record.clone());
    }
}

/// The packet whose total is closest to the median: its description and its slices.
fn typical(records: &[Record], book: &SliceBook) -> Option<(String, Vec<(&'static str, f64)>)> {
    let median = book.total().p50_ns;
    let off = |record: &Record| {
        let whole: f64 = slice::path_parts(record, book.costs()).iter().map(|(_, ns)| ns).sum();
        (whole - median).abs()
    };
    let record = records.iter().min_by(|a, b| off(a).total_cmp(&off(b)))?;
    let line = slice::line(record, book.costs());
    let what = line.split_once(" B:").map_or("", |(what, _)| what);
    Some((format!("{what} B"), slice::path_parts(record, book.costs())))
}

/// Closes the file of records.
fn end_journal(journal: JournalWriter<Lines>) -> Result<(), Failure> {
    let mut file = journal.finish().map_err(Failure::new)?;
    let missed = file.finish().map_err(Failure::new)?;
    output::warn_of_lacks(file.path(), missed, "line");
    Ok(())
}

/// The destinations of records.
struct RecordOutput<'a> {
    asked: &'a KernelSlices,
    book: SliceBook,
    items: Option<ItemPrinter>,
    journal: Option<JournalWriter<Lines>>,
    left: u64,
    failure: Option<Failure>,
    first: Vec<Record>,
}

impl RecordOutput<'_> {
    fn wants_more(&self) -> bool {
        self.left > 0 && self.failure.is_none()
    }

    /// Processes records until the time limit, the packet count or the end of the command is reached, or a signal
    /// arrives. Returns the command's status, if it has ended.
    fn watch(
        &mut self,
        kernel: &mut Kernel,
        mut turns: Option<&mut Turns>,
        mut program: Option<&mut Child>,
        begun: Instant,
        stop: &Stop,
    ) -> Result<Option<ExitStatus>, Failure> {
        let end = self.asked.duration.map(|duration| begun + duration.to_std());
        let mut looked = begun;
        // The command and --each write to the same terminal.
        let alone = self.asked.program.is_empty() && self.asked.each.is_none();
        let mut progress = Progress::new(alone && !self.asked.quiet, ["slice kernel"]);
        while !stop.asked() && end.is_none_or(|end| Instant::now() < end) && self.wants_more() {
            if let Some(program) = &mut program
                && let Some(status) = program.try_wait().map_err(waiting)?
            {
                return Ok(Some(status));
            }
            if looked.elapsed() >= LOOK_FOR_PID {
                looked = Instant::now();
                if self.asked.has_ended(kernel)? {
                    break;
                }
            }
            let next = turns.as_ref().map_or(LOOK, |turns| turns.next().saturating_duration_since(Instant::now()));
            thread::sleep(next.min(LOOK));
            self.look(kernel)?;
            if progress.is_due() {
                let packets = self.book.packets();
                progress.say(
                    0,
                    format!(
                        "{} s  {} packets seen, {} matched, {} lost",
                        progress.passed().as_secs(),
                        thousands(packets.seen),
                        thousands(packets.matched),
                        thousands(packets.lost)
                    ),
                );
            }
            if let Some(turns) = turns.as_mut().filter(|turns| turns.next() <= Instant::now()) {
                self.turn(kernel, turns)?;
            }
        }
        Ok(None)
    }

    /// Processes the pending records at the current pace of the probes, if enough probes ran to measure it.
    fn look(&mut self, kernel: &mut Kernel) -> Result<(), Failure> {
        if let Some(pace) = kernel.pace(self.book.calibrated()).map_err(Failure::new)? {
            self.book.at_pace(pace);
            self.note(|journal| journal.pace(pace));
        }
        kernel.records(Some(LOOK), |record| self.take(&record));
        self.note(JournalWriter::flush);
        Ok(())
    }

    /// Attaches or detaches the probes.
    fn turn(&mut self, kernel: &mut Kernel, turns: &mut Turns) -> Result<(), Failure> {
        match turns.turn(kernel).map_err(Failure::new)? {
            Turn::Opened => {
                self.book.window();
                self.note(|journal| journal.window(turns.opened()));
            }
            Turn::Closed => {}
            Turn::Rested(given_up) => {
                self.look(kernel)?;
                self.lost(given_up, 0);
            }
        }
        Ok(())
    }

    /// Counts frames without a record.
    fn lost(&mut self, unfinished: u64, evicted: u64) {
        self.book.given_up(unfinished);
        self.book.lost_records(evicted);
        if unfinished + evicted > 0 {
            self.note(|journal| journal.lost(unfinished, evicted));
        }
    }

    /// Writes to the file, if there is one, until an error occurs.
    fn note(&mut self, write: impl FnOnce(&mut JournalWriter<Lines>) -> Result<(), slice::Error>) {
        if let Some(cause) = self.journal.as_mut().and_then(|journal| write(journal).err()) {
            self.journal = None;
            self.failure = Some(Failure::new(cause));
        }
    }

    fn take(&mut self, record: &Record) {
        if !self.wants_more() {
            return;
        }
        self.left = self.left.saturating_sub(record.packets.into());
        if self.asked.folder.is_some() {
            keep(&mut self.first, record);
        }
        self.note(|journal| journal.write(record));
        match self.asked.take(record, &mut self.book, self.items.as_mut()) {
            Ok(true) => {}
            Ok(false) => self.left = 0,
            Err(failure) => self.failure = Some(failure),
        }
    }
}
