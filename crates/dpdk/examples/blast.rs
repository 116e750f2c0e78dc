//! Sends frames of one size at full speed through a device and prints the rate.
//!
//! `cargo run --release -p netlathe-dpdk --example blast -- net_null0,no-rx=1 60 2 2048`. The arguments are the
//! device, the frame length in bytes without FCS, the duration in seconds, and the buffer size in bytes.

use dpdk::{Burst, Eal, EalConfig, Pool, Port, PortConfig};
use std::time::{Duration, Instant};

fn main() -> dpdk::Result<()> {
    let mut words = std::env::args().skip(1);
    let device = words.next().unwrap_or_else(|| "net_null0,no-rx=1".into());
    let length: usize = words.next().and_then(|w| w.parse().ok()).unwrap_or(60);
    let seconds: u64 = words.next().and_then(|w| w.parse().ok()).unwrap_or(2);

    let room: u16 = words.next().and_then(|w| w.parse().ok()).unwrap_or(2048);

    let eal = Eal::init(&EalConfig::new("blast"))?;
    let pool = Pool::new(eal, "blast", 16_384, room)?;
    let mut started = Port::open(eal, &device, &pool, &PortConfig::default())?.start()?;
    let (tx, mut burst) = (&mut started.tx[0], Burst::new());
    let (begin, mut sent, mut refused) = (Instant::now(), 0_u64, 0_u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        // The clock is read once per 4096 frames.
        for _ in 0..64 {
            let before = burst.len();
            pool.alloc_up_to(&mut burst, 32 - before.min(32));
            for frame in &mut burst.as_mut_slice()[before..] {
                frame.set_len(length)?;
                packet::Frame::bytes_mut(frame)[..14]
                    .copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            }
            sent += tx.send(&mut burst) as u64;
            refused += u64::from(!burst.is_empty());
        }
    }
    let rate = sent as f64 / begin.elapsed().as_secs_f64() / 1e6;
    println!("{rate:.3} Mpps; {refused} bursts were cut; {:?}", started.port.stats()?);
    Ok(())
}
