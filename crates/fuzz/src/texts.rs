//! Grammars: texts that users write in options and scenarios.

use crate::Outcome;
use engine::classes::{Classifier, Rule};
use engine::schedules::{FollowDepth, Target};
use engine::sources::Streams;
use engine::stages::StageConfig;
use engine::sync::SyncSpec;
use packet::layers::{Layers, make_checksums_right};
use packet::{Frame as _, HeapFrame, Rewrite};
use scenario::{Expectation, PortSpec, parse_gap, parse_stream, parse_wave};
use std::fmt::{Debug, Display};
use units::Span;

/// Parses a text. An error must have a remedy after a colon.
fn read<T, E: ToString>(input: &[u8], parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
    let text = std::str::from_utf8(input).ok()?;
    match parse(text) {
        Ok(read) => Some(read),
        Err(error) => {
            assert!(error.to_string().contains(": "), "no remedy for {text:?}: {}", error.to_string());
            None
        }
    }
}

/// Parses a text whose value cannot be printed.
fn read_once<T: Debug, E: ToString>(input: &[u8], parse: impl Fn(&str) -> Result<T, E>) -> Outcome {
    read(input, parse).map_or(Outcome::Refused, |read| Outcome::of(&format!("{read:?}")))
}

/// Parses a text, and parses the printed form of its value, if it has one. Both values must print the same.
fn read_twice<T, E>(input: &[u8], parse: impl Fn(&str) -> Result<T, E>, print: impl Fn(&T) -> Option<String>) -> Outcome
where
    T: Debug,
    E: ToString + Debug,
{
    let Some(first) = read(input, &parse) else { return Outcome::Refused };
    let Some(printed) = print(&first) else { return Outcome::of(&format!("{first:?}")) };
    let again = parse(&printed).unwrap_or_else(|error| panic!("{first:?} prints {printed:?}: {error:?}"));
    assert_eq!(print(&again).as_ref(), Some(&printed), "{first:?}");
    Outcome::of(&printed)
}

/// The printed form of a value.
fn printed<T: Display>(read: &T) -> Option<String> {
    Some(read.to_string())
}

/// `--gap`: times and laws.
pub(crate) fn gap(input: &[u8]) -> Outcome {
    read_twice(input, parse_gap, |ask| match ask {
        Target::Law(law) => printed(law),
        _ => None,
    })
}

/// `--rate`: rates and waveforms.
pub(crate) fn wave(input: &[u8]) -> Outcome {
    read_twice(input, parse_wave, |ask| match ask {
        Target::Wave(wave) => printed(wave),
        Target::Depth(depth) => printed(depth),
        _ => None,
    })
}

/// `--stage`, `--both`, `--down`, `--up`.
pub(crate) fn stage(input: &[u8]) -> Outcome {
    read_twice(input, StageConfig::parse, printed)
}

/// `--stream`.
pub(crate) fn stream(input: &[u8]) -> Outcome {
    read_once(input, parse_stream)
}

/// Rules of classes and filters. A valid rule is also compiled.
pub(crate) fn rule(input: &[u8]) -> Outcome {
    let outcome = read_twice(input, str::parse::<Rule>, printed);
    if let Ok(rule) = std::str::from_utf8(input).unwrap_or_default().parse::<Rule>()
        && let Ok(mut classifier) = Classifier::new(&[&rule])
    {
        assert!(classifier.class(&[0x45; 90]) <= 1);
    }
    outcome
}

/// `--sync`, and waveforms that follow the depth of a queue.
pub(crate) fn sync(input: &[u8]) -> Outcome {
    if input.starts_with(b"follow") {
        return read_twice(input, str::parse::<FollowDepth>, printed);
    }
    read_twice(input, str::parse::<SyncSpec>, printed)
}

/// Ports.
pub(crate) fn port(input: &[u8]) -> Outcome {
    read_twice(input, PortSpec::parse, printed)
}

/// One rule of `--rewrite`.
pub(crate) fn rewrite(input: &[u8]) -> Outcome {
    read_twice(input, str::parse::<Rewrite>, printed)
}

/// `--expect`.
pub(crate) fn expectation(input: &[u8]) -> Outcome {
    read_once(input, Expectation::parse)
}

/// Delays, errors and times of `disk`. The first byte selects one.
pub(crate) fn disk(input: &[u8]) -> Outcome {
    match input.split_first() {
        Some((b'd', text)) => read_once(text, disk::Delay::parse),
        Some((b'f', text)) => read_once(text, disk::Fault::parse),
        Some((b't', text)) => read_twice(text, str::parse::<Span>, printed),
        _ => Outcome::Refused,
    }
}

/// Scenario files.
pub(crate) fn scenario(input: &[u8]) -> Outcome {
    read_twice(input, |text| scenario::read("a.toml", text, None), printed)
}

/// A scenario with every kind of setting that can be changed during a run.
const CHANGEABLE: &str = "schema = 1\nduration = '1s'\n\
    [[pipeline]]\nname = 'a'\nin = 'pcap:a'\nout = 'wire:10G'\nstages = ['delay 1ms', 'loss 1%', 'limit key dst-ip rate 1Mbps']\nrate = '5Gbps'\n\
    [[pipeline]]\nname = 'b'\nin = 'pcap:b'\nout = 'null'\n\
    [[pipeline.class]]\nname = 'c'\nmatch = 'udp'\ngap = '1ms'\n[[pipeline.class]]\ngap = '2ms'\n\
    [profile.p]\n'a.delay' = '2ms'\n";

/// Entries of `timeline`, one per line: changes of settings, and profiles.
pub(crate) fn timeline(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else { return Outcome::Refused };
    let entries: Vec<String> = text.lines().map(|line| toml::Value::from(line).to_string()).collect();
    let scenario = CHANGEABLE.replacen('\n', &format!("\ntimeline = [{}]\n", entries.join(", ")), 1);
    match scenario::read("a.toml", &scenario, None) {
        Ok(read) => {
            assert_eq!(read.timeline.windows(2).find(|two| two[0].at > two[1].at), None, "in order of time");
            Outcome::of(&format!("{:?}", read.timeline))
        }
        Err(problems) => {
            assert!(problems.to_string().contains(": "), "no remedy: {problems}");
            Outcome::Refused
        }
    }
}

/// `--set`: values that replace those of a scenario, one per line.
pub(crate) fn overrides(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else { return Outcome::Refused };
    let Ok(set) = text.lines().map(scenario::Override::parse).collect::<Result<Vec<_>, _>>() else {
        return Outcome::Refused;
    };
    match scenario::read_with("a.toml", CHANGEABLE, None, &set) {
        Ok(read) => Outcome::of(&read.to_string()),
        Err(problems) => {
            assert!(problems.to_string().contains(": "), "no remedy: {problems}");
            Outcome::Refused
        }
    }
}

/// Stacks of layers in streams, and the frames created from them.
pub(crate) fn stack(input: &[u8]) -> Outcome {
    let Some(spec) = read(input, parse_stream) else { return Outcome::Refused };
    // A captured frame requires a file.
    if input.windows(4).any(|four| four == b"pcap") {
        return Outcome::Refused;
    }
    let made = || {
        let mut streams = Streams::new(std::slice::from_ref(&spec), 7, 0).ok()?;
        let mut frame = HeapFrame::default();
        let frames = (0..4).map(|_| {
            streams.fill(&mut frame);
            assert!(frame.bytes().len() <= streams.longest(), "{} B", frame.bytes().len());
            frame.bytes().to_vec()
        });
        Some(frames.collect::<Vec<_>>())
    };
    let Some(frames) = made() else { return Outcome::Refused };
    assert_eq!(Some(&frames), made().as_ref(), "the same seed, the same bytes");
    for frame in &frames {
        let mut right = frame.clone();
        let found = Layers::of(frame);
        make_checksums_right(&mut right, &found);
        assert_eq!(right.len(), frame.len());
    }
    Outcome::of(&frames)
}
