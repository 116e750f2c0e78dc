//! Real threads that hammer one user, by the clock of this machine: never more than rate × t + burst, and all of it.

use engine::meters::{Algorithm, Answer, Bucket, Key, Moment, Users};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use units::{BitRate, Span, Time};

const FRAME: u64 = 512;

/// Two threads ask for frames of 64 B for a while; gives the bits granted and what was allowed until the last question.
fn hammer(algorithm: Algorithm, bps: u64, burst: u64, time: Duration) -> (u64, f64) {
    let bucket = Bucket::new(BitRate::from_bps(bps), burst).expect("a bucket");
    let users = Users::new(4, Span::from_ms(10_000), Some(bucket), 1);
    let meter = algorithm.meter(2, 4);
    let key = Key::new(0, 7);
    let barrier = Barrier::new(2);
    let start = Instant::now();
    let worker = |number: usize| {
        barrier.wait();
        let (mut granted, mut now) = (0, 0);
        loop {
            let over = start.elapsed() >= time;
            now = now.max(start.elapsed().as_nanos() as u64 * 1_000);
            let at = Moment::of(Time::from_ps(now));
            let slot = users.find_or_add(key, &at).expect("room");
            match meter.charge(&users, number, slot, key, &at, FRAME) {
                Answer::Conforms => granted += FRAME,
                // When the time is up what is left is taken, so that nothing lies idle at the last question.
                Answer::Exceeds if over => return (granted, now),
                Answer::Exceeds | Answer::Gone => {}
            }
        }
    };
    let results: Vec<(u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || worker(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let granted = results.iter().map(|(granted, _)| granted).sum();
    let last = results.iter().map(|(_, now)| *now).max().expect("two");
    (granted, bps as f64 * last as f64 / 1e12 + (burst * 8) as f64)
}

#[test]
fn two_workers_get_all_that_is_allowed_and_no_more() {
    // The bucket holds the whole run, so that a thread that the machine stops loses nothing.
    for algorithm in [Algorithm::Gcra, Algorithm::Mutex] {
        for bps in [1_000_000_u64, 100_000_000] {
            let time = Duration::from_millis(400);
            let (granted, allowed) = hammer(algorithm, bps, bps / 8, time);
            assert!(granted as f64 <= allowed, "{algorithm} at {bps} bit/s: {granted} of {allowed}");
            // Two frames: a bit of the last question's time passed between the two threads' ends.
            let slack = 2.0 * FRAME as f64 + bps as f64 * 0.1;
            assert!(granted as f64 > allowed - slack, "{algorithm} at {bps} bit/s: {granted} of {allowed}");
        }
    }
}
