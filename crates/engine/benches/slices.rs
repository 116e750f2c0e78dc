//! Cost of tracing frames: ns per frame through a pipeline of one delay and a queue, up to the accounted departure. No
//! port is read or written.
//!
//! `turns SECONDS` runs one pipeline in one process, in turns of 2 ms. The turns trace nothing, one frame in 2⁴⁰, one
//! in 64 or every frame, and a turn without tracing separates any two others. It prints one JSON line per setting: the
//! median ratio to both neighbours over several pipelines, and the smallest and largest median of a single pipeline.
//! The setting without tracing shows the resolution of the comparison.
//!
//! `alone off|N` prints the median of a short run of one pipeline, with one frame in N traced. `bench/slices.py` uses
//! it to compare binaries with and without the feature `slices`, which cannot share a process.
//!
//! Timestamps are CPU counter readings scaled in 128 bits, as expensive as the readings of the driver.

use engine::Pipeline;
use engine::schedules::{Draw, Target};
use engine::slices::{Reading, Sampling};
use engine::stages::StageConfig;
use packet::HeapFrame;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Span, Time};

/// One frame every 100 ns, so the delay holds 100 frames.
const GAP: u64 = 100_000;
/// Frames per turn of about 2 ms.
const FRAMES: u64 = 15_000;
/// Pipelines measured one after the other. Two pipelines of the same kind differ only in their memory addresses.
const SETS: u32 = 12;
/// Turns of a pipeline that runs alone.
const ALONE: usize = 61;
/// A sampling interval that traces no frame after the first.
const NONE: u64 = 1 << 40;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A timestamp source that reads the CPU's counter, and the cost of one reading.
fn reading() -> (Reading, Span) {
    let clock = quanta::Clock::new();
    let (begun, first) = (Instant::now(), clock.raw());
    std::thread::sleep(Duration::from_millis(50));
    let (ns, ticks) = (begun.elapsed().as_nanos(), u128::from(clock.raw() - first));
    // ps per tick, with 64 fractional bits.
    let rate = ((ns * 1_000) << 64) / ticks;
    let (whole, fraction) = ((rate >> 64) as u64, rate as u64);
    let reading: Reading = Arc::new(move || {
        let ticks = clock.raw().wrapping_sub(first);
        let part = ((u128::from(ticks) * u128::from(fraction)) >> 64) as u64;
        Time::from_ps(ticks.wrapping_mul(whole).wrapping_add(part))
    });
    let costs = (0..1_001).map(|_| {
        let before = reading();
        for _ in 0..9 {
            black_box(reading());
        }
        reading().since(before).as_ps() as f64 / 10.0
    });
    let cost = Span::from_ps(median(costs.collect()) as u64);
    (reading, cost)
}

/// A pipeline that traces one frame in `every`, if given.
fn pipeline(every: Option<u64>, (reading, cost): &(Reading, Span)) -> Pipeline<HeapFrame> {
    let stage = StageConfig::parse("delay 10us").expect("a stage").build(1, "bench");
    let draw = Draw { seed: 1, path: "bench", frames: None };
    let pipeline = Pipeline::new(vec![stage], Target::Nothing.schedule(None, draw).expect("nothing can be had"));
    let Some(every) = every else { return pipeline };
    let sampling = Sampling { every, seed: 1, backlog: false, listener: None };
    let mut pipeline = pipeline.slicing(&[vec!["delay".to_owned()]], &sampling);
    pipeline.slice_by(reading, *cost);
    pipeline
}

/// A pipeline and the state of the traffic through it.
struct Running {
    pipeline: Pipeline<HeapFrame>,
    now: u64,
    spare: Vec<HeapFrame>,
}

impl Running {
    fn new(pipeline: Pipeline<HeapFrame>) -> Running {
        let mut running = Running { pipeline, now: 0, spare: Vec::new() };
        running.turn();
        running
    }

    /// Runs one turn and returns ns per frame.
    fn turn(&mut self) -> f64 {
        let begun = Instant::now();
        for _ in 0..FRAMES {
            let time = self.step();
            let frame = self.spare.pop().unwrap_or_else(|| HeapFrame::new(vec![0; 60]));
            self.pipeline.push(time, time, frame);
            self.depart(time);
        }
        let taken = begun.elapsed().as_nanos() as f64 / FRAMES as f64;
        while self.pipeline.held() > 0 {
            let time = self.step();
            self.depart(time);
        }
        taken
    }

    /// Advances to the next instant and takes what is due.
    #[inline]
    fn step(&mut self) -> Time {
        self.now += GAP;
        let time = Time::from_ps(self.now);
        if self.pipeline.deadline().is_some_and(|deadline| deadline <= time) {
            self.pipeline.wake(time);
        }
        time
    }

    #[inline]
    fn depart(&mut self, time: Time) {
        let Running { pipeline, spare, .. } = self;
        while let Some(departure) = pipeline.next_departure() {
            departure.token.complete(pipeline, time);
            spare.push(black_box(departure.frame));
        }
    }

    /// Runs one turn with the trace state of `other`.
    fn turn_of(&mut self, other: &mut Pipeline<HeapFrame>) -> f64 {
        self.pipeline.exchange_slices(other);
        let taken = self.turn();
        self.pipeline.exchange_slices(other);
        taken
    }
}

/// Results of one trace setting over all sets.
struct Row {
    name: &'static str,
    every: Option<u64>,
    ns: Vec<f64>,
    more: Vec<f64>,
    sets: Vec<f64>,
}

impl Row {
    fn new(name: &'static str, every: Option<u64>) -> Row {
        Row { name, every, ns: Vec::new(), more: Vec::new(), sets: Vec::new() }
    }
}

fn turns(time: Duration) {
    let clock = reading();
    let mut rows =
        [Row::new("off", None), Row::new("none", Some(NONE)), Row::new("1/64", Some(64)), Row::new("1/1", Some(1))];
    let mut off_ns = Vec::new();
    // Kept alive so that the next pipeline is allocated at another address.
    let mut kept = Vec::new();
    for set in 0..SETS {
        let mut running = Running::new(pipeline(None, &clock));
        let mut others: Vec<Pipeline<HeapFrame>> = rows.iter().map(|row| pipeline(row.every, &clock)).collect();
        let mut more = vec![Vec::new(); rows.len()];
        let begun = Instant::now();
        let mut before = running.turn();
        while begun.elapsed() < time / SETS {
            for (i, row) in rows.iter_mut().enumerate() {
                let ns = running.turn_of(&mut others[i]);
                let after = running.turn();
                more[i].push(ns / ((before + after) / 2.0) - 1.0);
                row.ns.push(ns);
                off_ns.push(after);
                before = after;
            }
        }
        for (row, more) in rows.iter_mut().zip(more) {
            row.sets.push(median(more.clone()));
            row.more.extend(more);
        }
        kept.push((running, vec![1_u8; 1_000 + 4_096 * set as usize]));
    }
    let off = median(off_ns);
    for Row { name, ns, more, sets, .. } in rows {
        let (turns, ns) = (ns.len(), median(ns));
        let least = sets.iter().copied().fold(f64::INFINITY, f64::min);
        let most = sets.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        println!(
            "{{\"slices\":\"{name}\",\"ns_a_frame\":{ns:.2},\"off_ns_a_frame\":{off:.2},\"more\":{:.5},\"sets\":[{least:.5},{most:.5}],\"turns\":{turns},\"reading_ns\":{:.2}}}",
            median(more),
            clock.1.as_ns_f64()
        );
    }
    drop(kept);
}

fn alone(every: Option<u64>) {
    let mut running = Running::new(pipeline(every, &reading()));
    println!("{:.3}", median((0..ALONE).map(|_| running.turn()).collect()));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["turns", seconds] => turns(Duration::from_secs(seconds.parse().expect("seconds"))),
        ["alone", "off"] => alone(None),
        ["alone", every] => alone(Some(every.parse().expect("a number"))),
        // The default of `cargo bench`.
        _ => turns(Duration::from_secs(20)),
    }
}
