//! Sent through a packet socket by DPDK, received by our own ring, across a veth pair.

mod common;

use common::{eal, frame, inside, ip, number, veth};
use dpdk::{BURST, Burst, Error, PacketRing, Pool, Port, PortConfig, RingConfig, Started, Vdev};
use packet::Frame;
use std::time::{Duration, Instant};

const FRAMES: u64 = 10_000;

fn open(interface: &str, mtu: u16) -> (Pool, Started) {
    let pool = Pool::new(eal(), interface, 4096, Vdev::af_packet_data_room(mtu)).expect("pool");
    let port = Port::open(eal(), Vdev::af_packet(interface, mtu, 1), &pool, &PortConfig::default()).expect("port");
    (pool, port.start().expect("start"))
}

/// Sends numbered frames, with a deadline.
fn send(pool: &Pool, tx: &mut dpdk::TxQueue, numbers: std::ops::Range<u64>, length: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut burst = Burst::new();
    let mut next = numbers.start;
    while next < numbers.end || !burst.is_empty() {
        assert!(Instant::now() < deadline, "stuck at {next}");
        let before = burst.len();
        let want = (BURST - before).min((numbers.end - next) as usize);
        pool.alloc_up_to(&mut burst, want);
        for mbuf in &mut burst.as_mut_slice()[before..] {
            mbuf.copy_from(&frame(next, length)).expect("room");
            next += 1;
        }
        let _ = tx.send(&mut burst);
    }
}

/// Numbers, lengths and stamps of what arrives, until nothing does for a while.
fn receive(ring: &mut PacketRing, most: usize) -> Vec<(u64, usize, u64)> {
    let mut got = Vec::new();
    while got.len() < most {
        let Some(batch) = ring.next(Duration::from_millis(500)).expect("ring") else { break };
        for received in &batch {
            assert!(!received.partial_checksum);
            got.extend(number(received.bytes).map(|n| (n, received.bytes.len(), received.time_ns)));
        }
    }
    got
}

fn ten_thousand() {
    veth("nla", "nlb", 1500);
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    let (pool, mut started) = open("nla", 1500);
    let info = started.port.info().expect("info");
    assert_eq!((info.interface.as_deref(), info.mtu, info.max_frame), (Some("nla"), 1500, 1514));
    assert!(info.link_up && !info.send_on_timestamp, "{info:?}");

    let begin = Instant::now();
    send(&pool, &mut started.tx[0], 0..FRAMES, 60);
    println!("af_packet: {:.2} Mpps", FRAMES as f64 / begin.elapsed().as_micros() as f64);
    let got = receive(&mut ring, FRAMES as usize);
    assert_eq!(got.len() as u64, FRAMES);
    assert!(got.iter().enumerate().all(|(k, (n, length, _))| k as u64 == *n && *length == 60), "in order");
    assert!(got.windows(2).all(|w| w[0].2 <= w[1].2), "stamps never go back");
    let counts = ring.counts().expect("counters");
    assert_eq!((counts.received, counts.dropped), (FRAMES, 0));
    assert_eq!(pool.available(), 4096);
    assert_eq!(started.port.stats().expect("counters").tx_frames, FRAMES);

    // Outgoing frames are not received: what nla sends does not show on nla.
    let mut own = PacketRing::open("nla", &RingConfig::default()).expect("ring");
    send(&pool, &mut started.tx[0], 0..10, 60);
    assert_eq!(receive(&mut own, 1).len(), 0);

    // Each by a call of its own: past the driver, and as whole and in order.
    started.tx[0].send_by_calls().expect("a socket");
    let by_driver = started.port.stats().expect("counters").tx_frames;
    send(&pool, &mut started.tx[0], 0..500, 1514);
    // Behind the ten above.
    let got = receive(&mut ring, 510).split_off(10);
    assert!(got.iter().enumerate().all(|(k, (n, length, _))| k as u64 == *n && *length == 1514), "in order");
    assert_eq!((got.len(), pool.available()), (500, 4096));
    assert_eq!(started.port.stats().expect("counters").tx_frames, by_driver);

    // The port receives, too: fewer frames than the ring of a user namespace holds.
    let (peer_pool, mut peer) = open("nlb", 1500);
    send(&peer_pool, &mut peer.tx[0], 0..500, 1514);
    let mut burst = Burst::new();
    let (mut next, deadline) = (0, Instant::now() + Duration::from_secs(10));
    while next < 500 && Instant::now() < deadline {
        started.rx[0].poll(&mut burst);
        for mbuf in burst.drain() {
            assert_eq!((number(mbuf.bytes()), mbuf.len()), (Some(next), 1514));
            next += 1;
        }
    }
    assert_eq!(next, 500);
}

#[test]
fn sends_10_000_as_root() {
    if inside("sends_10_000_as_root", "-n") {
        ten_thousand();
    }
}

#[test]
fn sends_10_000_in_a_user_namespace() {
    if inside("sends_10_000_in_a_user_namespace", "-Urn") {
        ten_thousand();
    }
}

#[test]
fn jumbo_slots_start_and_carry() {
    if !inside("jumbo_slots_start_and_carry", "-n") {
        return;
    }
    veth("nla", "nlb", 9000);
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    let (pool, mut started) = open("nla", 9000);
    // More than the ring of 5120 slots has, so that slots in every block are used.
    send(&pool, &mut started.tx[0], 0..6000, 9014);
    let got = receive(&mut ring, 6000);
    let dropped = ring.counts().expect("counters").dropped;
    assert_eq!(got.len() as u64 + dropped, 6000, "32 MiB may not hold them all");
    assert!(got.len() > 1000 && got.iter().all(|(_, length, _)| *length == 9014));

    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 1);
    burst.as_mut_slice()[0].copy_from(&frame(0, 9015)).expect("room");
    assert_eq!((started.tx[0].send(&mut burst), started.tx[0].oversize()), (0, 1));
}

#[test]
fn a_link_that_goes_down_is_told() {
    if !inside("a_link_that_goes_down_is_told", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut started) = open("nla", 1500);
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    ip("link set nla down");
    assert!(!started.port.info().expect("info").link_up);
    let mut burst = Burst::new();
    let mut taken = 0;
    for k in 0..1000 {
        let free = burst.room();
        pool.alloc_up_to(&mut burst, free);
        for mbuf in burst.iter_mut() {
            mbuf.copy_from(&frame(k, 60)).expect("room");
        }
        taken += started.tx[0].send(&mut burst);
    }
    println!("af_packet, link down: {taken} of 64000 taken, {:?}", started.port.stats().expect("counters"));
    drop(burst);
    ip("link set nla up");
    send(&pool, &mut started.tx[0], 0..100, 60);
    let got = receive(&mut ring, usize::MAX);
    println!("af_packet, link up again: {} received", got.len());
    assert!(got.len() >= 100, "it sends again");

    ip("link set nlb down");
    let told = (0..5).find_map(|_| ring.next(Duration::from_millis(100)).err());
    assert!(matches!(told, Some(Error::InterfaceDown { name }) if name == "nlb"));
    assert!(matches!(PacketRing::open("nlb", &RingConfig::default()), Err(Error::InterfaceDown { .. })));
    assert!(matches!(PacketRing::open("absent", &RingConfig::default()), Err(Error::NoInterface { .. })));

    ip("link set nlb up");
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    ip("link del nlb");
    let told = (0..5).find_map(|_| ring.next(Duration::from_millis(100)).err());
    assert!(matches!(told, Some(Error::InterfaceGone { name }) if name == "nlb"), "a remedy that cannot help");
}

#[test]
fn all_receivers_of_a_frame_tell_the_same_stamp() {
    if !inside("all_receivers_of_a_frame_tell_the_same_stamp", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let mut rings: Vec<PacketRing> =
        (0..3).map(|_| PacketRing::open("nlb", &RingConfig::default()).expect("ring")).collect();
    let (pool, mut started) = open("nla", 1500);
    // The kernel begins to stamp arrivals some time after it was asked to.
    std::thread::sleep(Duration::from_millis(200));
    send(&pool, &mut started.tx[0], 0..500, 1514);
    let stamps: Vec<_> = rings.iter_mut().map(|ring| receive(ring, 500)).collect();
    assert_eq!(stamps[0].len(), 500);
    // Stamped as each ring got its copy, they would be the copies apart.
    assert!(stamps.iter().all(|of| *of == stamps[0]));
}

#[test]
fn tags_and_snap_lengths() {
    if !inside("tags_and_snap_lengths", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let config = RingConfig { snaplen: Some(40), ..RingConfig::default() };
    let mut short = PacketRing::open("nlb", &config).expect("ring");
    let mut whole = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    let (pool, mut started) = open("nla", 1500);
    let mut tagged = frame(0, 1518);
    tagged[12..16].copy_from_slice(&[0x81, 0x00, 0x60, 0x2a]);
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 1);
    burst.as_mut_slice()[0].copy_from(&tagged).expect("room");
    assert_eq!(started.tx[0].send(&mut burst), 1, "a tag may make it longer");

    let batch = whole.next(Duration::from_secs(1)).expect("ring").expect("a frame");
    let received = batch.iter().next().expect("a frame");
    let vlan = received.vlan.expect("its tag");
    assert_eq!((vlan.tpid, vlan.tci), (0x8100, 0x602a));
    assert_eq!((received.original_len, received.link_len()), (1514, 1518));
    let mut again = Vec::new();
    received.write_to(&mut again);
    assert_eq!(again, tagged);

    let batch = short.next(Duration::from_secs(1)).expect("ring").expect("a frame");
    let received = batch.iter().next().expect("a frame");
    assert_eq!((received.bytes.len(), received.original_len), (40, 1514));
}

/// DPDK's driver puts the tag that the kernel took out back as 8100, whatever it was.
#[test]
fn tags_arrive_as_they_were() {
    if !inside("tags_arrive_as_they_were", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    let (_pool, mut receiver) = open("nlb", 1500);
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for tags in
        [&[0x8100][..], &[0x88a8], &[], &[0x88a8, 0x8100], &[0x8100, 0x8100], &[0x88a8, 0x88a8, 0x8100], &[0x9100]]
    {
        let mut bytes = frame(0, 200);
        for (i, tag) in tags.iter().rev().enumerate() {
            let identifier = 0x6000 + i as u16;
            bytes.splice(12..12, [u16::to_be_bytes(*tag), identifier.to_be_bytes()].concat());
        }
        sent.push(bytes);
    }
    let (mut burst, mut came) = (Burst::new(), Vec::new());
    let begin = Instant::now();
    // More than the ring has slots, so that it is gone round.
    while came.len() < 900 * sent.len() && begin.elapsed() < Duration::from_secs(20) {
        pool.alloc_up_to(&mut burst, sent.len());
        for (mbuf, bytes) in burst.iter_mut().zip(&sent) {
            mbuf.copy_from(bytes).expect("room");
        }
        while !burst.is_empty() {
            let _ = sender.tx[0].send(&mut burst);
        }
        let all = came.len() + sent.len();
        while came.len() < all && begin.elapsed() < Duration::from_secs(20) {
            receiver.rx[0].poll(&mut burst);
            came.extend(burst.drain().map(|mbuf| mbuf.bytes().to_vec()));
        }
    }
    assert_eq!(came.len(), 900 * sent.len());
    assert!(came.chunks(sent.len()).all(|round| round == sent), "first round: {:x?}", &came[..sent.len()]);
}

/// More frames than the receiving ring has slots, so that it is gone round, and nobody looks at them for a while.
#[test]
fn frames_say_how_long_they_were_there() {
    if !inside("frames_say_how_long_they_were_there", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    let (_pool, mut receiver) = open("nlb", 1500);
    let rx = &mut receiver.rx[0];
    assert!(rx.tell_waits());
    let (pause, step) = (Duration::from_millis(20), Duration::from_millis(1));
    let mut burst = Burst::new();
    for round in 0..12 {
        let begin = Instant::now();
        // As many as the ring of a user namespace holds.
        send(&pool, &mut sender.tx[0], 0..500, 60);
        std::thread::sleep(pause);
        let mut next = 0;
        while next < 500 && begin.elapsed() < Duration::from_secs(10) {
            rx.poll(&mut burst);
            for frame in burst.drain() {
                assert_eq!(number(frame.bytes()), Some(next));
                let waited = frame.waited().to_std();
                // The clock of the stamps may be slewed a little.
                assert!(waited + step > pause && waited < begin.elapsed() + step, "round {round}: {waited:?}");
                next += 1;
            }
        }
        assert_eq!(next, 500, "round {round}");
    }
    // Who does not ask is told nothing, nor of what a buffer's last frame waited.
    let (rx, tx) = (&mut sender.rx[0], &mut receiver.tx[0]);
    send(&pool, tx, 0..500, 60);
    std::thread::sleep(pause);
    let begin = Instant::now();
    let mut came = 0;
    while came < 500 && begin.elapsed() < Duration::from_secs(10) {
        rx.poll(&mut burst);
        came += burst.drain().map(|frame| assert_eq!(frame.waited().as_ps(), 0)).count();
    }
    assert_eq!(came, 500);
}
