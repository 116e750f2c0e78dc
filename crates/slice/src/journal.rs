//! Records in a file: JSON lines, the first of which says what they are and what the probes cost.

use crate::{Costs, Error, Record};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// The first line of a file of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Of this format; 1.
    pub schema: u32,
    /// What the file is: `slice-records`.
    pub kind: String,
    /// What the probes cost where the records were made.
    pub costs: Costs,
    /// Which probes there were.
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
    /// The last line, with the number of records before it: a writer that was killed leaves a file that may well end with
    /// a whole line.
    End {
        records: u64,
    },
}

/// A line of a file of records, but for the first.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// A packet.
    Record(Box<Record>),
    /// The packets from here on are of the window with this number, counted from 1; between the windows none was
    /// followed.
    Window(u64),
    /// Cost of the probes as a multiple of the calibration, for the packets from here on.
    Pace(f64),
    /// This many frames have no record.
    Lost {
        /// They were under way when the probes were taken away.
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
    /// Writes to `file`, which has this path. It should gather small writes.
    pub fn new(path: &Path, file: W) -> Self {
        JournalWriter { path: path.to_owned(), file, records: 0 }
    }

    /// Writes the first line; once, before the records.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn header(&mut self, header: &Header) -> Result<(), Error> {
        self.line(header)?;
        self.flush()
    }

    /// Gives the file what was written so far, for those who read it when this process has been killed.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(|cause| problem(&self.path, format!("cannot be written: {cause}")))
    }

    /// Says that the records from here on are of another window.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn window(&mut self, number: u64) -> Result<(), Error> {
        self.line(&Between::Window(number))
    }

    /// Says at which pace the probes ran for the records from here on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn pace(&mut self, pace: f64) -> Result<(), Error> {
        self.line(&Between::Pace(pace))
    }

    /// Notes that frames have no record: see [`Entry::Lost`].
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn lost(&mut self, unfinished: u64, evicted: u64) -> Result<(), Error> {
        self.line(&Between::Lost { unfinished, evicted })
    }

    /// Writes a record.
    ///
    /// # Errors
    /// When the file cannot be written.
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

    /// Writes the last line. Returns the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self) -> Result<W, Error> {
        self.line(&Between::End { records: self.records })?;
        self.flush()?;
        Ok(self.file)
    }
}

/// In bytes; one takes 2 kB.
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
    /// When it is no file of records, or of a later version.
    pub fn read(path: &Path, file: Box<dyn Read>) -> Result<Journal, Error> {
        let mut file = BufReader::new(file);
        let none = || problem(path, "holds no records: write one with netlathe slice kernel -w FILE".to_owned());
        // A file of something else may have no end of a line.
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
            let cut = "ends without its last line: whoever wrote it was ended, and some packets may be missing";
            return (!std::mem::replace(&mut self.ended, true)).then(|| Err(problem(&self.path, cut.to_owned())));
        };
        self.number += 1;
        let at = |what: String| problem(&self.path, format!("line {}: {what}", self.number));
        Some(match line {
            Ok(line) => match serde_json::from_str::<Between>(&line) {
                // Nothing takes less than no time, nor for ever.
                Ok(Between::Pace(pace)) if !(0.0..1e9).contains(&pace) => Err(at(format!("{pace} is no pace"))),
                _ if self.ended => Err(at("stands behind the last one: give one file of records".into())),
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
