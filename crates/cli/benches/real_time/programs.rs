//! Programs that the benches run in the namespaces of a lab. Each is this executable with other arguments.

use crate::{Outcome, driver};
use dpdk::{Burst, Eal, EalConfig, PacketRing, PacketSender, Pool, Port, PortConfig, RingConfig, TscClock, Vdev};
use engine::sources::Streams;
use nix::time::{ClockId, clock_gettime};
use packet::{Frame, HeapFrame};
use std::io::BufRead;
use std::time::{Duration, Instant};
use units::Span;

/// Runs the program of this name. Returns `None` if there is none.
pub(crate) fn run(name: &str, arguments: &[String]) -> Option<Outcome> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let interface = arguments.first().map_or("", String::as_str);
    Some(match name {
        "send" => {
            let sizes = arguments.get(4).map_or("random 64B-1518B", String::as_str);
            send(interface, Span::from_ns(number(1)), number(2), number(3), sizes)
        }
        "send-tap" => send_tap(interface, Span::from_ns(number(1)), number(2)),
        "receive-by-kernel" => receive(interface, number(1), number(2)),
        "receive-in-driver" => driver::receive(interface, number(1), number(2)),
        _ => return None,
    })
}

/// A batching source sends the first 1/`LEAD` of its frames at twice the rate, so that later departures never wait for
/// the source.
const LEAD: u64 = 5;

/// The floor: waits for an absolute instant, then sends a frame with one system call. If `batch` is above 1, sends
/// `batch` frames back to back every `batch` gaps. Each frame carries the wall clock time of its departure. Prints a
/// line when everything is sent, and ends when stdin is closed.
fn send(interface: &str, gap: Span, count: u64, batch: u64, sizes: &str) -> Outcome {
    let eal = Eal::init(&EalConfig::new("bench").memory_mib(64))?;
    let sender = PacketSender::open(interface)?;
    let spec = scenario::parse_stream(&format!("udp 10.77.0.1:1 > 10.77.0.100:2 size {sizes} stamp off"))?;
    let mut stream = Streams::new(&[spec], 7, 0)?;
    let batch = batch.max(1);
    let mut next = HeapFrame::default();
    stream.fill(&mut next);
    let clock = TscClock::new(eal);
    let mut due = clock.now() + Span::from_ms(20);
    let (mut sent, mut refused) = (0, 0);
    while sent + refused < count {
        clock.spin_until(due);
        for _ in 0..batch.min(count - sent - refused) {
            next.bytes_mut()[STAMP].copy_from_slice(&wall_ns().to_be_bytes());
            let taken = sender.send(next.bytes())?;
            sent += u64::from(taken);
            refused += u64::from(!taken);
            // Prepare the next frame in the same memory before it is due, so that it is in the cache.
            stream.fill(&mut next);
        }
        let leads = batch > 1 && sent + refused < count / LEAD;
        due += Span::from_ps(gap.as_ps() * batch / if leads { 2 } else { 1 });
    }
    println!("{}", serde_json::json!({"sent": sent, "refused": refused}));
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}

/// The floor onto a TAP device of this name, which it creates. Calls DPDK's driver once per frame. Each frame is built
/// before the wait.
fn send_tap(interface: &str, gap: Span, count: u64) -> Outcome {
    let eal = Eal::init(&EalConfig::new("bench").memory_mib(64))?;
    let pool = Pool::new(eal, "bench", 1024, 2048)?;
    let mut started = Port::open(eal, Vdev::tap(interface), &pool, &PortConfig::default())?.start()?;
    let spec = scenario::parse_stream("udp 10.77.0.1:1 > 10.77.0.100:2 size random 64B-1518B stamp off")?;
    let mut stream = Streams::new(&[spec], 7, 0)?;
    let mut next = HeapFrame::default();
    let mut burst = Burst::new();
    let clock = TscClock::new(eal);
    let mut due = clock.now() + Span::from_ms(20);
    for _ in 0..count {
        stream.fill(&mut next);
        pool.alloc_up_to(&mut burst, 1);
        burst.as_mut_slice().last_mut().ok_or("no frame is free")?.copy_from(next.bytes())?;
        clock.spin_until(due);
        if started.tx[0].send(&mut burst) == 0 {
            return Err("the device takes nothing".into());
        }
        due += gap;
    }
    Ok(())
}

/// Offset of the wall clock time in a frame. The rest of the payload is zero.
const STAMP: std::ops::Range<usize> = 50..58;

fn wall_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_REALTIME).map(Duration::from).unwrap_or_default();
    now.as_nanos() as u64
}

/// Lets the kernel store arrivals in a ring, and reads the ring only after a line on stdin ends the run, so that the
/// receiver takes no CPU time during the run. Prints the gaps compared with `gap_ns`, and the time from each frame's
/// departure to its receive stamp.
fn receive(interface: &str, gap_ns: u64, count: u64) -> Outcome {
    // The start of a frame and the kernel's metadata take 208 B. The kernel closes a block every 10 ms, full or not.
    let by_time = gap_ns * count / 10_000_000 * 2;
    let blocks = ((count * 208).div_ceil(256 << 10) + by_time) as u32 + 32;
    let config = RingConfig { blocks, snaplen: Some(64), ..RingConfig::default() };
    let mut ring = PacketRing::open(interface, &config)?;
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    let mut stamps = Vec::new();
    let mut ages = Vec::new();
    let mut bytes = Vec::new();
    let end = Instant::now() + Duration::from_secs(1);
    while (stamps.len() as u64) < count && Instant::now() < end {
        let Some(batch) = ring.next(Duration::from_millis(50))? else { break };
        for frame in &batch {
            bytes.clear();
            frame.write_to(&mut bytes);
            // Count UDP over IPv4 only: other frames are the kernel's.
            if bytes.get(12..14) == Some(&[8, 0]) && bytes.get(23) == Some(&17) {
                stamps.push(frame.time_ns);
                if let Some(sent) = bytes.get(STAMP).and_then(|stamp| stamp.try_into().ok()) {
                    ages.push(frame.time_ns as i64 - u64::from_be_bytes(sent) as i64);
                }
            }
        }
    }
    println!("{}", figures(&stamps, &mut ages, gap_ns));
    Ok(())
}

/// Returns the mean gap, the median of |gap − ask|, the shares of gaps within ±100 ns and ±1 µs, and quantiles of the
/// ages. Times are in ns.
pub(crate) fn figures(stamps: &[u64], ages: &mut [i64], ask: u64) -> serde_json::Value {
    let mut errors: Vec<u64> = stamps.windows(2).map(|pair| (pair[1] - pair[0]).abs_diff(ask)).collect();
    errors.sort_unstable();
    ages.sort_unstable();
    let (Some(first), Some(last)) = (stamps.first(), stamps.last()) else { return serde_json::json!({"frames": 0}) };
    let gaps = errors.len().max(1);
    let within = |limit: u64| errors.partition_point(|error| *error <= limit) as f64 / gaps as f64;
    let age = |share: f64| ages.get((share * (ages.len().max(1) - 1) as f64) as usize);
    serde_json::json!({
        "frames": stamps.len(),
        "mean": (last - first) as f64 / gaps as f64,
        "median_error": errors.get(gaps / 2),
        "within_100ns": within(100),
        "within_1us": within(1_000),
        "age_p50": age(0.5),
        "age_p99": age(0.99),
        "age_max": age(1.0),
    })
}
