use super::{Bucket, Key, Meter, Moment, Users};
use std::sync::atomic::{AtomicU64, Ordering};
use units::{Span, Time};

/// An atomic word: [`AtomicU64`] in production, another type under a model checker.
pub trait Word {
    /// Loads the word with acquire semantics: earlier writes of the thread that stored it are visible.
    fn read(&self) -> u64;

    /// Replaces `old` by `new`.
    ///
    /// # Errors
    /// The current value, if it is not `old`.
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline]
    fn read(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
}

/// Outcome of a request to send a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The frame conforms and was charged.
    Conforms,
    /// The frame exceeds and was not charged.
    Exceeds,
    /// The user left the slot: look it up again.
    Gone,
}

/// The bit of the word that selects which of the user's two buckets the remaining bits refer to.
pub(crate) const SIDE: u64 = 1 << 63;
/// The word of a slot without a user.
pub(crate) const VACANT: u64 = u64::MAX;

/// Charges a frame of `bits` bits at `at` to `word`, if it conforms.
///
/// `bucket` returns the bucket that a word belongs to, or `None` if the user has left. The word is the theoretical
/// arrival time in ticks of the bucket: the instant at which the bucket will be full. A frame conforms if, after
/// charging it, that time is at most one burst ahead. The same rounded-down clock serves for the check and for the
/// stored time. All frames of one instant therefore see one clock, and a full bucket grants its whole burst.
#[inline]
pub fn charge<'b, W: Word>(word: &W, bucket: impl Fn(u64) -> Option<&'b Bucket>, at: &Moment, bits: u64) -> Answer {
    let mut seen = word.read();
    loop {
        let Some(bucket) = bucket(seen) else { return Answer::Gone };
        let clock = bucket.clock(at);
        let (side, tat) = (seen & SIDE, seen & !SIDE);
        let cost = bucket.cost(bits);
        // The first comparison also keeps the sums of the second one within 64 bits.
        if cost > bucket.depth() || tat.max(clock) + cost > clock + bucket.depth() {
            return Answer::Exceeds;
        }
        match word.replace(seen, side | (tat.max(clock) + cost)) {
            Ok(_) => return Answer::Conforms,
            Err(other) => seen = other,
        }
    }
}

/// Charges a frame that may wait. Returns the instant from which it conforms, if that is at most the `patience` of its
/// bucket after `at`.
///
/// # Errors
/// [`Answer::Exceeds`] if the frame would conform later or never, [`Answer::Gone`] if the user has left. The frame is
/// then not charged.
pub fn reserve<'b, W: Word>(
    word: &W,
    bucket: impl Fn(u64) -> Option<&'b Bucket>,
    at: &Moment,
    bits: u64,
    patience: impl Fn(&Bucket) -> Span,
) -> Result<Time, Answer> {
    let mut seen = word.read();
    loop {
        let bucket = bucket(seen).ok_or(Answer::Gone)?;
        let clock = bucket.clock(at);
        let (side, tat) = (seen & SIDE, seen & !SIDE);
        let cost = bucket.cost(bits);
        if cost > bucket.depth() {
            return Err(Answer::Exceeds);
        }
        let next = tat.max(clock) + cost;
        let departs = if next <= clock + bucket.depth() { at.time() } else { bucket.when(next - bucket.depth()) };
        if departs > at.time() && departs > at.time() + patience(bucket) {
            return Err(Answer::Exceeds);
        }
        match word.replace(seen, side | next) {
            Ok(_) => return Ok(departs),
            Err(other) => seen = other,
        }
    }
}

/// The generic cell rate algorithm, with one compare-and-swap per granted frame.
///
/// Workers may run in any order on any number of cores: the first swap wins. A stopped worker never blocks another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gcra;

impl Meter for Gcra {
    #[inline]
    fn charge(&self, users: &Users, _: usize, slot: u32, key: Key, at: &Moment, bits: u64) -> Answer {
        charge(users.word(slot), |word| users.bucket_of(slot, key, word), at, bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::BitRate;

    fn try_charge(word: &AtomicU64, bucket: &Bucket, ps: u64, bytes: u64) -> bool {
        charge(word, |_| Some(bucket), &Moment::of(Time::from_ps(ps)), bytes * 8) == Answer::Conforms
    }

    #[test]
    fn grants_up_to_the_boundary_and_not_beyond() {
        // 1 Mbit/s: 8 µs per byte, so 12.144 ms for a frame of 1 518 B.
        let bucket = Bucket::new(BitRate::from_bps(1_000_000), 3_036).expect("a bucket");
        let word = AtomicU64::new(0);
        assert!(try_charge(&word, &bucket, 0, 1_518) && try_charge(&word, &bucket, 0, 1_518), "it starts full");
        assert!(!try_charge(&word, &bucket, 0, 64));
        assert!(!try_charge(&word, &bucket, 12_143_999_990, 1_518), "10 ps early");
        assert!(try_charge(&word, &bucket, 12_144_000_000, 1_518), "just in time");
        assert!(!try_charge(&word, &bucket, 12_144_000_000, 64));
        assert!(!try_charge(&word, &bucket, 1_000_000_000_000_000, 3_037), "longer than the bucket");
        assert!(try_charge(&word, &bucket, 1_000_000_000_000_000, 3_036), "as long as the bucket");
    }

    #[test]
    fn full_bucket_grants_its_burst_at_any_instant() {
        for (bps, ps) in [(1_000_000, 1), (333_333, 123_456_789_012), (9_999_999_967, 7), (400_000_000_000, 1)] {
            let bucket = Bucket::new(BitRate::from_bps(bps), 3_036).expect("a bucket");
            let word = AtomicU64::new(0);
            assert!(
                try_charge(&word, &bucket, ps, 1_518) && try_charge(&word, &bucket, ps, 1_518),
                "{bps} bit/s at {ps} ps"
            );
            assert!(!try_charge(&word, &bucket, ps, 1), "and no more");
            // The same for frames that may wait: neither of the two has to wait.
            let word = AtomicU64::new(0);
            let at = Time::from_ps(ps);
            for _ in 0..2 {
                let departs = reserve(&word, |_| Some(&bucket), &Moment::of(at), 1_518 * 8, |_| Span::ZERO);
                assert_eq!(departs, Ok(at), "{bps} bit/s at {ps} ps");
            }
        }
    }

    #[test]
    fn nothing_drifts_at_odd_rates() {
        // Frames of 64 B, requested every ns, at a rate with a fractional number of picoseconds per frame. After one
        // second exactly as many passed as the rate allows.
        for bps in [9_999_999_967_u64, 3_333_333_333, 7_000_000_001] {
            let bucket = Bucket::new(BitRate::from_bps(bps), 3_036).expect("a bucket");
            let word = AtomicU64::new(0);
            let granted = (0..2_000_000_u64).filter(|ns| try_charge(&word, &bucket, ns * 1_000, 64)).count() as u64;
            let exact = (u128::from(bps) * 1_999_999 / 1_000_000_000 + 3_036 * 8) / 512;
            assert_eq!(u128::from(granted), exact, "at {bps} bit/s");
        }
    }

    #[test]
    fn frames_that_wait_leave_when_they_conform() {
        let bucket = Bucket::new(BitRate::from_bps(1_000_000), 1_518).expect("a bucket");
        let word = AtomicU64::new(0);
        let try_charge = |bytes: u64, patience| {
            reserve(&word, |_| Some(&bucket), &Moment::of(Time::ZERO), bytes * 8, |_| Span::from_us(patience))
        };
        assert_eq!(try_charge(1_518, 0), Ok(Time::ZERO));
        assert_eq!(try_charge(1_518, 12_143), Err(Answer::Exceeds), "a microsecond too impatient");
        assert_eq!(try_charge(1_518, 12_144), Ok(Time::from_ps(12_144_000_000)));
        assert_eq!(try_charge(125, 20_000), Ok(Time::from_ps(13_144_000_000)));
        assert_eq!(try_charge(1_519, u64::MAX / 1_000_000), Err(Answer::Exceeds), "longer than the bucket: never");
    }

    proptest! {
        /// Compared with the definition: no interval grants a tick more than rate × t + burst, and no refused frame
        /// would have conformed.
        #[test]
        fn grants_exactly_what_the_definition_allows(
            bps in 10_000_u64..10_000_000_000,
            burst in 64_u64..20_000,
            arrivals in prop::collection::vec((0_u64..40_000, 64_u64..1_519), 1..120),
        ) {
            let bucket = Bucket::new(BitRate::from_bps(bps), burst).expect("a bucket");
            let word = AtomicU64::new(0);
            let byte_ps = 8_000_000_000_000 / bps;
            let mut now = 0_u64;
            // Grants: instant in ps and bits × 10¹², so that all sums are whole numbers.
            let mut granted: Vec<(u64, u128)> = Vec::new();
            for (gap, bytes) in arrivals {
                now += gap * byte_ps / 40;
                let bits = u128::from(bytes) * 8 * u128::from(units::PS_PER_S);
                // The maximum over all t0 of (granted since t0) − rate × (now − t0).
                let mut sum = 0_i128;
                let mut worst = 0_i128;
                for (at, bits) in granted.iter().rev() {
                    sum += *bits as i128;
                    worst = worst.max(sum - i128::from(now - at) * i128::from(bps));
                }
                let room = i128::from(burst) * 8 * i128::from(units::PS_PER_S) - worst - bits as i128;
                let conforms = try_charge(&word, &bucket, now, bytes);
                // One tick, in bits × 10¹².
                let tick = (u128::from(units::PS_PER_S) / u128::from(bucket.cost(1)) + 1) as i128;
                prop_assert!(!conforms || room > -tick, "granted {} too much", -room);
                prop_assert!(conforms || room < 0, "refused with {room} to spare");
                if conforms {
                    granted.push((now, bits));
                }
            }
        }
    }

    #[test]
    fn two_threads_get_no_more_than_one() {
        let bucket = Bucket::new(BitRate::from_bps(100_000_000), 3_036).expect("a bucket");
        let word = AtomicU64::new(0);
        let start = std::time::Instant::now();
        let (granted, last): (Vec<u64>, Vec<u64>) = std::thread::scope(|scope| {
            let hammer = || {
                let (mut granted, mut ps) = (0, 0);
                while start.elapsed().as_millis() < 200 {
                    ps = start.elapsed().as_nanos() as u64 * 1_000;
                    granted += u64::from(try_charge(&word, &bucket, ps, 64));
                }
                (granted * 512, ps)
            };
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(hammer)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).unzip()
        });
        let seconds = last.iter().max().map_or(0.0, |ps| *ps as f64 / 1e12);
        let allowed = 1e8 * seconds + 3_036.0 * 8.0;
        let granted: u64 = granted.iter().sum();
        assert!(granted as f64 <= allowed, "{granted} of {allowed}");
        assert!(granted > 0);
    }
}
