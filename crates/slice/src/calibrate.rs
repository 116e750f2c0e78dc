//! What the probes cost here and now: the same work with and without them.
//!
//! The work is a message there and one back between two threads on one CPU, over TCP and loopback. They switch at each
//! message, as programs do, so that the probes find caches as cold as theirs: with both ends in one thread a probe costs
//! less than it does later. Medians of thousands, in turns, since machines hiccup.

use crate::costs::{Costs, EventCost, ProbeCost};
use crate::error::Error;
use crate::events::Event;
use crate::formulas::Overhead;
use crate::kernel::{Counters, Filter, Kernel, Points};
use crate::record::Probe;
use nix::sched::CpuSet;
use nix::unistd::Pid;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Messages there and back of one turn, and turns: short ones, so that a turn with the probes and the one without them
/// beside it find the machine in the same mood.
const ROUNDS: usize = 250;
const TURNS: usize = 15;
/// On a machine that has other things to do there are fewer turns.
const ENOUGH: Duration = Duration::from_millis(1_500);
const FEWEST: usize = 5;
/// Frames and system calls of one round.
const FRAMES: f64 = 2.0;
const CALLS: f64 = 4.0;

/// Two ends of a connection, whose threads share a CPU.
struct Bench {
    near: TcpStream,
    /// Sends back what it gets, until the near end is closed.
    echo: Option<JoinHandle<()>>,
    cpu: u32,
}

impl Bench {
    fn open() -> io::Result<Bench> {
        let cpu = nix::sched::sched_getcpu()?;
        let mut here = CpuSet::new();
        here.set(cpu)?;
        // Threads that this one starts stay with it.
        nix::sched::sched_setaffinity(Pid::from_raw(0), &here)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (mut far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            // Loopback may be filtered or its softirq late: an error then, never a standstill.
            end.set_read_timeout(Some(Duration::from_secs(5)))?;
        }
        let echo = thread::Builder::new().spawn(move || {
            let mut buffer = [0; 4];
            while far.read_exact(&mut buffer).and_then(|()| far.write_all(&buffer)).is_ok() {}
        })?;
        Ok(Bench { near, echo: Some(echo), cpu: u32::try_from(cpu).map_err(io::Error::other)? })
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
        // It may be closed already; either way the echo ends.
        let _closed = self.near.shutdown(Shutdown::Both);
        let _ended = self.echo.take().map(JoinHandle::join);
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
        let thread = scope.spawn(|| {
            let mut bench = bench()?;
            let kernel = Kernel::attach(buffer, points, events)?;
            measure(&mut bench, kernel, filter)
        });
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
    move |cause| Error::Calibration { what, cause }
}

fn measure(bench: &mut Bench, mut kernel: Kernel, filter: &Filter) -> Result<(Kernel, Costs), Error> {
    let failed = failed("TCP over 127.0.0.1");
    let turn = |bench: &mut Bench| bench.rounds().map_err(&failed);
    let cpu = bench.cpu;
    let counted_turn = |bench: &mut Bench, kernel: &mut Kernel| {
        let before = kernel.counted_on(cpu)?;
        let ns = turn(bench)?;
        let after = kernel.counted_on(cpu)?;
        let each = before.iter().zip(after).map(|(before, after)| (after - before) as f64 / ROUNDS as f64);
        Ok::<_, Error>((ns, each.collect::<Vec<f64>>()))
    };
    kernel.calibrate_as(filter)?;
    turn(bench)?; // to get warm
    // Differences of neighbours, of which the median counts: what slows the machine down slows both.
    let (mut round, mut exit, mut call) = (Vec::new(), Vec::new(), Vec::new());
    let events = kernel.events().events().len();
    let (mut stamping, mut handing) = (vec![Vec::new(); events], vec![Vec::new(); events]);
    let begun = Instant::now();
    for n in 0..TURNS {
        if n >= FEWEST && begun.elapsed() > ENOUGH {
            break;
        }
        kernel.rest()?;
        let ((off, counts_off), call_off) = (counted_turn(bench, &mut kernel)?, Bench::calls());
        kernel.resume()?;
        kernel.calibrating(false, true)?;
        let ((mute, counts_mute), call_on) = (counted_turn(bench, &mut kernel)?, Bench::calls());
        kernel.calibrating(false, false)?;
        let (loud, counts_loud) = counted_turn(bench, &mut kernel)?;
        kernel.records(drop);
        round.push(mute - off);
        exit.push(loud - mute);
        call.push(call_on - call_off);
        for event in 0..events {
            stamping[event].push(counts_mute[event] - counts_off[event]);
            handing[event].push(counts_loud[event] - counts_mute[event]);
        }
    }
    // Programs that time themselves take longer, so that is apart.
    kernel.calibrating(true, true)?;
    let (mut rounds, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..FEWEST {
        let before = kernel.counters()?;
        turn(bench)?;
        let between = kernel.counters()?;
        Bench::calls();
        rounds.push(between.since(&before));
        calls.push(kernel.counters()?.since(&between));
    }
    kernel.calibrating(false, true)?;
    kernel.disown(std::process::id())?;
    let added = Added { round: median(&mut round), exit: median(&mut exit), call: median(&mut call) };
    let mut costs = costs(&added, &rounds, &calls);
    let programs = costs.probes.values().map(|probe| probe.per_packet * FRAMES).sum::<f64>().max(1.0);
    let names = kernel.events().events().iter().map(Event::name);
    let counted = names.zip(stamping.iter_mut().zip(&mut handing)).map(|(name, (stamping, handing))| {
        let inside = (median(stamping) / programs).max(0.0);
        let gamma = (median(handing) / FRAMES).max(0.0);
        EventCost { event: name.to_owned(), beta: 2.0 * inside, inside, gamma }
    });
    costs.events = counted.collect();
    Ok((kernel, costs))
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

/// From what was measured to what each part costs. `rounds` and `calls` are the counters of the turns in which the
/// programs timed themselves.
fn costs(added: &Added, rounds: &[Counters], calls: &[Counters]) -> Costs {
    // Medians of the turns: an interrupt within a program is not its cost.
    let body = |turns: &[Counters], probe: Probe| {
        let of = |turn: &Counters| {
            let hits = turn.hits_of(probe);
            (hits > 0).then(|| turn.spent.get(probe as usize).copied().unwrap_or(0) as f64 / hits as f64)
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of which all is known gives its own figures back.
    #[test]
    fn known_costs_come_out() {
        let mut rounds =
            Counters { hits: vec![0; Probe::ALL.len()], spent: vec![0; Probe::ALL.len()], ..Counters::default() };
        let mut calls = rounds.clone();
        let set = |counters: &mut Counters, probe: Probe, per_round: u64, body: u64| {
            counters.hits[probe as usize] = per_round * ROUNDS as u64;
            counters.spent[probe as usize] = per_round * ROUNDS as u64 * body;
        };
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
