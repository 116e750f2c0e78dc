//! The parts of a pipeline on one to four threads: the output and the counters are the same, frame by frame. Nothing
//! here is timed; with fewer CPUs than threads it only takes longer.

use dataplane::{Config, Counters, Device, Feed, Finished, FrameSupply, LaunchTime, Pacing, Worker, limit_stage};
use dpdk::{Eal, EalConfig, HugePages};
use engine::classes::{Classifier, Rule};
use engine::schedules::{Draw, Target};
use engine::slices::Sampling;
use engine::stages::StageConfig;
use engine::{Class, ClassName, Line, Pipeline};
use measure::{DropReason, PipelineReport};
use packet::{FillerKind, HeapFrame};
use std::sync::atomic::AtomicBool;
use units::{BitRate, FrameLen, Span, Time};

const FRAMES: u64 = 4_000;
/// One frame in `HUGE` exceeds the buffers: it is dropped before it is classified.
const HUGE: u64 = 500;

/// UDP frames to four ports in turn, of many lengths, one every 20 µs.
struct Made(u64);

impl FrameSupply for Made {
    fn next(&mut self, frame: &mut HeapFrame) -> Option<Time> {
        let number = self.0;
        self.0 += 1;
        let mut bytes = vec![0; 60 + (number * 7_919 % 1_400) as usize];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        let length = bytes.len() as u16;
        bytes[14..34].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[16..18].copy_from_slice(&(length - 14).to_be_bytes());
        bytes[36..38].copy_from_slice(&(80 + (number % 4) as u16).to_be_bytes());
        bytes[38..40].copy_from_slice(&(length - 34).to_be_bytes());
        *frame = HeapFrame::new(bytes);
        if number % HUGE == HUGE - 1 {
            *frame = HeapFrame::new(vec![0; 5_000]);
        }
        (number < FRAMES).then(|| Time::from_ps(number * 20_000_000))
    }

    fn failure(&mut self) -> Option<String> {
        None
    }
}

/// Classes with their own stages, all of which draw random numbers.
fn pipeline(line: Option<Line>) -> Pipeline<dpdk::Mbuf> {
    let rules = ["udp dport 80", "udp dport 81"].map(|rule| rule.parse::<Rule>().expect(rule));
    let classifier = Classifier::new(&rules.iter().collect::<Vec<_>>()).expect("classes that can be");
    let stages = [vec!["loss 10%", "netem duplicate 5%"], vec!["netem loss 20% 30%"], vec!["loss 1%"]];
    let classes = stages.into_iter().zip(["a", "b", "c"]).map(|(stages, name)| {
        let build = |text: &str| StageConfig::parse(text).expect(text).build(7, &format!("{name}/{text}"));
        let ask = if name == "a" { Target::Gap(Span::from_us(50)) } else { Target::Nothing };
        let schedule = ask.schedule(line, Draw { seed: 7, path: name, frames: None }).expect("a schedule");
        Class {
            name: ClassName { name: name.to_owned(), rule: None, asked_gap: None, free: false },
            stages: stages.into_iter().map(build).collect(),
            schedule,
            sync: None,
            buffer: Span::ZERO,
        }
    });
    Pipeline::of_classes(classifier, classes.collect(), line)
}

fn run(eal: &'static Eal, output: Device, pacing: Pacing, cpus: Vec<usize>) -> Finished {
    run_with(eal, output, pacing, cpus, |pipeline| pipeline)
}

fn run_with(
    eal: &'static Eal,
    output: Device,
    pacing: Pacing,
    cpus: Vec<usize>,
    change: impl FnOnce(Pipeline<dpdk::Mbuf>) -> Pipeline<dpdk::Mbuf>,
) -> Finished {
    let line = match pacing {
        Pacing::Filler { line, .. } => Some(line),
        _ => None,
    };
    let config = Config {
        name: format!("parts{}", cpus.len()),
        feed: Feed::Replay { supply: Box::new(Made(0)), ahead: false, whole: None },
        more_inputs: Vec::new(),
        output,
        one_way: true,
        pacing,
        asked_gap: None,
        cpus,
        window: Span::from_ms(100),
        duration: None,
        start: None,
        room: 0,
        on: None,
    };
    let worker = Worker::open(eal, config, change(pipeline(line)), None).expect("it opens");
    let (stop, counters) = (AtomicBool::new(false), Counters::default());
    std::thread::scope(|scope| scope.spawn(|| worker.run(eal, &stop, &counters)).join().expect("no panic"))
        .expect("it runs")
}

/// All figures of the pipeline and each class that do not depend on the speed of the machine.
fn books(finished: &Finished) -> Vec<String> {
    let whole = [&finished.report].into_iter().chain(&finished.report.classes);
    whole
        .map(|report| {
            let drops: Vec<_> = report.drops.iter().collect();
            let effects: Vec<_> = report.effects.iter().collect();
            let choices = format!("{:?}", report.choices);
            format!(
                "{:?} {} {:?} {drops:?} {effects:?} {choices} {}",
                report.arrived, report.copies, report.left, report.held
            )
        })
        .collect()
}

#[test]
fn any_number_of_threads_gives_the_same_result() {
    let config = EalConfig::new("parts").memory_mib(512).hugepages(HugePages::Never);
    let eal = Eal::init(&config).expect("DPDK starts");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // Uses the available CPUs, some of them twice.
    let on = |threads: usize| (0..threads).map(|thread| thread % cpus).collect::<Vec<_>>();

    let deadline = || Pacing::Deadline(LaunchTime::Never);
    let alone = run(eal, Device::Null, deadline(), on(0));
    let report = &alone.report;
    assert_eq!(report.arrived.frames, FRAMES);
    assert_eq!((report.classes.len(), report.held), (3, 0));
    assert!(report.drops.total() > FRAMES / 20 && report.copies > FRAMES / 100);
    let in_no_class = |report: &PipelineReport| {
        let too_long = |report: &PipelineReport| {
            report
                .drops
                .iter()
                .map(|(reason, count)| if reason == DropReason::TooLong { count } else { 0 })
                .sum::<u64>()
        };
        let of_classes: u64 = report.classes.iter().map(|class| class.arrived.frames).sum();
        (too_long(report), report.classes.iter().map(too_long).sum(), report.arrived.frames - of_classes)
    };
    assert_eq!(in_no_class(report), (FRAMES / HUGE, 0, FRAMES / HUGE));
    for threads in 1..=4 {
        let split = run(eal, Device::Null, deadline(), on(threads));
        assert_eq!(books(&split), books(&alone), "{threads} threads");
        assert_eq!(in_no_class(&split.report), in_no_class(&alone.report), "{threads} threads");
    }

    // Traces continue from part to part: the same number, through the same slices, which sum to the total. Frames are
    // then classified where they arrive, so one of four threads has no work.
    let names = [["loss", "netem"].as_slice(), &["netem"], &["loss"]];
    let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let sampling = Sampling { every: 3, seed: 1, backlog: false, listener: None };
    let sliced =
        |threads| run_with(eal, Device::Null, deadline(), on(threads), |pipeline| pipeline.slicing(&names, &sampling));
    let followed = |finished: &Finished| {
        let of_class = |class: &PipelineReport| class.slices.as_ref().map(|slices| slices.packets);
        finished.report.classes.iter().map(of_class).collect::<Option<Vec<_>>>().expect("slices of each class")
    };
    let whole = sliced(0);
    assert!(followed(&whole).iter().all(|packets| packets.seen > 300 && packets.matched > packets.seen / 2));
    for threads in 2..=4 {
        let split = sliced(threads);
        assert_eq!(books(&split), books(&alone), "{threads} threads, sliced");
        assert_eq!(followed(&split), followed(&whole), "{threads} threads, sliced");
        for class in &split.report.classes {
            let slices = class.slices.as_ref().expect("slices");
            let sum: f64 = slices.slices.iter().map(|slice| slice.figures.mean_ns).sum();
            assert!((sum - slices.total.mean_ns).abs() < 1.0 + slices.total.mean_ns / 100.0, "{slices:?}");
        }
    }

    // A stage with its own threads runs in the part of the stages. The threads may be far apart in time.
    let limited = || {
        let text = "limit key dst-ip rate 10Gbps burst 500MB workers 2";
        let StageConfig::Limit(limit) = StageConfig::parse(text).expect(text) else { panic!("{text}") };
        let stages = vec![limit_stage(eal, &limit, (7, "limit"), &[]).expect("threads")];
        let schedule = Target::Nothing.schedule(None, Draw { seed: 7, path: "limited", frames: None });
        Pipeline::new(stages, schedule.expect("a schedule"))
    };
    for threads in 1..=3 {
        let report = run_with(eal, Device::Null, deadline(), on(threads), |_| limited()).report;
        // Workers that get no CPU for a while are full, and further frames are dropped as overrun.
        let overrun = report.drops.iter().map(|(reason, count)| if reason == DropReason::Overrun { count } else { 0 });
        let whole = report.left.frames + overrun.sum::<u64>();
        assert_eq!(
            (report.arrived.frames, whole, report.held),
            (FRAMES, FRAMES - FRAMES / HUGE, 0),
            "{threads} threads: {:?}",
            report.drops.iter().collect::<Vec<_>>()
        );
        assert!(report.left.frames >= 512, "{threads} threads: {:?}", report.left);
    }

    // Each class keeps its order, by the lengths seen on the line, whose last two bits encode the class. The order
    // between classes depends on the clock. One more thread runs the far end of the line.
    let line = Line::new(BitRate::from_gbps(1));
    let fillers =
        || Pacing::Filler { line, kind: FillerKind::Own, align: 1, longest: FrameLen::MAX_STANDARD, unbounded: false };
    let device = || Device::Line { slots: 4_096, list: 100_000, keep_fillers: false };
    let lengths = |finished: &Finished| {
        let of_class = |class| finished.listed.iter().map(|frame| frame.length.bytes()).filter(move |n| n % 4 == class);
        (0..4).map(|class| of_class(class).collect()).collect::<Vec<Vec<u32>>>()
    };
    let of_alone = run(eal, device(), fillers(), on(0));
    let of_parts = run(eal, device(), fillers(), on(5));
    assert_eq!(books(&of_alone), books(&alone));
    assert_eq!(books(&of_parts), books(&alone));
    assert_eq!(of_alone.listed.len() as u64, alone.report.left.frames);
    assert_eq!(lengths(&of_parts), lengths(&of_alone));
}
