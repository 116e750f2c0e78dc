//! Real threads compete for one user, by this machine's clock. They obtain all of rate × t + burst, and no more.

use engine::meters::{Algorithm, Answer, Bucket, Key, Moment, Users};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use units::{BitRate, Span, Time};

const FRAME: u64 = 512;
const TIME: Duration = Duration::from_secs(10);

/// The bits granted to two threads from the first to the last request, and the bits allowed in that time.
struct HammerResult {
    granted: u64,
    allowed: f64,
    questions: u64,
}

/// Two threads request frames of 64 B for `TIME`.
fn hammer(algorithm: Algorithm, bps: u64, burst: u64) -> HammerResult {
    let bucket = Bucket::new(BitRate::from_bps(bps), burst).expect("a bucket");
    let users = Users::new(4, Span::from_ms(60_000), Some(bucket), 1);
    let meter = algorithm.meter(2, 4);
    let key = Key::new(0, 7);
    let barrier = Barrier::new(2);
    let start = Instant::now();
    let worker = |number: usize| {
        barrier.wait();
        let (mut granted, mut now, mut questions) = (0, 0, 0_u64);
        let mut first = None;
        loop {
            let over = start.elapsed() >= TIME;
            now = now.max(start.elapsed().as_nanos() as u64 * 1_000);
            let at = Moment::of(Time::from_ps(now));
            let slot = users.find_or_add(key, &at).expect("room");
            questions += 1;
            let first = *first.get_or_insert(now);
            match meter.charge(&users, number, slot, key, &at, FRAME) {
                Answer::Conforms => granted += FRAME,
                // Takes the remaining tokens at the end, so that the bucket is empty at the last request.
                Answer::Exceeds if over => return (granted, first, now, questions),
                Answer::Exceeds | Answer::Gone => {}
            }
        }
    };
    let results: Vec<(u64, u64, u64, u64)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || worker(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // The bucket is full until the first request.
    let first = results.iter().map(|(_, first, ..)| *first).min().expect("two");
    let last = results.iter().map(|(_, _, last, _)| *last).max().expect("two");
    HammerResult {
        granted: results.iter().map(|(granted, ..)| granted).sum(),
        allowed: bps as f64 * (last - first) as f64 / 1e12 + (burst * 8) as f64,
        questions: results.iter().map(|(.., questions)| questions).sum(),
    }
}

/// With a bucket of 50 ms, two threads obtain all that is allowed in ten seconds, to within one frame.
#[test]
fn two_workers_obtain_all_that_is_allowed_and_no_more() {
    let rates = [(Algorithm::Gcra, 1_000_000_u64), (Algorithm::Gcra, 100_000_000), (Algorithm::Mutex, 10_000_000)];
    for (algorithm, bps) in rates {
        // Rate × 50 ms. If the machine stops both threads for longer, tokens are lost for reasons outside the meter.
        let burst = (bps / 8 / 20).max(3_036);
        let mut left = Vec::new();
        for _ in 0..3 {
            let HammerResult { granted, allowed, questions } = hammer(algorithm, bps, burst);
            println!("{algorithm} at {bps} bit/s: granted {granted} of {allowed:.0} bits, {questions} questions");
            assert!(granted as f64 <= allowed, "{algorithm} at {bps} bit/s: {granted} of {allowed}");
            left.push(allowed - granted as f64);
            if allowed - (granted as f64) < FRAME as f64 {
                break;
            }
        }
        let least = left.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least < FRAME as f64, "{algorithm} at {bps} bit/s: {left:?} bits were left, a frame has {FRAME}");
    }
}
