//! What it costs to follow frames: ns that a frame takes through a pipeline of a delay and a queue, its departure
//! booked. `bench/slices.py` runs it in turns with the same binary without the feature `slices`.
//!
//! Arguments: `off` or N, for one frame in N. Prints the median of the rounds.

use engine::Pipeline;
use engine::schedules::{Ask, Draw};
use engine::slices::{Reading, Sampling};
use engine::stages::StageConfig;
use packet::{Frame, HeapFrame};
use std::hint::black_box;
use std::time::Instant;
use units::{Span, Time};

const FRAMES: u64 = 200_000;
const ROUNDS: usize = 15;
/// One frame in 100 ns, of which 100 are in the delay.
const GAP: u64 = 100_000;

fn pipeline(every: Option<u64>) -> Pipeline<HeapFrame> {
    let stage = StageConfig::parse("delay 10us").expect("a stage").build(1, "bench");
    let draw = Draw { seed: 1, path: "bench", frames: None };
    let pipeline = Pipeline::new(vec![stage], Ask::Nothing.schedule(None, draw).expect("nothing can be had"));
    let Some(every) = every else { return pipeline };
    let mut pipeline =
        pipeline.slicing(&[vec!["delay".to_owned()]], &Sampling { every, backlog: false, listener: None });
    let begun = Instant::now();
    let reading: Reading = std::sync::Arc::new(move || Time::from_ps(begun.elapsed().as_nanos() as u64 * 1_000));
    pipeline.slice_by(&reading, Span::from_ns(20));
    pipeline
}

/// ns a frame, over a round.
fn round(pipeline: &mut Pipeline<HeapFrame>, now: &mut u64, spare: &mut Vec<HeapFrame>) -> f64 {
    let begun = Instant::now();
    for _ in 0..FRAMES {
        *now += GAP;
        let time = Time::from_ps(*now);
        if pipeline.deadline().is_some_and(|deadline| deadline <= time) {
            pipeline.wake(time);
        }
        pipeline.push(time, time, spare.pop().unwrap_or_else(|| HeapFrame::new(vec![0; 60])));
        while let Some(departure) = pipeline.next_departure() {
            let (class, at, length) = (departure.class, departure.at, departure.frame.length());
            pipeline.sent(class, length);
            pipeline.departed(class, length, at, time);
            let tag = pipeline.tag_of(class, &departure.frame);
            if tag != 0 {
                pipeline.sliced(class, tag, at, time);
            }
            spare.push(black_box(departure.frame));
        }
    }
    begun.elapsed().as_nanos() as f64 / FRAMES as f64
}

fn main() {
    // Cargo adds an argument of its own.
    let word = std::env::args().nth(1).filter(|word| !word.starts_with("--")).unwrap_or("off".to_owned());
    let mut pipeline = pipeline(word.parse().ok());
    let (mut now, mut spare) = (0, Vec::new());
    round(&mut pipeline, &mut now, &mut spare);
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut pipeline, &mut now, &mut spare)).collect();
    rounds.sort_by(f64::total_cmp);
    println!("{:.3}", rounds[ROUNDS / 2]);
}
