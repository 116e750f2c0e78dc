//! Frames that a core generates, compared with testpmd in the same run.

use crate::bed::Bed;
use crate::{Outcome, median};
use dpdk::Vdev;
use lab::Node;
use serde_json::Value;
use std::error::Error;
use std::path::Path;
use std::process::Command;

const SECONDS: u64 = 2;

/// The loads: name and options of `gen`. Frames have 64 B unless the name says otherwise.
const LOADS: [(&str, &[&str]); 6] = [
    ("fixed stream", &["--stream", "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B stamp off"]),
    ("fixed stream, stamped", &["--stream", "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B stamp on"]),
    (
        "four ranged fields",
        &[
            "--stream",
            concat!("udp 10.0.0.1-10.0.0.250:1000-2000 > ", "10.1.0.0-10.1.64.0:1000-2000 size 64B stamp off"),
        ],
    ),
    (
        "four ranged fields, stamped",
        &[
            "--stream",
            concat!("udp 10.0.0.1-10.0.0.250:1000-2000 > ", "10.1.0.0-10.1.64.0:1000-2000 size 64B stamp on"),
        ],
    ),
    (
        "six ranged fields in VXLAN, 128 B",
        &[
            "--stream",
            concat!(
                "udp 10.0.0.1-10.0.0.250:1000-2000 > 10.1.0.0-10.1.64.0:1000-2000 in vxlan vni 1-1000 ",
                "in udp 192.0.2.1:49152-65535 > 192.0.2.2 size 128B stamp off"
            ),
        ],
    ),
    ("imix, made", &["--stream", "udp 10.0.0.1:1 > 10.0.0.2:2 size imix stamp off"]),
];

pub(crate) fn run(rounds: usize) -> Outcome {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("imix.pcap");
    let making = ["gen", "--stream", LOADS[5].1[1], "--count", "100", "-q", "--out"];
    let made = Command::new(NETLATHE).args(making).arg(format!("pcap:{}", capture.display())).status()?;
    if !made.success() {
        return Err("the capture was not made".into());
    }
    let capture = capture.display().to_string();
    let replay = ["--pcap", &capture, "--speed", "max", "--loop", "1000000000"];
    let loads = LOADS.iter().copied().chain([("imix, from a capture", &replay[..])]);
    let peer = testpmd_is_there();
    println!("speed: frames of 64 B (or imix) into net_null, Mpps; median of {rounds} x {SECONDS} s, in turns");
    for cores in 1..=2 {
        let mut ours: Vec<Vec<f64>> = vec![Vec::new(); loads.clone().count()];
        let mut theirs = Vec::new();
        for _ in 0..rounds {
            if peer {
                theirs.push(testpmd(Command::new("timeout"), "net_null0", cores)?);
            }
            for ((_, options), rates) in loads.clone().zip(&mut ours) {
                // A capture is sent by one core only.
                if cores == 1 || options[0] == "--stream" {
                    rates.push(netlathe(Command::new(NETLATHE), "dpdk:net_null0", options, cores)?);
                }
            }
        }
        let theirs = peer.then(|| median(theirs));
        if let Some(theirs) = theirs {
            println!("  {cores} core{}  {:<30} {theirs:>7.2}", plural(cores), "testpmd txonly");
        }
        for ((name, _), rates) in loads.clone().zip(ours).filter(|(_, rates)| !rates.is_empty()) {
            let rate = median(rates);
            let ratio = theirs.map_or(String::new(), |theirs| format!("  {:.2} x", rate / theirs));
            println!("  {cores} core{}  {name:<30} {rate:>7.2}{ratio}", plural(cores));
        }
    }
    if peer { veth(rounds) } else { Ok(()) }
}

/// Compares on one interface, with each driver in turn. testpmd uses DPDK's own drivers, with suitable arguments.
fn veth(rounds: usize) -> Outcome {
    let Some(bed) = Bed::up("speed")? else { return Ok(()) };
    println!("speed: frames of 64 B on veth, Mpps; median of {rounds} x {SECONDS} s, in turns");
    for driver in ["af_packet", "af_xdp"] {
        let device = match driver {
            "af_packet" => AF_PACKET.to_owned(),
            _ => Vdev::af_xdp("eth0", 1).to_string(),
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            theirs.push(testpmd(bed.command(Node::Client(1), "timeout")?, &device, 1)?);
            let command = bed.command(Node::Client(1), NETLATHE)?;
            ours.push(netlathe(command, &format!("if:eth0,driver={driver}"), LOADS[0].1, 1)?);
        }
        let (ours, theirs) = (median(ours), median(theirs));
        println!("  {driver:<10} testpmd txonly {theirs:>6.3}   fixed stream {ours:>6.3}  {:.3} x", ours / theirs);
    }
    Ok(())
}

/// DPDK's af_packet driver, with rings of 5120 frames per direction.
const AF_PACKET: &str = "net_af_packet0,iface=eth0,qdisc_bypass=1,blocksz=65536,framesz=2048,framecnt=5120";

pub(crate) const NETLATHE: &str = env!("CARGO_BIN_EXE_netlathe");
pub(crate) const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

pub(crate) fn testpmd_is_there() -> bool {
    let there = Path::new(TESTPMD).exists();
    if !there {
        println!("speed: SKIP: nothing to compare with: {TESTPMD} is not there (apt-get install dpdk-dev)");
    }
    there
}

fn plural(cores: usize) -> &'static str {
    if cores == 1 { " " } else { "s" }
}

/// Returns the rate in Mpps that `gen` reports.
fn netlathe(mut command: Command, port: &str, options: &[&str], cores: usize) -> Result<f64, Box<dyn Error>> {
    let cores = if cores == 1 { "1" } else { "0,1" };
    command.args(["gen", "--out", port, "--duration", &format!("{SECONDS}s"), "--cores", cores, "--json"]);
    let output = command.args(options).output()?;
    let report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("gen: {}", String::from_utf8_lossy(&output.stderr)))?;
    let pipeline = &report["pipelines"][0];
    let of = |path: &str| pipeline.pointer(path).and_then(Value::as_f64).ok_or(format!("no {path}"));
    Ok(of("/rate/mean_bps")? / 8.0 / (of("/out/bytes")? / of("/out/frames")?) / 1e6)
}

/// Returns the rate in Mpps that testpmd reports. `command` is `timeout` of coreutils.
fn testpmd(mut command: Command, device: &str, cores: usize) -> Result<f64, Box<dyn Error>> {
    // The main thread of testpmd, lcore 0, only waits, so it may share CPU 0 with a worker.
    let lcores = if cores == 1 { "0@0,1@1" } else { "0@0,1@0,2@1" };
    command.args(["-s", "INT", "-k", "5", &(SECONDS + 3).to_string(), TESTPMD, "--no-huge", "-m", "512"]);
    command.args(["--no-pci", "--no-telemetry", "--no-shconf", "--iova-mode=va", "--lcores", lcores, "--vdev", device]);
    let cores = cores.to_string();
    let queues = [&format!("--nb-cores={cores}"), &format!("--txq={cores}"), &format!("--rxq={cores}")];
    command.args(["--", "--forward-mode=txonly", "--txpkts=60", "--stats-period=1", "--total-num-mbufs=16384"]);
    command.args(["--no-mlockall"]).args(queues);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rates = text.lines().filter_map(|line| line.split_once("Tx-pps:")?.1.split_whitespace().next());
    let mut rates: Vec<f64> = rates.filter_map(|rate| rate.parse().ok()).filter(|rate| *rate > 0.0).collect();
    if rates.len() > 1 {
        // The first second includes the start-up.
        rates.remove(0);
    }
    if rates.is_empty() {
        return Err(format!("testpmd: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(median(rates) / 1e6)
}
