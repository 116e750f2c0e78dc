use super::*;
use crate::schedules::{Draw, Target};
use crate::stages::StageConfig;
use packet::HeapFrame;

fn pipeline(stages: &[&str], ask: &Target) -> Pipeline<HeapFrame> {
    let draw = Draw { seed: 1, path: "test", frames: None };
    let build = |text: &&str| StageConfig::parse(text).expect(text).build(1, text);
    Pipeline::new(stages.iter().map(build).collect(), ask.schedule(None, draw).expect("a schedule"))
}

#[test]
fn delays_add_up_and_every_frame_is_accounted_for() {
    let mut pipeline = pipeline(&["delay 3us", "delay 4us"], &Target::Nothing);
    for i in 0..10 {
        let at = Time::from_ps(i * 1_000_000);
        while let Some(deadline) = pipeline.deadline().filter(|deadline| *deadline <= at) {
            pipeline.wake(deadline);
        }
        pipeline.push(at, at, HeapFrame::new(vec![0; 60]));
    }
    while let Some(deadline) = pipeline.deadline() {
        pipeline.wake(deadline);
    }
    for i in 0..10 {
        let departure = pipeline.next_departure().expect("a frame");
        let at = departure.token.at();
        assert_eq!(at, Time::from_ps(i * 1_000_000 + 7_000_000));
        departure.token.complete(&mut pipeline, at);
    }
    assert_eq!(pipeline.held(), 0);
    assert_eq!(pipeline.books().should_hold(), 0);
}

#[test]
fn accepts_departures_of_sources_in_any_order() {
    let frame = |source: u8, length: usize| {
        let mut bytes = vec![0; length];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        bytes[17] = 46;
        bytes[26..30].copy_from_slice(&[10, 0, 0, source]);
        HeapFrame::new(bytes)
    };
    let spec = "order 10.0.0.1,10.0.0.2,10.0.0.3 offset 1us".parse().expect("sources");
    let mut pipeline = pipeline(&[], &Target::Nothing).synchronising(spec, None);
    let at = |us: u64| Time::from_ps(us * 1_000_000);
    for (source, length) in [(1, 60), (2, 160), (3, 260), (9, 360)] {
        pipeline.push(at(0), at(0), frame(source, length));
    }
    pipeline.wake(at(2));
    let mut away: Vec<_> = std::iter::from_fn(|| pipeline.next_departure()).collect();
    assert_eq!(away.len(), 4);
    // As with several port queues that each report on their own, and with one frame that is too long to send.
    away.sort_by_key(|departure| std::cmp::Reverse(departure.token.length()));
    for Departure { token, .. } in away {
        if token.length().bytes() == 164 {
            token.discard(&mut pipeline, DropReason::TooLong);
        } else {
            let at = token.at();
            token.complete(&mut pipeline, at);
        }
    }
    let report = pipeline.report();
    let left: Vec<_> = report.sources.iter().map(|source| (source.left.frames, source.left.bytes)).collect();
    assert_eq!(left, [(1, 64), (0, 0), (1, 264)]);
    // The crests end after the silence that follows them.
    pipeline.wake(at(1_002));
    assert_eq!(pipeline.deadline(), None, "a lost frame delays no other");
}

#[test]
fn ended_class_drops_frames_and_others_continue() {
    let wave = crate::schedules::waves::Wave::parse("burst 1kpps for 2ms every 10ms count 1").expect("a wave");
    let draw = Draw { seed: 1, path: "test", frames: None };
    let class = |ask: &Target, stages: &[&str]| Class {
        name: ClassName::default(),
        stages: stages.iter().map(|text| StageConfig::parse(text).expect(text).build(1, text)).collect(),
        schedule: ask.schedule(None, draw).expect("a schedule"),
        sync: None,
        buffer: Span::ZERO,
    };
    let ends = Target::Wave(std::sync::Arc::new(wave.expect("a wave")));
    for stages in [&[][..], &["delay 1us"]] {
        let classes = vec![class(&ends, stages), class(&Target::Nothing, &[])];
        let mut pipeline = Pipeline::of_classes(Classifier::new(&[]).expect("no rules"), classes, None);
        let mut left = [0, 0];
        for i in 0..1_000_u64 {
            let at = Time::from_ps(i * 10_000_000);
            pipeline.wake(at);
            for class in 0..2 {
                pipeline.push_to(class, at, at, HeapFrame::new(vec![0; 60]));
            }
            while pipeline.due().is_some_and(|due| due <= at) {
                let departure = pipeline.next_departure().expect("it is due");
                left[departure.token.class() as usize] += 1;
                departure.token.complete(&mut pipeline, at);
            }
            let books = pipeline.books();
            assert_eq!(books.should_hold(), pipeline.held());
        }
        pipeline.wake(Time::from_ps(20_000_000_000));
        // The first two frames of the burst, and the head that never departs.
        assert_eq!((left, pipeline.held()), ([2, 1_000], 1));
        assert_eq!(pipeline.books().dropped(DropReason::Ended), 1_000 - 3);
        assert!(!pipeline.ended());
    }
}

#[test]
fn losses_are_counted_and_hidden_from_the_schedule() {
    let mut pipeline = pipeline(&["loss 30%"], &Target::Gap(Span::from_us(1)));
    for _ in 0..1_000 {
        pipeline.push(Time::ZERO, Time::ZERO, HeapFrame::new(vec![0; 60]));
    }
    let mut expected = Time::ZERO;
    while let Some(departure) = pipeline.next_departure() {
        assert_eq!(departure.token.at(), expected);
        departure.token.complete(&mut pipeline, expected);
        expected += Span::from_us(1);
    }
    let books = pipeline.books();
    assert_eq!(books.came.frames, 1_000);
    assert_eq!(books.left.frames + books.dropped(DropReason::Loss), 1_000);
    assert!(books.dropped(DropReason::Loss) > 0);
}

fn one_departure(pipeline: &mut Pipeline<HeapFrame>) -> Departure<HeapFrame> {
    pipeline.push(Time::ZERO, Time::ZERO, HeapFrame::new(vec![0; 60]));
    pipeline.next_departure().expect("a frame")
}

#[test]
fn each_end_of_a_departure_is_counted_once() {
    let mut pipeline = pipeline(&[], &Target::Nothing).measuring(None, None, Span::from_ms(1));
    for started in [5, 7] {
        let mut token = one_departure(&mut pipeline).token;
        token.is_of_stream(3);
        token.complete(&mut pipeline, Time::from_ps(started));
    }
    one_departure(&mut pipeline).token.discard(&mut pipeline, DropReason::TooLong);
    let placed = one_departure(&mut pipeline).token.place(&mut pipeline, Time::from_ps(9));
    placed.discard(&mut pipeline, DropReason::Unwritten);
    let (held, placed) = (one_departure(&mut pipeline).token, one_departure(&mut pipeline).token);
    let placed = placed.place(&mut pipeline, Time::from_ps(9));
    assert_eq!(pipeline.report().held, 2, "they are taken and not finished");
    held.hold();
    placed.hold();
    let report = pipeline.report();
    assert_eq!((report.came.frames, report.left.frames, report.drops.total(), report.held), (6, 2, 2, 2));
    assert_eq!(report.gap.map(|gap| gap.count), Some(1), "only frames that left have gaps");
    assert_eq!(report.streams[0].sent, Some(2));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "a driver lost a departure"))]
fn lost_departure_is_caught_or_stays_held() {
    let mut pipeline = pipeline(&[], &Target::Nothing);
    drop(one_departure(&mut pipeline).token);
    assert_eq!(pipeline.report().held, 1);
}

#[test]
fn path_says_what_frames_need() {
    let gap = Target::Gap(Span::from_us(1));
    let follow = |pipeline: Pipeline<HeapFrame>| {
        let sampling = Sampling { every: 1, seed: 1, backlog: false, listener: None };
        pipeline.slicing(&[Vec::new()], &sampling)
    };
    assert_eq!(pipeline(&[], &Target::Nothing).path(), Path::Counted);
    assert_eq!(follow(pipeline(&[], &Target::Nothing)).path(), Path::Counted);
    assert_eq!(pipeline(&[], &gap).path(), Path::Scheduled);
    assert_eq!(follow(pipeline(&[], &gap)).path(), Path::Ordered);
    assert_eq!(pipeline(&[], &gap).catching_up(CatchUp::AtMost(0), Span::ZERO).path(), Path::Ordered);
    assert_eq!(pipeline(&["loss 1%"], &gap).path(), Path::Whole);
}
