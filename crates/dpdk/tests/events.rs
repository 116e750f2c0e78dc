//! Event devices: every frame comes out once, flows keep their order, and no flow is with two workers at a time.

mod common;

use common::eal;
use dpdk::{Burst, Error, EventDevice, Pool};
use packet::Frame;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const FLOWS: u32 = 97;
const FRAMES: u64 = 30_000;

/// Sends frames through two workers. The workers check that they never share a flow, and the collector checks the order
/// of each flow.
fn through(driver: &str) {
    let eal = eal();
    let pool = Pool::new(eal, "events", 4_095, 2_048).expect("a pool");
    let device = match EventDevice::open(eal, driver, 2) {
        Ok(device) => device,
        Err(error @ Error::Attach { .. }) if error.to_string().contains("no such driver") => {
            println!("SKIP: {driver} is not installed: {error}");
            return;
        }
        Err(error) => panic!("{driver}: {error}"),
    };
    let EventDevice { mut feeder, workers, mut collector, mut scheduler, flows: most } = device;
    assert!(most >= FLOWS, "{driver} tells {most} flows apart");
    let busy: Vec<AtomicU32> = (0..FLOWS).map(|_| AtomicU32::new(0)).collect();
    let (shared, worked, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut orders = vec![0_u64; FLOWS as usize];
    let mut received = 0;
    thread::scope(|scope| {
        for mut worker in workers {
            let (busy, shared, worked, done) = (&busy, &shared, &worked, &done);
            scope.spawn(move || {
                let _registered = eal.register_thread().expect("DPDK knows this thread");
                let (mut burst, mut flows) = (Burst::new(), Vec::new());
                while !done.load(Ordering::Acquire) {
                    if worker.take(&mut burst, &mut flows) == 0 {
                        worker.flush();
                        thread::yield_now();
                        continue;
                    }
                    let mut mine: Vec<u32> = flows.clone();
                    mine.sort_unstable();
                    mine.dedup();
                    for flow in &mine {
                        shared.fetch_add(u64::from(busy[*flow as usize].swap(1, Ordering::AcqRel)), Ordering::Relaxed);
                    }
                    for frame in burst.iter_mut() {
                        frame.bytes_mut()[0] += 1;
                    }
                    worked.fetch_add(burst.len() as u64, Ordering::Relaxed);
                    for flow in &mine {
                        busy[*flow as usize].store(0, Ordering::Release);
                    }
                    while !burst.is_empty() && !done.load(Ordering::Acquire) {
                        let passed = worker.pass(&mut burst, &flows);
                        flows.drain(..passed);
                    }
                }
            });
        }
        let _registered = eal.register_thread().expect("DPDK knows this thread");
        let (mut next, mut waiting, mut flows) = (0_u64, Burst::new(), Vec::new());
        let (mut out, mut out_flows) = (Burst::new(), Vec::new());
        while received < FRAMES && Instant::now() < deadline {
            while waiting.len() < 16 && next < FRAMES {
                let Some(mut frame) = pool.alloc() else { break };
                frame.copy_from(&[&[0; 8][..], &next.to_be_bytes(), &[0; 44]].concat()).expect("room");
                waiting.push(frame).expect("room");
                flows.push((next % u64::from(FLOWS)) as u32);
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
            for (frame, flow) in out.drain().zip(&out_flows) {
                let bytes = frame.bytes();
                let number = u64::from_be_bytes(bytes[8..16].try_into().expect("eight bytes"));
                assert_eq!(bytes[0], 1, "worked on once");
                assert_eq!(number % u64::from(FLOWS), u64::from(*flow), "of its flow");
                let expected = u64::from(*flow) + orders[*flow as usize] * u64::from(FLOWS);
                assert_eq!(number, expected, "{driver}: flow {flow} in order");
                orders[*flow as usize] += 1;
                received += 1;
            }
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(received, FRAMES, "{driver}: every frame came out");
    assert_eq!(worked.load(Ordering::Relaxed), FRAMES);
    assert_eq!(shared.load(Ordering::Relaxed), 0, "{driver}: a flow was with two workers at a time");
    // After the parts are dropped, a second device can be opened and all frames are back in the pool.
    drop((feeder, collector, scheduler));
    drop(EventDevice::open(eal, driver, 1).expect("a second one"));
    assert_eq!(pool.available(), 4_095, "{driver}: every frame is back");
}

#[test]
fn in_order_by_a_scheduler_in_software() {
    through("event_sw");
}

#[test]
fn in_order_without_a_scheduler() {
    through("event_dsw");
}

#[test]
fn an_unknown_driver_is_named() {
    let error = EventDevice::open(eal(), "event_none_such", 1).expect_err("no such driver");
    assert!(error.to_string().contains("event_none_such"), "{error}");
}
