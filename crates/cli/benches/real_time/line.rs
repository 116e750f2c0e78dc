//! Filler pacing in real time on an exact line.

use crate::headroom::{LOADS, one};
use crate::{Outcome, median};
use dataplane::Device;
use dpdk::Eal;
use engine::Line;
use engine::filler::MANY_FROM;
use units::{BitRate, FrameLen, Span};

const SECONDS: u64 = 10;

pub(crate) fn run(eal: &'static Eal, rounds: usize, only: Option<u64>) -> Outcome {
    println!("line of 10 Gbit/s in real time, {rounds} runs of {SECONDS} s; in the median run:");
    for load in &LOADS {
        let depths = [512, 4_096, 65_536].map(|slots| (slots, FrameLen::MAX_STANDARD));
        // Longer fillers fit only if the load leaves enough idle time.
        let rate = BitRate::from_gbps(10);
        let idles = (load.gap)(rate) > Line::new(rate).span(2 * MANY_FROM);
        let long = idles.then_some((4_096, FrameLen::new(9_018)));
        let depths = depths.iter().chain(&long).filter(|(slots, _)| only.is_none_or(|only| only == u64::from(*slots)));
        for (slots, longest) in depths {
            let slots = *slots;
            let mut runs = Vec::new();
            for _ in 0..rounds {
                let output = Device::Line { slots, list: 0, keep_fillers: false };
                let duration = Span::from_ms(SECONDS * 1_000);
                let (_, finished) = one(eal, load, rate, output, *longest, false, duration)?;
                runs.push(finished.report.line.ok_or("a line reports")?);
            }
            let of = |figure: fn(&measure::LineReport) -> f64| median(runs.iter().map(figure).collect());
            let unbroken: Vec<_> = runs.iter().filter(|line| line.underruns == 0).collect();
            let displaced: u64 = unbroken.iter().map(|line| line.displaced).sum();
            let compared: u64 = unbroken.iter().map(|line| line.compared).sum();
            println!(
                "  {:<32} {slots:>6} slots  fillers up to {longest:>5}  underruns {:>4}  idle {:>9.3} ms  departures off {:>8} by up to {:>9.3} us; \
                 in {} runs without underrun {displaced} of {compared} off",
                load.name,
                of(|line| line.underruns as f64),
                of(|line| line.idle_ns) / 1e6,
                of(|line| line.displaced as f64),
                of(|line| line.max_off_ns) / 1e3,
                unbroken.len(),
            );
        }
    }
    Ok(())
}
