//! How many stamped frames a core receives and counts, with all figures of their streams. Measured once from full
//! rings, and once from a sender on the other core, beside testpmd.
//!
//! On a machine with two CPUs, a sender takes one, so two receivers cannot have a sender of their own. Rings that the
//! other core has filled show the cost of receiving alone. The frames come from another core's cache, as from a sender,
//! but nothing is sent meanwhile.

use crate::speed::{NETLATHE, TESTPMD, testpmd_is_there};
use crate::{Outcome, median};
use dataplane::{Arrival, ArrivalQueues, StampedArrivals, pin};
use dpdk::{Burst, Eal, Pool, Port, Started, TscClock, TxQueue};
use packet::{Frame, Stamp};
use serde_json::Value;
use std::error::Error;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of frames in a ring. Each has 64 B with FCS.
const SLOTS: u32 = 1 << 15;
const LENGTH: usize = 60;
/// How many times a ring is filled and emptied.
const FILLS: usize = 200;
const STREAMS: u32 = 16;
const SECONDS: u64 = 3;

pub(crate) fn run(eal: &'static Eal, rounds: usize) -> Outcome {
    let pool = Pool::new(eal, "receive", 3 * SLOTS, 2_048)?;
    println!(
        "receive: 64 B, {STREAMS} streams, all figures per stream, out of rings that the other core filled, Mpps; median of {rounds} x {FILLS} rings"
    );
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        one.push(from_full_rings(eal, &pool, 1)?);
        two.push(from_full_rings(eal, &pool, 2)?);
    }
    let (one, two) = (median(one), median(two));
    println!("  one queue on one core     {one:>6.2}");
    println!("  two queues on two cores   {two:>6.2}  {:.2} x", two / one);
    if !testpmd_is_there() {
        return Ok(());
    }
    println!("receive: 64 B over memif from the other core, Mpps; median of {rounds} x {SECONDS} s, in turns");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        theirs.push(testpmd()?);
        // The memif server must come first, and netlathe opens its outputs before its inputs.
        ours.push(netlathe(&format!("dpdk:{}", memif(0, "client")), &format!("dpdk:{}", memif(1, "server")))?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("  testpmd rxonly {theirs:>6.2}   stamped, all figures {ours:>6.2}  {:.2} x", ours / theirs);
    Ok(())
}

/// Returns the rate in Mpps at which `queues` rings are emptied, each on its own CPU.
fn from_full_rings(eal: &'static Eal, pool: &Pool, queues: usize) -> Result<f64, Box<dyn Error>> {
    let Started { port, rx, tx } = Port::ring(eal, SLOTS, queues as u16, pool)?.start()?;
    let clock = TscClock::new(eal);
    // Reversed, so that each queue is filled by the other CPU.
    let mut receivers: Vec<Option<ArrivalQueues>> =
        rx.into_iter().map(|queue| Some(ArrivalQueues::new(vec![queue], clock))).collect();
    let mut fillers: Vec<Option<TxQueue>> = tx.into_iter().map(Some).collect();
    receivers.resize_with(2, || None);
    fillers.resize_with(2, || None);
    fillers.reverse();
    let meeting = Meeting::default();
    let times: Vec<Vec<(Instant, Instant)>> = thread::scope(|scope| {
        let parts = receivers.iter_mut().zip(&mut fillers).enumerate();
        let threads: Vec<_> = parts
            .map(|(cpu, (receiver, filler))| {
                let meeting = &meeting;
                scope.spawn(move || -> Result<_, dataplane::Error> {
                    let _registered = eal.register_thread()?;
                    pin(Some(&cpu))?;
                    let mut counts = StampedArrivals::new(0, 0..STREAMS, 1_514);
                    let (mut sequence, mut times) = (0, Vec::new());
                    for _ in 0..FILLS {
                        if let Some(queue) = filler {
                            fill(queue, pool, &mut sequence, &clock);
                        }
                        meeting.meet();
                        if let Some(queue) = receiver {
                            let (begin, mut arrived) = (Instant::now(), 0);
                            while arrived < SLOTS {
                                queue.next(Duration::ZERO, |frame| {
                                    arrived += u32::from(counts.take(frame) == Arrival::Fresh);
                                });
                            }
                            times.push((begin, Instant::now()));
                        }
                        meeting.meet();
                    }
                    Ok(times)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Result<_, _>>()
    })?;
    drop((receivers, fillers, port));
    let rate = |fill: usize| {
        let of_receivers = || times.iter().filter_map(|times| times.get(fill));
        let begin = of_receivers().map(|time| time.0).min().expect("one receives");
        let end = of_receivers().map(|time| time.1).max().expect("one receives");
        f64::from(SLOTS) * queues as f64 / (end - begin).as_secs_f64() / 1e6
    };
    Ok(median((0..FILLS).map(rate).collect()))
}

/// Fills a ring with stamped frames.
fn fill(queue: &mut TxQueue, pool: &Pool, sequence: &mut u32, clock: &TscClock) {
    let mut burst = Burst::new();
    let mut left = SLOTS as usize;
    while left > 0 {
        let room = burst.room();
        pool.alloc_up_to(&mut burst, left.min(room));
        let time_ns = clock.wall_at_zero() + clock.now().as_ps() / units::PS_PER_NS;
        for frame in burst.iter_mut() {
            frame.set_len(LENGTH).expect("the buffers are larger");
            let bytes = frame.bytes_mut();
            bytes.fill(0);
            let stream = (*sequence % STREAMS) as u16;
            Stamp { stream, sequence: *sequence / STREAMS, time_ns }.write(bytes);
            *sequence += 1;
        }
        left -= queue.send(&mut burst);
    }
}

/// A barrier at which two threads wait for each other without sleeping.
#[derive(Default)]
struct Meeting(AtomicUsize);

impl Meeting {
    fn meet(&self) {
        let round = self.0.fetch_add(1, Ordering::AcqRel) / 2;
        while self.0.load(Ordering::Acquire) / 2 == round {
            std::hint::spin_loop();
        }
    }
}

/// Returns the device of one end of a shared-memory port.
fn memif(number: u8, role: &str) -> String {
    format!("net_memif{number},role={role},id=1,socket=@nlb,socket-abstract=yes")
}

const STREAM: &str = "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B";

/// Returns the rate in Mpps that one netlathe receives on CPU 1 while it sends on CPU 0.
fn netlathe(input: &str, output: &str) -> Result<f64, Box<dyn Error>> {
    let duration = format!("{SECONDS}s");
    let mut command = Command::new(NETLATHE);
    command.args(["gen", "--in", input, "--out", output, "--stream", STREAM, "--duration", &duration]);
    let output = command.args(["--cores", "0", "--in-cores", "1", "--json"]).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("gen: {}", String::from_utf8_lossy(&output.stderr)))?;
    let received = report.pointer("/pipelines/0/streams/0/received").and_then(Value::as_f64);
    Ok(received.ok_or("no frames received")? / SECONDS as f64 / 1e6)
}

/// Returns the rate in Mpps that testpmd's `rxonly` receives on CPU 1 from netlathe on CPU 0.
fn testpmd() -> Result<f64, Box<dyn Error>> {
    let mut receiver = Command::new("timeout");
    receiver.args(["-s", "INT", "-k", "5", &(SECONDS + 5).to_string(), TESTPMD, "--no-huge", "-m", "512"]);
    receiver.args(["--no-pci", "--no-telemetry", "--no-shconf", "--iova-mode=va", "--lcores", "0@0,1@1"]);
    receiver.args(["--vdev", &memif(0, "server")]);
    receiver.args(["--", "--forward-mode=rxonly", "--stats-period=1", "--total-num-mbufs=16384", "--no-mlockall"]);
    let receiver = receiver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // By then the server has its socket. Its link comes up with the client.
    thread::sleep(Duration::from_millis(1_500));
    let duration = format!("{}s", SECONDS + 1);
    let sender = Command::new(NETLATHE)
        .args([
            "gen",
            "--out",
            &format!("dpdk:{}", memif(1, "client")),
            "--stream",
            STREAM,
            "--duration",
            &duration,
            "--cores",
            "0",
            "-q",
        ])
        .output();
    let output = receiver.wait_with_output()?;
    sender?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rates = text.lines().filter_map(|line| line.split_once("Rx-pps:")?.1.split_whitespace().next());
    let rates: Vec<f64> = rates.filter_map(|rate| rate.parse().ok()).filter(|rate| *rate > 0.0).collect();
    // Leave out the first and the last second, which are incomplete.
    let whole = rates.get(1..rates.len().saturating_sub(1)).filter(|whole| !whole.is_empty());
    let whole = whole.ok_or_else(|| format!("testpmd: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(median(whole.to_vec()) / 1e6)
}
