//! Tests AF_XDP ports across a veth pair, against our own ring and packet sockets.

mod common;

use common::{eal, frame, inside, ip, number, veth};
use dpdk::{BURST, Burst, PacketRing, Pool, Port, PortConfig, RingConfig, TscClock, Vdev};
use packet::Frame;
use std::time::{Duration, Instant};

const FRAMES: u64 = 10_000;

#[test]
fn sends_10_000() {
    if !inside("sends_10_000", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let room = Vdev::af_xdp_data_room(1500).expect("an MTU for XDP");
    let pool = Pool::new(eal(), "xdp", 16_384, room).expect("pool");
    let opened = Port::open(eal(), Vdev::af_xdp("nla", 1), &pool, &PortConfig::default());
    let mut started = match opened.and_then(Port::start) {
        Ok(started) => started,
        Err(error) => {
            println!("SKIP: {error}");
            return;
        }
    };
    println!("{:?}", started.port.info().expect("info"));
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    let deadline = Instant::now() + Duration::from_secs(20);
    let (mut burst, mut next) = (Burst::new(), 0);
    let begin = Instant::now();
    while next < FRAMES || !burst.is_empty() {
        assert!(Instant::now() < deadline, "stuck at {next}");
        let before = burst.len();
        pool.alloc_up_to(&mut burst, (BURST - before).min((FRAMES - next) as usize));
        for mbuf in &mut burst.as_mut_slice()[before..] {
            mbuf.copy_from(&frame(next, 60)).expect("room");
            next += 1;
        }
        let _ = started.tx[0].send(&mut burst);
    }
    println!("af_xdp: {:.2} Mpps", FRAMES as f64 / begin.elapsed().as_micros() as f64);
    let mut got = Vec::new();
    while got.len() < FRAMES as usize {
        let Some(batch) = ring.next(Duration::from_millis(500)).expect("ring") else { break };
        got.extend(batch.iter().filter_map(|r| Some((number(r.bytes)?, r.time_ns))));
    }
    assert_eq!(got.len() as u64, FRAMES, "{:?} {:?}", started.port.stats(), ring.counts());
    assert!(got.iter().enumerate().all(|(k, (n, _))| k as u64 == *n), "in order");
    assert!(got.windows(2).all(|w| w[0].1 <= w[1].1), "stamps never go back");

    // The other direction: from a packet socket to the XDP socket.
    let other = Pool::new(eal(), "packet", 4096, 2_048).expect("pool");
    let mut peer = Port::packet("nlb", &other, &PortConfig::default()).and_then(Port::start).expect("peer");
    let (mut sent, mut seen) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(10);
    while seen < 1000 && Instant::now() < deadline {
        if sent < 1000 {
            other.alloc_up_to(&mut burst, 50);
            for mbuf in &mut burst {
                mbuf.copy_from(&frame(sent, 1514)).expect("room");
                sent += 1;
            }
            assert_eq!(peer.tx[0].send(&mut burst), 50);
        }
        let mut received = Burst::new();
        started.rx[0].poll(&mut received);
        for mbuf in &received {
            assert_eq!((number(mbuf.bytes()), mbuf.len()), (Some(seen), 1514));
            seen += 1;
        }
    }
    assert_eq!(seen, 1000);

    // Frames in the socket's ring report how long they waited.
    if !started.rx[0].measure_waits(TscClock::new(eal())) {
        println!("SKIP: this kernel lets no program stamp frames");
        return;
    }
    for nap in [1, 20] {
        other.alloc_up_to(&mut burst, 1);
        burst.as_mut_slice()[0].copy_from(&frame(7, 60)).expect("room");
        let before = Instant::now();
        assert_eq!(peer.tx[0].send(&mut burst), 1);
        std::thread::sleep(Duration::from_millis(nap));
        let mut received = Burst::new();
        while received.is_empty() && before.elapsed() < Duration::from_secs(5) {
            started.rx[0].poll(&mut received);
        }
        let elapsed = before.elapsed().as_nanos() as u64;
        let waited = received.iter().map(|frame| frame.waited().as_ps() / 1_000).next().expect("a frame");
        assert!((nap * 1_000_000..=elapsed).contains(&waited), "{waited} ns of {elapsed}");
    }
}

/// Sends bursts of 1, 2, 3, 1, 2, 3 … frames on `interface` after [`dpdk::TxQueue::send_by_calls`], and checks that
/// they arrive at `peer` in order. Returns the number of frames that the driver sent and the total number.
fn driven(interface: &str, peer: &str) -> Option<(u64, u64)> {
    let room = Vdev::af_xdp_data_room(1500).expect("an MTU for XDP");
    let pool = Pool::new(eal(), &format!("pool-{interface}"), 16_384, room).expect("pool");
    let opened = Port::open(eal(), Vdev::af_xdp(interface, 1), &pool, &PortConfig::default());
    let mut started = match opened.and_then(Port::start) {
        Ok(started) => started,
        Err(error) => {
            println!("SKIP: {error}");
            return None;
        }
    };
    let mut ring = PacketRing::open(peer, &RingConfig::default()).expect("ring");
    started.tx[0].send_by_calls().expect("a socket");
    let (mut burst, mut next) = (Burst::new(), 0);
    for frames in [1, 2, 3].into_iter().cycle().take(900) {
        pool.alloc_up_to(&mut burst, frames);
        for mbuf in &mut burst {
            mbuf.copy_from(&frame(next, 60)).expect("room");
            next += 1;
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while !burst.is_empty() {
            assert!(Instant::now() < deadline, "stuck at {next}");
            let _ = started.tx[0].send(&mut burst);
        }
    }
    let mut got = Vec::new();
    while got.len() < next as usize {
        let Some(batch) = ring.next(Duration::from_millis(500)).expect("ring") else { break };
        got.extend(batch.iter().filter_map(|received| number(received.bytes)));
    }
    assert!(got.iter().copied().eq(0..next), "{} of {next} came, or not in order", got.len());
    Some((started.port.stats().expect("counters").tx_frames, next))
}

#[test]
fn single_frames_leave_by_system_call_and_overtake_nothing() {
    if !inside("single_frames_leave_by_system_call_and_overtake_nothing", "-n") {
        return;
    }
    veth("nlc", "nld", 1500);
    let Some(by_driver) = driven("nlc", "nld") else { return };
    assert_eq!(by_driver, (1_500, 1_800), "those in bursts");
    ip("link add nle numtxqueues 4 numrxqueues 4 type veth peer name nlf numtxqueues 4 numrxqueues 4");
    for end in ["nle", "nlf"] {
        ip(&format!("link set {end} up"));
    }
    // With several queues, the kernel chooses the queue of a packet socket, so all frames leave by the driver.
    assert_eq!(driven("nle", "nlf"), Some((1_800, 1_800)));
}
