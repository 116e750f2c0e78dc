//! The latency and throughput cost of `emulate` without an impairment, compared with the same links without it.

use crate::bed::{self, Bed};
use crate::pass::tcp;
use crate::{Outcome, median};
use lab::Node;
use std::error::Error;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

const HOST: Node = Node::Client(1);

/// The paths from the client to the server: through the kernel's bridge alone, through netlathe in its place, and
/// through netlathe on the client's own interface followed by the bridge.
const WAYS: [(&str, Option<(Node, &str)>); 4] = [
    ("bridge alone", None),
    ("--between, af_packet", Some((Node::Box, "--between if:c0,driver=af_packet if:s0,driver=af_packet"))),
    ("--between, af_xdp", Some((Node::Box, "--between if:c0,driver=af_xdp if:s0,driver=af_xdp"))),
    ("--on eth0", Some((HOST, "--on eth0 --yes"))),
];

pub(crate) fn run(rounds: usize) -> Outcome {
    let Some(bed) = Bed::up("emulate")? else { return Ok(()) };
    println!(
        "emulate with nothing asked (--both 'loss 0%'); medians of {rounds} rounds; round trips are medians of 1000 pings"
    );
    println!("  way                      round trip        added      TCP (3 s)    of the bridge's");
    let mut alone = None;
    for (name, netlathe) in WAYS {
        let mut trips = Vec::new();
        let mut rates = Vec::new();
        for _ in 0..rounds {
            let bridged = netlathe.is_none_or(|(node, _)| node == HOST);
            if bridged {
                bridge(&bed)?;
            }
            let child = netlathe.map(|(node, words)| start(&bed, node, words)).transpose()?;
            trips.push(round_trip(&bed)?);
            rates.push(tcp(&bed)?);
            child.map(bed::interrupt).transpose()?;
            if bridged {
                bed.sh(Node::Box, "ip link del br0")?;
            }
        }
        let (trip, rate) = (median(trips), median(rates));
        let (trip_alone, rate_alone) = *alone.get_or_insert((trip, rate));
        println!(
            "  {name:<22} {trip:>9.1} us {:>+9.1} us {:>8.2} Gbit/s {:>11.0} %",
            trip - trip_alone,
            rate / 1e9,
            rate / rate_alone * 100.0
        );
    }
    Ok(())
}

fn bridge(bed: &Bed) -> Outcome {
    for line in ["link add br0 type bridge", "link set c0 master br0", "link set s0 master br0", "link set br0 up"] {
        bed.sh(Node::Box, &format!("ip {line}"))?;
    }
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn start(bed: &Bed, node: Node, words: &str) -> Result<Child, Box<dyn Error>> {
    let mut command = bed.command(node, env!("CARGO_BIN_EXE_netlathe"))?;
    command.arg("emulate").args(words.split(' ')).args(["--both", "loss 0%", "-q"]);
    let child = command.stderr(Stdio::null()).spawn()?;
    thread::sleep(Duration::from_millis(1_500));
    Ok(child)
}

/// Returns the median round trip in µs.
fn round_trip(bed: &Bed) -> Result<f64, Box<dyn Error>> {
    let said = bed.sh(HOST, "ping -c 1000 -i 0.002 10.77.0.100")?;
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok();
    let trips: Vec<f64> = said.lines().filter_map(time).map(|ms| ms * 1_000.0).collect();
    if trips.is_empty() { Err("no ping came back".into()) } else { Ok(median(trips)) }
}
