//! Compares waveforms with their integrals. The tests compute the integrals in another way: sums of rates in f64 over
//! pieces listed here.

use super::{Stretch, Wave, WaveSchedule};
use crate::Line;
use crate::schedules::{Files, Impossible, Lengths, Schedule};
use proptest::prelude::*;
use std::path::Path;
use units::{BitRate, FrameLen, ParseError, Rate, Span, Time};

struct Shelf;

impl Files for Shelf {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        Ok(match path.to_str().expect("a name") {
            "rates" => "# time rate\n0s 1Gbps\n1ms, 4Gbps\n3ms 0\n5ms 2.5Gbps\n",
            "trace" => "1\n1\n3\n10\n",
            "late" => "1ms 1Gbps\n",
            "back" => "0s 1Gbps\n2ms 2Gbps\n1ms 3Gbps\n",
            "mixed" => "0s 1Gbps\n2ms 2Mpps\n",
            "words" => "0s 1Gbps\n2ms fast\n",
            "silent" => "0s 0\n",
            "empty" => "",
            "unordered" => "5\n3\n",
            "zero" => "0\n0\n",
            name => return Err(ParseError::new(format!("{name} is not there"), "check the path")),
        }
        .to_owned())
    }

    fn capture_gaps(&self, _: &Path) -> Result<Vec<u64>, ParseError> {
        Ok(Vec::new())
    }

    fn frame(&self, path: &Path, _: u64) -> Result<Vec<u8>, ParseError> {
        Err(ParseError::new(format!("no {}", path.display()), "write a name of the test"))
    }
}

fn wave(text: &str) -> Result<Wave, ParseError> {
    let mut wave = Wave::parse(text).unwrap_or_else(|| Err(ParseError::new("no wave", text)))?;
    wave.load(&Shelf)?;
    Ok(wave)
}

fn schedule(text: &str) -> WaveSchedule {
    WaveSchedule::new(&wave(text).expect(text), Some(Line::new(BitRate::from_gbps(10)))).expect(text)
}

fn lengths(bytes: u32) -> Lengths {
    Lengths { frame: FrameLen::new(bytes), packet: bytes - 18 }
}

/// Target in bits up to `t` seconds, for pieces of (length in s, Gbit/s at start, at end), repeated if `repeats`.
fn integral(pieces: &[(f64, f64, f64)], repeats: bool, t: f64) -> f64 {
    let period: f64 = pieces.iter().map(|piece| piece.0).sum();
    let all: f64 = pieces.iter().map(|(s, a, b)| s * (a + b) / 2.0).sum();
    let rounds = if repeats { (t / period).floor() } else { 0.0 };
    let (mut rest, mut sum) = (t - rounds * period, rounds * all);
    for (s, a, b) in pieces {
        let part = rest.clamp(0.0, *s);
        sum += part * (a + (a + (b - a) * part / s)) / 2.0;
        rest -= part;
    }
    if rest > 0.0 && !repeats {
        sum += rest * pieces.last().expect("a piece").2;
    }
    sum * 1e9
}

#[test]
fn departures_follow_the_integral() {
    let twice = [(2e-3, 8.0, 8.0), (8e-3, 0.0, 0.0), (1e-3, 4.0, 4.0), (4e-3, 0.0, 0.0)];
    let steps = [(1e-3, 1.0, 1.0), (2e-3, 4.0, 4.0), (2e-3, 0.0, 0.0), (1e-12, 2.5, 2.5)];
    let swing = [(1e-3, 1.0, 1.0), (2e-3, 4.0, 4.0), (2e-3, 0.0, 0.0), (0.5e-3, 2.5, 2.5)];
    for (text, pieces, repeats) in [
        ("burst 8Gbps for 2ms every 10ms", &twice[..2], true),
        ("burst 8Gbps for 2ms every 10ms + burst 4Gbps for 1ms every 5ms", &twice[..], true),
        ("ramp 1Gbps..9Gbps over 20ms", &[(20e-3, 1.0, 9.0)], false),
        ("ramp 9Gbps..1Gbps over 20ms hold", &[(20e-3, 9.0, 1.0)], false),
        ("ramp 1Gbps..9Gbps over 7ms repeat", &[(7e-3, 1.0, 9.0)], true),
        ("ramp 8.5Gbps..0.1Gbps over 3ms repeat", &[(3e-3, 8.5, 0.1)], true),
        ("steps rates", &steps, false),
        ("steps rates every 5.5ms", &swing[..], true),
    ] {
        let mut schedule = schedule(text);
        let mut bits = 0.0;
        for k in 0..60_000_u32 {
            let size = 64 + k * 7_919 % 1_455;
            let due = schedule.depart(Time::ZERO, &lengths(size));
            let t = due.at.as_ps() as f64 / 1e12;
            let asked = integral(pieces, repeats, t);
            // A picosecond at 9 Gbit/s is 0.009 bits. The f64 sums over a second have errors of the same size.
            assert!((asked - bits).abs() < 0.05, "{text}: frame {k} at {t} s: {asked} asked, {bits} sent");
            assert!(!due.starved);
            bits += f64::from(size) * 8.0;
        }
    }
}

#[test]
fn sine_follows_a_sine() {
    let (middle, height, every) = (5e9, 4e9, 3e-3);
    let omega = 2.0 * std::f64::consts::PI / every;
    let mut schedule = schedule("sine 1Gbps..9Gbps every 3ms");
    let mut bits = 0.0;
    for k in 0..60_000_u32 {
        let size = 64 + k * 7_919 % 1_455;
        let t = schedule.depart(Time::ZERO, &lengths(size)).at.as_ps() as f64 / 1e12;
        let asked = middle * t + height / omega * (1.0 - (omega * t).cos());
        // The linear pieces lie inside the sine: their deficit grows over one half wave and vanishes over the other.
        let most = 0.05 + 1.9e-5 * height * every / 2.0;
        assert!((asked - bits).abs() < most, "frame {k} at {t} s: {asked} asked, {bits} sent");
        bits += f64::from(size) * 8.0;
    }
    // Nothing remains after whole periods.
    assert!((wave_total("sine 1Gbps..9Gbps every 3ms") / (middle * every) - 1.0).abs() < 1e-9);
    assert!((wave_total("sine 1Mpps..1.5Mpps every 1.000001us") / 1.250_001_25 - 1.0).abs() < 1e-6);
}

/// The amount that a waveform carries in one round, in bits or frames.
fn wave_total(text: &str) -> f64 {
    let shape = wave(text).expect(text).shape().expect(text);
    let rate = |rate: &Option<Rate>| match rate {
        Some(Rate::Bits(rate, _)) => rate.bps() as f64,
        Some(Rate::Frames(rate)) => rate.millis() as f64 / 1e3,
        _ => 0.0,
    };
    let of = |piece: &Stretch| match piece {
        Stretch::Rates(span, from, to) => span.as_secs_f64() * (rate(from) + rate(to)) / 2.0,
        Stretch::Opportunity(_) => 0.0,
    };
    shape.pieces.iter().map(of).sum()
}

#[test]
fn no_frame_starts_in_silence_and_bursts_carry_over() {
    // 8 Gbit/s for 1 µs is 1 000 B: a frame of 600 B and 400 B of the next one.
    let mut schedule = schedule("burst 8Gbps for 1us every 10us");
    let starts: Vec<u64> = (0..6).map(|_| schedule.depart(Time::ZERO, &lengths(600)).at.as_ps()).collect();
    assert_eq!(starts, [0, 600_000, 10_200_000, 10_800_000, 20_400_000, 30_000_000]);
}

#[test]
fn counted_bursts_end() {
    let mut schedule = schedule("burst 8Gbps for 1us every 10us count 2 + burst 4Gbps for 1us every 2us count 1");
    let starts: Vec<Time> = (0..6).map(|_| schedule.depart(Time::ZERO, &lengths(500)).at).collect();
    let at = |ps| Time::from_ps(ps);
    assert_eq!(starts, [at(0), at(500_000), at(10_000_000), at(10_500_000), at(20_000_000), Time::MAX]);
    assert!(schedule.ended());
}

#[test]
fn forfeits_the_unused_share() {
    let mut schedule = schedule("burst 8Gbps for 1us every 10us");
    schedule.depart(Time::ZERO, &lengths(500));
    // No frame is ready in the second half of the first burst and the first quarter of the second.
    let due = schedule.depart(Time::from_ps(10_250_000), &lengths(500));
    assert_eq!((due.at, due.starved), (Time::from_ps(10_250_000), true));
    let forfeited = schedule.forfeited().expect("a waveform");
    assert!((forfeited - (500.0 + 250.0) / 1_750.0).abs() < 1e-9, "{forfeited}");
    // A frame that arrives in silence waits for the next burst, which stays on its original timing.
    schedule.depart(Time::ZERO, &lengths(500));
    let due = schedule.depart(Time::from_ps(25_000_000), &lengths(500));
    assert_eq!((due.at, due.starved), (Time::from_ps(30_000_000), true));
}

#[test]
fn trace_yields_its_opportunities() {
    let mut schedule = schedule("trace trace");
    // IP packets of 1 500 B take one opportunity each: at 1, 1, 3 and 10 ms, then the trace repeats from 10 ms on.
    let starts: Vec<u64> = (0..6).map(|_| schedule.depart(Time::ZERO, &lengths(1_518)).at.as_ps()).collect();
    assert_eq!(starts, [1, 1, 3, 10, 11, 11].map(|ms| ms * 1_000_000_000));
}

#[test]
fn takes_the_next_opportunity_of_a_trace_after_idle_time() {
    // Opportunities at 1, 1, 3, 10, 11, 11, 13, 20, 21 ms. An opportunity at the instant a frame becomes ready is still
    // available.
    for (ready, at) in [(25, 30), (30, 30), (95, 100), (100, 100), (101, 110), (110, 110), (200, 200), (201, 210)] {
        let mut schedule = schedule("trace trace");
        let ms = |tenths: u64| Time::from_ps(tenths * 100_000_000);
        assert_eq!(schedule.depart(Time::ZERO, &lengths(1_518)).at, ms(10));
        assert_eq!(schedule.depart(ms(ready), &lengths(1_518)).at, ms(at), "ready at {ready} tenths of a ms");
    }
}

#[test]
fn rates_count_their_unit() {
    for (text, units) in [
        ("burst 8Gbps wire for 1ms every 2ms", 84 * 1_000),
        ("burst 8Gbps ip for 1ms every 2ms", 46 * 1_000),
        ("burst 1Mpps for 1ms every 2ms", 1_000_000),
        ("burst 50% for 1ms every 2ms", 84 * 1_600),
    ] {
        let mut schedule = schedule(text);
        schedule.depart(Time::ZERO, &lengths(64));
        assert_eq!(schedule.depart(Time::ZERO, &lengths(64)).at.as_ps(), units, "{text}");
    }
}

#[test]
fn no_drift_after_two_to_the_33_frames() {
    // Rounds of 3.7 Gbit/s for 1 ms, 3.7e6 bits each. Frames of 64 B, after 2³³ frames.
    let mut schedule = schedule("burst 3.7Gbps for 1ms every 3ms");
    schedule.depart(Time::ZERO, &lengths(64));
    let gone: u128 = 1 << 33;
    schedule.profile.advance(super::profile::amount((gone - 1) * 512 * 1_000));
    for k in gone..gone + 1_000 {
        let bits = k * 512;
        let (round, rest) = (bits / 3_700_000, bits % 3_700_000);
        let exact = round * 3_000_000_000 + rest * 1_000_000_000_000 / 3_700_000_000;
        assert_eq!(u128::from(schedule.depart(Time::ZERO, &lengths(64)).at.as_ps()), exact, "frame {k}");
    }
}

proptest! {
    /// Each departure is the last picosecond at which the integral does not exceed the frames before it. Checked in
    /// integers: a·t + (b − a)·t²/2T against the bits, both multiplied by 2T.
    #[test]
    fn ramps_are_exact(from in 1_u64..10_000, to in 1_u64..10_000, ns in 1_000_u64..1_000_000_000, size in 64_u32..1_519) {
        prop_assume!(from != to);
        let mut schedule = schedule(&format!("ramp {from}Mbps..{to}Mbps over {ns}ns"));
        let period = i128::from(ns) * 1_000;
        let (a, b) = (i128::from(from) * 1_000_000, i128::from(to) * 1_000_000);
        let mut bits = 0_i128;
        for _ in 0..50 {
            let t = i128::from(schedule.depart(Time::ZERO, &lengths(size)).at.as_ps());
            let beyond = |t: i128| 2 * period * a * t + (b - a) * t * t > bits * 1_000_000_000_000 * 2 * period;
            if t < period {
                prop_assert!(!beyond(t), "{t} is too late");
                prop_assert!(beyond(t + 1) || t + 1 >= period, "{t} is too early");
            }
            bits += i128::from(size) * 8;
        }
    }
}

#[test]
fn examples_survive_parsing_and_printing() {
    let more =
        ["burst 1Mpps for 1us every 1us count 7 + burst 2Mpps for 1ms every 10ms", "ramp 10%..90% over 1s repeat"];
    let layers = [
        "ramp 1Gbps..9Gbps wire over 1s",
        "burst 8Gbps ip for 2ms every 10ms",
        "steps \"a file\"",
        "steps \"a file\" every 1.5s",
        "sine 10%..90% every 2us",
        "sine 1Gbps..9Gbps ip every 2us",
    ];
    for text in Wave::KINDS.iter().map(|kind| kind.example).chain(more).chain(layers) {
        let read = Wave::parse(text).expect(text).expect(text);
        let printed = read.to_string();
        assert_eq!(Wave::parse(&printed), Some(Ok(read)), "{printed}");
    }
}

#[test]
fn refuses_impossible_waveforms_with_a_remedy() {
    for (text, wanted) in [
        ("burst", "rate is missing"),
        ("burst 8Gbps", "how long"),
        ("burst 8Gbps for 2ms", "how often"),
        ("burst 8Gbps for 20ms every 10ms", "do not fit"),
        ("burst 8Gbps for 2ms every 10ms count 0", "not a count"),
        ("burst 8Gbps for 2ms every 10ms + ramp 1Gbps..2Gbps over 1s", "only bursts"),
        ("burst 8Gbps for 2ms every 10ms + burst 8Mpps for 2ms every 10ms", "count the same"),
        ("burst 8Gbps for 2ms every 10ms twice", "unexpected"),
        ("ramp 1Gbps over 1s", "from one rate to another"),
        ("ramp 1Gbps..2Gbps", "over"),
        ("ramp 1Gbps..50% over 1s", "count the same"),
        ("ramp 1Gbps..2Gbps over 100000s", "day"),
        ("ramp 1Gbps..2Gbps over 0s", "'over 0s' is zero"),
        ("ramp 1Gbps..2Gbps over 1s repeat hold", "'hold' is unexpected"),
        ("steps", "no file"),
        ("steps nowhere", "not there"),
        ("steps late", "late:1: the first step"),
        ("steps back", "back:3: 1ms is not after 2ms"),
        ("steps mixed", "count the same"),
        ("steps words", "words:2: 'fast'"),
        ("steps silent", "never sends"),
        ("steps empty", "no steps"),
        ("steps rates every 5ms", "not before it starts again"),
        ("steps rates every 86400.1s", "longer than a day"),
        ("steps rates every", "no value"),
        ("sine 1Gbps every 1s", "between two rates"),
        ("sine 9Gbps..1Gbps every 1s", "the lower one first"),
        ("sine 1Gbps..50% every 1s", "count the same"),
        ("sine 1Gbps..9Gbps over 1s", "between two rates"),
        ("sine 1Gbps..9Gbps every 1ns", "1us"),
        ("trace unordered", "unordered:2: '3'"),
        ("trace zero", "no delivery"),
        ("trace rates", "rates:2: '0s'"),
    ] {
        let error = wave(text).expect_err(text).to_string();
        assert!(error.contains(wanted), "{text}: {error}");
        assert!(["write", "check"].iter().any(|remedy| error.contains(remedy)), "{text}: {error}");
    }
    let line = Some(Line::new(BitRate::from_gbps(10)));
    let check = |text: &str, line| wave(text).expect(text).check(line);
    assert_eq!(check("ramp 1Gbps..11Gbps over 1s", line), Err(Impossible::AboveLine(BitRate::from_gbps(10))));
    assert_eq!(check("ramp 1Gbps..10Gbps over 1s", line), Ok(()));
    assert_eq!(check("ramp 1Gbps..11Gbps over 1s", None), Ok(()));
    assert_eq!(check("burst 50% for 2ms every 10ms", None), Err(Impossible::NoLine));
}

#[test]
fn typed_rates_are_the_integral_of_the_waveform_by_windows() {
    let wave = |text: &str| Wave::parse(text).expect("a waveform").expect("its grammar");
    let rates = |text: &str, ms, windows| {
        let line = Some(Line::new(BitRate::from_gbps(10)));
        wave(text).typed(line, 980.0, Span::from_ms(ms), windows).expect("rates")
    };
    let near = |got: Vec<f64>, expected: &[f64]| {
        assert!(got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1.0), "{got:?}");
    };
    near(rates("burst 100Mbps for 2ms every 5ms", 1, 7), &[1e8, 1e8, 0.0, 0.0, 0.0, 1e8, 1e8]);
    near(rates("burst 100Mbps for 2ms every 5ms count 1", 1, 4), &[1e8, 1e8, 0.0, 0.0]);
    near(rates("ramp 2Mbps..10Mbps over 10ms", 5, 3), &[4e6, 8e6, 1e7]);
    near(rates("burst 1Mpps for 1ms every 2ms", 2, 2), &[3.92e9, 3.92e9]);
    near(rates("burst 50% for 1ms every 2ms", 1, 2), &[4.9e9, 0.0]);
}
