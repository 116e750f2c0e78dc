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
    assert_eq!(books.arrived.frames, 1_000);
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
    assert_eq!((report.arrived.frames, report.left.frames, report.drops.total(), report.held), (6, 2, 2, 2));
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

/// Queues of one pipeline: all departures of the whole one, and the figures that do not depend on their order.
#[test]
fn shares_of_a_pipeline_have_the_figures_of_the_whole() {
    const FRAMES: u64 = 5_001;
    let (window, origin) = (Span::from_us(100), Time::from_ps(7_000));
    let send = |pipeline: &mut Pipeline<HeapFrame>, queue: u64, queues: u64| {
        for number in (queue..FRAMES).step_by(queues as usize) {
            pipeline.push(origin, origin, HeapFrame::new(vec![0; 60]));
            let Departure { mut token, .. } = pipeline.next_departure().expect("a frame");
            token.is_of_stream(queue as u16);
            let late = if number % 1_000 == 500 { Span::from_us(6) } else { Span::from_ns(number % 50) };
            let at = token.at() + late;
            token.complete(pipeline, at);
        }
    };
    let ask = Target::Rate("3.7Mpps".parse().expect("a rate"));
    for queues in [1, 2, 4] {
        let mut whole = pipeline(&[], &ask).measuring(None, None, window);
        let shares = whole.shares(queues as usize, false).expect("a rate in frames needs no lengths");
        send(&mut whole, 0, 1);
        let mut joined: Option<Pipeline<HeapFrame>> = None;
        for (mut share, queue) in shares.into_iter().zip(0..) {
            share.measure_as_queue(window);
            share.begin_at(origin);
            send(&mut share, queue, queues);
            match &mut joined {
                Some(joined) => joined.join(share),
                None => joined = Some(share),
            }
        }
        let (whole, joined) = (whole.report(), joined.expect("a queue").report());
        assert_eq!((joined.arrived, joined.left, joined.held), (whole.arrived, whole.left, 0));
        assert_eq!(joined.streams.len() as u64, queues);
        let figures = |report: &measure::PipelineReport| {
            let lateness = report.lateness.clone().expect("departures");
            let rate = report.rate.clone().expect("departures");
            let bps = [Some(rate.mean_bps), rate.min_bps, rate.max_bps, rate.std_bps, rate.mean_fps];
            let bps = bps.map(|figure| figure.map(|figure| figure.round() as u64));
            let late = [lateness.p50_ns, lateness.p99_ns, lateness.max_ns].map(|figure| figure.to_bits());
            let frames = lateness.hiccups.map(|hiccups| hiccups.frames);
            (rate.windows, bps, late, frames, report.first_departure)
        };
        let ((windows, bps, late, frames, first), expected) = (figures(&joined), figures(&whole));
        assert_eq!((late, frames, first), (expected.2, expected.3, expected.4));
        assert_eq!((bps[0], bps[4]), (expected.1[0], expected.1[4]), "{queues} queues");
        assert_eq!((windows, joined.gap.is_none()), (expected.0, queues > 1));
        let frame = 64 * 8 * 10_000;
        for bps in [bps[1], bps[2]].into_iter().flatten() {
            assert!(bps.abs_diff(370 * frame) <= 2 * frame, "{bps} in a window of {queues} queues");
        }
        let curve = |report: &measure::PipelineReport| {
            let rate = report.plots.as_ref().and_then(|plots| plots.rate.clone()).expect("a curve");
            (rate.window_ns, rate.asked_bps, rate.got_bps.len())
        };
        assert_eq!(curve(&joined).0.to_bits(), curve(&whole).0.to_bits());
    }
}

#[test]
fn pipelines_with_more_than_a_schedule_have_no_shares() {
    let rate = |text: &str| Target::Rate(text.parse().expect("a rate"));
    let shares = |pipeline: &Pipeline<HeapFrame>, one_length| pipeline.shares(2, one_length).is_some();
    let bits = pipeline(&[], &rate("1Gbps"));
    assert_eq!((shares(&bits, true), shares(&bits, false)), (true, false));
    assert!(!shares(&pipeline(&["delay 1us"], &rate("1Mpps")), true));
    assert!(!shares(&pipeline(&[], &rate("1Gbps ip")), true), "every frame would have to be read");
    let forgiving = pipeline(&[], &rate("1Mpps")).catching_up(CatchUp::AtMost(0), Span::from_us(1));
    assert!(!shares(&forgiving, true), "a late departure moves those of the other queue");
}
