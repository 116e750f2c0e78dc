//! Corrupted captures end with an error or the end of the file, never with a panic. Seeded, so that failures are
//! repeatable.

use packet::{Frame, HeapFrame};
use sim::{CaptureReader, CaptureWriter, PcapSource, Source, WhenFull};
use std::path::Path;

/// Marsaglia's xorshift, sufficient to choose corruptions.
struct Chance(u64);

impl Chance {
    fn below(&mut self, choices: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % choices as u64) as usize
    }
}

/// Corrupts a file: bytes flipped, set to extremes, removed, doubled or truncated, mostly near the headers.
fn broken(whole: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=chance.below(4) {
        let reach = if chance.below(2) == 0 { bytes.len().min(120) } else { bytes.len() };
        if reach == 0 {
            break;
        }
        let at = chance.below(reach);
        match chance.below(6) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = [0, 0xff, 0x7f, 0x80][chance.below(4)],
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + chance.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + 4).min(bytes.len());
                bytes[at..end].fill(0xff);
            }
            _ => {
                let end = (at + 1 + chance.below(60)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
    bytes
}

fn capture(path: &Path) -> Vec<u8> {
    let mut writer = CaptureWriter::create(path, WhenFull::Wait).expect("writable");
    for i in 0..8_u64 {
        let bytes = vec![i as u8; 60 + i as usize];
        writer.write(1_700_000_000_000_000_000 + i * 1_000, &bytes, bytes.len() as u32).expect("written");
    }
    writer.finish().expect("written");
    std::fs::read(path).expect("readable")
}

#[test]
fn corrupted_captures_never_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.pcap", "a.pcapng"] {
        let path = folder.path().join(name);
        let whole = capture(&path);
        let mut chance = Chance(0x5eed_0000_0000_0001);
        let mut errors = 0;
        for round in 0..1_500 {
            let bytes = broken(&whole, &mut chance);
            std::fs::write(&path, &bytes).expect("writable");
            let mut frame = HeapFrame::default();
            let mut frames = 0;
            let mut reader = match CaptureReader::open(&path) {
                Ok(reader) => reader,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    errors += 1;
                    continue;
                }
            };
            loop {
                match reader.read(&mut frame) {
                    Ok(Some(_)) => frames += 1,
                    Ok(None) => break,
                    Err(error) => {
                        assert!(error.to_string().contains(": "), "{error}");
                        errors += 1;
                        break;
                    }
                }
                assert!(frame.bytes().len() <= bytes.len() && frames <= bytes.len(), "{name}, round {round}");
            }
        }
        assert!(errors > 500, "{errors} errors: the files of {name} are hardly broken");
    }
}

#[test]
fn corrupted_captures_never_go_back_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a.pcap", "a.pcapng"] {
        let path = folder.path().join(name);
        let whole = capture(&path);
        let mut chance = Chance(0x5eed_0000_0000_0002);
        for _ in 0..800 {
            std::fs::write(&path, broken(&whole, &mut chance)).expect("writable");
            let Ok(mut source) = PcapSource::open(&path) else { continue };
            let mut frame = HeapFrame::default();
            let mut before = units::Time::ZERO;
            while let Some(arrival) = source.arrival() {
                assert!(arrival >= before);
                before = arrival;
                source.take(&mut frame);
            }
        }
    }
}
