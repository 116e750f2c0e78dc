use super::*;
use crate::schedules::{Ask, Draw};
use crate::stages::StageConfig;
use packet::HeapFrame;

fn pipeline(stages: &[&str], ask: &Ask) -> Pipeline<HeapFrame> {
    let draw = Draw { seed: 1, path: "test", frames: None };
    let build = |text: &&str| StageConfig::parse(text).expect(text).build(1, text);
    Pipeline::new(stages.iter().map(build).collect(), ask.schedule(None, draw).expect("a schedule"))
}

#[test]
fn delays_add_up_and_every_frame_is_accounted_for() {
    let mut pipeline = pipeline(&["delay 3us", "delay 4us"], &Ask::Nothing);
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
        assert_eq!(departure.at, Time::from_ps(i * 1_000_000 + 7_000_000));
        pipeline.sent(departure.class, departure.length);
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
    let mut pipeline = pipeline(&[], &Ask::Nothing).synchronising(spec, None);
    let at = |us: u64| Time::from_ps(us * 1_000_000);
    for (source, length) in [(1, 60), (2, 160), (3, 260), (9, 360)] {
        pipeline.push(at(0), at(0), frame(source, length));
    }
    pipeline.wake(at(2));
    let mut away: Vec<_> = std::iter::from_fn(|| pipeline.next_departure()).collect();
    assert_eq!(away.len(), 4);
    // As with several port queues, each of which reports on its own, and with one frame too long to send.
    away.sort_by_key(|departure| std::cmp::Reverse(departure.length));
    for departure in away {
        let Departure { class, source, length, at, held, .. } = departure;
        if length.bytes() == 164 {
            pipeline.lost(class, source, DropReason::TooLong);
        } else {
            pipeline.sent(class, length);
            pipeline.departed(class, source, length, held, (at, at));
        }
    }
    let meter = pipeline.meter(None, None, Span::from_ms(100));
    let mut report = meter.report(pipeline.books(), 0);
    pipeline.report_classes(&meter, &mut report);
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
    let class = |ask: &Ask, stages: &[&str]| Class {
        name: ClassName::default(),
        stages: stages.iter().map(|text| StageConfig::parse(text).expect(text).build(1, text)).collect(),
        schedule: ask.schedule(None, draw).expect("a schedule"),
        sync: None,
        buffer: Span::ZERO,
    };
    let ends = Ask::Wave(std::sync::Arc::new(wave.expect("a wave")));
    for stages in [&[][..], &["delay 1us"]] {
        let classes = vec![class(&ends, stages), class(&Ask::Nothing, &[])];
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
                left[departure.class as usize] += 1;
                pipeline.sent(departure.class, departure.length);
            }
            let books = pipeline.books();
            assert_eq!(books.should_hold(), pipeline.held());
        }
        pipeline.wake(Time::from_ps(20_000_000_000));
        // The first two of the burst, and the head that never departs.
        assert_eq!((left, pipeline.held()), ([2, 1_000], 1));
        assert_eq!(pipeline.books().dropped(DropReason::Ended), 1_000 - 3);
        assert!(!pipeline.ended());
    }
}

#[test]
fn losses_are_counted_and_hidden_from_the_schedule() {
    let mut pipeline = pipeline(&["loss 30%"], &Ask::Gap(Span::from_us(1)));
    for _ in 0..1_000 {
        pipeline.push(Time::ZERO, Time::ZERO, HeapFrame::new(vec![0; 60]));
    }
    let mut expected = Time::ZERO;
    while let Some(departure) = pipeline.next_departure() {
        assert_eq!(departure.at, expected);
        expected += Span::from_us(1);
        pipeline.sent(departure.class, departure.length);
    }
    let books = pipeline.books();
    assert_eq!(books.came.frames, 1_000);
    assert_eq!(books.left.frames + books.dropped(DropReason::Loss), 1_000);
    assert!(books.dropped(DropReason::Loss) > 0);
}
