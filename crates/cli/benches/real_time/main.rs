//! Benchmarks in real time on this machine. Each figure is shown beside a limit measured in the same run. Nothing here
//! passes or fails, and each part ends after a bounded time.
//!
//! `cargo bench -p netlathe-cli --bench real_time -- [speed] [receive] [headroom] [line] [gaps] [box] [emulate] [--rounds N] [--gap NS] [--slots N]`
//!
//! - `speed`: rate at which cores generate frames, beside testpmd
//! - `receive`: rate at which cores receive and count stamped frames, beside testpmd
//! - `headroom`: wire time that one core fills per CPU second, at several line rates
//! - `line`: filler pacing on a line in real time, by queue depth
//! - `gaps`: deadline pacing on veth and onto a TAP, beside a loop that only waits and sends
//! - `box`: latency of frames that only pass through, and the highest rate without loss
//! - `emulate`: TCP throughput and round trip without an impairment, compared with the same links without netlathe
//!
//! `--gap` and `--slots` restrict `gaps` to one gap and `line` to one queue depth.

mod bed;
mod driver;
mod emulate;
mod gaps;
mod headroom;
mod line;
mod pass;
mod programs;
mod receive;
mod speed;

use dpdk::{Eal, EalConfig};
use std::error::Error;

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some((part, rest)) = arguments.split_first()
        && let Some(outcome) = programs::run(part, rest)
    {
        return outcome;
    }
    let number = |option: &str| {
        let at = arguments.iter().position(|word| word == option)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    let rounds = number("--rounds").map(|rounds| rounds as usize);
    let parts: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|word| ["speed", "receive", "headroom", "line", "gaps", "box", "emulate"].contains(word))
        .collect();
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let cpus = std::thread::available_parallelism()?;
    println!("real time, {cpus} CPUs, {}, load {}", Eal::version(), load());
    if wanted("speed") {
        speed::run(rounds.unwrap_or(3))?;
    }
    if wanted("gaps") {
        gaps::run(rounds.unwrap_or(3), number("--gap"))?;
    }
    if wanted("box") {
        pass::run()?;
    }
    if wanted("emulate") {
        emulate::run(rounds.unwrap_or(3))?;
    }
    if wanted("headroom") || wanted("line") || wanted("receive") {
        // The deepest queue of `line` has 65 536 slots.
        let eal = Eal::init(&EalConfig::new("netlathe").memory_mib(1_024))?;
        if wanted("receive") {
            receive::run(eal, rounds.unwrap_or(3))?;
        }
        if wanted("headroom") {
            headroom::run(eal, rounds.unwrap_or(5))?;
        }
        if wanted("line") {
            line::run(eal, rounds.unwrap_or(5), number("--slots"))?;
        }
    }
    Ok(())
}

/// Returns the load average of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
