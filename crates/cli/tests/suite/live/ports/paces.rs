//! Departures on schedule, by the receiver's stamps.

use super::{median, missed, through};
use crate::bed::{Bed, Record, Sequence};

/// Gaps between records, in nanoseconds.
fn gaps(records: &[Record]) -> Vec<u64> {
    records.windows(2).map(|pair| pair[1].ns - pair[0].ns).collect()
}

/// The share of gaps within `off` of `ask`, in nanoseconds.
fn near(gaps: &[u64], ask: u64, off: u64) -> f64 {
    gaps.iter().filter(|gap| gap.abs_diff(ask) <= off).count() as f64 / gaps.len() as f64
}

/// Asserts that departures are on schedule, measured at the receiver, and that they are not without a schedule.
fn assert_paces(test: &str, options: &str, ask_ns: u64) {
    let Some(bed) = Bed::alone(test, |_| {}) else { return };
    // All frames arrive within half a second and leave within two, so no schedule is starved. The first frames share
    // the machine with the sender; only the later ones are checked.
    const COUNT: u64 = 20_000;
    let late = |records: &[Record]| gaps(&records[8_000..]);
    let mut medians = Vec::new();
    let mut shares = Vec::new();
    let mut rates = Vec::new();
    for _ in 0..3 {
        let (finished, records) = through(&bed, options, 1, "40kpps", 500, COUNT);
        assert_eq!(finished.report()["pacer"], "deadline");
        let sequence = Sequence::of(&records, 1, COUNT);
        assert_eq!((sequence.repeated, sequence.late), (0, 0), "{sequence:?}");
        assert!(sequence.missing <= missed(&finished), "{sequence:?} {finished:?}");
        let gaps = late(&records);
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
        rates.push((mean / ask_ns as f64 * 1e6) as u64);
        shares.push((near(&gaps, ask_ns, 2_000) * 1e6) as u64);
        medians.push(median(gaps).abs_diff(ask_ns));
    }
    println!("{test}: |median - ask| {medians:?} ns, within 2 us {shares:?} ppm, mean gap / ask {rates:?} ppm");
    assert!(median(medians.clone()) <= 1_000, "|median - ask| in ns: {medians:?}");
    assert!(median(shares.clone()) >= 500_000, "within 2 us, in ppm: {shares:?}");
    assert!(median(rates.clone()).abs_diff(1_000_000) <= 10_000, "mean gap / ask, in ppm: {rates:?}");

    let (_, records) = through(&bed, "", 1, "40kpps", 500, COUNT);
    let gaps = late(&records);
    assert!(near(&gaps, ask_ns, 2_000) < 0.25, "the ask is met without asking");
    assert!(median(gaps).abs_diff(ask_ns) > 1_000, "the ask is met without asking");
}

#[test]
fn a_gap_is_kept() {
    assert_paces("gap", "--gap 'fixed 100us'", 100_000);
}

#[test]
fn a_rate_is_kept() {
    // 10 000 frames/s of 500 B.
    assert_paces("rate", "--rate 40Mbps", 100_000);
}
