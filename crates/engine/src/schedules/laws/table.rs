use super::{Grammar, Kind, Probability, Shape, Words, as_word};
use crate::schedules::{Files, columns};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use units::{ParseError, Span, measured};

/// A law read from a file: a `.dist` table, a list of samples, or the gaps of a capture.
///
/// The sorted values are the quantiles at 0, 1/(n − 1), …, 1, with linear interpolation between them.
#[derive(Clone, Debug)]
pub struct Table {
    /// The source of the values.
    pub file: TableFile,
    samples: Option<Arc<Samples>>,
}

/// The source of a table's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableFile {
    /// A table of iproute2 or NIST Net, `NAME.dist`: values in units of 1/8192 standard deviation.
    Dist(PathBuf),
    /// A list of times.
    List(PathBuf),
    /// A capture, whose gaps are the samples.
    Capture(PathBuf),
}

/// The sorted values of a table after it was read.
#[derive(Clone, Debug, PartialEq)]
struct Samples(Vec<f64>);

/// Steps per standard deviation in a `.dist` table.
const DIST_SCALE: f64 = 8192.0;

impl Samples {
    /// Parses a table of iproute2 or NIST Net. `name` is used in messages.
    ///
    /// # Errors
    /// Anything but 16-bit numbers, with the line; or no values.
    fn of_dist(text: &str, name: &Path) -> Result<Self, ParseError> {
        let read = |word: &str| {
            let value = word.parse::<f64>().ok().filter(|value| (-32_768.0..=32_767.0).contains(value));
            value.map(|value| value / DIST_SCALE).ok_or_else(|| {
                (
                    "is not a number from -32768 to 32767".to_owned(),
                    "write a table as tc's /usr/lib/tc/normal.dist is".to_owned(),
                )
            })
        };
        Self::read(text, name, read)
    }

    /// Parses a list of times. Each time has its unit, or all are plain numbers after a line such as `unit us`.
    ///
    /// # Errors
    /// Anything but times, with the line; a number without a unit; or no values.
    fn of_list(text: &str, name: &Path) -> Result<Self, ParseError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let begins = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let unit = lines.by_ref().take_while(|line| !begins(line)).find_map(columns::unit).unwrap_or_default();
        let read = |word: &str| {
            let bare = word.ends_with(|c: char| c.is_ascii_digit() || c == '.');
            let span = if bare { measured::<Span>(&format!("{word}{unit}")) } else { measured(word) };
            span.map(|span| span.as_ps() as f64).map_err(|error| {
                let error = error.to_string();
                let (what, remedy) = error.split_once(": ").unwrap_or((&error, "write 12.5us"));
                let hint = if bare && unit.is_empty() {
                    "; or start the file with a line 'unit us'; tables of tc are named .dist"
                } else {
                    ""
                };
                (format!("is not a sample, {what}"), format!("{remedy}{hint}"))
            })
        };
        Self::read(text, name, read)
    }

    /// A table from samples in picoseconds, such as the gaps of a capture.
    ///
    /// # Errors
    /// No samples.
    fn of_gaps(gaps: impl IntoIterator<Item = u64>, name: &Path) -> Result<Self, ParseError> {
        Self::new(gaps.into_iter().map(|ps| ps as f64).collect(), name)
    }

    fn read(text: &str, name: &Path, read: impl Fn(&str) -> Result<f64, (String, String)>) -> Result<Self, ParseError> {
        Self::new(columns::read(text, name, read)?, name)
    }

    fn new(mut values: Vec<f64>, name: &Path) -> Result<Self, ParseError> {
        if values.len() < 2 {
            return Err(ParseError::new(
                format!("{} has {} values, too few for a law", name.display(), values.len()),
                "give a table with two values at least",
            ));
        }
        values.sort_by(f64::total_cmp);
        if values.first() == values.last() {
            return Err(ParseError::new(
                format!("{} has one value only, {} times", name.display(), values.len()),
                "write fixed 10us for equal gaps",
            ));
        }
        Ok(Samples(values))
    }
}

impl Table {
    /// A `.dist` table that is not read yet.
    pub(super) fn of_file(path: PathBuf) -> Self {
        Table { file: TableFile::Dist(path), samples: None }
    }

    /// A table of at least two values.
    pub(super) fn of_values(name: &str, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Table { file: TableFile::Dist(name.into()), samples: Some(Arc::new(Samples(values))) }
    }

    #[cfg(test)]
    pub(super) fn entry(&self, index: usize) -> f64 {
        self.values()[index]
    }

    /// Reads the file.
    pub(super) fn load(&mut self, files: &dyn Files) -> Result<(), ParseError> {
        let path = self.file.path();
        let samples = match self.file {
            TableFile::Dist(_) => Samples::of_dist(&files.text(path)?, path)?,
            TableFile::List(_) => Samples::of_list(&files.text(path)?, path)?,
            TableFile::Capture(_) => Samples::of_gaps(files.capture_gaps(path)?, path)?,
        };
        self.samples = Some(Arc::new(samples));
        Ok(())
    }

    /// True after the file was read.
    pub(super) fn is_read(&self) -> bool {
        self.samples.is_some()
    }

    /// The values; zeros before the file is read.
    fn values(&self) -> &[f64] {
        self.samples.as_ref().map_or(&[0.0, 0.0], |samples| &samples.0)
    }

    /// Values that occur more than once, in order. Each has a probability of its own.
    pub(super) fn repeated(&self) -> impl Iterator<Item = f64> + '_ {
        let groups = self.values().chunk_by(|a, b| a.total_cmp(b).is_eq());
        groups.filter(|group| group.len() > 1).map(|group| group[0])
    }

    fn probability(&self, x: f64, counts: impl Fn(f64) -> bool) -> Probability {
        let values = self.values();
        let upto = values.partition_point(|value| counts(*value));
        if upto == 0 {
            return Probability::NONE;
        }
        if upto == values.len() {
            return Probability::ALL;
        }
        let (from, to) = (values[upto - 1], values[upto]);
        let position = (upto - 1) as f64 + (x - from) / (to - from);
        Probability::below(position / (values.len() - 1) as f64)
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Grammar for Table {
    const KIND: Kind = Kind {
        name: "table",
        grammar: "table FILE | table pcap:FILE",
        summary: "the distribution in a file: a .dist table, a list of times, or the gaps of a capture",
        example: "table gaps.txt",
    };

    fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        const EXAMPLE: &str = "table gaps.txt or table pcap:FILE";
        let word = words.file("table", EXAMPLE)?;
        let file = match word.strip_prefix("pcap:") {
            Some("") => return Err(ParseError::new("table has no file", format!("write {EXAMPLE}"))),
            Some(path) => TableFile::Capture(path.into()),
            None if word.ends_with(".dist") => TableFile::Dist(word.into()),
            None => TableFile::List(word.into()),
        };
        Ok(Table { file, samples: None })
    }
}

impl Shape for Table {
    fn cdf(&self, x: f64) -> Probability {
        self.probability(x, |value| value <= x)
    }

    fn strictly(&self, x: f64) -> Probability {
        self.probability(x, |value| value < x)
    }

    fn quantile(&self, p: Probability) -> f64 {
        let values = self.values();
        let position = p.below * (values.len() - 1) as f64;
        let index = (position as usize).min(values.len() - 2);
        let (from, to) = (values[index], values[index + 1]);
        from + (to - from) * (position - index as f64).clamp(0.0, 1.0)
    }

    fn moments(&self) -> (Option<f64>, Option<f64>) {
        // Includes the interpolation between the values, where the quantile is linear: ∫Q and ∫Q² of each piece.
        let values = self.values();
        let pieces = (values.len() - 1) as f64;
        let mean = values.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).sum::<f64>() / pieces;
        let square = |pair: &[f64]| {
            let (a, b) = (pair[0] - mean, pair[1] - mean);
            (a * a + a * b + b * b) / 3.0
        };
        let variance = values.windows(2).map(square).sum::<f64>() / pieces;
        (Some(mean), Some(libm::sqrt(variance)))
    }

    fn is_timed(&self) -> bool {
        !matches!(self.file, TableFile::Dist(_))
    }

    fn is_fast(&self) -> bool {
        true
    }
}

impl TableFile {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            TableFile::Dist(path) | TableFile::List(path) | TableFile::Capture(path) => path,
        }
    }
}

impl fmt::Display for TableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capture = if matches!(self, TableFile::Capture(_)) { "pcap:" } else { "" };
        f.write_str(&as_word(&format!("{capture}{}", self.path().display())))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.file)
    }
}
