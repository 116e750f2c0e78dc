//! Files that netlathe reads: tables, traces, logs, captures, records, rings.

use crate::Outcome;
use engine::schedules::{Draw, Files};
use engine::stages::Decision;
use packet::{Frame, HeapFrame};
use scenario::{parse_gap, parse_wave};
use sim::CaptureReader;
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;
use units::ParseError;

/// Returns the same text for every path.
struct Same<'a>(&'a str);

impl Files for Same<'_> {
    fn text(&self, _: &Path) -> Result<String, ParseError> {
        Ok(self.0.to_owned())
    }

    fn capture_gaps(&self, _: &Path) -> Result<Vec<u64>, ParseError> {
        Err(ParseError::new("there are no captures", "write another file"))
    }

    fn frame(&self, _: &Path, _: u64) -> Result<Vec<u8>, ParseError> {
        Err(ParseError::new("there are no captures", "write another file"))
    }
}

/// Creates a file with this content.
fn file(content: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(content).expect("it is written");
    file
}

/// Loads a target that reads `input` as its file.
fn loaded(ask: &str, input: &[u8], parse: fn(&str) -> Result<engine::schedules::Target, ParseError>) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else { return Outcome::Refused };
    let mut ask = parse(ask).expect("it is a target");
    if let Err(error) = ask.load(&Same(text)) {
        assert!(error.to_string().contains(": "), "no remedy: {error}");
        return Outcome::Refused;
    }
    match ask.schedule(None, Draw { seed: 1, path: "fuzz", frames: None }) {
        Ok(_) => Outcome::of(&format!("{ask:?}")),
        Err(_) => Outcome::Refused,
    }
}

/// Tables of tc and measured values.
pub(crate) fn table(input: &[u8]) -> Outcome {
    match input.split_first() {
        Some((b't', text)) => loaded("table a.dist mean 100us sd 5us", text, parse_gap),
        Some((b'v', text)) => loaded("table values in 1us..2ms", text, parse_gap),
        _ => Outcome::Refused,
    }
}

/// Mahimahi traces and step files.
pub(crate) fn trace(input: &[u8]) -> Outcome {
    match input.split_first() {
        Some((b't', text)) => loaded("trace a", text, parse_wave),
        Some((b's', text)) => loaded("steps a", text, parse_wave),
        Some((b'e', text)) => loaded("steps a every 10ms", text, parse_wave),
        _ => Outcome::Refused,
    }
}

/// A line of a decision log.
pub(crate) fn decision(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else { return Outcome::Refused };
    match Decision::parse(text) {
        Ok(decision) => Outcome::of(&format!("{decision:?}")),
        Err(error) => {
            assert!(error.to_string().contains(": "), "no remedy: {error}");
            Outcome::Refused
        }
    }
}

/// Captures. A frame is never longer than the file, and there are never more frames than bytes.
pub(crate) fn capture(input: &[u8]) -> Outcome {
    let file = file(input);
    let mut reader = match CaptureReader::open(file.path()) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(error.to_string().contains(": "), "no remedy: {error}");
            return Outcome::Refused;
        }
    };
    let mut frame = HeapFrame::default();
    let mut frames = 0_usize;
    loop {
        match reader.read(&mut frame) {
            Ok(Some(_)) => frames += 1,
            Ok(None) => break,
            Err(error) => {
                assert!(error.to_string().contains(": "), "no remedy: {error}");
                break;
            }
        }
        // A frame without an Ethernet header gets a generated one.
        assert!(frame.bytes().len() <= input.len() + 14 && frames <= input.len());
    }
    if frames == 0 { Outcome::Refused } else { Outcome::of(&(frames, frame.bytes())) }
}

/// Files with slice records.
pub(crate) fn journal(input: &[u8]) -> Outcome {
    let file = file(input);
    let Ok(records) = std::fs::File::open(file.path()) else { return Outcome::Refused };
    let Ok(journal) = slice::Journal::read(file.path(), Box::new(records)) else { return Outcome::Refused };
    let mut read = 0_u64;
    // A damaged line gives an error, and reading continues with the next line.
    for entry in journal {
        read += u64::from(entry.is_ok());
    }
    Outcome::of(&read)
}

/// Ring files of programs with probes.
pub(crate) fn ring(input: &[u8]) -> Outcome {
    let file = file(input);
    let Ok(mut reader) = probe::Reader::open(file.path()) else { return Outcome::Refused };
    let mut blocks = 0_u64;
    while let Some(block) = reader.next_block() {
        assert!(block.sections.len() <= probe::layout::SECTIONS);
        blocks += 1;
        if blocks > 2 * reader.slots() {
            break;
        }
    }
    for id in 0..=u8::MAX {
        let _ = reader.name(id);
    }
    let _ = (reader.costs(), reader.dropped(), reader.lost());
    Outcome::of(&(blocks, reader.slots()))
}
