//! Ownership of frames, on devices that need no privilege: every frame returns to its pool.

mod common;

use common::{eal, frame, number};
use dpdk::{BURST, Burst, Eal, EalConfig, Error, Outgoing, Pool, Port, PortConfig, SharedFrame, TscClock, Vdev};
use packet::Frame;
use std::time::{Duration, Instant};
use units::Span;

#[test]
fn frames_return_to_their_pool_however_they_are_dropped() {
    let pool = Pool::new(eal(), "home", 1000, 2048).expect("pool");
    let all = pool.available();
    assert_eq!(all, 1000);

    let single = pool.alloc().expect("a frame");
    assert_eq!(pool.available(), all - 1);
    drop(single);

    let mut burst = Burst::new();
    assert_eq!(pool.alloc_up_to(&mut burst, 10), 10);
    assert_eq!(pool.alloc_bulk(&mut burst), BURST - 10);
    assert_eq!((burst.len(), burst.room(), pool.available()), (BURST, 0, all - BURST));
    let extra = pool.alloc().expect("a frame");
    assert!(burst.push(extra).is_err(), "a full burst gives it back");

    let mut drain = burst.drain();
    let kept = drain.next().expect("the first");
    assert_eq!(drain.len(), BURST - 1);
    drop(drain);
    assert!(burst.is_empty());
    assert_eq!(pool.available(), all - 1);
    drop(kept);

    pool.alloc_up_to(&mut burst, 5);
    for (n, frame) in burst.iter_mut().enumerate() {
        frame.copy_from(&[n as u8; 60]).expect("room");
    }
    assert_eq!(burst.retain(|f| f.bytes()[0] % 2 == 0), 2);
    assert_eq!(burst.iter().map(|f| f.bytes()[0]).collect::<Vec<_>>(), [0, 2, 4]);
    let first = burst.pop_front().expect("a frame");
    pool.alloc_bulk(&mut burst);
    burst.pop_front();
    burst.push(first).expect("room after popping, at the end of the array too");
    assert_eq!(burst.as_slice().last().expect("it").bytes()[0], 0);
    drop(burst);
    assert_eq!(pool.available(), all);
}

#[test]
fn an_empty_pool_is_no_panic() {
    let pool = Pool::new(eal(), "small", 63, 256).expect("pool");
    let mut burst = Burst::new();
    assert_eq!(pool.alloc_bulk(&mut burst), 0, "all or none");
    assert_eq!(pool.alloc_up_to(&mut burst, 63), 63);
    assert!(pool.alloc().is_none());
    burst.clear();
    assert!(pool.alloc().is_some());
}

#[test]
fn lengths_stay_within_the_buffer() {
    let pool = Pool::new(eal(), "lengths", 8, 256).expect("pool");
    let mut frame = pool.alloc().expect("a frame");
    assert_eq!((frame.len(), frame.capacity()), (0, 256));
    frame.copy_from(&[7; 256]).expect("just fits");
    assert_eq!(frame.bytes(), [7; 256]);
    let error = frame.copy_from(&[1; 257]).expect_err("one too many");
    assert!(matches!(error, Error::FrameTooLong { length: 257, room: 256 }));
    assert_eq!(frame.bytes(), [7; 256], "as it was");
    frame.set_len(60).expect("shorter");
    assert_eq!(frame.length().bytes(), 64, "with FCS");
    assert!(matches!(Pool::new(eal(), "none", 0, 256), Err(Error::Pool { .. })));
    let error = Pool::new(eal(), "huge", 4_000_000, 2048).expect_err("more than there is");
    assert!(error.to_string().contains("more memory"), "{error}");
}

#[test]
fn a_pool_is_used_again_only_when_all_its_frames_are_home() {
    let shape = (77, 333);
    let first = Pool::new(eal(), "a", shape.0, shape.1).expect("pool");
    let frame = first.alloc().expect("a frame");
    drop(first);
    let second = Pool::new(eal(), "b", shape.0, shape.1).expect("another");
    assert_eq!(second.available(), 77, "not the one with a frame out");
    drop(frame);
    let third = Pool::new(eal(), "c", shape.0, shape.1).expect("the first again");
    assert_eq!((third.available(), third.name()), (77, "c"));
}

#[test]
fn a_full_ring_leaves_the_remaining_frames_and_a_port_closes_with_its_last_queue() {
    let pool = Pool::new(eal(), "ring", 2048, 2048).expect("pool");
    let device = Vdev::ring();
    let name = device.as_str().to_owned();
    let mut started = Port::open(eal(), &device, &pool, &PortConfig::default()).expect("ring").start().expect("start");
    assert!(matches!(
        Port::open(eal(), &device, &pool, &PortConfig::default()),
        Err(Error::PortInUse { device }) if device == name
    ));
    let (mut rx, mut tx) = (started.rx.remove(0), started.tx.remove(0));

    let mut burst = Burst::new();
    let mut sent = 0_u64;
    let tail = loop {
        pool.alloc_up_to(&mut burst, BURST);
        for (k, mbuf) in burst.iter_mut().enumerate() {
            mbuf.copy_from(&frame(sent + k as u64, 60)).expect("room");
        }
        sent += tx.send(&mut burst) as u64;
        if !burst.is_empty() {
            break burst.len();
        }
    };
    assert_eq!(sent, 1023, "what a DPDK ring of 1024 holds");
    assert_eq!(burst.iter().filter_map(|f| number(f.bytes())).min(), Some(sent), "the tail, from its first on");
    assert_eq!(pool.available(), 2048 - 1023 - tail);
    drop(burst);

    let mut got = Burst::new();
    let mut next = 0;
    while rx.poll(&mut got) > 0 {
        for mbuf in got.drain() {
            assert_eq!(number(mbuf.bytes()), Some(next));
            next += 1;
        }
    }
    assert_eq!(next, sent);
    assert_eq!(pool.available(), 2048);
    let stats = started.port.stats().expect("counters");
    assert_eq!((stats.tx_frames, stats.rx_frames), (sent, sent));
    assert!(started.port.xstats().expect("counters").contains(&("rx_good_packets".to_owned(), sent)));

    drop((started, tx));
    assert!(Port::open(eal(), &device, &pool, &PortConfig::default()).is_err(), "the receive queue keeps it");
    drop(rx);
    let again = Port::open(eal(), &device, &pool, &PortConfig::default()).expect("free again");
    assert_eq!(again.info().expect("info").device, name);
}

#[test]
fn frames_longer_than_the_link_carries_are_counted_not_sent() {
    let pool = Pool::new(eal(), "oversize", 512, 2048).expect("pool");
    let config = PortConfig { mtu: Some(1000), ..PortConfig::default() };
    let mut started = Port::open(eal(), Vdev::null(), &pool, &config).expect("null").start().expect("start");
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 5);
    for (mbuf, length) in burst.iter_mut().zip([60, 1014, 1015, 1018, 2048]) {
        mbuf.copy_from(&frame(0, length)).expect("room");
    }
    // The fourth frame has a tag, so it may be four bytes longer.
    burst.as_mut_slice()[3].bytes_mut()[12..14].copy_from_slice(&[0x81, 0]);
    let tx = &mut started.tx[0];
    assert_eq!(tx.max_frame(), 1014);
    assert_eq!(tx.send(&mut burst), 3);
    assert_eq!((tx.oversize(), burst.len(), pool.available()), (2, 0, 512));
    let mut nothing = Burst::new();
    assert_eq!(started.rx[0].poll(&mut nothing), 0, "it receives nothing");
}

#[test]
fn errors_name_the_cause_and_the_remedy() {
    let pool = Pool::new(eal(), "errors", 64, 1024).expect("pool");
    let open = |device: &str, config: PortConfig| {
        Port::open(eal(), device, &pool, &config).map(|_| ()).expect_err(device).to_string()
    };
    let absent = open("net_af_packet9,iface=absent0", PortConfig::default());
    assert!(absent.contains("absent0") && absent.contains("ip link"), "{absent}");
    let packets = open("net_af_packet9,iface=lo", PortConfig::default());
    assert!(packets.contains("write if:lo,driver=af_packet"), "{packets}");
    let unknown = open("net_nonsense0", PortConfig::default());
    assert!(unknown.contains("net_nonsense0") && unknown.contains("DPDK says"), "{unknown}");
    let queues = open("net_null9", PortConfig { rx_queues: 5000, ..PortConfig::default() });
    assert!(queues.contains("receive queues, not 5000"), "{queues}");
    let room = open("net_null9", PortConfig { mtu: Some(1500), ..PortConfig::default() });
    assert!(room.contains("1526") && room.contains("1024"), "{room}");
    assert!([absent, unknown, queues, room].iter().all(|e| !e.contains('\n')));
    // No failed attempt keeps the name reserved.
    Port::open(eal(), "net_null9", &pool, &PortConfig::default()).expect("free");
    assert!(matches!(Eal::init(&EalConfig::default()), Err(Error::EalTwice)));
}

#[test]
fn starting_dpdk_leaves_the_affinity_alone() {
    eal();
    let allowed = |path: &str| {
        let status = std::fs::read_to_string(path).expect("status");
        status.lines().find(|l| l.starts_with("Cpus_allowed_list")).map(str::to_owned)
    };
    // Whichever thread started DPDK, its affinity is still that of the process's first thread.
    let own = std::thread::spawn(move || allowed("/proc/thread-self/status")).join().expect("thread");
    assert_eq!(own, allowed("/proc/self/status"));
    assert_eq!(own, allowed("/proc/thread-self/status"));
}

#[test]
fn registered_threads_share_a_pool() {
    let pool = Pool::new(eal(), "threads", 4096, 256).expect("pool");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _worker = eal().register_thread().expect("register");
                let _again = eal().register_thread().expect("harmless");
                let mut burst = Burst::new();
                for _ in 0..2000 {
                    pool.alloc_bulk(&mut burst);
                    burst.clear();
                }
            });
        }
    });
    assert_eq!(pool.available(), 4096);
}

#[test]
fn the_clock_advances_with_the_kernel_clock() {
    let clock = TscClock::new(eal());
    let (mut worst, begin) = (Vec::new(), Instant::now());
    for _ in 0..20 {
        let (before, at) = (begin.elapsed(), clock.now());
        std::thread::sleep(Duration::from_millis(5));
        let (after, now) = (begin.elapsed(), clock.now());
        worst.push((now.since(at).as_ns_f64() - (after - before).as_nanos() as f64).abs());
    }
    worst.sort_by(f64::total_cmp);
    assert!(worst[10] < 2_000.0, "median disagreement over 5 ms: {} ns", worst[10]);

    let mut late = Vec::new();
    for _ in 0..1000 {
        let due = clock.now() + Span::from_us(3);
        let reached = clock.spin_until(due);
        assert!(reached >= due, "never early");
        late.push(reached.since(due).as_ps());
    }
    late.sort_unstable();
    assert!(late[500] < 300_000, "median lateness: {} ps", late[500]);

    let wall =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let ours = clock.wall_at_zero() + clock.now().as_ps() / 1000;
    assert!(wall.abs_diff(ours) < 1_000_000, "{wall} {ours}");
}

#[test]
fn taken_buffers_are_as_they_were_but_for_their_length() {
    let pool = Pool::new(eal(), "taken", 63, 256).expect("pool");
    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 63);
    burst.iter_mut().for_each(|frame| frame.copy_from(&[5; 100]).expect("room"));
    burst.clear();
    assert_eq!(pool.take_up_to(&mut burst, 50, 60), 50);
    assert!(burst.iter().all(|frame| frame.bytes() == [5; 60]));
    assert_eq!(pool.take_up_to(&mut burst, 50, 60), 0, "all or none");
    assert_eq!(pool.available(), 13);
}

#[test]
fn each_queue_of_a_ring_port_has_its_own_ring() {
    let pool = Pool::new(eal(), "rings", 255, 256).expect("pool");
    let mut started = Port::ring(eal(), 64, 2, &pool).and_then(Port::start).expect("two rings");
    let mut burst = Burst::new();
    for (queue, frames) in [(0, 3), (1, 5)] {
        assert_eq!(pool.take_up_to(&mut burst, frames, 60), frames);
        assert_eq!(started.tx[queue].send(&mut burst), frames);
    }
    for (queue, frames) in [(0, 3), (1, 5)] {
        assert_eq!((started.rx[queue].poll(&mut burst), started.rx[queue].poll(&mut burst)), (frames, 0));
        burst.clear();
    }
    assert!(Port::ring(eal(), 64, 17, &pool).is_err(), "there are at most 16 rings");
}

#[test]
fn kept_frames_return_to_their_pool_when_they_are_dropped() {
    let pool = Pool::new(eal(), "kept", 600, 256).expect("pool");
    let mut started = Port::ring(eal(), 1_024, 1, &pool).and_then(Port::start).expect("a ring");
    let made = |byte: u8, length: usize| {
        let mut frame = pool.alloc().expect("a frame");
        frame.copy_from(&vec![byte; length]).expect("room");
        frame
    };
    let kept = [SharedFrame::from(made(1, 60)), SharedFrame::from(made(2, 61))];
    let mut out = Outgoing::new();
    let mut received = Burst::new();
    for round in 0..200 {
        while out.room() > 0 {
            match out.len() % 3 {
                2 => out.push(made(3, 62)),
                which => out.push_kept(&kept[which], 1),
            }
        }
        assert_eq!((started.tx[0].send_out(&mut out), out.is_empty()), (BURST, true), "{round}");
        assert_eq!(started.rx[0].poll_up_to(&mut received, BURST), BURST);
        for (frame, which) in received.iter().zip((0..3).cycle()) {
            assert_eq!(frame.bytes(), vec![which + 1; 60 + usize::from(which)]);
        }
        let kept_elsewhere = received.as_mut_slice().first_mut().expect("a frame");
        let change = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kept_elsewhere.set_len(60)));
        assert!(change.is_err(), "what its sender keeps is not to be changed");
        received.clear();
    }
    assert_eq!((kept[0].bytes(), kept[1].len()), (&[1; 60][..], 61));
    for first in (0..=BURST).chain([BURST; 3]) {
        out.push_kept(&kept[0], first);
        out.push_kept(&kept[1], BURST - first);
        assert_eq!((started.tx[0].send_out(&mut out), out.is_empty()), (BURST, true));
        assert_eq!(started.rx[0].poll_up_to(&mut received, BURST), BURST);
        let firsts = received.iter().take_while(|frame| frame.len() == 60).count();
        assert_eq!((firsts, received.iter().skip(first).all(|frame| frame.len() == 61)), (first, true));
        received.clear();
    }
    out.push_kept(&kept[0], 1);
    out.push(made(4, 60));
    assert_eq!(pool.available(), 600 - 3);
    drop(out);
    assert_eq!(pool.available(), 600 - 2, "what was not sent is released");
    drop(kept);
    assert_eq!(pool.available(), 600);
}
