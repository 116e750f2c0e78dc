//! Checks the atomic word of a user under every thread interleaving that `loom` explores.

use engine::meters::{Answer, Bucket, Moment, Word, charge};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use units::{BitRate, Span, Time};

/// The word of the model checker, with the memory orderings of the real one.
struct Checked(AtomicU64);

impl Word for Checked {
    fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

const FRAME: u64 = 500 * 8;

/// 1 Mbit/s and a bucket of two frames of 500 B.
fn bucket() -> Bucket {
    Bucket::new(BitRate::from_bps(1_000_000), 1_000).expect("a bucket")
}

fn ask(word: &Checked, at: Time, side: u64) -> bool {
    let bucket = bucket();
    let of = |seen: u64| (seen >> 63 == side).then_some(&bucket);
    charge(word, of, &Moment::of(at), FRAME) == Answer::Conforms
}

#[test]
fn two_of_three_frames_conform_in_any_order() {
    loom::model(|| {
        let word = Arc::new(Checked(AtomicU64::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let word = word.clone();
                thread::spawn(move || ask(&word, Time::ZERO, 0))
            })
            .collect();
        let mut granted = usize::from(ask(&word, Time::ZERO, 0));
        granted += threads.into_iter().map(|t| usize::from(t.join().expect("a thread"))).sum::<usize>();
        assert_eq!(granted, 2);
        assert!(!ask(&word, Time::ZERO + Span::from_us(3_999), 0), "500 B take 4 ms");
        assert!(ask(&word, Time::ZERO + Span::from_us(4_000), 0));
    });
}

#[test]
fn disagreeing_clocks_grant_no_more() {
    loom::model(|| {
        let word = Arc::new(Checked(AtomicU64::new(0)));
        let late = Time::ZERO + Span::from_us(4_000);
        let other = {
            let word = word.clone();
            thread::spawn(move || [ask(&word, late, 0), ask(&word, late, 0)])
        };
        let mine = [ask(&word, Time::ZERO, 0), ask(&word, Time::ZERO, 0)];
        let theirs = other.join().expect("a thread");
        let granted = mine.into_iter().chain(theirs).filter(|granted| *granted).count();
        assert!((2..=3).contains(&granted), "{granted} frames in 4 ms and a bucket of two");
    });
}

#[test]
fn rate_change_loses_no_charge() {
    loom::model(|| {
        let word = Arc::new(Checked(AtomicU64::new(0)));
        let other = {
            let word = word.clone();
            thread::spawn(move || ask(&word, Time::ZERO, 0) || ask(&word, Time::ZERO, 1))
        };
        // The other side has the same rate: only the side bit changes, and the debt remains.
        let mut seen = word.read();
        while let Err(now) = word.replace(seen, seen | 1 << 63) {
            seen = now;
        }
        assert!(other.join().expect("a thread"), "it is asked again on the side that it is on");
        assert!(ask(&word, Time::ZERO, 1), "the second frame");
        assert!(!ask(&word, Time::ZERO, 1), "the first was not forgotten");
    });
}
