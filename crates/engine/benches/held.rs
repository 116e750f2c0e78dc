//! Cost of holding frames: the queue of the stages against the binary heap of the standard library, in time and in
//! memory. Prints medians; nothing here passes or fails.

use engine::random::Random;
use engine::stages::Timed;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;
use units::Time;

/// Timed steps of the steady state.
const STEPS: u64 = 2_000_000;
const ROUNDS: usize = 3;

/// An entry of a stage that holds a frame in a DPDK buffer: its number and its address.
type Held = (u64, usize);

/// Distribution of the time that a frame stays, in ps.
#[derive(Clone, Copy)]
enum Law {
    Fixed,
    Uniform,
}

/// A queue under test.
trait Queue {
    fn push(&mut self, at: u64, held: Held);
    fn pop(&mut self) -> (u64, Held);
}

impl Queue for Timed<Held> {
    fn push(&mut self, at: u64, held: Held) {
        Timed::push(self, Time::from_ps(at), held);
    }

    fn pop(&mut self) -> (u64, Held) {
        let (at, held) = Timed::pop(self, Time::MAX).expect("it holds frames");
        (at.as_ps(), held)
    }
}

impl Queue for BinaryHeap<Reverse<(u64, Held)>> {
    fn push(&mut self, at: u64, held: Held) {
        // The number keeps entries with the same instant in order.
        BinaryHeap::push(self, Reverse((at, held)));
    }

    fn pop(&mut self) -> (u64, Held) {
        BinaryHeap::pop(self).expect("it holds frames").0
    }
}

fn main() {
    println!("held frames: push and pop of one frame in the steady state, medians of {ROUNDS} rounds of {STEPS} steps");
    println!("  {:<10} {:<28} {:>12} {:>12} {:>14} {:>14}", "held", "delay", "wheel", "heap", "wheel", "heap");
    for held in [1_000_u64, 100_000, 10_000_000] {
        for (law, name) in [(Law::Fixed, "fixed"), (Law::Uniform, "uniform, 0 to twice the mean")] {
            let (wheel, wheel_bytes) = measure(Timed::default(), held, law);
            let (heap, heap_bytes) = measure(BinaryHeap::new(), held, law);
            print!("  {held:<10} {name:<28} {wheel:>9.1} ns {heap:>9.1} ns");
            // Below this, the growth is lost in the memory that the process already had.
            if held >= 1_000_000 {
                print!(" {wheel_bytes:>6.1} B/frame {heap_bytes:>6.1} B/frame");
            }
            println!();
        }
    }
}

/// Median ns per step with `held` frames in the queue, and bytes per held frame.
fn measure<Q: Queue>(mut queue: Q, held: u64, law: Law) -> (f64, f64) {
    // One frame every 10 ns: 10 million frames in 100 ms.
    const GAP: u64 = 10_000;
    let mean = held * GAP;
    let mut random = Random::stream(7, "bench");
    let delay = |random: &mut Random| match law {
        Law::Fixed => mean,
        Law::Uniform => random.below(2 * mean),
    };
    let before = resident();
    // The fill takes a thousandth of the time that these frames would take to arrive.
    for number in 0..held {
        queue.push(number * GAP / 1_000 + delay(&mut random), (number, number as usize));
    }
    let bytes = resident().saturating_sub(before) as f64 / held as f64;
    let mut last = 0;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..STEPS {
            let (at, frame) = queue.pop();
            assert!(at >= last, "in the order of time");
            last = at;
            queue.push(at + delay(&mut random), black_box(frame));
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / STEPS as f64);
    }
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], bytes)
}

/// Resident memory of the process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}
