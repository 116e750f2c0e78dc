//! Deadline pacing on veth, compared with the floor: a loop that only waits and sends.

use crate::bed::{self, Bed};
use crate::{Outcome, median};
use lab::Node;
use serde_json::Value;
use std::error::Error;
use std::thread;
use std::time::Duration;

/// Gaps in ns, each with the number of frames to send.
const ASKS: [(u64, u64); 3] = [(1_000, 100_000), (10_000, 100_000), (100_000, 20_000)];
const DRIVERS: [&str; 2] = ["af_packet", "af_xdp"];
/// Number of frames that the source of `shape` sends back to back.
const BATCH: u64 = 50;
const SIZES: &str = "random 64B-1518B";

pub(crate) fn run(rounds: usize, only: Option<u64>) -> Outcome {
    let Some(bed) = Bed::up("gaps")? else { return Ok(()) };
    let asks = || ASKS.into_iter().filter(|(gap, _)| only.is_none_or(|only| only == *gap));
    println!(
        "gaps of 64-1518 B over veth at the receiver, by its kernel's stamps; medians of {rounds} interleaved runs"
    );
    header();
    for (gap, count) in asks() {
        let mut runs = Runs::default();
        for _ in 0..rounds {
            runs.add("floor", floor(&bed, gap, count)?);
            runs.add("floor, busy source", floor_beside_source(&bed, gap, count)?);
            for driver in DRIVERS {
                runs.add(&format!("gen {driver}"), generate(&bed, driver, gap, count)?);
                runs.add(&format!("shape {driver}"), shape(&bed, driver, &[], gap, count)?);
                let split = shape(&bed, driver, &["--cores", "0,1"], gap, count)?;
                runs.add(&format!("shape {driver} split"), split);
            }
        }
        runs.print(gap, count);
    }
    println!("the same onto a TAP, by the stamps of an XDP program that is the receiver");
    header();
    for (gap, count) in asks() {
        let mut runs = Runs::default();
        for _ in 0..rounds {
            runs.add("floor", floor_to_tap(&bed, gap, count)?);
            for (name, options) in [
                ("gen", &[][..]),
                ("gen split", &["--cores", "0,1"]),
                ("gen, catch-up 10", &["--catch-up", "10"]),
                ("gen, catch-up none", &["--catch-up", "none"]),
            ] {
                runs.add(name, generate_to_tap(&bed, options, gap, count)?);
            }
        }
        runs.print(gap, count);
    }
    Ok(())
}

fn header() {
    println!(
        "  asked    sender                     mean        median error   within 100 ns   within 1 us   of the floor's"
    );
}

/// The runs of each sender. The floor comes first.
#[derive(Default)]
struct Runs(Vec<(String, Vec<Value>)>);

impl Runs {
    fn add(&mut self, sender: &str, figures: Value) {
        match self.0.iter_mut().find(|(known, _)| known == sender) {
            Some((_, list)) => list.push(figures),
            None => self.0.push((sender.to_owned(), vec![figures])),
        }
    }

    fn print(&self, gap: u64, count: u64) {
        let of =
            |list: &[Value], key: &str| median(list.iter().map(|run| run[key].as_f64().unwrap_or(f64::NAN)).collect());
        let floor = of(&self.0[0].1, "within_1us");
        for (name, list) in &self.0 {
            let lost = count as f64 - of(list, "frames");
            println!(
                "  {:>4} us  {name:<21} {:>12.1} ns {:>12.0} ns {:>13.2} % {:>12.2} % {:>12.3}{}",
                gap / 1_000,
                of(list, "mean"),
                of(list, "median_error"),
                of(list, "within_100ns") * 100.0,
                of(list, "within_1us") * 100.0,
                of(list, "within_1us") / floor,
                if lost > 0.0 { format!("   {lost} frames missing") } else { String::new() },
            );
        }
    }
}

fn floor(bed: &Bed, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver(gap, count)?;
    bed.send(Node::Box, "s0", gap, count, 1, SIZES)?;
    receiver.figures()
}

/// Measures the floor while the source of `shape` sends to an interface without a reader. CPUs that share a core, or a
/// busy host, slow each other down, so this is the fair comparison for `shape`.
fn floor_beside_source(bed: &Bed, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver(gap, count)?;
    thread::scope(|scope| {
        let source = scope.spawn(|| {
            let sent = bed.sender(Node::Client(1), "eth0", gap, count, BATCH, SIZES);
            sent.map_err(|error| error.to_string())
        });
        let sent = bed.send(Node::Box, "s0", gap, count, 1, SIZES);
        source.join().map_err(|_| "the source failed")??.end()?;
        sent
    })?;
    receiver.figures()
}

fn generate(bed: &Bed, driver: &str, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver(gap, count)?;
    let output = format!("if:s0,driver={driver}");
    let (gap, count) = (format!("{gap}ns"), count.to_string());
    let mut command = bed.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
    command.args(["gen", "--out", &output, "--gap", &gap, "--count", &count, "--seed", "7", "-q", "--stream"]);
    bed::finish(command.arg("udp 10.77.0.1:1 > 10.77.0.100:2 size random 64B-1518B").spawn()?)?;
    receiver.figures()
}

/// Time that the receiver gets to find the TAP. A TAP exists only while its sender runs, so frames sent before that are
/// not in the figures.
const LEAD_NS: u64 = 1_000_000_000;
const TAP: &str = "tap0";

fn floor_to_tap(bed: &Bed, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver_in_driver(TAP, gap, count)?;
    let mut sender = bed.command(Node::Box, std::env::current_exe()?)?;
    sender.args(["send-tap", TAP, &gap.to_string(), &(count + LEAD_NS / gap).to_string()]);
    bed::finish(sender.spawn()?)?;
    receiver.figures()
}

fn generate_to_tap(bed: &Bed, options: &[&str], gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver_in_driver(TAP, gap, count)?;
    let (output, count) = (format!("tap:{TAP}"), (count + LEAD_NS / gap).to_string());
    let mut command = bed.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
    command.args(["gen", "--out", &output, "--gap", &format!("{gap}ns"), "--count", &count, "--seed", "7", "-q"]);
    command.args(["--stream", "udp 10.77.0.1:1 > 10.77.0.100:2 size random 64B-1518B"]).args(options);
    bed::finish(command.spawn()?)?;
    receiver.figures()
}

fn shape(bed: &Bed, driver: &str, options: &[&str], gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
    let receiver = bed.receiver(gap, count)?;
    let (from, to) = (format!("if:c0,driver={driver}"), format!("if:s0,driver={driver}"));
    let mut command = bed.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
    command.args(["shape", "--in", &from, "--out", &to, "--gap", &format!("{gap}ns"), "--one-way", "-q"]);
    // The source shares the CPUs. If it is late, the schedule restarts, which counts as starved and not as late.
    command.args(["--buffer", "5ms"]);
    command.args(options);
    let shape = command.spawn()?;
    thread::sleep(Duration::from_millis(1_200));
    let source = bed.sender(Node::Client(1), "eth0", gap, count, BATCH, SIZES)?;
    thread::sleep(Duration::from_millis(200));
    bed::interrupt(shape)?;
    source.end()?;
    receiver.figures()
}
