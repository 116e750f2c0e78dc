//! A receiver in the driver: an XDP program that stamps frames and drops them. With a TAP device, the receiving kernel
//! code runs on the sender's CPU. The sender then pays for this program only, not for a socket.

use crate::{Outcome, programs};
use aya::maps::Array;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader};
use std::error::Error;
use std::io::BufRead;
use std::process::Command;
use std::time::{Duration, Instant};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/real_time/stamps.bpf.c");
/// Time limit for a sender to create its device.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for a device of this name and stamps the first `count` frames that arrive on it. Prints the gaps compared with
/// `gap_ns`.
pub(crate) fn receive(interface: &str, gap_ns: u64, count: u64) -> Outcome {
    let mut bpf = load(count)?;
    let program: &mut Xdp = bpf.program_mut("stamp").ok_or("no program")?.try_into()?;
    program.load()?;
    println!("ready");
    let end = Instant::now() + PATIENCE;
    while program.attach(interface, XdpMode::Driver).is_err() {
        if Instant::now() > end {
            return Err(format!("there is no {interface}, or its driver takes no XDP program").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::io::stdin().lock().read_line(&mut String::new())?;
    let stamps: Array<_, u64> = Array::try_from(bpf.map("stamps").ok_or("no map")?)?;
    let arrived = stamps.get(&0, 0)?.min(count) as u32;
    let stamps = (1..=arrived).map(|k| stamps.get(&k, 0)).collect::<Result<Vec<_>, _>>()?;
    println!("{}", programs::figures(&stamps, &mut [], gap_ns));
    Ok(())
}

/// Compiles the program, and loads it with space for `count` stamps.
fn load(count: u64) -> Result<Ebpf, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let object = folder.path().join("stamps.bpf.o");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let status = Command::new(clang).args(["-target", "bpf", "-g", "-O2", "-c", SOURCE, "-o"]).arg(&object).status()?;
    if !status.success() {
        return Err("clang does not compile stamps.bpf.c".into());
    }
    let entries = u32::try_from(count)?.saturating_add(1);
    Ok(EbpfLoader::new().map_max_entries("stamps", entries).load_file(&object)?)
}
