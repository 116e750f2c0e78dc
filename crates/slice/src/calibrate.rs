//! What the probes cost here and now: the same work with and without them.
//!
//! The work is a message there and one back between two processes on one CPU, over TCP and loopback. They switch at each
//! message, as programs do, so that the probes find caches as cold as theirs: with both ends in one thread a probe costs
//! less than it does later, and with two threads of one process, which share what the CPU knows of their memory, another
//! amount. Medians of thousands, in turns, since machines hiccup.

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

/// Messages there and back of one turn, and turns: short ones, so that a turn with the probes and the one without them
/// beside it find the machine in the same mood.
const ROUNDS: usize = 250;
const TURNS: usize = 45;
/// On a machine that has other things to do there are fewer turns.
const ENOUGH: Duration = Duration::from_millis(1_500);
const FEWEST: usize = 5;
/// Rounds without probes that differ by less are of one pace of the machine.
const CALM: f64 = 0.05;
/// Over which CPUs are compared: some clock ticks.
const MOMENT: Duration = Duration::from_millis(150);
/// How long a message over loopback may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames and system calls of one round.
const FRAMES: f64 = 2.0;
const CALLS: f64 = 4.0;

/// Time in clock ticks that each CPU spent so far: in programs, and in nothing.
fn spent() -> io::Result<Vec<(usize, u64, u64)>> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let of_cpu = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        // User, nice, system, idle, waiting for I/O.
        Some((cpu, ticks.get(..3)?.iter().sum(), ticks.get(3..5)?.iter().sum()))
    };
    Ok(text.lines().filter_map(of_cpu).collect())
}

/// Of the CPUs that this thread may use that which had least to do in the last moment: what else runs there would be
/// taken for the cost of probes.
fn idlest() -> io::Result<usize> {
    let here = nix::sched::sched_getcpu()?;
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0))?;
    let before = spent()?;
    thread::sleep(MOMENT);
    let idle =
        spent()?.into_iter().zip(before).map(|((cpu, _, after), (_, _, before))| (cpu, after.saturating_sub(before)));
    let allowed = idle.filter(|(cpu, _)| allowed.is_set(*cpu).unwrap_or(false));
    // Where several are as idle, the one that is warm.
    Ok(allowed.max_by_key(|(cpu, idle)| (*idle, *cpu == here)).map_or(here, |(cpu, _)| cpu))
}

/// Two ends of a connection, whose processes share a CPU.
struct Bench {
    near: TcpStream,
    /// Sends back what it gets, until the near end is closed.
    echo: Child,
    cpu: u32,
}

impl Bench {
    fn open() -> io::Result<Bench> {
        let cpu = idlest()?;
        let mut here = CpuSet::new();
        here.set(cpu)?;
        // A process that this thread starts stays with it.
        nix::sched::sched_setaffinity(Pid::from_raw(0), &here)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Loopback may be filtered or its softirq late: an error then, never a standstill.
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

    /// The median time of a send call that fails at once, in ns. Of eight each, or the clock would be half of it.
    fn calls() -> f64 {
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let before = Instant::now();
            for _ in 0..8 {
                // There is no such socket: it says so and returns.
                let _no_socket = nix::sys::socket::send(-1, &[], nix::sys::socket::MsgFlags::empty());
            }
            times.push(before.elapsed().as_nanos() as f64 / 8.0);
        }
        median(&mut times)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // They may be closed and have ended already.
        let _closed = self.near.shutdown(Shutdown::Both);
        let _ended = self.echo.kill().and_then(|()| self.echo.wait());
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Attaches the probes, and measures what they cost by the same work with and without them, asking of each packet what
/// `filter` will ask: whose it is takes time, too.
///
/// # Errors
/// As [`Kernel::attach`], and when there is no loopback to try on.
pub fn calibrate(buffer: u32, points: Points, events: &[Event], filter: &Filter) -> Result<(Kernel, Costs), Error> {
    // The work is done in a thread of its own: it may need a network namespace of its own.
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || {
            let mut bench = bench()?;
            let kernel = Kernel::attach(buffer, points, events)?;
            measure(&mut bench, kernel, filter)
        });
        let thread = started.map_err(failed("starting the thread of the calibration"))?;
        thread.join().unwrap_or_else(|_| Err(failed("the thread of the calibration")(io::Error::other("it panicked"))))
    })
}

/// On loopback, or where there is none, in a network of its own.
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

/// One turn without probes, one with them, one in which they hand over what they have.
struct Turn {
    /// Medians in ns of a round and of a call that does nothing, and what the events counted in a round.
    off: (f64, f64),
    mute: (f64, f64),
    loud: f64,
    counted: [Vec<f64>; 3],
    /// What the probes counted in the rounds and in the calls of the second.
    rounds: Counters,
    calls: Counters,
}

/// Who else ran on the CPU of the calibration.
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

    /// Clock ticks of all programs.
    fn all(cpu: usize) -> io::Result<u64> {
        Ok(spent()?.into_iter().find(|(number, ..)| *number == cpu).map_or(0, |(_, ticks, _)| ticks))
    }

    /// The share of the time since then that the CPU had for other programs.
    fn share(&self) -> io::Result<f64> {
        let ticks_a_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.unwrap_or(100);
        let all = (Others::all(self.cpu)? - self.all) as f64 / ticks_a_second as f64;
        let own = Others::own(self.echo)?.saturating_sub(self.own).as_secs_f64();
        Ok(((all - own) / self.begun.elapsed().as_secs_f64()).clamp(0.0, 1.0))
    }
}

fn measure(bench: &mut Bench, mut kernel: Kernel, filter: &Filter) -> Result<(Kernel, Costs), Error> {
    let failed = failed("TCP over 127.0.0.1");
    let cpu = bench.cpu;
    let turn = |bench: &mut Bench, kernel: &mut Kernel| {
        let before = kernel.counted_on(cpu)?;
        let ns = bench.rounds().map_err(&failed)?;
        let after = kernel.counted_on(cpu)?;
        let each = before.iter().zip(after).map(|(before, after)| (after - before) as f64 / ROUNDS as f64);
        Ok::<_, Error>((ns, each.collect::<Vec<f64>>()))
    };
    kernel.calibrate_as(filter)?;
    kernel.adopt(bench.echo.id())?;
    turn(bench, &mut kernel)?; // to get warm
    let others = Others::than(bench).map_err(&failed)?;
    let mut turns: Vec<Turn> = Vec::new();
    let begun = Instant::now();
    while turns.len() < FEWEST || turns.len() < TURNS && begun.elapsed() < ENOUGH {
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

/// What the turns say, and `last`, a round and a call without probes behind them. A host slows a virtual machine down for
/// a second by a quarter, and with it what probes cost: a turn counts where the rounds without probes on both sides of it
/// agree, and is taken at the pace that all turns have in the median, by what the probes themselves take.
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
    // What is not known is the usual.
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

/// What the probes add, medians in ns.
struct Added {
    /// To a round, when nothing is handed over.
    round: f64,
    /// To that, when its two frames are.
    exit: f64,
    /// To a system call that does nothing.
    call: f64,
}

/// From what was measured to what each part costs. `rounds` and `calls` are the counters of the turns.
fn costs(added: &Added, rounds: &[Counters], calls: &[Counters]) -> Costs {
    // Medians of the turns: an interrupt within a program is not its cost.
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
    // Where no call is traced, the difference is noise.
    let call_way = if call_bodies > 0.0 { ((added.call - call_bodies) / 2.0).max(0.0) } else { 0.0 };
    // Of the network's probes in one round: how many, and how long they run. The rest of the difference is the ways.
    let network = |probe: &&Probe| !matches!(**probe, Probe::SysEnter | Probe::SysExit | Probe::Fork);
    // Not those of others' frames, which only the machine's idle time pays for.
    let count = |probe: Probe| per_round(probe).round().min(CALLS);
    let hits: f64 = Probe::ALL.iter().filter(network).map(|p| count(*p)).sum();
    let bodies: f64 = Probe::ALL.iter().filter(network).map(|p| count(*p) * body(rounds, *p)).sum();
    let in_calls = CALLS * (body(rounds, Probe::SysEnter) + body(rounds, Probe::SysExit) + 2.0 * call_way);
    let way = if hits > 0.0 { ((added.round - in_calls - bodies) / hits).max(0.0) } else { 0.0 };
    // A probe that only stamps; of the few points, the one at the receive path.
    let plain = [Probe::Transmit, Probe::Receive].map(|probe| body(rounds, probe)).into_iter().find(|ns| *ns > 0.0);
    let plain = plain.unwrap_or(0.0);
    let stamp = plain + way;
    Costs {
        overhead: Overhead {
            alpha: (body(rounds, Probe::Queue) - plain).max(0.0),
            // One stamp ends a slice and begins the next: a pair is two of them, one lies inside.
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

    /// `per_round` runs of a probe, of which each fifth was timed.
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
            // The others may be busy, too, now and then.
            let another = (0..30).any(|_| idlest().expect("/proc/stat") != busy);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            another
        });
        if !another && idle_elsewhere() - before < 10 {
            return println!("SKIP: every CPU is busy");
        }
        assert!(another, "CPU {busy} has no time");
    }

    /// Turns at two paces, and one in which the pace changed, say the same as one at the usual pace.
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
        // With probes of 40 ns a round of 10 000 takes 1 000 longer; at a pace slower by half, all of it half as much again.
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

    /// A machine of which all is known gives its own figures back.
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
