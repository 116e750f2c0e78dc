//! Sends into DPDK's TAP device, through its driver and past it, and receives with our own ring.

mod common;

use common::{eal, frame, inside, ip, number};
use dpdk::{Burst, PacketRing, Pool, Port, PortConfig, RingConfig, TscClock, TxQueue, Vdev};
use packet::Frame;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sends one numbered frame. Returns true if it was taken.
fn send(pool: &Pool, tx: &mut TxQueue, number: u64, length: usize) -> bool {
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 1);
    burst.as_mut_slice()[0].copy_from(&frame(number, length)).expect("room");
    tx.send(&mut burst) == 1
}

#[test]
fn frames_by_calls_are_those_of_the_driver() {
    if !inside("frames_by_calls_are_those_of_the_driver", "-nm") {
        return;
    }
    // Only the /sys of this namespace shows the device's flags, which tell whether frames need a header.
    let mount = Command::new("mount").args(["-t", "sysfs", "sysfs", "/sys"]).status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("SKIP: /sys of a namespace cannot be mounted here");
        return;
    }
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let pool = Pool::new(eal(), "tap", 4095, 2048).expect("pool");
    let mut started =
        Port::open(eal(), Vdev::tap("nlt"), &pool, &PortConfig::default()).expect("port").start().expect("start");
    let mut ring = PacketRing::open("nlt", &RingConfig::default()).expect("ring");
    let free = pool.available();
    for n in 0..100 {
        assert!(send(&pool, &mut started.tx[0], n, 60));
    }
    started.tx[0].send_by_calls().expect("a queue of the device");
    let by_driver = started.port.stats().expect("counters").tx_frames;
    for n in 100..300 {
        assert!(send(&pool, &mut started.tx[0], n, 60 + n as usize));
    }
    assert_eq!((by_driver, started.port.stats().expect("counters").tx_frames), (100, 100), "past the driver");
    let received = |ring: &mut PacketRing, most: usize| {
        let mut got = Vec::new();
        while got.len() < most
            && let Some(batch) = ring.next(Duration::from_millis(500)).expect("ring")
        {
            got.extend(batch.iter().filter_map(|frame| Some((number(frame.bytes)?, frame.bytes.len()))));
        }
        got
    };
    let got = received(&mut ring, 300);
    let sent = |n: u64| (n, if n < 100 { 60 } else { 60 + n as usize });
    assert_eq!(got[..], (0..300).map(sent).collect::<Vec<_>>()[..]);

    // Frames that the kernel sends through the device report how long they waited.
    assert!(started.rx[0].measure_waits(TscClock::new(eal())), "a TAP device is listened to");
    ip("addr add 10.9.9.1/24 dev nlt");
    ip("neigh add 10.9.9.2 lladdr 02:00:00:00:00:02 dev nlt");
    let socket = std::net::UdpSocket::bind("10.9.9.1:0").expect("a socket");
    for nap in [1, 20] {
        let before = Instant::now();
        // Two frames of equal length and one of another: each has its own stamp.
        for length in [20, 20, 100] {
            socket.send_to(&[7; 100][..length], "10.9.9.2:9").expect("the device is up");
            std::thread::sleep(Duration::from_millis(nap));
        }
        let (mut received, mut waits) = (Burst::new(), Vec::new());
        while waits.len() < 3 && before.elapsed() < Duration::from_secs(5) {
            started.rx[0].poll(&mut received);
            let ours = received.drain().filter(|frame| frame.bytes().starts_with(&[2, 0, 0, 0, 0, 2]));
            waits.extend(ours.map(|frame| frame.waited().as_ps() / 1_000));
        }
        let elapsed = before.elapsed().as_nanos() as u64;
        for (waited, naps) in waits.iter().zip([3, 2, 1]) {
            assert!((nap * naps * 1_000_000..=elapsed).contains(waited), "{waits:?} of {elapsed}");
        }
        assert_eq!(waits.len(), 3);
    }

    ip("link set nlt down");
    assert!(!send(&pool, &mut started.tx[0], 300, 60), "a device that is down takes nothing");
    ip("link set nlt up");
    let mut ring = PacketRing::open("nlt", &RingConfig::default()).expect("ring");
    assert!(send(&pool, &mut started.tx[0], 300, 1514));
    assert_eq!(received(&mut ring, 1), [(300, 1514)]);
    assert_eq!(pool.available(), free, "no frame is lost");
    drop(started);
    assert!(PacketRing::open("nlt", &RingConfig::default()).is_err(), "the device goes with its port");
}
