//! A file of records: JSON lines. The first line describes the file and the cost of the probes.

use crate::{Costs, Error, Record};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The first line of a file of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format: 1.
    pub schema: u32,
    /// Type of the file: `slice-records`.
    pub kind: String,
    /// Cost of the probes where the records were made.
    pub costs: Costs,
    /// The set of probes.
    pub probes: String,
}

impl Header {
    /// A header of this version.
    #[must_use]
    pub fn new(costs: Costs, probes: &str) -> Header {
        Header { schema: 1, kind: "slice-records".into(), costs, probes: probes.into() }
    }
}

/// A line between the records.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Between {
    Window(u64),
    Pace(f64),
    Lost {
        unfinished: u64,
        evicted: u64,
    },
    /// The last line, with the number of records before it. Without it, a file of a killed writer could look complete,
    /// because it may end with a whole line.
    End {
        records: u64,
    },
}

/// A line of a file of records, except the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A packet.
    Record(Box<Record>),
    /// The following packets belong to the window with this number, counted from 1. Between windows nothing was traced.
    Window(u64),
    /// Cost of the probes as a multiple of the calibration, for the following packets.
    Pace(f64),
    /// This many frames have no record.
    Lost {
        /// They were in flight when the probes were detached.
        unfinished: u64,
        /// The ring had no room for them.
        evicted: u64,
    },
}

/// Writes records to a file.
pub struct JournalWriter<W> {
    path: PathBuf,
    file: W,
    records: u64,
}

impl<W: Write> JournalWriter<W> {
    /// Writes to `file`, which has this path. `file` should buffer small writes.
    pub fn new(path: &Path, file: W) -> Self {
        JournalWriter { path: path.to_owned(), file, records: 0 }
    }

    /// Writes the first line. Call once, before the records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn header(&mut self, header: &Header) -> Result<(), Error> {
        self.line(header)?;
        self.flush()
    }

    /// Flushes what was written so far, so that it survives if this process is killed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|cause| problem(&self.path, format!("cannot be written: {cause}")))
    }

    /// Records that the following records belong to another window.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn window(&mut self, number: u64) -> Result<(), Error> {
        self.line(&Between::Window(number))
    }

    /// Records the pace of the probes for the following records.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn pace(&mut self, pace: f64) -> Result<(), Error> {
        self.line(&Between::Pace(pace))
    }

    /// Records that frames have no record: see [`Entry::Lost`].
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn lost(&mut self, unfinished: u64, evicted: u64) -> Result<(), Error> {
        self.line(&Between::Lost { unfinished, evicted })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        self.records += 1;
        self.line(record)
    }

    fn line(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_string(value).map_err(|cause| problem(&self.path, cause.to_string()))?;
        self.file
            .write_all((text + "\n").as_bytes())
            .map_err(|cause| problem(&self.path, format!("cannot be written: {cause}")))
    }

    /// Writes the last line and returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<W, Error> {
        self.line(&Between::End { records: self.records })?;
        self.flush()?;
        Ok(self.file)
    }
}

/// Limit on the header in bytes. A usual one has 2 kB.
const LONGEST_HEADER: u64 = 1 << 20;

/// Reads records from a file.
pub struct Journal {
    path: PathBuf,
    lines: std::io::Lines<BufReader<Box<dyn Read>>>,
    number: u64,
    header: Header,
    records: u64,
    ended: bool,
}

impl Journal {
    /// Reads the first line of `file`, which has this path.
    ///
    /// # Errors
    /// The file is not a file of records, or has another version.
    pub fn read(path: &Path, file: Box<dyn Read>) -> Result<Journal, Error> {
        let mut file = BufReader::new(file);
        let none = || problem(path, "holds no records: write one with netlathe slice kernel -w FILE".to_owned());
        // Another type of file may contain no line end.
        let mut first = String::new();
        file.by_ref().take(LONGEST_HEADER).read_line(&mut first).map_err(|_| none())?;
        let header: Header = serde_json::from_str(&first).map_err(|_| none())?;
        if header.kind != "slice-records" {
            return Err(none());
        }
        if header.schema != 1 {
            return Err(problem(path, format!("is of schema {}, this version reads 1", header.schema)));
        }
        Ok(Journal { path: path.to_owned(), lines: file.lines(), number: 1, header, records: 0, ended: false })
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }
}

impl Iterator for Journal {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(line) = self.lines.next() else {
            let cut =
                "ends without its last line: the program that wrote it was killed, and some packets may be missing";
            return (!std::mem::replace(&mut self.ended, true)).then(|| Err(problem(&self.path, cut.to_owned())));
        };
        self.number += 1;
        let at = |what: String| problem(&self.path, format!("line {}: {what}", self.number));
        Some(match line {
            Ok(line) => match serde_json::from_str::<Between>(&line) {
                // No cost is negative or unbounded.
                Ok(Between::Pace(pace)) if !(0.0..1e9).contains(&pace) => Err(at(format!("{pace} is not a pace"))),
                _ if self.ended => Err(at("is after the last one: give one file of records".into())),
                Ok(Between::Window(window)) => Ok(Entry::Window(window)),
                Ok(Between::Pace(pace)) => Ok(Entry::Pace(pace)),
                Ok(Between::Lost { unfinished, evicted }) => Ok(Entry::Lost { unfinished, evicted }),
                Ok(Between::End { records }) if records != self.records => {
                    Err(at(format!("the end of {records} packets, of which {} are here", self.records)))
                }
                Ok(Between::End { .. }) => {
                    self.ended = true;
                    return self.next();
                }
                Err(_) => match serde_json::from_str::<Record>(&line) {
                    Ok(record) if record.stamps.is_empty() => Err(at("a record without stamps".into())),
                    Ok(mut record) => {
                        record.order();
                        self.records += 1;
                        Ok(Entry::Record(Box::new(record)))
                    }
                    Err(cause) => Err(at(format!("no record: {cause}"))),
                },
            },
            Err(cause) => Err(at(cause.to_string())),
        })
    }
}

fn problem(path: &Path, what: String) -> Error {
    Error::Journal { path: path.to_owned(), what }
}
