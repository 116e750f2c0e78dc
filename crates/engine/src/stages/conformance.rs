//! Invariants that every stage in the list must satisfy.

use super::{Item, Outlet, StageConfig};
use packet::{Frame, HeapFrame};
use units::Time;

const FRAMES: u64 = 5_000;

/// Drives a stage in virtual time with one frame per µs: pushes at arrivals and wakes at deadlines. Returns the frames
/// that left with their times, and the number of drops minus copies.
fn drive(config: &StageConfig, seed: u64) -> (Vec<(u64, Time)>, i64) {
    let mut stage = config.build::<HeapFrame>(seed, "conformance");
    let mut out = Outlet::default();
    let mut next = 0;
    let mut now = Time::ZERO;
    while next < FRAMES || stage.held() > 0 {
        let arrival = (next < FRAMES).then(|| Time::from_ps(next * 1_000_000));
        let deadline = stage.deadline();
        let held = stage.held() as u64;
        assert!(arrival.is_some() || deadline.is_some(), "{config}: holds {held} frames forever");
        if deadline.is_none_or(|deadline| arrival.is_some_and(|arrival| arrival <= deadline)) {
            now = arrival.expect("there is an arrival where there is no deadline");
            let frame = HeapFrame::new(next.to_be_bytes().repeat(8));
            stage.push(now, &mut vec![Item { frame, at: now }], &mut out);
            next += 1;
        } else if let Some(deadline) = deadline {
            assert!(deadline >= now, "{config}: deadline in the past");
            now = deadline;
            stage.wake(now, &mut out);
            assert!(stage.deadline().is_none_or(|later| later > now), "{config}: no progress at its deadline");
        }
        let accounted = (out.released.len() + out.dropped.len() + stage.held()) as u64 + out.not_copied;
        assert_eq!(accounted, next + out.copies, "{config}: frames conserved");
    }
    let left = out.released.iter().map(|item| {
        // Stages may change some bytes, but not most of the eight copies of the frame number.
        let mut numbers: Vec<u64> = item
            .frame
            .bytes()
            .chunks_exact(8)
            .map(|bytes| u64::from_be_bytes(bytes.try_into().expect("eight bytes")))
            .collect();
        numbers.sort_unstable();
        let number = numbers[numbers.len() / 2];
        (number, item.at)
    });
    (left.collect(), out.dropped.len() as i64 - out.copies as i64)
}

fn every_stage() -> impl Iterator<Item = StageConfig> {
    StageConfig::KINDS.iter().map(|kind| StageConfig::parse(kind.example).expect(kind.example))
}

#[test]
fn conserves_frames_and_never_releases_one_before_its_arrival() {
    for config in every_stage() {
        let (left, dropped) = drive(&config, 1);
        assert_eq!(left.len() as i64 + dropped, FRAMES as i64, "{config}");
        for (number, at) in left {
            assert!(at >= Time::from_ps(number * 1_000_000), "{config}: frame {number} left before it came");
        }
    }
}

#[test]
fn same_seed_gives_the_same_result() {
    for config in every_stage() {
        assert_eq!(drive(&config, 7), drive(&config, 7), "{config}");
    }
}

#[test]
fn configurations_survive_printing_and_parsing() {
    for config in every_stage() {
        let text = config.to_string();
        assert_eq!(StageConfig::parse(&text).as_ref(), Ok(&config), "{text}");
    }
}

#[test]
fn kinds_are_documented_and_unique() {
    for (i, kind) in StageConfig::KINDS.iter().enumerate() {
        assert!(!kind.summary.is_empty() && kind.grammar.starts_with(kind.name), "{}", kind.name);
        assert!(StageConfig::KINDS[..i].iter().all(|other| other.name != kind.name), "{}", kind.name);
    }
}

#[test]
fn unknown_stage_error_lists_the_known_ones() {
    let error = StageConfig::parse("dely 20ms").expect_err("no such stage").to_string();
    assert!(error.contains("dely") && error.contains("delay"), "{error}");
}
