//! Compares the corrected round time of a ping-pong program with its round time without slices. Alternates a few
//! hundred rounds without slices and as many with slices, because the machine's pace changes. Prints a line of JSON for
//! each size and policy. `bench/slices.py` calls it.
//!
//! Each size runs under the scheduler's default policy and as batch programs. Under the default policy, whether an
//! arriving message preempts its sender depends on which end has run longer so far, and probes add to that time. With
//! slices the program may then be scheduled differently, which no correction of times can undo. Batch programs take
//! turns.
//!
//! loops kernel|few|probes PING_PONG SECONDS SIZE...

use probe::Reader;
use slice::{Filter, Points, ProgramBook, SliceBook};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Rounds of one turn.
const ROUNDS: u64 = 400;
const BUFFER: u32 = 16 << 20;

/// Scheduling policies, by their names in chrt: the default, and one without preemption on wake-up.
const POLICIES: [&str; 2] = ["other", "batch"];

/// The ping-pong program, with both ends on one CPU.
struct Program {
    child: Child,
    ask: ChildStdin,
    answer: BufReader<ChildStdout>,
}

impl Program {
    fn start(tried: &Tried, ring: Option<&Path>) -> Outcome<Program> {
        let Tried { path, policy, size, .. } = *tried;
        let mut command = Command::new("chrt");
        command
            .args([&format!("--{policy}"), "0", path, "tcp", size, "0", "0", "0"])
            .args(ring)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let ask = child.stdin.take().ok_or("it has no stdin")?;
        let answer = BufReader::new(child.stdout.take().ok_or("it has no stdout")?);
        Ok(Program { child, ask, answer })
    }

    /// Runs one turn and returns the median round time in ns.
    fn turn(&mut self) -> Outcome<f64> {
        writeln!(self.ask, "{ROUNDS}")?;
        let mut line = String::new();
        self.answer.read_line(&mut line)?;
        Ok(line.split_whitespace().next().ok_or("the program has ended")?.parse()?)
    }

    fn end(self) -> Outcome<()> {
        let Program { mut child, ask, .. } = self;
        drop(ask);
        child.wait()?;
        Ok(())
    }
}

/// One configuration of the benchmark.
struct Tried<'a> {
    path: &'a str,
    policy: &'a str,
    /// Message size in bytes.
    size: &'a str,
    time: Duration,
}

/// Result of a turn with slices: the median round time in ns by the program's own clock, as stamped, and corrected.
struct Turn {
    own: f64,
    raw: f64,
    corrected: f64,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Alternates turns without and with slices until the time is over, and prints the relative error of the corrected
/// round time against the mean of the two neighbouring turns without slices. If those two differ by more than 5 %, the
/// machine's pace changed: the turn is left out and counted as restless. `without` and `with` each run two turns and
/// return the second, because the first starts with cold caches and perhaps another CPU frequency.
fn compare(
    tried: &Tried,
    mut without: impl FnMut() -> Outcome<f64>,
    mut with: impl FnMut() -> Outcome<Turn>,
) -> Outcome<()> {
    let (mut pairs, mut restless) = (Vec::new(), 0);
    let begun = Instant::now();
    let mut before = without()?;
    while begun.elapsed() < tried.time {
        let turn = with()?;
        let after = without()?;
        if (after / before - 1.0).abs() > 0.05 {
            restless += 1;
        } else {
            pairs.push(((before + after) / 2.0, turn));
        }
        before = after;
    }
    let mut offs: Vec<f64> = pairs.iter().map(|(own, turn)| turn.corrected / own - 1.0).collect();
    offs.sort_by(f64::total_cmp);
    let quantile = |of: f64| offs.get((of * offs.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    let row = serde_json::json!({
        "size": tried.size.parse::<u32>()?,
        "policy": tried.policy,
        "turns": pairs.len(),
        "restless": restless,
        "own_ns": median(pairs.iter().map(|(own, _)| *own)),
        "own_with_ns": median(pairs.iter().map(|(_, turn)| turn.own)),
        "raw_ns": median(pairs.iter().map(|(_, turn)| turn.raw)),
        "corrected_ns": median(pairs.iter().map(|(_, turn)| turn.corrected)),
        "off": quantile(0.5),
        "off_p10": quantile(0.1),
        "off_p90": quantile(0.9),
    });
    println!("{row}");
    Ok(())
}

fn kernel(points: Points, tried: &Tried) -> Outcome<()> {
    let filter = Filter { family: true, ..Filter::default() };
    let (mut kernel, costs) = slice::calibrate(BUFFER, points, &[], &filter, &|| false)?;
    kernel.follow(&filter)?;
    let own = std::process::id();
    kernel.adopt(own)?;
    let mut program = Program::start(tried, None)?;
    kernel.disown(own)?;
    kernel.adopt(program.child.id())?;
    program.turn()?;
    kernel.records(None, drop);
    let shared = std::cell::RefCell::new((kernel, &mut program));
    let without = || {
        let (kernel, program) = &mut *shared.borrow_mut();
        kernel.rest()?;
        program.turn()?;
        program.turn()
    };
    let with = || {
        let (kernel, program) = &mut *shared.borrow_mut();
        kernel.resume()?;
        program.turn()?;
        kernel.records(None, drop);
        kernel.pace(&costs)?;
        let own = program.turn()?;
        let mut book = SliceBook::new(costs.clone());
        if let Some(pace) = kernel.pace(&costs)? {
            book.at_pace(pace);
        }
        kernel.records(None, |record| book.add(&record));
        let rounds = book.rounds().ok_or("no rounds were seen")?;
        Ok(Turn { own, raw: rounds.raw_p50_ns, corrected: rounds.p50_ns })
    };
    compare(tried, without, with)?;
    drop(shared);
    program.end()
}

/// Nanoseconds per tick, measured over 0.1 s.
fn ns_per_tick() -> f64 {
    let (first, begun) = (probe::ticks(), Instant::now());
    thread::sleep(Duration::from_millis(100));
    let (last, took) = (probe::ticks(), begun.elapsed());
    took.as_nanos() as f64 / (last - first) as f64
}

/// A file that is removed on drop.
struct Ring(PathBuf);

impl Drop for Ring {
    fn drop(&mut self) {
        // The file may not exist.
        let _absent = std::fs::remove_file(&self.0);
    }
}

fn probes(tried: &Tried) -> Outcome<()> {
    let ring = Ring(format!("/dev/shm/netlathe-bench-{}", std::process::id()).into());
    let ns_per_tick = ns_per_tick();
    let reader = Reader::open_or_create(&ring.0, BUFFER as usize)?;
    let mut program = Program::start(tried, Some(&ring.0))?;
    program.turn()?;
    let shared = std::cell::RefCell::new((reader, &mut program));
    let without = || {
        let (reader, program) = &mut *shared.borrow_mut();
        reader.enable(false);
        program.turn()?;
        program.turn()
    };
    let with = || {
        let (reader, program) = &mut *shared.borrow_mut();
        reader.enable(true);
        program.turn()?;
        reader.forget();
        let own = program.turn()?;
        let mut book = ProgramBook::new(reader.costs(), ns_per_tick);
        while let Some(block) = reader.next_block() {
            book.add(&block);
        }
        let rounds = book.report(reader.dropped(), |_| None).rounds.ok_or("no rounds were seen")?;
        Ok(Turn { own, raw: rounds.raw_p50_ns, corrected: rounds.p50_ns })
    };
    compare(tried, without, with)?;
    drop(shared);
    program.end()
}

fn main() -> Outcome<()> {
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [what, path, seconds, sizes @ ..] = words.as_slice() else {
        println!("loops kernel|few|probes PING_PONG SECONDS SIZE...: python3 bench/slices.py has them");
        return Ok(());
    };
    let time = Duration::from_secs_f64(seconds.parse()?);
    for (size, policy) in sizes.iter().flat_map(|size| POLICIES.map(|policy| (size, policy))) {
        let tried = Tried { path, policy, size, time };
        match what.as_str() {
            "kernel" => kernel(Points::All, &tried)?,
            "few" => kernel(Points::Few, &tried)?,
            "probes" => probes(&tried)?,
            _ => return Err(format!("'{what}' is none of kernel, few, probes").into()),
        }
    }
    Ok(())
}
