//! Measures the cost of the probes on this machine by running the same work with and without them.
//!
//! The work is one message each way between two processes on one CPU, over TCP and loopback. The processes switch at
//! each message, as real programs do, so the probes find equally cold caches. With both ends in one thread, a probe
//! would cost less than in real use. With two threads of one process, which share address translations, the cost would
//! differ too. The results are medians of thousands of rounds in alternating turns, so that interruptions have little
//! effect.

use crate::costs::{Costs, EventCost, ProbeCost};
use crate::error::{self, Error};
use crate::events::Event;
use crate::formulas::Overhead;
use crate::kernel::{Counters, Kernel, Points};
use crate::record::Probe;
use crate::settings::Filter;
use nix::sched::CpuSet;
use nix::unistd::Pid;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Round trips per turn, and the number of turns. Turns are short, so that a turn with probes and the neighbouring turn
/// without them run under the same conditions.
const ROUNDS: usize = 250;
const TURNS: usize = 45;
/// On a busy machine there are fewer turns.
const ENOUGH: Duration = Duration::from_millis(1_500);
const FEWEST: usize = 5;
/// Two turns without probes whose rounds differ by less than this share ran at the same pace.
const CALM: f64 = 0.05;
/// Interval over which CPU load is compared: several clock ticks.
const MOMENT: Duration = Duration::from_millis(150);
/// Limit on the time of a message over loopback.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames and system calls of one round.
const FRAMES: f64 = 2.0;
const CALLS: f64 = 4.0;

/// Clock ticks that each CPU has spent so far: CPU, busy ticks, idle ticks.
fn spent() -> io::Result<Vec<(usize, u64, u64)>> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let of_cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        // User, nice, system; then idle and waiting for I/O.
        Some((cpu, ticks.get(..3)?.iter().sum(), ticks.get(3..5)?.iter().sum()))
    };
    Ok(text.lines().filter_map(of_cpu).collect())
}

/// The least loaded CPU that this thread may use. Other work on that CPU would count as cost of the probes.
fn idlest() -> io::Result<usize> {
    let here = nix::sched::sched_getcpu()?;
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
    let before = spent()?;
    thread::sleep(MOMENT);
    let idle =
        spent()?.into_iter().zip(before).map(|((cpu, _, after), (_, _, before))| (cpu, after.saturating_sub(before)));
    let allowed = idle.filter(|(cpu, _)| allowed.is_set(*cpu).unwrap_or(false));
    // Of several equally idle CPUs, the present one, whose caches are warm.
    Ok(allowed.max_by_key(|(cpu, idle)| (*idle, *cpu == here)).map_or(here, |(cpu, _)| cpu))
}

/// Two ends of a connection. Their processes share a CPU.
struct Bench {
    near: TcpStream,
    /// Echoes what it receives, until the near end is closed.
    echo: Child,
    cpu: u32,
}

impl Bench {
    fn open() -> io::Result<Bench> {
        let cpu = idlest()?;
        let mut here = CpuSet::new();
        here.set(cpu)?;
        // A process that this thread starts inherits the affinity.
        nix::sched::sched_setaffinity(Pid::from_raw(0), &here)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Loopback may be filtered, or its softirq late. Then return an error and never block.
        let near = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
        let (far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            end.set_read_timeout(Some(PATIENCE))?;
        }
        let back = OwnedFd::from(far.try_clone()?);
        let echo = Command::new("cat").stdin(OwnedFd::from(far)).stdout(back).stderr(Stdio::null()).spawn();
        let echo = echo.map_err(|cause| match cause.raw_os_error() {
            Some(libc::EMFILE) => cause,
            _ => io::Error::new(cause.kind(), format!("cat: {cause}")),
        })?;
        Ok(Bench { near, echo, cpu: u32::try_from(cpu).map_err(io::Error::other)? })
    }

    fn round(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4];
        self.near.write_all(&buffer)?;
        self.near.read_exact(&mut buffer)
    }

    /// The median time of a round, in ns.
    fn rounds(&mut self) -> io::Result<f64> {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = Instant::now();
            self.round()?;
            times.push(before.elapsed().as_nanos() as f64);
        }
        Ok(median(&mut times))
    }

    /// The median time of a send call that fails at once, in ns. Each sample is eight calls; otherwise the clock would
    /// be half of it.
    fn calls() -> f64 {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = Instant::now();
            for _ in 0..8 {
                // The socket does not exist, so the call returns an error.
                let _no_socket = nix::sys::socket::send(-1, &[], nix::sys::socket::MsgFlags::empty());
            }
            times.push(before.elapsed().as_nanos() as f64 / 8.0);
        }
        median(&mut times)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Both may have ended already.
        let _closed = self.near.shutdown(Shutdown::Both);
        let _ended = self.echo.kill().and_then(|()| self.echo.wait());
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Attaches the probes and measures their cost, by the same work with and without them. The probes evaluate the
/// conditions of `filter` for each packet, because that takes time too.
///
/// # Errors
/// As [`Kernel::attach`], no usable loopback, or `stopped` returned true.
pub fn calibrate(
    buffer: u32,
    points: Points,
    events: &[Event],
    filter: &Filter,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(Kernel, Costs), Error> {
    // Runs on a separate thread, because it may need its own network namespace.
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || {
            let mut bench = bench()?;
            let kernel = Kernel::attach(buffer, points, events, stopped)?;
            measure(&mut bench, kernel, filter, stopped)
        });
        let thread = started.map_err(failed("starting the thread of the calibration"))?;
        thread.join().unwrap_or_else(|_| Err(failed("the thread of the calibration")(io::Error::other("it panicked"))))
    })
}

/// A bench on loopback. If loopback is unusable, the bench runs in a new network namespace.
fn bench() -> Result<Bench, Error> {
    match Bench::open() {
        Ok(bench) => Ok(bench),
        Err(first) => {
            let alone = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
            let up = alone.and_then(|()| {
                Command::new("ip").args(["link", "set", "lo", "up"]).stdin(Stdio::null()).status().map(drop)
            });
            up.and_then(|()| Bench::open()).map_err(|_| failed("TCP over 127.0.0.1")(first))
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |cause| error::calibration(what, cause)
}

/// One turn: without probes, with probes, and with probes that hand over their records.
struct Turn {
    /// Medians in ns of a round and of a call that does nothing, and the counts of the events per round.
    off: (f64, f64),
    mute: (f64, f64),
    loud: f64,
    counted: [Vec<f64>; 3],
    /// Counters of the probes in the rounds and the calls of the second part.
    rounds: Counters,
    calls: Counters,
}

/// Load of other programs on the CPU of the calibration.
struct Others {
    cpu: usize,
    echo: Pid,
    begun: Instant,
    own: Duration,
    all: u64,
}

impl Others {
    fn than(bench: &Bench) -> io::Result<Others> {
        let cpu = bench.cpu as usize;
        let echo = Pid::from_raw(i32::try_from(bench.echo.id()).map_err(io::Error::other)?);
        Ok(Others { cpu, echo, begun: Instant::now(), own: Others::own(echo)?, all: Others::all(cpu)? })
    }

    /// CPU time of this process and of the echo.
    fn own(echo: Pid) -> io::Result<Duration> {
        let here = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        let there = nix::time::clock_gettime(nix::time::clock_getcpuclockid(echo)?)?;
        Ok(Duration::from(here) + Duration::from(there))
    }

    /// Busy clock ticks of a CPU.
    fn all(cpu: usize) -> io::Result<u64> {
        Ok(spent()?.into_iter().find(|(number, ..)| *number == cpu).map_or(0, |(_, ticks, _)| ticks))
    }

    /// The share of the elapsed time that the CPU spent on other programs.
    fn share(&self) -> io::Result<f64> {
        let ticks_a_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100);
        let all = (Others::all(self.cpu)? - self.all) as f64 / ticks_a_second as f64;
        let own = Others::own(self.echo)?.saturating_sub(self.own).as_secs_f64();
        Ok(((all - own) / self.begun.elapsed().as_secs_f64()).clamp(0.0, 1.0))
    }
}

fn measure(
    bench: &mut Bench,
    mut kernel: Kernel,
    filter: &Filter,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(Kernel, Costs), Error> {
    let failed = failed("TCP over 127.0.0.1");
    let cpu = bench.cpu;
    let turn = |bench: &mut Bench, kernel: &mut Kernel| {
        if stopped() {
            return Err(Error::Stopped);
        }
        let before = kernel.counted_on(cpu)?;
        let ns = bench.rounds().map_err(&failed)?;
        let after = kernel.counted_on(cpu)?;
        let each = before.iter().zip(after).map(|(before, after)| (after - before) as f64 / ROUNDS as f64);
        Ok((ns, each.collect::<Vec<f64>>()))
    };
    kernel.calibrate_as(filter)?;
    kernel.adopt(bench.echo.id())?;
    turn(bench, &mut kernel)?; // warm-up
    let others = Others::than(bench).map_err(&failed)?;
    let mut turns: Vec<Turn> = Vec::new();
    let begun = Instant::now();
    let enough = |turns: usize| turns >= FEWEST && (turns >= TURNS || begun.elapsed() >= ENOUGH);
    while !enough(turns.len()) {
        kernel.rest()?;
        let ((off, counts_off), call_off) = (turn(bench, &mut kernel)?, Bench::calls());
        kernel.resume()?;
        kernel.calibrating(true)?;
        let before = kernel.counters_on(cpu)?;
        let (mute, counts_mute) = turn(bench, &mut kernel)?;
        let between = kernel.counters_on(cpu)?;
        let call_on = Bench::calls();
        let calls = kernel.counters_on(cpu)?.since(&between);
        kernel.calibrating(false)?;
        let (loud, counts_loud) = turn(bench, &mut kernel)?;
        kernel.records(None, drop);
        turns.push(Turn {
            off: (off, call_off),
            mute: (mute, call_on),
            loud,
            counted: [counts_off, counts_mute, counts_loud],
            rounds: between.since(&before),
            calls,
        });
    }
    kernel.rest()?;
    let last = (turn(bench, &mut kernel)?.0, Bench::calls());
    kernel.resume()?;
    kernel.calibrating(true)?;
    kernel.disown(std::process::id())?;
    kernel.disown(bench.echo.id())?;
    let mut costs = conclude(&turns, last);
    costs.others = others.share().map_err(&failed)?;
    let programs = costs.probes.values().map(|probe| probe.per_packet * FRAMES).sum::<f64>().max(1.0);
    let names = kernel.events().events().iter().map(Event::name);
    let counted = names.enumerate().map(|(event, name)| {
        let added = |to: usize, from: usize| {
            median(
                &mut turns.iter().map(|turn| turn.counted[to][event] - turn.counted[from][event]).collect::<Vec<_>>(),
            )
        };
        let inside = (added(1, 0) / programs).max(0.0);
        let gamma = (added(2, 1) / FRAMES).max(0.0);
        EventCost { event: name.to_owned(), beta: 2.0 * inside, inside, gamma }
    });
    costs.events = counted.collect();
    Ok((kernel, costs))
}

/// Computes the costs from the turns and `last`, a round and a call without probes after the last turn. A host may slow
/// down a virtual machine, and the probes in it, by a quarter for a second. So a turn counts only if the rounds without
/// probes before and after it agree. The run times of the probes then scale it to the median pace of all turns.
fn conclude(turns: &[Turn], last: (f64, f64)) -> Costs {
    let off = |n: usize| turns.get(n).map_or(last, |turn| turn.off);
    let calm = |n: &usize| (off(*n).0 / off(n + 1).0 - 1.0).abs() < CALM;
    let calm: Vec<usize> = (0..turns.len()).filter(calm).collect();
    let counting = if calm.is_empty() { (0..turns.len()).collect() } else { calm };
    // At pace 1 a probe would take a nanosecond.
    let unit = Costs {
        probes: Probe::ALL.iter().map(|&probe| (probe, ProbeCost { body_ns: 1.0, per_packet: 1.0 })).collect(),
        ..Costs::default()
    };
    let paces: Vec<f64> = counting.iter().map(|&n| unit.pace(&turns[n].rounds).unwrap_or(f64::NAN)).collect();
    let known: Vec<f64> = paces.iter().copied().filter(|pace| pace.is_finite()).collect();
    let usual = if known.is_empty() { 1.0 } else { median(&mut known.clone()) };
    // An unknown pace counts as the median.
    let pace = |n: usize| if paces[n].is_finite() { paces[n] / usual } else { 1.0 };
    let of = |figure: &dyn Fn(usize) -> f64| {
        median(&mut counting.iter().enumerate().map(|(k, &n)| figure(n) / pace(k)).collect::<Vec<f64>>())
    };
    let added = Added {
        round: of(&|n| turns[n].mute.0 - (off(n).0 + off(n + 1).0) / 2.0),
        exit: of(&|n| turns[n].loud - turns[n].mute.0),
        call: of(&|n| turns[n].mute.1 - (off(n).1 + off(n + 1).1) / 2.0),
    };
    let at_usual = |counters: &Counters, k: usize| {
        let spent = counters.spent.map(|ns| (ns as f64 / pace(k)).round() as u64);
        Counters { spent, ..counters.clone() }
    };
    let rounds: Vec<Counters> = counting.iter().enumerate().map(|(k, &n)| at_usual(&turns[n].rounds, k)).collect();
    let calls: Vec<Counters> = counting.iter().enumerate().map(|(k, &n)| at_usual(&turns[n].calls, k)).collect();
    costs(&added, &rounds, &calls)
}

/// Time that the probes add, medians in ns.
struct Added {
    /// Per round, without handing over records.
    round: f64,
    /// In addition per round, if the two frames are handed over.
    exit: f64,
    /// Per system call that does nothing.
    call: f64,
}

/// Splits the measured time into the cost of each part. `rounds` and `calls` are the counters of the turns.
fn costs(added: &Added, rounds: &[Counters], calls: &[Counters]) -> Costs {
    // Medians of the turns: an interrupt during a probe does not count as its cost.
    let body = |turns: &[Counters], probe: Probe| {
        let of = |turn: &Counters| {
            let timed = turn.timed[probe as usize];
            (timed > 0).then(|| turn.spent[probe as usize] as f64 / timed as f64)
        };
        let mut bodies: Vec<f64> = turns.iter().filter_map(of).collect();
        if bodies.is_empty() { 0.0 } else { median(&mut bodies) }
    };
    let per_round = |probe: Probe| {
        let mut hits: Vec<f64> = rounds.iter().map(|turn| turn.hits_of(probe) as f64 / ROUNDS as f64).collect();
        median(&mut hits)
    };
    let mut probes = std::collections::BTreeMap::new();
    for &probe in Probe::ALL {
        if body(rounds, probe) > 0.0 {
            probes.insert(probe, ProbeCost { body_ns: body(rounds, probe), per_packet: per_round(probe) / FRAMES });
        }
    }
    let call_bodies = body(calls, Probe::SysEnter) + body(calls, Probe::SysExit);
    // If no call is traced, the difference is noise.
    let call_way = if call_bodies > 0.0 { ((added.call - call_bodies) / 2.0).max(0.0) } else { 0.0 };
    // The network probes of one round: their number and run time. The rest of the difference is the cost of entry and
    // exit.
    let network = |probe: &&Probe| !matches!(**probe, Probe::SysEnter | Probe::SysExit | Probe::Fork);
    // Excludes runs for frames of other programs, which take only idle time.
    let count = |probe: Probe| per_round(probe).round().min(CALLS);
    let hits: f64 = Probe::ALL.iter().filter(network).map(|p| count(*p)).sum();
    let bodies: f64 = Probe::ALL.iter().filter(network).map(|p| count(*p) * body(rounds, *p)).sum();
    let in_calls = CALLS * (body(rounds, Probe::SysEnter) + body(rounds, Probe::SysExit) + 2.0 * call_way);
    let way = if hits > 0.0 { ((added.round - in_calls - bodies) / hits).max(0.0) } else { 0.0 };
    // A probe that only stamps. With few points, this is the one at the receive path.
    let plain = [Probe::Transmit, Probe::Receive].map(|probe| body(rounds, probe)).into_iter().find(|ns| *ns > 0.0);
    let plain = plain.unwrap_or(0.0);
    let stamp = plain + way;
    Costs {
        overhead: Overhead {
            alpha: (body(rounds, Probe::Queue) - plain).max(0.0),
            // One stamp ends a slice and starts the next. A pair is two stamps, and one of them lies inside.
            beta: 2.0 * stamp,
            inside: stamp,
            gamma: (added.exit / FRAMES).max(0.0),
        },
        way_ns: way,
        call_way_ns: call_way,
        probes,
        events: Vec::new(),
        others: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records `per_round` runs of a probe. Every fifth run was timed.
    fn set(counters: &mut Counters, probe: Probe, per_round: u64, body: u64) {
        let hits = per_round * ROUNDS as u64;
        counters.hits[probe as usize] = hits;
        counters.timed[probe as usize] = hits / 5;
        counters.spent[probe as usize] = hits / 5 * body;
    }

    #[test]
    fn a_cpu_with_nothing_else_to_do_is_taken() {
        let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("a set");
        let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
        let [busy, _, ..] = cpus[..] else { return println!("SKIP: one CPU, no choice") };
        let idle_elsewhere =
            || spent().expect("/proc/stat").iter().filter(|(cpu, ..)| *cpu != busy).map(|cpu| cpu.2).sum::<u64>();
        let before = idle_elsewhere();
        let done = std::sync::atomic::AtomicBool::new(false);
        let another = thread::scope(|scope| {
            scope.spawn(|| {
                let mut set = CpuSet::new();
                set.set(busy).expect("a CPU of the set");
                nix::sched::sched_setaffinity(Pid::from_raw(0), &set).expect("it is allowed");
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            // The other CPUs may be busy at times, too.
            let another = (0..30).any(|_| idlest().expect("/proc/stat") != busy);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            another
        });
        if !another && idle_elsewhere() - before < 10 {
            return println!("SKIP: every CPU is busy");
        }
        assert!(another, "CPU {busy} has no time");
    }

    /// Turns at two paces, and one turn in which the pace changed, give the same result as one turn at the usual pace.
    #[test]
    fn results_do_not_depend_on_the_pace_of_the_machine() {
        let turn = |off: u64, mute: u64, body: u64| {
            let (mut rounds, mut calls) = (Counters::default(), Counters::default());
            for probe in [Probe::Queue, Probe::Transmit, Probe::Copy] {
                set(&mut rounds, probe, 2, body);
            }
            set(&mut calls, Probe::SysEnter, 8, body);
            let (off, mute) = (off as f64, mute as f64);
            Turn {
                off: (off, 100.0),
                mute: (mute, 100.0),
                loud: mute + 2.0 * body as f64,
                counted: [Vec::new(), Vec::new(), Vec::new()],
                rounds,
                calls,
            }
        };
        // With probes of 40 ns, a round of 10 000 ns takes 1 000 ns longer. On a slow machine, everything takes half as
        // long again.
        let (usual, slow) = (turn(10_000, 11_000, 40), turn(15_000, 16_500, 60));
        let one = conclude(std::slice::from_ref(&usual), (10_000.0, 100.0));
        let changed = turn(10_000, 16_500, 60);
        let turns =
            [usual, turn(10_000, 11_000, 40), turn(10_000, 11_000, 40), changed, slow, turn(15_000, 16_500, 60)];
        let all = conclude(&turns, (15_000.0, 100.0));
        for probe in [Probe::Queue, Probe::Copy] {
            assert!((all.probe(probe) / one.probe(probe) - 1.0).abs() < 1e-3, "{all:?} {one:?}");
        }
        assert!((one.overhead.gamma - 40.0).abs() < 1e-9 && (all.overhead.gamma - 40.0).abs() < 0.1, "{all:?}");
        assert!((one.pace(&turns[4].rounds).expect("enough runs") - 1.5).abs() < 1e-9, "what it is in the slow turn");
        assert!((one.at_pace(1.5).probe(Probe::Copy) / one.probe(Probe::Copy) - 1.5).abs() < 1e-9);
        assert!(one.pace(&Counters::default()).is_none());
    }

    /// Recovers the costs of a simulated machine.
    #[test]
    fn known_costs_come_out() {
        let mut rounds = Counters::default();
        let mut calls = Counters::default();
        let (way, call_way, gamma) = (15.0, 40.0, 180.0);
        for (probe, body) in [(Probe::Queue, 120), (Probe::Transmit, 30), (Probe::NetifRx, 35), (Probe::Copy, 60)] {
            set(&mut rounds, probe, 2, body);
        }
        for (probe, body) in [(Probe::SysEnter, 25), (Probe::SysExit, 50)] {
            set(&mut rounds, probe, 4, body);
            set(&mut calls, probe, 8, body);
        }
        let on_calls = 4.0 * (25.0 + 50.0 + 2.0 * call_way);
        let on_network = 2.0 * f64::from(120 + 30 + 35 + 60) + 8.0 * way;
        let added = Added { round: on_calls + on_network, exit: 2.0 * gamma, call: 75.0 + 2.0 * call_way };
        let costs = costs(&added, &[rounds], &[calls]);
        assert!((costs.way_ns - way).abs() < 1e-6, "{costs:?}");
        assert!((costs.call_way_ns - call_way).abs() < 1e-6);
        assert!((costs.overhead.gamma - gamma).abs() < 1e-6);
        assert!((costs.overhead.alpha - 90.0).abs() < 1e-6);
        assert!((costs.overhead.beta - 2.0 * 45.0).abs() < 1e-6);
        assert!((costs.probe(Probe::Copy) - 75.0).abs() < 1e-6);
    }
}
