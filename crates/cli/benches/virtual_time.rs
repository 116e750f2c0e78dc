//! Speed of virtual time: frames per second on one thread, compared with the time to read the bytes of the same file in
//! the same run. Figures are medians of several rounds. Nothing here passes or fails.

use engine::filler::FillerPlanner;
use engine::schedules::{Draw, Lengths, Target};
use engine::sources::{SizeSpec, Sizes, Streams};
use engine::{Line, Pipeline};
use packet::{FillerKind, HeapFrame};
use sim::{CaptureReader, Limits, Observer, PcapSink, PcapSource, Sink, StreamSource, WireSink};
use std::error::Error;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Instant;
use units::{BitRate, FrameLen, Layer, Rate, Span, Time};

const ROUNDS: usize = 7;
const FRAMES: u64 = 500_000;
const DRAW: Draw<'_> = Draw { seed: 7, path: "bench", frames: Some(FRAMES) };

struct Unwatched;

impl Observer for Unwatched {
    fn go_on(&mut self, _: u64, _: Time) -> bool {
        true
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo bench --bench virtual_time -- decisions` runs only the last part.
    if std::env::args().any(|argument| argument == "decisions") {
        return decide();
    }
    let folder = tempfile::tempdir()?;
    println!("virtual time, one thread, {FRAMES} frames, medians of {ROUNDS} rounds");
    for (name, stream) in [("64 B", "64B"), ("random 64-1518 B", "random 64B-1518B"), ("1518 B", "1518B")] {
        let file = folder.path().join("in.pcap");
        generate(&file, stream)?;
        let floor = median(|| read_bytes(&file))?;
        let parse = median(|| read_frames(&file))?;
        let gap = median(|| shape(&file, &Target::Gap(Span::from_us(10))))?;
        let rate = median(|| shape(&file, &Target::Rate(Rate::Bits(BitRate::from_bps(3_700_000_000), Layer::Frame))))?;
        let emulated = median(|| emulate(&file, "netem delay 50ms loss 1% rate 5gbit"))?;
        println!("{name}");
        row("read the file's bytes (the limit)", floor, floor);
        row("read its frames", parse, floor);
        row("shape pcap -> wire:10G --gap 10us", gap, floor);
        row("shape pcap -> wire:10G --rate 3.7Gbps", rate, floor);
        row("emulate pcap -> null delay 50ms loss 1% rate 5gbit", emulated, floor);
    }
    decide()?;
    Ok(())
}

fn row(what: &str, seconds: f64, floor: f64) {
    let rate = FRAMES as f64 / seconds / 1e6;
    println!("  {what:<52} {rate:>7.2} M frames/s   {:>5.2} x the time of the limit", seconds / floor);
}

/// Returns the median time of several rounds in seconds.
fn median(mut round: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[ROUNDS / 2])
}

fn generate(file: &Path, size: &str) -> Result<(), Box<dyn Error>> {
    let spec = scenario::parse_stream(&format!("udp 10.0.0.1:1 > 10.0.0.2:2 size {size}"))?;
    let mut source = StreamSource::new(Streams::new(&[spec], 7, 0)?, FRAMES);
    let mut sink = PcapSink::create(file, 0)?;
    run(&mut source, &mut sink, &Target::Gap(Span::from_us(1)))
}

fn read_bytes(file: &Path) -> Result<(), Box<dyn Error>> {
    let mut file = std::fs::File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer)? > 0 {
        black_box(&buffer);
    }
    Ok(())
}

fn read_frames(file: &Path) -> Result<(), Box<dyn Error>> {
    let mut reader = CaptureReader::open(file)?;
    let mut frame = HeapFrame::default();
    while let Some(record) = reader.read(&mut frame)? {
        black_box(record);
    }
    Ok(())
}

fn shape(file: &Path, ask: &Target) -> Result<(), Box<dyn Error>> {
    let line = Line::new(BitRate::from_gbps(10));
    run(&mut PcapSource::open(file)?, &mut WireSink::filled(line, FillerKind::Own, 1, FrameLen::MAX_STANDARD), ask)
}

/// Runs a stage between a capture and the port `null`.
fn emulate(file: &Path, stage: &str) -> Result<(), Box<dyn Error>> {
    let stage = engine::stages::StageConfig::parse(stage)?.build(DRAW.seed, DRAW.path);
    through(vec![stage], &mut PcapSource::open(file)?, &mut sim::NullSink, &Target::Nothing)
}

fn run(source: &mut dyn sim::Source, sink: &mut dyn Sink, ask: &Target) -> Result<(), Box<dyn Error>> {
    through(Vec::new(), source, sink, ask)
}

fn through(
    stages: Vec<Box<dyn engine::Stage<HeapFrame>>>,
    source: &mut dyn sim::Source,
    sink: &mut dyn Sink,
    ask: &Target,
) -> Result<(), Box<dyn Error>> {
    let schedule = ask.schedule(sink.line(), DRAW).map_err(|error| format!("{error:?}"))?;
    let mut pipeline = Pipeline::new(stages, schedule);
    let limits = Limits { duration: None, window: Span::from_ms(100), asked_gap: ask.fixed_gap() };
    let run = sim::run(source, &mut pipeline, sink, limits, &mut Unwatched);
    match run.failure {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Measures the decision alone: when a frame departs and which fillers precede it.
fn decide() -> Result<(), Box<dyn Error>> {
    let line = Line::new(BitRate::from_gbps(10));
    let sizes = SizeSpec::Uniform(FrameLen::MIN, FrameLen::MAX_STANDARD);
    let mut sizes = Sizes::new(sizes, engine::random::Random::stream(7, "bench"));
    let lengths: Vec<FrameLen> = (0..FRAMES).map(|_| sizes.draw()).collect();
    println!("schedule and filler plan, per frame");
    let asks = [
        ("--gap 10us", Target::Gap(Span::from_us(10))),
        ("--rate 3.7Gbps", Target::Rate("3.7Gbps".parse()?)),
        ("--rate 37.37%", Target::Rate("37.37%".parse()?)),
    ];
    let laws = [
        "uniform 8us..12us",
        "normal mean 10us sd 1us",
        "chi2 df 6 in 8us..12us",
        "chi2 df 6 in 8us..12us sampling stratified",
        "chi2 df 6 in 8us..12us corr 50%",
        "poisson lambda 2 in 8us..12us",
        "exp mean 10us",
        "pareto shape 2.5 scale 6us",
        "lognormal mean 10us sd 3us",
        "gamma shape 2 scale 5us",
    ];
    let mut asks: Vec<(String, Target)> = asks.into_iter().map(|(name, ask)| (name.to_owned(), ask)).collect();
    let waves = [
        "burst 8Gbps for 2ms every 10ms",
        "ramp 1Gbps..9Gbps over 1s repeat",
        "ramp 9Gbps..1Gbps over 3.7s hold",
        "follow-depth 1Gbps..9Gbps",
    ];
    for wave in waves {
        asks.push((format!("--rate '{wave}'"), scenario::parse_wave(wave)?));
    }
    for law in laws {
        asks.push((format!("--gap '{law}'"), scenario::parse_gap(law)?));
    }
    for (name, ask) in asks {
        // Tables are built once, before the first frame.
        let mut schedule = ask.schedule(Some(line), DRAW).map_err(|error| format!("{error:?}"))?;
        let seconds = median(|| {
            let mut planner = FillerPlanner::new(line, 1);
            for length in &lengths {
                let due = schedule.depart(Time::ZERO, &Lengths { frame: *length, packet: 0 });
                black_box(planner.place(due.at, Time::ZERO, length.on_wire()));
            }
            Ok(())
        })?;
        println!("  {name:<52} {:>7.1} ns", seconds * 1e9 / FRAMES as f64);
    }
    Ok(())
}
