//! How much faster than a line one core generates the frames that fill it.

use crate::{Outcome, median};
use dataplane::{Config, Counters, Device, Feed, Finished, Pacing, Worker};
use dpdk::Eal;
use engine::schedules::{Draw, Target};
use engine::sources::Streams;
use engine::{Line, Pipeline};
use nix::time::{ClockId, clock_gettime};
use packet::FillerKind;
use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use units::{BitRate, FrameLen, Span};

/// A load: its name, the sizes of its frames, and its gap on a line of a bit rate.
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) sizes: &'static str,
    pub(crate) gap: fn(BitRate) -> Span,
}

pub(crate) const LOADS: [Load; 2] = [
    Load { name: "64-1518 B every 10 us", sizes: "random 64B-1518B", gap: |_| Span::from_us(10) },
    Load {
        name: "64 B and one 64 B filler each",
        sizes: "64B",
        // A frame and a filler, of 84 byte times each.
        gap: |rate| Span::from_ps(2 * 84 * 8 * units::PS_PER_S / rate.bps()),
    },
];

pub(crate) fn run(eal: &'static Eal, rounds: usize) -> Outcome {
    println!(
        "headroom: wire time per CPU second of one core, into a port that swallows all, data without stamps; median of {rounds} x 1 s"
    );
    for load in LOADS.iter().rev() {
        print!("  {:<32}", load.name);
        for gbps in [10, 25, 40, 100] {
            let rate = BitRate::from_gbps(gbps);
            let mut ratios = Vec::new();
            for _ in 0..rounds {
                let finished = one(eal, load, rate, Device::Null, FrameLen::MAX_STANDARD, true, Span::from_ms(1_000))?;
                ratios.push(finished.0);
            }
            print!("  {gbps}G {:>6.2} x", median(ratios));
        }
        println!();
    }
    Ok(())
}

/// Runs a load. Returns the wire time divided by the CPU time of the worker, and the result of the run.
pub(crate) fn one(
    eal: &'static Eal,
    load: &Load,
    rate: BitRate,
    output: Device,
    longest: FrameLen,
    unbounded: bool,
    duration: Span,
) -> Result<(f64, Finished), Box<dyn Error>> {
    let line = Line::new(rate);
    let spec = scenario::parse_stream(&format!("udp 10.0.0.1:1 > 10.0.0.2:2 size {} stamp off", load.sizes))?;
    let gap = (load.gap)(rate);
    let ask = Target::Gap(gap);
    let schedule =
        ask.schedule(Some(line), Draw { seed: 7, path: load.name, frames: None }).map_err(|error| error.to_string())?;
    let config = Config {
        start: None,
        room: 0,
        on: None,
        name: load.name.to_owned(),
        feed: Feed::Stream(Box::new(Streams::new(&[spec], 7, 0)?), None),
        more_inputs: Vec::new(),
        output,
        one_way: true,
        pacing: Pacing::Filler { line, kind: FillerKind::Own, align: 1, longest, unbounded },
        asked_gap: Some(gap),
        cpus: Vec::new(),
        window: Span::from_ms(100),
        duration: Some(duration),
    };
    let worker = Worker::open(eal, config, Pipeline::new(Vec::new(), schedule), None)?;
    let (stop, counters) = (AtomicBool::new(false), Counters::default());
    let (finished, cpu) = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let before = cpu_time();
            let finished = worker.run(eal, &stop, &counters);
            (finished, cpu_time().saturating_sub(before))
        });
        run.join().expect("a worker does not panic")
    });
    let finished = finished?;
    let fillers = finished.report.fillers.unwrap_or_default();
    let left = finished.report.left;
    let bytes = left.bytes + fillers.bytes + 20 * (left.frames + fillers.frames);
    Ok((line.span(bytes).as_secs_f64() / cpu.as_secs_f64(), finished))
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
