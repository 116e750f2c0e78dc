//! Deadline pacing on veth, beside the floor: a loop that does nothing but wait and send.

use crate::{Outcome, median};
use lab::{Guard, Node, Topology};
use serde_json::Value;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Gaps in ns, and how many frames.
const ASKS: [(u64, u64); 3] = [(1_000, 100_000), (10_000, 100_000), (100_000, 20_000)];
const DRIVERS: [&str; 2] = ["af_packet", "af_xdp"];
/// Frames that the source of `shape` sends at once.
const BATCH: u64 = 50;

pub(crate) fn run(rounds: usize) -> Outcome {
    let bed = match Guard::up(&Topology::named(format!("bench{}", std::process::id()))) {
        Ok(lab) => Bed { lab },
        Err(error @ (lab::Error::Unprivileged | lab::Error::MissingTool { .. })) => {
            println!("gaps: SKIP: {error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    println!("gaps of 64-1518 B at the receiver, by its kernel's stamps; medians of {rounds} interleaved runs");
    println!(
        "  asked    sender                     mean        median error   within 100 ns   within 1 us   of the floor's"
    );
    for (gap, count) in ASKS {
        let mut runs: Vec<(String, Vec<Value>)> = Vec::new();
        for _ in 0..rounds {
            let mut senders = vec![("floor".to_owned(), bed.floor(gap, count)?)];
            for driver in DRIVERS {
                senders.push((format!("gen {driver}"), bed.generate(driver, gap, count)?));
                senders.push((format!("shape {driver}"), bed.shape(driver, &[], gap, count)?));
                senders.push((format!("shape {driver} split"), bed.shape(driver, &["--cores", "0,1"], gap, count)?));
            }
            for (name, figures) in senders {
                match runs.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, list)) => list.push(figures),
                    None => runs.push((name, vec![figures])),
                }
            }
        }
        let of =
            |list: &[Value], key: &str| median(list.iter().map(|run| run[key].as_f64().unwrap_or(f64::NAN)).collect());
        let floor = of(&runs[0].1, "within_1us");
        for (name, list) in &runs {
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
    Ok(())
}

/// A lab: source, box and receiver.
struct Bed {
    lab: Guard,
}

impl Bed {
    fn floor(&self, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
        let receiver = self.receiver(gap, count)?;
        self.send(Node::Box, "s0", gap, count, 1)?;
        receiver.figures()
    }

    fn generate(&self, driver: &str, gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
        let receiver = self.receiver(gap, count)?;
        let output = format!("if:s0,driver={driver}");
        let (gap, count) = (format!("{gap}ns"), count.to_string());
        let mut command = self.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
        command.args(["gen", "--out", &output, "--gap", &gap, "--count", &count, "--seed", "7", "-q", "--stream"]);
        finish(command.arg("udp 10.77.0.1:1 > 10.77.0.100:2 size random 64B-1518B").spawn()?)?;
        receiver.figures()
    }

    fn shape(&self, driver: &str, options: &[&str], gap: u64, count: u64) -> Result<Value, Box<dyn Error>> {
        let receiver = self.receiver(gap, count)?;
        let (from, to) = (format!("if:c0,driver={driver}"), format!("if:s0,driver={driver}"));
        let mut command = self.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
        command.args(["shape", "--in", &from, "--out", &to, "--gap", &format!("{gap}ns"), "--one-way", "-q"]);
        command.args(options);
        let shape = command.spawn()?;
        thread::sleep(Duration::from_millis(1_200));
        self.send(Node::Client(1), "eth0", gap, count, BATCH)?;
        thread::sleep(Duration::from_millis(200));
        Command::new("kill").args(["-s", "INT", &shape.id().to_string()]).status()?;
        finish(shape)?;
        receiver.figures()
    }

    fn send(&self, node: Node, interface: &str, gap: u64, count: u64, batch: u64) -> Outcome {
        let mut command = self.command(node, std::env::current_exe()?)?;
        command.args(["send", interface, &gap.to_string(), &count.to_string(), &batch.to_string()]);
        finish(command.stdout(Stdio::null()).spawn()?)
    }

    fn receiver(&self, gap: u64, count: u64) -> Result<Receiver, Box<dyn Error>> {
        let mut command = self.command(Node::Server, std::env::current_exe()?)?;
        command.args(["receive", "eth0", &gap.to_string(), &count.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("piped")?);
        output.read_line(&mut String::new())?;
        Ok(Receiver { child, output })
    }

    fn command(&self, node: Node, program: impl AsRef<std::ffi::OsStr>) -> Result<Command, Box<dyn Error>> {
        Ok(self.lab.command(node, program)?)
    }
}

struct Receiver {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Receiver {
    /// Tells it that the run is over, and takes its figures.
    fn figures(mut self) -> Result<Value, Box<dyn Error>> {
        self.child.stdin.take().ok_or("piped")?.write_all(b"drain\n")?;
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        finish(self.child)?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn finish(mut child: Child) -> Outcome {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("a program of the bench ended with {status}").into()) }
}
