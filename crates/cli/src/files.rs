//! The files that asks name: tables of laws, captures whose gaps are a law.

use engine::schedules::Files;
use packet::HeapFrame;
use sim::CaptureReader;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use units::{PS_PER_NS, ParseError};

/// Files of this machine.
pub(crate) struct OnDisk;

impl Files for OnDisk {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        std::fs::read_to_string(path).map_err(|cause| {
            ParseError::new(
                format!("cannot read {}: {cause}", path.display()),
                "check the path, its permissions, and that it is a text",
            )
        })
    }

    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
        let broken = |error: sim::SimError| ParseError::new(error.to_string(), "give a capture that is whole");
        let mut reader = CaptureReader::open(path).map_err(broken)?;
        let mut frame = HeapFrame::default();
        let mut last = None;
        let mut gaps = Vec::new();
        while let Some(record) = reader.read(&mut frame).map_err(broken)? {
            let before = last.replace(record.time_ns);
            gaps.extend(before.map(|before| record.time_ns.saturating_sub(before).saturating_mul(PS_PER_NS)));
        }
        Ok(gaps)
    }

    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError> {
        let broken = |error: sim::SimError| ParseError::new(error.to_string(), "give a capture that is whole");
        let mut reader = CaptureReader::open(path).map_err(broken)?;
        let mut frame = HeapFrame::default();
        let mut read = 0;
        while reader.read(&mut frame).map_err(broken)?.is_some() {
            read += 1;
            if read == number {
                return Ok(packet::Frame::bytes(&frame).to_vec());
            }
        }
        Err(ParseError::new(format!("{} has {read} frames, not {number}", path.display()), "name one of them"))
    }

    #[cfg(feature = "live")]
    fn memory(&self) -> Option<engine::schedules::Advise> {
        Some(dpdk::prefer_huge_pages)
    }
}

/// Files of this machine, and a list of those that were read, so that none of them is written over.
#[derive(Default)]
pub(crate) struct Listed(RefCell<Vec<PathBuf>>);

impl Listed {
    fn list(&self, path: &Path) {
        self.0.borrow_mut().push(path.to_owned());
    }

    /// Those that were read.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        self.0.into_inner()
    }
}

impl Files for Listed {
    fn text(&self, path: &Path) -> Result<String, ParseError> {
        self.list(path);
        OnDisk.text(path)
    }

    fn capture_gaps(&self, path: &Path) -> Result<Vec<u64>, ParseError> {
        self.list(path);
        OnDisk.capture_gaps(path)
    }

    fn frame(&self, path: &Path, number: u64) -> Result<Vec<u8>, ParseError> {
        self.list(path);
        OnDisk.frame(path, number)
    }

    fn memory(&self) -> Option<engine::schedules::Advise> {
        OnDisk.memory()
    }
}
