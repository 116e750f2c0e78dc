use crate::options::slice::Attach;
use crate::output::{self, Failure, thousands};
use crate::render::progress::Progress;
use crate::render::report_printer::{self, ItemPrinter};
use crate::run::stop::Stop;
use measure::Report;
use serde::Serialize;
use slice::{ProgramBook, ProgramReport};
use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between reads of the ring.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait at the end for blocks that are being written.
const LAST_BLOCKS: Duration = Duration::from_millis(500);
/// Time over which the rate of the time-stamp counter is measured. The result is exact to some ppm.
const CLOCK: Duration = Duration::from_millis(100);

/// The object of `--json`. Scripts depend on its names.
#[derive(Serialize)]
struct AttachReport {
    schema: u32,
    command: &'static str,
    #[serde(flatten)]
    program: ProgramReport,
}

/// A copy of the header of a ring, which cannot be read once the file is truncated.
struct RingHeader {
    costs: probe::Costs,
    dropped: u64,
    names: Vec<Option<String>>,
}

impl RingHeader {
    fn of(reader: &probe::Reader) -> std::io::Result<RingHeader> {
        let names = (0..=u8::MAX).take(probe::layout::IDS).map(|id| reader.name(id)).collect();
        let head = RingHeader { costs: reader.costs(), dropped: reader.dropped(), names };
        reader.check_length().map(|()| head)
    }
}

/// Measures the nanoseconds per tick. An interruption between two readings would falsify the rate, so the tightest pair
/// is used.
fn ns_per_tick() -> f64 {
    let moment = || {
        (0..32)
            .map(|_| {
                let before = probe::ticks();
                let now = Instant::now();
                let after = probe::ticks();
                (after - before, before + (after - before) / 2, now)
            })
            .min_by_key(|(width, ..)| *width)
            .expect("there are 32")
    };
    let (_, first, begun) = moment();
    thread::sleep(CLOCK);
    let (_, last, ended) = moment();
    (ended - begun).as_nanos() as f64 / (last - first) as f64
}

/// The blocks read from a ring so far.
struct RingContents {
    head: RingHeader,
    book: Option<ProgramBook>,
}

impl Attach {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let stop = Stop::on_signals()?;
        let open = |path: &Path| match self.buffer {
            Some(bytes) => probe::Reader::open_or_create(path, bytes as usize),
            None => probe::Reader::open(path),
        };
        let starting = Progress::starting(!self.quiet, "slice attach");
        let mut reader = open(&self.ring).map_err(|cause| self.problem(&cause))?;
        if let Some(bytes) = self.buffer
            && probe::layout::slots(bytes as usize) != reader.slots()
        {
            let blocks = thousands(reader.slots());
            output::warn(format!(
                "the ring already exists, with room for {blocks} blocks: --buffer does not change it"
            ));
        }
        let ns_per_tick = ns_per_tick();
        let head = RingHeader::of(&reader).map_err(|cause| self.problem(&cause))?;
        let mut gathered = RingContents { head, book: None };
        drop(starting);
        let mut items = self.each.is_some().then(|| ItemPrinter::start(false)).transpose()?;
        let ended = self.gather(&mut reader, ns_per_tick, &stop, &mut gathered, items.as_mut());
        let printed = items.map_or(Ok(()), ItemPrinter::finish);
        if reader.is_removed() {
            let ring = self.ring.display();
            output::warn(format!(
                "{ring} was removed while it was read: programs started since then use a new ring and are not included; attach again for them"
            ));
        }
        if reader.is_damaged() {
            output::note(format!(
                "{}: its counts of written and read blocks contradict each other: it is damaged, or another program writes to it; \
                 blocks are missing: remove it, and start the program again",
                self.ring.display()
            ));
        }
        let RingContents { head, book } = gathered;
        let mut book = book.unwrap_or_else(|| ProgramBook::new(head.costs, ns_per_tick));
        book.lost(reader.lost());
        let program = book.report(head.dropped, |id| head.names.get(usize::from(id)).cloned().flatten());
        if self.json {
            let report = AttachReport { schema: Report::SCHEMA, command: "slice attach", program };
            report_printer::print(&(serde_json::to_string(&report).map_err(Failure::new)? + "\n"))?;
        } else if !self.quiet {
            report_printer::print(&slice::program_text(&program, self.raw))?;
        }
        ended.and(printed).map(|()| ExitCode::SUCCESS)
    }

    /// Reads blocks until the time or the count is reached, or a signal arrives. If the ring file is truncated
    /// meanwhile, keeps the blocks read before.
    fn gather(
        &self,
        reader: &mut probe::Reader,
        ns_per_tick: f64,
        stop: &Stop,
        gathered: &mut RingContents,
        mut items: Option<&mut ItemPrinter>,
    ) -> Result<(), Failure> {
        let RingContents { head, book } = gathered;
        reader.forget();
        reader.enable(true);
        let end = self.duration.map(|duration| Instant::now() + duration.to_std());
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut ending: Option<Instant> = None;
        let mut progress = Progress::new(!self.quiet && self.each.is_none(), ["slice attach"]);
        loop {
            let last = stop.asked() || end.is_some_and(|end| Instant::now() >= end);
            reader.enable(!last);
            if let Some(book) = book {
                book.learn(self.costs(reader)?);
            }
            // At most one ring's content per round: a program may write faster than this can print.
            for _ in 0..reader.slots().min(left) {
                let Some(block) = reader.next_block() else { break };
                let book = match book {
                    Some(book) => book,
                    // A program that starts later has measured its costs before its first block. It refines them while
                    // it runs.
                    None => book.insert(ProgramBook::new(self.costs(reader)?, ns_per_tick)),
                };
                book.lost(reader.lost());
                book.add(&block);
                left -= 1;
                if let Some(items) = items.as_mut()
                    && !items.print(book.line(&block, |id| reader.name(id)) + "\n")
                {
                    // Stdout is closed.
                    left = 0;
                }
            }
            if progress.is_due() {
                let blocks = thousands(self.count.unwrap_or(u64::MAX) - left);
                progress.say(0, format!("{} s  {blocks} blocks read", progress.passed().as_secs()));
            }
            *head = RingHeader::of(reader).map_err(|cause| self.problem(&cause))?;
            // Waits for blocks that were being written at the end, up to a limit.
            let given_up = last && ending.get_or_insert_with(Instant::now).elapsed() >= LAST_BLOCKS;
            if given_up {
                reader.discard_unfinished();
            }
            if left == 0 || given_up || (last && !reader.waits()) {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
    }

    fn costs(&self, reader: &probe::Reader) -> Result<probe::Costs, Failure> {
        let costs = reader.costs();
        reader.check_length().map_err(|cause| self.problem(&cause))?;
        Ok(costs)
    }

    fn problem(&self, cause: &std::io::Error) -> Failure {
        let hint = match cause.kind() {
            ErrorKind::NotFound => ": start the program first, or create the ring with --buffer 16MiB",
            ErrorKind::PermissionDenied => ": run it as the user of the program, or as root",
            _ => "",
        };
        Failure::new(format!("{}: {cause}{hint}", self.ring.display()))
    }
}
