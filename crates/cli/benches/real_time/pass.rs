//! Latency of frames that only pass through the box, and the highest rate without loss.

use crate::Outcome;
use crate::bed::{self, Bed};
use lab::Node;
use std::error::Error;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

/// Paths from `c0` to `s0` of the box.
const WAYS: [&str; 4] = ["bridge", "af_packet", "af_xdp", "tap"];

pub(crate) fn run() -> Outcome {
    let Some(bed) = Bed::up("pass")? else { return Ok(()) };
    println!("through the box with nothing asked; latency of 20 000 frames of 64 B every 100 us, from before the");
    println!("sender's system call to the receiver's stamp; highest rate of 64 B in 0.3 s of which none is lost");
    println!("  way          p50          p99          max      zero-loss rate      TCP (3 s)");
    for way in WAYS {
        let (child, undo) = open(&bed, way)?;
        let receiver = bed.receiver(100_000, 20_000)?;
        bed.send(Node::Client(1), "eth0", 100_000, 20_000, 1, "64B")?;
        thread::sleep(Duration::from_millis(100));
        let ages = receiver.figures()?;
        let us = |key: &str| ages[key].as_f64().unwrap_or(f64::NAN) / 1e3;
        print!("  {way:<10} {:>6.1} us {:>9.1} us {:>9.1} us", us("age_p50"), us("age_p99"), us("age_max"));
        print!("   {:>8.0} frames/s", zero_loss(&bed)?);
        println!("   {:>8.2} Gbit/s", tcp(&bed)? / 1e9);
        if let Some(child) = child {
            bed::interrupt(child)?;
        }
        for line in undo {
            bed.sh(Node::Box, line)?;
        }
    }
    Ok(())
}

/// The connection of the box's interfaces: netlathe, if the path uses it, and the commands that undo the rest.
type Joint = (Option<Child>, &'static [&'static str]);

/// Connects the box's interfaces by a path of `WAYS`.
fn open(bed: &Bed, way: &str) -> Result<Joint, Box<dyn Error>> {
    let shape = |input: &str, output: &str| -> Result<Child, Box<dyn Error>> {
        let mut command = bed.command(Node::Box, env!("CARGO_BIN_EXE_netlathe"))?;
        let child = command.args(["shape", "--in", input, "--out", output, "-q"]).stderr(Stdio::null()).spawn()?;
        thread::sleep(Duration::from_millis(1_500));
        Ok(child)
    };
    match way {
        "bridge" => {
            for line in ["ip link add br0 type bridge", "ip link set c0 master br0", "ip link set s0 master br0"] {
                bed.sh(Node::Box, line)?;
            }
            bed.sh(Node::Box, "ip link set br0 up")?;
            thread::sleep(Duration::from_millis(500));
            Ok((None, &["ip link del br0"]))
        }
        "tap" => {
            let child = shape("tap:nltc", "tap:nlts")?;
            for (bridge, port, tap) in [("brc", "c0", "nltc"), ("brs", "s0", "nlts")] {
                bed.sh(Node::Box, &format!("ip link add {bridge} type bridge"))?;
                for line in [format!("{port} master {bridge}"), format!("{tap} master {bridge}")] {
                    bed.sh(Node::Box, &format!("ip link set {line}"))?;
                }
                bed.sh(Node::Box, &format!("ip link set {tap} up"))?;
                bed.sh(Node::Box, &format!("ip link set {bridge} up"))?;
            }
            thread::sleep(Duration::from_millis(500));
            Ok((Some(child), &["ip link del brc", "ip link del brs"]))
        }
        driver => {
            let (from, to) = (format!("if:c0,driver={driver}"), format!("if:s0,driver={driver}"));
            Ok((Some(shape(&from, &to)?), &[]))
        }
    }
}

/// Searches for the highest rate without loss, in frames/s, to 2 %.
fn zero_loss(bed: &Bed) -> Result<f64, Box<dyn Error>> {
    let (mut low, mut high) = (10_000.0_f64, 2_000_000.0_f64);
    while high / low > 1.02 {
        let rate = (low * high).sqrt();
        let gap = (1e9 / rate) as u64;
        let count = (rate * 0.3) as u64;
        let receiver = bed.receiver(gap, count)?;
        bed.send(Node::Client(1), "eth0", gap, count, 1, "64B")?;
        thread::sleep(Duration::from_millis(100));
        let figures = receiver.figures()?;
        // A trial counts as passed only if the source kept the rate.
        let kept = figures["mean"].as_f64().is_some_and(|mean| mean < gap as f64 * 1.02);
        if figures["frames"].as_u64() == Some(count) && kept { low = rate } else { high = rate }
    }
    Ok(low)
}

/// Throughput of one TCP flow in bits per second.
pub(crate) fn tcp(bed: &Bed) -> Result<f64, Box<dyn Error>> {
    let server = bed.command(Node::Server, "iperf3")?.args(["-s", "-1"]).stdout(Stdio::null()).spawn()?;
    thread::sleep(Duration::from_millis(300));
    let text = bed.sh(Node::Client(1), "iperf3 -c 10.77.0.100 -t 3 -J")?;
    bed::finish(server)?;
    let report: serde_json::Value = serde_json::from_str(&text)?;
    report
        .pointer("/end/sum_received/bits_per_second")
        .and_then(serde_json::Value::as_f64)
        .ok_or("iperf3's figure".into())
}
