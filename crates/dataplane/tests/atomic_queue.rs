//! The scheme `atomic-queue` on DPDK's event devices in real time. Two workers, with each user at one of them at a
//! time, grant exactly the frames that one worker would grant, and keep the order of every user.

use dpdk::{Burst, Eal, EalConfig, Error, EventDevice, HugePages, Pool};
use engine::meters::{Algorithm, Answer, Bucket, Key, Moment, Users};
use packet::Frame;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use units::{BitRate, Span, Time};

const USERS: u64 = 53;
const FRAMES: u64 = 20_000;

fn eal() -> &'static Eal {
    let config = EalConfig::new("atomic").memory_mib(256).hugepages(HugePages::Never);
    Eal::running().unwrap_or_else(|| Eal::init(&config).expect("DPDK starts"))
}

/// A table in which each user has 1 Mbit/s.
fn users() -> Users {
    let bucket = Bucket::new(BitRate::from_bps(1_000_000), 3_036).expect("a bucket");
    Users::new(USERS as usize, Span::from_ms(1_000_000), Some(bucket), 1)
}

/// User, arrival time and length in bits of frame `number`. Each user sends at twice its rate.
fn what(number: u64) -> (Key, Moment, u64) {
    let bytes = 64 + number * 7_919 % 1_437;
    (Key::new(0, number % USERS), Moment::of(Time::from_ps(number * 3_128_000_000 / USERS)), bytes * 8)
}

/// Whether a single worker grants each frame.
fn alone() -> Vec<bool> {
    let users = users();
    let meter = Algorithm::Gcra.meter(1, users.capacity());
    let granted = |number| {
        let (key, at, bits) = what(number);
        let slot = users.find_or_add(key, &at).expect("room");
        meter.charge(&users, 0, slot, key, &at, bits) == Answer::Conforms
    };
    (0..FRAMES).map(granted).collect()
}

fn through(driver: &str) {
    let eal = eal();
    let expected = alone();
    let allowed = expected.iter().filter(|granted| **granted).count();
    assert!(allowed > FRAMES as usize / 3 && allowed < FRAMES as usize * 3 / 4, "{allowed} of {FRAMES} conform");
    let pool = Pool::new(eal, driver, 2_047, 2_048).expect("a pool");
    let device = match EventDevice::open(eal, driver, 2) {
        Ok(device) => device,
        Err(error @ Error::Attach { .. }) if error.to_string().contains("no such driver") => {
            println!("SKIP: {driver} is not installed: {error}");
            return;
        }
        Err(error) => panic!("{driver}: {error}"),
    };
    let EventDevice { mut feeder, workers, mut collector, mut scheduler, .. } = device;
    let users = users();
    let meter = Algorithm::AtomicQueue.meter(2, users.capacity());
    let (refused, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let by_worker = [AtomicU64::new(0), AtomicU64::new(0)];
    let mut passed: Vec<u64> = Vec::new();
    thread::scope(|scope| {
        for (number, mut worker) in workers.into_iter().enumerate() {
            let (users, meter, refused, stop, by_worker) = (&users, &meter, &refused, &stop, &by_worker);
            scope.spawn(move || {
                let _registered = eal.register_thread().expect("DPDK knows this thread");
                let (mut burst, mut flows) = (Burst::new(), Vec::new());
                while !stop.load(Ordering::Acquire) {
                    if worker.take(&mut burst, &mut flows) == 0 {
                        worker.flush();
                        thread::yield_now();
                        continue;
                    }
                    by_worker[number].fetch_add(burst.len() as u64, Ordering::Relaxed);
                    // Decides in order first; `retain` then removes exceeding frames.
                    let granted: Vec<bool> = burst
                        .iter()
                        .zip(&flows)
                        .map(|(frame, slot)| {
                            let (key, at, bits) = what(sequence(frame.bytes()));
                            meter.charge(users, number, *slot, key, &at, bits) == Answer::Conforms
                        })
                        .collect();
                    let mut next = granted.iter();
                    refused.fetch_add(burst.retain(|_| *next.next().expect("one each")) as u64, Ordering::Relaxed);
                    let mut next = granted.iter();
                    flows.retain(|_| *next.next().expect("one each"));
                    while !burst.is_empty() && !stop.load(Ordering::Acquire) {
                        let gone = worker.pass(&mut burst, &flows);
                        flows.drain(..gone);
                    }
                }
            });
        }
        let _registered = eal.register_thread().expect("DPDK knows this thread");
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut next, mut waiting, mut flows) = (0, Burst::new(), Vec::new());
        let (mut out, mut out_flows) = (Burst::new(), Vec::new());
        while (passed.len() as u64 + refused.load(Ordering::Relaxed)) < FRAMES && Instant::now() < deadline {
            while waiting.len() < 16 && next < FRAMES {
                let Some(mut frame) = pool.alloc() else { break };
                let mut bytes = [0; 60];
                bytes[..8].copy_from_slice(&next.to_be_bytes());
                frame.copy_from(&bytes).expect("room");
                waiting.push(frame).expect("room");
                let (key, at, _) = what(next);
                // Uses the dense slot as the flow, so that no two users share one, as they would with a hash.
                flows.push(users.find_or_add(key, &at).expect("room"));
                next += 1;
            }
            let fed = feeder.feed(&mut waiting, &flows);
            flows.drain(..fed);
            if fed == 0 {
                feeder.flush();
            }
            if let Some(scheduler) = &mut scheduler {
                scheduler.run();
            }
            collector.take(&mut out, &mut out_flows);
            passed.extend(out.drain().map(|frame| sequence(frame.bytes())));
        }
        stop.store(true, Ordering::Release);
    });
    let mut orders = vec![None; USERS as usize];
    for number in &passed {
        let before = orders[(number % USERS) as usize].replace(*number);
        assert!(before < Some(*number), "{driver}: user {} in order", number % USERS);
    }
    passed.sort_unstable();
    let wanted: Vec<u64> = (0..FRAMES).filter(|number| expected[*number as usize]).collect();
    assert_eq!(passed.len(), wanted.len(), "{driver}: as many as one worker grants");
    assert_eq!(passed, wanted, "{driver}: the very frames that one worker grants");
    assert!(by_worker.iter().all(|frames| frames.load(Ordering::Relaxed) > 0), "{driver}: both worked");
}

fn sequence(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
}

#[test]
fn event_devices_grant_the_same_frames_as_one_worker() {
    // One after the other, because DPDK starts only once.
    through("event_sw");
    through("event_dsw");
}
