//! Tests packet-socket ports across a veth pair, against a stamping ring and against each other.

mod common;

use common::{eal, frame, inside, ip, number, veth};
use dpdk::{BURST, Burst, Error, PacketRing, Pool, Port, PortConfig, RingConfig, Started, TscClock};
use packet::Frame;
use std::time::{Duration, Instant};

const FRAMES: u64 = 10_000;

fn open(interface: &str, mtu: u16) -> (Pool, Started) {
    let pool = Pool::new(eal(), interface, 4096, (mtu + 22).max(2_048)).expect("pool");
    let port = Port::packet(interface, &pool, &PortConfig::default()).expect("port");
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

/// Returns the numbers, lengths and stamps of up to `most` frames. Stops after half a second of silence.
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

    started.tx[0].send_by_calls().expect("a socket");
    assert!(started.tx[0].calls_for_each());
    send(&pool, &mut started.tx[0], 0..500, 1514);
    // The ring first delivers the ten frames sent above.
    let got = receive(&mut ring, 510).split_off(10);
    assert!(got.iter().enumerate().all(|(k, (n, length, _))| k as u64 == *n && *length == 1514), "in order");
    assert_eq!((got.len(), pool.available()), (500, 4096));
    assert_eq!(started.port.stats().expect("counters").tx_frames, FRAMES + 510);

    // The port also receives.
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
    // More than the 5120 slots of the ring, so that every block is used.
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
fn reports_a_link_that_goes_down() {
    if !inside("reports_a_link_that_goes_down", "-n") {
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
fn all_receivers_of_a_frame_report_the_same_stamp() {
    if !inside("all_receivers_of_a_frame_report_the_same_stamp", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let mut rings: Vec<PacketRing> =
        (0..3).map(|_| PacketRing::open("nlb", &RingConfig::default()).expect("ring")).collect();
    let (pool, mut started) = open("nla", 1500);
    // The kernel enables arrival stamps with a delay.
    std::thread::sleep(Duration::from_millis(200));
    send(&pool, &mut started.tx[0], 0..500, 1514);
    let stamps: Vec<_> = rings.iter_mut().map(|ring| receive(ring, 500)).collect();
    assert_eq!(stamps[0].len(), 500);
    // If the kernel stamped each ring's copy, the stamps would differ by the time to copy.
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

/// The kernel strips the outer tag from a frame, and the port must restore it.
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
    let (mut burst, mut received) = (Burst::new(), Vec::new());
    let begin = Instant::now();
    // More frames than the ring has slots, so that the ring wraps around.
    while received.len() < 900 * sent.len() && begin.elapsed() < Duration::from_secs(20) {
        pool.alloc_up_to(&mut burst, sent.len());
        for (mbuf, bytes) in burst.iter_mut().zip(&sent) {
            mbuf.copy_from(bytes).expect("room");
        }
        while !burst.is_empty() {
            let _ = sender.tx[0].send(&mut burst);
        }
        let all = received.len() + sent.len();
        while received.len() < all && begin.elapsed() < Duration::from_secs(20) {
            receiver.rx[0].poll(&mut burst);
            received.extend(burst.drain().map(|mbuf| mbuf.bytes().to_vec()));
        }
    }
    assert_eq!(received.len(), 900 * sent.len());
    assert!(received.chunks(sent.len()).all(|round| round == sent), "first round: {:x?}", &received[..sent.len()]);
}

/// Sends more frames than the receiving ring has slots, so that the ring wraps around, and leaves them unread for a
/// while.
#[test]
fn frames_say_how_long_they_were_there() {
    if !inside("frames_say_how_long_they_were_there", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    let (_pool, mut receiver) = open("nlb", 1500);
    let rx = &mut receiver.rx[0];
    let clock = TscClock::new(eal());
    assert!(rx.measure_waits(clock));
    let (pause, step) = (Duration::from_millis(20), Duration::from_millis(1));
    let mut burst = Burst::new();
    let mut last = units::Time::ZERO;
    for round in 0..12 {
        let (begin, start) = (Instant::now(), clock.now());
        send(&pool, &mut sender.tx[0], 0..500, 60);
        std::thread::sleep(pause);
        let mut next = 0;
        while next < 500 && begin.elapsed() < Duration::from_secs(10) {
            rx.poll(&mut burst);
            let read_at = rx.read_at().expect("waits are given");
            for frame in burst.drain() {
                assert_eq!(number(frame.bytes()), Some(next));
                let arrived = units::Time::ZERO + read_at.since(units::Time::ZERO + frame.waited());
                assert!(arrived >= last.max(start) && arrived <= clock.now(), "round {round}: {arrived:?}");
                last = arrived;
                let waited = frame.waited().to_std();
                // The stamp clock may be slewed a little.
                assert!(waited + step > pause && waited < begin.elapsed() + step, "round {round}: {waited:?}");
                next += 1;
            }
        }
        assert_eq!(next, 500, "round {round}");
    }
    // Without `measure_waits` no frame reports a wait, not even one left in its buffer by an earlier frame.
    let (rx, tx) = (&mut sender.rx[0], &mut receiver.tx[0]);
    send(&pool, tx, 0..500, 60);
    std::thread::sleep(pause);
    let begin = Instant::now();
    let mut received = 0;
    while received < 500 && begin.elapsed() < Duration::from_secs(10) {
        rx.poll(&mut burst);
        received += burst.drain().map(|frame| assert_eq!(frame.waited().as_ps(), 0)).count();
    }
    assert_eq!(received, 500);
}

/// Returns up to `most` frames that a queue delivers. Stops after 300 ms of silence.
fn delivered(rx: &mut dpdk::RxQueue, most: usize) -> Vec<Vec<u8>> {
    let (mut burst, mut received) = (Burst::new(), Vec::new());
    let mut last = Instant::now();
    while received.len() < most && last.elapsed() < Duration::from_millis(300) {
        if rx.poll(&mut burst) > 0 {
            last = Instant::now();
        }
        received.extend(burst.drain().map(|mbuf| mbuf.bytes().to_vec()));
    }
    received
}

/// Configures an address on nla and a static neighbour behind nlb. Returns a socket bound to the address.
fn neighbour() -> std::net::UdpSocket {
    ip("address add 10.9.0.1/24 dev nla");
    ip("neighbour add 10.9.0.2 lladdr 02:00:00:00:00:02 dev nla");
    std::net::UdpSocket::bind("10.9.0.1:1000").expect("a socket")
}

#[test]
fn every_port_on_an_interface_receives_everything() {
    if !inside("every_port_on_an_interface_receives_everything", "-Urn") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    let (_pools, mut ports): (Vec<_>, Vec<_>) = (0..3).map(|_| open("nlb", 1500)).unzip();
    let deaf_config = PortConfig { rx_queues: 0, ..PortConfig::default() };
    let deaf = Port::packet("nlb", &pool, &deaf_config).expect("port").start().expect("start");
    assert!(deaf.rx.is_empty());
    send(&pool, &mut sender.tx[0], 0..500, 200);
    for port in &mut ports {
        let numbers: Vec<_> = delivered(&mut port.rx[0], 500).iter().filter_map(|bytes| number(bytes)).collect();
        assert!(numbers.iter().copied().eq(0..500), "{} came", numbers.len());
        let stats = port.port.stats().expect("counters");
        assert_eq!((stats.rx_frames, stats.rx_bytes, stats.rx_missed), (500, 100_000, 0));
    }
    // Frames that one port sends do not arrive at another port on the same interface.
    send(&pool, &mut ports[0].tx[0], 0..10, 60);
    assert!(delivered(&mut ports[1].rx[0], 1).is_empty());
    assert_eq!(delivered(&mut sender.rx[0], 10).len(), 10);
    assert_eq!(deaf.port.stats().expect("counters").rx_missed, 0);
}

#[test]
fn several_queues_share_frames_by_flow() {
    if !inside("several_queues_share_frames_by_flow", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let _waits = neighbour();
    let pool = Pool::new(eal(), "queues", 4096, 2_048).expect("pool");
    let config = PortConfig { rx_queues: 3, tx_queues: 2, ..PortConfig::default() };
    // Two ports, each with its own fanout group.
    let mut ports: Vec<Started> =
        (0..2).map(|_| Port::packet("nlb", &pool, &config).expect("port").start().expect("start")).collect();
    let sockets: Vec<_> =
        (0..16).map(|i| std::net::UdpSocket::bind(("10.9.0.1", 2_000 + i)).expect("a socket")).collect();
    for round in 0..20_u8 {
        for socket in &sockets {
            socket.send_to(&[round; 20], "10.9.0.2:9").expect("sent");
        }
    }
    for port in &mut ports {
        let mut queues_of = vec![std::collections::BTreeSet::new(); sockets.len()];
        let mut count = 0;
        for (queue, rx) in port.rx.iter_mut().enumerate() {
            for bytes in delivered(rx, usize::MAX) {
                let source = u16::from_be_bytes([bytes[34], bytes[35]]);
                queues_of[usize::from(source - 2_000)].insert(queue);
                count += 1;
            }
        }
        assert_eq!(count, 320, "each frame comes once");
        assert!(queues_of.iter().all(|queues| queues.len() == 1), "a flow stays: {queues_of:?}");
        let used: std::collections::BTreeSet<_> = queues_of.iter().flatten().collect();
        assert!(used.len() > 1, "flows are shared: {queues_of:?}");
        // Frames of both transmit queues leave.
        for tx in &mut port.tx {
            send(&pool, tx, 0..3, 60);
        }
        assert_eq!(port.port.stats().expect("counters").tx_frames, 6);
    }
}

#[test]
fn fragments_pass_as_they_are() {
    if !inside("fragments_pass_as_they_are", "-Urn") {
        return;
    }
    veth("nla", "nlb", 1500);
    let socket = neighbour();
    let (_pool, mut port) = open("nlb", 1500);
    let mut ring = PacketRing::open("nlb", &RingConfig::default()).expect("ring");
    let data: Vec<u8> = (0..4_000_u16).map(|i| (i % 251) as u8).collect();
    for _ in 0..20 {
        socket.send_to(&data, "10.9.0.2:9").expect("sent");
    }
    let received = delivered(&mut port.rx[0], usize::MAX);
    assert_eq!(received.len(), 60);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    while seen.len() < 60 {
        let Some(batch) = ring.next(Duration::from_millis(500)).expect("ring") else { break };
        for received in &batch {
            let mut bytes = Vec::new();
            received.write_to(&mut bytes);
            seen.push(bytes);
        }
    }
    assert!(received == seen, "byte for byte, in order");
    assert!(
        received.iter().all(|bytes| bytes[20] & 0x20 != 0 || u16::from_be_bytes([bytes[20], bytes[21]]) & 0x1fff != 0)
    );
}

#[test]
fn completes_or_refuses_offloaded_frames() {
    if !inside("completes_or_refuses_offloaded_frames", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let socket = neighbour();
    let (_pool, mut port) = open("nlb", 1500);
    let lengths = [1, 2, 33, 1_000, 1_472];
    for length in lengths {
        socket.send_to(&vec![0x5a; length], "10.9.0.2:9").expect("sent");
    }
    let received = delivered(&mut port.rx[0], lengths.len());
    assert_eq!(received.len(), lengths.len());
    for (bytes, length) in received.iter().zip(lengths) {
        let pseudo = [&bytes[26..34], &[0, 17], &(length as u16 + 8).to_be_bytes()].concat();
        assert_eq!(packet::internet_checksum(&[&pseudo, &bytes[34..]]), 0, "{length} B: {bytes:x?}");
    }
    assert_eq!(port.port.stats().expect("counters").rx_completed, 5);

    // A super-frame of several datagrams that is still shorter than the longest accepted frame.
    use std::os::fd::AsRawFd;
    let size: libc::c_int = 100;
    // SAFETY: the kernel reads a number.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4) };
    assert_eq!(rc, 0);
    socket.send_to(&[1; 450], "10.9.0.2:9").expect("sent");
    let (mut burst, mut refused) = (Burst::new(), Vec::new());
    let begin = Instant::now();
    while refused.is_empty() && begin.elapsed() < Duration::from_secs(5) {
        assert_eq!(port.rx[0].poll(&mut burst), 0);
        refused.extend_from_slice(port.rx[0].refused());
    }
    assert_eq!(refused, [492]);
}

#[test]
fn frames_beyond_the_mtu_of_the_start_are_refused() {
    if !inside("frames_beyond_the_mtu_of_the_start_are_refused", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (_pool, mut port) = open("nlb", 1500);
    ip("link set nla mtu 9000");
    ip("link set nlb mtu 9000");
    let (pool, mut sender) = open("nla", 9000);
    let lengths = [1_514, 1_522, 1_523, 1_800, 3_000, 9_014, 60];
    for length in lengths {
        send(&pool, &mut sender.tx[0], 0..1, length);
    }
    let (mut burst, mut refused, mut received) = (Burst::new(), Vec::new(), Vec::new());
    let begin = Instant::now();
    while refused.len() + received.len() < lengths.len() && begin.elapsed() < Duration::from_secs(5) {
        port.rx[0].poll(&mut burst);
        refused.extend(port.rx[0].refused().to_vec());
        received.extend(burst.drain().map(|mbuf| mbuf.len()));
    }
    assert_eq!((received.as_slice(), refused.as_slice()), (&[1_514, 1_522, 60][..], &[1_523, 1_800, 3_000, 9_014][..]));
}

#[test]
fn counts_losses_of_a_full_ring() {
    if !inside("counts_losses_of_a_full_ring", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (_pool, mut port) = open("nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    send(&pool, &mut sender.tx[0], 0..8_000, 60);
    let received = delivered(&mut port.rx[0], usize::MAX).len() as u64;
    assert!((5_120..8_000).contains(&received), "{received}");
    assert_eq!(port.port.stats().expect("counters").rx_missed, 8_000 - received);
}

#[test]
fn a_pool_that_is_empty_loses_nothing_by_itself() {
    if !inside("a_pool_that_is_empty_loses_nothing_by_itself", "-n") {
        return;
    }
    veth("nla", "nlb", 1500);
    let (pool, mut sender) = open("nla", 1500);
    let small = Pool::new(eal(), "small", 40, 2_048).expect("pool");
    let mut port = Port::packet("nlb", &small, &PortConfig::default()).expect("port").start().expect("start");
    send(&pool, &mut sender.tx[0], 0..100, 60);
    let (mut held, mut next) = (Burst::new(), 0);
    while port.rx[0].poll(&mut held) > 0 {}
    assert_eq!(held.len(), 40);
    assert_eq!(port.rx[0].poll(&mut held), 0);
    assert!(port.port.stats().expect("counters").rx_no_buffer > 0);
    while next < 100 {
        for mbuf in held.drain() {
            assert_eq!(number(mbuf.bytes()), Some(next));
            next += 1;
        }
        assert!(port.rx[0].poll(&mut held) > 0 || next == 100, "stuck at {next}");
    }
}
