use super::*;
use crate::Pipeline;
use crate::schedules::{Draw, Target};
use crate::stages::StageConfig;
use crate::stages::waits::{Late, us};
use packet::HeapFrame;

const BURST: u64 = 64;

/// Slices of bursts of 64 frames with departures every 1 µs: frame k of a burst queues for k µs.
fn bursts(count: u64, every: u64, seed: u64) -> PipelineSlices {
    let gap = Span::from_us(1);
    let draw = Draw { seed: 1, path: "test", frames: None };
    let schedule = Target::Gap(gap).schedule(None, draw).expect("a schedule");
    let sampling = Sampling { every, seed, backlog: false, listener: None };
    let mut pipeline = Pipeline::new(Vec::new(), schedule).slicing(&[Vec::new()], &sampling);
    for burst in 0..count {
        let at = Time::ZERO + gap * (BURST * burst);
        for _ in 0..BURST {
            pipeline.push(at, at, HeapFrame::new(vec![0; 60]));
        }
        while let Some(departure) = pipeline.next_departure() {
            let at = departure.token.at();
            departure.token.complete(&mut pipeline, at);
        }
    }
    pipeline.report().slices.expect("they were asked for")
}

#[test]
fn stops_counting_frames_that_are_gone() {
    let at = Time::ZERO;
    let sampling = Sampling { every: 1, seed: 1, backlog: false, listener: None };
    let mut slices = ClassTraces::new(&["delay".to_owned()], sampling);
    let mut come = |number| {
        let mut frame = HeapFrame::new(vec![0; 60]);
        slices.arrived(&mut frame, number, at, at);
        frame
    };
    let [dropped, goes_on, departs] = [1, 2, 3].map(&mut come);
    assert_eq!((slices.staged, slices.queued), (3, 0));
    let released = [goes_on, departs].map(|frame| Item { frame, at });
    slices.passed(&released, &[(dropped, DropReason::Pool)]);
    assert_eq!((slices.staged, slices.queued), (0, 2));
    let [goes_on, departs] = released.map(|item| item.frame.tag());
    assert_eq!(slices.take(goes_on).map(|trace| trace.marks.len()), Some(3));
    slices.settled(&HeapFrame::default(), at, at);
    slices.first(departs, at);
    slices.departed(departs, at, at);
    assert_eq!((slices.staged, slices.queued), (0, 0));
    let report = slices.report().expect("they are on");
    assert_eq!((report.packets.seen, report.packets.matched), (3, 1));
}

/// Slices of a frame that waited in its port's ring for `waited` before the poll, through these stages.
fn slices_of_late(stages: &[&str], waited: Span, tells: bool, parts: usize) -> PipelineSlices {
    let built = stages.iter().map(|text| StageConfig::parse(text).expect(text).build(1, "test"));
    let at_once = Target::Nothing.schedule(None, Draw { seed: 1, path: "test", frames: None }).expect("a schedule");
    let names = stages.iter().map(|text| text.split(' ').next().unwrap_or_default().to_owned()).collect();
    let sampling = Sampling { every: 1, seed: 1, backlog: false, listener: None };
    let mut pipeline = Pipeline::new(built.collect(), at_once).slicing(&[names], &sampling);
    // Real time that advances by 1 µs with each reading.
    let clock = std::sync::atomic::AtomicU64::new(20_000);
    let clock: Reading = Arc::new(move || us(clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    pipeline.slice_by(&clock, Span::ZERO);
    pipeline.slice_from_port(tells);
    let look = us(20_000);
    let mut parts = pipeline.parts(parts);
    parts[0].push(look, look, Late::new(HeapFrame::new(vec![0; 60]), waited));
    for n in 0..parts.len() {
        while parts[n].deadline().is_some() {
            let due = parts[n].deadline().expect("it is there").max(look);
            parts[n].wake(due);
        }
        let departure = parts[n].next_departure().expect("it is ready");
        if n + 1 < parts.len() {
            assert_eq!(parts[n + 1].held(), 0);
            let ready = departure.token.ready();
            let trace = departure.token.hand_on(&mut parts[n]);
            parts[n + 1].hand(0, ready.max(look), ready, departure.frame, trace);
        } else {
            let start = departure.token.at().max(look);
            departure.token.complete(&mut parts[n], start);
        }
    }
    parts.pop().expect("the last one").report().slices.expect("they were asked for")
}

/// Name, mean and intended mean of each slice, in µs.
fn in_us(slices: &PipelineSlices) -> Vec<(&str, i64, i64)> {
    let us = |ns: f64| (ns / 1_000.0).round() as i64;
    let slices = slices.slices.iter();
    slices.map(|slice| (&slice.figures.name[..], us(slice.figures.mean_ns), us(slice.intended_mean_ns))).collect()
}

#[test]
fn ring_wait_is_a_slice_if_the_port_reports_it() {
    let waited = Span::from_ms(5);
    for parts in 1..=3 {
        let slices = slices_of_late(&["loss 0%"], waited, true, parts);
        let (names, raw) = (slices.slices.iter().map(|slice| &slice.figures), slices.total.raw_mean_ns);
        assert_eq!(in_us(&slices)[0], ("ring", 5_000, 5_000), "who goes by the look has it before its time");
        assert!(in_us(&slices)[1..].iter().all(|(_, was, meant)| *was < 10 && *meant == 0), "{slices:?}");
        assert!((names.map(|slice| slice.mean_ns).sum::<f64>() - raw).abs() < 1e-6, "they sum to the total");
        assert!(!slices.ring_untold);

        // The stage counts its delay from the arrival. It so compensates for the wait, which was not intended.
        let slices = slices_of_late(&["loss 0%", "delay 12ms", "netem loss 0%"], waited, true, parts);
        let shown = in_us(&slices);
        assert_eq!(shown[0], ("ring", 5_000, 0));
        assert_eq!((shown[2].0, shown[3].0, shown[3].2), ("loss", "delay", 12_000), "{shown:?}");
        assert_eq!(shown.iter().map(|(.., meant)| meant).sum::<i64>(), 12_000, "{shown:?}");
    }
    let untold = slices_of_late(&["loss 0%"], waited, false, 1);
    let names: Vec<_> = in_us(&untold).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["rx", "loss", "queueing", "pacer", "tx"]);
    assert!(untold.ring_untold && untold.total.mean_ns < 10_000.0, "{untold:?}");
}

#[test]
fn first_frame_in_an_empty_queue_has_zero_queue_time() {
    let queueing = |parts| {
        let at_once = Target::Nothing.schedule(None, Draw { seed: 1, path: "test", frames: None }).expect("a schedule");
        let sampling = Sampling { every: 1, seed: 1, backlog: false, listener: None };
        let mut pipeline = Pipeline::new(Vec::new(), at_once).slicing(&[Vec::new()], &sampling);
        // Each reading is 1 µs after the one before.
        let clock = std::sync::atomic::AtomicU64::new(0);
        let clock: Reading = Arc::new(move || us(clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
        pipeline.slice_by(&clock, Span::ZERO);
        let mut parts = pipeline.parts(parts);
        let mut last = parts.pop().expect("one at least");
        for _ in 0..2 {
            let frame = HeapFrame::new(vec![0; 60]);
            match parts.first_mut() {
                None => last.push(us(0), us(0), frame),
                Some(first) => {
                    first.push(us(0), us(0), frame);
                    let departure = first.next_departure().expect("it is ready");
                    let trace = departure.token.hand_on(first);
                    last.hand(0, us(0), us(0), departure.frame, trace);
                }
            }
        }
        while let Some(departure) = last.next_departure() {
            let at = departure.token.at();
            departure.token.complete(&mut last, at);
        }
        let slices = last.report().slices.expect("they were asked for");
        slices.slices.iter().find(|slice| slice.figures.name == "queueing").expect("a slice").raw_mean_ns as u64
    };
    // The frames are polled at 0 and 1 µs. The first leaves at 2 µs, and the second reaches the head of the queue at 3
    // µs.
    assert_eq!(queueing(1), 2_000 / 2);
    // There is a wait between threads, so the clock is also read for the first frame: at 2 µs, and for the second at 4
    // µs.
    assert_eq!(queueing(2), (2_000 + 3_000) / 2);
}

/// A stage releases the frame at once or when it is woken. Another stage may follow.
#[test]
fn first_frame_after_stages_has_zero_queue_time() {
    let stages: [&[&str]; 4] = [&["loss 0%"], &["delay 2ms"], &["loss 0%", "delay 2ms"], &["delay 2ms", "loss 0%"]];
    for stages in stages {
        let slices = slices_of_late(stages, Span::ZERO, false, 1);
        let queueing = slices.slices.iter().find(|slice| slice.figures.name == "queueing").expect("a slice");
        assert_eq!(
            queueing.raw_mean_ns as u64, 0,
            "the clock, which moves by 1 µs with each reading, is not asked: {stages:?}"
        );
    }
}

#[test]
fn traces_varying_frames_of_a_burst() {
    let all = bursts(20_000, 1, 1);
    let some = bursts(20_000, BURST, 1);
    assert_eq!(all.packets.seen, 20_000 * BURST);
    assert!(some.packets.seen.abs_diff(20_000) <= 32, "{}, but for the last run", some.packets.seen);
    assert!((all.total.mean_ns - 31_500.0).abs() < 1e-3, "{} ns", all.total.mean_ns);
    // A run of 32 in 0..64 µs has a mean of 15.5 to 47.5 µs. The mean of about 600 runs has a standard deviation of 0.4
    // µs.
    assert!((some.total.mean_ns - 31_500.0).abs() < 1_700.0, "{} ns", some.total.mean_ns);
    assert!((some.total.p99_ns / all.total.p99_ns - 1.0).abs() < 0.05, "{} ns", some.total.p99_ns);
}

#[test]
fn traces_the_first_frame_and_then_one_per_stratum() {
    for (count, every, seen) in [(1, 1_000, 1), (10, 64, 10), (3, 3 * BURST, 1), (7, 7, 64)] {
        let slices = bursts(count, every, 5);
        assert_eq!(slices.packets.seen, seen, "{count} bursts, 1/{every}");
    }
    let means = [1, 1, 2].map(|seed| bursts(100, 64, seed).total.mean_ns.to_bits());
    assert_eq!(means[0], means[1], "the same seed, the same frames");
    assert_ne!(means[0], means[2]);
}
